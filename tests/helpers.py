"""What the tests share: one-node models, oracles and the one table of tolerances."""

import functools
import importlib.util
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.test_util
import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper

import jaxonnx
from jaxonnx.define.dtypes import STRING, type_of

# Relative and absolute tolerance by the dtype of the result.
TOLERANCE = {
    "float64": (1e-10, 1e-12),
    "float32": (1e-5, 1e-6),
    "float16": (2e-3, 1e-3),
    "bfloat16": (2e-2, 1e-2),
    "complex64": (1e-5, 1e-6),
    "complex128": (1e-10, 1e-12),
}

FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


def f32(values: Any) -> np.ndarray:
    """Numbers as a float32 array."""
    return np.array(values, np.float32)


def strings(*values: Any) -> np.ndarray:
    """Strings, or rows of them, as an array."""
    return np.array(values, STRING)


def i64(values: Any) -> np.ndarray:
    """Integers as an int64 array."""
    return np.array(values, np.int64)


def u8(values: Any) -> np.ndarray:
    """Integers as a uint8 array."""
    return np.array(values, np.uint8)


def s8(values: Any) -> np.ndarray:
    """Integers as an int8 array."""
    return np.array(values, np.int8)


def assert_same(actual: Any, expected: Any) -> None:
    """Equal dtype, shape and values, NaN included."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(actual.astype(np.float64), expected.astype(np.float64))


def assert_close(actual: Any, expected: Any, *, scale: float = 1.0) -> None:
    """Equal dtype and shape, and values equal within ``scale`` times the table's tolerance."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype, f"dtype {actual.dtype}, expected {expected.dtype}"
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    rtol, atol = TOLERANCE.get(expected.dtype.name, (0, 0))
    if expected.dtype.name in ("float16", "bfloat16"):
        actual, expected = actual.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_allclose(actual, expected, rtol=scale * rtol, atol=scale * atol)


def tensor_info(name: str, value: Any, shape: Any = None) -> onnx.ValueInfoProto:
    """A tensor declaration with the dtype, and the shape unless one is given, of ``value``."""
    value = np.asarray(value)
    dtype = type_of(value).tensor_type.elem_type
    return helper.make_tensor_value_info(name, dtype, value.shape if shape is None else shape)


def text_model(text: str, *, opset: int = 18, ir_version: int = 10) -> onnx.ModelProto:
    """A model from the text of its graph."""
    imports = f'opset_import: ["" : {opset}, "ai.onnx.ml" : 4]'
    return onnx.parser.parse_model(f"<ir_version: {ir_version}, {imports}> g {text}")


def node_model(
    op_type: str,
    inputs: Sequence[Any],
    *,
    opset: int,
    outputs: int = 1,
    domain: str = "",
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node; an input that is None is absent. Outputs are ``y0``, ``y1``, ..."""
    names = ["" if v is None else f"x{k}" for k, v in enumerate(inputs)]
    infos = [tensor_info(n, v) for n, v in zip(names, inputs, strict=True) if n]
    made = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op_type, names, made, domain=domain, **attributes)
    declared = [onnx.ValueInfoProto(name=n) for n in made]
    graph = helper.make_graph([node], "node", infos, declared)
    opsets = [helper.make_opsetid(domain, opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run_node(op_type: str, inputs: Sequence[Any], **options: Any) -> list[np.ndarray]:
    """The outputs that jaxonnx gives for a one-node model; options as of :func:`node_model`."""
    model = node_model(op_type, inputs, **options)
    result = jaxonnx.load(model)(*(v for v in inputs if v is not None))
    results = result if isinstance(result, tuple) else (result,)
    return [np.asarray(r) for r in results]


Case = tuple[str, int, list[Any], dict[str, Any], list[Any]]
"""An operator, the opset, inputs, attributes, and the outputs by hand."""


def by_case(cases: Sequence[Case]) -> pytest.MarkDecorator:
    """A test for each case, which takes it as ``case``."""
    ids = [f"{case[0]}-{case[1]}-{k}" for k, case in enumerate(cases)]
    return pytest.mark.parametrize("case", cases, ids=ids)


def check_case(case: Case) -> None:
    """Hold a one-node model to the outputs that a case has."""
    op_type, opset, inputs, attributes, expected = case
    results = run_node(op_type, inputs, opset=opset, outputs=len(expected), **attributes)
    for actual, right in zip(results, expected, strict=True):
        check = assert_same if right.dtype.name.startswith("float8") else assert_close
        check(actual, right)


def reference(model: onnx.ModelProto, *inputs: Any) -> list[Any]:
    """The outputs of ONNX's NumPy reference; known to be wrong on some operators."""
    from onnx.reference import ReferenceEvaluator

    names = [i.name for i in model.graph.input]
    return [*ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=False)))]


def onnxruntime(model: onnx.ModelProto, *inputs: Any) -> list[Any]:
    """The outputs of onnxruntime on CPU; known to be wrong on some operators."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [i.name for i in session.get_inputs()]
    return [*session.run(None, dict(zip(names, inputs, strict=False)))]


def check_gradients(function: Callable[..., Any], *args: Any, order: int = 2) -> None:
    """Derivatives to ``order``, forward and reverse, against finite differences in double."""
    with jax.enable_x64(True):
        doubles = [np.asarray(a, np.float64) for a in args]
        jax.test_util.check_grads(function, doubles, order=order, modes=("fwd", "rev"))


@functools.cache
def generator() -> Any:
    """``docs/generate.py`` as a module."""
    path = pathlib.Path(__file__).parents[1] / "docs" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

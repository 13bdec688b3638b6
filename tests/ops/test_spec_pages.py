"""The examples on ONNX's own pages of Relu, LeakyRelu, PRelu and Elu, in every type allowed.

``tests/data/spec_pages.json`` holds the examples of the pages Relu-14, LeakyRelu-16,
LeakyRelu-1-6-16, PRelu-16 and Elu-6 as they are printed there.
"""

import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FLOATS, assert_close, run_node

from jaxonnx import ops
from jaxonnx.define import registry
from jaxonnx.define.registry import signature
from jaxonnx.errors import InvalidModelError

EXAMPLES = json.loads((pathlib.Path(__file__).parents[1] / "data" / "spec_pages.json").read_text())
COUNTS = {"Relu": 9, "LeakyRelu": 4, "PRelu": 8, "Elu": 5}


def _dtypes(op_type, version):
    formal = signature(op_type, version, "")
    assert formal is not None
    return sorted(formal.inputs[0].dtypes or (), key=str)


CASES = [
    pytest.param(example, version, dtype, id=f"{example['op']}-{version}-{example['name']}-{dtype}")
    for example in EXAMPLES
    for version in registry.versions_of(example["op"])
    for dtype in _dtypes(example["op"], version)
    # Before version 7 the slope [5] of this one would go by channel, and there are 4.
    if not (example["name"] == "test_prelu_broadcast" and version < 7)
]


def _array(printed, dtype):
    """Printed values rounded to a floating dtype, or truncated into the range of integers."""
    values = np.array(printed["values"], printed["dtype"]).reshape(printed["shape"])
    if np.issubdtype(dtype, np.integer):
        limits, flat = np.iinfo(dtype), values.ravel().tolist()
        whole = [limits.max if v > limits.max else int(max(v, limits.min)) for v in flat]
        return np.array(whole, dtype).reshape(values.shape)
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def _assert_printed(actual, printed, dtype):
    """The dtype is this one; values agree to the precision of the coarser of it and the page's."""
    assert actual.dtype == dtype
    stated = np.dtype(jnp.dtype(printed["dtype"]))
    coarser = dtype
    if jnp.issubdtype(stated, np.floating) and jnp.finfo(stated).eps > jnp.finfo(dtype).eps:
        coarser = stated
    with np.errstate(over="ignore"):
        assert_close(actual.astype(coarser), _array(printed, coarser))


def test_every_example_is_there():
    assert {op: sum(e["op"] == op for e in EXAMPLES) for op in COUNTS} == COUNTS


@pytest.mark.parametrize(("example", "version", "dtype"), CASES)
def test_example(example, version, dtype):
    inputs = [_array(i, dtype) for i in example["inputs"]]
    (actual,) = run_node(example["op"], inputs, opset=version, **example["attributes"])
    if jnp.issubdtype(dtype, np.floating):
        _assert_printed(actual, example["outputs"][0], dtype)
    elif example["op"] == "Relu":
        assert_close(actual, _array(example["outputs"][0], dtype))
    else:  # truncated inputs have other outputs than the printed ones: the page's formula
        x, slope = inputs
        assert_close(actual, np.where(x < 0, slope * x, x))


@pytest.mark.parametrize("version", [1, 6])
def test_a_slope_for_another_number_of_channels_is_refused(version):
    example = next(e for e in EXAMPLES if e["name"] == "test_prelu_broadcast")
    inputs = [_array(i, np.dtype(np.float32)) for i in example["inputs"]]
    with pytest.raises(InvalidModelError, match=r"slope has shape \(5,\) and x \(3, 4, 5\)"):
        run_node("PRelu", inputs, opset=version)


# The page LeakyRelu-1-6-16 also has two examples on random numbers, stated by their formula.
@pytest.mark.parametrize("version", [1, 6, 16])
@pytest.mark.parametrize(("attributes", "alpha"), [({"alpha": 0.1}, 0.1), ({}, 0.01)])
def test_leaky_relu_of_random_numbers(version, attributes, alpha):
    x = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    y = np.clip(x, 0, np.inf) + np.clip(x, -np.inf, 0) * np.float32(alpha)
    for dtype in _dtypes("LeakyRelu", version):
        (actual,) = run_node("LeakyRelu", [x.astype(dtype)], opset=version, **attributes)
        narrow = dtype if dtype.itemsize < 4 else np.dtype(np.float32)
        assert actual.dtype == dtype
        assert_close(actual.astype(narrow), y.astype(narrow))


# Operator, attributes, inputs at the kink, and the derivative by each input there.
KINKS = [
    ("relu", {}, (0.0,), (0.0,)),
    ("leaky_relu", {}, (0.0,), (0.01,)),
    ("leaky_relu", {"alpha": 0.25}, (0.0,), (0.25,)),
    ("prelu", {}, (0.0, 0.25), (0.25, 0.0)),
    ("elu", {}, (0.0,), (1.0,)),
    ("elu", {"alpha": 2.0}, (0.0,), (2.0,)),
]


def at_zero(test):
    """Run a test on every row of ``KINKS`` in every floating dtype, with and without jit."""
    for names, values, ids in (
        (("name", "attributes", "at", "expected"), KINKS, None),
        ("dtype", FLOATS, lambda dtype: np.dtype(dtype).name),
        ("jit", [lambda function: function, jax.jit], ["eager", "jit"]),
    ):
        test = pytest.mark.parametrize(names, values, ids=ids)(test)
    return test


@at_zero
def test_forward_derivative_at_zero(name, attributes, at, expected, dtype, jit):
    function = functools.partial(getattr(ops, name), **attributes)
    with jax.enable_x64(True):
        point = tuple(jnp.full(2, v, dtype) for v in at)
        push = jit(lambda along: jax.jvp(function, point, along)[1])
        for chosen, derivative in enumerate(expected):
            along = tuple(jnp.full(2, chosen == k, dtype) for k in range(len(at)))
            assert_close(push(along), np.full(2, derivative, dtype))


@at_zero
def test_reverse_derivative_at_zero(name, attributes, at, expected, dtype, jit):
    function = functools.partial(getattr(ops, name), **attributes)
    with jax.enable_x64(True):
        point = [jnp.full(2, v, dtype) for v in at]
        pull = jit(lambda *xs: jax.vjp(function, *xs)[1](jnp.ones_like(xs[0])))
        for actual, derivative in zip(pull(*point), expected, strict=True):
            assert_close(actual, np.full(2, derivative, dtype))


@pytest.mark.parametrize("op_type", COUNTS)
def test_lowers_for_every_platform_with_a_symbolic_batch(op_type):
    function = getattr(ops, registry.snake_case(op_type))
    slope = [np.full(3, 0.25, np.float32)] if op_type == "PRelu" else []

    def value_and_derivatives(*inputs):
        y, pull = jax.vjp(function, *inputs)
        return y, pull(y)

    batch, *_ = jax.export.symbolic_shape("batch")
    shapes = [jax.ShapeDtypeStruct((batch, 3), np.float32)]
    shapes += [jax.ShapeDtypeStruct(s.shape, s.dtype) for s in slope]
    platforms = ("cpu", "cuda", "rocm", "tpu")
    exported = jax.export.export(jax.jit(value_and_derivatives), platforms=platforms)(*shapes)
    assert exported.platforms == platforms
    for size in (1, 4):
        x = np.linspace(-2, 2, 3 * size, dtype=np.float32).reshape(size, 3)
        jax.tree.map(assert_close, exported.call(x, *slope), value_and_derivatives(x, *slope))

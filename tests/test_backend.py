"""ONNX's backend interface."""

import jax
import ml_dtypes
import numpy as np
import onnx
import onnx.backend.base
import pytest
from helpers import assert_close, f32, i64
from onnx import TensorProto, helper, numpy_helper

from jaxonnx import backend
from jaxonnx.errors import InputError

X = f32([-1, 2])


def model_of(nodes, outputs, stored=(), dtype=TensorProto.FLOAT, opset=18):
    infos = [helper.make_tensor_value_info(n, dtype, ["N"]) for n in ("x", "w")]
    made = [onnx.ValueInfoProto(name=n) for n in outputs]
    graph = helper.make_graph(nodes, "g", infos, made, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


ADD = model_of([helper.make_node("Add", ["x", "w"], ["y"])], ["y"])
DEFAULT = model_of(
    [helper.make_node("Add", ["x", "w"], ["y"])], ["y"], [numpy_helper.from_array(X, "w")]
)


def test_is_the_interface():
    assert issubclass(backend.Backend, onnx.backend.base.Backend)
    assert issubclass(backend.BackendRep, onnx.backend.base.BackendRep)
    for name in ("prepare", "run_model", "run_node", "supports_device", "is_compatible"):
        assert getattr(backend, name) == getattr(backend.Backend, name)


@pytest.mark.parametrize("inputs", [[X, X], (X, X), {"w": X, "x": X}])
def test_run_model(inputs):
    outputs = backend.run_model(ADD, inputs)
    assert isinstance(outputs, tuple)
    assert type(outputs[0]) is np.ndarray
    assert_close(outputs[0], 2 * X)


@pytest.mark.parametrize("inputs", [[X], X, (X,), {"x": X}, [X, X]])
def test_inputs_with_a_default(inputs):
    (y,) = backend.prepare(DEFAULT).run(inputs)
    assert_close(y, 2 * X)


def test_prepared_model_runs_again():
    prepared = backend.prepare(ADD, device="CPU")
    assert_close(prepared.run([X, X])[0], 2 * X)
    assert_close(prepared.run([f32([1]), f32([5])])[0], f32([6]))


@pytest.mark.parametrize(
    "dtype", [np.int64, np.float64, np.uint8, np.bool_, np.float16, ml_dtypes.bfloat16]
)
def test_dtypes_are_exact(dtype):
    x = np.array([0, 1], dtype)
    elem = helper.np_dtype_to_tensor_dtype(x.dtype)
    nodes = [helper.make_node("Identity", [n], [m]) for n, m in (("x", "y"), ("w", "z"))]
    outputs = backend.run_model(model_of(nodes, ["y", "z"], dtype=elem), [x, x])
    for output in outputs:
        assert type(output) is np.ndarray
        assert_close(output, x)


def test_long_integers_are_exact():
    (y,) = backend.run_node(helper.make_node("Add", ["a", "b"], ["c"]), [i64(2**40)] * 2)
    assert_close(y, i64(2**41))


def test_options_of_other_backends_are_accepted():
    assert_close(backend.run_model(ADD, [X, X], "CPU", rtol=1e-3)[0], 2 * X)


def test_run_node():
    node = helper.make_node("Clip", ["x", "", "high"], ["y"])
    for inputs in ([X, f32(1)], [X, None, f32(1)], {"x": X, "high": f32(1)}):
        assert_close(backend.run_node(node, inputs)[0], f32([-1, 1]))


def test_run_node_with_several_outputs_some_absent():
    node = helper.make_node("TopK", ["x", "k"], ["", "indices"])
    outputs = backend.run_node(node, [X, i64([1])], outputs_info=[(np.int64, (1,))])
    assert len(outputs) == 1
    assert_close(outputs[0], i64([1]))


def test_run_node_of_an_opset():
    x = np.zeros((1, 2, 2), np.float32)
    node = helper.make_node("Softmax", ["x"], ["y"])
    assert_close(backend.run_node(node, [x])[0], x + 0.5)
    assert_close(backend.run_node(node, [x], opset_version=11)[0], x + 0.25)


def test_devices():
    assert backend.supports_device("CPU")
    assert backend.supports_device("CPU:1")
    assert not backend.supports_device("CPU:999")
    assert not backend.supports_device("ABACUS")
    assert not backend.supports_device("CPU:x")
    platforms = {d.platform for d in jax.devices()}
    assert backend.supports_device("TPU") == ("tpu" in platforms)
    with pytest.raises(InputError, match="JAX has no device 'ABACUS'"):
        backend.prepare(ADD, "ABACUS")


def test_device_index():
    prepared = backend.prepare(ADD, "CPU:1")
    assert prepared.device == jax.devices("cpu")[1]
    assert_close(prepared.run([X, X])[0], 2 * X)


def test_is_compatible():
    assert backend.is_compatible(ADD)
    assert not backend.is_compatible(ADD, "ABACUS")
    assert not backend.is_compatible(model_of([helper.make_node("NoSuch", ["x"], ["y"])], ["y"]))

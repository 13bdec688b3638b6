"""Activation functions: their forms by version, inputs beside x, integers, shapes and errors."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FLOATS, assert_close, run_node
from jax import core

from jaxonnx import ops
from jaxonnx.define import registry
from jaxonnx.define.known import as_dims, same_dim
from jaxonnx.define.registry import signature
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops import activation

F32 = np.float32


def array(values: Any, dtype: Any = np.float32) -> np.ndarray:
    return np.array(values, dtype)


def integers(op_type, version):
    """The integer dtypes that a schema version allows for the first input."""
    formal = signature(op_type, version, "")
    assert formal is not None
    return [d for d in formal.inputs[0].dtypes or () if np.issubdtype(d, np.integer)]


OP_TYPES = sorted(
    {o.op_type for o in registry.registered() if o.function in vars(activation).values()}
)


# PRelu


def test_prelu_broadcasts_the_last_axes():
    # The slopes go by the last axes, as in NumPy, not by channel.
    x = np.full((1, 3, 2, 3), -1, F32)
    (y,) = run_node("PRelu", [x, array([1, 2, 3])], opset=16)
    assert_close(y, np.broadcast_to(array([-1, -2, -3]), x.shape))
    (y,) = run_node("PRelu", [x, array([1, 2, 3]).reshape(3, 1, 1)], opset=7)
    assert_close(y[0, :, 0, 0], array([-1, -2, -3]))


@pytest.mark.parametrize("version", [1, 6])
def test_prelu_by_channel(version):
    x = np.full((1, 3, 2, 3), -1, F32)
    (y,) = run_node("PRelu", [x, array([1, 2, 3])], opset=version)
    assert_close(y, np.broadcast_to(array([-1, -2, -3]).reshape(3, 1, 1), x.shape))
    for shared in (array([4]), array(4)):
        assert_close(run_node("PRelu", [x, shared], opset=version)[0], 4 * x)


@pytest.mark.parametrize("version", [9, 16])
def test_prelu_of_integers(version):
    for dtype in integers("PRelu", version):
        signed = np.issubdtype(dtype, np.signedinteger)
        x, y = ([-3, 0, 2], [-21, 0, 2]) if signed else ([0, 1, 2], [0, 1, 2])
        inputs = [array(x, dtype), array([7], dtype)]
        assert_close(run_node("PRelu", inputs, opset=version)[0], array(y, dtype))


def test_prelu_at_infinity():
    x, slope = array([np.inf, -np.inf, np.inf]), array([0.25, 0.5, np.inf])
    assert_close(ops.prelu(x, slope), array([np.inf, -np.inf, np.inf]))
    assert_close(
        jax.jvp(lambda x: ops.prelu(x, slope), (x,), (np.ones_like(x),))[1], array([1, 0.5, 1])
    )
    dx, dslope = jax.vjp(ops.prelu, x, slope)[1](np.ones_like(x))
    assert_close(dx, array([1, 0.5, 1]))
    assert_close(dslope, array([0, -np.inf, 0]))


@pytest.mark.parametrize("shape", [(2, 3), (4,), (1, 1, 3), (2, 1, 1, 3)])
def test_prelu_refuses_a_slope_that_does_not_broadcast(shape):
    with pytest.raises(InvalidModelError) as caught:
        run_node("PRelu", [np.ones((1, 3), F32), np.ones(shape, F32)], opset=16)
    assert f"slope has shape {shape} and x (1, 3)" in str(caught.value)


# Softmax, LogSoftmax, Hardmax


def rows_of_twelve(op_type, x):
    """The result over rows of 12 by the formula, in double."""
    rows = np.asarray(x, np.float64).reshape(2, 12)
    exps = np.exp(rows)
    soft = exps / exps.sum(axis=1, keepdims=True)
    hard = np.eye(12)[rows.argmax(axis=1)]
    result = {"Softmax": soft, "LogSoftmax": np.log(soft), "Hardmax": hard}[op_type]
    return result.reshape(x.shape).astype(F32)


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("version", [1, 11])
def test_old_softmax_takes_all_axes_from_the_first_together(op_type, version):
    x = (np.arange(24) % 7 - np.arange(24) / 24).reshape(2, 3, 4).astype(F32)
    expected = rows_of_twelve(op_type, x)
    for attributes in ({}, {"axis": 1}, {"axis": -2}):
        assert_close(run_node(op_type, [x], opset=version, **attributes)[0], expected)
    (y,) = run_node(op_type, [x.reshape(24)], opset=version, axis=0)
    assert np.isclose((np.exp(y) if op_type == "LogSoftmax" else y).sum(), 1)


def test_softmax_takes_one_axis():
    x = np.log(array([[1, 2], [3, 2]]))
    assert_close(run_node("Softmax", [x], opset=13)[0], array([[1 / 3, 2 / 3], [0.6, 0.4]]))
    assert_close(run_node("Softmax", [x], opset=13, axis=0)[0], array([[0.25, 0.5], [0.75, 0.5]]))
    (y,) = run_node("LogSoftmax", [x], opset=13, axis=-2)
    assert_close(y, np.log(array([[0.25, 0.5], [0.75, 0.5]])))
    assert_close(run_node("Hardmax", [x], opset=13, axis=-2)[0], array([[0, 1], [1, 0]]))


def test_hardmax_takes_the_first_maximum():
    x = array([[[1, 3], [3, 2]]])
    assert_close(activation.hardmax_1(x), array([[[0, 1], [0, 0]]]))
    assert_close(ops.hardmax(x, axis=2), array([[[0, 1], [1, 0]]]))
    assert_close(ops.hardmax(array([2, 2, 1])), array([1, 0, 0]))


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize(("shape", "axis"), [((3,), 1), ((2, 3), -3), ((), 0)])
@pytest.mark.parametrize("version", [1, 11, 13])
def test_axis_out_of_range(op_type, shape, axis, version):
    with pytest.raises(InvalidModelError, match=f"axis is {axis}, expected "):
        run_node(op_type, [np.ones(shape, F32)], opset=version, axis=axis)


# Clip

CLIPPED = [-np.inf, -3, 1, np.nan, np.inf]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({}, CLIPPED),
        ({"min": -1.5}, [-1.5, -1.5, 1, np.nan, np.inf]),
        ({"max": 0.5}, [-np.inf, -3, 0.5, np.nan, 0.5]),
        ({"min": -1.5, "max": 0.5}, [-1.5, -1.5, 0.5, np.nan, 0.5]),
        ({"min": 2.0, "max": 0.5}, [0.5, 0.5, 0.5, np.nan, 0.5]),
    ],
)
def test_clip(bounds, expected):
    inputs = [bounds.get("min"), bounds.get("max")]
    ends = np.finfo(F32)
    finite = np.where(np.isnan(expected), np.nan, np.clip(expected, ends.min, ends.max))
    for version in (1, 6):  # by default the bounds are the ends of the range of float32
        (y,) = run_node("Clip", [array(CLIPPED)], opset=version, **bounds)
        assert_close(y, array(finite))
        for dtype in (np.float16, np.float64):
            (y,) = run_node("Clip", [array(CLIPPED, dtype)], opset=version, **bounds)
            assert_close(y, array(expected, dtype))
    for version, dtype in ((11, F32), (12, F32), *((13, d) for d in FLOATS)):
        given = [None if v is None else array(v, dtype) for v in inputs]
        (y,) = run_node("Clip", [array(CLIPPED, dtype), *given], opset=version)
        assert_close(y, array(expected, dtype))


@pytest.mark.parametrize("version", [12, 13])
def test_clip_of_integers(version):
    for dtype in integers("Clip", version):
        inputs = [array(v, dtype) for v in ([0, 3, 5, 100], 2, [5])]
        assert_close(run_node("Clip", inputs, opset=version)[0], array([2, 3, 5, 5], dtype))
    large = array([2**40, 2**62 + 1], np.int64)
    inputs = [large, array(2**40 + 1, np.int64)]
    assert_close(run_node("Clip", inputs, opset=version)[0], large + array([1, 0], np.int64))


def test_derivatives_by_the_bounds_of_clip():
    x = array([-2, -1, 0, 1, 2])
    each = jax.jacrev(ops.clip, argnums=(0, 1, 2))(x, F32(-1), F32(1))
    assert_close(np.diag(each[0]), array([0, 1, 1, 1, 0]))
    assert_close(each[1], array([1, 0, 0, 0, 0]))
    assert_close(each[2], array([0, 0, 0, 0, 1]))
    each = jax.jacfwd(ops.clip, argnums=(0, 1, 2))(x, F32(1), F32(1))
    assert_close(np.diag(each[0]), np.zeros(5, F32))
    assert_close(each[1], np.zeros(5, F32))
    assert_close(each[2], np.ones(5, F32))


def test_clip_refuses_bounds_that_are_no_scalars():
    with pytest.raises(InvalidModelError, match=r"max has shape \(2,\), expected a scalar"):
        run_node("Clip", [np.ones(2, F32), None, np.ones(2, F32)], opset=13)


def test_clip_of_a_dimension():
    (n,) = jax.export.symbolic_shape("n")
    dims = np.array([n, 7], object)
    low, high = as_dims(ops.clip(dims, np.int64(3), np.int64(5)))
    assert same_dim(low, core.min_dim(core.max_dim(n, 3), 5))
    assert high == 5


# Integers of Relu and Shrink


def test_relu_of_integers():
    for dtype in integers("Relu", 14):
        lowest = np.iinfo(dtype).min
        (y,) = run_node("Relu", [array([lowest, -1, 0, 5], dtype)], opset=14)
        assert_close(y, array([0, 0, 0, 5], dtype))


def test_shrink_of_integers():
    for dtype in integers("Shrink", 9):
        x = array([0, 1, 2, 3, 100], dtype)
        (y,) = run_node("Shrink", [x], opset=9, lambd=1.5, bias=1.5)
        assert_close(y, array([0, 0, 0, 1, 98], dtype))
        (y,) = run_node("Shrink", [x], opset=9, lambd=1e4)  # more than 8 bits hold
        assert_close(y, np.zeros_like(x))
    x = array([-(2**62) - 1, -4, -3, -2, -1], np.int64)
    (y,) = run_node("Shrink", [x], opset=9, lambd=1.5, bias=1.5)
    assert_close(y, array([-(2**62) + 1, -2, -1, 0, 0], np.int64))  # -2 + 1.5 is truncated to 0


# Shapes, known values, errors


@pytest.mark.parametrize("op_type", OP_TYPES)
def test_scalars_and_empty_arrays(op_type):
    needs_an_axis = op_type in ("Softmax", "LogSoftmax", "Hardmax")
    for shape in [(0, 3), (2, 0)] if needs_an_axis else [(), (0, 3), (2, 0)]:
        inputs = [np.ones(shape, F32)] * (2 if op_type == "PRelu" else 1)
        (y,) = run_node(op_type, inputs, opset=max(registry.versions_of(op_type)))
        assert y.shape == shape


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ops.prelu(x, jnp.ones_like(x[:1])),
        lambda x: activation.prelu_1(x, np.full(3, 0.5, F32)),
        ops.softmax,
        activation.softmax_1,
        functools.partial(ops.log_softmax, axis=0),
        functools.partial(ops.hardmax, axis=0),
        functools.partial(ops.hardmax, axis=1),
        activation.hardmax_1,
        ops.gelu,
        lambda x: ops.clip(x, F32(-0.5), F32(0.5)),
    ],
)
def test_symbolic_shapes(function):
    shape = jax.ShapeDtypeStruct(jax.export.symbolic_shape("batch, 3, n"), F32)
    exported = jax.export.export(jax.jit(function))(shape)
    x = np.linspace(-1, 2, 24, dtype=F32).reshape(2, 3, 4)
    assert_close(exported.call(x), function(x))


def test_gelu_refuses_another_approximation():
    with pytest.raises(InvalidModelError, match="approximate is 'sigmoid', expected 'none' or"):
        run_node("Gelu", [np.ones(2, F32)], opset=20, approximate="sigmoid")

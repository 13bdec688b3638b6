"""Running sums and products, and indices of extremes."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers import FLOATS, assert_close, check_gradients, run_node

from jaxonnx import ops
from jaxonnx.errors import InvalidModelError

BIG = 2**53 + 1
FORMS = [
    ({}, [1, 3, 6], [1, 2, 6]),
    ({"exclusive": 1}, [0, 1, 3], [1, 1, 2]),
    ({"reverse": 1}, [6, 5, 3], [6, 6, 3]),
    ({"exclusive": 1, "reverse": 1}, [5, 3, 0], [6, 3, 1]),
]


def axis(value):
    return np.array(value, np.int64)


@pytest.mark.parametrize(("attributes", "sums", "products"), FORMS)
def test_forms(attributes, sums, products):
    for dtype in (np.int32, np.int64, np.uint32, np.uint64, *FLOATS):
        x = np.array([1, 2, 3], dtype)
        assert_close(ops.cum_sum(x, axis(0), **attributes), np.array(sums, dtype))
        assert_close(ops.cum_prod(x, axis(0), **attributes), np.array(products, dtype))
        for opset in (11, 14) if dtype not in (np.float16, ml_dtypes.bfloat16) else (14,):
            (y,) = run_node("CumSum", [x, axis(0)], opset=opset, **attributes)
            assert_close(y, np.array(sums, dtype))
    (y,) = run_node("CumProd", [np.array([1, 2, 3]), axis(0)], opset=26, **attributes)
    assert_close(y, np.array(products))


@pytest.mark.parametrize("where", [1, -1, [1]])
def test_axes(where):
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    expected = np.array([[0, 1, 3], [0, 4, 9]], np.float32)
    (y,) = run_node("CumSum", [x, np.array(where, np.int32)], opset=14, exclusive=1)
    assert_close(y, expected)


def test_sums_are_exact():
    x = np.array([BIG, 1, -BIG])
    assert_close(ops.cum_sum(x, axis(0)), np.array([BIG, BIG + 1, 1]))
    assert_close(run_node("CumSum", [x, axis(0)], opset=14)[0], np.array([BIG, BIG + 1, 1]))


def test_exclusive_sums_keep_infinity_to_itself():
    x = jnp.array([1.0, jnp.inf, 2.0])
    assert_close(ops.cum_sum(x, 0, exclusive=1), np.array([0, 1, np.inf], np.float32))


@pytest.mark.parametrize(("attributes", "sums", "products"), FORMS)
def test_nothing(attributes, sums, products):
    del sums, products
    for function in (ops.cum_sum, ops.cum_prod):
        assert function(jnp.zeros((2, 0)), 1, **attributes).shape == (2, 0)
        assert function(np.zeros((0, 2)), 1, **attributes).shape == (0, 2)


@pytest.mark.parametrize(("attributes", "sums", "products"), FORMS)
def test_gradients(attributes, sums, products):
    del sums, products
    x = [[0.5, 0.0, -2.0]]
    check_gradients(lambda x: ops.cum_sum(x, 1, **attributes), x)
    check_gradients(lambda x: ops.cum_prod(x, 1, **attributes), x)


def test_bad_axes():
    x = np.ones((2, 3), np.float32)
    with pytest.raises(InvalidModelError, match=r"axis is 2, expected one in \[-2, 1\]"):
        run_node("CumSum", [x, axis(2)], opset=14)
    with pytest.raises(InvalidModelError, match=r"axis has shape \(2,\), expected one element"):
        run_node("CumSum", [x, axis([0, 1])], opset=14)
    with pytest.raises(InvalidModelError, match="axis is -3"):
        run_node("ArgMax", [x], opset=13, axis=-3)


def test_symbolic_shape():
    def run(x):
        with jax.enable_x64(True):
            running = ops.cum_sum(x, 0, exclusive=1, reverse=1)
            return running, ops.arg_max(x, axis=0, select_last_index=1)

    shape = jax.ShapeDtypeStruct(jax.export.symbolic_shape("S"), np.float32)
    exported = jax.export.export(jax.jit(run))(shape)
    running, index = exported.call(np.array([1, 3, 3], np.float32))
    assert_close(running, np.array([6, 3, 0], np.float32))
    assert_close(index, np.array([2]))


X = [[2, 1, 2], [0, 5, 0]]
INDICES = [
    ("arg_max", {"axis": 1}, [[0], [1]]),
    ("arg_max", {"axis": -1, "select_last_index": 1}, [[2], [1]]),
    ("arg_max", {"axis": 0, "keepdims": 0}, [0, 1, 0]),
    ("arg_max", {}, [[0, 1, 0]]),
    ("arg_min", {"axis": 1}, [[1], [0]]),
    ("arg_min", {"axis": 1, "select_last_index": 1, "keepdims": 0}, [1, 2]),
]


@pytest.mark.parametrize(("name", "attributes", "expected"), INDICES)
def test_arg_extremes(name, attributes, expected):
    function, expected = getattr(ops, name), np.array(expected)
    for dtype in (*FLOATS, np.int8, np.int32, np.int64, np.uint8, np.uint64):
        x = np.array(X, dtype)
        assert_close(function(x, **attributes), expected)
        with jax.enable_x64(True):
            assert_close(function(jnp.asarray(x), **attributes), expected)
    assert function(jnp.asarray(X), **attributes).dtype == np.int32  # x64 is off


@pytest.mark.parametrize("opset", [1, 11, 12, 13])
def test_arg_extreme_versions(opset):
    x = np.array(X, np.float32)
    assert_close(run_node("ArgMax", [x], opset=opset, axis=1)[0], np.array([[0], [1]]))
    assert_close(run_node("ArgMin", [x], opset=opset, axis=1, keepdims=0)[0], np.array([1, 0]))


def test_arg_extremes_of_large_integers_and_nan():
    x = np.array([BIG - 1, BIG])
    assert run_node("ArgMax", [x], opset=13)[0].tolist() == [1]
    x = np.array([2, np.nan, 3], np.float32)
    for op_type in ("ArgMax", "ArgMin"):
        assert run_node(op_type, [x], opset=13)[0].tolist() == [1]
    assert ops.arg_max(jnp.zeros((3, 0)), axis=0).shape == (1, 0)

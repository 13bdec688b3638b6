"""TopK, OneHot, Trilu and EyeLike: order, ties, unsigned types, borders, derivatives."""

from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from helpers import FLOATS, assert_close, check_gradients, run_node
from jax import export

from jaxonnx import ops
from jaxonnx.errors import InvalidModelError

NAN, INF = np.nan, np.inf
ALL = [*FLOATS, np.int8, np.uint8, np.int32, np.int64, np.uint64]


def ints(values: Any) -> np.ndarray:
    return np.array(values, np.int64)


def floats(values: Any, dtype: Any = np.float32) -> np.ndarray:
    return np.array(values, dtype)


def top_k(x, k, opset=24, **options):
    return run_node("TopK", [x, ints([k])], opset=opset, outputs=2, **options)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize(
    ("values", "k", "largest", "expected"),
    [
        ([1, 2, 2, 2], 2, 1, [1, 2]),
        ([3, 1, 1, 2], 3, 0, [1, 2, 3]),
        ([0, 100, 0, 7], 4, 1, [1, 3, 0, 2]),
        ([0, 100, 0, 7], 4, 0, [0, 2, 3, 1]),
    ],
)
def test_top_k_order_and_ties(dtype, values, k, largest, expected):
    x = np.array(values).astype(dtype)
    y, indices = top_k(x, k, largest=largest)
    assert_close(indices, ints(expected))
    assert_close(y, x[expected])


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (np.uint64, [2**63, 2**64 - 1, 0]),
        (np.int64, [0, 2**63 - 1, -(2**63)]),
        (np.int8, [0, 127, -128]),
    ],
)
def test_top_k_at_the_ends_of_integers(dtype, values):
    x = np.array(values, dtype)
    assert_close(top_k(x, 3)[0], x[[1, 0, 2]])
    assert_close(top_k(x, 3, largest=0)[0], x[[2, 0, 1]])


@pytest.mark.parametrize(
    ("values", "largest", "expected"),
    [
        ([2, NAN, 1, INF, NAN, 0], 1, [1, 4, 3]),
        ([2, NAN, 1, -INF, -NAN, 0], 1, [1, 4, 0]),
        ([NAN, 1, 2], 0, [1, 2, 0]),
        ([NAN, INF, -NAN], 0, [1, 0, 2]),
        ([-0.0, 0.0, -0.0], 1, [0, 1, 2]),
        ([0.0, -0.0, 0.0], 0, [0, 1, 2]),
    ],
)
def test_top_k_takes_nan_for_the_largest_and_zeros_for_equal(values, largest, expected):
    assert_close(top_k(floats(values), 3, largest=largest)[1], ints(expected))


def test_top_k_of_each_version_and_axis():
    x = floats([[0, 1, 2, 3], [4, 5, 6, 7], [11, 10, 9, 8]])
    expected = floats([[3, 2, 1], [7, 6, 5], [11, 10, 9]]), ints([[3, 2, 1], [3, 2, 1], [0, 1, 2]])
    for got in (
        run_node("TopK", [x], opset=1, outputs=2, k=3),
        top_k(x, 3, opset=10),
        top_k(x, 3, opset=11, sorted=0),
        top_k(x, 3),
    ):
        assert_close(got[0], expected[0])
        assert_close(got[1], expected[1])
    y, indices = top_k(x, 2, axis=0, largest=0)
    assert_close(y, x[:2])
    assert_close(indices, ints([[0] * 4, [1] * 4]))
    assert_close(top_k(x[:0], 2)[0], x[:0, :2])
    assert_close(top_k(x, 0)[1], np.zeros((3, 0), np.int64))
    with pytest.raises(InvalidModelError, match="k is 5, expected 0 to the size of the axis, 4"):
        top_k(x, 5)


def test_top_k_derivative_flows_to_what_is_returned():
    x = floats([1.0, 3.0, 3.0, 2.0])
    best = lambda v: ops.top_k(v, ints([2]), largest=1)[0]
    _, pullback = jax.vjp(best, x)
    assert_close(pullback(floats([10.0, 20.0]))[0], floats([0, 10, 20, 0]))
    _, tangent = jax.jvp(best, (x,), (floats([1, 2, 3, 4]),))
    assert_close(tangent, floats([2, 3]))
    least = jax.jit(lambda v: ops.top_k(v * v, ints([3]), largest=0, axis=0)[0])
    check_gradients(least, np.array([[1.5, -0.5], [-2.0, 3.0], [0.75, 1.0], [2.5, -4.0]]))


@pytest.mark.parametrize("opset", [9, 11, 28])
@pytest.mark.parametrize("kind", [np.int64, np.int32, np.float32])
def test_one_hot(opset, kind):
    indices, values = np.array([0, -1, 7, 5, -6]).astype(kind), floats([2, 9])
    for depth in (ints(5), ints([5]), floats([5.0])):
        (y,) = run_node("OneHot", [indices, depth, values], opset=opset)
        expected = np.full((5, 5), 2, np.float32)
        expected[0, 0] = 9
        expected[1, 4] = 2 if opset == 9 else 9  # negative ones are out of range in 9
        assert_close(y, expected)


@pytest.mark.parametrize("dtype", [*FLOATS, np.int8, np.uint64, np.bool_, np.complex64])
def test_one_hot_axis_and_values(dtype):
    indices, values = np.array([[1, 2], [0, 3]], np.uint8), np.array([0, 1]).astype(dtype)
    full = (indices[..., None] == np.arange(300)).astype(dtype)  # more classes than uint8 has
    for axis, place in ((-1, 2), (2, 2), (0, 0), (1, 1), (-2, 1)):
        (y,) = run_node("OneHot", [indices, ints(300), values], opset=28, axis=axis)
        assert_close(y, np.moveaxis(full, 2, place))


def test_one_hot_of_strings_of_large_indices_and_derivative():
    names = np.array(["off", "on"], np.dtypes.StringDType())
    assert ops.one_hot(ints([1]), ints(2), names).tolist() == [["off", "on"]]
    far = ints([2**32 + 1, -(2**32) - 1, 1])
    assert_close(ops.one_hot(far, ints(2), ints([0, 1])), ints([[0, 0], [0, 0], [0, 1]]))
    check_gradients(lambda v: ops.one_hot(ints([1, 0]), ints(3), v * v), np.array([2.0, 3.0]))


@pytest.mark.parametrize("k", [None, 0, 1, -2, 9, -9, 2**40, -(2**63)])
@pytest.mark.parametrize("upper", [0, 1])
def test_trilu(k, upper):
    x = np.arange(1, 25).reshape(2, 3, 4)
    near = int(np.clip(k or 0, -9, 9))
    expected = np.triu(x, near) if upper else np.tril(x, near)
    inputs = [x] if k is None else [x, ints(k)]
    assert_close(run_node("Trilu", inputs, opset=14, upper=upper)[0], expected)


@pytest.mark.parametrize("dtype", [*FLOATS, np.uint8, np.bool_, np.complex64])
def test_trilu_dtypes_empty_and_derivative(dtype):
    x = np.ones((2, 2)).astype(dtype)
    assert_close(run_node("Trilu", [x], opset=14)[0], np.array([[1, 1], [0, 1]]).astype(dtype))
    assert_close(run_node("Trilu", [x[:0]], opset=14)[0], x[:0])
    if dtype == np.float64:
        check_gradients(lambda v: ops.trilu(v * v, ints(-1)), np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize("opset", [9, 22])
def test_eye_like(opset):
    x = np.zeros((2, 3), np.int32)
    assert_close(run_node("EyeLike", [x], opset=opset)[0], np.eye(2, 3, dtype=np.int32))
    (y,) = run_node("EyeLike", [x], opset=opset, k=-1, dtype=11)
    assert_close(y, np.eye(2, 3, -1))
    (y,) = run_node("EyeLike", [x], opset=opset, k=2**40, dtype=9)
    assert_close(y, np.zeros((2, 3), bool))


def test_eye_like_bfloat16():
    x = np.zeros((2, 2), ml_dtypes.bfloat16)
    assert_close(run_node("EyeLike", [x], opset=22, k=1)[0], np.eye(2, k=1).astype(x.dtype))


def test_symbolic_shapes():
    b, n = export.symbolic_shape("b, n")
    spec = jax.ShapeDtypeStruct((b, n, 4), np.float32)

    def outputs(x):
        depth = np.array([x.shape[1]], object)
        hot = ops.one_hot(np.array([-1], np.int32), depth, floats([0, 1]))
        return ops.top_k(x, ints([2]))[0], ops.trilu(x, ints(1)), ops.eye_like(x[0]), hot

    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    best, upper, eye, hot = export.export(jax.jit(outputs))(spec).call(x)
    assert_close(best, -np.sort(-x)[..., :2])
    assert_close(upper, np.triu(x, 1))
    assert_close(eye, np.eye(3, 4, dtype=np.float32))
    assert_close(hot, floats([[0, 0, 1]]))

"""Reductions: values, versions, empty axes and sets, ties, exact integers, dimensions."""

import math

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers import FLOATS, assert_close, check_gradients, run_node
from jax import core

from jaxonnx import ops
from jaxonnx.define import known
from jaxonnx.define.registry import snake_case
from jaxonnx.errors import InvalidModelError

BIG = 2**53 + 1
INF, E = math.inf, math.e
X = [[1, 2, 3], [4, 0, 2]]
# Over the last axis, over the first, over both.
VALUES = {
    "ReduceSum": ([6, 6], [5, 2, 5], 12),
    "ReduceMean": ([2, 2], [2.5, 1, 2.5], 2),
    "ReduceMax": ([3, 4], [4, 2, 3], 4),
    "ReduceMin": ([1, 0], [1, 0, 2], 0),
    "ReduceProd": ([6, 0], [4, 0, 6], 0),
    "ReduceL1": ([6, 6], [5, 2, 5], 12),
    "ReduceL2": ([14**0.5, 20**0.5], [17**0.5, 2, 13**0.5], 34**0.5),
    "ReduceSumSquare": ([14, 20], [17, 4, 13], 34),
    "ReduceLogSum": ([math.log(6)] * 2, [math.log(5), math.log(2), math.log(5)], math.log(12)),
    "ReduceLogSumExp": (
        [math.log(E + E**2 + E**3), math.log(E**4 + 1 + E**2)],
        [math.log(E + E**4), math.log(E**2 + 1), math.log(E**3 + E**2)],
        math.log(E + 2 * E**2 + E**3 + E**4 + 1),
    ),
}
OPS = list(VALUES)
INPUT_FORM = {"ReduceSum": (13,), "ReduceMax": (18, 20), "ReduceMin": (18, 20)}
INPUT_FORM |= {"ReduceLogSum": (18, 28), "ReduceLogSumExp": (18, 28)}
ATTRIBUTE_FORM = {"ReduceSum": (1, 11), "ReduceMax": (1, 11, 12, 13), "ReduceMin": (1, 11, 12, 13)}
EMPTY = {"ReduceSum": 0, "ReduceMean": np.nan, "ReduceMax": -INF, "ReduceMin": INF}
EMPTY |= {"ReduceProd": 1, "ReduceL1": 0, "ReduceL2": 0, "ReduceSumSquare": 0}
EMPTY |= {"ReduceLogSum": -INF, "ReduceLogSumExp": -INF}


def axes(*values):
    return np.array(values, np.int64)


def f32(values):
    return np.array(values, np.float32)


@pytest.mark.parametrize("op_type", OPS)
def test_values_in_every_float_type(op_type):
    function, (last, first, both) = getattr(ops, snake_case(op_type)), VALUES[op_type]
    for dtype in FLOATS:
        x = np.array(X, dtype)
        with jax.enable_x64(True):
            for data in (x, jnp.asarray(x)):
                assert_close(function(data, axes(1)), np.array(last)[:, None].astype(dtype))
                assert_close(function(data, axes(-2), keepdims=0), np.array(first).astype(dtype))
                assert_close(function(data, keepdims=0), np.array(both).astype(dtype))


@pytest.mark.parametrize("op_type", OPS)
def test_versions(op_type):
    x, (last, _, both) = f32(X), VALUES[op_type]
    last = f32(last)
    for opset in ATTRIBUTE_FORM.get(op_type, (1, 11, 13)):
        run = lambda **a: run_node(op_type, [x], opset=opset, **a)[0]  # noqa: B023
        assert_close(run(axes=[1]), last[:, None])
        assert_close(run(axes=[1], keepdims=0), last)
        assert_close(run(), f32([[both]]))
    for opset in INPUT_FORM.get(op_type, (18,)):
        assert_close(run_node(op_type, [x, axes(-1)], opset=opset, keepdims=0)[0], last)
        assert_close(run_node(op_type, [x], opset=opset)[0], f32([[both]]))
        assert_close(run_node(op_type, [x, axes()], opset=opset, keepdims=0)[0], f32(both))


@pytest.mark.parametrize("op_type", OPS)
def test_no_axes_and_noop_leave_the_elementwise_part(op_type):
    x = f32([2, 3])
    elementwise = {"ReduceSumSquare": [4, 9], "ReduceLogSum": np.log(x)}
    expected = f32(elementwise.get(op_type, x))
    opset = INPUT_FORM.get(op_type, (18,))[0]
    for keepdims in (0, 1):
        for given in ([x], [x, axes()]):
            attributes = {"noop_with_empty_axes": 1, "keepdims": keepdims}
            assert_close(run_node(op_type, given, opset=opset, **attributes)[0], expected)
    assert_close(ops.reduce_l1(f32([-2, 3]), noop_with_empty_axes=1), f32([2, 3]))
    assert_close(ops.reduce_l2(f32([-2, 3]), noop_with_empty_axes=1), f32([2, 3]))


@pytest.mark.parametrize("op_type", OPS)
def test_nothing_gives_the_identity(op_type):
    function, expected = getattr(ops, snake_case(op_type)), EMPTY[op_type]
    for m in (np, jnp):
        x = m.zeros((2, 0, 3), m.float32)
        with np.errstate(all="ignore"):
            assert_close(function(x, axes(1)), np.full((2, 1, 3), expected, np.float32))
        assert function(x, axes(0)).shape == (1, 0, 3)


@pytest.mark.parametrize("op_type", OPS)
def test_scalars(op_type):
    elementwise = {"ReduceSumSquare": 9, "ReduceLogSum": math.log(3)}
    function = getattr(ops, snake_case(op_type))
    assert_close(function(jnp.float32(3)), np.float32(elementwise.get(op_type, 3)))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
@pytest.mark.parametrize("op_type", OPS)
def test_integers(op_type, dtype):
    x = np.array([[1, 2, 2], [3, 4, 0]], dtype)
    expected = {
        "ReduceSum": [5, 7],
        "ReduceMean": [1, 2],
        "ReduceMax": [2, 4],
        "ReduceMin": [1, 0],
        "ReduceProd": [4, 0],
        "ReduceL1": [5, 7],
        "ReduceL2": [3, 5],
        "ReduceSumSquare": [9, 25],
        "ReduceLogSum": [1, 1],
        "ReduceLogSumExp": [2, 4],
    }[op_type]
    assert_close(
        run_node(op_type, [x], opset=11, axes=[1], keepdims=0)[0], np.array(expected, dtype)
    )


def test_large_integers_are_exact():
    x = np.array([[BIG, 2], [-BIG, -1]])
    for op_type, expected in [
        ("ReduceSum", [BIG + 2, -BIG - 1]),
        ("ReduceProd", [2 * BIG, BIG]),
        ("ReduceMax", [BIG, -1]),
        ("ReduceMin", [2, -BIG]),
        ("ReduceL1", [BIG + 2, BIG + 1]),
        ("ReduceMean", [(BIG + 2) // 2, -((BIG + 1) // 2)]),
    ]:
        given = [x, axes(1)] if op_type == "ReduceSum" else [x]
        attributes = {} if op_type == "ReduceSum" else {"axes": [1]}
        result = run_node(op_type, given, opset=13, keepdims=0, **attributes)[0]
        assert_close(result, np.array(expected))
        folded = getattr(ops, snake_case(op_type))(x, axes(1), keepdims=0)
        assert isinstance(folded, np.ndarray)
        assert_close(folded, np.array(expected))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64, np.bool_])
def test_extremes_of_other_types(dtype):
    x = np.array([[0, 1], [1, 1]], dtype)
    for op_type, expected in [("ReduceMax", [1, 1]), ("ReduceMin", [0, 1])]:
        (y,) = run_node(op_type, [x, axes(1)], opset=20, keepdims=0)
        assert_close(y, np.array(expected, dtype))
    info = None if dtype == np.bool_ else np.iinfo(dtype)
    low, high = (info.min, info.max) if info else (False, True)
    for function, identity in [(ops.reduce_max, low), (ops.reduce_min, high)]:
        assert_close(function(np.zeros((1, 0), dtype), axes(1)), np.array([[identity]], dtype))
        with jax.enable_x64(True):
            traced = function(jnp.zeros((1, 0), dtype), axes(1))
        assert_close(traced, np.array([[identity]], dtype))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_accumulates_in_single(dtype):
    x = np.ones(1000, dtype)
    for data in (x, jnp.asarray(x)):
        assert_close(ops.reduce_sum(data, keepdims=0), np.array(1000, dtype))
        assert_close(ops.reduce_mean(data, keepdims=0), np.array(1, dtype))
    big = np.full(4, 30000, dtype)  # the sum and the squares overflow float16, these do not
    assert_close(ops.reduce_mean(big, keepdims=0), np.array(30000, dtype))
    assert_close(ops.reduce_l2(big, keepdims=0), np.array(60000, dtype))


def test_extremes_pass_nan():
    x = f32([[1, np.nan], [1, 2]])
    for op_type in ("ReduceMax", "ReduceMin"):
        (y,) = run_node(op_type, [x, axes(1)], opset=18, keepdims=0)
        assert np.isnan(y).tolist() == [True, False]


def test_log_sum_exp_of_infinity():
    x = f32([[-INF, -INF], [INF, 0], [1000, 1000], [-INF, 2], [np.nan, 0]])
    expected = f32([-INF, INF, 1000 + math.log(2), 2, np.nan])
    (y,) = run_node("ReduceLogSumExp", [x, axes(1)], opset=18, keepdims=0)
    assert_close(y, expected)
    with np.errstate(all="ignore"):
        assert_close(ops.reduce_log_sum_exp(x, axes(1), keepdims=0), expected)
    (dx,) = jax.vjp(lambda x: ops.reduce_log_sum_exp(x, axes(1)), x[:4])[1](jnp.ones((4, 1)))
    assert_close(dx, f32([[0, 0], [0, 0], [0.5, 0.5], [0, 1]]))


@pytest.mark.parametrize(
    ("function", "x", "expected"),
    [
        (ops.reduce_max, [[1, 3, 3], [2, 2, 2]], [[0, 1 / 2, 1 / 2], [1 / 3, 1 / 3, 1 / 3]]),
        (ops.reduce_min, [[1, 3, 3], [2, 2, 2]], [[1, 0, 0], [1 / 3, 1 / 3, 1 / 3]]),
        (ops.reduce_l1, [[-2, 0, 3], [0, 0, 0]], [[-1, 0, 1], [0, 0, 0]]),
        (ops.reduce_l2, [[-3, 0, 4], [0, 0, 0]], [[-0.6, 0, 0.8], [0, 0, 0]]),
        (ops.reduce_prod, [[2, 0, 3], [0, 0, 5]], [[0, 6, 0], [0, 0, 0]]),
    ],
)
def test_derivatives_at_kinks(function, x, expected):
    x, expected = f32(x), f32(expected)
    for keepdims in (0, 1):
        reduce = lambda x: function(x, axes(1), keepdims=keepdims)  # noqa: B023
        cotangent = jnp.ones((2, 1) if keepdims else 2)
        assert_close(jax.vjp(reduce, x)[1](cotangent)[0], expected)
        tangent = f32([[1, 2, 3], [4, 5, 6]])
        forward = jax.jvp(reduce, (x,), (tangent,))[1]
        assert_close(forward, (expected * tangent).sum(1, keepdims=bool(keepdims)))


def test_ties_of_half_precision_share_without_overflow():
    x = jnp.ones(2**17, jnp.float16)
    (dx,) = jax.vjp(lambda x: ops.reduce_max(x, keepdims=0), x)[1](jnp.float16(1))
    assert_close(dx, np.full(2**17, 2.0**-17, np.float16))


@pytest.mark.parametrize("op_type", OPS)
def test_gradients(op_type):
    function = getattr(ops, snake_case(op_type))
    x = [[0.5, 1.5, -0.7], [2.0, 3.0, 1.0]]
    data = np.abs(x) if op_type == "ReduceLogSum" else np.array(x)
    check_gradients(lambda x: function(x, axes(-1), keepdims=0), data)


@pytest.mark.parametrize("given", [(2,), (-3,), (0, 0), (0, -2)])
def test_bad_axes(given):
    message = r"axes are \[.*\], expected different ones in \[-2, 1\] for data of rank 2"
    with pytest.raises(InvalidModelError, match=message):
        run_node("ReduceSum", [f32(X), axes(*given)], opset=13)
    with pytest.raises(InvalidModelError, match=message):
        run_node("ReduceMax", [f32(X)], opset=13, axes=given)


def test_dimensions_stay_known():
    b, s = jax.export.symbolic_shape("B, S", constraints=["S>=2"])
    shape = known.dimensions([b, s, 3])
    for result, expected in [
        (ops.reduce_prod(shape), 3 * b * s),
        (ops.reduce_sum(shape), b + s + 3),
        (ops.reduce_max(shape[1:], keepdims=0), core.max_dim(s, 3)),
        (ops.reduce_min(known.dimensions([s, 1])), 1),
    ]:
        assert isinstance(result, np.ndarray)
        assert known.same_dim(result.ravel()[0], expected)
    table = known.dimensions([b, s, 3, 4]).reshape(2, 2)
    assert known.as_dims(ops.reduce_sum(table, axes(0))) == (b + 3, s + 4)
    assert ops.reduce_prod(table, axes(0, 1)).shape == (1, 1)
    assert ops.reduce_prod(table, keepdims=0).shape == ()


@pytest.mark.parametrize("op_type", OPS)
def test_symbolic_shapes(op_type):
    function, (last, first, both) = getattr(ops, snake_case(op_type)), VALUES[op_type]
    reduce = lambda x: (
        function(x, axes(1), keepdims=0),
        function(x, axes(0), keepdims=0),
        function(x, keepdims=0),
    )
    shape = jax.ShapeDtypeStruct(jax.export.symbolic_shape("B, S"), np.float32)
    results = jax.export.export(jax.jit(reduce))(shape).call(f32(X))
    for result, expected in zip(results, (last, first, both), strict=True):
        assert_close(result, f32(expected))


def test_mean_of_integers_over_a_symbolic_axis():
    with jax.enable_x64(True):
        shape = jax.ShapeDtypeStruct(jax.export.symbolic_shape("S"), np.int64)
        exported = jax.export.export(jax.jit(ops.reduce_mean))(shape)
        assert_close(exported.call(np.array([-BIG, 0])), np.array([-(BIG // 2)]))

"""Comparisons, logic and selection: values, versions and dimensions."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest
from helpers import FLOATS, assert_close, check_gradients, run_node

import jaxonnx
from jaxonnx import ops
from jaxonnx.define import known
from jaxonnx.define.registry import snake_case
from jaxonnx.errors import InvalidModelError

BIG = 2**53
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOAT8 = [
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e5m2fnuz,
]
COMPARED = {
    "Equal": [False, True, False],
    "Less": [True, False, False],
    "Greater": [False, False, True],
    "LessOrEqual": [True, True, False],
    "GreaterOrEqual": [False, True, True],
}


def snake(op_type):
    return getattr(ops, snake_case(op_type))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("op_type", COMPARED)
def test_compare(op_type, dtype):
    a, b = np.array([[1, 2, 3]], dtype), np.array(2, dtype)
    expected = np.array([COMPARED[op_type]])
    assert_close(snake(op_type)(a, b), expected)
    with jax.enable_x64(True):
        assert_close(snake(op_type)(jnp.asarray(a), jnp.asarray(b)), expected)


@pytest.mark.parametrize(
    ("op_type", "opset", "dtype"),
    [
        ("Equal", 1, np.int32),
        ("Equal", 7, np.int64),
        ("Equal", 11, np.float32),
        ("Equal", 13, np.float32),
        ("Equal", 19, np.float32),
        *((o, v, np.float32) for o in ("Less", "Greater") for v in (1, 7, 9, 13)),
        *((o, v, np.float32) for o in ("LessOrEqual", "GreaterOrEqual") for v in (12, 16)),
    ],
)
def test_compare_versions(op_type, opset, dtype):
    a, b = np.array([1, 2, 3], dtype), np.array([2, 2, 2], dtype)
    assert_close(run_node(op_type, [a, b], opset=opset)[0], np.array(COMPARED[op_type]))


def test_integers_beyond_the_mantissa_of_a_double():
    a, b = np.array([BIG + 1]), np.array([BIG])
    for op_type, expected in [("Equal", False), ("Less", False), ("GreaterOrEqual", True)]:
        assert_close(snake(op_type)(a, b), np.array([expected]))
        assert_close(run_node(op_type, [a, b], opset=16)[0], np.array([expected]))


def test_nothing_compares_with_nan():
    a, b = np.array([np.nan, 1], np.float32), np.array([np.nan, np.nan], np.float32)
    for op_type in COMPARED:
        assert not run_node(op_type, [a, b], opset=19)[0].any()


def test_equal_of_booleans_and_strings():
    a, b = np.array([True, False]), np.array([True, True])
    assert_close(run_node("Equal", [a, b], opset=7)[0], np.array([True, False]))
    text = np.dtypes.StringDType()
    a, b = np.array(["a", "bc"], text), np.array("bc", text)
    assert_close(ops.equal(a, b), np.array([False, True]))
    assert ops.where(np.array([True, False]), a, b).tolist() == ["a", "bc"]


@pytest.mark.parametrize("op_type", ["Equal", "Less", "Greater"])
def test_compare_with_aligned_broadcasting(op_type):
    dtype = np.int32 if op_type == "Equal" else np.float32
    a, b = np.arange(6, dtype=dtype).reshape(2, 3), np.array([1, 4], dtype)
    expected = snake(op_type)(a, b[:, None])
    assert_close(run_node(op_type, [a, b], opset=1, axis=0, broadcast=1)[0], expected)


LOGIC = {
    "And": [[True, False], [False, False]],
    "Or": [[True, True], [True, False]],
    "Xor": [[False, True], [True, False]],
}


@pytest.mark.parametrize("op_type", LOGIC)
def test_logic(op_type):
    a, b = np.array([[True], [False]]), np.array([True, False])
    expected = np.array(LOGIC[op_type])
    assert_close(snake(op_type)(a, b), expected)
    assert_close(run_node(op_type, [a, b], opset=7)[0], expected)
    wide = np.repeat(a, 2, axis=1)
    assert_close(run_node(op_type, [wide, b], opset=1, broadcast=1)[0], expected)
    with pytest.raises(InvalidModelError, match="broadcast is 0"):
        run_node(op_type, [wide, b], opset=1)


def test_not():
    assert_close(run_node("Not", [np.array([True, False])], opset=1)[0], np.array([False, True]))
    assert_close(ops.not_(np.array(True)), np.array(False))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, np.bool_, np.complex64, np.complex128])
def test_where(dtype):
    condition, x, y = np.array([[True], [False]]), np.array([1, 0], dtype), np.array(1, dtype)
    expected = np.array([[1, 0], [1, 1]], dtype)
    assert_close(ops.where(condition, x, y), expected)
    with jax.enable_x64(True):
        assert_close(ops.where(*map(jnp.asarray, (condition, x, y))), expected)


@pytest.mark.parametrize("opset", [9, 16])
def test_where_versions(opset):
    condition, x = np.array([True, False]), np.zeros((0, 2), np.int64)
    assert run_node("Where", [condition, x, x], opset=opset)[0].shape == (0, 2)
    x, y = np.array([BIG + 1, 5]), np.array([3, BIG + 1])
    assert_close(run_node("Where", [condition, x, y], opset=opset)[0], np.full(2, BIG + 1))


def test_where_selects_derivatives():
    condition, x, y = jnp.array([True, False]), jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0])
    function = lambda x, y: ops.where(condition, x, y)
    infinite = jnp.full(2, jnp.inf)
    forward = jax.jvp(function, (x, y), (jnp.ones(2), infinite))[1]
    assert_close(forward, np.array([1, np.inf], np.float32))
    dx, dy = jax.vjp(function, x, y)[1](infinite)
    assert_close(dx, np.array([np.inf, 0], np.float32))
    assert_close(dy, np.array([0, np.inf], np.float32))
    check_gradients(function, x, y)


def test_guarded_code_has_no_nan_in_its_gradient():
    def guarded(x):
        positive = ops.greater(x, 0.0)
        safe = ops.where(positive, x, 1.0)
        value = ops.add(ops.log(safe), ops.add(ops.sqrt(safe), ops.pow(safe, -0.5)))
        return ops.where(positive, value, 0.0)

    x = jnp.array([-1.0, 0.0, 1.0])
    expected = np.array([0, 0, 1], np.float32)  # 1 + 1/2 - 1/2 at 1
    assert_close(jax.jvp(guarded, (x,), (jnp.ones(3),))[1], expected)
    assert_close(jax.grad(lambda x: guarded(x).sum())(x), expected)


@pytest.mark.parametrize("dtype", [*FLOATS, *FLOAT8])
def test_is_nan_and_is_inf(dtype):
    x = np.array([1, np.nan, np.inf, -np.inf], np.float32).astype(dtype)
    stored = x.astype(np.float32)  # some float8 types have no infinity
    assert_close(run_node("IsNaN", [x], opset=20)[0], np.isnan(stored))
    assert_close(run_node("IsInf", [x], opset=20)[0], np.isinf(stored))


def test_is_nan_and_is_inf_versions():
    x = np.array([1, np.nan, np.inf, -np.inf], np.float32)
    for opset in (9, 13):
        assert run_node("IsNaN", [x], opset=opset)[0].tolist() == [False, True, False, False]
    for opset in (10, 20):
        inf = lambda **only: run_node("IsInf", [x], opset=opset, **only)[0].tolist()  # noqa: B023
        assert inf() == [False, False, True, True]
        assert inf(detect_negative=0) == [False, False, True, False]
        assert inf(detect_positive=0) == [False, False, False, True]
        assert inf(detect_positive=0, detect_negative=0) == [False] * 4


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (ops.equal, [False, True, False]),
        (ops.less, [False, False, True]),
        (ops.greater, [True, False, False]),
        (ops.less_or_equal, [False, True, True]),
        (ops.greater_or_equal, [True, True, False]),
    ],
)
def test_dimensions_are_compared_where_provable(function, expected):
    (s,) = jax.export.symbolic_shape("S", constraints=["S<=512"])
    result = function(known.dimensions([s, s, s]), known.dimensions([0, s, 513]))
    assert isinstance(result, np.ndarray)
    assert result.tolist() == expected


SHAPE_ARITHMETIC = """
<ir_version: 10, opset_import: ["" : 18]>
arithmetic (float[B, S, 6] x) => (float[N, M] y)
<int64 zero = {0}, int64[1] axes0 = {0}, int64[1] one = {1}, int64[3] ask = {0, -1, 3},
 int64[1] last = {2}, int64[1] minus = {-1}, int64[3] none = {0, 0, 0}>
{
    shape = Shape(x)
    copied = Equal(ask, none)
    picked = Where(copied, shape, ask)
    batch = Gather(shape, zero)
    batch1 = Unsqueeze(batch, axes0)
    all = ReduceProd<keepdims = 0>(shape)
    all1 = Unsqueeze(all, axes0)
    count = Div(all1, batch1)
    rows = Max(batch1, one)
    positive = Less(minus, rows)
    target = Where(positive, rows, one)
    full = Concat<axis = 0>(target, count)
    y = Reshape(x, full)
}
"""


def test_shape_arithmetic_end_to_end():
    model = jaxonnx.load(onnx.parser.parse_model(SHAPE_ARITHMETIC))
    x = np.arange(36, dtype=np.float32).reshape(2, 3, 6)
    assert_close(model(x), x.reshape(2, 18))
    exported = jax.export.export(jax.jit(model.apply))(model.params, model.abstract_inputs())
    assert str(exported.out_avals[0].shape) == "(B, 6*S)"
    assert_close(exported.call({}, {"x": x}), x.reshape(2, 18))

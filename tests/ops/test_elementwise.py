"""Element-wise arithmetic: values, versions, integers and dimensions."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers import FLOATS, assert_close, check_gradients, run_node

from jaxonnx import ops
from jaxonnx.define import known
from jaxonnx.errors import InvalidModelError

BIG = 2**53 + 1
LOWEST = np.iinfo(np.int64).min
SIGNED = [np.int8, np.int16, np.int32, np.int64]
INTEGERS = [*SIGNED, np.uint8, np.uint16, np.uint32, np.uint64]


def f32(*values):
    return np.array(values, np.float32)


def i64(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("op_type", "inputs", "expected"),
    [
        ("Add", ([BIG, LOWEST], [2, -1]), [BIG + 2, 2**63 - 1]),
        ("Sub", ([BIG], [1, 2]), [BIG - 1, BIG - 2]),
        ("Mul", ([BIG], [3]), [3 * BIG]),
        ("Div", ([3 * BIG, -3 * BIG], [3]), [BIG, -BIG]),
        ("Mod", ([BIG, -BIG], [10]), [3, 7]),
        ("Pow", ([3, -3], [39]), [3**39, -(3**39)]),
        ("Max", ([BIG], [BIG - 1], [0]), [BIG]),
        ("Min", ([BIG], [BIG + 1]), [BIG]),
        ("Neg", ([BIG],), [-BIG]),
        ("Abs", ([-BIG],), [BIG]),
        ("Sign", ([-BIG, 0, BIG],), [-1, 0, 1]),
    ],
)
def test_int64_is_exact(op_type, inputs, expected):
    arrays = [i64(*x) for x in inputs]
    (traced,) = run_node(op_type, arrays, opset=18)
    assert_close(traced, i64(*expected))
    folded = getattr(ops, op_type.lower())(*arrays)
    assert isinstance(folded, np.ndarray)
    assert_close(folded, i64(*expected))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize(
    ("op_type", "expected"),
    [("Add", [9, 7]), ("Sub", [5, 3]), ("Mul", [14, 10]), ("Div", [3.5, 2.5])],
)
def test_binary_dtypes(op_type, expected, dtype):
    a, b = np.array([[7, 5]], dtype), np.array(2, dtype)
    function = getattr(ops, op_type.lower())
    with jax.enable_x64(True):
        for result in (function(a, b), function(jnp.asarray(a), jnp.asarray(b))):
            assert_close(result, np.array([expected]).astype(dtype))


@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Mod", "Pow"])
@pytest.mark.parametrize("shapes", [((), ()), ((0, 3), (3,)), ((2, 1), (0,))])
def test_binary_shapes(op_type, shapes):
    a, b = (np.ones(s, np.float32) for s in shapes)
    (result,) = run_node(op_type, [a, b], opset=28)
    assert result.shape == np.broadcast_shapes(*shapes)
    assert result.dtype == np.float32


@pytest.mark.parametrize("dtype", SIGNED)
def test_integer_division_truncates(dtype):
    a, b = np.array([-7, 7, -7, 7, -6, 0], dtype), np.array([2, 2, -2, -2, 2, 5], dtype)
    expected = np.array([-3, 3, 3, -3, -3, 0], dtype)
    assert_close(ops.div(a, b), expected)
    assert_close(run_node("Div", [a, b], opset=14)[0], expected)


@pytest.mark.parametrize("op_type", ["Div", "Mod"])
@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8])
def test_division_by_zero_and_overflow_do_not_crash(op_type, dtype):
    lowest = np.iinfo(dtype).min
    a, b = np.array([1, lowest, 5], dtype), np.array([0, 0 if lowest == 0 else -1, 2], dtype)
    folded = getattr(ops, op_type.lower())
    with np.errstate(all="ignore"):
        results = [folded(a, b), run_node(op_type, [a, b], opset=14)[0]]
    for result in results:
        assert result.dtype == dtype
        assert result[2] == {"Div": 2, "Mod": 1}[op_type]


def test_integers_wrap():
    for a, b, expected in [(np.uint8, 100, 44), (np.int8, 100, -56)]:
        x, y = np.array([200 if a is np.uint8 else 100], a), np.array([b], a)
        assert_close(ops.add(x, y), np.array([expected], a))
        assert_close(run_node("Add", [x, y], opset=14)[0], np.array([expected], a))


A = np.arange(24, dtype=np.float32).reshape(2, 3, 4) + 1


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((), None), ((1, 1), None), ((4,), None), ((3, 4), None), ((3,), 1), ((2, 3), 0), ((2, 1), 0)],
)
@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div", "Pow"])
def test_aligned_broadcasting(op_type, shape, axis):
    b = np.linspace(1, 2, int(np.prod(shape))).astype(np.float32).reshape(shape)
    attributes = {"broadcast": 1} if axis is None else {"broadcast": 1, "axis": axis}
    start = 3 - len(shape) if axis is None else axis
    wide = b.reshape(shape + (1,) * (3 - len(shape) - start)) if shape != (1, 1) else b
    expected = getattr(ops, op_type.lower())(A, wide)
    for opset in (1, 6):
        assert_close(run_node(op_type, [A, b], opset=opset, **attributes)[0], expected)


def test_equal_shapes_need_no_broadcast():
    assert_close(run_node("Add", [A, A], opset=6)[0], A + A)


@pytest.mark.parametrize(
    ("shape", "attributes", "message"),
    [
        ((4,), {}, r"B has shape \(4,\), A has \(2, 3, 4\); broadcast is 0"),
        ((3,), {"broadcast": 1}, "must be found in it at the end"),
        ((3, 4), {"broadcast": 1, "axis": 0}, "must be found in it from axis 0 on"),
        ((4,), {"broadcast": 1, "axis": 3}, "from axis 3 on"),
        ((1, 2, 3, 4), {"broadcast": 1}, "at the end"),
    ],
)
def test_what_cannot_be_aligned_is_refused(shape, attributes, message):
    with pytest.raises(InvalidModelError, match=message):
        run_node("Add", [A, np.ones(shape, np.float32)], opset=6, **attributes)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, *FLOATS])
def test_mod_takes_the_sign_of_the_divisor_or_of_the_dividend(dtype):
    a, b = np.array([-4, 7, 5, 4, -7, 8], dtype), np.array([2, -3, 8, -2, 3, 5], dtype)
    with jax.enable_x64(True):
        for m in (np, jnp):
            x, y = m.asarray(a), m.asarray(b)
            assert_close(ops.mod(x, y), np.array([0, -2, 5, 0, 2, 3], dtype))
            assert_close(ops.mod(x, y, fmod=1), np.array([0, 1, 5, 0, -1, 3], dtype))


def test_mod_of_unsigned_integers():
    a, b = np.array([250, 7], np.uint8), np.array([7, 250], np.uint8)
    for fmod in (0, 1):
        assert_close(run_node("Mod", [a, b], opset=13, fmod=fmod)[0], np.array([5, 7], np.uint8))


def test_mod_of_fractions():
    a, b = f32(-4.3, 7.2, 5.0, 4.3, -7.2, 8.0), f32(2.1, -3.4, 8.0, -2.1, 3.4, 5.0)
    floored = f32(2.0, -3.0, 5.0, -2.0, 3.0, 3.0)
    truncated = f32(-0.1, 0.4, 5.0, 0.1, -0.4, 3.0)
    assert_close(run_node("Mod", [a, b], opset=28)[0], floored)
    for opset in (10, 13):
        with pytest.raises(InvalidModelError, match="fmod is 0, expected 1 for floats before"):
            run_node("Mod", [a, b], opset=opset)
        assert_close(run_node("Mod", [a, b], opset=opset, fmod=1)[0], truncated)


@pytest.mark.parametrize("m", [np, jnp])
def test_mod_at_special_values(m):
    inf, nan = np.inf, np.nan
    a = m.asarray(f32(0, -0.0, 4, inf, 1, 1, 1, -1, nan))
    b = m.asarray(f32(-1, 1, -2, 1, 0, inf, -inf, inf, 1))
    with np.errstate(all="ignore"):
        floored, truncated = np.asarray(ops.mod(a, b)), np.asarray(ops.mod(a, b, fmod=1))
    assert_close(floored, f32(0, 0, 0, nan, nan, 1, -inf, inf, nan))
    assert np.signbit(floored[:3]).tolist() == [True, False, True]
    assert_close(truncated, f32(0, 0, 0, nan, nan, 1, 1, -1, nan))


@pytest.mark.parametrize(("fmod", "n"), [(0, [-4, -3, 0, 2]), (1, [-3, -2, 0, 2])])
def test_mod_derivative(fmod, n):
    a, b = jnp.array([-7.0, 7.0, 1.0, 4.0]), jnp.array([2.0, -3.0, 8.0, 2.0])
    mod = lambda a, b: ops.mod(a, b, fmod=fmod)
    ones = jnp.ones(4)
    assert_close(jax.jvp(mod, (a, b), (ones, ones))[1], 1 - f32(*n))
    da, db = jax.vjp(mod, a, b)[1](ones)
    assert_close(da, f32(1, 1, 1, 1))
    assert_close(db, -f32(*n))


POW_BASES = [*FLOATS, np.int32, np.int64]


@pytest.mark.parametrize("base", POW_BASES)
@pytest.mark.parametrize("exponent", [*FLOATS, *INTEGERS])
def test_pow_of_mixed_types_has_the_type_of_the_base(base, exponent):
    x, y = np.array([[-3], [2]], base), np.array([0, 1, 2, 3], exponent)
    expected = np.array([[1, -3, 9, -27], [1, 2, 4, 8]], base)
    assert_close(ops.pow(x, y), expected)
    with jax.enable_x64(True):
        assert_close(ops.pow(jnp.asarray(x), jnp.asarray(y)), expected)


@pytest.mark.parametrize("m", [np, jnp])
def test_pow_of_integers(m):
    x = m.asarray(np.array([2, 1, -1, -1, 0, 0, 2, 5], np.int32))
    y = m.asarray(np.array([-1, -5, -2, -3, 0, 40, 30, 1], np.int32))
    assert_close(ops.pow(x, y), np.array([0, 1, 1, -1, 1, 0, 2**30, 5], np.int32))
    lowest = m.asarray(np.array([np.iinfo(np.int32).min], np.int32))
    assert_close(ops.pow(m.full_like(lowest, -1), lowest), np.array([1], np.int32))
    roots = ops.pow(m.asarray(np.array([4, 10, 9], np.int32)), m.asarray(f32(0.5, 2, -1)))
    assert_close(roots, np.array([2, 100, 0], np.int32))


def test_pow_keeps_the_parity_of_large_exponents_in_half_precision():
    x = jnp.array([-1, -1], ml_dtypes.bfloat16)
    assert_close(ops.pow(x, jnp.array([257, 1000])), np.array([-1, 1], ml_dtypes.bfloat16))


def test_pow_derivatives_at_kinks():
    x = jnp.array([0.0, 0, 0, 0, 0, -2, -2])
    y = jnp.array([0.0, 0.5, 1, 2, -1, 2, 0])
    dx, dy = jax.vjp(ops.pow, x, y)[1](jnp.ones(7))
    inf = np.inf
    assert_close(dx, f32(0, inf, 1, 0, -inf, -4, 0))
    assert_close(dy, np.zeros(7, np.float32))
    forward = jax.jvp(lambda x: ops.pow(x, y), (x,), (jnp.ones(7),))[1]
    assert_close(forward, dx)
    finite = y > 0.5
    assert_close(jax.jvp(lambda y: ops.pow(x, y), (y,), (jnp.ones(7),))[1][finite], f32(0, 0, 0))


def test_pow_gradients():
    check_gradients(ops.pow, [0.5, 1.5, 3.0], [2.0, -1.5, 0.5])
    check_gradients(lambda x: ops.pow(x, 3), [-0.5, 1.5])
    traced = jax.grad(lambda x, n: ops.pow(x, n).sum())(f32(-2, 3, 0), jnp.array([3, 0, 0]))
    assert_close(traced, f32(12, 0, 0))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_max_and_min_dtypes(dtype):
    data = [np.array([3, 2, 1], dtype), np.array([[1], [4]], dtype), np.array(2, dtype)]
    high, low = np.array([[3, 2, 2], [4, 4, 4]], dtype), np.array([[1, 1, 1], [2, 2, 1]], dtype)
    assert_close(ops.max(*data), high)
    assert_close(ops.min(*data), low)
    with jax.enable_x64(True):
        assert_close(ops.max(*map(jnp.asarray, data)), high)
        assert_close(ops.min(*map(jnp.asarray, data)), low)


@pytest.mark.parametrize("op_type", ["Max", "Min", "Sum", "Mean"])
@pytest.mark.parametrize("opset", [1, 6, 8, 13])
def test_variadic_versions(op_type, opset):
    a, b = f32(1, 5, 2), f32(3, 1, 2)
    expected = {"Max": [3, 5, 2], "Min": [1, 1, 2], "Sum": [4, 6, 4], "Mean": [2, 3, 2]}[op_type]
    assert_close(run_node(op_type, [a, b], opset=opset)[0], f32(*expected))
    assert_close(run_node(op_type, [a], opset=opset)[0], a)
    for other in (f32(1), f32(1, 2, 3, 4), np.ones((1, 3), np.float32)) if opset < 8 else ():
        with pytest.raises(InvalidModelError, match="expected one shape"):
            run_node(op_type, [a, other], opset=opset)


@pytest.mark.parametrize("dtype", FLOATS)
def test_sum_and_mean(dtype):
    data = [np.array([3, 0, 2], dtype), np.array([[1], [4]], dtype), np.array(2, dtype)]
    total = np.array([[6, 3, 5], [9, 6, 8]], dtype)
    with jax.enable_x64(True):
        for m in (np, jnp):
            arrays = [m.asarray(x) for x in data]
            assert_close(ops.sum(*arrays), total)
            assert_close(ops.mean(*arrays), (total.astype(np.float64) / 3).astype(dtype))


def test_max_and_min_pass_nan():
    a, b = f32(np.nan, 1), f32(1, np.nan)
    for op_type in ("Max", "Min"):
        assert np.isnan(run_node(op_type, [a, b], opset=13)[0]).all()


@pytest.mark.parametrize("function", [ops.max, ops.min])
def test_ties_share_the_derivative(function):
    x = jnp.ones(3)
    for n in (2, 3, 5):
        tangent = jax.jvp(function, (x,) * n, (jnp.ones(3),) + (jnp.zeros(3),) * (n - 1))[1]
        assert_close(tangent, np.full(3, 1 / n, np.float32))
        for share in jax.vjp(function, *(x,) * n)[1](jnp.ones(3)):
            assert_close(share, np.full(3, 1 / n, np.float32))


def test_ties_of_some_inputs_and_with_broadcasting():
    a, b, c = jnp.array([[2.0, 1.0], [0.0, 3.0]]), jnp.array([2.0, 3.0]), jnp.array(2.0)
    da, db, dc = jax.vjp(ops.max, a, b, c)[1](jnp.ones((2, 2)))
    assert_close(da, f32(1 / 3, 0, 0, 1 / 2).reshape(2, 2))
    assert_close(db, f32(1 / 3 + 1 / 2, 1 + 1 / 2))
    assert_close(dc, np.float32(1 / 3 + 1 / 2))
    tangents = (jnp.full((2, 2), 6.0), jnp.zeros(2), jnp.zeros(()))
    assert_close(jax.jvp(ops.max, (a, b, c), tangents)[1], f32(2, 0, 0, 3).reshape(2, 2))
    infinite = jax.jvp(ops.max, (a, b, c), (jnp.full((2, 2), jnp.inf), *tangents[1:]))[1]
    assert_close(infinite, f32(np.inf, 0, 0, np.inf).reshape(2, 2))


def test_binary_gradients_away_from_kinks():
    a, b = [[0.5, -1.5, 2.0]], [[1.5], [-0.7]]
    for function in (ops.add, ops.sub, ops.mul, ops.div, ops.max, ops.min, ops.sum, ops.mean):
        check_gradients(function, a, b)


@pytest.mark.parametrize(
    ("op_type", "x", "expected"),
    [
        ("Abs", [-1.5, 0, 2], [1.5, 0, 2]),
        ("Neg", [-1.5, 0, 2], [1.5, 0, -2]),
        ("Sign", [-1.5, 0, 2], [-1, 0, 1]),
        ("Ceil", [-1.5, 1.25, 2], [-1, 2, 2]),
        ("Floor", [-1.5, 1.25, 2], [-2, 1, 2]),
        ("Round", [0.9, 2.5, 2.3, 1.5, -4.5, -1.5], [1, 2, 2, 2, -4, -2]),
        ("Reciprocal", [-4, 0.5, 2], [-0.25, 2, 0.5]),
    ],
)
@pytest.mark.parametrize("dtype", FLOATS)
def test_unary(op_type, x, expected, dtype):
    x, expected = np.array(x, dtype), np.array(expected, dtype)
    function = getattr(ops, op_type.lower())
    with jax.enable_x64(True):
        assert_close(function(x), expected)
        assert_close(function(jnp.asarray(x)), expected)
        assert_close(function(jnp.asarray(x[0])), expected[0])
        assert function(jnp.asarray(x[:0])).shape == (0,)


@pytest.mark.parametrize("op_type", ["Abs", "Neg", "Ceil", "Floor", "Reciprocal"])
@pytest.mark.parametrize("opset", [1, 6, 13])
def test_unary_versions(op_type, opset):
    expected = {"Abs": 0.5, "Neg": 0.5, "Ceil": 0, "Floor": -1, "Reciprocal": -2}[op_type]
    assert_close(run_node(op_type, [f32(-0.5)], opset=opset)[0], f32(expected))


def test_rounding_keeps_what_is_no_number():
    x = f32(np.nan, np.inf, -np.inf)
    for function in (ops.ceil, ops.floor, ops.round):
        assert_close(function(jnp.asarray(x)), x)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_abs_and_sign_of_integers(dtype):
    x = np.array([0, 3, 100], dtype)
    assert_close(run_node("Abs", [x], opset=13)[0], x)
    assert_close(run_node("Sign", [x], opset=9)[0], np.array([0, 1, 1], dtype))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (ops.abs, [-1, 0, 1]),
        (ops.sign, [0, 0, 0]),
        (ops.ceil, [0, 0, 0]),
        (ops.floor, [0, 0, 0]),
        (ops.round, [0, 0, 0]),
    ],
)
def test_unary_derivatives_at_kinks(function, expected):
    x, ones = jnp.array([-1.0, 0.0, 2.0]), jnp.ones(3)
    assert_close(jax.jvp(function, (x,), (ones,))[1], f32(*expected))
    assert_close(jax.vjp(function, x)[1](ones)[0], f32(*expected))


def test_unary_gradients():
    for function in (ops.abs, ops.neg, ops.reciprocal):
        check_gradients(function, [-1.5, 0.5])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bitwise(dtype):
    a, b = np.array([[12, 10]], dtype), np.array([10, 6], dtype)
    for op_type, expected in [("And", [8, 2]), ("Or", [14, 14]), ("Xor", [6, 12])]:
        folded = getattr(ops, f"bitwise_{op_type.lower()}")
        assert_close(folded(a, b), np.array([expected], dtype))
        assert_close(run_node(f"Bitwise{op_type}", [a, b], opset=18)[0], folded(a, b))
    assert_close(run_node("BitwiseNot", [a], opset=18)[0], ~a)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bit_shift(dtype):
    x, width = np.array([1, 4, 5], dtype), np.iinfo(dtype).bits
    opset = 11 if np.iinfo(dtype).min == 0 else 28
    shift = lambda y, d: run_node("BitShift", [x, np.array(y, dtype)], opset=opset, direction=d)[0]
    assert_close(shift([1, 2, width], "LEFT"), np.array([2, 16, 0], dtype))
    assert_close(shift([1, 2, width], "RIGHT"), np.array([0, 1, 0], dtype))


@pytest.mark.parametrize("m", [np, jnp])
def test_bit_shift_keeps_the_sign_to_the_right(m):
    x, y = (
        m.asarray(np.array([-8, -8, -1, 8, -8], np.int8)),
        m.asarray(np.array([1, 8, 100, -1, -1], np.int8)),
    )
    assert_close(ops.bit_shift(x, y, direction="RIGHT"), np.array([-4, -1, -1, 0, -1], np.int8))
    assert_close(ops.bit_shift(x, y, direction="LEFT"), np.array([-16, 0, 0, 0, 0], np.int8))


def test_bit_shift_knows_two_directions():
    with pytest.raises(InvalidModelError, match="direction is 'UP', expected 'LEFT' or 'RIGHT'"):
        ops.bit_shift(np.array([1], np.uint8), np.array([1], np.uint8), direction="UP")


def test_arithmetic_of_dimensions_stays_known():
    (s,) = jax.export.symbolic_shape("S", constraints=["S>=3"])
    dim, seven = known.dimensions([s]), i64(7)
    for result, expected in [
        (ops.add(dim, seven), s + 7),
        (ops.sub(dim, seven), s - 7),
        (ops.mul(dim, seven), 7 * s),
        (ops.div(6 * dim, i64(3)), 2 * s),
        (ops.div(dim, i64(2)), s // 2),
        (ops.mod(dim, i64(2)), s % 2),
        (ops.max(dim, i64(3)), s),
        (ops.min(dim, i64(2)), 2),
        (ops.pow(dim, i64(2)), s * s),
        (ops.neg(dim), -s),
        (ops.abs(ops.neg(dim)), s),
    ]:
        assert isinstance(result, np.ndarray)
        assert known.same_dim(result[0], expected)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda s: ops.div(s, i64(2)), [-1, 0, 2]),
        (lambda s: ops.div(s, i64(-2)), [1, 0, -2]),
        (lambda s: ops.mod(s, i64(2)), [0, 1, 0]),
        (lambda s: ops.mod(s, i64(2), fmod=1), [0, -1, 0]),
        (lambda s: ops.mod(s, i64(-2)), [0, -1, 0]),
        (lambda s: ops.pow(s, i64(3)), [-8, -1, 64]),
        (lambda s: ops.pow(i64(2), s), [0, 0, 16]),
    ],
)
@pytest.mark.parametrize("shape", [(1,), ()])  # NumPy gives the element of the latter alone
def test_arithmetic_on_dimensions_that_may_be_negative(function, expected, shape):
    def shifted(x):
        result = function(known.dimensions([x.shape[0] - 3]).reshape(shape))
        return result if isinstance(result, jax.Array) else known.lift(np.asarray(result))

    with jax.enable_x64(True):
        spec = jax.ShapeDtypeStruct(jax.export.symbolic_shape("S"), np.float32)
        exported = jax.export.export(jax.jit(shifted))(spec)
        results = [exported.call(np.zeros(n, np.float32)).item() for n in (1, 2, 7)]
    assert results == expected

"""Products and convolutions of quantised numbers, and quantised operators in programs."""

import helpers
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest
from helpers import assert_same, s8, u8
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxonnx import ops
from jaxonnx.define.padded import Padded
from jaxonnx.define.registry import lookup
from jaxonnx.errors import InvalidModelError, UnpaddableError
from jaxonnx.run import padding

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
FLOAT8 = [
    *(ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz),
    *(ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz),
]
F32, F16, BF16 = np.float32, np.float16, ml_dtypes.bfloat16


# Products


def test_matmul_integer_with_zero_points_per_row_and_column():
    a, b = u8([[1, 2, 3], [4, 5, 6]]), s8([[1, -1], [2, -2], [3, -3]])
    (y,) = helpers.run_node("MatMulInteger", [a, b], opset=10)
    assert_same(y, np.array([[14, -14], [32, -32]], np.int32))
    (y,) = helpers.run_node("MatMulInteger", [a, b, u8(1), None], opset=10)
    assert_same(y, np.array([[8, -8], [26, -26]], np.int32))
    (y,) = helpers.run_node("MatMulInteger", [a, b, None, s8([1])], opset=10)
    assert_same(y, np.array([[8, -20], [17, -47]], np.int32))
    rows, columns = u8([1, 4]), s8([0, -1])
    (y,) = helpers.run_node("MatMulInteger", [a, b, rows, columns], opset=10)
    assert_same(y, np.array([[8, -5], [8, -5]], np.int32))
    deep = [np.stack([a, a]), np.stack([b, b]), rows.reshape(2, 1), columns]
    (y,) = helpers.run_node("MatMulInteger", deep, opset=10)
    assert_same(y, np.array([[[8, -5], [8, -5]]] * 2, np.int32))
    deep[2] = u8([[[1], [4]], [[0], [4]]])
    (y,) = helpers.run_node("MatMulInteger", deep, opset=10)
    assert_same(y, np.array([[[8, -5], [8, -5]], [[14, -8], [8, -5]]], np.int32))


@pytest.mark.parametrize("size", [257, 258, 259, 600, 33_025, 40_000])
def test_integer_sums_are_exact_and_wrap_in_32_bits(size):
    a, b = np.full((1, size), 255, np.uint8), np.full((size, 2), 255, np.uint8)
    b[:, 1] -= (np.arange(size) % 3 == 0).astype(np.uint8)
    exact = a.astype(np.int64) @ b.astype(np.int64)
    assert_same(jax.jit(ops.matmul_integer)(a, b), exact.astype(np.int32))
    image, kernel = a.reshape(1, size, 1), b.T.reshape(2, size, 1)
    assert_same(jax.jit(ops.conv_integer)(image, kernel), exact.astype(np.int32).reshape(1, 2, 1))


@pytest.mark.parametrize("size", [513, 1024, 1025])
def test_signed_sums_are_exact(size):
    a, b = np.full((1, size), -128, np.int8), np.full((size, 1), -127, np.int8)
    zero = s8(127)
    assert_same(ops.matmul_integer(a, b), np.array([[128 * 127 * size]], np.int32))
    assert_same(ops.matmul_integer(a, b, zero, zero), np.array([[255 * 254 * size]], np.int32))


@settings(deadline=None, max_examples=12)
@given(st.data())
def test_products_by_formula(data):
    shapes = [
        ((2, 3), (3, 4)),
        ((3,), (3,)),
        ((2, 2, 3), (3, 2)),
        ((3,), (2, 3, 1)),
        ((0, 3), (3, 2)),
    ]
    shapes += [((2, 0), (0, 2)), ((2, 1, 2, 3), (3, 3, 2))]
    left, right = data.draw(st.sampled_from(shapes))
    kinds = [np.dtype(data.draw(st.sampled_from([np.int8, np.uint8]))) for _ in range(3)]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))

    def codes(shape, dtype):
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)

    rows = (left[-2],) if len(left) > 1 and data.draw(st.booleans()) else ()
    columns = (right[-1],) if len(right) > 1 and data.draw(st.booleans()) else ()
    a, b, y_zero = codes(left, kinds[0]), codes(right, kinds[1]), codes((), kinds[2])
    za, zb = codes(rows, kinds[0]), codes(columns, kinds[1])
    sa, sb = (rng.uniform(0.01, 0.02, s).astype(F32) for s in (rows, columns))
    wide_a = a.astype(np.int64) - (za[:, None] if rows else za)
    wide_b = b.astype(np.int64) - zb
    product = wide_a @ wide_b
    assert_same(ops.matmul_integer(a, b, za, zb), product.astype(np.int32))
    factor = (sa[:, None] if rows else sa) * sb / F32(0.5)
    scaled = product.astype(np.int32).astype(F32) * factor
    limits = np.iinfo(kinds[2])
    expected = np.clip(np.rint(scaled) + y_zero.astype(F32), limits.min, limits.max)
    y = ops.q_linear_matmul(a, sa, za, b, sb, zb, F32(0.5), y_zero)
    assert_same(y, expected.astype(kinds[2]))


@pytest.mark.parametrize(("opset", "kind"), [(10, F32), (21, F32), (21, F16), (21, BF16)])
def test_q_linear_matmul(opset, kind):
    a, b = u8([[10, 12]]), s8([[1, 3], [-2, 5]])
    scales = [np.array(v, kind) for v in (0.5, 0.25, 0.25)]
    inputs = [a, scales[0], u8(9), b, scales[1], s8(1), scales[2], s8(-1)]
    (y,) = helpers.run_node("QLinearMatMul", inputs, opset=opset)
    assert_same(y, s8([[-5, 6]]))  # 0.5 * [-9, 14] is [-4.5, 7], rounded before the zero point
    if opset == 10:
        with pytest.raises(InvalidModelError, match="a_scale"):
            helpers.run_node("QLinearMatMul", [a, F16(1), *inputs[2:]], opset=opset)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_q_linear_matmul_of_float8(dtype):
    a, b = helpers.f32([[0.5, 2]]).astype(dtype), helpers.f32([[2], [-4]]).astype(dtype)
    zero, one = np.array(0, dtype), np.array(1, dtype)
    inputs = [a, F32(0.5), zero, b, F32(1), one, F32(0.25), one]
    (y,) = helpers.run_node("QLinearMatMul", inputs, opset=21)
    assert_same(y, np.array([[-18]], dtype))  # 0.5 * 1 - 2 * 5 = -9.5, times 2, + 1
    inputs[-1] = s8(1)
    assert_same(helpers.run_node("QLinearMatMul", inputs, opset=21)[0], s8([[-18]]))
    inputs[:3] = s8([[1, 2]]), F32(1), s8(1)
    assert_same(
        helpers.run_node("QLinearMatMul", inputs, opset=21)[0], s8([[-19]])
    )  # 1 * -5 * 4 + 1
    with pytest.raises(InvalidModelError, match="input a "):
        helpers.run_node("QLinearMatMul", [a, *inputs[1:]], opset=10)


# Convolutions


def test_conv_integer_pads_with_the_zero_point():
    x, w = u8([[[3, 4, 5]]]), u8([[[1, 2]], [[3, 0]]])
    (y,) = helpers.run_node("ConvInteger", [x, w, u8(2), None], opset=10, pads=[1, 1])
    assert_same(y, np.array([[[2, 5, 8, 3], [0, 3, 6, 9]]], np.int32))
    (y,) = helpers.run_node("ConvInteger", [x, w, None, u8([1, 0])], opset=10)
    assert_same(y, np.array([[[4, 5], [9, 12]]], np.int32))
    (y,) = helpers.run_node("ConvInteger", [x, w], opset=10, auto_pad="SAME_UPPER", strides=[2])
    assert_same(y, np.array([[[11, 5], [9, 15]]], np.int32))


def test_q_linear_conv_rounds_before_the_zero_point():
    x, w = u8([[[3, 4, 5]]]), s8([[[1]], [[-2]]])
    scales = F32(0.5), helpers.f32([1, 0.5]), F32(1)
    inputs = [
        x,
        scales[0],
        u8(2),
        w,
        scales[1],
        s8([0, 0]),
        scales[2],
        u8(1),
    ]
    (y,) = helpers.run_node("QLinearConv", inputs, opset=10)
    assert_same(y, u8([[[1, 2, 3], [1, 0, 0]]]))  # 0.5 1 1.5 | -0.5 -1 -1.5
    (y,) = helpers.run_node("QLinearConv", [*inputs, np.array([4, 9], np.int32)], opset=10)
    assert_same(y, u8([[[3, 4, 5], [3, 2, 2]]]))  # 2.5 3 3.5 | 1.75 1.25 0.75
    (y,) = helpers.run_node("QLinearConv", [*inputs, np.array([2**24 + 1, 0], np.int32)], opset=10)
    assert_same(y, u8([[[255] * 3, [1, 0, 0]]]))


def naive_convolution(x, w, pads, strides, dilations, group):
    x = np.pad(x, [(0, 0), (0, 0), *pads])
    kernel, per = w.shape[2:], w.shape[0] // group
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    sizes = [(n - e) // s + 1 for n, e, s in zip(x.shape[2:], spans, strides, strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *sizes), np.int64)
    for n, m, *spot in np.ndindex(*y.shape):
        first = m // per * w.shape[1]
        for c, *tap in np.ndindex(*w.shape[1:]):
            at = [p * s + t * d for p, s, t, d in zip(spot, strides, tap, dilations, strict=True)]
            y[n, m, *spot] += x[n, first + c, *at] * w[m, c, *tap]
    return y


@settings(deadline=None, max_examples=8)
@given(st.data())
def test_convolutions_by_formula(data):
    rank, group = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    kinds = [np.dtype(data.draw(st.sampled_from([np.int8, np.uint8]))) for _ in range(3)]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))

    def codes(shape, dtype):
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)

    x = codes((2, 2 * group, *rng.integers(4, 6, rank)), kinds[0])
    w = codes((2 * group, 2, *rng.integers(1, 3, rank)), kinds[1])
    pads, strides, dilations = rng.integers(0, 3, (rank, 2)), [2] * rank, [1, 2][:rank]
    channels = (2 * group,) if data.draw(st.booleans()) else ()
    zx, zw, zy = codes((), kinds[0]), codes(channels, kinds[1]), codes((), kinds[2])
    sw = rng.uniform(0.01, 0.02, channels).astype(F32)
    wide = w.astype(np.int64) - zw.reshape(-1, *[1] * (rank + 1))
    sums = naive_convolution(x.astype(np.int64) - zx, wide, pads, strides, dilations, group)
    attributes = {"group": group, "strides": strides, "dilations": dilations}
    attributes["pads"] = pads.T.ravel().tolist()
    assert_same(ops.conv_integer(x, w, zx, zw, **attributes), sums.astype(np.int32))
    bias = rng.integers(-(10**6), 10**6, 2 * group).astype(np.int32)
    spot = (-1, *[1] * rank)
    factor = F32(0.1) * (sw.reshape(spot) if channels else sw) / F32(0.7)
    scaled = (sums + bias.reshape(spot)).astype(np.int32).astype(F32) * factor
    limits = np.iinfo(kinds[2])
    expected = np.clip(np.rint(scaled) + zy.astype(F32), limits.min, limits.max)
    y = ops.q_linear_conv(x, F32(0.1), zx, w, sw, zw, F32(0.7), zy, bias, **attributes)
    assert_same(y, expected.astype(kinds[2]))


# Derivatives


def test_quantising_has_derivative_0():
    x, scale = helpers.f32([0.3, 2, 300]), F32(0.5)

    def through(x, scale):
        y = ops.dequantize_linear(ops.quantize_linear(x, scale, u8(3)), F32(2), u8(3))
        return (
            y.sum()
            + ops.quantize_linear(x, scale, output_dtype=onnx.TensorProto.FLOAT8E5M2)
            .astype(F32)
            .sum()
        )

    for gradient in jax.grad(through, (0, 1))(x, scale):
        assert not np.asarray(gradient).any()
    tangent = jax.jvp(through, (x, scale), (np.ones_like(x), np.ones_like(scale)))[1]
    assert_same(tangent, F32(0))
    scales = [F32(1)] * 3

    def product(*scales):
        f8 = np.array([[1]], ml_dtypes.float8_e4m3fn)
        zero = f8[0, 0]
        y = ops.q_linear_matmul(f8, scales[0], zero, f8, scales[1], zero, scales[2], zero)
        return y.astype(F32).sum()

    assert jax.grad(product, (0, 1, 2))(*scales) == (0, 0, 0)


def test_derivative_of_dequantising_by_the_scale():
    x, zero = u8([[1, 5], [9, 2]]), u8([4, 1])
    gradient = jax.grad(lambda s: ops.dequantize_linear(x, s, zero).sum())(helpers.f32([1, 2]))
    assert_same(gradient, helpers.f32([2, 5]))
    value = jnp.asarray([1, 2], ml_dtypes.float8_e4m3fn)
    by_x = jax.grad(lambda x: ops.dequantize_linear(x, F32(3)).sum())(value)
    assert_same(by_x, np.array([3, 3], ml_dtypes.float8_e4m3fn))


def test_derivative_of_a_range_found_at_run_time():
    def scale(x):
        return ops.dynamic_quantize_linear(x)[1]

    assert_same(jax.grad(scale)(helpers.f32([-1, 3, 2])), helpers.f32([-1 / 255, 1 / 255, 0]))
    assert_same(jax.grad(scale)(helpers.f32([3, 1, 3])), helpers.f32([0.5 / 255, 0, 0.5 / 255]))
    tangent = jax.jvp(scale, (helpers.f32([-1, 3]),), (helpers.f32([1, 5]),))[1]
    helpers.assert_close(tangent, F32(4 / 255))


# Programs


SCALES = F32(0.1), u8(3)
PROGRAMS = {
    "quantize": lambda x: ops.quantize_linear(x, *SCALES),
    "quantize_float8": lambda x: ops.quantize_linear(x, F32(1), np.array(0, FLOAT8[0])),
    "quantize_int4": lambda x: ops.quantize_linear(x, F32(1), np.array(0, ml_dtypes.int4)),
    "dequantize": lambda x: ops.dequantize_linear(x.astype(np.uint8), *SCALES),
    "blocks": lambda x: ops.dequantize_linear(
        x.astype(np.uint8), jnp.ones((2, 2), F32), axis=1, block_size=2
    ),
    "dynamic": ops.dynamic_quantize_linear,
    "matmul": lambda x: ops.matmul_integer(x.astype(np.uint8), np.ones((3, 2), np.int8), SCALES[1]),
    "q_matmul": lambda x: ops.q_linear_matmul(
        x.astype(np.uint8), *SCALES, np.ones((3, 2), np.uint8), *SCALES, *SCALES
    ),
    "conv": lambda x: ops.conv_integer(x.astype(np.uint8)[:, None], np.ones((2, 1, 2), np.int8)),
    "q_conv": lambda x: ops.q_linear_conv(
        x.astype(np.uint8)[:, None], *SCALES, np.ones((2, 1, 2), np.uint8), *SCALES, *SCALES
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_lowers_for_every_platform_and_maps(name):
    program, x = PROGRAMS[name], helpers.f32([[1, 2, 3], [4, 5, 6]])
    exported = jax.export.export(jax.jit(program), platforms=PLATFORMS)(x)
    assert exported.platforms == PLATFORMS
    alone, mapped = jax.jit(program)(x), jax.vmap(program)(np.stack([x, x]))
    jax.tree.map(lambda one, many: assert_same(np.asarray(many)[1], np.asarray(one)), alone, mapped)


def test_symbolic_sizes():
    n, k = jax.export.symbolic_shape("n, k")

    def shape(function, *specs):
        specs = [jax.ShapeDtypeStruct(s, d) for s, d in specs]
        return str(jax.export.export(jax.jit(function))(*specs).out_avals[0].shape)

    codes = (n, k), np.uint8
    assert shape(ops.matmul_integer, codes, ((k, 2), np.int8)) == "(n, 2)"
    assert shape(ops.matmul_integer, codes, ((k, 2), np.int8), ((n,), np.uint8)) == "(n, 2)"
    assert shape(ops.dequantize_linear, codes, ((k,), F32), ((k,), np.uint8)) == "(n, k)"
    assert shape(ops.quantize_linear, ((n, k), F32), ((k,), F32)) == "(n, k)"
    assert shape(ops.conv_integer, ((n, 3, k), np.uint8), ((2, 3, 1), np.uint8)) == "(n, 2, k)"
    with pytest.raises(InvalidModelError, match="x_scale has n elements, expected k"):
        shape(ops.dequantize_linear, codes, ((n,), F32))


def test_exact_whatever_precision_is_asked_of_products():
    a, b = np.full((1, 200), 255, np.uint8), np.full((200, 1), 253, np.uint8)
    with jax.default_matmul_precision("bfloat16"):
        assert_same(ops.matmul_integer(a, b), np.array([[255 * 253 * 200]], np.int32))


def test_padded_data():
    def follow(name, version, *args):
        operator = lookup(name, version)
        assert operator is not None
        return padding.apply(operator, args, {}, name)

    codes, count = u8([[1, 2], [3, 4], [9, 9]]), np.int64(2)
    x = Padded(jnp.asarray(codes), count, 0)
    (y,) = follow("DequantizeLinear", 13, x, F32(2), u8(1))
    assert_same(y.cut(), helpers.f32([[0, 2], [4, 6]]))
    weight = s8([[1], [2]])
    (y,) = follow("MatMulInteger", 10, x, weight, u8([1]), s8(1))
    assert_same(y.cut(), np.array([[1], [3]], np.int32))
    real = Padded(jnp.asarray(codes * 100.0, F32), count, 0)
    values, scale, zero = follow("DynamicQuantizeLinear", 11, real)
    for actual, wanted in zip(
        (values.cut(), scale, zero), ops.dynamic_quantize_linear(codes[:2] * F32(100)), strict=True
    ):
        assert_same(actual, wanted)
    for name, args in [
        ("MatMulInteger", (x, weight, u8([[1], [2], [3]]))),
        ("MatMulInteger", (codes, x)),
    ]:
        with pytest.raises(UnpaddableError):
            follow(name, 10, *args)
    for args in ((codes, F32(1), x), (x, x)):
        with pytest.raises(UnpaddableError):
            follow("DequantizeLinear", 13, *args)


# Errors


def test_products_refuse():
    a, b, one = u8(np.ones((2, 3))), u8(np.ones((3, 4))), F32(1)
    with pytest.raises(InvalidModelError, match=r"shapes \(2, 3\) and \(2, 3\), expected A @ B"):
        ops.matmul_integer(a, a)
    with pytest.raises(InvalidModelError, match="expected A @ B"):
        ops.matmul_integer(u8(1), b)
    with pytest.raises(InvalidModelError, match=r"a_zero_point has shape \(3,\), .* fits \(2, 1\)"):
        ops.matmul_integer(a, b, u8([1, 2, 3]))
    with pytest.raises(InvalidModelError, match=r"a_zero_point has shape \(2, 3\)"):
        ops.matmul_integer(a, b, a)
    with pytest.raises(InvalidModelError, match=r"b_zero_point has shape \(3,\), .* fits \(1, 4\)"):
        ops.matmul_integer(a, b, None, u8([1, 2, 3]))
    with pytest.raises(InvalidModelError, match=r"b_zero_point has shape \(3,\)"):
        ops.matmul_integer(a, b[:, 0], None, u8([1, 2, 3]))
    with pytest.raises(InvalidModelError, match=r"a_zero_point has shape \(2,\), expected \(\)"):
        ops.q_linear_matmul(a, one, u8([1, 2]), b, one, u8(1), one, u8(1))
    with pytest.raises(InvalidModelError, match=r"b_zero_point has shape \(4,\), expected \(\)"):
        ops.q_linear_matmul(a, one, u8(1), b, one, b[0], one, u8(1))
    with pytest.raises(InvalidModelError, match=r"y_scale has shape \(2,\), expected a scalar"):
        ops.q_linear_matmul(a, one, u8(1), b, one, u8(1), helpers.f32([1, 2]), u8([1, 2]))
    with pytest.raises(InvalidModelError, match=r"y_zero_point has shape \(2,\)"):
        ops.q_linear_matmul(a, one, u8(1), b, one, u8(1), one, u8([1, 2]))


def test_convolutions_refuse():
    x, w, one, zero = (
        u8(np.ones((1, 2, 3))),
        u8(np.ones((4, 2, 1))),
        F32(1),
        u8(0),
    )
    with pytest.raises(
        InvalidModelError, match=r"x_zero_point has shape \(2,\), expected a scalar"
    ):
        ops.conv_integer(x, w, u8([1, 2]))
    with pytest.raises(
        InvalidModelError, match="w_zero_point has 2 elements, expected 4 for axis 0"
    ):
        ops.conv_integer(x, w, None, u8([1, 2]))
    with pytest.raises(InvalidModelError, match="X has 2 channels, expected 4"):
        ops.conv_integer(x, w, group=2)
    with pytest.raises(InvalidModelError, match=r"w_zero_point has shape \(4,\), expected \(\)"):
        ops.q_linear_conv(x, one, zero, w, one, w[:, 0, 0], one, zero)
    with pytest.raises(InvalidModelError, match="w_zero_point has 2 elements, expected 4"):
        ops.q_linear_conv(x, one, zero, w, helpers.f32([1, 2]), u8([1, 2]), one, zero)
    with pytest.raises(InvalidModelError, match="B has 3 elements, expected 4"):
        ops.q_linear_conv(x, one, zero, w, one, zero, one, zero, np.zeros(3, np.int32))
    with pytest.raises(InvalidModelError, match=r"y_scale has shape \(4,\)"):
        ops.q_linear_conv(x, one, zero, w, one, zero, helpers.f32([1] * 4), zero)
    with pytest.raises(InvalidModelError, match=r"x_scale has shape \(2,\)"):
        ops.q_linear_conv(x, helpers.f32([1, 1]), zero, w, one, zero, one, zero)

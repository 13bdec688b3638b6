"""Quantisation, and what computes with quantised numbers."""

import helpers
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import jaxonnx
from jaxonnx import ops
from jaxonnx.define.padded import Padded
from jaxonnx.define.registry import lookup
from jaxonnx.errors import InvalidModelError, UnpaddableError, UnsupportedOpError
from jaxonnx.run import padding

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
CODES = [
    *(np.int8, np.uint8, np.int16, np.uint16, ml_dtypes.int4, ml_dtypes.uint4),
    *(ml_dtypes.int2, ml_dtypes.uint2),
]
FLOAT8 = [
    *(ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz),
    *(ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz),
]
F32, F16, BF16 = np.float32, np.float16, ml_dtypes.bfloat16


def type_number(dtype):
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def u8(values):
    return np.array(values, np.uint8)


def s8(values):
    return np.array(values, np.int8)


def equal(actual, expected):
    """Equal dtype, shape and values, NaN included."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(actual.astype(np.float64), expected.astype(np.float64))


# Quantising


@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23, 24, 25, 28])
def test_quantize_rounds_half_to_even_and_saturates(opset):
    x = helpers.f32([-1000, -0.75, -0.25, 0.25, 0.75, 1.25, 1.75, 70, 1000])
    inputs = [x, F32(0.5), u8(3)]
    (y,) = helpers.run_node("QuantizeLinear", inputs, opset=opset)
    equal(y, u8([0, 1, 3, 3, 5, 5, 7, 143, 255]))  # quotients -1.5 -0.5 0.5 1.5 2.5 3.5 140
    (y,) = helpers.run_node("QuantizeLinear", [*inputs[:2], s8(-3)], opset=opset)
    equal(y, s8([-128, -5, -3, -3, -1, -1, 1, 127, 127]))


@pytest.mark.parametrize("opset", [10, 28])
def test_quantize_without_a_zero_point_gives_uint8(opset):
    (y,) = helpers.run_node("QuantizeLinear", [helpers.f32([-1, 2.5]), F32(1)], opset=opset)
    equal(y, u8([0, 2]))
    node = helper.make_node("QuantizeLinear", ["x", "s", ""], ["y"])
    infos = [helper.make_tensor_value_info(n, 1, None) for n in "xs"]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    equal(jaxonnx.load(model)(helpers.f32([-1, 2.5]), F32(1)), u8([0, 2]))


@pytest.mark.parametrize("opset", [10, 13])
def test_quantize_integers(opset):
    x = np.array([-5, 3, 5, 2**31 - 1], np.int32)
    (y,) = helpers.run_node("QuantizeLinear", [x, F32(2), s8(1)], opset=opset)
    equal(y, s8([-1, 3, 3, 127]))  # -2.5 and 2.5 are ties, 1.5 is one


def test_an_integer_scale_divides_exactly():
    x, scale = np.array([2**30 + 1, -(2**30) - 1], np.int32), np.array(2**23, np.int32)
    (y,) = helpers.run_node("QuantizeLinear", [x, scale, s8(0)], opset=19)
    equal(y, s8([127, -128]))  # 128 and a little more
    tie = np.array([3 * 2**24 + 1, 3 * 2**24 - 1], np.int32)  # 1.5 and a little more or less
    for value in (tie, jnp.asarray(tie)):
        equal(ops.quantize_linear(value, np.array(2**25, np.int32), s8(0)), s8([2, 1]))
    floats = helpers.f32([5, 7])
    equal(ops.quantize_linear(jnp.asarray(floats), np.array(2, np.int32), s8(0)), s8([2, 4]))


@pytest.mark.parametrize("dtype", CODES)
def test_quantize_saturates_to_every_integer_type(dtype):
    limits = ml_dtypes.iinfo(dtype)
    x = helpers.f32([-1e30, -np.inf, 1, np.nan, 1e30, np.inf])
    low, high = int(limits.min), int(limits.max)
    expected = np.array([low, low, 1, 0, high, high], np.int32).astype(dtype)
    attributes = {"output_dtype": type_number(dtype)}
    for value in (x, jnp.asarray(x)):
        equal(ops.quantize_linear(value, F32(1), **attributes), expected)
    model = helpers.run_node("QuantizeLinear", [x, F32(1)], opset=25, **attributes)
    equal(model[0], expected)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_quantize_to_float8(dtype):
    x = helpers.f32([0.3, -2.2, 1e6, -np.inf])
    most = float(ml_dtypes.finfo(dtype).max)
    shifted = helpers.f32([1.6, -3.4, most, -most]).astype(dtype)  # x / 0.5 + 1
    for opset in (19, 28):
        inputs = [x, F32(0.5), np.array(1, dtype)]
        equal(helpers.run_node("QuantizeLinear", inputs, opset=opset)[0], shifted)
    (y,) = helpers.run_node("QuantizeLinear", [*inputs[:2], inputs[2]], opset=19, saturate=0)
    beyond = [np.inf, -np.inf] if dtype == ml_dtypes.float8_e5m2 else [np.nan, np.nan]
    equal(y, helpers.f32([1.6, -3.4, *beyond]).astype(dtype))


def test_quantize_to_float4():
    x = helpers.f32([0.2, 0.25, 1.25, -5.1, 100])
    expected = helpers.f32([0, 0, 1, -6, 6]).astype(ml_dtypes.float4_e2m1fn)  # ties to even
    inputs = [x, F32(1), np.array(0, ml_dtypes.float4_e2m1fn)]
    equal(helpers.run_node("QuantizeLinear", inputs, opset=23)[0], expected)
    with pytest.raises(InvalidModelError, match="y_zero_point"):
        helpers.run_node("QuantizeLinear", inputs, opset=21)


@pytest.mark.parametrize("dtype", [ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn])
def test_float6_is_computed_where_values_are_known(dtype):
    x, most = helpers.f32([0.5, 1.5, 1e3]), float(ml_dtypes.finfo(dtype).max)
    coded = ops.quantize_linear(x, F32(0.5), np.array(0, dtype))
    equal(coded, helpers.f32([1, 3, most]).astype(dtype))
    equal(ops.dequantize_linear(coded, F32(2)), helpers.f32([2, 6, 2 * most]))
    with pytest.raises(UnsupportedOpError, match="XLA does not compute with float6"):
        ops.quantize_linear(jnp.asarray(x), F32(1), output_dtype=type_number(dtype))


def test_version_10_is_per_tensor_and_13_per_axis():
    x, scale = helpers.f32([[2, 4], [6, 8]]), helpers.f32([1, 2])
    inputs = [x, scale, u8([0, 1])]
    (y,) = helpers.run_node("QuantizeLinear", inputs, opset=13)
    equal(y, u8([[2, 3], [6, 5]]))
    (y,) = helpers.run_node("QuantizeLinear", inputs, opset=13, axis=-2)
    equal(y, u8([[2, 4], [4, 5]]))
    (x,) = helpers.run_node("DequantizeLinear", [u8([[2, 3], [6, 5]]), *inputs[1:]], opset=13)
    equal(x, helpers.f32([[2, 4], [6, 8]]))
    for name in ("QuantizeLinear", "DequantizeLinear"):
        with pytest.raises(InvalidModelError, match=r"shape \(2,\), expected a scalar"):
            helpers.run_node(name, [x if name[0] == "Q" else u8([[1, 2]]), *inputs[1:]], opset=10)


def test_half_precision_from_19():
    x = np.array([1, 2.5, 300], F16)
    (y,) = helpers.run_node("QuantizeLinear", [x, F16(1), u8(0)], opset=19)
    equal(y, u8([1, 2, 255]))
    with pytest.raises(InvalidModelError, match=r"x .* is float16, expected one of"):
        helpers.run_node("QuantizeLinear", [x, F32(1), u8(0)], opset=13)
    (x,) = helpers.run_node("DequantizeLinear", [u8([1, 3]), F16(0.25), u8(0)], opset=19)
    equal(x, np.array([0.25, 0.75], F16))
    with pytest.raises(InvalidModelError, match=r"x_scale .* is float16"):
        helpers.run_node("DequantizeLinear", [u8([1, 3]), F16(0.1), u8(0)], opset=13)


def test_blocks_and_output_dtype_from_21():
    x = helpers.f32([[1, 2, 3, 4, 5]])
    scale, zero = helpers.f32([[1, 2, 4]]), u8([[0, 1, 2]])
    (y,) = helpers.run_node("QuantizeLinear", [x, scale, zero], opset=21, block_size=2)
    equal(y, u8([[1, 2, 3, 3, 3]]))  # 1 2 | 1.5 2, + 1 | 1.25, + 2
    (x,) = helpers.run_node("DequantizeLinear", [y, scale, zero], opset=21, block_size=2)
    equal(x, helpers.f32([[1, 2, 4, 4, 4]]))
    kind = type_number(ml_dtypes.int4)
    (y,) = helpers.run_node("QuantizeLinear", [x, F32(0.25)], opset=21, output_dtype=kind)
    equal(y, np.array([[4, 7, 7, 7, 7]], np.int32).astype(ml_dtypes.int4))
    for attributes in ({"block_size": 2}, {"output_dtype": kind}):
        with pytest.raises(InvalidModelError, match=next(iter(attributes))):
            helpers.run_node("QuantizeLinear", [x, F32(1)], opset=19, **attributes)


def test_types_of_data_and_scale_may_differ_from_23():
    x, scale = helpers.f32([2049 / 64, 10]), F16(1 / 64)
    (y,) = helpers.run_node("QuantizeLinear", [x, scale, np.uint16(0)], opset=23)
    equal(y, np.array([2048, 640], np.uint16))  # 2049 is no float16
    single = {"precision": onnx.TensorProto.FLOAT}
    (y,) = helpers.run_node("QuantizeLinear", [x, scale, np.uint16(0)], opset=23, **single)
    equal(y, np.array([2049, 640], np.uint16))
    with pytest.raises(InvalidModelError, match=r"y_scale .* is float16, but another input"):
        helpers.run_node("QuantizeLinear", [x, scale, np.uint16(0)], opset=21)
    with pytest.raises(InvalidModelError, match="precision"):
        helpers.run_node("QuantizeLinear", [x, F32(1), np.uint16(0)], opset=21, **single)
    half = {"output_dtype": onnx.TensorProto.FLOAT16}
    (x,) = helpers.run_node("DequantizeLinear", [u8([3]), F32(0.1)], opset=23, **half)
    equal(x, np.array([0.3], F16))
    with pytest.raises(InvalidModelError, match="output_dtype"):
        helpers.run_node("DequantizeLinear", [u8([3]), F32(0.1)], opset=21, **half)


def test_a_scale_of_powers_of_two_from_24():
    scale = np.array([0.5, 4], ml_dtypes.float8_e8m0fnu)
    x = helpers.f32([[1, 6, 10]]).T
    expected = u8([[2, 12, 20], [0, 2, 2]])  # 0.25, 1.5 and 2.5
    (y,) = helpers.run_node("QuantizeLinear", [np.hstack([x, x]), scale], opset=24)
    equal(y, expected.T)
    half, whole = x.astype(F16), x.astype(np.int32)
    for value in (half, whole, jnp.asarray(half), jnp.asarray(whole)):
        equal(ops.quantize_linear(value[:, 0], scale[1]), expected[1])
    inputs, kind = [u8([[1, 3]]), scale], {"output_dtype": onnx.TensorProto.FLOAT}
    (x,) = helpers.run_node("DequantizeLinear", inputs, opset=24, **kind)
    equal(x, helpers.f32([[0.5, 12]]))
    with pytest.raises(InvalidModelError, match="output_dtype is float8_e8m0fnu, expected float16"):
        helpers.run_node("DequantizeLinear", inputs, opset=24)
    with pytest.raises(InvalidModelError, match="x_scale"):
        helpers.run_node("DequantizeLinear", inputs, opset=23, **kind)


@pytest.mark.parametrize(
    ("dtype", "first"),
    [(np.int16, 21), (ml_dtypes.int4, 21), (ml_dtypes.float4_e2m1fn, 23), (ml_dtypes.int2, 25)],
)
def test_dequantize_of_types_that_came_later(dtype, first):
    x = np.array([1, -1], np.float32).astype(dtype)
    (y,) = helpers.run_node("DequantizeLinear", [x, F32(2.5)], opset=first)
    equal(y, helpers.f32([2.5, -2.5]))
    before = {21: 19, 23: 21, 25: 24}[first]
    with pytest.raises(InvalidModelError, match=r"input x .* expected one of"):
        helpers.run_node("DequantizeLinear", [x, F32(2.5)], opset=before)


@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23, 24, 25, 28])
def test_dequantize(opset):
    inputs = [u8([0, 3, 128, 255]), F32(2), u8(128)]
    (y,) = helpers.run_node("DequantizeLinear", inputs, opset=opset)
    equal(y, helpers.f32([-256, -250, 0, 254]))
    (y,) = helpers.run_node(
        "DequantizeLinear", [np.array([-7, 2**24], np.int32), F32(0.5)], opset=opset
    )
    equal(y, helpers.f32([-3.5, 2**23]))


@pytest.mark.parametrize("dtype", FLOAT8)
def test_dequantize_float8(dtype):
    x = helpers.f32([0.5, -2, 3]).astype(dtype)
    for zero, expected in ((None, [1, -4, 6]), (np.array(1, dtype), [-1, -6, 4])):
        equal(ops.dequantize_linear(x, F32(2), zero), helpers.f32(expected))
    (y,) = helpers.run_node("DequantizeLinear", [x, BF16(2)], opset=19)
    equal(y, np.array([1, -4, 6], BF16))


def test_dequantized_halves_are_rounded_once():
    x, zero = np.array([65535], np.uint16), np.array(0, np.uint16)  # no float16 holds the code
    equal(ops.dequantize_linear(x, F16(0.5), zero), np.array([32768], F16))
    equal(ops.dequantize_linear(jnp.asarray(x), F16(0.5), zero), np.array([32768], F16))


def test_half_quotients_below_the_normal_range():
    scale = F16(3e-6)  # below the least normal number, 6.1e-5
    x = np.array([3e-6, 9e-6, 6e-5, 1e-4], F32)
    expected = u8(np.rint(x.astype(F16) / scale))
    assert expected.tolist() == [1, 3, 20, 34]
    for value in (x, jnp.asarray(x)):
        equal(jax.jit(ops.quantize_linear)(value, scale, u8(0)), expected)
        equal(ops.quantize_linear(value, scale, u8(0)), expected)
    tiny, kind = jnp.asarray([2.0**-15], F16), ml_dtypes.float8_e5m2
    code = ops.quantize_linear(tiny, F16(2), np.array(0, kind))
    equal(code, np.array([2.0**-16], kind))


def layouts(draw, shape, block):
    """The shape of a scale, and the attributes that lay it over data of a shape."""
    axis = draw(st.integers(-len(shape), len(shape) - 1)) if shape else 0
    form = draw(st.sampled_from(["tensor", "one", "axis", "block"] if shape else ["tensor", "one"]))
    if form == "axis":
        return (shape[axis],), {"axis": axis}
    if form == "block":
        blocks = [*shape]
        blocks[axis] = -(-shape[axis] // block)
        return tuple(blocks), {"axis": axis, "block_size": block}
    return (() if form == "tensor" else (1,)), {"axis": axis}


def laid(value, shape, *, axis, block_size=0):
    """What :func:`layouts` means, by indices."""
    out = np.empty(shape, value.dtype)
    for place in np.ndindex(*shape):
        if value.size == 1 and value.ndim < 2 and not block_size:
            out[place] = value.reshape(-1)[0]
        elif block_size:
            spot = list(place)
            spot[axis] //= block_size
            out[place] = value[tuple(spot)]
        else:
            out[place] = value[place[axis]]
    return out


@st.composite
def quantised(draw):
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    lie, attributes = layouts(draw, shape, draw(st.integers(1, 4)))
    dtype = np.dtype(draw(st.sampled_from(CODES)))
    kinds = [np.dtype(draw(st.sampled_from([F32, F16, BF16]))) for _ in range(2)]
    return shape, lie, attributes, dtype, kinds, draw(st.booleans()), draw(st.integers(0, 2**16))


def made(case):
    shape, lie, _, dtype, (data, scales), zero_point, seed = case
    rng, limits = np.random.default_rng(seed), ml_dtypes.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    spread = 2.0 ** rng.integers(-3, 3)
    x = np.clip(rng.normal(size=shape) * high * spread, -6e4, 6e4).astype(data)
    scale = (2.0 ** rng.integers(-1, 2, lie) * rng.choice([1, 0.9], lie)).astype(scales)
    zero = rng.integers(low, high + 1, lie).astype(dtype) if zero_point else None
    codes = rng.integers(low, high + 1, shape).astype(dtype)
    return x, scale, zero, codes, (low, high)


def expected_codes(case):
    shape, _, attributes, dtype, (_, scales), *_ = case
    x, scale, zero, _, (low, high) = made(case)
    quotient = (x.astype(scales) / laid(scale, shape, **attributes)).astype(np.float64)
    shift = 0 if zero is None else laid(zero.astype(np.int64), shape, **attributes)
    return np.clip(np.rint(quotient) + shift, low, high).astype(np.int32).astype(dtype)


@settings(deadline=None, max_examples=150)
@given(quantised())
def test_linear_quantisation_by_formula(case):
    shape, _, attributes, dtype, (_, scales), *_ = case
    x, scale, zero, codes, _ = made(case)
    with np.errstate(over="ignore"):
        y = ops.quantize_linear(x, scale, zero, output_dtype=type_number(dtype), **attributes)
        equal(y, expected_codes(case))
        shift = 0 if zero is None else laid(zero.astype(np.int64), shape, **attributes)
        wide = (codes.astype(np.int64) - shift).astype(F32)
        real = wide * laid(scale, shape, **attributes).astype(F32)
        equal(ops.dequantize_linear(codes, scale, zero, **attributes), real.astype(scales))


@settings(deadline=None, max_examples=8)
@given(quantised())
def test_traced_values_are_quantised_as_known_ones(case):
    _, _, attributes, dtype, _, *_ = case
    x, scale, zero, codes, _ = made(case)

    @jax.jit
    def both(x, scale, zero, codes):
        kind = type_number(dtype)
        code = ops.quantize_linear(x, scale, zero, output_dtype=kind, **attributes)
        return code, ops.dequantize_linear(codes, scale, zero, **attributes)

    coded, real = both(x, scale, zero, codes)
    with np.errstate(over="ignore"):
        equal(coded, expected_codes(case))
        equal(real, ops.dequantize_linear(codes, scale, zero, **attributes))


# Ranges found at run time


@pytest.mark.parametrize(
    ("x", "y", "scale", "zero_point"),
    [
        ([-127, 128, 0.5], [0, 255, 127], 1, 127),  # 0.5 is a tie: 0
        ([-253, 257], [0, 254], 2, 126),  # 126.5 and 128.5 are ties
        ([255, 51], [255, 51], 1, 0),  # the range holds 0
        ([-255, -51], [0, 204], 1, 255),
        ([0, 0], [0, 0], 0, 0),
        ([], [], 0, 0),
    ],
)
def test_dynamic_quantize(x, y, scale, zero_point):
    x = helpers.f32(x)
    expected = (u8(y), helpers.f32(scale), u8(zero_point))
    found = helpers.run_node("DynamicQuantizeLinear", [x], opset=11, outputs=3)
    for results in (
        found,
        ops.dynamic_quantize_linear(x),
        ops.dynamic_quantize_linear(jnp.array(x)),
    ):
        for actual, wanted in zip(results, expected, strict=True):
            equal(actual, wanted)


# Products


def test_matmul_integer_with_zero_points_per_row_and_column():
    a, b = u8([[1, 2, 3], [4, 5, 6]]), s8([[1, -1], [2, -2], [3, -3]])
    (y,) = helpers.run_node("MatMulInteger", [a, b], opset=10)
    equal(y, np.array([[14, -14], [32, -32]], np.int32))
    (y,) = helpers.run_node("MatMulInteger", [a, b, u8(1), None], opset=10)
    equal(y, np.array([[8, -8], [26, -26]], np.int32))
    (y,) = helpers.run_node("MatMulInteger", [a, b, None, s8([1])], opset=10)
    equal(y, np.array([[8, -20], [17, -47]], np.int32))
    rows, columns = u8([1, 4]), s8([0, -1])
    (y,) = helpers.run_node("MatMulInteger", [a, b, rows, columns], opset=10)
    equal(y, np.array([[8, -5], [8, -5]], np.int32))
    deep = [np.stack([a, a]), np.stack([b, b]), rows.reshape(2, 1), columns]
    (y,) = helpers.run_node("MatMulInteger", deep, opset=10)
    equal(y, np.array([[[8, -5], [8, -5]]] * 2, np.int32))
    deep[2] = u8([[[1], [4]], [[0], [4]]])
    (y,) = helpers.run_node("MatMulInteger", deep, opset=10)
    equal(y, np.array([[[8, -5], [8, -5]], [[14, -8], [8, -5]]], np.int32))


@pytest.mark.parametrize("size", [257, 258, 259, 600, 33_025, 40_000])
def test_integer_sums_are_exact_and_wrap_in_32_bits(size):
    a, b = np.full((1, size), 255, np.uint8), np.full((size, 2), 255, np.uint8)
    b[:, 1] -= (np.arange(size) % 3 == 0).astype(np.uint8)
    exact = a.astype(np.int64) @ b.astype(np.int64)
    equal(jax.jit(ops.matmul_integer)(a, b), exact.astype(np.int32))
    image, kernel = a.reshape(1, size, 1), b.T.reshape(2, size, 1)
    equal(jax.jit(ops.conv_integer)(image, kernel), exact.astype(np.int32).reshape(1, 2, 1))


@pytest.mark.parametrize("size", [513, 1024, 1025])
def test_signed_sums_are_exact(size):
    a, b = np.full((1, size), -128, np.int8), np.full((size, 1), -127, np.int8)
    zero = s8(127)
    equal(ops.matmul_integer(a, b), np.array([[128 * 127 * size]], np.int32))
    equal(ops.matmul_integer(a, b, zero, zero), np.array([[255 * 254 * size]], np.int32))


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
    equal(ops.matmul_integer(a, b, za, zb), product.astype(np.int32))
    factor = (sa[:, None] if rows else sa) * sb / F32(0.5)
    scaled = product.astype(np.int32).astype(F32) * factor
    limits = np.iinfo(kinds[2])
    expected = np.clip(np.rint(scaled) + y_zero.astype(F32), limits.min, limits.max)
    y = ops.q_linear_matmul(a, sa, za, b, sb, zb, F32(0.5), y_zero)
    equal(y, expected.astype(kinds[2]))


@pytest.mark.parametrize(("opset", "kind"), [(10, F32), (21, F32), (21, F16), (21, BF16)])
def test_q_linear_matmul(opset, kind):
    a, b = u8([[10, 12]]), s8([[1, 3], [-2, 5]])
    scales = [np.array(v, kind) for v in (0.5, 0.25, 0.25)]
    inputs = [a, scales[0], u8(9), b, scales[1], s8(1), scales[2], s8(-1)]
    (y,) = helpers.run_node("QLinearMatMul", inputs, opset=opset)
    equal(y, s8([[-5, 6]]))  # 0.5 * [-9, 14] is [-4.5, 7], rounded before the zero point
    if opset == 10:
        with pytest.raises(InvalidModelError, match="a_scale"):
            helpers.run_node("QLinearMatMul", [a, F16(1), *inputs[2:]], opset=opset)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_q_linear_matmul_of_float8(dtype):
    a, b = helpers.f32([[0.5, 2]]).astype(dtype), helpers.f32([[2], [-4]]).astype(dtype)
    zero, one = np.array(0, dtype), np.array(1, dtype)
    inputs = [a, F32(0.5), zero, b, F32(1), one, F32(0.25), one]
    (y,) = helpers.run_node("QLinearMatMul", inputs, opset=21)
    equal(y, np.array([[-18]], dtype))  # 0.5 * 1 - 2 * 5 = -9.5, times 2, + 1
    inputs[-1] = s8(1)
    equal(helpers.run_node("QLinearMatMul", inputs, opset=21)[0], s8([[-18]]))
    inputs[:3] = s8([[1, 2]]), F32(1), s8(1)
    equal(helpers.run_node("QLinearMatMul", inputs, opset=21)[0], s8([[-19]]))  # 1 * -5 * 4 + 1
    with pytest.raises(InvalidModelError, match="input a "):
        helpers.run_node("QLinearMatMul", [a, *inputs[1:]], opset=10)


# Convolutions


def test_conv_integer_pads_with_the_zero_point():
    x, w = u8([[[3, 4, 5]]]), u8([[[1, 2]], [[3, 0]]])
    (y,) = helpers.run_node("ConvInteger", [x, w, u8(2), None], opset=10, pads=[1, 1])
    equal(y, np.array([[[2, 5, 8, 3], [0, 3, 6, 9]]], np.int32))
    (y,) = helpers.run_node("ConvInteger", [x, w, None, u8([1, 0])], opset=10)
    equal(y, np.array([[[4, 5], [9, 12]]], np.int32))
    (y,) = helpers.run_node("ConvInteger", [x, w], opset=10, auto_pad="SAME_UPPER", strides=[2])
    equal(y, np.array([[[11, 5], [9, 15]]], np.int32))


def test_q_linear_conv_rounds_before_the_zero_point():
    x, w = u8([[[3, 4, 5]]]), s8([[[1]], [[-2]]])
    scales = F32(0.5), helpers.f32([1, 0.5]), F32(1)
    inputs = [x, scales[0], u8(2), w, scales[1], s8([0, 0]), scales[2], u8(1)]
    (y,) = helpers.run_node("QLinearConv", inputs, opset=10)
    equal(y, u8([[[1, 2, 3], [1, 0, 0]]]))  # 0.5 1 1.5 | -0.5 -1 -1.5
    (y,) = helpers.run_node("QLinearConv", [*inputs, np.array([4, 9], np.int32)], opset=10)
    equal(y, u8([[[3, 4, 5], [3, 2, 2]]]))  # 2.5 3 3.5 | 1.75 1.25 0.75
    (y,) = helpers.run_node("QLinearConv", [*inputs, np.array([2**24 + 1, 0], np.int32)], opset=10)
    equal(y, u8([[[255] * 3, [1, 0, 0]]]))


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
    equal(ops.conv_integer(x, w, zx, zw, **attributes), sums.astype(np.int32))
    bias = rng.integers(-(10**6), 10**6, 2 * group).astype(np.int32)
    spot = (-1, *[1] * rank)
    factor = F32(0.1) * (sw.reshape(spot) if channels else sw) / F32(0.7)
    scaled = (sums + bias.reshape(spot)).astype(np.int32).astype(F32) * factor
    limits = np.iinfo(kinds[2])
    expected = np.clip(np.rint(scaled) + zy.astype(F32), limits.min, limits.max)
    y = ops.q_linear_conv(x, F32(0.1), zx, w, sw, zw, F32(0.7), zy, bias, **attributes)
    equal(y, expected.astype(kinds[2]))


# Derivatives


def test_quantising_has_derivative_0():
    x, scale = helpers.f32([0.3, 2, 300]), F32(0.5)

    def through(x, scale):
        y = ops.dequantize_linear(ops.quantize_linear(x, scale, u8(3)), F32(2), u8(3))
        return (
            y.sum()
            + ops.quantize_linear(x, scale, output_dtype=type_number(ml_dtypes.float8_e5m2))
            .astype(F32)
            .sum()
        )

    for gradient in jax.grad(through, (0, 1))(x, scale):
        assert not np.asarray(gradient).any()
    tangent = jax.jvp(through, (x, scale), (np.ones_like(x), np.ones_like(scale)))[1]
    equal(tangent, F32(0))
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
    equal(gradient, helpers.f32([2, 5]))
    value = jnp.asarray([1, 2], ml_dtypes.float8_e4m3fn)
    by_x = jax.grad(lambda x: ops.dequantize_linear(x, F32(3)).sum())(value)
    equal(by_x, np.array([3, 3], ml_dtypes.float8_e4m3fn))


def test_derivative_of_a_range_found_at_run_time():
    def scale(x):
        return ops.dynamic_quantize_linear(x)[1]

    equal(jax.grad(scale)(helpers.f32([-1, 3, 2])), helpers.f32([-1 / 255, 1 / 255, 0]))
    equal(jax.grad(scale)(helpers.f32([3, 1, 3])), helpers.f32([0.5 / 255, 0, 0.5 / 255]))
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
    jax.tree.map(lambda one, many: equal(np.asarray(many)[1], np.asarray(one)), alone, mapped)


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
        equal(ops.matmul_integer(a, b), np.array([[255 * 253 * 200]], np.int32))


def test_padded_data():
    def follow(name, version, *args):
        operator = lookup(name, version)
        assert operator is not None
        return padding.apply(operator, args, {}, name)

    codes, count = u8([[1, 2], [3, 4], [9, 9]]), np.int64(2)
    x = Padded(jnp.asarray(codes), count, 0)
    (y,) = follow("DequantizeLinear", 13, x, F32(2), u8(1))
    equal(y.cut(), helpers.f32([[0, 2], [4, 6]]))
    weight = s8([[1], [2]])
    (y,) = follow("MatMulInteger", 10, x, weight, u8([1]), s8(1))
    equal(y.cut(), np.array([[1], [3]], np.int32))
    real = Padded(jnp.asarray(codes * 100.0, F32), count, 0)
    values, scale, zero = follow("DynamicQuantizeLinear", 11, real)
    for actual, wanted in zip(
        (values.cut(), scale, zero), ops.dynamic_quantize_linear(codes[:2] * F32(100)), strict=True
    ):
        equal(actual, wanted)
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


@pytest.mark.parametrize(
    ("match", "function", "inputs", "attributes"),
    [
        (
            r"y_zero_point has shape \(2,\), expected \(\)",
            "q",
            [helpers.f32([1, 2]), F32(1), u8([1, 2])],
            {},
        ),
        (
            r"y_scale has 2 elements, expected 3 for axis 1",
            "q",
            [helpers.f32(np.ones((2, 3))), helpers.f32([1, 2])],
            {},
        ),
        (
            r"axis is 1, expected one in \[-1, 0\]",
            "q",
            [helpers.f32([1, 2]), helpers.f32([1, 2])],
            {},
        ),
        (r"axis is -3", "q", [helpers.f32(np.ones((2, 3))), helpers.f32([1, 2])], {"axis": -3}),
        (
            r"y_scale has shape \(2, 3\), expected a vector",
            "q",
            [helpers.f32(np.ones((2, 3)))] * 2,
            {},
        ),
        ("block_size is -1", "q", [helpers.f32([1, 2]), helpers.f32([1])], {"block_size": -1}),
        (
            r"y_scale has shape \(3,\), expected \(2,\) for blocks of 2",
            "q",
            [helpers.f32([1, 2, 3]), helpers.f32([1, 2, 3])],
            {"axis": 0, "block_size": 2},
        ),
        (
            "expected one with an element per block of 2",
            "q",
            [helpers.f32(np.ones((2, 3))), helpers.f32([1, 2, 3])],
            {"block_size": 2},
        ),
        (
            "output_dtype is float32, expected one of int2",
            "q",
            [helpers.f32([1]), F32(1)],
            {"output_dtype": 1},
        ),
        (
            "output_dtype is int8, expected uint8, the type of",
            "q",
            [helpers.f32([1]), F32(1), u8(1)],
            {"output_dtype": 3},
        ),
        (
            "precision is int8, expected a floating",
            "q",
            [helpers.f32([1]), F32(1)],
            {"precision": 3},
        ),
        ("x_zero_point is int8, expected uint8", "d", [u8([1]), F32(1), s8(1)], {}),
        (
            r"x_zero_point has shape \(1, 2\), expected \(2,\)",
            "d",
            [u8([[1, 2]]), helpers.f32([1, 2]), u8([[1, 2]])],
            {},
        ),
        (
            "output_dtype is int8, expected float16, bfloat16 or float32",
            "d",
            [u8([1]), F32(1)],
            {"output_dtype": 3},
        ),
    ],
)
def test_linear_quantisation_refuses(match, function, inputs, attributes):
    run = {"q": ops.quantize_linear, "d": ops.dequantize_linear}[function]
    with pytest.raises(InvalidModelError, match=match):
        run(*inputs, **attributes)


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
    x, w, one, zero = u8(np.ones((1, 2, 3))), u8(np.ones((4, 2, 1))), F32(1), u8(0)
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

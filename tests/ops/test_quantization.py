"""Quantisation, and what computes with quantised numbers."""

import helpers
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest
from helpers import assert_same, f32, s8, u8
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import jaxonnx
from jaxonnx import ops
from jaxonnx.errors import InvalidModelError, UnsupportedOpError

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


# Quantising


@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23, 24, 25, 28])
def test_quantize_rounds_half_to_even_and_saturates(opset):
    x = helpers.f32([-1000, -0.75, -0.25, 0.25, 0.75, 1.25, 1.75, 70, 1000])
    inputs = [x, F32(0.5), u8(3)]
    (y,) = helpers.run_node("QuantizeLinear", inputs, opset=opset)
    assert_same(y, u8([0, 1, 3, 3, 5, 5, 7, 143, 255]))  # quotients -1.5 -0.5 0.5 1.5 2.5 3.5 140
    (y,) = helpers.run_node("QuantizeLinear", [*inputs[:2], s8(-3)], opset=opset)
    assert_same(y, s8([-128, -5, -3, -3, -1, -1, 1, 127, 127]))


@pytest.mark.parametrize("opset", [10, 28])
def test_quantize_without_a_zero_point_gives_uint8(opset):
    (y,) = helpers.run_node("QuantizeLinear", [helpers.f32([-1, 2.5]), F32(1)], opset=opset)
    assert_same(y, u8([0, 2]))
    node = helper.make_node("QuantizeLinear", ["x", "s", ""], ["y"])
    infos = [helper.make_tensor_value_info(n, 1, None) for n in "xs"]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    assert_same(jaxonnx.load(model)(helpers.f32([-1, 2.5]), F32(1)), u8([0, 2]))


@pytest.mark.parametrize("opset", [10, 13])
def test_quantize_integers(opset):
    x = np.array([-5, 3, 5, 2**31 - 1], np.int32)
    (y,) = helpers.run_node("QuantizeLinear", [x, F32(2), s8(1)], opset=opset)
    assert_same(y, s8([-1, 3, 3, 127]))  # -2.5 and 2.5 are ties, 1.5 is one


def test_an_integer_scale_divides_exactly():
    x, scale = np.array([2**30 + 1, -(2**30) - 1], np.int32), np.array(2**23, np.int32)
    (y,) = helpers.run_node("QuantizeLinear", [x, scale, s8(0)], opset=19)
    assert_same(y, s8([127, -128]))  # 128 and a little more
    tie = np.array([3 * 2**24 + 1, 3 * 2**24 - 1], np.int32)  # 1.5 and a little more or less
    for value in (tie, jnp.asarray(tie)):
        assert_same(ops.quantize_linear(value, np.array(2**25, np.int32), s8(0)), s8([2, 1]))
    floats = helpers.f32([5, 7])
    assert_same(
        ops.quantize_linear(jnp.asarray(floats), np.array(2, np.int32), s8(0)),
        s8([2, 4]),
    )


@pytest.mark.parametrize("dtype", CODES)
def test_quantize_saturates_to_every_integer_type(dtype):
    limits = ml_dtypes.iinfo(dtype)
    x = helpers.f32([-1e30, -np.inf, 1, np.nan, 1e30, np.inf])
    low, high = int(limits.min), int(limits.max)
    expected = np.array([low, low, 1, 0, high, high], np.int32).astype(dtype)
    attributes = {"output_dtype": type_number(dtype)}
    for value in (x, jnp.asarray(x)):
        assert_same(ops.quantize_linear(value, F32(1), **attributes), expected)
    model = helpers.run_node("QuantizeLinear", [x, F32(1)], opset=25, **attributes)
    assert_same(model[0], expected)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_quantize_to_float8(dtype):
    x = helpers.f32([0.3, -2.2, 1e6, -np.inf])
    most = float(ml_dtypes.finfo(dtype).max)
    shifted = helpers.f32([1.6, -3.4, most, -most]).astype(dtype)  # x / 0.5 + 1
    for opset in (19, 28):
        inputs = [x, F32(0.5), np.array(1, dtype)]
        assert_same(helpers.run_node("QuantizeLinear", inputs, opset=opset)[0], shifted)
    (y,) = helpers.run_node("QuantizeLinear", [*inputs[:2], inputs[2]], opset=19, saturate=0)
    beyond = [np.inf, -np.inf] if dtype == ml_dtypes.float8_e5m2 else [np.nan, np.nan]
    assert_same(y, helpers.f32([1.6, -3.4, *beyond]).astype(dtype))


def test_quantize_to_float4():
    x = helpers.f32([0.2, 0.25, 1.25, -5.1, 100])
    expected = helpers.f32([0, 0, 1, -6, 6]).astype(ml_dtypes.float4_e2m1fn)  # ties to even
    inputs = [x, F32(1), np.array(0, ml_dtypes.float4_e2m1fn)]
    assert_same(helpers.run_node("QuantizeLinear", inputs, opset=23)[0], expected)
    with pytest.raises(InvalidModelError, match="y_zero_point"):
        helpers.run_node("QuantizeLinear", inputs, opset=21)


@pytest.mark.parametrize("dtype", [ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn])
def test_float6_is_computed_where_values_are_known(dtype):
    x, most = helpers.f32([0.5, 1.5, 1e3]), float(ml_dtypes.finfo(dtype).max)
    coded = ops.quantize_linear(x, F32(0.5), np.array(0, dtype))
    assert_same(coded, helpers.f32([1, 3, most]).astype(dtype))
    assert_same(ops.dequantize_linear(coded, F32(2)), helpers.f32([2, 6, 2 * most]))
    with pytest.raises(UnsupportedOpError, match="XLA does not compute with float6"):
        ops.quantize_linear(jnp.asarray(x), F32(1), output_dtype=type_number(dtype))


def test_version_10_is_per_tensor_and_13_per_axis():
    x, scale = helpers.f32([[2, 4], [6, 8]]), helpers.f32([1, 2])
    inputs = [x, scale, u8([0, 1])]
    (y,) = helpers.run_node("QuantizeLinear", inputs, opset=13)
    assert_same(y, u8([[2, 3], [6, 5]]))
    (y,) = helpers.run_node("QuantizeLinear", inputs, opset=13, axis=-2)
    assert_same(y, u8([[2, 4], [4, 5]]))
    (x,) = helpers.run_node("DequantizeLinear", [u8([[2, 3], [6, 5]]), *inputs[1:]], opset=13)
    assert_same(x, helpers.f32([[2, 4], [6, 8]]))
    for name in ("QuantizeLinear", "DequantizeLinear"):
        with pytest.raises(InvalidModelError, match=r"shape \(2,\), expected a scalar"):
            helpers.run_node(name, [x if name[0] == "Q" else u8([[1, 2]]), *inputs[1:]], opset=10)


def test_half_precision_from_19():
    x = np.array([1, 2.5, 300], F16)
    (y,) = helpers.run_node("QuantizeLinear", [x, F16(1), u8(0)], opset=19)
    assert_same(y, u8([1, 2, 255]))
    with pytest.raises(InvalidModelError, match=r"x .* is float16, expected one of"):
        helpers.run_node("QuantizeLinear", [x, F32(1), u8(0)], opset=13)
    (x,) = helpers.run_node("DequantizeLinear", [u8([1, 3]), F16(0.25), u8(0)], opset=19)
    assert_same(x, np.array([0.25, 0.75], F16))
    with pytest.raises(InvalidModelError, match=r"x_scale .* is float16"):
        helpers.run_node("DequantizeLinear", [u8([1, 3]), F16(0.1), u8(0)], opset=13)


def test_blocks_and_output_dtype_from_21():
    x = helpers.f32([[1, 2, 3, 4, 5]])
    scale, zero = helpers.f32([[1, 2, 4]]), u8([[0, 1, 2]])
    (y,) = helpers.run_node("QuantizeLinear", [x, scale, zero], opset=21, block_size=2)
    assert_same(y, u8([[1, 2, 3, 3, 3]]))  # 1 2 | 1.5 2, + 1 | 1.25, + 2
    (x,) = helpers.run_node("DequantizeLinear", [y, scale, zero], opset=21, block_size=2)
    assert_same(x, helpers.f32([[1, 2, 4, 4, 4]]))
    kind = type_number(ml_dtypes.int4)
    (y,) = helpers.run_node("QuantizeLinear", [x, F32(0.25)], opset=21, output_dtype=kind)
    assert_same(y, np.array([[4, 7, 7, 7, 7]], np.int32).astype(ml_dtypes.int4))
    for attributes in ({"block_size": 2}, {"output_dtype": kind}):
        with pytest.raises(InvalidModelError, match=next(iter(attributes))):
            helpers.run_node("QuantizeLinear", [x, F32(1)], opset=19, **attributes)


def test_types_of_data_and_scale_may_differ_from_23():
    x, scale = helpers.f32([2049 / 64, 10]), F16(1 / 64)
    (y,) = helpers.run_node("QuantizeLinear", [x, scale, np.uint16(0)], opset=23)
    assert_same(y, np.array([2048, 640], np.uint16))  # 2049 is no float16
    single = {"precision": onnx.TensorProto.FLOAT}
    (y,) = helpers.run_node("QuantizeLinear", [x, scale, np.uint16(0)], opset=23, **single)
    assert_same(y, np.array([2049, 640], np.uint16))
    with pytest.raises(InvalidModelError, match=r"y_scale .* is float16, but another input"):
        helpers.run_node("QuantizeLinear", [x, scale, np.uint16(0)], opset=21)
    with pytest.raises(InvalidModelError, match="precision"):
        helpers.run_node("QuantizeLinear", [x, F32(1), np.uint16(0)], opset=21, **single)
    half = {"output_dtype": onnx.TensorProto.FLOAT16}
    (x,) = helpers.run_node("DequantizeLinear", [u8([3]), F32(0.1)], opset=23, **half)
    assert_same(x, np.array([0.3], F16))
    with pytest.raises(InvalidModelError, match="output_dtype"):
        helpers.run_node("DequantizeLinear", [u8([3]), F32(0.1)], opset=21, **half)


def test_a_scale_of_powers_of_two_from_24():
    scale = np.array([0.5, 4], ml_dtypes.float8_e8m0fnu)
    x = helpers.f32([[1, 6, 10]]).T
    expected = u8([[2, 12, 20], [0, 2, 2]])  # 0.25, 1.5 and 2.5
    (y,) = helpers.run_node("QuantizeLinear", [np.hstack([x, x]), scale], opset=24)
    assert_same(y, expected.T)
    half, whole = x.astype(F16), x.astype(np.int32)
    for value in (half, whole, jnp.asarray(half), jnp.asarray(whole)):
        assert_same(ops.quantize_linear(value[:, 0], scale[1]), expected[1])
    inputs, kind = [u8([[1, 3]]), scale], {"output_dtype": onnx.TensorProto.FLOAT}
    (x,) = helpers.run_node("DequantizeLinear", inputs, opset=24, **kind)
    assert_same(x, helpers.f32([[0.5, 12]]))
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
    assert_same(y, helpers.f32([2.5, -2.5]))
    before = {21: 19, 23: 21, 25: 24}[first]
    with pytest.raises(InvalidModelError, match=r"input x .* expected one of"):
        helpers.run_node("DequantizeLinear", [x, F32(2.5)], opset=before)


@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23, 24, 25, 28])
def test_dequantize(opset):
    inputs = [u8([0, 3, 128, 255]), F32(2), u8(128)]
    (y,) = helpers.run_node("DequantizeLinear", inputs, opset=opset)
    assert_same(y, helpers.f32([-256, -250, 0, 254]))
    (y,) = helpers.run_node(
        "DequantizeLinear", [np.array([-7, 2**24], np.int32), F32(0.5)], opset=opset
    )
    assert_same(y, helpers.f32([-3.5, 2**23]))


@pytest.mark.parametrize("dtype", FLOAT8)
def test_dequantize_float8(dtype):
    x = helpers.f32([0.5, -2, 3]).astype(dtype)
    for zero, expected in ((None, [1, -4, 6]), (np.array(1, dtype), [-1, -6, 4])):
        assert_same(ops.dequantize_linear(x, F32(2), zero), helpers.f32(expected))
    (y,) = helpers.run_node("DequantizeLinear", [x, BF16(2)], opset=19)
    assert_same(y, np.array([1, -4, 6], BF16))


def test_dequantized_halves_are_rounded_once():
    x, zero = np.array([65535], np.uint16), np.array(0, np.uint16)  # no float16 holds the code
    assert_same(ops.dequantize_linear(x, F16(0.5), zero), np.array([32768], F16))
    assert_same(ops.dequantize_linear(jnp.asarray(x), F16(0.5), zero), np.array([32768], F16))


def test_half_quotients_below_the_normal_range():
    scale = F16(3e-6)  # below the least normal number, 6.1e-5
    x = np.array([3e-6, 9e-6, 6e-5, 1e-4], F32)
    expected = u8(np.rint(x.astype(F16) / scale))
    assert expected.tolist() == [1, 3, 20, 34]
    for value in (x, jnp.asarray(x)):
        assert_same(jax.jit(ops.quantize_linear)(value, scale, u8(0)), expected)
        assert_same(ops.quantize_linear(value, scale, u8(0)), expected)
    tiny, kind = jnp.asarray([2.0**-15], F16), ml_dtypes.float8_e5m2
    code = ops.quantize_linear(tiny, F16(2), np.array(0, kind))
    assert_same(code, np.array([2.0**-16], kind))


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
        assert_same(y, expected_codes(case))
        shift = 0 if zero is None else laid(zero.astype(np.int64), shape, **attributes)
        wide = (codes.astype(np.int64) - shift).astype(F32)
        real = wide * laid(scale, shape, **attributes).astype(F32)
        assert_same(ops.dequantize_linear(codes, scale, zero, **attributes), real.astype(scales))


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
        assert_same(coded, expected_codes(case))
        assert_same(real, ops.dequantize_linear(codes, scale, zero, **attributes))


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
            assert_same(actual, wanted)


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


@pytest.mark.parametrize("scale", [F32(0.5), np.full(300, 0.5, F32)])
def test_large_integer_weights_stay_packed(scale):
    codes = np.arange(90_000, dtype=np.int32).reshape(300, 300).astype(np.int8)
    model = helpers.node_model("DequantizeLinear", [codes, scale], opset=21)
    for name, value in (("x0", codes), ("x1", scale)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    del model.graph.input[:]
    loaded = jaxonnx.load(model)
    assert all(np.size(v) <= 300 for v in loaded.stored.values())
    assert_same(loaded(), codes.astype(F32) / 2)


def test_a_tie_is_rounded_by_the_quotient_and_not_by_a_product_with_the_reciprocal():
    scale = f32([5 / 255, 5 / 255])
    x = f32([[-2.5, 0], [-2.5, 0]])  # 127.49999 scales, but 127.5 times the rounded reciprocal
    quantized = jax.jit(lambda x, s: ops.quantize_linear(x, s, s8([0, 0]), axis=0))(x, scale)
    assert_same(quantized, s8([[-127, 0], [-127, 0]]))
    stacked = f32([[0, 2, -3, -2.5, 1.34, 0.5]] * 2)
    rows, _, _ = jax.jit(jax.vmap(ops.dynamic_quantize_linear))(stacked)
    assert_same(rows, u8([[153, 255, 0, 26, 221, 179]] * 2))

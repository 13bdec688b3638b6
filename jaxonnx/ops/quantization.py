"""Quantisation, and what computes with quantised numbers.

Quantising has derivative 0; what is dequantised has the derivative of the formula by the scale.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.dtypes import dtype_of
from jaxonnx.define.known import x64_enabled, xp
from jaxonnx.define.older import older
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops import _padding, elementwise
from jaxonnx.ops._quantized import (
    along_columns,
    along_rows,
    centred,
    check_zero_point,
    dequantized,
    divided,
    exactly,
    greatest,
    integer_matmul,
    is_single,
    quantized_dtype,
    quotient,
    requantized,
    round_saturate,
    scalar,
    spread,
)
from jaxonnx.ops.convolution import conv
from jaxonnx.ops.matmul import matmul
from jaxonnx.ops.reduction import reduce_max, reduce_min

__all__ = [
    "conv_integer",
    "dequantize_linear",
    "dynamic_quantize_linear",
    "matmul_integer",
    "q_linear_conv",
    "q_linear_matmul",
    "quantize_linear",
]


@register("QuantizeLinear", 23, 24, 25, 28, padding=_padding.quantize)
def quantize_linear(
    x: ArrayLike,
    y_scale: ArrayLike,
    y_zero_point: ArrayLike | None = None,
    /,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Array:
    """``x / y_scale``, rounded half to even, ``+ y_zero_point``, saturated. Derivative: 0.

    The scale is a scalar, a vector along ``axis``, or an array with an element for each block of
    ``block_size`` along it, the last of which may be shorter. The result is of the type of the
    zero point or ``output_dtype``, by default uint8. What becomes a float is not rounded before;
    ``saturate`` is as of Cast. The quotient has the type ``precision``, by default that of the
    scale; it is double where that is int32, and that of ``x`` where it is float8e8m0, but float32
    for integers.

    Raises:
        InvalidModelError: if shapes or types do not fit.
    """
    data, scale, zero_point = _arrays(x, y_scale, y_zero_point)
    dtype = quantized_dtype(output_dtype, zero_point)
    kind = _precision(precision, data.dtype, scale.dtype)
    lie = partial(spread, shape=data.shape, axis=axis, block_size=block_size)
    if zero_point is not None:
        check_zero_point(zero_point, scale, "y_zero_point")
        zero_point = lie(zero_point.astype(_wider(dtype)), name="y_zero_point")
    if scale.dtype.name == "float8_e8m0fnu":
        scale = scale.astype(np.float32)
    scale = lie(scale, name="y_scale")
    with jax.enable_x64(x64_enabled() or kind == np.float64):
        return round_saturate(quotient(data, scale, kind), zero_point, dtype, saturate=saturate)


def _arrays(*values: Any) -> list[Any]:
    """Arrays of one kind, known if all values are; None stays."""
    asarray = xp(*values).asarray
    return [None if v is None else asarray(v) for v in values]


def _wider(dtype: np.dtype) -> np.dtype:
    """A type that holds all numbers of a quantised one and has every array function."""
    return np.dtype(np.int32 if jnp.issubdtype(dtype, np.integer) else np.float32)


def _precision(given: int, x: np.dtype, scale: np.dtype) -> np.dtype:
    """The type to divide in."""
    named = dtype_of(given)
    if named is not None:
        if named.name not in ("float16", "bfloat16", "float32", "float64"):
            raise InvalidModelError(f"precision is {named.name}, expected a floating type")
        return named
    if scale.name == "float8_e8m0fnu":
        return np.dtype(np.float32) if x == np.int32 else x
    return np.dtype(np.float64) if scale == np.int32 else scale


@register("DequantizeLinear", 23, 24, 25, 28, padding=_padding.quantize)
def dequantize_linear(
    x: ArrayLike,
    x_scale: ArrayLike,
    x_zero_point: ArrayLike | None = None,
    /,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Array:
    """``(x - x_zero_point) * x_scale``, in float32 and then rounded to the type of the result.

    That is ``output_dtype`` or the type of the scale, which is laid out as in QuantizeLinear.

    Raises:
        InvalidModelError: if shapes or types do not fit.
    """
    data, scale, zero_point = _arrays(x, x_scale, x_zero_point)
    dtype = dtype_of(output_dtype) or np.dtype(scale.dtype)
    if dtype.name not in ("float16", "bfloat16", "float32"):
        allowed = "float16, bfloat16 or float32"
        raise InvalidModelError(f"output_dtype is {dtype.name}, expected {allowed}")
    lie = partial(spread, shape=data.shape, axis=axis, block_size=block_size)
    if zero_point is not None:
        check_zero_point(zero_point, scale, "x_zero_point", np.dtype(data.dtype))
        zero_point = lie(zero_point.astype(_wider(data.dtype)), name="x_zero_point")
    wide = lie(scale.astype(np.float32), name="x_scale")
    return dequantized(data, wide, zero_point).astype(dtype)


def _per_tensor(*inputs: Any) -> tuple[Any, ...]:
    """Inputs of version 10, which has no axis for a scale to lie along."""
    if not is_single(inputs[1]):
        raise InvalidModelError(f"the scale has shape {np.shape(inputs[1])}, expected a scalar")
    return inputs


quantize_linear_21 = older(quantize_linear, 21)
quantize_linear_19 = older(quantize_linear, 19)
quantize_linear_13 = older(quantize_linear, 13)
quantize_linear_10 = older(quantize_linear, 10, inputs=_per_tensor)
dequantize_linear_21 = older(dequantize_linear, 21)
dequantize_linear_13 = older(dequantize_linear, 13, 19)
dequantize_linear_10 = older(dequantize_linear, 10, inputs=_per_tensor)


@register("DynamicQuantizeLinear", 11, padding=_padding.quantize)
def dynamic_quantize_linear(x: ArrayLike, /) -> tuple[Array, Array, Array]:
    """``x`` quantised to uint8, the scale, and the zero point, for the range of ``x`` and 0.

    Of zeros alone, or of nothing, all three are 0. Derivative of the first and the last: 0; of the
    scale at ties of the extrema: equal shares.
    """
    zero, most = np.zeros((), np.float32), 255
    low = elementwise.min(reduce_min(x, keepdims=0), zero)
    high = elementwise.max(reduce_max(x, keepdims=0), zero)
    scale = (high - low) / most
    np_ = xp(x)
    if np_ is jnp:  # XLA makes x / (range / 255) a product, which rounds in another way
        scale = lax.optimization_barrier(scale)
    divisor = np_.where(scale == 0, np.ones((), np.float32), scale)
    uint8 = np.dtype(np.uint8)
    zero_point = round_saturate(np_.clip(-low / divisor, 0, most), None, uint8)
    return round_saturate(divided(np_.asarray(x), divisor), zero_point, uint8), scale, zero_point


@register("MatMulInteger", 10, padding=_padding.matmul_integer)
def matmul_integer(
    a: ArrayLike,
    b: ArrayLike,
    a_zero_point: ArrayLike | None = None,
    b_zero_point: ArrayLike | None = None,
    /,
) -> Array:
    """``(a - a_zero_point) @ (b - b_zero_point)``, exact in int32.

    Zero points are scalars, or have one element for each row of ``a`` and each column of ``b``.

    Raises:
        InvalidModelError: if shapes do not fit.
    """
    return _factors_product(*map(_traced, (a, b, a_zero_point, b_zero_point)))


def _traced(value: Any) -> Any:
    return None if value is None else jnp.asarray(value)


def _factors_product(a: Array, b: Array, a_zero_point: Any, b_zero_point: Any) -> Array:
    magnitude = greatest(a.dtype, a_zero_point) * greatest(b.dtype, b_zero_point)
    if a_zero_point is not None:
        a_zero_point = along_rows(a_zero_point, a, "a_zero_point")
    if b_zero_point is not None:
        b_zero_point = along_columns(b_zero_point, b, "b_zero_point")
    return integer_matmul(centred(a, a_zero_point), centred(b, b_zero_point), magnitude=magnitude)


@register("QLinearMatMul", 10, 21)
def q_linear_matmul(
    a: ArrayLike,
    a_scale: ArrayLike,
    a_zero_point: ArrayLike,
    b: ArrayLike,
    b_scale: ArrayLike,
    b_zero_point: ArrayLike,
    y_scale: ArrayLike,
    y_zero_point: ArrayLike,
    /,
) -> Array:
    """The product of what ``a`` and ``b`` stand for, quantised. Derivative: 0.

    Integers are multiplied exactly in int32, float8 in float32. The sums are multiplied by
    ``a_scale * b_scale / y_scale`` in float32 and quantised as in QuantizeLinear. Scales and zero
    points of ``a`` and ``b`` lie as in MatMulInteger, those of ``y`` are scalars.

    Raises:
        InvalidModelError: if shapes do not fit.
    """
    left, right, left_zero, right_zero = map(_traced, (a, b, a_zero_point, b_zero_point))
    rows = along_rows(_single_precision(a_scale), left, "a_scale")
    columns = along_columns(_single_precision(b_scale), right, "b_scale")
    check_zero_point(left_zero, a_scale, "a_zero_point")
    check_zero_point(right_zero, b_scale, "b_zero_point")
    if jnp.issubdtype(left.dtype, np.integer) and jnp.issubdtype(right.dtype, np.integer):
        sums = _factors_product(left, right, left_zero, right_zero)
    else:
        one = np.ones((), np.float32)
        left_zero = along_rows(left_zero, left, "a_zero_point")
        right_zero = along_columns(right_zero, right, "b_zero_point")
        sums = matmul(dequantized(left, one, left_zero), dequantized(right, one, right_zero))
    factor = rows * columns / scalar(_single_precision(y_scale), "y_scale")
    return requantized(sums, factor, scalar(_traced(y_zero_point), "y_zero_point"))


def _single_precision(scale: Any) -> Array:
    return jnp.asarray(scale).astype(np.float32)


@register("ConvInteger", 10)
def conv_integer(
    x: ArrayLike,
    w: ArrayLike,
    x_zero_point: ArrayLike | None = None,
    w_zero_point: ArrayLike | None = None,
    /,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Convolution of ``x - x_zero_point`` with ``w - w_zero_point``, exact in int32.

    The pads hold ``x_zero_point``, which is a scalar. ``w_zero_point`` is one, or has an element
    for each output channel.

    Raises:
        InvalidModelError: if shapes do not fit.
    """
    data, weight, data_zero, weight_zero = map(_traced, (x, w, x_zero_point, w_zero_point))
    magnitude = greatest(data.dtype, data_zero) * greatest(weight.dtype, weight_zero)
    if data_zero is not None:
        data_zero = scalar(data_zero, "x_zero_point")
    if weight_zero is not None:
        weight_zero = spread(weight_zero, weight.shape, "w_zero_point", axis=0)
    convolve = partial(
        conv,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    operands = centred(data, data_zero), centred(weight, weight_zero)
    return exactly(convolve, *operands, terms=math.prod(weight.shape[1:]), magnitude=magnitude)


@register("QLinearConv", 10)
def q_linear_conv(
    x: ArrayLike,
    x_scale: ArrayLike,
    x_zero_point: ArrayLike,
    w: ArrayLike,
    w_scale: ArrayLike,
    w_zero_point: ArrayLike,
    y_scale: ArrayLike,
    y_zero_point: ArrayLike,
    b: ArrayLike | None = None,
    /,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """The convolution of what ``x`` and ``w`` stand for, quantised. Derivative: 0.

    The sums, to which the int32 ``b`` is added, are exact in int32. They are multiplied by
    ``x_scale * w_scale / y_scale`` in float32 and quantised as in QuantizeLinear. ``w_scale`` and
    ``w_zero_point`` are scalars or have an element for each output channel, the others are
    scalars.

    Raises:
        InvalidModelError: if shapes do not fit.
    """
    check_zero_point(w_zero_point, w_scale, "w_zero_point")
    sums = conv_integer(
        x,
        w,
        x_zero_point,
        w_zero_point,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    if b is not None:
        sums = sums + spread(jnp.asarray(b), sums.shape, "B", axis=1)
    channels = spread(_single_precision(w_scale), sums.shape, "w_scale", axis=1)
    factor = scalar(_single_precision(x_scale), "x_scale") * channels
    factor = factor / scalar(_single_precision(y_scale), "y_scale")
    return requantized(sums, factor, scalar(_traced(y_zero_point), "y_zero_point"))

"""What quantised operators share: where scales lie, rounding, and exact integer products."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import Array, lax

from jaxonnx.define.dtypes import dtype_of
from jaxonnx.define.known import broadcasts_to, same_dim, shape_is_symbolic, xp
from jaxonnx.errors import InvalidModelError, UnsupportedOpError
from jaxonnx.ops._axes import from_front
from jaxonnx.ops.casting import NOT_IN_XLA, cast
from jaxonnx.ops.matmul import matmul

_SINGLE = np.dtype(np.float32)
_INTEGERS = ("int2", "uint2", "int4", "uint4", "int8", "uint8", "int16", "uint16")
_FLOATS = (
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    *("float4_e2m1fn", *NOT_IN_XLA),
)


def is_single(value: Any) -> bool:
    """Whether an array has one element and at most one axis: it then stands for a scalar."""
    shape = np.shape(value)
    return len(shape) == 0 or (len(shape) == 1 and same_dim(shape[0], 1))


def scalar(value: Any, name: str) -> Any:
    """The only element of a scale or zero point, as a scalar.

    Raises:
        InvalidModelError: if there are others.
    """
    if not is_single(value):
        raise InvalidModelError(f"{name} has shape {np.shape(value)}, expected a scalar")
    return xp(value).reshape(value, ())


def check_zero_point(zero_point: Any, scale: Any, name: str, dtype: Any = None) -> None:
    """Hold a zero point to the shape of its scale and, if there is one, to a dtype.

    Raises:
        InvalidModelError: if it has another.
    """
    shape, wanted = np.shape(zero_point), np.shape(scale)
    same = len(shape) == len(wanted) and all(map(same_dim, shape, wanted))
    if not same and not (is_single(zero_point) and is_single(scale)):
        raise InvalidModelError(f"{name} has shape {shape}, expected {wanted}, that of the scale")
    if dtype is not None and zero_point.dtype != dtype:
        raise InvalidModelError(f"{name} is {zero_point.dtype.name}, expected {dtype.name}")


def spread(value: Any, shape: Sequence[Any], name: str, *, axis: int, block_size: int = 0) -> Any:
    """A scale or zero point in a form that broadcasts against an array of ``shape``.

    It is a scalar, one element for each position along ``axis``, or, where ``block_size`` is set,
    one for each block of so many positions along it, the last of which may be shorter.

    Raises:
        InvalidModelError: if it has another shape, or there is no such axis.
    """
    rank, own = len(shape), np.shape(value)
    if block_size < 0:
        raise InvalidModelError(f"block_size is {block_size}, expected a positive number or 0")
    if block_size and len(own) == rank > 0:
        return _repeat_blocks(value, shape, name, from_front(axis, rank), block_size)
    if is_single(value):
        return xp(value).reshape(value, ())
    if block_size or len(own) != 1:
        expected = f"one with an element per block of {block_size}" if block_size else "a vector"
        raise InvalidModelError(f"{name} has shape {own}, expected {expected} for data of {shape}")
    axis = from_front(axis, rank)
    if not same_dim(own[0], shape[axis]):
        raise InvalidModelError(
            f"{name} has {own[0]} elements, expected {shape[axis]} for axis {axis} of {shape}"
        )
    return value.reshape(-1, *[1] * (rank - axis - 1))


def _repeat_blocks(value: Any, shape: Sequence[Any], name: str, axis: int, block_size: int) -> Any:
    blocks = tuple(-(-d // block_size) if k == axis else d for k, d in enumerate(shape))
    if not all(map(same_dim, np.shape(value), blocks)):
        raise InvalidModelError(
            f"{name} has shape {np.shape(value)}, expected {blocks} for blocks of {block_size} "
            f"along axis {axis} of {tuple(shape)}"
        )
    repeated = xp(value).repeat(value, block_size, axis=axis)
    return repeated[(np.s_[:],) * axis + (np.s_[: shape[axis]],)]


def quantized_dtype(output_dtype: int, zero_point: Any) -> np.dtype:
    """The dtype to quantise to: as the attribute or the zero point says, by default uint8.

    Raises:
        InvalidModelError: if the two differ, or nothing is quantised to it.
    """
    named = dtype_of(output_dtype)
    held = None if zero_point is None else np.dtype(zero_point.dtype)
    if named is not None and held is not None and named != held:
        raise InvalidModelError(
            f"output_dtype is {named.name}, expected {held.name}, the type of y_zero_point"
        )
    dtype = named or held or np.dtype(np.uint8)
    if dtype.name not in _INTEGERS + _FLOATS:
        raise InvalidModelError(
            f"output_dtype is {dtype.name}, expected one of {', '.join(_INTEGERS + _FLOATS)}"
        )
    return dtype


def dequantized(x: Any, scale: Any, zero_point: Any = None) -> Any:
    """``(x - zero_point) * scale`` in float32, all of which broadcast; differences are exact."""
    if jnp.issubdtype(x.dtype, np.integer):
        return centred(x, zero_point).astype(_SINGLE) * scale.astype(_SINGLE)
    wide = x.astype(_SINGLE)
    if zero_point is not None:
        wide = wide - zero_point.astype(_SINGLE)
    return wide * scale.astype(_SINGLE)


def centred(x: Any, zero_point: Any = None) -> Any:
    """``x - zero_point`` of integers as int32."""
    wide = x.astype(np.int32)
    return wide if zero_point is None else wide - zero_point.astype(np.int32)


def quotient(x: Any, scale: Any, precision: np.dtype) -> Any:
    """``x / scale`` rounded to ``precision``; half types are held in float32."""
    if precision == np.float64:
        return divided(x.astype(precision), scale.astype(precision))
    x, scale = (_rounded(v.astype(_SINGLE), precision) for v in (x, scale))
    return _rounded(divided(x, scale), precision)


def divided(x: Any, divisor: Any) -> Any:
    """``x / divisor``, rounded once: XLA multiplies by the reciprocal of a divisor that repeats."""
    if xp(x, divisor) is jnp and np.ndim(x):
        divisor = lax.optimization_barrier(jnp.broadcast_to(divisor, np.shape(x)))
    return x / divisor


def _rounded(x: Any, dtype: np.dtype) -> Any:
    """Float32 values that are those of a narrower type; XLA removes conversions there and back."""
    if dtype == _SINGLE:
        return x
    if xp(x) is np:
        return x.astype(dtype).astype(_SINGLE)
    kind = jnp.finfo(dtype)
    rounded = lax.reduce_precision(x, exponent_bits=kind.nexp, mantissa_bits=kind.nmant)
    if dtype != np.float16:
        return rounded
    subnormal = jnp.rint(x * 2.0**24) * 2.0**-24  # lost above, and scales can be so small
    return jnp.where(jnp.abs(x) < 2.0**-14, subnormal, rounded)


def round_saturate(values: Any, zero_point: Any, dtype: np.dtype, *, saturate: int = 1) -> Any:
    """Quotients by a scale as ``dtype``: every quantisation ends here. Derivative: 0.

    To integers, they are rounded half to even, moved by the zero point and clipped to the range;
    NaN becomes 0. To floats, ``saturate`` decides what is beyond the range.

    Raises:
        UnsupportedOpError: if traced values are to become a type that XLA does not have.
    """
    np_ = xp(values, zero_point)
    if np_ is jnp and dtype.name in NOT_IN_XLA:
        raise UnsupportedOpError(f"XLA does not compute with {dtype.name}")
    shift = 0 if zero_point is None else zero_point.astype(values.dtype)
    if dtype.name in _INTEGERS:
        limits = ml_dtypes.iinfo(dtype)
        moved = np_.where(np_.isnan(values), 0, np_.rint(values) + shift)
        codes: Any = np_.clip(moved, int(limits.min), int(limits.max)).astype(np.int32)
        return cast(codes, to=dtype)
    coded = cast(values + shift, to=dtype, saturate=saturate)
    return coded if np_ is np else lax.stop_gradient(coded)


def requantized(sums: Any, factor: Any, zero_point: Any) -> Array:
    """Integer or float32 sums of products times ``factor``, in the dtype of the zero point."""
    return round_saturate(sums.astype(_SINGLE) * factor, zero_point, zero_point.dtype)


def greatest(dtype: Any, zero_point: Any) -> int:
    """The greatest magnitude of integers of ``dtype``, less those of a zero point if there is one.

    With an unsigned type it is the same with and without.
    """
    limits = ml_dtypes.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    return max(-low, high) if zero_point is None else high - low


def exactly(
    product: Callable[..., Array], a: Array, b: Array, *, terms: Any, magnitude: int
) -> Array:
    """``product(a, b)`` of int32 arrays, each element the sum of ``terms`` numbers.

    XLA multiplies matrices of integers several times slower than of floats on CPU, and cuDNN has
    no such convolution, so a floating type is used wherever it holds every sum.

    Args:
        product: a sum of products of the elements of two arrays.
        a: its first operand.
        b: its second operand.
        terms: how many products are summed.
        magnitude: none of the products is further from 0.
    """
    most = None if shape_is_symbolic([terms]) else terms * magnitude
    if most is None or most > np.iinfo(np.int32).max:
        return product(a, b)
    kind = np.float32 if most <= 2**24 else np.float64

    def by_floats(a: Array, b: Array) -> Array:
        with jax.enable_x64(True), jax.default_matmul_precision("highest"):
            return product(a.astype(kind), b.astype(kind)).astype(np.int32)

    return lax.platform_dependent(a, b, tpu=product, default=by_floats)


_PIECES = 16
"""The most pieces that a matrix product is cut into, so that the program stays small."""


def integer_matmul(a: Array, b: Array, *, magnitude: int) -> Array:
    """Matrix product of int32 arrays, none of whose products is further from 0 than ``magnitude``.

    Raises:
        InvalidModelError: if the sizes do not fit.
    """
    behind = max(b.ndim - 2, 0)
    if not a.ndim or not b.ndim or not same_dim(a.shape[-1], b.shape[behind]):
        raise InvalidModelError(f"A and B have shapes {a.shape} and {b.shape}, expected A @ B")
    terms = a.shape[-1]
    if shape_is_symbolic([terms]):
        return matmul(a, b)
    step = max(2**24 // magnitude, -(-terms // _PIECES))
    sums = [
        exactly(
            matmul,
            lax.slice_in_dim(a, start, min(start + step, terms), axis=-1),
            lax.slice_in_dim(b, start, min(start + step, terms), axis=behind),
            terms=min(step, terms - start),
            magnitude=magnitude,
        )
        for start in range(0, max(terms, 1), step)
    ]
    return sum(sums[1:], sums[0])


def along_rows(value: Any, a: Any, name: str) -> Any:
    """A scale or zero point of the left factor ``a``: a scalar, or one element for each row.

    Raises:
        InvalidModelError: if it has another shape.
    """
    column = value.reshape(-1, 1) if value.ndim == 1 else value
    return _along(value, column, (*a.shape[:-1], 1), name)


def along_columns(value: Any, b: Any, name: str) -> Any:
    """A scale or zero point of the right factor ``b``: a scalar, or one element for each column.

    Raises:
        InvalidModelError: if it has another shape.
    """
    row = value.reshape(1, -1) if value.ndim == 1 else value
    return _along(value, row, (*b.shape[:-2], 1, *b.shape[-1:]) if b.ndim > 1 else (), name)


def _along(value: Any, laid: Any, target: Sequence[Any], name: str) -> Any:
    if is_single(value):
        return xp(value).reshape(value, ())
    if not broadcasts_to(laid.shape, target):
        raise InvalidModelError(
            f"{name} has shape {value.shape}, expected a scalar or one that fits {tuple(target)}"
        )
    return laid

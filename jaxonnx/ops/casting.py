"""Conversions between element types."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.dtypes import STRING, dtype_of
from jaxonnx.define.known import concrete, is_symbolic, lift, x64_enabled, xp
from jaxonnx.define.older import older
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError, UnsupportedOpError

__all__ = ["bit_cast", "cast", "cast_like"]


@register("Cast", 24, 25, 28, symbolic=True, elementwise=True, moves=True)
def cast(
    input: ArrayLike, /, *, to: int | np.dtype, saturate: int = 1, round_mode: str = "up"
) -> Array:
    """``input`` converted to the ONNX element type or NumPy dtype ``to``.

    Floats are truncated toward zero where ``to`` is an integer type, and int4 and the like keep the
    lower bits of what is out of range; the derivative is then 0. To a float8 type values beyond the
    range become the largest finite one with ``saturate``, infinity or NaN without; ``round_mode``
    applies to float8e8m0 only. As strings, numbers are spelled without exponent and with the fewest
    digits that give them back, or NaN, INF and -INF.

    Raises:
        InvalidModelError: if ``to`` is no element type.
        UnsupportedOpError: if traced values are to become float6, which XLA does not have.
        DataDependentShapeError: if traced values are to become strings.
    """
    dtype = _target(to)
    values: Any = input if isinstance(input, (np.ndarray, jax.Array)) else np.asarray(input)
    if is_symbolic(values):  # dimensions stay dimensions under every integer type
        return values if dtype.kind in "iu" else lift(values).astype(dtype)
    if dtype == values.dtype == STRING:
        return values
    if dtype == STRING:
        return _to_text(concrete(values))
    if values.dtype == STRING:
        return _from_text(values, dtype, saturate, round_mode)
    with np.errstate(invalid="ignore", over="ignore"):  # what is out of range is no fault
        return _converted(values, dtype, saturate, round_mode)


def _converted(values: Any, dtype: np.dtype, saturate: int, round_mode: str) -> Array:
    """Numbers as numbers of another type."""
    if dtype.kind == "b":
        return values if values.dtype == dtype else values != 0
    if dtype.name in NOT_IN_XLA and xp(values) is jnp:
        raise UnsupportedOpError(f"XLA does not compute with {dtype.name}")
    if dtype == ml_dtypes.float8_e8m0fnu:
        return _to_e8m0(values, saturate, round_mode)
    if dtype.name.startswith("float8") and saturate:
        most = ml_dtypes.finfo(dtype).max
        wide = values.astype(np.float32) if values.dtype != np.float64 else values
        values = xp(values).clip(wide, -np.asarray(most, wide.dtype), np.asarray(most, wide.dtype))
    if {dtype.name, values.dtype.name} & _BY_SINGLE:
        values = values.astype(np.float32)
    if dtype.name in _NARROW and values.dtype.kind not in "iu":
        values = values.astype(np.int32)  # then the high bits go, where XLA would saturate
    return values.astype(dtype)


def _to_text(values: np.ndarray) -> Any:
    return np.array([*map(_spell, values.ravel())], STRING).reshape(values.shape)


def _spell(value: Any) -> str:
    """A number as text; the digits are those that NumPy prints for its dtype."""
    if not jnp.issubdtype(value.dtype, jnp.inexact):
        return str(int(value))
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else "INF" if value > 0 else "-INF"
    exact = value.dtype == ml_dtypes.float8_e8m0fnu  # the next power of two is for what is above
    return np.format_float_positional(float(value if exact else str(value)), trim="-")


def _from_text(values: np.ndarray, dtype: np.dtype, saturate: int, round_mode: str) -> Array:
    """Decimal or scientific notation, INF and NaN in any case; integers exactly."""
    texts = values.ravel().tolist()
    if dtype.kind in "iu":
        numbers = np.array([_integer(t) % 2**64 for t in texts], np.uint64)
    else:
        numbers = np.array([float(t) for t in texts], np.float64)
    return cast(numbers.reshape(values.shape), to=dtype, saturate=saturate, round_mode=round_mode)


def _integer(text: str) -> int:
    """The integer that a text says, without a fraction."""
    try:
        return int(text)
    except ValueError:
        return int(float(text))


NOT_IN_XLA = ("float6_e2m3fn", "float6_e3m2fn")
_BY_SINGLE = {"float4_e2m1fn", "float8_e8m0fnu", *NOT_IN_XLA}
"""Types that NumPy converts to few others; XLA makes 32767 of a 6 in float4 as int16."""

_NARROW = ("int2", "uint2", "int4", "uint4")


cast_19 = older(cast, 19, 21, 23)


cast_6 = older(cast, 6, 9, 13)


@register("Cast", 1, symbolic=True, elementwise=True, moves=True)
def cast_1(input: ArrayLike, /, *, to: str) -> Array:
    """``input`` converted to the type that ``to`` names, such as ``"FLOAT"``."""
    return cast(input, to=onnx.TensorProto.DataType.Value(to.upper()))


def _to_e8m0(values: Any, saturate: int, round_mode: str) -> Array:
    """Powers of two without sign or zero, as microscaling formats use for scales."""
    np_ = xp(values)
    long = values.dtype.itemsize >= 4 and values.dtype != np.float32
    wide = values.astype(np.float64 if long and (np_ is np or x64_enabled()) else np.float32)
    mantissa, exponent = np_.frexp(wide)  # wide = mantissa * 2**exponent, mantissa in [0.5, 1)
    modes = {"up": mantissa > 0.5, "down": False, "nearest": mantissa >= 0.75}
    if round_mode not in modes:
        raise InvalidModelError(f"round_mode is {round_mode!r}, expected one of {[*modes]}")
    up = modes[round_mode]
    power = exponent - 1 + np_.asarray(up, np.int32)
    least, most = -127, 127
    inside = (power >= least) & (power <= most) & np_.isfinite(wide) & (wide > 0)
    bounded = np_.where(wide > 0, np_.clip(power, least, most), least)
    clipped = np_.where(np_.isinf(wide), most, bounded)
    nan = np_.isnan(wide) if saturate else ~inside
    code = np_.where(nan, 255, clipped + 127).astype(np.uint8)
    if np_ is np:
        return code.view(ml_dtypes.float8_e8m0fnu)
    return lax.bitcast_convert_type(code, ml_dtypes.float8_e8m0fnu)


@register("CastLike", 24, 25, elementwise=True, moves=True)
def cast_like(
    input: ArrayLike, target_type: ArrayLike, /, *, saturate: int = 1, round_mode: str = "up"
) -> Array:
    """``input`` converted to the dtype of ``target_type``."""
    return cast(input, to=_dtype(target_type), saturate=saturate, round_mode=round_mode)


cast_like_19 = older(cast_like, 19, 21, 23)


cast_like_15 = older(cast_like, 15)


def _target(to: Any) -> np.dtype:
    """The dtype that ``to`` names: an ONNX element type or anything NumPy takes for a dtype."""
    dtype = dtype_of(to) if isinstance(to, int) else np.dtype(to)
    if dtype is None:
        raise InvalidModelError("the element type `to` is undefined")
    return dtype


def _dtype(value: Any) -> np.dtype:
    return np.dtype(value.dtype if hasattr(value, "dtype") else jnp.result_type(value))


@register("BitCast", 26, elementwise=True)
def bit_cast(input: ArrayLike, /, *, to: int | np.dtype) -> Array:
    """The bits of ``input`` read as the equally wide type ``to``; there is no derivative."""
    dtype = _target(to)
    if isinstance(input, np.ndarray):
        known: Any = np.atleast_1d(input).view(dtype).reshape(input.shape)
        return known
    if jnp.result_type(input).kind == "b":  # XLA's booleans have no bits to read
        input = lax.convert_element_type(input, np.uint8)
    if dtype.kind == "b":
        return lax.bitcast_convert_type(input, np.uint8) != 0
    return lax.bitcast_convert_type(input, dtype)

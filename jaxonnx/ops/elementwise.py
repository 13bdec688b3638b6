"""Element-wise arithmetic: binary, variadic and rounding operators."""

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.convention import convention
from jaxonnx.define.experimental import times
from jaxonnx.define.kinks import kink
from jaxonnx.define.known import is_known, is_symbolic, less, lift, maximum, minimum, xp
from jaxonnx.define.older import older
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops._legacy import aligned, alike
from jaxonnx.ops._precision import widened

__all__ = [
    "abs",
    "add",
    "bit_shift",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "ceil",
    "div",
    "floor",
    "max",
    "mean",
    "min",
    "mod",
    "mul",
    "neg",
    "pow",
    "reciprocal",
    "round",
    "sign",
    "sub",
    "sum",
]


@register("Add", 7, 13, 14, symbolic=True, elementwise=True)
def add(a: ArrayLike, b: ArrayLike, /) -> Array:
    """``a + b``, broadcast."""
    return xp(a, b).add(a, b)


add_1 = older(add, 1, 6, inputs=aligned, note="``b`` is aligned with ``a`` from ``axis`` on.")


@register("Sub", 7, 13, 14, symbolic=True, elementwise=True)
def sub(a: ArrayLike, b: ArrayLike, /) -> Array:
    """``a - b``, broadcast."""
    return xp(a, b).subtract(a, b)


sub_1 = older(sub, 1, 6, inputs=aligned, note="``b`` is aligned with ``a`` from ``axis`` on.")


@register("Mul", 7, 13, 14, symbolic=True, elementwise=True)
def mul(a: ArrayLike, b: ArrayLike, /) -> Array:
    """``a * b``, broadcast."""
    return xp(a, b).multiply(a, b)


mul_1 = older(mul, 1, 6, inputs=aligned, note="``b`` is aligned with ``a`` from ``axis`` on.")


@register("Div", 7, 13, 14, symbolic=True, elementwise=True)
def div(a: ArrayLike, b: ArrayLike, /) -> Array:
    """``a / b``, broadcast; of integers, toward zero (by 0: any integer).

    Derivatives at ``b`` 0 are infinite, by ``b`` with the sign of ``-a``.
    """
    if is_symbolic(a) or is_symbolic(b):
        return _divide_dims(a, b)
    if _is_integer(a, b):
        return _divide_integers(a, b)
    if is_known(b) and np.all(np.isfinite(b) & (b != 0)):  # its derivative is finite
        return xp(a, b).true_divide(a, b)
    return _quotient(a, b)


def _quotient_tangent(da: Any, db: Any, a: Any, b: Any) -> Any:
    slope = reciprocal(b)
    by_a = 0 if da is None else times(slope, da)
    return by_a if db is None else by_a - times(times(_quotient(a, b), slope), db)


@kink(_quotient_tangent)
def _quotient(a: Any, b: Any, /) -> Any:
    return xp(a, b).true_divide(a, b)


div_1 = older(div, 1, 6, inputs=aligned, note="``b`` is aligned with ``a`` from ``axis`` on.")


def _is_integer(*values: Any) -> bool:
    return jnp.issubdtype(xp(*values).result_type(*values), np.integer)


def _divide_integers(a: Any, b: Any) -> Any:
    if xp(a, b) is jnp:
        dtype = jnp.result_type(a, b)
        return lax.div(*jnp.broadcast_arrays(jnp.asarray(a, dtype), jnp.asarray(b, dtype)))
    # An absolute value would overflow for the lowest integer, so the floor is corrected instead.
    inexact = np.not_equal(np.remainder(a, b), 0)
    return np.floor_divide(a, b) + (inexact & (np.less(a, 0) != np.less(b, 0)))


def _divide_dims(a: Any, b: Any) -> Any:
    """``a / b`` toward zero, as floor divisions of what is positive in ``a`` and in ``-a``."""
    positive = less(0, b)
    if xp(positive) is np and np.all(positive):
        return maximum(a, 0) // b - maximum(np.negative(a), 0) // b
    return _divide_integers(lift(a), lift(b))


def _mod_tangent(da: Any, db: Any, a: Any, b: Any, *, fmod: int) -> Any:
    quotient = jnp.rint((a - mod(a, b, fmod=fmod)) / b)
    return da - jnp.where(jnp.isfinite(quotient), quotient, 0) * db


@register("Mod", 28, symbolic=True, elementwise=True)
@kink(_mod_tangent)
def mod(a: ArrayLike, b: ArrayLike, /, *, fmod: int = 0) -> Array:
    """The remainder of ``a / b`` with the sign of ``b``, or of ``a`` if ``fmod``.

    The derivative is that of ``a - n * b`` for the integer ``n`` in force, also at the jumps.
    """
    if is_symbolic(a) or is_symbolic(b):
        return a - _divide_dims(a, b) * b if fmod else _mod_dims(a, b)
    m = xp(a, b)
    if fmod:
        return m.fmod(a, b)
    remainder = m.remainder(a, b)
    if _is_integer(a, b):
        return remainder
    return m.where(remainder == 0, m.copysign(m.zeros_like(remainder), b), remainder)


@register("Mod", 10, 13, symbolic=True, elementwise=True)
def mod_10(a: ArrayLike, b: ArrayLike, /, *, fmod: int = 0) -> Array:
    """The remainder of ``a / b``, with the sign of ``b`` for integers, of ``a`` if ``fmod``.

    The derivative is that of ``a - n * b`` for the integer ``n`` in force, also at the jumps.

    Raises:
        InvalidModelError: for floats without ``fmod``.
    """
    if not (fmod or is_symbolic(a) or is_symbolic(b) or _is_integer(a, b)):
        raise InvalidModelError("fmod is 0, expected 1 for floats before opset 28")
    return mod(a, b, fmod=fmod)


def _mod_dims(a: Any, b: Any) -> Any:
    positive = less(0, b)
    if xp(positive) is np and np.all(positive):
        return np.remainder(a, b)
    return jnp.remainder(lift(a), lift(b))


def _power_tangent(dx: Any, dy: Any, x: Any, y: Any) -> Any:
    by_y = jnp.where(x > 0, _power(x, y) * jnp.log(jnp.where(x > 0, x, 1)), 0)
    return times(_slope(x, y), dx) + times(by_y, dy)


def _slope(x: Any, y: Any) -> Any:
    return jnp.where(y == 0, 0, y * _power(x, jnp.where(y == 0, 1, y - 1)))


@kink(_power_tangent)
def _power(x: Any, y: Any, /) -> Any:
    return xp(x, y).power(x, y)


def _known_power_tangent(dx: Any, x: Any, *, y: Any) -> Any:
    if np.all(y >= 1):  # then it is finite
        return np.asarray(y, x.dtype) * _known_power(x, y=y - 1) * dx
    return times(_slope(x, np.asarray(y, x.dtype)), dx)


@kink(_known_power_tangent)
def _known_power(x: Any, /, *, y: Any) -> Any:
    return xp(x).power(x, np.asarray(y, x.dtype))


@register("Pow", 7, 12, 13, 15, symbolic=True, elementwise=True, settings=["y"])
def pow(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x ** y`` in the type of ``x``, broadcast; exact for integers.

    Of integers, a negative power of anything but 1 and -1 is 0. Derivatives at (0, 0): 0 and 0.
    The one by ``y`` is 0 where ``x <= 0``, as the power is defined at integer ``y`` only there.
    """
    if is_symbolic(x) or is_symbolic(y):
        return _power_of_dims(x, y)
    m = xp(x, y)
    base, exponent = m.asarray(x), m.asarray(y)
    dtype = base.dtype
    if not jnp.issubdtype(dtype, np.integer):
        # Half precision holds few integers exactly, and the parity of y decides the sign.
        work = widened(base)
        if is_known(exponent):
            return _known_power(work, y=exponent.astype(work.dtype)).astype(dtype)
        return _power(work, exponent.astype(work.dtype)).astype(dtype)
    exact = _power_of_integers(base, exponent.astype(dtype))
    if jnp.issubdtype(exponent.dtype, np.integer):
        return exact
    rounded = m.power(base.astype(float), exponent.astype(float)).astype(dtype)
    return m.where(exponent == m.trunc(exponent), exact, rounded)


def _power_of_dims(x: Any, y: Any) -> Any:
    """``x ** y``, a dimension where the exponents are natural numbers."""
    if not is_symbolic(y) and np.all((y >= 0) & (y == np.trunc(y))):
        return np.power(x, np.asarray(y, np.int64))
    return pow(lift(x), lift(y))


def _power_of_integers(x: Any, y: Any) -> Any:
    m = xp(x, y)
    exponent = m.abs(y) & np.iinfo(y.dtype).max  # the lowest integer has no absolute value
    return m.where((y < 0) & (m.abs(x) != 1), m.zeros_like(x), m.power(x, exponent))


pow_1 = older(pow, 1, inputs=aligned, note="``y`` is aligned with ``x`` from ``axis`` on.")


def _tied(extreme: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """The tangent of a maximum or minimum: from the inputs that attain it, by the convention."""

    def tangent(*args: Any) -> Any:
        tangents, data = args[: len(args) // 2], args[len(args) // 2 :]
        out = functools.reduce(extreme, data)
        ties = [x == out for x in data]
        if convention().max == "first":
            met = jnp.zeros_like(ties[0])
            for k, tie in enumerate(ties):
                ties[k], met = tie & ~met, met | tie
        count = jnp.maximum(functools.reduce(jnp.add, (t.astype(out.dtype) for t in ties)), 1)
        shares = (jnp.where(t, dx / count, 0) for t, dx in zip(ties, tangents, strict=True))
        return functools.reduce(jnp.add, shares).astype(out.dtype)

    return tangent


@register("Max", 8, 12, 13, symbolic=True, elementwise=True)
@kink(_tied(maximum))
def max(*data_0: ArrayLike) -> Array:
    """The greatest of the inputs, broadcast; NaN if one is. Derivative at a tie: equal shares."""
    return functools.reduce(maximum, data_0)


max_1 = older(max, 1, 6, inputs=alike, note="All inputs have one shape.")


@register("Min", 8, 12, 13, symbolic=True, elementwise=True)
@kink(_tied(minimum))
def min(*data_0: ArrayLike) -> Array:
    """The least of the inputs, broadcast; NaN if one is. Derivative at a tie: equal shares."""
    return functools.reduce(minimum, data_0)


min_1 = older(min, 1, 6, inputs=alike, note="All inputs have one shape.")


@register("Sum", 8, 13, elementwise=True)
def sum(*data_0: ArrayLike) -> Array:
    """The sum of the inputs, broadcast."""
    return functools.reduce(xp(*data_0).add, data_0)


sum_1 = older(sum, 1, 6, inputs=alike, note="All inputs have one shape.")


@register("Mean", 8, 13, elementwise=True)
def mean(*data_0: ArrayLike) -> Array:
    """The mean of the inputs, broadcast."""
    return div(sum(*data_0), len(data_0))


mean_1 = older(mean, 1, 6, inputs=alike, note="All inputs have one shape.")


@register("Abs", 1, 6, 13, symbolic=True, elementwise=True)
@kink(lambda dx, x: jnp.where(x > 0, dx, jnp.where(x < 0, -dx, 0)))
def abs(x: ArrayLike, /) -> Array:
    """``|x|``. Derivative at 0: 0."""
    return maximum(x, np.negative(x)) if is_symbolic(x) else xp(x).abs(x)


@register("Neg", 1, 6, 13, symbolic=True, elementwise=True)
def neg(x: ArrayLike, /) -> Array:
    """``-x``."""
    return xp(x).negative(x)


@register("Sign", 9, 13, elementwise=True)
def sign(input: ArrayLike, /) -> Array:
    """1, 0 or -1 as the input is positive, zero or negative. Derivative: 0."""
    return xp(input).sign(input)


def _step_tangent(dx: Any, x: Any) -> Any:
    del x
    return dx if convention().round == "straight_through" else jnp.zeros_like(dx)


@register("Ceil", 1, 6, 13, elementwise=True)
@kink(_step_tangent)
def ceil(x: ArrayLike, /) -> Array:
    """The least integer not below ``x``. Derivative: 0."""
    return xp(x).ceil(x)


@register("Floor", 1, 6, 13, elementwise=True)
@kink(_step_tangent)
def floor(x: ArrayLike, /) -> Array:
    """The greatest integer not above ``x``. Derivative: 0."""
    return xp(x).floor(x)


@register("Round", 11, 22, elementwise=True)
@kink(_step_tangent)
def round(x: ArrayLike, /) -> Array:
    """The nearest integer, the even one of two. Derivative: 0."""
    return xp(x).rint(x)


def _reciprocal_tangent(dx: Any, x: Any) -> Any:
    y = reciprocal(x)
    return times(-times(y, y), dx)


@register("Reciprocal", 1, 6, 13, elementwise=True)
@kink(_reciprocal_tangent)
def reciprocal(x: ArrayLike, /) -> Array:
    """``1 / x``. Derivative at 0: minus infinity."""
    return xp(x).reciprocal(x)


@register("BitwiseAnd", 18, elementwise=True)
def bitwise_and(a: ArrayLike, b: ArrayLike, /) -> Array:
    """The bits that ``a`` and ``b`` share, broadcast."""
    return xp(a, b).bitwise_and(a, b)


@register("BitwiseOr", 18, elementwise=True)
def bitwise_or(a: ArrayLike, b: ArrayLike, /) -> Array:
    """The bits of ``a`` or ``b``, broadcast."""
    return xp(a, b).bitwise_or(a, b)


@register("BitwiseXor", 18, elementwise=True)
def bitwise_xor(a: ArrayLike, b: ArrayLike, /) -> Array:
    """The bits in which ``a`` and ``b`` differ, broadcast."""
    return xp(a, b).bitwise_xor(a, b)


@register("BitwiseNot", 18, elementwise=True)
def bitwise_not(x: ArrayLike, /) -> Array:
    """Every bit of ``x`` flipped."""
    return xp(x).invert(x)


@register("BitShift", 11, 28, elementwise=True)
def bit_shift(x: ArrayLike, y: ArrayLike, /, *, direction: str) -> Array:
    """``x`` shifted by ``y`` bits to the ``"LEFT"`` or ``"RIGHT"``, which keeps the sign.

    A shift by a negative number or by the width of the type or more leaves no bit of ``x``: it
    gives 0, or -1 for a negative ``x`` shifted to the right.

    Raises:
        InvalidModelError: if ``direction`` is another word.
    """
    if direction not in ("LEFT", "RIGHT"):
        raise InvalidModelError(f"direction is {direction!r}, expected 'LEFT' or 'RIGHT'")
    m = xp(x, y)
    bits, amount = m.asarray(x), m.asarray(y)
    zero = m.zeros_like(bits)
    if direction == "LEFT":
        shift, rest = m.left_shift, zero
    else:
        shift, rest = m.right_shift, m.where(bits < 0, ~zero, zero)
    within = (amount >= 0) & (amount < np.iinfo(bits.dtype).bits)
    return m.where(within, shift(bits, m.where(within, amount, 0)), rest)

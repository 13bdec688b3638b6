"""Unary transcendental functions, and the square root."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.experimental import times
from jaxonnx.define.kinks import kink
from jaxonnx.define.known import xp
from jaxonnx.define.registry import register
from jaxonnx.ops.elementwise import reciprocal

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cos",
    "cosh",
    "erf",
    "exp",
    "log",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]


def _sqrt_tangent(dx: Any, x: Any) -> Array:
    return times(reciprocal(2 * jnp.abs(sqrt(x))), dx)


@register("Sqrt", 1, 6, 13, elementwise=True)
@kink(_sqrt_tangent)
def sqrt(x: ArrayLike, /) -> Array:
    """The square root; NaN of negative numbers. Derivative at 0 and -0: infinity."""
    return xp(x).sqrt(x)


def _exp_tangent(dx: Any, x: Any) -> Array:
    return times(exp(x), dx)


@register("Exp", 1, 6, 13, elementwise=True)
@kink(_exp_tangent)
def exp(input: ArrayLike, /) -> Array:
    """``e ** input``."""
    return xp(input).exp(input)


@register("Log", 1, 6, 13, elementwise=True)
@kink(lambda dx, x: times(reciprocal(x), dx))
def log(input: ArrayLike, /) -> Array:
    """The natural logarithm. Derivative at 0: infinity."""
    return xp(input).log(input)


@register("Erf", 9, 13, elementwise=True)
def erf(input: ArrayLike, /) -> Array:
    """The error function; of integers, cut off to an integer."""
    x = jnp.asarray(input)
    if jnp.issubdtype(x.dtype, np.integer):
        return lax.erf(x.astype(float)).astype(x.dtype)
    return lax.erf(x)


@register("Sin", 7, 22, elementwise=True)
def sin(input: ArrayLike, /) -> Array:
    """The sine of radians."""
    return jnp.sin(input)


@register("Cos", 7, 22, elementwise=True)
def cos(input: ArrayLike, /) -> Array:
    """The cosine of radians."""
    return jnp.cos(input)


@register("Tan", 7, 22, elementwise=True)
def tan(input: ArrayLike, /) -> Array:
    """The tangent of radians."""
    return jnp.tan(input)


@register("Asin", 7, 22, elementwise=True)
@kink(lambda dx, x: times(reciprocal(sqrt(1 - x * x)), dx))
def asin(input: ArrayLike, /) -> Array:
    """The arc sine in radians. Derivative at -1 and 1: infinity."""
    return jnp.arcsin(input)


@register("Acos", 7, 22, elementwise=True)
@kink(lambda dx, x: times(-reciprocal(sqrt(1 - x * x)), dx))
def acos(input: ArrayLike, /) -> Array:
    """The arc cosine in radians. Derivative at -1 and 1: minus infinity."""
    return jnp.arccos(input)


@register("Atan", 7, 22, elementwise=True)
def atan(input: ArrayLike, /) -> Array:
    """The arc tangent in radians."""
    return jnp.arctan(input)


@register("Sinh", 9, 22, elementwise=True)
def sinh(input: ArrayLike, /) -> Array:
    """The hyperbolic sine."""
    return jnp.sinh(input)


@register("Cosh", 9, 22, elementwise=True)
def cosh(input: ArrayLike, /) -> Array:
    """The hyperbolic cosine."""
    return jnp.cosh(input)


@register("Tanh", 1, 6, 13, elementwise=True)
def tanh(input: ArrayLike, /) -> Array:
    """The hyperbolic tangent."""
    return jnp.tanh(input)


@register("Asinh", 9, 22, elementwise=True)
def asinh(input: ArrayLike, /) -> Array:
    """The inverse hyperbolic sine."""
    return jnp.arcsinh(input)


@register("Acosh", 9, 22, elementwise=True)
@kink(lambda dx, x: times(times(reciprocal(sqrt(x - 1)), reciprocal(sqrt(x + 1))), dx))
def acosh(input: ArrayLike, /) -> Array:
    """The inverse hyperbolic cosine, of numbers from 1 on. Derivative at 1: infinity."""
    return jnp.arccosh(input)


@register("Atanh", 9, 22, elementwise=True)
@kink(lambda dx, x: times(reciprocal(1 - x * x), dx))
def atanh(input: ArrayLike, /) -> Array:
    """The inverse hyperbolic tangent, from -1 to 1. Derivative at the ends: infinity."""
    return jnp.arctanh(input)

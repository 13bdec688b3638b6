"""Comparisons, logic and selection."""

from jax import Array
from jax.typing import ArrayLike

from jaxonnx.define import known
from jaxonnx.define.known import xp
from jaxonnx.define.older import older
from jaxonnx.define.registry import register
from jaxonnx.ops._legacy import aligned

__all__ = [
    "and_",
    "equal",
    "greater",
    "greater_or_equal",
    "is_inf",
    "is_nan",
    "less",
    "less_or_equal",
    "not_",
    "or_",
    "where",
    "xor",
]


@register("Equal", 7, 11, 13, 19, symbolic=True, elementwise=True)
def equal(a: ArrayLike, b: ArrayLike, /) -> Array:
    """``a == b``, broadcast."""
    return known.equal(a, b)


equal_1 = older(equal, 1, inputs=aligned, note="``b`` is aligned with ``a`` from ``axis`` on.")


@register("Less", 7, 9, 13, symbolic=True, elementwise=True)
def less(a: ArrayLike, b: ArrayLike, /) -> Array:
    """``a < b``, broadcast."""
    return known.less(a, b)


less_1 = older(less, 1, inputs=aligned, note="``b`` is aligned with ``a`` from ``axis`` on.")


@register("Greater", 7, 9, 13, symbolic=True, elementwise=True)
def greater(a: ArrayLike, b: ArrayLike, /) -> Array:
    """``a > b``, broadcast."""
    return known.less(b, a)


greater_1 = older(greater, 1, inputs=aligned, note="``b`` is aligned with ``a`` from ``axis`` on.")


@register("LessOrEqual", 12, 16, symbolic=True, elementwise=True)
def less_or_equal(a: ArrayLike, b: ArrayLike, /) -> Array:
    """``a <= b``, broadcast."""
    return known.less_equal(a, b)


@register("GreaterOrEqual", 12, 16, symbolic=True, elementwise=True)
def greater_or_equal(a: ArrayLike, b: ArrayLike, /) -> Array:
    """``a >= b``, broadcast."""
    return known.less_equal(b, a)


@register("And", 7, elementwise=True)
def and_(a: ArrayLike, b: ArrayLike, /) -> Array:
    """Whether both are true, broadcast."""
    return xp(a, b).logical_and(a, b)


and_1 = older(and_, 1, inputs=aligned, note="``b`` is aligned with ``a`` from ``axis`` on.")


@register("Or", 7, elementwise=True)
def or_(a: ArrayLike, b: ArrayLike, /) -> Array:
    """Whether one or both are true, broadcast."""
    return xp(a, b).logical_or(a, b)


or_1 = older(or_, 1, inputs=aligned, note="``b`` is aligned with ``a`` from ``axis`` on.")


@register("Xor", 7, elementwise=True)
def xor(a: ArrayLike, b: ArrayLike, /) -> Array:
    """Whether exactly one is true, broadcast."""
    return xp(a, b).logical_xor(a, b)


xor_1 = older(xor, 1, inputs=aligned, note="``b`` is aligned with ``a`` from ``axis`` on.")


@register("Not", 1, elementwise=True)
def not_(x: ArrayLike, /) -> Array:
    """Whether ``x`` is false."""
    return xp(x).logical_not(x)


@register("Where", 9, 16, symbolic=True, elementwise=True)
def where(condition: ArrayLike, x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x`` where the condition holds, else ``y``, all broadcast."""
    return xp(condition, x, y).where(condition, x, y)


@register("IsNaN", 9, 13, 20, elementwise=True)
def is_nan(x: ArrayLike, /) -> Array:
    """Whether ``x`` is not a number."""
    return xp(x).isnan(x)


@register("IsInf", 10, 20, elementwise=True)
def is_inf(x: ArrayLike, /, *, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    """Whether ``x`` is an infinity of a sign that is detected."""
    m = xp(x)
    found = m.isinf(x)
    if not detect_negative:
        found &= m.greater(x, 0)
    if not detect_positive:
        found &= m.less(x, 0)
    return found

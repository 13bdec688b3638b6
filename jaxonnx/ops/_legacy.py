"""The broadcasting of old operators: aligned by an attribute, or none at all."""

from typing import Any

import numpy as np

from jaxonnx.define.known import same_dim, shape_is_symbolic, xp
from jaxonnx.errors import InvalidModelError


def aligned(*operands: Any, axis: int | None = None, broadcast: int = 0) -> tuple[Any, Any]:
    """The operands of a binary operator before version 7, in shapes that NumPy broadcasts."""
    a, b = operands
    return a, align(a, b, axis, broadcast)


def alike(*operands: Any) -> tuple[Any, ...]:
    """The operands of a variadic operator before version 8, which have one shape.

    Raises:
        InvalidModelError: if they have not.
    """
    shapes = [np.shape(v) for v in operands]
    first = shapes[0]
    for shape in shapes[1:]:
        pairs = [*zip(first, shape, strict=False)]
        if len(first) != len(shape) or not all(_may_equal(*pair) for pair in pairs):
            raise InvalidModelError(f"the inputs have shapes {shapes}, expected one shape")
    return operands


def align(a: Any, b: Any, axis: int | None, broadcast: int) -> Any:
    """``b`` in a shape that NumPy broadcasts to the shape of ``a``.

    Args:
        a: the left operand, which the result takes its shape from.
        b: one element, or a tensor whose dimensions are consecutive dimensions of ``a``, or 1.
        axis: the dimension of ``a`` that is the first of ``b``; None: ``b`` is aligned at the end.
        broadcast: whether the shapes may differ at all.

    Raises:
        InvalidModelError: if the shapes do not fit.
    """
    outer, inner = np.shape(a), np.shape(b)
    if broadcast and all(same_dim(d, 1) for d in inner):
        return xp(b).reshape(b, ())
    start = len(outer) - len(inner) if axis is None else axis
    covered = outer[start : start + len(inner)] if start >= 0 else ()
    fits = len(covered) == len(inner) and (broadcast or len(inner) == len(outer))
    if not fits or not all(map(_may_cover, covered, inner)):
        where = f"from axis {axis} on" if axis is not None else "at the end"
        rule = f"with broadcast=1 it must be found in it {where}" if broadcast else "broadcast is 0"
        raise InvalidModelError(f"B has shape {inner}, A has {outer}; {rule}")
    return xp(b).reshape(b, inner + (1,) * (len(outer) - start - len(inner)))


def _may_cover(x: Any, y: Any) -> bool:
    return same_dim(y, 1) or _may_equal(x, y)


def _may_equal(x: Any, y: Any) -> bool:
    return same_dim(x, y) or shape_is_symbolic((x, y))

"""Operators along one axis: running sums and products, and the place of an extreme."""

from typing import Any

import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.known import as_dims, xp
from jaxonnx.define.older import older
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops import _padding
from jaxonnx.ops._axes import from_front

__all__ = ["arg_max", "arg_min", "cum_prod", "cum_sum"]


def _cumulative(name: str, x: Any, axis: Any, start: int, exclusive: int, reverse: int) -> Any:
    m = xp(x)
    data = m.asarray(x)
    if np.size(axis) != 1:
        raise InvalidModelError(f"axis has shape {np.shape(axis)}, expected one element")
    along = from_front(as_dims(axis)[0], data.ndim)
    length = data.shape[along]
    if reverse:
        data = m.flip(data, along)
    if exclusive:  # the first of one element more; a difference would lose what is infinite
        first = m.full_like(data, start, shape=(*data.shape[:along], 1, *data.shape[along + 1 :]))
        keep = (slice(None),) * along + (slice(0, length),)
        data = m.concatenate([first, data], along)[keep]
    result = getattr(m, name)(data, axis=along, dtype=data.dtype)
    return m.flip(result, along) if reverse else result


@register("CumSum", 11, 14, static=["axis"])
def cum_sum(x: ArrayLike, axis: ArrayLike, /, *, exclusive: int = 0, reverse: int = 0) -> Array:
    """The sum of all elements up to each along ``axis``, without it if ``exclusive``.

    With ``reverse`` the elements from each to the last.

    Raises:
        InvalidModelError: if there is no such axis, or more than one is given.
    """
    return _cumulative("cumsum", x, axis, 0, exclusive, reverse)


@register("CumProd", 26, static=["axis"])
def cum_prod(x: ArrayLike, axis: ArrayLike, /, *, exclusive: int = 0, reverse: int = 0) -> Array:
    """The product of all elements up to each along ``axis``, without it if ``exclusive``.

    With ``reverse`` the elements from each to the last.

    Raises:
        InvalidModelError: if there is no such axis, or more than one is given.
    """
    return _cumulative("cumprod", x, axis, 1, exclusive, reverse)


def _index_of(name: str, x: Any, axis: int, keepdims: int, last: int) -> Any:
    m = xp(x)
    data = m.asarray(x)
    along = from_front(axis, data.ndim)
    if last:
        data = m.flip(data, along)
    find = getattr(np, name) if m is np else getattr(lax, name)
    index = find(data, along) if m is np else find(data, along, np.int32)
    index = m.asarray(index).astype(int)
    if last:
        index = data.shape[along] - 1 - index
    return m.expand_dims(index, along) if keepdims else index


@register("ArgMax", 12, 13, padding=_padding.arg_max, searches=True)
def arg_max(
    data: ArrayLike, /, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Array:
    """The index of the maximum along ``axis``, the first or the last one; a NaN is greatest.

    Raises:
        InvalidModelError: if there is no such axis.
    """
    return _index_of("argmax", data, axis, keepdims, select_last_index)


arg_max_1 = older(arg_max, 1, 11)


@register("ArgMin", 12, 13, padding=_padding.arg_min, searches=True)
def arg_min(
    data: ArrayLike, /, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Array:
    """The index of the minimum along ``axis``, the first or the last one; a NaN is least.

    Raises:
        InvalidModelError: if there is no such axis.
    """
    return _index_of("argmin", data, axis, keepdims, select_last_index)


arg_min_1 = older(arg_min, 1, 11)

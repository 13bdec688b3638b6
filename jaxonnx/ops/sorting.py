"""Picking the largest entries, and matrices made of index comparisons."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.dtypes import dtype_of
from jaxonnx.define.known import as_dims, shape_is_symbolic, xp
from jaxonnx.define.older import older
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops import _padding
from jaxonnx.ops._axes import from_front
from jaxonnx.ops._indices import int32
from jaxonnx.ops._words import moves_words

__all__ = ["eye_like", "one_hot", "top_k", "trilu"]


@register("TopK", 11, 24, static=["k"], padding=_padding.top_k, searches=True)
def top_k(
    x: ArrayLike, k: ArrayLike, /, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Array, Array]:
    """The ``k`` largest (or smallest) entries along ``axis``, in order, and their indices.

    Of equal entries the one with the lower index comes first. NaN counts as larger than every
    number. The result is in order even if ``sorted`` is 0. The derivative flows to the entries
    that are returned.

    Raises:
        InvalidModelError: if there is no such axis, or ``k`` is larger than its size or negative.
    """
    del sorted
    data, (count,) = jnp.asarray(x), as_dims(k)
    axis = from_front(axis, data.ndim)
    size = data.shape[axis]
    if not shape_is_symbolic((size, count)) and not 0 <= count <= size:
        raise InvalidModelError(f"k is {count}, expected 0 to the size of the axis, {size}")
    indices = lax.top_k(_rank_key(lax.stop_gradient(data), largest), count, axis=axis)[1]
    values = jnp.take_along_axis(data, indices, axis, mode="clip")
    return values, indices.astype(jnp.result_type(int))


def _rank_key(x: Array, largest: int) -> Array:
    """What ``lax.top_k`` orders as ONNX orders ``x``: it tells apart zeros and NaNs by sign."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x if largest else ~x  # reverses the order of signed and unsigned alike
    key = jnp.where(x == 0, jnp.zeros_like(x), x if largest else -x)
    nan = jnp.full_like(x, np.nan)
    return jnp.where(jnp.isnan(x), nan if largest else lax.neg(nan), key)


top_k_10 = older(top_k, 10)


top_k_1 = older(top_k, 1)


@register("OneHot", 11, 28, static=["depth"], settings=["values"])
def one_hot(indices: ArrayLike, depth: ArrayLike, values: ArrayLike, /, *, axis: int = -1) -> Array:
    """``values[1]`` where a new dimension of size ``depth`` meets ``indices``, else ``values[0]``.

    Negative indices count from ``depth``; one out of range gives ``values[0]`` everywhere.

    Raises:
        InvalidModelError: if ``values`` has not two elements.
    """
    return _one_hot(indices, depth, values, axis, from_the_end=True)


@register("OneHot", 9, static=["depth"], settings=["values"])
def one_hot_9(
    indices: ArrayLike, depth: ArrayLike, values: ArrayLike, /, *, axis: int = -1
) -> Array:
    """``values[1]`` where a new dimension of size ``depth`` meets ``indices``, else ``values[0]``.

    Negative indices are out of range, and so give ``values[0]`` everywhere.

    Raises:
        InvalidModelError: if ``values`` has not two elements.
    """
    return _one_hot(indices, depth, values, axis, from_the_end=False)


def _one_hot(indices: Any, depth: Any, values: Any, axis: int, *, from_the_end: bool) -> Array:
    """One-hot rows, where negative indices count from the end or are out of range."""
    if np.shape(values) != (2,):
        raise InvalidModelError(f"values has shape {list(np.shape(values))}, expected [2]")
    (size,) = as_dims(depth)
    size = int(size) if isinstance(size, np.floating) else size
    m = jnp if shape_is_symbolic((size,)) else xp(indices, values)
    hot, choices = m.asarray(indices), m.asarray(values)
    if jnp.issubdtype(hot.dtype, jnp.floating):
        hot = hot.astype(np.int32)
    hot = m.expand_dims(int32(hot), axis)
    if from_the_end:
        hot = m.where(hot < 0, hot + m.asarray(size, np.int32), hot)
    axis %= hot.ndim
    classes = m.arange(size, dtype=np.int32)
    classes = classes.reshape([-1 if d == axis else 1 for d in range(hot.ndim)])
    return m.where(hot == classes, choices[1], choices[0])


def _diagonals(rows: Any, columns: Any) -> Array:
    """For each entry of a matrix, on which diagonal it lies: 0 is the main, 1 above it."""
    shape = (rows, columns)
    return lax.broadcasted_iota(np.int32, shape, 1) - lax.broadcasted_iota(np.int32, shape, 0)


@register("Trilu", 14)
@moves_words
def trilu(input: ArrayLike, k: ArrayLike | None = None, /, *, upper: int = 1) -> Array:
    """The part of ``[..., n, m]`` matrices on and above (or below) diagonal ``k``, else 0."""
    input = jnp.asarray(input)
    diagonals = _diagonals(*input.shape[-2:])
    limit = int32(jnp.asarray(0 if k is None else k)).reshape(())
    keep = diagonals >= limit if upper else diagonals <= limit
    return jnp.where(keep, input, jnp.zeros_like(input))


@register("EyeLike", 9, 22)
def eye_like(input: ArrayLike, /, *, dtype: int | None = None, k: int = 0) -> Array:
    """A matrix like ``input``, in its dtype if none is given, with ones on diagonal ``k``."""
    input = jnp.asarray(input)
    limit = int32(np.asarray(k, np.int64))
    kind = input.dtype if dtype is None else dtype_of(dtype)
    return (_diagonals(*input.shape) == limit).astype(kind)

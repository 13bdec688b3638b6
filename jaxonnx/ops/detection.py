"""Operators whose number of results depends on values: NonZero, Compress, Unique, boxes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxonnx.known import concrete, xp
from jaxonnx.padded import Padded
from jaxonnx.registry import register

__all__ = ["compress", "non_zero"]


def _bounded_non_zero(x: ArrayLike, /, *, size: int) -> Padded:
    places = jnp.nonzero(jnp.atleast_1d(x), size=size, fill_value=-1)
    return Padded(jnp.stack(places).astype(np.int64), jnp.count_nonzero(x), 1)


@register("NonZero", 9, 13, host=True, bounded=_bounded_non_zero)
def non_zero(x: ArrayLike, /) -> np.ndarray:
    """The positions of the elements that are not zero, a column each: int64[rank, count]."""
    return np.stack(np.nonzero(np.atleast_1d(concrete(x)))).astype(np.int64)


def _bounded_compress(
    input: ArrayLike, condition: ArrayLike, /, *, axis: int | None = None, size: int
) -> Padded:
    data = jnp.asarray(input) if axis is not None else jnp.ravel(input)
    (chosen,) = jnp.nonzero(condition, size=size, fill_value=0)
    along = (axis or 0) % data.ndim
    kept = jnp.take(data, chosen.astype(np.int32), axis=along, mode="clip")
    return Padded(kept, jnp.count_nonzero(condition), along)


@register("Compress", 9, 11, host=True, bounded=_bounded_compress)
def compress(input: ArrayLike, condition: ArrayLike, /, *, axis: int | None = None) -> Array:
    """The slices along ``axis``, or elements of the flattened input, where ``condition`` holds."""
    (chosen,) = np.nonzero(concrete(condition))
    data: Any = input if axis is not None else xp(input).reshape(input, -1)
    return xp(data).take(data, chosen, axis=axis or 0)

"""Operators whose number of results depends on values: NonZero, Compress, Unique, boxes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxonnx.known import concrete, xp
from jaxonnx.registry import register

__all__ = ["compress", "non_zero"]


@register("NonZero", 9, 13, host=True)
def non_zero(x: ArrayLike, /) -> np.ndarray:
    """The positions of the elements that are not zero, a column each: int64[rank, count]."""
    return np.stack(np.nonzero(np.atleast_1d(concrete(x)))).astype(np.int64)


@register("Compress", 9, 11, host=True)
def compress(input: ArrayLike, condition: ArrayLike, /, *, axis: int | None = None) -> Array:
    """The slices along ``axis``, or elements of the flattened input, where ``condition`` holds."""
    (chosen,) = np.nonzero(concrete(condition))
    data: Any = input if axis is not None else xp(input).reshape(input, -1)
    return xp(data).take(data, chosen, axis=axis or 0)

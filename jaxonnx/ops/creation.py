"""Operators that make values from nothing but a shape or a range."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, core, lax
from jax.typing import ArrayLike

from jaxonnx.define.known import (
    LITERAL_BYTES,
    as_dims,
    is_symbolic,
    shape_is_symbolic,
    sure_at_least,
)
from jaxonnx.define.older import older
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops._precision import wide

__all__ = ["constant_of_shape", "range"]


@register("ConstantOfShape", 9, 20, 21, 23, 24, 25, static=["input"], symbolic=True)
def constant_of_shape(input: ArrayLike, /, *, value: np.ndarray | None = None) -> Array:
    """An array of shape ``input`` filled with the one element of ``value``, by default float 0.

    Raises:
        InvalidModelError: if a size is negative, or ``value`` has not one element.
    """
    dims = as_dims(input)
    element = np.zeros(1, np.float32) if value is None else np.asarray(value)
    if element.size != 1:
        raise InvalidModelError(f"value has {element.size} elements, expected 1")
    if not all(sure_at_least(d, 0) for d in dims):
        raise InvalidModelError(f"shape {list(dims)} has a negative size")
    return _module(dims, element.dtype).full(dims, element.reshape(()), element.dtype)


@register(
    "Range",
    27,
    static=["start", "limit", "delta"],
    symbolic=True,
    settings=["start", "limit", "delta"],
)
def range(start: ArrayLike, limit: ArrayLike, delta: ArrayLike, /, *, stash_type: int = 1) -> Array:
    """``start + k * delta`` for every k that stays before ``limit``.

    Half precision is computed in float32, whatever ``stash_type`` names, which is no less exact.

    Raises:
        InvalidModelError: if ``delta`` is 0, or one of the three has not one element.
    """
    del stash_type
    first, last, step = map(_as_number, (start, limit, delta))
    dtype = next(
        (np.asarray(v).dtype for v in (delta, start) if not is_symbolic(v)), np.dtype(np.int64)
    )
    exact = isinstance(first, float)
    if step == 0 if exact else not (sure_at_least(step, 1) or sure_at_least(-1, step)):
        raise InvalidModelError("delta is 0")
    count = math.ceil((last - first) / step) if exact else -(-(last - first) // step)
    count = core.max_dim(count, 0)
    if shape_is_symbolic([first, step, count]):
        return jnp.asarray(first, dtype) + lax.iota(dtype, count) * jnp.asarray(step, dtype)
    work = wide(dtype) if exact else dtype
    module = _module((count,), work)
    steps = module.arange(count).astype(work) * np.asarray(step, work)
    return (np.asarray(first, work) + steps).astype(dtype)


range_11 = older(range, 11)


def _as_number(value: Any) -> Any:
    """The one element of a known array as a Python number or a dimension expression."""
    array = np.asarray(value)
    if array.size != 1:
        raise InvalidModelError(f"a limit of Range has shape {list(array.shape)}, expected []")
    return as_dims(array)[0] if array.dtype.kind in "iuO" else float(array.reshape(()))


def _module(dims: Any, dtype: np.dtype) -> Any:
    """``numpy`` for a small array, ``jax.numpy`` where it is symbolic or would be a big literal."""
    if shape_is_symbolic(dims) or math.prod(dims) * dtype.itemsize > LITERAL_BYTES:
        return jnp
    return np

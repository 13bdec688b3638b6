"""Indices in the form that ``lax`` takes: int32 (see ``CONTRIBUTING.md``), from the front."""

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import core

from jaxonnx.define.known import (
    as_dims,
    is_known,
    is_symbolic,
    same_dim,
    shape_is_symbolic,
    sure_at_least,
    xp,
)
from jaxonnx.errors import InvalidModelError

_FAR = 2**31 - 1


def as_array(x: Any) -> Any:
    """A known value as a NumPy array, any other as a JAX one."""
    return xp(x).asarray(x)


def int32(x: Any) -> Any:
    """Integers as int32, those beyond its range at its ends."""
    info = jnp.iinfo(x.dtype)
    return xp(x).clip(x, max(info.min, -_FAR), min(info.max, _FAR)).astype(np.int32)


def checked(indices: Any, size: Any) -> Any:
    """``indices`` into a dimension, refused if known ones lie outside ``[-size, size)``.

    Raises:
        InvalidModelError: naming one that does.
        StaticValueError: if whether it does depends on a symbolic size.
    """
    if not is_known(indices):
        return indices
    extremes = (indices.min(), indices.max()) if indices.size else ()
    for index in as_dims(indices if is_symbolic(indices) else extremes):
        if not (sure_at_least(size - 1, index) and sure_at_least(index, -size)):
            raise InvalidModelError(f"index {index}, expected one in [{-size}, {size - 1}]")
    return indices


def check_range(values: Any, last: Any, name: str) -> None:
    """Refuse known ``values`` outside ``[0, last]``, as far as a symbolic ``last`` tells.

    What this lets pass is for :func:`outside` to find when the model runs.

    Raises:
        InvalidModelError: naming the values.
    """
    if not is_known(values) or is_symbolic(values) or not values.size:
        return
    low, high = int(values.min()), int(values.max())
    if low < 0 or (not shape_is_symbolic((last,)) and high > last):
        raise InvalidModelError(f"{name} are {values.tolist()}, expected 0 to {last}")


def outside(values: Any, last: Any) -> Any:
    """Which of ``values`` lie outside ``[0, last]``."""
    values = jnp.asarray(int32(as_array(values)))
    return (values < 0) | (values > jnp.asarray(last, np.int32))


def undefined(x: Any, where: Any) -> Any:
    """``x`` with what Gather gives for an index out of range in the places ``where`` is true."""
    if jnp.issubdtype(x.dtype, np.integer):
        info = jnp.iinfo(x.dtype)
        fill = info.min or info.max
    else:
        fill = x.dtype == bool or np.nan
    return jnp.where(where, jnp.asarray(fill, x.dtype), x)


def count_from_front(indices: Any, size: Any) -> Any:
    """Indices into a dimension counted from its front; those out of range lie beyond its end."""
    indices, count = int32(indices), jnp.asarray(size, np.int32)
    places = jnp.where(indices < 0, indices + count, indices)
    outside = (places < 0) | (places >= count)
    return jnp.where(outside, jnp.asarray(core.max_dim(size, 1), np.int32), places)


def with_entries(data: Any, axes: Iterable[int]) -> Any:
    """``data`` with an entry on each of ``axes`` that has none: XLA gathers from none such."""
    empty = {k for k in axes if same_dim(data.shape[k], 0)}
    return jnp.pad(data, [(0, int(k in empty)) for k in range(data.ndim)]) if empty else data

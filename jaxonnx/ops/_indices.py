"""Indices in the form that ``lax`` takes: int32 (see ``CONTRIBUTING.md``), from the front."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxonnx.define.known import xp

_FAR = 2**31 - 1


def as_array(x: Any) -> Any:
    """A known value as a NumPy array, any other as a JAX one."""
    return xp(x).asarray(x)


def int32(x: Any) -> Any:
    """Integers as int32, those beyond its range at its ends."""
    info = jnp.iinfo(x.dtype)
    return xp(x).clip(x, max(info.min, -_FAR), min(info.max, _FAR)).astype(np.int32)


def count_from_front(indices: Any, size: Any) -> Any:
    """Indices into a dimension counted from its front; those out of range stay so."""
    indices, size = int32(indices), jnp.asarray(size, np.int32)
    return jnp.where(indices < 0, indices + size, indices)


def clamp(indices: Any, size: Any) -> Any:
    """Indices into a dimension counted from its front; those out of range at its ends."""
    return jnp.maximum(count_from_front(indices, size), 0)  # gathers clamp the upper end

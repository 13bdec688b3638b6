"""What a computed pixel is stored as."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array


def saturated(x: Array, dtype: Any) -> Array:
    """Floats as ``dtype``; integers take the nearest value they have, at halves the even one."""
    if not jnp.issubdtype(dtype, jnp.integer) or x.dtype == dtype:
        return x.astype(dtype)
    info = jnp.iinfo(dtype)
    high = np.asarray(info.max, x.dtype)
    if int(high) > info.max:  # rounded up to what the integers do not have
        high = np.nextafter(high, np.zeros_like(high))
    return jnp.clip(jnp.round(x), np.asarray(info.min, x.dtype), high).astype(dtype)

"""The precision to compute in where that of a type is too low."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxonnx.define.known import xp

_SINGLE = np.dtype(np.float32)


def widened(x: Any) -> Any:
    """Half precision and less as float32; everything else as it is. Known values stay known."""
    x = xp(x).asarray(x)
    narrow = jnp.issubdtype(x.dtype, np.floating) and x.dtype.itemsize < _SINGLE.itemsize
    return x.astype(_SINGLE) if narrow else x

"""The precision to compute in where that of a type is too low."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxonnx.define.known import xp

_SINGLE = np.dtype(np.float32)


def wide(*dtypes: Any) -> np.dtype:
    """The dtype to compute floats of ``dtypes`` in: single, or double if one of them is that."""
    return functools.reduce(np.promote_types, dtypes, _SINGLE)


def widened(x: Any) -> Any:
    """Half precision and less as float32; everything else as it is. Known values stay known."""
    x = xp(x).asarray(x)
    narrow = jnp.issubdtype(x.dtype, np.floating) and x.dtype.itemsize < _SINGLE.itemsize
    return x.astype(_SINGLE) if narrow else x


def widened_alike(*arrays: Any) -> list[Array]:
    """Floating arrays in one dtype to compute with all of them."""
    given = [*map(jnp.asarray, arrays)]
    dtype = wide(*(a.dtype for a in given))
    return [a.astype(dtype) for a in given]


def work_dtype(dtype: Any) -> np.dtype:
    """The dtype to interpolate in; for large integers it is what JAX has of double."""
    if jnp.issubdtype(dtype, jnp.inexact):
        return wide(dtype)
    return _SINGLE if dtype.itemsize < _SINGLE.itemsize else jnp.result_type(float)

"""Maxima and minima that are NaN where one of their values is."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax


def least(dtype: Any, sign: int = 1) -> np.ndarray:
    """What no value of a type is below, or above for a negative ``sign``."""
    if jnp.issubdtype(dtype, np.bool_):
        return np.array(sign < 0)
    if jnp.issubdtype(dtype, np.integer):
        limits = jnp.iinfo(dtype)
        return np.array(limits.min if sign > 0 else limits.max, dtype)
    return np.array(-sign * np.inf, dtype)


def over(x: Array, sign: int, axes: Sequence[int]) -> Array:
    """:func:`extremum` over ``axes``, which go."""
    return extremum(x, sign, lambda v, initial, pick: lax.reduce(v, initial, pick, tuple(axes)))


def extremum(x: Array, sign: int, reduce: Callable[[Any, Any, Any], Any]) -> Array:
    """The maximum of values for ``sign`` 1, the minimum for -1; NaN if one is.

    Args:
        x: the values.
        sign: 1 or -1.
        reduce: takes operands, initial values and what combines two values, as ``lax.reduce`` and
            ``lax.reduce_window`` do.
    """
    pick = lax.max if sign > 0 else lax.min
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return reduce(x, least(x.dtype, sign), pick)

    # On CPUs XLA's vectorised maximum drops NaN, so that it is looked for in the same pass.
    def combine(a: Any, b: Any) -> Any:
        return pick(a[0], b[0]), lax.bitwise_or(a[1], b[1])

    initial = (least(x.dtype, sign), np.bool_(False))
    value, nan = reduce((x, lax.ne(x, x)), initial, combine)
    return jnp.where(nan, np.nan, value)

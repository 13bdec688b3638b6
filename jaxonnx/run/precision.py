"""Refuses derivatives in double precision that JAX would narrow."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from jaxonnx.errors import PrecisionError


def is_double(value: Any) -> bool:
    """Whether ``value`` is a traced array of double precision."""
    return isinstance(value, jax.Array) and value.dtype == np.float64


@jax.custom_jvp
def _double(x: jax.Array) -> jax.Array:
    return x


def _refuse_double(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    if isinstance(dx, SymbolicZero):  # not on a differentiated path
        return x, dx
    raise PrecisionError(
        "the model computes in double precision on a differentiated path, and JAX would narrow its "
        "derivative; put `with jax.enable_x64(True):` around the outermost call"
    )


_double.defjvp(_refuse_double, symbolic_zeros=True)


def guard_double(value: Any) -> Any:
    """``value``, of which the derivative is refused if it is traced and has one.

    JAX's transposition rules run after the scope of x64 has closed and may compute in float32.

    Raises:
        PrecisionError: when the derivative is taken.
    """
    traced = isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jnp.inexact)
    return _double(value) if traced else value

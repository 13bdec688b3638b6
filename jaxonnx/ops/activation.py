"""Activation functions, each with its derivative at the kink."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxonnx.errors import InvalidModelError
from jaxonnx.kinks import kink
from jaxonnx.registry import register

__all__ = ["elu", "leaky_relu", "relu"]


@register("Relu", 1, 6, 13, 14)
@kink(lambda dx, x: jnp.where(x > 0, dx, 0))
def relu(x: ArrayLike, /) -> Array:
    """``max(x, 0)``. Derivative at 0: 0."""
    return jnp.maximum(x, 0)


@register("LeakyRelu", 1, 6, 16)
@kink(lambda dx, x, *, alpha: jnp.where(x > 0, dx, alpha * dx))
def leaky_relu(x: ArrayLike, /, *, alpha: float = 0.01) -> Array:
    """``x`` where positive, else ``alpha * x``. Derivative at 0: ``alpha``."""
    x = jnp.asarray(x)
    return jnp.where(x > 0, x, alpha * x)


def _elu_tangent(dx: Any, x: Any, *, alpha: float) -> Any:
    return jnp.where(x > 0, dx, alpha * jnp.exp(jnp.minimum(x, 0)) * dx)


@register("Elu", 1, 6, 22)
@kink(_elu_tangent)
def elu(x: ArrayLike, /, *, alpha: float = 1.0) -> Array:
    """``x`` where positive, else ``alpha * (exp(x) - 1)``. Derivative at 0: ``alpha``."""
    x = jnp.asarray(x)
    return jnp.where(x > 0, x, alpha * jnp.expm1(jnp.minimum(x, 0)))

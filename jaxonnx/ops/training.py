"""The operators of ONNX's domain ``ai.onnx.preview.training``: derivatives, steps of optimizers.

Each step takes a learning rate, the number of steps taken so far, and then its tensors by kind: all
that are optimized, all their gradients, all of each state. It gives the new tensors and states
likewise.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError

__all__ = ["adagrad", "adam", "gradient", "momentum"]

_DOMAIN = "ai.onnx.preview.training"


@register("Gradient", 1, domain=_DOMAIN)
def gradient(
    *inputs: ArrayLike, xs: Sequence[str], y: str, zs: Sequence[str] | None = None, graph: Any
) -> tuple[Array, ...]:
    """The derivatives of the sum of ``y`` by each of ``xs``.

    ``inputs`` are the values of ``xs`` and then of ``zs``, at which the nodes that compute ``y``
    from them are differentiated: ``graph``. The result is differentiable again.

    Raises:
        InvalidModelError: if the inputs are not one for each name, or those of ``xs`` no floats.
    """
    count, wanted = len(xs), len(xs) + len(zs or ())
    if len(inputs) != wanted:
        raise InvalidModelError(f"{len(inputs)} inputs, expected {wanted} for xs and zs")
    values = [jnp.asarray(v) for v in inputs[:count]]
    for name, value in zip(xs, values, strict=True):
        if not jnp.issubdtype(value.dtype, jnp.inexact):
            raise InvalidModelError(f"{name!r} in xs is {value.dtype}, expected floats")
    result, pull = jax.vjp(lambda *v: graph.traced(*v, *inputs[count:])[0], *values)
    if not (hasattr(result, "dtype") and jnp.issubdtype(result.dtype, jnp.inexact)):
        raise InvalidModelError(f"y {y!r} is no array of floats")
    return pull(jnp.ones_like(result))


@register("Adagrad", 1, domain=_DOMAIN)
def adagrad(
    r: ArrayLike,
    t: ArrayLike,
    /,
    *inputs: ArrayLike,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> tuple[Array, ...]:
    """A step along the gradient over the root of the sum of all squared gradients so far.

    ``inputs`` are tensors, gradients and sums of squared gradients. Duchi et al. 2011,
    https://jmlr.org/papers/v12/duchi11a.html.

    Raises:
        InvalidModelError: if there are not three tensors for each that is optimized.
    """

    def step(x: Array, g: Array, h: Array) -> tuple[Array, Array]:
        rate = _like(r, x) / (1 + _like(t, x) * decay_factor)
        slope = norm_coefficient * x + g
        squares = h + slope * slope
        return x - rate * slope / (jnp.sqrt(squares) + epsilon), squares

    return _each(step, inputs, 3)


@register("Adam", 1, domain=_DOMAIN)
def adam(
    r: ArrayLike,
    t: ArrayLike,
    /,
    *inputs: ArrayLike,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[Array, ...]:
    """A step along the mean gradient over the root of the mean squared gradient.

    ``inputs`` are tensors, gradients, and exponential means of gradients and of their squares. The
    rate is corrected for the means' start at 0 where ``t`` is above 0. Kingma and Ba 2015,
    https://arxiv.org/abs/1412.6980.

    Raises:
        InvalidModelError: if there are not four tensors for each that is optimized.
    """

    def step(x: Array, g: Array, v: Array, h: Array) -> tuple[Array, Array, Array]:
        slope = norm_coefficient * x + g
        mean = alpha * v + (1 - alpha) * slope
        squares = beta * h + (1 - beta) * slope * slope
        steps, rate = _like(t, x), _like(r, x)
        taken = jnp.where(steps > 0, steps, 1)
        corrected = rate * jnp.sqrt(1 - beta**taken) / (1 - alpha**taken)
        rate = jnp.where(steps > 0, corrected, rate)
        moved = x - rate * mean / (jnp.sqrt(squares) + epsilon)
        return (1 - norm_coefficient_post) * moved, mean, squares

    return _each(step, inputs, 4)


@register("Momentum", 1, domain=_DOMAIN)
def momentum(
    r: ArrayLike,
    t: ArrayLike,
    /,
    *inputs: ArrayLike,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> tuple[Array, ...]:
    """A step along a decaying sum of gradients, ``standard`` or ``nesterov``.

    ``inputs`` are tensors, gradients and momenta. The first gradient, where ``t`` is 0, is not
    scaled by ``beta``. Sutskever et al. 2013, https://proceedings.mlr.press/v28/sutskever13.html.

    Raises:
        InvalidModelError: if there are not three tensors for each that is optimized, or for
            another mode.
    """
    if mode not in ("standard", "nesterov"):
        raise InvalidModelError(f"mode is {mode!r}, expected 'standard' or 'nesterov'")

    def step(x: Array, g: Array, v: Array) -> tuple[Array, Array]:
        slope = norm_coefficient * x + g
        gathered = alpha * v + jnp.where(_like(t, x) > 0, beta, 1) * slope
        direction = slope + alpha * gathered if mode == "nesterov" else gathered
        return x - _like(r, x) * direction, gathered

    return _each(step, inputs, 3)


def _like(number: ArrayLike, x: Array) -> Array:
    """A number, which may have an axis, in the dtype of a tensor."""
    return jnp.asarray(number).reshape(()).astype(x.dtype)


def _each(
    step: Callable[..., tuple[Array, ...]], inputs: Sequence[ArrayLike], kinds: int
) -> tuple[Array, ...]:
    """The step of every tensor apart, with the results by kind."""
    if not inputs or len(inputs) % kinds:
        raise InvalidModelError(f"{len(inputs)} tensors, expected a multiple of {kinds}")
    count = len(inputs) // kinds
    arrays: list[Any] = [jnp.asarray(v) for v in inputs]
    for k in range(count):
        shapes = [v.shape for v in arrays[k::count]]
        if any(s != shapes[0] for s in shapes):
            raise InvalidModelError(f"tensor {k} and what belongs to it have shapes {shapes}")
    results = [step(*arrays[k::count]) for k in range(count)]
    return tuple(r for kind in zip(*results, strict=True) for r in kind)

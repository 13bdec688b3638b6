"""Softmax, its logarithm and that of the sum, over any axes and without overflow."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxonnx.define.experimental import times
from jaxonnx.define.kinks import kink
from jaxonnx.define.known import xp

Axes = Sequence[int]


def _shifted(x: Any, axes: Axes) -> tuple[Any, Any]:
    """The maximum over ``axes`` and what lies below it, 0 at the maximum and never above 0.

    On CPUs XLA may compute ``x`` a second time in the difference and round it there in another way:
    where ``x`` is huge, ``x - maximum`` is then a large number of any sign, also at the maximum.
    """
    m = xp(x)
    if m is jnp:
        x = lax.platform_dependent(x, cpu=lax.optimization_barrier, default=lambda v: v)
    top = m.max(x, axis=tuple(axes), keepdims=True, initial=-np.inf)
    return top, m.where(x == top, top - top, m.minimum(x - top, 0))  # inf - inf stays NaN


def _mean(weights: Any, values: Any, axes: Axes) -> Any:
    return jnp.sum(times(weights, values), tuple(axes), keepdims=True)


def _softmax_tangent(dx: Any, x: Any, *, axes: Axes) -> Array:
    y = softmax(x, axes=axes)
    return times(y, dx - _mean(y, dx, axes))


@kink(_softmax_tangent)
def softmax(x: Any, /, *, axes: Axes) -> Any:
    """``exp(x) / sum(exp(x))`` over ``axes``."""
    e = xp(x).exp(_shifted(x, axes)[1])
    return e / e.sum(tuple(axes), keepdims=True)


@kink(lambda dx, x, *, axes: dx - _mean(softmax(x, axes=axes), dx, axes))
def log_softmax(x: Any, /, *, axes: Axes) -> Any:
    """``x - log(sum(exp(x)))`` over ``axes``."""
    m, below = xp(x), _shifted(x, axes)[1]
    return below - m.log(m.exp(below).sum(tuple(axes), keepdims=True))


def _log_sum_exp_tangent(dx: Any, x: Any, *, axes: Axes) -> Array:
    finite = jnp.isfinite(log_sum_exp(x, axes=axes))
    weights = softmax(jnp.where(finite, x, 0), axes=axes)
    return _mean(jnp.where(finite, weights, 0), dx, axes)


@kink(_log_sum_exp_tangent)
def log_sum_exp(x: Any, /, *, axes: Axes) -> Any:
    """``log(sum(exp(x)))`` over ``axes``, which stay as 1; derivative where it is infinite: 0."""
    m = xp(x)
    top, below = _shifted(x, axes)
    finite = m.isfinite(top)
    total = m.exp(m.where(finite, below, x)).sum(tuple(axes), keepdims=True)
    return m.log(total) + m.where(finite, top, 0)

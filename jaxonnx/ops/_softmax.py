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


def _exponentials(x: Any, axes: Axes) -> tuple[Any, Any, Any]:
    """The maximum over ``axes``, what lies below it, and the exponential of that.

    XLA may compute ``x`` twice, for the maximum and for the difference, and round it in two ways.
    Where ``x`` is huge no element then meets the maximum, and all exponentials would be 0. So those
    within rounding of the maximum get the least normal number besides, which is lost in any other.
    """
    m = xp(x)
    if m is jnp:  # where XLA keeps to it, there is one rounding
        x = lax.platform_dependent(x, cpu=lax.optimization_barrier, default=lambda v: v)
    top = m.max(x, axis=tuple(axes), keepdims=True, initial=-np.inf)
    return top, *_below(x, top)


def _below(x: Any, top: Any) -> tuple[Any, Any]:
    """What lies below ``top``, 0 at it and never above 0, and its exponential."""
    m = xp(x)
    below = m.where(x == top, top - top, m.minimum(x - top, 0))  # inf - inf stays NaN
    most = max(4 * float(jnp.finfo(x.dtype).eps), 2.0**-8)  # rounding of long sums included
    near = below >= -most * abs(top)
    return below, m.exp(below) + m.where(near, _least(x), 0)


def _least(x: Any) -> Any:
    return jnp.finfo(x.dtype).tiny.astype(x.dtype)


def _mean(weights: Any, values: Any, axes: Axes) -> Any:
    return jnp.sum(times(weights, values), tuple(axes), keepdims=True)


def _softmax_tangent(dx: Any, x: Any, *, axes: Axes) -> Array:
    y = softmax(x, axes=axes)
    return times(y, dx - _mean(y, dx, axes))


@kink(_softmax_tangent)
def softmax(x: Any, /, *, axes: Axes) -> Any:
    """``exp(x) / sum(exp(x))`` over ``axes``."""
    e = _exponentials(x, axes)[2]
    return e / e.sum(tuple(axes), keepdims=True)


@kink(lambda dx, x, *, axes: dx - _mean(softmax(x, axes=axes), dx, axes))
def log_softmax(x: Any, /, *, axes: Axes) -> Any:
    """``x - log(sum(exp(x)))`` over ``axes``."""
    m, (_, below, e) = xp(x), _exponentials(x, axes)
    total = e.sum(tuple(axes), keepdims=True)
    lost = total < 0.5  # no element met the maximum
    total = m.where(lost, total / _least(x), total)
    return m.where(lost & (e > 0), 0, below) - m.log(total)


def _log_sum_exp_tangent(dx: Any, x: Any, *, axes: Axes) -> Array:
    finite = jnp.isfinite(log_sum_exp(x, axes=axes))
    weights = softmax(jnp.where(finite, x, 0), axes=axes)
    return _mean(jnp.where(finite, weights, 0), dx, axes)


@kink(_log_sum_exp_tangent)
def log_sum_exp(x: Any, /, *, axes: Axes) -> Any:
    """``log(sum(exp(x)))`` over ``axes``, which stay as 1; derivative where it is infinite: 0."""
    m = xp(x)
    top, _, e = _exponentials(x, axes)
    finite = m.isfinite(top)
    total = m.where(finite, e, m.exp(x)).sum(tuple(axes), keepdims=True)
    return m.log(total) + m.where(finite, top, 0)

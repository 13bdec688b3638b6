"""Reductions over axes."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxonnx.define.kinks import kink
from jaxonnx.define.known import as_dims, is_symbolic, maximum, minimum, xp
from jaxonnx.define.registry import register
from jaxonnx.ops import _padding, elementwise
from jaxonnx.ops._axes import all_from_front
from jaxonnx.ops._precision import widened

__all__ = [
    "reduce_l1",
    "reduce_l2",
    "reduce_log_sum",
    "reduce_log_sum_exp",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
    "reduce_sum_square",
]

Axes = Sequence[int] | None


def _reduced(data: Any, axes: Any, noop: int = 0) -> tuple[int, ...]:
    """The axes to reduce, from 0 on; where none are given all of them, or none if ``noop``."""
    given = () if axes is None else as_dims(axes)
    if not given:
        return () if noop else tuple(range(np.ndim(data)))
    return all_from_front(given, np.ndim(data))


def _as_float(data: Any) -> Any:
    """Data in the type to take roots, exponentials and logarithms in."""
    data = widened(data)
    return data.astype(float) if jnp.issubdtype(data.dtype, np.integer) else data


def _as_type_of(result: Any, data: Any) -> Any:
    return result.astype(xp(data).asarray(data).dtype)


def _reduce_dims(combine: Callable[..., Any], data: Any, axes: tuple[int, ...], keep: int) -> Any:
    """Reduce dimension expressions by a function of two arrays of them."""
    front = np.moveaxis(data, axes, range(len(axes)))
    rows = front.reshape(math.prod(front.shape[: len(axes)]), *front.shape[len(axes) :])
    result = functools.reduce(combine, [rows[k : k + 1] for k in range(len(rows))])
    shape = [1 if k in axes else d for k, d in enumerate(data.shape) if keep or k not in axes]
    return result.reshape(shape)


def _sum(data: Any, axes: tuple[int, ...], keepdims: int) -> Any:
    m = xp(data)
    return m.sum(data, axis=axes, dtype=data.dtype, keepdims=bool(keepdims))


def _reduce_sum(data: Any, axes: tuple[int, ...], keepdims: int) -> Any:
    if is_symbolic(data):
        return _reduce_dims(np.add, data, axes, keepdims)
    return _as_type_of(_sum(widened(data), axes, keepdims), data)


@register(
    "ReduceSum", 13, static=["axes"], symbolic=True, padding=_padding.over_zero, searches=True
)
def reduce_sum(
    data: ArrayLike,
    axes: ArrayLike | None = None,
    /,
    *,
    noop_with_empty_axes: int = 0,
    keepdims: int = 1,
) -> Array:
    """The sum over ``axes``; 0 of nothing. Half precision is summed in float32."""
    return _reduce_sum(data, _reduced(data, axes, noop_with_empty_axes), keepdims)


@register("ReduceSum", 1, 11, symbolic=True, padding=_padding.over_zero, searches=True)
def reduce_sum_1(data: ArrayLike, /, *, axes: Axes = None, keepdims: int = 1) -> Array:
    """The sum over ``axes``, all by default."""
    return _reduce_sum(data, _reduced(data, axes), keepdims)


def _reduce_mean(data: Any, axes: tuple[int, ...], keepdims: int) -> Any:
    total = _sum(widened(data), axes, keepdims)
    count = xp(data).asarray(math.prod(np.shape(data)[a] for a in axes)).astype(total.dtype)
    return _as_type_of(elementwise.div(total, count), data)


@register("ReduceMean", 18, static=["axes"], padding=_padding.mean, searches=True)
def reduce_mean(
    data: ArrayLike,
    axes: ArrayLike | None = None,
    /,
    *,
    noop_with_empty_axes: int = 0,
    keepdims: int = 1,
) -> Array:
    """The mean over ``axes``, of integers toward zero; NaN of nothing."""
    return _reduce_mean(data, _reduced(data, axes, noop_with_empty_axes), keepdims)


@register("ReduceMean", 1, 11, 13, padding=_padding.mean, searches=True)
def reduce_mean_1(data: ArrayLike, /, *, axes: Axes = None, keepdims: int = 1) -> Array:
    """The mean over ``axes``, all by default."""
    return _reduce_mean(data, _reduced(data, axes), keepdims)


def _reduce_prod(data: Any, axes: tuple[int, ...], keepdims: int) -> Any:
    if is_symbolic(data):
        return _reduce_dims(np.multiply, data, axes, keepdims)
    work = widened(data)
    product = xp(work).prod(work, axis=axes, dtype=work.dtype, keepdims=bool(keepdims))
    return _as_type_of(product, data)


@register("ReduceProd", 18, static=["axes"], symbolic=True, padding=_padding.over_one)
def reduce_prod(
    data: ArrayLike,
    axes: ArrayLike | None = None,
    /,
    *,
    noop_with_empty_axes: int = 0,
    keepdims: int = 1,
) -> Array:
    """The product over ``axes``; 1 of nothing. Half precision is multiplied in float32."""
    return _reduce_prod(data, _reduced(data, axes, noop_with_empty_axes), keepdims)


@register("ReduceProd", 1, 11, 13, symbolic=True, padding=_padding.over_one)
def reduce_prod_1(data: ArrayLike, /, *, axes: Axes = None, keepdims: int = 1) -> Array:
    """The product over ``axes``, all by default."""
    return _reduce_prod(data, _reduced(data, axes), keepdims)


def _share_ties(dx: Any, x: Any, *, sign: int, axes: tuple[int, ...], keepdims: int) -> Any:
    ties = x == _extremum(x, sign=sign, axes=axes, keepdims=1)
    tangent = widened(dx)
    count = jnp.maximum(_sum(ties.astype(tangent.dtype), axes, 1), 1)
    return _sum(jnp.where(ties, tangent / count, 0), axes, keepdims).astype(x.dtype)


@kink(_share_ties)
def _extremum(x: Any, /, *, sign: int, axes: tuple[int, ...], keepdims: int) -> Any:
    """The maximum for ``sign`` 1, the minimum for -1."""
    if is_symbolic(x):
        return _reduce_dims(maximum if sign > 0 else minimum, x, axes, keepdims)
    m = xp(x)
    data = m.asarray(x)
    reduce = m.max if sign > 0 else m.min
    return reduce(data, axis=axes, keepdims=bool(keepdims), initial=_least(data.dtype, sign))


def _least(dtype: Any, sign: int) -> Any:
    """The least value of a type, or the greatest one for a negative ``sign``."""
    if jnp.issubdtype(dtype, np.bool_):
        return sign < 0
    if jnp.issubdtype(dtype, np.integer):
        return np.array(np.iinfo(dtype).min if sign > 0 else np.iinfo(dtype).max, dtype)
    return -sign * math.inf


@register(
    "ReduceMax", 18, 20, static=["axes"], symbolic=True, padding=_padding.over_lowest, searches=True
)
def reduce_max(
    data: ArrayLike,
    axes: ArrayLike | None = None,
    /,
    *,
    noop_with_empty_axes: int = 0,
    keepdims: int = 1,
) -> Array:
    """The maximum over ``axes``, NaN if one is; of nothing, the least value of the type.

    Derivative at ties: equal shares.
    """
    reduced = _reduced(data, axes, noop_with_empty_axes)
    return _extremum(data, sign=1, axes=reduced, keepdims=keepdims)


@register("ReduceMax", 1, 11, 12, 13, symbolic=True, padding=_padding.over_lowest, searches=True)
def reduce_max_1(data: ArrayLike, /, *, axes: Axes = None, keepdims: int = 1) -> Array:
    """The maximum over ``axes``, all by default. Derivative at ties: equal shares."""
    return _extremum(data, sign=1, axes=_reduced(data, axes), keepdims=keepdims)


@register(
    "ReduceMin",
    18,
    20,
    static=["axes"],
    symbolic=True,
    padding=_padding.over_highest,
    searches=True,
)
def reduce_min(
    data: ArrayLike,
    axes: ArrayLike | None = None,
    /,
    *,
    noop_with_empty_axes: int = 0,
    keepdims: int = 1,
) -> Array:
    """The minimum over ``axes``, NaN if one is; of nothing, the greatest value of the type.

    Derivative at ties: equal shares.
    """
    reduced = _reduced(data, axes, noop_with_empty_axes)
    return _extremum(data, sign=-1, axes=reduced, keepdims=keepdims)


@register("ReduceMin", 1, 11, 12, 13, symbolic=True, padding=_padding.over_highest, searches=True)
def reduce_min_1(data: ArrayLike, /, *, axes: Axes = None, keepdims: int = 1) -> Array:
    """The minimum over ``axes``, all by default. Derivative at ties: equal shares."""
    return _extremum(data, sign=-1, axes=_reduced(data, axes), keepdims=keepdims)


def _reduce_l1(data: Any, axes: tuple[int, ...], keepdims: int) -> Any:
    return _as_type_of(_sum(elementwise.abs(widened(data)), axes, keepdims), data)


@register("ReduceL1", 18, static=["axes"], padding=_padding.over_zero)
def reduce_l1(
    data: ArrayLike,
    axes: ArrayLike | None = None,
    /,
    *,
    noop_with_empty_axes: int = 0,
    keepdims: int = 1,
) -> Array:
    """The sum of absolute values over ``axes``. Derivative at 0: 0."""
    return _reduce_l1(data, _reduced(data, axes, noop_with_empty_axes), keepdims)


@register("ReduceL1", 1, 11, 13, padding=_padding.over_zero)
def reduce_l1_1(data: ArrayLike, /, *, axes: Axes = None, keepdims: int = 1) -> Array:
    """The sum of absolute values over ``axes``, all by default. Derivative at 0: 0."""
    return _reduce_l1(data, _reduced(data, axes), keepdims)


def _norm_tangent(dx: Any, x: Any, *, axes: tuple[int, ...], keepdims: int) -> Any:
    norm = _norm(x, axes=axes, keepdims=1)
    unit = jnp.where(norm > 0, x / jnp.where(norm > 0, norm, 1), 0)
    return _sum(unit * dx, axes, keepdims)


@kink(_norm_tangent)
def _norm(x: Any, /, *, axes: tuple[int, ...], keepdims: int) -> Any:
    return xp(x).sqrt(_sum(x * x, axes, keepdims))


def _reduce_l2(data: Any, axes: tuple[int, ...], keepdims: int) -> Any:
    return _as_type_of(_norm(_as_float(data), axes=axes, keepdims=keepdims), data)


@register("ReduceL2", 18, static=["axes"], padding=_padding.over_zero)
def reduce_l2(
    data: ArrayLike,
    axes: ArrayLike | None = None,
    /,
    *,
    noop_with_empty_axes: int = 0,
    keepdims: int = 1,
) -> Array:
    """The square root of the sum of squares over ``axes``. Derivative at 0: 0."""
    return _reduce_l2(data, _reduced(data, axes, noop_with_empty_axes), keepdims)


@register("ReduceL2", 1, 11, 13, padding=_padding.over_zero)
def reduce_l2_1(data: ArrayLike, /, *, axes: Axes = None, keepdims: int = 1) -> Array:
    """The norm over ``axes``, all by default. Derivative at 0: 0."""
    return _reduce_l2(data, _reduced(data, axes), keepdims)


def _reduce_sum_square(data: Any, axes: tuple[int, ...], keepdims: int) -> Any:
    work = widened(data)
    return _as_type_of(_sum(work * work, axes, keepdims), data)


@register("ReduceSumSquare", 18, static=["axes"], padding=_padding.over_zero)
def reduce_sum_square(
    data: ArrayLike,
    axes: ArrayLike | None = None,
    /,
    *,
    noop_with_empty_axes: int = 0,
    keepdims: int = 1,
) -> Array:
    """The sum of squares over ``axes``."""
    return _reduce_sum_square(data, _reduced(data, axes, noop_with_empty_axes), keepdims)


@register("ReduceSumSquare", 1, 11, 13, padding=_padding.over_zero)
def reduce_sum_square_1(data: ArrayLike, /, *, axes: Axes = None, keepdims: int = 1) -> Array:
    """The sum of squares over ``axes``, all by default."""
    return _reduce_sum_square(data, _reduced(data, axes), keepdims)


def _reduce_log_sum(data: Any, axes: tuple[int, ...], keepdims: int) -> Any:
    return _as_type_of(xp(data).log(_sum(_as_float(data), axes, keepdims)), data)


@register("ReduceLogSum", 18, 28, static=["axes"], padding=_padding.over_zero)
def reduce_log_sum(
    data: ArrayLike,
    axes: ArrayLike | None = None,
    /,
    *,
    noop_with_empty_axes: int = 0,
    keepdims: int = 1,
) -> Array:
    """The logarithm of the sum over ``axes``; minus infinity of nothing."""
    return _reduce_log_sum(data, _reduced(data, axes, noop_with_empty_axes), keepdims)


@register("ReduceLogSum", 1, 11, 13, padding=_padding.over_zero)
def reduce_log_sum_1(data: ArrayLike, /, *, axes: Axes = None, keepdims: int = 1) -> Array:
    """The logarithm of the sum over ``axes``, all by default."""
    return _reduce_log_sum(data, _reduced(data, axes), keepdims)


def _log_sum_exp_tangent(dx: Any, x: Any, *, axes: tuple[int, ...], keepdims: int) -> Any:
    finite = jnp.isfinite(_log_sum_exp(x, axes=axes, keepdims=1))
    weights = jax.nn.softmax(jnp.where(finite, x, 0), axis=axes)
    return _sum(jnp.where(finite, weights, 0) * dx, axes, keepdims)


@kink(_log_sum_exp_tangent)
def _log_sum_exp(x: Any, /, *, axes: tuple[int, ...], keepdims: int) -> Any:
    m = xp(x)
    top = _extremum(x, sign=1, axes=axes, keepdims=1)
    top = m.where(m.isfinite(top), top, 0)
    out = m.log(_sum(m.exp(x - top), axes, 1)) + top
    return out if keepdims else m.squeeze(out, axes)


def _reduce_log_sum_exp(data: Any, axes: tuple[int, ...], keepdims: int) -> Any:
    return _as_type_of(_log_sum_exp(_as_float(data), axes=axes, keepdims=keepdims), data)


@register("ReduceLogSumExp", 18, 28, static=["axes"], padding=_padding.over_lowest)
def reduce_log_sum_exp(
    data: ArrayLike,
    axes: ArrayLike | None = None,
    /,
    *,
    noop_with_empty_axes: int = 0,
    keepdims: int = 1,
) -> Array:
    """The logarithm of the sum of exponentials over ``axes``, computed without overflow.

    Minus infinity of nothing. Derivative where the result is infinite: 0.
    """
    return _reduce_log_sum_exp(data, _reduced(data, axes, noop_with_empty_axes), keepdims)


@register("ReduceLogSumExp", 1, 11, 13, padding=_padding.over_lowest)
def reduce_log_sum_exp_1(data: ArrayLike, /, *, axes: Axes = None, keepdims: int = 1) -> Array:
    """The logarithm of the sum of exponentials over ``axes``, all by default."""
    return _reduce_log_sum_exp(data, _reduced(data, axes), keepdims)

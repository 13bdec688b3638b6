"""Reductions over axes."""

import functools
import math
from collections.abc import Callable
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.convention import convention
from jaxonnx.define.kinks import kink
from jaxonnx.define.known import as_dims, is_symbolic, maximum, minimum, xp
from jaxonnx.define.older import older
from jaxonnx.define.registry import register
from jaxonnx.ops import _padding, elementwise
from jaxonnx.ops._axes import all_from_front
from jaxonnx.ops._extremum import least, over
from jaxonnx.ops._precision import widened
from jaxonnx.ops._softmax import log_sum_exp
from jaxonnx.ops.transcendental import log

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

Axes = tuple[int, ...]


class Reduction(Protocol):
    """A reduction as an operator."""

    __name__: str

    def __call__(
        self,
        data: ArrayLike,
        axes: ArrayLike | None = None,
        /,
        *,
        noop_with_empty_axes: int = 0,
        keepdims: int = 1,
    ) -> Array: ...


def _reduction(
    op_type: str, *versions: int, **traits: Any
) -> Callable[[Callable[[Any, Axes, int], Any]], Reduction]:
    """Make an operator of a function of data, the axes counted from 0, and ``keepdims``."""

    def decorate(compute: Callable[[Any, Axes, int], Any]) -> Reduction:
        def reduction(
            data: ArrayLike,
            axes: ArrayLike | None = None,
            /,
            *,
            noop_with_empty_axes: int = 0,
            keepdims: int = 1,
        ) -> Array:
            return compute(data, _reduced(data, axes, noop_with_empty_axes), keepdims)

        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(reduction, name, getattr(compute, name))
        return register(op_type, *versions, static=["axes"], **traits)(reduction)

    return decorate


def _reduced(data: Any, axes: Any, noop: int) -> Axes:
    """The axes to reduce; where none are given all of them, or none if ``noop``."""
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


@_reduction("ReduceSum", 13, symbolic=True, padding=_padding.over_zero, searches=True)
def reduce_sum(data: Any, axes: Axes, keepdims: int) -> Any:
    """The sum over ``axes``; 0 of nothing. Half precision is summed in float32."""
    if is_symbolic(data):
        return _reduce_dims(np.add, data, axes, keepdims)
    return _as_type_of(_sum(widened(data), axes, keepdims), data)


@_reduction("ReduceMean", 18, padding=_padding.mean, searches=True)
def reduce_mean(data: Any, axes: Axes, keepdims: int) -> Any:
    """The mean over ``axes``, of integers toward zero; NaN of nothing."""
    total = _sum(widened(data), axes, keepdims)
    count = xp(data).asarray(math.prod(np.shape(data)[a] for a in axes)).astype(total.dtype)
    return _as_type_of(elementwise.div(total, count), data)


@_reduction("ReduceProd", 18, symbolic=True, padding=_padding.over_one)
def reduce_prod(data: Any, axes: Axes, keepdims: int) -> Any:
    """The product over ``axes``; 1 of nothing. Half precision is multiplied in float32."""
    if is_symbolic(data):
        return _reduce_dims(np.multiply, data, axes, keepdims)
    work = widened(data)
    product = xp(work).prod(work, axis=axes, dtype=work.dtype, keepdims=bool(keepdims))
    return _as_type_of(product, data)


def _share_ties(dx: Any, x: Any, *, sign: int, axes: Axes) -> Any:
    ties = x == _extremum(x, sign=sign, axes=axes)
    if convention().max == "first":
        ties &= _is_first(ties, axes)
    tangent = widened(dx)
    count = jnp.maximum(_sum(ties.astype(tangent.dtype), axes, 1), 1)
    return _sum(jnp.where(ties, tangent / count, 0), axes, 1).astype(x.dtype)


def _is_first(ties: Any, axes: Axes) -> Any:
    """Whether none comes before it over ``axes``, in row-major order."""
    flat = lax.collapse(jnp.moveaxis(ties, axes, range(len(axes))), 0, len(axes))
    count = jnp.cumsum(flat, axis=0, dtype=np.int32)
    shape = [ties.shape[a] for a in axes]
    rest = [d for k, d in enumerate(ties.shape) if k not in axes]
    return jnp.moveaxis((count == 1).reshape(*shape, *rest), range(len(axes)), axes)


@kink(_share_ties)
def _extremum(x: Any, /, *, sign: int, axes: Axes) -> Any:
    """The maximum for ``sign`` 1, the minimum for -1; the axes stay as 1."""
    if is_symbolic(x):
        return _reduce_dims(maximum if sign > 0 else minimum, x, axes, 1)
    if xp(x) is np:
        reduce: Any = np.max if sign > 0 else np.min
        return reduce(x, axis=axes, keepdims=True, initial=least(x.dtype, sign))
    return jnp.expand_dims(over(x, sign, axes), axes)


def _extreme(data: Any, sign: int, axes: Axes, keepdims: int) -> Any:
    out = _extremum(xp(data).asarray(data), sign=sign, axes=axes)
    return out if keepdims else xp(out).squeeze(out, axes)


@_reduction("ReduceMax", 18, 20, symbolic=True, padding=_padding.over_lowest, searches=True)
def reduce_max(data: Any, axes: Axes, keepdims: int) -> Any:
    """The maximum over ``axes``, NaN if one is; of nothing, the least value of the type.

    Derivative at ties: equal shares.
    """
    return _extreme(data, 1, axes, keepdims)


@_reduction("ReduceMin", 18, 20, symbolic=True, padding=_padding.over_highest, searches=True)
def reduce_min(data: Any, axes: Axes, keepdims: int) -> Any:
    """The minimum over ``axes``, NaN if one is; of nothing, the greatest value of the type.

    Derivative at ties: equal shares.
    """
    return _extreme(data, -1, axes, keepdims)


@_reduction("ReduceL1", 18, padding=_padding.over_zero)
def reduce_l1(data: Any, axes: Axes, keepdims: int) -> Any:
    """The sum of absolute values over ``axes``. Derivative at 0: 0."""
    return _as_type_of(_sum(elementwise.abs(widened(data)), axes, keepdims), data)


def _norm_tangent(dx: Any, x: Any, *, axes: Axes, keepdims: int) -> Any:
    norm = _norm(x, axes=axes, keepdims=1)
    moves = (norm > 0) & jnp.isfinite(norm)
    unit = jnp.where(moves, x / jnp.where(moves, norm, 1), 0)
    return _sum(unit * dx, axes, keepdims)


@kink(_norm_tangent)
def _norm(x: Any, /, *, axes: Axes, keepdims: int) -> Any:
    return xp(x).sqrt(_sum(x * x, axes, keepdims))


@_reduction("ReduceL2", 18, padding=_padding.over_zero)
def reduce_l2(data: Any, axes: Axes, keepdims: int) -> Any:
    """The square root of the sum of squares over ``axes``. Derivative at 0 and infinity: 0."""
    return _as_type_of(_norm(_as_float(data), axes=axes, keepdims=keepdims), data)


@_reduction("ReduceSumSquare", 18, padding=_padding.over_zero)
def reduce_sum_square(data: Any, axes: Axes, keepdims: int) -> Any:
    """The sum of squares over ``axes``."""
    work = widened(data)
    return _as_type_of(_sum(work * work, axes, keepdims), data)


@_reduction("ReduceLogSum", 18, 28, padding=_padding.over_zero)
def reduce_log_sum(data: Any, axes: Axes, keepdims: int) -> Any:
    """The logarithm of the sum over ``axes``; minus infinity of nothing."""
    return _as_type_of(log(_sum(_as_float(data), axes, keepdims)), data)


@_reduction("ReduceLogSumExp", 18, 28, padding=_padding.over_lowest)
def reduce_log_sum_exp(data: Any, axes: Axes, keepdims: int) -> Any:
    """The logarithm of the sum of exponentials over ``axes``, computed without overflow.

    Minus infinity of nothing. Derivative where the result is infinite: 0.
    """
    out = log_sum_exp(_as_float(data), axes=axes)
    return _as_type_of(out if keepdims else xp(out).squeeze(out, axes), data)


reduce_sum_1 = older(reduce_sum, 1, 11)
reduce_mean_1 = older(reduce_mean, 1, 11, 13)
reduce_prod_1 = older(reduce_prod, 1, 11, 13)
reduce_max_1 = older(reduce_max, 1, 11, 12, 13)
reduce_min_1 = older(reduce_min, 1, 11, 12, 13)
reduce_l1_1 = older(reduce_l1, 1, 11, 13)
reduce_l2_1 = older(reduce_l2, 1, 11, 13)
reduce_sum_square_1 = older(reduce_sum_square, 1, 11, 13)
reduce_log_sum_1 = older(reduce_log_sum, 1, 11, 13)
reduce_log_sum_exp_1 = older(reduce_log_sum_exp, 1, 11, 13)

"""Operators that cut a dimension into parts."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, core, lax
from jax.typing import ArrayLike

from jaxonnx.define.known import (
    as_dims,
    lift,
    same_dim,
    shape_is_symbolic,
    sure_at_least,
    sure_equal,
    xp,
)
from jaxonnx.define.older import older
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops import _padding
from jaxonnx.ops._axes import all_from_front, from_front

__all__ = ["slice", "split"]

_FAR = 2**31 - 1
"""Exporters write this or more (or less than its negative) for "to the end"."""

_FARTHEST_STEP = 2**30
"""A step beyond it could overflow the int32 in which exported programs compute sizes."""


@register(
    "Slice",
    10,
    11,
    13,
    static=["starts", "ends", "axes", "steps"],
    symbolic=True,
    padding=_padding.slice,
    moves=True,
)
def slice(
    data: ArrayLike,
    starts: ArrayLike,
    ends: ArrayLike,
    axes: ArrayLike | None = None,
    steps: ArrayLike | None = None,
    /,
) -> Array:
    """``data[start:end:step]`` on each of ``axes``, by default the first ones.

    Negative positions count from the end, positions beyond a side are clamped, and a negative step
    goes backward.

    Raises:
        InvalidModelError: if the operands differ in length, an axis does not exist or repeats, or
            a step is 0.
    """
    rank = np.ndim(data)
    firsts, lasts = as_dims(starts), as_dims(ends)
    chosen = range(len(firsts)) if axes is None else all_from_front(as_dims(axes), rank)
    strides = (1,) * len(firsts) if steps is None else as_dims(steps)
    if not len(firsts) == len(lasts) == len(chosen) == len(strides):
        raise InvalidModelError(
            f"{len(firsts)} starts, {len(lasts)} ends, {len(chosen)} axes and {len(strides)} steps"
        )
    result: Any = data
    for axis, first, last, step in zip(chosen, firsts, lasts, strides, strict=True):
        result = _slice_axis(result, axis, first, last, step)
    return result


slice_1 = older(slice, 1)


def _slice_axis(data: Any, axis: int, first: Any, last: Any, step: Any) -> Any:
    """One axis sliced; where the step is negative the axis is reversed first."""
    count = data.shape[axis]
    if sure_at_least(step, 1):
        first, last = _position(first, count, count), _position(last, count, count)
    elif not sure_at_least(-1, step):
        raise InvalidModelError("a step of Slice is 0")
    else:
        data = xp(data).flip(data, axis)
        first = _position(first, count, count - 1)
        last = _position(last, count, count - 1, least=-1)
        first, last, step = count - 1 - first, count - 1 - last, -step
    last = core.max_dim(first, last)
    most = max(count, 1) if isinstance(count, int) else _FARTHEST_STEP
    step = min(step, most) if isinstance(step, int) else step
    if not shape_is_symbolic([first, last, step]) and not isinstance(data, jax.Array):
        return data[(np.s_[:],) * axis + (np.s_[first:last:step],)]
    data = lift(data) if isinstance(data, np.ndarray) else data
    sure_at_least(count, last)
    if not shape_is_symbolic([step]):
        return lax.slice_in_dim(data, first, last, step, axis)
    taken = (last - first + step - 1) // step
    places = jnp.asarray(first, np.int32) + lax.iota(np.int32, taken) * jnp.asarray(step, np.int32)
    return jnp.take(data, places, axis=axis, mode="clip")


def _position(value: Any, count: Any, most: Any, least: int = 0) -> Any:
    """A start or end as a position between ``least`` and ``most``."""
    if isinstance(value, int):
        if value >= _FAR:
            return most
        if value <= -_FAR:
            return least
    value = value if sure_at_least(value, 0) else value + count
    return core.min_dim(core.max_dim(value, least), most)


@register("Split", 18, static=["split"], symbolic=True, moves=True)
def split(
    input: ArrayLike,
    split: ArrayLike | None = None,
    /,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    outputs: int | None = None,
) -> tuple[Array, ...]:
    """Cut along ``axis`` into the sizes ``split`` or into ``num_outputs`` parts.

    The parts are equal but for the last, which is smaller where the size is no multiple.

    Raises:
        InvalidModelError: if both or neither is given, or the sizes do not add up, or there are not
            as many as ``outputs``, or nothing is left for a part before the last.
    """
    if (split is None) == (num_outputs is None):
        raise InvalidModelError("exactly one of the input split and num_outputs is to be given")
    if num_outputs is None:
        return _cut(input, as_dims(split), axis, outputs)
    count = np.shape(input)[from_front(axis, np.ndim(input))]
    if num_outputs < 1:
        raise InvalidModelError(f"num_outputs is {num_outputs}, expected at least 1")
    even = same_dim(count % num_outputs, 0)
    part = count // num_outputs if even else -(-count // num_outputs)
    rest = count - part * (num_outputs - 1)
    if not sure_at_least(rest, 0):
        raise InvalidModelError(f"size {count} gives fewer than {num_outputs} parts of {part}")
    return _cut(input, (part,) * (num_outputs - 1) + (rest,), axis, outputs)


@register("Split", 13, static=["split"], symbolic=True, moves=True)
def split_13(
    input: ArrayLike, split: ArrayLike | None = None, /, *, axis: int = 0, outputs: int
) -> tuple[Array, ...]:
    """Cut along ``axis`` into the sizes ``split``, by default equal parts.

    Raises:
        InvalidModelError: if the sizes do not add up, or there are no equal parts.
    """
    sizes = _equal_parts(input, axis, outputs) if split is None else as_dims(split)
    return _cut(input, sizes, axis, outputs)


split_2 = older(split_13, 2, 11, convert={"split": lambda sizes: sizes or None})


@register("Split", 1, static=["split_"], symbolic=True, moves=True)
def split_1(
    input: ArrayLike,
    split_: ArrayLike | None = None,
    /,
    *,
    axis: int | None = None,
    split: Sequence[int] | None = None,
    outputs: int,
) -> tuple[Array, ...]:
    """Cut along ``axis`` into sizes given as attribute or input, by default equal parts."""
    given = np.array(split) if split else split_
    return split_13(input, given, axis=axis or 0, outputs=outputs)


def _equal_parts(input: Any, axis: int, outputs: int) -> tuple[Any, ...]:
    count = np.shape(input)[from_front(axis, np.ndim(input))]
    if not sure_equal(count % outputs, 0):
        raise InvalidModelError(f"size {count} of axis {axis} is no multiple of {outputs} outputs")
    return (count // outputs,) * outputs


def _cut(input: Any, sizes: Sequence[Any], axis: int, outputs: int | None) -> tuple[Any, ...]:
    """Consecutive parts of the given sizes, one for each output."""
    axis = from_front(axis, np.ndim(input))
    count = np.shape(input)[axis]
    if outputs not in (None, len(sizes)):
        raise InvalidModelError(f"sizes {list(sizes)} for {outputs} outputs")
    if not all(sure_at_least(s, 0) for s in sizes):
        raise InvalidModelError(f"sizes are {list(sizes)}, expected none below 0")
    if not sure_equal(sum(sizes), count):
        raise InvalidModelError(f"sizes {list(sizes)} do not add up to {count}, axis {axis}")
    ends = [sum(sizes[: k + 1]) for k in range(len(sizes))]
    if isinstance(input, np.ndarray) and shape_is_symbolic(ends):
        input = lift(input)
    if isinstance(input, np.ndarray):
        return tuple(np.split(input, ends[:-1], axis))
    starts = [0, *ends[:-1]]
    return tuple(
        lax.slice_in_dim(jnp.asarray(input), a, b, 1, axis)
        for a, b in zip(starts, ends, strict=True)
    )

"""Padding and cropping."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, core, lax
from jax.typing import ArrayLike

from jaxonnx.define.known import as_dims, dimensions, lift, same_dim, shape_is_symbolic
from jaxonnx.define.older import older
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops._axes import all_from_front
from jaxonnx.ops._words import moves_words

__all__ = ["center_crop_pad", "pad"]

_MODES = ("constant", "reflect", "edge", "wrap")


@register("Pad", 18, 19, 21, 23, 24, 25, static=["pads", "axes"], settings=["constant_value"])
@moves_words
def pad(
    data: ArrayLike,
    pads: ArrayLike,
    constant_value: ArrayLike | None = None,
    axes: ArrayLike | None = None,
    /,
    *,
    mode: str = "constant",
) -> Array:
    """``data`` grown by ``pads`` at the beginnings of ``axes``, then at their ends.

    Negative pads crop, before the others pad. What is added is ``constant_value`` (0 if absent),
    a ``reflect``-ion about the border entries that is repeated as often as needed, the border
    entry itself (``edge``) or the other end (``wrap``).

    Raises:
        InvalidModelError: for a wrong number of pads, an unknown mode, an axis that does not exist
            or repeats, or one of size 0 that is to grow from its own entries.
    """
    result, amounts = jnp.asarray(data), as_dims(pads)
    chosen = range(result.ndim) if axes is None else all_from_front(as_dims(axes), result.ndim)
    if len(amounts) != 2 * len(chosen):
        raise InvalidModelError(
            f"pads has {len(amounts)} entries, expected 2 for each of {len(chosen)} axes"
        )
    if mode not in _MODES:
        raise InvalidModelError(f"mode {mode!r}, expected one of {', '.join(_MODES)}")
    before: list[Any] = [0] * result.ndim
    after: list[Any] = [0] * result.ndim
    for k, axis in enumerate(chosen):
        before[axis], after[axis] = amounts[k], amounts[len(chosen) + k]
    if mode == "constant":
        fill = 0 if constant_value is None else constant_value
        return _pad_constant(result, before, after, jnp.asarray(fill, result.dtype).reshape(()))
    cropped = [[core.min_dim(n, 0) for n in side] for side in (before, after)]
    result = _pad_constant(result, cropped[0], cropped[1], jnp.zeros((), result.dtype))
    for axis in range(result.ndim):
        grown = core.max_dim(before[axis], 0), core.max_dim(after[axis], 0)
        result = _pad_from_within(result, axis, *grown, mode)
    return result


def _pad_constant(data: Array, before: Sequence[Any], after: Sequence[Any], fill: Array) -> Array:
    if all(same_dim(n, 0) for n in (*before, *after)):
        return data
    return lax.pad(data, fill, [(b, a, 0) for b, a in zip(before, after, strict=True)])


def _pad_from_within(data: Array, axis: int, before: Any, after: Any, mode: str) -> Array:
    size = data.shape[axis]
    if same_dim(before, 0) and same_dim(after, 0):
        return data
    if same_dim(size, 0):
        raise InvalidModelError(f"axis {axis} has size 0, so {mode!r} has nothing to pad it with")
    if not shape_is_symbolic((before, after) if mode == "edge" else (before, after, size)):
        width = [(0, 0)] * data.ndim
        width[axis] = (before, after)
        return jnp.pad(data, width, mode=mode)  # pyright: ignore[reportArgumentType]
    # Which entries are added is computed when the program runs, since the sizes are symbolic.
    count, shift = lift(dimensions((size, before)), np.int32)
    first = _entries(lax.iota(np.int32, before) - shift, count, mode)
    last = _entries(lax.iota(np.int32, after) + count, count, mode)
    left, right = (jnp.take(data, e, axis, mode="clip") for e in (first, last))
    return lax.concatenate([left, data, right], axis)


def _entries(places: Array, count: Array, mode: str) -> Array:
    """The entries of an axis with ``count`` that stand at ``places`` outside of it."""
    if mode == "edge":
        return jnp.clip(places, 0, count - 1)
    period = jnp.maximum(2 * (count - 1), 1) if mode == "reflect" else count
    within = places % period
    return jnp.minimum(within, period - within) if mode == "reflect" else within


pad_11 = older(pad, 11, 13)


def _amounts(data: Any, /, *, pads: Sequence[int], value: float = 0.0) -> tuple[Any, ...]:
    return data, np.array(pads, np.int64), value


pad_2 = older(pad, 2, inputs=_amounts)


def _paddings(data: Any, /, *, paddings: Sequence[int], value: float = 0.0) -> tuple[Any, ...]:
    return _amounts(data, pads=paddings, value=value)


pad_1 = older(pad, 1, inputs=_paddings)


@register("CenterCropPad", 18, static=["shape"])
@moves_words
def center_crop_pad(
    input_data: ArrayLike, shape: ArrayLike, /, *, axes: Sequence[int] | None = None
) -> Array:
    """The center of ``input_data``, cropped or padded with 0 to ``shape`` along ``axes``.

    The odd entry is cropped from the end, and padded at the end.

    Raises:
        InvalidModelError: if an axis does not exist or repeats, or ``shape`` has not one element
            for each.
    """
    data, targets = jnp.asarray(input_data), as_dims(shape)
    chosen = range(data.ndim) if axes is None else all_from_front(axes, data.ndim)
    if len(targets) != len(chosen):
        raise InvalidModelError(f"shape has {len(targets)} entries, expected {len(chosen)}")
    before: list[Any] = [0] * data.ndim
    after: list[Any] = [0] * data.ndim
    for axis, target in zip(chosen, targets, strict=True):
        growth = target - data.shape[axis]
        grown, cropped = core.max_dim(growth, 0), core.max_dim(-growth, 0)
        before[axis] = grown // 2 - cropped // 2
        after[axis] = growth - before[axis]
    return _pad_constant(data, before, after, jnp.zeros((), data.dtype))

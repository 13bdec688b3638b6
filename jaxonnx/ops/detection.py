"""Operators whose number of results depends on values: NonZero, Compress, Unique, boxes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.known import concrete, shape_is_symbolic, xp
from jaxonnx.define.padded import Padded
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops._axes import from_front

__all__ = ["compress", "non_max_suppression", "non_zero", "unique"]


def _bounded_non_zero(x: ArrayLike, /, *, size: int) -> Padded:
    places = jnp.nonzero(jnp.atleast_1d(x), size=size, fill_value=-1)
    stacked = jnp.stack(places).astype(np.int64)[: np.ndim(x)]
    return Padded(stacked, jnp.count_nonzero(x), 1)


@register("NonZero", 9, 13, host=True, bounded=_bounded_non_zero)
def non_zero(x: ArrayLike, /) -> np.ndarray:
    """The positions of the elements that are not zero, a column each: int64[rank, count]."""
    x = concrete(x)
    return np.stack(np.nonzero(np.atleast_1d(x))).astype(np.int64)[: x.ndim]


def _bounded_compress(
    input: ArrayLike, condition: ArrayLike, /, *, axis: int | None = None, size: int
) -> Padded:
    data = jnp.asarray(input) if axis is not None else jnp.ravel(input)
    along = from_front(axis or 0, data.ndim)
    _check_length(condition, data.shape[along])
    (chosen,) = jnp.nonzero(condition, size=size, fill_value=0)
    kept = _slices(data, chosen, along)
    return Padded(kept, jnp.count_nonzero(condition), along)


@register("Compress", 9, 11, 28, host=True, bounded=_bounded_compress)
def compress(input: ArrayLike, condition: ArrayLike, /, *, axis: int | None = None) -> Array:
    """The slices along ``axis``, or elements of the flattened input, where ``condition`` holds.

    What ``condition`` is too short for is left out.

    Raises:
        InvalidModelError: if it is longer than what it chooses from.
    """
    data: Any = input if axis is not None else xp(input).reshape(input, -1)
    along = from_front(axis or 0, data.ndim)
    _check_length(condition, data.shape[along])
    (chosen,) = np.nonzero(concrete(condition))
    return xp(data).take(data, chosen.astype(np.int32), axis=along)


def _check_length(condition: ArrayLike, count: Any) -> None:
    """Refuse a condition that is longer than what it chooses from."""
    length = np.shape(condition)[0] if np.ndim(condition) == 1 else None
    if length is None:
        raise InvalidModelError(f"condition has rank {np.ndim(condition)}, expected 1")
    if not shape_is_symbolic((length, count)) and length > count:
        raise InvalidModelError(f"condition has length {length}, expected at most {count}")


def _slices(data: Any, places: Any, axis: int) -> Any:
    """The slices at ``places``, the last one beyond it; zeros where there is none at all."""
    if data.shape[axis] == 0:
        return jnp.zeros((*data.shape[:axis], *places.shape, *data.shape[axis + 1 :]), data.dtype)
    return jnp.take(data, places.astype(np.int32), axis=axis, mode="clip")


def _bounded_unique(
    x: ArrayLike, /, *, axis: int | None = None, sorted: int = 1, outputs: int = 1, size: int
) -> Any:
    data = jnp.asarray(x) if axis is not None else jnp.ravel(x)
    along = from_front(axis or 0, data.ndim)
    n = data.shape[along]
    _, first, inverse, counts = jnp.unique(data, True, True, True, axis=along, size=n)
    count = jnp.count_nonzero(counts).astype(np.int32)
    if not sorted:
        order = jnp.argsort(jnp.where(counts > 0, first, n)).astype(np.int32)
        first, counts, inverse = first[order], counts[order], jnp.argsort(order)[inverse]
    places = jnp.arange(size, dtype=np.int32)
    first, counts = (_slices(v, places, 0) for v in (first, counts))
    results = (
        Padded(_slices(data, first, along), count, along),
        Padded(jnp.where(places < count, first, -1).astype(np.int64), count, 0),
        inverse.reshape(-1).astype(np.int64),
        Padded(jnp.where(places < count, counts, -1).astype(np.int64), count, 0),
    )
    return results[:outputs]


@register("Unique", 11, 28, host=True, bounded=_bounded_unique)
def unique(x: ArrayLike, /, *, axis: int | None = None, sorted: int = 1, outputs: int = 1) -> Any:
    """The different elements of the flattened input, or slices along ``axis``, each once.

    In ascending order (NaN last, and one), or without ``sorted`` in that of their first occurrence.
    Further outputs are the positions of the first occurrences, for each element or slice its
    position among the results, and how often each occurs. Derivatives go to the first occurrence.
    """
    value = concrete(x)
    data: Any = x if axis is not None else xp(x).reshape(x, -1)
    along = axis or 0
    # Numbers instead of the elements, which may be strings: slices are compared as rows of them.
    _, codes = np.unique(value, return_inverse=True)
    rest = data.size // data.shape[along] if data.size else 0
    rows = np.moveaxis(codes.reshape(data.shape), along, 0).reshape(data.shape[along], rest)
    _, first, inverse, counts = np.unique(rows, True, True, True, axis=0)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    found = xp(data).take(data, first.astype(np.int32), axis=along)
    results = (found, *(v.astype(np.int64) for v in (first, inverse, counts)))
    return results[:outputs] if outputs > 1 else found


def _bounded_non_max_suppression(
    boxes: ArrayLike,
    scores: ArrayLike,
    max_output_boxes_per_class: ArrayLike | None = None,
    iou_threshold: ArrayLike | None = None,
    score_threshold: ArrayLike | None = None,
    /,
    *,
    center_point_box: int = 0,
    size: int,
) -> Padded:
    boxes, scores = (lax.stop_gradient(jnp.asarray(v)) for v in (boxes, scores))
    sides, n = _corners(boxes, center_point_box), boxes.shape[1]
    if n == 0:
        return Padded(jnp.full((size, 3), -1, np.int64), jnp.asarray(0), 0)
    limit, overlap, least = (
        None if v is None else jnp.reshape(jnp.asarray(v), ())
        for v in (max_output_boxes_per_class, iou_threshold, score_threshold)
    )
    allowed = jnp.ones(scores.shape, bool) if least is None else scores > least
    limit = np.asarray(0, np.int32) if limit is None else limit
    overlap = np.float32(0) if overlap is None else overlap

    def select(sides: Any, scores: Any, left: Any) -> Any:
        def step(state: Any, number: Any) -> Any:
            left = state
            best = lax.argmax(jnp.where(left, scores, -np.inf), 0, np.int32)
            best = jnp.where(left[best], best, lax.argmax(left, 0, np.int32))
            found = left[best] & (number < limit)
            apart = ~(_overlaps(sides[best], sides) > overlap)
            left = left & apart & (jnp.arange(n, dtype=np.int32) != best)
            return jnp.where(found, left, False), jnp.where(found, best, -1)

        return lax.scan(step, left, jnp.arange(min(n, size + 1), dtype=limit.dtype))[1]

    over_classes = jax.vmap(select, in_axes=(None, 0, 0))
    chosen = jax.vmap(over_classes)(sides, scores, allowed)
    places = jnp.nonzero(chosen >= 0, size=size, fill_value=-1)
    batch, label, rank = (p.astype(np.int32) for p in places)
    box = jnp.where(batch < 0, -1, chosen[batch, label, rank])
    rows = jnp.stack([batch, label, box], axis=1).astype(np.int64)
    return Padded(rows, jnp.count_nonzero(chosen >= 0), 0)


@register(
    "NonMaxSuppression",
    10,
    11,
    host=True,
    bounded=_bounded_non_max_suppression,
    settings=["iou_threshold", "score_threshold"],
)
def non_max_suppression(
    boxes: ArrayLike,
    scores: ArrayLike,
    max_output_boxes_per_class: ArrayLike | None = None,
    iou_threshold: ArrayLike | None = None,
    score_threshold: ArrayLike | None = None,
    /,
    *,
    center_point_box: int = 0,
) -> np.ndarray:
    """Indices (batch, class, box) of the boxes that overlap no better one: int64[count, 3].

    Each class of each batch by itself: boxes by falling score, the first of equal ones first, are
    taken unless their intersection over union with one taken before is above ``iou_threshold``
    (0), until there are ``max_output_boxes_per_class`` (0). A box needs a score above
    ``score_threshold``, if that is given: the text removes only scores below it, but onnxruntime
    and ONNX's reference agree on those equal to it, too. ``boxes`` are two opposite corners
    (y, x, y, x), or with ``center_point_box`` (x, y, width, height) around a centre.

    Raises:
        InvalidModelError: if the shapes do not fit each other.
    """
    boxes, scores = concrete(boxes), concrete(scores)
    if boxes.ndim != 3 or boxes.shape[2] != 4 or scores.shape[::2] != boxes.shape[:2]:
        raise InvalidModelError(f"boxes {list(boxes.shape)} and scores {list(scores.shape)}")
    limit, overlap, least = (
        None if v is None else concrete(v).reshape(())
        for v in (max_output_boxes_per_class, iou_threshold, score_threshold)
    )
    limit = 0 if limit is None else int(limit)
    overlap = np.float32(0) if overlap is None else overlap
    sides = _corners(boxes, center_point_box)
    rows = [
        (batch, label, box)
        for batch, label in np.ndindex(*scores.shape[:2])
        for box in _select(sides[batch], scores[batch, label], limit, overlap, least)
    ]
    return np.array(rows, np.int64).reshape(-1, 3)


def _select(sides: np.ndarray, scores: np.ndarray, limit: int, overlap: Any, least: Any) -> Any:
    """The boxes that are taken of one class, in that order."""
    order = np.argsort(-scores, kind="stable")
    left, taken = order if least is None else order[scores[order] > least], []
    while len(left) and len(taken) < limit:
        best, left = left[0], left[1:]
        taken.append(best)
        left = left[~(_overlaps(sides[best], sides[left]) > overlap)]
    return taken


def _corners(boxes: Any, center_point_box: int) -> Any:
    """Boxes as lower and upper corners."""
    module = xp(boxes)
    first, second = boxes[..., :2], boxes[..., 2:]
    if center_point_box:
        first, second = first - second / 2, first + second / 2
    return module.concatenate(
        [module.minimum(first, second), module.maximum(first, second)], axis=-1
    )


def _overlaps(box: Any, others: Any) -> Any:
    """Intersection over union of one box with others; 0 where a box is empty."""
    module = xp(box, others)
    low = module.maximum(box[:2], others[:, :2])
    high = module.minimum(box[2:], others[:, 2:])
    shared = module.maximum(high - low, 0).prod(axis=1)
    areas = (others[:, 2:] - others[:, :2]).prod(axis=1) + (box[2:] - box[:2]).prod()
    union = areas - shared
    return shared / module.where(union > 0, union, 1)

"""Operators that move or reshape values without computing on them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxonnx.define.known import (
    as_dims,
    dimensions,
    infer_dim,
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

__all__ = [
    "concat",
    "expand",
    "flatten",
    "identity",
    "reshape",
    "shape",
    "size",
    "squeeze",
    "tile",
    "transpose",
    "unsqueeze",
]


@register(
    "Identity",
    1,
    13,
    14,
    16,
    19,
    21,
    23,
    24,
    25,
    symbolic=True,
    padding=_padding.identity,
    moves=True,
)
def identity(input: Any, /) -> Any:
    """``input``, which may also be a sequence or an optional value."""
    return input


@register("Shape", 15, 19, 21, 23, 24, 25, symbolic=True, padding=_padding.shape, reads_shapes=True)
def shape(data: ArrayLike, /, *, start: int = 0, end: int | None = None) -> np.ndarray:
    """The sizes of the dimensions from ``start`` to ``end``: always a known 1-d int64 array."""
    dims = np.shape(data)
    rank = len(dims)
    first, last = (
        max(0, min(v + rank if v < 0 else v, rank)) for v in (start, rank if end is None else end)
    )
    return dimensions(dims[first:last])


shape_1 = older(shape, 1, 13)


@register("Size", 1, 13, 19, 21, 23, 24, 25, symbolic=True, reads_shapes=True)
def size(data: ArrayLike, /) -> np.ndarray:
    """The number of elements: always a known 0-d int64 array."""
    return dimensions([math.prod(np.shape(data))]).reshape(())


@register(
    "Reshape",
    14,
    19,
    21,
    23,
    24,
    25,
    static=["shape"],
    symbolic=True,
    padding=_padding.reshape,
    moves=True,
)
def reshape(data: ArrayLike, shape: ArrayLike, /, *, allowzero: int = 0) -> Array:
    """Reshape where -1 is inferred and 0 copies the input's size, or is 0 with ``allowzero``.

    Raises:
        InvalidModelError: if ``shape`` does not have as many elements as ``data``.
    """
    old, dims = np.shape(data), [*as_dims(shape)]
    fixed = [isinstance(d, int) for d in dims]
    if any(d < -1 for d, f in zip(dims, fixed, strict=True) if f):
        raise InvalidModelError(f"shape {dims} has a size below -1")
    for k, dim in enumerate(dims):  # an expression that is 0 or -1 at some size would mean another
        if not fixed[k] and not (k < len(old) and same_dim(dim, old[k])):
            sure_at_least(dim, 0 if allowzero else 1)
    if not allowzero:
        dims = _copied(old, dims)
    new = _inferred(old, dims)
    if not sure_equal(math.prod(old), math.prod(new)):
        raise _mismatch(old, dims)
    return xp(data).reshape(data, tuple(new))


def _copied(old: Sequence[Any], dims: Sequence[Any]) -> list[Any]:
    """``dims`` with the old size in the place of each 0."""
    copied = [k for k, d in enumerate(dims) if isinstance(d, int) and d == 0]
    if any(k >= len(old) for k in copied):
        raise InvalidModelError(
            f"shape {dims} copies dimension {copied[-1]} of an input of rank {len(old)}"
        )
    return [old[k] if k in copied else d for k, d in enumerate(dims)]


def _inferred(old: Sequence[Any], dims: Sequence[Any]) -> Sequence[Any]:
    """``dims`` with the size that is left over in the place of -1."""
    unknown = [k for k, d in enumerate(dims) if isinstance(d, int) and d == -1]
    if len(unknown) > 1:
        raise InvalidModelError(f"shape {dims} has more than one -1")
    if not unknown:
        return dims
    before, behind = dims[: unknown[0]], dims[unknown[0] + 1 :]
    rest = [*before, *behind]
    if any(isinstance(d, int) and d == 0 for d in rest):
        raise _mismatch(old, dims)
    return [*before, infer_dim(old, rest), *behind]


def _mismatch(old: Sequence[Any], dims: Sequence[Any]) -> InvalidModelError:
    return InvalidModelError(
        f"cannot reshape {list(old)} ({math.prod(old)} elements) to {list(dims)}; if a size in it "
        "was baked in when the model was exported, call it at that size, export it again with a "
        "dynamic dimension or give the shape another value with apply(..., patch=...)"
    )


reshape_5 = older(reshape, 5, 13)


reshape_1 = older(reshape, 1, convert={"shape": lambda shape: shape or ()})


@register("Flatten", 11, 13, 21, 23, 24, 25, moves=True)
def flatten(input: ArrayLike, /, *, axis: int = 1) -> Array:
    """A matrix of the dimensions before ``axis`` by those from it on.

    Raises:
        InvalidModelError: if ``axis`` is not between minus the rank and the rank.
    """
    dims = np.shape(input)
    if not -len(dims) <= axis <= len(dims):
        raise InvalidModelError(f"axis is {axis}, expected one in [{-len(dims)}, {len(dims)}]")
    axis = axis + len(dims) if axis < 0 else axis
    return xp(input).reshape(input, (math.prod(dims[:axis]), math.prod(dims[axis:])))


@register("Flatten", 1, 9, moves=True)
def flatten_1(input: ArrayLike, /, *, axis: int = 1) -> Array:
    """A matrix of the dimensions before ``axis``, which is not negative, by those from it on.

    Raises:
        InvalidModelError: if ``axis`` is not between 0 and the rank.
    """
    if axis < 0:
        raise InvalidModelError(f"axis is {axis}, expected one in [0, {np.ndim(input)}]")
    return flatten(input, axis=axis)


@register("Transpose", 1, 13, 21, 23, 24, 25, symbolic=True, padding=_padding.transpose, moves=True)
def transpose(data: ArrayLike, /, *, perm: Sequence[int] | None = None) -> Array:
    """Dimensions in the order ``perm``, by default reversed.

    Raises:
        InvalidModelError: if ``perm`` does not name each dimension once.
    """
    if perm is not None and sorted(perm) != [*range(np.ndim(data))]:
        raise InvalidModelError(f"perm is {[*perm]}, expected an order of {np.ndim(data)} axes")
    return xp(data).transpose(data, perm)


@register(
    "Squeeze",
    13,
    21,
    23,
    24,
    25,
    static=["axes"],
    symbolic=True,
    padding=_padding.squeeze,
    moves=True,
)
def squeeze(data: ArrayLike, axes: ArrayLike | None = None, /) -> Array:
    """Without the dimensions ``axes``, which are of size 1, by default all of that size.

    Raises:
        InvalidModelError: if one of ``axes`` does not exist, repeats or is not of size 1.
    """
    dims = np.shape(data)
    if axes is None:
        chosen = tuple(k for k, d in enumerate(dims) if sure_equal(d, 1))
    else:
        chosen = all_from_front(as_dims(axes), len(dims))
    for axis in chosen:
        if not sure_equal(dims[axis], 1):
            raise InvalidModelError(f"axis {axis} of shape {list(dims)} is not of size 1")
    return xp(data).squeeze(data, chosen)


squeeze_1 = older(squeeze, 1, 11)


@register(
    "Unsqueeze",
    13,
    21,
    23,
    24,
    25,
    static=["axes"],
    symbolic=True,
    padding=_padding.unsqueeze,
    moves=True,
)
def unsqueeze(data: ArrayLike, axes: ArrayLike, /) -> Array:
    """With new dimensions of size 1 at the positions ``axes`` of the result.

    Raises:
        InvalidModelError: if one of them does not exist in the result, or repeats.
    """
    positions = as_dims(axes)
    return xp(data).expand_dims(data, all_from_front(positions, np.ndim(data) + len(positions)))


unsqueeze_1 = older(unsqueeze, 1, 11)


@register("Concat", 4, 11, 13, symbolic=True, padding=_padding.concat)
def concat(*inputs: ArrayLike, axis: int) -> Array:
    """Joined along ``axis``.

    Raises:
        InvalidModelError: if there is no such axis, or the inputs differ in another dimension.
    """
    check_joinable(inputs, axis)
    return xp(*inputs).concatenate(inputs, axis=axis)


concat_1 = older(
    concat,
    1,
    convert={"axis": lambda axis: 1 if axis is None else axis},
    note="If absent ``axis`` is 1.",
)


def check_joinable(inputs: Sequence[Any], axis: int) -> None:
    """Refuse arrays that differ in rank, or in another dimension than ``axis``.

    Raises:
        InvalidModelError: naming their shapes.
    """
    shapes = [np.shape(x) for x in inputs]
    rank = len(shapes[0])
    axis = from_front(axis, rank)
    rests = [[d for k, d in enumerate(s) if k != axis] for s in shapes]
    if any(len(s) != rank for s in shapes) or not all(
        sure_equal(a, b) for r in rests[1:] for a, b in zip(rests[0], r, strict=True)
    ):
        raise InvalidModelError(f"shapes {[*map(list, shapes)]} differ beside axis {axis}")


@register("Expand", 8, 13, static=["shape"], symbolic=True, moves=True)
def expand(input: ArrayLike, shape: ArrayLike, /) -> Array:
    """Broadcast together with ``shape``: a size of 1 on either side gives way to the other.

    Raises:
        InvalidModelError: if they do not fit each other.
    """
    old, new = np.shape(input), as_dims(shape)
    rank = max(len(old), len(new))
    pairs = zip(*((1,) * (rank - len(s)) + tuple(s) for s in (old, new)), strict=True)
    dims = tuple(_broadcast(a, b, old, new) for a, b in pairs)
    if shape_is_symbolic(dims) and isinstance(input, np.ndarray):
        input = lift(input)
    return xp(input).broadcast_to(input, dims)


def _broadcast(a: Any, b: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    """The size that two sizes broadcast to; ``old`` and ``new`` are the shapes, for the message."""
    if same_dim(b, 1) or (not same_dim(a, 1) and sure_equal(a, b)):
        return a
    if not same_dim(a, 1) or not sure_at_least(b, 0):
        raise InvalidModelError(f"an input of shape {list(old)} does not expand to {list(new)}")
    return b


@register("Tile", 6, 13, static=["repeats"], symbolic=True, moves=True)
def tile(input: ArrayLike, repeats: ArrayLike, /) -> Array:
    """Each dimension repeated as often as ``repeats`` says.

    Raises:
        InvalidModelError: if ``repeats`` has not one element for each dimension, or one below 0.
    """
    counts, dims = as_dims(repeats), np.shape(input)
    if len(counts) != len(dims):
        raise InvalidModelError(f"{len(counts)} repeats for an input of rank {len(dims)}")
    if not all(sure_at_least(c, 0) for c in counts):
        raise InvalidModelError(f"repeats are {list(counts)}, expected none below 0")
    if shape_is_symbolic([*counts, *dims]) and isinstance(input, np.ndarray):
        input = lift(input)
    pairs = [d for pair in zip(counts, dims, strict=True) for d in pair]
    spread = xp(input).expand_dims(input, tuple(range(0, 2 * len(dims), 2)))
    spread = xp(input).broadcast_to(spread, tuple(pairs))
    return spread.reshape(tuple(c * d for c, d in zip(counts, dims, strict=True)))


@register("Tile", 1, static=["tiles", "axis"], symbolic=True, moves=True)
def tile_1(input: ArrayLike, tiles: ArrayLike, axis: ArrayLike, /) -> Array:
    """One dimension repeated ``tiles`` times."""
    repeats = np.ones(np.ndim(input), object)
    repeats[from_front(as_dims(axis)[0], len(repeats))] = as_dims(tiles)[0]
    return tile(input, dimensions(repeats))

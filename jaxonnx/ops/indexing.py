"""Gathering and scattering by index."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.known import (
    is_symbolic,
    lift,
    same_dim,
    sure_at_least,
    sure_equal,
    xp,
)
from jaxonnx.define.older import older
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops import _padding
from jaxonnx.ops._axes import from_front
from jaxonnx.ops._indices import (
    as_array,
    check_range,
    checked,
    count_from_front,
    int32,
    outside,
    with_entries,
)
from jaxonnx.ops._words import moves_words

__all__ = [
    "gather",
    "gather_elements",
    "gather_nd",
    "reverse_sequence",
    "scatter",
    "scatter_elements",
    "scatter_nd",
    "tensor_scatter",
]


def _traced(x: Any) -> Array:
    return lift(x) if is_symbolic(x) else jnp.asarray(x)


def _all_known(data: Any, indices: Any) -> bool:
    return xp(data, indices) is np and not is_symbolic(indices)


def _check_gather(data: Any, indices: Any, *, axis: int = 0) -> None:
    checked(indices, np.shape(data)[from_front(axis, np.ndim(data))])


@register(
    "Gather", 1, 11, 13, symbolic=True, padding=_padding.gather, check=_check_gather, moves=True
)
def gather(data: ArrayLike, indices: ArrayLike, /, *, axis: int = 0) -> Array:
    """The entries of ``data`` along ``axis`` that ``indices`` name, negative ones from the end.

    The dimensions of ``indices`` take the place of ``axis``. An index out of range is refused if
    it is known. If it is traced its entries are NaN, for integers the lowest number of a signed
    type and the highest of an unsigned one, for booleans true; the checks
    ``jax.experimental.checkify.index_checks`` find it.

    Raises:
        InvalidModelError: if there is no such axis, or a known index is out of range.
    """
    _check_gather(data, indices, axis=axis)
    axis = from_front(axis, np.ndim(data))
    if _all_known(data, indices):
        return as_array(data).take(np.asarray(indices, np.intp), axis)
    places = count_from_front(_traced(indices), np.shape(data)[axis])
    source = with_entries(_traced(data), (axis,))
    target = source.at[(slice(None),) * axis + (places,)]
    return target.get(mode="fill", wrap_negative_indices=False)


def _check_gather_elements(data: Any, indices: Any, *, axis: int = 0) -> None:
    axis, sizes, counts = from_front(axis, np.ndim(data)), np.shape(data), np.shape(indices)
    _check_inside(counts, sizes, axis, "indices")
    checked(indices, sizes[axis])


def _check_inside(counts: Sequence[Any], sizes: Sequence[Any], axis: int, name: str) -> None:
    """Refuse an operand of another rank than the data, or larger beside ``axis``."""
    pairs = [*zip(counts, sizes, strict=False)]
    if len(counts) != len(sizes) or not all(
        sure_at_least(size, count) for k, (count, size) in enumerate(pairs) if k != axis
    ):
        raise InvalidModelError(
            f"{name} have shape {list(counts)}, expected the rank of {list(sizes)} and no more "
            f"beside axis {axis}"
        )


@register("GatherElements", 11, 13, symbolic=True, check=_check_gather_elements)
def gather_elements(data: ArrayLike, indices: ArrayLike, /, *, axis: int = 0) -> Array:
    """For each entry of ``indices``, the entry of ``data`` at its place, moved along ``axis``.

    The result has the shape of ``indices``. An index out of range is treated as by Gather.

    Raises:
        InvalidModelError: if there is no such axis, ``indices`` do not fit the data, or a known one
            is out of range.
    """
    _check_gather_elements(data, indices, axis=axis)
    source, axis = as_array(data), from_front(axis, np.ndim(data))
    for other, size in enumerate(np.shape(indices)):
        if other != axis and not same_dim(size, source.shape[other]):
            source = source[(slice(None),) * other + (slice(size),)]
    if _all_known(data, indices):
        known: Any = np.take_along_axis(source, as_array(indices), axis)
        return known
    places = count_from_front(_traced(indices), source.shape[axis])
    return jnp.take_along_axis(with_entries(_traced(source), (axis,)), places, axis, mode="fill")


def _check_gather_nd(data: Any, indices: Any, *, batch_dims: int = 0) -> None:
    sizes, counts = np.shape(data), np.shape(indices)
    if not 0 <= batch_dims < min(len(sizes), len(counts)):
        raise InvalidModelError(f"batch_dims is {batch_dims} for ranks {len(sizes)}, {len(counts)}")
    if not all(map(sure_equal, counts[:batch_dims], sizes[:batch_dims])):
        raise InvalidModelError(f"data {list(sizes)} and indices {list(counts)} differ in batches")
    for index, size in zip(*_index_tuple(indices, sizes[batch_dims:]), strict=True):
        checked(index, size)


@register("GatherND", 12, 13, symbolic=True, padding=_padding.gather_nd, check=_check_gather_nd)
def gather_nd(data: ArrayLike, indices: ArrayLike, /, *, batch_dims: int = 0) -> Array:
    """The slices of ``data`` at the index tuples in the last dimension of ``indices``.

    The first ``batch_dims`` dimensions of both are paired. ``[*b, n..., k]`` gives
    ``[*b, n..., *data.shape[batch_dims + k:]]``. An index out of range is treated as by Gather.

    Raises:
        InvalidModelError: if the tuples are too long, the batches differ, or a known index is out
            of range.
    """
    _check_gather_nd(data, indices, batch_dims=batch_dims)
    index, sizes = _index_tuple(indices, np.shape(data)[batch_dims:])
    if _all_known(data, indices):
        known: Any = as_array(data)[(*_grid(index[0].shape, range(batch_dims), np), *index)]
        return known
    index = map(count_from_front, map(_traced, index), sizes)
    places = (*_grid(np.shape(indices)[:-1], range(batch_dims), jnp), *index)
    source = with_entries(_traced(data), range(len(places)))
    return source.at[places].get(mode="fill", wrap_negative_indices=False)


gather_nd_11 = older(gather_nd, 11)


def _grid(shape: Sequence[Any], axes: Sequence[int], module: Any) -> list[Any]:
    """For each of ``axes`` of ``shape``, the positions along it, shaped to broadcast."""
    ones = [[-1 if d == k else 1 for d in range(len(shape))] for k in axes]
    counts = [module.arange(shape[k], dtype=np.int32) for k in axes]
    return [c.reshape(o) for c, o in zip(counts, ones, strict=True)]


def _index_tuple(indices: Any, sizes: Sequence[Any]) -> tuple[tuple[Any, ...], Sequence[Any]]:
    """The index tuples in the last dimension of ``indices``, an array for each of some sizes."""
    indices = as_array(indices)
    count = indices.shape[-1] if indices.ndim else 0
    if not 1 <= count <= len(sizes):
        raise InvalidModelError(f"index tuples of length {count}, expected 1 to {len(sizes)}")
    return tuple(indices[..., k] for k in range(count)), sizes[:count]


_METHODS = {"none": "set", "add": "add", "min": "min", "max": "max"}
_UFUNCS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _scatter(data: Any, index: tuple[Any, ...], updates: Any, reduction: str) -> Any:
    """``data`` with ``updates`` at ``index``; indices out of range are dropped if traced."""
    if reduction != "none" and reduction not in _UFUNCS:
        raise InvalidModelError(f"reduction {reduction!r}, expected none or one of {[*_UFUNCS]}")
    sizes = np.shape(data)
    symbolic = is_symbolic(data) or is_symbolic(updates)
    compares = any(map(is_symbolic, index)) or (symbolic and reduction in ("min", "max"))
    if xp(data, updates, *index) is np and not compares:
        out = np.array(data, object if symbolic else None)
        if reduction == "none":
            out[index] = updates
        else:
            _UFUNCS[reduction].at(out, index, updates)
        return out
    data, updates = _traced(data), _traced(updates)
    index = tuple(map(count_from_front, map(_traced, index), sizes))
    if reduction == "mul":
        return _multiply(index, data, updates)
    method = getattr(data.at[index], _METHODS[reduction])
    return method(updates, mode="drop", wrap_negative_indices=False)


@jax.custom_jvp
def _multiply(index: Any, data: Array, updates: Array) -> Array:
    target = data.at[index]
    return target.multiply(updates, mode="drop", wrap_negative_indices=False)


@_multiply.defjvp
def _multiply_jvp(primals: Any, tangents: Any) -> Any:
    """JAX has none for repeated indices: each tangent is scaled by the other factors' product."""
    index, data, updates = primals
    options: dict[str, Any] = {"mode": "drop", "wrap_negative_indices": False}
    filled = [jnp.where(v == 0, jnp.ones_like(v), v) for v in (data, updates)]
    nonzero = _multiply(index, *filled)
    zeros = (data == 0).astype(np.int32).at[index].add((updates == 0).astype(np.int32), **options)

    def others(value: Any, product: Any, count: Any) -> Any:
        alone = jnp.where(value == 0, count == 1, count == 0)
        factor = jnp.where(value == 0, jnp.ones_like(value), value)
        return jnp.where(alone, product / factor, jnp.zeros_like(product))

    dataward = others(data, nonzero, zeros)
    there = [v.at[index].get(mode="clip", wrap_negative_indices=False) for v in (nonzero, zeros)]
    spread = [tangents[1] * dataward, tangents[2] * others(updates, *there)]
    return _multiply(*primals), spread[0].at[index].add(spread[1], **options)


def _check_scatter_elements(
    data: Any, indices: Any, updates: Any, *, axis: int = 0, reduction: str = "none"
) -> None:
    del reduction
    axis, sizes, counts = from_front(axis, np.ndim(data)), np.shape(data), np.shape(indices)
    _check_inside(counts, sizes, axis, "indices")
    _check_updates(updates, counts)
    checked(indices, sizes[axis])


def _check_updates(updates: Any, expected: Sequence[Any]) -> None:
    found = np.shape(updates)
    if len(found) != len(expected) or not all(map(sure_equal, found, expected)):
        raise InvalidModelError(f"updates have shape {list(found)}, expected {list(expected)}")


@register("ScatterElements", 16, 18, symbolic=True, check=_check_scatter_elements)
def scatter_elements(
    data: ArrayLike,
    indices: ArrayLike,
    updates: ArrayLike,
    /,
    *,
    axis: int = 0,
    reduction: str = "none",
) -> Array:
    """``data`` with each entry of ``updates`` at its own place, moved along ``axis``.

    Repeated indices accumulate under a ``reduction`` (add, mul, min, max) and are undefined
    without one. An index out of range is refused if it is known, and dropped if it is traced,
    where ``jax.experimental.checkify.index_checks`` find it.
    Derivative at ties of min and max: split equally.

    Raises:
        InvalidModelError: if there is no such axis or reduction, the shapes do not fit, or a known
            index is out of range.
    """
    _check_scatter_elements(data, indices, updates, axis=axis)
    shape = np.shape(indices)
    index = _grid(shape, range(len(shape)), xp(data, indices, updates))
    index[from_front(axis, len(shape))] = indices
    return _scatter(data, tuple(index), updates, reduction)


scatter_elements_11 = older(scatter_elements, 11, 13)


@register("Scatter", 9, symbolic=True, check=_check_scatter_elements)
def scatter(data: ArrayLike, indices: ArrayLike, updates: ArrayLike, /, *, axis: int = 0) -> Array:
    """The old name of ScatterElements, without a reduction."""
    return scatter_elements(data, indices, updates, axis=axis)


def _check_scatter_nd(data: Any, indices: Any, updates: Any, *, reduction: str = "none") -> None:
    del reduction
    index, sizes = _index_tuple(indices, np.shape(data))
    _check_updates(updates, (*np.shape(indices)[:-1], *np.shape(data)[len(index) :]))
    for places, size in zip(index, sizes, strict=True):
        checked(places, size)


@register("ScatterND", 16, 18, symbolic=True, check=_check_scatter_nd)
def scatter_nd(
    data: ArrayLike, indices: ArrayLike, updates: ArrayLike, /, *, reduction: str = "none"
) -> Array:
    """``data`` with the slices ``updates`` at the index tuples in the last dim of ``indices``.

    ``indices`` is ``[n..., k]``, ``updates`` ``[n..., *data.shape[k:]]``. Repeated, tied and
    out-of-range indices are treated as by ScatterElements.

    Raises:
        InvalidModelError: if there is no such reduction, the shapes do not fit, or a known index is
            out of range.
    """
    _check_scatter_nd(data, indices, updates)
    return _scatter(data, _index_tuple(indices, np.shape(data))[0], updates, reduction)


scatter_nd_11 = older(scatter_nd, 11, 13)


@register("TensorScatter", 24)
@moves_words
def tensor_scatter(
    past_cache: ArrayLike,
    update: ArrayLike,
    write_indices: ArrayLike | None = None,
    /,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Array:
    """``past_cache`` ``[b, ..., max, ...]`` with ``update`` ``[b, ..., n, ...]`` along ``axis``.

    ``write_indices`` ``[b]`` says where each sample's ``update`` begins. What reaches past the
    end is dropped (``linear``) or goes on at the beginning (``circular``).

    Raises:
        InvalidModelError: if there is no such axis or mode.
    """
    if mode not in ("linear", "circular"):
        raise InvalidModelError(f"mode {mode!r}, expected linear or circular")
    past, axis = jnp.asarray(past_cache), from_front(axis, np.ndim(past_cache))
    limit, steps = past.shape[axis], jnp.arange(np.shape(update)[axis], dtype=np.int32)
    starts = jnp.zeros(past.shape[:1], np.int32) if write_indices is None else write_indices

    def write(cache: Array, new: Array, start: Array) -> Array:
        place = start + steps
        if mode == "circular":
            place = place % jnp.asarray(limit, np.int32)
        target = cache.at[(slice(None),) * (axis - 1) + (place,)]
        return target.set(new, mode="drop", wrap_negative_indices=False)

    return jax.vmap(write)(past, jnp.asarray(update), int32(jnp.asarray(starts)))


def _check_lengths(
    input: Any, sequence_lens: Any, *, batch_axis: int = 1, time_axis: int = 0
) -> None:
    if {batch_axis, time_axis} != {0, 1}:
        raise InvalidModelError(
            f"batch_axis {batch_axis} and time_axis {time_axis}, expected 0 and 1 or 1 and 0"
        )
    shape, lens = np.shape(input), np.shape(sequence_lens)
    if len(shape) < 2 or len(lens) != 1 or not sure_equal(lens[0], shape[batch_axis]):
        raise InvalidModelError(f"sequence_lens {list(lens)} for an input {list(shape)}")
    check_range(sequence_lens, shape[time_axis], "sequence_lens")


@register("ReverseSequence", 10, 28, check=_check_lengths)
@moves_words
def reverse_sequence(
    input: ArrayLike, sequence_lens: ArrayLike, /, *, batch_axis: int = 1, time_axis: int = 0
) -> Array:
    """Each sequence of a batch with its first ``sequence_lens`` steps in reverse order.

    A length that is not between 0 and the number of steps is refused if it is known. If it is
    traced, that sequence is as of indices out of range in Gather.

    Raises:
        InvalidModelError: if the axes are not 0 and 1, in either order, or a known length is wrong.
    """
    _check_lengths(input, sequence_lens, batch_axis=batch_axis, time_axis=time_axis)
    data = jnp.asarray(input)
    count = jnp.asarray(data.shape[time_axis], np.int32)
    lengths = jnp.expand_dims(int32(jnp.asarray(sequence_lens)), 1 - batch_axis)
    times = lax.broadcasted_iota(np.int32, data.shape[:2], time_axis)
    times = jnp.where(times < lengths, lengths - 1 - times, times)
    times = jnp.where(outside(lengths, count), count, times)
    times = times.reshape(*times.shape, *[1] * (data.ndim - 2))
    return jnp.take_along_axis(data, times, time_axis, mode="fill")

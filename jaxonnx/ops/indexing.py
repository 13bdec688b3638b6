"""Gathering and scattering by index."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.known import is_symbolic, lift, same_dim, xp
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops import _padding
from jaxonnx.ops._axes import from_front
from jaxonnx.ops._indices import as_array, clamp, count_from_front, int32
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


def _checked(indices: Any, size: int) -> Any:
    """Known ``indices``, refused where they lie outside ``[-size, size)``."""
    outside = indices[(indices < -size) | (indices >= size)]
    if outside.size:
        raise InvalidModelError(f"index {outside[0]}, expected one in [-{size}, {size - 1}]")
    return indices


@register("Gather", 1, 11, 13, symbolic=True, padding=_padding.gather, moves=True)
def gather(data: ArrayLike, indices: ArrayLike, /, *, axis: int = 0) -> Array:
    """The entries of ``data`` along ``axis`` that ``indices`` name, negative ones from the end.

    The dimensions of ``indices`` take the place of ``axis``. An index out of range is refused if
    it is known, and means the nearest entry if it is traced.

    Raises:
        InvalidModelError: if there is no such axis, or a known index is out of range.
    """
    axis = from_front(axis, np.ndim(data))
    size = np.shape(data)[axis]
    if _all_known(data, indices):
        return as_array(data).take(_checked(as_array(indices), size), axis)
    return jnp.take(_traced(data), clamp(_traced(indices), size), axis=axis, mode="clip")


@register("GatherElements", 11, 13, symbolic=True)
def gather_elements(data: ArrayLike, indices: ArrayLike, /, *, axis: int = 0) -> Array:
    """For each entry of ``indices``, the entry of ``data`` at its place, moved along ``axis``.

    The result has the shape of ``indices``. An index out of range is treated as by Gather.

    Raises:
        InvalidModelError: if there is no such axis, or a known index is out of range.
    """
    source, axis = as_array(data), from_front(axis, np.ndim(data))
    for other, size in enumerate(np.shape(indices)):
        if other != axis and not same_dim(size, source.shape[other]):
            source = source[(slice(None),) * other + (slice(size),)]
    size = source.shape[axis]
    if _all_known(data, indices):
        known: Any = np.take_along_axis(source, _checked(as_array(indices), size), axis)
        return known
    places = clamp(_traced(indices), size)
    return jnp.take_along_axis(_traced(source), places, axis, mode="clip")


@register("GatherND", 12, 13, symbolic=True, padding=_padding.gather_nd)
def gather_nd(data: ArrayLike, indices: ArrayLike, /, *, batch_dims: int = 0) -> Array:
    """The slices of ``data`` at the index tuples in the last dimension of ``indices``.

    The first ``batch_dims`` dimensions of both are paired. ``[*b, n..., k]`` gives
    ``[*b, n..., *data.shape[batch_dims + k:]]``. An index out of range is treated as by Gather.

    Raises:
        InvalidModelError: if the tuples are too long, or a known index is out of range.
    """
    sizes = np.shape(data)[batch_dims:]
    index = _index_tuple(indices, sizes)
    if _all_known(data, indices):
        index = tuple(map(_checked, index, sizes))
        if not batch_dims:
            return as_array(data)[index]

    def pick(source: Array, *index: Array) -> Array:
        return source.at[index].get(mode="clip", wrap_negative_indices=False)

    for _ in range(batch_dims):
        pick = jax.vmap(pick)
    return pick(_traced(data), *map(clamp, map(_traced, index), sizes))


@register("GatherND", 11, symbolic=True, padding=_padding.gather_nd)
def gather_nd_11(data: ArrayLike, indices: ArrayLike, /) -> Array:
    """GatherND without batch dimensions."""
    return gather_nd(data, indices, batch_dims=0)


def _index_tuple(indices: Any, sizes: Any) -> tuple[Any, ...]:
    """The index tuples in the last dimension of ``indices``, one array for each of ``sizes``."""
    indices = as_array(indices)
    count = indices.shape[-1]
    if count > len(sizes):
        raise InvalidModelError(f"index tuples of length {count}, expected at most {len(sizes)}")
    return tuple(indices[..., k] for k in range(count))


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
        index = tuple(map(_checked, index, sizes))
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


@register("ScatterElements", 16, 18, symbolic=True)
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
    without one. An index out of range is refused if it is known, and dropped if it is traced.
    Derivative at ties of min and max: split equally.

    Raises:
        InvalidModelError: if there is no such axis or reduction, or a known index is out of range.
    """
    shape = np.shape(indices)
    m = xp(data, indices, updates)
    axis = from_front(axis, len(shape))
    index = [
        m.arange(n, dtype=np.int32).reshape([-1 if d == k else 1 for d in range(len(shape))])
        for k, n in enumerate(shape)
    ]
    index[axis] = indices
    return _scatter(data, tuple(index), updates, reduction)


@register("ScatterElements", 11, 13, symbolic=True)
def scatter_elements_11(
    data: ArrayLike, indices: ArrayLike, updates: ArrayLike, /, *, axis: int = 0
) -> Array:
    """ScatterElements without a reduction."""
    return scatter_elements(data, indices, updates, axis=axis)


@register("Scatter", 9, symbolic=True)
def scatter(data: ArrayLike, indices: ArrayLike, updates: ArrayLike, /, *, axis: int = 0) -> Array:
    """The old name of ScatterElements, without a reduction."""
    return scatter_elements(data, indices, updates, axis=axis)


@register("ScatterND", 16, 18, symbolic=True)
def scatter_nd(
    data: ArrayLike, indices: ArrayLike, updates: ArrayLike, /, *, reduction: str = "none"
) -> Array:
    """``data`` with the slices ``updates`` at the index tuples in the last dim of ``indices``.

    ``indices`` is ``[n..., k]``, ``updates`` ``[n..., *data.shape[k:]]``. Repeated, tied and
    out-of-range indices are treated as by ScatterElements.

    Raises:
        InvalidModelError: if there is no such reduction, the tuples are too long, or a known index
            is out of range.
    """
    return _scatter(data, _index_tuple(indices, np.shape(data)), updates, reduction)


@register("ScatterND", 11, 13, symbolic=True)
def scatter_nd_11(data: ArrayLike, indices: ArrayLike, updates: ArrayLike, /) -> Array:
    """ScatterND without a reduction."""
    return scatter_nd(data, indices, updates)


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


@register("ReverseSequence", 10, 28)
@moves_words
def reverse_sequence(
    input: ArrayLike, sequence_lens: ArrayLike, /, *, batch_axis: int = 1, time_axis: int = 0
) -> Array:
    """Each sequence of a batch with its first ``sequence_lens`` steps in reverse order.

    Raises:
        InvalidModelError: if the axes are not 0 and 1, in either order.
    """
    if {batch_axis, time_axis} != {0, 1}:
        raise InvalidModelError(
            f"batch_axis {batch_axis} and time_axis {time_axis}, expected 0 and 1 or 1 and 0"
        )
    data = jnp.asarray(input)
    lengths = jnp.expand_dims(int32(jnp.asarray(sequence_lens)), 1 - batch_axis)
    times = lax.broadcasted_iota(np.int32, data.shape[:2], time_axis)
    times = jnp.where(times < lengths, lengths - 1 - times, times)
    times = times.reshape(*times.shape, *[1] * (data.ndim - 2))
    return jnp.take_along_axis(data, times, time_axis, mode="clip")

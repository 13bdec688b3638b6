"""Pools: the maximum, mean or norm over windows, over whole channels, or over regions."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.kinks import kink
from jaxonnx.define.known import as_dims, same_dim
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops._extremum import extremum, least, over
from jaxonnx.ops._precision import widened
from jaxonnx.ops._windows import Windows, place

__all__ = [
    "average_pool",
    "global_average_pool",
    "global_lp_pool",
    "global_max_pool",
    "lp_pool",
    "max_pool",
    "max_roi_pool",
    "max_unpool",
]

_NOWHERE = np.int32(np.iinfo(np.int32).max)  # the index of padding


def _windowed(x: Any, initial: Any, reducer: Any, found: Windows) -> Any:
    """``lax.reduce_window`` over the spatial dimensions."""
    ones, none = (1, 1), ((0, 0), (0, 0))
    return lax.reduce_window(
        x,
        initial,
        reducer,
        ones + found.kernel,
        ones + found.strides,
        none + found.pads,
        window_dilation=ones + found.dilations,
    )


def _pools(sizes: Sequence[Any], kernel: Sequence[int], **attributes: Any) -> Windows:
    """The windows of a pool, none of which may lie in the padding alone.

    Raises:
        InvalidModelError: as :func:`place`, and for pads of the length of the window or more.
    """
    unextended: dict[str, Any] = {**attributes, "ceil_mode": 0}
    stated = place(sizes, kernel, **unextended)
    explicit = attributes.get("pads") is not None and attributes["auto_pad"] in ("", "NOTSET")
    if explicit and any(
        n >= e for e, ends in zip(stated.extents, stated.pads, strict=True) for n in ends
    ):
        raise InvalidModelError(
            f"pads are {tuple(attributes['pads'])}, expected less than windows of {stated.extents}"
        )
    return place(sizes, kernel, **attributes)


def _first_places(x: Array, found: Windows) -> Array:
    """Where each window's first maximum lies among the flattened spatial elements, int32."""
    count = math.prod(x.shape[2:])
    places = jnp.broadcast_to(lax.iota(np.int32, count).reshape(x.shape[2:]), x.shape)

    def better(a: Any, b: Any) -> Any:
        first = (a[0] > b[0]) | (a[0] != a[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return lax.select(first, a[0], b[0]), lax.select(first, a[1], b[1])

    initial = (least(x.dtype), _NOWHERE)
    return _windowed((lax.stop_gradient(x), places), initial, better, found)[1]


def _take(x: Array, places: Array) -> Array:
    """Elements of the flattened spatial dimensions; 0 for padding."""
    flat = x.reshape(*x.shape[:2], math.prod(x.shape[2:]))
    at = places.reshape(*places.shape[:2], math.prod(places.shape[2:]))
    taken = jnp.take_along_axis(flat, at, axis=2, mode="fill", fill_value=0)
    return taken.reshape(places.shape)


@kink(lambda dx, x, *, found: _take(dx, _first_places(x, found)))
def _window_max(x: Array, /, *, found: Windows) -> Array:
    return extremum(x, 1, lambda v, initial, pick: _windowed(v, initial, pick, found))


@register("MaxPool", 1, 8, 10, 11, 12, 22)
def max_pool(
    x: ArrayLike,
    /,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
    outputs: int = 1,
) -> Any:
    """Maximum over windows of ``x`` (N, C, D1, ...), padding apart; NaN if one is.

    The second output holds where in the flattened ``x`` the first maximum of each window lies,
    spatial dimensions counted column by column with ``storage_order=1``. Derivative at ties: all
    to the first.

    Raises:
        InvalidModelError: if an attribute has not one element (pads: two) per spatial dimension,
            or ``auto_pad`` is unknown.
    """
    x = jnp.asarray(x)
    found = _pools(
        x.shape[2:],
        kernel_shape,
        auto_pad=auto_pad,
        pads=pads,
        strides=strides,
        dilations=dilations,
        ceil_mode=ceil_mode,
    )
    y = _window_max(x, found=found)
    if outputs == 1:
        return y
    places, sizes = _first_places(x, found), x.shape[2:]
    if storage_order:
        places = _ravel(_unravel(places, sizes)[::-1], sizes[::-1])
    wide = jax.dtypes.canonicalize_dtype(np.int64)
    planes = lax.iota(wide, x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * len(sizes))
    return y, places.astype(wide) + planes * math.prod(sizes)


@register("AveragePool", 1, 7, 10, 11, 19, 22)
def average_pool(
    x: ArrayLike,
    /,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Mean over windows of ``x`` (N, C, D1, ...).

    It counts the elements of ``x``, with ``count_include_pad`` those of ``pads`` too, but never
    what ``ceil_mode`` adds beyond them. Half precision is summed in float32.

    Raises:
        InvalidModelError: as :func:`max_pool`.
    """
    wide, dtype = widened(jnp.asarray(x)), jnp.result_type(x)
    options: dict[str, Any] = {
        "auto_pad": auto_pad,
        "pads": pads,
        "strides": strides,
        "dilations": dilations,
    }
    found = _pools(wide.shape[2:], kernel_shape, **options, ceil_mode=ceil_mode)
    stated = place(wide.shape[2:], kernel_shape, **options)
    sizes, counted = wide.shape[2:], found
    if count_include_pad:
        ends = [e - b for (_, e), (_, b) in zip(found.pads, stated.pads, strict=True)]
        sizes = [n + sum(p) for n, p in zip(sizes, stated.pads, strict=True)]
        counted = found._replace(pads=tuple((0, e) for e in ends))
    counts = jnp.ones((), wide.dtype)
    for axis, size in enumerate(sizes):  # one axis at a time: XLA would fold the whole at length
        inside = _window_sum(jnp.ones((1, 1, size), wide.dtype), counted.along(axis))
        counts = counts * inside.reshape(-1, *[1] * (len(sizes) - 1 - axis))
    return (_window_sum(wide, found) / counts).astype(dtype)


def _window_sum(x: Array, found: Windows) -> Array:
    return _windowed(x, np.zeros((), x.dtype), lax.add, found)


@register("LpPool", 2, 11, 18, 22)
def lp_pool(
    x: ArrayLike,
    /,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    p: float = 2,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """``p``-norm over windows of ``x`` (N, C, D1, ...). Derivative where the norm is 0: 0.

    Raises:
        InvalidModelError: as :func:`max_pool`.
    """
    wide, dtype = widened(jnp.asarray(x)), jnp.result_type(x)
    found = _pools(
        wide.shape[2:],
        kernel_shape,
        auto_pad=auto_pad,
        pads=pads,
        strides=strides,
        dilations=dilations,
        ceil_mode=ceil_mode,
    )
    return _root(_window_sum(_power(wide, p), found), p).astype(dtype)


@register("LpPool", 1)
def lp_pool_1(
    x: ArrayLike,
    /,
    *,
    auto_pad: str = "NOTSET",
    kernel_shape: Sequence[int] | None = None,
    p: float = 2.0,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """``p``-norm over windows of ``x`` (N, C, D1, ...). Derivative where the norm is 0: 0.

    Raises:
        InvalidModelError: if ``kernel_shape`` is absent, for which there is no default.
    """
    if kernel_shape is None:
        raise InvalidModelError("the attribute 'kernel_shape' is absent")
    return lp_pool(x, auto_pad=auto_pad, kernel_shape=kernel_shape, p=p, pads=pads, strides=strides)


def _power(x: Array, p: float) -> Array:
    """``|x| ** p``; derivative at 0: 0."""
    if p <= 0:
        raise InvalidModelError(f"p is {p}, expected a positive number")
    if p == 2:
        return x * x
    return jnp.where(x == 0, 0, jnp.abs(jnp.where(x == 0, 1, x)) ** p)


def _root(total: Array, p: float) -> Array:
    """``total ** (1 / p)``; derivative at 0: 0."""
    positive = jnp.where(total == 0, 1, total)
    return jnp.where(total == 0, 0, jnp.sqrt(positive) if p == 2 else positive ** (1 / p))


def _spatial(x: Array) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@register("GlobalAveragePool", 1, 22)
def global_average_pool(x: ArrayLike, /) -> Array:
    """Mean over all spatial dimensions, which become 1."""
    x = jnp.asarray(x)
    return jnp.mean(x, axis=_spatial(x), keepdims=True)


@register("GlobalMaxPool", 1, 22)
@kink(lambda dx, x: _take(dx, _first_of_channel(x)))
def global_max_pool(x: ArrayLike, /) -> Array:
    """Maximum over all spatial dimensions, which become 1; NaN if one is.

    Derivative at ties: all to the first.
    """
    x = jnp.asarray(x)
    return jnp.expand_dims(over(x, 1, _spatial(x)), _spatial(x))


def _first_of_channel(x: Array) -> Array:
    places = lax.argmax(x.reshape(*x.shape[:2], math.prod(x.shape[2:])), 2, np.int32)
    return places.reshape(*x.shape[:2], *[1] * (x.ndim - 2))


@register("GlobalLpPool", 1, 2, 22)
def global_lp_pool(x: ArrayLike, /, *, p: float = 2) -> Array:
    """``p``-norm over all spatial dimensions, which become 1. Derivative where it is 0: 0."""
    wide, dtype = widened(jnp.asarray(x)), jnp.result_type(x)
    return _root(jnp.sum(_power(wide, p), _spatial(wide), keepdims=True), p).astype(dtype)


@register("MaxUnpool", 9, 11, 22, static=["output_shape"])
def max_unpool(
    x: ArrayLike,
    i: ArrayLike,
    output_shape: ArrayLike | None = None,
    /,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Zeros with the elements of ``x`` at ``i``, flat indices as MaxPool's second output gives.

    They count in the output. Where they do not fit an ``output_shape`` (an index lies outside of
    its element's window), but fit the shape that the attributes imply, they count in that one,
    which fills the beginning of the output: ONNX's own test does so.

    Raises:
        InvalidModelError: if ``i`` has another shape than ``x``, or ``output_shape`` another rank.
    """
    x, i = jnp.asarray(x), jnp.asarray(i).astype(np.int32)
    if x.ndim != i.ndim or not all(map(same_dim, x.shape, i.shape)):
        raise InvalidModelError(f"I has shape {i.shape}, expected {x.shape}, that of X")
    found = place(x.shape[2:], kernel_shape, pads=pads, strides=strides)
    implied = (*x.shape[:2], *_pooled_sizes(x.shape[2:], found))
    shape = implied if output_shape is None else as_dims(output_shape)
    if len(shape) != x.ndim:
        raise InvalidModelError(f"output_shape has {len(shape)} elements, expected {x.ndim}")
    if not all(map(same_dim, shape, implied)):
        i = _recounted(i, implied, shape, found)
    flat = jnp.zeros(math.prod(shape), x.dtype)
    size = math.prod(x.shape)
    return flat.at[i.reshape(size)].set(x.reshape(size), mode="drop").reshape(shape)


def _pooled_sizes(counts: Sequence[Any], found: Windows) -> list[Any]:
    """The sizes over which there are so many windows."""
    axes = zip(counts, found.strides, found.kernel, found.pads, strict=True)
    return [(n - 1) * s + k - sum(ends) for n, s, k, ends in axes]


def _recounted(i: Array, implied: Sequence[Any], shape: Sequence[Any], found: Windows) -> Array:
    """Flat indices in ``shape``, taken to count in ``implied`` where they fit only that."""
    moved = _ravel(_unravel(i, implied), shape)
    return jnp.where(_fits(i, shape, found) | ~_fits(i, implied, found), i, moved)


def _unravel(i: Array, shape: Sequence[Any]) -> list[Array]:
    """Flat indices in ``shape`` as one index for each dimension."""
    digits = []
    for size in reversed(shape[1:]):
        digits.append(i % size)
        i = i // size
    return [i, *reversed(digits)]


def _ravel(digits: Sequence[Array], shape: Sequence[Any]) -> Array:
    """Flat indices in ``shape``, from one index for each dimension."""
    i = digits[0]
    for size, digit in zip(shape[1:], digits[1:], strict=True):
        i = i * size + digit
    return i


def _fits(i: Array, shape: Sequence[Any], found: Windows) -> Array:
    """Whether all flat indices in ``shape`` lie in the windows of their elements."""
    strides, kernel = (1, 1, *found.strides), (1, 1, *found.kernel)
    begins = (0, 0, *(begin for begin, _ in found.pads))
    fit = jnp.bool_(True)
    for axis, digit in enumerate(_unravel(i, shape)):
        start = lax.broadcasted_iota(np.int32, i.shape, axis) * strides[axis] - begins[axis]
        fit &= jnp.all((start <= digit) & (digit < start + kernel[axis]))
    return fit


@register("MaxRoiPool", 1, 22)
def max_roi_pool(
    x: ArrayLike, rois: ArrayLike, /, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0
) -> Array:
    """Maximum over a grid of bins in each region of ``x`` (N, C, H, W); 0 for an empty bin.

    A row of ``rois`` is (batch, x1, y1, x2, y2), its corners included; scaled corners are rounded,
    halves away from 0. Derivative at ties: all to the first. https://arxiv.org/abs/1504.08083
    """
    x, rois = jnp.asarray(x), lax.stop_gradient(jnp.asarray(rois))
    corners = lax.round(rois[:, 1:] * spatial_scale, lax.RoundingMethod.AWAY_FROM_ZERO)
    corners = corners.astype(np.int32)
    images = jnp.take(x, rois[:, 0].astype(np.int32), axis=0, mode="clip")
    height, width = x.shape[2:]
    rows = _bins(corners[:, 1], corners[:, 3], pooled_shape[0], height)
    columns = _bins(corners[:, 0], corners[:, 2], pooled_shape[1], width)
    flat = images.reshape(*images.shape[:2], height * width)
    pooled = []
    for row, column in np.ndindex(*pooled_shape):
        mask = (rows[:, row, :, None] & columns[:, column, None, :]).reshape(-1, 1, height * width)
        places = lax.argmax(jnp.where(mask, flat, least(x.dtype)), 2, np.int32)[..., None]
        largest = jnp.take_along_axis(flat, places, axis=2, mode="clip")[..., 0]
        pooled.append(jnp.where(jnp.any(mask, 2), largest, 0))
    return jnp.stack(pooled, axis=2).reshape(*images.shape[:2], *pooled_shape)


def _bins(first: Array, last: Array, count: int, size: Any) -> Array:
    """Which of ``size`` elements the bins of each region cover: (regions, count, size)."""
    length = jnp.maximum(last - first + 1, 1)[:, None, None]
    bins = lax.iota(np.int32, count)[:, None]
    start = bins * length // count + first[:, None, None]
    stop = -(-(bins + 1) * length // count) + first[:, None, None]
    element = lax.iota(np.int32, size)
    return (element >= start) & (element < stop)

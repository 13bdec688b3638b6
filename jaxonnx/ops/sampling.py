"""Sampling images at computed places."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.known import as_dims, same_dim
from jaxonnx.define.older import older
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops._indices import as_array, checked, count_from_front, outside, undefined
from jaxonnx.ops._interpolate import (
    Taps,
    contracted,
    interpolated,
    kernel,
    neighbours,
    weighted,
)
from jaxonnx.ops._precision import work_dtype

__all__ = ["affine_grid", "grid_sample", "roi_align"]


@register("GridSample", 20, 22)
def grid_sample(
    x: ArrayLike,
    grid: ArrayLike,
    /,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Array:
    """``x`` ``[n, c, d1, ..., dr]`` at the places ``grid`` ``[n, *out, r]``: ``[n, c, *out]``.

    Places are listed innermost first; -1 and 1 are the borders of ``x``, or with
    ``align_corners`` the centers of its border pixels. Pixels outside are 0 (``zeros``), the
    nearest (``border``) or the mirrored one (``reflection``). ``nearest`` rounds half to even.
    Integers are computed as floats and cast. Derivative by ``grid`` at the center of a pixel:
    that towards the next one. Spatial transformer networks, arXiv:1506.02025.

    Raises:
        InvalidModelError: for an unknown mode, or ranks or batch sizes that do not fit.
    """
    data, coordinates = jnp.asarray(x), jnp.asarray(grid)
    rank, shape = data.ndim - 2, coordinates.shape[:-1]
    if coordinates.ndim != data.ndim or coordinates.shape[-1] != rank:
        raise InvalidModelError(
            f"grid has shape {(*shape, coordinates.shape[-1])} for {data.shape}"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise InvalidModelError(f"padding_mode {padding_mode!r} is unknown")
    if not same_dim(shape[0], data.shape[0]):
        raise InvalidModelError(f"grid has batch size {shape[0]}, expected {data.shape[0]}")
    coordinates = coordinates.astype(work_dtype(coordinates.dtype))
    axes = []
    for k, size in enumerate(data.shape[2:]):
        extent = jnp.asarray(size, coordinates.dtype)
        unit = (coordinates[..., rank - 1 - k] + 1) / 2
        place = unit * (extent - 1) if align_corners else unit * extent - 0.5
        index, weight = _taps(place, mode)
        inside, counts = _inside(index, size, padding_mode, align_corners)
        axes.append(Taps(inside, jnp.where(counts, weight, 0)))
    return interpolated(data.astype(work_dtype(data.dtype)), axes).astype(data.dtype)


def _taps(place: Array, mode: str) -> tuple[Array, Array]:
    """The pixels around a place along one axis, as indices that may lie outside, and weights."""
    if mode == "nearest":
        index = jnp.round(place).astype(np.int32)[..., None]
        return index, jnp.ones(index.shape, place.dtype)
    chosen = kernel(mode)
    index, distance = neighbours(place, chosen.radius)
    return index, chosen.weight(distance)


def _inside(index: Array, size: Any, mode: str, align_corners: int) -> tuple[Array, Array]:
    """An index that may lie outside as one inside, and whether its pixel counts."""
    size = jnp.asarray(size, np.int32)
    if mode == "reflection":
        period = jnp.maximum(2 * (size - 1) if align_corners else 2 * size, 1)
        index %= period
        return jnp.minimum(index, period - index - (0 if align_corners else 1)), index >= 0
    clamped = jnp.clip(index, 0, size - 1)
    return clamped, (index == clamped) | (mode == "border")


_MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""What the modes of version 16 are called since."""

grid_sample_16 = older(grid_sample, 16, convert={"mode": lambda mode: _MODES.get(mode, mode)})


@register("AffineGrid", 20, static=["size"])
def affine_grid(theta: ArrayLike, size: ArrayLike, /, *, align_corners: int = 0) -> Array:
    """Where affine maps ``theta`` ``[n, r, r + 1]`` take the pixels of an image.

    ``size`` ``[n, c, d1, ..., dr]`` gives ``[n, d1, ..., dr, r]``, innermost coordinate first;
    -1 and 1 are as for GridSample. An axis of one pixel lies at 0.
    """
    matrices, dims = jnp.asarray(theta), as_dims(size)[2:]
    if matrices.shape[1:] != (len(dims), len(dims) + 1):
        raise InvalidModelError(f"theta has shape {matrices.shape} for {len(dims)} dimensions")
    work = work_dtype(matrices.dtype)
    maps = jnp.expand_dims(matrices.astype(work), range(1, 1 + len(dims)))
    grid = maps[..., -1]
    for k, dim in enumerate(dims):
        extent, steps = jnp.asarray(dim, work), 2 * jnp.arange(dim, dtype=work) + 1
        line = (steps - extent) / (jnp.maximum(extent - 1, 1) if align_corners else extent)
        line = line.reshape([-1 if d == k else 1 for d in range(len(dims))])
        grid = grid + maps[..., len(dims) - 1 - k] * line[..., None]
    return grid.astype(matrices.dtype)


@register("RoiAlign", 16, 22)
def roi_align(
    x: ArrayLike,
    rois: ArrayLike,
    batch_indices: ArrayLike,
    /,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Array:
    """Regions of interest of ``x`` ``[n, c, h, w]`` pooled to ``[m, c, output_height, ..._width]``.

    ``rois`` ``[m, 4]`` are ``x1, y1, x2, y2`` times ``1 / spatial_scale``. Each bin takes the
    mean, or the maximum, of ``sampling_ratio`` squared samples (0: about one a pixel); a sample
    is a bilinear mean, or the largest of its four weighted corners. Mask R-CNN, arXiv:1703.06870.

    Raises:
        InvalidModelError: if a mode is unknown, or a known one of ``batch_indices`` names no image;
            where a traced one names none the region is NaN. Negative ones count from the end.
    """
    if mode not in ("avg", "max"):
        raise InvalidModelError(f"mode {mode!r}, expected avg or max")
    if coordinate_transformation_mode not in ("half_pixel", "output_half_pixel"):
        raise InvalidModelError(f"mode {coordinate_transformation_mode!r} is unknown")
    data = jnp.asarray(x)
    shift, least = (0.5, -np.inf) if coordinate_transformation_mode == "half_pixel" else (0, 1)
    work = work_dtype(data.dtype)
    boxes = jnp.asarray(rois).astype(work) * spatial_scale - shift
    pool = _mean if mode == "avg" else _largest

    def one(image: Array, box: Array) -> Array:
        extent = jnp.maximum(box[2:] - box[:2], least)
        rows = _corners(box[1], extent[1], output_height, sampling_ratio, data.shape[2])
        columns = _corners(box[0], extent[0], output_width, sampling_ratio, data.shape[3])
        return pool(data[image].astype(work), rows, columns)

    images = count_from_front(checked(as_array(batch_indices), data.shape[0]), data.shape[0])
    each = jax.checkpoint(lambda pair: one(*pair))  # or the derivative would keep every image
    pooled = lax.map(each, (images, boxes)).astype(data.dtype)
    return undefined(pooled, outside(images, data.shape[0] - 1)[:, None, None, None])


class _Corners(NamedTuple):
    """How the samples of each bin meet the pixels of one axis.

    Attributes:
        weight: of a corner of a sample, ``[bins, corners, pixels]``.
        met: whether that corner is that pixel, of the same shape.
        outside: whether a sample of a bin lies outside, where all is 0, ``[bins]``.
        samples: how many of them a bin has.
    """

    weight: Array
    met: Array
    outside: Array
    samples: Array


def _corners(start: Array, extent: Array, bins: int, ratio: int, size: Any) -> _Corners:
    width = extent / bins
    count = jnp.asarray(ratio, np.int32) if ratio > 0 else jnp.ceil(width).astype(np.int32)
    step = width / jnp.maximum(count, 1).astype(width.dtype)
    first = (start + jnp.arange(bins, dtype=width.dtype) * width + step / 2)[:, None, None]
    pixels = jnp.arange(size, dtype=np.int32)
    order = jnp.arange(ratio if ratio > 0 else 8, dtype=np.int32)[:, None]
    if ratio <= 0:
        # Steps exceed 1/2 where there are several, so at most 6 samples meet a pixel: those from
        # one before it (two for pixel 1, which a sample moved in to 0 meets with weight 0) to one
        # behind. Two more are for rounding.
        reached = (pixels.astype(width.dtype) - 2 - first) / jnp.where(step > 0, step, 1)
        order = order + jnp.maximum(jnp.floor(lax.stop_gradient(reached)), 0).astype(np.int32)
    place = first + order.astype(width.dtype) * step
    limit = jnp.asarray(size, width.dtype)
    counts = (order < count) & (place >= -1) & (place <= limit)
    place = jnp.clip(place, 0, limit - 1)
    linear = kernel("linear")
    near, distance = neighbours(place, linear.radius)
    near = jnp.minimum(near, jnp.asarray(size - 1, np.int32))
    met = [counts & (near[..., k] == pixels) for k in range(2)]
    weight = [jnp.broadcast_to(linear.weight(distance[..., k]), m.shape) for k, m in enumerate(met)]
    ends = jnp.stack([first, first + (count - 1).astype(width.dtype) * step])
    outside = ((ends < -1) | (ends > limit)).any(0).reshape(bins)
    return _Corners(jnp.concatenate(weight, 1), jnp.concatenate(met, 1), outside, count)


def _mean(image: Array, rows: _Corners, columns: _Corners) -> Array:
    def shares(corners: _Corners) -> Array:
        total = jnp.where(corners.met, corners.weight, 0).sum(1)
        return total / jnp.maximum(corners.samples, 1).astype(total.dtype)

    return contracted(
        shares(columns), contracted(shares(rows), image, "ph,chw->cpw"), "qw,cpw->cpq"
    )


def _largest(image: Array, rows: _Corners, columns: _Corners) -> Array:
    """The largest weighted corner: with the largest weight if positive, else the smallest.

    It is NaN where a corner with a weight is.
    """

    def reduce(values: Array, corners: _Corners, sign: int) -> Array:
        """The largest of ``[..., pixels]`` with weights, over those met: ``[..., bins]``."""
        weight = jnp.where(corners.met, corners.weight, -np.inf if sign > 0 else np.inf)
        weight = weight.max(1) if sign > 0 else weight.min(1)
        values, valid = values[..., None, :], corners.met.any(1)
        valid = valid & (values != -np.inf)
        product = weighted(jnp.where(valid, values, 0), jnp.where(valid, weight, 0))
        product = jnp.where(valid, product, -np.inf)
        first = lax.argmax(product, product.ndim - 1, np.int32)[..., None]
        largest = jnp.take_along_axis(product, first, -1)[..., 0]
        return jnp.where(jnp.isnan(product).any(-1), np.nan, largest)

    candidates = []
    for sign, chosen in ((1, (image >= 0) | jnp.isnan(image)), (-1, image < 0)):
        lines = reduce(jnp.where(chosen, image, -np.inf), columns, sign)
        candidates.append(reduce(jnp.swapaxes(lines, 1, 2), rows, sign))
    best = jnp.swapaxes(jnp.maximum(*candidates), 1, 2)
    outside = rows.outside[:, None] | columns.outside
    sampled = (rows.samples > 0) & (columns.samples > 0)
    return jnp.where(sampled, jnp.where(outside, jnp.maximum(best, 0), best), 0)


roi_align_10 = older(
    roi_align,
    10,
    fixed={"coordinate_transformation_mode": "output_half_pixel"},
    note="Regions are not shifted by half a pixel, and have at least one pixel.",
)

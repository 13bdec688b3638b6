"""Sampling images at computed places."""

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.errors import InvalidModelError
from jaxonnx.known import as_dims, shape_is_symbolic
from jaxonnx.ops._indices import int32
from jaxonnx.registry import register

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
    Integers are computed as floats and cast. Spatial transformer networks, arXiv:1506.02025.

    Raises:
        InvalidModelError: for an unknown mode, or ranks that do not fit.
    """
    x, grid = jnp.asarray(x), jnp.asarray(grid)
    rank = x.ndim - 2
    if grid.ndim != rank + 2 or grid.shape[-1] != rank:
        raise InvalidModelError(f"grid has shape {grid.shape}, x {x.shape}: ranks do not fit")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise InvalidModelError(f"padding_mode {padding_mode!r} is unknown")
    work = jnp.promote_types(x.dtype, np.float32)
    grid = grid.astype(jnp.promote_types(grid.dtype, np.float32))
    taps = []
    for k, size in enumerate(x.shape[2:]):
        extent = jnp.asarray(size, grid.dtype)
        unit = (grid[..., rank - 1 - k] + 1) / 2
        place = unit * (extent - 1) if align_corners else unit * extent - 0.5
        weighted = _taps(place, mode)
        taps.append([(*_inside(i, size, padding_mode, align_corners), w) for i, w in weighted])
    batch = lax.broadcasted_iota(np.int32, (*grid.shape[:-1],), 0)
    total = jnp.zeros((*grid.shape[:-1], x.shape[1]), work)
    for corner in itertools.product(*taps):
        places, masks, weights = zip(*corner, strict=True)
        pixels = x.at[(batch, slice(None), *places)].get(mode="promise_in_bounds").astype(work)
        visible = math.prod(masks[1:], start=masks[0])[..., None]
        weight = math.prod(weights[1:], start=weights[0]).astype(work)[..., None]
        total += jnp.where(visible, pixels * weight, 0)
    return jnp.moveaxis(total, -1, 1).astype(x.dtype)


def _taps(place: Array, mode: str) -> list[tuple[Array, Array]]:
    """The pixels around a place along one axis, as indices that may lie outside, and weights."""
    if mode == "nearest":
        return [(jnp.round(place).astype(np.int32), jnp.ones_like(place))]
    floor = jnp.floor(place)
    base, f = floor.astype(np.int32), place - floor
    if mode == "linear":
        return [(base, 1 - f), (base + 1, f)]
    if mode != "cubic":
        raise InvalidModelError(f"mode {mode!r}, expected nearest, linear or cubic")
    a = -0.75  # as in the framework that the operator comes from; the text gives no value
    near = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (f, 1 - f)]
    far = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in (1 + f, 2 - f)]
    weights = (far[0], near[0], near[1], far[1])
    return [(base + k - 1, weight) for k, weight in enumerate(weights)]


def _inside(index: Array, size: Any, mode: str, align_corners: int) -> tuple[Array, Array]:
    """An index that may lie outside as one inside, and whether its pixel counts."""
    size = jnp.asarray(size, np.int32)
    if mode == "reflection":
        period = jnp.maximum(2 * (size - 1) if align_corners else 2 * size, 1)
        index %= period
        return jnp.minimum(index, period - index - (0 if align_corners else 1)), index >= 0
    clamped = jnp.clip(index, 0, size - 1)
    return clamped, (index == clamped) | (mode == "border")


@register("GridSample", 16)
def grid_sample_16(
    x: ArrayLike,
    grid: ArrayLike,
    /,
    *,
    align_corners: int = 0,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
) -> Array:
    """GridSample of ``[n, c, h, w]``, whose modes are nearest, bilinear and bicubic."""
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return grid_sample(x, grid, align_corners=align_corners, mode=mode, padding_mode=padding_mode)


@register("AffineGrid", 20, static=["size"])
def affine_grid(theta: ArrayLike, size: ArrayLike, /, *, align_corners: int = 0) -> Array:
    """Where affine maps ``theta`` ``[n, r, r + 1]`` take the pixels of an image.

    ``size`` ``[n, c, d1, ..., dr]`` gives ``[n, d1, ..., dr, r]``, innermost coordinate first;
    -1 and 1 are as for GridSample. An axis of one pixel lies at 0.
    """
    theta = jnp.asarray(theta)
    dims = as_dims(size)[2:]
    if theta.shape[1:] != (len(dims), len(dims) + 1):
        raise InvalidModelError(f"theta has shape {theta.shape} for {len(dims)} dimensions")
    work = jnp.promote_types(theta.dtype, np.float32)
    maps = theta.astype(work).reshape(-1, *[1] * len(dims), *theta.shape[1:])
    grid = maps[..., -1]
    for k, dim in enumerate(dims):
        extent, steps = jnp.asarray(dim, work), 2 * jnp.arange(dim, dtype=work) + 1
        line = (steps - extent) / (jnp.maximum(extent - 1, 1) if align_corners else extent)
        line = line.reshape([-1 if d == k else 1 for d in range(len(dims))])
        grid = grid + maps[..., len(dims) - 1 - k] * line[..., None]
    return grid.astype(theta.dtype)


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
    """
    if mode not in ("avg", "max"):
        raise InvalidModelError(f"mode {mode!r}, expected avg or max")
    if coordinate_transformation_mode not in ("half_pixel", "output_half_pixel"):
        raise InvalidModelError(f"mode {coordinate_transformation_mode!r} is unknown")
    x = jnp.asarray(x)
    half_pixel = coordinate_transformation_mode == "half_pixel"
    work = jnp.promote_types(x.dtype, np.float32)
    boxes = jnp.asarray(rois).astype(work) * spatial_scale - (0.5 if half_pixel else 0)
    least = -np.inf if half_pixel else 1.0
    low, extent = boxes[:, :2], boxes[:, 2:] - boxes[:, :2]
    extent = jnp.maximum(extent, least)
    outputs = {3: output_width, 2: output_height}
    sides = [
        _bins(low[:, k], extent[:, k], outputs[axis], sampling_ratio, x.shape[axis])
        for k, axis in enumerate((3, 2))
    ]
    pool = _average if mode == "avg" else _maximum

    def one(arguments: Any) -> Array:
        image, *corners = arguments
        return pool(x[image].astype(work), *corners)

    arguments = (int32(jnp.asarray(batch_indices)), *sides)
    return lax.map(one, arguments).astype(x.dtype)

"""Resizing by interpolation: one axis at a time, by an index or by a matrix of weights."""

import fractions
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.known import as_dims, same_dim, shape_is_symbolic, xp
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError, StaticValueError
from jaxonnx.ops._axes import all_from_front
from jaxonnx.ops._pixels import saturated, work_dtype

__all__ = ["resize", "upsample"]

_CROP = "tf_crop_and_resize"


@register("Resize", 18, 19, static=["roi", "scales", "sizes"], settings=["roi", "scales"])
def resize(
    x: ArrayLike,
    roi: ArrayLike | None = None,
    scales: ArrayLike | None = None,
    sizes: ArrayLike | None = None,
    /,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Array:
    """``x`` resized along ``axes``: by ``scales`` to ``floor(size * scale)``, or to ``sizes``.

    An axis whose scale is 1 is left alone. A scale stands for the simple fraction that rounds to
    it, so that 4 / 3 of 3 pixels are 4 and ties fall where they do for ``sizes``. With
    ``align_corners`` the new length counts with its fraction, with ``tf_crop_and_resize`` it does
    not depend on ``roi``, as in ONNX's own tests and shape inference. Integers are computed as
    floats, rounded half to even and saturated. Cubic: Keys (1981), doi:10.1109/TASSP.1981.1163711.

    Raises:
        InvalidModelError: if not exactly one of ``scales`` and ``sizes`` is given, or for an
            unknown mode.
    """
    result = jnp.asarray(x)
    chosen = all_from_front(range(result.ndim) if axes is None else axes, result.ndim)
    old = [result.shape[a] for a in chosen]
    lengths, ratios = _targets(old, scales, sizes, keep_aspect_ratio_policy)
    crops = coordinate_transformation_mode == _CROP
    window = np.asarray(roi, np.float64) if crops else np.repeat([0.0, 1.0], len(chosen))
    if window.size != 2 * len(chosen):
        raise InvalidModelError(f"roi has {window.size} entries, expected {2 * len(chosen)}")
    kernel, radius = _kernel(mode, cubic_coeff_a)
    if kernel is not None:
        result = result.astype(work_dtype(result.dtype))
    for k, axis in enumerate(chosen):
        start, end = window[k], window[len(chosen) + k]
        if same_dim(*ratios[k]) and (start, end) == (0, 1):
            continue
        if same_dim(old[k], 0):
            raise InvalidModelError(f"axis {axis} has size 0 and cannot grow to {lengths[k]}")
        place = functools.partial(_places, coordinate_transformation_mode, old[k], lengths[k])
        places = place(ratios[k], start, end)
        if kernel is None:
            result = _pick(result, axis, _nearest(places, nearest_mode))
        else:
            shrink = _shrink(ratios[k]) if antialias else 1
            reach = _reach(radius, shrink, old[k])
            options = {"normalized": bool(antialias), "clamped": not exclude_outside}
            weights = _weights(places, old[k], kernel, shrink, reach, result.dtype, **options)
            result = _apply(weights, result, axis)
        if crops:
            outside = jnp.asarray((places < 0) | (places > xp(places).asarray(old[k] - 1)))
            outside = outside.reshape([-1 if d == axis else 1 for d in range(result.ndim)])
            result = jnp.where(outside, jnp.asarray(extrapolation_value, result.dtype), result)
    return saturated(result, jnp.asarray(x).dtype)


def _targets(
    old: Sequence[Any], scales: Any, sizes: Any, policy: str
) -> tuple[Sequence[Any], Sequence[tuple[Any, Any]]]:
    """For each axis its new length, and its scale as a numerator and a denominator."""
    if (np.size(scales) if scales is not None else 0) == 0:
        scales = None  # Resize-11 has no absent scales: they are empty if sizes are given
    given = sizes if scales is None else scales
    if given is None or (scales is not None and sizes is not None):
        raise InvalidModelError("exactly one of scales and sizes is expected")
    if np.size(given) != len(old):
        raise InvalidModelError(f"{np.size(given)} scales or sizes, expected {len(old)}")
    if scales is not None:
        ratios = [_fraction(s) for s in np.asarray(scales, np.float32)]
        return [_scaled(n, r) for n, r in zip(old, ratios, strict=True)], ratios
    wanted = as_dims(sizes)
    if policy == "stretch":
        return wanted, list(zip(wanted, old, strict=True))
    choose = {"not_larger": min, "not_smaller": max}.get(policy)
    if choose is None:
        raise InvalidModelError(f"keep_aspect_ratio_policy {policy!r} is unknown")
    if shape_is_symbolic((*wanted, *old)):
        raise StaticValueError(
            f"keep_aspect_ratio_policy {policy!r} needs fixed sizes, found {wanted} for {old}"
        )
    scale = choose(fractions.Fraction(w, n) for w, n in zip(wanted, old, strict=True))
    lengths = [math.floor(scale * n + fractions.Fraction(1, 2)) for n in old]
    return lengths, [(scale.numerator, scale.denominator)] * len(old)


def _fraction(scale: Any) -> tuple[Any, Any]:
    """The simplest fraction that rounds to a float32 scale, or the scale over 1."""
    if not scale > 0:
        raise InvalidModelError(f"scale {scale}, expected a positive one")
    simple = fractions.Fraction(float(scale)).limit_denominator(1024)
    exact = np.float32(float(simple)) == scale
    return (simple.numerator, simple.denominator) if exact else (float(scale), 1)


def _scaled(size: Any, ratio: tuple[Any, Any]) -> Any:
    """``floor(size * scale)``, where sizes are fixed in float32 as in ONNX's shape inference."""
    numerator, denominator = ratio
    if not shape_is_symbolic((size,)):
        return math.floor(np.float32(size) * np.float32(numerator / denominator))
    if not shape_is_symbolic((numerator,)):
        return size * numerator // denominator
    raise StaticValueError(
        f"scale {numerator} is no simple fraction, so it cannot scale the size {size}; fix that"
    )


def _places(
    mode: str, size: Any, length: Any, ratio: tuple[Any, Any], start: float, end: float
) -> Any:
    """Where each of ``length`` entries lies among the ``size`` old ones: known if both are."""
    m = jnp if shape_is_symbolic((size, length)) else np
    kind = jnp.result_type(float) if m is jnp else np.float64
    x = m.arange(length, dtype=kind)
    size, length, up, down = (m.asarray(v, kind) for v in (size, length, *ratio))
    width = size * up / down
    if mode == "asymmetric":
        return x * down / up
    if mode == "align_corners":
        return x * (size - 1) / m.where(width == 1, 1, width - 1)
    if mode == _CROP:
        step = (end - start) * (size - 1) / m.maximum(length - 1, 1)
        return (size - 1) * m.where(length > 1, start, (start + end) / 2) + x * step
    centered = (x + 0.5) * down / up - 0.5
    if mode == "half_pixel":
        return centered
    if mode == "pytorch_half_pixel":
        return m.where(length > 1, centered, 0)
    if mode == "half_pixel_symmetric":
        return size / 2 * (1 - length / width) + centered
    if mode == "tf_half_pixel_for_nn":
        return centered + 0.5
    raise InvalidModelError(f"coordinate_transformation_mode {mode!r} is unknown")


def _nearest(places: Any, mode: str) -> Any:
    m = xp(places)
    rounding = {
        "round_prefer_floor": lambda v: m.ceil(v - 0.5),
        "round_prefer_ceil": lambda v: m.floor(v + 0.5),
        "floor": m.floor,
        "ceil": m.ceil,
    }
    if mode not in rounding:
        raise InvalidModelError(f"nearest_mode {mode!r}, expected one of {', '.join(rounding)}")
    return rounding[mode](places).astype(np.int32)


def _pick(x: Array, axis: int, index: Any) -> Array:
    """Entries of ``axis``; where the steps are even, in a form whose derivative is no scatter."""
    size = x.shape[axis]
    if isinstance(index, np.ndarray) and index.size and not shape_is_symbolic((size,)):
        index = index.clip(0, size - 1)
        repeats = len(index) // size
        if np.array_equal(index, np.arange(size).repeat(repeats)):
            return jnp.repeat(x, repeats, axis)
        steps = np.unique(np.diff(index))
        if len(steps) == 1 and steps[0] > 0:
            return lax.slice_in_dim(x, index[0], index[-1] + 1, int(steps[0]), axis)
    return jnp.take(x, jnp.maximum(index, 0), axis=axis, mode="clip")


def _kernel(mode: str, a: float) -> tuple[Callable[[Array], Array] | None, int]:
    """The weight of an entry at a distance, and the distance from which on it is 0."""
    if mode == "nearest":
        return None, 0
    if mode == "linear":
        return lambda d: jnp.maximum(1 - d, 0), 1
    if mode != "cubic":
        raise InvalidModelError(f"mode {mode!r}, expected nearest, linear or cubic")

    def cubic(d: Array) -> Array:
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((d - 5) * d + 8) * d * a - 4 * a
        return jnp.where(d <= 1, near, jnp.where(d < 2, far, 0))

    return cubic, 2


def _shrink(ratio: tuple[Any, Any]) -> Any:
    up, down = ratio
    if shape_is_symbolic(d for d in ratio if not isinstance(d, float)):
        up, down = (jnp.asarray(v, np.float32) for v in ratio)
        return jnp.minimum(up / down, 1)
    return min(up / down, 1)


def _reach(radius: int, shrink: Any, size: Any) -> Any:
    """How many entries beyond the border a kernel widened by ``1 / shrink`` may meet."""
    if isinstance(shrink, Array):
        return radius * size + 1
    return math.ceil(radius / shrink) + 1 if shrink else 0


def _weights(
    places: Any,
    size: Any,
    kernel: Callable[[Array], Array],
    shrink: Any,
    reach: Any,
    dtype: Any,
    *,
    normalized: bool,
    clamped: bool,
) -> Array:
    """The matrix ``[new, old]`` that interpolates at ``places``.

    What falls outside goes to the border entry (``clamped``), or to those inside in proportion.
    """
    real = jnp.finfo(dtype).dtype
    floor = xp(places).floor(places)
    base, rest = floor.astype(np.int32)[:, None], (places - floor).astype(real)[:, None]
    entries = jnp.arange(size + 2 * reach, dtype=np.int32) - jnp.asarray(reach, np.int32)
    distance = jnp.abs((entries - base).astype(real) - rest)  # exact where base is large
    weights = kernel(distance * jnp.asarray(shrink, real))
    inside = lax.slice_in_dim(weights, reach, reach + size, axis=1)
    if clamped:
        last = jnp.asarray(size - 1, np.int32)
        total = lambda side: jnp.where(side, weights, 0).sum(1, keepdims=True)
        place = jnp.arange(size, dtype=np.int32)
        inside += jnp.where(place == 0, total(entries < 0), 0)
        inside += jnp.where(place == last, total(entries > last), 0)
    if normalized or not clamped:
        sums = inside.sum(1, keepdims=True)
        inside /= jnp.where(sums == 0, 1, sums)
    return inside.astype(dtype)


def _apply(weights: Array, x: Array, axis: int) -> Array:
    dimensions = (((axis,), (1,)), ((), ()))
    product = lax.dot_general(x, weights, dimensions, precision=lax.Precision.HIGHEST)
    return jnp.moveaxis(product, -1, axis)


@register("Resize", 11, 13, static=["roi", "scales", "sizes"], settings=["roi", "scales"])
def resize_11(
    x: ArrayLike,
    roi: ArrayLike | None = None,
    scales: ArrayLike | None = None,
    sizes: ArrayLike | None = None,
    /,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Array:
    """Resize of all axes, without a filter against aliasing."""
    return resize(
        x,
        roi,
        scales,
        sizes,
        coordinate_transformation_mode=coordinate_transformation_mode,
        cubic_coeff_a=cubic_coeff_a,
        exclude_outside=exclude_outside,
        extrapolation_value=extrapolation_value,
        mode=mode,
        nearest_mode=nearest_mode,
    )


@register("Resize", 10, static=["scales"], settings=["scales"])
def resize_10(x: ArrayLike, scales: ArrayLike, /, *, mode: str = "nearest") -> Array:
    """Resize from ``place / scale``, rounded down where an axis grows and up where it shrinks.

    The text does not say so, but ONNX's tests of this version do.
    """
    if mode != "nearest":
        return _upsample(x, scales, mode)
    for axis, scale in enumerate(np.asarray(scales)):
        rounding = "ceil" if scale < 1 else "floor"
        x = _upsample(x, scale[None], mode, axes=(axis,), nearest_mode=rounding)
    return jnp.asarray(x)


@register("Upsample", 9, static=["scales"], settings=["scales"])
def upsample(x: ArrayLike, scales: ArrayLike, /, *, mode: str = "nearest") -> Array:
    """Resize from ``place / scale``, rounded down."""
    return _upsample(x, scales, mode)


@register("Upsample", 7)
def upsample_7(x: ArrayLike, /, *, scales: Sequence[float], mode: str = "nearest") -> Array:
    """Upsample by scales that are an attribute."""
    return _upsample(x, np.array(scales, np.float32), mode)


@register("Upsample", 1)
def upsample_1(
    x: ArrayLike, /, *, height_scale: float, width_scale: float, mode: str = "nearest"
) -> Array:
    """Upsample of ``[n, c, h, w]`` in the last two dimensions, ``nearest`` or ``bilinear``."""
    scales = np.array([1, 1, height_scale, width_scale], np.float32)
    return _upsample(x, scales, "linear" if mode == "bilinear" else mode)


def _upsample(x: ArrayLike, scales: Any, mode: str, **options: Any) -> Array:
    options = {"nearest_mode": "floor", **options}
    return resize(
        x, None, scales, coordinate_transformation_mode="asymmetric", mode=mode, **options
    )

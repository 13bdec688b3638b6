"""Resizing by interpolation, one axis at a time."""

import fractions
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, core, lax
from jax.typing import ArrayLike

from jaxonnx.define.kinks import kink
from jaxonnx.define.known import as_dims, same_dim, shape_is_symbolic, xp
from jaxonnx.define.older import older
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError, StaticValueError
from jaxonnx.ops._axes import all_from_front
from jaxonnx.ops._interpolate import Kernel, Taps, kernel, neighbours, weighted
from jaxonnx.ops._pixels import saturated
from jaxonnx.ops._precision import work_dtype

__all__ = ["resize", "upsample"]

_CROP = "tf_crop_and_resize"

_LONGEST = 2**20
"""The longest axis, before and after, that a symbolic size is taken to stand for."""

_UNROLLED = 4
"""Up to how many entries a sum is written out: more are a loop."""


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
    data = jnp.asarray(x)
    chosen = all_from_front(range(data.ndim) if axes is None else axes, data.ndim)
    old = [data.shape[a] for a in chosen]
    lengths, ratios = _targets(old, scales, sizes, keep_aspect_ratio_policy)
    crops = coordinate_transformation_mode == _CROP
    windows = _windows(roi, len(chosen)) if crops else [(0, 1)] * len(chosen)
    along = _along(mode, nearest_mode, cubic_coeff_a, antialias=antialias, exclude=exclude_outside)
    result = data if mode == "nearest" else data.astype(work_dtype(data.dtype))
    for axis, size, length, ratio, window in zip(
        chosen, old, lengths, ratios, windows, strict=True
    ):
        if same_dim(*ratio) and window == (0, 1):
            continue
        if same_dim(size, 0):
            raise InvalidModelError(f"axis {axis} has size 0 and cannot grow to {length}")
        places = _places(coordinate_transformation_mode, size, length, ratio, *window)
        result = along(result, axis, places, ratio)
        if crops:
            result = _extrapolated(result, axis, places, size, extrapolation_value)
    return saturated(result, data.dtype)


def _windows(roi: Any, count: int) -> list[tuple[float, float]]:
    """Where the region begins and ends along each of ``count`` axes; the whole axis is (0, 1)."""
    given = np.asarray(() if roi is None else roi, np.float64)
    if given.size != 2 * count:
        raise InvalidModelError(f"roi has {given.size} entries, expected {2 * count}")
    starts, ends = given.reshape(2, count).tolist()
    return list(zip(starts, ends, strict=True))


def _along(
    mode: str, nearest_mode: str, a: float, *, antialias: int, exclude: int
) -> Callable[[Array, int, Any, tuple[Any, Any]], Array]:
    """What gives the entries of an axis at places: nearest ones, or an interpolation."""
    if mode == "nearest":
        return lambda x, axis, places, _: _pick(x, axis, _nearest(places, nearest_mode))
    chosen = kernel(mode, a)

    def interpolate(x: Array, axis: int, places: Any, ratio: tuple[Any, Any]) -> Array:
        shrink = _shrink(ratio) if antialias else 1
        taps = _taps(places, x.shape[axis], chosen, shrink, exclude=bool(exclude))
        return _apply(x, axis=axis, taps=Taps(taps.index, taps.weight.astype(x.dtype)))

    return interpolate


def _extrapolated(x: Array, axis: int, places: Any, size: Any, value: float) -> Array:
    """``x``, but ``value`` where a place lies outside of the axis."""
    outside = jnp.asarray((places < 0) | (places > xp(places).asarray(size - 1)))
    return jnp.where(_lined_up(outside, axis, x.ndim), jnp.asarray(value, x.dtype), x)


def _lined_up(line: Any, axis: int, rank: int) -> Any:
    """A vector as an array of ``rank`` dimensions that extends along ``axis``."""
    return line.reshape([-1 if d == axis else 1 for d in range(rank)])


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
        return _rounded_down(size, numerator, denominator)
    if isinstance(numerator, float):
        raise StaticValueError(
            f"scale {numerator} is no simple fraction, so it cannot scale the size {size}; fix that"
        )
    limit = _agreement(numerator, denominator)
    if limit is not None and not same_dim(core.min_dim(size, limit), size):
        raise StaticValueError(
            f"scale {numerator}/{denominator} is rounded in single precision, so that no formula "
            f"gives the new length of the size {size} above {limit}: fix that size, or load with "
            f'constraints=["{size}<={limit}"]'
        )
    return size * numerator // denominator


def _rounded_down(size: Any, numerator: Any, denominator: Any) -> int:
    return math.floor(np.float32(size) * np.float32(numerator / denominator))


@functools.cache
def _agreement(numerator: int, denominator: int) -> int | None:
    """The size up to which the scale in float32 gives what the fraction does; None: no end."""
    sizes = np.arange(1, _LONGEST * denominator // max(numerator, denominator) + 1)
    rounded = np.floor(sizes.astype(np.float32) * np.float32(numerator / denominator))
    differ = np.flatnonzero(rounded != sizes * numerator // denominator)
    return int(differ[0]) if len(differ) else None  # sizes[differ[0]] is one more


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


def _shrink(ratio: tuple[Any, Any]) -> Any:
    up, down = ratio
    if shape_is_symbolic(d for d in ratio if not isinstance(d, float)):
        up, down = (jnp.asarray(v, np.float32) for v in ratio)
        return jnp.minimum(up / down, 1)
    return min(up / down, 1)


def _taps(places: Any, size: Any, chosen: Kernel, shrink: Any, *, exclude: bool) -> Taps:
    """The entries that count at each place, with a kernel widened by ``1 / shrink``.

    What falls outside goes to the border entry or, with ``exclude``, to those inside in proportion.
    """
    reach = chosen.radius * size if isinstance(shrink, Array) else _reach(chosen.radius, shrink)
    index, distance = neighbours(places, reach)
    weight = chosen.weight(distance * shrink)
    m = xp(index, weight) if not shape_is_symbolic((size,)) else jnp
    inside = m.clip(index, 0, m.asarray(size - 1, np.int32))
    if exclude:
        weight = m.where(index == inside, weight, 0)
    if exclude or not (isinstance(shrink, int) and shrink == 1):
        sums = weight.sum(-1, keepdims=True)
        weight = weight / m.where(sums == 0, 1, sums)
    return Taps(inside, weight)


def _reach(radius: int, shrink: float) -> int:
    return math.ceil(radius / shrink) if shrink else 0


def _matrix_product(dx: Array, x: Array, *, axis: int, taps: Taps) -> Array:
    """The derivative: a product with a matrix, whose transpose costs far less than a scatter."""
    rows = jnp.arange(taps.index.shape[0], dtype=np.int32)[:, None]
    matrix = jnp.zeros((taps.index.shape[0], x.shape[axis]), x.dtype)
    matrix = matrix.at[rows, taps.index].add(taps.weight, mode="drop")
    dimensions = (((axis,), (1,)), ((), ()))
    product = lax.dot_general(dx, matrix, dimensions, precision=lax.Precision.HIGHEST)
    return jnp.moveaxis(product, -1, axis)


@kink(_matrix_product)
def _apply(x: Array, /, *, axis: int, taps: Taps) -> Array:
    """The weighted sums of entries along ``axis``."""

    def tap(k: Any) -> Array:
        index, weight = (jnp.take(t, k, axis=1) for t in map(jnp.asarray, taps))
        values = jnp.take(x, index, axis=axis, mode="clip")
        return weighted(values, _lined_up(weight, axis, x.ndim))

    count = taps.index.shape[1]
    if not shape_is_symbolic((count,)) and count <= _UNROLLED:
        return functools.reduce(jnp.add, map(tap, range(count)))
    zeros = jnp.zeros_like(tap(0))
    return lax.fori_loop(0, jnp.asarray(count, np.int32), lambda k, total: total + tap(k), zeros)


resize_11 = older(resize, 11, 13)


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


upsample_7 = older(upsample, 7)


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

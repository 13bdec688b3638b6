"""Convolutions and what undoes their windows."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.known import as_dims, same_dim, shape_is_symbolic
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops import _depthwise
from jaxonnx.ops._axes import per_channel, same_shape
from jaxonnx.ops._interpolate import Taps, interpolated, kernel, neighbours, weighted
from jaxonnx.ops._windows import Windows, place, split

__all__ = ["causal_conv_with_state", "col2im", "conv", "conv_transpose", "deform_conv"]


@register("Conv", 1, 11, 22, weights=["w", "b"], product=True)
def conv(
    x: ArrayLike,
    w: ArrayLike,
    b: ArrayLike | None = None,
    /,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Convolution of ``x`` (N, C, D1, ...) with ``w`` (M, C / group, k1, ...), plus ``b`` (M).

    Raises:
        InvalidModelError: if ranks, channels or groups do not fit.
    """
    x, w = jnp.asarray(x), jnp.asarray(w)
    _check_weight(x, w, kernel_shape, group, channels=w.shape[1] * group)
    if w.shape[0] % group:
        raise InvalidModelError(f"W gives {w.shape[0]} channels, expected a multiple of {group=}")
    found = place(
        x.shape[2:],
        w.shape[2:],
        auto_pad=auto_pad,
        pads=pads,
        strides=strides,
        dilations=dilations,
    )
    return _convolve(x, w, b, found, group)


@register("ConvTranspose", 1, 11, 22, weights=["w", "b"], product=True)
def conv_transpose(
    x: ArrayLike,
    w: ArrayLike,
    b: ArrayLike | None = None,
    /,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Transpose of a convolution: ``x`` (N, C, D1, ...), ``w`` (C, M / group, k1, ...), ``b`` (M).

    The output has ``strides * (D - 1) + output_padding + extent - pads`` elements per dimension.
    ``output_shape`` sets them and decides the pads instead; so do ``SAME_UPPER`` and
    ``SAME_LOWER``, with ``D * strides``. The larger half of an odd total is cropped from the end
    for ``SAME_UPPER``, otherwise from the beginning, in every version: the opposite in the text of
    opset 1 was corrected later.

    Raises:
        InvalidModelError: if ranks, channels or groups do not fit.
    """
    x, w = jnp.asarray(x), jnp.asarray(w)
    _check_weight(x, w, kernel_shape, group, channels=w.shape[0])
    if w.shape[0] % group:
        raise InvalidModelError(f"X has {w.shape[0]} channels, expected a multiple of {group=}")
    sizes, rank = x.shape[2:], x.ndim - 2
    plain = "VALID" if auto_pad in _SAME else auto_pad
    found = place(
        sizes, w.shape[2:], auto_pad=plain, pads=pads, strides=strides, dilations=dilations
    )
    extra = _per_dimension("output_padding", output_padding, rank) or (0,) * rank
    crops = _crops(sizes, found, extra, output_shape, auto_pad)
    around = tuple(
        (extent - 1 - begin, extent - 1 - end + more)
        for extent, (begin, end), more in zip(found.extents, crops, extra, strict=True)
    )
    unit = Windows(found.kernel, (1,) * rank, found.dilations, around)
    return _convolve(x, _mirrored(w, group), b, unit, group, found.strides)


_SAME = ("SAME_UPPER", "SAME_LOWER")


def _crops(
    sizes: Sequence[Any],
    found: Windows,
    extra: Sequence[int],
    output_shape: Sequence[int] | None,
    auto_pad: str,
) -> Sequence[tuple[Any, Any]]:
    """What a transposed convolution loses at both ends of each dimension."""
    if output_shape is not None:
        rank = len(sizes)
        named = output_shape[2:] if len(output_shape) == rank + 2 else output_shape  # N, C dropped
        wanted = _per_dimension("output_shape", named, rank) or ()
    elif auto_pad in _SAME:
        wanted = [n * s for n, s in zip(sizes, found.strides, strict=True)]
    else:
        return found.pads
    axes = zip(sizes, found.strides, found.extents, extra, wanted, strict=True)
    return [split(s * (n - 1) + more + k - size, auto_pad) for n, s, k, more, size in axes]


def _mirrored(w: Array, group: int) -> Array:
    """A transposed convolution's ``w`` as that of a convolution: (M, C / group, k1, ...)."""
    grouped = w.reshape(group, w.shape[0] // group, *w.shape[1:]).swapaxes(1, 2)
    weight = grouped.reshape(group * w.shape[1], *grouped.shape[2:])
    return jnp.flip(weight, range(2, w.ndim))


def _convolve(
    x: Array,
    w: Array,
    b: ArrayLike | None,
    found: Windows,
    group: int,
    spread: Sequence[int] | None = None,
) -> Array:
    """Cross-correlation of ``x``, its elements ``spread`` apart, plus the bias."""
    spread, pads = spread or (1,) * len(found.kernel), found.pads
    if shape_is_symbolic(itertools.chain(*pads)):  # the primitive takes integers alone
        inner = [(*p, s - 1) for p, s in zip(pads, spread, strict=True)]
        x = lax.pad(x, np.zeros((), x.dtype), [(0, 0, 0)] * 2 + inner)
        pads, spread = ((0, 0),) * len(pads), (1,) * len(spread)
    if all(s == 1 for s in spread) and _depthwise.fits(x, w, group, found):
        y = _depthwise.convolve(x, w, found)
    else:
        y = lax.conv_general_dilated(
            x,
            w,
            found.strides,
            pads,
            lhs_dilation=spread,
            rhs_dilation=found.dilations,
            feature_group_count=group,
        )
    return y if b is None else y + per_channel("B", b, y)


def _per_dimension(name: str, given: Sequence[int] | None, rank: int) -> tuple[int, ...] | None:
    if given is not None and len(given) != rank:
        raise InvalidModelError(f"{name} has {len(given)} elements {tuple(given)}, expected {rank}")
    return None if given is None else tuple(given)


def _check_weight(
    x: Array, w: Array, kernel_shape: Sequence[int] | None, group: int, *, channels: int
) -> None:
    if group < 1:
        raise InvalidModelError(f"group is {group}, expected a positive number")
    if w.ndim != x.ndim:
        raise InvalidModelError(f"W has rank {w.ndim}, expected {x.ndim}, the rank of X {x.shape}")
    if kernel_shape is not None and tuple(kernel_shape) != w.shape[2:]:
        raise InvalidModelError(f"kernel_shape is {tuple(kernel_shape)}, expected {w.shape[2:]}")
    if not same_dim(x.shape[1], channels):
        raise InvalidModelError(f"X has {x.shape[1]} channels, expected {channels} for W {w.shape}")


@register("CausalConvWithState", 27, weights=["weight", "bias"])
def causal_conv_with_state(
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    past_state: ArrayLike | None = None,
    /,
    *,
    activation: str = "none",
) -> tuple[Array, Array]:
    """Depthwise convolution of (N, C, L) with (C, 1, k) that looks at no later position.

    ``past_state`` (N, C, k - 1) or zeros come before the input; the second output is the state
    after it. ``activation`` is ``none``, or ``silu`` or ``swish``: ``y * sigmoid(y)``.

    Raises:
        InvalidModelError: if shapes do not fit, or the activation is unknown.
    """
    input, weight = jnp.asarray(input), jnp.asarray(weight)
    if activation not in ("none", "silu", "swish"):
        raise InvalidModelError(f"activation is {activation!r}, expected none, silu or swish")
    channels, before = weight.shape[0], (*input.shape[:2], weight.shape[-1] - 1)
    past = jnp.zeros(before, input.dtype) if past_state is None else jnp.asarray(past_state)
    if past.ndim != input.ndim or not all(map(same_dim, past.shape, before)):
        raise InvalidModelError(f"past_state has shape {past.shape}, expected {before}")
    whole = jnp.concatenate([past, input], axis=2)
    y = conv(whole, weight, bias, group=channels)
    return (y if activation == "none" else jax.nn.silu(y)), whole[:, :, input.shape[2] :]


@register("Col2Im", 18, static=["image_shape", "block_shape"])
def col2im(
    input: ArrayLike,
    image_shape: ArrayLike,
    block_shape: ArrayLike,
    /,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Sum columns (N, C * block, L) into the image (N, C, *image_shape) that they were cut from.

    Raises:
        InvalidModelError: if the columns are not those of such an image.
    """
    input, image, block = jnp.asarray(input), as_dims(image_shape), as_dims(block_shape)
    found = place(image, block, pads=pads, strides=strides, dilations=dilations)
    counts = found.counts(image)
    batch, rows, columns = input.shape
    if rows % math.prod(block) or not same_dim(columns, math.prod(counts)):
        raise InvalidModelError(
            f"columns of shape {input.shape} are not blocks {block} of an image {image}: expected "
            f"a multiple of {math.prod(block)} rows and {math.prod(counts)} columns"
        )
    blocks = input.reshape(batch, rows // math.prod(block), *block, *counts)
    parts = (
        lax.pad(
            blocks[:, :, *offset],
            np.zeros((), input.dtype),
            [(0, 0, 0)] * 2 + _spread(offset, image, counts, found),
        )
        for offset in np.ndindex(*block)
    )
    return sum(parts, jnp.zeros((batch, blocks.shape[1], *image), input.dtype))


def _spread(
    offset: Sequence[int], image: Sequence[Any], counts: Sequence[Any], found: Windows
) -> list[tuple[Any, Any, int]]:
    """``lax.pad``'s arguments that put one element of every block at its place in the image."""
    axes = []
    for k, size, n, (begin, _), s, d in zip(
        offset, image, counts, found.pads, found.strides, found.dilations, strict=True
    ):
        before = k * d - begin
        axes.append((before, size - before - (n - 1) * s - 1, s - 1))
    return axes


@register("DeformConv", 19, 22, weights=["w", "b"], product=True)
def deform_conv(
    x: ArrayLike,
    w: ArrayLike,
    offset: ArrayLike,
    b: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    /,
    *,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    offset_group: int = 1,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Convolution whose window elements are moved by ``offset`` and weighted by ``mask``.

    ``x`` is (N, C, D1, ..., Dn) and ``w`` (M, C / group, k1, ..., kn). ``offset`` is
    (N, offset_group * K * n, o1, ..., on) with ``K = k1 * ... * kn``, ``mask`` the same without
    ``n``. Between elements ``x`` is interpolated linearly, outside it is 0. Derivative by an offset
    that meets an element: that of the interval above it. https://arxiv.org/abs/1811.11168

    Raises:
        InvalidModelError: if ranks, channels or groups do not fit.
    """
    x, w, offset = jnp.asarray(x), jnp.asarray(w), jnp.asarray(offset)
    _check_weight(x, w, kernel_shape, group, channels=w.shape[1] * group)
    if w.shape[0] % group or w.shape[1] * group % offset_group:
        raise InvalidModelError(
            f"W has shape {w.shape}, expected multiples of {group=}, {offset_group=}"
        )
    found = place(x.shape[2:], w.shape[2:], pads=pads, strides=strides, dilations=dilations)
    (batch, channels, *sizes), outs, taps = x.shape, offset.shape[2:], math.prod(w.shape[2:])
    _check_moves(x, offset, mask, found, offset_group)
    places = _moved(offset.reshape(batch * offset_group, taps, len(sizes), *outs), found)
    images = x.reshape(batch * offset_group, channels // offset_group, *sizes)
    sampled = interpolated(images, list(map(_linear, places, sizes)))
    if mask is not None:
        masks = jnp.asarray(mask).reshape(batch * offset_group, 1, taps, *outs)
        sampled = weighted(sampled, masks)
    sampled = sampled.reshape(batch, group, w.shape[1], taps, math.prod(outs))
    weight = w.reshape(group, -1, w.shape[1], taps)
    y = jnp.einsum("ngckp,gmck->ngmp", sampled, weight).reshape(batch, w.shape[0], *outs)
    return y if b is None else y + per_channel("B", b, y)


def _check_moves(
    x: Array, offset: Array, mask: ArrayLike | None, found: Windows, offset_group: int
) -> None:
    taps = offset_group * math.prod(found.kernel)
    outs = found.counts(x.shape[2:])
    for name, given, count in (("offset", offset, taps * (x.ndim - 2)), ("mask", mask, taps)):
        expected = (x.shape[0], count, *outs)
        if given is not None and not same_shape(jnp.shape(given), expected):
            raise InvalidModelError(f"{name} has shape {jnp.shape(given)}, expected {expected}")


def _moved(moves: Array, found: Windows) -> list[Array]:
    """Along each dimension, where window elements lie after ``moves`` (B, K, n, o1, ..., on)."""
    outs, taps = moves.shape[3:], moves.shape[1]
    grid = np.stack(np.meshgrid(*map(np.arange, found.kernel), indexing="ij")).reshape(-1, taps)
    places = []
    for axis, ((begin, _), step, gap) in enumerate(
        zip(found.pads, found.strides, found.dilations, strict=True)
    ):
        start = lax.broadcasted_iota(moves.dtype, (1, *outs), axis + 1) * step - begin
        tap = (grid[axis] * gap).astype(moves.dtype).reshape(taps, *[1] * len(outs))
        places.append(moves[:, :, axis] + (start + tap))
    return places


def _linear(places: Array, size: Any) -> Taps:
    """The two elements around each place along a dimension; those outside have no weight."""
    linear = kernel("linear")
    index, distance = neighbours(places, linear.radius)
    inside = jnp.clip(index, 0, jnp.asarray(size - 1, np.int32))
    return Taps(inside, jnp.where(index == inside, linear.weight(distance), 0))

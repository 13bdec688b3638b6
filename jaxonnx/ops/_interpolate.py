"""Interpolation at places between the entries of axes.

No value is multiplied by a weight of 0, so that an infinity or NaN counts where a sample reaches it
and nowhere else.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxonnx.define.known import xp
from jaxonnx.errors import InvalidModelError

CUBIC = -0.75
"""The parameter of Keys' kernel in the frameworks that ONNX's operators come from."""


class Kernel(NamedTuple):
    """How an entry counts at a distance.

    Attributes:
        weight: the weight at distances that are not negative.
        radius: the distance from which on it is 0.
    """

    weight: Callable[[Any], Any]
    radius: int


def kernel(mode: str, a: float = CUBIC) -> Kernel:
    """The kernel of ``linear`` or ``cubic`` interpolation; ``a`` is the parameter of the latter.

    References:
        Keys (1981), https://doi.org/10.1109/TASSP.1981.1163711.

    Raises:
        InvalidModelError: for an unknown mode.
    """
    if mode == "linear":
        return Kernel(lambda d: xp(d).where(d <= 1, 1 - d, 0), 1)
    if mode != "cubic":
        raise InvalidModelError(f"mode {mode!r}, expected nearest, linear or cubic")

    def cubic(d: Any) -> Any:
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((d - 5) * d + 8) * d * a - 4 * a
        return xp(d).where(d <= 1, near, xp(d).where(d < 2, far, 0))

    return Kernel(cubic, 2)


def neighbours(places: Any, reach: Any) -> tuple[Any, Any]:
    """The ``2 * reach`` entries around each place, and how far they are, in a new last axis.

    Indices are int32 and may lie outside.
    """
    m = xp(places)
    floor = m.floor(places)
    rest = (places - floor)[..., None]
    offsets = (m if isinstance(reach, int) else jnp).arange(1 - reach, reach + 1, dtype=np.int32)
    ahead = offsets.astype(places.dtype)
    distance = m.where(ahead > 0, ahead - rest, rest - ahead)
    return floor.astype(np.int32)[..., None] + offsets, distance


def weighted(values: Any, weights: Any) -> Any:
    """``values * weights``; a weight of 0 leaves infinities and NaN out, in derivatives too."""
    out = (weights == 0) & ~jnp.isfinite(values)
    return jnp.where(out, 0, values) * weights


def contracted(weights: Array, x: Array, subscripts: str) -> Array:
    """``einsum(subscripts, weights, x)`` without products of a weight of 0.

    The axes of ``weights`` in ``subscripts`` are one that stays and one that ``x`` shares.
    """
    finite = jnp.isfinite(x)
    known = jnp.where(finite, x, 0)
    product = jnp.einsum(subscripts, weights, known, precision=lax.Precision.HIGHEST)
    return product + lax.cond(
        finite.all(),
        lambda: jnp.zeros_like(product),
        lambda: _selected(weights, jnp.where(finite, 0, x), subscripts),
    )


def _selected(weights: Array, x: Array, subscripts: str) -> Array:
    """``einsum(subscripts, weights, x)``, product by product."""
    terms, result = subscripts.split("->")
    first, second = terms.split(",")
    (shared,) = set(first) & set(second)
    letters = result + shared

    def spread(a: Array, own: str) -> Array:
        ordered = jnp.einsum(f"{own}->{''.join(n for n in letters if n in own)}", a)
        return jnp.expand_dims(ordered, [k for k, n in enumerate(letters) if n not in own])

    return weighted(spread(x, second), spread(weights, first)).sum(-1)


class Taps(NamedTuple):
    """The entries of one axis that are met at each place, in a last axis.

    Attributes:
        index: which they are, int32 and inside of the axis.
        weight: how they count.
    """

    index: Any
    weight: Any


def interpolated(images: Array, axes: Sequence[Taps]) -> Array:
    """Images (B, C, D1, ..., Dn) at places (B, *out): (B, C, *out).

    ``axes`` are the taps along D1, ..., Dn, of shape (B, *out, taps).
    """
    shape = axes[0].index.shape[:-1]
    batch = lax.broadcasted_iota(np.int32, shape, 0)
    total = jnp.zeros((*shape, images.shape[1]), images.dtype)
    for corner in itertools.product(*(range(a.index.shape[-1]) for a in axes)):
        places = [a.index[..., k] for a, k in zip(axes, corner, strict=True)]
        weights = [a.weight[..., k] for a, k in zip(axes, corner, strict=True)]
        weight = functools.reduce(jnp.multiply, weights).astype(images.dtype)
        total += weighted(images[(batch, slice(None), *places)], weight[..., None])
    return jnp.moveaxis(total, -1, 1)

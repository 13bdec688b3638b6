"""Rearranging blocks of pixels."""

from typing import Any

from jax import Array
from jax.typing import ArrayLike

from jaxonnx.define.known import shape_is_symbolic
from jaxonnx.define.older import older
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops._indices import as_array

__all__ = ["depth_to_space", "space_to_depth"]

_ORDERS = {"DCR": (3, 4, 1, 5, 2), "CRD": (1, 4, 2, 5, 3)}
"""From ``[n, s, s, c, h, w]`` or ``[n, c, s, s, h, w]`` to ``[n, c, h, s, w, s]``."""


def _order(mode: str) -> tuple[int, ...]:
    if mode not in _ORDERS:
        raise InvalidModelError(f"mode {mode!r}, expected DCR or CRD")
    return (0, *_ORDERS[mode])


def _divide(what: str, size: Any, blocks: int) -> Any:
    if not shape_is_symbolic((size,)) and size % blocks:
        raise InvalidModelError(f"the {what}, {size}, is no multiple of {blocks}")
    return size // blocks


@register("DepthToSpace", 11, 13, 28)
def depth_to_space(input: ArrayLike, /, *, blocksize: int, mode: str = "DCR") -> Array:
    """``[n, s * s * c, h, w]`` as ``[n, c, h * s, w * s]``, with ``s`` the ``blocksize``.

    In the channels the position in a block varies slower than ``c`` (DCR) or faster (CRD).
    """
    pixels, order, s = as_array(input), _order(mode), blocksize
    n, depth, h, w = pixels.shape
    c = _divide("depth", depth, s * s)
    split = (n, s, s, c, h, w) if mode == "DCR" else (n, c, s, s, h, w)
    return pixels.reshape(split).transpose(order).reshape(n, c, h * s, w * s)


depth_to_space_1 = older(depth_to_space, 1)


@register("SpaceToDepth", 28)
def space_to_depth(input: ArrayLike, /, *, blocksize: int, mode: str = "DCR") -> Array:
    """``[n, c, h * s, w * s]`` as ``[n, s * s * c, h, w]``: the inverse of DepthToSpace."""
    pixels, order, s = as_array(input), _order(mode), blocksize
    n, c, height, width = pixels.shape
    h, w = _divide("height", height, s), _divide("width", width, s)
    inverse = [order.index(axis) for axis in range(len(order))]
    blocks = pixels.reshape(n, c, h, s, w, s).transpose(inverse)
    return blocks.reshape(n, s * s * c, h, w)


space_to_depth_1 = older(space_to_depth, 1, 13)

"""Axes counted from the front, and arrays along them."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxonnx.define.known import same_dim
from jaxonnx.errors import InvalidModelError


def from_front(axis: int, rank: int) -> int:
    """``axis`` of an array of ``rank`` dimensions, a negative one counted from the end.

    Raises:
        InvalidModelError: if the array has no such axis.
    """
    if not -rank <= axis < rank:
        allowed = f"one in [{-rank}, {rank - 1}] for rank {rank}" if rank else "none for a scalar"
        raise InvalidModelError(f"axis is {axis}, expected {allowed}")
    return axis % rank


def all_from_front(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Several axes of an array of ``rank`` dimensions, negative ones counted from the end.

    Raises:
        InvalidModelError: if the array does not have one of them, or one is named twice.
    """
    found = tuple(a + rank if a < 0 else a for a in axes)
    if not all(0 <= a < rank for a in found) or len(set(found)) < len(found):
        raise InvalidModelError(
            f"axes are {list(axes)}, expected different ones in [{-rank}, {rank - 1}] for data of "
            f"rank {rank}"
        )
    return found


def same_shape(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two shapes are provably equal."""
    return len(a) == len(b) and all(map(same_dim, a, b))


def per_channel(name: str, value: ArrayLike, x: Array, count: Any = None) -> Array:
    """A vector of ``count`` (by default C) elements, to go with ``x`` (N, C, D1, ...).

    Raises:
        InvalidModelError: if it has another shape.
    """
    value, count = jnp.asarray(value), x.shape[1] if count is None else count
    if value.ndim != 1 or not same_dim(value.shape[0], count):
        raise InvalidModelError(f"{name} has shape {value.shape}, expected ({count},)")
    return value.reshape(-1, *[1] * (x.ndim - 2))

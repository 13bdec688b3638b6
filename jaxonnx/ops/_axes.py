"""Axes counted from the front."""

from collections.abc import Sequence

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

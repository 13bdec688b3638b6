"""Where the windows of convolutions and pools lie: shared by several families."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from jax import core

from jaxonnx.errors import InvalidModelError


class Windows(NamedTuple):
    """Windows over the spatial dimensions, one element for each.

    Attributes:
        kernel: elements of a window.
        strides: steps from window to window.
        dilations: steps from element to element in a window.
        pads: elements added at the beginning and the end; dimension expressions where a size
            that decides them is symbolic.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[Any, Any], ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """From the first to the last element of a window, both included."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def counts(self, sizes: Sequence[Any]) -> tuple[Any, ...]:
        """How many windows there are over dimensions of these sizes."""
        axes = zip(sizes, self.pads, self.extents, self.strides, strict=True)
        return tuple((n + begin + end - k) // s + 1 for n, (begin, end), k, s in axes)

    def along(self, axis: int) -> "Windows":
        """The windows along one of the dimensions."""
        one = slice(axis, axis + 1)
        return Windows(self.kernel[one], self.strides[one], self.dilations[one], self.pads[one])


def place(
    sizes: Sequence[Any],
    kernel: Sequence[int],
    *,
    auto_pad: str = "NOTSET",
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    ceil_mode: int = 0,
) -> Windows:
    """The windows that ONNX's attributes describe over dimensions of these ``sizes``.

    ``SAME_UPPER`` and ``SAME_LOWER`` pad for ``ceil(size / stride)`` windows, an odd element going
    to the end or to the beginning. ``ceil_mode`` pads the end for a last window that does not fit,
    unless it would start there; with an ``auto_pad`` it changes nothing, by the formulas of the
    specification.

    Raises:
        InvalidModelError: if an attribute has not one element (pads: two) per spatial dimension,
            a length or a step is not positive, or ``auto_pad`` is unknown.
    """
    rank, explicit = len(sizes), auto_pad in ("", "NOTSET")
    _check_attributes(rank, kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads)
    strides, dilations = (tuple(s) if s is not None else (1,) * rank for s in (strides, dilations))
    ends = tuple(pads) if pads is not None and explicit else (0,) * 2 * rank
    around = tuple(zip(ends[:rank], ends[rank:], strict=True))
    found = Windows(tuple(kernel), strides, dilations, around)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        axes = zip(sizes, found.extents, strides, strict=True)
        totals = [(-(-n // s) - 1) * s + extent - n for n, extent, s in axes]
        return found._replace(pads=tuple(split(t, auto_pad) for t in totals))
    if not explicit and auto_pad != "VALID":
        raise InvalidModelError(
            f"auto_pad is {auto_pad!r}, expected NOTSET, SAME_UPPER, SAME_LOWER or VALID"
        )
    return _with_last(found, sizes) if ceil_mode and explicit else found


def _check_attributes(rank: int, **attributes: Sequence[int] | None) -> None:
    """Refuse a wrong number of elements, and lengths and steps that are not positive."""
    for name, given in attributes.items():
        if given is None:
            continue
        length = 2 * rank if name == "pads" else rank
        if len(given) != length:
            raise InvalidModelError(
                f"{name} has {len(given)} elements {tuple(given)}, expected {length} for {rank} "
                "spatial dimensions"
            )
        if name != "pads" and any(n < 1 for n in given):
            raise InvalidModelError(f"{name} is {tuple(given)}, expected positive numbers")


def _with_last(found: Windows, sizes: Sequence[Any]) -> Windows:
    """The windows with ends padded for a last one that does not fit, unless it starts there."""
    pads = []
    axes = zip(sizes, found.extents, found.strides, found.pads, strict=True)
    for n, extent, s, (begin, end) in axes:
        fitting = -(-(n + begin + end - extent) // s) + 1
        count = core.min_dim(fitting, -(-(n + begin) // s))
        pads.append((begin, (count - 1) * s + extent - n - begin))
    return found._replace(pads=tuple(pads))


def split(total: Any, auto_pad: str) -> tuple[Any, Any]:
    """Padding in two halves, the larger at the end for SAME_UPPER, else at the beginning.

    What is negative is cropped from the end.
    """
    padded = core.max_dim(total, 0)
    begin = padded // 2 if auto_pad == "SAME_UPPER" else padded - padded // 2
    return begin, total - begin

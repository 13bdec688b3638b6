"""Sequences, which are Python lists, and optional values, of which the empty one is None."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxonnx.define.known import as_dims, is_symbolic, lift, shape_is_symbolic, xp
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops.slicing import split

__all__ = [
    "concat_from_sequence",
    "optional",
    "optional_get_element",
    "optional_has_element",
    "sequence_at",
    "sequence_construct",
    "sequence_empty",
    "sequence_erase",
    "sequence_insert",
    "sequence_length",
    "sequence_map",
    "split_to_sequence",
]


@register("SequenceEmpty", 11)
def sequence_empty(*, dtype: int | None = None) -> list[Any]:
    """A sequence without elements; a list has no element type, so ``dtype`` is not needed."""
    del dtype
    return []


@register("SequenceConstruct", 11)
def sequence_construct(*inputs: ArrayLike) -> list[Any]:
    """A sequence of the inputs."""
    return [*inputs]


@register("SequenceInsert", 11, static=["position"])
def sequence_insert(
    input_sequence: Sequence[Any], tensor: ArrayLike, position: ArrayLike | None = None, /
) -> list[Any]:
    """``input_sequence`` with ``tensor`` before ``position``, by default at the end.

    A negative position counts from the back, so -1 is before the last element.
    """
    count = len(input_sequence)
    place = count if position is None else _position(position, count, count)
    return [*input_sequence[:place], tensor, *input_sequence[place:]]


@register("SequenceErase", 11, static=["position"])
def sequence_erase(
    input_sequence: Sequence[Any], position: ArrayLike | None = None, /
) -> list[Any]:
    """``input_sequence`` without the element at ``position``, by default the last one."""
    count = len(input_sequence)
    place = _position(-1 if position is None else position, count, count - 1)
    return [*input_sequence[:place], *input_sequence[place + 1 :]]


@register("SequenceAt", 11, static=["position"])
def sequence_at(input_sequence: Sequence[Any], position: ArrayLike, /) -> Array:
    """The element at ``position``; a negative one counts from the back."""
    count = len(input_sequence)
    return input_sequence[_position(position, count, count - 1)]


def _position(position: Any, count: int, most: int) -> int:
    """A position in a sequence of ``count`` elements, between 0 and ``most``."""
    (place,) = as_dims(position)
    if not -count <= place <= most:
        raise InvalidModelError(
            f"position {place} is outside [{-count}, {most}] for a sequence of {count} elements"
        )
    return place + count if place < 0 else place


@register("SequenceLength", 11, reads_shapes=True)
def sequence_length(input_sequence: Sequence[Any], /) -> np.ndarray:
    """The number of elements: always a known 0-d int64 array."""
    return np.array(len(input_sequence), np.int64)


@register("SplitToSequence", 11, 24, static=["split_"], symbolic=True)
def split_to_sequence(
    input: ArrayLike, split_: ArrayLike | None = None, /, *, axis: int = 0, keepdims: int = 1
) -> list[Array]:
    """Cut along ``axis`` into parts of one size ``split_``, or of the sizes in it, else of size 1.

    The last part is smaller where one size does not divide the whole. Parts of size 0 are allowed
    in a list of sizes. Without ``split_``, ``keepdims=0`` drops the axis.

    Raises:
        InvalidModelError: if the sizes do not add up, or the one size is not positive.
    """
    count = np.shape(input)[axis]
    if split_ is not None and np.ndim(split_) == 1:
        return [*split(input, split_, axis=axis)]
    size = 1 if split_ is None else as_dims(split_)[0]
    if shape_is_symbolic([count, size]):
        raise InvalidModelError(f"a symbolic size {count} cannot be cut into parts of {size}")
    if size < 1:
        raise InvalidModelError(f"the size {size} of the parts is not positive")
    sizes = np.array([min(size, count - start) for start in range(0, count, size)], np.int64)
    parts = [*split(input, sizes, axis=axis)] if len(sizes) else []
    squeezed = split_ is None and not keepdims
    return [xp(p).squeeze(p, axis) for p in parts] if squeezed else parts


@register("ConcatFromSequence", 11)
def concat_from_sequence(
    input_sequence: Sequence[Any], /, *, axis: int, new_axis: int = 0
) -> Array:
    """The elements joined along ``axis``, or stacked on a new axis there.

    Raises:
        InvalidModelError: if there are none.
    """
    if not len(input_sequence):
        raise InvalidModelError("an empty sequence has nothing to join")
    module = xp(*input_sequence)
    if module is not np:
        input_sequence = [lift(v) if is_symbolic(v) else v for v in input_sequence]
    return (module.stack if new_axis else module.concatenate)(input_sequence, axis=axis)


@register("SequenceMap", 17)
def sequence_map(
    input_sequence: Sequence[Any], /, *additional_inputs: Any, body: Any
) -> tuple[list[Any], ...]:
    """``body`` applied to the elements of all sequences at one position, for each position.

    Inputs that are no sequences are given to every call. The results are sequences.

    Raises:
        InvalidModelError: if the sequences differ in length.
    """
    count = len(input_sequence)
    for other in additional_inputs:
        if isinstance(other, list) and len(other) != count:
            raise InvalidModelError(f"sequences of {count} and {len(other)} elements")
    inputs = (input_sequence, *additional_inputs)
    rows = [body.at(k)(*(v[k] if isinstance(v, list) else v for v in inputs)) for k in range(count)]
    return tuple([row[j] for row in rows] for j in range(len(body.graph.outputs)))


@register("Optional", 15, 28)
def optional(input: Any = None, /, *, type: bytes | None = None) -> Any:
    """``input`` as an optional value; None, which is the empty one, where there is none."""
    del type
    return input


@register("OptionalGetElement", 15, 18, 28)
def optional_get_element(input: Any, /) -> Any:
    """The element of an optional value.

    Raises:
        InvalidModelError: if it is empty.
    """
    if input is None:
        raise InvalidModelError("an empty optional value has no element")
    return input


@register("OptionalHasElement", 15, 18, 28, reads_shapes=True)
def optional_has_element(input: Any = None, /) -> np.ndarray:
    """Whether an optional value is not empty: always a known 0-d boolean array."""
    return np.array(input is not None)

"""Writes a model file with today's numbers: beside its place first, then moved there."""

import contextlib
import itertools
import os
import pathlib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
from google.protobuf.message import DecodeError

from jaxonnx.errors import InputError
from jaxonnx.graph.plan import Template
from jaxonnx.read.tensors import decode_sparse
from jaxonnx.write.template import Holder, fingerprint, holders, packed, tensor_of

_ALIGNMENT = 4096
"""Where tensors begin in a file of their own, so that they can be mapped into memory."""


def save(path: str | os.PathLike[str], template: Template, values: Mapping[str, Any]) -> None:
    """Write a model file.

    Args:
        path: where to.
        template: the file that the model was read from, without its arrays.
        values: today's value of everything that the model stores, by name.

    Raises:
        InputError: if a value has no place of its own in the file.
        OSError: if the file cannot be written; what was there before is there still.
    """
    target = pathlib.Path(path)
    proto = onnx.ModelProto.FromString(template.model)
    arrays, outside = by_slot(template, values), []
    for number, holder in enumerate(holders(proto)):
        tensor, array = tensor_of(holder), arrays.get(number)
        if array is None:
            continue
        if tensor is None:
            _set_numbers(holder, array)
        elif tensor.data_location == onnx.TensorProto.EXTERNAL:
            outside.append((tensor, array))
        else:
            tensor.raw_data = packed(array)
    data, former = _free_name(target), _own_data_of(target)
    _point(outside, data.name)
    with contextlib.ExitStack() as stack:  # what is entered last is moved to its place first
        stack.enter_context(written(target, [proto.SerializeToString()]))
        if outside:
            stack.enter_context(written(data, _chunks(a for _, a in outside)))
    for file in former:
        file.unlink(missing_ok=True)


def check_places(template: Template, names: Iterable[str]) -> None:
    """Refuse weights that the file does not have at all.

    Raises:
        InputError: if there is one.
    """
    own = [n for n in names if n not in template.slots and n not in template.made]
    if own:
        raise InputError(
            f"{own[0]!r} has no place in the file; jaxonnx.lora.merge puts adapters into weights"
        )


def by_slot(template: Template, values: Mapping[str, Any]) -> dict[int, np.ndarray]:
    """The array of each place in the file.

    Raises:
        InputError: if a value has changed that has no place of its own.
    """
    arrays: dict[int, np.ndarray] = {}
    names: dict[int, str] = {}
    for name, slot in template.slots.items():
        array = np.asarray(values[name])
        if slot in arrays and fingerprint(arrays[slot]) != fingerprint(array):
            raise InputError(
                f"{names[slot]!r} and {name!r} are one value in the file, in a function that is "
                "called more than once, but they differ now; give them the same value"
            )
        arrays[slot], names[slot] = array, name
    for name, before in template.made.items():
        if name in values and fingerprint(values[name]) != before:
            raise InputError(
                f"{name!r} has no place in the file, which computes it from other values, and it "
                f"has changed; keep it as it was, with load(..., frozen=[{name!r}])"
            )
    return arrays


def _set_numbers(holder: Holder, array: np.ndarray) -> None:
    """Put an array where no dense tensor holds it."""
    if isinstance(holder, onnx.SparseTensorProto):
        _set_sparse(holder, array)
    elif isinstance(holder, onnx.AttributeProto):
        match holder.type:
            case onnx.AttributeProto.SPARSE_TENSOR:
                _set_sparse(holder.sparse_tensor, array)
            case onnx.AttributeProto.FLOAT:
                holder.f = float(array)
            case onnx.AttributeProto.FLOATS:
                holder.floats[:] = array.tolist()


def _set_sparse(sparse: onnx.SparseTensorProto, array: np.ndarray) -> None:
    """Put an array into a sparse tensor, with indices of its own if it differs."""
    if fingerprint(decode_sparse(sparse)) == fingerprint(array):
        return
    name, flat = sparse.values.name, array.reshape(-1)
    places = np.flatnonzero(flat)
    sparse.values.CopyFrom(onnx.numpy_helper.from_array(flat[places], name))
    indices = onnx.numpy_helper.from_array(places.astype(np.int64), sparse.indices.name)
    sparse.indices.CopyFrom(indices)


def _point(outside: Iterable[tuple[onnx.TensorProto, np.ndarray]], name: str) -> None:
    """Say of each tensor where in the file of that name it lies."""
    end = 0
    for tensor, array in outside:
        start = -(-end // _ALIGNMENT) * _ALIGNMENT
        end = start + _size(array)
        for key, value in (("location", name), ("offset", start), ("length", end - start)):
            tensor.external_data.add(key=key, value=str(value))


def _chunks(arrays: Iterable[np.ndarray]) -> Iterator[Any]:
    """The bytes of the arrays one after the other, each at its alignment."""
    end = 0
    for array in arrays:
        yield bytes(-end % _ALIGNMENT)
        plain = _is_plain(array)
        yield (
            np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if plain else packed(array)
        )
        end += -end % _ALIGNMENT + _size(array)


def _size(array: np.ndarray) -> int:
    return array.nbytes if _is_plain(array) else len(packed(array))


def _is_plain(array: np.ndarray) -> bool:
    """Whether the bytes of an array are those that ONNX stores: no type is below a byte."""
    return not array.dtype.name.startswith(("int2", "int4", "uint2", "uint4", "float4", "float6"))


@contextlib.contextmanager
def written(path: pathlib.Path, chunks: Iterable[Any]) -> Iterator[None]:
    """Write a file beside its place, and move it there at the end if nothing has failed."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with beside.open("xb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        yield
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _free_name(target: pathlib.Path) -> pathlib.Path:
    """A file for the numbers that is not there yet: a model to be replaced needs its own."""
    names = (f"{target.name}{f'.{k}' if k else ''}.data" for k in itertools.count())
    return next(p for p in map(target.with_name, names) if not p.exists())


def _own_data_of(target: pathlib.Path) -> list[pathlib.Path]:
    """The files of a model to be replaced whose names say that they are its alone."""
    if not target.is_file():
        return []
    try:
        proto = onnx.ModelProto.FromString(target.read_bytes())
    except DecodeError:  # whatever it is, it is no model
        return []
    tensors = filter(None, map(tensor_of, holders(proto)))
    named = {e.value for t in tensors for e in t.external_data if e.key == "location"}
    own = [n for n in named if n.startswith(f"{target.name}.") and n.endswith(".data")]
    return [target.with_name(n) for n in own]

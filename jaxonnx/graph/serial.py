"""A plan as bytes and back, without ``pickle``: exported programs may come from anywhere.

The bytes are a magic word, the length of a header, the header, and the buffers of all arrays one
after the other. The header is JSON: the version of the format, the value, and the size of each
buffer. Dataclasses have their fields by name.
"""

import base64
import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from jaxonnx.errors import InputError
from jaxonnx.graph.plan import Graph, Node, Options, Plan, Spec, Stored, Template

VERSION = 3
"""The version of the format; others are refused."""

_MAGIC = b"jaxonnx\0"
_LENGTH = 8
"""Bytes that state the length of the header."""

_CLASSES: dict[str, Callable[..., Any]] = {
    c.__name__: c for c in (Graph, Node, Options, Plan, Spec, Stored, Template)
}


def encode(value: Any) -> bytes:
    """The value as bytes: equal values give equal ones."""
    return b"".join(_parts(value))


def digest(value: Any) -> str:
    """A digest of what :func:`encode` gives, without a copy of it."""
    found = hashlib.sha256()
    for part in _parts(value):
        found.update(part)
    return found.hexdigest()


def decode(data: bytes) -> Any:
    """The value that :func:`encode` was given.

    Raises:
        InputError: if the bytes are something else, or of another version of the format.
    """
    start = len(_MAGIC) + _LENGTH
    end = start + int.from_bytes(data[len(_MAGIC) : start], "little")
    if not data.startswith(_MAGIC) or len(data) < end:
        raise InputError("these bytes are no model of jaxonnx")
    header = json.loads(data[start:end])
    if header["version"] != VERSION:
        raise InputError(
            f"the model is stored in version {header['version']} of the format, but this jaxonnx "
            f"reads version {VERSION}; load the ONNX file again"
        )
    if len(data) != end + sum(header["sizes"]):
        raise InputError(f"{len(data)} bytes of a model, expected {end + sum(header['sizes'])}")
    return _Reader(memoryview(data)[end:], header["sizes"]).unpack(header["value"])


def _parts(value: Any) -> Iterator[Any]:
    """What the bytes are made of, in order."""
    buffers: list[np.ndarray] = []
    content = _pack(value, buffers)
    header = {"version": VERSION, "value": content, "sizes": [b.nbytes for b in buffers]}
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    yield from (_MAGIC, len(text).to_bytes(_LENGTH, "little"), text)
    yield from (b.data for b in buffers)


def _pack(value: Any, buffers: list[np.ndarray]) -> Any:
    """``value`` as JSON has it; arrays go to ``buffers`` as bytes, their number stays."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return {"float": value.hex()}
        case bytes():
            return {"bytes": base64.b64encode(value).decode()}
        case tuple():
            return {"tuple": [_pack(v, buffers) for v in value]}
        case frozenset():
            return {"set": sorted(value)}
        case Mapping():
            return {"dict": [[k, _pack(v, buffers)] for k, v in value.items()]}
        case np.dtype():
            return {"dtype": _dtype_name(value)}
        case np.ndarray() if value.dtype.kind == "T":
            return {"text": [[*value.shape], value.ravel().tolist()]}
        case np.ndarray():
            buffers.append(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
            return {"array": [_dtype_name(value.dtype), [*value.shape], len(buffers) - 1]}
    name = type(value).__name__
    if name in _CLASSES:
        fields = dataclasses.fields(value)
        return {name: {f.name: _pack(getattr(value, f.name), buffers) for f in fields}}
    raise TypeError(f"a plan holds no {name}")


class _Reader:
    """Reads what :func:`_pack` gave.

    Attributes:
        buffers: the bytes of each array.
    """

    def __init__(self, data: memoryview, sizes: list[int]) -> None:
        ends = np.cumsum([0, *sizes]).tolist()
        self.buffers = [data[a:b] for a, b in itertools.pairwise(ends)]

    def unpack(self, value: Any) -> Any:
        """The value that a piece of the header stands for."""
        if not isinstance(value, dict):
            return value
        ((tag, content),) = value.items()
        match tag:
            case "float":
                return float.fromhex(content)
            case "bytes":
                return base64.b64decode(content)
            case "tuple":
                return tuple(map(self.unpack, content))
            case "set":
                return frozenset(content)
            case "dict":
                return {k: self.unpack(v) for k, v in content}
            case "dtype":
                return _dtype(content)
            case "text":
                shape, items = content
                return np.array(items, np.dtypes.StringDType()).reshape(shape)
            case "array":
                name, shape, number = content
                return np.frombuffer(self.buffers[number], _dtype(name)).reshape(shape)
        return _CLASSES[tag](**{n: self.unpack(v) for n, v in content.items()})


def _dtype_name(dtype: np.dtype) -> str:
    return "string" if dtype.kind == "T" else dtype.name


def _dtype(name: str) -> Any:
    if name == "string":
        return np.dtypes.StringDType()
    return np.dtype(getattr(ml_dtypes, name, name))

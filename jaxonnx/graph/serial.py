"""A plan as bytes and back, without ``pickle``: exported programs may come from anywhere."""

import base64
import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from jaxonnx.graph.plan import Graph, Node, Options, Plan, Spec, Stored

_CLASSES: dict[str, Callable[..., Any]] = {
    c.__name__: c for c in (Graph, Node, Options, Plan, Spec, Stored)
}


def encode(value: Any) -> bytes:
    """Canonical JSON: equal values give equal bytes."""
    return json.dumps(_pack(value), sort_keys=True, separators=(",", ":")).encode()


def decode(data: bytes) -> Any:
    """The value that :func:`encode` was given."""
    return _unpack(json.loads(data))


def _pack(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return {"float": value.hex()}
        case bytes():
            return {"bytes": base64.b64encode(value).decode()}
        case tuple():
            return {"tuple": [_pack(v) for v in value]}
        case frozenset():
            return {"set": sorted(value)}
        case Mapping():
            return {"dict": [[k, _pack(v)] for k, v in value.items()]}
        case np.dtype():
            return {"dtype": _dtype_name(value)}
        case np.ndarray():
            return {"array": [_dtype_name(value.dtype), [*value.shape], _buffer(value)]}
    if type(value).__name__ in _CLASSES:
        fields = [_pack(getattr(value, f.name)) for f in dataclasses.fields(value)]
        return {type(value).__name__: fields}
    raise TypeError(f"a plan holds no {type(value).__name__}")


def _unpack(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag in _CLASSES:
        return _CLASSES[tag](*map(_unpack, content))
    return _READERS[tag](content)


def _array(content: Any) -> np.ndarray:
    name, shape, data = content
    if name == "string":
        return np.array(data, np.dtypes.StringDType()).reshape(shape)
    return np.frombuffer(base64.b64decode(data), _dtype(name)).reshape(shape)


def _buffer(array: np.ndarray) -> Any:
    if array.dtype.kind == "T":
        return array.ravel().tolist()
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def _dtype_name(dtype: np.dtype) -> str:
    return "string" if dtype.kind == "T" else dtype.name


def _dtype(name: str) -> Any:
    if name == "string":
        return np.dtypes.StringDType()
    return np.dtype(getattr(ml_dtypes, name, name))


_READERS: dict[str, Callable[[Any], Any]] = {
    "float": float.fromhex,
    "bytes": base64.b64decode,
    "tuple": lambda content: tuple(map(_unpack, content)),
    "set": frozenset,
    "dict": lambda content: {k: _unpack(v) for k, v in content},
    "dtype": _dtype,
    "array": _array,
}

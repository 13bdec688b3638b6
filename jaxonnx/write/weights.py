"""Weights alone, by ONNX name, in safetensors files."""

import os
import pathlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

from jaxonnx.errors import InputError
from jaxonnx.write.file import written

_TYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
}


def write_weights(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Write arrays by name, beside the place first and then there.

    Raises:
        InputError: if safetensors is not installed, or has no such type.
        OSError: if the file cannot be written.
    """
    arrays = {n: np.ascontiguousarray(a).reshape(np.shape(a)) for n, a in values.items()}
    unknown = [n for n, a in arrays.items() if a.dtype not in _TYPES.values()]
    if unknown:
        raise InputError(f"safetensors has no type for {unknown[0]!r}: {arrays[unknown[0]].dtype}")
    with written(pathlib.Path(path), [_library().numpy.save(arrays)]):
        pass


def read_weights(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of a file by name.

    Raises:
        InputError: if it is no safetensors file, or has another type than a floating one.
        OSError: if it cannot be read.
    """
    library, data = _library(), pathlib.Path(path).read_bytes()
    try:
        entries = library.deserialize(data)
    except library.SafetensorError as error:
        raise InputError(f"{os.fspath(path)} is no safetensors file: {error}") from error
    unknown = [(n, e["dtype"]) for n, e in entries if e["dtype"] not in _TYPES]
    if unknown:
        name, dtype = unknown[0]
        raise InputError(f"{os.fspath(path)}: {name!r} is {dtype}, expected a floating type")
    return {n: np.frombuffer(e["data"], _TYPES[e["dtype"]]).reshape(e["shape"]) for n, e in entries}


def _library() -> ModuleType:
    try:
        import safetensors.numpy  # noqa: PLC0415 - an extra, which other formats do not need
    except ImportError as error:
        text = 'this needs safetensors: pip install "jaxonnx[safetensors]"'
        raise InputError(text) from error
    return safetensors

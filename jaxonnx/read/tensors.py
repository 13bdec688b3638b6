"""ONNX's serialised tensors as NumPy arrays, external data memory-mapped and confined."""

import math
import os
import pathlib
from collections.abc import Sequence

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

from jaxonnx.define.dtypes import STRING, dtype_of
from jaxonnx.errors import InvalidModelError

_PACKED = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}
_PACKED |= {"float6_e2m3fn": 6, "float6_e3m2fn": 6}
"""Bits of the element types of which several share a byte in a file."""


def decode(
    tensor: onnx.TensorProto, folders: Sequence[pathlib.Path] = (), title: str = ""
) -> np.ndarray:
    """The array that a ``TensorProto`` holds or points to.

    Args:
        tensor: the tensor.
        folders: where external data may lie: the model's own folder, and those of the files that
            it leads to if it is a link; none where it did not come from a file.
        title: what messages call it, if not by its name.

    Raises:
        InvalidModelError: if the data is missing, of the wrong size, or outside these folders.
    """
    title = title or f"tensor {tensor.name!r}"
    try:
        if any(d < 0 for d in tensor.dims):
            raise InvalidModelError(f"{title} has dimensions {[*tensor.dims]}")
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return _external(tensor, folders, title)
        array = onnx.numpy_helper.to_array(tensor)
        if tensor.data_type != onnx.TensorProto.STRING:
            return array
        text = [s.decode() if isinstance(s, bytes) else str(s) for s in array.ravel()]
        return np.array(text, STRING).reshape(array.shape)
    except InvalidModelError:
        raise
    except Exception as error:
        raise InvalidModelError(f"{title} cannot be read: {error}") from error


def decode_sparse(
    sparse: onnx.SparseTensorProto, folders: Sequence[pathlib.Path] = (), title: str = ""
) -> np.ndarray:
    """The dense array of a ``SparseTensorProto``, whose indices are linear or coordinates."""
    title, shape = title or f"sparse tensor {sparse.values.name!r}", tuple(sparse.dims)
    values, indices = decode(sparse.values, folders, title), decode(sparse.indices, folders, title)
    linear = indices.ndim == 1
    sizes = np.array([math.prod(shape)] if linear else shape)
    if values.ndim != 1 or indices.shape not in ((values.size,), (values.size, len(shape))):
        raise InvalidModelError(
            f"{title} of shape {[*shape]} has values of shape {[*values.shape]} and "
            f"indices of shape {[*indices.shape]}"
        )
    if ((indices < 0) | (indices >= sizes)).any():
        raise InvalidModelError(f"{title} has indices outside its shape {[*shape]}")
    dense = np.zeros(shape, values.dtype)
    dense.reshape(-1)[indices if linear else np.ravel_multi_index(tuple(indices.T), shape)] = values
    return dense


def _external(tensor: onnx.TensorProto, folders: Sequence[pathlib.Path], title: str) -> np.ndarray:
    """The memory-mapped data of a tensor; element types below a byte are unpacked."""
    fields = {e.key: e.value for e in tensor.external_data}
    location = fields.get("location", "")
    if not folders:
        raise InvalidModelError(
            f"{title} lies in the external file {location!r}, but the model was not "
            "read from a file; give load() the path of the model"
        )
    path, dtype = _confined(title, location, folders), dtype_of(tensor.data_type)
    if dtype is None or dtype == STRING:
        raise InvalidModelError(f"{title} has no type that external data can have")
    bits, count = _PACKED.get(dtype.name, 8 * dtype.itemsize), math.prod(tensor.dims)
    needed, size = -(-count * bits // 8), path.stat().st_size
    start = int(fields.get("offset", 0))
    length = int(fields.get("length", needed))
    if start < 0 or length != needed or start + needed > size:
        raise InvalidModelError(
            f"{title} needs {needed} bytes and is given {length} at offset {start} "
            f"of the external file {location!r}, which has {size}"
        )
    if needed == 0:
        return np.empty(tuple(tensor.dims), dtype)
    data = np.memmap(path, np.uint8, "r", offset=start, shape=(needed,))
    if bits == 8 * dtype.itemsize:
        return np.asarray(data.view(dtype)).reshape(tuple(tensor.dims))
    packed = onnx.TensorProto(dims=tensor.dims, data_type=tensor.data_type, raw_data=data.tobytes())
    return onnx.numpy_helper.to_array(packed)


def _confined(title: str, location: str, folders: Sequence[pathlib.Path]) -> pathlib.Path:
    """The path of external data, refused unless it lies in the model's own folder.

    A model that is a link has several: caches keep links in one folder to files in another.
    """
    outside = os.path.isabs(location) or os.path.normpath(location).startswith(os.pardir)
    reason = "is not a path below the model's folder" if outside or not location else ""
    real = folders[-1].resolve()
    for folder in () if reason else folders:
        path = (folder / location).resolve()
        if not path.is_relative_to(folder.resolve()) and not path.is_relative_to(real):
            reason = "is a link that leaves the model's folder"
        elif path.is_file():
            return path
    reason = reason or "does not exist"
    raise InvalidModelError(f"{title}: its external data file {location!r} {reason}")

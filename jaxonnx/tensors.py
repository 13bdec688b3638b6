"""ONNX's serialised tensors as NumPy arrays, external data memory-mapped and confined."""

import math
import os
import pathlib
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

from jaxonnx.errors import InvalidModelError

STRING = np.dtypes.StringDType()

_PACKED = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}
_PACKED |= {"float6_e2m3fn": 6, "float6_e3m2fn": 6}
"""Bits of the element types of which several share a byte in a file."""


def dtype_of(elem_type: int) -> np.dtype | None:
    """The NumPy dtype of an ONNX element type; None where the type is undefined."""
    if elem_type == onnx.TensorProto.UNDEFINED:
        return None
    if elem_type == onnx.TensorProto.STRING:
        return STRING
    try:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(elem_type))
    except KeyError:
        raise InvalidModelError(f"element type {elem_type} is not one of ONNX's") from None


def type_of(value: Any) -> onnx.TypeProto:
    """The ONNX type of an array, a sequence (list) or a map (dict); empty for None."""
    if value is None:
        return onnx.TypeProto()
    if isinstance(value, list):
        return onnx.helper.make_sequence_type_proto(type_of(value[0] if value else None))
    if isinstance(value, dict):
        key, item = next(iter(value.items()))
        return onnx.helper.make_map_type_proto(type_of(key).tensor_type.elem_type, type_of(item))
    value = value if hasattr(value, "dtype") else np.asarray(value)
    shape = [d if isinstance(d, int) else str(d) for d in value.shape]
    return onnx.helper.make_tensor_type_proto(_elem_type(value), shape)


def _elem_type(value: Any) -> int:
    dtype = np.dtype(value.dtype)
    if dtype.kind == "O" and not isinstance(next(iter(value.flat), ""), (str, bytes)):
        return onnx.TensorProto.INT64  # dimension expressions
    if dtype.kind in "OSTU":
        return onnx.TensorProto.STRING
    return onnx.helper.np_dtype_to_tensor_dtype(dtype)


def decode(tensor: onnx.TensorProto, folder: pathlib.Path | None, title: str = "") -> np.ndarray:
    """The array that a ``TensorProto`` holds or points to.

    Args:
        tensor: the tensor.
        folder: where external data may lie; None where the model did not come from a file.
        title: what messages call it, if not by its name.

    Raises:
        InvalidModelError: if the data is missing, of the wrong size, or outside ``folder``.
    """
    title = title or f"tensor {tensor.name!r}"
    try:
        if any(d < 0 for d in tensor.dims):
            raise InvalidModelError(f"{title} has dimensions {[*tensor.dims]}")
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return _external(tensor, folder, title)
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
    sparse: onnx.SparseTensorProto, folder: pathlib.Path | None, title: str = ""
) -> np.ndarray:
    """The dense array of a ``SparseTensorProto``, whose indices are linear or coordinates."""
    title, shape = title or f"sparse tensor {sparse.values.name!r}", tuple(sparse.dims)
    values, indices = decode(sparse.values, folder, title), decode(sparse.indices, folder, title)
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


def _external(tensor: onnx.TensorProto, folder: pathlib.Path | None, title: str) -> np.ndarray:
    """The memory-mapped data of a tensor; element types below a byte are unpacked."""
    fields = {e.key: e.value for e in tensor.external_data}
    location = fields.get("location", "")
    if folder is None:
        raise InvalidModelError(
            f"{title} lies in the external file {location!r}, but the model was not "
            "read from a file; give load() the path of the model"
        )
    path, dtype = _confined(title, location, folder), dtype_of(tensor.data_type)
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


def _confined(title: str, location: str, folder: pathlib.Path) -> pathlib.Path:
    """The path of external data, refused unless it lies in the model's own folder."""
    if not location or os.path.isabs(location) or ".." in pathlib.PurePath(location).parts:
        reason = "is not a path below the model's folder"
    elif not (path := (folder / location).resolve()).is_relative_to(folder.resolve()):
        reason = "is a link that leaves the model's folder"
    elif not path.is_file():
        reason = "does not exist"
    else:
        return path
    raise InvalidModelError(f"{title}: its external data file {location!r} {reason}")

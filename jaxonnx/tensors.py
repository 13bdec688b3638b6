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


def decode(tensor: onnx.TensorProto, folder: pathlib.Path | None) -> np.ndarray:
    """The array that a ``TensorProto`` holds or points to.

    Args:
        tensor: the tensor.
        folder: where external data may lie; None where the model did not come from a file.

    Raises:
        InvalidModelError: if the data is missing, of the wrong size, or outside ``folder``.
    """
    try:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return _external(tensor, folder)
        array = onnx.numpy_helper.to_array(tensor)
    except InvalidModelError:
        raise
    except Exception as error:
        raise InvalidModelError(f"tensor {tensor.name!r} cannot be read: {error}") from error
    if tensor.data_type == onnx.TensorProto.STRING:
        text = [s.decode() if isinstance(s, bytes) else str(s) for s in array.ravel()]
        return np.array(text, STRING).reshape(array.shape)
    return array


def decode_sparse(sparse: onnx.SparseTensorProto, folder: pathlib.Path | None) -> np.ndarray:
    """The dense array of a ``SparseTensorProto``, whose indices are linear or coordinates."""
    values, indices = decode(sparse.values, folder), decode(sparse.indices, folder)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    try:
        if indices.ndim == 1:
            dense.reshape(-1)[indices] = values
        else:
            dense[tuple(indices.T)] = values
    except (IndexError, ValueError) as error:
        raise InvalidModelError(f"sparse tensor {sparse.values.name!r}: {error}") from error
    return dense


def _external(tensor: onnx.TensorProto, folder: pathlib.Path | None) -> np.ndarray:
    import onnx_ir as ir  # noqa: PLC0415 - heavy, and few models need it

    fields: dict[str, Any] = {e.key: e.value for e in tensor.external_data}
    location = fields.get("location", "")
    if folder is None:
        raise InvalidModelError(
            f"tensor {tensor.name!r} lies in the external file {location!r}, but the model was not "
            "read from a file; give load() the path of the model"
        )
    path = _confined(tensor.name, location, folder)
    mapped = ir.ExternalTensor(
        location,
        int(fields["offset"]) if "offset" in fields else None,
        int(fields["length"]) if "length" in fields else None,
        ir.DataType(tensor.data_type),
        shape=ir.Shape(tensor.dims),
        name=tensor.name,
        base_dir=folder,
    )
    bits = ir.DataType(tensor.data_type).bitwidth
    needed = (math.prod(tensor.dims) * bits + 7) // 8
    start, length = mapped.offset or 0, mapped.length
    available = path.stat().st_size - start if length is None else length
    if start < 0 or available < needed or start + needed > path.stat().st_size:
        raise InvalidModelError(
            f"tensor {tensor.name!r} needs {needed} bytes at offset {start} of {location!r}, which "
            f"has {path.stat().st_size}"
        )
    return np.asarray(mapped.numpy())


def _confined(name: str, location: str, folder: pathlib.Path) -> pathlib.Path:
    """The path of external data, refused unless it lies in the model's own folder."""
    path = (folder / location).resolve()
    if not location or os.path.isabs(location) or ".." in pathlib.PurePath(location).parts:
        reason = "is not a path below the model's folder"
    elif not path.is_relative_to(folder.resolve()):
        reason = "is a link that leaves the model's folder"
    elif not path.is_file():
        reason = "does not exist"
    else:
        return path
    raise InvalidModelError(f"tensor {name!r}: its external data file {location!r} {reason}")

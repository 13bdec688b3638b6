"""Element types: what ONNX calls them and what NumPy and JAX do."""

from typing import Any

import numpy as np
import onnx
import onnx.helper

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

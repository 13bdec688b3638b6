"""Attributes of nodes as Python values and arrays."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

from jaxonnx.define.dtypes import STRING
from jaxonnx.errors import InvalidModelError
from jaxonnx.read.tensors import decode, decode_sparse

_CONSTANT_FORMS = {
    "value": None,
    "sparse_value": None,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_string": STRING,
    "value_strings": STRING,
}


def read_attribute(
    attribute: onnx.AttributeProto, where: str, folders: Sequence[pathlib.Path] = ()
) -> Any:
    """The value of an attribute that is no graph: strings decoded, lists as tuples.

    Args:
        attribute: the attribute.
        where: the node or function that has it, for messages.
        folders: where external data of its tensor may lie.

    Raises:
        InvalidModelError: if it has no type, or holds what cannot be read.
    """
    kind, title = onnx.AttributeProto, f"attribute {attribute.name!r} of {where}"
    if attribute.type == kind.UNDEFINED:
        raise InvalidModelError(f"{title} has no type")
    if attribute.type == kind.TENSOR:
        return decode(attribute.t, folders, title)
    if attribute.type == kind.SPARSE_TENSOR:
        return decode_sparse(attribute.sparse_tensor, folders, title)
    if attribute.type == kind.TYPE_PROTO:
        return attribute.tp.SerializeToString()
    value = onnx.helper.get_attribute_value(attribute)
    try:
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, (int, float)):
            return value
        if attribute.type == kind.STRINGS:
            return tuple(v.decode() for v in value)
        return tuple(value)  # trees have hundreds of thousands of numbers
    except UnicodeDecodeError as error:
        raise InvalidModelError(f"{title} is no text: {error}") from error


def function_bindings(function: onnx.FunctionProto, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The value of every attribute of a function for a call; None where it has none."""
    where = f"function {function.name!r}"
    defaults = {a.name: read_attribute(a, where) for a in function.attribute_proto}
    return dict.fromkeys(function.attribute) | defaults | dict(given)


def constant(attributes: Mapping[str, Any], label: str) -> np.ndarray:
    """The value of a ``Constant`` node, in any of its attribute forms.

    Raises:
        InvalidModelError: if it has not exactly one of them.
    """
    if len(attributes) != 1:
        names = ", ".join(map(repr, attributes)) or "none"
        raise InvalidModelError(f"{label}: exactly one attribute is expected, found {names}")
    ((form, value),) = attributes.items()
    return np.asarray(value, _CONSTANT_FORMS[form])


def resolved(proto: onnx.NodeProto, attributes: Mapping[str, Any]) -> bytes:
    """A serialised node whose attribute references are replaced by these values."""
    plain = onnx.NodeProto()
    plain.CopyFrom(proto)
    del plain.attribute[:]
    for attribute in proto.attribute:
        if not attribute.ref_attr_name:
            plain.attribute.append(attribute)
        elif attribute.name in attributes:
            value = attributes[attribute.name]
            tensor = isinstance(value, np.ndarray)
            value = onnx.numpy_helper.from_array(value) if tensor else value
            plain.attribute.append(onnx.helper.make_attribute(attribute.name, value))
    return plain.SerializeToString()

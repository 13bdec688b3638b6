"""A model file without its arrays, in which other ones can be put in their place."""

import hashlib
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from jaxonnx.graph.plan import Template
from jaxonnx.read.tensors import decode

Holder = onnx.TensorProto | onnx.SparseTensorProto | onnx.AttributeProto
"""What holds a stored value in a file: an initializer, or the attribute of a Constant node."""


def holders(model: onnx.ModelProto) -> Iterator[Holder]:
    """Everything in a model that holds a stored value, always in the same order."""
    yield from _of_graph(model.graph)
    for function in model.functions:
        yield from _of_nodes(function.node)


def _of_graph(graph: onnx.GraphProto) -> Iterator[Holder]:
    yield from graph.initializer
    yield from graph.sparse_initializer
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[Holder]:
    for node in nodes:
        constant = node.op_type == "Constant" and node.domain in ("", "ai.onnx")
        for attribute in node.attribute:
            if constant:
                yield attribute
            elif attribute.HasField("g"):
                yield from _of_graph(attribute.g)


def tensor_of(holder: Holder) -> onnx.TensorProto | None:
    """The dense tensor that a holder is or has; None where it stores its value otherwise."""
    if isinstance(holder, onnx.TensorProto):
        return holder
    if isinstance(holder, onnx.AttributeProto) and holder.HasField("t"):
        return holder.t
    return None


def _tensors(holder: Holder) -> Sequence[onnx.TensorProto]:
    """All tensors that a holder is or has."""
    sparse = holder
    if isinstance(holder, onnx.AttributeProto):
        sparse = holder.sparse_tensor if holder.HasField("sparse_tensor") else None
    if isinstance(sparse, onnx.SparseTensorProto):
        return sparse.values, sparse.indices
    dense = tensor_of(holder)
    return () if dense is None else (dense,)


def template_of(
    proto: onnx.ModelProto,
    origins: Mapping[str, Holder],
    kept: Mapping[str, np.ndarray],
    folders: Sequence[pathlib.Path],
    *,
    own: bool,
) -> Template:
    """A model file without the arrays in ``kept``.

    Args:
        proto: the file.
        origins: what holds each stored value, by the value's name.
        kept: values of the model that was made of it, by name.
        folders: where its external data may lie.
        own: whether ``proto`` may be changed, since nobody else has it.
    """
    numbers = {id(h): k for k, h in enumerate(holders(proto))}
    kept = {n: a for n, a in kept.items() if a.dtype.kind != "T"}
    slots = {n: numbers[id(h)] for n, h in origins.items() if n in kept and id(h) in numbers}
    if not own:
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        proto = copy
    free = {*slots.values()}
    for number, holder in enumerate(holders(proto)):
        for tensor in _tensors(holder):
            if number in free and tensor is tensor_of(holder):
                _empty(tensor)
            elif tensor.data_location == onnx.TensorProto.EXTERNAL:
                _fill(tensor, decode(tensor, folders))
    made = {n: fingerprint(a) for n, a in kept.items() if n not in slots}
    return Template(proto.SerializeToString(), slots, made)


_DATA = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")


def _empty(tensor: onnx.TensorProto) -> None:
    """Take the numbers out of a tensor; that they lay in a file of their own stays noted."""
    for field in _DATA:
        tensor.ClearField(field)
    del tensor.external_data[:]


def _fill(tensor: onnx.TensorProto, array: np.ndarray) -> None:
    _empty(tensor)
    tensor.ClearField("data_location")
    tensor.raw_data = packed(array)


def packed(array: np.ndarray) -> bytes:
    """The bytes of an array as ONNX stores them: little endian, small types several to a byte."""
    return onnx.numpy_helper.from_array(np.asarray(array)).raw_data


def fingerprint(array: Any) -> str:
    """A digest of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hexdigest()

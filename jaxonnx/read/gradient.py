"""The part of a graph that a Gradient node differentiates, which its attributes name."""

from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from jaxonnx.errors import InvalidModelError
from jaxonnx.read.order import reads


def differentiated(
    attributes: Mapping[str, Any], label: str, protos: Sequence[onnx.NodeProto]
) -> onnx.GraphProto:
    """The nodes that compute ``y`` from ``xs`` and ``zs``, as a graph with those as its inputs.

    Args:
        attributes: those of the node.
        label: what messages call the node.
        protos: the nodes of the graph that it is in.

    Raises:
        InvalidModelError: if no node gives ``y``.
    """
    y, given = attributes["y"], [*attributes["xs"], *attributes.get("zs", ())]
    producer = {name: proto for proto in protos for name in proto.output if name}
    if y not in producer:
        raise InvalidModelError(f"{label}: y is {y!r}, which no node of its graph gives")
    needed, pending = {}, [y]
    while pending:
        name = pending.pop()
        proto = producer.get(name)
        if name in given or proto is None or id(proto) in needed:
            continue
        needed[id(proto)] = proto
        pending += reads(proto)
        if proto.op_type == "Gradient":  # differentiated again: it names what gives its own y
            pending += (a.s.decode() for a in proto.attribute if a.name == "y")
    return onnx.GraphProto(
        node=[_without(p, given) for p in protos if id(p) in needed],
        input=[onnx.ValueInfoProto(name=n) for n in given],
        output=[onnx.ValueInfoProto(name=y)],
    )


def _without(proto: onnx.NodeProto, names: Sequence[str]) -> onnx.NodeProto:
    """A node that gives none of the names, since they are inputs."""
    if not any(n in names for n in proto.output):
        return proto
    copy = onnx.NodeProto()
    copy.CopyFrom(proto)
    copy.output[:] = ["" if n in names else n for n in proto.output]
    return copy

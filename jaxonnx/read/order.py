"""The order in which nodes can run, and what they read."""

import collections
import graphlib
from collections.abc import Iterable, Iterator, Sequence

import onnx

from jaxonnx.errors import InvalidModelError


def in_order(protos: Sequence[onnx.NodeProto], where: str) -> Sequence[onnx.NodeProto]:
    """Nodes sorted by what they read; the file's order where it is legal already.

    Args:
        protos: the nodes of one graph or function.
        where: what it is called in messages.

    Raises:
        InvalidModelError: if nodes need each other's outputs.
    """
    producer = {name: k for k, proto in enumerate(protos) for name in proto.output if name}
    needs = [{producer[n] for n in reads(proto) if n in producer} for proto in protos]
    if all(max(before, default=-1) < k for k, before in enumerate(needs)):
        return protos
    try:
        order = graphlib.TopologicalSorter(dict(enumerate(needs))).static_order()
        return [protos[k] for k in order]
    except graphlib.CycleError as error:
        cycle = " -> ".join(repr(protos[k].output[0]) for k in error.args[1])
        raise InvalidModelError(f"the nodes of {where} form a cycle: {cycle}") from None


def reads(proto: onnx.NodeProto) -> Iterator[str]:
    """Names that a node reads, those that its subgraphs take from outside included."""
    yield from filter(None, proto.input)
    for attribute in proto.attribute:
        if attribute.HasField("g"):
            yield from _captured(attribute.g)


def _captured(graph: onnx.GraphProto) -> set[str]:
    """Names that a subgraph uses and does not define; it may define names of the outside anew."""
    used = {name for node in graph.node for name in reads(node)} | {o.name for o in graph.output}
    return used - set(stored_names(graph)) - {i.name for i in graph.input} - made_names(graph.node)


def stored_names(graph: onnx.GraphProto) -> list[str]:
    """Names of the dense and the sparse initializers."""
    dense = [t.name for t in graph.initializer]
    return dense + [t.values.name for t in graph.sparse_initializer]


def made_names(protos: Iterable[onnx.NodeProto]) -> set[str]:
    """Names of the values that nodes give."""
    return {name for proto in protos for name in proto.output if name}


def refuse_duplicates(
    inputs: Iterable[str], stored: Iterable[str], protos: Iterable[onnx.NodeProto], where: str
) -> None:
    """Refuse a graph or function in which two things have, or one has no, name.

    An initializer may have the name of an input, whose default it is then.

    Raises:
        InvalidModelError: if that is so.
    """
    inputs, stored = [*inputs], [*stored]
    if "" in inputs or "" in stored:
        raise InvalidModelError(f"an input or initializer of {where} has no name")
    counts = collections.Counter(name for proto in protos for name in proto.output if name)
    counts.update(inputs)
    counts.update(n for n, k in collections.Counter(stored).items() if n not in inputs or k > 1)
    twice = [n for n, count in counts.items() if count > 1]
    twice += [n for n, count in collections.Counter(stored).items() if count > 1]
    if twice:
        raise InvalidModelError(f"{where} gives the value {twice[0]!r} more than once")

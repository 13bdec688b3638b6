"""Drops what no output needs."""

import dataclasses
from collections.abc import Iterator

from jaxonnx.plan import Graph, Node


def prune(graph: Graph) -> Graph:
    """``graph`` without the nodes and constants that none of its outputs depends on."""
    needed, kept = set(graph.outputs), []
    for node in reversed(graph.nodes):
        if needed.isdisjoint(node.outputs):
            continue
        kept.append(node)
        needed.update(reads(node))
    return dataclasses.replace(
        graph,
        nodes=tuple(reversed(kept)),
        constants={n: a for n, a in graph.constants.items() if n in needed},
    )


def reads(node: Node) -> Iterator[str]:
    """Names that a node reads, those its subgraphs use included."""
    yield from filter(None, node.inputs)
    for graph in node.subgraphs:
        yield from graph.outputs
        for inner in graph.nodes:
            yield from reads(inner)

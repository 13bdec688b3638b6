"""Drops what no output needs."""

import dataclasses

from jaxonnx.graph.plan import Graph
from jaxonnx.graph.toolkit import reads


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

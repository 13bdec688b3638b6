"""Evaluates while loading what depends on nothing but constants."""

import dataclasses
from collections.abc import Collection, Mapping

import numpy as np

from jaxonnx.graph.facts import is_random, reads_shapes_only
from jaxonnx.graph.plan import Graph, Node
from jaxonnx.run.trace import Tracing


def fold_constants(
    graph: Graph, floats: Mapping[str, np.ndarray], overridable: Collection[str]
) -> Graph:
    """``graph`` with the results of constant nodes among its constants.

    Args:
        graph: the main graph.
        floats: values that may be differentiated by; only their shapes are constant.
        overridable: names of constants that a caller may replace.
    """
    tracing = Tracing(limit=float("inf"))
    known = {n: a for n, a in graph.given.items() if n not in overridable and n not in floats}
    shaped = {n: a for n, a in floats.items() if n not in overridable}
    folded, kept = {}, []
    for node in graph.nodes:
        values = {**known, **shaped} if reads_shapes_only(node) else known
        if not _constant(node, values):
            kept.append(node)
            continue
        result = tracing.run(_single(node), {n: values[n] for n in node.inputs if n})
        if not all(isinstance(r, np.ndarray) for r in result):  # a sequence
            kept.append(node)
            continue
        results = dict(zip(filter(None, node.outputs), result, strict=True))
        known |= results
        folded |= results
    return dataclasses.replace(graph, nodes=tuple(kept), constants={**graph.constants, **folded})


def _constant(node: Node, known: Mapping[str, np.ndarray]) -> bool:
    plain = node.operator is not None and not node.subgraphs and not is_random(node)
    return plain and bool(node.inputs) and all(not n or n in known for n in node.inputs)


def _single(node: Node) -> Graph:
    outputs = tuple(filter(None, node.outputs))
    return Graph(tuple(filter(None, node.inputs)), outputs, (node,), {}, {})

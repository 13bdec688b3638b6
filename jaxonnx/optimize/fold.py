"""Evaluates while loading what depends on nothing but constants."""

import dataclasses
from collections.abc import Collection, Mapping

import numpy as np

from jaxonnx.define.known import LITERAL_BYTES
from jaxonnx.graph.facts import is_random, reads_shapes_only
from jaxonnx.graph.plan import Graph, Node
from jaxonnx.run.trace import Tracing


def fold_constants(
    graph: Graph, floats: Mapping[str, np.ndarray], overridable: Collection[str]
) -> Graph:
    """``graph`` with the results of constant nodes among its constants.

    A node stays where its results are large and larger than what they come from, such as integer
    weights that are unpacked.

    Args:
        graph: the main graph.
        floats: values that may be differentiated by; only their shapes are constant.
        overridable: names of constants that a caller may replace.
    """
    tracing = Tracing(limit=float("inf"))
    shaped = {n: a for n, a in {**graph.given, **floats}.items() if n not in overridable}
    known = {n: a for n, a in shaped.items() if n not in floats}
    folded, kept = {}, []
    for node in graph.nodes:
        values = shaped if reads_shapes_only(node) else known
        results = results_of(node, values, tracing) if _constant(node, values) else None
        if results is None:
            kept.append(node)
            continue
        known |= results
        shaped |= results
        folded |= results
    return dataclasses.replace(graph, nodes=tuple(kept), constants={**graph.constants, **folded})


def _constant(node: Node, known: Mapping[str, np.ndarray]) -> bool:
    plain = node.operator is not None and not node.subgraphs and not is_random(node)
    return plain and bool(node.inputs) and all(not n or n in known for n in node.inputs)


def results_of(
    node: Node, values: Mapping[str, np.ndarray], tracing: Tracing
) -> dict[str, np.ndarray] | None:
    """The results of a node by name; None where they are no arrays, or would fill the memory."""
    given = {n: values[n] for n in node.inputs if n}
    results = tracing.run(_single(node), given)
    if not all(isinstance(r, np.ndarray) for r in results):  # a sequence
        return None
    size = sum(r.nbytes for r in results)
    if size > LITERAL_BYTES and size > sum(a.nbytes for a in given.values()):
        return None
    return dict(zip(filter(None, node.outputs), results, strict=True))


def _single(node: Node) -> Graph:
    outputs = tuple(filter(None, node.outputs))
    return Graph(tuple(filter(None, node.inputs)), outputs, (node,), {}, {})

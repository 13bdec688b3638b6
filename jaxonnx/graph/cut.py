"""Parts of a graph: what some of its values need, and what is left without it."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from jaxonnx.errors import InputError
from jaxonnx.graph.plan import Graph, Node
from jaxonnx.graph.roles import near
from jaxonnx.graph.toolkit import reads, rewritten


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


def part(graph: Graph, outputs: Sequence[str], given: Collection[str]) -> Graph:
    """The part of ``graph`` that computes ``outputs`` where the values ``given`` are inputs."""
    if given:
        graph = rewritten(graph, lambda node: (_as_spelled(node, given),))
    nodes = tuple(
        dataclasses.replace(node, outputs=tuple("" if o in given else o for o in node.outputs))
        if any(o in given for o in node.outputs)
        else node
        for node in graph.nodes
    )
    inputs = tuple(dict.fromkeys((*graph.inputs, *given)))
    rest = prune(dataclasses.replace(graph, inputs=inputs, outputs=tuple(outputs), nodes=nodes))
    needed = {n for node in rest.nodes for n in reads(node)} | {*outputs}
    stored = {n: a for n, a in graph.initializers.items() if n in needed}
    return dataclasses.replace(rest, initializers=stored)


def _as_spelled(node: Node, given: Collection[str]) -> Node:
    """A node as the file has it, if one of the values that lead to it there is given."""
    if node.spelled is not None and any(n in given for n in node.inside):
        return node.spelled
    return node


def with_given(graph: Graph, values: Mapping[str, np.ndarray]) -> Graph:
    """``graph`` with other values of what it and the graphs inside it store."""
    replaced = lambda stored: {n: values.get(n, a) for n, a in stored.items()}
    nodes = [
        dataclasses.replace(
            node,
            attributes={
                n: with_given(a, values) if isinstance(a, Graph) else a
                for n, a in node.attributes.items()
            },
        )
        if node.subgraphs
        else node
        for node in graph.nodes
    ]
    return dataclasses.replace(
        graph,
        nodes=tuple(nodes),
        initializers=replaced(graph.initializers),
        constants=replaced(graph.constants),
    )


def check_names(
    option: str, names: Iterable[str], graph: Graph, weights: Iterable[str] = ()
) -> None:
    """Refuse names of values that neither the main graph has nor are weights taken out of it.

    Raises:
        InputError: with names that are near, or the node that a value is inside of.
    """
    made = {o for node in graph.nodes for o in node.outputs if o}
    known = {*graph.inputs, *graph.given, *made, *weights}
    for name in names:
        if name in known:
            continue
        for node in graph.nodes:
            inner = (n for g in node.subgraphs for n in g.all_nodes)
            if any(name in n.outputs for n in inner):
                raise InputError(f"{option}: {name!r} is inside of {node.label}, where none can be")
        raise InputError(f"{option}: no value is called {name!r}{near(name, known)}")

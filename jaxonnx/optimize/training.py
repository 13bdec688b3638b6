"""Puts a model into training: batch normalization gathers statistics, dropout drops."""

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from jaxonnx.graph.plan import Graph, Node

_TRAINS_BY_ATTRIBUTE = 14
"""The version of BatchNormalization that trains by an attribute, not by the outputs it has."""

_TRAINS_BY_INPUT = 12
"""The version of Dropout that trains by an input; those of 7 and 10 cannot."""


def in_training(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """``graph`` in training, and the names of new statistics by those that they are made of.

    New statistics are further outputs of the graph. Batch normalization inside of loops and
    branches stays as it is, since no statistics come out of there.
    """
    graph = _dropping(graph)
    nodes, updates = [], {}
    for node in graph.nodes:
        gathers = (node.op_type, node.domain) == ("BatchNormalization", "")
        nodes.append(_gathering(node) if gathers else node)
        if gathers:
            updates.update(zip(node.inputs[3:5], nodes[-1].outputs[1:3], strict=True))
    updates = {n: o for n, o in updates.items() if n in graph.given}
    outputs = (*graph.outputs, *updates.values())
    return dataclasses.replace(graph, nodes=tuple(nodes), outputs=outputs), updates


def _gathering(node: Node) -> Node:
    """A batch normalization that trains and gives its new statistics."""
    attributes = {n: v for n, v in node.attributes.items() if n != "is_test"}
    if node.version >= _TRAINS_BY_ATTRIBUTE:
        attributes["training_mode"] = 1
    given = [*node.outputs, "", ""][1:3]
    ours = (f"{n}@{node.key}" for n in node.inputs[3:5])
    outputs = [name or own for name, own in zip(given, ours, strict=True)]
    rest = node.outputs[3:]
    every = (*node.outputs[:1], *outputs, *rest)
    return dataclasses.replace(node, attributes=attributes, outputs=every)


def _dropping(graph: Graph) -> Graph:
    """A graph whose dropouts drop, those of the graphs inside it included."""
    nodes, constants = [], dict(graph.constants)
    for node in graph.nodes:
        inner = {n: _dropping(a) for n, a in node.attributes.items() if isinstance(a, Graph)}
        drops = (node.op_type, node.domain) == ("Dropout", "")
        now, values = _trained_dropout(node) if drops else (node, {})
        constants.update(values)
        attributes = {**now.attributes, **inner}
        nodes.append(dataclasses.replace(now, attributes=attributes) if inner else now)
    return dataclasses.replace(graph, nodes=tuple(nodes), constants=constants)


def _trained_dropout(node: Node) -> tuple[Node, Mapping[str, np.ndarray]]:
    """A dropout that drops, and the constants that it reads."""
    attributes = {n: v for n, v in node.attributes.items() if n not in ("is_test", "ratio")}
    version, made = max(node.version, _TRAINS_BY_INPUT), [*_constants(node)]
    if node.version < _TRAINS_BY_INPUT and len(node.outputs) > 1 and node.version != 10:
        attributes |= {n: v for n, v in node.attributes.items() if n == "ratio"}
        return dataclasses.replace(node, version=6, attributes=attributes), {}
    (ratio, _), (training, _) = made
    data, *given = node.inputs
    inputs = (data, given[0] if given else ratio, training)
    now = dataclasses.replace(node, version=version, attributes=attributes, inputs=inputs)
    return now, dict(made)


def _constants(node: Node) -> Iterator[tuple[str, np.ndarray]]:
    """The ratio and the mode of a dropout as constants with names of their own."""
    yield f"{node.key}@ratio", np.asarray(node.attributes.get("ratio", 0.5), np.float32)
    yield f"{node.key}@training", np.asarray(True)

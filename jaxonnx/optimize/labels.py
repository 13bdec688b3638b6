"""Takes strings out of classifiers, so that their numbers can be compiled."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping

from jaxonnx.graph.plan import Graph, Node

_INTEGERS: Mapping[str, str] = {
    "LinearClassifier": "classlabels_ints",
    "SVMClassifier": "classlabels_ints",
    "TreeEnsembleClassifier": "classlabels_int64s",
}
"""Classifiers and the attribute that holds labels which are integers."""

_STRINGS = "classlabels_strings"
_DOMAIN = "ai.onnx.ml"


def split_labels(graph: Graph) -> Graph:
    """``graph`` with classifiers that give positions, and encoders that turn them into strings."""
    taken = {n for g in graph.walk() for n in (*g.inputs, *g.given)}
    taken |= {n for node in graph.all_nodes for n in node.outputs}
    return _split(graph, taken)


def _split(graph: Graph, taken: Collection[str]) -> Graph:
    nodes = tuple(part for node in graph.nodes for part in _parts(node, taken))
    return dataclasses.replace(graph, nodes=nodes)


def _parts(node: Node, taken: Collection[str]) -> Iterator[Node]:
    """A node, or the two that a classifier with strings for labels is split into."""
    inner = {n: _split(a, taken) for n, a in node.attributes.items() if isinstance(a, Graph)}
    attributes = {**node.attributes, **inner}
    labels = attributes.get(_STRINGS) or ()
    form = _INTEGERS.get(node.op_type) if node.domain == _DOMAIN else None
    if form is None or len(labels) < 2 or attributes.get(form) or not node.outputs[0]:
        yield dataclasses.replace(node, attributes=attributes) if inner else node
        return
    del attributes[_STRINGS]
    attributes[form] = positions = tuple(range(len(labels)))
    name = f"{node.outputs[0]}/position"
    while name in taken:
        name += "'"
    outputs = (name, *node.outputs[1:])
    yield dataclasses.replace(node, attributes=attributes, outputs=outputs)
    table = {"keys_int64s": positions, "values_strings": labels}
    encoder = Node("LabelEncoder", _DOMAIN, 2, node.name, (name,), node.outputs[:1], table)
    yield dataclasses.replace(encoder, path=node.path)

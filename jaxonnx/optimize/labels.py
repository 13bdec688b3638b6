"""Takes strings out of classifiers, so that their numbers can be compiled."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping

from jaxonnx.graph.plan import Graph, Node
from jaxonnx.graph.toolkit import names_of, rewritten, unused

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
    taken = names_of(graph)
    return rewritten(graph, lambda node: _parts(node, taken))


def _parts(node: Node, taken: Collection[str]) -> Iterator[Node]:
    """A node, or the two that a classifier with strings for labels is split into."""
    attributes = {**node.attributes}
    labels = attributes.get(_STRINGS) or ()
    form = _INTEGERS.get(node.op_type) if node.domain == _DOMAIN else None
    if form is None or len(labels) < 2 or attributes.get(form) or not node.outputs[0]:
        yield node
        return
    del attributes[_STRINGS]
    attributes[form] = positions = tuple(range(len(labels)))
    name = unused(f"{node.outputs[0]}/position", taken)
    outputs = (name, *node.outputs[1:])
    yield dataclasses.replace(node, attributes=attributes, outputs=outputs)
    table = {"keys_int64s": positions, "values_strings": labels}
    encoder = Node("LabelEncoder", _DOMAIN, 2, node.name, (name,), node.outputs[:1], table)
    yield dataclasses.replace(encoder, path=node.path)

"""What passes ask of a graph: who gives a value, who reads it, which names are free."""

from collections.abc import Iterator

from jaxonnx.graph.plan import Node


def reads(node: Node) -> Iterator[str]:
    """Names that a node reads, those its subgraphs use included."""
    yield from filter(None, node.inputs)
    for graph in node.subgraphs:
        yield from graph.outputs
        for inner in graph.nodes:
            yield from reads(inner)

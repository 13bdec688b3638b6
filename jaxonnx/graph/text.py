"""Which values of a graph are strings, or hold them, as far as the schemas tell."""

from collections.abc import Collection

from jaxonnx.graph import facts
from jaxonnx.graph.plan import Graph, Node


def text_values(graph: Graph, text: Collection[str]) -> set[str]:
    """Names of all values of ``graph`` that are strings.

    Args:
        graph: the graph.
        text: names of the inputs and outer values that are.
    """
    found = {*text, *(n for n, a in graph.given.items() if a.dtype.kind == "T")}
    for node in graph.nodes:
        if node.subgraphs:
            found |= _from_subgraphs(node, found)
            continue
        fed = [name in found for name in node.inputs]
        made = enumerate(node.outputs)
        found.update(n for k, n in made if n and facts.gives_text(node, k, fed))
    return found


def _from_subgraphs(node: Node, found: Collection[str]) -> set[str]:
    """Outputs of If, Loop, Scan or SequenceMap, which are those of a subgraph."""
    given = node.inputs[1:] if (node.op_type, node.version) == ("Scan", 8) else node.inputs
    results = set()
    for graph in node.subgraphs:
        fed = {inner for inner, name in zip(graph.inputs, given, strict=False) if name in found}
        text = text_values(graph, {*found, *fed})
        outputs = graph.outputs[1:] if node.op_type == "Loop" else graph.outputs
        results.update(n for n, made in zip(node.outputs, outputs, strict=False) if made in text)
    return results - {""}

"""What passes ask of a graph: who gives a value, who reads it, what it goes through."""

import collections
import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Literal

from jaxonnx.define.streams import KEY
from jaxonnx.graph.facts import is_random
from jaxonnx.graph.plan import Graph, Node


@dataclasses.dataclass(frozen=True)
class Use:
    """A place where a value is read.

    Attributes:
        node: the node; None where the value is an output of its graph.
        position: of the input, or of the output.
        graph: the graph that the place is in.
    """

    node: Node | None
    position: int
    graph: Graph

    @property
    def place(self) -> Literal["weight", "statistic", "constant", "operand"]:
        """What the operator says that the input is for."""
        operator = self.node.operator if self.node else None
        name = operator.input_name(self.position) if operator else ""
        if operator is None:
            return "operand"
        if name in operator.weights:
            return "weight"
        if name in operator.statistics:
            return "statistic"
        return "constant" if name in operator.settings else "operand"


class Uses:
    """Where the values of a graph and of those inside it are read."""

    def __init__(self, graph: Graph) -> None:
        self._places: dict[str, list[Use]] = collections.defaultdict(list)
        self._owners: dict[int, Node] = {}
        for inner in graph.walk():
            for node in inner.nodes:
                self._owners.update((id(g), node) for g in node.subgraphs)
                for position, name in enumerate(node.inputs):
                    self._places[name].append(Use(node, position, inner))
            for position, name in enumerate(inner.outputs):
                self._places[name].append(Use(None, position, inner))

    def of(self, name: str) -> Sequence[Use]:
        """Where a value is read."""
        return self._places.get(name, ())

    def followed(self, name: str) -> Iterator[Use]:
        """Where the elements of a value are used, also once they have been moved.

        It goes through operators that only move the elements of their first input, into the bodies
        of loops, and out of branches and bodies.
        """
        pending, seen = [name], {name}
        while pending:
            for use in self.of(pending.pop()):
                onward = [n for n in self._onward(use) if n]
                if not onward:
                    yield use
                pending += [n for n in onward if n not in seen]
                seen.update(onward)

    def _onward(self, use: Use) -> Sequence[str]:
        """Names that the elements of a value have after a use that only moves them."""
        node, position = use.node, use.position
        if node is None:
            owner = self._owners.get(id(use.graph))
            if owner is None:
                return []
            position -= 1 if owner.op_type == "Loop" else 0  # the first output is the condition
            return [owner.outputs[position]] if 0 <= position < len(owner.outputs) else []
        if node.subgraphs:
            inputs = node.subgraphs[0].inputs
            position -= 1 if (node.op_type, node.version) == ("Scan", 8) else 0
            return [inputs[position]] if 0 <= position < len(inputs) else []
        moves = node.operator is not None and node.operator.moves and position == 0
        return node.outputs if moves else []


def producers(graph: Graph) -> dict[str, Node]:
    """The node that gives each computed value of a graph and of those inside it."""
    return {o: node for node in graph.all_nodes for o in node.outputs if o}


def reads(node: Node) -> Iterator[str]:
    """Names that a node reads, or would as the file spells it.

    Those that its subgraphs use are included, and the key if it is random.
    """
    yield from filter(None, node.inputs)
    if node.spelled is not None:
        yield from reads(node.spelled)
    if not node.subgraphs and is_random(node):
        yield KEY
    for graph in node.subgraphs:
        yield from graph.outputs
        for inner in graph.nodes:
            yield from reads(inner)


def names_of(graph: Graph) -> set[str]:
    """The names of all values of a graph and of those inside it."""
    taken = {n for g in graph.walk() for n in (*g.inputs, *g.given)}
    return taken | {n for node in graph.all_nodes for n in node.outputs}


def unused(name: str, taken: Collection[str]) -> str:
    """``name``, with marks at its end if another value has it."""
    while name in taken:
        name += "'"
    return name


def rewritten(graph: Graph, parts: Callable[[Node], Iterable[Node]]) -> Graph:
    """``graph`` with some nodes in the place of each, in the graphs inside it too.

    ``parts`` is asked in the order in which the nodes run, for those of a subgraph before the node
    that holds it.
    """
    nodes: list[Node] = []
    for node in graph.nodes:
        inner = {k: rewritten(a, parts) for k, a in node.attributes.items() if isinstance(a, Graph)}
        attributes = {**node.attributes, **inner}
        nodes += parts(dataclasses.replace(node, attributes=attributes) if inner else node)
    return dataclasses.replace(graph, nodes=tuple(nodes))

"""Recognises norms and deviations, whose derivative at 0 is 0, behind the root of a sum of squares.

The root alone has an infinite derivative at 0, which times the 0 of the squares is NaN.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from jaxonnx.define.own import DOMAIN
from jaxonnx.graph.plan import Graph, Node
from jaxonnx.graph.toolkit import producers

_SUMS = frozenset({"Add", "Mean", "Sum"})
_FIRST = frozenset({"Clip", "Div", "Max", "ReduceMean", "ReduceSum", "Relu"})
"""What keeps a sum of squares one, if its first input is: scaled, bounded from below, summed."""


def find_norms(graph: Graph) -> Graph:
    """``graph`` with roots of sums of squares as operators of their own, of the same value."""
    given = {n: a for g in graph.walk() for n, a in g.given.items()}
    return _Finder(producers(graph), given).within(graph)


@dataclasses.dataclass(frozen=True)
class _Finder:
    """What gives the values of a graph and of those inside it.

    Attributes:
        made: nodes by the names of their outputs.
        given: stored values by name.
        found: whether values are sums of squares, by name; filled while looking.
    """

    made: Mapping[str, Node]
    given: Mapping[str, np.ndarray]
    found: dict[str, bool] = dataclasses.field(default_factory=dict)

    def within(self, graph: Graph) -> Graph:
        """``graph`` with the norms in it, and in the graphs inside it, recognised."""
        nodes = []
        for node in graph.nodes:
            inner = {n: self.within(a) for n, a in node.attributes.items() if isinstance(a, Graph)}
            attributes = {**node.attributes, **inner}
            now = dataclasses.replace(node, attributes=attributes) if inner else node
            nodes.append(self._recognised(now))
        return dataclasses.replace(graph, nodes=tuple(nodes))

    def _recognised(self, node: Node) -> Node:
        half = self._constant(node.inputs[1]) if node.op_type == "Pow" else None
        root = node.op_type == "Sqrt" or (half is not None and bool(np.all(half == 0.5)))
        if node.domain or not root or not self._is_sum(node.inputs[0]):
            return node
        return dataclasses.replace(
            node, op_type="RootOfSquares", domain=DOMAIN, version=1, attributes={}
        )

    def _is_sum(self, name: str) -> bool:
        """Whether a value is a sum of squares, scaled and bounded from below maybe."""
        pending = [name]
        while pending:  # no recursion: chains may be longer than Python's stack
            now = pending[-1]
            needed = [n for n in self._parts(now) or () if n not in self.found]
            if needed:
                pending += needed
                continue
            parts = self._parts(now)
            self.found[now] = parts is not None and all(self.found[n] for n in parts)
            pending.pop()
        return self.found[name]

    def _parts(self, name: str) -> tuple[str, ...] | None:
        """The values that must be sums of squares for this one to be; None if it is none."""
        node = self.made.get(name)
        if node is None or node.domain:
            return None
        inputs, kind = node.inputs, node.op_type
        if kind == "ReduceSumSquare" or (kind == "Mul" and inputs[0] == inputs[1]):
            return ()
        if kind == "Pow":
            power = self._constant(inputs[1])
            return (
                () if power is not None and bool(np.all((power > 0) & (power % 2 == 0))) else None
            )
        if kind in _SUMS:
            return tuple(n for n in inputs if not self._is_positive(n)) or None
        if kind == "Mul":
            rest = tuple(n for n in inputs if not self._is_positive(n))
            return rest if len(rest) == 1 else None
        moves = node.operator is not None and node.operator.moves
        return inputs[:1] if kind in _FIRST or moves else None

    def _constant(self, name: str) -> np.ndarray | None:
        return self.given.get(name)

    def _is_positive(self, name: str) -> bool:
        value = self._constant(name)
        return value is not None and value.dtype.kind != "T" and bool(np.all(value >= 0))

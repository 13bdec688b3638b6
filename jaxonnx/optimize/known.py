"""What a graph says of its values before anything runs: numbers, and equal computations."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping

import jax
import numpy as np

from jaxonnx.graph.facts import is_random
from jaxonnx.graph.plan import Graph, Node
from jaxonnx.graph.toolkit import producers
from jaxonnx.optimize.fold import results_of
from jaxonnx.run.trace import Tracing

_DEPTH = 8
"""The most nodes in a row that are evaluated or compared."""

_SIZE = 64
"""The most elements of a value that is evaluated."""


@dataclasses.dataclass(frozen=True)
class Known:
    """A graph and those inside it, as what is asked of their values needs them.

    Attributes:
        made: the node that gives each computed value.
        given: the values that are stored, but for those that a caller may replace.
        found: values that have been evaluated, None for those that could not be.
        lows: the least elements that have been asked for.
    """

    made: Mapping[str, Node]
    given: Mapping[str, np.ndarray]
    found: dict[str, np.ndarray | None] = dataclasses.field(default_factory=dict)
    lows: dict[str, tuple[float, int] | None] = dataclasses.field(default_factory=dict)

    def numbers(self, name: str) -> np.ndarray | None:
        """The value as doubles if it is made of stored numbers alone, and small where computed."""
        value = self._value(name, _DEPTH)
        if value is None or value.dtype.kind in "cT" or value.size == 0:
            return None
        return np.asarray(value, np.float64)

    def number(self, name: str) -> float | None:
        """The value if it is a single stored number."""
        value = self._value(name, _DEPTH)
        numbers = self.numbers(name) if value is not None and value.size == 1 else None
        return None if numbers is None else float(numbers.reshape(()))

    def least(self, name: str) -> tuple[float, int] | None:
        """The least element of a value that is made of stored numbers, and how many it has."""
        if name not in self.lows:
            numbers = self.numbers(name)
            self.lows[name] = None if numbers is None else (float(numbers.min()), numbers.size)
        return self.lows[name]

    def _value(self, name: str, depth: int) -> np.ndarray | None:
        if name in self.given:
            return self.given[name]
        if name not in self.found:
            self.found[name] = self._evaluated(name, depth)
        return self.found[name]

    def _evaluated(self, name: str, depth: int) -> np.ndarray | None:
        """The value that a node gives, if its inputs are known and small."""
        node = self.made.get(name)
        if node is None or not depth or node.operator is None or node.subgraphs or is_random(node):
            return None
        if node.op_type == "CastLike":  # the number is the same, whatever its type is like
            return self._value(node.inputs[0], depth - 1)
        values = {n: self._value(n, depth - 1) for n in node.inputs if n}
        small = {n: v for n, v in values.items() if v is not None and v.size <= _SIZE}
        if not small or len(small) < len(values):
            return None
        with jax.enable_x64(True):
            results = results_of(node, small, Tracing(limit=float("inf")))
        return None if results is None else results.get(name)

    def same(self, a: str, b: str, depth: int = _DEPTH) -> bool:
        """Whether two values are equal, since they are computed alike."""
        if a == b:
            return True
        first, second = self.made.get(a), self.made.get(b)
        if not a or not b or not depth:
            return False
        if first is None or second is None:
            number = self.number(a)
            return number is not None and number == self.number(b)
        plain = first.operator is not None and not first.subgraphs and not is_random(first)
        alike = _form(first) == _form(second) and first.outputs.index(a) == second.outputs.index(b)
        if not plain or not alike or len(first.inputs) != len(second.inputs):
            return False
        pairs = zip(first.inputs, second.inputs, strict=True)
        return all((not x and not y) or self.same(x, y, depth - 1) for x, y in pairs)

    def by(self, name: str) -> Node | None:
        """The node of ONNX's own domain that gives a value."""
        node = self.made.get(name)
        return None if node is None or node.domain else node

    def maker(self, name: str) -> Node | None:
        """The node of ONNX's own domain that a value comes from, before it is moved."""
        for _ in range(_DEPTH):
            node = self.by(name)
            if node is None or node.operator is None or not node.operator.moves:
                return node
            name = node.inputs[0]
        return None

    def between(self, names: Iterable[str], ends: Collection[str]) -> tuple[str, ...]:
        """Names of the computed values that lead to ``names``, back to ``ends``."""
        found: dict[str, None] = {}
        pending = [*names]
        while pending:
            name = pending.pop()
            if name in self.made and name not in ends and name not in found:
                found[name] = None
                pending += self.made[name].inputs
        return tuple(found)

    def squared(self, name: str) -> str | None:
        """The name of what a value is the square of, if it is written as one."""
        node = self.maker(name)
        if node is None or node.op_type not in ("Mul", "Pow"):
            return None
        base, other = node.inputs
        square = self.same(base, other) if node.op_type == "Mul" else self.number(other) == 2
        return base if square else None


def _form(node: Node) -> tuple[object, ...]:
    """What a node computes, apart from its inputs; an array equals itself only."""
    plain = {k: id(v) if isinstance(v, np.ndarray) else v for k, v in node.attributes.items()}
    return node.domain, node.op_type, node.version, plain


def known_of(graph: Graph) -> Known:
    """What there is to know of a graph and of those inside it."""
    given = {n: a for g in graph.walk() for n, a in g.given.items() if n not in graph.inputs}
    return Known(producers(graph), given)

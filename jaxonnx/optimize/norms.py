"""Gives norms that are spelled out the derivative of a norm: 0 where the norm is 0.

A root is infinitely steep at 0, and a sum of squares is flat there: together that is infinity times
zero, where the norm's stated derivative is 0. So a node that stops derivatives at 0 is put between
the two. It changes no value, and every value keeps its name.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from jaxonnx.define.own import DOMAIN
from jaxonnx.graph.facts import is_random, reads_shapes_only
from jaxonnx.graph.plan import Graph, Node
from jaxonnx.graph.toolkit import names_of, rewritten, unused
from jaxonnx.optimize.differences import is_difference
from jaxonnx.optimize.known import Known, known_of

_KEEPING = frozenset(
    {
        *("Abs", "AveragePool", "CumSum", "GlobalAveragePool", "Identity", "ReduceMax"),
        *("ReduceMean", "ReduceSum", "Relu", "Sign"),
    }
)
"""Operators whose result is a sum of squares, in the sense of :class:`_Marks`, if the input is."""

_JOINING = frozenset({"Add", "Max", "Mean", "Min", "Sum", "Where"})
"""Operators whose result is one if each input is one or a constant that is not negative."""


@dataclasses.dataclass(frozen=True)
class _Marks:
    """What is known of the values of a graph, from its first node on.

    Attributes:
        known: what the graph says of single values.
        squares: names of sums of squares: they are 0 only where all their derivatives are.
        above: those of them that are never 0.
        sized: names of what is computed from shapes and single constants.
    """

    known: Known
    squares: set[str] = dataclasses.field(default_factory=set)
    above: set[str] = dataclasses.field(default_factory=set)
    sized: set[str] = dataclasses.field(default_factory=set)

    def note(self, node: Node) -> None:
        """Mark the outputs of a node; those of its inputs are marked already."""
        if node.subgraphs or is_random(node):
            return
        if _is_sized(node, self):
            self.sized.update(node.outputs)
        if _is_square(node, self):
            self.squares.update(node.outputs)
            if _is_above(node, self):
                self.above.update(node.outputs)

    def constant(self, name: str) -> bool:
        """Whether a value has no derivative and is not negative, or is positive throughout."""
        least = self.known.least(name)
        if least is None:
            return name in self.sized
        low, size = least
        return low > 0 or (size == 1 and low >= 0)

    def positive(self, name: str) -> bool:
        """Whether a value is stored and positive throughout."""
        least = self.known.least(name)
        return least is not None and least[0] > 0


def settle_norms(graph: Graph) -> Graph:
    """``graph`` in which the derivative of a norm is 0 where the norm is 0."""
    marks, taken = _Marks(known_of(graph)), names_of(graph)

    def parts(node: Node) -> Iterator[Node]:
        marks.note(node)
        if not _is_root(node, marks):
            yield node
            return
        name = unused(f"{node.key}/radicand", taken)
        yield Node("FlatAtZero", DOMAIN, 1, "", node.inputs[:1], (name,), {}, node.path)
        yield dataclasses.replace(node, inputs=(name, *node.inputs[1:]))

    return rewritten(graph, parts)


def _is_root(node: Node, marks: _Marks) -> bool:
    """Whether a node takes a root, of any degree, of a sum of squares that may be 0."""
    if node.domain or node.op_type not in ("Sqrt", "Pow"):
        return False
    radicand = node.inputs[0]
    if radicand not in marks.squares or radicand in marks.above:
        return False
    return node.op_type == "Sqrt" or _exponent_within(node, marks, 0, 1)


def _exponent_within(node: Node, marks: _Marks, low: float, high: float) -> bool:
    """Whether the exponent of a Pow is known and between two numbers, both excluded."""
    exponent = marks.known.numbers(node.inputs[1])
    return exponent is not None and bool(np.all((exponent > low) & (exponent < high)))


def _is_square(node: Node, marks: _Marks) -> bool:
    """Whether the result of a node is a sum of squares."""
    if node.domain or not node.inputs:
        return False
    first, *rest = node.inputs
    match node.op_type:
        case "ReduceSumSquare":
            return True
        case "Mul":
            return _is_product(node, marks)
        case "Pow":
            return _is_power(node, marks)
        case "Div":  # where the quotient is 0, so is the dividend
            return first in marks.squares
        case "Clip":
            bounds = [n for n in rest if n]
            return first in marks.squares and all(map(marks.constant, bounds))
        case "Einsum":
            terms = str(node.attributes["equation"]).partition("->")[0].replace(" ", "").split(",")
            return len(terms) == 2 and terms[0] == terms[1] and marks.known.same(first, rest[0])
        case "Concat":
            return all(n in marks.squares for n in node.inputs)
    if node.op_type in _JOINING:
        joined = rest if node.op_type == "Where" else node.inputs
        some = any(n in marks.squares for n in joined)
        if some and all(n in marks.squares or marks.constant(n) for n in joined):
            return True
    moves = node.operator is not None and node.operator.moves
    if moves or node.op_type in _KEEPING:
        return first in marks.squares
    return is_difference(node, marks.squares, marks.known)


def _is_product(node: Node, marks: _Marks) -> bool:
    """Whether it is the product of two equal factors, of two sums of squares, or a scaled one."""
    a, b = node.inputs
    if a in marks.squares or b in marks.squares:
        other = b if a in marks.squares else a
        if other in marks.squares or marks.constant(other):
            return True
    return marks.known.same(a, b)


def _is_power(node: Node, marks: _Marks) -> bool:
    """Whether it is flat where it is 0, and never negative."""
    exponent, base = marks.known.numbers(node.inputs[1]), node.inputs[0]
    if exponent is None:
        return False
    if base in marks.squares:
        return bool(np.all(exponent >= 1))
    if np.all((exponent % 2 == 0) & (exponent > 0)):
        return True
    made = marks.known.maker(base)
    magnitude = made is not None and made.op_type in ("Abs", "Relu")
    return magnitude and bool(np.all(exponent > 1))


def _is_above(node: Node, marks: _Marks) -> bool:
    """Whether a sum of squares has something positive added, or is kept above something."""
    match node.op_type:
        case "Add" | "Max" | "Mean" | "Sum":
            return any(n in marks.above or marks.positive(n) for n in node.inputs)
        case "Clip":
            low = node.attributes.get("min", 0)
            return low > 0 or any(map(marks.positive, node.inputs[1:2]))
    moves = node.operator is not None and node.operator.moves
    return moves and node.inputs[0] in marks.above


def _is_sized(node: Node, marks: _Marks) -> bool:
    """Whether a node reads shapes, or computes with what was made of them."""
    if reads_shapes_only(node):
        return True
    read = node.inputs[:1] if node.op_type == "CastLike" else tuple(filter(None, node.inputs))
    if not any(n in marks.sized for n in read):
        return False
    return all(n in marks.sized or marks.known.least(n) is not None for n in read)

"""Gives the angle of a point, spelled as Div, Atan and a choice of quadrants, its derivative.

``Atan(Div(y, x))`` is right at ``x = 0``, by way of an infinity, but its derivative there is 0.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from jaxonnx.define.own import DOMAIN
from jaxonnx.graph.plan import Graph, Node
from jaxonnx.graph.toolkit import names_of, rewritten, unused
from jaxonnx.optimize.known import Known, known_of

_BELOW = {"Less": 1, "LessOrEqual": 1, "Greater": -1, "GreaterOrEqual": -1}
"""Comparisons with 0, and whether they ask for what is below or above it."""


def whole_angles(graph: Graph) -> Graph:
    """``graph`` in which the angle of a point has its value and its derivative everywhere."""
    known, taken = known_of(graph), names_of(graph)

    def parts(node: Node) -> Iterator[Node]:
        point = None if node.domain else _by_quadrants(node, known) or _by_signs(node, known)
        if point is None:
            yield node
            return
        spelled = unused(f"{node.key}/spelled", taken)
        yield dataclasses.replace(node, outputs=(spelled,))
        angle = Node("Atan2", DOMAIN, 1, "", (*point, spelled), node.outputs, {}, node.path)
        inside = known.between(node.inputs, point)
        yield dataclasses.replace(angle, spelled=node, inside=inside)

    return rewritten(graph, parts)


def _by_quadrants(node: Node, known: Known) -> tuple[str, str] | None:
    """``y`` and ``x`` of ``Where(x < 0, Where(y > 0, a + pi, a - pi), a)``, ``a`` their angle."""
    if node.op_type != "Where":
        return None
    left, corrected, angle = _branches(node, known)
    quotient, choice = _quotient(angle, known), known.by(corrected)
    if left is None or quotient is None or choice is None or choice.op_type != "Where":
        return None
    y, x = quotient
    below, when_below, when_above = _branches(choice, known)
    turned = _is_shifted(when_below, angle, "Sub", known) and _is_shifted(
        when_above, angle, "Add", known
    )
    matches = below is not None and known.same(below, y) and known.same(left, x)
    return (y, x) if turned and matches else None


def _branches(node: Node, known: Known) -> tuple[str | None, str, str]:
    """What a Where compares with 0, and its values where that is below and above."""
    condition, first, second = node.inputs
    compared = known.by(condition)
    sign = _BELOW.get(compared.op_type, 0) if compared is not None else 0
    if compared is None or not sign:
        return None, first, second
    a, b = compared.inputs
    if known.number(a) == 0:
        a, b, sign = b, a, -sign
    if known.number(b) != 0:
        return None, first, second
    return (a, first, second) if sign > 0 else (a, second, first)


def _is_shifted(name: str, angle: str, op_type: str, known: Known) -> bool:
    """Whether a value is an angle and pi, added or subtracted."""
    node = known.by(name)
    if node is None or node.op_type != op_type:
        return False
    pairs = (node.inputs, node.inputs[::-1]) if op_type == "Add" else (node.inputs,)
    return any(known.same(a, angle) and _is_pi(pi, known) for a, pi in pairs)


def _is_pi(name: str, known: Known) -> bool:
    number = known.number(name)
    return number is not None and 3.1 < number < 3.2  # in any precision


def _quotient(name: str, known: Known) -> Sequence[str] | None:
    """The inputs of a Div whose arc tangent a value is."""
    node = known.by(name)
    quotient = known.by(node.inputs[0]) if node is not None and node.op_type == "Atan" else None
    return quotient.inputs if quotient is not None and quotient.op_type == "Div" else None


def _by_signs(node: Node, known: Known) -> tuple[str, str] | None:
    """``y`` and ``x`` of ``sign(x)^2 * Atan(y / (x + sign(x)^2 - 1)) + ...``, of tf2onnx."""
    if node.op_type != "Add":
        return None
    for name in node.inputs:
        product = known.by(name)
        if product is None or product.op_type != "Mul":
            continue
        for squared, angle in (product.inputs, product.inputs[::-1]):
            quotient = _quotient(angle, known)
            sign = known.squared(squared) if quotient is not None else None
            if quotient is None or sign is None:
                continue
            y, shifted = quotient
            of, total = known.maker(sign), known.by(shifted)
            if of is None or of.op_type != "Sign" or total is None or total.op_type != "Add":
                continue
            x = of.inputs[0]
            if any(known.same(x, n) for n in total.inputs):
                return y, x
    return None

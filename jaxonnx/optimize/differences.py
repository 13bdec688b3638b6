"""Sums of squares that are written as differences: ``|x|^2 + |y|^2 - 2 x y``, ``E[x^2] - E[x]^2``.

Both are 0 where all differences are, and flat there, but for rounding.
"""

from collections.abc import Collection

from jaxonnx.graph.plan import Node
from jaxonnx.optimize.known import Known

_PRODUCTS = ("MatMul", "Gemm", "Einsum")
"""Operators that multiply matrices."""


def is_difference(node: Node, squares: Collection[str], known: Known) -> bool:
    """Whether the result of a node is such a difference, or the part of one.

    Args:
        node: the node.
        squares: names of sums of squares.
        known: what the graph says of single values.
    """
    match node.op_type:
        case "Sub":
            a, b = node.inputs
            if a in squares and _doubled(b, known) == 2:
                return True
            return _is_variance(a, b, known)
        case "Add":
            a, b = node.inputs
            return (a in squares and _doubled(b, known) == -2) or (
                b in squares and _doubled(a, known) == -2
            )
        case "Gemm":
            return (
                node.attributes.get("alpha") == -2
                and node.inputs[2:3] != ()
                and (node.inputs[2] in squares)
            )
        case "MatMul":  # of (-2 x, |x|^2, 1) and (y, 1, |y|^2)
            return all(_holds_square(n, squares, known) for n in node.inputs)
    return False


def _doubled(name: str, known: Known) -> float | None:
    """The factor of a product of matrices, its own or that of one of the two."""
    node = known.maker(name)
    if node is None:
        return None
    if node.op_type == "Mul":
        for scale, product in (node.inputs, node.inputs[::-1]):
            made = known.maker(product)
            if made is not None and made.op_type in _PRODUCTS:
                return known.number(scale)
    if node.op_type not in _PRODUCTS:
        return None
    for operand in node.inputs[:2]:
        made = known.maker(operand)
        factors = made.inputs if made is not None and made.op_type == "Mul" else ()
        for factor in map(known.number, factors):
            if factor is not None:
                return factor
    return None


def _holds_square(name: str, squares: Collection[str], known: Known) -> bool:
    """Whether a value is put together from several of which one is a sum of squares."""
    node = known.maker(name)
    return node is not None and node.op_type == "Concat" and any(n in squares for n in node.inputs)


def _is_variance(a: str, b: str, known: Known) -> bool:
    """Whether it is the mean of squares less the square of the mean."""
    mean, squared = known.maker(a), known.squared(b)
    if mean is None or mean.op_type != "ReduceMean" or squared is None:
        return False
    middle, base = known.maker(squared), known.squared(mean.inputs[0])
    if middle is None or middle.op_type != "ReduceMean" or base is None:
        return False
    return known.same(base, middle.inputs[0])

"""Gives logarithms of sigmoids and softmaxes their own formulas.

``Log(Sigmoid(x))`` of -1000 is the logarithm of 0, minus infinity, and a loss made of it NaN; what
is meant is -1000.
"""

import dataclasses
from collections.abc import Iterator

from jaxonnx.graph.plan import Graph, Node
from jaxonnx.graph.toolkit import names_of, rewritten, unused
from jaxonnx.optimize.known import Known, known_of

_NEG, _SOFTPLUS = 13, 22
"""The versions of the operators that are put in, which take every type that Log does."""


def stable_logarithms(graph: Graph) -> Graph:
    """``graph`` in which the logarithms of sigmoids and softmaxes are finite for large inputs."""
    known, taken = known_of(graph), names_of(graph)

    def parts(node: Node) -> Iterator[Node]:
        read = known.by(node.inputs[0]) if node.op_type == "Log" and not node.domain else None
        if read is not None and read.op_type == "Softmax":
            yield dataclasses.replace(
                node,
                op_type="LogSoftmax",
                version=read.version,
                inputs=read.inputs,
                attributes=read.attributes,
                spelled=node,
                inside=node.inputs,
            )
            return
        found = None if read is None else _logit(read, known)
        if found is None:
            yield node
            return
        x, negated = found
        if negated:
            x, raw = unused(f"{node.key}/negative", taken), x
            yield Node("Neg", "", _NEG, "", (raw,), (x,), {}, node.path)
        softplus = unused(f"{node.key}/softplus", taken)
        yield Node("Softplus", "", _SOFTPLUS, "", (x,), (softplus,), {}, node.path)
        inside = known.between(node.inputs, found[:1])
        yield dataclasses.replace(
            node, op_type="Neg", version=_NEG, inputs=(softplus,), spelled=node, inside=inside
        )

    return rewritten(graph, parts)


def _logit(node: Node, known: Known) -> tuple[str, bool] | None:
    """``x``, and whether a node gives ``Sigmoid(x)`` rather than ``1 - Sigmoid(x)``."""
    if node.op_type == "Sigmoid":
        return node.inputs[0], True
    if node.op_type != "Sub" or known.number(node.inputs[0]) != 1:
        return None
    sigmoid = known.by(node.inputs[1])
    if sigmoid is None or sigmoid.op_type != "Sigmoid":
        return None
    return sigmoid.inputs[0], False

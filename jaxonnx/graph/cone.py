"""What the operands that must be known depend on, and so which inputs must be known."""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np

from jaxonnx.graph.facts import is_random, reads_shapes_only
from jaxonnx.graph.plan import Graph, Node, Spec
from jaxonnx.graph.roles import is_float
from jaxonnx.graph.toolkit import producers, reads


@dataclasses.dataclass(frozen=True)
class Cone:
    """What the operands that must be known depend on.

    Attributes:
        pinned: names of stored and computed values that are constants for that reason.
        inputs: names of graph inputs that must be known while tracing.
    """

    pinned: frozenset[str]
    inputs: frozenset[str]


def static_cone(graph: Graph, specs: Iterable[Spec]) -> Cone:
    """Walk backward from every operand that must be known while tracing.

    ``Shape`` ends the walk, since shapes are known. Graph inputs that are reached become static
    inputs where all there is on the way is shape arithmetic on scalars and vectors. Otherwise the
    operand is computed from data: such a model runs in phases.

    The condition of an If whose branches may differ in shape is such an operand, too, where it
    depends on nothing but integers and booleans that are given as one number.
    """
    specs = [*specs]
    made = producers(graph)
    stored = {n: a for g in graph.walk() for n, a in g.given.items()}
    arrays = {s.name for s in specs if s.shape is not None and len(s.shape) > 1}
    numbers = {s.name for s in specs if _is_number(s)}
    pinned: set[str] = set()
    inputs: set[str] = set()
    for root in set(_static_operands(graph)):
        seen = _ancestors(root, made)
        reached = seen.intersection(graph.inputs)
        if reached - set(stored) and (_holds_data(seen, made, stored) or reached & arrays):
            continue
        pinned |= seen
        inputs |= reached
    for root in set(_deciding_conditions(graph)):
        seen = _ancestors(root, made)
        reached = seen.intersection(graph.inputs)
        alone = seen - made.keys() - stored.keys() <= reached <= numbers
        if reached and alone and not _holds_data(seen, made, stored):
            pinned |= seen
            inputs |= reached
    return Cone(frozenset(pinned), frozenset(inputs))


def _holds_data(
    names: Collection[str], producers: Mapping[str, Node], stored: Mapping[str, np.ndarray]
) -> bool:
    """Whether weights, chance, loops or something found in data is among what gives values."""
    nodes = [producers[n] for n in names if n in producers]
    operators = [n.operator for n in nodes if n.operator is not None]
    return (
        any(n in stored and is_float(stored[n]) and stored[n].size > 1 for n in names)
        or any(o.searches or o.host for o in operators)
        or any(n.subgraphs or is_random(n) for n in nodes)
    )


def _is_number(spec: Spec) -> bool:
    """Whether an input is one integer or boolean."""
    plain = not spec.kinds and spec.dtype is not None and spec.dtype.kind in "iub"
    return plain and spec.shape in ((), (1,))


def _static_operands(graph: Graph) -> Iterator[str]:
    for node in graph.all_nodes:
        operator = node.operator
        if operator is not None:
            yield from (n for k, n in enumerate(node.inputs) if n and operator.is_static(k))


def _deciding_conditions(graph: Graph) -> Iterator[str]:
    """Conditions of If nodes of which not all branches declare the same dtypes and shapes."""
    for node in graph.all_nodes:
        if (node.op_type, node.domain) == ("If", "") and len(node.subgraphs) > 1:
            first, *others = (g.specs for g in node.subgraphs)
            if any(not _surely_alike(a, b) for g in others for a, b in zip(first, g, strict=False)):
                yield node.inputs[0]


def _surely_alike(a: Spec, b: Spec) -> bool:
    """Whether two declarations leave no doubt that the values have the same type and shape."""
    sizes = None if a.shape is None or None in a.shape or "?" in a.shape else a.shape
    return sizes is not None and (a.dtype, sizes, a.kinds) == (b.dtype, b.shape, b.kinds)


def _ancestors(root: str, producers: Mapping[str, Node]) -> set[str]:
    """Names of all values that ``root`` is computed from, itself included."""
    seen, pending = {root}, [root]
    while pending:
        node = producers.get(pending.pop())
        if node is None or reads_shapes_only(node):
            continue
        fresh = {n for n in reads(node) if n not in seen}
        seen |= fresh
        pending += fresh
    return seen

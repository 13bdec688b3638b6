"""Which stored values are parameters, which are constants, and which inputs must be known."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import jax.numpy as jnp
import numpy as np

from jaxonnx.graph.facts import reads_shapes_only
from jaxonnx.graph.plan import Graph, Node, Spec
from jaxonnx.graph.toolkit import reads

CONSTANT_PARAMETER_BYTES = 8 * 4
"""Float ``Constant`` nodes above this size are parameters: some exporters write all weights so."""

FOLDED_PARAMETER_BYTES = 4 * 1024
"""Floats above this size that nodes made of constants alone are parameters too."""


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
    """
    producers = {o: node for node in graph.all_nodes for o in node.outputs if o}
    stored = {n: a for g in graph.walk() for n, a in g.given.items()}
    arrays = {s.name for s in specs if s.shape is not None and len(s.shape) > 1}
    pinned: set[str] = set()
    inputs: set[str] = set()
    for root in set(_static_operands(graph)):
        seen = _ancestors(root, producers)
        reached = seen.intersection(graph.inputs)
        weights = any(n in stored and is_float(stored[n]) and stored[n].size > 1 for n in seen)
        nodes = [producers[n] for n in seen if n in producers]
        operators = [n.operator for n in nodes if n.operator is not None]
        searches = any(o.searches or o.host for o in operators)
        if reached - set(stored) and (weights or searches or reached & arrays):
            continue
        pinned |= seen
        inputs |= reached
    return Cone(frozenset(pinned), frozenset(inputs))


def take_parameters(
    graph: Graph, pinned: frozenset[str], least_bytes: int
) -> tuple[Graph, dict[str, np.ndarray]]:
    """Split the parameters off a graph and those inside it.

    Args:
        graph: the main graph.
        pinned: names of values that are constants.
        least_bytes: constants, unlike initializers, are parameters only above this size.
    """
    params: dict[str, np.ndarray] = {}

    def strip(inner: Graph) -> Graph:
        initializers = {n: a for n, a in inner.initializers.items() if _trainable(n, a)}
        large = {
            n: a for n, a in inner.constants.items() if _trainable(n, a) and a.nbytes > least_bytes
        }
        params.update(initializers | large)
        nodes = []
        for node in inner.nodes:
            attributes = {
                k: strip(v) if isinstance(v, Graph) else v for k, v in node.attributes.items()
            }
            nodes.append(dataclasses.replace(node, attributes=attributes))
        return dataclasses.replace(
            inner,
            nodes=tuple(nodes),
            initializers={n: a for n, a in inner.initializers.items() if n not in params},
            constants={n: a for n, a in inner.constants.items() if n not in params},
        )

    def _trainable(name: str, array: np.ndarray) -> bool:
        return name not in pinned and is_float(array)

    return strip(graph), params


def is_float(array: np.ndarray) -> bool:
    """Whether an array can be a parameter: real or complex floating point."""
    return array.dtype.kind != "T" and jnp.issubdtype(array.dtype, jnp.inexact)


def _static_operands(graph: Graph) -> Iterator[str]:
    for node in graph.all_nodes:
        operator = node.operator
        if operator is not None:
            yield from (n for k, n in enumerate(node.inputs) if n and operator.is_static(k))


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

"""Low-rank adapters: few trainable numbers beside frozen weights.

Hu et al. 2021, https://arxiv.org/abs/2106.09685.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxonnx.define import registry
from jaxonnx.errors import InputError
from jaxonnx.graph.plan import Graph, Node, Stored
from jaxonnx.graph.roles import matching
from jaxonnx.graph.toolkit import producers
from jaxonnx.model import Model

_DOWN, _UP, _SCALE = ".lora_A", ".lora_B", ".lora_scale"
_ADAPTED = ("MatMul", "Gemm", "Conv")


@dataclasses.dataclass(frozen=True)
class _Weight:
    """The second factor of a product, and what is stored of it.

    Attributes:
        name: the ONNX name of what is stored.
        shape: the sizes of the factor itself.
        turned: whether the factor is the transpose of what is stored.
    """

    name: str
    shape: tuple[int, ...]
    turned: bool = False


def add(model: Model, *patterns: str, rank: int = 8, alpha: float = 8.0, key: Any = None) -> Model:
    """The same model with a product of two small matrices added to some of its weights.

    ``x @ W`` becomes ``x @ W + alpha / rank * (x @ A) @ B``, for the weights of MatMul, Gemm and
    Conv (of one group). ``A`` is drawn from a normal distribution, and ``B`` is 0, so that nothing
    changes at first. The leaves of the result are these factors alone, ``NAME.lora_A`` and
    ``NAME.lora_B``. A quantised weight goes by the name of what DequantizeLinear reads.

    Args:
        model: the model; its weights are frozen.
        *patterns: of ONNX names of weights.
        rank: the number of columns of ``A``.
        alpha: what the product is multiplied by, over ``rank``.
        key: what ``A`` is drawn from; by default ``jax.random.key(0)``.

    Raises:
        InputError: if a pattern matches no weight of such a node, or ``rank`` is not positive.
    """
    if rank < 1:
        raise InputError(f"rank is {rank}, expected a positive number")
    plan, params = model._program.plan, model.params
    given = {n: a for g in plan.graph.walk() for n, a in g.given.items()} | params
    found = _Finder(producers(plan.graph), given)
    able = {w.name: (n, w) for n in plan.graph.all_nodes if (w := found.weight(n)) is not None}
    if not patterns:
        raise InputError(f"lora: name the weights to adapt; there are {', '.join(able)}")
    chosen = matching("lora", patterns, [*able], able)
    keys = jax.random.split(jax.random.key(0) if key is None else key, len(chosen))
    factors: dict[str, Any] = {}
    for k, name in zip(keys, sorted(chosen), strict=True):
        down, up = _shapes(*able[name], rank)
        spread = 1 / math.sqrt(math.prod(down[1:] if len(down) > 2 else down[:1]))
        factors[name + _DOWN] = jax.random.normal(k, down, np.float32) * spread
        factors[name + _UP] = jnp.zeros(up, np.float32)
    scales = {name + _SCALE: np.float32(alpha / rank).reshape(()) for name in chosen}
    graph = _adapted(plan.graph, found, chosen)
    graph = dataclasses.replace(graph, constants={**graph.constants, **scales})
    new = {n: _stored(n, a, "weight") for n, a in factors.items()}
    new |= {n: _stored(n, a, "constant") for n, a in scales.items()}
    whole = dataclasses.replace(plan, graph=graph, stored={**plan.stored, **new})
    program = model._program.with_plan(whole)
    program, leaves = program.with_leaves({**params, **factors}, [*factors])
    return Model({n: jnp.asarray(a) for n, a in leaves.items()}, program)


def merge(adapted: Model, model: Model) -> Model:
    """``model`` with the products that :func:`add` put beside its weights added to them.

    The result has the leaves of ``model`` and can be saved.

    Raises:
        InputError: if an adapted weight is quantised, or is none of ``model``.
    """
    plan = model._program.plan
    stored, params = model.stored, adapted.params
    names = [n.removesuffix(_DOWN) for n in params if n.endswith(_DOWN)]
    found = _Finder(producers(plan.graph), stored)
    able = {w.name: (n, w) for n in plan.graph.all_nodes if (w := found.weight(n)) is not None}
    merged = {}
    for name in names:
        if name not in able:
            raise InputError(f"lora: {name!r} is quantised or no weight here, so it cannot change")
        node, weight = able[name]
        scale = adapted.stored[name + _SCALE]
        change = scale * _product(node, params[name + _DOWN], params[name + _UP])
        merged[name] = stored[name] + (change.T if weight.turned else change)
    return model.replace(merged)


@dataclasses.dataclass(frozen=True)
class _Finder:
    """What gives the values of a graph, and what it stores.

    Attributes:
        made: nodes by the names of their outputs.
        given: stored values by name.
    """

    made: Mapping[str, Node]
    given: Mapping[str, Any]

    def weight(self, node: Node) -> _Weight | None:
        """The weight of a node that can be adapted; None if there is none."""
        if node.domain or node.op_type not in _ADAPTED or node.attributes.get("group", 1) != 1:
            return None
        name = node.inputs[1]
        before = self.made.get(name)
        if before is None and name in self.given:
            weight = _Weight(name, np.shape(self.given[name]))
        elif before is not None and before.inputs[0] in self.given:
            stored = before.inputs[0]
            turned = before.op_type == "Transpose" and before.attributes.get("perm", (1, 0)) == (
                1,
                0,
            )
            if before.domain or not (turned or before.op_type == "DequantizeLinear"):
                return None
            shape = np.shape(self.given[stored])
            weight = _Weight(stored, shape[::-1] if turned else shape, turned)
        else:
            return None
        fits = len(weight.shape) > 2 if node.op_type == "Conv" else len(weight.shape) == 2
        return weight if fits else None


def _shapes(node: Node, weight: _Weight, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes of both factors."""
    first, second, *rest = weight.shape
    if node.op_type == "Conv":
        return (rank, second, *rest), (first, rank, *(1 for _ in rest))
    if node.attributes.get("transB"):
        first, second = second, first
    return (first, rank), (rank, second)


def _product(node: Node, down: Any, up: Any) -> Any:
    """The product of both factors in the form of the weight."""
    if node.op_type == "Conv":
        return jnp.einsum("or,r...->o...", up.reshape(up.shape[:2]), down)
    return (down @ up).T if node.attributes.get("transB") else down @ up


def _adapted(graph: Graph, found: _Finder, chosen: set[str]) -> Graph:
    """``graph``, and the graphs inside it, with adapters beside the chosen weights."""
    nodes: list[Node] = []
    for node in graph.nodes:
        weight = found.weight(node)
        if weight is not None and weight.name in chosen:
            nodes += _beside(node, weight.name)
            continue
        attributes = {
            n: _adapted(a, found, chosen) if isinstance(a, Graph) else a
            for n, a in node.attributes.items()
        }
        nodes.append(dataclasses.replace(node, attributes=attributes) if node.subgraphs else node)
    return dataclasses.replace(graph, nodes=tuple(nodes))


def _beside(node: Node, weight: str) -> Iterator[Node]:
    """A node and its adapter."""
    out = node.outputs[0]
    base, low, high, scaled = (f"{out}@{n}" for n in ("base", "low", "high", "scaled"))
    yield dataclasses.replace(node, outputs=(base,))
    down = (node.inputs[0], weight + _DOWN)
    attributes = {n: v for n, v in node.attributes.items() if n not in ("beta", "transB")}
    yield dataclasses.replace(node, inputs=down, outputs=(low,), attributes=attributes)
    kind = "Conv" if node.op_type == "Conv" else "MatMul"
    yield _node(node, kind, (low, weight + _UP), high)
    yield _node(node, "Mul", (high, weight + _SCALE), scaled)
    yield _node(node, "Add", (base, scaled), out)


def _node(beside: Node, op_type: str, inputs: tuple[str, ...], output: str) -> Node:
    version = max(registry.versions_of(op_type))
    return Node(op_type, "", version, "", inputs, (output,), {}, path=beside.path)


def _stored(name: str, array: Any, role: Any) -> Stored:
    return Stored(
        name=name,
        role=role,
        source="folded",
        path=(),
        users=(),
        fixed=False,
        dtype=np.dtype(array.dtype),
        shape=tuple(array.shape),
    )

"""Low-rank adapters: few trainable numbers beside frozen weights.

Hu et al. 2021, https://arxiv.org/abs/2106.09685.
"""

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import core

from jaxonnx.define import registry
from jaxonnx.errors import InputError
from jaxonnx.graph.plan import Graph, Node, Role, Stored
from jaxonnx.graph.roles import matching
from jaxonnx.graph.toolkit import Uses, names_of, producers, rewritten, unused
from jaxonnx.model import Model

_DOWN, _UP, _SCALE = ".lora_A", ".lora_B", ".lora_scale"
_PRODUCTS = ("MatMul", "Gemm", "Conv")


@dataclasses.dataclass(frozen=True)
class _Weight:
    """The second factor of a product.

    Attributes:
        name: the ONNX name of what is stored of it.
        shape: its sizes, those of a matrix in the order in which ``x @ W`` has them.
        flipped: whether what is stored is the transpose of that matrix.
        dtype: the type of the product.
    """

    name: str
    shape: tuple[int, ...]
    flipped: bool
    dtype: np.dtype


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
        InputError: if a pattern matches no weight of such a node, or one that has an adapter or is
            used as it is and transposed; if ``rank`` is not positive; or inside of a trace.
    """
    if rank < 1:
        raise InputError(f"rank is {rank}, expected a positive number")
    plan, params = model._program.plan, model.params
    model._check_plain({**params, "key": key})
    given = {n: a for g in plan.graph.walk() for n, a in g.given.items()} | params
    found = _Finder(producers(plan.graph), given)
    able = found.weights(plan.graph)
    if not patterns:
        raise InputError(f"lora: name the weights to adapt; there are {', '.join(able)}")
    chosen = sorted(matching("lora", patterns, [*able], able))
    _check(chosen, able, plan.stored)
    factors, scales = {}, {}
    for number, name in enumerate(chosen):
        (weight,) = able[name]
        down, up = _shapes(weight, rank)
        factors[name + _DOWN] = _drawn(key, number, down).astype(weight.dtype)
        factors[name + _UP] = np.zeros(up, weight.dtype)
        scales[name + _SCALE] = np.asarray(alpha / rank).astype(weight.dtype)
    taken = names_of(plan.graph)
    graph = rewritten(plan.graph, lambda node: _beside(node, found.weight(node), chosen, taken))
    graph = dataclasses.replace(graph, constants={**graph.constants, **scales})
    new = {n: _stored(n, a, "weight") for n, a in factors.items()}
    new |= {n: _stored(n, a, "constant") for n, a in scales.items()}
    whole = dataclasses.replace(plan, graph=graph, stored={**plan.stored, **new})
    program = model._program.with_plan(whole)
    return model._with_leaves(program, {**params, **factors}, [*factors])


def merge(adapted: Model, model: Model) -> Model:
    """``model`` with the products that :func:`add` put beside its weights added to them.

    The result has the leaves of ``model``, computes what ``adapted`` does, and can be saved.

    Raises:
        InputError: if an adapted weight is quantised, is none of ``model``, or is read by other
            nodes as well, as an embedding that is also the last layer is.
    """
    graph, stored, params = model._program.plan.graph, model.stored, adapted.params
    found, uses = _Finder(producers(graph), stored), Uses(graph)
    able = found.weights(graph)
    merged = {}
    for name in (n.removesuffix(_DOWN) for n in params if n.endswith(_DOWN)):
        if name not in able:
            raise InputError(f"lora: {name!r} is quantised or no weight here, so it cannot change")
        other = next(found.elsewhere(name, name, uses), None)
        if other is not None:
            raise InputError(f"lora: {name!r} is also read by {other}, which has no adapter")
        (weight,) = able[name]
        change = adapted.stored[name + _SCALE] * _product(
            params[name + _DOWN], params[name + _UP], flipped=weight.flipped
        )
        merged[name] = stored[name] + change
    return model.replace(merged)


def _check(
    chosen: Collection[str], able: Mapping[str, set[_Weight]], stored: Collection[str]
) -> None:
    """Refuse weights that have an adapter, or would need several."""
    for name in chosen:
        if name + _DOWN in stored or name.endswith((_DOWN, _UP)):
            raise InputError(f"lora: {name!r} has or is an adapter already; merge that one first")
        if len(able[name]) > 1:
            raise InputError(f"lora: {name!r} is used as it is and transposed, or in two types")


@dataclasses.dataclass(frozen=True)
class _Finder:
    """What gives the values of a graph, and what it stores.

    Attributes:
        made: nodes by the names of their outputs.
        given: stored values by name.
    """

    made: Mapping[str, Node]
    given: Mapping[str, Any]

    def weights(self, graph: Graph) -> dict[str, set[_Weight]]:
        """By name of what is stored, the ways in which products use it."""
        found: dict[str, set[_Weight]] = {}
        for node in graph.all_nodes:
            weight = self.weight(node)
            if weight is not None:
                found.setdefault(weight.name, set()).add(weight)
        return found

    def weight(self, node: Node) -> _Weight | None:
        """The weight of a node that can be adapted; None if there is none."""
        if node.domain or node.op_type not in _PRODUCTS or node.attributes.get("group", 1) != 1:
            return None
        name, flipped = node.inputs[1], bool(node.attributes.get("transB"))
        before = self.made.get(name)
        dtype = None
        if before is not None and _turns(before):
            name, flipped = before.inputs[0], not flipped
        elif before is not None and (before.op_type, before.domain) == ("DequantizeLinear", ""):
            name, scale = before.inputs[:2]
            dtype = self.given[scale].dtype if scale in self.given else None
        if name not in self.given:
            return None
        shape = np.shape(self.given[name])
        fits = len(shape) > 2 if node.op_type == "Conv" else len(shape) == 2
        if not fits:
            return None
        dtype = np.dtype(dtype or self.given[name].dtype)
        return _Weight(name, shape[::-1] if flipped else shape, flipped, dtype)

    def elsewhere(self, weight: str, name: str, uses: Uses) -> Iterator[str]:
        """Where a weight is read, under its own name or transposed, but as that of a product."""
        for use in uses.of(name):
            if use.node is None:
                yield "an output"
            elif use.node.op_type in _PRODUCTS and use.position == 1:
                found = self.weight(use.node)
                if found is None or found.name != weight:
                    yield use.node.label
            elif _turns(use.node):
                yield from self.elsewhere(weight, use.node.outputs[0], uses)
            else:
                yield use.node.label


def _turns(node: Node) -> bool:
    """Whether a node transposes a matrix."""
    transposes = (node.op_type, node.domain) == ("Transpose", "")
    return transposes and node.attributes.get("perm", (1, 0)) == (1, 0)


def _shapes(weight: _Weight, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes of both factors."""
    first, second, *rest = weight.shape
    if rest:
        return (rank, second, *rest), (first, rank, *(1 for _ in rest))
    return (first, rank), (rank, second)


def _drawn(key: Any, number: int, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers that ``A`` begins with, of variance 1 over the number of terms that it sums."""
    terms = math.prod(shape[1:] if len(shape) > 2 else shape[:1])
    with core.eval_context():
        stream = jax.random.fold_in(jax.random.key(0) if key is None else key, number)
        return np.asarray(jax.random.normal(stream, shape, np.float32)) / math.sqrt(terms)


def _product(down: Any, up: Any, *, flipped: bool) -> Any:
    """The product of both factors in the form of what is stored."""
    if down.ndim > 2:
        return jnp.einsum("or,r...->o...", up.reshape(up.shape[:2]), down)
    return (down @ up).T if flipped else down @ up


def _beside(
    node: Node, weight: _Weight | None, chosen: Collection[str], taken: Collection[str]
) -> Iterator[Node]:
    """A node, and its adapter if its weight is to have one."""
    if weight is None or weight.name not in chosen:
        yield node
        return
    out = node.outputs[0]
    base, low, high, scaled = (
        unused(f"{out}@{n}", taken) for n in ("base", "low", "high", "scaled")
    )
    yield dataclasses.replace(node, outputs=(base,))
    down = (node.inputs[0], weight.name + _DOWN)
    attributes = {n: v for n, v in node.attributes.items() if n not in ("beta", "transB")}
    yield dataclasses.replace(node, inputs=down, outputs=(low,), attributes=attributes)
    kind = "Conv" if node.op_type == "Conv" else "MatMul"
    yield _node(node, kind, (low, weight.name + _UP), high)
    yield _node(node, "Mul", (high, weight.name + _SCALE), scaled)
    yield _node(node, "Add", (base, scaled), out)


def _node(beside: Node, op_type: str, inputs: tuple[str, ...], output: str) -> Node:
    version = max(registry.versions_of(op_type))
    return Node(op_type, "", version, "", inputs, (output,), {}, path=beside.path)


def _stored(name: str, array: np.ndarray, role: Role) -> Stored:
    """What is said of an array that no file holds."""
    return Stored(
        name=name,
        role=role,
        source="added",
        path=(),
        users=(),
        fixed=False,
        dtype=array.dtype,
        shape=array.shape,
    )

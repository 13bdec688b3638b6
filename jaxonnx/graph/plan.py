"""What a model is once it has been read: nodes in order, names unique across all scopes."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np

from jaxonnx.define import registry


@dataclasses.dataclass(frozen=True)
class Spec:
    """What is declared of a graph input or output.

    Attributes:
        name: the ONNX name.
        dtype: the element type of the tensor, or of those that it holds; None where undeclared.
        shape: sizes, names of symbolic dimensions, None where unknown; None without a rank.
        kinds: what holds the tensors, from the outside in: ``"optional"``, ``"seq"``,
            ``"map(string)"`` or ``"map(int64)"``; none for a tensor itself.
    """

    name: str
    dtype: np.dtype | None
    shape: tuple[int | str | None, ...] | None
    kinds: tuple[str, ...] = ()

    @property
    def inner(self) -> "Spec":
        """What is declared of the elements."""
        return dataclasses.replace(self, kinds=self.kinds[1:])

    @property
    def labels(self) -> tuple[int | str, ...] | None:
        """The shape with a name for each unknown size: ``x_0`` for the first one of input ``x``."""
        if self.shape is None:
            return None
        return tuple(
            f"{self.name}_{k}" if d is None or d == "?" else d for k, d in enumerate(self.shape)
        )

    @property
    def is_text(self) -> bool:
        """Whether it is strings, or holds them, or is a map."""
        maps = any(k.startswith("map") for k in self.kinds)
        return maps or (self.dtype is not None and self.dtype.kind == "T")

    def held(self, text: str) -> str:
        """``text`` inside of what holds the tensors, such as ``seq(map(string, text))``."""
        for kind in reversed(self.kinds):
            text = f"{kind[:-1]}, {text})" if kind.endswith(")") else f"{kind}({text})"
        return text

    @property
    def element(self) -> str:
        """The name of the element type."""
        if self.dtype is None:
            return "any"
        return "string" if self.dtype.kind == "T" else self.dtype.name

    def __str__(self) -> str:
        if self.shape is None:
            return self.held(f"{self.element}[...]")
        return self.held(
            f"{self.element}[{', '.join('?' if d is None else str(d) for d in self.shape)}]"
        )


@dataclasses.dataclass(frozen=True)
class Node:
    """One operator call; model-local functions are inlined, so every node is an operator.

    Attributes:
        op_type: the ONNX name.
        domain: ``""`` for ONNX's own.
        version: the schema version in force; 0 where there is none.
        name: as in the file, possibly empty.
        inputs: names of values; ``""`` where an optional one is absent.
        outputs: names of values; ``""`` where one is not wanted.
        attributes: Python scalars, tuples, strings, arrays and :class:`Graph`.
        path: names of the enclosing functions and subgraphs.
        proto: the serialised node, only where its function body depends on input types.
        spelled: the node of the file in whose place this one stands, if it has other inputs.
        inside: names of the values that lead to that node and not to this one. Where another value
            is put in the place of one of them, ``spelled`` counts.
    """

    op_type: str
    domain: str
    version: int
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    path: tuple[str, ...] = ()
    proto: bytes = b""
    spelled: "Node | None" = None
    inside: tuple[str, ...] = ()

    @property
    def operator(self) -> registry.Operator | None:
        """The registered function; None where the node runs from its schema's body."""
        return registry.lookup(self.op_type, self.version, self.domain)

    @property
    def title(self) -> str:
        """How messages name the operator, such as ``LeakyRelu-16``."""
        prefix = f"{self.domain}::" if self.domain else ""
        return f"{prefix}{self.op_type}{f'-{self.version}' if self.version else ''}"

    @property
    def key(self) -> str:
        """Its first output that is wanted, which no other node of its graph has."""
        return next(filter(None, self.outputs), "")

    @property
    def names(self) -> tuple[str, ...]:
        """What a user may call it: its name and those of its outputs, as far as they are there."""
        return tuple(filter(None, (self.name, *self.outputs)))

    @property
    def place(self) -> str:
        """Which node it is, by its first output where it has no name, and what it is inside of."""
        own = repr(self.name) if self.name else f"giving {self.key!r}"
        return f"{own} in {' / '.join(self.path)}" if self.path else own

    @property
    def label(self) -> str:
        """How messages name the node, such as ``node 'conv1' (Conv-22)``."""
        return f"node {self.place} ({self.title})"

    @property
    def subgraphs(self) -> tuple["Graph", ...]:
        """The graphs among the attributes."""
        return tuple(a for a in self.attributes.values() if isinstance(a, Graph))


def bound_name(node: Node, bounds: Mapping[str, int]) -> str | None:
    """The name under which a bound for a node is declared, if there is one."""
    return next((n for n in node.names if n in bounds), None)


@dataclasses.dataclass(frozen=True)
class Graph:
    """Nodes in an order that can be run, with the values that are given.

    Attributes:
        inputs: names of the values that a caller gives.
        outputs: names of the values handed back.
        nodes: in execution order.
        initializers: stored values, as far as they are not parameters of the model.
        constants: values of ``Constant`` nodes and of nodes evaluated while loading.
        specs: what is declared of the outputs of a subgraph; empty for others.
        ranks: how many dimensions the inputs of a subgraph are declared with, None where that is
            open; empty for others.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    initializers: Mapping[str, np.ndarray]
    constants: Mapping[str, np.ndarray]
    specs: tuple[Spec, ...] = ()
    ranks: tuple[int | None, ...] = ()

    @property
    def given(self) -> Mapping[str, np.ndarray]:
        """All values that need no computing: initializers and constants."""
        return {**self.initializers, **self.constants}

    def walk(self) -> Iterator["Graph"]:
        """This graph and all graphs inside it."""
        yield self
        for node in self.nodes:
            for graph in node.subgraphs:
                yield from graph.walk()

    @property
    def all_nodes(self) -> Iterator[Node]:
        """The nodes of this graph and of all graphs inside it."""
        for graph in self.walk():
            yield from graph.nodes


Role = Literal["weight", "statistic", "constant"]
Source = Literal["initializer", "Constant node", "folded", "added"]


@dataclasses.dataclass(frozen=True)
class Stored:
    """A stored floating value: where it comes from and what it is for.

    Attributes:
        name: its name, which no other value of the model has.
        role: what it is for.
        source: what holds it in the file, or that it was computed while loading or added later.
        path: names of the enclosing functions and subgraphs; empty in the main graph.
        users: the nodes that read it, in a few words.
        fixed: whether it decides a shape, so that no other value can take its place.
        dtype: its element type.
        shape: its sizes.
    """

    name: str
    role: Role
    source: Source
    path: tuple[str, ...]
    users: tuple[str, ...]
    fixed: bool
    dtype: np.dtype
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Options:
    """How a model is to be traced and run, as given to ``load``.

    Attributes:
        constraints: what is assumed of symbolic dimensions, such as ``"S<=512"``.
        bounds: the most results of value-dependent nodes, by name of the node or an output.
        buckets: whether value-dependent sizes are rounded up to powers of two between stretches.
        compute: the floating type to compute in; None for those that the model declares.
    """

    constraints: tuple[str, ...] = ()
    bounds: Mapping[str, int] = dataclasses.field(default_factory=dict)
    buckets: bool = False
    compute: np.dtype | None = None


@dataclasses.dataclass(frozen=True)
class Template:
    """The file that a model was read from, without the arrays that the model holds.

    Attributes:
        model: the serialised ``ModelProto``.
        slots: the number of the place in it that holds a value, by the value's name.
        made: digests of the values that no place holds, by name.
    """

    model: bytes
    slots: Mapping[str, int]
    made: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Plan:
    """A whole model, read and checked.

    Attributes:
        graph: the main graph; the parameters are taken out of it.
        inputs: what is declared of the graph inputs, in order.
        outputs: what is declared of the graph outputs, in order.
        defaults: names of inputs that have an initializer, so need not be given.
        stored: what every stored floating value is for, by name.
        declared: what the file says of values that nodes give.
        updates: in training, the further outputs that are new statistics, by what they replace.
        static: names of the inputs whose values must be known while tracing.
        opsets: the opset imports, domain to version.
        metadata: producer, graph name, model version and the model's own properties.
    """

    graph: Graph
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    defaults: frozenset[str]
    stored: Mapping[str, Stored]
    static: tuple[str, ...]
    opsets: Mapping[str, int]
    metadata: Mapping[str, str]
    declared: tuple[Spec, ...] = ()
    updates: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def params(self) -> tuple[str, ...]:
        """Names of the weights, in the order of the leaves of a model."""
        return tuple(n for n, s in self.stored.items() if s.role == "weight")

    @functools.cached_property
    def protected(self) -> frozenset[str]:
        """Names that passes may not touch: what a user can name from outside."""
        given = {n for graph in self.graph.walk() for n in graph.given}
        names = (s.name for s in (*self.inputs, *self.outputs))
        return frozenset((*names, *self.stored, *given))

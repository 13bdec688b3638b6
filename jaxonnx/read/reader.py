"""Reads a ``ModelProto`` into a graph of nodes: scopes, functions, constants, versions."""

import collections
import dataclasses
import pathlib
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import onnx

from jaxonnx.define import registry
from jaxonnx.define.dtypes import dtype_of
from jaxonnx.errors import InvalidModelError, UnsupportedOpError
from jaxonnx.graph import facts
from jaxonnx.graph.facts import LEGACY_ATTRIBUTES
from jaxonnx.graph.plan import Graph, Node, Spec
from jaxonnx.read.attributes import constant, function_bindings, read_attribute, resolved
from jaxonnx.read.bodies import check_bodies
from jaxonnx.read.gradient import differentiated
from jaxonnx.read.order import in_order, made_names, refuse_duplicates, stored_names
from jaxonnx.read.tensors import decode, decode_sparse

_OPSETS_ARE_STATED = 3
"""Before this IR version a model stated no opset, and had opset 1."""

_LISTED = 5
"""The most nodes that a message lists for an operator."""

FunctionKey = tuple[str, str, str]


def read_graph(
    model: onnx.ModelProto,
    folders: Sequence[pathlib.Path],
    missing: dict[str, list[str]] | None = None,
    origins: dict[str, Any] | None = None,
) -> Graph:
    """The main graph of a model, with its functions inlined.

    Args:
        model: the model.
        folders: where its external data may lie.
        missing: receives the places of nodes that are not supported, by what is to be said of
            them; such nodes are in the graph then, though they cannot run.
        origins: receives what holds each stored value in the file, by the value's name.

    Raises:
        InvalidModelError: if the model breaks the specification.
        UnsupportedOpError: if operators are missing here; it lists all of them.
    """
    if model.ir_version > onnx.IR_VERSION:
        raise InvalidModelError(
            f"the model has IR version {model.ir_version}, but the installed onnx knows IR "
            f"versions up to {onnx.IR_VERSION}; upgrade onnx"
        )
    functions = {_key(f, f.name): f for f in model.functions}
    if len(functions) < len(model.functions):
        keys = collections.Counter(_key(f, f.name) for f in model.functions)
        raise InvalidModelError(f"function {keys.most_common(1)[0][0]} is defined more than once")
    reader = _Reader(folders, functions, origins={} if origins is None else origins)
    made = made_names(model.graph.node)
    reader.taken.update(made)  # values of the main graph keep their names
    frame = _Frame({}, opsets_of(model), targets={n: n for n in made})
    graph = reader.graph(model.graph, frame)
    if missing is None:
        _refuse_unsupported(reader.unsupported)
    else:
        missing.update(reader.unsupported)
    return graph


def read_body(node: Node, types: Sequence[onnx.TypeProto]) -> Graph:
    """The body that a node's schema gives for inputs of these types.

    Its inputs are all that the schema has, its outputs those of the node.
    """
    graph, unsupported = _body(node, types)
    _refuse_unsupported(unsupported)
    return graph


def _body(node: Node, types: Sequence[onnx.TypeProto]) -> tuple[Graph, dict[str, list[str]]]:
    """A body as of :func:`read_body`, and what in it is not supported."""
    function = facts.typed_body(node, types)
    reader = _Reader((), {})
    inputs = tuple(reader.fresh(n) for n in function.input)
    frame = _Frame(
        dict(zip(function.input, inputs, strict=True)),
        _opsets(function),
        bindings=function_bindings(
            function, facts.attribute_defaults(node) | dict(node.attributes)
        ),
        path=(*node.path, node.name or node.op_type),
    )
    nodes = reader.nodes(function.node, frame)
    wanted = [made for made, name in zip(function.output, node.outputs, strict=False) if name]
    outputs = [frame.resolve(n, "an output of") for n in wanted]
    graph = Graph(inputs, tuple(outputs), tuple(nodes), {}, frame.constants)
    return graph, reader.unsupported


def opsets_of(model: onnx.ModelProto) -> dict[str, int]:
    """The opset imports of a model; those before IR version 3 have opset 1."""
    found = _opsets(model)
    return found if found or model.ir_version >= _OPSETS_ARE_STATED else {"": 1}


def spec_of(info: onnx.ValueInfoProto) -> Spec:
    """What a ``ValueInfoProto`` declares; sizes of 0 and -1 in it mean unknown."""
    kinds, inner = _held(info.type)
    tensor = inner.tensor_type
    if inner.WhichOneof("value") != "tensor_type":
        return Spec(info.name, None, None, kinds)
    if not tensor.HasField("shape"):
        return Spec(info.name, dtype_of(tensor.elem_type), None, kinds)
    shape = tuple(
        d.dim_param or None if d.HasField("dim_param") else d.dim_value if d.dim_value > 0 else None
        for d in tensor.shape.dim
    )
    return Spec(info.name, dtype_of(tensor.elem_type), shape, kinds)


def _rank(info: onnx.ValueInfoProto) -> int | None:
    """How many dimensions an array is declared with; None where that is open."""
    shape = spec_of(info).shape
    return None if shape is None else len(shape)


def _held(kind: onnx.TypeProto) -> tuple[tuple[str, ...], onnx.TypeProto]:
    """What holds the tensors of a type, from the outside in, and the type of the tensors."""
    match kind.WhichOneof("value"):
        case "optional_type":
            name, inner = "optional", kind.optional_type.elem_type
        case "sequence_type":
            name, inner = "seq", kind.sequence_type.elem_type
        case "map_type":
            text = kind.map_type.key_type == onnx.TensorProto.STRING
            name, inner = f"map({'string' if text else 'int64'})", kind.map_type.value_type
        case _:
            return (), kind
    kinds, tensor = _held(inner)
    return (name, *kinds), tensor


@dataclasses.dataclass(frozen=True)
class _Frame:
    """Where nodes are read: what their names, domains and attribute references mean there.

    Attributes:
        scope: the names that are visible, each with the unique one of its value.
        opsets: the opset imports, domain to version.
        targets: the unique names that outputs of these names must get; others get fresh ones.
        bindings: the attributes of the enclosing function; None for one without a value.
        path: names of the enclosing functions and subgraphs.
        calls: the functions that are being inlined.
        constants: receives the values of ``Constant`` nodes.
        protos: all nodes of the graph or function.
    """

    scope: MutableMapping[str, str]
    opsets: Mapping[str, int]
    targets: Mapping[str, str] = dataclasses.field(default_factory=dict)
    bindings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    path: tuple[str, ...] = ()
    calls: tuple[FunctionKey, ...] = ()
    constants: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    protos: Sequence[onnx.NodeProto] = ()

    @property
    def title(self) -> str:
        """How messages name the graph or function."""
        return " / ".join(self.path) or "the main graph"

    def resolve(self, name: str, role: str) -> str:
        """The unique name of a visible value; ``""`` stays what it is."""
        if name and name not in self.scope:
            raise InvalidModelError(
                f"{name!r}, {role} {self.title}, is produced by no node, input or initializer"
            )
        return self.scope[name] if name else ""

    def binding(self, attribute: onnx.AttributeProto, where: str) -> Any:
        """What an attribute of the enclosing function is that ``attribute`` refers to."""
        if attribute.ref_attr_name not in self.bindings:
            raise InvalidModelError(
                f"{where}: attribute {attribute.name!r} refers to {attribute.ref_attr_name!r}, "
                "which is no attribute of an enclosing function"
            )
        return self.bindings[attribute.ref_attr_name]

    def enter(self, name: str) -> "_Frame":
        """The frame of a subgraph, which sees the names of this one."""
        scope, path = collections.ChainMap({}, self.scope), (*self.path, name)
        return dataclasses.replace(self, scope=scope, targets={}, path=path, constants={})


@dataclasses.dataclass
class _Reader:
    """The state of one reading: unique names, functions and what is not supported."""

    folders: Sequence[pathlib.Path]
    functions: Mapping[FunctionKey, onnx.FunctionProto]
    taken: set[str] = dataclasses.field(default_factory=set)
    unsupported: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    origins: dict[str, Any] = dataclasses.field(default_factory=dict)

    def fresh(self, name: str) -> str:
        """A name that no other value of the model has: ``name`` itself where it is free."""
        unique, count = name, 0
        while unique in self.taken:
            count += 1
            unique = f"{name}@{count}"
        self.taken.add(unique)
        return unique

    def graph(self, proto: onnx.GraphProto, frame: _Frame) -> Graph:
        """A main graph or subgraph."""
        names, stored = [i.name for i in proto.input], stored_names(proto)
        refuse_duplicates(names, stored, proto.node, frame.title)
        for name in dict.fromkeys([*names, *stored]):  # a stored input is one value, its default
            frame.scope[name] = self.fresh(name)
        initializers = self.initializers(proto, frame)
        nodes = tuple(self.nodes(proto.node, frame))
        if any(not o.name for o in proto.output):
            raise InvalidModelError(f"an output of {frame.title} has no name")
        outputs = tuple(frame.resolve(o.name, "an output of") for o in proto.output)
        if frame.path:  # IR version 3 lists a subgraph's initializers as inputs that nothing feeds
            names = [n for n in names if n not in stored]
        inputs = tuple(frame.scope[n] for n in names)
        specs = tuple(map(spec_of, proto.output)) if frame.path else ()
        ranks = tuple(_rank(i) for i in proto.input if i.name in names) if frame.path else ()
        return Graph(inputs, outputs, nodes, initializers, frame.constants, specs, ranks)

    def initializers(self, graph: onnx.GraphProto, frame: _Frame) -> dict[str, np.ndarray]:
        """Dense and sparse initializers by their unique names."""
        dense = {t.name: t for t in graph.initializer}
        sparse = {t.values.name: t for t in graph.sparse_initializer}
        self.origins.update((frame.scope[n], t) for n, t in {**dense, **sparse}.items())
        arrays = {n: decode(t, self.folders) for n, t in dense.items()}
        arrays |= {n: decode_sparse(t, self.folders) for n, t in sparse.items()}
        return {frame.scope[n]: a for n, a in arrays.items()}

    def nodes(self, protos: Sequence[onnx.NodeProto], frame: _Frame) -> list[Node]:
        """The nodes of a graph or function body in an order that can be run."""
        frame = dataclasses.replace(frame, protos=protos)
        return [n for p in in_order(protos, frame.title) for n in self.node(p, frame)]

    def node(self, proto: onnx.NodeProto, frame: _Frame) -> list[Node]:
        """One node: itself if it is an operator, else the nodes of its body.

        ``Constant`` nodes give no node but a value.
        """
        role = f"an input of node {proto.name!r} ({proto.op_type}) in"
        inputs = _without_trailing([frame.resolve(n, role) for n in proto.input])
        key = _key(proto, proto.op_type)
        if key in self.functions:
            attributes = self.attributes(proto, frame)
            return self.call(self.functions[key], proto, inputs, attributes, frame)
        node, fault = self.operator(proto, inputs, frame)
        if fault is None and (body := facts.function_body(node)) is not None:
            attributes = facts.attribute_defaults(node) | dict(node.attributes)
            return self.call(body, proto, inputs, attributes, frame)
        named = [self.name(n, frame) for n in proto.output]
        outputs = tuple(named) if facts.counts_outputs(node) else _without_trailing(named)
        node = dataclasses.replace(node, outputs=outputs)
        if fault is not None:
            self.unsupported.setdefault(f"{node.title}: {fault}", []).append(node.place)
            return [node]
        if facts.is_constant(node):
            frame.constants.update(dict.fromkeys(outputs, constant(node.attributes, node.label)))
            self.origins.update(dict.fromkeys(outputs, proto.attribute[0]))
            return []
        return [node]

    def operator(
        self, proto: onnx.NodeProto, inputs: tuple[str, ...], frame: _Frame
    ) -> tuple[Node, str | None]:
        """A node checked against its schema, with its outputs as in the file; why it cannot run."""
        if not all(isinstance(n, str) for n in (proto.op_type, proto.domain, *proto.output)):
            raise InvalidModelError(f"a name in {frame.title} is not UTF-8: that of node {proto}")
        domain = registry.normalize_domain(proto.domain)
        if domain not in frame.opsets:
            known = ", ".join(repr(d) for d in frame.opsets) or "none"
            raise InvalidModelError(
                f"node {proto.name!r} ({proto.op_type}) in {frame.title} is of domain {domain!r}, "
                f"which is not imported; the imports are {known}"
            )
        opset = frame.opsets[domain]
        version = registry.version_in_force(proto.op_type, opset, domain)
        node = Node(
            proto.op_type,
            domain,
            version or 0,
            proto.name,
            inputs,
            tuple(proto.output),
            self.attributes(proto, frame),
            frame.path,
        )
        fault = facts.support_fault(node.op_type, domain, opset, version)
        if fault is None:
            facts.check_node(node)
            check_bodies(node, len(node.outputs))
            fault = facts.missing(node)
            if facts.is_gradient(node):
                body = differentiated(node.attributes, node.label, frame.protos)
                graph = self.graph(body, frame.enter(f"{node.name or node.op_type}.{node.key}"))
                node = dataclasses.replace(node, attributes={**node.attributes, "graph": graph})
        if fault is None and facts.has_typed_body(node):
            node = dataclasses.replace(node, proto=resolved(proto, node.attributes))
            self.unsupported_in_body(node)
        return node, fault

    def unsupported_in_body(self, node: Node) -> None:
        """Note what the body lacks that a node's schema will give for the types of its inputs."""
        likely = facts.likely_types(node)
        for fault, places in ({} if likely is None else _body(node, likely)[1]).items():
            self.unsupported.setdefault(fault, []).extend(places)

    def name(self, name: str, frame: _Frame) -> str:
        """The unique name of a node output, visible from here on."""
        if name:
            frame.scope[name] = frame.targets.get(name) or self.fresh(name)
        return frame.scope[name] if name else ""

    def call(
        self,
        function: onnx.FunctionProto,
        proto: onnx.NodeProto,
        inputs: tuple[str, ...],
        attributes: Mapping[str, Any],
        frame: _Frame,
    ) -> list[Node]:
        """The nodes of a function's body for a call, whose outputs get the caller's names."""
        _check_call(function, proto, inputs, attributes, frame)
        padded = (*inputs, *[""] * (len(function.input) - len(inputs)))
        pairs = zip(function.output, proto.output, strict=False)
        wanted = [(ours, theirs) for ours, theirs in pairs if theirs]
        targets: dict[str, str] = {}
        for ours, theirs in wanted:
            if ours not in targets:
                targets[ours] = self.name(theirs, frame)
        inner = _Frame(
            dict(zip(function.input, padded, strict=True)),
            _opsets(function),
            targets,
            function_bindings(function, attributes),
            (*frame.path, proto.name or function.name),
            (*frame.calls, _key(function, function.name)),
            frame.constants,
        )
        refuse_duplicates(function.input, (), function.node, inner.title)
        nodes = self.nodes(function.node, inner)
        for ours, theirs in wanted:  # an input may be handed straight out, or an output twice
            frame.scope[theirs] = inner.resolve(ours, "an output of")
        return nodes

    def attributes(self, proto: onnx.NodeProto, frame: _Frame) -> dict[str, Any]:
        """Attribute values of a node; references are replaced by the function call's values."""
        where = f"node {proto.name!r} ({proto.op_type}) in {frame.title}"
        values: dict[str, Any] = {}
        for attribute in proto.attribute:
            name = attribute.name
            if name in values:
                raise InvalidModelError(f"{where} has the attribute {name!r} twice")
            if name in LEGACY_ATTRIBUTES:
                continue
            if attribute.ref_attr_name:
                values[name] = frame.binding(attribute, where)
            elif attribute.type == onnx.AttributeProto.GRAPH:
                inner = frame.enter(f"{proto.name or proto.op_type}.{name}")
                values[name] = self.graph(attribute.g, inner)
            else:
                values[name] = read_attribute(attribute, where, self.folders)
        return {n: v for n, v in values.items() if v is not None}


def _refuse_unsupported(unsupported: Mapping[str, Sequence[str]]) -> None:
    """Raise one error for everything that is not supported."""
    if unsupported:
        lines = "\n".join(f"  {f} (node {listed(p)})" for f, p in unsupported.items())
        raise UnsupportedOpError(f"the model uses operators that jaxonnx does not have:\n{lines}")


def refuse_missing(graph: Graph) -> None:
    """Refuse a graph that was read where more operators were registered than are here.

    Raises:
        UnsupportedOpError: listing all operators that are missing.
    """
    unsupported: dict[str, list[str]] = collections.defaultdict(list)
    for node in graph.all_nodes:
        fault = facts.missing(node)
        if fault is not None:
            unsupported[f"{node.title}: {fault}"].append(node.place)
    _refuse_unsupported(unsupported)


def listed(places: Sequence[str]) -> str:
    """The first places, and how many there are more."""
    rest = len(places) - _LISTED
    return ", ".join(places[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def _key(proto: onnx.NodeProto | onnx.FunctionProto, name: str) -> FunctionKey:
    return registry.normalize_domain(proto.domain), name, proto.overload


def _opsets(proto: onnx.ModelProto | onnx.FunctionProto) -> dict[str, int]:
    return {registry.normalize_domain(o.domain): o.version for o in proto.opset_import}


def _without_trailing(names: Sequence[str]) -> tuple[str, ...]:
    """Names up to the last value that is there."""
    present = [k for k, name in enumerate(names) if name]
    return tuple(names[: present[-1] + 1 if present else 0])


def _check_call(
    function: onnx.FunctionProto,
    proto: onnx.NodeProto,
    inputs: Sequence[str],
    attributes: Mapping[str, Any],
    frame: _Frame,
) -> None:
    """Refuse a call that gives or wants more than the function has, or that recurs."""
    where, name = f"node {proto.name!r} in {frame.title}", function.name
    if _key(function, name) in frame.calls:
        raise InvalidModelError(f"{where}: function {name!r} calls itself")
    for role, found, formal in (
        ("inputs", inputs, function.input),
        ("outputs", _without_trailing(proto.output), function.output),
    ):
        if len(found) > len(formal):
            raise InvalidModelError(
                f"{where}: {len(found)} {role}, but function {name!r} has {len(formal)}"
            )
    known = [*function.attribute, *(a.name for a in function.attribute_proto)]
    unknown = [n for n in attributes if n not in known]
    if unknown:
        names = ", ".join(known) or "none"
        raise InvalidModelError(
            f"{where}: unknown attribute {unknown[0]!r}; function {name!r} has {names}"
        )

"""Reads a ``ModelProto`` into a graph of nodes: scopes, functions, constants, versions."""

import collections
import dataclasses
import graphlib
import pathlib
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

import numpy as np
import onnx

from jaxonnx import registry, schema
from jaxonnx.errors import InvalidModelError, UnsupportedOpError
from jaxonnx.plan import Graph, Node, Spec
from jaxonnx.tensors import decode, decode_sparse, dtype_of

LEGACY_ATTRIBUTES = frozenset({"consumed_inputs"})
"""Attributes of opset 1 that told the runtime of Caffe2 about memory; they compute nothing."""

Scope = MutableMapping[str, str]


def read_graph(model: onnx.ModelProto, folder: pathlib.Path | None) -> Graph:
    """The main graph of a model, with its functions inlined.

    Args:
        model: the model.
        folder: where its external data may lie.

    Raises:
        InvalidModelError: if the model breaks the specification.
        UnsupportedOpError: if operators are missing here; it lists all of them.
    """
    reader = _Reader(folder, {(f.domain, f.name, f.overload): f for f in model.functions})
    graph = reader.main(model.graph, opsets_of(model))
    if reader.unsupported:
        lines = "\n".join(f"  {line}" for line in reader.unsupported)
        raise UnsupportedOpError(f"the model uses operators that jaxonnx does not have:\n{lines}")
    return graph


def read_function(
    function: onnx.FunctionProto, attributes: Mapping[str, Any], path: tuple[str, ...]
) -> Graph:
    """The body of a schema function as a graph whose inputs and outputs are the function's."""
    reader = _Reader(None, {})
    scope = {name: reader.fresh(name) for name in function.input}
    outputs, nodes, constants = reader.body(function, scope, attributes, path)
    if reader.unsupported:
        raise UnsupportedOpError("\n".join(reader.unsupported))
    return Graph(tuple(scope.values()), outputs, tuple(nodes), {}, constants)


def opsets_of(model: onnx.ModelProto) -> dict[str, int]:
    """The opset imports of a model; those before IR version 3 have opset 1."""
    found = {registry.normalize_domain(o.domain): o.version for o in model.opset_import}
    return found or {"": 1}


def spec_of(info: onnx.ValueInfoProto) -> Spec:
    """What a ``ValueInfoProto`` declares; sizes of 0 and -1 in it mean unknown."""
    tensor = info.type.tensor_type
    if info.type.WhichOneof("value") != "tensor_type":
        return Spec(info.name, None, None)
    if not tensor.HasField("shape"):
        return Spec(info.name, dtype_of(tensor.elem_type), None)
    shape = tuple(
        d.dim_param or None if d.HasField("dim_param") else d.dim_value if d.dim_value > 0 else None
        for d in tensor.shape.dim
    )
    return Spec(info.name, dtype_of(tensor.elem_type), shape)


@dataclasses.dataclass
class _Reader:
    """The state of one reading: unique names, functions and what is not supported."""

    folder: pathlib.Path | None
    functions: Mapping[tuple[str, str, str], onnx.FunctionProto]
    taken: set[str] = dataclasses.field(default_factory=set)
    unsupported: list[str] = dataclasses.field(default_factory=list)

    def fresh(self, name: str) -> str:
        """A name that no other value of the model has: ``name`` itself where it is free."""
        unique, count = name, 0
        while unique in self.taken:
            count += 1
            unique = f"{name}@{count}"
        self.taken.add(unique)
        return unique

    def main(self, graph: onnx.GraphProto, opsets: Mapping[str, int]) -> Graph:
        """The main graph, whose values keep their names."""
        given = [i.name for i in graph.input]
        stored = [t.name for t in graph.initializer]
        stored += [t.values.name for t in graph.sparse_initializer]
        made = [name for node in graph.node for name in node.output if name]
        _refuse_duplicates([*given, *(n for n in stored if n not in given), *made])
        self.taken.update(made)
        scope: Scope = {name: name for name in made}
        return self.graph(graph, scope, opsets, {}, ())

    def graph(
        self,
        graph: onnx.GraphProto,
        scope: Scope,
        opsets: Mapping[str, int],
        bindings: Mapping[str, Any],
        path: tuple[str, ...],
    ) -> Graph:
        """A main graph or subgraph; ``scope`` maps the names visible inside to unique ones."""
        inputs = tuple(self.declare(i.name, scope) for i in graph.input)
        given = {i.name for i in graph.input}
        initializers, constants = {}, {}
        for name, array in self.initializers(graph):
            unique = scope[name] if name in given else self.declare(name, scope)
            initializers[unique] = array
        nodes = self.nodes(graph.node, scope, opsets, bindings, path, constants)
        outputs = tuple(_resolve(o.name, scope, f"output of {_where(path)}") for o in graph.output)
        return Graph(inputs, outputs, tuple(nodes), initializers, constants)

    def declare(self, name: str, scope: Scope) -> str:
        """Make ``name`` visible in ``scope`` as a new value."""
        scope[name] = self.fresh(name)
        return scope[name]

    def initializers(self, graph: onnx.GraphProto) -> Iterable[tuple[str, np.ndarray]]:
        """Dense and sparse initializers by name."""
        for tensor in graph.initializer:
            yield tensor.name, decode(tensor, self.folder)
        for sparse in graph.sparse_initializer:
            yield sparse.values.name, decode_sparse(sparse, self.folder)

    def nodes(
        self,
        protos: Iterable[onnx.NodeProto],
        scope: Scope,
        opsets: Mapping[str, int],
        bindings: Mapping[str, Any],
        path: tuple[str, ...],
        constants: dict[str, np.ndarray],
    ) -> list[Node]:
        """Nodes in an order that can be run; ``Constant`` nodes go to ``constants``."""
        nodes = []
        for proto in _in_order(list(protos), path):
            if proto.op_type == "Constant" and registry.normalize_domain(proto.domain) == "":
                value = _constant(self.attributes(proto, scope, opsets, bindings, path), proto.name)
                constants[self.output(proto.output[0], scope, path)] = value
                continue
            inputs = tuple(
                _resolve(n, scope, f"input of node {proto.name!r} ({proto.op_type})")
                for n in proto.input
            )
            attributes = self.attributes(proto, scope, opsets, bindings, path)
            outputs = tuple(self.output(n, scope, path) for n in proto.output)
            nodes += self.node(proto, inputs, outputs, attributes, opsets, path, constants)
        return nodes

    def output(self, name: str, scope: Scope, path: tuple[str, ...]) -> str:
        """The unique name of a node output; main-graph names were declared beforehand."""
        if not name:
            return ""
        return scope[name] if not path and name in scope else self.declare(name, scope)

    def node(
        self,
        proto: onnx.NodeProto,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        attributes: Mapping[str, Any],
        opsets: Mapping[str, int],
        path: tuple[str, ...],
        constants: dict[str, np.ndarray],
    ) -> list[Node]:
        """One node: itself if it is a registered operator, else the nodes of its body."""
        domain = registry.normalize_domain(proto.domain)
        local = self.functions.get((proto.domain, proto.op_type, proto.overload))
        if local is not None:
            values = _function_defaults(local) | dict(attributes)
            return self.inline(local, inputs, outputs, values, (*path, proto.name), constants)
        if domain not in opsets:
            known = ", ".join(repr(d) for d in opsets)
            raise InvalidModelError(
                f"node {proto.name!r} ({proto.op_type}) is of domain {domain!r}, which the model "
                f"does not import (it imports {known})"
            )
        version = registry.version_in_force(proto.op_type, opsets[domain], domain)
        fault = schema.support_fault(proto.op_type, domain, opsets[domain], version)
        node = Node(
            proto.op_type, domain, version or 0, proto.name, inputs, outputs, attributes, path
        )
        if fault is None:
            schema.check_node(node)
            if node.operator is not None:
                return [node]
            body = schema.function_body(node)
            if body is not None:
                values = schema.attribute_defaults(node) | dict(attributes)
                where = (*path, proto.name or proto.op_type)
                return self.inline(body, inputs, outputs, values, where, constants)
            if schema.has_typed_body(node):
                return [dataclasses.replace(node, proto=_plain(proto, attributes))]
            fault = schema.missing(node)
        self.unsupported.append(f"{node.label}: {fault}")
        return []

    def inline(
        self,
        function: onnx.FunctionProto,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        attributes: Mapping[str, Any],
        path: tuple[str, ...],
        constants: dict[str, np.ndarray],
    ) -> list[Node]:
        """The nodes of a function called with these inputs, giving these outputs."""
        if len(path) > 64:  # noqa: PLR2004 - deeper than any exporter nests
            raise InvalidModelError(f"function {function.name!r} calls itself: {' / '.join(path)}")
        padded = (*inputs, *[""] * (len(function.input) - len(inputs)))
        scope = dict(zip(function.input, padded, strict=False))
        made, nodes, inner = self.body(function, scope, attributes, path)
        constants |= inner
        renamed = dict(zip(made, outputs, strict=False))
        nodes = [
            dataclasses.replace(
                n,
                inputs=tuple(renamed.get(i) or i for i in n.inputs),
                outputs=tuple(renamed.get(o) or o for o in n.outputs),
            )
            for n in nodes
        ]
        produced = {o for n in nodes for o in n.outputs}
        for source, target in zip(made, outputs, strict=False):
            if target and target not in produced:  # an input or a constant handed straight out
                nodes.append(_identity(source, target, path))
        return nodes

    def body(
        self,
        function: onnx.FunctionProto,
        scope: Scope,
        attributes: Mapping[str, Any],
        path: tuple[str, ...],
    ) -> tuple[tuple[str, ...], list[Node], dict[str, np.ndarray]]:
        """Outputs, nodes and constants of a function body under its own opset imports."""
        opsets = {registry.normalize_domain(o.domain): o.version for o in function.opset_import}
        constants: dict[str, np.ndarray] = {}
        where = path or (function.name,)
        nodes = self.nodes(function.node, scope, opsets, attributes, where, constants)
        outputs = tuple(
            _resolve(n, scope, f"output of function {function.name!r}") for n in function.output
        )
        return outputs, nodes, constants

    def attributes(
        self,
        proto: onnx.NodeProto,
        scope: Scope,
        opsets: Mapping[str, int],
        bindings: Mapping[str, Any],
        path: tuple[str, ...],
    ) -> dict[str, Any]:
        """Attribute values of a node; references are replaced by the function call's values."""
        values: dict[str, Any] = {}
        for attribute in proto.attribute:
            if attribute.name in LEGACY_ATTRIBUTES:
                continue
            if attribute.ref_attr_name:
                if attribute.ref_attr_name in bindings:
                    values[attribute.name] = bindings[attribute.ref_attr_name]
                continue
            kind = attribute.type
            if kind == onnx.AttributeProto.GRAPH:
                where = (*path, f"{proto.name or proto.op_type}.{attribute.name}")
                inner = collections.ChainMap({}, scope)
                values[attribute.name] = self.graph(attribute.g, inner, opsets, bindings, where)
            elif kind == onnx.AttributeProto.TENSOR:
                values[attribute.name] = decode(attribute.t, self.folder)
            elif kind == onnx.AttributeProto.SPARSE_TENSOR:
                values[attribute.name] = decode_sparse(attribute.sparse_tensor, self.folder)
            else:
                values[attribute.name] = _scalar(attribute)
        return values


def _scalar(attribute: onnx.AttributeProto) -> Any:
    """The value of an attribute that is no tensor or graph: strings decoded, lists as tuples."""
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    if isinstance(value, (list, tuple)) or hasattr(value, "__iter__"):
        return tuple(
            v.decode(errors="surrogateescape") if isinstance(v, bytes) else v for v in value
        )
    return value


def _function_defaults(function: onnx.FunctionProto) -> dict[str, Any]:
    return {
        a.name: decode(a.t, None) if a.type == onnx.AttributeProto.TENSOR else _scalar(a)
        for a in function.attribute_proto
    }


def _constant(attributes: Mapping[str, Any], name: str) -> np.ndarray:
    """The value of a ``Constant`` node, in any of its attribute forms."""
    if len(attributes) != 1:
        raise InvalidModelError(
            f"Constant node {name!r} has attributes {sorted(attributes)}; exactly one is allowed"
        )
    ((form, value),) = attributes.items()
    dtypes = {"value_int": np.int64, "value_ints": np.int64}
    dtypes |= {"value_float": np.float32, "value_floats": np.float32}
    if form in ("value_string", "value_strings"):
        return np.array(value, np.dtypes.StringDType())
    return np.asarray(value, dtypes.get(form))


def _identity(source: str, target: str, path: tuple[str, ...]) -> Node:
    return Node("Identity", "", 1, "", (source,), (target,), {}, path)


def _plain(proto: onnx.NodeProto, attributes: Mapping[str, Any]) -> bytes:
    """A node whose attribute references are resolved, serialised."""
    plain = onnx.NodeProto()
    plain.CopyFrom(proto)
    resolved = [
        onnx.helper.make_attribute(a.name, attributes[a.name]) if a.ref_attr_name else a
        for a in proto.attribute
        if not a.ref_attr_name or a.name in attributes
    ]
    del plain.attribute[:]
    plain.attribute.extend(resolved)
    return plain.SerializeToString()


def _where(path: tuple[str, ...]) -> str:
    return " / ".join(path) or "the main graph"


def _resolve(name: str, scope: Mapping[str, str], role: str) -> str:
    if not name:
        return ""
    if name not in scope:
        raise InvalidModelError(f"{name!r}, {role}, is produced by no node, input or initializer")
    return scope[name]


def _refuse_duplicates(names: Iterable[str]) -> None:
    twice = [n for n, count in collections.Counter(names).items() if count > 1]
    if twice:
        raise InvalidModelError(f"the main graph gives the value {twice[0]!r} more than once")


def _uses(proto: onnx.NodeProto) -> set[str]:
    """Names that a node reads, those captured by its subgraphs included."""
    names = {n for n in proto.input if n}
    for attribute in proto.attribute:
        for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else ():
            names |= {n for node in graph.node for n in _uses(node)}
            names |= {o.name for o in graph.output}
    return names


def _in_order(protos: list[onnx.NodeProto], path: tuple[str, ...]) -> list[onnx.NodeProto]:
    """Nodes sorted by what they read; the file's order where it is legal already."""
    producer = {name: k for k, node in enumerate(protos) for name in node.output if name}
    needs = [{producer[n] for n in _uses(node) if n in producer} for node in protos]
    if all(max(before, default=-1) < k for k, before in enumerate(needs)):
        return protos
    try:
        order = graphlib.TopologicalSorter(dict(enumerate(needs))).static_order()
        return [protos[k] for k in order]
    except graphlib.CycleError as error:
        cycle = " -> ".join(repr(protos[k].output[0]) for k in error.args[1])
        raise InvalidModelError(f"the nodes of {_where(path)} form a cycle: {cycle}") from None

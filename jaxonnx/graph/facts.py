"""What is expected of a node: its types, attributes and counts, and its function body."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from jaxonnx.define import registry
from jaxonnx.define.dtypes import type_of
from jaxonnx.define.schema import (
    LEGACY_ATTRIBUTES,
    UNBOUNDED,
    Signature,
    newest_opset,
    onnx_schema,
    onnx_signature,
)
from jaxonnx.errors import InvalidModelError
from jaxonnx.graph.plan import Graph, Node

_ATTRIBUTE_TYPES = {
    "INT": int,
    "FLOAT": float,
    "STRING": str,
    "TENSOR": np.ndarray,
    "SPARSE_TENSOR": np.ndarray,
    "GRAPH": Graph,
    "INTS": tuple,
    "FLOATS": tuple,
    "STRINGS": tuple,
}


def support_fault(op_type: str, domain: str, opset: int, version: int | None) -> str | None:
    """Why no version of an operator can be used under an opset import; None if one can."""
    newest = newest_opset(domain)
    if newest is not None and opset > newest:
        return f"opset {opset} is newer than the installed onnx, which knows up to {newest}"
    if version is None:
        if not registry.has_schema(op_type, domain):
            return f"no operator of this name is known in domain {domain or 'ai.onnx'!r}"
        return f"the operator does not exist in opset {opset} of domain {domain or 'ai.onnx'!r}"
    schema = onnx_schema(op_type, version, domain)
    implemented = registry.lookup(op_type, version, domain) is not None  # GroupNormalization-18 is
    if schema is not None and schema.deprecated and not implemented:
        return f"the operator is deprecated since opset {version}"
    return None


def missing(node: Node) -> str | None:
    """What to say of a node that cannot be run; None if it can."""
    if node.operator is not None or is_constant(node):
        return None
    if function_body(node) is not None or has_typed_body(node):
        return None
    versions = registry.versions_of(node.op_type, node.domain)
    if versions:
        return f"version {node.version} is missing; there are {', '.join(map(str, versions))}"
    return "not implemented"


def is_constant(node: Node) -> bool:
    """Whether a node is a ``Constant``, which is a value rather than a computation."""
    return (node.op_type, node.domain) == ("Constant", "")


def is_gradient(node: Node) -> bool:
    """Whether a node differentiates a part of the graph that it is in."""
    return (node.op_type, node.domain) == ("Gradient", "ai.onnx.preview.training")


def signature(node: Node) -> Signature | None:
    """What is expected of a node; None where nobody says."""
    return registry.signature(node.op_type, node.version, node.domain)


def counts_outputs(node: Node) -> bool:
    """Whether the number of a node's outputs has a meaning, as for Split: unnamed ones count."""
    expected = onnx_signature(node.op_type, node.version, node.domain)
    return expected is not None and expected.output_counts[1] >= UNBOUNDED


def check_node(node: Node) -> None:
    """Refuse a node whose attributes or counts of inputs and outputs are not as expected.

    Raises:
        InvalidModelError: saying what was found and what is expected.
    """
    expected = signature(node)
    if expected is None:
        return
    _check_attributes(node, expected)
    for role, given, (least, most) in (
        ("inputs", node.inputs, expected.input_counts),
        ("outputs", node.outputs, expected.output_counts),
    ):
        if not least <= len(given) <= most:
            many = f"{least} to {most}" if most < UNBOUNDED else f"at least {least}"
            wanted = f"{least}" if least == most else many
            raise InvalidModelError(f"{node.label}: {len(given)} {role}, expected {wanted}")
    for position, name in enumerate(node.inputs):
        formal = expected.input(position)
        if not name and formal is not None and not formal.optional:
            raise InvalidModelError(f"{node.label}: the required input {formal.name} is absent")


def _check_attributes(node: Node, expected: Signature) -> None:
    """Refuse attributes that are unknown or of another type, and required ones that are absent."""
    formals = expected.attributes
    unknown = sorted(set(node.attributes) - set(formals))
    if unknown and not expected.any_attribute:
        names = ", ".join(sorted(formals)) or "none"
        raise InvalidModelError(f"{node.label}: unknown attribute {unknown[0]!r}; it has {names}")
    for name, formal in formals.items():
        if formal.required and name not in node.attributes and name not in LEGACY_ATTRIBUTES:
            raise InvalidModelError(f"{node.label}: the required attribute {name!r} is absent")
    for name in node.attributes.keys() & formals.keys():
        kind = formals[name].kind
        allowed = _ATTRIBUTE_TYPES.get(kind or "")
        if allowed is not None and not isinstance(node.attributes[name], allowed):
            found = type(node.attributes[name]).__name__
            raise InvalidModelError(f"{node.label}: attribute {name!r} is {found}, expected {kind}")


def attribute_defaults(node: Node) -> dict[str, Any]:
    """The defaults that a node's schema states."""
    expected = signature(node)
    formals = {} if expected is None else expected.attributes
    return {n: a.default for n, a in formals.items() if a.default is not None}


def function_body(node: Node) -> onnx.FunctionProto | None:
    """The body that a node runs from: that of its schema, if no function is registered."""
    schema = onnx_schema(node.op_type, node.version, node.domain)
    if node.operator is not None or schema is None or not schema.has_function:
        return None
    return schema.function_body


def has_typed_body(node: Node) -> bool:
    """Whether a node runs from a body that its schema builds from the types of its inputs."""
    schema = onnx_schema(node.op_type, node.version, node.domain)
    if node.operator is not None or schema is None or schema.has_function:
        return False
    return schema.has_context_dependent_function


def typed_body(node: Node, types: Sequence[onnx.TypeProto]) -> onnx.FunctionProto:
    """The function body of a node for inputs of these types (one without a value: absent)."""
    schema = onnx_schema(node.op_type, node.version, node.domain)
    version = max(schema.context_dependent_function_opset_versions)
    function = onnx.FunctionProto.FromString(
        schema.get_context_dependent_function_with_opset_version(
            version, node.proto, [t.SerializeToString() for t in types]
        )
    )
    if not function.node:
        kinds = ", ".join(str(t).replace("\n", " ") for t in types)
        raise InvalidModelError(f"{node.label}: its schema gives no body for types {kinds}")
    if not any(registry.normalize_domain(o.domain) == "" for o in function.opset_import):
        function.opset_import.add(version=onnx.defs.onnx_opset_version())
    return function


def likely_types(node: Node) -> Sequence[onnx.TypeProto] | None:
    """Types that a node's schema allows for its inputs; None where it gives no body for them."""
    expected = signature(node)
    if expected is None:
        return None
    chosen: dict[str, np.dtype] = {}
    types = []
    for position, name in enumerate(node.inputs):
        formal = expected.input(position)
        if not name or formal is None or formal.dtypes is None:
            types.append(onnx.TypeProto())
            continue
        usual = [np.dtype(d) for d in (np.float32, np.int64) if np.dtype(d) in formal.dtypes]
        dtype = chosen.setdefault(formal.variable, next(iter([*usual, *formal.dtypes])))
        types.append(type_of(np.empty((), dtype)))
        types[-1].tensor_type.ClearField("shape")
    try:
        typed_body(node, types)
    except InvalidModelError:
        return None
    return types


def check_types(node: Node, dtypes: Sequence[np.dtype | None]) -> Mapping[str, np.dtype]:
    """Check input dtypes (None: absent or no tensor) and give those of the type variables.

    Raises:
        InvalidModelError: if an input has a type that its schema does not allow, or two inputs
            of one type variable differ.
    """
    formal = signature(node)
    bound: dict[str, np.dtype] = {}
    if formal is None:
        return bound
    for position, dtype in enumerate(dtypes):
        parameter = formal.input(position)
        if parameter is None or dtype is None:
            continue
        where = (
            f"{node.label}: input {parameter.name} ({node.inputs[position]!r}) is {_name(dtype)}"
        )
        if parameter.dtypes is not None and dtype not in parameter.dtypes:
            names = ", ".join(sorted(map(_name, parameter.dtypes)))
            raise InvalidModelError(f"{where}, expected one of {names}")
        if parameter.homogeneous:
            first = bound.setdefault(parameter.variable, dtype)
            if first != dtype:
                raise InvalidModelError(
                    f"{where}, but another input of type {parameter.variable} is {_name(first)}"
                )
    return bound


def _name(dtype: np.dtype) -> str:
    return "string" if dtype.kind == "T" else dtype.name


def output_dtype(node: Node, position: int, bound: Mapping[str, np.dtype]) -> np.dtype | None:
    """The dtype that the schema gives an output; None where it leaves it open."""
    formal = signature(node)
    parameter = formal.output(position) if formal is not None else None
    if parameter is None:
        return None
    if parameter.homogeneous and parameter.variable in bound:
        return bound[parameter.variable]
    if parameter.dtypes is not None and len(parameter.dtypes) == 1:
        return next(iter(parameter.dtypes))
    return None


def input_dtype(node: Node, position: int, bound: Mapping[str, np.dtype]) -> np.dtype | None:
    """The dtype that the other inputs give the input at ``position``, if they do."""
    formal = signature(node)
    parameter = formal.input(position) if formal is not None else None
    return bound.get(parameter.variable) if parameter is not None else None


def holds_values(node: Node) -> bool:
    """Whether a node takes or gives sequences, optionals or maps, which hold values of any kind."""
    formal = signature(node)
    return formal is not None and any(p.dtypes is None for p in (*formal.inputs, *formal.outputs))


def reads_shapes_only(node: Node) -> bool:
    """Whether a node's result depends on how its inputs are built, not on the values in them."""
    return node.operator is not None and node.operator.reads_shapes


def is_random(node: Node) -> bool:
    """Whether a node draws random numbers, itself or in a subgraph.

    Dropout does where it may be in training.
    """
    if node.subgraphs:
        return any(is_random(n) for graph in node.subgraphs for n in graph.nodes)
    operator = node.operator
    if operator is None or not operator.draws or node.attributes.get("is_test"):
        return False
    given = [operator.input_name(k) for k, name in enumerate(node.inputs) if name]
    return "training_mode" not in operator.inputs or "training_mode" in given


def gives_text(node: Node, position: int, fed: Sequence[bool]) -> bool:
    """Whether an output is strings or holds them; ``fed`` says it of each input.

    Where neither types nor attributes of ONNX's own operators tell, it is if an input is.
    """
    expected = signature(node)
    formal = expected.output(position) if expected is not None else None
    if expected is None or formal is None:
        return False
    for name in ("to", "dtype"):
        if name in node.attributes:
            return node.attributes[name] in (onnx.TensorProto.STRING, "STRING")
    if formal.text is not None:
        return formal.text
    if node.domain == "ai.onnx.ml" and node.op_type in ("CategoryMapper", "LabelEncoder"):
        return _maps_to_text(node, any(fed))
    inputs = [expected.input(k) for k in range(len(fed))]
    pairs = zip(fed, inputs, strict=True)
    same = [f for f, i in pairs if i and i.variable == formal.variable]
    return any(same) or (not same and node.domain == "" and any(fed))


def _maps_to_text(node: Node, fed: bool) -> bool:
    """Whether the values of an encoder are strings; without a type, it goes both ways."""
    values = {n: v for n, v in node.attributes.items() if n.startswith("values_") and np.size(v)}
    if "values_tensor" in values:
        return values["values_tensor"].dtype.kind == "T"
    return "values_strings" in values if values else not fed


def float_defaults(node: Node) -> Mapping[str, float]:
    """The schema's defaults of float attributes: single precision, unlike Python's 0.01."""
    return _float_defaults(node.operator, node.op_type, node.version, node.domain)


@functools.cache
def _float_defaults(
    operator: registry.Operator | None, op_type: str, version: int, domain: str
) -> dict[str, float]:
    expected = registry.signature(op_type, version, domain)
    if expected is None or operator is None:
        return {}
    values = {n: a.default for n, a in expected.attributes.items()}
    return {n: v for n, v in values.items() if isinstance(v, float) and n in operator.parameters}

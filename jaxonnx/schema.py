"""What ``onnx.defs`` says of an operator: its types, attributes, counts and function body."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

from jaxonnx import registry
from jaxonnx.errors import InvalidModelError
from jaxonnx.plan import Graph, Node
from jaxonnx.tensors import dtype_of

LEGACY_ATTRIBUTES = frozenset({"consumed_inputs"})
"""Attributes of opset 1 that told the runtime of Caffe2 about memory; they compute nothing."""

_TENSOR_TYPES = {
    f"tensor({onnx.TensorProto.DataType.Name(number).lower()})": number
    for number in onnx.TensorProto.DataType.values()
    if number != onnx.TensorProto.UNDEFINED
}

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

_UNBOUNDED = 2**31 - 1
"""How a schema counts the inputs of a variadic operator."""


@dataclasses.dataclass(frozen=True)
class Formal:
    """A formal input or output: its type variable and the dtypes it allows (None: no tensor)."""

    name: str
    variable: str
    dtypes: frozenset[np.dtype] | None
    homogeneous: bool
    optional: bool


@dataclasses.dataclass(frozen=True)
class Signature:
    """The formal inputs and outputs of one schema version."""

    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    variadic_inputs: bool
    variadic_outputs: bool

    def input(self, position: int) -> Formal | None:
        """The formal input at a position; the last one repeats where it is variadic."""
        return _formal(self.inputs, self.variadic_inputs, position)

    def output(self, position: int) -> Formal | None:
        """The formal output at a position; the last one repeats where it is variadic."""
        return _formal(self.outputs, self.variadic_outputs, position)


def _formal(formals: Sequence[Formal], variadic: bool, position: int) -> Formal | None:
    if position < len(formals):
        return formals[position]
    return formals[-1] if variadic and formals else None


@functools.cache
def signature(op_type: str, version: int, domain: str) -> Signature | None:
    """The signature of a schema version; None for operators that ``onnx.defs`` does not know."""
    schema = _schema(op_type, version, domain)
    if schema is None:
        return None
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    formals = [
        tuple(
            Formal(p.name, p.type_str, _dtypes(p.types), p.is_homogeneous, p.option == optional)
            for p in side
        )
        for side in (schema.inputs, schema.outputs)
    ]
    last = [bool(s) and s[-1].option == variadic for s in (schema.inputs, schema.outputs)]
    return Signature(formals[0], formals[1], last[0], last[1])


def _dtypes(types: set[str]) -> frozenset[np.dtype] | None:
    tensors = [_TENSOR_TYPES[t] for t in types if t in _TENSOR_TYPES]
    if len(tensors) < len(types):
        return None
    return frozenset(d for d in map(dtype_of, tensors) if d is not None)


def _schema(op_type: str, version: int, domain: str) -> Any:
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


def support_fault(op_type: str, domain: str, opset: int, version: int | None) -> str | None:
    """Why no version of an operator can be used under an opset import; None if one can."""
    newest = newest_opset(domain)
    if newest is not None and opset > newest:
        return f"opset {opset} is newer than the installed onnx, which knows up to {newest}"
    if version is None:
        if not registry.has_schema(op_type, domain):
            return f"no operator of this name is known in domain {domain or 'ai.onnx'!r}"
        return f"the operator does not exist in opset {opset} of domain {domain or 'ai.onnx'!r}"
    schema = _schema(op_type, version, domain)
    implemented = registry.lookup(op_type, version, domain) is not None  # GroupNormalization-18 is
    if schema is not None and schema.deprecated and not implemented:
        return f"the operator is deprecated since opset {version}"
    return None


def newest_opset(domain: str) -> int | None:
    """The newest opset of a domain that the installed ``onnx`` knows, if it counts them."""
    newest = {"": onnx.defs.onnx_opset_version, "ai.onnx.ml": onnx.defs.onnx_ml_opset_version}
    return newest[domain]() if domain in newest else None


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


def check_node(node: Node) -> None:
    """Refuse a node whose attributes or counts of inputs and outputs break its schema.

    Raises:
        InvalidModelError: saying what was found and what is expected.
    """
    _check_attributes(node)
    schema = _schema(node.op_type, node.version, node.domain)
    if schema is None:
        return
    for role, given, side, stated, most in (
        ("inputs", node.inputs, schema.inputs, schema.min_input, schema.max_input),
        ("outputs", node.outputs, schema.outputs, schema.min_output, schema.max_output),
    ):
        open_ended = all(map(_may_be_absent, [*side][len(given) :]))
        least = min(stated, len(given)) if open_ended else stated
        if not least <= len(given) <= most:
            many = f"{least} to {most}" if most < _UNBOUNDED else f"at least {least}"
            wanted = f"{least}" if least == most else many
            raise InvalidModelError(f"{node.label}: {len(given)} {role}, expected {wanted}")
    formals = signature(node.op_type, node.version, node.domain)
    for position, name in enumerate(node.inputs):
        formal = formals.input(position) if formals is not None else None
        if not name and formal is not None and not formal.optional:
            raise InvalidModelError(f"{node.label}: the required input {formal.name} is absent")


def _may_be_absent(formal: Any) -> bool:
    return formal.option.name == "Optional" or formal.min_arity == 0


def _check_attributes(node: Node) -> None:
    """Refuse attributes that are unknown or of another type, and required ones that are absent."""
    schema = _schema(node.op_type, node.version, node.domain)
    if schema is not None:
        required = {n: a.required for n, a in schema.attributes.items()}
    elif node.operator is not None:
        required = node.operator.attributes
    else:
        return
    unknown = sorted(set(node.attributes) - set(required))
    if unknown:
        names = ", ".join(sorted(required)) or "none"
        raise InvalidModelError(f"{node.label}: unknown attribute {unknown[0]!r}; it has {names}")
    for name, needed in required.items():
        if needed and name not in node.attributes and name not in LEGACY_ATTRIBUTES:
            raise InvalidModelError(f"{node.label}: the required attribute {name!r} is absent")
    if schema is None:
        return
    for name, value in node.attributes.items():
        kind = schema.attributes[name].type.name
        expected = _ATTRIBUTE_TYPES.get(kind)
        if expected is not None and not isinstance(value, expected):
            raise InvalidModelError(
                f"{node.label}: attribute {name!r} is {type(value).__name__}, expected {kind}"
            )


def attribute_defaults(node: Node) -> dict[str, Any]:
    """The defaults that a node's schema states."""
    schema = _schema(node.op_type, node.version, node.domain)
    attributes = schema.attributes if schema is not None else {}
    defaults = {n: attribute_value(a) for n, a in attributes.items()}
    return {n: v for n, v in defaults.items() if v is not None}


def attribute_value(attribute: Any) -> Any:
    """The default that a schema attribute states, or None."""
    proto = attribute.default_value
    if proto.type == onnx.AttributeProto.UNDEFINED:
        return None
    value = onnx.helper.get_attribute_value(proto)
    if isinstance(value, list):
        return tuple(v.decode() if isinstance(v, bytes) else v for v in value)
    return value.decode() if isinstance(value, bytes) else value


def function_body(node: Node) -> onnx.FunctionProto | None:
    """The body that a node runs from: that of its schema, if no function is registered."""
    schema = _schema(node.op_type, node.version, node.domain)
    if node.operator is not None or schema is None or not schema.has_function:
        return None
    return schema.function_body


def has_typed_body(node: Node) -> bool:
    """Whether a node runs from a body that its schema builds from the types of its inputs."""
    schema = _schema(node.op_type, node.version, node.domain)
    if node.operator is not None or schema is None or schema.has_function:
        return False
    return schema.has_context_dependent_function


def typed_body(node: Node, types: Sequence[onnx.TypeProto]) -> onnx.FunctionProto:
    """The function body of a node for inputs of these types (one without a value: absent)."""
    schema = _schema(node.op_type, node.version, node.domain)
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


def check_types(node: Node, dtypes: Sequence[np.dtype | None]) -> Mapping[str, np.dtype]:
    """Check input dtypes (None: absent or no tensor) and give those of the type variables.

    Raises:
        InvalidModelError: if an input has a type that its schema does not allow, or two inputs
            of one type variable differ.
    """
    formal = signature(node.op_type, node.version, node.domain)
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
    formal = signature(node.op_type, node.version, node.domain)
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
    formal = signature(node.op_type, node.version, node.domain)
    parameter = formal.input(position) if formal is not None else None
    return bound.get(parameter.variable) if parameter is not None else None


def holds_values(node: Node) -> bool:
    """Whether a node takes or gives sequences, optionals or maps, which hold values of any kind."""
    formal = signature(node.op_type, node.version, node.domain)
    return formal is not None and any(p.dtypes is None for p in (*formal.inputs, *formal.outputs))


_SHAPE_ONLY = ("OptionalHasElement", "SequenceLength", "Shape", "Size")


def reads_shapes_only(node: Node) -> bool:
    """Whether a node's result depends on how its inputs are built, not on the values in them."""
    return node.op_type in _SHAPE_ONLY and node.domain == ""


def is_random(node: Node) -> bool:
    """Whether two runs of a node on the same inputs may differ."""
    schema = _schema(node.op_type, node.version, node.domain)
    return schema is not None and schema.non_deterministic


def gives_text(node: Node, position: int, fed: Sequence[bool]) -> bool:
    """Whether an output is strings or holds them; ``fed`` says it of each input.

    Where neither types nor attributes of ONNX's own operators tell, it is if an input is.
    """
    schema = _schema(node.op_type, node.version, node.domain)
    formal = signature(node.op_type, node.version, node.domain)
    if schema is None or formal is None or not schema.outputs:
        return False
    for name in ("to", "dtype"):
        if name in node.attributes:
            return node.attributes[name] in (onnx.TensorProto.STRING, "STRING")
    text = ["string" in t for t in schema.outputs[min(position, len(schema.outputs) - 1)].types]
    if all(text) or not any(text):
        return all(text)
    variable = _formal(formal.outputs, formal.variadic_outputs, position)
    inputs = [formal.input(k) for k in range(len(fed))]
    same = [
        f
        for f, i in zip(fed, inputs, strict=True)
        if i and variable and i.variable == variable.variable
    ]
    return any(same) or (not same and node.domain == "" and any(fed))


def float_defaults(operator: registry.Operator, node: Node) -> Mapping[str, float]:
    """The schema's defaults of float attributes: single precision, unlike Python's 0.01."""
    return _float_defaults(operator, node.op_type, node.version, node.domain)


@functools.cache
def _float_defaults(
    operator: registry.Operator, op_type: str, version: int, domain: str
) -> dict[str, float]:
    schema = _schema(op_type, version, domain)
    values = {} if schema is None else {n: attribute_value(a) for n, a in schema.attributes.items()}
    return {n: v for n, v in values.items() if isinstance(v, float) and n in operator.parameters}

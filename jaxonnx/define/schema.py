"""What is expected of the nodes of an operator: by ``onnx.defs``, or by a function's signature."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper

from jaxonnx.define.dtypes import dtype_of

LEGACY_ATTRIBUTES = frozenset({"consumed_inputs"})
"""Attributes of opset 1 that told the runtime of Caffe2 about memory; they compute nothing."""

GIVEN_BY_US = frozenset({"outputs", "key", "graph"})
"""Keywords that tell an operator's function of its node, and are no attributes."""

UNBOUNDED = 2**31 - 1
"""How a schema counts the inputs of a variadic operator."""

_TENSOR_TYPES = {
    f"tensor({onnx.TensorProto.DataType.Name(number).lower()})": number
    for number in onnx.TensorProto.DataType.values()
    if number != onnx.TensorProto.UNDEFINED
}


@dataclasses.dataclass(frozen=True)
class Formal:
    """A formal input or output.

    Attributes:
        name: its name in the schema.
        variable: its type variable.
        dtypes: the dtypes that it allows; None where it is no tensor.
        homogeneous: whether all that have the type variable have the same type.
        optional: whether a node may leave it out.
        text: whether all, some or none of its types are strings or hold them (True, None, False).
    """

    name: str
    variable: str
    dtypes: frozenset[np.dtype] | None
    homogeneous: bool
    optional: bool
    text: bool | None


@dataclasses.dataclass(frozen=True)
class Attribute:
    """A formal attribute.

    Attributes:
        kind: ONNX's name of its type; None for any.
        required: whether a node must have it.
        default: its value where a node has none; None where there is no default.
    """

    kind: str | None
    required: bool
    default: Any = None


@dataclasses.dataclass(frozen=True)
class Signature:
    """What is expected of a node.

    Attributes:
        inputs: the formal inputs; the last one may repeat.
        outputs: the formal outputs; the last one may repeat.
        input_counts: the least and the greatest number of inputs.
        output_counts: the least and the greatest number of outputs.
        attributes: the formal attributes by name.
        any_attribute: whether there may be others.
    """

    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    input_counts: tuple[int, int]
    output_counts: tuple[int, int]
    attributes: Mapping[str, Attribute]
    any_attribute: bool = False

    def input(self, position: int) -> Formal | None:
        """The formal input at a position; the last one repeats where it is variadic."""
        return _at_position(self.inputs, self.input_counts[1], position)

    def output(self, position: int) -> Formal | None:
        """The formal output at a position; the last one repeats where it is variadic."""
        return _at_position(self.outputs, self.output_counts[1], position)


def _at_position(formals: Sequence[Formal], most: int, position: int) -> Formal | None:
    if position < len(formals):
        return formals[position]
    return formals[-1] if position < most and formals else None


def onnx_schema(op_type: str, version: int, domain: str) -> Any:
    """The ``OpSchema`` in force at an opset; None where ``onnx.defs`` knows none."""
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


@functools.cache
def onnx_signature(op_type: str, version: int, domain: str) -> Signature | None:
    """What ``onnx.defs`` expects of a node; None where it does not know the operator."""
    schema = onnx_schema(op_type, version, domain)
    return None if schema is None else signature_of(schema)


def signature_of(schema: Any) -> Signature:
    """What an ``onnx.defs.OpSchema`` expects of a node."""
    inputs, outputs = (
        tuple(
            Formal(
                p.name,
                p.type_str,
                _dtypes(p.types),
                p.is_homogeneous,
                p.option.name == "Optional",
                _holds_text(p.types),
            )
            for p in side
        )
        for side in (schema.inputs, schema.outputs)
    )
    attributes = {
        n: Attribute(a.type.name, a.required, attribute_value(a))
        for n, a in schema.attributes.items()
    }
    return Signature(
        inputs,
        outputs,
        (_least(schema.inputs, schema.min_input), schema.max_input),
        (_least(schema.outputs, schema.min_output), schema.max_output),
        attributes,
    )


def _least(formals: Sequence[Any], stated: int) -> int:
    """How many there must be: trailing ones that may be absent do not count."""
    absent = [f.option.name == "Optional" or f.min_arity == 0 for f in formals]
    needed = len(absent)
    while needed and absent[needed - 1]:
        needed -= 1
    return min(stated, needed)


def _dtypes(types: set[str]) -> frozenset[np.dtype] | None:
    tensors = [_TENSOR_TYPES[t] for t in types if t in _TENSOR_TYPES]
    if len(tensors) < len(types):
        return None
    return frozenset(d for d in map(dtype_of, tensors) if d is not None)


def _holds_text(types: set[str]) -> bool | None:
    text = ["string" in t for t in types]
    return all(text) if all(text) or not any(text) else None


def attribute_value(attribute: Any) -> Any:
    """The default that a schema attribute states, or None."""
    proto = attribute.default_value
    if proto.type == onnx.AttributeProto.UNDEFINED:
        return None
    value = onnx.helper.get_attribute_value(proto)
    if isinstance(value, list):
        return tuple(v.decode() if isinstance(v, bytes) else v for v in value)
    return value.decode() if isinstance(value, bytes) else value


def newest_opset(domain: str) -> int | None:
    """The newest opset of a domain that the installed ``onnx`` knows, if it counts them."""
    newest = {"": onnx.defs.onnx_opset_version, "ai.onnx.ml": onnx.defs.onnx_ml_opset_version}
    return newest[domain]() if domain in newest else None


_KINDS = {int: "INT", float: "FLOAT", str: "STRING", np.ndarray: "TENSOR"}


def function_signature(function: Callable[..., Any]) -> Signature:
    """What the signature of an operator's function expects of a node.

    Inputs are tensors of any type, and optional where the function has a default for them; there
    may be any number of outputs. Attributes are required where the function has no default, and of
    the type of their annotation where that is ``int``, ``float``, ``str`` or ``np.ndarray``.
    """
    every = _dtypes({*_TENSOR_TYPES})
    inputs, attributes, least, most, any_attribute = [], {}, 0, 0, False
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        required = parameter.default is parameter.empty
        if parameter.kind is parameter.VAR_KEYWORD:
            any_attribute = True
        elif parameter.kind is parameter.KEYWORD_ONLY:
            if name not in GIVEN_BY_US:
                attributes[name] = Attribute(_KINDS.get(parameter.annotation), required)
        else:
            variadic = parameter.kind is parameter.VAR_POSITIONAL
            inputs.append(Formal(name, f"T_{name}", every, not variadic, not required, None))
            most = UNBOUNDED if variadic else most + 1
            least = most if required and not variadic else least
    outputs = (Formal("outputs", "T_outputs", every, False, False, None),)
    return Signature(
        tuple(inputs), outputs, (least, most), (0, UNBOUNDED), attributes, any_attribute
    )

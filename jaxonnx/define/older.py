"""Older versions of operators, derived from the functions of newer ones."""

import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter
from typing import Any

import numpy as np

from jaxonnx.define.registry import Operator, implementation, register
from jaxonnx.define.schema import (
    GIVEN_BY_US,
    LEGACY_ATTRIBUTES,
    Attribute,
    Signature,
    onnx_signature,
)

Inputs = Callable[..., Sequence[Any]]

_ANNOTATIONS: Mapping[str | None, Any] = {
    "INT": int,
    "FLOAT": float,
    "STRING": str,
    "INTS": Sequence[int],
    "FLOATS": Sequence[float],
}

_ARRAYS = {"INT": np.int64, "INTS": np.int64, "FLOATS": np.float32}
"""Dtypes of inputs that were attributes; a number that is no integer takes that of the data."""

_NAMED = ("static", "weights", "statistics", "settings")
"""Traits that name inputs."""

_SAME = frozenset(f.name for f in dataclasses.fields(Operator)) - {
    "op_type",
    "versions",
    "function",
    *_NAMED,
}
"""What is registered of older versions as it is of newer ones."""


def older(
    function: Callable[..., Any],
    *versions: int,
    inputs: Inputs | None = None,
    fixed: Mapping[str, Any] | None = None,
    convert: Mapping[str, Callable[[Any], Any]] | None = None,
    note: str = "",
) -> Callable[..., Any]:
    """Register older versions of an operator that differ from a newer one in form only.

    The schemas say how: an input that was an attribute reaches ``function`` as an array, what was
    not there yet is absent or has its default, and defaults are those of the older schema. What is
    registered of the newer version, such as its rule for padding, holds for the older ones too.

    Args:
        function: the registered function of a newer version.
        *versions: the schema versions to derive.
        inputs: gives the inputs of ``function`` from those of the older versions and from the
            attributes that ``function`` has not, which it takes as keywords. Where it takes any
            number of inputs, they are those of ``function``. By default inputs are passed on, with
            those that were attributes as arrays.
        fixed: values of attributes that the older versions lack, where they are not the defaults.
        convert: by name, what turns an attribute's value into one that ``function`` takes.
        note: a sentence for the docstring on what the schemas do not say.

    Returns:
        The function of the older versions, to be assigned to the name that it has: that of
        ``function`` with the first version behind it, such as ``squeeze_1``.

    Raises:
        ValueError: if ``function`` is not registered, or an attribute would go unused.
    """
    newer, constants, conversions = implementation(function), fixed or {}, convert or {}
    schema = _schema(newer, versions)
    prepare = inputs or _passed_on(newer, schema)
    signature, own = _signature(newer, schema, prepare, constants)

    def derived(*args: Any, **keywords: Any) -> Any:
        bound = signature.bind(*args, **keywords)
        bound.apply_defaults()
        given = {n: conversions[n](v) if n in conversions else v for n, v in bound.kwargs.items()}
        operands = prepare(*bound.args, **{n: given.pop(n) for n in own})
        return function(*operands, **constants, **given)

    base = re.sub(r"_\d+$", "", function.__name__).rstrip("_")
    derived.__name__ = derived.__qualname__ = f"{base}_{versions[0]}"
    derived.__module__ = function.__module__
    derived.__doc__ = _docstring(newer, versions, signature, note)
    vars(derived)["__signature__"] = signature
    return _register(newer, versions, derived, signature)


def _schema(newer: Operator, versions: Iterable[int]) -> Signature:
    """What the schemas of all ``versions`` expect; where they differ, the newest of them."""
    schemas = []
    for version in versions:
        schema = onnx_signature(newer.op_type, version, newer.domain)
        if schema is None:
            raise ValueError(f"{newer.op_type}: onnx.defs has no schema of version {version}")
        schemas.append(schema)
    attributes = {n: a for s in schemas for n, a in s.attributes.items()}
    named = {n: a for n, a in attributes.items() if n not in LEGACY_ATTRIBUTES}
    return dataclasses.replace(schemas[-1], attributes=named)


def _passed_on(newer: Operator, schema: Signature) -> Inputs:
    """Inputs as they are, and attributes that became inputs as arrays."""
    there = {re.sub(r"\W", "_", f.name).lower() for f in schema.inputs}
    names = [n for n in newer.inputs if n.lower().strip("_") in there]
    former = {n: schema.attributes[n] for n in newer.inputs if n in schema.attributes}
    count = max(newer.inputs.index(n) + 1 for n in (*names, *former))

    def inputs(*given: Any, **attributes: Any) -> Sequence[Any]:
        if not former:
            return given
        values = {n: _as_input(v, former[n]) for n, v in attributes.items()}
        values |= zip(names, given, strict=True)
        return [values.get(n) for n in newer.inputs[:count]]

    positional = [newer.parameters[n] for n in names]
    keywords = [_keyword(n, a) for n, a in former.items()]
    vars(inputs)["__signature__"] = inspect.Signature([*positional, *keywords])
    return inputs


def _as_input(value: Any, attribute: Attribute) -> Any:
    dtype = _ARRAYS.get(attribute.kind or "")
    return value if value is None or dtype is None else np.array(value, dtype)


def _keyword(name: str, attribute: Attribute) -> Parameter:
    default = Parameter.empty if attribute.required else attribute.default
    annotation = _ANNOTATIONS.get(attribute.kind, Any)
    annotation = annotation | None if default is None else annotation
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _kept(parameter: Parameter, attribute: Attribute) -> Parameter:
    """The parameter of an attribute, with the default that it had."""
    older = _keyword(parameter.name, attribute)
    numbers = isinstance(older.default, float) and isinstance(parameter.default, float)
    same = older.default == parameter.default
    if same or (numbers and math.isclose(older.default, parameter.default, rel_tol=1e-6)):
        return parameter
    return older


def _signature(
    newer: Operator, schema: Signature, inputs: Inputs, fixed: Iterable[str]
) -> tuple[inspect.Signature, list[str]]:
    """The older signature, and which of its keywords ``inputs`` takes."""
    parameters = inspect.signature(inputs).parameters.values()
    positional = [p for p in parameters if p.kind is Parameter.POSITIONAL_ONLY]
    if any(p.kind is Parameter.VAR_POSITIONAL for p in parameters):
        positional = [newer.parameters[n] for n in newer.inputs]
    own = [p for p in parameters if p.kind is Parameter.KEYWORD_ONLY]
    names = [p.name for p in own]
    kept = [n for n in newer.attributes if n in schema.attributes and n not in names]
    unused = {*schema.attributes} - {*kept, *names}
    if unused or {*fixed} & {*kept}:
        raise ValueError(f"{newer.op_type}: what becomes of the attributes {sorted(unused)}?")
    by_us = GIVEN_BY_US.difference(newer.inputs)
    given = [p for n, p in newer.parameters.items() if n in by_us]
    keywords = [*own, *(_kept(newer.parameters[n], schema.attributes[n]) for n in kept), *given]
    return inspect.Signature([*positional, *keywords]), names


def _docstring(
    newer: Operator, versions: Sequence[int], signature: inspect.Signature, note: str
) -> str:
    """Which versions these are, how they differ, and the docstring of the newer one."""
    there = signature.parameters
    keywords = {n: p for n, p in there.items() if p.kind is Parameter.KEYWORD_ONLY}
    became = [n for n in keywords if n in newer.inputs]
    lacks = [n for n in newer.parameters if n not in there]
    changed = [n for n in keywords if n in newer.attributes and there[n] != newer.parameters[n]]
    differences = [
        f"{_listed(became)} {'are attributes' if len(became) > 1 else 'is an attribute'}",
        f"there is no {_listed(lacks, 'or')}",
        *(f"{_listed([n])} is {_default(there[n])}" for n in changed),
    ]
    said = "; ".join(d for d in differences if "``" in d)
    title = f"Version{'s' if len(versions) > 1 else ''} {_joined([*map(str, versions)])}"
    first = f"{title} of {newer.op_type}{': ' if said else ''}{said}."
    text = [first, note, inspect.getdoc(newer.function) or ""]
    return "\n\n".join(t for t in text if t)


def _listed(names: Iterable[str], word: str = "and") -> str:
    return _joined([f"``{n}``" for n in names], word)


def _joined(words: Sequence[str], word: str = "and") -> str:
    return f" {word} ".join(w for w in (", ".join(words[:-1]), *words[-1:]) if w)


def _default(parameter: Parameter) -> str:
    if parameter.default is Parameter.empty:
        return "required"
    return "optional" if parameter.default is None else f"{parameter.default!r} by default"


def _register(
    newer: Operator,
    versions: Sequence[int],
    function: Callable[..., Any],
    signature: inspect.Signature,
) -> Callable[..., Any]:
    """Register with what holds of the newer version, as far as it concerns inputs that are left."""
    if newer.bounded is not None:
        raise ValueError(f"{newer.op_type} has a form for bounds, which has to be registered too")
    keyword = Parameter.KEYWORD_ONLY
    inputs = {n for n, p in signature.parameters.items() if p.kind is not keyword}
    traits = {n: getattr(newer, n) for n in _SAME}
    named = {n: getattr(newer, n) & inputs for n in _NAMED}
    return register(newer.op_type, *versions, **traits, **named)(function)

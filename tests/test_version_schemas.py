"""What only one side of a boundary between versions has is refused on the other, by the schemas."""

import itertools
from typing import Any

import onnx
import pytest
from onnx import helper

import jaxonnx
from jaxonnx.define import registry
from jaxonnx.define.schema import LEGACY_ATTRIBUTES
from jaxonnx.errors import InvalidModelError

VALUES: dict[Any, Any] = {
    "FLOAT": 1.0,
    "INT": 1,
    "STRING": "a",
    "FLOATS": [1.0],
    "INTS": [1],
    "STRINGS": ["a"],
    "TENSOR": helper.make_tensor("t", 1, [1], [1.0]),
}
READ = {"Constant"}
"""Operators whose attributes are read into stored values, where they are checked."""


def live() -> dict[tuple[str, str], list[Any]]:
    """The schemas of each operator, by version, without deprecated ones."""
    found: dict[tuple[str, str], dict[int, Any]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain in ("", "ai.onnx.ml") and not schema.deprecated:
            found.setdefault((schema.domain, schema.name), {})[schema.since_version] = schema
    return {k: [v for _, v in sorted(s.items())] for k, s in found.items() if k[1] not in READ}


def boundaries() -> list[tuple[Any, Any]]:
    """Schemas of neighbouring versions, in both directions."""
    pairs = [p for s in live().values() for p in itertools.pairwise(s)]
    return [*pairs, *((b, a) for a, b in pairs)]


def title(schema: Any) -> str:
    return f"{schema.name}-{schema.since_version}"


def load(schema: Any, inputs: int, outputs: int, more: dict[str, Any]) -> None:
    """Load a node with so many inputs and outputs, and attributes beside the required ones."""
    required = {n: a for n, a in schema.attributes.items() if a.required}
    needed = {n: VALUES[a.type.name] for n, a in required.items() if a.type.name in VALUES}
    names = [f"x{k}" for k in range(inputs)]
    made = [f"y{k}" for k in range(outputs)]
    attributes = {**needed, **more}
    node = helper.make_node(schema.name, names, made, domain=schema.domain, **attributes)
    given, results = ([onnx.ValueInfoProto(name=n) for n in part] for part in (names, made))
    graph = helper.make_graph([node], "boundary", given, results)
    opsets = [helper.make_opsetid(schema.domain, schema.since_version)]
    jaxonnx.load(helper.make_model(graph, opset_imports=opsets, ir_version=10))


ATTRIBUTES = [
    (here, name, VALUES[attribute.type.name])
    for here, other in boundaries()
    for name, attribute in sorted(other.attributes.items())
    if name not in here.attributes
    and name not in LEGACY_ATTRIBUTES
    and attribute.type.name in VALUES
]


@pytest.mark.parametrize(
    ("schema", "name", "value"), ATTRIBUTES, ids=[f"{title(s)}-{n}" for s, n, _ in ATTRIBUTES]
)
def test_an_attribute_of_the_other_side_is_refused(schema, name, value):
    with pytest.raises(InvalidModelError, match=f"unknown attribute '{name}'"):
        load(schema, schema.min_input, schema.min_output or 1, {name: value})


INPUTS = [
    (here, count)
    for here, other in boundaries()
    for count in {other.min_input, min(other.max_input, 9)}
    if not here.min_input <= count <= here.max_input
    and not any(a.type.name == "GRAPH" for a in here.attributes.values())
]


@pytest.mark.parametrize(("schema", "count"), INPUTS, ids=[f"{title(s)}-{n}" for s, n in INPUTS])
def test_another_number_of_inputs_is_refused(schema, count):
    with pytest.raises(InvalidModelError, match=f"{count} inputs?, expected"):
        load(schema, count, schema.min_output or 1, {})


OUTPUTS = [
    (here, other.max_output) for here, other in boundaries() if other.max_output > here.max_output
]


@pytest.mark.parametrize(("schema", "count"), OUTPUTS, ids=[f"{title(s)}-{n}" for s, n in OUTPUTS])
def test_another_number_of_outputs_is_refused(schema, count):
    with pytest.raises(InvalidModelError, match=f"{count} outputs, expected"):
        load(schema, schema.min_input, count, {})


def test_boundaries_are_those_of_the_registry():
    for (domain, name), schemas in live().items():
        versions = registry.versions_of(name, domain)
        assert {s.since_version for s in schemas} <= {*versions} or not versions, name

"""An operator with a body in its schema gives the same by that body and by its own function."""

from typing import Any

import jax
import numpy as np
import onnx
import pytest
import samples
from helpers import TOLERANCE
from onnx import helper

import jaxonnx
from jaxonnx.define import registry
from jaxonnx.define.dtypes import type_of

ELSEWHERE = {
    "Bernoulli": "its body gives 1 with the probability of 0, against the text of the schema",
    "SequenceMap": "the suite's cases compare it; its body is a loop over sequences",
}
"""Operators whose body is compared otherwise or not at all, and why."""


def newest(name: str) -> Any:
    domain, _, op_type = name.rpartition("::")
    return onnx.defs.get_schema(op_type, domain=domain)


def newest_opset(domain: str) -> int:
    domain = registry.normalize_domain(domain)
    return max(s.since_version for s in onnx.defs.get_all_schemas() if s.domain == domain)


def has_body(name: str) -> bool:
    schema = newest(name)
    return schema.has_function or schema.has_context_dependent_function


WITH_BODY = sorted(n for n in samples.operators(host=False) if has_body(n))


def body(node: onnx.NodeProto, name: str, inputs: list[np.ndarray | None]) -> onnx.FunctionProto:
    """The body of the newest schema for a node with these inputs."""
    schema = newest(name)
    if schema.has_function:
        return onnx.FunctionProto.FromString(schema.function_body.SerializeToString())
    types = [type_of(v).SerializeToString() for v in inputs]
    version = max(schema.context_dependent_function_opset_versions)
    return onnx.FunctionProto.FromString(
        schema.get_context_dependent_function_with_opset_version(
            version, node.SerializeToString(), types
        )
    )


def by_body(name: str) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A sample at the newest opset, and the same with its node replaced by the body."""
    sample = samples.samples()[name]
    own, other = onnx.ModelProto(), onnx.ModelProto()
    own.CopyFrom(sample.model)
    for entry in own.opset_import:
        entry.version = max(entry.version, newest_opset(entry.domain))
    other.CopyFrom(own)
    (node,) = other.graph.node
    function = body(node, name, [sample.inputs.get(n) for n in node.input])
    function.domain, function.name = "test.body", "Body"
    if not any(registry.normalize_domain(o.domain) == "" for o in function.opset_import):
        function.opset_import.add(version=newest_opset(""))
    for key, attribute in newest(name).attributes.items():
        stated = attribute.default_value
        if key not in {a.name for a in node.attribute} and stated.name:
            node.attribute.append(stated)
    kept = [a for a in node.attribute if a.name in function.attribute]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.domain, node.op_type = function.domain, function.name
    other.functions.append(function)
    other.opset_import.append(helper.make_opsetid("test.body", 1))
    return own, other


@pytest.mark.parametrize("name", [n for n in WITH_BODY if n not in ELSEWHERE])
def test_a_body_gives_what_the_function_gives(name):
    inputs = samples.samples()[name].inputs
    results = [jax.tree.leaves(jaxonnx.load(m)(**inputs)) for m in by_body(name)]
    for own, other in zip(*results, strict=True):
        assert (own.dtype, own.shape) == (other.dtype, other.shape)
        rtol, atol = TOLERANCE.get(own.dtype.name, (0, 0))
        pair = [np.asarray(v).astype(np.float64) for v in (other, own)]
        np.testing.assert_allclose(*pair, rtol=10 * rtol, atol=10 * atol)


def test_every_operator_with_a_body_is_compared():
    assert {*WITH_BODY} - {*ELSEWHERE} <= samples.samples().keys()
    assert ELSEWHERE.keys() <= {*WITH_BODY}

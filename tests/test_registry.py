"""The table of operators against ``onnx.defs``."""

import inspect
import re

import numpy as np
import onnx
import pytest
from helpers import generator

import jaxonnx
from jaxonnx.define import registry
from jaxonnx.define.schema import GIVEN_BY_US, LEGACY_ATTRIBUTES, attribute_value

OPERATORS = registry.registered()
NATIVE = [o for o in OPERATORS if registry.has_schema(o.op_type, o.domain)]
TITLES = [f"{o.domain}{o.op_type}-{o.versions[0]}" for o in NATIVE]


def _schemas(operator):
    return [onnx.defs.get_schema(operator.op_type, v, operator.domain) for v in operator.versions]


@pytest.mark.parametrize("operator", NATIVE, ids=TITLES)
def test_versions_exist(operator):
    assert [s.since_version for s in _schemas(operator)] == list(operator.versions)
    deprecated = {(s.domain, s.name, s.since_version) for s in _schemas(operator) if s.deprecated}
    assert deprecated <= HINDSIGHT


@pytest.mark.parametrize("operator", NATIVE, ids=TITLES)
def test_attributes_and_defaults_are_the_schemas(operator):
    keywords = {
        n: p
        for n, p in operator.parameters.items()
        if p.kind is inspect.Parameter.KEYWORD_ONLY and n not in GIVEN_BY_US
    }
    schemas = _schemas(operator)
    stated = {n for s in schemas for n in s.attributes} - LEGACY_ATTRIBUTES
    assert set(keywords) == stated
    newest = schemas[-1].attributes
    for name, parameter in keywords.items():
        schema = next(s.attributes for s in reversed(schemas) if name in s.attributes)
        if schema[name].required:
            assert parameter.default is inspect.Parameter.empty, name
        elif name in newest:
            default = attribute_value(newest[name])
            assert parameter.default == default or np.isclose(parameter.default, default), name


@pytest.mark.parametrize("operator", NATIVE, ids=TITLES)
def test_inputs_are_the_schemas(operator):
    newest = _schemas(operator)[-1]
    names = [re.sub(r"\W", "_", i.name).lower() for i in newest.inputs]
    own = [n.lower().strip("_") for n in operator.inputs]
    assert own[: len(names)] == names[: len(own)]
    assert len(own) == len(names)


@pytest.mark.parametrize("operator", NATIVE, ids=TITLES)
def test_docstring(operator):
    assert inspect.getdoc(operator.function)


def test_every_operator_has_its_newest_function_in_ops():
    homes = {
        "": jaxonnx.ops,
        "ai.onnx.ml": jaxonnx.ops.ml,
        "ai.onnx.preview.training": jaxonnx.ops.training,
    }
    for operator in OPERATORS:
        newest = max(registry.versions_of(operator.op_type, operator.domain))
        if operator.domain in homes and newest in operator.versions:
            name = registry.snake_case(operator.op_type)
            assert getattr(homes[operator.domain], name) is operator.function


FROM_THEIR_BODY = {
    "NegativeLogLikelihoodLoss": [12, 13, 22],
    "SoftmaxCrossEntropyLoss": [12, 13],
    "SwiGLU": [28],
}
"""Operators without a function: they run from the body that their schema has."""

READ = {"Constant"}
"""Operators that are read into stored values, and run no more."""

MISSING: dict[str, list[int]] = {}
"""Schema versions that do not run."""

HINDSIGHT = {("", "GroupNormalization", 18)}
"""Deprecated versions that are registered: they were valid until opset 20."""


def test_every_live_schema_version_runs():
    history = onnx.defs.get_all_schemas_with_history()
    live = {(s.domain, s.name, s.since_version) for s in history if not s.deprecated}
    assert len(live) >= 654
    registered = {(o.domain, o.op_type, v) for o in NATIVE for v in o.versions}
    assert registered - live == HINDSIGHT
    others: dict[str, list[int]] = {}
    for _, name, version in sorted(live - registered):
        others.setdefault(name, []).append(version)
    assert others.keys() >= READ
    assert {n: v for n, v in others.items() if n not in READ} == FROM_THEIR_BODY | MISSING


def test_the_documents_say_that_the_same_versions_run():
    tables = [generator().supported(d) for d in generator().DOMAINS]
    assert {s.domain for s in onnx.defs.get_all_schemas()} == {*generator().DOMAINS}
    lacking = {n: lacks for t in tables for n, (_, lacks) in t.items() if lacks}
    assert lacking == MISSING


def test_registering_twice_raises():
    with pytest.raises(ValueError, match="Relu-14 of domain '' is registered already"):
        registry.register("Relu", 14)(lambda x, /: x)


def test_unknown_static_input_raises():
    with pytest.raises(ValueError, match="static inputs"):
        registry.register("Own", 1, domain="test", static=["shape"])(lambda x, /: x)


@pytest.mark.parametrize(
    ("op_type", "name"),
    [
        ("LeakyRelu", "leaky_relu"),
        ("PRelu", "prelu"),
        ("MatMul", "matmul"),
        ("GatherND", "gather_nd"),
        ("RMSNormalization", "rms_normalization"),
        ("STFT", "stft"),
        ("ReduceL2", "reduce_l2"),
        ("IsNaN", "is_nan"),
        ("And", "and_"),
        ("Not", "not_"),
    ],
)
def test_snake_case(op_type, name):
    assert registry.snake_case(op_type) == name


_BY_SCALE_AND_BIAS = {"scale", "b"}


@pytest.mark.parametrize(
    ("op_type", "weights", "statistics"),
    [
        ("BatchNormalization", _BY_SCALE_AND_BIAS, {"mean", "var"}),
        ("CausalConvWithState", {"weight", "bias"}, set()),
        ("Conv", {"w", "b"}, set()),
        ("ConvTranspose", {"w", "b"}, set()),
        ("DeformConv", {"w", "b"}, set()),
        ("GRU", {"w", "r", "b"}, set()),
        ("Gemm", {"b", "c"}, set()),
        ("GroupNormalization", {"scale", "bias"}, set()),
        ("InstanceNormalization", _BY_SCALE_AND_BIAS, set()),
        ("LSTM", {"w", "r", "b", "p"}, set()),
        ("LayerNormalization", _BY_SCALE_AND_BIAS, set()),
        ("MatMul", {"b"}, set()),
        ("PRelu", {"slope"}, set()),
        ("RMSNormalization", {"scale"}, set()),
        ("RNN", {"w", "r", "b"}, set()),
    ],
)
def test_every_version_names_its_weights_and_statistics(
    op_type: str, weights: set[str], statistics: set[str]
):
    versions = registry.versions_of(op_type)
    found = [registry.lookup(op_type, version) for version in versions]
    assert versions
    for operator in filter(None, found):
        assert operator.weights == weights
        assert {n.removeprefix("input_") for n in operator.statistics} == statistics

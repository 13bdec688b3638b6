"""Every operator takes every dtype that its schema allows: its sample is traced with each."""

import collections
import re
from typing import Any

import jax
import numpy as np
import onnx
import pytest
import samples
from onnx import helper

import jaxonnx
from jaxonnx.define import registry
from jaxonnx.define.dtypes import STRING
from jaxonnx.define.schema import onnx_signature
from jaxonnx.errors import JaxonnxError

REFUSED = {
    "BitCast": ("of size .* bits|complex", "it keeps the width; XLA reads no bits of complex ones"),
    "DequantizeLinear": (
        "output_dtype is float8_e8m0fnu",
        "the result has the type of the scale unless output_dtype names one, and e8m0 is none",
    ),
    "MaxRoiPool": ("another input of type T", "the sample's regions have a type of their own"),
    "QuantizeLinear": ("XLA does not compute with float6", "XLA has no float6"),
    "Scan": ("expected one of", "the sample's body adds, and Add has fewer types"),
    "ai.onnx.ml::Imputer": ("exactly imputed_value_int64s", "the sample's attributes are floats"),
    "ai.onnx.ml::LabelEncoder": ("the keys are int64", "the sample's attributes are integers"),
    "ai.onnx.preview::FlexAttention": ("another input of type T", "the sample's graph is single"),
}
"""Operators that refuse a dtype of their schema: what is said, and why."""

ONE_NODE = {n: s for n, s in samples.samples().items() if len(s.model.graph.node) == 1}


def variables(name: str) -> dict[str, tuple[frozenset[np.dtype], set[str]]]:
    """The dtypes of each type variable of a sample's node, and the inputs that have it."""
    domain, _, op_type = name.rpartition("::")
    model = ONE_NODE[name].model
    opsets = {registry.normalize_domain(o.domain): o.version for o in model.opset_import}
    version = registry.version_in_force(op_type, opsets[domain], domain)
    assert version is not None
    signature = onnx_signature(op_type, version, domain)
    assert signature is not None
    found: dict[str, Any] = collections.defaultdict(lambda: (frozenset(), set()))
    for position, given in enumerate(model.graph.node[0].input):
        formal = signature.input(position)
        if given in ONE_NODE[name].inputs and formal is not None and formal.dtypes is not None:
            found[formal.variable] = formal.dtypes, found[formal.variable][1] | {given}
    return found


def retyped(sample: samples.Sample, names: set[str], dtype: np.dtype) -> samples.Sample:
    """A sample with some of its inputs in another dtype."""
    model = onnx.ModelProto.FromString(sample.model.SerializeToString())
    for info in model.graph.input:
        if info.name in names:
            info.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(dtype)
    for info in model.graph.output:
        info.ClearField("type")
    with np.errstate(all="ignore"):
        inputs = {
            n: v.astype(np.float32).astype(dtype) if n in names else v
            for n, v in sample.inputs.items()
        }
    return samples.Sample(model, inputs)


def trace(sample: samples.Sample) -> None:
    with jax.enable_x64(True):
        model = jaxonnx.load(sample.model)
        static = {n: v for n, v in sample.inputs.items() if n in model.static_inputs}
        traced = {n: v for n, v in sample.inputs.items() if n not in static}
        jax.eval_shape(lambda given: jax.tree.leaves(model({**static, **given})), traced)


@pytest.mark.parametrize("name", ONE_NODE)
def test_every_dtype_of_the_schema(name):
    refused = []
    for dtypes, names in variables(name).values():
        for dtype in sorted(dtypes - {STRING}, key=lambda d: d.name):
            try:
                trace(retyped(ONE_NODE[name], names, dtype))
            except JaxonnxError as error:
                refused.append(f"{dtype}: {error}")
    text, _ = REFUSED.get(name, ("", ""))
    assert not [r for r in refused if not text or not re.search(text, r)]
    assert bool(refused) == bool(text)


def test_the_refused_are_samples():
    assert REFUSED.keys() <= ONE_NODE.keys()

"""A small model and inputs for every operator that one compiled program can hold."""

import dataclasses
import functools

import numpy as np
import onnx
import onnx.parser
from conformance.suite import load_cases

from jaxonnx.define import registry
from jaxonnx.define.dtypes import dtype_of

_SEQUENCE = """(float[2] x, float[2] z) => (float[4] y, int64 n, float[2] a) <int64 k = {1}> {
    e = SequenceEmpty() r = SequenceConstruct(x, z) s = SequenceInsert(r, x)
    t = SequenceErase(s, k) a = SequenceAt(t, k) n = SequenceLength(e)
    y = ConcatFromSequence<axis = 0>(t) }"""
_SPLIT = """(float[2, 3] x) => (float[6] y) {
    s = SplitToSequence<axis = 0, keepdims = 0>(x)
    m = SequenceMap<body = b (float[3] e) => (float[3] f) { f = Sin(e) }>(s)
    y = ConcatFromSequence<axis = 0>(m) }"""
_SPLITS = """nodes_nodeids = [0, 1, 2], nodes_treeids = [0, 0, 0],
    nodes_featureids = [1, 0, 0], nodes_values = [0.1, 0.0, 0.0],
    nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids = [1, 0, 0],
    nodes_falsenodeids = [2, 0, 0]"""

_TEXTS = {
    "ConcatFromSequence": _SEQUENCE,
    "GlobalLpPool": "(float[1, 2, 3] x) => (float[1, 2, 1] y) { y = GlobalLpPool<p = 3>(x) }",
    "Loop": """(float[2] x) => (float[2] y, float[3, 2] s) <int64 n = {3}, bool yes = {1}> {
        y, s = Loop<body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w, float[2] u) {
            d = Identity(c) w = Mul(v, x) u = Sin(v) }>(n, yes, x) }""",
    "MaxRoiPool": """(float[1, 1, 4, 4] x) => (float[1, 1, 2, 2] y)
        <float[1, 5] rois = {0, 0, 0, 2, 3}> { y = MaxRoiPool<pooled_shape = [2, 2]>(x, rois) }""",
    "Optional": "(float[2] x) => (float[2] y) { o = Optional(x) y = OptionalGetElement(o) }",
    **dict.fromkeys(
        (
            *("SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase"),
            *("SequenceInsert", "SequenceLength"),
        ),
        _SEQUENCE,
    ),
    "SequenceMap": _SPLIT,
    "SplitToSequence": _SPLIT,
    "ai.onnx.ml::FeatureVectorizer": """(float[2, 1] x, float[2, 2] z) => (float[2, 3] y) {
        y = ai.onnx.ml.FeatureVectorizer<inputdimensions = [1, 2]>(x, z) }""",
    "ai.onnx.ml::Imputer": """(float[2, 2] x) => (float[2, 2] y) {
        y = ai.onnx.ml.Imputer<imputed_value_floats = [2.0], replaced_value_float = -1.0>(x) }""",
    "ai.onnx.ml::LabelEncoder": """(int64[2] x) => (float[2] y) {
        y = ai.onnx.ml.LabelEncoder<keys_int64s = [0, 1], values_floats = [2.0, 3.0]>(x) }""",
    "ai.onnx.ml::LinearClassifier": """(float[2, 2] x) => (int64[2] label, float[2, 3] y) {
        label, y = ai.onnx.ml.LinearClassifier<coefficients = [1.0, 0.5, -1.0, 0.3, 0.2, 0.7],
            intercepts = [0.1, 0.0, 0.2], classlabels_ints = [3, 5, 7],
            post_transform = "SOFTMAX">(x) }""",
    "ai.onnx.ml::LinearRegressor": """(float[2, 2] x) => (float[2, 1] y) {
        y = ai.onnx.ml.LinearRegressor<coefficients = [1.0, 0.5], intercepts = [0.1]>(x) }""",
    "ai.onnx.ml::Normalizer": """(float[2, 2] x) => (float[2, 2] y) {
        y = ai.onnx.ml.Normalizer<norm = "L2">(x) }""",
    "ai.onnx.ml::OneHotEncoder": """(float[2] x) => (float[2, 2] y) {
        y = ai.onnx.ml.OneHotEncoder<cats_int64s = [0, 1]>(x) }""",
    "ai.onnx.ml::SVMClassifier": """(float[2, 2] x) => (int64[2] label, float[2, 2] y) {
        label, y = ai.onnx.ml.SVMClassifier<classlabels_ints = [3, 5], coefficients = [0.5, -0.7],
            kernel_params = [0.4, 0.0, 3.0], kernel_type = "RBF", post_transform = "LOGISTIC",
            rho = [0.2], support_vectors = [0.5, 1.0, -1.0, 0.3],
            vectors_per_class = [1, 1]>(x) }""",
    "ai.onnx.ml::SVMRegressor": """(float[2, 2] x) => (float[2, 1] y) {
        y = ai.onnx.ml.SVMRegressor<coefficients = [0.5, -0.7], kernel_params = [0.4, 0.0, 3.0],
            kernel_type = "RBF", n_supports = 2, rho = [0.2],
            support_vectors = [0.5, 1.0, -1.0, 0.3]>(x) }""",
    "ai.onnx.ml::Scaler": """(float[2, 2] x) => (float[2, 2] y) {
        y = ai.onnx.ml.Scaler<offset = [0.5], scale = [2.0]>(x) }""",
    "ai.onnx.ml::TreeEnsembleClassifier": f"""(float[2, 2] x) => (int64[2] label, float[2, 2] y) {{
        label, y = ai.onnx.ml.TreeEnsembleClassifier<{_SPLITS}, classlabels_int64s = [3, 5],
            class_ids = [0, 1], class_nodeids = [1, 2], class_treeids = [0, 0],
            class_weights = [1.0, 2.0]>(x) }}""",
    "ai.onnx.ml::TreeEnsembleRegressor": f"""(float[2, 2] x) => (float[2, 1] y) {{
        y = ai.onnx.ml.TreeEnsembleRegressor<{_SPLITS}, n_targets = 1, target_ids = [0, 0],
            target_nodeids = [1, 2], target_treeids = [0, 0], target_weights = [1.0, 2.0]>(x) }}""",
}
"""Models for operators without a case in ONNX's suite, or with none that is one program."""

_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform")
WITHOUT_SAMPLE = {
    **dict.fromkeys((*_RANDOM, "RandomUniformLike"), "test_random.py transforms them with a key"),
    "ai.onnx.preview.training::Gradient": "it differentiates a part of a graph: test_gradient.py",
    "ai.onnx.ml::CategoryMapper": "one of its sides is text, and text is in no compiled program",
}
"""Operators, not of the host, that have no sample, and why."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """A model and a value for each of its inputs."""

    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]


def title(op_type: str, domain: str) -> str:
    """The name of an operator with its domain unless that is ONNX's own."""
    return f"{domain}::{op_type}" if domain else op_type


def operators(*, host: bool) -> set[str]:
    """The registered operators of ONNX's domains that do, or do not, run on the host."""
    known = [o for o in registry.registered() if registry.has_schema(o.op_type, o.domain)]
    return {title(o.op_type, o.domain) for o in known if o.host is host}


@functools.cache
def samples() -> dict[str, Sample]:
    """A model by hand, or the suite's smallest case, of every operator that has one."""
    written = {name: _written(text) for name, text in _TEXTS.items()}
    return dict(sorted({**_smallest_cases(), **written}.items()))


def _written(text: str) -> Sample:
    imports = 'opset_import: ["" : 22, "ai.onnx.ml" : 3]'
    model = onnx.parser.parse_model(f"<ir_version: 10, {imports}> g {text}")
    inputs = {}
    for k, info in enumerate(model.graph.input):
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        numbers = np.cos(np.arange(np.prod(shape)) + k)
        inputs[info.name] = numbers.reshape(shape).astype(dtype_of(info.type.tensor_type.elem_type))
    return Sample(model, inputs)


def _smallest_cases() -> dict[str, Sample]:
    """The smallest case of every operator, one with floats if there is one."""
    wanted = operators(host=False) - _TEXTS.keys() - WITHOUT_SAMPLE.keys()
    found = {}
    for case in load_cases():
        if case.kind != "node" or case.expanded or case.operator not in wanted:
            continue
        inputs, outputs = case.data_sets[0]
        values = [*inputs, *outputs]
        if not all(isinstance(v, np.ndarray) and v.dtype.kind in "biufcV" for v in values):
            continue
        floats = any(v.dtype in (np.float32, np.float64) and v.size for v in inputs)
        empty = any(v.size == 0 for v in outputs)
        size = (not floats, empty, sum(v.nbytes for v in values))
        if case.operator not in found or size < found[case.operator][0]:
            found[case.operator] = size, case
    chosen = {}
    for name, (_, case) in found.items():
        model = onnx.ModelProto.FromString(case.model)
        names = [i.name for i in model.graph.input]
        chosen[name] = Sample(model, dict(zip(names, case.data_sets[0][0], strict=True)))
    return chosen

"""Symbolic dimensions made from what a model declares."""

import jax
import numpy as np
import pytest
from helpers import assert_close, f32, text_model
from onnx import helper

import jaxonnx
from jaxonnx.errors import InputError
from jaxonnx.graph.plan import Spec
from jaxonnx.run.dims import abstract, identifiers

FLOAT = np.dtype(np.float32)


def shapes(*declared, constraints=()):
    """The symbolic shapes of inputs of these declared ones, as text."""
    specs = [Spec(f"x{k}", FLOAT, shape) for k, shape in enumerate(declared)]
    return [str(s.shape) for s in abstract(specs, constraints).values()]


def test_identifiers():
    names = ["N", "batch size", "p2o.DynamicDimension.0", "batch_size", "1", "min", "if", "é", "-"]
    assert identifiers(names) == {
        "N": "N",
        "batch size": "batch_size",
        "p2o.DynamicDimension.0": "p2o_DynamicDimension_0",
        "batch_size": "batch_size_2",
        "1": "d_1",
        "min": "d_min",
        "if": "d_if",
        "é": "dim",
        "-": "dim_2",
    }


def test_equal_names_are_equal_dimensions_and_unknown_ones_are_apart():
    assert shapes(("N", 3, None), ("N", "?"), ()) == ["(N, 3, x0_2)", "(N, x1_1)", "()"]


def test_names_that_compute_with_others():
    """Decoders declare their mask as ``[batch, past + sequence]``."""
    assert shapes(("B", "past"), ("B", "seq"), ("B", "past + seq"), ("2*seq",)) == [
        "(B, past)",
        "(B, seq)",
        "(B, seq + past)",
        "(2*seq,)",
    ]


def test_names_that_compute_with_unknown_ones_are_names():
    assert shapes(("B", "past + seq"), ("past",)) == ["(B, past_seq)", "(past,)"]


def test_constraints_use_either_spelling():
    declared = ("batch size", "batch size total")
    for constraint in ("batch size<=8", "batch_size<=8"):
        (shape,) = abstract([Spec("x", FLOAT, declared)], [constraint]).values()
        assert str(shape.shape) == "(batch_size, batch_size_total)"
        assert shape.shape[0] <= 8


@pytest.mark.parametrize("spec", [Spec("x", FLOAT, None), Spec("x", None, ("N",))])
def test_input_without_rank_or_dtype(spec):
    with pytest.raises(InputError, match="input 'x' has no declared rank or dtype: "):
        abstract([spec], [])


def test_export_with_a_sum_of_dimensions():
    infos = [
        helper.make_tensor_value_info(n, 1, [d])
        for n, d in (("a", "P"), ("b", "S"), ("mask", "P + S"))
    ]
    nodes = [
        helper.make_node("Concat", ["a", "b"], ["c"], axis=0),
        helper.make_node("Mul", ["c", "mask"], ["y"]),
    ]
    made = [helper.make_tensor_value_info("y", 1, ["P + S"])]
    opsets = [helper.make_opsetid("", 18)]
    graph = helper.make_graph(nodes, "g", infos, made)
    model = jaxonnx.load(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    exported = jax.export.export(jax.jit(model.apply))(model.params, model.abstract_inputs())
    a, b, mask = f32([1]), f32([2, 3]), f32([1, 0, 1])
    result = exported.call({}, {"a": a, "b": b, "mask": mask})
    assert_close(result, f32([1, 0, 3]))


@pytest.mark.parametrize(
    "text",
    [
        "(int64[N] x) => (int64[M] y) "
        "{ s = Shape(x) f = ConstantOfShape(s) z = CastLike(f, x) y = Add(x, z) }",
        "(int64[N] x) => (int64[M] y) "
        "{ n = Size(x) a = Constant<value_int=0>() b = Constant<value_int=1>() r = Range(a, n, b) "
        "y = Sub(x, r) }",
        "(int64[N] x) => (int64[M] y) "
        "{ s = Shape(x) a = Constant<value_int=0>() z = Expand(a, s) y = Add(x, z) }",
    ],
)
def test_export_of_arrays_whose_size_is_symbolic(text):
    model = jaxonnx.load(text_model(text))
    x = np.arange(5)
    with jax.enable_x64(True):
        exported = jax.export.export(jax.jit(model.apply))(model.params, model.abstract_inputs())
        assert_close(exported.call({}, {"x": x}), model(x))


def _declared():
    model = text_model("(float[B, S] x, float[M] z) => (y) { y = Abs(x) }")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch size"
    model.graph.input[1].type.tensor_type.shape.dim[0].ClearField("value")
    return model


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ("S<=512", r"constraints is a string, expected a list such as \['S<=512'\]"),
        ([512], "constraints: 512 is no string such as 'S<=512'"),
        (["T<=512"], "'T<=512' speaks of 'T'; the dimensions .* are 'batch size', 'S', 'z_0'"),
        (["S<=T + U"], "speaks of 'T', 'U'"),
        (["batch sise<=512"], "speaks of 'batch', 'sise'"),
        (["S<=512 extra"], "speaks of 'extra'"),
        (["S<=512 5"], "'S<=512 5' is not of a form such as .* the dimensions of the inputs are"),
        (["S<="], "'S<=' is not of a form such as"),
        (["S<5"], "'S<5' is not of a form such as"),
        (["S=5"], "'S=5' is not of a form such as"),
        (["S>=2", ""], "'' is not of a form such as"),
    ],
)
def test_constraints_are_checked_at_load(constraints, message):
    with pytest.raises(InputError, match=message):
        jaxonnx.load(_declared(), constraints=constraints)


def test_constraints_of_named_and_unnamed_dimensions():
    constraints = ["batch size>=2", "batch_size<=8", "mod(S, 8)==0", "z_0<=max(S, 3)"]
    model = jaxonnx.load(_declared(), constraints=constraints)
    assert str(model.abstract_inputs()["x"].shape) == "(batch_size, S)"


def test_constraints_of_a_model_without_open_dimensions():
    with pytest.raises(InputError, match="the dimensions of the inputs are none"):
        jaxonnx.load(text_model("(float[2] x) => (y) { y = Abs(x) }"), constraints=["S>=2"])

"""Gradient nodes, which differentiate a part of the graph that they are in."""

import pickle

import chex
import jax
import numpy as np
import onnx
import onnx.parser
import pytest
from helpers import assert_close, assert_same, f32, i64

import jaxonnx

HEADER = '<ir_version: 10, opset_import: ["" : 18, "ai.onnx.preview.training" : 1, "own" : 1]>'


def load(text, functions="", **options):
    return jaxonnx.load(onnx.parser.parse_model(f"{HEADER} g {text} {functions}"), **options)


def call(xs, y, zs=(), inputs=()):
    """The text of a Gradient node, fed with the values of its own names unless others are given."""
    attributes = f'xs = [{quoted(xs)}], y = "{y}"' + (f", zs = [{quoted(zs)}]" if zs else "")
    return f"ai.onnx.preview.training.Gradient <{attributes}> ({', '.join(inputs or (*xs, *zs))})"


def quoted(names):
    return ", ".join(f'"{n}"' for n in names)


CUBE = "(float[2] x, float[2] z) => (float[2] d) {{ y = Mul(x, x) w = Mul(y, z) d = {} }}"


def test_derivative_by_an_input():
    model = load(CUBE.format(call(["x"], "w", ["z"])))
    x, z = f32([2, 3]), f32([5, 7])
    assert_close(model(x, z), 2 * x * z)
    assert_close(jax.grad(lambda x: model(x, z).sum())(x), 2 * z)
    pairs = np.stack([x, z]), np.stack([z, x])
    assert_close(jax.vmap(model)(*pairs), 2 * pairs[0] * pairs[1])


def test_derivative_by_an_intermediate_value():
    model = load(CUBE.format(call(["y"], "w", ["z"])))
    assert_close(model(f32([2, 3]), f32([5, 7])), f32([5, 7]))


def test_derivative_at_another_value():
    model = load(CUBE.format(call(["x"], "w", ["z"], ["z", "x"])))
    x, z = f32([2, 3]), f32([5, 7])
    assert_close(model(x, z), 2 * z * x)


def test_inputs_that_are_not_named_are_constants():
    model = load(CUBE.format(call(["x"], "w")))
    assert_close(model(f32([2, 3]), f32([5, 7])), f32([20, 42]))


def test_derivatives_of_derivatives():
    text = f"""(float[2] x) => (float[2] d, float[2] e) {{
        square = Mul(x, x) y = Mul(square, x)
        d = {call(["x"], "y")}
        e = {call(["x"], "d")}
    }}"""
    x = f32([2, 3])
    result = load(text)(x)
    assert_close(result["d"], 3 * x * x)
    assert_close(result["e"], 6 * x)


def test_the_order_in_the_file_does_not_matter_and_outputs_can_be_left_out():
    text = """(float[2] x, float[2] z) => (float[2] e) <float two = {2}> {
        y = Mul(scaled, z)
        scaled = Mul(x, two)
    }"""
    model = onnx.parser.parse_model(f"{HEADER} g {text}")
    node = onnx.helper.make_node(
        "Gradient", ["x", "z"], ["", "e"], domain="ai.onnx.preview.training", xs=["x", "z"], y="y"
    )
    model.graph.node.insert(0, node)
    assert_close(jaxonnx.load(model)(f32([2, 3]), f32([5, 7])), f32([4, 6]))


def test_weights_and_control_flow_inside():
    text = f"""(float[2] x, bool c) => (float[2] d) <float[2] weight = {{3, 4}}> {{
        y = If (c) <then_branch = t () => (float[2] a) {{ a = Mul(x, weight) }},
                    else_branch = e () => (float[2] b) {{ b = Exp(x) }}>
        d = {call(["x"], "y")}
    }}"""
    model = load(text)
    x = f32([0, 1])
    assert_close(model(x, np.array(True)), f32([3, 4]))
    assert_close(model(x, np.array(False)), np.exp(x))
    assert list(model.params) == ["weight"]
    by_weight = jax.grad(lambda m: m(x, np.array(True)).sum())(model).params["weight"]
    assert_close(by_weight, f32([1, 1]))


def test_inside_a_function_and_a_branch():
    imports = '["" : 18, "ai.onnx.preview.training" : 1]'
    body = f"""<domain: "own", opset_import: {imports}> slope (v) => (d) {{
        y = Mul(v, v)
        d = {call(["v"], "y")}
    }}"""
    text = """(float[2] x, bool c) => (float[2] d) {
        d = If (c) <then_branch = t () => (float[2] a) { a = own.slope(x) },
                    else_branch = e () => (float[2] b) { b = Neg(x) }>
    }"""
    model = load(text, body)
    assert_close(model(f32([2, 3]), np.array(True)), f32([4, 6]))


def test_a_step_of_training_as_a_graph():
    """SGD with Momentum on a linear model: three steps lower the loss as by hand."""
    text = f"""(float[4, 2] x, float[4, 1] t, float[2, 1] w, float[2, 1] v, int64 n, float r)
        => (float loss, float[2, 1] w1, float[2, 1] v1) {{
        p = MatMul(x, w)
        e = Sub(p, t)
        s = Mul(e, e)
        loss = ReduceMean <keepdims = 0> (s)
        g = {call(["w"], "loss", ["x", "t"])}
        w1, v1 = ai.onnx.preview.training.Momentum
            <alpha = 0.9, beta = 1.0, mode = "standard", norm_coefficient = 0.0> (r, n, w, g, v)
    }}"""
    model = load(text)
    x = f32([[1, 0], [0, 1], [1, 1], [2, -1]])
    t = x @ f32([[1], [-2]])
    w = v = mine = speed = np.zeros((2, 1), np.float32)
    losses = []
    for step in range(3):
        loss, w, v = model(x, t, w, v, i64(step), f32(0.1))
        speed = 0.9 * speed + 2 * x.T @ (x @ mine - t) / 4
        mine = mine - 0.1 * speed
        losses.append(float(loss))
        assert_close(w, f32(mine))
    assert losses[0] > losses[1] > losses[2]


def test_doubles_and_halves():
    for kind, dtype in (("double", np.float64), ("float16", np.float16)):
        text = CUBE.replace("float", kind).format(call(["x"], "w", ["z"]))
        x, z = np.array([2, 3], dtype), np.array([5, 7], dtype)
        with jax.enable_x64(kind == "double"):
            assert_close(load(text)(x, z), 2 * x * z)


def test_it_survives_pickling_and_is_exported():
    model = load(CUBE.format(call(["x"], "w", ["z"])))
    again = pickle.loads(pickle.dumps(model))
    x, z = f32([2, 3]), f32([5, 7])
    assert_same(again(x, z), model(x, z))
    traces = chex.assert_max_traces(lambda x: again(x, z), n=1)
    assert_close(jax.jit(traces)(x), 2 * x * z)
    exported = model.export(platforms=["cpu", "cuda", "rocm", "tpu"])
    assert_close(exported.call({}, {"x": x, "z": z}), 2 * x * z)


@pytest.mark.parametrize(
    ("gradient", "message"),
    [
        (call(["x"], "nothing"), r"y is 'nothing', which no node of its graph gives"),
        (call(["x"], "w", inputs=["x", "z"]), r"2 inputs, expected 1 for xs and zs"),
        (call(["x"], "whole"), r"y 'whole' is no array of floats"),
        (call(["whole"], "w"), r"'whole' in xs is int32, expected floats"),
    ],
)
def test_what_is_refused(gradient, message):
    text = CUBE.format(gradient).replace("{ y", "{ whole = Cast <to = 6> (x) y")
    with pytest.raises(jaxonnx.InvalidModelError, match=message):
        load(text)(f32([2, 3]), f32([5, 7]))

"""``load(..., training=True)``: statistics as state, dropout by a key, and back to inference."""

from typing import Any

import jax
import numpy as np
import onnx
import pytest
from helpers import assert_close, assert_same, f32, text_model
from onnx import helper

import jaxonnx
from jaxonnx.errors import InputError

KEY = jax.random.key(3)
X = f32([[1, 10], [3, 30], [5, 20]])
NORM = """(float[N, 2] x) => (float[N, 2] y)
    <float[2] s = {1, 2}, float[2] b = {0, 1}, float[2] mean = {0.5, 0.25}, float[2] var = {1, 4}> {
    h = BatchNormalization <epsilon = 0.0, momentum = 0.5%s> (x, s, b, mean, var)
    y = Relu(h)
}"""


def normalization(opset, **options):
    text = NORM % (", is_test = 1" if opset == 6 else "")
    return jaxonnx.load(text_model(text, opset=opset), **options)


@pytest.mark.parametrize("opset", [6, 7, 9, 14, 15])
def test_batch_normalization_trains(opset):
    """Means 3 and 20, population variances 8/3 and 200/3."""
    model = normalization(opset, training=True)
    assert {n: v.tolist() for n, v in model.state.items()} == {"mean": [0.5, 0.25], "var": [1, 4]}
    assert list(model.params) == ["s", "b"]
    y, state = model.apply(model.params, X, state=model.state)
    expected = (X - X.mean(0)) / X.std(0) * f32([1, 2]) + f32([0, 1])
    assert_close(y, np.maximum(expected, 0))
    assert_close(state["mean"], f32([1.75, 10.125]))
    assert_close(state["var"], (f32([1, 4]) + f32([8 / 3, 200 / 3])) / 2)
    again, later = model.apply(model.params, X, state=state)
    assert_close(again, np.asarray(y))
    assert_close(later["mean"], (state["mean"] + X.mean(0)) / 2)
    assert_close(model(X), np.asarray(y))  # without a state only the outputs


def test_without_training_there_is_no_state():
    model = normalization(15)
    assert model.state == {}
    assert_close(model.apply(model.params, X, state={})[0], np.asarray(model(X)))


def test_training_and_then_inference(tmp_path):
    """The trained weights and statistics go into a plain model, and into its file."""
    model = normalization(15, training=True)

    @jax.jit
    def step(params, state, x):
        def loss(params):
            y, new = model.apply(params, x, state=state)
            return (y**2).mean(), new

        (_, new), slope = jax.value_and_grad(loss, has_aux=True)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, slope), new

    params, state = model.params, model.state
    for _ in range(3):
        params, state = step(params, state, X)
    plain = normalization(15).replace({**params, **state})
    expected = (X - state["mean"]) / np.sqrt(state["var"]) * params["s"] + params["b"]
    assert_close(plain(X), np.maximum(np.asarray(expected), 0))
    plain.save(tmp_path / "tuned.onnx")
    assert_same(jaxonnx.load(tmp_path / "tuned.onnx")(X), plain(X))
    model.replace({**params, **state}).save(tmp_path / "same.onnx")
    saved = [onnx.load(tmp_path / f"{n}.onnx") for n in ("tuned", "same")]
    assert saved[0] == saved[1]  # training changes no node of the file


def test_a_statistic_is_replaced_in_a_plain_model_only():
    model = normalization(15)
    other = model.replace({"mean": f32([0, 0])})
    assert other.stored["mean"].tolist() == [0, 0]
    assert model.stored["mean"].tolist() == [0.5, 0.25]
    with pytest.raises(InputError, match="'mean' is a statistic: replace it outside of a trace"):
        jax.jit(lambda v: model.replace({"mean": v})(X))(f32([0, 0]))
    with pytest.raises(InputError, match="'mean' is a statistic"):
        model.inference().replace({"mean": f32([0, 0])})
    with pytest.raises(InputError, match="no weight or statistic is called 'men'; did you mean"):
        model.replace({"men": f32([0, 0])})
    with pytest.raises(InputError, match=r"'mean' is float32\[3\], expected float32\[2\]"):
        model.replace({"mean": f32([0, 0, 0])})


@pytest.mark.parametrize("opset", [6, 7, 10, 12, 22])
def test_dropout_trains_with_a_key(opset):
    attributes: Any = {"ratio": 0.25} if opset < 12 else {}
    attributes |= {"is_test": 1} if opset == 6 else {}
    inputs = ["x"] if opset < 12 else ["x", "ratio"]
    ratio = [helper.make_tensor("ratio", 1, [], [0.25])] if opset >= 12 else []
    for outputs in (["y"], ["y", "mask"]):
        node = helper.make_node("Dropout", inputs, outputs, **attributes)
        infos = [helper.make_tensor_value_info("x", 1, [1000])]
        ends = [helper.make_empty_tensor_value_info(o) for o in outputs]
        graph = helper.make_graph([node], "g", infos, ends, ratio)
        imports = [helper.make_opsetid("", opset)]
        proto = helper.make_model(graph, opset_imports=imports, ir_version=10)
        x = np.ones(1000, np.float32)
        plain, model = jaxonnx.load(proto), jaxonnx.load(proto, training=True)
        assert_close(jax.tree.leaves(plain(x))[0], x)
        y = np.asarray(jax.tree.leaves(model(x, key=KEY))[0])
        assert set(y.tolist()) == {0, np.float32(4 / 3)}
        assert 0.7 < np.mean(y > 0) < 0.8
        with pytest.raises(InputError, match="neither a seed nor a key"):
            model(x)


def test_dropout_inside_of_a_branch_trains_too():
    text = """(float[100] x, bool c) => (float[100] y) {
        y = If (c) <then_branch = t () => (float[100] a) { a = Dropout(x) },
                    else_branch = e () => (float[100] b) { b = Neg(x) }>
    }"""
    model = jaxonnx.load(text_model(text), training=True)
    y = model(np.ones(100, np.float32), np.array(True), key=KEY)
    assert set(np.asarray(y).tolist()) == {0, 2}


def test_an_input_called_state_is_one_still():
    text = "(float[2] x, float[2] state) => (float[2] y) { y = Add(x, state) }"
    model = jaxonnx.load(text_model(text))
    assert_close(model.apply({}, f32([1, 2]), state=f32([3, 4])), f32([4, 6]))
    y, new = model.apply({}, f32([1, 2]), f32([3, 4]), state={})
    assert_close(y, f32([4, 6]))
    assert new == {}


def test_it_goes_with_what_is_inside():
    model = normalization(15, training=True)
    h = model.capture(X, "h")["h"]
    y, state = model.apply(model.params, X, state=model.state, patch={"h": lambda h: -h})
    assert_close(y, np.maximum(-np.asarray(h), 0))
    assert_close(state["mean"], f32([1.75, 10.125]))

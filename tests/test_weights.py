"""Weights in files of their own, and models of which only some weights are leaves."""

import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import optax
import pytest
from helpers import assert_close, f32, text_model

import jaxonnx
from jaxonnx.errors import InputError

PERCEPTRON = """(float[N, 2] x) => (float[N, 2] y)
<float[2, 3] body_w = {1, 2, 3, 4, 5, 6}, float[3] body_b = {0.1, 0.2, 0.3},
 float[3, 2] head_w = {1, 0, 0, 1, 1, 1}, float scale = {2}> {
    h = MatMul(x, body_w)
    shifted = Add(h, body_b)
    active = Relu(shifted)
    z = MatMul(active, head_w)
    y = Mul(z, scale)
}"""
X = f32([[1, 2], [3, -1]])


def perceptron():
    return jaxonnx.load(text_model(PERCEPTRON))


def test_only_what_matches_is_a_leaf():
    model = perceptron()
    head = model.trainable("head_*")
    assert [*head.params] == ["head_w"]
    assert_close(head(X), model(X))
    gradient = jax.grad(lambda m: m(X).sum())(head).params
    wanted = jax.grad(lambda m: m(X).sum())(model).params["head_w"]
    assert_close(gradient["head_w"], wanted)
    assert {n: s.role for n, s in head._program.plan.stored.items()} == {
        "body_w": "constant",
        "body_b": "constant",
        "scale": "constant",
        "head_w": "weight",
    }


def test_leaves_may_change_again_and_be_constants_of_before():
    model = perceptron().replace({"body_w": f32([[6, 5, 4], [3, 2, 1]])})
    again = model.trainable("head_*").trainable("body_*", "scale")
    assert [*again.params] == ["body_w", "body_b", "scale"]
    assert_close(again(X), model(X))
    assert again.trainable("*_w", "body_b").params.keys() == model.params.keys()
    assert jax.tree.structure(model.trainable("*_w", "body_b")) == jax.tree.structure(model)


def test_what_is_frozen_is_an_argument_of_a_step_that_takes_it():
    proto = text_model("""(float[N, 256] x) => (float[N, 2] y)
    <float[256, 2] head = {}> { h = MatMul(x, body) z = MatMul(h, head) y = Softmax(z) }""")
    rng = np.random.default_rng(0)
    del proto.graph.initializer[:]
    for name, shape in (("body", (256, 256)), ("head", (256, 2))):
        values = rng.normal(size=shape).astype(np.float32) / 16
        proto.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    head = jaxonnx.load(proto).trainable("head")
    tuned, x = head.inference(), rng.normal(size=(1, 256)).astype(np.float32)
    assert len(jax.tree.leaves(tuned)) == 2
    optimizer = optax.sgd(1e-2)

    @jax.jit
    def step(params, state, tuned, x):
        loss = lambda params: -jnp.log(tuned.replace(params)(x)[0, 1] + 1e-6)
        value, slope = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(slope, state)
        return optax.apply_updates(params, updates), state, value

    params, state, values = head.params, optimizer.init(head.params), []
    for _ in range(3):
        params, state, value = step(params, state, tuned, x)
        values.append(float(value))
    assert values[2] < values[0]
    text = step.lower(params, state, tuned, x).as_text()
    assert len(text) < 2**16  # the 256 KiB of what is frozen would be 512 KiB of text


def test_a_frozen_model_is_saved_whole(tmp_path):
    model = perceptron().replace({"body_w": f32([[6, 5, 4], [3, 2, 1]])})
    head = model.trainable("head_*").replace({"head_w": f32([[3, 2], [1, 0], [1, 1]])})
    head.save(tmp_path / "tuned.onnx")
    assert_close(jaxonnx.load(tmp_path / "tuned.onnx")(X), head(X))


def test_patterns_that_match_nothing_are_refused():
    with pytest.raises(InputError, match=r"trainable: .*'haed_w'"):
        perceptron().trainable("haed_w")
    with pytest.raises(InputError, match="leaves are chosen outside of a trace"):
        perceptron().inference().trainable("head_*")
    with pytest.raises(InputError, match="leaves are chosen outside of a trace"):
        jax.jit(lambda m: m.trainable("head_*")(X))(perceptron())


def test_weights_and_statistics_go_to_a_file_and_back(tmp_path):
    text = """(float[N, 2] x) => (float[N, 2] y)
    <float[2] s = {1, 2}, float[2] b = {0, 1}, float[2] mean = {0, 3}, float[2] var = {1, 4}> {
        y = BatchNormalization(x, s, b, mean, var)
    }"""
    model = jaxonnx.load(text_model(text))
    tuned = model.replace({"s": f32([3, 4]), "var": f32([9, 16])})
    tuned.save(tmp_path / "w.safetensors", format="safetensors")
    assert [p.name for p in tmp_path.iterdir()] == ["w.safetensors"]
    again = model.load_params(tmp_path / "w.safetensors")
    assert again.stored.keys() == tuned.stored.keys()
    for name, value in tuned.stored.items():
        np.testing.assert_array_equal(again.stored[name], value)
    assert_close(again(X), tuned(X))


def test_other_libraries_read_the_file(tmp_path):
    from safetensors.numpy import load_file, save_file

    model, path = perceptron(), tmp_path / "w.safetensors"
    model.save(path, format="safetensors")
    values = load_file(path)
    assert values.keys() == model.params.keys()
    np.testing.assert_array_equal(values["body_w"], [[1, 2, 3], [4, 5, 6]])
    save_file({**values, "body_b": f32([1, 1, 1])}, path)
    assert_close(model.load_params(path).params["body_b"], f32([1, 1, 1]))


def test_every_floating_type_is_kept(tmp_path):
    from jaxonnx.write.weights import read_weights, write_weights

    dtypes = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]
    values = {np.dtype(d).name: np.asarray([[1, -2.5]], d) for d in dtypes}
    values["scalar"] = f32(3)
    values["transposed"] = f32([[1, 2], [3, 4]]).T
    write_weights(tmp_path / "w", values)
    for name, value in read_weights(tmp_path / "w").items():
        assert_close(value, values[name])
    with pytest.raises(InputError, match="no type for 'i': int4"):
        write_weights(tmp_path / "w", {"i": np.zeros(2, ml_dtypes.int4)})


def test_files_that_do_not_fit_are_refused(tmp_path):
    from jaxonnx.write.weights import write_weights

    model, path = perceptron(), tmp_path / "w.safetensors"
    write_weights(path, {"body_w": f32([[1, 2, 3], [4, 5, 6]])})
    with pytest.raises(InputError, match="the weight 'body_b' is missing"):
        model.load_params(path)
    write_weights(path, {**model.params, "head_v": f32([1])})
    with pytest.raises(InputError, match=r"'head_v'.*'head_w'"):
        model.load_params(path)
    write_weights(path, {**model.params, "body_b": f32([1])})
    with pytest.raises(InputError, match=r"'body_b' is float32\[1\], expected float32\[3\]"):
        model.load_params(path)
    path.write_bytes(b"something else")
    with pytest.raises(InputError, match="is no safetensors file"):
        model.load_params(path)
    with pytest.raises(InputError, match="format is 'pt', expected 'onnx' or 'safetensors'"):
        model.save(path, format="pt")  # pyright: ignore[reportArgumentType]


def test_without_the_library_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(InputError, match=r'pip install "jaxonnx\[safetensors\]"'):
        perceptron().save(tmp_path / "w", format="safetensors")


def test_statistics_inside_of_branches_are_replaced():
    text = """(float[N, 2] x, bool yes) => (float[N, 2] y)
    <float[2] s = {1, 1}, float[2] b = {0, 0}> {
        y = If(yes) <then_branch = t () => (float[N, 2] p)
            <float[2] mean = {1, 2}, float[2] var = {1, 1}> {
                p = BatchNormalization<epsilon = 0.0>(x, s, b, mean, var)
            }, else_branch = e () => (float[N, 2] q) { q = Identity(x) }>
    }"""
    model = jaxonnx.load(text_model(text))
    moved = model.replace({"mean": f32([0, 4]), "var": f32([4, 1])})
    assert_close(moved(X, np.asarray(True)), (X - f32([0, 4])) / f32([2, 1]))
    assert_close(model(X, np.asarray(True)), X - f32([1, 2]))

"""What stored values are for: weights, statistics and constants."""

import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import assert_close, f32, i64, text_model
from onnx import numpy_helper

import jaxonnx
from jaxonnx.errors import InputError


def load(text, stored=None, *, opset=18, **options):
    """A model from text and its initializers."""
    proto = text_model(text, opset=opset)
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in (stored or {}).items()]
    proto.graph.initializer.extend(tensors)
    return jaxonnx.load(proto, **options)


def roles(model):
    return {n: s.role for n, s in model._program.plan.stored.items()}


@pytest.mark.parametrize(
    ("body", "stored", "expected"),
    [
        ("y = Pow(x, v)", {"v": f32(3)}, "constant"),
        ("y = Pow(x, v)", {"v": f32([3, 2])}, "constant"),
        ("y = Clip(x, v)", {"v": f32(0)}, "constant"),
        ("y = Max(x, v)", {"v": f32(0)}, "constant"),
        ("y = Mul(x, v)", {"v": f32([0.5])}, "constant"),
        ("y = Mul(x, v)", {"v": f32([0.5, 2])}, "weight"),
        ("y = Add(x, v)", {"v": f32([0, -np.inf])}, "constant"),
        ("y = Add(x, v)", {"v": f32([0, np.finfo(np.float32).min])}, "constant"),
        ("y = Add(x, v)", {"v": f32([0, -65504])}, "constant"),
        ("y = Add(x, v)", {"v": f32([0, -65503])}, "weight"),
        ("y = Add(x, v)", {"v": f32([0, np.nan])}, "constant"),
        ("y = Mul(x, v)", {"v": f32([0, np.inf])}, "constant"),
        ("p = Identity(pads) y = Pad(x, p, v)", {"v": f32(0), "pads": i64([0, 1])}, "constant"),
        ("y = PRelu(x, v)", {"v": f32([0.25])}, "weight"),
        ("w = Unsqueeze(v, a) y = PRelu(x, w)", {"v": f32(0.25), "a": i64([0])}, "weight"),
        ("w = Unsqueeze(v, a) y = Mul(x, w)", {"v": f32(0.25), "a": i64([0])}, "constant"),
        ("z = PRelu(x, v) y = Mul(z, v)", {"v": f32([0.25])}, "constant"),
        ("h = Identity(x) y = Identity(v)", {"v": f32([1, 2])}, "weight"),
        ("y = Add(x, v)", {"v": f32([])}, "constant"),
    ],
)
def test_role(body, stored, expected):
    body = body.replace(") y =", ")\n y =").replace(") p =", ")\n p =")
    model = load(f"(float[N] x) => (float[M] y) {{ {body} }}", stored)
    assert roles(model)["v"] == expected
    assert ("v" in model.params) == (expected == "weight")
    assert_close(model.stored["v"], stored["v"])


@pytest.mark.parametrize(
    ("body", "w", "expected"),
    [
        ("h = MatMul(x, w)\n y = Add(h, b)", np.ones((2, 1)), "weight"),
        ("h = MatMul(x, w)\n y = Add(b, h)", np.ones((2, 1)), "weight"),
        ("h = MatMul(x, w)\n y = Add(h, b)", np.ones((2, 2)), "constant"),
        ("t = Transpose(w)\n h = MatMul(x, t)\n y = Add(h, b)", np.ones((1, 2)), "weight"),
        ("t = Transpose(w)\n h = MatMul(x, t)\n y = Add(h, b)", np.ones((3, 2)), "constant"),
        ("h = MatMul(x, w)\n y = Sub(h, b)", np.ones((2, 1)), "constant"),
        ("h = MatMul(x, w)\n g = Relu(h)\n y = Add(g, b)", np.ones((2, 1)), "constant"),
        ("y = Gemm(x, w, b)", np.ones((2, 1)), "weight"),
    ],
)
def test_bias_of_a_layer_with_one_output(body, w, expected):
    """One number after a product with one column is its bias; elsewhere it is arithmetic."""
    model = load(f"(float[N, 2] x) => (float[N, M] y) {{ {body} }}", {"w": f32(w), "b": f32([1])})
    assert roles(model) == {"w": "weight", "b": expected}


BATCH_NORM = "(float[N, 2] x) => (float[N, 2] y) { y = BatchNormalization(x, s, b, m, v) }"
MOMENTS = {"s": f32([1, 1]), "b": f32([0, 0]), "m": f32([1, 2]), "v": f32([4, 9])}


def test_batch_norm_has_statistics():
    model = load(BATCH_NORM, MOMENTS)
    assert roles(model) == {"s": "weight", "b": "weight", "m": "statistic", "v": "statistic"}
    assert list(model.params) == ["s", "b"]
    assert {*model.stored} == {*MOMENTS}


def test_a_value_shared_with_a_statistic_is_one():
    """Exporters store equal values once: an untrained scale and variance are both all ones."""
    model = load(
        BATCH_NORM.replace("s, b, m, v", "v, b, b, v"), {"v": f32([1, 1]), "b": f32([0, 0])}
    )
    assert roles(model) == {"v": "statistic", "b": "statistic"}


def test_derivatives_by_statistics_and_constants():
    model = load(BATCH_NORM, MOMENTS)
    x = f32([[3, 5]])
    loss = lambda more: model.apply({**model.params, **more}, x).sum()
    grads = jax.grad(loss)({"m": jnp.asarray(MOMENTS["m"])})
    assert_close(grads["m"], -1 / np.sqrt(MOMENTS["v"] + np.float32(1e-5)))
    changed = model.apply({**model.params, "m": f32([3, 5])}, x)
    assert_close(changed, f32([[0, 0]]))


def test_stored_values_inside_subgraphs():
    text = """(bool c, float[2] x) => (float[2] y) {
        y = If(c) <
            then_branch = t () => (float[2] a) <float[2] w = {1, 2}, float k = {2}>
                { h = Mul(x, w) a = Pow(h, k) },
            else_branch = e () => (float[2] b) { k2 = Constant<value_float = 3.0>() b = Mul(x, k2) }
        >
    }"""
    model = load(text.replace("h = Mul(x, w) a", "h = Mul(x, w)\n a").replace("() b =", "()\n b ="))
    assert roles(model) == {"w": "weight", "k": "constant", "k2": "constant"}
    stored = model._program.plan.stored
    assert stored["w"].source == "initializer"
    assert stored["k2"].source == "Constant node"
    assert stored["w"].path == ("If.then_branch",)
    x = f32([1, 1])
    assert_close(model(np.asarray(True), x), f32([1, 4]))
    changed = model.apply({**model.params, "k": f32(3)}, np.asarray(True), x)
    assert_close(changed, f32([1, 8]))


def test_roles_through_a_loop():
    """The initial value of a carried value is used as the body uses it."""
    text = """(float[2] x) => (float[2] y) {
        n = Constant<value_int = 2>()
        go = Constant<value = bool {1}>()
        y, z = Loop(n, go, x, slope) <body = b (int64 i, bool c, float[2] a, float[1] s)
            => (bool d, float[2] e, float[1] t) { d = Identity(c)
              e = PRelu(a, s)
              t = Identity(s) }>
    }"""
    model = load(text, {"slope": f32([0.5])})
    assert roles(model) == {"slope": "weight"}
    assert_close(model(f32([-4, 4])), f32([-1, 4]))


def test_trainable_and_frozen():
    text = """(float[2] x) => (float[2] y) {
        h = Mul(x, scale)
        g = Add(h, a_bias)
        y = Add(g, b_bias)
    }"""
    stored = {"scale": f32(2), "a_bias": f32([1, 1]), "b_bias": f32([2, 2])}
    chosen: Any = load(text, stored, trainable=["scale"], frozen=["*_bias"])
    assert roles(chosen) == {"scale": "weight", "a_bias": "constant", "b_bias": "constant"}
    both = load(text, stored, trainable=["*"], frozen=["a_*"])
    assert roles(both) == {"scale": "weight", "a_bias": "constant", "b_bias": "weight"}
    grads = jax.grad(lambda m: m(f32([1, 3])).sum())(chosen)
    assert_close(grads.params["scale"], f32(4))


def test_patterns_are_checked():
    text = "(float[2] x) => (float[2] y) { y = Mul(x, scale) }"
    with pytest.raises(
        InputError, match=r"trainable: no stored .* 'scael'; did you mean 'scale'\?"
    ):
        load(text, {"scale": f32(2)}, trainable=["scael"])
    with pytest.raises(InputError, match="frozen: no stored value is called 'b"):
        load(text, {"scale": f32(2)}, frozen=["b.*"])
    with pytest.raises(InputError, match="trainable='scale': expected a list"):
        load(text, {"scale": f32(2)}, trainable="scale")


def test_what_decides_a_shape_is_fixed():
    text = """(float[1, 1, N] x) => (float[1, 1, M] y) { y = Resize(x, , scales) }"""
    model = load(text, {"scales": f32([1, 1, 2])})
    assert roles(model) == {"scales": "constant"}
    with pytest.raises(InputError, match="'scales' decides a shape, so it cannot be replaced"):
        model.apply({"scales": f32([1, 1, 3])}, f32([[[1]]]))
    with pytest.raises(InputError, match="trainable: 'scales' decides a shape"):
        load(text, {"scales": f32([1, 1, 2])}, trainable=["scales"])


def test_a_fixed_input_is_a_constant():
    text = "(float[2] x, float[2] k) => (float[2] y) { y = Mul(x, k) }"
    model = load(text, constants={"k": f32([1, 2])})
    assert roles(model) == {"k": "constant"}
    assert not model.params


def test_what_is_computed_from_no_stored_float_is_no_weight():
    """A grid of numbers is not; a filled array in the place of a weight is."""
    text = """(float[2] x) => (float[2] y) {
        n = Constant<value_int = 2>()
        zero = Constant<value_int = 0>()
        one = Constant<value_int = 1>()
        steps = Range(zero, n, one)
        grid = Cast<to = 1>(steps)
        h = Mul(x, grid)
        shape = Constant<value_ints = [2]>()
        slope = ConstantOfShape<value = float[1] {0.5}>(shape)
        y = PRelu(h, slope)
    }"""
    model = load(text)
    assert roles(model) == {"grid": "constant", "slope": "weight"}
    assert {s.source for s in model._program.plan.stored.values()} == {"folded"}


def test_no_leaf_is_dead():
    """Of a chain of nodes on constants only what data meets is stored."""
    text = """(float[2] x) => (float[2] y) {
        shape = Constant<value_ints = [2]>()
        filled = ConstantOfShape<value = float[1] {0.5}>(shape)
        minus = Neg(filled)
        y = PRelu(x, minus)
    }"""
    assert list(load(text).stored) == ["minus"]


def test_the_summary_lists_roles_and_users():
    model = load(BATCH_NORM, MOMENTS)
    text = repr(model.summary())
    assert "statistic" in text
    assert "BatchNormalization 'y'" in text


def test_three_steps_of_adam_stay_finite():
    """The exponent of a GELU, the variance of a norm and a mask stay what they are."""
    text = """(float[N, 2] x) => (float[N, 2] y) {
        h = MatMul(x, w)
        n = BatchNormalization(h, s, b, m, v)
        p = Pow(n, three)
        q = Mul(p, c)
        r = Add(n, q)
        t = Tanh(r)
        u = Add(t, mask)
        z = Softmax(u)
        y = Mul(z, n)
    }"""
    tiny = {**MOMENTS, "v": f32([1e-4, 1e-4])}
    mask = np.array([0, np.finfo(np.float32).min], np.float32)
    more = {"w": f32([[1, 2], [3, -4]]), "three": f32(3), "c": f32(0.044715), "mask": mask}
    model: Any = load(text, {**tiny, **more})
    assert list(model.params) == ["s", "b", "w"]
    train(model, f32([[1, -1]]))


@pytest.mark.parametrize("name", ["torch_stft_logspec_dyn18", "torch_unet_dyn22"])
def test_three_steps_of_adam_on_an_export_stay_finite(name):
    model = jaxonnx.load(pathlib.Path(__file__).parent / "data" / "models" / f"{name}.onnx")
    shape = [d for d in model.inputs[0].shape or () if isinstance(d, int)]
    train(model, f32(np.random.default_rng(0).normal(size=shape)))


@jax.numpy_dtype_promotion("standard")  # optax raises a float to an integer
def train(model: Any, x: np.ndarray) -> None:
    """Three steps of Adam on all leaves, after which these and the loss are finite."""
    optimizer = optax.adam(1e-3)
    state = optimizer.init(model)
    step = jax.jit(jax.value_and_grad(lambda m: (m(x) ** 2).mean()))
    for _ in range(3):
        loss, slope = step(model)
        updates, state = optimizer.update(slope, state)
        model = optax.apply_updates(model, updates)
        assert np.isfinite(loss)
    assert all(np.isfinite(a).all() for a in model.params.values())

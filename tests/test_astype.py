"""Computing in another floating type than the model declares."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, f32, text_model

import jaxonnx
from jaxonnx import models
from jaxonnx.errors import InputError

PERCEPTRON = """(float[N, 2] x) => (float[N, 2] y)
<float[2, 3] w = {1, 2, 3, 4, 5, 6}, float[3] b = {0.1, 0.2, 0.3},
 float[3, 2] v = {1, 0, 0, 1, 1, 1}> {
    h = MatMul(x, w)
    shifted = Add(h, b)
    active = Relu(shifted)
    y = MatMul(active, v)
}"""


def dtypes_inside(model, x):
    """The types of what products give, by the text of the traced program."""
    text = str(jax.make_jaxpr(model)(x))
    return {line.split(":")[1].split("[")[0] for line in text.split("\n") if "dot_general" in line}


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16, "float16"])
def test_products_and_what_follows_are_computed_in_the_type(dtype):
    model = jaxonnx.load(text_model(PERCEPTRON)).astype(dtype)
    x = f32([[1.0009765625, 2]])  # 1 in bfloat16
    name = np.dtype(dtype).name
    assert dtypes_inside(model, x) == {{"bfloat16": "bf16", "float16": "f16"}[name]}
    y = model(x)
    assert y.dtype == np.float32
    narrow = lambda v: np.asarray(v, dtype)
    h = (narrow(x).astype(np.float32) @ f32([[1, 2, 3], [4, 5, 6]])).astype(dtype)
    h = np.maximum(h + narrow([0.1, 0.2, 0.3]), narrow(0)).astype(np.float32)
    expected = (h @ f32([[1, 0], [0, 1], [1, 1]])).astype(dtype).astype(np.float32)
    np.testing.assert_allclose(y, expected, rtol=1e-2 if name == "bfloat16" else 1e-3)


def test_weights_and_their_derivatives_stay_single():
    plain = jaxonnx.load(text_model(PERCEPTRON))
    model, x = plain.astype(jnp.bfloat16), f32([[1, 2], [3, -1]])
    gradient = jax.grad(lambda m: m(x).sum())(model)
    wanted = jax.grad(lambda m: m(x).sum())(plain)
    for name, value in gradient.params.items():
        assert value.dtype == np.float32
        np.testing.assert_allclose(value, wanted.params[name], rtol=1e-2)


def test_what_has_met_no_product_is_computed_as_declared():
    model = jaxonnx.load(text_model("(float[N] x) => (float[N] y) { y = Add(x, x) }"))
    x = f32([1 + 2.0**-20])
    assert_close(model.astype(jnp.float16)(x), 2 * x)


def test_finite_numbers_stay_finite():
    model = jaxonnx.load(
        text_model(
            """(float[N, 2] x) => (float[N, 2] y)
            <float[2, 2] w = {1, 0, 0, 1}, float[2] mask = {-3.4028235e38, -3.4028235e38}> {
                h = MatMul(x, w)
                masked = Add(h, mask)
                y = Softmax<axis = -1>(masked)
            }"""
        )
    )
    for dtype in (jnp.bfloat16, jnp.float16):
        assert_close(model.astype(dtype)(f32([[1, 1]])), f32([[0.5, 0.5]]))
    inf = jaxonnx.load(
        text_model("(float[N, 1] x) => (float[N, 1] y) <float[1, 1] w = {1}> { y = MatMul(x, w) }")
    ).astype(jnp.float16)
    np.testing.assert_array_equal(inf(f32([[np.inf], [np.nan]])), [[np.inf], [np.nan]])


def test_loops_carry_the_declared_type():
    model = jaxonnx.load(
        text_model(
            """(float[2, 2] x) => (float[2, 2] last, float[3, 2, 2] all)
            <int64 n = {3}, bool go = {1}, float[2, 2] w = {0.5, 0, 0, 0.5}> {
                last, all = Loop(n, go, x) <body = turn (int64 i, bool on, float[2, 2] h)
                        => (bool more, float[2, 2] z, float[2, 2] each) {
                    more = Identity(on)
                    z = MatMul(h, w)
                    each = Identity(z)
                }>
            }"""
        )
    )
    x = f32([[8, 16], [24, 32]])
    last, every = model.astype(jnp.bfloat16)(x)
    assert_close(last, x / 8)
    assert_close(every, np.stack([x / 2, x / 4, x / 8]))


def test_a_model_in_half_precision_is_computed_in_single():
    # The text has float16 by its bits: 15360 is 1.
    model = jaxonnx.load(
        text_model(
            "(float16[N, 3] x) => (float16[N, 1] y) <float16[3, 1] w = {15360, 15360, 15360}> "
            "{ y = MatMul(x, w) }"
        )
    )
    x = np.asarray([[1, 2, 3]], np.float16)
    wide = model.astype(jnp.float32)
    assert dtypes_inside(wide, x) == {"f32"}
    assert_close(wide(x), np.asarray([[6]], np.float16))


def test_real_models_agree():
    model = jaxonnx.load(models.path())
    x, _ = models.example()
    y = model(x)
    np.testing.assert_allclose(model.astype(jnp.bfloat16)(x), y, atol=2e-2)
    np.testing.assert_allclose(model.astype(jnp.float32)(x), y, atol=1e-6)


def test_it_is_part_of_what_the_model_is():
    model = jaxonnx.load(text_model(PERCEPTRON))
    half = model.astype(jnp.bfloat16)
    assert jax.tree.structure(half) != jax.tree.structure(model)
    again = pickle.loads(pickle.dumps(half))
    x = f32([[1.0009765625, 2]])
    np.testing.assert_array_equal(again(x), half(x))
    assert half.params["w"] is model.params["w"]


@pytest.mark.parametrize("dtype", [np.int32, np.float64, "half a float", None])
def test_other_types_are_refused(dtype):
    model = jaxonnx.load(text_model(PERCEPTRON))
    with pytest.raises(InputError, match=r"astype: .* is none of float16, bfloat16, float32"):
        model.astype(dtype)


def test_cast_weights_are_refused_with_the_remedy():
    model = jaxonnx.load(text_model(PERCEPTRON))
    cast = jax.tree.map(lambda a: a.astype(jnp.bfloat16), model)
    with pytest.raises(InputError, match=r"model.astype\('bfloat16'\) to compute in that type"):
        cast(f32([[1, 2]]))

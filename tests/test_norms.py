"""Norms and deviations as exporters write them: at 0 their derivative is 0, in both orders."""

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest
from helpers import assert_close, f32, text_model

import jaxonnx

NORMS = {
    "Mul": "s = Mul(x, x) t = ReduceSum<keepdims = 1>(s, axes) y = Sqrt(t)",
    "Pow": "s = Pow(x, two) t = ReduceSum<keepdims = 1>(s, axes) y = Sqrt(t)",
    "ReduceSumSquare": "t = ReduceSumSquare<keepdims = 1>(x, axes) y = Sqrt(t)",
    "ReduceL2": "y = ReduceL2<keepdims = 1>(x, axes)",
    "half": "s = Pow(x, two) t = ReduceSum<keepdims = 1>(s, axes) y = Pow(t, half)",
    "mean": "s = Mul(x, x) t = ReduceMean<keepdims = 1>(s, axes) y = Sqrt(t)",
    "scaled": "s = Mul(x, x) u = ReduceSum<keepdims = 1>(s, axes) t = Mul(u, half) y = Sqrt(t)",
    "bounded": "s = Mul(x, x) u = ReduceSum<keepdims = 1>(s, axes) t = Max(u, zero) y = Sqrt(t)",
    "clipped": "s = Mul(x, x) u = ReduceSum<keepdims = 1>(s, axes) t = Clip(u, zero) y = Sqrt(t)",
    "moved": (
        "s = Mul(x, x) u = ReduceSum<keepdims = 0>(s, axes) t = Unsqueeze(u, axes) y = Sqrt(t)"
    ),
    "sum": "s = Mul(x, x) r = Add(s, s) t = ReduceSum<keepdims = 1>(r, axes) y = Sqrt(t)",
    "deviation": (
        "m = ReduceMean<keepdims = 1>(x, axes) d = Sub(x, m) s = Mul(d, d) "
        "u = ReduceSum<keepdims = 1>(s, axes) t = Div(u, two) y = Sqrt(t)"
    ),
    "whitened": (
        "m = ReduceMean<keepdims = 1>(x, axes) d = Sub(x, m) s = Pow(d, two) "
        "t = ReduceMean<keepdims = 1>(s, axes) e = Sqrt(t) f = Add(e, small) y = Div(d, f)"
    ),
    "unit": (
        "s = Mul(x, x) t = ReduceSum<keepdims = 1>(s, axes) n = Sqrt(t) "
        "m = Max(n, small) y = Div(x, m)"
    ),
    "distances": (
        "a = Unsqueeze(x, front) b = Unsqueeze(x, axes) d = Sub(a, b) s = Pow(d, two) "
        "t = ReduceSum<keepdims = 0>(s, last) y = Sqrt(t)"
    ),
    "branch": (
        "y = If(yes) <then_branch = t () => (float[N, K] p) "
        "{ s = Mul(x, x) t = ReduceSum<keepdims = 1>(s, axes) p = Sqrt(t) }, "
        "else_branch = e () => (float[N, K] q) { q = Identity(x) }>"
    ),
}


def model_of(body, **options):
    return jaxonnx.load(
        text_model(
            f"""(float[N, M] x) => (float[A, B] y)
            <int64[1] axes = {{1}}, int64[1] front = {{0}}, int64[1] last = {{2}}, bool yes = {{1}},
             float two = {{2}}, float half = {{0.5}}, float zero = {{0}}, float small = {{1e-3}}>
            {{ {body} }}"""
        ),
        **options,
    )


@pytest.mark.parametrize("body", NORMS.values(), ids=NORMS)
def test_derivatives_at_0(body):
    model = model_of(body)
    x = f32(np.zeros((2, 3)))
    function = lambda x: jnp.sum(model(x))
    slope = jax.grad(function)
    reverse, forward = slope(x), jax.jacfwd(function)(x)
    np.testing.assert_allclose(reverse, forward, atol=1e-3)
    assert np.isfinite(reverse).all()
    if "y = Div" not in body:  # which has another derivative at 0 than 0
        np.testing.assert_array_equal(reverse, 0)
    assert np.isfinite(jax.jacfwd(slope)(x)).all()
    assert np.isfinite(jax.jacrev(slope)(x)).all()


@pytest.mark.parametrize("body", NORMS.values(), ids=NORMS)
def test_values_and_derivatives_elsewhere(body):
    model = model_of(body)
    x = f32([[1, -2, 2], [0.5, 3, -1]])
    weights = np.asarray(np.random.default_rng(0).normal(size=model(x).shape), np.float32)
    jax.test_util.check_grads(lambda x: model(x) * weights, (x,), 2, rtol=2e-2, eps=1e-2)


def test_the_value_is_that_of_the_root():
    x = f32([[3, 4, 12], [0, 0, 0], [np.inf, 1, 1], [np.nan, 1, 1]])
    expected = f32([[13], [0], [np.inf], [np.nan]])
    for name in ("Mul", "Pow", "half"):
        assert_close(model_of(NORMS[name])(x), expected)


def test_nan_stays_nan_in_the_derivative():
    slope = jax.grad(lambda x: model_of(NORMS["Mul"])(x).sum())(f32([[np.nan, 1]]))
    assert np.isnan(slope).all()


@pytest.mark.parametrize(
    "body",
    [
        "t = ReduceSum<keepdims = 1>(x, axes) y = Sqrt(t)",
        "s = Pow(x, half) t = ReduceSum<keepdims = 1>(s, axes) y = Sqrt(t)",
        "s = Mul(x, x) r = Sub(s, s) t = ReduceSum<keepdims = 1>(r, axes) y = Sqrt(t)",
        "s = Mul(x, x) t = Mul(s, x) y = Sqrt(t)",
        "y = Sqrt(x)",
    ],
)
def test_other_roots_keep_their_infinite_derivative(body):
    model = model_of(body)
    assert "RootOfSquares" not in str({n.op_type for n in model._program.plan.graph.nodes})


def test_an_exponent_that_is_replaced_is_used():
    model = model_of(NORMS["half"])
    x = f32([[3, 4, 12]])
    y = model.apply({**model.params, "half": f32(1)}, x)
    assert_close(y, f32([[169]]))


def test_values_inside_stay_and_the_file_is_saved_as_it_was(tmp_path):
    model = model_of(NORMS["Mul"])
    x = f32([[3, 4, 12]])
    assert_close(model.capture(x, "t")["t"], f32([[169]]))
    assert_close(model.apply(model.params, x, patch={"t": f32([[4]])}), f32([[2]]))
    model.save(tmp_path / "m.onnx")
    again = jaxonnx.load(tmp_path / "m.onnx")
    assert_close(again(x), f32([[13]]))

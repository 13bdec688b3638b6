"""What is not looked at has no part in a derivative, however steep it is there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FLOATS, assert_same, check_gradients, f32

from jaxonnx import ops
from jaxonnx.define.experimental import times

one = jnp.ones_like
MODES = {
    "reverse": jax.grad,
    "forward": lambda f: lambda x: jax.jvp(f, (x,), (one(x),))[1],
    "reverse of reverse": lambda f: jax.grad(jax.grad(f)),
    "forward of reverse": lambda f: lambda x: jax.jvp(jax.grad(f), (x,), (one(x),))[1],
    "reverse of forward": lambda f: jax.grad(lambda x: jax.jvp(f, (x,), (one(x),))[1]),
    "jit and vmap": lambda f: jax.jit(lambda x: jax.vmap(jax.grad(f))(x[None])[0]),
}
EDGES = {
    "Log": (ops.log, 0),
    "Sqrt": (ops.sqrt, 0),
    "Sqrt of -0": (ops.sqrt, -0.0),
    "Reciprocal": (ops.reciprocal, 0),
    "Div by it": (lambda x: ops.div(one(x), x), 0),
    "Div of it by itself": (lambda x: ops.div(x, x), 0),
    "Exp": (ops.exp, 1000),
    "Asin": (ops.asin, 1),
    "Acos": (ops.acos, -1),
    "Acosh": (ops.acosh, 1),
    "Atanh": (ops.atanh, -1),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("edge", EDGES)
def test_the_branch_that_is_not_taken(edge, mode):
    """``where(safe, f(x), 0)`` at the edge, where f is infinite or as steep as that."""
    function, at = EDGES[edge]
    masked = lambda x: ops.where(x == 123, function(x), jnp.zeros_like(x))
    assert_same(abs(MODES[mode](masked)(f32(at))), f32(0))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("function", "at", "slope"),
    [
        (ops.log, 0, np.inf),
        (ops.sqrt, 0, np.inf),
        (ops.sqrt, -0.0, np.inf),
        (ops.reciprocal, 0, -np.inf),
        (ops.asin, 1, np.inf),
        (ops.acos, 1, -np.inf),
        (ops.acosh, 1, np.inf),
        (ops.atanh, 1, np.inf),
    ],
)
def test_what_is_looked_at_is_as_steep_as_it_is(function, at, slope, dtype):
    x = np.asarray(at, dtype)
    with jax.enable_x64(dtype == np.float64):
        assert_same(jax.grad(function)(x), np.asarray(slope, dtype))
        assert_same(jax.jvp(function, (x,), (one(x),))[1], np.asarray(slope, dtype))


def test_a_row_without_anything_to_see():
    """``Where(IsNaN(s), 0, s)`` behind a Softmax, as exporters write masked attention."""

    def seen(x, bias):
        weights = ops.softmax(ops.add(x, bias))
        return ops.where(ops.is_nan(weights), jnp.zeros_like(weights), weights)

    x, bias = f32([[1, 2], [3, 4]]), f32([[0, 0], [-np.inf, -np.inf]])
    slope = jax.grad(lambda x: (seen(x, bias) * f32([[1, 2], [3, 4]])).sum())(x)
    assert np.isfinite(slope).all()
    assert slope[1].tolist() == [0, 0]
    assert slope[0].tolist() == pytest.approx([-0.19661193, 0.19661193])


def test_derivatives_inside_of_the_domain():
    x = np.array([0.3, 0.6, 0.9])
    for function in (ops.log, ops.sqrt, ops.reciprocal, ops.exp, ops.asin, ops.acos, ops.atanh):
        check_gradients(function, x)
    check_gradients(ops.acosh, x + 1)
    check_gradients(ops.div, x, x[:, None] + 1)
    check_gradients(lambda x: ops.softmax(x, axis=0), x)
    check_gradients(lambda x: ops.log_softmax(x, axis=0), x)


def test_a_known_divisor_costs_nothing():
    text = jax.jit(jax.grad(lambda x: ops.div(x, f32([2, 3])).sum())).lower(f32([1, 2])).as_text()
    assert "select" not in text
    text = jax.jit(jax.grad(lambda x: ops.div(x, f32([0, 3])).sum())).lower(f32([1, 2])).as_text()
    assert "select" in text


def test_the_product():
    a, b = f32([0, np.inf, 2, np.nan, 0]), f32([np.inf, 0, 3, 0, np.nan])
    assert_same(times(a, b), f32([0, 0, 6, 0, 0]))
    assert_same(times(f32(2), b), f32([np.inf, 0, 6, 0, np.nan]))
    assert_same(jax.vmap(times, (0, None))(a, f32(0)), f32([0, 0, 0, 0, 0]))
    assert_same(
        jax.vmap(times, (None, 1), 1)(f32([1, 2]), f32([[1, 2], [3, 4]])), f32([[1, 2], [6, 8]])
    )

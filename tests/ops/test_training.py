"""Steps of optimizers against their formulas, by hand."""

import chex
import jax
import numpy as np
import pytest
from helpers import assert_close, f32, i64, run_node

from jaxonnx.errors import InvalidModelError
from jaxonnx.ops import training

DOMAIN = "ai.onnx.preview.training"
X, G = f32([1, -2]), f32([0.5, 4])


def node(op_type, *inputs, outputs, **attributes):
    return run_node(op_type, inputs, opset=1, domain=DOMAIN, outputs=outputs, **attributes)


def test_adagrad():
    """Rate 0.1 / (1 + 2 * 0.5) = 0.05, slope g + 0.1 x, sum 1 + slope**2."""
    slope = f32([0.6, 3.8])
    squares = 1 + slope**2
    x, h = node(
        "Adagrad",
        f32(0.1),
        i64(2),
        X,
        G,
        f32([1, 1]),
        outputs=2,
        decay_factor=0.5,
        epsilon=0.25,
        norm_coefficient=0.1,
    )
    assert_close(h, squares)
    assert_close(x, X - np.float32(0.05) * slope / (np.sqrt(squares) + np.float32(0.25)))


@pytest.mark.parametrize("t", [0, 1, 3])
def test_adam(t):
    """The correction of the rate begins after step 0."""
    slope = G + np.float32(0.1) * X
    mean = np.float32(0.5) * 2 + np.float32(0.5) * slope
    squares = np.float32(0.75) * 4 + np.float32(0.25) * slope**2
    rate = 0.1 * np.sqrt(1 - 0.75**t) / (1 - 0.5**t) if t else 0.1
    x, v, h = node(
        "Adam",
        f32(0.1),
        i64(t),
        X,
        G,
        f32([2, 2]),
        f32([4, 4]),
        outputs=3,
        alpha=0.5,
        beta=0.75,
        epsilon=0.25,
        norm_coefficient=0.1,
        norm_coefficient_post=0.5,
    )
    assert_close(v, mean)
    assert_close(h, squares)
    assert_close(x, f32(0.5 * (X - rate * mean / (np.sqrt(squares) + 0.25))))


@pytest.mark.parametrize("mode", ["standard", "nesterov"])
@pytest.mark.parametrize("t", [0, 1])
def test_momentum(mode, t):
    """At step 0 the gradient is not scaled."""
    slope = G + np.float32(0.1) * X
    gathered = np.float32(0.5) * 2 + np.float32(0.25 if t else 1) * slope
    direction = slope + np.float32(0.5) * gathered if mode == "nesterov" else gathered
    x, v = node(
        "Momentum",
        f32(0.1),
        i64(t),
        X,
        G,
        f32([2, 2]),
        outputs=2,
        alpha=0.5,
        beta=0.25,
        mode=mode,
        norm_coefficient=0.1,
    )
    assert_close(v, gathered)
    assert_close(x, X - np.float32(0.1) * direction)


def test_several_tensors_go_by_kind():
    """Tensors first, then gradients, then states; each is as if it were alone."""
    options = {"alpha": 0.5, "beta": 0.25, "mode": "standard", "norm_coefficient": 0.0}
    y, w = f32([[3]]), f32([[2]])
    joint = training.momentum(f32(0.1), i64(1), X, y, G, w, X, y, **options)
    first = training.momentum(f32(0.1), i64(1), X, G, X, **options)
    second = training.momentum(f32(0.1), i64(1), y, w, y, **options)
    chex.assert_trees_all_close(joint, (first[0], second[0], first[1], second[1]))


def test_derivatives_by_the_rate():
    step = lambda r: training.momentum(
        r, i64(1), X, G, X, alpha=0.0, beta=1.0, mode="standard", norm_coefficient=0.0
    )[0]
    assert_close(jax.jacfwd(step)(f32(0.1)), -G)
    assert_close(jax.jacrev(step)(f32(0.1)), -G)


def test_what_does_not_fit_is_refused():
    with pytest.raises(InvalidModelError, match="2 tensors, expected a multiple of 3"):
        training.adagrad(f32(0.1), i64(0), X, G)
    with pytest.raises(InvalidModelError, match="expected a multiple of 4"):
        training.adam(f32(0.1), i64(0))
    with pytest.raises(InvalidModelError, match=r"tensor 0 .* shapes \[\(2,\), \(2,\), \(3,\)\]"):
        training.adagrad(f32(0.1), i64(0), X, G, f32([1, 1, 1]))
    with pytest.raises(InvalidModelError, match="mode is 'fast', expected 'standard'"):
        training.momentum(
            f32(0.1), i64(0), X, G, X, alpha=1.0, beta=1.0, mode="fast", norm_coefficient=0.0
        )

"""Transcendental functions against hand values in every floating type."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FLOATS, assert_close, check_gradients, run_node

from jaxonnx import ops

X = [-0.75, 0.0, 0.5]
# Operator, its first versions, points, values.
CASES = [
    ("Sqrt", (1, 6, 13), [0.0, 0.25, 2.0], [0.0, 0.5, math.sqrt(2)]),
    ("Exp", (1, 6, 13), X, [math.exp(v) for v in X]),
    ("Log", (1, 6, 13), [0.5, 1.0, 3.0], [math.log(0.5), 0.0, math.log(3)]),
    ("Erf", (9, 13), X, [math.erf(v) for v in X]),
    ("Sin", (7, 22), X, [math.sin(v) for v in X]),
    ("Cos", (7, 22), X, [math.cos(v) for v in X]),
    ("Tan", (7, 22), X, [math.tan(v) for v in X]),
    ("Asin", (7, 22), X, [math.asin(v) for v in X]),
    ("Acos", (7, 22), X, [math.acos(v) for v in X]),
    ("Atan", (7, 22), X, [math.atan(v) for v in X]),
    ("Sinh", (9, 22), X, [math.sinh(v) for v in X]),
    ("Cosh", (9, 22), X, [math.cosh(v) for v in X]),
    ("Tanh", (1, 6, 13), X, [math.tanh(v) for v in X]),
    ("Asinh", (9, 22), X, [math.asinh(v) for v in X]),
    ("Acosh", (9, 22), [1.0, 1.5, 3.0], [math.acosh(v) for v in (1.0, 1.5, 3.0)]),
    ("Atanh", (9, 22), X, [math.atanh(v) for v in X]),
]


@pytest.mark.parametrize(("op_type", "versions", "x", "expected"), CASES)
def test_values(op_type, versions, x, expected):
    function = getattr(ops, op_type.lower())
    for dtype in FLOATS:
        with jax.enable_x64(True):
            value = np.array(x, dtype)
            assert_close(function(jnp.asarray(value)), np.array(expected).astype(dtype))
            assert_close(function(jnp.asarray(value[1])), np.array(expected[1]).astype(dtype))
    assert function(jnp.zeros((0, 2))).shape == (0, 2)
    for opset in versions:
        (y,) = run_node(op_type, [np.array([x], np.float32)], opset=opset)
        assert_close(y, np.array([expected], np.float32))


@pytest.mark.parametrize(("op_type", "versions", "x", "expected"), CASES)
def test_gradients(op_type, versions, x, expected):
    del versions, expected
    inside = [v for v in x if v > 0 or op_type not in ("Sqrt", "Log")]
    check_gradients(getattr(ops, op_type.lower()), [v + 0.1 for v in inside])


def test_outside_of_the_domain():
    x = jnp.array([-2.0])
    for function in (ops.sqrt, ops.log, ops.asin, ops.acos, ops.acosh, ops.atanh):
        assert np.isnan(function(x)).all()
    assert_close(ops.log(jnp.zeros(1)), np.array([-np.inf], np.float32))


@pytest.mark.parametrize(
    ("function", "x", "expected"),
    [
        (ops.sqrt, 0.0, np.inf),
        (ops.log, 0.0, np.inf),
        (ops.asin, 1.0, np.inf),
        (ops.acos, -1.0, -np.inf),
        (ops.acosh, 1.0, np.inf),
    ],
)
def test_infinite_derivatives(function, x, expected):
    assert_close(jax.jvp(function, (x,), (1.0,))[1], np.float32(expected))
    assert_close(jax.vjp(function, jnp.asarray(x))[1](jnp.float32(1))[0], np.float32(expected))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_erf_of_integers_is_cut_off(dtype):
    x = np.array([0, 1, 40], dtype)
    assert_close(run_node("Erf", [x], opset=9)[0], np.array([0, 0, 1], dtype))


def test_known_values_stay_known():
    for function in (ops.sqrt, ops.exp, ops.log):
        assert isinstance(function(np.ones(2, np.float32)), np.ndarray)

"""Activation functions: values in every version and type, limits, derivatives at kinks."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FLOATS, assert_close, check_gradients, run_node

from jaxonnx import ops
from jaxonnx.define import registry
from jaxonnx.define.registry import signature
from jaxonnx.ops import activation


def array(values: Any, dtype: Any = np.float32) -> np.ndarray:
    return np.array(values, dtype)


def floats(op_type, version):
    """The floating dtypes of the newest version; float32 stands for those of the others."""
    formal = signature(op_type, version, "")
    assert formal is not None
    if version < max(registry.versions_of(op_type)):
        return [np.dtype(np.float32)]
    return [d for d in formal.inputs[0].dtypes or () if jnp.issubdtype(d, np.floating)]


# All of these are exact in every floating dtype, as are the attributes.
X = [-4.0, -1.5, -0.5, 0.0, 0.5, 1.5, 4.0]

# By the formula of the schema, in double.
VALUES = [
    ("Relu", {}, [0, 0, 0, 0, 0.5, 1.5, 4]),
    ("LeakyRelu", {"alpha": 0.25}, [-1, -0.375, -0.125, 0, 0.5, 1.5, 4]),
    (
        "Elu",
        {"alpha": 2.0},
        [-1.963368722223, -1.553739679703, -0.786938680575, 0, 0.5, 1.5, 4],
    ),
    (
        "Selu",
        {"alpha": 2.0, "gamma": 0.5},
        [-0.9816843611115, -0.7768698398515, -0.3934693402875, 0, 0.25, 0.75, 2],
    ),
    (
        "Celu",
        {"alpha": 2.0},
        [-1.729329433527, -1.055266894518, -0.442398433857, 0, 0.5, 1.5, 4],
    ),
    ("ThresholdedRelu", {"alpha": 1.5}, [0, 0, 0, 0, 0, 0, 4]),
    ("HardSigmoid", {"alpha": 0.25, "beta": 0.5}, [0, 0.125, 0.375, 0.5, 0.625, 0.875, 1]),
    ("HardSwish", {}, [0, -0.375, -0.208333333333, 0, 0.291666666667, 1.125, 4]),
    (
        "Mish",
        {},
        [
            *(-0.072591740792, -0.298099742167, -0.220743774652, 0),
            *(0.375245211305, 1.403378266396, 3.997412806976),
        ],
    ),
    (
        "Swish",
        {},
        [
            *(-0.071944839848, -0.27363828571, -0.188770334399, 0),
            *(0.311229665601, 1.22636171429, 3.928055160152),
        ],
    ),
    (
        "Swish",
        {"alpha": 2.0},
        [
            *(-0.001341400522, -0.071138809766, -0.134470710685, 0),
            *(0.365529289315, 1.428861190234, 3.998658599478),
        ],
    ),
    (
        "Gelu",
        {},
        [
            *(-0.000126684967, -0.100210801903, -0.154268769363, 0),
            *(0.345731230637, 1.399789198097, 3.999873315033),
        ],
    ),
    (
        "Gelu",
        {"approximate": "tanh"},
        [
            *(-7.0245948e-05, -0.10042842302, -0.154285990175, 0),
            *(0.345714009825, 1.39957157698, 3.999929754052),
        ],
    ),
    (
        "Sigmoid",
        {},
        [
            *(0.017986209962, 0.182425523806, 0.377540668798, 0.5),
            *(0.622459331202, 0.817574476194, 0.982013790038),
        ],
    ),
    (
        "Softplus",
        {},
        [
            *(0.018149927918, 0.201413277983, 0.47407698418, 0.69314718056),
            *(0.97407698418, 1.701413277983, 4.018149927918),
        ],
    ),
    ("Softsign", {}, [-0.8, -0.6, -0.333333333333, 0, 0.333333333333, 0.6, 0.8]),
    ("Shrink", {"lambd": 0.5, "bias": 0.25}, [-3.75, -1.25, 0, 0, 0, 1.25, 3.75]),
    (
        "Softmax",
        {"axis": 0},
        [
            *(0.00029269179497, 0.00356571602459, 0.00969262107508, 0.01598043053533),
            *(0.02634727573854, 0.07161932086947, 0.87250194396202),
        ],
    ),
    (
        "LogSoftmax",
        {"axis": 0},
        [
            *(-8.136390396871, -5.636390396871, -4.636390396871, -4.136390396871),
            *(-3.636390396871, -2.636390396871, -0.136390396871),
        ],
    ),
    ("Hardmax", {"axis": 0}, [0, 0, 0, 0, 0, 0, 1]),
]


@pytest.mark.parametrize(
    ("op_type", "version", "attributes", "expected"),
    [(op, version, a, y) for op, a, y in VALUES for version in registry.versions_of(op)],
)
def test_values(op_type, version, attributes, expected):
    for dtype in floats(op_type, version):
        (actual,) = run_node(op_type, [array(X, dtype)], opset=version, **attributes)
        assert_close(actual, array(expected, dtype))


@pytest.mark.parametrize(
    ("op_type", "version", "expected"),
    [
        ("LeakyRelu", 6, [-0.01, 1]),
        ("Elu", 6, [-0.63212056, 1]),
        ("Selu", 1, [1.0507 * 1.6732 * -0.63212056, 1.0507]),
        ("Selu", 6, [1.05070102 * 1.67326319 * -0.63212056, 1.05070102]),
        ("Celu", 12, [-0.63212056, 1]),
        ("ThresholdedRelu", 10, [0, 0]),
        ("HardSigmoid", 6, [0.3, 0.7]),
        ("Shrink", 9, [-1, 1]),
    ],
)
def test_defaults(op_type, version, expected):
    assert_close(run_node(op_type, [array([-1, 1])], opset=version)[0], array(expected))


# Values and derivatives at -inf, -1e4, 1e4, inf.
LIMITS = [
    (ops.relu, [0, 0, 1e4, np.inf], [0, 0, 1, 1]),
    (
        functools.partial(ops.leaky_relu, alpha=0.25),
        [-np.inf, -2500, 1e4, np.inf],
        [0.25] * 2 + [1] * 2,
    ),
    (
        lambda x: ops.prelu(x, jnp.full_like(x, 0.25)),
        [-np.inf, -2500, 1e4, np.inf],
        [0.25] * 2 + [1] * 2,
    ),
    (ops.elu, [-1, -1, 1e4, np.inf], [0, 0, 1, 1]),
    (functools.partial(ops.selu, gamma=0.5, alpha=2.0), [-1, -1, 5e3, np.inf], [0, 0, 0.5, 0.5]),
    (functools.partial(ops.celu, alpha=2.0), [-2, -2, 1e4, np.inf], [0, 0, 1, 1]),
    (ops.thresholded_relu, [0, 0, 1e4, np.inf], [0, 0, 1, 1]),
    (ops.hard_sigmoid, [0, 0, 1, 1], [0, 0, 0, 0]),
    (ops.hard_swish, [0, 0, 1e4, np.inf], [0, 0, 1, 1]),
    (ops.mish, [0, 0, 1e4, np.inf], [0, 0, 1, 1]),
    (ops.swish, [0, 0, 1e4, np.inf], [0, 0, 1, 1]),
    (functools.partial(ops.swish, alpha=-2.0), [-np.inf, -1e4, 0, 0], [1, 1, 0, 0]),
    (ops.gelu, [0, 0, 1e4, np.inf], [0, 0, 1, 1]),
    (functools.partial(ops.gelu, approximate="tanh"), [0, 0, 1e4, np.inf], [0, 0, 1, 1]),
    (ops.sigmoid, [0, 0, 1, 1], [0, 0, 0, 0]),
    (ops.softplus, [0, 0, 1e4, np.inf], [0, 0, 1, 1]),
    (ops.softsign, [-1, -1e4 / 10001, 1e4 / 10001, 1], [0, 10001.0**-2, 10001.0**-2, 0]),
    (ops.shrink, [-np.inf, -1e4, 1e4, np.inf], [1, 1, 1, 1]),
    (lambda x: ops.clip(x, -1.0, 1.0), [-1, -1, 1, 1], [0, 0, 0, 0]),
]


@pytest.mark.parametrize(("function", "values", "derivatives"), LIMITS)
def test_no_overflow(function, values, derivatives):
    @jax.jit
    def everything(x, ones):
        y, forward = jax.jvp(function, (x,), (ones,))
        gradient = jax.grad(lambda x: function(x).sum())
        return y, forward, gradient(x), jax.grad(lambda x: gradient(x).sum())(x)

    with jax.enable_x64(True):
        for dtype in FLOATS:
            x = array([-np.inf, -1e4, 1e4, np.inf], dtype)
            y, forward, reverse, second = everything(x, np.ones_like(x))
            assert_close(y, array(values, dtype))
            assert_close(forward, array(derivatives, dtype))
            assert_close(reverse, array(derivatives, dtype))
            assert np.all(np.isfinite(second))


@pytest.mark.parametrize("function", [ops.softmax, ops.log_softmax])
def test_softmax_does_not_overflow(function):
    for dtype in [np.float16, np.float32]:
        x = array([-np.inf, -1e4, 1e4], dtype)
        expected = [0, 0, 1] if function is ops.softmax else [-np.inf, -2e4, 0]
        assert_close(function(x), array(expected, dtype))
        gradient = jax.grad(lambda x: jnp.where(jnp.isinf(x), 0, function(x)).sum())(x)
        assert_close(gradient, array([0, 0, 0] if function is ops.softmax else [0, 1, -1], dtype))


def test_softmax_over_more_elements_than_float16_can_count():
    assert_close(ops.softmax(np.zeros(70_000, np.float16))[:1], array([1 / 70_000], np.float16))


@pytest.mark.parametrize("function", [f for f, *_ in LIMITS])
def test_nan_passes(function):
    selects = function in (ops.thresholded_relu, ops.shrink)  # "0 otherwise", says the schema
    assert np.isnan(function(array([np.nan]))[0]) != selects


@pytest.mark.parametrize(
    ("function", "at", "expected"),
    [
        (lambda x: ops.clip(x, None, 2.0), [2], [1]),
        (lambda x: ops.clip(x, -1.5), [-1.5], [1]),
        (ops.hardmax, [1, 1], [0, 0]),
    ],
)
def test_kinks_beside_those_that_are_stated(function, at, expected):
    x = array(at)
    assert_close(jax.jvp(function, (x,), (np.ones_like(x),))[1], array(expected))
    y, pull = jax.vjp(function, x)
    assert_close(pull(jnp.ones_like(y))[0], array(expected))


@pytest.mark.parametrize(
    "function",
    [
        *(f for f, *_ in LIMITS[:-1]),
        lambda x: ops.clip(x, -1.0, 1.0),
        ops.softmax,
        functools.partial(activation.softmax_1, axis=0),
        ops.log_softmax,
        functools.partial(activation.log_softmax_1, axis=0),
    ],
)
def test_gradients(function):
    check_gradients(jax.jit(function), [-4.2, -1.3, -0.7, 0.6, 1.4, 4.1])


def test_gradients_by_slope_and_bounds():
    x = [[-4.2, -1.3, -0.7], [0.6, 1.4, -4.1]]
    check_gradients(jax.jit(ops.prelu), x, [0.5, -0.3, 2.0])
    check_gradients(jax.jit(ops.clip), x, -1.0, 1.2)
    check_gradients(jax.jit(ops.clip), x, 1.2, -1.0)

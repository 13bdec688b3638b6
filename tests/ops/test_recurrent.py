"""Recurrent layers, against the equations of the specification written as loops."""

from typing import Any

import helpers
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import export

from jaxonnx import ops
from jaxonnx.errors import InvalidModelError

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DEFAULTS = {"RNN": ["tanh"], "GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"]}
PLAIN = {"tanh": np.tanh, "sigmoid": lambda x: 1 / (1 + np.exp(-x))}
DIRECTIONS = ["forward", "reverse", "bidirectional"]


def spec_step(op_type, x, state, w, r, b, p, linear_before_reset, input_forget, clip):
    """One step of one sequence, as the specification writes it."""
    functions = [
        lambda v, f=PLAIN[n]: f(v if clip is None else np.clip(v, -clip, clip))
        for n in DEFAULTS[op_type]
    ]
    wb, rb = np.split(b, 2)
    h, *rest = state
    if op_type == "RNN":
        return [functions[0](x @ w.T + h @ r.T + wb + rb)]
    f, g, *last = functions
    gates = zip(np.split(w, GATES[op_type]), np.split(wb, GATES[op_type]), strict=True)
    inner = [x @ wk.T + wbk for wk, wbk in gates]
    rs, rbs = np.split(r, GATES[op_type]), np.split(rb, GATES[op_type])
    if op_type == "GRU":
        z = f(inner[0] + h @ rs[0].T + rbs[0])
        reset = f(inner[1] + h @ rs[1].T + rbs[1])
        if linear_before_reset:
            new = g(inner[2] + reset * (h @ rs[2].T + rbs[2]))
        else:
            new = g(inner[2] + (reset * h) @ rs[2].T + rbs[2])
        return [(1 - z) * new + z * h]
    i, o, forget, new = (inner[k] + h @ rs[k].T + rbs[k] for k in range(4))
    pi, po, pf = np.split(p, 3)
    c = rest[0]
    i = f(i + pi * c)
    forget = 1 - i if input_forget else f(forget + pf * c)
    c = forget * c + i * g(new)
    return [f(o + po * c) * last[0](c), c]


def spec(op_type, inputs, direction="forward", linear_before_reset=0, input_forget=0, clip=None):
    """Y and the last states, a sequence and a direction at a time, in double."""
    doubles: list[Any] = [None if v is None else np.asarray(v, np.float64) for v in inputs]
    x, w, r, b, lengths, *rest = doubles
    (time, batch, _), (count, _, hidden) = x.shape, r.shape
    states, p = (rest[:2], rest[2]) if op_type == "LSTM" else (rest, None)
    b = np.zeros((count, 2 * w.shape[1])) if b is None else b
    p = np.zeros((count, 3 * hidden)) if p is None else p
    y = np.zeros((time, count, batch, hidden))
    finals = [np.zeros((count, batch, hidden)) for _ in states]
    for d in range(count):
        for n in range(batch):
            length = time if lengths is None else int(lengths[n])
            state = [np.zeros(hidden) if s is None else s[d, n] for s in states]
            backward = direction == "reverse" or d == 1
            for t in range(length)[:: -1 if backward else 1]:
                arguments = w[d], r[d], b[d], p[d], linear_before_reset, input_forget, clip
                state = spec_step(op_type, x[t, n], state, *arguments)
                y[t, d, n] = state[0]
            for final, s in zip(finals, state, strict=True):
                final[d, n] = s
    return [v.astype(inputs[0].dtype) for v in (y, *finals)]


def random_inputs(
    op_type, seed=0, *, directions=1, optional=True, dtype: Any = np.float32
) -> list[Any]:
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.normal(size=shape).astype(dtype)

    time, batch, size, hidden, rows = 4, 3, 2, 3, 3 * GATES[op_type]
    inputs = [
        normal(time, batch, size),
        normal(directions, rows, size),
        normal(directions, rows, hidden),
    ]
    absent = 3 if op_type != "LSTM" else 5
    if not optional:
        return [*inputs, *[None] * absent]
    inputs += [normal(directions, 2 * rows), np.array([4, 1, 2], np.int32)]
    inputs += [normal(directions, batch, hidden)]
    if op_type == "LSTM":
        inputs += [normal(directions, batch, hidden), normal(directions, 3 * hidden)]
    return inputs


def run(op_type, inputs, **attributes) -> Any:
    function = getattr(ops, op_type.lower())
    outputs = 3 if op_type == "LSTM" else 2
    return function(*inputs, outputs=outputs, **attributes)


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op_type", GATES)
def test_equations(op_type, direction, optional):
    directions = 2 if direction == "bidirectional" else 1
    inputs = random_inputs(op_type, directions=directions, optional=optional)
    expected = spec(op_type, inputs, direction)
    for actual, value in zip(run(op_type, inputs, direction=direction), expected, strict=True):
        helpers.assert_close(actual, value)


VARIANTS = [
    ("RNN", {"clip": 0.5}),
    ("GRU", {"clip": 0.5}),
    ("GRU", {"linear_before_reset": 1}),
    ("LSTM", {"clip": 0.5}),
    ("LSTM", {"input_forget": 1}),
]


@pytest.mark.parametrize(("op_type", "attributes"), VARIANTS)
def test_variants_of_the_equations(op_type, attributes):
    inputs = random_inputs(op_type)
    expected = spec(op_type, inputs, **attributes)
    for actual, value in zip(run(op_type, inputs, **attributes), expected, strict=True):
        helpers.assert_close(actual, value)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op_type", GATES)
def test_onnxruntime_agrees(op_type, direction, seed):
    rng = np.random.default_rng(seed)
    directions = 2 if direction == "bidirectional" else 1
    inputs = random_inputs(op_type, seed, directions=directions)
    inputs = [v if k < 3 or rng.random() < 0.6 else None for k, v in enumerate(inputs)]
    parametrised = ["LeakyRelu", "HardSigmoid", "Elu", "Affine", "ScaledTanh", "ThresholdedRelu"]
    plain = ["Relu", "Softsign", "Softplus", "Tanh", "Sigmoid"]
    count = len(DEFAULTS[op_type]) * directions
    names = [str(n) for n in rng.choice(parametrised + plain, count)]
    given = {
        f"activation_{n}": [float(v) for v in rng.uniform(0.1, 1, count)] for n in ("alpha", "beta")
    }
    options = {"direction": direction, "hidden_size": 3, "activations": names, **given}
    options |= {"GRU": {"linear_before_reset": seed % 2}, "LSTM": {"input_forget": seed % 2}}.get(
        op_type, {}
    )
    outputs = 3 if op_type == "LSTM" else 2
    model = helpers.node_model(op_type, inputs, opset=14, outputs=outputs, **options)
    expected = helpers.onnxruntime(model, *(v for v in inputs if v is not None))
    attributes = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    for actual, value in zip(run(op_type, inputs, **attributes), expected, strict=True):
        helpers.assert_close(actual, value, scale=10)  # it approximates tanh and the sigmoid


X = np.array([-2, -0.5, 0.25, 1, 1.5, 4], np.float32)


@pytest.mark.parametrize(
    ("name", "alpha", "beta", "expected"),
    [
        ("Relu", None, None, [0, 0, 0.25, 1, 1.5, 4]),
        ("relu", None, None, [0, 0, 0.25, 1, 1.5, 4]),
        ("Tanh", None, None, np.tanh(X)),
        ("Sigmoid", None, None, 1 / (1 + np.exp(-X))),
        ("Affine", None, None, X),
        ("Affine", 2, 1, [-3, 0, 1.5, 3, 4, 9]),
        ("LeakyRelu", None, None, [-0.02, -0.005, 0.25, 1, 1.5, 4]),
        ("LeakyRelu", 0.5, None, [-1, -0.25, 0.25, 1, 1.5, 4]),
        ("ThresholdedRelu", None, None, [0, 0, 0, 1, 1.5, 4]),  # alpha itself passes
        ("THRESHOLDEDRELU", 1.5, None, [0, 0, 0, 0, 1.5, 4]),
        ("ScaledTanh", None, None, np.tanh(X)),
        ("ScaledTanh", 2, 0.5, 2 * np.tanh(X / 2)),
        ("HardSigmoid", None, None, [0.1, 0.4, 0.55, 0.7, 0.8, 1]),
        ("HardSigmoid", 0.5, 0.25, [0, 0, 0.375, 0.75, 1, 1]),
        ("Elu", None, None, [np.expm1(-2), np.expm1(-0.5), 0.25, 1, 1.5, 4]),
        ("Elu", 0.5, None, [np.expm1(-2) / 2, np.expm1(-0.5) / 2, 0.25, 1, 1.5, 4]),
        ("Softsign", None, None, [-2 / 3, -1 / 3, 0.2, 0.5, 0.6, 0.8]),
        ("Softplus", None, None, np.log1p(np.exp(X))),
    ],
)
def test_activations(name, alpha, beta, expected):
    x, one, zero = (
        X.reshape(1, -1, 1),
        np.ones((1, 1, 1), np.float32),
        np.zeros((1, 1, 1), np.float32),
    )
    alpha, beta = (None if v is None else (float(v),) for v in (alpha, beta))
    y: Any = ops.rnn(
        x, one, zero, activations=(name,), activation_alpha=alpha, activation_beta=beta
    )
    helpers.assert_close(y[0, 0, :, 0], np.asarray(expected, np.float32))


def test_parameters_go_to_the_activations_that_take_them():
    x, w, r = np.ones((1, 1, 1), np.float32), np.ones((2, 1, 1), np.float32), np.zeros((2, 1, 1))
    y: Any = ops.rnn(
        x,
        w,
        r.astype(np.float32),
        direction="bidirectional",
        activations=("Relu", "Affine"),
        activation_alpha=(3.0,),
        activation_beta=(4.0,),
    )
    helpers.assert_close(y.ravel(), np.array([1, 7], np.float32))


@pytest.mark.parametrize("op_type", GATES)
def test_layout_1_puts_the_batch_first(op_type):
    inputs = random_inputs(op_type, directions=2)
    plain = run(op_type, inputs, direction="bidirectional")
    swapped = [v if k in {1, 2, 3, 4, 7} else v.swapaxes(0, 1) for k, v in enumerate(inputs)]
    y, *states = run(op_type, swapped, direction="bidirectional", layout=1)
    helpers.assert_close(y, plain[0].transpose(2, 0, 1, 3))
    for state, value in zip(states, plain[1:], strict=True):
        helpers.assert_close(state, value.swapaxes(0, 1))


def test_reverse_starts_at_the_end_of_each_sequence():
    # H = x + 2 H: a sequence of two of length 3 gives, from its end, x1 and x0 + 2 x1.
    x = np.array([1, 10, 100], np.float32).reshape(3, 1, 1)
    one = np.ones((1, 1, 1), np.float32)
    inputs = [x, one, 2 * one, None, np.array([2], np.int32), None]
    options = {"direction": "reverse", "activations": ["Affine"], "hidden_size": 1, "opset": 14}
    y, last = helpers.run_node("RNN", inputs, outputs=2, **options)
    helpers.assert_close(y.ravel(), np.array([21, 10, 0], np.float32))
    helpers.assert_close(last.ravel(), np.array([21], np.float32))


@pytest.mark.parametrize("op_type", GATES)
def test_empty_sequences_keep_the_initial_state(op_type):
    inputs = random_inputs(op_type)
    inputs[4] = np.array([0, 4, 0], np.int32)
    y, *states = run(op_type, inputs)
    assert not np.any(y[:, :, [0, 2]])
    for state, initial in zip(states, inputs[5:7], strict=False):
        helpers.assert_close(state[:, [0, 2]], initial[:, [0, 2]])


@pytest.mark.parametrize("op_type", GATES)
def test_no_time_and_no_batch(op_type):
    inputs = random_inputs(op_type)
    no_time = [inputs[0][:0], *inputs[1:4], None, *inputs[5:]]
    y, *states = run(op_type, no_time)
    assert y.shape == (0, 1, 3, 3)
    for state, initial in zip(states, inputs[5:7], strict=False):
        helpers.assert_close(state, initial)
    assert run(op_type, [inputs[0][:, :0], *inputs[1:3]])[0].shape == (4, 1, 0, 3)


@pytest.mark.parametrize("op_type", GATES)
def test_a_long_sequence_is_no_larger_a_program(op_type):
    _, *weights = random_inputs(op_type, optional=False)[:3]

    def program(time):
        return str(jax.make_jaxpr(lambda x: run(op_type, [x, *weights]))(np.zeros((time, 1, 2))))

    assert len(program(10)) == len(program(90))


VERSIONS = [("RNN", v) for v in (1, 7, 14, 22)] + [("GRU", v) for v in (1, 3, 7, 14, 22)]
VERSIONS += [("LSTM", v) for v in (1, 7, 14, 22)]


@pytest.mark.parametrize(("op_type", "opset"), VERSIONS)
def test_versions(op_type, opset):
    inputs = random_inputs(op_type, optional=False)[:3]
    outputs = 3 if op_type == "LSTM" else 2
    old = {"output_sequence": 1} if opset < 7 else {}
    actual = helpers.run_node(op_type, inputs, opset=opset, outputs=outputs, hidden_size=3, **old)
    expected = spec(op_type, random_inputs(op_type, optional=False))
    for a, e in zip(actual, expected, strict=True):
        helpers.assert_close(a, e)


@pytest.mark.parametrize("dtype", helpers.FLOATS)
@pytest.mark.parametrize("op_type", GATES)
def test_dtypes(op_type, dtype):
    with jax.enable_x64(True):
        inputs = random_inputs(op_type, dtype=dtype)
        expected = spec(op_type, inputs)
        scale = 4 if dtype in (np.float16, ml_dtypes.bfloat16) else 1  # rounded at each step
        for actual, value in zip(run(op_type, inputs), expected, strict=True):
            helpers.assert_close(actual, value, scale=scale)


@pytest.mark.parametrize("op_type", GATES)
def test_gradients(op_type):
    inputs = random_inputs(op_type)
    inputs[0] = inputs[0][:2, :2]
    inputs[5:7] = [s[:, :2] for s in inputs[5:7]]
    inputs.pop(4)
    lengths = np.array([2, 1], np.int32)

    def function(*inputs):
        return run(op_type, [*inputs[:4], lengths, *inputs[4:]], direction="reverse")

    order = 2 if op_type == "RNN" else 1  # the cells share one scan, and the second is slow
    helpers.check_gradients(jax.jit(function), *(v / 2 for v in inputs), order=order)


def test_derivative_at_the_clip_is_1():
    one, zero = np.ones((1, 1, 1), np.float32), np.zeros((1, 1, 1), np.float32)

    def function(x):
        return ops.rnn(x, one, zero, activations=("Affine",), clip=1.0)

    for x, slope in ((one, one), (-one, one), (2 * one, zero), (-2 * one, zero)):
        derivative = slope.reshape(1, 1, 1, 1)
        helpers.assert_close(jax.jvp(function, (x,), (one,))[1], derivative)
        helpers.assert_close(jax.vjp(function, x)[1](jnp.ones_like(derivative))[0], slope)


def test_padding_does_not_reach_the_gradient():
    x = np.full((2, 1, 2), np.nan, np.float32)
    x[0] = 1
    _, w, r = random_inputs("GRU", optional=False)[:3]
    short = np.array([1], np.int32)
    gradient = jax.grad(lambda w: jnp.sum(run("GRU", [x, w, r, None, short])[0]))(w)
    assert np.isfinite(gradient).all()


def test_symbolic_time_and_batch():
    time, batch = export.symbolic_shape("t, n")
    specs = [(time, batch, 2), (2, 12, 2), (2, 12, 3)]
    specs = [jax.ShapeDtypeStruct(s, np.float32) for s in specs]

    def function(x, w, r, lengths):
        return ops.lstm(x, w, r, None, lengths, direction="bidirectional", outputs=2)

    exported = export.export(jax.jit(function))(*specs, jax.ShapeDtypeStruct((batch,), np.int32))
    inputs = random_inputs("LSTM", directions=2, optional=False)
    inputs[4] = np.array([1, 4, 2], np.int32)
    expected = spec("LSTM", inputs, "bidirectional")
    helpers.assert_close(exported.call(*inputs[:3], inputs[4])[0], expected[0])


def test_errors():
    x, w, r = random_inputs("LSTM", optional=False)[:3]
    with pytest.raises(InvalidModelError, match="expected one of forward, reverse, bidirectional"):
        ops.lstm(x, w, r, direction="backward")
    with pytest.raises(InvalidModelError, match="activations for 0 directions"):
        ops.lstm(x, w, r, activations=("Tanh",))
    with pytest.raises(InvalidModelError, match="activation 'Swish', expected one of"):
        ops.rnn(x, w, r, activations=("Swish",))
    with pytest.raises(InvalidModelError, match=r"R has shape \(1, 12, 3\), .* 'bidirectional'"):
        ops.lstm(x, w, r, direction="bidirectional")
    with pytest.raises(InvalidModelError, match="hidden_size 4"):
        ops.lstm(x, w, r, hidden_size=4)

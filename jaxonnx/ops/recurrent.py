"""Recurrent layers."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.known import same_dim
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops._axes import same_shape
from jaxonnx.ops._indices import check_range, outside, undefined
from jaxonnx.ops.activation import (
    elu,
    hard_sigmoid,
    leaky_relu,
    relu,
    sigmoid,
    softplus,
    softsign,
)

__all__ = ["gru", "lstm", "rnn"]

Functions = Sequence[Callable[[Array], Array]]
Step = Callable[..., tuple[Array, ...]]
Strings = tuple[str, ...]
Floats = tuple[float, ...]


@register("RNN", 1, 7, 14, 22, weights=["w", "r", "b"], product=True)
def rnn(
    x: ArrayLike,
    w: ArrayLike,
    r: ArrayLike,
    b: ArrayLike | None = None,
    sequence_lens: ArrayLike | None = None,
    initial_h: ArrayLike | None = None,
    /,
    *,
    activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None,
    activations: Strings = ("Tanh", "Tanh"),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    output_sequence: int = 0,
    outputs: int = 1,
) -> Array | tuple[Array, ...]:
    """``H = f(x @ W.T + H @ R.T + b)`` over time, in one direction or both.

    X is (time, batch, size), states are (directions, batch, hidden), Y is (time, directions,
    batch, hidden); with ``layout`` 1 the batch comes first. Y is in the order of X whatever the
    direction, and 0 beyond the end of a sequence. Outputs: Y, last H. They are NaN for a sequence
    whose length, computed when the model runs, is not between 0 and the time.

    Raises:
        InvalidModelError: if the direction or an activation is unknown, activations are too few,
            weights do not fit X, the direction and the hidden size, or a known length is not
            between 0 and the time.
    """
    del output_sequence  # opset 1: whether Y is wanted, which the node's outputs say too
    return _layer(
        _rnn_cell,
        _functions(activations, 1, activation_alpha, activation_beta, clip),
        (x, w, r, b, sequence_lens),
        [initial_h],
        gates=1,
        form=_Form(direction, hidden_size, layout, outputs),
    )


def _rnn_cell(functions: Functions, r: Array, b: Array, _: None) -> Step:
    (f,) = functions
    return lambda x, h: (f(x + h @ r + b),)


@register("GRU", 1, 3, 7, 14, 22, weights=["w", "r", "b"], product=True)
def gru(
    x: ArrayLike,
    w: ArrayLike,
    r: ArrayLike,
    b: ArrayLike | None = None,
    sequence_lens: ArrayLike | None = None,
    initial_h: ArrayLike | None = None,
    /,
    *,
    activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None,
    activations: Strings | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
    output_sequence: int = 0,
    outputs: int = 1,
) -> Array | tuple[Array, ...]:
    """Gated recurrent units; shapes, outputs and errors as of :func:`rnn`.

    References:
        Cho et al., https://arxiv.org/abs/1406.1078.
    """
    del output_sequence  # as in rnn
    names = activations or ("Sigmoid", "Tanh") * 2
    return _layer(
        functools.partial(_gru_cell, linear_before_reset=linear_before_reset),
        _functions(names, 2, activation_alpha, activation_beta, clip),
        (x, w, r, b, sequence_lens),
        [initial_h],
        gates=3,
        form=_Form(direction, hidden_size, layout, outputs),
    )


def _gru_cell(
    functions: Functions, r: Array, b: Array, _: None, *, linear_before_reset: int
) -> Step:
    f, g = functions

    def step(x: Array, h: Array) -> tuple[Array]:
        cut = 2 * h.shape[-1]  # gates are z, r, h
        z, reset = jnp.split(f(x[:, :cut] + h @ r[:, :cut] + b[:cut]), 2, axis=-1)
        if linear_before_reset:
            candidate = g(x[:, cut:] + reset * (h @ r[:, cut:] + b[cut:]))
        else:
            candidate = g(x[:, cut:] + (reset * h) @ r[:, cut:] + b[cut:])
        return ((1 - z) * candidate + z * h,)

    return step


@register("LSTM", 1, 7, 14, 22, weights=["w", "r", "b", "p"], product=True)
def lstm(
    x: ArrayLike,
    w: ArrayLike,
    r: ArrayLike,
    b: ArrayLike | None = None,
    sequence_lens: ArrayLike | None = None,
    initial_h: ArrayLike | None = None,
    initial_c: ArrayLike | None = None,
    p: ArrayLike | None = None,
    /,
    *,
    activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None,
    activations: Strings | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
    output_sequence: int = 0,
    outputs: int = 1,
) -> Array | tuple[Array, ...]:
    """Long short-term memory with peepholes P; shapes and errors as of :func:`rnn`.

    Outputs: Y, last H, last C.

    References:
        Hochreiter and Schmidhuber, https://doi.org/10.1162/neco.1997.9.8.1735.
    """
    del output_sequence  # as in rnn
    names = activations or ("Sigmoid", "Tanh", "Tanh") * 2
    return _layer(
        functools.partial(_lstm_cell, input_forget=input_forget),
        _functions(names, 3, activation_alpha, activation_beta, clip),
        (x, w, r, b, sequence_lens),
        [initial_h, initial_c],
        gates=4,
        peepholes=p,
        form=_Form(direction, hidden_size, layout, outputs),
    )


def _lstm_cell(
    functions: Functions,
    r: Array,
    b: Array,
    peepholes: Array | None,
    *,
    input_forget: int,
) -> Step:
    f, g, out = functions

    def step(x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        i, o, forget, new = jnp.split(x + h @ r + b, 4, axis=-1)
        p_i = p_o = p_f = None
        if peepholes is not None:
            p_i, p_o, p_f = jnp.split(peepholes, 3)
        i = f(_peep(i, p_i, c))
        forget = 1 - i if input_forget else f(_peep(forget, p_f, c))
        c = forget * c + i * g(new)
        return f(_peep(o, p_o, c)) * out(c), c

    return step


def _peep(gate: Array, weight: Array | None, c: Array) -> Array:
    return gate if weight is None else gate + weight * c


_DIRECTIONS = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}


class _Form(NamedTuple):
    """How a layer is asked for: attributes, and the number of outputs."""

    direction: str
    hidden_size: int | None
    layout: int
    outputs: int


def _layer(
    cell: Callable[..., Step],
    functions: Sequence[Functions],
    inputs: tuple[Any, ...],
    initial: Sequence[ArrayLike | None],
    *,
    gates: int,
    form: _Form,
    peepholes: ArrayLike | None = None,
) -> Array | tuple[Array, ...]:
    """Y and the last states of a cell over time in each direction."""
    x, w, r = map(jnp.asarray, inputs[:3])
    b, lengths = inputs[3:]
    backward = _checked_directions(form, functions, r)
    _check_sizes(x, w, r, b, gates * r.shape[-1])
    first = (lambda a: jnp.swapaxes(a, 0, 1)) if form.layout else jnp.asarray
    x, states = first(x), [None if s is None else first(s) for s in initial]
    valid = None
    if lengths is not None:
        _check_lengths(lengths, x)
        valid = (jnp.arange(x.shape[0], dtype=np.int32)[:, None] < lengths)[..., None]
        x = jnp.where(valid, x, 0)  # beyond the end there may be NaN
    b = jnp.zeros((len(backward), 2 * w.shape[1]), x.dtype) if b is None else jnp.asarray(b)
    p = [None] * len(backward) if peepholes is None else jnp.asarray(peepholes)
    runs = []
    for d, reverse in enumerate(backward):
        b_w, b_r = jnp.split(b[d], 2)
        inner = jnp.einsum("tbi,gi->tbg", x, w[d]) + b_w  # one product for all times
        zero = jnp.zeros_like(inner, shape=(*inner.shape[1:-1], r.shape[-1]))
        start = tuple(zero if s is None else zero + s[d] for s in states)
        runs.append(_scan(cell(functions[d], r[d].T, b_r, p[d]), inner, valid, start, reverse))
    return _gathered(runs, form, None if lengths is None else outside(lengths, x.shape[0]))


def _gathered(
    runs: Sequence[tuple[Array, tuple[Array, ...]]], form: _Form, wrong: Array | None
) -> Array | tuple[Array, ...]:
    """The results of all directions as outputs, NaN for the sequences that are ``wrong``."""
    ys, lasts = zip(*runs, strict=True)
    results = [jnp.stack(ys, axis=1), *map(jnp.stack, zip(*lasts, strict=True))]
    if wrong is not None:
        results = [undefined(a, wrong[:, None]) for a in results]
    if form.layout:
        results = [jnp.moveaxis(a, -2, 0) for a in results]
    return tuple(results[: form.outputs]) if form.outputs > 1 else results[0]


def _checked_directions(form: _Form, functions: Sequence[Functions], r: Array) -> Sequence[bool]:
    """Whether each direction goes backward; refused if activations or R are not for that many."""
    backward = _DIRECTIONS.get(form.direction, [])
    if not 0 < len(backward) <= len(functions):
        raise InvalidModelError(
            f"direction {form.direction!r} has activations for {len(functions)} directions; "
            f"expected one of {', '.join(_DIRECTIONS)}, and activations for each"
        )
    if not same_dim(r.shape[0], len(backward)) or form.hidden_size not in {None, r.shape[-1]}:
        raise InvalidModelError(
            f"R has shape {r.shape}, but direction is {form.direction!r} and hidden_size "
            f"{form.hidden_size}"
        )
    return backward


def _check_sizes(x: Array, w: Array, r: Array, b: ArrayLike | None, rows: int) -> None:
    """Refuse weights that do not fit ``x`` and the ``rows`` of all gates."""
    directions, _, size = r.shape
    expected = {
        "W": (w, (directions, rows, x.shape[-1])),
        "R": (r, (directions, rows, size)),
        "B": (b, (directions, 2 * rows)),
    }
    for name, (given, shape) in expected.items():
        if given is not None and not same_shape(jnp.shape(given), shape):
            raise InvalidModelError(f"{name} has shape {jnp.shape(given)}, expected {shape}")


def _check_lengths(lengths: ArrayLike, x: Array) -> None:
    """Refuse lengths that are not one for each sequence of (time, batch, size), within its time."""
    times, batch, _ = x.shape
    if not same_shape(jnp.shape(lengths), (batch,)):
        raise InvalidModelError(
            f"sequence_lens has shape {jnp.shape(lengths)}, expected ({batch},)"
        )
    check_range(lengths, times, "sequence_lens")


def _scan(
    step: Step, inner: Array, valid: Array | None, start: tuple[Array, ...], reverse: bool
) -> tuple[Array, tuple[Array, ...]]:
    """All first states and the last states. Beyond its end a sequence waits in its state.

    So in reverse it starts at its own end, with the initial state.
    """

    def body(state: Any, now: Any) -> tuple[Any, Array]:
        x, ok = now
        new = step(x, *state)
        if ok is None:
            return new, new[0]
        kept = tuple(jnp.where(ok, n, s) for n, s in zip(new, state, strict=True))
        return kept, jnp.where(ok, new[0], 0)

    last, y = lax.scan(body, start, (inner, valid), reverse=reverse)
    return y, last


# Each with the defaults of its parameters, which are those of the operator of its name.
_ACTIVATIONS: dict[str, tuple[Callable[..., Any], dict[str, float]]] = {
    "affine": (lambda x, *, alpha, beta: alpha * x + beta, {"alpha": 1.0, "beta": 0.0}),
    "elu": (elu, {"alpha": 1.0}),
    "hardsigmoid": (hard_sigmoid, {"alpha": 0.2, "beta": 0.5}),
    "leakyrelu": (leaky_relu, {"alpha": 0.01}),
    "relu": (relu, {}),
    "scaledtanh": (
        lambda x, *, alpha, beta: alpha * jnp.tanh(beta * x),
        {"alpha": 1.0, "beta": 1.0},
    ),
    "sigmoid": (sigmoid, {}),
    "softplus": (softplus, {}),
    "softsign": (softsign, {}),
    "tanh": (jnp.tanh, {}),
    "thresholdedrelu": (lambda x, *, alpha: jnp.where(x >= alpha, x, 0), {"alpha": 1.0}),
}


def _functions(
    names: Sequence[str], count: int, alpha: Floats | None, beta: Floats | None, clip: float | None
) -> list[Functions]:
    """``count`` activations for each direction; each takes the next alpha, beta that it needs."""
    given = {"alpha": iter(alpha or ()), "beta": iter(beta or ())}
    functions = []
    for name in names:
        if name.lower() not in _ACTIVATIONS:
            raise InvalidModelError(f"activation {name!r}, expected one of {sorted(_ACTIVATIONS)}")
        function, defaults = _ACTIVATIONS[name.lower()]
        chosen = {n: next(given[n], default) for n, default in defaults.items()}
        functions.append(functools.partial(_apply, functools.partial(function, **chosen), clip))
    return [functions[k : k + count] for k in range(0, len(functions) - count + 1, count)]


def _apply(function: Callable[[Array], Array], clip: float | None, x: Array) -> Array:
    """``function`` of ``x`` clipped to [-clip, clip]; the derivative at a bound is 1."""
    if clip is not None:
        x = jnp.where(x > clip, clip, jnp.where(x < -clip, -clip, x))
    return function(x)

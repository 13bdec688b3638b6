"""Every derivative that is stated, in both modes and orders and every type, and other choices."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FLOATS, assert_close, f32, text_model

import jaxonnx
from jaxonnx import ops, stated
from jaxonnx.errors import InputError

EXAMPLES = [
    pytest.param(example, id=f"{example.op}-{row.where}-{k}")
    for rows in stated.SECTIONS.values()
    for row in rows
    for k, example in enumerate(row.examples)
]


def function_of(example: stated.Example, dtype: Any) -> tuple[Any, Any]:
    """The sum of the results as a function of the input in question, and that input."""
    inputs = [v if isinstance(v, np.ndarray) else np.asarray(v, dtype) for v in example.inputs]

    def function(x: Any) -> Any:
        args = [*inputs]
        args[example.by] = x
        results = getattr(ops, example.op)(*args, **example.attributes)
        first = results[0] if isinstance(results, tuple) else results
        return jnp.sum(first.astype(dtype))

    return function, jnp.asarray(inputs[example.by])


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("example", EXAMPLES)
def test_stated_derivative(example, dtype):
    with jax.enable_x64(True):
        function, x = function_of(example, dtype)
        both = jax.jit(lambda x: (jax.grad(function)(x), jax.jacfwd(function)(x)))
        for given in both(x):
            assert_close(given, np.asarray(example.expected, dtype))


def test_what_goes_by_way_of_integers_has_the_derivative_0():
    (row,) = (r for rows in stated.SECTIONS.values() for r in rows if not r.examples)
    assert row.function == "Casts to integers, QuantizeLinear, QLinear operators"
    one, zero = f32(1), np.int8(0)

    def quantised(x):
        q = ops.quantize_linear(x, one, zero)
        product = ops.q_linear_matmul(q, one, zero, q.T, one, zero, one, zero)
        return ops.dequantize_linear(q, one, zero).sum() + product.astype(np.float32).sum()

    for function in (quantised, lambda x: ops.cast(ops.cast(x, to=6), to=1).sum()):
        x = f32([[1.5, -2.25]])
        np.testing.assert_array_equal(jax.grad(function)(x), 0 * x)
        np.testing.assert_array_equal(jax.jacfwd(function)(x), 0 * x)


@pytest.mark.parametrize("example", EXAMPLES)
def test_second_derivatives_agree(example):
    function, x = function_of(example, np.float32)
    slope = jax.grad(function)
    both = jax.jit(lambda x: (jax.jacfwd(slope)(x), jax.jacrev(slope)(x)))
    np.testing.assert_array_equal(*both(x))


def test_choices_of_operators():
    zero, one = f32(0), f32(1)
    with jaxonnx.derivatives(relu=0.5, clip="inside", round="straight_through"):
        assert jax.grad(ops.relu)(zero) == 0.5
        assert jax.grad(ops.relu)(-one) == 0
        assert jax.grad(ops.clip)(zero, zero, one) == 0
        assert jax.grad(ops.clip, argnums=1)(zero, zero, one) == 1
        assert jax.grad(ops.clip, argnums=2)(one, zero, one) == 1
        assert jax.grad(ops.clip)(f32(0.5), zero, one) == 1
        for function in (ops.floor, ops.ceil, ops.round):
            assert jax.grad(function)(f32(0.3)) == 1
    assert jax.grad(ops.relu)(zero) == 0
    assert jax.grad(ops.floor)(f32(0.3)) == 0


def test_the_first_of_tied_elements():
    x = f32([[1, 2], [2, 2]])
    with jaxonnx.derivatives(max="first"):
        shares = jax.grad(ops.max, argnums=(0, 1, 2))(*f32([1, 2, 2]))
        assert [*map(float, shares)] == [0, 1, 0]
        whole = jax.grad(lambda x: ops.reduce_max(x, keepdims=0))(x)
        rows = jax.grad(lambda x: ops.reduce_max(x, np.array([1]), keepdims=0).sum())(x)
        columns = jax.grad(lambda x: ops.reduce_min(x, np.array([0]), keepdims=0).sum())(x)
    np.testing.assert_array_equal(whole, [[0, 1], [0, 0]])
    np.testing.assert_array_equal(rows, [[0, 1], [1, 0]])
    np.testing.assert_array_equal(columns, [[1, 1], [0, 0]])


def test_ties_over_several_axes_go_by_row_major_order():
    x = f32(np.zeros((2, 3, 2)))
    with jaxonnx.derivatives(max="first"):
        given = jax.grad(lambda x: ops.reduce_max(x, np.array([2, 0]), keepdims=0).sum())(x)
    expected = np.zeros_like(x)
    expected[0, :, 0] = 1
    np.testing.assert_array_equal(given, expected)


def test_contexts_nest_and_end():
    slope = jax.grad(ops.relu)
    with jaxonnx.derivatives(relu=0.5):
        with jaxonnx.derivatives(max="first"):
            assert slope(f32(0)) == 0.5
        with jaxonnx.derivatives(relu=1):
            assert slope(f32(0)) == 1
        assert slope(f32(0)) == 0.5
    assert slope(f32(0)) == 0


def test_a_model_is_traced_once_for_each_choice():
    model = jaxonnx.load(text_model("(float[N] x) => (float[N] y) { y = Relu(x) }", opset=22))
    x = f32([0, 1])
    gradient = jax.jit(jax.grad(lambda x: model(x).sum()))
    given = [gradient(x)]
    with jaxonnx.derivatives(relu=0.25):
        given += [gradient(x), jax.grad(lambda x: model(x).sum())(x)]
    given += [gradient(x)]
    np.testing.assert_array_equal(given, [[0, 1], [0.25, 1], [0.25, 1], [0, 1]])
    assert model._program.executor.compilations == 2


def test_the_choice_is_that_of_the_call_not_of_the_derivative():
    with jaxonnx.derivatives(relu=0.5):
        _, pull = jax.vjp(ops.relu, f32(0))
    assert pull(f32(1))[0] == 0.5


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"rleu": 0}, "no choice of 'rleu', only relu, max, clip, round"),
        ({"max": "last"}, "max is 'last', expected 'share' or 'first'"),
        ({"relu": "half"}, "relu is 'half', expected a number"),
    ],
)
def test_unknown_choices(choices, message):
    with pytest.raises(InputError, match=message), jaxonnx.derivatives(**choices):
        pass

"""int64 and double stay exact without x64, and derivatives in double ask for it."""

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from helpers import assert_close, node_model
from onnx import helper

import jaxonnx
from jaxonnx.errors import InputError, PrecisionError

BIG = np.array([2**40 + 1, -(2**53) - 1], np.int64)


def graph_model(nodes, inputs, outputs, stored=(), opset=20):
    infos = [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs]
    made = [helper.make_tensor_value_info(n, t, None) for n, t in outputs]
    graph = helper.make_graph(nodes, "g", infos, made, list(stored))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def test_x64_is_off_around_these_tests():
    assert jnp.result_type(float) == np.float32


def test_int64_survives_in_and_out():
    model = jaxonnx.load(node_model("Add", [BIG, BIG], opset=14))
    assert_close(np.asarray(model(BIG, BIG)), 2 * BIG)
    assert_close(np.asarray(model(BIG, np.array([1, 1], np.int32))), BIG + 1)


def test_int64_constants_survive():
    stored = [onnx.numpy_helper.from_array(BIG, "c")]
    node = helper.make_node("Sub", ["x", "c"], ["y"])
    model = graph_model([node], [("x", 7, [2])], [("y", 7)], stored)
    assert_close(np.asarray(jaxonnx.load(model)(np.zeros(2, np.int64))), -BIG)


def test_int64_survives_jit_and_vmap():
    model = jaxonnx.load(node_model("Mul", [BIG, BIG], opset=14))
    narrow = np.array([2**30, -5], np.int32)  # what a user's own jit leaves of int64
    squares = narrow.astype(np.int64) ** 2
    assert_close(np.asarray(jax.jit(model)(narrow, narrow)), squares)
    assert_close(
        np.asarray(jax.vmap(model)(np.stack([narrow] * 3), np.stack([narrow] * 3)))[2], squares
    )


def test_large_integer_constants_are_arguments_and_exact():
    table = np.arange(20_000, dtype=np.int64) + 2**40
    stored = [onnx.numpy_helper.from_array(table, "table")]
    node = helper.make_node("Gather", ["table", "i"], ["y"])
    model = jaxonnx.load(graph_model([node], [("i", 7, [None])], [("y", 7)], stored))
    assert_close(np.asarray(model(np.array([3, 19_999, -1]))), table[[3, -1, -1]])
    lowered = model._program.executor.whole.lower(model._leaves, {"i": np.zeros(1, np.int64)})
    assert len(lowered.as_text()) < 20_000


def test_double_stays_double():
    x = np.array([1 / 3], np.float64)
    model = jaxonnx.load(node_model("Mul", [x, x], opset=14))
    assert_close(np.asarray(model(x, x)), x * x)


def test_derivative_in_double_asks_for_x64():
    x = np.array([1 / 3], np.float64)
    model = jaxonnx.load(node_model("Mul", [x, x], opset=14))
    loss = lambda x: model(x, x).sum()
    with pytest.raises(InputError, match=r"jax.enable_x64\(True\)"):
        jax.grad(loss)(x)  # JAX has narrowed x before it gets here
    with jax.enable_x64(True):
        assert_close(np.asarray(jax.grad(loss)(x)), 2 * x)


def double_inside(differentiable: bool):
    """float32 in and out, with a detour through double."""
    nodes = [
        helper.make_node("Cast", ["x"], ["d"], to=11),
        helper.make_node("Mul", ["d", "d"], ["dd"]),
        helper.make_node("Cast", ["dd"], ["back"], to=1),
        helper.make_node("Mul", ["x", "x"] if not differentiable else ["x", "back"], ["y"]),
    ]
    return graph_model(nodes, [("x", 1, [1])], [("y", 1), ("back", 1)])


def test_double_inside_the_model_is_found_on_the_differentiated_path():
    model = jaxonnx.load(double_inside(differentiable=True))
    x = np.array([0.5], np.float32)
    loss = lambda x: model(x).y.sum()
    for grad in (jax.grad(loss), jax.jit(jax.grad(loss)), jax.grad(jax.jit(loss))):
        with pytest.raises(PrecisionError, match="differentiated path"):
            grad(x)
        with jax.enable_x64(True):
            assert_close(np.asarray(grad(x)), 3 * x**2)


def test_params_in_double_keep_their_dtype():
    stored = [onnx.numpy_helper.from_array(np.array([1 / 3, 2]), "w")]
    node = helper.make_node("Mul", ["x", "w"], ["y"])
    model = jaxonnx.load(graph_model([node], [("x", 11, [2])], [("y", 11)], stored))
    assert model.params["w"].dtype == np.float64
    assert_close(np.asarray(model(np.ones(2))), np.array([1 / 3, 2]))


def cast_to_double(*nodes, outputs=(("y", 1),), like=False):
    """``d``, ``x`` as a double, and what nodes make of it."""
    if like:
        first = helper.make_node("CastLike", ["x", "like"], ["d"])
    else:
        first = helper.make_node("Cast", ["x"], ["d"], to=11)
    inputs = [("x", 1, [1]), ("like", 11, [1])] if like else [("x", 1, [1])]
    return jaxonnx.load(graph_model([first, *nodes], inputs, outputs))


@pytest.mark.parametrize("like", [False, True])
def test_a_cast_to_double_is_guarded_where_it_is_used(like):
    square = helper.make_node("Mul", ["d", "d"], ["dd"])
    back = helper.make_node("Cast", ["dd"], ["y"], to=1)
    model = cast_to_double(square, back, like=like)
    x, more = np.array([0.5], np.float32), (np.array([1.0]),) if like else ()
    assert_close(model(x, *more), x * x)
    with pytest.raises(PrecisionError, match="differentiated path"):
        jax.grad(lambda x: model(x, *more).sum())(x)
    with jax.enable_x64(True):
        assert_close(jax.grad(lambda x: model(x, *more).sum())(x), 2 * x)


def test_a_double_that_no_derivative_flows_through_is_not_refused():
    """Exporters look for infinities so."""
    found = helper.make_node("IsInf", ["d"], ["inf"])
    chosen = helper.make_node("Where", ["inf", "x", "twice"], ["y"])
    model = cast_to_double(found, helper.make_node("Add", ["x", "x"], ["twice"]), chosen)
    x = np.array([0.5], np.float32)
    assert_close(jax.grad(lambda x: model(x).sum())(x), np.array([2], np.float32))


def test_a_double_output_is_guarded():
    model = cast_to_double(outputs=(("d", 11),))
    with pytest.raises(PrecisionError, match="differentiated path"):
        jax.grad(lambda x: model(x).sum())(np.array([0.5], np.float32))

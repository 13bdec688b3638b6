"""What a call costs, what becomes a literal, and what is folded."""

import subprocess
import sys
from unittest import mock

import jax
import numpy as np
import onnx
import pytest
from helpers import assert_close, f32, strings, text_model
from onnx import helper

import jaxonnx
from jaxonnx.run import trace

X = f32([1, -2, 3, -4])


def unpacked(rows=1000):
    """A product with int8 weights that are cast to float first."""
    weights = np.random.default_rng(0).integers(-9, 9, (rows, 256)).astype(np.int8)
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["q"], ["w"], to=1),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ],
        "unpacked",
        [helper.make_tensor_value_info("x", 1, ["N", rows])],
        [helper.make_tensor_value_info("y", 1, ["N", 256])],
        [onnx.numpy_helper.from_array(weights, "q")],
    )
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), weights


def test_weights_stay_packed():
    proto, weights = unpacked()
    model = jaxonnx.load(proto)
    assert model.params == {}
    assert [n.op_type for n in model._program.plan.graph.nodes] == ["Cast", "MatMul"]
    x = np.ones((1, 1000), np.float32)
    assert_close(model(x), x @ weights.astype(np.float32))
    small = jaxonnx.load(unpacked(rows=10)[0])
    assert [n.op_type for n in small._program.plan.graph.nodes] == ["MatMul"]


def test_large_constants_are_arguments_of_the_users_own_jit():
    proto, weights = unpacked()
    model, x = jaxonnx.load(proto), np.ones((1, 1000), np.float32)
    function = jax.jit(lambda m, x: m(x))
    view = model.inference()
    assert len(function.lower(model, x).as_text()) > weights.nbytes
    assert len(function.lower(view, x).as_text()) < 10_000
    assert_close(function(view, x), model(x))
    assert_close(view(x), model(x))
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(view)]
    assert paths == ["['q']"]
    assert jax.tree.leaves(model) == []
    assert jax.tree.structure(view) != jax.tree.structure(model)


def test_gradients_by_weights_beside_large_constants():
    model = jaxonnx.load(
        text_model("(float[N] x) => (float[N] y) <float[2] w = {2.0, 3.0}> { y = Mul(x, w) }")
    )
    for view in (model, model.inference()):
        grads = jax.grad(lambda m: m(X[:2]).sum())(view)
        assert_close(grads.params["w"], X[:2])


@pytest.mark.parametrize("unused", ["string[K] s", "seq(float[K]) s", "optional(float) s"])
def test_inputs_that_nothing_reads(unused):
    model = jaxonnx.load(text_model(f"(float[N] x, {unused}) => (float[N] y) {{ y = Neg(x) }}"))
    value = strings("a", "b") if unused.startswith("string") else [X]
    value = X[0] if unused.startswith("optional") else value
    assert_close(model(X, value), -X)
    assert_close(jax.jit(lambda x: model(x, value))(X), -X)


def test_a_call_evaluates_nothing_abstractly():
    text = "(float[N] x) => (int64[1, M] y) { p = NonZero(x) y = Neg(p) }"
    model = jaxonnx.load(text_model(text), buckets="pow2")
    assert_close(model(X), -np.arange(4)[None])
    with mock.patch.object(trace.jax, "eval_shape", side_effect=AssertionError):
        assert_close(model(X[:3]), -np.arange(3)[None])


def test_folding_is_linear_in_the_nodes():
    """A chain of 5,000 nodes; were known values copied at each, it would take minutes."""
    count = 5000
    nodes = [helper.make_node("Shape", ["x"], ["h0"])]
    nodes += [helper.make_node("Add", [f"h{k}", "one"], [f"h{k + 1}"]) for k in range(count)]
    nodes += [
        helper.make_node("Shape", ["one"], ["s"]),
        helper.make_node("Add", [f"h{count}", "s"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "chain",
        [],
        [helper.make_tensor_value_info("y", 7, [1])],
        [helper.make_tensor("one", 7, [1], [1]), helper.make_tensor("x", 1, [3], [1, 2, 3])],
    )
    model = jaxonnx.load(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    )
    assert model._program.plan.graph.nodes == ()
    assert_close(model(), np.array([3 + count + 1]))


def test_what_is_exported_loads_without_this_package(tmp_path):
    text = "(float[N] x) => (float[N] y, float[N] z) { y = Neg(x) z = Abs(x) }"
    exported = jaxonnx.load(text_model(text)).export()
    (tmp_path / "model.bin").write_bytes(exported.serialize())
    script = """
import sys
sys.modules["jaxonnx"] = None
import jax, numpy as np
data = open(sys.argv[1], "rb").read()
out = jax.export.deserialize(data).call({}, {"x": np.float32([1, -2])})
assert type(out) is tuple, out
print(*map(np.ndarray.tolist, map(np.asarray, out)))
"""
    command = [sys.executable, "-c", script, str(tmp_path / "model.bin")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[-1.0, 2.0] [1.0, 2.0]"

"""Attention and rotary embeddings."""

import math
from typing import Any

import helpers
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import export
from onnx import TensorProto, helper

import jaxonnx
from jaxonnx import ops
from jaxonnx.define.dtypes import dtype_of
from jaxonnx.errors import InvalidModelError

attention: Any = ops.attention
INF = np.inf


def normal(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=s).astype(np.float32) for s in shapes]


def seen_by(queries, keys, batch=1, **options):
    """Which keys each query attends, read off uniform weights."""
    q, k = np.zeros((batch, 1, queries, 2), np.float32), np.ones((batch, 1, keys, 2), np.float32)
    positional = [options.pop(n, None) for n in ("mask", "past_key", "past_value", "lengths")]
    *_, weights = attention(q, k, k, *positional, outputs=4, qk_matmul_output_mode=3, **options)
    return (np.asarray(weights)[:, 0] > 0).astype(int).tolist()


def test_one_head_by_hand():
    # Scores ln 3 and 0 weigh the values 3/4 and 1/4.
    q = np.array([[math.log(3)]], np.float32).reshape(1, 1, 1, 1)
    k = np.array([1, 0], np.float32).reshape(1, 1, 2, 1)
    v = np.array([[4, 8], [0, 4]], np.float32).reshape(1, 1, 2, 2)
    for opset in (23, 24, 25):
        (y,) = helpers.run_node("Attention", [q, k, v], opset=opset)
        helpers.assert_close(y, np.array([3, 7], np.float32).reshape(1, 1, 1, 2))


@pytest.mark.parametrize("opset", [23, 24, 25])
def test_both_oracles_agree(opset):
    shapes = [(2, 4, 3, 5), (2, 2, 4, 5), (2, 2, 4, 3), (3, 6), (2, 2, 2, 5), (2, 2, 2, 3)]
    inputs = normal(*shapes)
    options = {"softcap": 1.5, "scale": 0.7, "qk_matmul_output_mode": 3, "is_causal": 1}
    model = helpers.node_model("Attention", inputs, opset=opset, outputs=4, **options)
    actual = helpers.run_node("Attention", inputs, opset=opset, outputs=4, **options)
    for oracle in (helpers.reference, helpers.onnxruntime):
        for a, e in zip(actual, oracle(model, *inputs), strict=True):
            helpers.assert_close(a, e, scale=3)


def test_packed_inputs():
    q, k, v = normal((2, 4, 3, 5), (2, 2, 6, 5), (2, 2, 6, 7))
    expected = attention(q, k, v)
    packed = [x.swapaxes(1, 2).reshape(2, x.shape[2], -1) for x in (q, k, v)]
    y, key, value, scores = attention(*packed, q_num_heads=4, kv_num_heads=2, outputs=4)
    helpers.assert_close(y, expected.swapaxes(1, 2).reshape(2, 3, 28))
    helpers.assert_close(key, k)
    helpers.assert_close(value, v)
    assert scores.shape == (2, 4, 3, 6)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_kv_heads_serve_neighbouring_q_heads(kv_heads):
    q, k, v = normal((2, 4, 3, 5), (2, kv_heads, 6, 5), (2, kv_heads, 6, 7))
    repeated = (np.repeat(x, 4 // kv_heads, axis=1) for x in (k, v))
    helpers.assert_close(attention(q, k, v), attention(q, *repeated))


def test_scale():
    q, k, v = normal((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4))
    helpers.assert_close(attention(q, k, v), attention(q, k, v, scale=0.5))
    helpers.assert_close(attention(q, k, v, scale=-0.5), attention(-q, k, v), scale=3)
    helpers.assert_close(attention(q, k, v, scale=0.0)[0, 0, 0], v[0, 0].mean(0), scale=3)


def test_past_comes_first_and_is_not_masked():
    past = np.full((1, 1, 2, 2), 5, np.float32)
    lower = [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert seen_by(3, 3, past_key=past, past_value=past, is_causal=1) == [lower]
    q = np.zeros((1, 1, 1, 2), np.float32)
    _, key, value = attention(q, q, q + 1, None, past, 2 * past, outputs=3)
    helpers.assert_close(key[0, 0, :, 0], np.array([5, 5, 0], np.float32))
    helpers.assert_close(value[0, 0, :, 0], np.array([10, 10, 1], np.float32))


def test_causal_without_a_cache_starts_at_the_first_key():
    assert seen_by(2, 4, is_causal=1) == [[[1, 0, 0, 0], [1, 1, 0, 0]]]
    assert seen_by(3, 2, is_causal=1) == [[[1, 0], [1, 1], [1, 1]]]


def test_causal_with_valid_lengths():
    # The tables of the specification: 4 queries, 8 keys, 4 and 8 of them valid; and 2.
    lengths = np.array([4, 8, 2])
    a, b, c = seen_by(4, 8, batch=3, lengths=lengths, is_causal=1)
    assert a == [[1] * (i + 1) + [0] * (7 - i) for i in range(4)]
    assert b == [[1] * (i + 5) + [0] * (3 - i) for i in range(4)]
    assert c == [[0] * 8, [0] * 8, [1] + [0] * 7, [1, 1] + [0] * 6]
    assert seen_by(1, 3, batch=2, lengths=np.array([1, 3])) == [[[1, 0, 0]], [[1, 1, 1]]]


def test_windows():
    # The table of the specification.
    table = [[1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 0]]
    assert seen_by(4, 6, left_window_size=2, right_window_size=1) == [table]
    causal = [[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [0, 1, 1, 1, 0, 0]]
    options = {"left_window_size": 2, "right_window_size": 1, "is_causal": 1}
    assert seen_by(4, 6, **options) == [causal]
    assert seen_by(1, 4, batch=2, lengths=np.array([2, 4]), left_window_size=1) == [
        [[1, 1, 0, 0]],
        [[0, 0, 1, 1]],
    ]


def test_causal_and_mask_intersect():
    mask = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 1]], bool)
    assert seen_by(3, 3, mask=mask, is_causal=1) == [[[1, 0, 0], [0, 1, 0], [1, 0, 1]]]
    added = np.where(mask, 0, -INF).astype(np.float32)
    assert seen_by(3, 3, mask=added, is_causal=1) == [[[1, 0, 0], [0, 1, 0], [1, 0, 1]]]


@pytest.mark.parametrize(
    "shape", [(), (4,), (3, 4), (2, 3, 4), (1, 3, 4), (2, 1, 3, 4), (2, 2, 3, 4)]
)
def test_masks_broadcast(shape):
    q, k, v = normal((2, 2, 3, 5), (2, 2, 4, 5), (2, 2, 4, 5))
    (mask,) = normal(shape)
    full = np.broadcast_to(mask, (2, 2, 3, 4))
    helpers.assert_close(attention(q, k, v, mask), attention(q, k, v, full))
    helpers.assert_close(attention(q, k, v, mask > 0), attention(q, k, v, full > 0))


def test_masks_of_integers_are_added():
    q, k, v = normal((1, 1, 2, 5), (1, 1, 3, 5), (1, 1, 3, 5))
    mask = np.array([[1, 0, -2], [0, 3, 1]])
    expected = attention(q, k, v, mask.astype(np.float32))
    helpers.assert_close(attention(q, k, v, mask.astype(np.int32)), expected)


def test_short_masks_hide_the_rest_of_the_cache():
    lengths = np.array([2])
    assert seen_by(1, 4, lengths=lengths, mask=np.ones((1, 3), bool)) == [[[1, 1, 0, 0]]]
    assert seen_by(1, 4, mask=np.ones((1, 3), bool)) == [[[1, 1, 1, 0]]]
    assert seen_by(1, 4, mask=np.zeros((1, 1), np.float32)) == [[[1, 0, 0, 0]]]


def test_in_opset_23_a_mask_of_one_key_broadcasts():
    q, k, v = normal((1, 1, 2, 3), (1, 1, 4, 3), (1, 1, 4, 3))
    mask = np.array([[True], [False]])
    (y,) = helpers.run_node("Attention", [q, k, v, mask], opset=23)
    helpers.assert_close(y[0, 0, 0], np.asarray(attention(q, k, v))[0, 0, 0])
    helpers.assert_close(y[0, 0, 1], np.zeros(3, np.float32))
    (y,) = helpers.run_node("Attention", [q, k, v, mask], opset=24)
    helpers.assert_close(y[0, 0, 0], v[0, 0, 0])


@pytest.mark.parametrize("dtype", helpers.FLOATS)
@pytest.mark.parametrize("kind", ["bool", "added"])
def test_queries_that_see_nothing_give_0(kind, dtype):
    q, k, v = (x.astype(dtype) for x in normal((1, 1, 2, 3), (1, 1, 3, 3), (1, 1, 3, 3)))
    mask = np.array([[False] * 3, [False, True, False]])
    mask = mask if kind == "bool" else np.where(mask, 0, -INF).astype(dtype)
    with jax.enable_x64(True):
        y, _, _, weights = attention(q, k, v, mask, outputs=4, qk_matmul_output_mode=3)
    helpers.assert_close(y[0, 0], np.stack([np.zeros(3, dtype), v[0, 0, 1]]))
    helpers.assert_close(weights[0, 0], np.array([[0, 0, 0], [0, 1, 0]], dtype))


def test_gradient_of_queries_that_see_nothing_is_0():
    q, k, v = normal((1, 1, 2, 3), (1, 1, 3, 3), (1, 1, 3, 3))
    mask = np.array([[False] * 3, [True, True, False]])

    def function(q, k, v):
        return attention(q, k, v, mask, softcap=2.0)

    y, pull = jax.vjp(function, q, k, v)
    dq, dk, dv = pull(jnp.ones_like(y))
    assert not np.any(dq[0, 0, 0])
    assert not np.any(dk[0, 0, 2])
    assert not np.any(dv[0, 0, 2])
    assert all(np.isfinite(d).all() for d in (dq, dk, dv))
    tangent = jax.jvp(function, (q, k, v), (q, k, v))[1]
    assert np.isfinite(tangent).all()
    assert not np.any(tangent[0, 0, 0])


def test_stages_of_the_scores():
    q = np.array([1, 2], np.float32).reshape(1, 1, 2, 1)
    k = np.array([1, 3], np.float32).reshape(1, 1, 2, 1)
    mask = np.array([[True, False], [True, True]])

    def stage(mode):
        options = {"scale": 1.0, "softcap": 2.0, "qk_matmul_output_mode": mode}
        return attention(q, k, k, mask, outputs=4, **options)[3][0, 0]

    product = np.array([[1, 3], [2, 6]], np.float32)
    capped = 2 * np.tanh(product / 2)
    masked = np.where(mask, capped, -INF)
    exp = np.exp(masked)
    helpers.assert_close(stage(0), product)
    helpers.assert_close(stage(1), capped)
    helpers.assert_close(stage(2), masked)
    helpers.assert_close(stage(3), exp / exp.sum(-1, keepdims=True))


@pytest.mark.parametrize("dtype", helpers.FLOATS)
@pytest.mark.parametrize("precision", [None, 1, 10, 11, 16])
def test_dtypes(dtype, precision):
    q, k, v = (x.astype(dtype) for x in normal((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4)))
    exact = attention(*(x.astype(np.float32) for x in (q, k, v)))
    with jax.enable_x64(True):
        y, *_, weights = attention(
            q, k, v, softmax_precision=precision, outputs=4, qk_matmul_output_mode=3
        )
    assert y.dtype == weights.dtype == dtype
    names = {"float32", np.dtype(dtype).name, str(dtype_of(precision or 1))}
    rtol, atol = max(helpers.TOLERANCE[n] for n in names)
    np.testing.assert_allclose(y.astype(np.float32), exact, rtol=4 * rtol, atol=4 * atol)


def test_values_of_another_type():
    q, k, v = normal((1, 1, 2, 3), (1, 1, 4, 3), (1, 1, 4, 2))
    y = attention(q, k, v.astype(np.float16))
    helpers.assert_close(y, attention(q, k, v.astype(np.float16).astype(np.float32)))
    half = attention(q.astype(np.float16), k.astype(np.float16), v)
    assert half.dtype == np.float16


def test_no_keys_and_no_queries():
    q, k, v = normal((1, 2, 3, 4), (1, 2, 0, 4), (1, 2, 0, 5))
    helpers.assert_close(attention(q, k, v), np.zeros((1, 2, 3, 5), np.float32))
    helpers.assert_close(attention(q, k, v, is_causal=1), np.zeros((1, 2, 3, 5), np.float32))
    assert attention(q[:, :, :0], q, q).shape == (1, 2, 0, 4)


def test_gradients():
    q, k, v, mask = normal((1, 2, 2, 3), (1, 1, 3, 3), (1, 1, 3, 2), (2, 3))
    function = jax.jit(lambda *inputs: attention(*inputs, softcap=2.0, is_causal=1))
    helpers.check_gradients(function, q, k, v, mask)


def test_symbolic_shapes():
    n, s, p = export.symbolic_shape("n, s, p")
    shapes = [(n, s, 8), (n, s, 4), (n, s, 6), None, (n, 2, p, 2), (n, 2, p, 3)]
    specs = [None if d is None else jax.ShapeDtypeStruct(d, np.float32) for d in shapes]
    options: Any = {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": 1, "outputs": 2}

    def function(*inputs):
        return attention(*inputs, **options)

    exported = export.export(jax.jit(function))(*specs)
    inputs = normal((3, 2, 8), (3, 2, 4), (3, 2, 6), (3, 2, 5, 2), (3, 2, 5, 3))
    inputs.insert(3, None)
    for a, e in zip(exported.call(*inputs), function(*inputs), strict=True):
        helpers.assert_close(a, e)


def test_errors():
    q, k = normal((1, 3, 4), (1, 2, 5, 4))
    with pytest.raises(InvalidModelError, match=r"shape \(1, 3, 4\) does not split into None"):
        attention(q, q, q)
    with pytest.raises(InvalidModelError, match="does not split into 3 heads"):
        attention(q, q, q, q_num_heads=3, kv_num_heads=1)
    with pytest.raises(InvalidModelError, match="2 q heads are no multiple of 3 kv heads"):
        attention(k, np.zeros((1, 3, 5, 4), np.float32), np.zeros((1, 3, 5, 4), np.float32))
    with pytest.raises(InvalidModelError, match="must be given together"):
        attention(k, k, k, None, k)
    with pytest.raises(InvalidModelError, match="nonpad_kv_seqlen"):
        attention(k, k, k, None, k, k, np.array([5]))


COS, SIN = 0.6, 0.8


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1 * COS - 3 * SIN, 2 * COS - 4 * SIN, 1 * SIN + 3 * COS, 2 * SIN + 4 * COS]),
        (
            {"interleaved": 1},
            [1 * COS - 2 * SIN, 1 * SIN + 2 * COS, 3 * COS - 4 * SIN, 3 * SIN + 4 * COS],
        ),
        ({"rotary_embedding_dim": 2}, [1 * COS - 2 * SIN, 1 * SIN + 2 * COS, 3, 4]),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_rotary_embedding(options, expected, packed):
    pairs = options.get("rotary_embedding_dim", 4) // 2
    x = np.zeros((1, 2, 3, 4), np.float32)
    x[0, 1, 2] = [1, 2, 3, 4]
    expected_all = np.zeros_like(x)
    expected_all[0, 1, 2] = expected
    cos, sin = (np.zeros((5, pairs), np.float32) for _ in range(2))
    cos[4], sin[4] = COS, SIN
    positions = np.array([[0, 1, 4]])
    inputs = [x, cos, sin, positions]
    if packed:
        inputs[0] = x.swapaxes(1, 2).reshape(1, 3, 8)
        expected_all = expected_all.swapaxes(1, 2).reshape(1, 3, 8)
        options = {**options, "num_heads": 2}
    (y,) = helpers.run_node("RotaryEmbedding", inputs, opset=23, **options)
    helpers.assert_close(y, expected_all)
    without = ops.rotary_embedding(inputs[0], cos[positions], sin[positions], **options)
    helpers.assert_close(without, expected_all)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_rotary_embedding_dtypes(dtype):
    x = np.array([1, 2], dtype).reshape(1, 1, 1, 2)
    cos, sin = np.full((1, 1, 1), COS, dtype), np.full((1, 1, 1), SIN, dtype)
    expected = np.array([-1, 2], dtype).reshape(1, 1, 1, 2)
    helpers.assert_close(ops.rotary_embedding(x, cos, sin), expected)


def test_rotary_embedding_gradients_and_symbolic_shapes():
    x, cos, sin = normal((1, 1, 2, 4), (3, 2), (3, 2))
    positions = np.array([[2, 0]])
    function = jax.jit(lambda x, c, s: ops.rotary_embedding(x, c, s, positions))
    helpers.check_gradients(function, x, cos, sin)
    n, s = export.symbolic_shape("n, s")
    specs = [jax.ShapeDtypeStruct(d, np.float32) for d in ((n, 1, s, 4), (3, 2), (3, 2))]
    exported = export.export(jax.jit(ops.rotary_embedding))(
        *specs, jax.ShapeDtypeStruct((n, s), np.int32)
    )
    helpers.assert_close(
        exported.call(x, cos, sin, positions.astype(np.int32)), function(x, cos, sin)
    )


def test_rotary_embedding_errors():
    x, cache = normal((1, 3, 8), (1, 3, 3))
    with pytest.raises(InvalidModelError, match="does not split into None heads"):
        ops.rotary_embedding(x, cache, cache)
    with pytest.raises(InvalidModelError, match=r"cache has shape \(1, 3, 3\), expected 2 columns"):
        ops.rotary_embedding(x, cache, cache, num_heads=2)


def graph(name, op_types, dtype=TensorProto.FLOAT):
    """A subgraph of one input and output that applies unary operators in turn."""
    names = [f"{name}{k}" for k in range(len(op_types) + 1)]
    nodes = [
        helper.make_node(o, [a], [b]) for o, a, b in zip(op_types, names, names[1:], strict=False)
    ]
    infos = [helper.make_tensor_value_info(n, dtype, None) for n in (names[0], names[-1])]
    return helper.make_graph(nodes, name, infos[:1], infos[1:])


def test_flex_attention():
    q, k, v = normal((1, 2, 3, 4), (1, 1, 5, 4), (1, 1, 5, 4))
    helpers.assert_close(ops.flex_attention(q, k, v), attention(q, k, v))
    capped = ops.flex_attention(q, k, v, score_mod=lambda s: [2 * jnp.tanh(s / 2)])
    helpers.assert_close(capped, attention(q, k, v, softcap=2.0))
    doubled = ops.flex_attention(q, k, v, prob_mod=lambda p: [2 * p], scale=0.5)
    helpers.assert_close(doubled, 2 * attention(q, k, v))


def test_flex_attention_node():
    q, k, v = normal((1, 2, 3, 4), (1, 1, 5, 4), (1, 1, 5, 4))
    options: Any = {"score_mod": graph("s", ["Neg"]), "prob_mod": graph("p", ["Neg"])}
    model = helpers.node_model(
        "FlexAttention", [q, k, v], opset=1, domain="ai.onnx.preview", **options
    )
    model.opset_import.append(helper.make_opsetid("", 26))
    helpers.assert_close(jaxonnx.load(model)(q, k, v), -attention(-q, k, v), scale=3)


def linear_attention_spec(rule, q, k, v, past, decay, beta, scale):
    """The four recurrences of the specification for one head, a step at a time."""
    state, out = past.astype(np.float64), []
    for t in range(len(q)):
        g = np.exp(decay[t])[:, None] if "gated" in rule else 1
        written = v[t] - (g * state).T @ k[t] if "delta" in rule else v[t]
        state = g * state + (beta[t] if "delta" in rule else 1) * np.outer(k[t], written)
        out.append(scale * q[t] @ state)
    return np.array(out), state


@pytest.mark.parametrize("per_key", [False, True])
@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention(rule, per_key):
    q, k, v, past = normal((1, 4, 6), (1, 4, 3), (1, 4, 2), (1, 1, 3, 2))
    decay, beta = normal((1, 4, 3 if per_key else 1), (1, 4, 1))
    given = decay if "gated" in rule else None, beta if "delta" in rule else None
    options = {"q_num_heads": 2, "kv_num_heads": 1, "update_rule": rule, "scale": 0.5}
    inputs = [q, k, v, past, *given]
    y, state = helpers.run_node("LinearAttention", inputs, opset=27, outputs=2, **options)
    heads = [q[0, :, :3], q[0, :, 3:]]
    results = [
        linear_attention_spec(rule, h, k[0], v[0], past[0, 0], decay[0], beta[0], 0.5)
        for h in heads
    ]
    helpers.assert_close(y[0], np.hstack([r[0] for r in results]).astype(np.float32), scale=3)
    helpers.assert_close(state[0, 0], results[0][1].astype(np.float32), scale=3)


def test_linear_attention_without_past():
    q, k, v = (x.astype(np.float16) for x in normal((1, 4, 4), (1, 4, 4), (1, 4, 2)))
    options: Any = {"q_num_heads": 1, "kv_num_heads": 1, "update_rule": "linear"}
    y, state = ops.linear_attention(q, k, v, **options)
    zero = np.zeros((1, 1, 4, 2), np.float16)
    for a, e in zip((y, state), ops.linear_attention(q, k, v, zero, **options), strict=True):
        helpers.assert_close(a, np.asarray(e))
    scaled = ops.linear_attention(q, k, v, scale=0.5, **options)[0]
    helpers.assert_close(y, np.asarray(scaled))
    assert ops.linear_attention(q[:, :0], k[:, :0], v[:, :0], **options)[0].shape == (1, 0, 2)


def test_linear_attention_gradients_and_errors():
    q, k, v, decay, beta = normal((1, 2, 4), (1, 2, 2), (1, 2, 1), (1, 2, 2), (1, 2, 1))
    options: Any = {"q_num_heads": 2, "kv_num_heads": 1}

    def function(q, k, v, g, b):
        return ops.linear_attention(q, k, v, None, g, b, **options)

    helpers.check_gradients(jax.jit(function), q, k, v, decay, beta, order=1)
    with pytest.raises(InvalidModelError, match="decay and beta are not the ones"):
        ops.linear_attention(q, k, v, **options)
    with pytest.raises(InvalidModelError, match="update_rule is 'other'"):
        ops.linear_attention(q, k, v, update_rule="other", **options)

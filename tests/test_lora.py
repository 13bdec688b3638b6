"""Low-rank adapters: nothing changes at first, only they are trained, and they can be merged."""

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import optax
import pytest
from helpers import assert_close, f32, text_model

import jaxonnx
from jaxonnx import lora, models
from jaxonnx.errors import InputError

RNG = np.random.default_rng(0)
LINEAR = {
    "MatMul": "(float[N, 4] x) => (float[N, 3] y) <float[4, 3] w = {}> { y = MatMul(x, w) }",
    "Transpose": (
        "(float[N, 4] x) => (float[N, 3] y) <float[3, 4] w = {}> "
        "{ v = Transpose<perm = [1, 0]>(w) y = MatMul(x, v) }"
    ),
    "Gemm": (
        "(float[N, 4] x) => (float[N, 3] y) <float[4, 3] w = {}, float[3] b = {1, 2, 3}> "
        "{ y = Gemm<alpha = 0.5, beta = 2.0>(x, w, b) }"
    ),
    "Gemm, both turned": (
        "(float[4, N] x) => (float[N, 3] y) <float[3, 4] w = {}, float[3] b = {1, 2, 3}> "
        "{ y = Gemm<transA = 1, transB = 1>(x, w, b) }"
    ),
    "Conv": (
        "(float[N, 4, 5, 5] x) => (float[N, 3, A, B] y) <float[3, 4, 3, 2] w = {}> "
        "{ y = Conv<strides = [2, 1], pads = [1, 0, 1, 1], kernel_shape = [3, 2]>(x, w) }"
    ),
}


def model_of(text):
    """A model whose weight ``w`` is drawn."""
    proto = text_model(text)
    place = next(k for k, t in enumerate(proto.graph.initializer) if t.name == "w")
    shape = [*proto.graph.initializer[place].dims]
    values = RNG.normal(size=shape).astype(np.float32)
    proto.graph.initializer[place].CopyFrom(onnx.numpy_helper.from_array(values, "w"))
    return jaxonnx.load(proto)


def input_of(model):
    return RNG.normal(size=[d if isinstance(d, int) else 2 for d in model.inputs[0].shape]).astype(
        np.float32
    )


@pytest.mark.parametrize("text", LINEAR.values(), ids=LINEAR)
def test_adapters_begin_at_nothing_and_merge_to_the_same(text, tmp_path):
    model = model_of(text)
    x = input_of(model)
    adapted = lora.add(model, "w", rank=2, alpha=3.0)
    assert sorted(adapted.params) == ["w.lora_A", "w.lora_B"]
    assert_close(adapted(x), model(x))
    tuned = jax.tree.map(lambda a: a + 0.1 * jnp.ones_like(a), adapted)
    merged = lora.merge(tuned, model)
    assert np.abs(np.asarray(merged(x) - model(x))).max() > 1e-2
    assert_close(merged(x), tuned(x), scale=10)
    merged.save(tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    y = np.asarray(session.run(None, {"x": x})[0])
    np.testing.assert_allclose(y, merged(x), rtol=1e-4, atol=1e-5)


def test_the_scale_is_alpha_over_rank():
    model = model_of(LINEAR["MatMul"])
    adapted = lora.add(model, "w", rank=2, alpha=3.0).replace({"w.lora_B": f32(np.ones((2, 3)))})
    x = input_of(model)
    a = adapted.params["w.lora_A"]
    assert_close(adapted(x) - model(x), 1.5 * (x @ a) @ f32(np.ones((2, 3))), scale=10)


def test_only_adapters_are_trained():
    model = jaxonnx.load(models.path())
    x, _ = models.example()
    adapted: Any = lora.add(model, "fc_0.w_0", "conv12_linear_weights", rank=4)
    assert len(adapted.params) == 4
    optimizer = optax.sgd(0.1)

    @jax.jit
    def step(adapted, state):
        loss = lambda m: -jnp.log(m(x)[0, 1] + 1e-6)
        value, slope = jax.value_and_grad(loss)(adapted)
        updates, state = optimizer.update(slope, state)
        return optax.apply_updates(adapted, updates), state, value

    state, values = optimizer.init(adapted), []
    for _ in range(3):
        adapted, state, value = step(adapted, state)
        values.append(float(value))
    assert values[2] < values[0]
    assert_close(lora.merge(adapted, model)(x), adapted(x), scale=100)


def test_quantised_weights_stay_quantised():
    model = jaxonnx.load(
        text_model(
            """(float[N, 2] x) => (float[N, 2] y)
            <int8[2, 2] q = {1, 2, 3, 4}, float s = {0.5}> {
                w = DequantizeLinear(q, s)
                y = MatMul(x, w)
            }"""
        )
    )
    adapted = lora.add(model, "q", rank=1)
    x = f32([[1, 2]])
    assert_close(adapted(x), model(x))
    gradient = jax.grad(lambda m: m(x).sum())(adapted).params
    assert np.abs(np.asarray(gradient["q.lora_B"])).max() > 0
    with pytest.raises(InputError, match="'q' is quantised"):
        lora.merge(adapted, model)


def test_weights_inside_of_branches_are_adapted():
    model = model_of(
        """(float[N, 4] x, bool yes) => (float[N, 4] y) <float[4, 4] w = {}> {
            y = If(yes) <then_branch = t () => (float[N, 4] p) { p = MatMul(x, w) },
                         else_branch = e () => (float[N, 4] q) { q = Identity(x) }>
        }"""
    )
    adapted = lora.add(model, "w").replace({"w.lora_B": f32(np.ones((8, 4)))})
    x = input_of(model)
    assert_close(adapted(x, np.asarray(False)), x)
    merged = lora.merge(adapted, model)
    assert_close(merged(x, np.asarray(True)), adapted(x, np.asarray(True)), scale=100)


def test_a_weight_that_is_read_twice_is_adapted_once_and_not_merged():
    model = model_of(
        """(int64[N] ids, float[N, 4] x) => (float[N, 6] y) <float[6, 4] w = {}> {
            h = Gather(w, ids)
            s = Add(h, x)
            v = Transpose(w)
            y = MatMul(s, v)
        }"""
    )
    adapted = lora.add(model, "w", rank=2).replace({"w.lora_B": f32(np.ones((2, 6)))})
    x, ids = input_of(model_of(LINEAR["MatMul"])), np.asarray([0, 5])
    s = model.params["w"][ids] + x
    change = 4 * (s @ adapted.params["w.lora_A"]) @ f32(np.ones((2, 6)))
    assert_close(adapted(ids, x) - model(ids, x), change, scale=10)
    with pytest.raises(InputError, match=r"'w' is also read by node giving 'h' \(Gather-13\)"):
        lora.merge(adapted, model)


def test_a_weight_that_is_used_both_ways_is_refused():
    model = model_of(
        """(float[N, 4] x) => (float[N, 4] y) <float[4, 4] w = {}> {
            h = MatMul(x, w)
            y = Gemm<transB = 1>(h, w)
        }"""
    )
    with pytest.raises(InputError, match="'w' is used as it is and transposed"):
        lora.add(model, "w")


def test_products_that_share_a_weight_share_the_adapter():
    model = model_of(
        """(float[N, 4] x) => (float[N, 4] y) <float[4, 4] w = {}> {
            h = MatMul(x, w)
            y = MatMul(h, w)
        }"""
    )
    adapted = lora.add(model, "w", rank=2).replace({"w.lora_B": f32(np.ones((2, 4)))})
    x = input_of(model)
    assert_close(lora.merge(adapted, model)(x), adapted(x), scale=100)


def test_adapters_have_the_type_of_the_weight():
    half = jaxonnx.load(
        text_model(
            "(float16[N, 3] x) => (float16[N, 1] y) <float16[3, 1] w = {15360, 0, 0}> "
            "{ y = MatMul(x, w) }"
        )
    )
    adapted = lora.add(half, "w", rank=1)
    assert {a.dtype.name for a in adapted.params.values()} == {"float16"}
    x = np.asarray([[1, 2, 3]], np.float16)
    assert_close(adapted(x), half(x))


def test_an_adapter_is_named_in_the_summary_and_pickled():
    adapted = lora.add(model_of(LINEAR["MatMul"]), "w", rank=2)
    stored = adapted._program.plan.stored
    assert {n: (s.role, s.source) for n, s in stored.items()} == {
        "w": ("constant", "initializer"),
        "w.lora_A": ("weight", "added"),
        "w.lora_B": ("weight", "added"),
        "w.lora_scale": ("constant", "added"),
    }
    x = input_of(adapted)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(adapted))(x), adapted(x))


def test_what_cannot_be_adapted_is_refused(tmp_path):
    model = model_of(LINEAR["Gemm"])
    with pytest.raises(InputError, match=r"lora: no stored value is called 'b'"):
        lora.add(model, "b")
    with pytest.raises(InputError, match="name the weights to adapt; there are w"):
        lora.add(model)
    with pytest.raises(InputError, match="rank is 0"):
        lora.add(model, "w", rank=0)
    with pytest.raises(InputError, match="'w' has or is an adapter already"):
        lora.add(lora.add(model, "w"), "w")
    with pytest.raises(InputError, match=r"'w\.lora_A' has or is an adapter already"):
        lora.add(lora.add(model, "w"), "w.lora_A")
    with pytest.raises(InputError, match="outside of a trace"):
        jax.jit(lambda m, x: lora.add(m, "w")(x))(model, input_of(model))
    with pytest.raises(InputError, match=r"lora\.merge"):
        lora.add(model, "w").save(tmp_path / "m.onnx")

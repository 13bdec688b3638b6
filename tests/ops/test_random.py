"""Random operators: their distributions, and what their streams depend on."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest
from helpers import assert_close, assert_same, f32, i64, node_model, text_model

import jaxonnx
from jaxonnx import ops
from jaxonnx.backend import prepare

KEY = jax.random.key(7)
HALVES = [np.float16, ml_dtypes.bfloat16]
DTYPES = [*HALVES, np.float32, np.float64]


def drawn(op_type, inputs=(), *, key: Any = KEY, opset=22, outputs=1, **attributes):
    """The outputs of a one-node model."""
    model = jaxonnx.load(node_model(op_type, inputs, opset=opset, outputs=outputs, **attributes))
    results = model(*(v for v in inputs if v is not None), key=key)
    return [np.asarray(r) for r in (results if outputs > 1 else [results])]


def number(dtype):
    return onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def moments(values):
    values = values.astype(np.float64)
    standard = (values - values.mean()) / values.std()
    return values.mean(), values.std(), (standard**3).mean(), (standard**4).mean()


@pytest.mark.parametrize("dtype", DTYPES)
def test_uniform_by_its_moments(dtype):
    (x,) = drawn("RandomUniform", shape=[200, 300], low=-1.0, high=3.0, dtype=number(dtype))
    assert (x.dtype, x.shape) == (dtype, (200, 300))
    assert -1 <= x.min() < -0.97
    assert 2.97 < x.max() <= 3
    slack = 0.02 if dtype in HALVES else 0.01
    np.testing.assert_allclose(moments(x), [1, 4 / np.sqrt(12), 0, 1.8], atol=2 * slack)


@pytest.mark.parametrize("dtype", DTYPES)
def test_normal_by_its_moments(dtype):
    (x,) = drawn("RandomNormal", shape=[300, 400], mean=2.0, scale=3.0, dtype=number(dtype))
    assert (x.dtype, x.shape) == (dtype, (300, 400))
    np.testing.assert_allclose(moments(x), [2, 3, 0, 3], atol=0.06)
    beyond = np.mean(np.abs(x.astype(np.float64) - 2) > 6)
    assert abs(beyond - 0.0455) < 0.004


def test_doubles_use_all_their_bits():
    (x,) = drawn("RandomUniform", shape=[10_000], dtype=number(np.float64))
    assert np.mean(x != x.astype(np.float32)) > 0.99
    assert len(np.unique(np.ldexp(x, 53).astype(np.int64) & 0x3FF)) > 1000


@pytest.mark.parametrize("op_type", ["RandomUniformLike", "RandomNormalLike"])
@pytest.mark.parametrize("opset", [1, 22])
def test_like_takes_shape_and_dtype_of_its_input(op_type, opset):
    x = np.zeros((2, 0, 3), np.float64)
    assert_same(drawn(op_type, [x], opset=opset)[0], x)
    (y,) = drawn(op_type, [i64([1, 2, 3])], opset=opset, dtype=number(np.float16))
    assert (y.dtype, y.shape) == (np.float16, (3,))
    with pytest.raises(jaxonnx.InvalidModelError, match="int64, expected a floating type"):
        drawn(op_type, [i64([1, 2, 3])], opset=opset)


def test_like_takes_the_shape_of_strings():
    (y,) = drawn("RandomNormalLike", [np.array(["a", "b"], np.dtypes.StringDType())], dtype=1)
    assert (y.dtype, y.shape) == (np.float32, (2,))


@pytest.mark.parametrize("dtype", DTYPES)
def test_bernoulli_gives_1_with_the_probability_of_its_input(dtype):
    p = np.repeat(np.array([0, 0.25, 0.9, 1, np.nan], dtype), 8000)
    (y,) = drawn("Bernoulli", [p], opset=15 if dtype != ml_dtypes.bfloat16 else 22)
    assert y.dtype == dtype
    assert set(np.unique(y.astype(np.float32))) == {0, 1}
    means = y.astype(np.float32).reshape(5, -1).mean(axis=1)
    np.testing.assert_allclose(means, [0, 0.25, 0.9, 1, 0], atol=0.02)
    assert means[[0, 3, 4]].tolist() == [0, 1, 0]
    (z,) = drawn("Bernoulli", [p], dtype=number(np.bool_))
    assert z.dtype == np.bool_


@pytest.mark.parametrize("dtype", DTYPES)
def test_multinomial_draws_by_unnormalised_log_probabilities(dtype):
    shares = np.array([[1, 2, 3, 4], [0, 1, 0, 0], [5, 0, 5, 0]], np.float64)
    with np.errstate(divide="ignore"):
        x = (np.log(shares) + np.array([[100], [0], [-100]])).astype(dtype)
    (y,) = drawn("Multinomial", [x], sample_size=5000, dtype=number(np.int64))
    assert (y.dtype, y.shape) == (np.int64, (3, 5000))
    counts = np.stack([np.bincount(row, minlength=4) for row in y]) / 5000
    tolerance = 0.15 if dtype == ml_dtypes.bfloat16 else 0.04  # 100 and a half is 100 or 101
    np.testing.assert_allclose(counts, shares / shares.sum(axis=1, keepdims=True), atol=tolerance)
    assert counts[1, 1] == 1
    assert counts[2, [1, 3]].sum() == 0


def test_multinomial_is_int32_and_one_sample_by_default():
    (y,) = drawn("Multinomial", [f32([[0, -np.inf]])], opset=7)
    assert_same(y, np.zeros((1, 1), np.int32))
    with pytest.raises(jaxonnx.InvalidModelError, match=r"shape \[2, 0\], expected \[batch"):
        drawn("Multinomial", [np.zeros((2, 0), np.float32)])


@pytest.mark.parametrize("opset", [7, 10, 12, 13, 22])
def test_dropout_infers_without_a_key(opset):
    x = f32([0, 1, 2, 3])
    y, mask = drawn("Dropout", [x], key=None, opset=opset, outputs=2)
    assert_close(y, x)
    assert_close(mask, np.ones(4, np.float32 if opset == 7 else bool))
    if opset >= 12:
        inputs = [x, None, np.array(False)]
        assert_close(drawn("Dropout", inputs, key=None, opset=opset)[0], x)


@pytest.mark.parametrize("dtype", [*DTYPES, ml_dtypes.float8_e4m3fn])
def test_dropout_trains(dtype):
    x = np.full(4000, 3, dtype)
    inputs = [x, np.array(0.25, np.float32), np.array(True)]
    y, mask = drawn("Dropout", inputs, outputs=2)
    assert y.dtype == dtype
    assert mask.dtype == np.bool_
    assert 0.72 < mask.mean() < 0.78
    expected = np.where(mask, np.float32(4), np.float32(0)).astype(dtype)
    assert_close(y.astype(np.float32), expected.astype(np.float32), scale=100)


def test_dropout_by_default_drops_a_half():
    _, mask = drawn("Dropout", [np.ones(4000, np.float32), None, np.array(True)], outputs=2)
    assert 0.46 < mask.mean() < 0.54


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_dropout_of_nothing_and_of_all_has_a_finite_derivative(ratio):
    def total(x):
        return ops.dropout(x, np.float32(ratio), np.array(True), key=KEY).sum()

    x = f32([1, np.inf, 3]) if ratio == 0 else f32([1, 2, 3])
    assert_close(jax.grad(total)(x), np.full(3, 1 - ratio, np.float32))
    assert_close(ops.dropout(x, np.float32(ratio), np.array(True), key=KEY), (1 - ratio) * x)


def test_dropout_refuses_other_ratios():
    with pytest.raises(jaxonnx.InvalidModelError, match=r"ratio is 1\.5, expected 0 to 1"):
        drawn("Dropout", [f32([1]), np.array(1.5, np.float32), np.array(True)])


@pytest.mark.parametrize("opset", [1, 6])
def test_dropout_before_opset_7_trains_unless_told(opset):
    x = np.ones(64, np.float32)
    assert_close(drawn("Dropout", [x], key=None, opset=opset, is_test=1)[0], x)
    y, mask = drawn("Dropout", [x], opset=opset, outputs=2)
    assert set(y) == {0, 2}
    assert_same(mask, y / 2)


def test_a_seed_needs_no_key_and_is_always_the_same():
    first, again = (drawn("RandomNormal", key=None, shape=[5], seed=1.0)[0] for _ in range(2))
    assert_same(first, again)
    others = [drawn("RandomNormal", key=None, shape=[5], seed=s)[0] for s in (2.0, 1.5, -1.0)]
    assert all(not np.isin(first, other).any() for other in others)


def test_a_key_comes_before_a_seed():
    seeded = drawn("RandomNormal", shape=[5], seed=1.0)[0]
    assert_same(seeded, drawn("RandomNormal", shape=[5])[0])


def test_without_key_and_seed_it_says_what_to_do():
    with pytest.raises(jaxonnx.InputError, match=r"neither a seed nor a key: .*key=jax.random.key"):
        drawn("RandomNormal", key=None, shape=[5])
    x, train = f32([1, 2]), np.array(True)
    with pytest.raises(jaxonnx.InputError, match="neither a seed nor a key") as caught:
        drawn("Dropout", [x, None, train], key=None)
    assert "Dropout-22" in "".join(caught.value.__notes__)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (0, "key is 0, expected one typed key"),
        (jax.random.PRNGKey(0), r"key is uint32\[2\], expected one typed key"),
        (jax.random.split(KEY), r"key is key<fry>\[2\], expected one typed key"),
    ],
)
def test_a_wrong_key_is_refused(key, message):
    with pytest.raises(jaxonnx.InputError, match=message):
        drawn("RandomNormal", key=key, shape=[5])


def test_models_that_draw_nothing_take_a_key():
    assert_close(drawn("Neg", [f32([1])])[0], f32([-1]))
    with pytest.raises(jaxonnx.InputError, match="key is 3, expected one typed key"):
        drawn("Neg", [f32([1])], key=3)


def test_an_input_called_key_is_one_still():
    model = jaxonnx.load(
        text_model("(float[2] key) => (float[2] y) { r = RandomNormalLike(key) y = Add(key, r) }")
    )
    base = model({"key": f32([0, 0])}, key=KEY)
    assert_close(model(f32([1, 1]), key=KEY), base + 1)
    with pytest.raises(jaxonnx.InputError, match="neither a seed nor a key"):
        model(key=f32([1, 1]))


def test_streams_differ_and_other_nodes_change_nothing():
    text = "(float[3] x) => (float[3] a, float[3] b) {%s a = RandomNormalLike(x) b = %s(x) }"
    alone = jaxonnx.load(text_model(text % ("", "RandomNormalLike")))
    added = "c = RandomUniformLike(x) d = Neg(c)"
    more = jaxonnx.load(text_model(text % (added, "RandomUniformLike")))
    x = np.zeros(3, np.float32)
    one, two = alone(x, key=KEY), more(x, key=KEY)
    assert not np.isin(one["a"], one["b"]).any()
    assert_same(one["a"], two["a"])
    assert not np.isin(one["a"], alone(x, key=jax.random.key(8))["a"]).any()


def test_a_key_is_traced():
    model = jaxonnx.load(node_model("RandomNormalLike", [f32([0, 0])], opset=22))
    x = f32([0, 0])
    traces = chex.assert_max_traces(lambda m, k: m(x, key=k), n=1)
    function = jax.jit(traces)
    for seed in range(3):
        assert_same(function(model, jax.random.key(seed)), model(x, key=jax.random.key(seed)))
    assert model._program.executor.compilations == 1
    keys = jax.random.split(KEY, 4)
    many = jax.vmap(lambda k: model(x, key=k))(keys)
    assert_same(many[2], model(x, key=keys[2]))
    assert_same(jax.eval_shape(lambda k: model(x, key=k), KEY).shape, (2,))


def test_the_default_generator_changes_no_seed():
    before = drawn("RandomNormal", key=None, shape=[4], seed=3.0)[0]
    jax.config.update("jax_default_prng_impl", "rbg")
    try:
        assert_same(drawn("RandomNormal", key=None, shape=[4], seed=3.0)[0], before)
        assert drawn("RandomNormal", key=jax.random.key(0), shape=[4])[0].shape == (4,)
    finally:
        jax.config.update("jax_default_prng_impl", "threefry2x32")


@pytest.mark.parametrize("seed", ["", ", seed = 1.0"])
def test_each_turn_of_a_loop_draws_anew(seed):
    body = (
        "body = b (int64 i, bool go) => (bool again, float[2] s) "
        f"{{ again = Identity(go) s = RandomNormal <shape = [2]{seed}> () }}"
    )
    text = f"(int64 n) => (float[k, 2] y) <bool c = {{1}}> {{ y = Loop <{body}> (n, c) }}"
    fixed = jaxonnx.load(text_model(text, opset=22), constants={"n": i64(4)})
    free = jaxonnx.load(text_model(text, opset=22))
    key = None if seed else KEY
    rows = np.asarray(fixed(key=key))
    assert len(np.unique(rows)) == 8
    assert_same(free(i64(4), key=key), rows)  # one turn after another, outside of a trace
    assert_same(fixed(key=key), rows)


def test_each_turn_of_a_scan_draws_anew():
    body = "body = b (float[2] r) => (float[2] s) { s = RandomNormalLike(r) }"
    call = f"Scan <num_scan_inputs = 1, {body}>"
    text = f"(float[k, 2] x) => (float[k, 2] y) {{ y = {call} (x) }}"
    model = jaxonnx.load(text_model(text, opset=22))
    assert len(np.unique(model(np.zeros((4, 2), np.float32), key=KEY))) == 8


def test_branches_and_functions_draw():
    text = """(bool c) => (float[2] y) {
        y = If (c) <then_branch = t () => (float[2] a) { a = RandomNormal <shape = [2]> () },
                    else_branch = e () => (float[2] b) { b = RandomUniform <shape = [2]> () }>
    }"""
    model = jaxonnx.load(text_model(text, opset=22))
    yes, no = (np.asarray(model(np.array(c), key=KEY)) for c in (True, False))
    assert len(np.unique([yes, no])) == 4
    inside = jax.jit(lambda c, k: model(c, key=k))
    assert_same(inside(np.array(True), KEY), yes)


def test_phases_draw_what_one_program_does():
    text = """(float[N] x) => (float[M] z, float[N] r) {
        r = RandomNormalLike(x)
        i = NonZero(x)
        s = RandomUniformLike <dtype = 1> (i)
        flat = Constant <value_ints = [-1]> ()
        z = Reshape(s, flat)
    }"""
    model = jaxonnx.load(text_model(text, opset=22))
    x = f32([1, 0, 3, 4])
    z, r = model(x, key=KEY)
    assert z.shape == (3,)
    assert len(np.unique(z)) == 3
    alone = jaxonnx.load(text_model("(float[N] x) => (float[N] r) { r = RandomNormalLike(x) }"))
    assert_same(r, alone(x, key=KEY))


def test_nothing_drawn_is_folded_or_decides_a_shape():
    text = """() => (float[N] y) <float p = {0.5}> {
        drawn = RandomUniform <shape = [1], low = 2.0, high = 9.0> ()
        n = Cast <to = 7> (drawn)
        y = ConstantOfShape(n)
    }"""
    model = jaxonnx.load(text_model(text, opset=22))
    sizes = {model(key=jax.random.key(k)).shape[0] for k in range(6)}
    assert len(sizes) > 1


@pytest.mark.parametrize("dtype", ["float", "double"])
def test_it_is_exported_for_every_platform(dtype):
    text = f"({dtype}[N] x) => ({dtype}[N] y) {{ r = RandomNormalLike(x) y = Add(x, r) }}"
    model = jaxonnx.load(text_model(text, opset=22))
    x = np.zeros(5, dtype if dtype == "double" else "float32")
    with jax.enable_x64(dtype == "double"):
        exported = model.export(platforms=["cpu", "cuda", "rocm", "tpu"])
        result = jax.export.deserialize(exported.serialize()).call(model.params, {"x": x}, KEY)
    assert_close(np.asarray(result), np.asarray(model(x, key=KEY)))


def test_an_operator_of_ones_own_draws():
    @jaxonnx.register("Jitter", 1, domain="test.random")
    def jitter(x, /, *, scale: float = 1.0, key: Any = None):
        return x + scale * jax.random.normal(key, jnp.shape(x), jnp.float32)

    model = node_model("Jitter", [f32([0, 0])], opset=1, domain="test.random", scale=2.0)
    loaded = jaxonnx.load(model)
    a, b = (np.asarray(loaded(f32([0, 0]), key=jax.random.key(k))) for k in (0, 1))
    assert len(np.unique([a, b])) == 4


def test_the_backend_has_a_key():
    model = node_model("RandomNormal", [], opset=22, shape=[3])
    (first,), (again,) = (prepare(model).run([]) for _ in range(2))
    assert_same(first, again)
    assert not np.isin(first, prepare(model).run([], key=KEY)[0]).any()


def test_derivatives_pass_by_what_is_drawn():
    text = "(float[3] x) => (float[3] y) { p = Sigmoid(x) r = Bernoulli(p) y = Mul(x, r) }"
    model = jaxonnx.load(text_model(text))
    x = f32([1, 2, 3])
    kept = np.asarray(model(x, key=KEY)) / x
    assert_close(jax.grad(lambda x: model(x, key=KEY).sum())(x), f32(kept))

"""If and Loop: known and traced conditions, trip counts, captured values, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, f32, i64, text_model

import jaxonnx
from jaxonnx.errors import DataDependentShapeError, StaticValueError

IF_VERSIONS = [1, 11, 13, 16, 19, 21, 23, 24, 25]
X = f32([1, -2, 3])


def load(text, options=None, **form):
    return jaxonnx.load(text_model(text, **form), **(options or {}))


IF = """
(float[N] x, bool c) => (float[N] y) <float[1] w = {10.0}> {
  t = Neg(x)
  y = If <
    then_branch = a () => (float[N] r) { r = Mul(t, w) },
    else_branch = b () => (float[N] x) { }
  > (c)
}
"""


@pytest.mark.parametrize("opset", IF_VERSIONS)
def test_if(opset):
    """The else branch is an outer value itself, the then branch captures computed ones."""
    model = load(IF, opset=opset)
    assert_close(model(X, True), f32([-10, 20, -30]))
    assert_close(model(X, False), X)


def test_if_on_a_traced_condition():
    model = load(IF, {"trainable": ["w"]})
    function = jax.jit(lambda m, x, c: m(x, c))
    assert_close(function(model, X, True), f32([-10, 20, -30]))
    assert_close(function(model, X, False), X)
    mapped = jax.vmap(model, in_axes=(None, 0))(X, np.array([True, False]))
    assert_close(mapped, np.stack([-10 * X, X]))
    for condition, slope in ((True, -10), (False, 1)):
        gradient = jax.grad(lambda x, c=condition: model(x, c).sum())(X)
        assert_close(gradient, f32([slope] * 3))
    tangent = jax.jvp(lambda m: m(X, True).sum(), (model,), (model.replace({"w": f32([1])}),))[1]
    assert_close(tangent, f32(-2))


def test_only_the_taken_branch_is_traced():
    """The other one does not even fit the shapes."""
    model = load("""
    (float[N] x) => (float[N] y) <int64[1] one = {1}, int64 three = {3}, int64[2] bad = {7, 7}> {
      n = Size(x)
      c = Equal(n, three)
      y = If <
        then_branch = a () => (float[N] r) { r = Neg(x) },
        else_branch = b () => (float[A, B] r) { r = Reshape(x, bad) }
      > (c)
    }""")
    assert_close(model(X), -X)
    assert_close(jax.jit(model.apply)(model.params, X), -X)


SHAPES = """
(float[N] x) => (float[M] y) <float zero = {0.0}> {
  s = ReduceSum<keepdims = 0>(x)
  c = Greater(s, zero)
  r = If <
    then_branch = a () => (float[N] p) { p = Neg(x) },
    else_branch = b () => (float[M] q) { q = Concat<axis = 0>(x, x) }
  > (c)
  y = Abs(r)
}
"""


def test_branches_of_different_shape():
    """[onnxruntime#silero] Legal; one program cannot hold it, model(x) can."""
    model = load(SHAPES)
    assert_close(model(X), abs(X))
    assert_close(model(-X), abs(np.concatenate([X, X])))
    assert_close(jax.grad(lambda x: model(x).sum())(X), f32([1, -1, 1]))
    with pytest.raises(DataDependentShapeError) as info:
        jax.jit(model.apply)(model.params, X)
    assert "node giving 'r' (If-16)" in str(info.value)


def test_branches_with_sequences_and_optionals():
    text = """
    (float[N] x, bool c) => (TYPE y) {
      y = If <
        then_branch = a () => (TYPE r) { n = Neg(x) s = SequenceConstruct(x, n) END },
        else_branch = b () => (TYPE r) { m = Abs(x) s = SequenceConstruct(m, x) END }
      > (c)
    }"""
    sequence = text.replace("TYPE", "seq(float[N])").replace("END", "r = Identity(s)")
    optional = text.replace("TYPE", "optional(seq(float[N]))").replace("END", "r = Optional(s)")
    for form in (sequence, optional):
        model = load(form)
        assert [v.tolist() for v in model(X, True)] == [X.tolist(), (-X).tolist()]
        function = jax.jit(lambda c, m=model: m(X, c))
        assert [v.tolist() for v in function(False)] == [abs(X).tolist(), X.tolist()]


def test_nested_names_are_lexical():
    model = load("""
    (float[N] x, bool c) => (float[N] y, float[N] z) {
      t = Neg(x)
      y = If <
        then_branch = a () => (float[N] y) {
          y = If <
            then_branch = a () => (float[N] t) { t = Mul(x, x) },
            else_branch = b () => (float[N] t) { }
          > (c)
        },
        else_branch = b () => (float[N] y) { u = Add(t, t) y = Add(u, x) }
      > (c)
      z = Add(y, t)
    }""")
    y, z = model(X, True)
    assert_close(y, X * X)
    assert_close(z, X * X - X)
    assert_close(model(X, False).y, -X)


LOOP = """
(float[N] x, int64 m, bool c) => (float[N] last, float[K, N] all, int64[K] count) {
  last, all, count = Loop <body = b (int64 i, bool go, float[N] v)
      => (bool go_on, float[N] w, float[N] s, int64 i) <float limit = {8.0}> {
    w = Add(v, x)
    s = Identity(v)
    sum = ReduceMax<keepdims = 0>(w)
    go_on = Less(sum, limit)
  }> (INPUTS)
}
"""


@pytest.mark.parametrize("opset", IF_VERSIONS)
def test_loop(opset):
    """Up to m times, while the largest is below 8."""
    model = load(LOOP.replace("INPUTS", "m, c, x"), opset=opset)
    last, steps, count = model(X, i64(2), True)
    assert_close(last, 3 * X)
    assert_close(steps, np.stack([X, 2 * X]))
    assert_close(count, i64([0, 1]))
    last, steps, count = model(X, i64(9), True)  # stops by its condition
    assert_close(last, 3 * X)
    assert_close(count, i64([0, 1]))


@pytest.mark.parametrize(("m", "c"), [(0, True), (5, False), (-3, True)])
def test_no_iterations(m, c):
    """[onnxruntime#1272] Carried values pass, scan outputs have length 0 and the right shape."""
    last, steps, count = load(LOOP.replace("INPUTS", "m, c, x"))(X, i64(m), c)
    assert_close(last, X)
    assert_close(steps, np.zeros((0, 3), np.float32))
    assert_close(count, i64([]))


@pytest.mark.parametrize(
    ("inputs", "trips"),
    [
        ('m, "", x', 4),  # the body's condition is ignored
        ('"", c, x', 2),
        ("most, c, x", 2),  # INT64_MAX, the exporters' word for no bound
    ],
)
def test_absent_inputs(inputs, trips):
    """[torch-mlir#3408] ONNX's reference fails without a condition."""
    text = LOOP.replace("INPUTS", inputs)
    if "most" in inputs:
        text = text.replace("{\n  last", "<int64 most = {9223372036854775807}> {\n  last")
    last, _, count = load(text)(X, i64(4), True)
    assert_close(last, (trips + 1) * X)
    assert_close(count, np.arange(trips))


def test_only_scan_outputs():
    model = load("""
    (int64 m, float x) => (float[K] y) {
      y = Loop <body = b (int64 i, bool c) => (bool c, float r) {
        k = Cast<to = 1>(i)
        r = Mul(k, x)
      }> (m)
    }""")
    assert_close(model(i64(3), f32(2)), f32([0, 2, 4]))


FOR = """
(float[N] x) => (float[N] y, float[K, N] all) <int64 m = {TRIPS}, bool c = {1}> {
  y, all = Loop <body = b (int64 i, bool go, float[N] v)
      => (bool go, float[N] w, float[N] v) <float half = {0.5}> {
    w = Mul(v, half)
  }> (m, c, x)
}
"""


def equations(model, *args):
    """How many equations the program has, those of loops counted once."""

    def count(jaxpr):
        inner = [v for e in jaxpr.eqns for v in jax.tree.leaves(list(e.params.values()))]
        parts = [getattr(v, "jaxpr", v) for v in inner]
        return len(jaxpr.eqns) + sum(count(p) for p in parts if hasattr(p, "eqns"))

    return count(jax.make_jaxpr(lambda m, *a: m(*a))(model, *args).jaxpr)


def test_a_long_loop_is_no_larger_than_a_short_one():
    short, long = (load(FOR.replace("TRIPS", n)) for n in ("10", "1000"))
    assert equations(short, X) == equations(long, X)
    y, steps = long(X)
    assert steps.shape == (1000, 3)
    assert_close(steps[3], X / 8)
    assert_close(y, f32([0, -0.0, 0]))


def test_values_stored_in_a_body_are_parameters():
    model = load(FOR.replace("TRIPS", "3"), {"trainable": ["half"]})
    assert list(model.params) == ["half"]
    assert_close(jax.grad(lambda m: m(X).y.sum())(model).params["half"], f32(2 * 3 * 0.25))


WHILE = """
(float x, float limit) => (float y) <int64 m = {TRIPS}> {
  go = Less(x, limit)
  y = Loop <body = b (int64 i, bool c, float v) => (bool more, float w) {
    two = Add(v, v)
    inverse = Div(limit, v)
    zero = Sub(inverse, inverse)
    w = Add(two, zero)
    more = Less(w, limit)
  }> (m, go, x)
}
"""


def test_a_bounded_while_has_both_derivatives():
    """The body must not run after the end, where it may divide by zero."""
    model = load(WHILE.replace("TRIPS", "20"))
    for x, expected in ((1, 8), (3, 12), (9, 9)):
        assert_close(model(f32(x), f32(8)), f32(expected))
    assert_close(jax.grad(lambda x: model(x, f32(8)))(f32(3)), f32(4))
    assert_close(jax.jvp(lambda x: model(x, f32(8)), (f32(3),), (f32(1),))[1], f32(4))
    assert_close(jax.vmap(model, in_axes=(0, None))(f32([1, 3, 9]), f32(8)), f32([8, 12, 9]))


def test_an_unbounded_while_has_the_forward_derivative():
    text = WHILE.replace("TRIPS", "9223372036854775807")
    model = load(text)
    assert_close(model(f32(3), f32(8)), f32(12))
    assert_close(jax.jvp(lambda x: model(x, f32(8)), (f32(3),), (f32(1),))[1], f32(4))
    assert_close(jax.jacfwd(lambda x: model(x, f32(8)))(f32(3)), f32(4))
    with pytest.raises(StaticValueError, match=r"no reverse derivative; declare .* bounds="):
        jax.grad(lambda x: model(x, f32(8)))(f32(3))


def test_a_declared_bound_gives_the_reverse_derivative():
    text = WHILE.replace("TRIPS", "9223372036854775807")
    model = load(text, {"bounds": {"y": 5}})
    assert_close(model(f32(3), f32(8)), f32(12))
    assert_close(jax.grad(lambda x: model(x, f32(8)))(f32(3)), f32(4))
    with pytest.raises(DataDependentShapeError, match="bound 5 of 'y' is exceeded"):
        model(f32(1), f32(100))


def test_a_declared_bound_pads_scan_outputs():
    text = LOOP.replace("INPUTS", "m, c, x")
    model = load(text, {"bounds": {"last": 4}})
    last, steps, count = model(X, i64(9), True)
    assert_close(last, 3 * X)
    assert_close(steps, np.stack([X, 2 * X]))
    assert_close(count, i64([0, 1]))
    assert model._program.executor.whole.compilations == 1
    padded = jax.jit(lambda x: model(x, i64(1), True))(X)
    assert padded[2].values.tolist() == [0, -1, -1, -1]
    assert model(X / 8, i64(4), True)[2].tolist() == [0, 1, 2, 3]  # as many as the bound
    with pytest.raises(DataDependentShapeError, match="there are 5 results"):
        model(X / 8, i64(9), True)


def test_a_carried_value_that_grows_is_unrolled():
    model = load("""
    (float[N] x) => (float[M] y) <int64 m = {3}, bool c = {1}> {
      y = Loop <body = b (int64 i, bool go, float[K] v) => (bool go, float[L] w) {
        w = Concat<axis = 0>(v, x)
      }> (m, c, x)
    }""")
    assert_close(model(X), np.tile(X, 4))
    assert_close(jax.grad(lambda x: model(x).sum())(X), f32([4, 4, 4]))


SEQUENCES = """
(float[N] x, int64 m) => (seq(float[M]) y) <bool c = {1}, int64[1] start = {0}> {
  none = SequenceEmpty()
  y = Loop <body = b (int64 i, bool go, seq(float[K]) s) => (bool go, seq(float[K]) t)
      <int64[1] one = {1}> {
    end = Add(i, one)
    part = Slice(x, start, end)
    t = SequenceInsert(s, part)
  }> (COUNT, c, none)
}
"""


@pytest.mark.parametrize("count", ["m", "3"])
def test_a_carried_sequence(count):
    """Unrolled where the count is known, outside of programs where it is computed."""
    text = SEQUENCES.replace("COUNT", "m" if count == "m" else "k")
    text = text if count == "m" else text.replace("<bool c", "<int64 k = {3}, bool c")
    model = load(text)
    for parts in (model(X, i64(3)), model(2 * X, i64(3))):
        assert [p.shape for p in parts] == [(1,), (2,), (3,)]
    assert_close(jax.grad(lambda x: model(x, i64(3))[1].sum())(X), f32([1, 1, 0]))
    if count == "m":
        assert model(X, i64(0)) == []


def test_a_carried_optional():
    model = load("""
    (optional(float[N]) o, int64 m, float[N] x) => (seq(float[N]) y) <bool c = {1}> {
      none = SequenceEmpty()
      y = Loop <body = b (int64 i, bool go, seq(float[N]) s) => (bool go, seq(float[N]) t) {
        has = OptionalHasElement(o)
        v = If <
          then_branch = a () => (float[N] r) { r = OptionalGetElement(o) },
          else_branch = e () => (float[N] x) { }
        > (has)
        t = SequenceInsert(s, v)
      }> (m, c, none)
    }""")
    assert [v.tolist() for v in model(None, i64(2), X)] == [X.tolist()] * 2
    assert [v.tolist() for v in model(2 * X, i64(1), X)] == [(2 * X).tolist()]


NESTED = """
(float[N] x) => (float[N] y) <int64 m = {3}, int64 k = {2}, bool c = {1}> {
  t = Add(x, x)
  y = Loop <body = outer (int64 i, bool go, float[N] v) => (bool go, float[N] w) {
    u = Add(v, t)
    w = Loop <body = inner (int64 i, bool go, float[N] v) => (bool go, float[N] w) {
      n = Cast<to = 1>(i)
      p = Mul(n, u)
      q = Add(p, v)
      w = Sub(q, x)
    }> (k, c, v)
  }> (m, c, x)
}
"""


def test_nested_loops():
    """Inner names equal outer ones; the inner body captures of all scopes."""
    expected = X
    for _ in range(3):
        u = expected + 2 * X
        for n in range(2):
            expected = n * u + expected - X
    model = load(NESTED)
    assert_close(model(X), expected)
    assert_close(jax.grad(lambda x: model(x).sum())(X), expected / X)
    assert_close(jax.vmap(model)(X[None]), expected[None])


POSITIVE = """
(float[N] x, int64 m) => (float[M] y, float[K, A] all) <bool c = {1}, float zero = {0.0}> {
  y, all = Loop <body = b (int64 i, bool go, float[P] v) => (bool go, float[Q] w, float[1] s) {
    chosen = Greater(v, zero)
    w = Compress<axis = 0>(v, chosen)
    s = ReduceSum(w)
  }> (m, c, x)
}
"""


def test_a_body_that_needs_concrete_values():
    model = load(POSITIVE)
    y, steps = model(X, i64(2))
    assert_close(y, f32([1, 3]))
    assert_close(steps, f32([[4], [4]]))
    y, steps = model(X, i64(0))
    assert_close(y, X)
    assert_close(steps, np.zeros((0, 1), np.float32))
    assert_close(jax.grad(lambda x: model(x, i64(2)).all.sum())(X), f32([2, 0, 2]))
    with pytest.raises(DataDependentShapeError, match="node giving 'y' \\(Loop-16\\)"):
        jax.jit(model.apply)(model.params, X, i64(2))


def test_a_body_with_strings():
    model = load(
        """
    (string[N] x, int64 m) => (string[N] y, string[K, N] all) <bool c = {1}> {
      y, all = Loop <body = b (int64 i, bool go, string[N] v)
          => (bool go, string[N] w, string[N] v) {
        w = StringConcat(v, x)
      }> (m, c, x)
    }""",
        opset=20,
    )
    y, steps = model(["a", "b"], i64(2))
    assert y.tolist() == ["aaa", "bbb"]
    assert steps.tolist() == [["a", "b"], ["aa", "bb"]]
    assert model(["a"], i64(0)).all.shape == (0, 1)


def test_a_loop_in_double_precision():
    model = load(FOR.replace("TRIPS", "2").replace("float", "double"))
    y, steps = model(X.astype(np.float64))
    assert_close(y, X.astype(np.float64) / 4)
    assert steps.dtype == jnp.float64

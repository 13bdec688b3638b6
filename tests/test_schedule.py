"""Models that no single program can hold: phases, compilations, derivatives, errors."""

import copy
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest
from helpers import assert_close, f32, i64, text_model

import jaxonnx
from jaxonnx.errors import DataDependentShapeError

X = f32([1, -2, 3, -4])


def load(text, opset=18, **options):
    return jaxonnx.load(text_model(text, opset=opset), **options)


def phases(model):
    """Each phase as its operators, host phases in parentheses."""
    lines = [
        " ".join(n.op_type for n in p.graph.nodes)
        if p.compiled
        else "(" + " ".join(n.op_type for n in p.graph.nodes) + ")"
        for p in model._program.executor.phases
    ]
    return " | ".join(lines)


POSITIVE = """
(float[N] x) => (float[M] y, int64 n) <float zero = {0.0}, float[1] w = {3.0}> {
  a = Mul(x, w)
  chosen = Greater(a, zero)
  kept = Compress<axis = 0>(a, chosen)
  y = Exp(kept)
  n = Size(kept)
}
"""


def test_stretches_are_compiled_once_per_shape():
    model = load(POSITIVE)
    y, n = model(X)
    assert_close(y, np.exp(f32([3, 9])))
    assert_close(n, i64(2))
    assert phases(model) == "Mul Greater | (Compress) | Exp Size"
    assert model._program.executor.compilations == 2
    assert_close(model(-X).y, np.exp(f32([6, 12])))  # as many as before
    assert model._program.executor.compilations == 2
    assert_close(model(f32([1, 2, 3, 4])).n, i64(4))  # more of them
    assert model._program.executor.compilations == 3
    assert_close(model(-abs(X)).y, f32([]))
    assert model._program.executor.compilations == 4
    assert_close(model(X[:2]).y, np.exp(f32([3])))  # another size of the input, too
    assert model._program.executor.compilations == 6
    assert model._program.executor.whole.compilations == 0


def test_strings_are_followed_into_and_out_of_a_scan_of_opset_8():
    text = """(float[B] s, string[B, T] x) => (float[B] y, string[B, T] all) {
        last, all = Scan <num_scan_inputs = 1, body = b (float a, string v)
            => (float c, string d) { c = Identity(a) d = Identity(v) }> ("", s, x)
        y = Neg(last)
    }"""
    model = load(text, opset=8)
    assert phases(model) == "(Scan) | Neg"
    y, words = model(f32([2]), np.array([["a", "b"]], np.dtypes.StringDType()))
    assert_close(y, f32([-2]))
    assert words.tolist() == [["a", "b"]]


def test_strings_are_followed_through_sequences():
    text = """(string[N] x, float[N] v) => (string[N] y, float[N] w) <int64 one = {1}> {
        words = SequenceConstruct(x, x)
        y = SequenceAt(words, one)
        numbers = SequenceConstruct(v, v)
        w = SequenceAt(numbers, one)
    }"""
    model = load(text)
    host = [p for p in model._program.executor.phases if not p.compiled]
    assert [n.op_type for p in host for n in p.graph.nodes] == ["SequenceConstruct", "SequenceAt"]
    assert model(np.array(["a"], np.dtypes.StringDType()), f32([1])).y.tolist() == ["a"]


def test_new_parameters_compile_nothing():
    model = load(POSITIVE, trainable=["w"])
    model(X)
    other = model.replace({"w": f32([1])})
    assert_close(other(X).y, np.exp(f32([1, 3])))
    assert model._program.executor.compilations == 2
    assert_close(copy.deepcopy(other)(X).y, np.exp(f32([1, 3])))
    assert model._program.executor.compilations == 2


def test_the_schedule_says_why(capsys):
    model = load(POSITIVE)
    print(model.schedule())
    assert capsys.readouterr().out.splitlines() == [
        "0: compiled, 2 nodes",
        "1: on concrete values",
        "   node giving 'kept' (Compress-11): the shape of its result depends on values",
        "2: compiled, 2 nodes",
    ]


def test_derivatives_through_phases():
    model = load(POSITIVE, trainable=["w"])
    gradient = jax.grad(lambda x: model(x).y.sum())(X)
    assert_close(gradient, f32([3 * np.exp(3), 0, 3 * np.exp(9), 0]))
    gradient = jax.grad(lambda m: m(X).y.sum())(model).params["w"]
    assert_close(gradient, f32([np.exp(3) + 3 * np.exp(9)]))
    y, tangent = jax.jvp(lambda x: model(x).y, (X,), (f32([1, 1, 1, 1]),))
    assert_close(tangent, 3 * y)
    hessian = jax.jacfwd(jax.grad(lambda x: model(x).y.sum()))(X)
    assert_close(np.diag(hessian), f32([9 * np.exp(3), 0, 9 * np.exp(9), 0]))


def test_outputs_are_arrays():
    model = load("(float[N] x) => (int64[R, K] y) { y = NonZero(x) }")
    y = model(f32([0, 5]))
    assert isinstance(y, jax.Array)
    assert_close(y, i64([[1]]))
    assert phases(model) == "(NonZero)"


@pytest.mark.parametrize("transform", ["jit", "vmap", "export"])
def test_one_error_lists_the_nodes(transform):
    model = load("""
    (float[N] x) => (float[K] y, int64[R, J] z) {
      p = NonZero(x)
      q = Cast<to = 9>(x)
      y = Compress<axis = 0>(x, q)
      s = Shape(p)
      z = Identity(p)
    }""")
    call = {
        "jit": lambda: jax.jit(model.apply)(model.params, X),
        "vmap": lambda: jax.vmap(model)(X[None]),
        "export": lambda: jax.export.export(jax.jit(model.apply))(
            model.params, model.abstract_inputs()
        ),
    }[transform]
    with pytest.raises(DataDependentShapeError) as info:
        call()
    text = str(info.value)
    assert "  node giving 'p' (NonZero-13)\n  node giving 'y' (Compress-11)\n" in text
    assert "Call model(x) outside of jit, vmap and export" in text
    assert "bounds=" in text


def test_what_depends_on_shapes_alone_stays_known_in_every_stretch():
    model = load(
        """
    (float[N, D] x) => (float[A, B] y) <int64[1] last = {-1}, int64[1] zero = {0}> {
      dims = Shape(x)
      width = Slice(dims, one, two)
      places = NonZero(x)
      rows = Transpose(places)
      shape = Concat<axis = 0>(last, width)
      back = Mul(rows, rows)
      y0 = Cast<to = 1>(back)
      y = Reshape(y0, shape)
    }""".replace("zero = {0}", "one = {1}, int64[1] two = {2}")
    )
    y = model(f32([[1, 0], [2, 3]]))
    assert_close(y, f32([[0, 0], [1, 0], [1, 1]]))
    assert phases(model) == ("(NonZero) | Shape Slice Transpose Concat Mul Cast Reshape")


def test_an_operand_computed_from_data():
    """Reshape to a computed shape: found when the graph is split."""
    model = load("""
    (float[N] x, int64[2] shape) => (float[A, B] y) {
      twice = Add(shape, shape)
      other = Neg(x)
      z = Reshape(other, twice)
      y = Exp(z)
    }""")
    assert model.static_inputs == ("shape",)  # its value is known instead
    assert_close(model(X, i64([1, 1])), np.exp(-X).reshape(2, 2))
    model = load("""
    (float[N] x) => (float[A, B] y) <float[4] w = {1.0, 1.0, 1.0, 1.0}> {
      scores = Mul(x, w)
      best = ArgMax(scores)
      shape = Concat<axis = 0>(best, best)
      other = Neg(x)
      z = Reshape(other, shape)
      y = Exp(z)
    }""")
    assert_close(model(f32([1, 2, 4, 3])), np.exp(f32([[-1, -2], [-4, -3]])))
    reason = repr(model.schedule()).splitlines()[2]
    assert reason == "   node giving 'z' (Reshape-14): its operand 'shape' is computed from data"


def test_a_node_that_turns_out_to_need_values():
    """If whose branches differ: only tracing shows it."""
    model = load("""
    (float[N] x) => (float[M] y) <float zero = {0.0}> {
      s = ReduceSum<keepdims = 0>(x)
      c = Greater(s, zero)
      r = If <
        then_branch = a () => (float[N] p) { p = Neg(x) },
        else_branch = b () => (float[M] q) { q = Concat<axis = 0>(x, x) }
      > (c)
      y = Abs(r)
    }""")
    assert phases(model) == "ReduceSum Greater If Abs"
    assert_close(model(abs(X)), abs(X))
    assert phases(model) == "ReduceSum Greater | (If) | Abs"
    first = model._program.executor.compilations
    assert_close(model(abs(X) + 1), abs(X) + 1)
    assert model._program.executor.compilations == first
    assert_close(model(-abs(X)), abs(np.concatenate([X, X])))
    assert model._program.executor.compilations == first + 2  # the other branch, and Abs of it


def test_a_body_is_compiled_once_for_all_iterations():
    model = load("""
    (float[N] x, int64 m) => (float[N] y, float[K, N] all) <bool c = {1}> {
      y, all = Loop <body = b (int64 i, bool go, float[N] v) => (bool go, float[N] w, float[N] v) {
        t = Add(v, x)
        w = Abs(t)
      }> (m, c, x)
    }""")
    assert_close(model(X, i64(5)).y, abs(X) * f32([6, 0, 6, 0]))
    before = model._program.executor.compilations
    assert model(X, i64(9)).all.shape == (9, 4)
    assert model._program.executor.compilations == before
    gradient = jax.grad(lambda x: model(x, i64(2)).y.sum())(X)
    assert_close(gradient, f32([3, -1, 3, -1]))


def test_strings_found_out_while_running():
    """A label is looked up behind a program, then joined: no type tells that it is text."""
    model = load(
        """
    (float[N, C] x) => (string[N] y, float[N, C] z) {
      best = ArgMax<axis = 1, keepdims = 0>(x)
      label = ai.onnx.ml.LabelEncoder <keys_int64s = [0, 1], values_strings = ["no", "yes"]> (best)
      y = Identity(label)
      z = Neg(x)
    }""",
    )
    y, z = model(f32([[0, 1], [1, 0]]))
    assert y.tolist() == ["yes", "no"]
    assert_close(z, f32([[-0.0, -1], [-1, -0.0]]))
    compiled = model._program.executor.compilations
    model(f32([[1, 0], [1, 0]]))
    assert model._program.executor.compilations == compiled


def test_a_constant_string_as_output():
    model = load('(float[N] x) => (float[N] y, string s) <string s = {"a"}> { y = Neg(x) }')
    y, s = model(X)
    assert_close(y, -X)
    assert np.asarray(s).ravel().tolist() == ["a"]


def test_types_are_exact_in_every_mode():
    model = load("(float[N] x) => (float[M] y) { p = NonZero(x) y = Cast<to = 1>(p) }")
    assert_close(model(X), f32([[0, 1, 2, 3]]))
    with jax.enable_x64(True):
        assert_close(model(X), f32([[0, 1, 2, 3]]))


def test_defaults_are_replaced_in_every_phase():
    model = load("""
    (float[N] x, int64 k, int64[1] n) => (int64[1, M] y, float[1, K] most)
    <int64 k = {2}, int64[1] n = {1}> {
      p = NonZero(x)
      y = Mul(p, k)
      v = Cast<to = 1>(p)
      most, places = TopK<axis = 1>(v, n)
    }""")
    y, most = model(f32([1, 0, 1]))
    assert_close(y, i64([[0, 4]]))
    assert_close(most, f32([[2]]))
    y, most = model(f32([1, 0, 1]), k=i64(7), n=i64([2]))
    assert_close(y, i64([[0, 14]]))
    assert_close(most, f32([[2, 0]]))


def test_threads_may_share_a_model():
    """Each finds out for itself, at the same time, that the branch depends on values."""
    text = """
    (float[N] x, float zero) => (float[M] y) {
      p = NonZero(x)
      q = Transpose(p)
      g = GatherND(x, q)
      s = ReduceSum<keepdims = 0>(g)
      c = Greater(s, zero)
      r = If <then_branch = a () => (float[A] t) { t = Identity(x) },
              else_branch = b () => (float[B] e) { e = Concat<axis = 0>(x, x) }> (c)
      y = Abs(r)
    }"""
    model, x = load(text), f32([1, 2, 0])
    with ThreadPoolExecutor(8) as pool:
        results = [*pool.map(lambda k: model(x if k % 2 else -x, f32(0)), range(8))]
    for k, result in enumerate(results):
        assert_close(result, x if k % 2 else np.concatenate([x, x]))

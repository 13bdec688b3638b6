"""Sequences and optionals: values that a trace knows the structure of."""

import jax
import numpy as np
import pytest
from helpers import assert_close, f32, i64, text_model

import jaxonnx
from jaxonnx import ops
from jaxonnx.errors import InputError, InvalidModelError

A, B, C = f32([1, 2]), f32([3]), f32([4, 5, 6])


def load(text, **options):
    return jaxonnx.load(text_model(text, **options))


def same(actual, expected):
    """Whether two sequences have equal elements."""
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        assert_close(a, e)


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (None, [A, B, C]),
        (0, [C, A, B]),
        (1, [A, C, B]),
        (2, [A, B, C]),
        (-1, [A, C, B]),  # before the last; ONNX's reference puts it at the end
        (-2, [C, A, B]),
    ],
)
def test_insert(position, expected):
    same(ops.sequence_insert([A, B], C, position), expected)


@pytest.mark.parametrize(
    ("position", "expected"), [(None, [A, B]), (0, [B, C]), (-1, [A, B]), (-3, [B, C])]
)
def test_erase(position, expected):
    same(ops.sequence_erase([A, B, C], position), expected)


def test_at():
    assert ops.sequence_at([A, B, C], np.int64(-2)) is B
    assert ops.sequence_at([A, B, C], np.array([2], np.int32)) is C


@pytest.mark.parametrize("position", [3, -4])
def test_position_outside(position):
    with pytest.raises(InvalidModelError, match=r"outside \[-3, 2\] for a sequence of 3"):
        ops.sequence_at([A, B, C], np.int64(position))
    with pytest.raises(InvalidModelError, match=r"outside \[-3, 2\]"):
        ops.sequence_erase([A, B, C], np.int64(position))
    with pytest.raises(InvalidModelError, match=r"outside \[-3, 3\]"):
        ops.sequence_insert([A, B, C], A, np.int64(position + (1 if position > 0 else 0)))


def test_empty_construct_length():
    assert ops.sequence_empty() == [] == ops.sequence_empty(dtype=7)
    same(ops.sequence_construct(A, B), [A, B])
    assert_close(ops.sequence_length([A, B]), i64(2))
    assert_close(ops.sequence_length([]), i64(0))


X = np.arange(10, dtype=np.float32).reshape(5, 2)


@pytest.mark.parametrize(
    ("split", "sizes"),
    [(None, [1] * 5), (2, [2, 2, 1]), ([1, 4], [1, 4]), ([0, 5, 0], [0, 5, 0])],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.bool_])
def test_split_to_sequence(split, sizes, dtype):
    x = X.astype(dtype)
    parts = ops.split_to_sequence(x, None if split is None else i64(split))
    ends = np.cumsum(sizes)
    same(parts, [x[e - s : e] for s, e in zip(sizes, ends, strict=True)])


def test_split_to_sequence_drops_the_axis():
    same(ops.split_to_sequence(X, axis=-1, keepdims=0), [X[:, 0], X[:, 1]])
    kept = ops.split_to_sequence(X, i64([1, 1]), axis=1, keepdims=0)  # ignored with split
    same(kept, [X[:, :1], X[:, 1:]])
    assert ops.split_to_sequence(X[:0]) == []


@pytest.mark.parametrize(
    ("split", "text"),
    [([1, 2], "do not add up"), (0, "is not positive"), (-1, "is not positive")],
)
def test_split_to_sequence_errors(split, text):
    with pytest.raises(InvalidModelError, match=text):
        ops.split_to_sequence(X, i64(split))


def test_concat_from_sequence():
    assert_close(ops.concat_from_sequence([A, B], axis=0), f32([1, 2, 3]))
    assert_close(ops.concat_from_sequence([A, A], axis=-1, new_axis=1), f32([[1, 1], [2, 2]]))
    assert_close(ops.concat_from_sequence([A, A], axis=-2, new_axis=1), f32([[1, 2], [1, 2]]))
    with pytest.raises(InvalidModelError, match="empty sequence"):
        ops.concat_from_sequence([], axis=0)


def test_optional():
    assert ops.optional() is None
    assert ops.optional(A) is A
    assert ops.optional_get_element([A]) == [A]
    assert_close(ops.optional_has_element(), np.array(False))
    assert_close(ops.optional_has_element(None), np.array(False))
    assert_close(ops.optional_has_element([]), np.array(True))
    with pytest.raises(InvalidModelError, match="empty optional"):
        ops.optional_get_element(None)


CHAIN = """
(float[N] x) => (float[M] y, int64 n) <int64 at = {0}> {
  twice = Add(x, x)
  one = SequenceConstruct(x, twice)
  two = SequenceInsert(one, twice, at)
  three = SequenceErase(two, at)
  n = SequenceLength(three)
  y = ConcatFromSequence<axis = 0>(three)
}
"""


def test_a_chain_is_one_program():
    model = load(CHAIN)
    y, n = model(A)
    assert_close(y, f32([1, 2, 2, 4]))
    assert_close(n, i64(2))
    assert model._program.executor.whole.compilations == 1
    assert_close(jax.grad(lambda x: model(x).y.sum())(A), f32([3, 3]))
    assert_close(jax.jit(lambda m, x: m(x).y)(model, A), f32([1, 2, 2, 4]))
    assert_close(jax.vmap(lambda x: model(x).y)(A[None]), f32([[1, 2, 2, 4]]))


def test_known_values_stay_known_in_a_sequence():
    """Sizes that go through a sequence still decide shapes."""
    model = load("""
    (float[A, B] x) => (float[C] y) <int64 at = {1}, int64[1] last = {-1}> {
      dims = Shape(x)
      parts = SequenceConstruct(x, last)
      sizes = SequenceConstruct(dims, last)
      shape = SequenceAt(sizes, at)
      y = Reshape(x, shape)
    }""")
    assert_close(model(f32([[1, 2], [3, 4]])), f32([1, 2, 3, 4]))
    assert model._program.executor.whole.compilations == 1


def test_lengths_are_known():
    model = load("""
    (float[N] x) => (float[M] y) <int64 one = {1}> {
      parts = SplitToSequence(x)
      n = SequenceLength(parts)
      last = Sub(n, one)
      y = SequenceAt(parts, last)
    }""")
    assert_close(model(C), f32([6]))
    assert model._program.executor.whole.compilations == 1


def test_position_from_data_runs_between_programs():
    model = load("""
    (float[N] x, int64 k) => (float[M] y) {
      k1 = Abs(k)
      parts = SplitToSequence(x)
      part = SequenceAt(parts, k1)
      y = Neg(part)
    }""")
    assert_close(model(C, i64(-1)), f32([-5]))
    assert_close(model(C, i64(2)), f32([-6]))


MAP = """
(seq(float[N]) s, float b) => (seq(float[M]) y, seq(int64[1]) z) {
  y, z = SequenceMap <body = g (float[N] a, float c) => (float[M] p, int64[1] q) {
    p = Add(a, c)
    q = Shape(a)
  }> (s, b)
}
"""


def test_map():
    y, z = load(MAP)([A, B], f32(1))
    same(y, [f32([2, 3]), f32([4])])
    same(z, [i64([2]), i64([1])])
    y, z = load(MAP)([], f32(1))
    assert y == z == []


def test_map_of_sequences_of_different_length():
    with pytest.raises(InvalidModelError, match="sequences of 2 and 1 elements"):
        load("""
        (seq(float[N]) s, seq(float[N]) t) => (seq(float[N]) y) {
          y = SequenceMap <body = g (float[N] a, float[N] b) => (float[N] p) {p = Add(a, b)}> (s, t)
        }""")([A, A], [A])


def test_map_sees_outer_values():
    """ONNX's reference loses the outer scope."""
    model = load("""
    (seq(float[N]) s, float b) => (seq(float[N]) y) {
      c = Neg(b)
      y = SequenceMap <body = g (float[N] a) => (float[N] p) {p = Add(a, c)}> (s)
    }""")
    same(model([A], f32(1)), [f32([0, 1])])
    grads = jax.grad(lambda b: model([A, B], b)[0].sum())(f32(1))
    assert_close(grads, f32(-2))


SEQUENCE = "(seq(float[N]) s) => (seq(float[N]) t) { t = Identity(s) }"
OPTIONAL = "(optional(float[N]) o) => (bool has) { has = OptionalHasElement(o) }"


def test_inputs_and_outputs():
    same(load(SEQUENCE)([A, B]), [A, B])
    same(load(SEQUENCE)((A, jax.numpy.asarray(B))), [A, B])
    same(load(SEQUENCE)(s=[[1.0, 2.0]]), [A])
    assert str(load(SEQUENCE).inputs[0]) == "seq(float32[N])"
    model = load(OPTIONAL)
    assert str(model.inputs[0]) == "optional(float32[N])"
    assert_close(model(A), np.array(True))
    assert_close(model(None), np.array(False))
    same([load("(optional(float[N]) o) => (optional(float[N]) p) {p = Identity(o)}")(A)], [A])
    assert load("(optional(float[N]) o) => (optional(float[N]) p) {p = Identity(o)}")(None) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (A, r"input 's': ndarray, expected seq\(float32\[N\]\)"),
        ([A, i64([1])], r"input 's': int64\[1\], expected float32\[N\]"),
        ([f32([[1]])], r"input 's': float32\[1, 1\], expected float32\[N\]"),
        (None, "input 's': NoneType"),
    ],
)
def test_wrong_inputs(value, text):
    with pytest.raises(InputError, match=text):
        load(SEQUENCE)(value)


def test_getting_from_an_empty_optional_names_the_node():
    model = load("(optional(float[N]) o) => (float[N] y) { y = OptionalGetElement(o) }")
    assert_close(model(A), A)
    with pytest.raises(InvalidModelError, match="an empty optional value has no element"):
        model(None)


@pytest.mark.parametrize("opset", [15, 18, 28])
def test_optional_versions(opset):
    model = load(
        """(optional(float[N]) o) => (bool h, float[N] y) {
          h = OptionalHasElement(o) y = OptionalGetElement(o) }""",
        opset=opset,
        ir_version=13 if opset == 28 else 10,
    )
    assert_close(model(A).y, A)

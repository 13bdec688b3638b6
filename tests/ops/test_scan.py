"""Scan: directions, axes, states, lengths of 0, and the batched form of opset 8."""

import jax
import numpy as np
import pytest
from helpers import assert_close, check_gradients, f32, i64, text_model
from onnx import TensorProto

import jaxonnx
from jaxonnx.define.dtypes import dtype_of
from jaxonnx.errors import InvalidModelError

VERSIONS = [9, 11, 16, 19, 21, 23, 24, 25]


def load(attributes="", opset=18, kind="float", sizes="T, N"):
    """The running sum of the slices of ``x`` from ``s`` on, and the slices less the sum before."""
    text = f"""
    ({kind}[N] s, {kind}[{sizes}] x) => ({kind}[N] last, {kind}[T, N] sums, {kind}[T, N] rest) {{
      last, sums, rest = Scan <num_scan_inputs = 1 {attributes}, body = b ({kind}[N] a, {kind}[N] v)
          => ({kind}[N] c, {kind}[N] d, {kind}[N] e) {{
        c = Add(a, v)
        d = Identity(c)
        e = Sub(v, a)
      }}> (s, x)
    }}"""
    return jaxonnx.load(text_model(text, opset=opset))


S, X = f32([10, 20]), f32([[1, 2], [3, 4], [5, 6]])


@pytest.mark.parametrize("opset", VERSIONS)
def test_forward(opset):
    last, sums, rest = load(opset=opset)(S, X)
    assert_close(last, f32([19, 32]))
    assert_close(sums, f32([[11, 22], [14, 26], [19, 32]]))
    assert_close(rest, f32([[-9, -18], [-8, -18], [-9, -20]]))


@pytest.mark.parametrize("opset", VERSIONS)
def test_backward(opset):
    """Later slices first; a direction of an output says where it goes, not when it is made."""
    last, sums, rest = load(", scan_input_directions = [1]", opset)(S, X)
    assert_close(last, f32([19, 32]))
    assert_close(sums, f32([[15, 26], [18, 30], [19, 32]]))
    assert_close(rest, f32([[-5, -14], [-12, -22], [-17, -28]]))
    _, sums, rest = load(", scan_output_directions = [1, 0]", opset)(S, X)
    assert_close(sums, f32([[19, 32], [14, 26], [11, 22]]))
    assert_close(rest, f32([[-9, -18], [-8, -18], [-9, -20]]))


@pytest.mark.parametrize(("axis", "out"), [("1", "1"), ("-1", "-1"), ("-1", "1")])
def test_axes(axis, out):
    """ONNX's reference has neither axes nor directions."""
    model = load(f", scan_input_axes = [{axis}], scan_output_axes = [{out}, 0]", 11, sizes="N, T")
    _, sums, rest = model(S, X.T)
    assert_close(sums, f32([[11, 22], [14, 26], [19, 32]]).T)
    assert_close(rest, f32([[-9, -18], [-8, -18], [-9, -20]]))


def test_no_slices():
    last, sums, rest = load()(S, X[:0])
    assert_close(last, S)
    assert_close(sums, np.zeros((0, 2), np.float32))
    assert_close(rest, np.zeros((0, 2), np.float32))


@pytest.mark.parametrize("kind", ["double", "float16", "bfloat16", "int32", "int64"])
def test_types(kind):
    dtype = dtype_of(TensorProto.DataType.Value(kind.upper()))
    last, sums, _ = load(kind=kind)(S.astype(dtype), X.astype(dtype))
    assert_close(last, np.array([19, 32], dtype))
    assert sums.dtype == dtype


def test_derivatives():
    model = load(kind="double")
    check_gradients(lambda s, x: model(s * s, x * x).sums, S[:2] / 10, X / 6)
    mapped = jax.vmap(load(), in_axes=(None, 0))(S, np.stack([X, -X])).last
    assert_close(mapped, f32([[19, 32], [1, 8]]))


def test_several_inputs_and_no_state():
    model = jaxonnx.load(
        text_model("""
    (float[T] x, float[T] z) => (float[T] y) {
      y = Scan <num_scan_inputs = 2, scan_input_directions = [0, 1],
        body = b (float a, float c) => (float d) { d = Mul(a, c) }> (x, z)
    }""")
    )
    assert_close(model(f32([1, 2, 3]), f32([4, 5, 6])), f32([6, 10, 12]))
    with pytest.raises(InvalidModelError, match=r"different lengths \[3, 2\]"):
        jaxonnx.load(
            text_model("""
        (float[T] x, float[R] z) => (float[T] y) {
          y = Scan <num_scan_inputs = 2,
            body = b (float a, float c) => (float d) { d = Mul(a, c) }> (x, z)
        }""")
        )(f32([1, 2, 3]), f32([4, 5]))


def test_symbolic_length():
    model = load()
    exported = jax.export.export(jax.jit(model.apply))(model.params, model.abstract_inputs())
    last, sums, _ = exported.call(model.params, {"s": S, "x": X})
    assert_close(last, f32([19, 32]))
    assert_close(sums, f32([[11, 22], [14, 26], [19, 32]]))


def test_a_body_with_strings():
    model = jaxonnx.load(
        text_model(
            """
    (string s, string[T] x) => (string last, string[T] all) {
      last, all = Scan <num_scan_inputs = 1, scan_input_directions = [1],
        body = b (string a, string v) => (string c, string d) {
          c = StringConcat(a, v) d = Identity(c)
        }> (s, x)
    }""",
            opset=20,
        )
    )
    last, steps = model(np.array("-", object), ["a", "b"])
    assert last.tolist() == "-ba"
    assert steps.tolist() == ["-b", "-ba"]
    assert model(np.array("-", object), []).all.tolist() == []


def test_a_body_that_needs_concrete_values():
    model = jaxonnx.load(
        text_model("""
    (float[T, N] x) => (int64[T] y) {
      y = Scan <num_scan_inputs = 1, body = b (float[N] v) => (int64 n) {
        places = NonZero(v)
        n = Size(places)
      }> (x)
    }""")
    )
    assert_close(model(f32([[0, 1], [0, 0], [2, 3]])), i64([1, 0, 2]))


BATCH = np.stack([X, 10 * X])


@pytest.mark.parametrize("directions", ["", ", directions = [0]", ", directions = [1]"])
def test_batches(directions):
    """Opset 8: the batch is axis 0, the sequence axis 1."""
    model = jaxonnx.load(
        text_model(
            f"""
    (float[B, N] s, float[B, T, N] x) => (float[B, N] last, float[B, T, N] sums) {{
      last, sums = Scan <num_scan_inputs = 1 {directions}, body = b (float[N] a, float[N] v)
          => (float[N] c, float[N] d) {{ c = Add(a, v) d = Identity(c) }}> ("", s, x)
    }}""",
            opset=8,
        )
    )
    last, sums = model(np.stack([S, S]), BATCH)
    assert_close(last, f32([[19, 32], [100, 140]]))
    order = [2, 1, 0] if "1" in directions else [0, 1, 2]
    assert_close(sums, S + np.cumsum(BATCH[:, order], axis=1))
    last, sums = model(np.zeros((0, 2), np.float32), BATCH[:0])
    assert last.shape == (0, 2)
    assert sums.shape == (0, 3, 2)


RAGGED = """
(int64[B] n, KIND[B] s, KIND[B, T] x) => (KIND[B] last, KIND[B, T] all) {
  last, all = Scan <num_scan_inputs = 1, directions = [BACK], body = b (KIND a, KIND v)
      => (KIND c, KIND d) { c = OP(v, a) d = Identity(c) }> (n, s, x)
}
"""


@pytest.mark.parametrize(("back", "rows"), [("0", [[1, 3, 0], [10, 0, 0], [0, 0, 0]]), ("1", None)])
def test_lengths_in_a_batch(back, rows):
    rows = rows or [[2, 3, 0], [10, 0, 0], [0, 0, 0]]
    text = RAGGED.replace("KIND", "float").replace("BACK", back).replace("OP", "Add")
    model = jaxonnx.load(text_model(text, opset=8))
    x = f32([[1, 2, 3], [10, 20, 30], [7, 8, 9]])
    last, sums = model(i64([2, 1, 0]), f32([0, 0, 5]), x)
    assert_close(last, f32([3, 10, 5]))
    assert_close(sums, f32(rows))


def test_padding_of_a_batch_does_not_reach_derivatives():
    """The body divides by the slice, and the padding is 0."""
    text = RAGGED.replace("KIND", "float").replace("BACK", "0")
    text = text.replace("{ c = OP(v, a)", "{ c = Div(a, v)")
    model = jaxonnx.load(text_model(text, opset=8))
    x = f32([[2, 4], [5, 0]])
    gradient = jax.grad(lambda x: model(i64([2, 1]), f32([8, 5]), x).last.sum())(x)
    assert_close(gradient, f32([[-0.5, -0.25], [-0.2, 0]]))

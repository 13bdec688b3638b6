"""Matrix products and determinants."""

import helpers
import jax
import ml_dtypes
import numpy as np
import pytest
from jax import export

from jaxonnx import ops
from jaxonnx.errors import InvalidModelError

A = [[1, 2, 3], [4, 5, 6]]
B = [[1, 0], [0, 2], [1, 1]]
AB = [[4, 7], [10, 16]]


@pytest.mark.parametrize(
    ("opset", "dtype"),
    [(1, np.float32), (9, np.float16), (13, np.float64), (13, ml_dtypes.bfloat16)],
)
def test_matmul_floats(opset, dtype):
    (y,) = helpers.run_node("MatMul", [np.array(A, dtype), np.array(B, dtype)], opset=opset)
    helpers.assert_close(y, np.array(AB, dtype))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
def test_matmul_integers_are_exact(dtype):
    big = 2**24 + 1 if np.dtype(dtype).itemsize == 4 else 2**53 + 1
    a, b = np.array([[big, 1]], dtype), np.array([[3], [2]], dtype)
    (y,) = helpers.run_node("MatMul", [a, b], opset=13)
    helpers.assert_close(y, np.array([[3 * big + 2]], dtype))


@pytest.mark.parametrize(
    ("a", "b", "shape"),
    [
        ((3,), (3,), ()),
        ((3,), (3, 2), (2,)),
        ((2, 3), (3,), (2,)),
        ((4, 1, 2, 3), (5, 3, 2), (4, 5, 2, 2)),
        ((3,), (5, 3, 2), (5, 2)),
        ((2, 0), (0, 3), (2, 3)),
        ((0, 2, 3), (3, 1), (0, 2, 1)),
    ],
)
def test_matmul_shapes(a, b, shape):
    x, y = (np.arange(np.prod(s), dtype=np.float32).reshape(s) for s in (a, b))
    product = ops.matmul(x, y)
    assert product.shape == shape
    helpers.assert_close(product, np.asarray(x @ y))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_products_accumulate_in_single(dtype):
    ones = np.ones((1, 4096), dtype)  # in half precision the sum would stop at 2048 or 256
    expected = np.array([[4096]], dtype)
    helpers.assert_close(ops.matmul(ones, ones.T), expected)
    helpers.assert_close(ops.gemm(ones, ones, transB=1), expected)
    helpers.assert_close(ops.einsum(ones, ones, equation="ij,kj->ik"), expected)


@pytest.mark.parametrize(
    ("opset", "trans_a", "trans_b"), [(7, 0, 0), (9, 1, 0), (11, 0, 1), (13, 1, 1)]
)
def test_gemm_transposes(opset, trans_a, trans_b):
    a, b = np.array(A, np.float32), np.array(B, np.float32)
    inputs = [a.T if trans_a else a, b.T if trans_b else b, np.array([1, -1], np.float32)]
    options = {"transA": trans_a, "transB": trans_b, "alpha": 0.5, "beta": 2.0}
    (y,) = helpers.run_node("Gemm", inputs, opset=opset, **options)
    helpers.assert_close(y, np.array([[4, 1.5], [7, 6]], np.float32))


@pytest.mark.parametrize("shape", [(), (1,), (2,), (1, 1), (2, 1), (1, 2), (2, 2)])
def test_gemm_broadcasts_c(shape):
    a, b, c = np.array(A, np.float32), np.array(B, np.float32), np.full(shape, 3, np.float32)
    helpers.assert_close(ops.gemm(a, b, c), np.array(AB, np.float32) + 3)


@pytest.mark.parametrize("dtype", helpers.FLOATS)
def test_gemm_floats(dtype):
    with jax.enable_x64(True):
        y = ops.gemm(np.array(A, dtype), np.array(B, dtype), np.array([1, 2], dtype), alpha=2.0)
    helpers.assert_close(y, np.array([[9, 16], [21, 34]], dtype))


def test_gemm_without_c():
    (y,) = helpers.run_node("Gemm", [np.array(A, np.float32), np.array(B, np.float32)], opset=11)
    helpers.assert_close(y, np.array(AB, np.float32))


def test_gemm_does_not_read_c_where_beta_is_0():
    c = np.array(np.nan, np.float32)
    y = ops.gemm(np.array(A, np.float32), np.array(B, np.float32), c, beta=0.0)
    helpers.assert_close(y, np.array(AB, np.float32))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
def test_gemm_integers_are_exact(dtype):
    big = 2**24 + 1 if np.dtype(dtype).itemsize == 4 else 2**53 + 1
    a, b, c = np.array([[big]], dtype), np.array([[1]], dtype), np.array([big], dtype)
    (y,) = helpers.run_node("Gemm", [a, b, c], opset=13, alpha=2.0, beta=3.0)
    helpers.assert_close(y, np.array([[5 * big]], dtype))


def test_gemm_truncates_a_fraction_of_integers():
    y = ops.gemm(np.array([[7]], np.int32), np.array([[-1]], np.int32), alpha=0.5)
    helpers.assert_close(y, np.array([[-3]], np.int32))


@pytest.mark.parametrize("opset", [1, 6])
def test_gemm_1_broadcasts_only_if_asked(opset):
    inputs = [np.array(A, np.float32), np.array(B, np.float32), np.array([1, 2], np.float32)]
    (y,) = helpers.run_node("Gemm", inputs, opset=opset, broadcast=1)
    helpers.assert_close(y, np.array([[5, 9], [11, 18]], np.float32))
    with pytest.raises(InvalidModelError, match=r"C has shape \(2,\), expected a matrix"):
        helpers.run_node("Gemm", inputs, opset=opset)
    full = [*inputs[:2], np.ones((2, 2), np.float32)]
    (y,) = helpers.run_node("Gemm", full, opset=opset)
    helpers.assert_close(y, np.array(AB, np.float32) + 1)


def test_gemm_refuses_what_does_not_fit():
    a, b = np.zeros((1, 3), np.float32), np.zeros((3, 2), np.float32)
    with pytest.raises(InvalidModelError, match=r"C has shape \(4, 2\), expected .* \(1, 2\)"):
        ops.gemm(a, b, np.zeros((4, 2), np.float32))
    with pytest.raises(InvalidModelError, match="expected matrices"):
        ops.gemm(a[0], b)


X3 = np.arange(9, dtype=np.float32).reshape(3, 3)


@pytest.mark.parametrize(
    ("equation", "inputs", "expected"),
    [
        ("ij,jk->ik", [A, B], AB),
        (" i j , j k -> i k ", [A, B], AB),
        ("iA,Ak", [A, B], AB),
        ("ij->ji", [A], [[1, 4], [2, 5], [3, 6]]),
        ("bA", [A], [[1, 4], [2, 5], [3, 6]]),  # implicit: sorted, upper case first
        ("ij->", [A], 21),
        ("ii->i", [X3], [0, 4, 8]),
        ("ii", [X3], 12),
        ("...ii->...i", [[X3, X3 + 1]], [[0, 4, 8], [1, 5, 9]]),
        ("...ij,...jk->...ik", [[A, A], [B]], [AB, AB]),
        ("...i->i", [A], [5, 7, 9]),  # what the output lacks is summed, ellipsis included
        (",->", [2, 3], 6),
        ("->", [5], 5),
        (",i->i", [2, [1, 2]], [2, 4]),
        ("i,i", [[], []], 0),
        ("i,j,k->ijk", [[1, 2], [3], [4, 5]], [[[12, 15]], [[24, 30]]]),
    ],
)
def test_einsum(equation, inputs, expected):
    y = ops.einsum(*(np.asarray(x, np.float32) for x in inputs), equation=equation)
    helpers.assert_close(y, np.asarray(expected, np.float32))


@pytest.mark.parametrize(("opset", "dtype"), [(12, np.int32), (28, ml_dtypes.bfloat16)])
def test_einsum_versions(opset, dtype):
    inputs = [np.array(A, dtype), np.array(B, dtype)]
    (y,) = helpers.run_node("Einsum", inputs, opset=opset, equation="ij, jk")
    helpers.assert_close(y, np.array(AB, dtype))


@pytest.mark.parametrize("dtype", [*helpers.FLOATS, np.int8, np.uint8, np.int16, np.int64])
def test_einsum_dtypes(dtype):
    with jax.enable_x64(True):
        y = ops.einsum(np.array(A, dtype), np.array(B, dtype), equation="ij,jk->ik")
    helpers.assert_close(y, np.array(AB, dtype))


def test_einsum_refuses():
    x = np.ones((2, 2), np.float32)
    with pytest.raises(InvalidModelError, match="2 terms, but 1 inputs"):
        ops.einsum(x, equation="ij,jk")
    with pytest.raises(InvalidModelError, match="differ in rank"):
        ops.einsum(x, x[0], equation="...i,...i->...")
    with pytest.raises(InvalidModelError, match="differ in rank"):
        ops.einsum(x, equation="...ijk")


@pytest.mark.parametrize(
    ("opset", "dtype"),
    [(11, np.float16), (11, np.float64), (22, np.float32), (22, ml_dtypes.bfloat16)],
)
def test_det(opset, dtype):
    x = np.array([[[1, 2], [3, 4]], [[2, 0], [0, 3]]], dtype)
    (y,) = helpers.run_node("Det", [x], opset=opset)
    helpers.assert_close(y, np.array([-2, 6], dtype))


def test_det_of_other_sizes():
    four = np.diag(np.array([1, 2, 3, 4], np.float32))
    four[0, 3] = 7
    helpers.assert_close(ops.det(four), np.array(24, np.float32))
    helpers.assert_close(ops.det(np.ones((2, 0, 0), np.float32)), np.ones(2, np.float32))
    helpers.assert_close(ops.det(np.ones((0, 3, 3), np.float32)), np.ones(0, np.float32))
    with pytest.raises(InvalidModelError, match=r"\(2, 3\), expected square"):
        ops.det(np.ones((2, 3), np.float32))


def test_gradients():
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(2, 3)), rng.normal(size=(4, 3)), rng.normal(size=(2, 4))
    helpers.check_gradients(lambda a, b, c: ops.gemm(a, b, c, alpha=0.5, transB=1), a, b, c)
    helpers.check_gradients(ops.matmul, a, b.T)
    helpers.check_gradients(lambda a, b: ops.einsum(a, b, equation="...i,ji"), a, b)
    helpers.check_gradients(jax.jit(ops.det), rng.normal(size=(2, 3, 3)))
    helpers.check_gradients(jax.jit(ops.det), rng.normal(size=(4, 4)), order=1)


def test_det_derivative_of_singular_matrices():
    x = np.array([[1, 2], [2, 4]], np.float32)
    helpers.assert_close(jax.grad(ops.det)(x), np.array([[4, -2], [-2, 1]], np.float32))
    direction = np.eye(2, dtype=np.float32)
    helpers.assert_close(jax.jvp(ops.det, (x,), (direction,))[1], np.array(5, np.float32))


def test_batched_by_vmap():
    a, b = np.ones((5, 2, 3), np.float32), np.ones((3, 4), np.float32)
    assert jax.vmap(lambda a: ops.gemm(a, b))(a).shape == (5, 2, 4)
    assert jax.vmap(ops.matmul, in_axes=(0, None))(a, b).shape == (5, 2, 4)


def test_symbolic_shapes():
    n, m = export.symbolic_shape("n, m")

    def exported(function, *shapes):
        specs = [jax.ShapeDtypeStruct(s, np.float32) for s in shapes]
        return str(export.export(jax.jit(function))(*specs).out_avals[0].shape)

    assert exported(ops.gemm, (n, 3), (3, 4), (n, 4)) == "(n, 4)"
    assert exported(ops.matmul, (n, m, 3), (3, 4)) == "(n, m, 4)"
    assert exported(lambda x, y: ops.einsum(x, y, equation="bi,ki"), (n, 3), (m, 3)) == "(n, m)"
    assert exported(ops.det, (n, 3, 3)) == "(n,)"

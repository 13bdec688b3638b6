"""Gathering and scattering: values, borders, repeated indices, exact integers, derivatives."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest
from helpers import FLOATS, assert_close, check_gradients, reference, run_node
from helpers import node_model as make
from jax import export

import jaxonnx
from jaxonnx import ops
from jaxonnx.errors import InvalidModelError

DTYPES = [*FLOATS, np.int8, np.uint16, np.int64, np.uint64, np.bool_, np.complex64]


def ints(values: Any) -> np.ndarray:
    return np.array(values, np.int64)


def floats(values: Any, dtype: Any = np.float32) -> np.ndarray:
    return np.array(values, dtype)


ROWS = floats([[1.0, 1.2], [2.3, 3.4], [4.5, 5.7]])


@pytest.mark.parametrize("opset", [1, 11, 13])
@pytest.mark.parametrize(
    ("indices", "axis", "expected"),
    [
        ([[0, 1], [1, 2]], 0, [[[1.0, 1.2], [2.3, 3.4]], [[2.3, 3.4], [4.5, 5.7]]]),
        ([[0, 1]], 1, [[[1.0, 1.2]], [[2.3, 3.4]], [[4.5, 5.7]]]),
        ([-1, -3], 0, [[4.5, 5.7], [1.0, 1.2]]),
        (1, -1, [1.2, 3.4, 5.7]),
    ],
)
def test_gather(opset, indices, axis, expected):
    (y,) = run_node("Gather", [ROWS, ints(indices)], opset=opset, axis=axis)
    assert_close(y, floats(expected))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_dtypes(dtype):
    x = np.arange(6).reshape(3, 2).astype(dtype)
    assert_close(run_node("Gather", [x, np.array([2], np.int32)], opset=13)[0], x[2:])


def test_gather_of_nothing():
    assert_close(run_node("Gather", [ROWS, ints([])], opset=13)[0], np.zeros((0, 2), np.float32))
    empty = np.zeros((2, 0), np.float32)
    assert_close(run_node("Gather", [empty, ints([1])], opset=13)[0], empty[1:])


def test_gather_keeps_known_values_known():
    taken = ops.gather(ints([2, 3, 5]), ints([-1, 0]))
    assert isinstance(taken, np.ndarray)
    assert_close(taken, ints([5, 2]))
    (b,) = export.symbolic_shape("b")
    dims = np.array([b, 3], object)
    assert ops.gather(dims, ints(0)) is b
    assert list(ops.gather_elements(dims, ints([-1, 0]))) == [3, b]
    assert list(ops.gather_nd(dims, ints([[1], [0]]))) == [3, b]
    assert list(ops.scatter_elements(ints([7, 7]), ints([-1]), dims[:1])) == [7, b]
    assert list(ops.scatter_nd(dims, ints([[0]]), ints([4]), reduction="add")) == [b + 4, 3]


def test_gather_out_of_range():
    with pytest.raises(InvalidModelError, match=r"index 3, expected one in \[-3, 2\]"):
        ops.gather(ROWS, ints([0, 3]))
    with pytest.raises(InvalidModelError, match=r"index -4, expected one in \[-3, 2\]"):
        ops.gather_nd(ROWS, ints([[-4]]))


@pytest.mark.parametrize(
    ("data", "indices", "axis", "expected"),
    [
        ([[1, 2], [3, 4]], [[0, 0], [1, 0]], 1, [[1, 1], [4, 3]]),
        ([[1, 2, 3], [4, 5, 6], [7, 8, 9]], [[1, 2, 0], [2, 0, 0]], 0, [[4, 8, 3], [7, 2, 3]]),
        ([[1, 2, 3], [4, 5, 6], [7, 8, 9]], [[-1, -2, 0], [-2, 0, 0]], 0, [[7, 5, 3], [4, 2, 3]]),
        ([[1, 2], [3, 4]], [[-1]], -1, [[2]]),
    ],
)
@pytest.mark.parametrize("opset", [11, 13])
def test_gather_elements(data, indices, axis, expected, opset):
    (y,) = run_node("GatherElements", [ints(data), ints(indices)], opset=opset, axis=axis)
    assert_close(y, ints(expected))
    assert_close(ops.gather_elements(ints(data), ints(indices), axis=axis), ints(expected))


CUBE = [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


@pytest.mark.parametrize(
    ("data", "indices", "batch_dims", "expected"),
    [
        ([[0, 1], [2, 3]], [[0, 0], [1, 1]], 0, [0, 3]),
        ([[0, 1], [2, 3]], [[1], [0]], 0, [[2, 3], [0, 1]]),
        (CUBE, [[0, 1], [1, 0]], 0, [[2, 3], [4, 5]]),
        (CUBE, [[[0, 1]], [[1, 0]]], 0, [[[2, 3]], [[4, 5]]]),
        (CUBE, [[1], [0]], 1, [[2, 3], [4, 5]]),
        # A negative index counts from its own axis, not from the first ones.
        ([[[1, 2, 3]], [[4, 5, 6]]], [[[0, -1]], [[-1, -3]]], 1, [[3], [4]]),
        ([[[1, 2, 3]], [[4, 5, 6]]], [[[-1]], [[-2]]], 2, [[3], [5]]),
        ([5, 6], [-1], 0, 6),
    ],
)
def test_gather_nd(data, indices, batch_dims, expected):
    options = {"batch_dims": batch_dims} if batch_dims else {}
    for opset in (12, 13) if batch_dims else (11, 12, 13):
        (y,) = run_node("GatherND", [ints(data), ints(indices)], opset=opset, **options)
        assert_close(y, ints(expected))
    known = ops.gather_nd(ints(data), ints(indices), batch_dims=batch_dims)
    assert np.array_equal(known, expected)


def test_index_tuples_too_long():
    with pytest.raises(InvalidModelError, match="tuples of length 3, expected 1 to 2"):
        run_node("GatherND", [ROWS, ints([[0, 0, 0]])], opset=13)


@pytest.mark.parametrize(("op_type", "opset"), [("Scatter", 9), ("Scatter", 10)])
@pytest.mark.parametrize("modern", [False, True])
def test_scatter_elements(op_type, opset, modern):
    if modern:
        op_type, opset = "ScatterElements", opset + 4
    inputs = [np.zeros((3, 3), np.float32), ints([[1, 0, 2], [0, 2, 1]])]
    updates = floats([[1.0, 1.1, 1.2], [2.0, 2.1, 2.2]])
    (y,) = run_node(op_type, [*inputs, updates], opset=opset)
    assert_close(y, floats([[2.0, 1.1, 0.0], [1.0, 0.0, 2.2], [0.0, 2.1, 1.2]]))
    row = floats([[1.0, 2.0, 3.0, 4.0, 5.0]])
    inputs = [row, ints([[1, -2]]), floats([[1.1, 2.1]])]
    (y,) = run_node(op_type, inputs, opset=opset, axis=-1)
    assert_close(y, floats([[1.0, 1.1, 3.0, 2.1, 5.0]]))


REDUCTIONS = [
    ("add", [1, 2, 3], [0, 0, -1], [5, 6, 7], [12, 2, 10]),
    ("mul", [1, 2, 3], [0, 0, -1], [5, 6, 7], [30, 2, 21]),
    ("max", [1, 2, 3], [0, 0, 1], [5, 6, -7], [6, 2, 3]),
    ("min", [1, 2, 3], [0, 0, 1], [5, 6, -7], [1, -7, 3]),
    ("none", [1, 2, 3], [-3, 2], [5, 6], [5, 2, 6]),
]


@pytest.mark.parametrize(("reduction", "data", "indices", "updates", "expected"), REDUCTIONS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64, np.int32, np.int64])
def test_scatter_reductions(reduction, data, indices, updates, expected, dtype):
    opset = 18 if reduction in ("min", "max") else 16
    data, updates, expected = (np.array(v).astype(dtype) for v in (data, updates, expected))
    inputs = [data, ints(indices), updates]
    assert_close(run_node("ScatterElements", inputs, opset=opset, reduction=reduction)[0], expected)
    assert_close(ops.scatter_elements(*inputs, reduction=reduction), expected)
    inputs[1] = inputs[1][:, None]
    assert_close(run_node("ScatterND", inputs, opset=opset, reduction=reduction)[0], expected)


@pytest.mark.parametrize("opset", [11, 13, 16, 18])
def test_scatter_nd(opset):
    inputs = [ints([1, 2, 3, 4, 5, 6, 7, 8]), ints([[4], [3], [1], [7]]), ints([9, 10, 11, 12])]
    (y,) = run_node("ScatterND", inputs, opset=opset)
    assert_close(y, ints([1, 11, 3, 10, 9, 6, 7, 12]))
    inputs = [ints([[1, 2], [3, 4], [5, 6]]), ints([[-1], [0]]), ints([[7, 7], [8, 8]])]
    assert_close(run_node("ScatterND", inputs, opset=opset)[0], ints([[8, 8], [3, 4], [7, 7]]))
    inputs = [ints([[1, 2], [3, 4]]), ints([[1, -2]]), ints([9])]
    assert_close(run_node("ScatterND", inputs, opset=opset)[0], ints([[1, 2], [9, 4]]))


def test_scatter_drops_what_is_out_of_range():
    x, far = floats([1, 2, 3]), ints([3, -4, 2**40, 1])
    (y,) = run_node("ScatterElements", [x, far, floats([7, 7, 7, 9])], opset=18)
    assert_close(y, floats([1, 9, 3]))
    with pytest.raises(InvalidModelError, match=r"index -4, expected one in \[-3, 2\]"):
        ops.scatter_elements(x, far, floats([7, 7, 7, 9]))


def test_an_axis_that_does_not_exist():
    x, first = floats([[1, 2], [3, 4]]), ints([[0]])
    for call in (
        lambda: ops.gather(x, first, axis=2),
        lambda: ops.gather_elements(x, first, axis=2),
        lambda: ops.scatter_elements(x, first, floats([[5]]), axis=2),
        lambda: ops.tensor_scatter(x, x, axis=2),
    ):
        with pytest.raises(InvalidModelError, match=r"axis is 2, expected one in \[-2, 1\]"):
            call()


def test_unknown_reduction():
    with pytest.raises(InvalidModelError, match="reduction 'mean', expected none or one of"):
        ops.scatter_nd(ROWS, ints([[0]]), ROWS[:1], reduction="mean")


def test_large_integers_are_exact_in_every_mode():
    big = 2**53 + 1
    x = ints([[big, 1], [2, -big]])
    inputs = [x, ints([[-1], [0]])]
    model = jaxonnx.load(make("GatherND", inputs, opset=13))
    expected = ints([[2, -big], [big, 1]])
    assert_close(model(*inputs), expected)
    jitted = jax.jit(lambda i: model(x, i))(np.array([[-1], [0]], np.int32))
    assert_close(np.asarray(jitted), expected)
    inputs = [x, ints([[0, 0], [1, 1]]), ints([[1, 2], [3, 4]])]
    (y,) = run_node("ScatterElements", inputs, opset=18, reduction="add", axis=1)
    assert_close(y, ints([[big + 3, 1], [2, -big + 7]]))


def test_derivative_through_a_model_under_vmap_and_grad():
    x, indices = floats([[1, 2, 3], [4, 5, 6]]), ints([0, 0, -1])
    model = jaxonnx.load(make("Gather", [x, indices], opset=13, axis=1))
    total = lambda v: (model(v, indices) ** 2).sum()
    assert_close(np.asarray(jax.jit(jax.grad(total))(x)), floats([[4, 0, 6], [16, 0, 12]]))
    batched = jax.vmap(jax.grad(total))(np.stack([x, x]))
    assert_close(np.asarray(batched[1]), floats([[4, 0, 6], [16, 0, 12]]))


def test_gradients_of_gathering():
    @jax.jit
    def outputs(x):
        return [
            ops.gather(x * x, ints([[0, 1], [2, 1]])),
            ops.gather_nd(x * x, ints([[0], [1], [-1]]), batch_dims=1),
            ops.reverse_sequence(x * x, ints([3, 2])),
            ops.tensor_scatter(x[None] * 2, x[None, :2] ** 2, ints([2]), mode="circular"),
        ]

    check_gradients(outputs, np.array([[1.5, 2.0], [-3.0, 0.5], [1.0, -2.25]]))


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
def test_gradients_of_scattering(reduction):
    indices = ints([0, 1]) if reduction == "none" else ints([0, 0])

    @jax.jit
    def outputs(x, u):
        return ops.scatter_elements(x * x, indices, u * u, reduction=reduction)

    check_gradients(outputs, np.array([1.5, -2.0]), np.array([0.5, 3.0]))


@pytest.mark.parametrize(
    ("data", "updates", "dx", "du"),
    [
        (2.0, [3.0, 5.0], 15, [10, 6]),
        (2.0, [0.0, 5.0], 0, [10, 0]),
        (0.0, [3.0, 5.0], 15, [0, 0]),
        (0.0, [0.0, 5.0], 0, [0, 0]),
    ],
)
def test_derivative_of_a_product_with_zeros(data, updates, dx, du):
    def product(x, u):
        return ops.scatter_elements(x, ints([0, 0]), u, reduction="mul")

    primals = (floats([data]), floats(updates))
    _, pullback = jax.vjp(product, *primals)
    assert_close(pullback(jnp.ones(1))[0], floats([dx]))
    assert_close(pullback(jnp.ones(1))[1], floats(du))
    tangents = (floats([1.0]), floats([10.0, 100.0]))
    _, tangent = jax.jvp(product, primals, tangents)
    assert_close(tangent, floats([dx + 10 * du[0] + 100 * du[1]]))


@pytest.mark.parametrize("reduction", ["max", "min"])
def test_ties_share_the_derivative(reduction):
    def extreme(x, u):
        return ops.scatter_elements(x, ints([0, 0]), u, reduction=reduction)

    x, u = floats([2.0, 1.0]), floats([2.0, 2.0])
    _, pullback = jax.vjp(extreme, x, u)
    dx, du = pullback(floats([3.0, 1.0]))
    assert_close(dx, floats([1.0, 1.0]))
    assert_close(du, floats([1.0, 1.0]))
    _, tangent = jax.jvp(extreme, (x, u), (floats([3.0, 1.0]), floats([6.0, 0.0])))
    assert_close(tangent, floats([3.0, 1.0]))


def test_tensor_scatter_against_the_text():
    past = np.arange(24, dtype=np.float32).reshape(2, 1, 4, 3)
    update = -np.arange(12, dtype=np.float32).reshape(2, 1, 2, 3)
    starts = ints([1, 2])
    (y,) = run_node("TensorScatter", [past, update, starts], opset=24)
    expected = past.copy()
    expected[0, :, 1:3], expected[1, :, 2:4] = update[0], update[1]
    assert_close(y, expected)
    starts = ints([3, 6])
    (y,) = run_node("TensorScatter", [past, update, starts], opset=24, mode="circular")
    expected = past.copy()
    expected[0, :, [3, 0]], expected[1, :, [2, 3]] = update[0, 0, :, None], update[1, 0, :, None]
    assert_close(y, expected)
    model = make("TensorScatter", [past, update, starts], opset=24, mode="circular")
    assert_close(reference(model, past, update, starts)[0], expected)
    (y,) = run_node("TensorScatter", [past[:, 0], update[:, 0], None], opset=24, axis=1)
    assert_close(y, np.concatenate([update[:, 0], past[:, 0, 2:]], 1))
    with pytest.raises(InvalidModelError, match="mode 'ring', expected linear or circular"):
        ops.tensor_scatter(past, update, mode="ring")


SQUARE = np.arange(16, dtype=np.float32).reshape(4, 4)


@pytest.mark.parametrize("opset", [10, 28])
def test_reverse_sequence(opset):
    options: dict[str, Any] = {"opset": opset, "time_axis": 0, "batch_axis": 1}
    (y,) = run_node("ReverseSequence", [SQUARE.T.copy(), ints([4, 3, 2, 1])], **options)
    expected = [[3, 6, 9, 12], [2, 5, 8, 13], [1, 4, 10, 14], [0, 7, 11, 15]]
    assert_close(y, floats(expected))
    options = {"opset": opset, "time_axis": 1, "batch_axis": 0}
    (y,) = run_node("ReverseSequence", [SQUARE, ints([1, 2, 3, 4])], **options)
    expected = [[0, 1, 2, 3], [5, 4, 6, 7], [10, 9, 8, 11], [15, 14, 13, 12]]
    assert_close(y, floats(expected))
    (y,) = run_node("ReverseSequence", [SQUARE[:, :, None], ints([0, 2, 1, 4])], **options)
    expected = [[0, 1, 2, 3], [5, 4, 6, 7], [8, 9, 10, 11], [15, 14, 13, 12]]
    assert_close(y[:, :, 0], floats(expected))
    with pytest.raises(InvalidModelError, match="expected 0 and 1 or 1 and 0"):
        ops.reverse_sequence(SQUARE, ints([1, 1, 1, 1]), time_axis=1)


def test_symbolic_shapes():
    with jax.enable_x64(True):
        b, n, k = export.symbolic_shape("b, n, k")

        def run(function, *shapes):
            sizes: Any = {b: 3, n: 2, k: 2}
            values = [np.ones([sizes.get(d, d) for d in s], t) for s, t in shapes]
            specs = [jax.ShapeDtypeStruct(s, t) for s, t in shapes]
            exported = export.export(jax.jit(function))(*specs)
            assert_close(exported.call(*values), function(*values))

        data, index = ((b, n), np.float32), ((b, k), np.int64)
        run(ops.gather, data, ((k,), np.int64))
        run(lambda x, i: ops.gather_elements(x, i, axis=1), data, index)
        run(lambda x, i: ops.gather_nd(x, i, batch_dims=1), data, ((b, k, 1), np.int64))
        run(ops.scatter_nd, data, ((k, 1), np.int64), ((k, n), np.float32))
        rows = lambda x, i, u: ops.scatter_elements(x, i, u, axis=1, reduction="mul")
        run(rows, data, index, ((b, k), np.float32))
        run(ops.reverse_sequence, data, ((n,), np.int64))
        run(ops.tensor_scatter, ((b, n, 2), np.float32), ((b, 1, 2), np.float32), ((b,), np.int64))


def test_shape_arithmetic_with_a_negative_index_serves_any_batch():
    nodes = [
        onnx.helper.make_node("Shape", ["x"], ["s"]),
        onnx.helper.make_node("Gather", ["s", "first"], ["b"]),
        onnx.helper.make_node("ScatterElements", ["target", "last", "b"], ["shape"]),
        onnx.helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    stored = {"first": ints([0]), "last": ints([-1]), "target": ints([-1, 0])}
    graph = onnx.helper.make_graph(
        nodes,
        "any batch",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 2, 3])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(v, n) for n, v in stored.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 18)]
    model = jaxonnx.load(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10))
    for n in (1, 4):
        x = np.arange(6.0 * n, dtype=np.float32).reshape(n, 2, 3)
        assert_close(np.asarray(model(x)), x.reshape(-1, n))

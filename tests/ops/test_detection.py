"""NonZero, Compress, Unique and NonMaxSuppression, whose results are as many as values say."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers import FLOATS, assert_close, f32, i64, node_model, run_node
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxonnx
from jaxonnx import ops
from jaxonnx.errors import DataDependentShapeError, InvalidModelError

TYPES = [*FLOATS, np.int8, np.int64, np.uint8, np.bool_]


@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize("dtype", TYPES)
def test_non_zero(version, dtype):
    x = np.array([[1, 0], [1, 1]], dtype)
    if (version, dtype) != (9, ml_dtypes.bfloat16):
        assert_close(run_node("NonZero", [x], opset=version)[0], i64([[0, 1, 1], [0, 0, 1]]))
    assert_close(ops.non_zero(x[:0]), np.zeros((2, 0), np.int64))


def test_non_zero_of_a_scalar():
    """Rank 0 gives no rows; NumPy would give one."""
    assert_close(ops.non_zero(f32(2)), np.zeros((0, 1), np.int64))
    assert_close(ops.non_zero(f32(0)), np.zeros((0, 0), np.int64))
    assert_close(ops.non_zero(f32([np.nan, -0.0])), i64([[0]]))


X = f32([[1, 2], [3, 4], [5, 6]])


@pytest.mark.parametrize("version", [9, 11, 28])
@pytest.mark.parametrize(
    ("axis", "condition", "expected"),
    [
        (0, [False, True, True], X[1:]),
        (0, [False, True], X[1:2]),  # too short: the rest is left out
        (1, [False, True], X[:, 1:]),
        (None, [False, True, False, False, True], f32([2, 5])),
        (0, [False] * 3, X[:0]),
        (0, [], X[:0]),
    ],
)
def test_compress(version, axis, condition, expected):
    attributes = {} if axis is None else {"axis": axis}
    chosen = np.array(condition, bool)
    assert_close(run_node("Compress", [X, chosen], opset=version, **attributes)[0], expected)


def test_compress_negative_axis_and_types():
    for dtype in TYPES:
        y = ops.compress(X.astype(dtype), np.array([False, True]), axis=-1)
        assert_close(y, X[:, 1:].astype(dtype))
    y = run_node("Compress", [X.astype(ml_dtypes.bfloat16), np.array([True])], opset=28)[0]
    assert_close(y, np.array([1], ml_dtypes.bfloat16))


def test_compress_beyond_the_end():
    with pytest.raises(InvalidModelError, match="condition has length 4, expected at most 3"):
        ops.compress(X, np.array([True, False, False, True]), axis=0)
    with pytest.raises(InvalidModelError, match="condition has rank 2, expected 1"):
        ops.compress(X, np.array([[True]]), axis=0)


def test_compress_derivatives():
    chosen = np.array([True, False, True])

    def total(x):
        return (ops.compress(x, chosen, axis=0) ** 2).sum()

    assert_close(jax.grad(total)(jnp.asarray(X)), f32([[2, 4], [0, 0], [10, 12]]))
    tangent = jax.jvp(total, (jnp.asarray(X),), (jnp.ones_like(X),))[1]
    assert_close(tangent, f32(28))


UNIQUE = [
    (
        [2, 1, 1, 3, 4, 3],
        {"sorted": 0},
        [2, 1, 3, 4],
        [0, 1, 3, 4],
        [0, 1, 1, 2, 3, 2],
        [1, 2, 2, 1],
    ),
    ([[1, 3], [2, 3]], {}, [1, 2, 3], [0, 2, 1], [0, 2, 1, 2], [1, 1, 2]),
    (
        [[1, 0, 0], [1, 0, 0], [2, 3, 4]],
        {"axis": 0},
        [[1, 0, 0], [2, 3, 4]],
        [0, 2],
        [0, 0, 1],
        [2, 1],
    ),
    (
        [[[1, 1], [0, 1], [2, 1], [0, 1]]] * 2,
        {"axis": 1},
        [[[0, 1], [1, 1], [2, 1]]] * 2,
        [1, 0, 2],
        [1, 0, 2, 0],
        [2, 1, 1],
    ),
    ([[3, 1, 3]] * 2, {"axis": -1, "sorted": 0}, [[3, 1]] * 2, [0, 1], [0, 1, 0], [2, 1]),
    ([], {}, [], [], [], []),
    (5, {}, [5], [0], [0], [1]),
]


@pytest.mark.parametrize("version", [11, 28])
@pytest.mark.parametrize(("x", "attributes", "y", "first", "inverse", "counts"), UNIQUE)
def test_unique(version, x, attributes, y, first, inverse, counts):
    results = run_node("Unique", [f32(x)], opset=version, outputs=4, **attributes)
    assert_close(results[0], f32(y))
    for result, expected in zip(results[1:], (first, inverse, counts), strict=True):
        assert_close(result, i64(expected))
    assert_close(ops.unique(f32(x), **attributes), f32(y))


def test_unique_of_nothing():
    y, first, inverse, counts = ops.unique(np.zeros((2, 0), np.float32), axis=0, outputs=4)
    assert y.shape == (1, 0)
    assert [first.tolist(), inverse.tolist(), counts.tolist()] == [[0], [0, 0], [2]]
    y, _, inverse = ops.unique(np.zeros((0, 2), np.float32), axis=0, outputs=3)
    assert y.shape == (0, 2)
    assert_close(inverse, i64([]))


@pytest.mark.parametrize("dtype", TYPES)
def test_unique_types(dtype):
    y, first = ops.unique(np.array([1, 0, 1], dtype), outputs=2)
    assert_close(y, np.array([0, 1], dtype))
    assert_close(first, i64([1, 0]))


def test_unique_of_nan_and_zeros():
    y, first, _, counts = ops.unique(f32([np.nan, -0.0, np.nan, 0.0]), outputs=4)
    assert_close(y, f32([-0.0, np.nan]))
    assert_close(first, i64([1, 0]))
    assert_close(counts, i64([2, 2]))


def test_unique_derivative_goes_to_the_first():
    grads = jax.grad(lambda x: (ops.unique(x) * f32([10, 20])).sum())(f32([3, 1, 3]))
    assert_close(grads, f32([20, 10, 0]))


@pytest.mark.parametrize("x", [[2, 1, 1, 3], [5, 5], [7]])
@pytest.mark.parametrize("attributes", [{}, {"sorted": 0}])
def test_unique_under_a_bound(x, attributes):
    model = node_model("Unique", [f32(x)], opset=11, outputs=4, **attributes)
    bounded = jaxonnx.load(model, bounds={"y0": 3})
    plain = ops.unique(f32(x), outputs=4, **attributes)
    for a, b in zip(bounded(f32(x)), plain, strict=True):
        assert_close(a, b)
    padded = jax.jit(lambda v: bounded(v)[0])(f32(x))
    assert padded.size == 3
    if len(plain[0]) > 1:
        with pytest.raises(DataDependentShapeError, match=f"there are {len(plain[0])} results"):
            jaxonnx.load(model, bounds={"y0": 1})(f32(x))


BOXES = f32(
    [
        [
            [0, 0, 1, 1],
            [0, 0.1, 1, 1.1],
            [0, -0.1, 1, 0.9],
            [0, 10, 1, 11],
            [0, 10.1, 1, 11.1],
            [0, 100, 1, 101],
        ]
    ]
)
SCORES = f32([[[0.9, 0.75, 0.6, 0.95, 0.5, 0.3]]])


def suppress(*inputs, version=11, **attributes):
    return run_node("NonMaxSuppression", inputs, opset=version, **attributes)[0]


@pytest.mark.parametrize("version", [10, 11])
def test_suppression(version):
    y = suppress(BOXES, SCORES, i64([3]), f32([0.5]), f32([0]), version=version)
    assert_close(y, i64([[0, 0, 3], [0, 0, 0], [0, 0, 5]]))
    y = suppress(BOXES, SCORES, i64(2), f32(0.5), f32(0), version=version)  # scalars, too
    assert_close(y, i64([[0, 0, 3], [0, 0, 0]]))


def test_corners_in_any_order_and_centers():
    flipped = BOXES[..., [2, 1, 0, 3]]
    y = suppress(flipped, SCORES, i64([3]), f32([0.5]), f32([0.4]))
    assert_close(y, i64([[0, 0, 3], [0, 0, 0]]))
    centers = np.stack(
        [BOXES[..., 1] + 0.5, BOXES[..., 0] + 0.5, np.ones((1, 6), "f4"), np.ones((1, 6), "f4")], -1
    )
    y = suppress(centers, SCORES, i64([3]), f32([0.5]), center_point_box=1)
    assert_close(y, i64([[0, 0, 3], [0, 0, 0], [0, 0, 5]]))


def test_absent_inputs():
    """[onnx#6354] No boxes by default; ONNX's reference fails."""
    assert_close(suppress(BOXES, SCORES), np.zeros((0, 3), np.int64))
    # An overlap of 0 is allowed by default, so any overlap suppresses.
    y = suppress(BOXES, SCORES, i64([9]))
    assert_close(y, i64([[0, 0, 3], [0, 0, 0], [0, 0, 5]]))
    assert_close(suppress(BOXES, SCORES, None, f32([0.5])), np.zeros((0, 3), np.int64))


def test_no_boxes():
    """[tensorflow#117245]"""
    y = suppress(BOXES[:, :0], SCORES[:, :, :0], i64([3]))
    assert_close(y, np.zeros((0, 3), np.int64))
    assert_close(suppress(BOXES, SCORES, i64([3]), f32([0]), f32([2])), np.zeros((0, 3), np.int64))


def test_values_equal_to_a_threshold():
    """A score equal to its threshold is too low, an overlap equal to its own is allowed.

    The first is not what the text says, but what onnxruntime and ONNX's reference both do.
    """
    boxes = f32([[[0, 0, 1, 2], [0, 1, 1, 3], [0, 8, 1, 9]]])  # the first two overlap by 1/3
    scores = f32([[[0.5, 0.25, 0.125]]])
    third = np.float32(1) / np.float32(3)
    assert_close(suppress(boxes, scores, i64([3]), third, f32(0.125)), i64([[0, 0, 0], [0, 0, 1]]))
    below = np.nextafter(third, np.float32(0))
    assert_close(suppress(boxes, scores, i64([3]), below), i64([[0, 0, 0], [0, 0, 2]]))


def test_ties_go_to_the_first_box():
    boxes = f32([[[0, 0, 1, 1], [0, 5, 1, 6], [0, 0, 1, 1]]])
    y = suppress(boxes, f32([[[0.5, 0.5, 0.5]]]), i64([3]), f32([0.5]))
    assert_close(y, i64([[0, 0, 0], [0, 0, 1]]))


def test_batches_and_classes():
    boxes = np.concatenate([BOXES, BOXES + 1])
    scores = np.stack([np.concatenate([SCORES[0], SCORES[0, :, ::-1]])] * 2)
    y = suppress(boxes, scores, i64([1]), f32([0.5]))
    assert_close(y, i64([[0, 0, 3], [0, 1, 2], [1, 0, 3], [1, 1, 2]]))


def test_empty_boxes_suppress_nothing():
    boxes = f32([[[0, 0, 0, 0], [0, 0, 0, 0]]])
    assert len(suppress(boxes, f32([[[1, 2]]]), i64([2]))) == 2


def test_suppression_shapes():
    with pytest.raises(InvalidModelError, match=r"boxes \[1, 6, 4\] and scores \[1, 1, 5\]"):
        ops.non_max_suppression(BOXES, SCORES[..., :5])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**16), st.sampled_from([0.0, 0.3, 0.9]), st.integers(0, 4))
def test_bounded_suppression_is_the_same(seed, overlap, most):
    """The form for one program against the one for concrete values."""
    rng = np.random.default_rng(seed)
    boxes = rng.integers(0, 6, (2, 5, 4)).astype(np.float32)
    scores = rng.integers(0, 4, (2, 2, 5)).astype(np.float32)
    rest = (i64([most]), f32([overlap]), f32([1]))
    found = BOUNDED(boxes, scores, *rest)
    assert_close(found, ops.non_max_suppression(boxes, scores, *rest))


BOUNDED = jaxonnx.load(
    node_model(
        "NonMaxSuppression",
        [np.zeros((2, 5, 4), "f4"), np.zeros((2, 2, 5), "f4"), i64([0]), f32([0]), f32([0])],
        opset=11,
    ),
    bounds={"y0": 20},
)

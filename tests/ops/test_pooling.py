"""Pools against values worked out by hand, with their derivatives at ties and zeros."""

from typing import Any

import helpers
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import export

from jaxonnx import ops
from jaxonnx.errors import InvalidModelError


def line(*values, dtype: Any = np.float32):
    return np.array(values, dtype).reshape(1, 1, -1)


def f32(values):
    return np.array(values, np.float32)


X = line(1, 9, 2, 8, 3, 7, 4, 6, 5)


@pytest.mark.parametrize("opset", [1, 8, 10, 11, 12, 22])
def test_max_pool_versions(opset):
    (y,) = helpers.run_node("MaxPool", [X], opset=opset, kernel_shape=[3], strides=[2])
    helpers.assert_close(y, line(9, 8, 7, 6))


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"kernel_shape": [2]}, [9, 9, 8, 8, 7, 7, 6, 6]),
        ({"kernel_shape": [2], "pads": [1, 0]}, [1, 9, 9, 8, 8, 7, 7, 6, 6]),
        ({"kernel_shape": [2], "strides": [2]}, [9, 8, 7, 6]),
        ({"kernel_shape": [2], "strides": [2], "ceil_mode": 1}, [9, 8, 7, 6, 5]),
        # the last window would lie in the padding at the end alone
        ({"kernel_shape": [4], "strides": [4], "pads": [2, 2], "ceil_mode": 1}, [9, 8, 6]),
        ({"kernel_shape": [2], "auto_pad": "SAME_UPPER", "strides": [2]}, [9, 8, 7, 6, 5]),
        ({"kernel_shape": [2], "auto_pad": "SAME_LOWER", "strides": [2]}, [1, 9, 8, 7, 6]),
        ({"kernel_shape": [2], "auto_pad": "VALID", "strides": [2]}, [9, 8, 7, 6]),
        # the formula for VALID gives as many windows in both modes
        ({"kernel_shape": [2], "auto_pad": "VALID", "strides": [2], "ceil_mode": 1}, [9, 8, 7, 6]),
    ],
)
def test_max_pool_windows(attributes, expected):
    helpers.assert_close(ops.max_pool(X, **attributes), line(*expected))


def test_max_pool_even_kernel_same_lower():
    y = ops.max_pool(line(1, 2, 3), kernel_shape=[2], auto_pad="SAME_LOWER")
    helpers.assert_close(y, line(1, 2, 3))


@pytest.mark.parametrize("opset", [10, 11, 12, 22])
def test_max_pool_dilated_indices(opset):
    attributes = {"kernel_shape": [2], "dilations": [2], "pads": [1, 1]}
    y, indices = helpers.run_node("MaxPool", [X], opset=opset, outputs=2, **attributes)
    helpers.assert_close(y, line(9, 2, 9, 3, 8, 4, 7, 5, 6))
    helpers.assert_close(indices, line(1, 2, 1, 4, 3, 6, 5, 8, 7, dtype=np.int64))


@pytest.mark.parametrize(("storage_order", "expected"), [(0, [4, 5, 10, 11]), (1, [3, 5, 9, 11])])
def test_max_pool_storage_order(storage_order, expected):
    x = np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3)
    attributes = {"kernel_shape": [2, 2], "storage_order": storage_order}
    y, indices = helpers.run_node("MaxPool", [x], opset=8, outputs=2, **attributes)
    helpers.assert_close(y, f32([[[[4, 5]], [[10, 11]]]]))
    helpers.assert_close(indices, np.array(expected).reshape(1, 2, 1, 2))


def test_max_pool_first_of_ties():
    _, indices = ops.max_pool(line(0, 2, 2, 2), kernel_shape=[3], outputs=2)
    assert indices.tolist() == [[[1, 1]]]
    low = line(-np.inf, -np.inf)  # as low as padding, which is never chosen
    _, indices = ops.max_pool(low, kernel_shape=[2], pads=[1, 1], outputs=2)
    assert indices.tolist() == [[[0, 0, 1]]]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_max_pool_integers_pad_with_their_minimum(dtype):
    low = np.iinfo(dtype).min
    x = line(low, low + 1, low, dtype=dtype)
    options = {"kernel_shape": [2], "pads": [1, 1], "outputs": 2}
    y, indices = helpers.run_node("MaxPool", [x], opset=12, **options)
    helpers.assert_close(y, line(low, low + 1, low + 1, low, dtype=dtype))
    helpers.assert_close(indices, line(0, 1, 1, 2, dtype=np.int64))


@pytest.mark.parametrize("dtype", helpers.FLOATS)
def test_dtypes(dtype):
    x = line(3, 4, 0, dtype=dtype)
    for op_type, expected in (("MaxPool", 4), ("AveragePool", 3.5), ("LpPool", 5)):
        (y,) = helpers.run_node(op_type, [x], opset=22, kernel_shape=[2], strides=[2])
        helpers.assert_close(y, line(expected, dtype=dtype))
    for op_type, expected in (("Max", 4), ("Average", 7 / 3), ("Lp", 5)):
        (y,) = helpers.run_node(f"Global{op_type}Pool", [x], opset=22)
        helpers.assert_close(y, line(expected, dtype=dtype))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_summed_in_single(dtype):
    x = np.full((1, 1, 4096), 3, dtype)
    helpers.assert_close(ops.average_pool(x, kernel_shape=[4096]), line(3, dtype=dtype))
    helpers.assert_close(ops.global_average_pool(x), line(3, dtype=dtype))
    large = line(300, 400, dtype=dtype)  # the squares are above float16's range
    helpers.assert_close(ops.lp_pool(large, kernel_shape=[2]), line(500, dtype=dtype))
    helpers.assert_close(ops.global_lp_pool(large), line(500, dtype=dtype))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_ranks_and_empty_batch(rank):
    x, kernel = np.ones((2, 3, *[4] * rank), np.float32), {"kernel_shape": [2] * rank}
    for pool in (ops.max_pool, ops.average_pool):
        helpers.assert_close(pool(x, **kernel), np.ones((2, 3, *[3] * rank), np.float32))
        assert pool(x[:0], **kernel).shape == (0, 3, *[3] * rank)
    for pool in (ops.global_max_pool, ops.global_average_pool, ops.global_lp_pool):
        assert pool(x).shape == (2, 3, *[1] * rank)
        assert pool(x[:0]).shape == (0, 3, *[1] * rank)
    y, indices = ops.max_pool(x[:0], **kernel, outputs=2)
    assert y.shape == indices.shape == (0, 3, *[3] * rank)


def both_modes(f, x, dx, dy):
    """The tangent for ``dx`` and the cotangent for ``dy``."""
    with jax.enable_x64(True):
        x, dx, dy = (np.asarray(a, np.float64) for a in (x, dx, dy))
        f = jax.jit(f)
        return jax.jvp(f, (x,), (dx,))[1], jax.vjp(f, x)[1](dy)[0]


def test_max_pool_derivative_at_ties_is_the_first():
    f = lambda x: ops.max_pool(x, kernel_shape=[2], pads=[1, 0])
    tangent, cotangent = both_modes(f, line(1, 1, 1, 0), line(1, 2, 4, 8), line(1, 10, 100, 1000))
    helpers.assert_close(tangent, line(1, 1, 2, 4, dtype=np.float64))
    helpers.assert_close(cotangent, line(11, 100, 1000, 0, dtype=np.float64))
    x = line(1, 2, 2)
    tangent, cotangent = both_modes(ops.global_max_pool, x, line(1, 2, 4), line(1))
    helpers.assert_close(tangent, line(2, dtype=np.float64))
    helpers.assert_close(cotangent, line(0, 1, 0, dtype=np.float64))


WINDOWS = [
    {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1, 0, 0, 2], "dilations": [2, 1]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
]
POOLS = [ops.max_pool, ops.average_pool, ops.lp_pool]


@pytest.mark.parametrize("attributes", WINDOWS)
@pytest.mark.parametrize("pool", POOLS)
def test_derivatives(pool, attributes):
    x = np.random.default_rng(0).permutation(24).reshape(1, 1, 4, 6) / 10 - 1.15
    helpers.check_gradients(jax.jit(lambda x: pool(x, **attributes) ** 2), x)


@pytest.mark.parametrize("pool", POOLS)
def test_derivative_of_a_batch(pool):
    with jax.enable_x64(True):
        x = np.random.default_rng(0).standard_normal((3, 1, 1, 4, 6))
        gradient = jax.grad(lambda x: (pool(x, **WINDOWS[0]) ** 2).sum())
        together = jax.jit(jax.vmap(gradient))(x)
        helpers.assert_close(together[2], gradient(x[2]))


@pytest.mark.parametrize("opset", [1, 7, 10, 11, 19, 22])
def test_average_pool_versions(opset):
    attributes = {"kernel_shape": [3], "strides": [2], "pads": [1, 0]}
    (y,) = helpers.run_node("AveragePool", [line(1, 2, 3, 4)], opset=opset, **attributes)
    helpers.assert_close(y, line(1.5, 3))


@pytest.mark.parametrize(
    ("attributes", "expected", "with_pads"),
    [
        (
            {"kernel_shape": [2], "pads": [1, 1]},
            [1, 1.5, 2.5, 3.5, 4.5, 5],
            [0.5, 1.5, 2.5, 3.5, 4.5, 2.5],
        ),
        # what ceil_mode adds is never counted
        ({"kernel_shape": [2], "strides": [2], "ceil_mode": 1}, [1.5, 3.5, 5], [1.5, 3.5, 5]),
        (
            {"kernel_shape": [4], "strides": [2], "pads": [1, 1], "ceil_mode": 1},
            [2, 3.5, 4.5],
            [1.5, 3.5, 3],
        ),
        (
            {"kernel_shape": [2], "strides": [2], "pads": [1, 1], "dilations": [2]},
            [2, 3, 4],
            [1, 3, 2],
        ),
        (
            {"kernel_shape": [2], "strides": [2], "auto_pad": "SAME_UPPER"},
            [1.5, 3.5, 5],
            [1.5, 3.5, 2.5],
        ),
        (
            {"kernel_shape": [2], "strides": [2], "auto_pad": "SAME_LOWER"},
            [1, 2.5, 4.5],
            [0.5, 2.5, 4.5],
        ),
    ],
)
def test_average_pool_windows(attributes, expected, with_pads):
    x = line(1, 2, 3, 4, 5)
    helpers.assert_close(ops.average_pool(x, **attributes), line(*expected))
    y = ops.average_pool(x, **attributes, count_include_pad=1)
    helpers.assert_close(y, line(*with_pads))


def test_ceil_mode_drops_windows_that_start_in_the_padding():
    x = np.ones((1, 1, 9), np.float32)
    attributes = {"kernel_shape": [4], "strides": [4], "pads": [2, 2], "ceil_mode": 1}
    helpers.assert_close(ops.average_pool(x, **attributes), line(1, 1, 1))
    helpers.assert_close(ops.lp_pool(x, p=1, **attributes), line(2, 4, 3))
    attributes = {"kernel_shape": [2], "strides": [2], "pads": [0, 1], "ceil_mode": 1}
    assert ops.average_pool(np.ones((1, 1, 17), np.float32), **attributes).shape == (1, 1, 9)


def test_zeros_written_by_pad_are_data():
    padded = np.pad(np.ones((1, 1, 2, 2), np.float32), [(0, 0), (0, 0), (0, 1), (0, 1)])
    for opset in (20, 21):
        (y,) = helpers.run_node("AveragePool", [padded], opset=opset, kernel_shape=[2, 2])
        helpers.assert_close(y, f32([[[[1, 0.5], [0.5, 0.25]]]]))


@pytest.mark.parametrize("opset", [1, 2, 11, 18, 22])
def test_lp_pool_versions(opset):
    x, kernel = line(3, -4, 0), {"kernel_shape": [2]}
    helpers.assert_close(helpers.run_node("LpPool", [x], opset=opset, **kernel)[0], line(5, 4))
    p = 3.0 if opset == 1 else 3
    (y,) = helpers.run_node("LpPool", [x], opset=opset, p=p, **kernel)
    helpers.assert_close(y, line(91 ** (1 / 3), 4))
    (y,) = helpers.run_node("GlobalLpPool", [x], opset=opset, p=p)
    helpers.assert_close(y, line(91 ** (1 / 3)))


def test_lp_pool_of_opset_1_has_fractional_p_and_needs_a_kernel():
    (y,) = helpers.run_node("LpPool", [line(1, -4)], opset=1, kernel_shape=[2], p=0.5)
    helpers.assert_close(y, line(9))
    with pytest.raises(InvalidModelError, match="'kernel_shape' is absent"):
        helpers.run_node("LpPool", [X], opset=1)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pool_derivative_where_the_norm_is_0(p):
    x = line(0, 0, 2)
    f = lambda x: ops.lp_pool(x, kernel_shape=[2], p=p)
    tangent, cotangent = both_modes(f, x, line(1, 1, 1), line(1, 1))
    helpers.assert_close(tangent, line(0, 1, dtype=np.float64))
    helpers.assert_close(cotangent, line(0, 0, 1, dtype=np.float64))
    g = lambda x: ops.global_lp_pool(x, p=p)
    tangent, cotangent = both_modes(g, line(0, 0), line(1, 1), line(1))
    helpers.assert_close(tangent, line(0, dtype=np.float64))
    helpers.assert_close(cotangent, line(0, 0, dtype=np.float64))
    helpers.check_gradients(jax.jit(lambda x: g(x) * x.sum()), line(1, -2, 3))


@pytest.mark.parametrize("opset", [1, 22])
def test_global_pool_versions(opset):
    x = f32([[[[1, 2], [3, 6]], [[-1, -1], [-1, -5]]]])
    (y,) = helpers.run_node("GlobalMaxPool", [x], opset=opset)
    helpers.assert_close(y, f32([[[[6]], [[-1]]]]))
    (y,) = helpers.run_node("GlobalAveragePool", [x], opset=opset)
    helpers.assert_close(y, f32([[[[3]], [[-2]]]]))


def test_global_pool_without_spatial_dimensions():
    x = f32([[1, -2]])
    helpers.assert_close(ops.global_average_pool(x), x)
    helpers.assert_close(ops.global_max_pool(x), x)
    helpers.assert_close(ops.global_lp_pool(x), abs(x))


SQUARE: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}


@pytest.mark.parametrize("opset", [9, 11, 22])
def test_max_unpool(opset):
    x, i = f32([[[[1, 2], [3, 4]]]]), np.array([[[[5, 7], [13, 15]]]])
    y = np.zeros((1, 1, 16), np.float32)
    y[0, 0, i.ravel()] = x.ravel()
    (actual,) = helpers.run_node("MaxUnpool", [x, i], opset=opset, **SQUARE)
    helpers.assert_close(actual, y.reshape(1, 1, 4, 4))


@pytest.mark.parametrize(("size", "ceil_mode"), [(4, 0), (5, 0), (5, 1)])
def test_max_unpool_undoes_max_pool(size, ceil_mode):
    x = np.random.default_rng(0).permutation(2 * size * size) + 1
    x = x.reshape(1, 2, size, size).astype(np.float32)
    y, i = ops.max_pool(x, **SQUARE, ceil_mode=ceil_mode, outputs=2)
    i, shape = np.asarray(i).astype(np.int64), np.array(x.shape)
    (back,) = helpers.run_node("MaxUnpool", [y, i, shape], opset=11, **SQUARE)
    assert back.shape == x.shape
    helpers.assert_close(ops.max_pool(back, **SQUARE, ceil_mode=ceil_mode), y)
    assert np.all((back == x) | (back == 0))


def test_max_unpool_indices_of_the_implied_shape():
    x, i = f32([[[[5, 6], [7, 8]]]]), np.array([[[[5, 7], [13, 15]]]])  # ONNX's own example
    y = np.zeros((1, 1, 5, 5), np.float32)
    y[0, 0, 1:4:2, 1:4:2] = x
    helpers.assert_close(ops.max_unpool(x, i, np.array([1, 1, 5, 5]), **SQUARE), y)


def test_max_unpool_derivatives_and_errors():
    x, i = line(1, 2), line(1, 2, dtype=np.int32)
    f = lambda x: ops.max_unpool(x, i, kernel_shape=[2], strides=[2]) ** 2
    helpers.check_gradients(jax.jit(f), x)
    empty = ops.max_unpool(x[:0], i[:0], kernel_shape=[2])
    helpers.assert_close(empty, np.zeros((0, 1, 3), np.float32))
    with pytest.raises(InvalidModelError, match=r"I has shape \(1, 1, 1\), expected \(1, 1, 2\)"):
        ops.max_unpool(x, i[..., :1], kernel_shape=[2])
    with pytest.raises(InvalidModelError, match="output_shape has 1 elements, expected 3"):
        ops.max_unpool(x, i, np.array([4]), kernel_shape=[2])


@pytest.mark.parametrize("opset", [1, 22])
def test_max_roi_pool(opset):
    x = np.arange(32, dtype=np.float32).reshape(2, 1, 4, 4)
    rois = f32([[0, 0, 0, 3, 3], [1, 1, 1, 1, 1], [0, 9, 9, 9, 9], [1, 0, 0, 2, 2]])
    (y,) = helpers.run_node("MaxRoiPool", [x, rois], opset=opset, pooled_shape=[2, 2])
    expected = [[5, 7, 13, 15], [21] * 4, [0] * 4, [21, 22, 25, 26]]  # 3 rows as 0-1 and 1-2
    helpers.assert_close(y, f32(expected).reshape(4, 1, 2, 2))
    if opset == 1:  # onnxruntime has no kernel for version 22
        model = helpers.node_model("MaxRoiPool", [x, rois], opset=opset, pooled_shape=[2, 2])
        helpers.assert_close(y, helpers.onnxruntime(model, x, rois)[0])


def test_max_roi_pool_scale_and_derivative():
    x = f32([[[[1, 1], [0, 1]]]])
    rois = f32([[0, 0, 0, 2.9, 3]])  # 1.45 and 1.5 round to 1 and 2
    f = lambda x: ops.max_roi_pool(x, rois, pooled_shape=(1, 1), spatial_scale=0.5)
    helpers.assert_close(f(x), f32([[[[1]]]]))
    tangent, cotangent = both_modes(
        lambda x: ops.max_roi_pool(x, rois.astype(np.float64), pooled_shape=(1, 1)),
        x,
        f32([[[[1, 2], [3, 4]]]]),
        np.ones((1, 1, 1, 1)),
    )
    helpers.assert_close(tangent, np.ones((1, 1, 1, 1)))
    helpers.assert_close(cotangent, np.array([[[[1.0, 0], [0, 0]]]]))
    assert f(x).shape == (1, 1, 1, 1)
    empty = ops.max_roi_pool(x, rois[:0], pooled_shape=(2, 1))
    assert empty.shape == (0, 1, 2, 1)


def test_symbolic_sizes():
    def pools(x):
        same = {"kernel_shape": [3], "strides": [2], "auto_pad": "SAME_LOWER"}
        ceil = {"kernel_shape": [3], "strides": [2], "pads": [1, 1], "ceil_mode": 1}
        y, i = ops.max_pool(x, **same, outputs=2)
        gradient = jax.grad(lambda x: ops.max_pool(x, **ceil).sum())(x)
        means = ops.average_pool(x, **same), ops.average_pool(x, **ceil, count_include_pad=1)
        unpooled = ops.max_unpool(x, jnp.zeros(x.shape, np.int32), kernel_shape=[2])
        return y, i, gradient, *means, ops.global_max_pool(x), ops.lp_pool(x, **ceil), unpooled

    shape = export.symbolic_shape("b, 2, n", constraints=["n >= 4"])
    exported = export.export(jax.jit(pools))(jax.ShapeDtypeStruct(shape, np.float32))
    x = np.random.default_rng(0).standard_normal((2, 2, 5)).astype(np.float32)
    for actual, expected in zip(exported.call(x), pools(x), strict=True):
        helpers.assert_close(actual, expected)


@pytest.mark.parametrize("pool", POOLS)
def test_errors(pool):
    with pytest.raises(InvalidModelError, match=r"kernel_shape has 2 elements \(2, 2\), exp"):
        pool(X, kernel_shape=[2, 2])
    with pytest.raises(InvalidModelError, match=r"dilations has 2 elements \(1, 1\), expected 1"):
        pool(X, kernel_shape=[2], dilations=[1, 1])
    with pytest.raises(InvalidModelError, match="auto_pad is 'SAME'"):
        pool(X, kernel_shape=[2], auto_pad="SAME")

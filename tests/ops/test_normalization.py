"""Normalizations against values worked out by hand, at every version."""

from typing import Any

import helpers
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import export

import jaxonnx
from jaxonnx import ops
from jaxonnx.errors import InvalidModelError


def f32(values):
    return np.array(values, np.float32)


X = f32([[1, 2], [3, 6]])  # means 2 and 4, variances 1 and 4
SCALE, B, MEAN, VAR = f32([1, 2]), f32([0, 10]), f32([0, 2]), f32([1, 4])
INFERRED = f32([[1, 10], [3, 14]])
TRAINED = f32([[-1, 8], [1, 12]])
BATCH: dict[str, Any] = {"epsilon": 0.0, "momentum": 0.75}
STATISTICS = (f32([0.5, 2.5]), f32([1, 4]), f32([2, 4]), f32([1, 4]))  # running, then current


@pytest.mark.parametrize(
    ("opset", "attributes"),
    [(6, {"is_test": 1}), (6, {}), (7, {}), (7, {"spatial": 1}), (9, {}), (14, {}), (15, {})],
)
def test_batch_normalization_infers(opset, attributes):
    inputs = [X, SCALE, B, MEAN, VAR]
    options = {"opset": opset, "epsilon": 0.0, **attributes}
    (y,) = helpers.run_node("BatchNormalization", inputs, **options)
    helpers.assert_close(y, INFERRED)
    image = X.reshape(2, 2, 1, 1)
    (y,) = helpers.run_node("BatchNormalization", [image, *inputs[1:]], **options)
    helpers.assert_close(y, INFERRED.reshape(2, 2, 1, 1))


def test_batch_normalization_of_opset_1():
    inputs = [X, SCALE, B, MEAN, VAR]
    options = {"opset": 1, "epsilon": 0.0, "consumed_inputs": [0, 0, 0, 1, 1], "is_test": 1}
    helpers.assert_close(helpers.run_node("BatchNormalization", inputs, **options)[0], INFERRED)


@pytest.mark.parametrize("opset", [6, 7, 9])
def test_batch_normalization_trains_for_five_outputs(opset):
    y, *statistics = helpers.run_node(
        "BatchNormalization", [X, SCALE, B, MEAN, VAR], opset=opset, outputs=5, **BATCH
    )
    helpers.assert_close(y, TRAINED)
    for actual, expected in zip(statistics, STATISTICS, strict=True):
        helpers.assert_close(actual, expected)


@pytest.mark.parametrize("opset", [14, 15])
def test_batch_normalization_trains_in_training_mode(opset):
    inputs, options = [X, SCALE, B, MEAN, VAR], {"opset": opset, "training_mode": 1, **BATCH}
    y, mean, var = helpers.run_node("BatchNormalization", inputs, outputs=3, **options)
    helpers.assert_close(y, TRAINED)
    helpers.assert_close(mean, STATISTICS[0])
    helpers.assert_close(var, STATISTICS[1])
    helpers.assert_close(helpers.run_node("BatchNormalization", inputs, **options)[0], TRAINED)


def test_batch_normalization_has_population_variance():
    zeros, ones = f32([0, 0]), f32([1, 1])
    _, mean, var = ops.batch_normalization(X, ones, zeros, zeros, ones, training_mode=1, outputs=3)
    helpers.assert_close(mean, f32([0.2, 0.4]))
    helpers.assert_close(var, f32([1, 1.3]))


@pytest.mark.parametrize("opset", [6, 7])
def test_batch_normalization_per_activation(opset):
    x = X.reshape(2, 1, 2)
    inputs = [x, *(v.reshape(1, 2) for v in (SCALE, B, MEAN, VAR))]
    options = {"opset": opset, "spatial": 0, **BATCH}
    (y,) = helpers.run_node("BatchNormalization", inputs, **options)
    helpers.assert_close(y, INFERRED.reshape(x.shape))
    y, *statistics = helpers.run_node("BatchNormalization", inputs, outputs=5, **options)
    helpers.assert_close(y, TRAINED.reshape(x.shape))
    for actual, expected in zip(statistics, STATISTICS, strict=True):
        helpers.assert_close(actual, expected.reshape(1, 2))


def test_batch_normalization_of_one_dimension_has_one_channel():
    one = f32([1])
    y = ops.batch_normalization(f32([1, 3]), one, 0 * one, 0 * one, one, epsilon=0, training_mode=1)
    helpers.assert_close(y, f32([-1, 1]))


def test_batch_normalization_of_mixed_types():
    x, (scale, b) = X.astype(np.float16), (v.astype(ml_dtypes.bfloat16) for v in (SCALE, B))
    y, mean, var = helpers.run_node(
        "BatchNormalization",
        [x, scale, b, MEAN, VAR],
        opset=15,
        outputs=3,
        training_mode=1,
        **BATCH,
    )
    helpers.assert_close(y, TRAINED.astype(np.float16))
    helpers.assert_close(mean, STATISTICS[0])
    helpers.assert_close(var, STATISTICS[1])


def test_batch_normalization_of_half_precision_does_not_overflow():
    x = np.array([[512], [-512]], np.float16)
    one, zero = np.ones(1, np.float16), np.zeros(1, np.float16)
    y = ops.batch_normalization(x, one, zero, zero, one, training_mode=1)
    helpers.assert_close(y, np.array([[1], [-1]], np.float16))


def test_batch_normalization_errors():
    with pytest.raises(InvalidModelError, match=r"B has shape \(1,\), expected \(2,\)"):
        ops.batch_normalization(X, SCALE, B[:1], MEAN, VAR)
    inputs = [X, SCALE, B, MEAN, VAR]
    with pytest.raises(InvalidModelError, match="3 outputs, expected 1 without training_mode"):
        helpers.run_node("BatchNormalization", inputs, opset=15, outputs=3)
    with pytest.raises(InvalidModelError, match="5 outputs, expected 1 with is_test"):
        helpers.run_node("BatchNormalization", inputs, opset=6, outputs=5, is_test=1)


@pytest.mark.parametrize("opset", [1, 6, 22])
def test_instance_normalization(opset):
    x = f32([[[1, 3], [2, 6]], [[0, 4], [5, 7]]])
    (y,) = helpers.run_node("InstanceNormalization", [x, SCALE, B], opset=opset, epsilon=0.0)
    helpers.assert_close(y, f32([[[-1, 1], [8, 12]]] * 2))


def test_instance_normalization_errors():
    with pytest.raises(InvalidModelError, match=r"scale has shape \(1,\), expected \(2,\)"):
        ops.instance_normalization(X[..., None], SCALE[:1], B)


GROUPED = f32([[[1], [3], [2], [6]]])  # C = 4, G = 2


@pytest.mark.parametrize("opset", [18, 20])
def test_group_normalization_18_has_a_scale_per_group(opset):
    options = {"opset": opset, "num_groups": 2, "epsilon": 0.0}
    (y,) = helpers.run_node("GroupNormalization", [GROUPED, SCALE, B], **options)
    helpers.assert_close(y, f32([[[-1], [1], [8], [12]]]))


def test_group_normalization_has_a_scale_per_channel():
    scale, b = f32([1, 2, 3, 4]), f32([0, 0, 10, 20])
    options = {"opset": 21, "num_groups": 2, "epsilon": 0.0}
    (y,) = helpers.run_node("GroupNormalization", [GROUPED, scale, b], **options)
    helpers.assert_close(y, f32([[[-1], [2], [7], [24]]]))
    each = ops.group_normalization(GROUPED, scale, b, num_groups=4, epsilon=1)
    helpers.assert_close(each, b.reshape(1, 4, 1))  # one element is its own mean


def test_group_normalization_errors():
    with pytest.raises(InvalidModelError, match="X has 4 channels, expected a multiple of num_gr"):
        ops.group_normalization(GROUPED, f32([1] * 4), f32([0] * 4), num_groups=3)
    with pytest.raises(InvalidModelError, match=r"scale has shape \(2,\), expected \(4,\)"):
        ops.group_normalization(GROUPED, SCALE, B, num_groups=2)
    fours = [GROUPED, f32([1] * 4), f32([1] * 4)]
    with pytest.raises(InvalidModelError, match=r"scale has shape \(4,\), expected \(2,\)"):
        helpers.run_node("GroupNormalization", fours, opset=18, num_groups=2)


@pytest.mark.parametrize("axis", [1, -1])
def test_layer_normalization(axis):
    x = f32([[1, 3], [2, 6]])
    options = {"opset": 17, "axis": axis, "epsilon": 0.0}
    y, mean, inverse = helpers.run_node("LayerNormalization", [x, SCALE, B], outputs=3, **options)
    helpers.assert_close(y, f32([[-1, 12], [-1, 12]]))
    helpers.assert_close(mean, f32([[2], [4]]))
    helpers.assert_close(inverse, f32([[1], [0.5]]))
    (y,) = helpers.run_node("LayerNormalization", [x, SCALE], **options)
    helpers.assert_close(y, f32([[-1, 2], [-1, 2]]))


def test_layer_normalization_of_several_axes():
    x = f32([[[1, 3], [3, 1]], [[0, 0], [4, 4]]])
    y, mean, _ = ops.layer_normalization(x, f32(1), axis=-2, epsilon=0, outputs=3)
    helpers.assert_close(y, f32([[[-1, 1], [1, -1]], [[-1, -1], [1, 1]]]))
    assert mean.shape == (2, 1, 1)


def test_layer_normalization_of_half_precision_does_not_overflow():
    half = np.array([256, -256], np.float16)
    (y,) = helpers.run_node("LayerNormalization", [half, half**0], opset=17, epsilon=0.0)
    helpers.assert_close(y, np.array([1, -1], np.float16))


def test_layer_normalization_statistics_have_the_stash_type():
    double = X.astype(np.float64) * (1 + 1e-12)
    with jax.enable_x64(True):
        y, mean, inverse = ops.layer_normalization(double, double[0] ** 0, epsilon=0, outputs=3)
        helpers.assert_close(y, np.array([[-1.0, 1], [-1, 1]]))  # never less than X's precision
        helpers.assert_close(mean, f32([[1.5], [4.5]]))
        assert inverse.dtype == np.float32
        _, mean = ops.layer_normalization(X, X[0], stash_type=16, outputs=2)
    assert mean.dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("version", [("LayerNormalization", 17), ("GroupNormalization", 21)])
def test_statistics_in_double_of_single_precision(version):
    """In single precision 1e8 + 1 is 1e8, and the mean 0.25."""
    x, one = f32([[1e8, 1, -1e8, 1]]), f32([1, 1, 1, 1])
    op_type, opset = version
    groups = {"num_groups": 1} if op_type == "GroupNormalization" else {}
    inputs, options = [x, one, 0 * one], {"opset": opset, "stash_type": 11, **groups}
    y = helpers.run_node(op_type, inputs, **options)[0]
    wide = x.astype(np.float64)
    expected = (wide - 0.5) / np.sqrt(wide.var() + 1e-5)
    helpers.assert_close(y, expected.astype(np.float32), scale=1e-2)
    if op_type == "LayerNormalization":
        mean = helpers.run_node(op_type, inputs, outputs=2, **options)[1]
        helpers.assert_close(mean, np.array([[0.5]]))


def test_rms_normalization():
    x = f32([[1, 7], [0, 0]])  # root mean square 5
    options = {"opset": 23, "axis": -1, "epsilon": 0.0}
    (y,) = helpers.run_node("RMSNormalization", [x[:1], SCALE], **options)
    helpers.assert_close(y, f32([[0.2, 2.8]]))
    (y,) = helpers.run_node("RMSNormalization", [x, SCALE], opset=23)
    assert np.all(y[1] == 0)
    half = np.array([256, -256], np.float16)
    (y,) = helpers.run_node("RMSNormalization", [half, half**0], **options)
    helpers.assert_close(y, np.array([1, -1], np.float16))
    (y,) = helpers.run_node("RMSNormalization", [half, f32([1, 1])], **options)
    helpers.assert_close(y, f32([1, -1]))  # the type of scale


@pytest.mark.parametrize("normalize", [ops.layer_normalization, ops.rms_normalization])
def test_axis_and_stash_type_errors(normalize):
    with pytest.raises(InvalidModelError, match=r"axis is 2, expected one in \[-2, 1\]"):
        normalize(X, SCALE, axis=2)
    with pytest.raises(InvalidModelError, match="stash_type is 7, expected a floating-point type"):
        normalize(X, SCALE, stash_type=7)
    with pytest.raises(ValueError, match="broadcast"):
        normalize(X[:1], np.ones((3, 2), np.float32))  # may not enlarge X


@pytest.mark.parametrize("opset", [1, 13])
@pytest.mark.parametrize(("size", "sums"), [(3, [5, 14, 13]), (2, [5, 13, 9]), (4, [14, 14, 13])])
def test_lrn_window_is_over_channels(opset, size, sums):
    x = f32([[[1], [2], [3]]] * 2)
    options = {"size": size, "alpha": float(size), "beta": 0.5, "bias": 2.0}
    (y,) = helpers.run_node("LRN", [x], opset=opset, **options)
    helpers.assert_close(y, x / np.sqrt(2 + f32(sums)).reshape(3, 1))


@pytest.mark.parametrize("opset", [1, 22])
def test_lp_normalization(opset):
    x = f32([[1, -2, 3], [0, 0, 0]])
    (y,) = helpers.run_node("LpNormalization", [x], opset=opset, p=1)
    helpers.assert_close(y, f32([[1 / 6, -1 / 3, 1 / 2], [0, 0, 0]]))
    (y,) = helpers.run_node("LpNormalization", [f32([[3, 0], [-4, 0]])], opset=opset, axis=0)
    helpers.assert_close(y, f32([[0.6, 0], [-0.8, 0]]))


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization_derivative_of_a_zero_row_is_0(p):
    zeros, ones = jnp.zeros((1, 2)), jnp.ones((1, 2))
    f = lambda x: ops.lp_normalization(x, p=p)
    helpers.assert_close(jax.jvp(f, (zeros,), (ones,))[1], zeros)
    helpers.assert_close(jax.vjp(f, zeros)[1](ones)[0], zeros)


def test_lp_normalization_errors():
    with pytest.raises(InvalidModelError, match="p is 3, expected 1 or 2"):
        ops.lp_normalization(X, p=3)


@pytest.mark.parametrize("opset", [9, 13])
def test_mean_variance_normalization(opset):
    x = f32([[[[1, 3]], [[2, 2]]]])
    (y,) = helpers.run_node("MeanVarianceNormalization", [x], opset=opset)
    helpers.assert_close(y, f32([[[[-1, 1]], [[0, 0]]]]))
    (y,) = helpers.run_node("MeanVarianceNormalization", [X], opset=opset, axes=[-1])
    helpers.assert_close(y, f32([[-1, 1], [-1, 1]]))


def test_mean_variance_normalization_derivative_where_all_are_equal():
    f = lambda x: 1e-9 * ops.mean_variance_normalization(x, axes=(0,))
    ones, tangent = jnp.ones(2), jnp.array([1.0, 0])
    helpers.assert_close(jax.jvp(f, (ones,), (tangent,))[1], f32([0.5, -0.5]))
    helpers.assert_close(jax.vjp(f, ones)[1](tangent)[0], f32([0.5, -0.5]))


def _with_parameters(normalize, count, **attributes):
    return lambda x: normalize(
        x, *(np.arange(1, 3).astype(x.dtype) for _ in range(count)), **attributes
    )


ALL = {
    "batch": _with_parameters(ops.batch_normalization, 4, training_mode=1),
    "instance": _with_parameters(ops.instance_normalization, 2),
    "group": _with_parameters(ops.group_normalization, 2, num_groups=1),
    "layer": lambda x: ops.layer_normalization(x, x[:1, :1] ** 2, axis=1),
    "rms": lambda x: ops.rms_normalization(x, x[:1, :1] ** 2, axis=1),
    "lrn": lambda x: ops.lrn(x, size=2),
    "lp 1": lambda x: ops.lp_normalization(x, p=1),
    "lp 2": ops.lp_normalization,
    "mean variance": lambda x: ops.mean_variance_normalization(x, axes=(0, 2)),
}


@pytest.mark.parametrize("name", ALL)
def test_derivatives(name):
    x = np.random.default_rng(0).permutation(12).reshape(2, 2, 3) - 5.5
    helpers.check_gradients(jax.jit(ALL[name]), x)


@pytest.mark.parametrize("name", ALL)
def test_dtypes_and_empty_batch(name):
    x = np.random.default_rng(0).permutation(12).reshape(2, 2, 3) - 5.5
    with jax.enable_x64(True):
        expected = ALL[name](x)
        for dtype in helpers.FLOATS:
            helpers.assert_close(ALL[name](x.astype(dtype)), expected.astype(dtype), scale=4)
    if name not in ("batch", "layer", "rms", "mean variance"):
        assert ALL[name](f32(x)[:0]).shape == (0, 2, 3)


def test_layer_normalization_of_an_empty_batch():
    assert ops.layer_normalization(X[:0], SCALE).shape == (0, 2)
    assert ops.rms_normalization(X[:0], SCALE).shape == (0, 2)
    assert ops.batch_normalization(X[:0], SCALE, B, MEAN, VAR).shape == (0, 2)


def test_symbolic_sizes():
    f = lambda x: [normalize(x) for normalize in ALL.values()]
    shape = export.symbolic_shape("b, 2, n", constraints=["b >= 1", "n >= 1"])
    exported = export.export(jax.jit(f))(jax.ShapeDtypeStruct(shape, np.float32))
    x = np.random.default_rng(0).standard_normal((2, 2, 3)).astype(np.float32)
    for actual, expected in zip(exported.call(x), f(x), strict=True):
        helpers.assert_close(actual, expected, scale=4)


def test_errors_name_the_node():
    model = helpers.node_model("LpNormalization", [X], opset=22, p=3)
    with pytest.raises(InvalidModelError) as caught:
        jaxonnx.load(model)(X)
    assert "LpNormalization-22" in str(caught.value.__notes__)

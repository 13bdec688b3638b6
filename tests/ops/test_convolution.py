"""Convolutions against values worked out by hand, and against each other's transposes."""

import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

import jaxonnx
from jaxonnx import ops
from jaxonnx.errors import InvalidModelError


def f32(values):
    return np.array(values, np.float32)


def line(*values, dtype=np.float32):
    return np.array(values, dtype).reshape(1, 1, -1)


X, W = line(1, 2, 3), line(1, 10)


@pytest.mark.parametrize("opset", [1, 11, 22])
def test_conv_versions(opset):
    (y,) = helpers.run_node("Conv", [X, W, f32([5])], opset=opset, pads=[1, 2])
    helpers.assert_close(y, line(15, 26, 37, 8, 5))


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, [21, 32]),
        ({"pads": [1, 0]}, [10, 21, 32]),
        ({"strides": [2], "pads": [0, 1]}, [21, 3]),
        ({"dilations": [2]}, [31]),
        ({"auto_pad": "VALID"}, [21, 32]),
        ({"auto_pad": "SAME_UPPER"}, [21, 32, 3]),
        ({"auto_pad": "SAME_LOWER"}, [10, 21, 32]),
        ({"auto_pad": "SAME_UPPER", "strides": [2]}, [21, 3]),
        ({"auto_pad": "SAME_LOWER", "strides": [2]}, [10, 32]),
        ({"auto_pad": "SAME_UPPER", "dilations": [2]}, [20, 31, 2]),
        ({"kernel_shape": [2]}, [21, 32]),
    ],
)
def test_conv_windows(attributes, expected):
    helpers.assert_close(ops.conv(X, W, **attributes), line(*expected))


def test_conv_groups():
    x = f32([[[1, 2], [3, 4]]])
    w = f32([[[2]], [[10]]])
    helpers.assert_close(ops.conv(x, w, group=2), f32([[[2, 4], [30, 40]]]))
    y = ops.conv(x, w, f32([1, 2]), group=2)
    helpers.assert_close(y, f32([[[3, 5], [32, 42]]]))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_conv_ranks(rank):
    x, w = np.ones((1, 1, *[3] * rank), np.float32), np.ones((1, 1, *[2] * rank), np.float32)
    helpers.assert_close(ops.conv(x, w), np.full((1, 1, *[2] * rank), 2**rank, np.float32))
    y = ops.conv_transpose(x, w)
    assert y.shape == (1, 1, *[4] * rank)
    assert y[0, 0][(1,) * rank] == 2**rank


@pytest.mark.parametrize("dtype", helpers.FLOATS)
def test_conv_dtypes(dtype):
    (y,) = helpers.run_node("Conv", [X.astype(dtype), W.astype(dtype)], opset=22)
    helpers.assert_close(y, line(21, 32, dtype=dtype))
    (y,) = helpers.run_node("ConvTranspose", [X.astype(dtype), W.astype(dtype)], opset=22)
    helpers.assert_close(y, line(1, 12, 23, 30, dtype=dtype))


def test_conv_empty_batch():
    assert ops.conv(np.zeros((0, 1, 3), np.float32), W).shape == (0, 1, 2)
    assert ops.conv_transpose(np.zeros((0, 1, 3), np.float32), W).shape == (0, 1, 4)


@pytest.mark.parametrize(
    ("x", "w", "attributes", "message"),
    [
        (X, np.ones((1, 2, 2), np.float32), {}, r"X has 1 channels, expected 2 for W \(1, 2, 2\)"),
        (X, np.ones((3, 1, 2, 2), np.float32), {}, "W has rank 4, expected 3"),
        (X, W, {"kernel_shape": [3]}, r"kernel_shape is \(3,\), expected \(2,\)"),
        (X, W, {"strides": [1, 1]}, r"strides has 2 elements \(1, 1\), expected 1"),
        (X, W, {"pads": [1]}, r"pads has 1 elements \(1,\), expected 2"),
        (X, W, {"auto_pad": "SAME"}, "auto_pad is 'SAME', expected NOTSET, SAME_UPPER"),
        (
            np.ones((1, 2, 3), np.float32),
            W,
            {"group": 2},
            "W gives 1 channels, expected a multiple",
        ),
    ],
)
def test_conv_errors(x, w, attributes, message):
    with pytest.raises(InvalidModelError, match=message):
        ops.conv(x, w, **attributes)


def test_conv_wrong_bias():
    with pytest.raises(InvalidModelError, match=r"B has shape \(2,\), expected \(1,\)"):
        ops.conv(X, W, f32([1, 2]))


def test_conv_errors_name_the_node():
    model = helpers.node_model("Conv", [X, np.ones((1, 2, 2), np.float32)], opset=22)
    with pytest.raises(InvalidModelError) as caught:
        jaxonnx.load(model)(X, np.ones((1, 2, 2), np.float32))
    assert "Conv-22" in str(caught.value.__notes__)


X2, W3 = line(1, 2), line(1, 10, 100)


@pytest.mark.parametrize("opset", [1, 11, 22])
@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"strides": [2]}, [1, 10, 102, 20, 200]),
        ({"strides": [2], "output_shape": [4]}, [10, 102, 20, 200]),
        ({"strides": [2], "output_shape": [4], "auto_pad": "SAME_UPPER"}, [1, 10, 102, 20]),
        ({"strides": [2], "output_shape": [4], "auto_pad": "SAME_LOWER"}, [10, 102, 20, 200]),
    ],
)
def test_conv_transpose_versions(opset, attributes, expected):
    (y,) = helpers.run_node("ConvTranspose", [X2, W3], opset=opset, **attributes)
    helpers.assert_close(y, line(*expected))


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"strides": [2], "pads": [1, 1]}, [10, 102, 20]),
        ({"strides": [2], "pads": [1, 0]}, [10, 102, 20, 200]),
        ({"strides": [2], "output_padding": [1]}, [1, 10, 102, 20, 200, 0]),
        ({"strides": [2], "output_shape": [7]}, [1, 10, 102, 20, 200, 0, 0]),
        ({"strides": [2], "output_shape": [1, 1, 4]}, [10, 102, 20, 200]),
        # output_padding does not add to output_shape, but to what is cropped
        ({"strides": [2], "output_shape": [5], "output_padding": [1]}, [10, 102, 20, 200, 0]),
        ({"dilations": [2]}, [1, 2, 10, 20, 100, 200]),
        ({"auto_pad": "VALID"}, [1, 12, 120, 200]),
        ({"auto_pad": "SAME_UPPER"}, [12, 120]),
    ],
)
def test_conv_transpose_windows(attributes, expected):
    helpers.assert_close(ops.conv_transpose(X2, W3, **attributes), line(*expected))


def test_conv_transpose_same_is_input_times_stride():
    ones = np.ones((1, 1, 2, 2), np.float32)
    y = ops.conv_transpose(ones, np.ones((1, 1, 3, 3), np.float32), auto_pad="SAME_UPPER")
    helpers.assert_close(y, 4 * ones)
    y = ops.conv_transpose(line(1, 1, 1), line(1, 2, 3), strides=[2], auto_pad="SAME_UPPER")
    helpers.assert_close(y, line(1, 2, 4, 2, 4, 2))
    y = ops.conv_transpose(line(1, 2), line(5), strides=[2], auto_pad="SAME_LOWER")
    helpers.assert_close(y, line(5, 0, 10, 0))


def test_conv_transpose_groups():
    x, w = f32([[[1], [2]]]), f32([[[1], [3]], [[5], [7]]])
    y = ops.conv_transpose(x, w, f32([0, 10, 20, 30]), group=2)
    helpers.assert_close(y, f32([[[1], [13], [30], [44]]]))


def test_conv_transpose_is_the_transpose_of_conv():
    rng = np.random.default_rng(0)
    w = rng.standard_normal((4, 3, 2, 3)).astype(np.float32)
    attributes = {"strides": [2, 1], "pads": [1, 0, 0, 2], "dilations": [1, 2], "group": 2}
    y, pull = jax.vjp(lambda x: ops.conv(x, w, **attributes), jnp.zeros((2, 6, 5, 7)))
    cotangent = rng.standard_normal(y.shape).astype(np.float32)
    x = ops.conv_transpose(cotangent, w, **attributes)
    helpers.assert_close(x, pull(cotangent)[0])


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"group": 2}, "X has 1 channels, expected a multiple of group=2"),
        ({"output_padding": [1, 1]}, r"output_padding has 2 elements \(1, 1\), expected 1"),
        ({"output_shape": [1, 1]}, r"output_shape has 2 elements \(1, 1\), expected 1"),
    ],
)
def test_conv_transpose_errors(attributes, message):
    with pytest.raises(InvalidModelError, match=message):
        ops.conv_transpose(X2, W3, **attributes)
    with pytest.raises(InvalidModelError, match="X has 1 channels, expected 2"):
        ops.conv_transpose(X2, np.ones((2, 1, 3), np.float32))


def test_derivatives():
    rng = np.random.default_rng(1)
    x, w, b = (rng.standard_normal(s) for s in ((1, 2, 4), (4, 1, 2), (4,)))
    helpers.check_gradients(
        jax.jit(lambda x, w, b: ops.conv(x, w, b, group=2, strides=[2], pads=[1, 0])), x, w, b
    )
    w = rng.standard_normal((2, 2, 2))
    helpers.check_gradients(
        jax.jit(lambda x, w, b: ops.conv_transpose(x, w, b, group=2, strides=[2])), x, w, b
    )


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_symbolic_sizes(auto_pad):
    def both(x):
        y = ops.conv(x, W3, auto_pad=auto_pad, strides=[2])
        return y, ops.conv_transpose(x, W3, auto_pad=auto_pad, strides=[2])

    shape = export.symbolic_shape("b, 1, n", constraints=["n >= 4"])
    exported = export.export(jax.jit(both))(jax.ShapeDtypeStruct(shape, np.float32))
    for x in (np.ones((2, 1, 5), np.float32), np.ones((1, 1, 6), np.float32)):
        for actual, expected in zip(exported.call(x), both(x), strict=True):
            helpers.assert_close(actual, expected)


def test_conv_transpose_symbolic_with_output_shape():
    def f(x):
        return ops.conv_transpose(x, W3, strides=[2], output_shape=[6])

    shape = export.symbolic_shape("b, 1, n")
    exported = export.export(jax.jit(f))(jax.ShapeDtypeStruct(shape, np.float32))
    helpers.assert_close(exported.call(X), f(X))


@pytest.mark.parametrize("activation", ["none", "silu", "swish"])
def test_causal_conv_with_state(activation):
    options = {"opset": 27, "outputs": 2, "activation": activation}
    expected = line(1, 12, 123, 230)  # the last weight meets the present
    if activation != "none":
        expected = expected / (1 + np.exp(-expected))
    whole = line(1, 2, 3, 0), line(100, 10, 1)
    y, state = helpers.run_node("CausalConvWithState", [*whole], **options)
    helpers.assert_close(y, expected)
    helpers.assert_close(state, line(3, 0))
    inputs = line(0), whole[1], None, line(2, 3)  # shorter than the state
    y, state = helpers.run_node("CausalConvWithState", inputs, **options)
    helpers.assert_close(y, expected[..., -1:])
    helpers.assert_close(state, line(3, 0))


def test_causal_conv_with_state_derivatives_and_errors():
    rng = np.random.default_rng(3)
    x, w, b, past = (rng.standard_normal(s) for s in ((1, 2, 3), (2, 1, 2), (2,), (1, 2, 1)))
    f = lambda *args: ops.causal_conv_with_state(*args, activation="silu")
    helpers.check_gradients(jax.jit(f), x, w, b, past)
    with pytest.raises(InvalidModelError, match=r"past_state has shape \(1, 2, 3\), expected \(1"):
        f(f32(x), f32(w), None, f32(x))
    with pytest.raises(InvalidModelError, match="activation is 'relu', expected none, silu or sw"):
        ops.causal_conv_with_state(f32(x), f32(w), activation="relu")


def col2im(columns, image, block, **attributes):
    return ops.col2im(columns, np.array(image), np.array(block), **attributes)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint16, np.complex64])
def test_col2im_sums_overlaps(dtype):
    y = col2im(np.ones((1, 4, 2), dtype), [2, 3], [2, 2])
    helpers.assert_close(y, np.array([[[[1, 2, 1], [1, 2, 1]]]], dtype))


def test_col2im_node():
    columns = np.arange(8, dtype=np.float32).reshape(1, 4, 2)
    shapes = [np.array([2, 3]), np.array([2, 2])]
    (y,) = helpers.run_node("Col2Im", [columns, *shapes], opset=18)
    helpers.assert_close(y, f32([[[[0, 1 + 2, 3], [4, 5 + 6, 7]]]]))


def test_col2im_is_the_transpose_of_patches():
    attributes = {"strides": [2, 1], "pads": [1, 0, 0, 2], "dilations": [1, 2]}
    patches = lambda x: lax.conv_general_dilated_patches(
        x, (2, 3), (2, 1), [(1, 0), (0, 2)], rhs_dilation=(1, 2)
    )
    y, pull = jax.vjp(patches, jnp.zeros((2, 3, 5, 7)))
    cotangent = np.random.default_rng(0).standard_normal(y.shape).astype(np.float32)
    x = col2im(cotangent.reshape(2, y.shape[1], -1), [5, 7], [2, 3], **attributes)
    helpers.assert_close(x, pull(cotangent)[0])
    columns = np.arange(8.0).reshape(1, 4, 2)
    helpers.check_gradients(jax.jit(lambda c: col2im(c, [2, 3], [2, 2]) ** 2), columns)


def test_col2im_five_dimensions_and_empty_batch():
    y = col2im(np.ones((0, 8, 1), np.float32), [2, 2, 2], [2, 2, 2])
    assert y.shape == (0, 1, 2, 2, 2)


def test_col2im_errors():
    with pytest.raises(InvalidModelError, match="expected a multiple of 4 rows and 2 columns"):
        col2im(np.ones((1, 4, 3), np.float32), [2, 3], [2, 2])


@pytest.mark.parametrize("opset", [19, 22])
def test_deform_conv_interpolates(opset):
    x, w = line(1, 2, 4), line(1)
    offset = line(0.5, -0.5, 0.5)
    (y,) = helpers.run_node("DeformConv", [x, w, offset], opset=opset)
    helpers.assert_close(y, line(1.5, 1.5, 2))  # half of what lies beyond the end is 0
    (y,) = helpers.run_node("DeformConv", [x, w, line(-2, 2, 9), f32([1])], opset=opset)
    helpers.assert_close(y, line(1, 1, 1))
    mask = line(1, 0.5, 2)
    (y,) = helpers.run_node("DeformConv", [x, w, offset, None, mask], opset=opset)
    helpers.assert_close(y, line(1.5, 0.75, 4))


def test_deform_conv_without_offsets_is_conv():
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 4, 5, 6), (6, 2, 2, 3)))
    attributes = {"strides": [2, 1], "pads": [1, 0, 0, 2], "dilations": [1, 2], "group": 2}
    y = ops.conv(x, w, **attributes)
    offset = np.zeros((2, 2 * 6 * 2, *y.shape[2:]), np.float32)
    helpers.assert_close(ops.deform_conv(x, w, offset, offset_group=2, **attributes), y, scale=10)


def test_deform_conv_offset_order():
    x = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    offset = f32([1, 0]).reshape(1, 2, 1, 1)  # down, not right
    y = ops.deform_conv(x, np.ones((1, 1, 1, 1), np.float32), offset, pads=[0, 0, -2, -2])
    helpers.assert_close(y, f32([[[[3]]]]))


@pytest.mark.parametrize("dtype", helpers.FLOATS)
def test_deform_conv_dtypes(dtype):
    args = [a.astype(dtype) for a in (line(1, 2, 4), line(1), line(0.5, -0.5, 0.5))]
    with jax.enable_x64(True):
        helpers.assert_close(ops.deform_conv(*args), line(1.5, 1.5, 2, dtype=dtype))


def test_deform_conv_derivatives():
    rng = np.random.default_rng(2)
    x, w, mask = (rng.standard_normal(s) for s in ((1, 2, 4), (1, 2, 2), (1, 2, 3)))
    offset = rng.integers(-1, 2, (1, 2, 3)) + rng.uniform(0.2, 0.8, (1, 2, 3))
    f = lambda x, w, offset, mask: ops.deform_conv(x, w, offset, None, mask)
    helpers.check_gradients(jax.jit(f), x, w, offset, mask)


def test_deform_conv_derivative_on_an_element_is_that_above():
    f = lambda o: ops.deform_conv(line(1, 2, 4), line(1), o)
    zeros = jnp.zeros((1, 1, 3))
    _, tangent = jax.jvp(f, (zeros,), (jnp.ones((1, 1, 3)),))
    helpers.assert_close(tangent, line(1, 2, -4))
    helpers.assert_close(jax.vjp(f, zeros)[1](jnp.ones((1, 1, 3)))[0], line(1, 2, -4))


def test_deform_conv_errors():
    x, w, offset = np.ones((1, 3, 2), np.float32), np.ones((1, 3, 1), np.float32), X[..., :2]
    with pytest.raises(InvalidModelError, match="expected multiples of group=1, offset_group=2"):
        ops.deform_conv(x, w, offset, offset_group=2)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_deform_conv_lets_nothing_in_from_outside_of_a_support(bad):
    x, w = np.array([[[1, 2, bad, 4, 5]]], np.float32), np.ones((1, 1, 1), np.float32)
    offset = np.array([[[0, 0, 0, -0.5, 0]]], np.float32)
    y = np.asarray(ops.deform_conv(x, w, offset))[0, 0]
    assert [*np.flatnonzero(~np.isfinite(y))] == [2, 3]
    mask = np.array([[[1, 1, 0, 0, 1]]], np.float32)
    helpers.assert_close(
        ops.deform_conv(x, w, offset, None, mask), np.array([[[1, 2, 0, 0, 5]]], np.float32)
    )
    with pytest.raises(InvalidModelError, match=r"offset has shape .*, expected \(1, 1, 5\)"):
        ops.deform_conv(x, w, offset[..., :4])
    with pytest.raises(InvalidModelError, match=r"mask has shape .*, expected \(1, 1, 5\)"):
        ops.deform_conv(x, w, offset, None, mask[..., :4])

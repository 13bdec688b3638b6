"""Operators that move or reshape values, at every version and in shape arithmetic."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers import assert_close, check_gradients, onnxruntime, run_node, text_model
from helpers import node_model as make

import jaxonnx
from jaxonnx import ops
from jaxonnx.errors import InvalidModelError

I64_MAX, I64_MIN = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def ints(*values):
    return np.array(values, np.int64)


def arange(*shape, dtype=np.float32):
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


@pytest.mark.parametrize(
    ("old", "new", "allowzero", "expected"),
    [
        ((2, 3, 4), (4, -1), 0, (4, 6)),
        ((2, 3, 4), (0, -1), 0, (2, 12)),
        ((2, 3, 4), (0, 0, 4), 0, (2, 3, 4)),
        ((0, 8, 2), (0, 0, 4), 1, (0, 0, 4)),
        ((0, 10), (0, 1, -1), 0, (0, 1, -1)),
        ((), (1, 1), 0, (1, 1)),
        ((1,), (), 0, ()),
    ],
)
def test_reshape(old, new, allowzero, expected):
    x = arange(*old)
    if -1 in expected:  # 0 copied and -1 over 0 elements: any size would do
        with pytest.raises(InvalidModelError, match="cannot reshape"):
            run_node("Reshape", [x, ints(*new)], opset=14, allowzero=allowzero)
        return
    (y,) = run_node("Reshape", [x, ints(*new)], opset=14, allowzero=allowzero)
    assert_close(y, x.reshape(expected))


def test_reshape_of_old_versions():
    x = arange(2, 6)
    assert_close(run_node("Reshape", [x], opset=1, shape=[3, -1])[0], x.reshape(3, 4))
    assert_close(run_node("Reshape", [x, ints(0, 3, 2)], opset=5)[0], x.reshape(2, 3, 2))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (ints(4, -1, -1), "more than one -1"),
        (ints(5, -1), r"cannot reshape \[2, 3\] \(6 elements\) to \[5, -1\]"),
        (ints(7), r"cannot reshape \[2, 3\] \(6 elements\) to \[7\]; if a size in it was baked in"),
        (ints(1, 6, 0), "copies dimension 2 of an input of rank 2"),
    ],
)
def test_reshape_errors(shape, message):
    with pytest.raises(InvalidModelError, match=message) as caught:
        run_node("Reshape", [arange(2, 3), shape], opset=21)
    assert "Reshape-21" in caught.value.__notes__[0]


def test_shape_and_size_are_known_and_int64():
    x = jnp.zeros((2, 3, 4))
    assert isinstance(ops.shape(x), np.ndarray)
    assert_close(ops.shape(x), ints(2, 3, 4))
    assert_close(ops.shape(x, start=-1), ints(4))
    assert_close(ops.shape(x, end=-1), ints(2, 3))
    assert_close(ops.shape(x, start=2, end=1), ints())
    assert_close(ops.shape(x, start=-9, end=9), ints(2, 3, 4))
    assert_close(ops.size(x), np.array(24, np.int64))
    assert_close(run_node("Shape", [np.zeros((2, 0))], opset=1)[0], ints(2, 0))
    assert_close(run_node("Size", [np.zeros((2, 0))], opset=13)[0], np.array(0, np.int64))


@pytest.mark.parametrize(
    ("axis", "expected"), [(0, (1, 24)), (1, (2, 12)), (3, (24, 1)), (-1, (6, 4)), (-3, (1, 24))]
)
def test_flatten(axis, expected):
    x = arange(2, 3, 4)
    assert_close(run_node("Flatten", [x], opset=13, axis=axis)[0], x.reshape(expected))


def test_flatten_of_an_empty_array_and_a_scalar():
    assert run_node("Flatten", [np.zeros((0, 3, 2))], opset=9)[0].shape == (0, 6)
    assert run_node("Flatten", [np.zeros(())], opset=9, axis=0)[0].shape == (1, 1)


def test_transpose():
    x = arange(2, 3, 4)
    assert_close(run_node("Transpose", [x], opset=21)[0], x.T)
    assert_close(run_node("Transpose", [x], opset=1, perm=[1, 2, 0])[0], x.transpose(1, 2, 0))


@pytest.mark.parametrize("opset", [1, 11])
def test_squeeze_and_unsqueeze_by_attribute(opset):
    x = arange(1, 3, 1, 2)
    assert_close(run_node("Squeeze", [x], opset=opset)[0], x.reshape(3, 2))
    assert_close(run_node("Squeeze", [x], opset=opset, axes=[0])[0], x.reshape(3, 1, 2))
    y = arange(3, 2)
    assert_close(run_node("Unsqueeze", [y], opset=opset, axes=[0, 2])[0], y.reshape(1, 3, 1, 2))


@pytest.mark.parametrize("opset", [13, 21, 25])
def test_squeeze_and_unsqueeze_by_input(opset):
    x = arange(1, 3, 1, 2)
    assert_close(run_node("Squeeze", [x], opset=opset)[0], x.reshape(3, 2))
    assert_close(run_node("Squeeze", [x, ints(-2)], opset=opset)[0], x.reshape(1, 3, 2))
    y = arange(3, 2)
    unsqueezed = run_node("Unsqueeze", [y, ints(-1, 0)], opset=opset)[0]
    assert_close(unsqueezed, y.reshape(1, 3, 2, 1))


def test_squeeze_and_unsqueeze_errors():
    with pytest.raises(InvalidModelError, match=r"axis 1 of shape \[1, 3\] is not of size 1"):
        ops.squeeze(arange(1, 3), ints(1))
    with pytest.raises(
        InvalidModelError, match=r"axes are \[0, -2\], expected different ones in \[-2, 1\]"
    ):
        ops.unsqueeze(np.zeros(()), ints(0, -2))
    with pytest.raises(InvalidModelError, match="expected different ones"):
        ops.squeeze(arange(1), ints(3))


def test_concat():
    a, b = arange(2, 1), arange(2, 3)
    assert_close(run_node("Concat", [a, b], opset=13, axis=-1)[0], np.concatenate([a, b], 1))
    assert_close(run_node("Concat", [a, b], opset=1)[0], np.concatenate([a, b], 1))
    assert_close(run_node("Concat", [a[:0], a], opset=4, axis=0)[0], a)


def test_expand_gives_way_on_both_sides():
    x = arange(3, 1)
    assert_close(run_node("Expand", [x, ints(2, 1, 6)], opset=8)[0], np.broadcast_to(x, (2, 3, 6)))
    assert_close(run_node("Expand", [x, ints(1)], opset=13)[0], x)
    assert run_node("Expand", [x, ints(0)], opset=13)[0].shape == (3, 0)


def test_tile():
    x = arange(2, 3)
    assert_close(run_node("Tile", [x, ints(2, 1)], opset=13)[0], np.tile(x, (2, 1)))
    assert_close(run_node("Tile", [x, ints(0, 2)], opset=6)[0], np.tile(x, (0, 2)))
    float_ = np.float32
    tiled = run_node("Tile", [x, np.array(2, float_), np.array(1, float_)], opset=1)[0]
    assert_close(tiled, np.tile(x, (1, 2)))
    with pytest.raises(InvalidModelError, match="1 repeats for an input of rank 2"):
        ops.tile(x, ints(2))


@pytest.mark.parametrize(
    ("start", "end", "step", "expected"),
    [
        (4, 0, -1, [4, 3, 2, 1]),
        (0, 5, -1, []),
        (-1, I64_MIN, -1, [4, 3, 2, 1, 0]),
        (I64_MAX, I64_MIN, -2, [4, 2, 0]),
        (0, I64_MAX, 1, [0, 1, 2, 3, 4]),
        (-9, 9, 2, [0, 2, 4]),
        (1, -1, 1, [1, 2, 3]),
        (3, 1, 1, []),
        (5, 9, 1, []),
    ],
)
def test_slice(start, end, step, expected):
    x = arange(5)
    inputs = [x, ints(start), ints(end), ints(0), ints(step)]
    assert_close(run_node("Slice", inputs, opset=13)[0], np.array(expected, np.float32))
    assert_close(ops.slice(x, *inputs[1:]), np.array(expected, np.float32))


def test_slice_of_some_axes_and_old_versions():
    x = arange(4, 5)
    inputs = [x, ints(1, 0), ints(3, -2)]
    assert_close(run_node("Slice", inputs, opset=10)[0], x[1:3, :-2])
    assert_close(run_node("Slice", [*inputs, ints(-1, 0)], opset=11)[0], x[:-2, 1:3])
    assert_close(run_node("Slice", [x], opset=1, starts=[1], ends=[-1], axes=[1])[0], x[:, 1:-1])
    with pytest.raises(InvalidModelError, match="a step of Slice is 0"):
        ops.slice(x, ints(0), ints(1), ints(0), ints(0))


def test_split():
    x = arange(7, 2)
    parts = run_node("Split", [x, ints(3, 4)], opset=13, outputs=2)
    assert [p.shape for p in parts] == [(3, 2), (4, 2)]
    parts = run_node("Split", [x], opset=18, outputs=3, num_outputs=3)
    assert [len(p) for p in parts] == [3, 3, 1]
    for opset in (1, 2, 11, 13):
        halves = run_node("Split", [x], opset=opset, outputs=2, axis=1)
        assert_close(np.concatenate(halves, 1), x)
    by_attribute = run_node("Split", [x], opset=2, outputs=2, split=[6, 1])
    assert [len(p) for p in by_attribute] == [6, 1]
    assert [len(p) for p in run_node("Split", [x, ints(0, 7)], opset=18, outputs=2)] == [0, 7]


def test_split_errors():
    x = arange(7, 2)
    with pytest.raises(InvalidModelError, match=r"sizes \[3, 3\] do not add up to 7, axis 0"):
        ops.split(x, ints(3, 3))
    with pytest.raises(InvalidModelError, match="exactly one of the input split and num_outputs"):
        ops.split(x)
    with pytest.raises(InvalidModelError, match="size 7 of axis 0 is no multiple of 2 outputs"):
        run_node("Split", [x], opset=13, outputs=2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ops.reshape(x, ints(3, -1)),
        lambda x: ops.slice(x, ints(-1), ints(I64_MIN), ints(1), ints(-2)),
        lambda x: ops.concat(x, 2 * x, axis=0),
        lambda x: ops.tile(x, ints(2, 3)),
        lambda x: ops.expand(x, ints(2, 1, 1)),
        lambda x: ops.split(x, ints(1, 2), axis=1)[1],
        ops.transpose,
    ],
    ids=["reshape", "slice", "concat", "tile", "expand", "split", "transpose"],
)
def test_gradients(function):
    check_gradients(function, np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize("dtype", [np.int64, np.float64, ml_dtypes.bfloat16, np.uint8, bool])
def test_dtypes_are_kept(dtype):
    x = arange(2, 3, dtype=dtype)
    assert_close(run_node("Slice", [x, ints(1), ints(3)], opset=13)[0], x[1:3])
    assert_close(run_node("Transpose", [x], opset=13)[0], x.T)
    assert_close(run_node("Concat", [x, x], opset=13, axis=0)[0], np.concatenate([x, x]))


def test_int64_is_exact():
    big = np.array([[2**40, -(2**62) + 1]], np.int64)
    assert_close(run_node("Tile", [big, ints(2, 1)], opset=13)[0], np.tile(big, (2, 1)))
    assert_close(run_node("Identity", [big], opset=25)[0], big)


def test_agrees_with_onnxruntime_on_a_strided_slice():
    x = arange(6, 7)
    inputs = [x, ints(-1, 1), ints(0, 6), ints(0, 1), ints(-2, 3)]
    model = make("Slice", inputs, opset=13)
    assert_close(np.asarray(jaxonnx.load(model)(*inputs)), onnxruntime(model, *inputs)[0])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ops.reshape(x, ints(0, -1)),
        ops.flatten,
        lambda x: ops.slice(x, ints(0), ints(-1), ints(0)),
        lambda x: ops.slice(x, ints(-1), ints(I64_MIN), ints(0), ints(-1)),
        lambda x: ops.tile(x, ints(2, 1, 1)),
        lambda x: ops.expand(x, ints(1, 3, 4)),
        lambda x: ops.split(x, ints(1, 2), axis=1)[1],
        lambda x: ops.split(ops.concat(x, x, axis=0), None, axis=0, num_outputs=2)[0],
        lambda x: ops.unsqueeze(ops.squeeze(x[:, :1], ints(1)), ints(1)),
    ],
)
def test_symbolic_batch(function):
    (batch,) = jax.export.symbolic_shape("B")
    shape = jax.ShapeDtypeStruct((batch, 3, 4), np.float32)
    exported = jax.export.export(jax.jit(function))(shape)
    x = arange(5, 3, 4)
    assert_close(exported.call(x), np.asarray(function(x)))


def test_unnamed_outputs_of_split_count():
    """Equal parts are as many as there are outputs, used or not."""
    proto = text_model("(float[4] x) => (float[M] a) { a, b = Split(x) }", opset=13)
    proto.graph.node[0].output[1] = ""
    assert_close(
        jaxonnx.load(proto)(np.arange(4, dtype=np.float32)), np.arange(2, dtype=np.float32)
    )


def test_four_split_into_three():
    """The last part may be empty."""
    x = np.arange(4, dtype=np.float32)
    parts = run_node("Split", [x], opset=18, outputs=3, num_outputs=3)
    for part, expected in zip(parts, (x[:2], x[2:], x[4:]), strict=True):
        assert_close(part, expected)

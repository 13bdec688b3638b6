"""Pad and CenterCropPad: modes, cropping, borders, every version, symbolic sizes, derivatives."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers import FLOATS, assert_close, check_gradients, onnxruntime, run_node
from helpers import node_model as make
from jax import export

from jaxonnx import ops
from jaxonnx.errors import InvalidModelError

DTYPES = [*FLOATS, np.int8, np.uint64, np.bool_, np.complex64, ml_dtypes.int4]


def ints(values: Any) -> np.ndarray:
    return np.array(values, np.int64)


def floats(values: Any) -> np.ndarray:
    return np.array(values, np.float32)


X = floats([[1.0, 1.2], [2.3, 3.4], [4.5, 5.7]])


@pytest.mark.parametrize(
    ("mode", "pads", "expected"),
    [
        ("constant", [0, 2, 0, 0], [[0, 0, 1, 1.2], [0, 0, 2.3, 3.4], [0, 0, 4.5, 5.7]]),
        # A reflection longer than the axis is repeated.
        ("reflect", [0, 2, 0, 0], [[1, 1.2, 1, 1.2], [2.3, 3.4, 2.3, 3.4], [4.5, 5.7, 4.5, 5.7]]),
        ("edge", [0, 2, 0, 0], [[1, 1, 1, 1.2], [2.3, 2.3, 2.3, 3.4], [4.5, 4.5, 4.5, 5.7]]),
        (
            "wrap",
            [2, 1, 1, 1],
            [
                [3.4, 2.3, 3.4, 2.3],
                [5.7, 4.5, 5.7, 4.5],
                [1.2, 1.0, 1.2, 1.0],
                [3.4, 2.3, 3.4, 2.3],
                [5.7, 4.5, 5.7, 4.5],
                [1.2, 1.0, 1.2, 1.0],
            ],
        ),
    ],
)
def test_examples_of_the_text(mode, pads, expected):
    (y,) = run_node("Pad", [X, ints(pads)], opset=25, mode=mode)
    assert_close(y, floats(expected))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_every_version(mode):
    expected = np.pad(X, ((1, 0), (0, 1)), mode=mode)
    pads = [1, 0, 0, 1]
    assert_close(run_node("Pad", [X], opset=1, paddings=pads, mode=mode)[0], expected)
    assert_close(run_node("Pad", [X], opset=2, pads=pads, mode=mode)[0], expected)
    for opset in (11, 13, 18, 19, 21, 23, 24, 25):
        assert_close(run_node("Pad", [X, ints(pads)], opset=opset, mode=mode)[0], expected)


def test_value_of_each_form():
    expected = np.pad(X, 1, constant_values=7)
    assert_close(run_node("Pad", [X], opset=1, paddings=[1] * 4, value=7.0)[0], expected)
    assert_close(run_node("Pad", [X], opset=2, pads=[1] * 4, value=7.0)[0], expected)
    for value in (floats(7), floats([7])):
        assert_close(run_node("Pad", [X, ints([1] * 4), value], opset=11)[0], expected)
    (y,) = run_node("Pad", [X, ints([1, 2]), None, ints([-1])], opset=18)
    assert_close(y, np.pad(X, ((0, 0), (1, 2))))
    (y,) = run_node("Pad", [X, ints([1, 0, 2, 0]), floats(7), np.array([1, 0], np.int32)], opset=19)
    assert_close(y, np.pad(X, ((0, 0), (1, 2)), constant_values=7))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_dtypes(dtype, mode):
    x = np.array([1, 0, 1]).astype(dtype)
    expected = {"constant": [0, 1, 0, 1, 0], "reflect": [0, 1, 0, 1, 0]}
    expected |= {"edge": [1, 1, 0, 1, 1], "wrap": [1, 1, 0, 1, 1]}
    (y,) = run_node("Pad", [x, ints([1, 1])], opset=21, mode=mode)
    assert y.dtype == dtype
    assert np.array_equal(y, np.array(expected[mode]).astype(dtype))


@pytest.mark.parametrize(
    ("pads", "mode", "expected"),
    [
        ([-1, 2], "constant", [2, 3, 4, 5, 0, 0]),
        ([-2, -1], "constant", [3, 4]),
        ([-1, 2], "reflect", [2, 3, 4, 5, 4, 3]),
        ([2, -2], "reflect", [3, 2, 1, 2, 3]),
        ([-3, 3], "edge", [4, 5, 5, 5, 5]),
        ([-3, 3], "wrap", [4, 5, 4, 5, 4]),
        ([2, -2], "wrap", [2, 3, 1, 2, 3]),
    ],
)
def test_negative_pads_crop_first(pads, mode, expected):
    x, pads = floats([1, 2, 3, 4, 5]), ints(pads)
    assert_close(run_node("Pad", [x, pads], opset=19, mode=mode)[0], floats(expected))
    assert_close(
        onnxruntime(make("Pad", [x, pads], opset=19, mode=mode), x, pads)[0], floats(expected)
    )


def test_long_reflection_and_wrap():
    x = floats([0, 1, 2])
    (y,) = run_node("Pad", [x, ints([2, 1])], opset=19, mode="wrap")
    assert_close(y, floats([1, 2, 0, 1, 2, 0]))
    (y,) = run_node("Pad", [x, ints([5, 0])], opset=19, mode="reflect")
    assert_close(y, floats([1, 0, 1, 2, 1, 0, 1, 2]))
    # What cropping leaves is reflected: the text leaves the order open.
    (y,) = run_node("Pad", [floats([1, 2, 3, 4, 5]), ints([-3, 3])], opset=19, mode="reflect")
    assert_close(y, floats([4, 5, 4, 5, 4]))
    (y,) = run_node("Pad", [floats([3]), ints([2, 1])], opset=19, mode="reflect")
    assert_close(y, floats([3, 3, 3, 3]))


def test_nothing_to_pad():
    scalar = floats(3)
    assert_close(run_node("Pad", [scalar, ints([])], opset=21)[0], scalar)
    assert_close(run_node("Pad", [X[:0], ints([1, 0, 0, 0])], opset=21)[0], np.zeros((1, 2), "f"))
    assert_close(
        run_node("Pad", [X[:0], ints([0, 1, 0, 0])], opset=21, mode="edge")[0], X[:0, [0] * 3]
    )


@pytest.mark.parametrize(
    ("inputs", "mode", "message"),
    [
        ([X, ints([1, 2, 3])], "constant", "pads has 3 entries, expected 2 for each of 2 axes"),
        ([X, ints([1, 0, 0, 0])], "mirror", "mode 'mirror', expected one of constant, reflect"),
        ([X[:0], ints([1, 0, 0, 0])], "edge", "axis 0 has size 0, so 'edge' has nothing"),
    ],
)
def test_errors(inputs, mode, message):
    with pytest.raises(InvalidModelError, match=message):
        run_node("Pad", inputs, opset=21, mode=mode)


def test_gradients():
    @jax.jit
    def outputs(x, value):
        pads = ints([2, -1, 1, 2])
        constant = ops.pad(x * x, pads, value * value)
        return [constant, *(ops.pad(x * x, pads, mode=m) for m in ("reflect", "edge", "wrap"))]

    check_gradients(outputs, np.arange(1.0, 7.0).reshape(2, 3), np.array(0.5))


def test_derivative_reaches_the_value():
    pad = lambda x, value: ops.pad(x, ints([1, 0, 0, 2]), value)
    _, pullback = jax.vjp(pad, X, jnp.float32(7))
    dx, dvalue = pullback(np.ones((4, 4), np.float32))
    assert_close(dx, np.ones_like(X))
    assert_close(dvalue, np.float32(10))
    _, tangent = jax.jvp(pad, (X, jnp.float32(7)), (X, jnp.float32(2)))
    assert_close(tangent, np.pad(X, ((1, 0), (0, 2)), constant_values=2))


def test_symbolic_shapes():
    b, n = export.symbolic_shape("b, n")
    spec = jax.ShapeDtypeStruct((b, n), np.float32)
    borrow = ("reflect", "edge", "wrap")

    def outputs(x):
        by_size = np.array([0, x.shape[0], 0, 0], object)
        both = np.array([0, x.shape[0], 0, x.shape[0] % 4], object)
        modes = [ops.pad(x, ints([0, 2, 0, 1]), mode=m) for m in borrow]
        sized = [ops.pad(x, both, mode=m) for m in borrow]
        return [ops.pad(x, ints([0, -1, 0, 2])), ops.pad(x, by_size), *modes, *sized]

    exported = export.export(jax.jit(outputs))(spec)
    for rows, size in [(2, 4), (5, 2), (4, 3)]:  # pads that are larger than the axis too
        x = np.arange(rows * size, dtype=np.float32).reshape(rows, size)
        expected = [np.pad(x[:, 1:], ((0, 0), (0, 2))), np.pad(x, ((0, 0), (rows, 0)))]
        expected += [np.pad(x, ((0, 0), (2, 1)), mode=m) for m in borrow]
        expected += [np.pad(x, ((0, 0), (rows, rows % 4)), mode=m) for m in borrow]
        for y, right in zip(exported.call(x), expected, strict=True):
            assert_close(y, right)


@pytest.mark.parametrize(
    ("size", "target", "expected"),
    [
        (5, 2, [1, 2]),
        (5, 4, [0, 1, 2, 3]),
        (4, 2, [1, 2]),
        (2, 5, [-1, 0, 1, -1, -1]),
        (3, 5, [-1, 0, 1, 2, -1]),
        (3, 3, [0, 1, 2]),
        (0, 2, [-1, -1]),
        (2, 0, []),
    ],
)
def test_center_crop_pad(size, target, expected):
    x = np.arange(1, size + 1, dtype=np.float32)
    expected = floats(expected) + 1
    assert_close(run_node("CenterCropPad", [x, ints([target])], opset=18)[0], expected)
    stacked = np.stack([x, x])
    for axes in ([-1], [1]):
        inputs = [stacked, np.array([target], np.int32)]
        (y,) = run_node("CenterCropPad", inputs, opset=18, axes=axes)
        assert_close(y, np.stack([expected, expected]))


def test_center_crop_pad_symbolic_gradients_and_errors():
    b, n = export.symbolic_shape("b, n")
    spec = jax.ShapeDtypeStruct((b, n), np.float32)
    exported = export.export(jax.jit(lambda x: ops.center_crop_pad(x, ints([4]), axes=(1,))))(spec)
    assert_close(exported.call(floats([[1, 2, 3, 4, 5]])), floats([[1, 2, 3, 4]]))
    assert_close(exported.call(floats([[1], [2]])), floats([[0, 1, 0, 0], [0, 2, 0, 0]]))
    check_gradients(
        lambda x: ops.center_crop_pad(x * x, ints([2, 4])), np.arange(9.0).reshape(3, 3)
    )
    with pytest.raises(InvalidModelError, match="shape has 1 entries, expected 2"):
        run_node("CenterCropPad", [X, ints([1])], opset=18)

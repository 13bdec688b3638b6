"""Where a version changed how an operator broadcasts, counts or is told: both sides, by hand."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers import (
    Case,
    assert_close,
    by_case,
    check_case,
    f32,
    i64,
    run_node,
    text_model,
)
from onnx import helper, numpy_helper

import jaxonnx
from jaxonnx.errors import InvalidModelError

BINARY: dict[str, tuple[Any, Any, int]] = {
    "Add": (np.add, np.float32, 6),
    "Sub": (np.subtract, np.float32, 6),
    "Mul": (np.multiply, np.float32, 6),
    "Div": (np.divide, np.float32, 6),
    "Pow": (np.power, np.float32, 1),
    "And": (np.logical_and, bool, 1),
    "Or": (np.logical_or, bool, 1),
    "Xor": (np.logical_xor, bool, 1),
    "Equal": (np.equal, np.int32, 1),
    "Greater": (np.greater, np.float32, 1),
    "Less": (np.less, np.float32, 1),
}


@pytest.mark.parametrize("op_type", BINARY)
def test_broadcasting_before_and_from_7(op_type):
    """To A alone and from an axis on before, to each other by the last axes since."""
    function, dtype, old = BINARY[op_type]
    a, b = np.array([[[1], [0]], [[2], [2]]], dtype), np.array([2, 1], dtype)
    (y,) = run_node(op_type, [a, b], opset=old, broadcast=1, axis=1)
    assert_close(y, function(a, b[:, None]))
    for x, z in ((a, b), (b, a)):
        with np.errstate(divide="ignore"):
            assert_close(run_node(op_type, [x, z], opset=7)[0], function(x, z))
    for inputs, attributes in (([a, b], {}), ([b, a], {"broadcast": 1})):
        with pytest.raises(InvalidModelError, match="B has shape"):
            run_node(op_type, inputs, opset=old, **attributes)


VARIADIC = {
    "Max": [[2, 3], [5, 5]],
    "Min": [[1, 1], [2, 3]],
    "Sum": [[3, 4], [7, 8]],
    "Mean": [[1.5, 2], [3.5, 4]],
}


@pytest.mark.parametrize("op_type", VARIADIC)
def test_variadic_operators_broadcast_from_8_on(op_type):
    inputs = [f32([[1], [5]]), f32([2, 3])]
    assert_close(run_node(op_type, inputs, opset=8)[0], f32(VARIADIC[op_type]))
    for opset in (1, 6):
        with pytest.raises(InvalidModelError, match="expected one shape"):
            run_node(op_type, inputs, opset=opset)


ODDS = np.log(f32([[[1, 1], [2, 4]]]))
TOGETHER, APART = f32([[[1 / 8, 1 / 8], [1 / 4, 1 / 2]]]), f32([[[1 / 2, 1 / 2], [1 / 3, 2 / 3]]])
PLANES = np.arange(8, dtype=np.float32)
BY_DEPTH = f32([[[[0, 2], [4, 6]], [[1, 3], [5, 7]]]])
IN_LINE = PLANES.reshape(1, 2, 2, 2)
SIGNAL = f32([[[[1], [2]], [[3], [5]]]])
HALVES: dict[str, Any] = {"mode": "linear"}
EMPTY = np.zeros((0, 3), np.float32)
IMAGE = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
REGION = [IMAGE, f32([[0, 0, 2, 2]]), i64([0])]
SQUARE = f32([[1, 2], [3, 4]])

# Operator, opset, inputs, attributes, outputs.
CASES: list[Case] = [
    # All axes from `axis`, 1, on together before 13; the last one since.
    ("Softmax", 1, [ODDS], {}, [TOGETHER]),
    ("Softmax", 11, [ODDS], {}, [TOGETHER]),
    ("Softmax", 13, [ODDS], {}, [APART]),
    ("LogSoftmax", 1, [ODDS], {}, [np.log(TOGETHER)]),
    ("LogSoftmax", 11, [ODDS], {}, [np.log(TOGETHER)]),
    ("LogSoftmax", 13, [ODDS], {}, [np.log(APART)]),
    # Padding counts from 7 on if asked for; dilations came with 19, for LpPool with 18.
    (
        "AveragePool",
        1,
        [f32([[[1, 2]]])],
        {"kernel_shape": [2], "pads": [1, 1]},
        [f32([[[1, 1.5, 2]]])],
    ),
    (
        "AveragePool",
        7,
        [f32([[[1, 2]]])],
        {"kernel_shape": [2], "pads": [1, 1], "count_include_pad": 1},
        [f32([[[0.5, 1.5, 1]]])],
    ),
    ("AveragePool", 11, [f32([[[1, 2, 5]]])], {"kernel_shape": [2]}, [f32([[[1.5, 3.5]]])]),
    (
        "AveragePool",
        19,
        [f32([[[1, 2, 5]]])],
        {"kernel_shape": [2], "dilations": [2]},
        [f32([[[3]]])],
    ),
    ("LpPool", 11, [f32([[[3, 4, 4]]])], {"kernel_shape": [2], "p": 1}, [f32([[[7, 8]]])]),
    (
        "LpPool",
        18,
        [f32([[[3, 4, 4]]])],
        {"kernel_shape": [2], "p": 1, "dilations": [2]},
        [f32([[[7]]])],
    ),
    ("MaxPool", 8, [f32([[[1, 3, 2]]])], {"kernel_shape": [2]}, [f32([[[3, 3]]]), i64([[[1, 1]]])]),
    ("MaxPool", 10, [f32([[[1, 3, 2]]])], {"kernel_shape": [2], "dilations": [2]}, [f32([[[2]]])]),
    # The axis is 1 by default in 1, required from 4 on.
    ("Concat", 1, [SQUARE, SQUARE], {}, [f32([[1, 2, 1, 2], [3, 4, 3, 4]])]),
    ("Concat", 4, [f32([[1]]), f32([[2]])], {"axis": 0}, [f32([[1], [2]])]),
    # The axis is 1 by default before 20, the one before the last since.
    ("DFT", 17, [SIGNAL], {}, [f32([[[[4, 0], [7, 0]], [[-2, 0], [-3, 0]]]])]),
    ("DFT", 20, [SIGNAL], {}, [f32([[[[3, 0], [-1, 0]], [[8, 0], [-2, 0]]]])]),
    # The other order came with 11, and with 28 for the inverse.
    ("DepthToSpace", 1, [PLANES.reshape(1, 8, 1, 1)], {"blocksize": 2}, [BY_DEPTH]),
    ("DepthToSpace", 11, [PLANES.reshape(1, 8, 1, 1)], {"blocksize": 2}, [BY_DEPTH]),
    ("DepthToSpace", 11, [PLANES.reshape(1, 8, 1, 1)], {"blocksize": 2, "mode": "CRD"}, [IN_LINE]),
    ("SpaceToDepth", 13, [BY_DEPTH], {"blocksize": 2}, [PLANES.reshape(1, 8, 1, 1)]),
    ("SpaceToDepth", 28, [BY_DEPTH], {"blocksize": 2}, [PLANES.reshape(1, 8, 1, 1)]),
    ("SpaceToDepth", 28, [IN_LINE], {"blocksize": 2, "mode": "CRD"}, [PLANES.reshape(1, 8, 1, 1)]),
    # Axes count from the end from 11 on.
    ("Flatten", 9, [f32([[[1, 2, 3]]])], {"axis": 2}, [f32([[1, 2, 3]])]),
    ("Flatten", 11, [f32([[[1, 2, 3]]])], {"axis": -1}, [f32([[1, 2, 3]])]),
    ("Compress", 9, [SQUARE, np.array([False, True])], {"axis": 1}, [f32([[2], [4]])]),
    ("Compress", 11, [SQUARE, np.array([False, True])], {"axis": -1}, [f32([[2], [4]])]),
    ("Unsqueeze", 1, [f32([1, 2])], {"axes": [1]}, [f32([[1], [2]])]),
    ("Unsqueeze", 11, [f32([1, 2])], {"axes": [-1]}, [f32([[1], [2]])]),
    # Axes are an input from 13 on.
    ("Unsqueeze", 13, [f32([1, 2]), i64([-1])], {}, [f32([[1], [2]])]),
    ("Squeeze", 11, [f32([[[1], [2]]])], {"axes": [-1]}, [f32([[1, 2]])]),
    ("Squeeze", 13, [f32([[[1], [2]]]), i64([-1])], {}, [f32([[1, 2]])]),
    ("Squeeze", 13, [f32([[[1], [2]]]), None], {}, [f32([1, 2])]),
    # Floats have a remainder with the sign of the divisor from 28 on.
    ("Mod", 13, [f32([5.5]), f32([-2])], {"fmod": 1}, [f32([1.5])]),
    ("Mod", 28, [f32([5.5]), f32([-2])], {"fmod": 1}, [f32([1.5])]),
    ("Mod", 28, [f32([5.5]), f32([-2])], {}, [f32([-0.5])]),
    # Negative indices count from the end from 11 on, and are out of range before.
    ("OneHot", 9, [i64([-1, 0]), i64(2), f32([0, 1])], {}, [f32([[0, 0], [1, 0]])]),
    ("OneHot", 11, [i64([-1, 0]), i64(2), f32([0, 1])], {}, [f32([[0, 1], [1, 0]])]),
    # By default infinity is bounded in 6, by the ends of the range; nothing is from 11 on.
    ("Clip", 6, [f32([-np.inf])], {}, [f32([np.finfo(np.float32).min])]),
    ("Clip", 11, [f32([-np.inf])], {}, [f32([-np.inf])]),
    # `wrap` came with 19.
    ("Pad", 18, [f32([1, 2, 3]), i64([1, 0])], {"mode": "reflect"}, [f32([2, 1, 2, 3])]),
    ("Pad", 19, [f32([1, 2, 3]), i64([1, 0])], {"mode": "wrap"}, [f32([3, 1, 2, 3])]),
    # Base and exponent have types of their own from 12 on.
    ("Pow", 7, [f32([2, 3]), f32([3, 2])], {}, [f32([8, 9])]),
    ("Pow", 12, [f32([2, 3]), i64([3, 2])], {}, [f32([8, 9])]),
    # The shape is an attribute in 1; 0 copies a size, or is one with `allowzero` from 14 on.
    ("Reshape", 1, [SQUARE], {"shape": [0, -1]}, [SQUARE]),
    ("Reshape", 5, [SQUARE, i64([4])], {}, [f32([1, 2, 3, 4])]),
    ("Reshape", 13, [EMPTY, i64([0, 3])], {}, [EMPTY]),
    ("Reshape", 14, [EMPTY, i64([3, 0])], {"allowzero": 1}, [EMPTY.T]),
    # Pixels have corners in 10, and centers from 11 on; a filter widens from 18 on if asked for.
    ("Resize", 10, [f32([1, 2]), f32([2])], HALVES, [f32([1, 1.5, 2, 2])]),
    ("Resize", 11, [f32([1, 2]), f32([]), f32([2])], HALVES, [f32([1, 1.25, 1.75, 2])]),
    ("Resize", 13, [f32([1, 2]), None, f32([2])], HALVES, [f32([1, 1.25, 1.75, 2])]),
    ("Resize", 13, [f32([8, 16, 24, 48]), None, f32([0.5])], HALVES, [f32([12, 36])]),
    (
        "Resize",
        18,
        [f32([8, 16, 24, 48]), None, f32([0.5])],
        HALVES | {"antialias": 1},
        [f32([13, 35])],
    ),
    # Places are shifted by half a pixel from 16 on, unless told otherwise.
    ("RoiAlign", 10, REGION, {"sampling_ratio": 1}, [f32([[[[5]]]])]),
    ("RoiAlign", 16, REGION, {"sampling_ratio": 1}, [f32([[[[2.5]]]])]),
    (
        "RoiAlign",
        16,
        REGION,
        {"sampling_ratio": 1, "coordinate_transformation_mode": "output_half_pixel"},
        [f32([[[[5]]]])],
    ),
    # Updates are combined from 16 on.
    ("ScatterND", 13, [f32([1, 2]), i64([[1]]), f32([5])], {}, [f32([1, 5])]),
    (
        "ScatterND",
        16,
        [f32([1, 2]), i64([[1], [1]]), f32([5, 6])],
        {"reduction": "add"},
        [f32([1, 13])],
    ),
    (
        "ScatterND",
        18,
        [f32([1, 2]), i64([[1], [1]]), f32([5, 6])],
        {"reduction": "max"},
        [f32([1, 6])],
    ),
    # A part of the shape from 15 on.
    ("Shape", 13, [EMPTY], {}, [i64([0, 3])]),
    ("Shape", 15, [EMPTY], {"start": -1}, [i64([3])]),
    # Attributes in 1; inputs with steps from 10 on.
    ("Slice", 1, [f32([1, 2, 3])], {"starts": [-2], "ends": [9]}, [f32([2, 3])]),
    ("Slice", 10, [f32([1, 2, 3]), i64([2]), i64([0]), i64([0]), i64([-1])], {}, [f32([3, 2])]),
    # Sizes may be an input in 1, and in no version until 13.
    ("Split", 1, [f32([1, 2, 3]), f32([1, 2])], {}, [f32([1]), f32([2, 3])]),
    ("Split", 2, [f32([1, 2, 3])], {"split": [1, 2]}, [f32([1]), f32([2, 3])]),
    # One axis in 1, all of them from 6 on.
    ("Tile", 1, [SQUARE, f32(2), f32(1)], {}, [f32([[1, 2, 1, 2], [3, 4, 3, 4]])]),
    ("Tile", 6, [SQUARE, i64([1, 2])], {}, [f32([[1, 2, 1, 2], [3, 4, 3, 4]])]),
    # Scales by name in 1, for all axes in 7, as an input in 9.
    (
        "Upsample",
        1,
        [SQUARE[None, None]],
        {"height_scale": 1.0, "width_scale": 2.0},
        [SQUARE.repeat(2, 1)[None, None]],
    ),
    ("Upsample", 7, [SQUARE], {"scales": [1.0, 2.0]}, [SQUARE.repeat(2, 1)]),
    ("Upsample", 9, [SQUARE, f32([1, 2])], {}, [SQUARE.repeat(2, 1)]),
    # A choice of what is beyond float8 came with 19, a rounding mode with 24.
    ("CastLike", 15, [f32([1.5]), np.zeros(0, np.int32)], {}, [np.array([1], np.int32)]),
    (
        "CastLike",
        19,
        [f32([1e3]), np.zeros(0, ml_dtypes.float8_e4m3fn)],
        {"saturate": 0},
        [np.array([np.nan], ml_dtypes.float8_e4m3fn)],
    ),
    *(
        (
            "Cast",
            24,
            [f32([1.25])],
            {"to": 24, "round_mode": m},
            [np.array([y], ml_dtypes.float8_e8m0fnu)],
        )
        for m, y in (("up", 2), ("down", 1), ("nearest", 1))
    ),
    # Bits may be shifted out of signed numbers from 28 on.
    (
        "BitShift",
        11,
        [np.array([9], np.uint8), np.array([2], np.uint8)],
        {"direction": "RIGHT"},
        [np.array([2], np.uint8)],
    ),
    (
        "BitShift",
        28,
        [np.array([-9], np.int8), np.array([2], np.int8)],
        {"direction": "RIGHT"},
        [np.array([-3], np.int8)],
    ),
]


@by_case(CASES)
def test_both_sides(case: Case):
    check_case(case)


@pytest.mark.parametrize(
    ("op_type", "opset", "inputs", "attributes", "message"),
    [
        ("Concat", 4, [SQUARE, SQUARE], {}, "the required attribute 'axis' is absent"),
        ("Mod", 13, [f32([5.5]), f32([-2])], {}, "fmod is 0, expected 1 for floats"),
        ("Pow", 7, [f32([2, 3]), i64([3, 2])], {}, "input Y .* is int64"),
        ("Split", 18, [f32([1, 2])], {}, "exactly one of the input split and num_outputs"),
        ("Split", 13, [f32([1, 2, 3])], {}, "is no multiple of 2 outputs"),
        ("BitShift", 11, [np.array([-9], np.int8)] * 2, {"direction": "LEFT"}, "is int8, expected"),
    ],
)
def test_what_one_side_refuses(
    op_type: str, opset: int, inputs: list[Any], attributes: Any, message: str
):
    outputs = 2 if op_type == "Split" else 1
    with pytest.raises(InvalidModelError, match=message):
        run_node(op_type, inputs, opset=opset, outputs=outputs, **attributes)


@pytest.mark.parametrize("op_type", ["RNN", "GRU", "LSTM"])
def test_layout_of_recurrent_layers_from_14_on(op_type):
    """Time first, or the batch first if asked for."""
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op_type]
    x, w = f32([[[1], [10]], [[2], [20]], [[3], [30]]]), f32(np.zeros((1, gates, 1)))
    w[0, -1] = 1  # the new state is x, times what the gates let through
    b = f32(np.zeros((1, 2 * gates)))
    b[0, : gates - 1] = 0 if op_type == "GRU" else 1  # GRU keeps (1 - z) of it
    kinds = {"RNN": ["Affine"], "GRU": ["Affine"] * 2, "LSTM": ["Affine"] * 3}[op_type]
    options = {"hidden_size": 1, "activations": kinds, "outputs": 2}
    (y, last) = run_node(op_type, [x, w, 0 * w, b], opset=7, **options)
    total = np.cumsum(x, 0) if op_type == "LSTM" else x
    assert_close(y, total[:, None])
    assert_close(last, total[None, -1])
    swapped = [x.swapaxes(0, 1), w, 0 * w, b]
    (y, last) = run_node(op_type, swapped, opset=14, layout=1, **options)
    assert_close(y, total.swapaxes(0, 1)[:, :, None])
    assert_close(last, total[-1][:, None])


@pytest.mark.parametrize(("opset", "linear_before_reset"), [(1, None), (3, 0), (3, 1)])
def test_reset_of_gru_from_3_on(opset, linear_before_reset):
    """Version 1 knows the equation alone in which the state is reset before its product."""
    one = np.ones((1, 1, 1), np.float32)
    r, b = f32([[[0], [0], [1]]]), f32([[0, 0, 0, 0, 0, 1]])
    options: dict[str, Any] = {"activations": ["Sigmoid", "Affine"], "hidden_size": 1}
    if linear_before_reset is not None:
        options["linear_before_reset"] = linear_before_reset
    _, last = run_node("GRU", [one, 0 * r, r, b, None, one], opset=opset, outputs=2, **options)
    assert_close(last, f32([[[1.0 if linear_before_reset else 1.25]]]))


GET = "(float[2] x) => (float[2] y) { y = OptionalGetElement(x) }"
HAS = "() => (bool y) { y = OptionalHasElement() }"


def test_optionals_from_18_on():
    """A tensor is one, and so is nothing."""
    assert_close(jaxonnx.load(text_model(GET, opset=18))(f32([1, 2])), f32([1, 2]))
    assert_close(jaxonnx.load(text_model(HAS, opset=18))(), np.array(False))
    with pytest.raises(InvalidModelError, match="0 inputs, expected 1"):
        jaxonnx.load(text_model(HAS, opset=15))()


@pytest.mark.parametrize(
    ("attribute", "first"), [("sparse_value", 11), ("value_int", 12), ("value_float", 12)]
)
def test_forms_of_constants(attribute, first):
    values = {
        "sparse_value": helper.make_sparse_tensor(
            numpy_helper.from_array(f32([3]), "v"), numpy_helper.from_array(i64([1]), "i"), [2]
        ),
        "value_int": 3,
        "value_float": 3.0,
    }
    expected = {"sparse_value": f32([0, 3]), "value_int": i64(3), "value_float": f32(3)}
    load = lambda opset: run_node("Constant", [], opset=opset, **{attribute: values[attribute]})
    assert_close(load(first)[0], expected[attribute])
    with pytest.raises(InvalidModelError, match=attribute):
        load({11: 9, 12: 11}[first])

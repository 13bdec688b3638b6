"""Where a version of an operator changed what it computes: both sides, by hand."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers import Case, by_case, check_case, f32, i64, run_node, strings, u8

from jaxonnx.errors import InvalidModelError, UnsupportedOpError

ROW = f32([[[1, 2, 3]]])
BLOCK = f32([[[1, 2], [4, 3]]])
SUMS: dict[str, Any] = {"kernel_shape": [2], "strides": [2]}
SLOPED = f32(-np.ones((1, 2, 2)))
COUNTED: dict[str, Any] = {"kernel_shape": [4], "strides": [2], "pads": [1, 1]}
COUNTED |= {"count_include_pad": 1}
TWICE = [f32([1, 2]), i64([0, 0]), f32([5, 6])]
PRODUCT = [f32([[1, 2]]), f32([[1], [1]]), f32([10])]

# Operator, opset, inputs, attributes, outputs.
CASES: list[Case] = [
    # The maximum is one of all axes from `axis` on before 13, of one axis since.
    ("Hardmax", 11, [BLOCK], {}, [f32([[[0, 0], [1, 0]]])]),
    ("Hardmax", 13, [BLOCK], {}, [f32([[[0, 1], [1, 0]]])]),
    # A window that is not full counts from 10 on if ceil_mode says so.
    ("MaxPool", 8, [ROW], SUMS, [f32([[[2]]])]),
    ("MaxPool", 10, [ROW], SUMS, [f32([[[2]]])]),
    ("MaxPool", 10, [ROW], SUMS | {"ceil_mode": 1}, [f32([[[2, 3]]])]),
    ("LpPool", 11, [f32([[[3, 4, 5]]])], SUMS, [f32([[[5]]])]),
    ("LpPool", 18, [f32([[[3, 4, 5]]])], SUMS | {"ceil_mode": 1}, [f32([[[5, 5]]])]),
    # The slope belongs to channels in 6, and broadcasts the last axes from 7 on.
    ("PRelu", 6, [SLOPED, f32([2, 3])], {}, [f32([[[-2, -2], [-3, -3]]])]),
    ("PRelu", 7, [SLOPED, f32([2, 3])], {}, [f32([[[-2, -3], [-2, -3]]])]),
    # C broadcasts if asked before 7, always from 7 on.
    ("Gemm", 1, PRODUCT, {"broadcast": 1}, [f32([[13]])]),
    ("Gemm", 6, PRODUCT, {"broadcast": 1}, [f32([[13]])]),
    ("Gemm", 7, PRODUCT, {}, [f32([[13]])]),
    # `axis` places the shorter operand before 7.
    (
        "Add",
        6,
        [f32(np.zeros((2, 2, 1))), f32([1, 2])],
        {"broadcast": 1, "axis": 1},
        [f32([[[1], [2]]] * 2)],
    ),
    ("Add", 7, [f32(np.zeros((2, 1))), f32([1, 2])], {}, [f32([[1, 2]] * 2)]),
    # The first maximum, and from 12 on the last one if asked for.
    ("ArgMax", 11, [f32([3, 3])], {"keepdims": 0}, [np.int64(0)]),
    ("ArgMax", 12, [f32([3, 3])], {"keepdims": 0}, [np.int64(0)]),
    ("ArgMax", 12, [f32([3, 3])], {"keepdims": 0, "select_last_index": 1}, [np.int64(1)]),
    ("ArgMin", 11, [f32([3, 3])], {"keepdims": 0}, [np.int64(0)]),
    ("ArgMin", 12, [f32([3, 3])], {"keepdims": 0, "select_last_index": 1}, [np.int64(1)]),
    # k is an attribute in 1 and an input from 10 on; `largest` came with 11.
    ("TopK", 1, [f32([1, 3, 2])], {"k": 2}, [f32([3, 2]), i64([1, 2])]),
    ("TopK", 10, [f32([1, 3, 2]), i64([2])], {}, [f32([3, 2]), i64([1, 2])]),
    ("TopK", 11, [f32([1, 3, 2]), i64([2])], {"largest": 0}, [f32([1, 2]), i64([0, 2])]),
    # Sizes are an attribute before 13, an input since; `num_outputs` came with 18.
    ("Split", 11, [f32([1, 2, 3])], {"split": [1, 2]}, [f32([1]), f32([2, 3])]),
    ("Split", 13, [f32([1, 2, 3]), i64([1, 2])], {}, [f32([1]), f32([2, 3])]),
    ("Split", 18, [f32([1, 2, 3])], {"num_outputs": 2}, [f32([1, 2]), f32([3])]),
    # `paddings`, `pads`, an input, and axes.
    ("Pad", 1, [f32([1, 2])], {"paddings": [1, 0], "value": 9.0}, [f32([9, 1, 2])]),
    ("Pad", 2, [f32([1, 2])], {"pads": [1, 0], "value": 9.0}, [f32([9, 1, 2])]),
    ("Pad", 11, [f32([1, 2]), i64([1, 0]), f32(9)], {}, [f32([9, 1, 2])]),
    ("Pad", 18, [f32([[1, 2]]), i64([1, 0]), f32(9), i64([-1])], {}, [f32([[9, 1, 2]])]),
    # Bounds are attributes before 11; NaN passes either way.
    ("Clip", 6, [f32([1, 2, np.nan])], {"min": 1.5}, [f32([1.5, 2, np.nan])]),
    ("Clip", 11, [f32([1, 2, np.nan]), f32(1.5)], {}, [f32([1.5, 2, np.nan])]),
    # The axis is an attribute before 20.
    ("DFT", 17, [f32([[[1], [2]]])], {"axis": 1}, [f32([[[3, 0], [-1, 0]]])]),
    ("DFT", 20, [f32([[[1], [2]]]), None, i64(1)], {}, [f32([[[3, 0], [-1, 0]]])]),
    # The ratio is an attribute before 12, an input since; neither matters where nothing is dropped.
    ("Dropout", 10, [f32([1, 2])], {"ratio": 0.75}, [f32([1, 2]), np.array([True, True])]),
    ("Dropout", 12, [f32([1, 2]), f32(0.75)], {}, [f32([1, 2]), np.array([True, True])]),
    # The type is a name in 1; strings are read from 9 on, float8 came with 19.
    ("Cast", 1, [f32([-1.5])], {"to": "INT32"}, [np.array([-1], np.int32)]),
    ("Cast", 6, [f32([-1.5])], {"to": 6}, [np.array([-1], np.int32)]),
    ("Cast", 9, [strings("1.5", "-INF")], {"to": 1}, [f32([1.5, -np.inf])]),
    ("Cast", 13, [f32([1.5])], {"to": 16}, [np.array([1.5], ml_dtypes.bfloat16)]),
    ("Cast", 19, [f32([1e3])], {"to": 17}, [np.array([448], ml_dtypes.float8_e4m3fn)]),
    (
        "Cast",
        19,
        [f32([1e3])],
        {"to": 17, "saturate": 0},
        [np.array([np.nan], ml_dtypes.float8_e4m3fn)],
    ),
    # Named ScatterElements from 11 on; it reduces from 16, by order from 18 on.
    ("Scatter", 9, [f32([1, 2]), i64([-1]), f32([5])], {}, [f32([1, 5])]),
    ("ScatterElements", 11, [f32([1, 2]), i64([-1]), f32([5])], {}, [f32([1, 5])]),
    ("ScatterElements", 16, TWICE, {"reduction": "add"}, [f32([12, 2])]),
    ("ScatterElements", 16, TWICE, {"reduction": "mul"}, [f32([30, 2])]),
    ("ScatterElements", 18, TWICE, {"reduction": "max"}, [f32([6, 2])]),
    ("ScatterElements", 18, TWICE, {"reduction": "min"}, [f32([1, 2])]),
    # Of what the last window covers, 4 and 5, padding counts, what is beyond it does not: 9 / 3.
    ("AveragePool", 7, [f32([[[1, 2, 3, 4, 5]]])], COUNTED, [f32([[[1.5, 3.5]]])]),
    *(
        (
            "AveragePool",
            opset,
            [f32([[[1, 2, 3, 4, 5]]])],
            COUNTED | {"ceil_mode": 1},
            [f32([[[1.5, 3.5, 3]]])],
        )
        for opset in (10, 11, 19, 22)
    ),
    # Integers are pooled from 12 on: their padding is the lowest number of the type.
    (
        "MaxPool",
        12,
        [u8([[[0, 3, 1]]])],
        {"kernel_shape": [2], "pads": [1, 1]},
        [u8([[[0, 3, 3, 1]]])],
    ),
]


@by_case(CASES)
def test_both_sides(case: Case):
    check_case(case)


@pytest.mark.parametrize(
    ("op_type", "opset", "inputs", "attributes", "error"),
    [
        ("Dropout", 10, [f32([1, 2]), f32(0.75)], {}, InvalidModelError),
        ("Dropout", 12, [f32([1, 2])], {"ratio": 0.75}, InvalidModelError),
        ("Cast", 6, [strings("1")], {"to": 1}, InvalidModelError),
        ("Cast", 13, [f32([1e3])], {"to": 17, "saturate": 0}, InvalidModelError),
        ("Scatter", 9, TWICE, {"reduction": "add"}, InvalidModelError),
        ("Scatter", 11, TWICE, {}, UnsupportedOpError),
        ("ScatterElements", 9, TWICE, {}, UnsupportedOpError),
        ("ScatterElements", 13, TWICE, {"reduction": "add"}, InvalidModelError),
        ("ScatterND", 13, TWICE, {"reduction": "add"}, InvalidModelError),
    ],
)
def test_what_the_other_side_of_a_boundary_has_is_refused(
    op_type: str, opset: int, inputs: list[Any], attributes: Any, error: Any
):
    with pytest.raises(error):
        run_node(op_type, inputs, opset=opset, **attributes)

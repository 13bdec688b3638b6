"""ConstantOfShape and Range, known and traced."""

from typing import Any

import jax
import numpy as np
import pytest
from helpers import assert_close, run_node

from jaxonnx import ops
from jaxonnx.errors import InvalidModelError


def scalar(value, dtype: Any = np.int64):
    return np.array(value, dtype)


def test_constant_of_shape():
    shape = np.array([2, 0, 3], np.int64)
    assert_close(run_node("ConstantOfShape", [shape], opset=9)[0], np.zeros((2, 0, 3), np.float32))
    fives = ops.constant_of_shape(np.array([2], np.int64), value=np.array([5], np.int8))
    assert_close(fives, np.array([5, 5], np.int8))
    assert_close(ops.constant_of_shape(np.array([], np.int64)), np.float32(0))


def test_constant_of_shape_errors():
    with pytest.raises(InvalidModelError, match=r"shape \[-1\] has a negative size"):
        ops.constant_of_shape(np.array([-1], np.int64))
    with pytest.raises(InvalidModelError, match="value has 2 elements, expected 1"):
        ops.constant_of_shape(np.array([1], np.int64), value=np.zeros(2))


@pytest.mark.parametrize(
    ("start", "limit", "delta", "expected"),
    [
        (3, 9, 3, [3, 6]),
        (10, 4, -2, [10, 8, 6]),
        (0, 0, 1, []),
        (5, 1, 1, []),
        (0, 5, 2, [0, 2, 4]),
    ],
)
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32, np.float64, np.int16])
@pytest.mark.parametrize("opset", [11, 27])
def test_range(start, limit, delta, expected, dtype, opset):
    inputs = [scalar(v, dtype) for v in (start, limit, delta)]
    assert_close(run_node("Range", inputs, opset=opset)[0], np.array(expected, dtype))


def test_range_in_half_precision_counts_beyond_2048():
    inputs = [scalar(v, np.float16) for v in (0, 2056, 1)]
    (y,) = run_node("Range", inputs, opset=27)
    assert_close(y, np.arange(2056).astype(np.float16))
    (y,) = run_node("Range", [scalar(v, np.float16) for v in (1, 2056, 1)], opset=27)
    assert_close(y, np.arange(1, 2056).astype(np.float16))


def test_range_refuses_a_step_of_0():
    with pytest.raises(InvalidModelError, match="delta is 0"):
        ops.range(scalar(0), scalar(3), scalar(0))


def test_a_large_range_is_no_literal():
    inputs = [scalar(v) for v in (0, 100_000, 1)]
    function = lambda x: x + ops.range(*inputs)[:2]
    with jax.enable_x64(True):
        text = jax.jit(function).lower(np.zeros(2, np.int64)).as_text()
    assert len(text) < 5_000

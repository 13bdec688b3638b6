"""What the specification leaves open or contradicts: each line of ``docs/choices.md``."""

import pathlib
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers import assert_close, assert_same, f32, i64, run_node, text_model

import jaxonnx
from jaxonnx.errors import InvalidModelError

NAN, INF = np.nan, np.inf
EMPTY = np.zeros((2, 0), np.float32)
OVERLAP = f32([[[0, 0, 1, 1], [0, 5, 1, 6]]])
TWO = f32([[1, 2], [3, 4]])
IGNORED: dict[str, Any] = {"opset": 13, "ignore_index": -1}

# Operator, inputs, attributes, outputs.
CASES: list[tuple[str, list[Any], dict[str, Any], list[Any]]] = [
    ("ArgMax", [f32([2, NAN, 3, NAN])], {"opset": 13}, [i64([1])]),
    ("ArgMin", [f32([2, NAN, 3, NAN])], {"opset": 13, "select_last_index": 1}, [i64([3])]),
    (
        "Cast",
        [f32([1.5, -1.5, 9.7, -0.5])],
        {"opset": 21, "to": 22},
        [np.array([1, -1, -7, 0], np.int32).astype(ml_dtypes.int4)],
    ),
    ("LpNormalization", [f32([[0, 0]])], {"opset": 22}, [f32([[0, 0]])]),
    ("NegativeLogLikelihoodLoss", [TWO, i64([-1, -1])], IGNORED, [f32(NAN)]),
    ("SoftmaxCrossEntropyLoss", [TWO, i64([-1, -1])], IGNORED, [f32(NAN)]),
    (
        "Pad",
        [f32([0, 1]), i64([4, 0])],
        {"opset": 13, "mode": "reflect"},
        [f32([0, 1, 0, 1, 0, 1])],
    ),
    (
        "Pad",
        [f32([1, 2, 3]), i64([-1, 2])],
        {"opset": 13, "mode": "reflect"},
        [f32([2, 3, 2, 3])],
    ),
    ("ReduceMean", [EMPTY, i64([1])], {"opset": 18}, [f32([[NAN], [NAN]])]),
    *(
        (
            "Resize",
            [f32([3, 5, 7, 9]), None, None, i64([1])],
            {"opset": 19, "mode": mode, "coordinate_transformation_mode": "pytorch_half_pixel"},
            [f32([3])],
        )
        for mode in ("nearest", "linear", "cubic")
    ),
    (
        "Split",
        [f32([1, 2, 3, 4])],
        {"opset": 18, "num_outputs": 3},
        [f32([1, 2]), f32([3, 4]), f32([])],
    ),
    ("TopK", [f32([2, NAN, INF]), i64([2])], {"opset": 24}, [f32([NAN, INF]), i64([1, 2])]),
    (
        "TopK",
        [f32([2, NAN, INF]), i64([2])],
        {"opset": 24, "largest": 0},
        [f32([2, INF]), i64([0, 2])],
    ),
    ("Unique", [f32([NAN, 1, NAN])], {"opset": 11}, [f32([1, NAN])]),
    *(
        ("Clip", [f32([-INF, INF]), None, f32(2)], {"opset": opset}, [f32([-INF, 2])])
        for opset in (11, 12, 13)
    ),
    *(
        (
            "Clip",
            [f32([-INF, INF])],
            {"opset": opset, "max": 2.0},
            [f32([np.finfo(np.float32).min, 2])],
        )
        for opset in (1, 6)
    ),
    *(
        (
            "ConvTranspose",
            [f32([[[1, 2]]]), f32([[[1, 10, 100]]])],
            {"opset": opset, "strides": [2], "output_shape": [4], "auto_pad": "SAME_UPPER"},
            [f32([[[1, 10, 102, 20]]])],
        )
        for opset in (1, 11)
    ),
    (
        "NonMaxSuppression",
        [OVERLAP, f32([[[0.5, 0.25]]]), i64(2), f32(0.5), f32(0.25)],
        {"opset": 11},
        [i64([[0, 0, 0]])],
    ),
]


@pytest.mark.parametrize(
    ("op_type", "inputs", "options", "expected"),
    CASES,
    ids=[f"{case[0]}-{k}" for k, case in enumerate(CASES)],
)
def test_values(op_type, inputs, options, expected):
    with np.errstate(invalid="ignore"):
        results = run_node(op_type, inputs, outputs=len(expected), **options)
    for actual, right in zip(results, expected, strict=True):
        (assert_same if right.dtype == ml_dtypes.int4 else assert_close)(actual, right)


@pytest.mark.parametrize("opset", [19, 21, 23, 24, 25])
@pytest.mark.parametrize(("to", "most"), [(17, 448), (18, 240), (19, 57344), (20, 57344)])
def test_infinity_saturates_as_float8(opset, to, most):
    (y,) = run_node("Cast", [f32([INF, -INF])], opset=opset, to=to)
    assert y.astype(np.float32).tolist() == [most, -most]


@pytest.mark.parametrize(
    ("op_type", "inputs", "options", "message"),
    [
        (
            "Einsum",
            [f32([[1, 2]]), f32([[[1, 2]]])],
            {"opset": 12, "equation": "...i,...i->..."},
            "differ in rank",
        ),
        ("Split", [f32([1, 2, 3, 4, 5])], {"opset": 18, "num_outputs": 4}, "fewer than 4 parts of"),
        ("Split", [f32([1])], {"opset": 18, "num_outputs": 3}, "fewer than 3 parts of 1"),
    ],
)
def test_errors(op_type, inputs, options, message):
    with pytest.raises(InvalidModelError, match=message):
        run_node(op_type, inputs, outputs=options.get("num_outputs", 1), **options)


def test_one_of_the_updates_stays():
    data, updates = f32([1, 2]), f32([5, 6])
    (y,) = run_node("ScatterElements", [data, i64([0, 0]), updates], opset=18)
    assert y[0] in updates
    assert y[1] == 2
    (y,) = run_node("ScatterND", [data, i64([[0], [0]]), updates], opset=18)
    assert y[0] in updates


def test_parts_of_a_sequence_may_be_empty():
    model = text_model(
        """(float[3] x) => (float[N] a, float[M] b) <int64[3] sizes = {0, 3, 0}, int64 first = {0},
        int64 next = {1}> {
            parts = SplitToSequence(x, sizes)
            a = SequenceAt(parts, first)
            b = SequenceAt(parts, next)
        }"""
    )
    a, b = jaxonnx.load(model)(f32([1, 2, 3]))
    assert_close(a, f32([]))
    assert_close(b, f32([1, 2, 3]))


def test_every_operator_of_the_document_is_here():
    text = (pathlib.Path(__file__).parents[2] / "docs" / "choices.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z][\w, ]*?)(?: \d.*?)? \|", text, re.MULTILINE)
    named = {name for row in rows for name in row.split(", ")}
    elsewhere = {"Einsum", "ScatterElements", "ScatterND", "SplitToSequence"}
    assert named == {case[0] for case in CASES} | elsewhere

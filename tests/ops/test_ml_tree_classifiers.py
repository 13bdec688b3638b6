"""Classifiers of trees: votes, labels and errors."""

from typing import Any

import numpy as np
import pytest
from helpers import assert_close, f32, i64, node_model, onnxruntime
from stumps import CLASSES, DOMAIN, X, classify

from jaxonnx.errors import InvalidModelError


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("weights", [(0.2, 0.7), (-0.2, 0.7), (0.5, 0.1)])
@pytest.mark.parametrize("classes", [(0, 0), (1, 1)])
@pytest.mark.parametrize("base", [(), (0.25,)])
def test_votes_for_one_of_two_classes_as_onnxruntime(transform, weights, classes, base):
    if base and classes[0]:
        return  # refused, see below
    attributes: dict[str, Any] = CLASSES | {
        "class_ids": classes,
        "class_nodeids": (1, 2),
        "class_weights": weights,
        "classlabels_int64s": (5, 7),
        "post_transform": transform,
    }
    attributes |= {"base_values": base} if base else {}
    model = node_model(
        "TreeEnsembleClassifier", [X], opset=3, outputs=2, domain=DOMAIN, **attributes
    )
    label, scores = classify(**attributes)
    expected = onnxruntime(model, X)
    assert_close(scores, np.asarray(expected[1]))
    if transform != "LOGISTIC" or min(weights) < 0:
        assert_close(label, np.asarray(expected[0]))
    elif classes[0] == 0:  # onnxruntime compares what is no probability yet with 1/2
        assert_close(label, np.where(scores[:, 1] > 0.5, i64(7), i64(5)))


def test_probit_of_one_of_two_classes():
    attributes: dict[str, Any] = {
        "class_ids": (0, 0),
        "class_nodeids": (1, 2),
        "class_weights": (0.5, 0.7),
    }
    _, scores = classify(classlabels_int64s=(0, 1), post_transform="PROBIT", **attributes)
    assert_close(scores[1:3], f32([[0, 0], [-0.5244459, 0.5244459]]), scale=10)


def test_the_best_of_several_classes():
    """onnxruntime gives label 1 wherever both of two classes have votes, whatever the labels."""
    attributes: dict[str, Any] = {
        "class_ids": (0, 1, 0, 1),
        "class_nodeids": (1, 1, 2, 2),
        "class_treeids": (0, 0, 0, 0),
        "class_weights": (0.2, 0.8, 0.7, 0.3),
    }
    label, scores = classify(classlabels_int64s=(5, 7), **attributes)
    assert_close(label, i64([7, 7, 5, 5]))
    assert_close(scores, f32([[0.2, 0.8], [0.2, 0.8], [0.7, 0.3], [0.7, 0.3]]))
    label, scores = classify(classlabels_strings=("a", "b"), base_values=(1.0, 0.0), **attributes)
    assert label.tolist() == ["a"] * 4
    assert_close(scores[0], f32([1.2, 0.8]))
    label, scores = classify(classlabels_int64s=(5, 7, 9), **attributes)
    assert_close(label, i64([7, 7, 5, 5]))
    assert_close(scores[0], f32([0.2, 0.8, 0]))


def test_a_single_class():
    attributes: dict[str, Any] = {
        "class_ids": (0, 0),
        "class_nodeids": (1, 2),
        "class_weights": (0.2, -0.7),
    }
    label, scores = classify(classlabels_int64s=(5,), **attributes)
    assert_close(label, i64([1, 1, 0, 0]))
    assert_close(scores, f32([[0.2], [0.2], [-0.7], [-0.7]]))
    assert classify(classlabels_strings=("a",), **attributes)[0].tolist() == ["1", "1", "0", "0"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, r"exactly one of the classlabels_\*"),
        ({"classlabels_int64s": (1, 2), "base_values": (1.0,) * 3}, "base_values has 3 elements"),
        ({"classlabels_int64s": (1, 2), "class_ids": (1, 1), "base_values": (1.0,)}, "expected 2"),
    ],
)
def test_errors_of_classifiers(changes, text):
    attributes: dict[str, Any] = {
        "class_ids": (0, 0),
        "class_nodeids": (1, 2),
        "class_weights": (0.2, 0.7),
    }
    with pytest.raises(InvalidModelError, match=text):
        classify(**(attributes | changes))

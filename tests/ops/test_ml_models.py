"""Models of scikit-learn, LightGBM and XGBoost as users convert them (see ``data/ml/make.py``)."""

import json
import pathlib
from typing import Any

import jax
import numpy as np
import onnx
import pytest
from helpers import onnxruntime

import jaxonnx
from jaxonnx.define.dtypes import STRING

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "ml"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


def array(column, string: Any = STRING):
    dtype = string if column["dtype"] == "string" else column["dtype"]
    return np.array(column["data"], dtype).reshape(column["shape"])


def load(name):
    model = jaxonnx.load(FOLDER / f"{name}.onnx")
    return model, dict(zip(model.input_names, EXPECTED[name]["inputs"].values(), strict=True))


def flat(value):
    """Numbers or strings in one row; those of maps in the order of their keys."""
    if isinstance(value, list):
        return np.array([[*row.values()] for row in value]).ravel()
    value = np.asarray(value)
    return value.astype(object).ravel() if value.dtype.kind in "TO" else value.ravel()


def assert_same(actual, expected, tolerance):
    if expected.dtype == object:
        assert actual.tolist() == expected.tolist()
    else:
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def test_the_files_are_those_expected():
    assert {p.stem for p in FOLDER.glob("*.onnx")} == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_predictions_are_those_of_the_library_and_of_onnxruntime(name):
    model, columns = load(name)
    outputs = model({n: array(c) for n, c in columns.items()})
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    for output, column in zip(outputs, EXPECTED[name]["expected"].values(), strict=False):
        assert_same(flat(output), flat(array(column, object)), 1e-4)
    proto = onnx.load(FOLDER / f"{name}.onnx")
    names = [i.name for i in proto.graph.input]
    oracle = onnxruntime(proto, *(array(columns[n], object) for n in names))
    for output, value in zip(outputs, oracle, strict=True):
        assert_same(flat(output), flat(value), 1e-5)


def test_labels_that_are_strings_leave_the_rest_compiled():
    model, columns = load("columns_logistic_maps")
    planned = repr(model.schedule())
    on_host = " ".join(r for p in model.schedule() if not p.compiled for r in p.reasons)
    assert "LinearClassifier-1" not in on_host
    assert "Scaler-1" not in on_host
    assert "LabelEncoder-2" in on_host
    model({n: array(c) for n, c in columns.items()})
    assert repr(model.schedule()) == planned


def test_scores_can_be_compiled_and_differentiated_where_labels_are_strings():
    proto = onnx.load(FOLDER / "forest_multi.onnx")
    del proto.graph.output[0]
    model = jaxonnx.load(proto)
    (column,) = EXPECTED["forest_multi"]["inputs"].values()
    x = array(column)
    scores = jax.jit(model)(x)
    assert_same(flat(scores), array(EXPECTED["forest_multi"]["expected"]["scores"]).ravel(), 1e-5)


def test_derivative_of_a_support_vector_machine():
    model, columns = load("svr")
    (column,) = columns.values()
    x = array(column)[:1]
    gradient = np.asarray(jax.grad(lambda v: model(v).sum())(x))
    step = np.eye(5, dtype=np.float32) * 1e-2
    slopes = [(model(x + s) - model(x - s)).item() / 2e-2 for s in step]
    np.testing.assert_allclose(gradient[0], slopes, rtol=1e-2, atol=1e-3)

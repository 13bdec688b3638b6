"""Maps and label encoders of ``ai.onnx.ml``."""

import jax
import numpy as np
import onnx
import pytest
from helpers import assert_close, f32, i64, run_node, strings, text_model

import jaxonnx
from jaxonnx.define.dtypes import STRING
from jaxonnx.errors import InputError, InvalidModelError
from jaxonnx.ops import ml

DOMAIN = "ai.onnx.ml"


def load(text):
    return jaxonnx.load(text_model(text))


def encode(x, version, **attributes):
    """What a LabelEncoder gives in a model, and as a function of traced values if it can."""
    (y,) = run_node("LabelEncoder", [x], opset=version, domain=DOMAIN, **attributes)
    return y


AMY = {"keys_strings": ["Amy", "Sally"], "values_int64s": [5, 6], "default_int64": -1}


@pytest.mark.parametrize("version", [2, 4])
def test_strings_to_integers(version):
    y = encode(strings("Dori", "Amy", "Amy", "Sally", "Sally"), version, **AMY)
    assert_close(y, i64([-1, 5, 5, 6, 6]))
    assert_close(encode(np.array("Amy", STRING), version, **AMY), i64(5))


@pytest.mark.parametrize("version", [2, 4])
def test_integers_to_strings(version):
    y = encode(i64([[1, 2], [3, 1]]), version, keys_int64s=[1, 2], values_strings=["a", "b"])
    assert y.tolist() == [["a", "b"], ["_Unused", "a"]]
    y = encode(f32([np.nan, 1]), version, keys_floats=[np.nan], values_strings=["none"])
    assert y.tolist() == ["none", "_Unused"]


@pytest.mark.parametrize("version", [2, 4])
def test_numbers_to_numbers(version):
    """The reference does not find NaN."""
    table = {"keys_floats": [2.0, np.nan, -1.0], "values_int64s": [20, 30, 10]}
    x = f32([[-1, 2], [np.nan, 3]])
    assert_close(encode(x, version, **table), i64([[10, 20], [30, -1]]))
    assert_close(encode(x[:0], version, **table), np.zeros((0, 2), np.int64))
    table = {"keys_int64s": [3, 1], "values_floats": [0.5, 1.5], "default_float": 9.0}
    assert_close(encode(i64([1, 2, 3]), version, **table), f32([1.5, 9, 0.5]))


def test_signs_of_zero():
    """Version 2 compares bits, version 4 values."""
    table = {"keys_floats": [0.0], "values_int64s": [1]}
    assert_close(encode(f32([0.0, -0.0]), 2, **table), i64([1, -1]))
    assert_close(encode(f32([0.0, -0.0]), 4, **table), i64([1, 1]))


def test_the_last_of_equal_keys_counts():
    assert_close(encode(i64([7]), 4, keys_int64s=[7, 7], values_int64s=[1, 2]), i64([2]))
    table = {"keys_strings": ["a", "a"], "values_floats": [1.0, 2.0]}
    assert_close(encode(strings("a"), 4, **table), f32([2]))


def tensor(values):
    if values.dtype == STRING:
        values = values.astype(object)
    return onnx.numpy_helper.from_array(values)


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64, np.float32, np.float64])
def test_tables_as_tensors(dtype):
    table = {
        "keys_tensor": tensor(np.array([3, 1], dtype)),
        "values_tensor": tensor(np.array([30, 10], np.int16)),
        "default_tensor": tensor(np.array([-7], np.int16)),
    }
    assert_close(encode(np.array([1, 2, 3], dtype), 4, **table), np.array([10, -7, 30], np.int16))


def test_positions_and_classes():
    classes = {"classes_strings": ["a", "b"]}
    assert_close(encode(strings("b", "?", "a"), 1, default_int64=-9, **classes), i64([1, -9, 0]))
    y = encode(i64([1, 5, 0]), 1, default_string="?", **classes)
    assert y.tolist() == ["b", "?", "a"]


def test_encoding_inside_a_trace():
    keys, values = (1.0, float("nan")), (5.0, 7.0)

    def function(x):
        return ml.label_encoder(x, keys_floats=keys, values_floats=values)

    assert_close(jax.jit(function)(f32([1, np.nan, 2])), f32([5, 7, -0.0]))
    grads = jax.grad(lambda x: function(x).sum())(f32([1, 2]))
    assert_close(grads, f32([0, 0]))


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"keys_int64s": [1]}, r"0 of the values_\* are given"),
        ({"keys_int64s": [1], "keys_floats": [1.0]}, r"2 of the keys_\* are given"),
        ({"keys_int64s": [1], "values_int64s": [1, 2]}, "1 keys and 2 values"),
        ({"keys_floats": [1.0], "values_int64s": [1]}, "the input is int64, the keys are float32"),
    ],
)
def test_encoder_errors(attributes, text):
    with pytest.raises(InvalidModelError, match=text):
        encode(i64([1]), 4, **attributes)


def test_zip_map():
    model = load("""(float[N, C] x) => (seq(map(string, float)) z) {
      y = Neg(x)
      z = ai.onnx.ml.ZipMap <classlabels_strings = ["a", "b"]> (y)
    }""")
    rows = model(f32([[1, 2], [3, 4]]))
    assert [{k: float(v) for k, v in row.items()} for row in rows] == [
        {"a": -1, "b": -2},
        {"a": -3, "b": -4},
    ]
    assert all(type(v) is float for v in rows[0].values())
    assert str(model.outputs[0]) == "seq(map(string, float32[]))"
    assert model(np.zeros((0, 2), np.float32)) == []
    grads = jax.grad(lambda x: model(x)[1]["a"])(f32([[1, 2], [3, 4]]))
    assert_close(grads, f32([[0, 0], [-1, 0]]))


def test_zip_map_of_one_row_and_integers():
    assert ml.zip_map(f32([1, 2]), classlabels_int64s=(7, 9)) == [{7: 1.0, 9: 2.0}]


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({}, r"exactly one of the classlabels_\*"),
        ({"classlabels_int64s": (1,)}, r"1 labels for an input of shape \[1, 2\]"),
        ({"classlabels_int64s": (1, 2), "classlabels_strings": ("a", "b")}, "exactly one"),
    ],
)
def test_zip_map_errors(attributes, text):
    with pytest.raises(InvalidModelError, match=text):
        ml.zip_map(f32([[1, 2]]), **attributes)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, f32([[2, 1.5]])),
        ({"map_form": "SPARSE", "max_map": 5}, f32([[0, 2, 0, 1.5, 0]])),
        ({"cast_to": "TO_INT64"}, i64([[2, 1]])),
    ],
)
def test_cast_map(attributes, expected):
    assert_close(ml.cast_map({3: np.float32(1.5), 1: np.float32(2)}, **attributes), expected)


def test_cast_map_of_strings():
    assert_close(ml.cast_map({2: "0.5"}), f32([[0.5]]))
    y = ml.cast_map({1: np.float32(2)}, cast_to="TO_STRING", map_form="SPARSE", max_map=3)
    assert y.tolist() == [["", "2", ""]]


def test_cast_map_errors():
    with pytest.raises(InvalidModelError, match=r"keys \[5\] are outside of 3 columns"):
        ml.cast_map({5: np.float32(1)}, map_form="SPARSE", max_map=3)
    with pytest.raises(InvalidModelError, match="map_form 'sparse'"):
        ml.cast_map({}, map_form="sparse")


def test_dict_vectorizer():
    model = load("""(map(string, float) x) => (float[N] z) {
      y = ai.onnx.ml.DictVectorizer <string_vocabulary = ["a", "c", "b", "z"]> (x)
      z = Neg(y)
    }""")
    assert str(model.inputs[0]) == "map(string, float32[])"
    assert_close(model({"a": 4.0, "c": np.float32(8)}), f32([-4, -8, -0.0, -0.0]))
    assert_close(model(x={"z": 1}), f32([-0.0, -0.0, -0.0, -1]))
    assert_close(model({"x": {"b": 1}}), f32([-0.0, -0.0, -1, -0.0]))
    assert model._program.executor.compilations == 1
    grads = jax.grad(lambda x: model({"a": x})[0])(f32(3))
    assert_close(grads, f32(-1))


def test_dict_vectorizer_of_other_types():
    y = ml.dict_vectorizer({1: "x"}, int64_vocabulary=(2, 1))
    assert y.tolist() == ["", "x"]
    y = ml.dict_vectorizer({"b": np.float64(2)}, string_vocabulary=("a", "b"))
    assert_close(y, np.array([0.0, 2.0]))
    with pytest.raises(InvalidModelError, match="key 'c' is not in the vocabulary"):
        ml.dict_vectorizer({"c": 1.0}, string_vocabulary=("a", "b"))


@pytest.mark.parametrize("value", [{1: 2.0}, [1.0], f32(1)])
def test_wrong_maps(value):
    model = load("""(map(string, float) x) => (float[N] y) {
      y = ai.onnx.ml.DictVectorizer <string_vocabulary = ["a"]> (x)
    }""")
    with pytest.raises(InputError, match=r"expected map\(string, float32\[\]\)"):
        model(x=value)

"""Stored values: ``Constant`` nodes, sparse tensors and every encoding of dense ones."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from helpers import assert_close, f32, i64
from onnx import TensorProto, helper, numpy_helper

import jaxonnx
from jaxonnx.errors import InvalidModelError


def model_of(*nodes, stored=(), sparse=(), outputs=("y",)):
    """A model without inputs."""
    made = [onnx.ValueInfoProto(name=n) for n in outputs]
    graph = helper.make_graph(nodes, "g", [], made, stored, sparse_initializer=sparse)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


def constant(**attributes):
    return helper.make_node("Constant", [], ["y"], **attributes)


def sparse(values, indices, dims, name="w"):
    """A sparse tensor of float values."""
    return helper.make_sparse_tensor(
        numpy_helper.from_array(f32(values), name),
        numpy_helper.from_array(i64(indices), "indices"),
        dims,
    )


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"value": numpy_helper.from_array(i64([2**40, -1]))}, i64([2**40, -1])),
        ({"value": numpy_helper.from_array(np.array(0.1))}, np.float64(0.1)),
        ({"value_int": 2**40}, i64(2**40)),
        ({"value_ints": [1, 2]}, i64([1, 2])),
        ({"value_ints": []}, np.zeros(0, np.int64)),
        ({"value_float": 0.5}, f32(0.5)),
        ({"value_floats": [0.5, 2]}, f32([0.5, 2])),
        ({"sparse_value": sparse([3], [1], [3])}, f32([0, 3, 0])),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else None,
)
def test_constant_forms(attributes, expected):
    if attributes.get("value_ints") == []:
        node = constant(value_ints=[1])
        node.attribute[0].ClearField("ints")
    else:
        node = constant(**attributes)
    assert_close(jaxonnx.load(model_of(node))(), expected)


def test_two_nameless_constants_are_two_values():
    """[iree#20803] They were keyed by the empty name of their tensors once."""
    one, two = (numpy_helper.from_array(f32(v)) for v in (1, 2))
    nodes = [
        helper.make_node("Constant", [], ["a"], value=one),
        helper.make_node("Constant", [], ["b"], value=two),
        helper.make_node("Sub", ["a", "b"], ["y"]),
    ]
    assert_close(jaxonnx.load(model_of(*nodes))(), f32(-1))


def test_constant_whose_output_is_not_wanted():
    unwanted = helper.make_node("Constant", [], [""], value_int=1)
    assert_close(jaxonnx.load(model_of(unwanted, constant(value_int=2)))(), i64(2))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, "exactly one attribute is expected, found none"),
        ({"value_int": 1, "value_float": 1.0}, "exactly one attribute is expected, found 'value"),
        (
            {"val": 1},
            r"node giving 'y' \(Constant-24\): unknown attribute 'val'; it has sparse_val",
        ),
        ({"value_int": 1.0}, "attribute 'value_int' is float, expected INT"),
        ({"value": 1}, "attribute 'value' is int, expected TENSOR"),
    ],
)
def test_wrong_constants(attributes, message):
    with pytest.raises(InvalidModelError, match=message):
        jaxonnx.load(model_of(constant(**attributes)))


def test_constant_node_with_bytes_that_are_no_text():
    with pytest.raises(
        InvalidModelError, match=r"attribute 'value_string' of node .* is no text: 'utf-8'"
    ):
        jaxonnx.load(model_of(constant(value_string=b"\xff")))


@pytest.mark.parametrize(
    ("indices", "expected"),
    [([1, 5], [[0, 7, 0], [0, 0, 8]]), ([[0, 1], [1, 2]], [[0, 7, 0], [0, 0, 8]])],
    ids=["linear", "coordinates"],
)
def test_sparse_initializer(indices, expected):
    proto = model_of(sparse=[sparse([7, 8], indices, [2, 3])], outputs=["w"])
    model = jaxonnx.load(proto)
    assert_close(model(), f32(expected))
    assert list(model.params) == ["w"]


def test_empty_sparse_initializer():
    proto = model_of(sparse=[sparse([], [], [2])], outputs=["w"])
    assert_close(jaxonnx.load(proto)(), np.zeros(2, np.float32))


@pytest.mark.parametrize(
    ("values", "indices", "message"),
    [
        ([7], [6], r"'w' has indices outside its shape \[2, 3\]"),
        ([7], [-1], "'w' has indices outside its shape"),
        ([7], [[0, 3]], "'w' has indices outside its shape"),
        ([7], [[-1, 0]], "'w' has indices outside its shape"),
        ([7, 8], [1], r"has values of shape \[2\] and indices of shape \[1\]"),
        ([7], [[1]], r"has values of shape \[1\] and indices of shape \[1, 1\]"),
        ([7], [[0, 1, 2]], "indices of shape"),
        ([[7]], [1], "values of shape"),
    ],
)
def test_wrong_sparse_initializer(values, indices, message):
    with pytest.raises(InvalidModelError, match=message):
        jaxonnx.load(model_of(sparse=[sparse(values, indices, [2, 3])], outputs=["w"]))


@pytest.mark.parametrize("raw", [False, True], ids=["typed field", "raw data"])
@pytest.mark.parametrize(
    "dtype",
    [
        *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32),
        *(np.uint64, np.float16, np.float32, np.float64, np.complex64, np.complex128),
        *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4),
        *(ml_dtypes.uint4, ml_dtypes.float4_e2m1fn),
    ],
)
def test_dense_initializer_of_every_type(dtype, raw):
    value = np.array([0, 1, 3], np.float32).astype(dtype)
    elem = helper.np_dtype_to_tensor_dtype(value.dtype)
    stored = numpy_helper.from_array(value, "w")
    if not raw and value.dtype not in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float4_e2m1fn):
        numbers = [float(v) for v in value] if value.dtype.kind in "fV" else value.tolist()
        stored = helper.make_tensor("w", elem, value.shape, numbers)
    result = np.asarray(jaxonnx.load(model_of(stored=[stored], outputs=["w"]))())
    assert result.dtype == value.dtype
    assert result.tobytes() == value.tobytes()


def test_empty_and_scalar_initializers():
    stored = [
        numpy_helper.from_array(np.zeros((0, 3), np.float32), "e"),
        numpy_helper.from_array(f32(2), "s"),
    ]
    outputs = jaxonnx.load(model_of(stored=stored, outputs=["e", "s"]))()
    assert_close(outputs.e, np.zeros((0, 3), np.float32))
    assert_close(outputs.s, f32(2))


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (TensorProto(name="w", data_type=1, dims=[3], raw_data=b"\0" * 8), "'w' cannot be read"),
        (TensorProto(name="w", data_type=1, dims=[2], float_data=[1]), "'w' cannot be read"),
        (TensorProto(name="w", data_type=1, dims=[-1], raw_data=b"\0" * 8), r"dimensions \[-1\]"),
        (TensorProto(name="w", dims=[1]), "'w' cannot be read: The element type .* is UNDEFINED"),
        (TensorProto(name="w", data_type=99, dims=[1], raw_data=b"\0"), "'w' cannot be read"),
        (TensorProto(name="w", data_type=8, dims=[1], string_data=[b"\xff"]), "'w' cannot be read"),
    ],
)
def test_wrong_initializers(tensor, message):
    with pytest.raises(InvalidModelError, match=message):
        jaxonnx.load(model_of(stored=[tensor], outputs=["w"]))

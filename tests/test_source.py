"""What a model can be given as."""

import pathlib

import onnx
import onnx_ir
import pytest
from helpers import assert_close, f32
from onnx import helper, numpy_helper

import jaxonnx
from jaxonnx.errors import InputError, InvalidModelError

X = f32([-1, 2])


def proto():
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, ["N"])],
        [helper.make_tensor_value_info("y", 1, ["N"])],
        [numpy_helper.from_array(f32([10, 20]), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.mark.parametrize("kind", [str, pathlib.Path])
def test_path(tmp_path, kind):
    path = tmp_path / "a model.onnx"
    onnx.save(proto(), path)
    assert_close(jaxonnx.load(kind(path))(X), f32([9, 22]))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes(kind):
    assert_close(jaxonnx.load(kind(proto().SerializeToString()))(X), f32([9, 22]))


def test_proto():
    assert_close(jaxonnx.load(proto())(X), f32([9, 22]))


def test_onnx_ir():
    assert_close(jaxonnx.load(onnx_ir.from_proto(proto()))(X), f32([9, 22]))


def test_onnx_ir_with_external_data(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(proto(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    model = onnx_ir.load(path)
    assert_close(jaxonnx.load(model)(X), f32([9, 22]))
    stored = model.graph.initializers["w"].const_value
    assert isinstance(stored, onnx_ir.ExternalTensor)  # the caller's model is as it was


def test_onnx_ir_with_external_data_in_two_folders(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(proto(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    model = onnx_ir.load(path)
    stored = model.graph.initializers["w"].const_value
    assert isinstance(stored, onnx_ir.ExternalTensor)
    other = onnx_ir.ExternalTensor(
        "w.bin", 0, 8, onnx_ir.DataType.FLOAT, shape=stored.shape, name="v", base_dir="elsewhere"
    )
    model.graph.register_initializer(onnx_ir.val("v", const_value=other))
    with pytest.raises(InputError, match=r"external data in several folders: .*elsewhere"):
        jaxonnx.load(model)


def test_no_such_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        jaxonnx.load(tmp_path / "none.onnx")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the model has no graph; is this an ONNX model?"),
        (b"not a model at all", "the given data is not an ONNX model: "),
        (b"\x00\xff" * 50, "the given data is not an ONNX model: "),
        (proto().SerializeToString()[:-20], "the given data is not an ONNX model: "),
    ],
)
def test_no_model(data, message):
    with pytest.raises(InvalidModelError, match=message):
        jaxonnx.load(data)


def test_file_that_is_no_model(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(InvalidModelError, match=r"model\.onnx is not an ONNX model"):
        jaxonnx.load(path)
    path.write_bytes(b"")
    with pytest.raises(InvalidModelError, match="has no graph"):
        jaxonnx.load(path)


@pytest.mark.parametrize(
    ("source", "kind"), [(3, "int"), (None, "NoneType"), (proto().graph, "GraphProto")]
)
def test_something_else(source, kind):
    with pytest.raises(InputError) as caught:
        jaxonnx.load(source)
    assert str(caught.value) == (
        f"a model is given as a path, bytes, onnx.ModelProto or onnx_ir.Model, not as {kind}"
    )


def test_part_of_an_onnx_ir_model():
    with pytest.raises(InputError, match="not as Graph"):
        jaxonnx.load(onnx_ir.from_proto(proto()).graph)  # pyright: ignore[reportArgumentType]

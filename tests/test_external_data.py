"""Weights in files of their own: memory-mapped, and only from the model's own folder."""

import mmap
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from helpers import assert_close
from onnx import TensorProto, helper, numpy_helper

import jaxonnx
from jaxonnx.errors import InvalidModelError
from jaxonnx.read.tensors import decode

W = np.arange(6, dtype=np.float32).reshape(2, 3)


def external(dtype: Any = TensorProto.FLOAT, dims=(2, 3), **fields):
    """A tensor in another file."""
    tensor = TensorProto(name="w", data_type=dtype, dims=dims)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in fields.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def save(folder, tensor, nodes=(), output="w"):
    """A model that hands out the tensor, in ``folder``."""
    stored = [] if tensor is None else [tensor]
    graph = helper.make_graph(nodes, "g", [], [onnx.ValueInfoProto(name=output)], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def refused(path, message):
    with pytest.raises(InvalidModelError, match=message):
        jaxonnx.load(path)


def test_whole_file(tmp_path):
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    assert_close(jaxonnx.load(save(tmp_path, external(location="w.bin")))(), W)


def test_offset_and_length(tmp_path):
    (tmp_path / "w.bin").write_bytes(b"\1" * 5 + W.tobytes() + b"\2" * 7)
    path = save(tmp_path, external(location="w.bin", offset=5, length=24))
    assert_close(jaxonnx.load(path)(), W)


def test_folder_below_and_relative_path(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(W.tobytes())
    path = save(tmp_path, external(location="sub/w.bin"))
    monkeypatch.chdir(tmp_path)
    assert_close(jaxonnx.load(path.name)(), W)


def test_link_within_the_folder(tmp_path):
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    (tmp_path / "link.bin").symlink_to("w.bin")
    assert_close(jaxonnx.load(save(tmp_path, external(location="link.bin")))(), W)


def test_model_in_a_linked_folder(tmp_path):
    real = tmp_path / "real"
    real.mkdir()
    (real / "w.bin").write_bytes(W.tobytes())
    save(real, external(location="w.bin"))
    (tmp_path / "link").symlink_to(real)
    assert_close(jaxonnx.load(tmp_path / "link" / "m.onnx")(), W)


def test_constant_node(tmp_path):
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    node = helper.make_node("Constant", [], ["y"], value=external(location="w.bin"))
    assert_close(jaxonnx.load(save(tmp_path, None, [node], "y"))(), W)


def test_data_is_memory_mapped(tmp_path):
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    array = decode(external(location="w.bin"), [tmp_path])
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base, mmap.mmap)
    assert not array.flags.writeable


def test_empty_tensor(tmp_path):
    (tmp_path / "w.bin").write_bytes(b"")
    path = save(tmp_path, external(dims=(0, 3), location="w.bin", length=0))
    assert_close(jaxonnx.load(path)(), np.zeros((0, 3), np.float32))


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, np.int64, np.bool_, ml_dtypes.int4, ml_dtypes.uint4]
)
def test_other_types(tmp_path, dtype):
    """Two 4-bit integers share a byte; the last of an odd number has one of its own."""
    value = np.array([1, 0, 1, 1, 0], np.int8).astype(dtype)
    stored = numpy_helper.from_array(value)
    (tmp_path / "w.bin").write_bytes(b"\0" * 3 + stored.raw_data)
    path = save(tmp_path, external(stored.data_type, (5,), location="w.bin", offset=3))
    result = np.asarray(jaxonnx.load(path)())
    assert result.dtype == value.dtype
    assert result.tobytes() == value.tobytes()


@pytest.mark.parametrize("location", ["../secret.bin", "sub/../../secret.bin", "..", ""])
def test_path_that_leaves_the_folder(tmp_path, location):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(W.tobytes())
    refused(
        save(folder, external(location=location)),
        f"tensor 'w': its external data file {location!r} is not a path below the model's folder",
    )


def test_absolute_path(tmp_path):
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    path = save(tmp_path, external(location=tmp_path / "w.bin"))
    refused(path, r"tensor 'w': its external data file '/.*' is not a path below")


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_link_that_leaves_the_folder(tmp_path, linked):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.bin").write_bytes(W.tobytes())
    if linked == "file":
        (folder / "w.bin").symlink_to(tmp_path / "outside" / "secret.bin")
        location = "w.bin"
    else:
        (folder / "sub").symlink_to(tmp_path / "outside")
        location = "sub/secret.bin"
    refused(
        save(folder, external(location=location)),
        f"tensor 'w': its external data file {location!r} is a link that leaves the model's folder",
    )


def test_missing_file(tmp_path):
    path = save(tmp_path, external(location="none.bin"))
    refused(path, r"tensor 'w': its external data file 'none\.bin' does not exist")
    (tmp_path / "none.bin").mkdir()
    refused(path, "does not exist")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"offset": 4}, "tensor 'w' needs 24 bytes and is given 24 at offset 4 of the external"),
        ({"length": 20}, "needs 24 bytes and is given 20 at offset 0 .* which has 24"),
        ({"length": 28}, "needs 24 bytes and is given 28"),
        ({"offset": -4}, "at offset -4"),
        ({"offset": 2**70}, "at offset 1180591620717411303424"),
        ({"offset": "x"}, "tensor 'w' cannot be read: invalid literal for int"),
        ({"dims": (2**40, 2**40)}, "needs 4835703278458516698824704 bytes"),
        ({"dtype": TensorProto.STRING}, "tensor 'w' has no type that external data can have"),
        ({"dtype": TensorProto.UNDEFINED}, "tensor 'w' has no type that external data can have"),
        ({"location": "w\0.bin"}, "tensor 'w' cannot be read"),
    ],
)
def test_wrong_fields(tmp_path, fields, message):
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    refused(save(tmp_path, external(**{"location": "w.bin"} | fields)), message)


def test_model_without_a_folder(tmp_path):
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    data = save(tmp_path, external(location="w.bin")).read_bytes()
    message = "tensor 'w' lies in the external file 'w.bin', but the model was not read from a file"
    refused(data, message)
    refused(onnx.ModelProto.FromString(data), message)


def cached(folder):
    """A model in the way of caches: links in a folder per version to files named by digest."""
    blobs, snapshot = folder / "blobs", folder / "snapshots" / "rev" / "onnx"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (blobs / "data").write_bytes(W.tobytes())
    (snapshot / "model.onnx_data").symlink_to("../../../blobs/data")
    save(blobs, external(location="model.onnx_data")).rename(blobs / "graph")
    (snapshot / "model.onnx").symlink_to("../../../blobs/graph")
    return snapshot / "model.onnx"


def test_cache_of_links(tmp_path):
    assert_close(jaxonnx.load(cached(tmp_path))(), W)


def test_cache_of_links_by_way_of_another_link(tmp_path):
    path = cached(tmp_path)
    (tmp_path / "mine.onnx").symlink_to(path)
    assert_close(jaxonnx.load(tmp_path / "mine.onnx")(), W)


def test_link_to_a_model_finds_the_data_beside_that_one(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "w.bin").write_bytes(W.tobytes())
    (tmp_path / "m.onnx").symlink_to(save(tmp_path / "real", external(location="w.bin")))
    assert_close(jaxonnx.load(tmp_path / "m.onnx")(), W)
    (tmp_path / "w.bin").write_bytes((W + 1).tobytes())  # what lies beside the link goes first
    assert_close(jaxonnx.load(tmp_path / "m.onnx")(), W + 1)


def test_path_up_and_down_within_the_folder(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    path = save(tmp_path, external(location="sub/../w.bin"))
    assert_close(jaxonnx.load(path)(), W)
    assert_close(jaxonnx.load(tmp_path / "sub" / ".." / path.name)(), W)


def test_link_to_a_model_by_way_of_a_folder_above(tmp_path):
    path = cached(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "m.onnx").symlink_to(path)
    assert_close(jaxonnx.load(tmp_path / "sub" / ".." / "sub" / "m.onnx")(), W)


@pytest.mark.parametrize("location", ["../secret.bin", "sub/../../secret.bin", "/etc/hostname"])
def test_link_to_a_model_opens_no_other_path(tmp_path, location):
    (tmp_path / "real").mkdir()
    (tmp_path / "secret.bin").write_bytes(W.tobytes())
    (tmp_path / "m.onnx").symlink_to(save(tmp_path / "real", external(location=location)))
    refused(tmp_path / "m.onnx", "is not a path below the model's folder")


def test_cache_of_links_does_not_leave_its_folders(tmp_path):
    path = cached(tmp_path)
    (tmp_path / "secret.bin").write_bytes(W.tobytes())
    link = path.parent / "model.onnx_data"
    link.unlink()
    link.symlink_to(tmp_path / "secret.bin")
    refused(path, "is a link that leaves the model's folder")


def test_link_to_data_leaves_the_folder_where_the_model_is_no_link(tmp_path):
    path = cached(tmp_path)
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    refused(path, "is a link that leaves the model's folder")

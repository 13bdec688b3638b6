"""Reads what a user calls a model into a ``ModelProto``."""

import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx
from google.protobuf.message import DecodeError

from jaxonnx.errors import InputError, InvalidModelError

if TYPE_CHECKING:
    import onnx_ir


def read(
    source: "str | os.PathLike[str] | bytes | onnx.ModelProto | onnx_ir.Model",
) -> tuple[onnx.ModelProto, Sequence[pathlib.Path]]:
    """The model and the folders that its external data may be in; none if it is from no file.

    Raises:
        InputError: if ``source`` is none of the accepted types.
        InvalidModelError: if it is no ONNX model.
        OSError: if the file cannot be read.
    """
    folders: Sequence[pathlib.Path] = ()
    if isinstance(source, (str, os.PathLike)):
        path = pathlib.Path(source)
        proto, folders = _parse(path.read_bytes(), str(path)), folders_of(path)
    elif isinstance(source, (bytes, bytearray, memoryview)):
        proto = _parse(bytes(source), "the given data")
    elif isinstance(source, onnx.ModelProto):
        proto = source
    elif type(source).__module__.startswith("onnx_ir"):
        proto, folders = _from_ir(source)
    else:
        raise _refused(source)
    if not proto.HasField("graph"):
        raise InvalidModelError("the model has no graph; is this an ONNX model?")
    return proto, folders


def folders_of(path: pathlib.Path) -> Sequence[pathlib.Path]:
    """The folder of a file, and those of the files that it leads to where it is a link."""
    folders = [path.parent]
    while path.is_symlink():
        path = path.parent / path.readlink()
        folders.append(path.parent)
    return folders


def _refused(source: Any) -> InputError:
    return InputError(
        "a model is given as a path, bytes, onnx.ModelProto or onnx_ir.Model, not as "
        f"{type(source).__name__}"
    )


def _parse(data: bytes, name: str) -> onnx.ModelProto:
    try:
        return onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise InvalidModelError(f"{name} is not an ONNX model: {error}") from error


def _from_ir(source: Any) -> tuple[onnx.ModelProto, Sequence[pathlib.Path]]:
    import onnx_ir as ir  # noqa: PLC0415 - only for its own models

    if not isinstance(source, ir.Model):
        raise _refused(source)
    stored = [v.const_value for g in source.graphs() for v in g.initializers.values()]
    folders = {pathlib.Path(t.base_dir) for t in stored if isinstance(t, ir.ExternalTensor)}
    if len(folders) > 1:
        listed = ", ".join(sorted(map(str, folders)))
        raise InputError(f"the model has external data in several folders: {listed}")
    return ir.to_proto(source), [*folders]

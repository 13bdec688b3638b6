"""Reads what a user calls a model into a ``ModelProto``."""

import os
import pathlib
from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import DecodeError

from jaxonnx.errors import InputError, InvalidModelError

if TYPE_CHECKING:
    import onnx_ir

type_names = "a path, bytes, onnx.ModelProto or onnx_ir.Model"
ModelSource = "str | os.PathLike[str] | bytes | onnx.ModelProto | onnx_ir.Model"


def read(
    source: "str | os.PathLike[str] | bytes | onnx.ModelProto | onnx_ir.Model",
) -> tuple[onnx.ModelProto, pathlib.Path | None]:
    """The model and the folder of its external data (None if it did not come from a file).

    Raises:
        InputError: if ``source`` is none of the accepted types.
        InvalidModelError: if it is no ONNX model.
        FileNotFoundError: if there is no such file.
    """
    folder = None
    if isinstance(source, (str, os.PathLike)):
        path = pathlib.Path(source)
        folder, data = path.parent, path.read_bytes()
        proto = _parse(data, str(path))
    elif isinstance(source, (bytes, bytearray, memoryview)):
        proto = _parse(bytes(source), "the given bytes")
    elif isinstance(source, onnx.ModelProto):
        proto = source
    elif type(source).__module__.startswith("onnx_ir"):
        import onnx_ir as ir  # noqa: PLC0415 - only for its own models

        proto = ir.to_proto(ir.external_data.load_to_model(source))
    else:
        raise InputError(f"a model is given as {type_names}, not as {type(source).__name__}")
    if not proto.HasField("graph"):
        raise InvalidModelError("the model has no graph; is this an ONNX model?")
    return proto, folder


def _parse(data: bytes, name: str) -> onnx.ModelProto:
    try:
        return onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise InvalidModelError(f"{name} is not an ONNX model: {error}") from error

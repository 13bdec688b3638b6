"""ONNX models as jitted, differentiable JAX callables."""

from jaxonnx import errors, lora, ops
from jaxonnx.define.convention import derivatives
from jaxonnx.define.padded import Padded
from jaxonnx.define.registry import register
from jaxonnx.errors import (
    DataDependentShapeError,
    InputError,
    InvalidModelError,
    JaxonnxError,
    PrecisionError,
    StaticValueError,
    UnpaddableError,
    UnsupportedOpError,
)
from jaxonnx.graph.plan import Spec
from jaxonnx.loading import load
from jaxonnx.model import Model
from jaxonnx.run.outputs import Outputs

__all__ = [
    "DataDependentShapeError",
    "InputError",
    "InvalidModelError",
    "JaxonnxError",
    "Model",
    "Outputs",
    "Padded",
    "PrecisionError",
    "Spec",
    "StaticValueError",
    "UnpaddableError",
    "UnsupportedOpError",
    "derivatives",
    "errors",
    "load",
    "lora",
    "ops",
    "register",
]

__version__ = "0.1.0"


def __dir__() -> list[str]:
    """The public names, without those of the modules that they come from."""
    return [*__all__, "__version__"]

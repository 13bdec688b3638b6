"""ONNX models as jitted, differentiable JAX callables."""

from jaxonnx import errors as errors
from jaxonnx import ops as ops
from jaxonnx.define.padded import Padded as Padded
from jaxonnx.define.registry import register as register
from jaxonnx.model import Model as Model
from jaxonnx.model import load as load

__version__ = "0.1.0"

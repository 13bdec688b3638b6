"""Every ONNX operator as a pure JAX function under its snake_case name."""

from jaxonnx.ops.activation import *

"""The operators of ONNX's domain ``ai.onnx.ml`` under their snake_case names."""

from jaxonnx.ops.ml.labels import *
from jaxonnx.ops.ml.linear import *
from jaxonnx.ops.ml.maps import *
from jaxonnx.ops.ml.preprocessing import *
from jaxonnx.ops.ml.svm import *
from jaxonnx.ops.ml.trees import *

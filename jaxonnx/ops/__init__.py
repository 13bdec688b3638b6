"""Every ONNX operator as a pure JAX function under its snake_case name."""

from jaxonnx.ops import ml as ml
from jaxonnx.ops import recognised as recognised
from jaxonnx.ops import training as training
from jaxonnx.ops.activation import *
from jaxonnx.ops.attention import *
from jaxonnx.ops.casting import *
from jaxonnx.ops.comparison import *
from jaxonnx.ops.control_flow import *
from jaxonnx.ops.convolution import *
from jaxonnx.ops.creation import *
from jaxonnx.ops.cumulative import *
from jaxonnx.ops.decoding import *
from jaxonnx.ops.detection import *
from jaxonnx.ops.elementwise import *
from jaxonnx.ops.image import *
from jaxonnx.ops.indexing import *
from jaxonnx.ops.matmul import *
from jaxonnx.ops.movement import *
from jaxonnx.ops.normalization import *
from jaxonnx.ops.padding import *
from jaxonnx.ops.pooling import *
from jaxonnx.ops.quantization import *
from jaxonnx.ops.random import *
from jaxonnx.ops.recurrent import *
from jaxonnx.ops.reduction import *
from jaxonnx.ops.resize import *
from jaxonnx.ops.sampling import *
from jaxonnx.ops.sequence import *
from jaxonnx.ops.signal import *
from jaxonnx.ops.slicing import *
from jaxonnx.ops.sorting import *
from jaxonnx.ops.text import *
from jaxonnx.ops.transcendental import *

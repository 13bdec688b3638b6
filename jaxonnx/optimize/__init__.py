"""Graph passes: each takes a graph and gives one that computes the same."""

from jaxonnx.optimize.fold import fold_constants as fold_constants
from jaxonnx.optimize.labels import split_labels as split_labels
from jaxonnx.optimize.patterns import recognised as recognised
from jaxonnx.optimize.training import in_training as in_training

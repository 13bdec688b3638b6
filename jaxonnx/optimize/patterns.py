"""Functions that exporters spell out, recognised by what they are; ``docs/patterns.md`` lists them.

What is meant is part of the model, so this is done whatever else is not.
"""

from jaxonnx.graph.plan import Graph
from jaxonnx.optimize.arctangents import whole_angles
from jaxonnx.optimize.logarithms import stable_logarithms
from jaxonnx.optimize.norms import settle_norms


def recognised(graph: Graph) -> Graph:
    """``graph`` that computes what its nodes spell out; no value loses its name."""
    return settle_norms(stable_logarithms(whole_angles(graph)))

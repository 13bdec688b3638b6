"""Functions that exporters spell out, recognised by what they are; ``docs/patterns.md`` lists them.

What is meant is part of the model, so this is done whatever else is not.
"""

from jaxonnx.graph.plan import Graph
from jaxonnx.optimize.norms import settle_norms


def recognised(graph: Graph) -> Graph:
    """``graph`` with the derivatives of what its nodes spell out; no value loses its name."""
    return settle_norms(graph)

"""Functions that exporters spell out, recognised by what they are; ``docs/patterns.md`` lists them.

What is meant is part of the model, so this is done whatever else is not.
"""

from collections.abc import Callable

from jaxonnx.graph.plan import Graph
from jaxonnx.optimize.arctangents import whole_angles
from jaxonnx.optimize.logarithms import stable_logarithms
from jaxonnx.optimize.norms import settle_norms

_PASSES: tuple[tuple[Callable[[Graph], Graph], frozenset[str]], ...] = (
    (whole_angles, frozenset({"Atan"})),
    (stable_logarithms, frozenset({"Log"})),
    (settle_norms, frozenset({"Pow", "Sqrt"})),
)
"""What is done, each with the operators without one of which there is nothing to do."""


def recognised(graph: Graph) -> Graph:
    """``graph`` that computes what its nodes spell out; no value loses its name."""
    present = {node.op_type for node in graph.all_nodes}
    for run, needed in _PASSES:
        graph = run(graph) if present & needed else graph
    return graph

"""Which stored values are parameters and which are constants."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from jaxonnx.graph.plan import Graph

CONSTANT_PARAMETER_BYTES = 8 * 4
"""Float ``Constant`` nodes above this size are parameters: some exporters write all weights so."""

FOLDED_PARAMETER_BYTES = 4 * 1024
"""Floats above this size that nodes made of constants alone are parameters too."""


def take_parameters(
    graph: Graph, pinned: frozenset[str], least_bytes: int
) -> tuple[Graph, dict[str, np.ndarray]]:
    """Split the parameters off a graph and those inside it.

    Args:
        graph: the main graph.
        pinned: names of values that are constants.
        least_bytes: constants, unlike initializers, are parameters only above this size.
    """
    params: dict[str, np.ndarray] = {}

    def strip(inner: Graph) -> Graph:
        initializers = {n: a for n, a in inner.initializers.items() if _trainable(n, a)}
        large = {
            n: a for n, a in inner.constants.items() if _trainable(n, a) and a.nbytes > least_bytes
        }
        params.update(initializers | large)
        nodes = []
        for node in inner.nodes:
            attributes = {
                k: strip(v) if isinstance(v, Graph) else v for k, v in node.attributes.items()
            }
            nodes.append(dataclasses.replace(node, attributes=attributes))
        return dataclasses.replace(
            inner,
            nodes=tuple(nodes),
            initializers={n: a for n, a in inner.initializers.items() if n not in params},
            constants={n: a for n, a in inner.constants.items() if n not in params},
        )

    def _trainable(name: str, array: np.ndarray) -> bool:
        return name not in pinned and is_float(array)

    return strip(graph), params


def is_float(array: np.ndarray) -> bool:
    """Whether an array can be a parameter: real or complex floating point."""
    return array.dtype.kind != "T" and jnp.issubdtype(array.dtype, jnp.inexact)

"""The smallest trees, which the tests of ensembles and of their classifiers share."""

from typing import Any

import jax
from helpers import f32

from jaxonnx.ops import ml

DOMAIN = "ai.onnx.ml"
NAN = float("nan")
X = f32([[1], [2], [3], [NAN]])

STUMP: dict[str, Any] = {
    "nodes_nodeids": (0, 1, 2),
    "nodes_treeids": (0, 0, 0),
    "nodes_featureids": (0, 0, 0),
    "nodes_values": (2.0, 0.0, 0.0),
    "nodes_modes": ("BRANCH_LEQ", "LEAF", "LEAF"),
    "nodes_truenodeids": (1, 0, 0),
    "nodes_falsenodeids": (2, 0, 0),
}
"""True goes to node 1, false to node 2."""

CLASSES: dict[str, Any] = STUMP | {"class_treeids": (0, 0)}


def classify(x=X, **attributes):
    """The label and the scores of a stump that votes."""
    with jax.enable_x64(True):
        return ml.tree_ensemble_classifier(x, **(CLASSES | attributes))

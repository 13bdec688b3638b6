"""Ensembles of decision trees of ``ai.onnx.ml``.

The derivative by inputs and by the values they are compared with is 0, at the jumps too. That by
the weights of leaves, where these are arrays that are being differentiated, is theirs.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxonnx.define.older import older
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops.ml import _forest, _nodes, _scores
from jaxonnx.ops.ml._forest import MODES, Votes

__all__ = ["tree_ensemble", "tree_ensemble_classifier", "tree_ensemble_regressor"]

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
"""In the order of TreeEnsemble's numbers."""

Ints = Sequence[int] | None
Floats = Sequence[float] | None
Strings = Sequence[str] | None


@register("TreeEnsemble", 5, domain="ai.onnx.ml")
def tree_ensemble(
    x: ArrayLike,
    /,
    *,
    leaf_targetids: Sequence[int],
    leaf_weights: Any,
    nodes_falseleafs: Sequence[int],
    nodes_falsenodeids: Sequence[int],
    nodes_featureids: Sequence[int],
    nodes_modes: np.ndarray,
    nodes_splits: np.ndarray,
    nodes_trueleafs: Sequence[int],
    nodes_truenodeids: Sequence[int],
    tree_roots: Sequence[int],
    aggregate_function: int = 1,
    membership_values: np.ndarray | None = None,
    n_targets: int | None = None,
    nodes_hitrates: np.ndarray | None = None,
    nodes_missing_value_tracks_true: Ints = None,
    post_transform: int = 0,
) -> Array:
    """What the leaves that each row ``[F]`` arrives at give for each target, ``[N, n_targets]``.

    Half precision is computed in single. Of a single target only PROBIT is taken, as in
    onnxruntime. Derivative by ``x``: 0; by ``leaf_weights``: 1 for the leaves arrived at.

    Raises:
        InvalidModelError: if attributes differ in length or name what is not there.
    """
    del nodes_hitrates
    features = _scores.integers("nodes_featureids", nodes_featureids)
    inner, leaves = len(features), len(leaf_targetids)

    def per_node(name: str, values: Ints) -> np.ndarray:
        return _scores.integers(name, values, inner, "one for each node")

    pairs = [
        (("nodes_falsenodeids", nodes_falsenodeids), ("nodes_falseleafs", nodes_falseleafs)),
        (("nodes_truenodeids", nodes_truenodeids), ("nodes_trueleafs", nodes_trueleafs)),
    ]
    children = []
    for (name, ids), (flag_name, flags) in pairs:
        number, to_leaf = per_node(name, ids), per_node(flag_name, flags) != 0
        _nodes.refuse_outside(name, number, np.where(to_leaf, leaves, inner))
        children.append(number + np.where(to_leaf, inner, 0))
    roots = _scores.integers("tree_roots", tree_roots)
    _nodes.refuse_outside("tree_roots", roots, np.array(inner))
    modes = _scores.floats("nodes_modes", nodes_modes, inner, "one for each node")
    _nodes.refuse_outside("nodes_modes", modes, np.array(len(MODES)))
    missing = nodes_missing_value_tracks_true or (0,) * inner
    forest = _nodes.forest_of(
        features=features,
        splits=_scores.floats("nodes_splits", nodes_splits, inner, "one for each node"),
        modes=modes,
        missing=per_node("nodes_missing_value_tracks_true", missing),
        children=np.stack(children, 1),
        roots=roots,
        leaves=leaves,
        members=_nodes.members(modes, membership_values),
    )
    weights = leaf_weights.reshape(-1)
    _scores.counted("leaf_weights", weights, leaves, "one for each of the leaf_targetids")
    ids = np.array(leaf_targetids, np.int64)
    targets = int(ids.max(initial=0)) + 1 if n_targets is None else n_targets
    votes = Votes(np.arange(inner, inner + leaves), ids, weights)
    if not 0 <= aggregate_function < len(_AGGREGATES):
        raise InvalidModelError(f"aggregate_function is {aggregate_function}, expected 0 to 3")
    if not 0 <= post_transform < len(_scores.TRANSFORMS):
        raise InvalidModelError(f"post_transform is {post_transform}, expected 0 to 4")
    rows = _scores.rows(x)
    total = _forest.scores(
        forest,
        votes,
        rows,
        targets=targets,
        aggregate=_AGGREGATES[aggregate_function],
        dtype=_scores.widest(rows.dtype, forest.splits.dtype, weights.dtype),
    )
    out = _scores.transformed(total, _scores.TRANSFORMS[post_transform])
    return out.astype(jnp.asarray(x).dtype)


@register("TreeEnsembleRegressor", 3, domain="ai.onnx.ml")
def tree_ensemble_regressor(
    x: ArrayLike,
    /,
    *,
    aggregate_function: str = "SUM",
    base_values: Floats = None,
    base_values_as_tensor: np.ndarray | None = None,
    n_targets: int | None = None,
    nodes_falsenodeids: Ints = None,
    nodes_featureids: Ints = None,
    nodes_hitrates: Floats = None,
    nodes_hitrates_as_tensor: np.ndarray | None = None,
    nodes_missing_value_tracks_true: Ints = None,
    nodes_modes: Strings = None,
    nodes_nodeids: Ints = None,
    nodes_treeids: Ints = None,
    nodes_truenodeids: Ints = None,
    nodes_values: Floats = None,
    nodes_values_as_tensor: np.ndarray | None = None,
    post_transform: str = "NONE",
    target_ids: Ints = None,
    target_nodeids: Ints = None,
    target_treeids: Ints = None,
    target_weights: Any = None,
    target_weights_as_tensor: Any = None,
) -> Array:
    """What the leaves that each row ``[F]`` arrives at give for each target, ``[N, n_targets]``.

    It is brought together, then the base value is added. Of a single target only PROBIT is taken,
    as in onnxruntime. Derivative by ``x``: 0; by weights: that of the leaves arrived at.

    Raises:
        InvalidModelError: if attributes differ in length or name what is not there.
    """
    del nodes_hitrates, nodes_hitrates_as_tensor
    forest, find = _nodes.from_nodes(
        nodes_falsenodeids=nodes_falsenodeids,
        nodes_featureids=nodes_featureids,
        nodes_missing_value_tracks_true=nodes_missing_value_tracks_true,
        nodes_modes=nodes_modes,
        nodes_nodeids=nodes_nodeids,
        nodes_treeids=nodes_treeids,
        nodes_truenodeids=nodes_truenodeids,
        nodes_values=_given(nodes_values, nodes_values_as_tensor),
    )
    weights = _given(target_weights, target_weights_as_tensor)
    votes = _votes("target", find, target_treeids, target_nodeids, target_ids, weights)
    targets = int(votes.targets.max(initial=0)) + 1 if n_targets is None else n_targets
    base = _scores.floats("base_values", _given(base_values, base_values_as_tensor))
    if len(base) not in (0, 1, targets):
        raise InvalidModelError(f"base_values has {len(base)} elements, expected {targets} or 1")
    rows = _scores.rows(x)
    dtype = _scores.widest(rows.dtype, forest.splits.dtype, votes.weights.dtype, base.dtype)
    total = _forest.scores(
        forest, votes, rows, targets=targets, aggregate=aggregate_function, dtype=dtype
    )
    total = total + base.astype(dtype) if len(base) else total
    return _scores.transformed(total, post_transform).astype(np.float32)


tree_ensemble_regressor_1 = older(tree_ensemble_regressor, 1)


@register("TreeEnsembleClassifier", 3, domain="ai.onnx.ml")
def tree_ensemble_classifier(
    x: ArrayLike,
    /,
    *,
    base_values: Floats = None,
    base_values_as_tensor: np.ndarray | None = None,
    class_ids: Ints = None,
    class_nodeids: Ints = None,
    class_treeids: Ints = None,
    class_weights: Any = None,
    class_weights_as_tensor: Any = None,
    classlabels_int64s: Ints = None,
    classlabels_strings: Strings = None,
    nodes_falsenodeids: Ints = None,
    nodes_featureids: Ints = None,
    nodes_hitrates: Floats = None,
    nodes_hitrates_as_tensor: np.ndarray | None = None,
    nodes_missing_value_tracks_true: Ints = None,
    nodes_modes: Strings = None,
    nodes_nodeids: Ints = None,
    nodes_treeids: Ints = None,
    nodes_truenodeids: Ints = None,
    nodes_values: Floats = None,
    nodes_values_as_tensor: np.ndarray | None = None,
    post_transform: str = "NONE",
) -> tuple[Array, Array]:
    """The label of the best class of each row ``[F]``, and the scores of all, ``[N, E]``.

    If all votes are for the first of two classes, their sum ``s`` is the score of the second one,
    and the first has ``1 - s`` if no vote is negative and ``-s`` otherwise, or both are transformed
    by LOGISTIC. A model with a single class gives label 1 where its score is above 0, else 0.

    Derivative of the scores by ``x``: 0; by weights: that of the leaves arrived at.

    Raises:
        InvalidModelError: if attributes differ in length or name what is not there.
    """
    del nodes_hitrates, nodes_hitrates_as_tensor
    forest, find = _nodes.from_nodes(
        nodes_falsenodeids=nodes_falsenodeids,
        nodes_featureids=nodes_featureids,
        nodes_missing_value_tracks_true=nodes_missing_value_tracks_true,
        nodes_modes=nodes_modes,
        nodes_nodeids=nodes_nodeids,
        nodes_treeids=nodes_treeids,
        nodes_truenodeids=nodes_truenodeids,
        nodes_values=_given(nodes_values, nodes_values_as_tensor),
    )
    weights = _given(class_weights, class_weights_as_tensor)
    votes = _votes("class", find, class_treeids, class_nodeids, class_ids, weights)
    classes = _scores.class_count(classlabels_int64s, classlabels_strings)
    base = _scores.floats("base_values", _given(base_values, base_values_as_tensor))
    one = classes == 2 and not votes.targets.any()  # class, which stands for both
    if len(base) not in (0, 1 if one else classes, classes):
        raise InvalidModelError(f"base_values has {len(base)} elements, expected {classes}")
    rows = _scores.rows(x)
    dtype = _scores.widest(rows.dtype, forest.splits.dtype, votes.weights.dtype, base.dtype)
    total = _forest.scores(forest, votes, rows, targets=classes, aggregate="SUM", dtype=dtype)
    if len(base):
        total = total + np.pad(base.astype(dtype), (0, classes - len(base)))
    position, scores = _classified(total, votes, post_transform, plain=len(base) == 2)
    label = _scores.labels(position, classlabels_int64s, classlabels_strings)
    return label, scores.astype(np.float32)


tree_ensemble_classifier_1 = older(tree_ensemble_classifier, 1)


def _classified(total: Any, votes: Votes, transform: str, *, plain: bool) -> tuple[Any, Any]:
    """The position of the best class of each row, and all scores after the transform."""
    voted, classes = np.unique(votes.targets), total.shape[1]
    if classes > 2 or (classes == 2 and (plain or len(voted) != 1)):
        return _scores.best(total), _scores.transformed(total, transform)
    positive = bool((np.asarray(_constant(votes.weights)) >= 0).all())
    score = total[:, voted[0] if len(voted) else 0]
    half = positive and classes == 2 and transform != "LOGISTIC"
    position = (score > (0.5 if half else 0)).astype(np.int32)
    if classes == 2 and voted[0] == 0:
        return position, _scores.both_classes(score, transform, complement=positive)
    return position, _scores.transformed(total, transform)


def _constant(weights: Any) -> Any:
    """Weights to look at their signs; those of weights that are traced count as negative."""
    return weights if isinstance(weights, np.ndarray) else np.array([-1.0])


def _given(values: Any, tensor: Any) -> Any:
    """The one of two forms of an attribute that is given; an empty tensor is not."""
    return values if tensor is None or not tensor.size else tensor


def _votes(prefix: str, find: Any, trees: Ints, nodes: Ints, ids: Ints, weights: Any) -> Votes:
    """The votes of the leaves that tree and node ids name."""
    targets = _scores.integers(f"{prefix}_ids", ids)
    count, of = len(targets), f"one for each of the {prefix}_ids"
    found = find(
        _scores.integers(f"{prefix}_treeids", trees, count, of),
        _scores.integers(f"{prefix}_nodeids", nodes, count, of),
        f"{prefix}_nodeids",
    )
    if weights is None or isinstance(weights, (tuple, list, np.ndarray)):
        weights = _scores.floats(f"{prefix}_weights", weights)
    return Votes(found, targets, _scores.counted(f"{prefix}_weights", weights, count, of))

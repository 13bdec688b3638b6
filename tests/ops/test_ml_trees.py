"""Tree ensembles of ``ai.onnx.ml``."""

import functools
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from helpers import assert_close, f32, node_model, onnxruntime, reference, run_node
from hypothesis import given, settings
from hypothesis import strategies as st
from stumps import DOMAIN, NAN, STUMP, X, classify

import jaxonnx
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops import ml
from jaxonnx.ops.ml import _forest

MODES = ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER"]

VOTES: dict[str, Any] = {"target_ids": (0, 0), "target_nodeids": (1, 2), "target_treeids": (0, 0)}

NEW: dict[str, Any] = {
    "nodes_featureids": (0,),
    "nodes_splits": f32([2]),
    "nodes_modes": np.array([0], np.uint8),
    "nodes_truenodeids": (0,),
    "nodes_falsenodeids": (1,),
    "nodes_trueleafs": (1,),
    "nodes_falseleafs": (1,),
    "tree_roots": (0,),
    "leaf_targetids": (0, 0),
    "leaf_weights": f32([10, 20]),
}
"""True gives 10, false 20."""


def stump(mode, missing=None, x=X):
    """A comparison with 2 by the old operator: 10 where it is true, 20 where it is not."""
    attributes: dict[str, Any] = STUMP | {"nodes_modes": (f"BRANCH_{mode}", "LEAF", "LEAF")}
    if missing is not None:
        attributes["nodes_missing_value_tracks_true"] = (missing, 0, 0)
    return ml.tree_ensemble_regressor(x, target_weights=(10.0, 20.0), **VOTES, **attributes)


TRUE_AT = {
    "LEQ": [1, 1, 0],
    "LT": [1, 0, 0],
    "GTE": [0, 1, 1],
    "GT": [0, 0, 1],
    "EQ": [0, 1, 0],
    "NEQ": [1, 0, 1],
    "MEMBER": [1, 0, 1],
}
"""Which of 1, 2 and 3 compare with 2, or are of the set {1, 3}."""


@pytest.mark.parametrize("missing", [None, 0, 1])
@pytest.mark.parametrize("mode", MODES[:-1])
def test_modes_ties_and_missing_values(mode, missing):
    nan = missing == 1 or mode == "NEQ"  # NaN is unequal to every number
    expected = np.where([*TRUE_AT[mode], nan], 10, 20)[:, None]
    assert_close(stump(mode, missing), f32(expected))


@pytest.mark.parametrize("missing", [None, 0, 1])
@pytest.mark.parametrize("mode", MODES)
def test_modes_of_the_newest_version(mode, missing):
    attributes: dict[str, Any] = NEW | {"nodes_modes": np.array([MODES.index(mode)], np.uint8)}
    if mode == "MEMBER":
        attributes["membership_values"] = f32([3, 1, NAN])
    if missing is not None:
        attributes["nodes_missing_value_tracks_true"] = (missing,)
    nan = missing == 1 or mode == "NEQ"
    expected = np.where([*TRUE_AT[mode], nan], 10, 20)[:, None]
    assert_close(ml.tree_ensemble(X, n_targets=1, **attributes), f32(expected))


def as_protos(attributes) -> dict[str, Any]:
    return {
        n: onnx.numpy_helper.from_array(v) if isinstance(v, np.ndarray) else list(v)
        for n, v in attributes.items()
    }


SETS: dict[str, Any] = {
    "nodes_featureids": (0, 1, 0, 1),
    "nodes_splits": f32([0, 5, 0, 2]),
    "nodes_modes": np.array([6, 0, 6, 4], np.uint8),
    "nodes_truenodeids": (1, 0, 2, 3),
    "nodes_falsenodeids": (2, 1, 3, 4),
    "nodes_trueleafs": (0, 1, 1, 1),
    "nodes_falseleafs": (0, 1, 0, 1),
    "tree_roots": (0,),
    "leaf_targetids": (0, 1, 0, 1, 1),
    "leaf_weights": f32([1, 2, 4, 8, 16]),
    "membership_values": f32([1, 2, 3, NAN, 7, NAN]),
    "n_targets": 2,
}


def test_members_and_several_modes_by_hand_and_by_the_reference():
    """Of two sets the first is {1, 2, 3}, the second {7}."""
    x = f32([[1, 5], [3, 6], [7, 0], [4, 2], [4, 3], [0, 2]])
    y = ml.tree_ensemble(x, **SETS)
    assert_close(y, f32([[1, 0], [0, 2], [4, 0], [0, 8], [0, 16], [0, 8]]))
    protos = as_protos({n: v for n, v in SETS.items() if n != "n_targets"})
    model = node_model("TreeEnsemble", [x], opset=5, domain=DOMAIN, n_targets=2, **protos)
    assert_close(y, np.asarray(reference(model, x)[0]))
    assert_close(jaxonnx.load(model)(x), y)


@pytest.mark.parametrize("size", range(6))
def test_sets_of_any_size(size):
    values = np.arange(1, size + 1) * 2.0
    attributes: dict[str, Any] = NEW | {"nodes_modes": np.array([6], np.uint8)}
    attributes["membership_values"] = f32([*values[::-1], NAN])
    x = np.arange(-1, 14, dtype=np.float32)[:, None]
    expected = np.where(np.isin(x, values), 10, 20)
    assert_close(ml.tree_ensemble(x, n_targets=1, **attributes), f32(expected))


TWO_TREES: dict[str, Any] = {
    "nodes_nodeids": (0, 1, 2, 3, 4, 0, 1, 2, 0),
    "nodes_treeids": (4, 4, 4, 4, 4, 9, 9, 9, 11),
    "nodes_featureids": (0, 0, 1, 0, 0, 1, 0, 0, 0),
    "nodes_values": (0.0, 0, 1, 0, 0, -1, 0, 0, 0),
    "nodes_modes": (
        *("BRANCH_LEQ", "LEAF", "BRANCH_GT", "LEAF", "LEAF"),
        *("BRANCH_LT", "LEAF", "LEAF", "LEAF"),
    ),
    "nodes_truenodeids": (1, 0, 3, 0, 0, 2, 0, 0, 0),
    "nodes_falsenodeids": (2, 0, 4, 0, 0, 1, 0, 0, 0),
    "target_treeids": (4, 4, 4, 4, 9, 9, 11),
    "target_nodeids": (1, 1, 3, 4, 1, 2, 0),
    "target_ids": (0, 2, 2, 0, 0, 2, 0),
    "target_weights": (1.0, 10.0, 20.0, 2.0, 4.0, 40.0, -8.0),
    "n_targets": 3,
}
"""Three trees of different depths, one a leaf, whose leaves vote for some of three targets."""

POINTS = f32([[-1, 0], [1, 2], [1, -2], [0, -1]])


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        ("SUM", [[-3, 0, 10], [-4, 0, 20], [-6, 0, 40], [-3, 0, 10]]),
        ("AVERAGE", [[-1, 0, 10 / 3], [-4 / 3, 0, 20 / 3], [-2, 0, 40 / 3], [-1, 0, 10 / 3]]),
        ("MIN", [[-8, 0, 10], [-8, 0, 20], [-8, 0, 40], [-8, 0, 10]]),
        ("MAX", [[4, 0, 10], [4, 0, 20], [2, 0, 40], [4, 0, 10]]),
    ],
)
@pytest.mark.parametrize("base", [(), (1.0, 2.0, 3.0)])
def test_aggregates_by_hand_and_by_onnxruntime(aggregate, expected, base):
    attributes: dict[str, Any] = TWO_TREES | {"aggregate_function": aggregate}
    attributes |= {"base_values": base} if base else {}
    y = ml.tree_ensemble_regressor(POINTS, **attributes)
    assert_close(y, f32(expected) + f32(base or 0))
    for version in (1, 3):
        model = node_model(
            "TreeEnsembleRegressor", [POINTS], opset=version, domain=DOMAIN, **attributes
        )
        assert_close(jaxonnx.load(model)(POINTS), y)
    voted = [0, 2]  # onnxruntime drops the base value of a target without votes
    assert_close(np.asarray(onnxruntime(model, POINTS)[0])[:, voted], np.asarray(y)[:, voted])


@pytest.mark.parametrize("number", range(4))
def test_aggregates_of_the_newest_version(number):
    attributes: dict[str, Any] = NEW | {
        "nodes_featureids": (0, 0),
        "nodes_splits": f32([2, 1]),
        "nodes_modes": np.array([0, 0], np.uint8),
        "nodes_truenodeids": (0, 2),
        "nodes_falsenodeids": (1, 0),
        "nodes_trueleafs": (1, 1),
        "nodes_falseleafs": (1, 1),
        "tree_roots": (0, 1),
        "leaf_targetids": (0, 0, 1),
        "leaf_weights": f32([10, 20, 5]),
    }  # the trees share leaf 0
    y = ml.tree_ensemble(f32([[1], [1.5], [3]]), aggregate_function=number, **attributes)
    expected = [
        [[5, 2.5], [10, 0], [15, 0]],
        [[10, 5], [20, 0], [30, 0]],
        [[10, 5], [10, 0], [10, 0]],
        [[10, 5], [10, 0], [20, 0]],
    ]
    assert_close(y, f32(expected[number]))


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"])
@pytest.mark.parametrize("targets", [1, 2])
def test_transforms_as_onnxruntime(transform, targets):
    attributes: dict[str, Any] = STUMP | VOTES | {"post_transform": transform, "n_targets": targets}
    attributes |= {"target_weights": (0.2, 0.7)}
    model = node_model("TreeEnsembleRegressor", [X], opset=3, domain=DOMAIN, **attributes)
    y = jaxonnx.load(model)(X)
    assert_close(y, np.asarray(onnxruntime(model, X)[0]))
    assert np.isfinite(y[:, 0]).all()


def test_transforms_of_the_newest_version():
    attributes: dict[str, Any] = NEW | {"leaf_weights": f32([0.2, 0.7]), "leaf_targetids": (0, 1)}
    y = ml.tree_ensemble(f32([[0]]), post_transform=1, **attributes)
    assert_close(y, f32([[np.exp(0.2), 1]]) / f32(np.exp(0.2) + 1))
    y = ml.tree_ensemble(f32([[0]]), post_transform=4, **attributes)
    assert_close(y, f32([[-0.84175611, -np.inf]]), scale=10)


def random_trees(rng, trees, depth, features, targets, modes):
    """Random trees as attributes of the regressor; every leaf votes for one or two targets."""
    columns: dict[str, list] = {n: [] for n in (*STUMP, "nodes_missing_value_tracks_true")}
    votes: dict[str, list] = {n: [] for n in (*VOTES, "target_weights")}
    for tree in range(trees):
        open_nodes, number = [(0, 0)], 0
        while open_nodes:
            node, level = open_nodes.pop(0)
            leaf = level == depth or rng.random() < 0.2
            children = (0, 0) if leaf else (number + 1, number + 2)
            number += 0 if leaf else 2
            row = (node, tree, rng.integers(features), rng.integers(-2, 3) / 2)
            mode = "LEAF" if leaf else f"BRANCH_{rng.choice(modes)}"
            row = (*row, mode, *children, rng.integers(2))
            value: Any
            for name, value in zip(columns, row, strict=True):
                columns[name].append(
                    value
                    if isinstance(value, str)
                    else value.item()
                    if hasattr(value, "item")
                    else value
                )
            if not leaf:
                open_nodes += [(children[0], level + 1), (children[1], level + 1)]
            for _ in range(leaf * rng.integers(1, 3)):
                entry = (int(rng.integers(targets)), node, tree, float(rng.integers(-9, 9)))
                for name, value in zip(votes, entry, strict=True):
                    votes[name].append(value)
    return dict[str, Any](columns | votes) | {"n_targets": targets}


@settings(max_examples=12, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 5),
    st.integers(0, 4),
    st.integers(1, 3),
    st.sampled_from([["LEQ"], ["LT", "GTE"], MODES[:-1]]),
    st.sampled_from(["SUM", "MIN", "MAX"]),
)
def test_random_trees_as_onnxruntime(seed, trees, depth, targets, modes, aggregate):
    rng = np.random.default_rng(seed)
    attributes: dict[str, Any] = random_trees(rng, trees, depth, 3, targets, modes)
    if targets == 1 and aggregate != "SUM":  # onnxruntime reads one vote of each leaf only
        attributes["target_weights"] = [0.5] * len(attributes["target_weights"])
    if targets == 1:
        keep = np.unique(
            np.stack([attributes["target_treeids"], attributes["target_nodeids"]]),
            axis=1,
            return_index=True,
        )[1]
        for name in (*VOTES, "target_weights"):
            attributes[name] = [attributes[name][k] for k in np.sort(keep)]
    x = f32(rng.integers(-3, 4, (7, 3)) / 2)
    x[rng.random(x.shape) < 0.1] = NAN
    options = {"opset": 3, "domain": DOMAIN, "aggregate_function": aggregate}
    model = node_model("TreeEnsembleRegressor", [x], **options, **attributes)
    assert_close(jaxonnx.load(model)(x), np.asarray(onnxruntime(model, x)[0]))


def test_double_precision():
    """0.1 in single precision is above 0.1 in double."""
    attributes: dict[str, Any] = STUMP | VOTES
    del attributes["nodes_values"]
    attributes |= {
        "nodes_values_as_tensor": np.array([0.1, 0, 0]),
        "target_weights_as_tensor": np.array([1.0, 2.0]),
    }
    x = np.array([[0.1], [float(np.float32(0.1))]])
    with jax.enable_x64(True):
        y = ml.tree_ensemble_regressor(x, **attributes)
    assert_close(y, f32([[1], [2]]))
    (model_y,) = run_node(
        "TreeEnsembleRegressor", [x], opset=3, domain=DOMAIN, **as_protos(attributes)
    )
    assert_close(model_y, y)
    y = ml.tree_ensemble_regressor(x.astype(np.float32), **(STUMP | VOTES), target_weights=(1.0, 2))
    assert_close(y, f32([[1], [1]]))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64, np.float16])
def test_types_of_inputs(dtype):
    x = np.array([[1], [2], [3]], dtype)
    if dtype != np.float16:
        (y,) = run_node(
            "TreeEnsembleRegressor", [x], opset=3, domain=DOMAIN, target_weights=[10.0, 20.0],
            **STUMP, **VOTES,
        )  # fmt: skip
        assert_close(y, f32([[10], [10], [20]]))
    if not np.issubdtype(dtype, np.integer):
        tensors = {"nodes_splits": np.array([2], dtype), "leaf_weights": np.array([10, 20], dtype)}
        (y,) = run_node("TreeEnsemble", [x], opset=5, domain=DOMAIN, **as_protos(NEW | tensors))
        assert_close(y, np.array([[10], [10], [20]], dtype))


def test_shapes_of_inputs():
    assert_close(stump("LEQ", x=f32([5])), f32([[20]]))
    assert_close(stump("LEQ", x=np.zeros((0, 1), np.float32)), np.zeros((0, 1), np.float32))
    with pytest.raises(InvalidModelError, match=r"the shape is \(1, 1, 1\), expected \[F\]"):
        stump("LEQ", x=np.zeros((1, 1, 1), np.float32))


def test_many_rows_are_taken_in_turn(monkeypatch):
    x = f32(np.random.default_rng(0).normal(size=(11, 2)) * 2)
    expected = ml.tree_ensemble_regressor(x, **TWO_TREES)
    monkeypatch.setattr(_forest, "_AT_ONCE", 12)  # 4 rows of 3 trees
    assert_close(ml.tree_ensemble_regressor(x, **TWO_TREES), expected)
    text = jax.make_jaxpr(lambda v: ml.tree_ensemble_regressor(v, **TWO_TREES))(x)
    assert "length=3" in str(text)


def test_derivatives():
    new = {n: v for n, v in NEW.items() if n != "leaf_weights"}

    def by_weights(weights):
        return ml.tree_ensemble(X, n_targets=1, leaf_weights=weights, **new).sum()

    assert_close(jax.grad(by_weights)(f32([10, 20])), f32([2, 2]))
    assert_close(jax.jvp(by_weights, (f32([10, 20]),), (f32([1, 0]),))[1], f32(2))
    assert_close(jax.grad(lambda x: stump("LEQ", x=x).sum())(X), np.zeros((4, 1), np.float32))

    def classes(weights):
        attributes: dict[str, Any] = {
            "class_ids": (0, 0),
            "class_nodeids": (1, 2),
            "classlabels_int64s": (0, 1),
        }
        return classify(class_weights=weights, post_transform="LOGISTIC", **attributes)[1][0, 1]

    assert_close(jax.grad(classes)(f32([0, 1])), f32([0.25, 0]))


def test_jit_vmap_and_symbolic_rows():
    function = functools.partial(ml.tree_ensemble_regressor, **TWO_TREES)
    expected = function(POINTS)
    assert_close(jax.jit(function)(POINTS), expected)
    assert_close(jax.vmap(function)(POINTS[:, None])[:, 0], expected)
    (rows,) = jax.export.symbolic_shape("N")
    argument = jax.ShapeDtypeStruct((rows, 2), np.float32)
    platforms = ["cpu", "cuda", "rocm", "tpu"]
    exported = jax.export.export(jax.jit(function), platforms=platforms)(argument)
    assert_close(exported.call(jnp.asarray(POINTS)), expected)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"nodes_values": (1.0,)}, "nodes_values has 1 elements, expected 3"),
        ({"nodes_modes": ("BRANCH_LEQ", "LEAF", "TWIG")}, r"nodes_modes has \['TWIG'\]"),
        ({"nodes_modes": ()}, "expected BRANCH_"),
        ({"nodes_nodeids": (0, 1, 1)}, "node 1 of tree 0 is there twice"),
        ({"nodes_truenodeids": (7, 0, 0)}, "nodes_truenodeids names node 7 of tree 0"),
        ({"nodes_falsenodeids": (-1, 0, 0)}, "nodes_falsenodeids names node -1 of tree 0"),
        ({"nodes_truenodeids": (0, 0, 0)}, "the trees have a cycle"),
        ({"nodes_featureids": (3, 0, 0)}, "feature 3 is read, but there are 1"),
        ({"nodes_missing_value_tracks_true": (1,)}, "tracks_true has 1 elements, expected 3"),
        ({"target_nodeids": (1, 5)}, "target_nodeids names node 5 of tree 0"),
        ({"target_treeids": (0, 2)}, "target_nodeids names node 2 of tree 2"),
        ({"target_treeids": (0,)}, "target_treeids has 1 elements, expected 2"),
        ({"target_weights": (1.0,)}, "target_weights has 1 elements, expected 2"),
        ({"target_ids": (0, 4), "n_targets": 2}, "target 4 is read, but there are 2"),
        ({"base_values": (1.0, 2.0, 3.0), "n_targets": 2}, "base_values has 3 elements"),
        ({"aggregate_function": "MEAN"}, "aggregate_function is 'MEAN'"),
        ({"post_transform": "TANH"}, "post_transform is 'TANH'"),
    ],
)
def test_errors(changes, text):
    attributes: dict[str, Any] = STUMP | VOTES | {"target_weights": (1.0, 2.0)} | changes
    with pytest.raises(InvalidModelError, match=text):
        ml.tree_ensemble_regressor(X, **attributes)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"nodes_truenodeids": (2,)}, "nodes_truenodeids has 2, but there are 2"),
        ({"nodes_falsenodeids": (1,), "nodes_falseleafs": (0,)}, "nodes_falsenodeids has 1"),
        ({"nodes_falsenodeids": (0,), "nodes_falseleafs": (0,)}, "the trees have a cycle"),
        ({"tree_roots": (1,)}, "tree_roots has 1, but there are 1"),
        ({"nodes_modes": np.array([7], np.uint8)}, "nodes_modes has 7"),
        ({"nodes_modes": np.array([6], np.uint8)}, "membership_values has 0 sets for 1 nodes"),
        ({"membership_values": f32([1, NAN])}, "membership_values has 1 sets for 0 nodes"),
        ({"nodes_splits": f32([1, 2])}, "nodes_splits has 2 elements, expected 1"),
        ({"leaf_weights": f32([1])}, "leaf_weights has 1 elements, expected 2"),
        ({"aggregate_function": 4}, "aggregate_function is 4"),
        ({"post_transform": 5}, "post_transform is 5"),
    ],
)
def test_errors_of_the_newest_version(changes, text):
    with pytest.raises(InvalidModelError, match=text):
        ml.tree_ensemble(X, **(NEW | changes))

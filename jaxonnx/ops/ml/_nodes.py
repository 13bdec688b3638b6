"""From the attributes of tree ensembles to a forest."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxonnx.errors import InvalidModelError
from jaxonnx.ops.ml import _scores
from jaxonnx.ops.ml._forest import MODES, Forest, Members

Ints = Sequence[int] | None

Find = Callable[[np.ndarray, np.ndarray, str], np.ndarray]
"""Gives the places of nodes by their tree ids and node ids, for the attribute that names them."""


def from_nodes(
    *,
    nodes_falsenodeids: Ints,
    nodes_featureids: Ints,
    nodes_missing_value_tracks_true: Ints,
    nodes_modes: Sequence[str] | None,
    nodes_nodeids: Ints,
    nodes_treeids: Ints,
    nodes_truenodeids: Ints,
    nodes_values: Any,
) -> tuple[Forest, Find]:
    """The forest of nodes that are named by tree and node ids, and a function that finds them."""
    names = np.array(nodes_modes or (), str)
    count, of = len(names), "one for each of the nodes_modes"
    leaf = names == "LEAF"
    kinds, kind = np.unique(names, return_inverse=True)
    unknown = {*kinds.tolist()} - {"LEAF", *(f"BRANCH_{m}" for m in MODES[:-1])}
    if unknown or not count:
        raise InvalidModelError(f"nodes_modes has {sorted(unknown)}, expected BRANCH_* and LEAF")
    codes = [0 if k == "LEAF" else MODES.index(k.removeprefix("BRANCH_")) for k in kinds]
    trees = _scores.integers("nodes_treeids", nodes_treeids, count, of)
    ids = _scores.integers("nodes_nodeids", nodes_nodeids, count, of)
    find = _finder(trees, ids)
    own = np.arange(count)
    children = []
    for name, values in (
        ("nodes_falsenodeids", nodes_falsenodeids),
        ("nodes_truenodeids", nodes_truenodeids),
    ):
        wanted = _scores.integers(name, values, count, of)
        children.append(np.where(leaf, own, find(trees, np.where(leaf, ids, wanted), name)))
    missing = nodes_missing_value_tracks_true or (0,) * count
    forest = Forest(
        features=_scores.integers("nodes_featureids", nodes_featureids, count, of),
        splits=_scores.floats("nodes_values", nodes_values, count, of),
        modes=np.array(codes, np.uint8)[kind],
        missing=_scores.integers("nodes_missing_value_tracks_true", missing, count, of) != 0,
        children=np.stack(children, 1),
        roots=np.sort(np.unique(trees, return_index=True)[1]),
        leaf=leaf,
    )
    return forest, find


def _finder(trees: np.ndarray, ids: np.ndarray) -> Find:
    """A function that gives the places of nodes by their tree and node ids."""
    least, width = ids.min(), int(ids.max() - ids.min()) + 1
    kinds = np.unique(trees)
    keys = np.searchsorted(kinds, trees) * width + (ids - least)
    order = np.argsort(keys, kind="stable")
    in_order = keys[order]
    twice = np.flatnonzero(in_order[1:] == in_order[:-1])
    if len(twice):
        place = order[twice[0]]
        raise InvalidModelError(f"node {ids[place]} of tree {trees[place]} is there twice")

    def find(tree: np.ndarray, node: np.ndarray, what: str) -> np.ndarray:
        row = np.minimum(np.searchsorted(kinds, tree), len(kinds) - 1)
        key = row * width + (node - least)
        place = np.minimum(np.searchsorted(in_order, key), len(in_order) - 1)
        inside = (node >= least) & (node < least + width) & (kinds[row] == tree)
        absent = np.flatnonzero(~inside | (in_order[place] != key))
        if len(absent):
            first = absent[0]
            raise InvalidModelError(
                f"{what} names node {node[first]} of tree {tree[first]}, which is not there"
            )
        return order[place]

    return find


def forest_of(
    *,
    features: np.ndarray,
    splits: np.ndarray,
    modes: np.ndarray,
    missing: np.ndarray,
    children: np.ndarray,
    roots: np.ndarray,
    leaves: int,
    members: Members | None,
) -> Forest:
    """A forest whose leaves are numbered behind all other nodes."""
    inner = len(features)
    own = np.arange(inner, inner + leaves)
    if members is not None:
        first, end = (np.pad(a, (0, leaves)) for a in (members.first, members.end))
        members = Members(members.values, first, end)
    return Forest(
        features=np.pad(features, (0, leaves)),
        splits=np.pad(splits, (0, leaves)),
        modes=np.pad(modes.astype(np.uint8), (0, leaves)),
        missing=np.pad(missing != 0, (0, leaves)),
        children=np.concatenate([children, np.stack([own, own], 1)]),
        roots=roots,
        leaf=np.arange(inner + leaves) >= inner,
        members=members,
    )


def members(modes: np.ndarray, values: np.ndarray | None) -> Members | None:
    """The sets of the ``MEMBER`` nodes, in order, each ended by NaN.

    Raises:
        InvalidModelError: if there are not as many sets as such nodes.
    """
    asking = np.flatnonzero(modes == MODES.index("MEMBER"))
    flat = np.zeros(0, np.float32) if values is None else values.ravel()
    ends = np.flatnonzero(np.isnan(flat))
    if len(flat) and (not len(ends) or ends[-1] != len(flat) - 1):
        ends = np.append(ends, len(flat))  # the last NaN may be left out
    if len(ends) != len(asking):
        raise InvalidModelError(f"membership_values has {len(ends)} sets for {len(asking)} nodes")
    if not len(asking):
        return None
    starts = np.concatenate([[0], ends[:-1] + 1])
    sets = [np.sort(flat[a:b]) for a, b in zip(starts, ends, strict=True)]
    first, end = np.zeros(len(modes), np.int64), np.zeros(len(modes), np.int64)
    first[asking] = starts
    end[asking] = ends
    held = np.append(flat, np.array(np.nan, flat.dtype))
    for start, values_of in zip(starts, sets, strict=True):
        held[start : start + len(values_of)] = values_of
    return Members(held, first, end)


def refuse_outside(name: str, numbers: np.ndarray, count: np.ndarray) -> None:
    """Refuse numbers that are not from 0 to below ``count``.

    Raises:
        InvalidModelError: naming the attribute and the first of them.
    """
    outside = np.flatnonzero((numbers < 0) | (numbers >= count))
    if len(outside):
        limit = np.broadcast_to(count, numbers.shape)[outside[0]]
        raise InvalidModelError(f"{name} has {numbers[outside[0]]}, but there are {limit}")

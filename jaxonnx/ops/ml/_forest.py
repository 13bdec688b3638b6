"""Decision trees as arrays, walked for all rows and trees together.

A forest is one table of nodes. A leaf is its own child, so that after as many steps as the deepest
tree has levels every walk has arrived. On a CPU this is as fast as it gets with XLA: evaluating
every node of every tree by products or selections took four times as long in trees of depth 8.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxonnx.define.known import same_dim, xp
from jaxonnx.errors import InvalidModelError

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
"""Comparisons, in the order of TreeEnsemble's numbers."""

_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "LEQ": lambda value, split: value <= split,
    "LT": lambda value, split: value < split,
    "GTE": lambda value, split: value >= split,
    "GT": lambda value, split: value > split,
    "EQ": lambda value, split: value == split,
    "NEQ": lambda value, split: value != split,
}

_NEUTRAL = {"SUM": 0.0, "AVERAGE": 0.0, "MIN": np.inf, "MAX": -np.inf}
"""By aggregate, the weight that changes nothing."""

_AT_ONCE = 2**24
"""The most walks that are under way at once; more rows than that are taken in turn."""


@dataclasses.dataclass(frozen=True)
class Members:
    """Sets of values, of which a node may ask whether a feature is in one.

    Attributes:
        values: those of all sets, each set sorted.
        first: where the set of each node begins.
        end: where it ends.
    """

    values: np.ndarray
    first: np.ndarray
    end: np.ndarray


@dataclasses.dataclass(frozen=True)
class Forest:
    """Trees in one table of nodes.

    Attributes:
        features: the feature that each node reads.
        splits: what it compares the feature with.
        modes: the comparison, by its number in :data:`MODES`; of no meaning at a leaf.
        missing: whether NaN counts as true.
        children: where to go if the comparison is false, and if it is true; a leaf goes to itself.
        roots: the first node of each tree.
        leaf: whether each node is one.
        members: the sets of ``MEMBER`` nodes, if there are any.
    """

    features: np.ndarray
    splits: np.ndarray
    modes: np.ndarray
    missing: np.ndarray
    children: np.ndarray
    roots: np.ndarray
    leaf: np.ndarray
    members: Members | None = None

    def descend(self) -> tuple[int, np.ndarray]:
        """The depth of the deepest tree, and the tree that each node is in; -1 if in none.

        Where trees share nodes, all nodes count as of tree 0.

        Raises:
            InvalidModelError: if a node can be reached from itself.
        """
        owner, shared = np.full(len(self.leaf), -1), False
        nodes, trees = self.roots, np.arange(len(self.roots))
        for depth in range(len(self.leaf) + 1):
            shared |= bool(((owner[nodes] >= 0) & (owner[nodes] != trees)).any())
            owner[nodes] = trees
            shared |= bool((owner[nodes] != trees).any())
            nodes = np.unique(nodes[~self.leaf[nodes]])
            if not len(nodes):
                return depth, np.where(owner >= 0, 0, -1) if shared else owner
            trees = np.repeat(owner[nodes], 2)
            nodes = self.children[nodes].ravel()
        raise InvalidModelError("the trees have a cycle: a node can be reached from itself")


@dataclasses.dataclass(frozen=True)
class Votes:
    """What leaves add to which targets.

    Attributes:
        nodes: the leaf of each vote.
        targets: the target that it is for.
        weights: how much it is; may be traced.
    """

    nodes: np.ndarray
    targets: np.ndarray
    weights: Any


def scores(
    forest: Forest, votes: Votes, x: Any, *, targets: int, aggregate: str, dtype: Any
) -> Any:
    """What the leaves that rows ``[N, F]`` arrive at give for each target, as ``[N, targets]``.

    Raises:
        InvalidModelError: if a feature or a target is out of range.
    """
    if aggregate not in _NEUTRAL:
        raise InvalidModelError(
            f"aggregate_function is {aggregate!r}, expected one of {', '.join(_NEUTRAL)}"
        )
    _check_range("feature", forest.features[~forest.leaf], x.shape[1])
    _check_range("target", votes.targets, targets)
    if same_dim(x.shape[0], 0):
        return jnp.zeros((0, targets), dtype)
    x = x.astype(dtype)
    depth, owner = forest.descend()
    columns, slots = _slots(forest, votes, owner, targets)
    places = np.cumsum(forest.leaf, dtype=np.int32) - np.int32(1)
    table = _table(votes.weights, slots, _NEUTRAL[aggregate], dtype)
    single = slots.shape[1] == 1

    def given(part: Any) -> Any:
        leaves = _take(places, _walk(forest, part, depth))
        found = (
            _take(table[:, 0], leaves)[:, None] if single else _take(table, leaves).swapaxes(1, 2)
        )
        size = slots.shape[1] * len(forest.roots)
        return _aggregate(found.reshape(part.shape[0], size), columns, aggregate)

    result = _in_turn(given, x, len(forest.roots))
    return result / np.array(len(forest.roots), dtype) if aggregate == "AVERAGE" else result


def _check_range(what: str, numbers: np.ndarray, count: Any) -> None:
    if not isinstance(count, int):
        return
    outside = numbers[(numbers < 0) | (numbers >= count)]
    if len(outside):
        raise InvalidModelError(f"{what} {outside[0]} is read, but there are {count}")


def _take(array: Any, places: Any) -> Any:
    """Elements at places that are known to be inside, which spares XLA the checks."""
    at = jnp.asarray(array).at[places]
    return at.get(mode="promise_in_bounds", wrap_negative_indices=False)


def _in_turn(function: Callable[[Any], Any], x: Any, trees: int) -> Any:
    """``function`` of all rows at once, or of one block after another where they are many."""
    count, block = x.shape[0], max(_AT_ONCE // trees, 1)
    if not isinstance(count, int) or count <= block:
        return function(x)
    blocks = -(-count // block)
    padded = jnp.pad(x, ((0, blocks * block - count), (0, 0)))
    results = lax.map(function, padded.reshape(blocks, block, x.shape[1]))
    return results.reshape(blocks * block, -1)[:count]


def _walk(forest: Forest, x: Any, depth: int) -> Any:
    """The leaf of each row in each tree, as ``[N, T]``."""
    count, width = x.shape
    children = forest.children.astype(np.int32).reshape(-1)
    features = np.where(forest.leaf, 0, forest.features).astype(np.int32)
    first = (jnp.arange(count, dtype=np.int32) * width)[:, None]
    values = x.reshape(-1)

    def step(_: Any, node: Any) -> Any:
        value = _take(values, first + _take(features, node))
        true = _compared(forest, node, value)
        return _take(children, 2 * node + true.astype(np.int32))

    start = jnp.broadcast_to(forest.roots.astype(np.int32), (count, len(forest.roots)))
    return lax.fori_loop(0, depth, step, start)


def _compared(forest: Forest, node: Any, value: Any) -> Any:
    """Whether the comparison of each node holds for a value."""
    inner = ~forest.leaf
    split = _take(forest.splits.astype(value.dtype), node)
    result: Any = None
    for number in np.unique(forest.modes[inner]):
        mode = MODES[number]
        if mode == "MEMBER":
            held = _is_member(forest.members, node, value)
        else:
            held: Any = _COMPARE[mode](value, split)
        asked = True if result is None else _take(forest.modes, node) == number
        result = held if result is None else jnp.where(asked, held, result)
    if result is None:
        return jnp.zeros(value.shape, bool)
    if forest.missing[inner].any():
        result |= _take(forest.missing, node) & jnp.isnan(value)
    return result


def _is_member(members: Members | None, node: Any, value: Any) -> Any:
    """Whether a value is in the set of each node, by bisection."""
    assert members is not None
    first, end = (_take(a.astype(np.int32), node) for a in (members.first, members.end))
    values, place = members.values.astype(value.dtype), first
    longest = int((members.end - members.first).max())
    for bit in reversed(range(longest.bit_length())):
        further = place + (1 << bit)
        inside = further < end
        below = _take(values, jnp.where(inside, further, 0)) <= value
        place = jnp.where(inside & below, further, place)
    return (first < end) & (_take(values, jnp.where(first < end, place, 0)) == value)


def _slots(
    forest: Forest, votes: Votes, owner: np.ndarray, targets: int
) -> tuple[np.ndarray, np.ndarray]:
    """How votes are laid out: for each target the columns, and for each leaf the votes.

    The votes of a tree have places of their own, so that a tree that votes for one target of many,
    as in boosting, has one. Columns are numbered by place, then by tree; -1 stands for none.
    """
    used = owner[votes.nodes] >= 0
    numbers = np.flatnonzero(used & forest.leaf[votes.nodes])
    nodes, ids = votes.nodes[numbers], votes.targets[numbers]
    repeat = _repeats(nodes * targets + ids)
    key = (owner[nodes] * targets + ids) * (repeat.max(initial=0) + 1) + repeat
    kinds, kind = np.unique(key, return_inverse=True)
    tree, target = np.divmod(kinds // (repeat.max(initial=0) + 1), targets)
    place = np.arange(len(kinds)) - np.searchsorted(tree, tree)
    width = place.max(initial=0) + 1
    slots = np.full((int(forest.leaf.sum()), width), -1)
    slots[(np.cumsum(forest.leaf) - 1)[nodes], place[kind]] = numbers
    trees = len(forest.roots)
    if (owner <= 0).all() and trees > 1:  # nodes are shared: the places are those of every tree
        place, target = np.repeat(place, trees), np.repeat(target, trees)
        tree = np.tile(np.arange(trees), len(kinds))
    order = np.argsort(target, kind="stable")
    column = (place * trees + tree)[order]
    rank = np.arange(len(order)) - np.searchsorted(target[order], target[order])
    columns = np.full((targets, rank.max(initial=-1) + 1), -1)
    columns[target[order], rank] = column
    return columns, slots


def _repeats(keys: np.ndarray) -> np.ndarray:
    """For each key how many equal ones stand before it."""
    order = np.argsort(keys, kind="stable")
    ranks = np.arange(len(keys)) - np.searchsorted(keys[order], keys[order])
    repeats = np.empty_like(ranks)
    repeats[order] = ranks
    return repeats


def _table(weights: Any, slots: np.ndarray, neutral: float, dtype: Any) -> Any:
    """The weights of the votes of each leaf."""
    if not len(slots) or not len(weights):
        return jnp.full(slots.shape, neutral, dtype)
    found = weights.astype(dtype)[np.maximum(slots, 0)]
    return xp(weights).where(slots < 0, np.array(neutral, dtype), found)


def _aggregate(found: Any, columns: np.ndarray, aggregate: str) -> Any:
    """The columns of each target brought together, 0 where there is none."""
    neutral = np.array(_NEUTRAL[aggregate], found.dtype)
    if not np.array_equal(columns.ravel(), np.arange(found.shape[1])):
        found = jnp.pad(found, ((0, 0), (0, 1)), constant_values=neutral)
        found = found[:, np.where(columns < 0, found.shape[1] - 1, columns).ravel()]
    found = found.reshape(found.shape[0], *columns.shape)
    if aggregate in ("SUM", "AVERAGE"):
        return found.sum(2)
    result = (found.min if aggregate == "MIN" else found.max)(2, initial=neutral)
    return jnp.where(result == neutral, 0, result)

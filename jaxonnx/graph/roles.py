"""What stored values are for: weights that are trained, statistics, and constants.

GPT-2's GELU has the exponent 3.0 as an initializer. One step of Adam makes it 2.999, and the loss
NaN. So a stored value is a weight only where all its uses are those of one.
"""

import dataclasses
import difflib
import fnmatch
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from jaxonnx.errors import InputError
from jaxonnx.graph.plan import Graph, Node, Role, Source, Stored
from jaxonnx.graph.toolkit import Use, Uses, producers

_LOWEST = frozenset(
    float(ml_dtypes.finfo(t).min) for t in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
)
"""What masks hold where nothing is to be seen; a converted model has that of its former type."""


def stored_values(
    graph: Graph,
    pinned: Collection[str],
    sources: Mapping[str, tuple[Source, tuple[str, ...]]],
    trainable: Sequence[str] = (),
    frozen: Sequence[str] = (),
) -> dict[str, Stored]:
    """Every stored floating value of a graph and of those inside it, by name.

    Args:
        graph: the main graph.
        pinned: names of values that are constants, since they decide shapes or a caller gave them.
        sources: where values of the file come from; all others are folded.
        trainable: patterns of names that are weights whatever their use.
        frozen: patterns of names that are not; they win.

    Raises:
        InputError: if a pattern matches no stored value, or the name of one that decides a shape.
    """
    arrays = {n: a for g in graph.walk() for n, a in g.given.items() if is_float(a)}
    free = [n for n in arrays if n not in pinned]
    chosen = matching("trainable", trainable, free, arrays)
    held = matching("frozen", frozen, [*arrays], arrays)
    read, made = Uses(graph), producers(graph)
    found = {}
    for name, array in arrays.items():
        source, path = sources.get(name, ("folded", ()))
        if name in pinned or name in held:
            role: Role = "constant"
        elif name in chosen:
            role = "weight"
        else:
            role = _role(array, [*read.followed(name)], made, arrays, computed=source == "folded")
        users = tuple(dict.fromkeys(_user(u.node) for u in read.of(name) if u.node))
        fixed = name in pinned
        found[name] = Stored(name, role, source, path, users, fixed, array.dtype, array.shape)
    return found


def _user(node: Node) -> str:
    """A node in a few words: its operator and its name, or its output where it has none."""
    return f"{node.op_type} {node.name or node.key!r}"


def is_float(array: np.ndarray) -> bool:
    """Whether an array can be differentiated by: real or complex floating point."""
    return array.dtype.kind != "T" and jnp.issubdtype(array.dtype, jnp.inexact)


def _role(
    array: np.ndarray,
    found: Sequence[Use],
    made: Mapping[str, Node],
    arrays: Mapping[str, np.ndarray],
    *,
    computed: bool,
) -> Role:
    """What a value is for, from all its uses.

    One that nodes compute from no stored float, such as a grid of frequencies, is a weight only in
    the place of one.
    """
    places = [u.place for u in found]
    if "statistic" in places:
        return "statistic"
    if "constant" in places or array.size == 0 or _is_mask(array):
        return "constant"
    if array.size > 1 and not computed:
        return "weight"
    trained = [u.place == "weight" or _is_bias(u, made, arrays) for u in found]
    return "weight" if trained and all(trained) else "constant"


def _is_mask(array: np.ndarray) -> bool:
    """Whether an array holds an infinity, NaN or the lowest number of a type."""
    values = np.asarray(array)
    if jnp.issubdtype(values.dtype, jnp.complexfloating):
        return False
    low = values.min()  # NaN if one is
    return not np.isfinite(low) or float(low) in _LOWEST or not np.isfinite(values.max())


def _is_bias(use: Use, made: Mapping[str, Node], arrays: Mapping[str, np.ndarray]) -> bool:
    """Whether a value is added to a product with a weight that has one output."""
    node = use.node
    if node is None or node.op_type != "Add" or node.domain:
        return False
    producer = made.get(node.inputs[1 - use.position])
    if producer is None or producer.op_type not in ("Conv", "MatMul") or producer.domain:
        return False
    weight, axis = producer.inputs[1], 0 if producer.op_type == "Conv" else -1
    before = made.get(weight)
    if before is not None and before.op_type == "Transpose":
        weight, axis = before.inputs[0], -1 - axis
    return weight in arrays and arrays[weight].ndim > 0 and arrays[weight].shape[axis] == 1


def matching(
    option: str, patterns: Sequence[str], free: Collection[str], arrays: Collection[str]
) -> set[str]:
    """The names that patterns match, each at least one."""
    if isinstance(patterns, str):
        raise InputError(f"{option}={patterns!r}: expected a list of names or patterns")
    found: set[str] = set()
    for pattern in patterns:
        matched = {n for n in free if n == pattern or fnmatch.fnmatchcase(n, pattern)}
        if not matched and pattern in arrays:
            raise InputError(f"{option}: {pattern!r} decides a shape, so it cannot be trained")
        if not matched:
            raise InputError(
                f"{option}: no stored value is called {pattern!r}{near(pattern, arrays)}"
            )
        found |= matched
    return found


def near(name: str, names: Iterable[str]) -> str:
    """A question whether one of the names that resemble ``name`` is meant; nothing without any."""
    found = difflib.get_close_matches(name, [*names], n=3)
    return f"; did you mean {' or '.join(map(repr, found))}?" if found else ""


def take_weights(graph: Graph, stored: Mapping[str, Stored]) -> tuple[Graph, dict[str, np.ndarray]]:
    """Split the weights off a graph and those inside it."""
    weights: dict[str, np.ndarray] = {}
    is_weight = lambda name: name in stored and stored[name].role == "weight"

    def strip(inner: Graph) -> Graph:
        weights.update((n, a) for n, a in inner.given.items() if is_weight(n))
        nodes = [
            dataclasses.replace(
                node,
                attributes={
                    k: strip(v) if isinstance(v, Graph) else v for k, v in node.attributes.items()
                },
            )
            if node.subgraphs
            else node
            for node in inner.nodes
        ]
        rest = lambda values: {n: a for n, a in values.items() if not is_weight(n)}
        return dataclasses.replace(
            inner,
            nodes=tuple(nodes),
            initializers=rest(inner.initializers),
            constants=rest(inner.constants),
        )

    return strip(graph), weights


def sources_of(graph: Graph) -> dict[str, tuple[Source, tuple[str, ...]]]:
    """Where the values that a file stores come from, by name, before anything is folded."""
    found: dict[str, tuple[Source, tuple[str, ...]]] = {}
    for inner, path in _paths(graph, ()):
        found.update((n, ("initializer", path)) for n in inner.initializers)
        found.update((n, ("Constant node", path)) for n in inner.constants)
    return found


def _paths(graph: Graph, path: tuple[str, ...]) -> Iterator[tuple[Graph, tuple[str, ...]]]:
    """A graph and those inside it, each with the names of what it is inside of."""
    yield graph, path
    for node in graph.nodes:
        for name, value in node.attributes.items():
            if isinstance(value, Graph):
                yield from _paths(value, (*node.path, f"{node.name or node.op_type}.{name}"))

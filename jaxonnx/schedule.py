"""Splits a graph that no single program can hold into compiled stretches and nodes run between.

A node is run on concrete values where the shape of its result depends on them, where an operand
that must be known is computed from data, or where it handles strings or maps. All other nodes are
grouped into as few stretches as possible, each compiled once per shape. What depends on shapes and
constants alone is recomputed in every stretch that needs it, so that it stays known there.
"""

import dataclasses
from collections.abc import Collection, Mapping

from jaxonnx import schema
from jaxonnx.optimize.prune import reads
from jaxonnx.plan import Graph, Node
from jaxonnx.strings import text_values
from jaxonnx.trace import bound_name

_SHAPE_ONLY = ("OptionalHasElement", "SequenceLength", "Shape", "Size")
_BY_VALUE = "the shape of its result depends on values"
_MAPS = "it handles maps"


@dataclasses.dataclass(frozen=True)
class Phase:
    """A part of a graph that runs at once.

    Attributes:
        graph: its nodes; inputs are the values it reads, outputs those that are read later.
        compiled: whether it is one compiled program; otherwise its nodes run on concrete values.
        reasons: why nodes are not part of a compiled program, by the node's label.
    """

    graph: Graph
    compiled: bool
    reasons: Mapping[str, str]


def split(
    graph: Graph,
    known: Collection[str],
    text: Collection[str],
    found: Mapping[str, str],
    bounds: Mapping[str, int],
) -> tuple[Phase, ...]:
    """The phases of a graph in the order in which they run.

    Args:
        graph: the graph.
        known: names of inputs whose values are known while tracing.
        text: names of inputs that are strings.
        found: reasons for nodes that turned out to need concrete values, by first output.
        bounds: declared bounds; a node under one can be part of a compiled program.
    """
    data = _data_dependent(graph, known)
    reasons = _reasons(graph, data, known, text_values(graph, text)) | dict(found)
    reasons = {k: why for k, why in reasons.items() if k not in _under_bounds(graph, bounds)}
    level: dict[str, int] = {}
    groups: dict[int, list[Node]] = {}
    for node in graph.nodes:
        key = _key(node)
        base = max((level.get(n, 0) for n in reads(node)), default=0)
        if key in data or key in reasons:
            host = key in reasons
            base += (base % 2 == 0) if host else base % 2
            groups.setdefault(base, []).append(node)
        level.update((n, base) for n in node.outputs if n)
    shared = [n for n in graph.nodes if _key(n) not in data and _key(n) not in reasons]
    return _phases(graph, dict(sorted(groups.items())), shared, reasons)


def _under_bounds(graph: Graph, bounds: Mapping[str, int]) -> set[str]:
    return {_key(n) for n in graph.nodes if bound_name(n, bounds)}


def _phases(
    graph: Graph,
    groups: Mapping[int, list[Node]],
    shared: list[Node],
    reasons: Mapping[str, str],
) -> tuple[Phase, ...]:
    """Graphs of the groups, each with those of the shared nodes that it needs."""
    groups = groups or {0: []}
    parts = [_with_shared(graph, nodes, shared, ()) for nodes in groups.values()]
    computed = {o for nodes in parts for o in _made(nodes)}
    rest = [o for o in graph.outputs if o not in computed]
    parts[-1] = _with_shared(graph, parts[-1], shared, rest)
    phases = []
    for k, (level, nodes) in enumerate(groups.items()):
        own, made = _made(nodes), _made(parts[k])
        later = {n for other in parts[k + 1 :] for node in other for n in reads(node)}
        outputs = {n for n in made if n in graph.outputs or (n in own and n in later)}
        needed = {n for node in parts[k] for n in reads(node)}
        inner = {n for node in parts[k] for g in node.subgraphs for n in _inner(g)}
        part = Graph(
            inputs=tuple(sorted(needed - made - inner - set(graph.given))),
            outputs=tuple(sorted(outputs)),
            nodes=tuple(parts[k]),
            initializers={n: a for n, a in graph.initializers.items() if n in needed},
            constants={n: a for n, a in graph.constants.items() if n in needed},
        )
        why = {n.label: reasons[_key(n)] for n in nodes if _key(n) in reasons}
        phases.append(Phase(part, compiled=level % 2 == 0, reasons=why))
    return tuple(phases)


def _made(nodes: list[Node]) -> set[str]:
    return {o for node in nodes for o in node.outputs if o}


def _inner(graph: Graph) -> set[str]:
    """Names of the values that belong to a subgraph itself."""
    own = {*graph.inputs, *graph.given, *(o for n in graph.nodes for o in n.outputs if o)}
    return own.union(*(_inner(g) for n in graph.nodes for g in n.subgraphs))


def _with_shared(
    graph: Graph, nodes: list[Node], shared: list[Node], more: Collection[str]
) -> list[Node]:
    """``nodes`` with the shared ones that they depend on, in the order of the graph."""
    needed = {n for node in nodes for n in reads(node)} | set(more)
    chosen = {_key(n) for n in nodes}
    for node in reversed(shared):
        if not needed.isdisjoint(node.outputs):
            chosen.add(_key(node))
            needed.update(reads(node))
    return [n for n in graph.nodes if _key(n) in chosen]


def _key(node: Node) -> str:
    return next(filter(None, node.outputs), "")


def _data_dependent(graph: Graph, known: Collection[str]) -> set[str]:
    """First outputs of the nodes whose values depend on more than shapes and constants."""
    free = {*graph.given, *known}
    found: set[str] = set()
    for node in graph.nodes:
        by_shape = node.op_type in _SHAPE_ONLY
        inner = {n for g in node.subgraphs for n in _inner(g)}
        if (
            not by_shape and any(n not in free and n not in inner for n in reads(node))
        ) or schema.is_random(node):
            found.add(_key(node))
        else:
            free.update(n for n in node.outputs if n)
    return found


def _reasons(
    graph: Graph, data: Collection[str], known: Collection[str], text: set[str]
) -> dict[str, str]:
    """Why nodes need concrete values, by first output, as far as the graph itself tells."""
    values = {o for n in graph.nodes if _key(n) in data for o in n.outputs if o}
    values |= {n for n in graph.inputs if n not in graph.given and n not in known}
    found = {}
    for node in graph.nodes:
        operator, key = node.operator, _key(node)
        if not text.isdisjoint([*reads(node), *node.outputs]):
            found[key] = "it handles strings"
        elif operator is None or key not in data:
            continue
        elif operator.host:
            found[key] = _MAPS if schema.holds_values(node) else _BY_VALUE
        else:
            operands = [
                n for k, n in enumerate(node.inputs) if n in values and operator.is_static(k)
            ]
            if operands:
                found[key] = f"its operand {operands[0]!r} is computed from data"
    return found


def as_text(phases: Collection[Phase]) -> str:
    """What runs where and why, a line each."""
    lines = []
    for k, phase in enumerate(phases):
        if phase.compiled:
            lines.append(f"{k}: compiled, {len(phase.graph.nodes)} nodes")
        else:
            lines.append(f"{k}: on concrete values")
            lines += [f"   {label}: {why}" for label, why in phase.reasons.items()]
    return "\n".join(lines)

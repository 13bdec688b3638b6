"""Splits a graph that no single program can hold into compiled stretches and nodes run between.

A node is run on concrete values where the shape of its result depends on them, where an operand
that must be known is computed from data, or where it handles strings or maps. All other nodes are
grouped into as few stretches as possible, each compiled once per shape. What depends on shapes and
constants alone is recomputed in every stretch that needs it, so that it stays known there.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from jaxonnx.graph import facts
from jaxonnx.graph.plan import Graph, Node, bound_name
from jaxonnx.graph.text import text_values
from jaxonnx.graph.toolkit import reads

_BY_VALUE = "the shape of its result depends on values"
_MAPS = "it handles maps"
_TEXT = "it handles strings"


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
        graph: the graph; its inputs are all values that it reads from outside.
        known: names of inputs whose values are known while tracing.
        text: names of inputs that are strings.
        found: reasons for nodes that turned out to need concrete values, by first output.
        bounds: declared bounds; a node under one can be part of a compiled program.
    """
    data = _data_dependent(graph, known)
    strings = text_values(graph, text)
    under_bounds = {n.key for n in graph.nodes if bound_name(n, bounds)}
    reasons = _reasons(graph, data, known, strings) | dict(found)
    reasons = {k: why for k, why in reasons.items() if why == _TEXT or k not in under_bounds}
    if not reasons and strings.isdisjoint(graph.outputs):
        return (Phase(graph, compiled=True, reasons={}),)
    own, shared = _stretches(graph, data, reasons)
    parts = _with_shared(graph, [*own.values()], shared)
    phases, wanted = [], set(graph.outputs)
    for (level, nodes), part in reversed([*zip(own.items(), parts, strict=True)]):
        why = {n.label: reasons[n.key] for n in nodes if n.key in reasons}
        given = wanted.intersection(_made(nodes)).union(graph.outputs)
        phases.append(Phase(_part(graph, part, given), compiled=level % 2 == 0, reasons=why))
        wanted.update(n for node in part for n in reads(node))
    return tuple(reversed(phases))


def closed(graph: Graph) -> Graph:
    """``graph`` with all values that it reads from outside as its inputs, and no others."""
    inner = _inner(graph) - {*graph.inputs}
    needed = {n for node in graph.nodes for n in reads(node)} | {*graph.outputs}
    return dataclasses.replace(graph, inputs=tuple(sorted(needed - inner)))


def _stretches(
    graph: Graph, data: Collection[str], reasons: Collection[str]
) -> tuple[dict[int, list[Node]], list[Node]]:
    """The nodes of each level in the order in which they run, and the nodes that any may need.

    Nodes of an even level are compiled, those of an odd one run on concrete values. A node is on
    the lowest level at which all is there that it reads. Nodes that neither depend on ``data`` nor
    need concrete values are on none.
    """
    level: dict[str, int] = {}
    own: dict[int, list[Node]] = {}
    shared = []
    for node in graph.nodes:
        lowest = max((level.get(n, 0) for n in reads(node)), default=0)
        if node.key in data or node.key in reasons:
            lowest += lowest % 2 != (node.key in reasons)
            own.setdefault(lowest, []).append(node)
        else:
            shared.append(node)
        level.update((n, lowest) for n in node.outputs if n)
    return dict(sorted(own.items())) or {0: []}, shared


def _with_shared(
    graph: Graph, own: Sequence[Sequence[Node]], shared: Sequence[Node]
) -> list[list[Node]]:
    """Each group of nodes with the shared ones that it needs, in the order of the graph.

    The last group also computes what else the outputs of the graph need.
    """
    parts = [_add_shared(graph, nodes, shared, ()) for nodes in own]
    computed = {o for nodes in parts for o in _made(nodes)}
    rest = [o for o in graph.outputs if o not in computed]
    return [*parts[:-1], _add_shared(graph, parts[-1], shared, rest)]


def _add_shared(
    graph: Graph, nodes: Sequence[Node], shared: Sequence[Node], more: Collection[str]
) -> list[Node]:
    """``nodes`` with the shared ones that they and the values ``more`` depend on."""
    needed = {n for node in nodes for n in reads(node)} | set(more)
    chosen = {n.key for n in nodes}
    for node in reversed(shared):
        if not needed.isdisjoint(node.outputs):
            chosen.add(node.key)
            needed.update(reads(node))
    return [n for n in graph.nodes if n.key in chosen]


def _part(graph: Graph, nodes: Sequence[Node], wanted: Collection[str]) -> Graph:
    """Some nodes as a graph that takes what they read, and gives those of their values wanted."""
    made = _made(nodes)
    needed = {n for node in nodes for n in reads(node)}
    inner = {n for node in nodes for g in node.subgraphs for n in _inner(g)}
    return Graph(
        inputs=tuple(sorted(needed - made - inner - _fixed(graph))),
        outputs=tuple(sorted(made.intersection(wanted))),
        nodes=tuple(nodes),
        initializers={n: a for n, a in graph.initializers.items() if n in needed},
        constants={n: a for n, a in graph.constants.items() if n in needed},
    )


def _fixed(graph: Graph) -> set[str]:
    """Names of the stored values that no caller can replace."""
    return set(graph.given).difference(graph.inputs)


def _made(nodes: Sequence[Node]) -> set[str]:
    """Names of the values that nodes give."""
    return {o for node in nodes for o in node.outputs if o}


def _inner(graph: Graph) -> set[str]:
    """Names of the values that belong to a subgraph itself."""
    own = {*graph.inputs, *graph.given, *(o for n in graph.nodes for o in n.outputs if o)}
    return own.union(*(_inner(g) for n in graph.nodes for g in n.subgraphs))


def _data_dependent(graph: Graph, known: Collection[str]) -> set[str]:
    """First outputs of the nodes whose values depend on more than shapes and constants."""
    free = {*_fixed(graph), *known}
    found: set[str] = set()
    for node in graph.nodes:
        inner = {n for g in node.subgraphs for n in _inner(g)}
        by_value = any(n not in free and n not in inner for n in reads(node))
        if (by_value and not facts.reads_shapes_only(node)) or node.subgraphs:
            found.add(node.key)
        else:
            free.update(n for n in node.outputs if n)
    return found


def _reasons(
    graph: Graph, data: Collection[str], known: Collection[str], text: set[str]
) -> dict[str, str]:
    """Why nodes need concrete values, by first output, as far as the graph itself tells."""
    values = {o for n in graph.nodes if n.key in data for o in n.outputs if o}
    values |= {n for n in graph.inputs if n not in known}
    found = {}
    for node in graph.nodes:
        operator, key = node.operator, node.key
        if not text.isdisjoint([*reads(node), *node.outputs]):
            found[key] = _TEXT
        elif operator is None or key not in data:
            continue
        elif operator.host:
            found[key] = _MAPS if facts.holds_values(node) else _BY_VALUE
        else:
            operands = [
                n for k, n in enumerate(node.inputs) if n in values and operator.is_static(k)
            ]
            if operands:
                found[key] = f"its operand {operands[0]!r} is computed from data"
    return found


class Schedule(tuple[Phase, ...]):
    """The phases of a model in the order in which they run; it prints itself, a line each."""

    def __repr__(self) -> str:
        lines = []
        for k, phase in enumerate(self):
            if phase.compiled:
                lines.append(f"{k}: compiled, {len(phase.graph.nodes)} nodes")
            else:
                lines.append(f"{k}: on concrete values")
                lines += [f"   {label}: {why}" for label, why in phase.reasons.items()]
        return "\n".join(lines)

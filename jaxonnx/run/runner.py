"""Runs a graph outside of any trace, phase by phase."""

import dataclasses
import threading
from collections.abc import Collection, Mapping
from typing import Any

import jax
import numpy as np
from jax import core

from jaxonnx.define.padded import cut
from jaxonnx.errors import StaticValueError, UnpaddableError
from jaxonnx.graph.plan import Graph, Options
from jaxonnx.run.compiled import Compiled, StaticValues
from jaxonnx.run.phases import Phase, split
from jaxonnx.run.trace import Tracing


@dataclasses.dataclass(frozen=True)
class _Split:
    """A graph in phases, as it was split for what had been found out by then.

    Attributes:
        phases: the parts in the order in which they run.
        compiled: programs of the compiled ones, by number.
        found: nodes that turned out to need concrete values, by first output.
        text: names of the inputs that are strings.
        unpadded: numbers of those that take no padding; filled while running.
    """

    phases: tuple[Phase, ...]
    compiled: Mapping[int, Compiled]
    found: Mapping[str, str]
    text: frozenset[str]
    unpadded: set[int] = dataclasses.field(default_factory=set)


class Runner:
    """A graph with its phases; which nodes need concrete values is found out as it runs.

    A call keeps to the split that it began with, since another thread may make a new one.

    Attributes:
        graph: the graph.
        options: how it is traced and run.
        known: names of the inputs that are known while tracing.
    """

    def __init__(
        self, graph: Graph, known: Collection[str], text: Collection[str], options: Options
    ) -> None:
        self.graph = graph
        self.options = options
        self.known = frozenset(known)
        self._nested: dict[int, Runner] = {}
        self._lock = threading.Lock()
        self._current = self._split({}, frozenset(text))

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The parts in the order in which they run."""
        return self._current.phases

    def run(self, values: Mapping[str, Any]) -> list[Any]:
        """The outputs for values of the inputs, the parameters and the scopes around."""
        while True:
            split = self._current
            found, text = dict(split.found), split.text
            try:
                results, text = self._run(split, values)
                if results is not None:
                    return results
            except StaticValueError as error:
                node = next((n for n in self.graph.nodes if n is error.node), None)
                if node is None or node.key in found or not split.compiled:
                    raise
                found[node.key] = str(error).splitlines()[0]
            with self._lock:
                if self._current is split:  # else another thread was first
                    self._current = self._split(found, text)

    @property
    def compilations(self) -> int:
        """How many programs have been compiled so far, those of subgraphs included."""
        nested = sum(r.compilations for r in self._nested.values())
        return nested + sum(c.compilations for c in self._current.compiled.values())

    def _split(self, found: Mapping[str, str], text: frozenset[str]) -> _Split:
        bounds = self.options.bounds
        phases = split(self.graph, self.known, text, found, bounds)
        compiled = {k: Compiled(p.graph, bounds=bounds) for k, p in enumerate(phases) if p.compiled}
        return _Split(phases, compiled, found, text)

    def _run(
        self, split: _Split, values: Mapping[str, Any]
    ) -> tuple[list[Any] | None, frozenset[str]]:
        """The outputs, None where values turn out to be strings; and the names of all such."""
        values = {**self.graph.given, **values}
        for k, phase in enumerate(split.phases):
            inputs = {n: values[n] for n in phase.graph.inputs}
            if phase.compiled and not _text_names(inputs) <= split.text:
                return None, split.text | _text_names(inputs)
            if phase.compiled:
                static = StaticValues(
                    {n: np.asarray(v) for n, v in inputs.items() if n in self.known}
                )
                traced = {n: v for n, v in inputs.items() if n not in self.known}
                results = _call(split, k, traced, static)
            else:
                results = self._on_host(phase, inputs)
            values.update(zip(phase.graph.outputs, results, strict=True))
        return cut([values[n] for n in self.graph.outputs]), split.text

    def _on_host(self, phase: Phase, inputs: Mapping[str, Any]) -> list[Any]:
        tracing = Tracing(limit=float("inf"), concrete=self._subgraph, buckets=self.options.buckets)
        with jax.enable_x64(True):
            return tracing.run(phase.graph, {n: _concrete(v) for n, v in inputs.items()})

    def _subgraph(self, graph: Graph, values: Mapping[str, Any]) -> list[Any]:
        """Run a subgraph of one of the nodes, by a runner of its own."""
        runner = self._nested.get(id(graph))
        if runner is None:
            fresh = Runner(graph, (), _text_names(values), Options())
            runner = self._nested.setdefault(id(graph), fresh)
        return [_concrete(v) for v in runner.run(values)]


def _call(split: _Split, k: int, values: Mapping[str, Any], static: StaticValues) -> list[Any]:
    """Run a compiled phase, without padding if an operator in it has no exact rule for it."""
    if k not in split.unpadded:
        try:
            return split.compiled[k](values, static)
        except UnpaddableError:
            split.unpadded.add(k)
    return split.compiled[k](cut(values), static)


def _text_names(values: Mapping[str, Any]) -> set[str]:
    """Names of the values that are strings, or sequences or maps of whatever kind."""
    return {n for n, v in values.items() if _is_text(v)}


def _is_text(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_is_text, value))
    return isinstance(value, dict) or getattr(getattr(value, "dtype", None), "kind", "") in "OT"


def _concrete(value: Any) -> Any:
    """A value with its arrays as NumPy; those that are being differentiated stay as they are."""
    return jax.tree.map(_to_numpy, cut(value))


def _to_numpy(value: Any) -> Any:
    plain = isinstance(value, jax.Array) and not isinstance(value, core.Tracer)
    return np.asarray(value) if plain else value

"""Runs a graph outside of any trace, phase by phase."""

from collections.abc import Collection, Mapping
from typing import Any

import jax
import numpy as np
from jax import core

from jaxonnx import schedule
from jaxonnx.compiled import Compiled, StaticValues
from jaxonnx.errors import StaticValueError, UnpaddableError
from jaxonnx.padded import cut
from jaxonnx.plan import Graph, Options
from jaxonnx.schedule import Phase
from jaxonnx.trace import Tracing


class Runner:
    """A graph with its phases; which nodes need concrete values is found out as it runs.

    Attributes:
        graph: the graph.
        options: how it is traced and run.
        known: names of the inputs that are known while tracing.
        phases: the parts in the order in which they run.
    """

    def __init__(
        self, graph: Graph, known: Collection[str], text: Collection[str], options: Options
    ) -> None:
        self.graph = graph
        self.options = options
        self.known = frozenset(known)
        self._text = frozenset(text)
        self._found: dict[str, str] = {}
        self._nested: dict[int, Runner] = {}
        self._split()

    def run(self, values: Mapping[str, Any]) -> list[Any]:
        """The outputs for values of the inputs, the parameters and the scopes around."""
        while True:
            try:
                return self._run(values)
            except StaticValueError as error:
                node = next((n for n in self.graph.nodes if n is error.node), None)
                if node is None or node.key in self._found or not self._compiled:
                    raise
                self._found[node.key] = str(error).splitlines()[0]
                self._split()

    @property
    def compilations(self) -> int:
        """How many programs have been compiled so far, those of subgraphs included."""
        nested = sum(r.compilations for r in self._nested.values())
        return nested + sum(c.compilations for c in self._compiled.values())

    def _split(self) -> None:
        bounds = self.options.bounds
        self.phases = schedule.split(self.graph, self.known, self._text, self._found, bounds)
        self._compiled = {
            k: Compiled(p.graph, bounds=bounds) for k, p in enumerate(self.phases) if p.compiled
        }
        self._unpadded: set[int] = set()

    def _run(self, values: Mapping[str, Any]) -> list[Any]:
        values = {**self.graph.given, **values}
        for k, phase in enumerate(self.phases):
            inputs = {n: values[n] for n in phase.graph.inputs}
            if phase.compiled and not _text_names(inputs) <= self._text:
                self._text |= _text_names(inputs)
                self._split()
                return self._run(values)
            if phase.compiled:
                static = StaticValues(
                    {n: np.asarray(v) for n, v in inputs.items() if n in self.known}
                )
                traced = {n: v for n, v in inputs.items() if n not in self.known}
                results = self._compile(k, traced, static)
            else:
                results = self._on_host(phase, inputs)
            values.update(zip(phase.graph.outputs, results, strict=True))
        return cut([values[n] for n in self.graph.outputs])

    def _compile(self, k: int, values: Mapping[str, Any], static: StaticValues) -> list[Any]:
        """Run a compiled phase, without padding if an operator in it has no exact rule for it."""
        if k not in self._unpadded:
            try:
                return self._compiled[k](values, static)
            except UnpaddableError:
                self._unpadded.add(k)
        return self._compiled[k](cut(values), static)

    def _on_host(self, phase: Phase, inputs: Mapping[str, Any]) -> list[Any]:
        tracing = Tracing(limit=float("inf"), concrete=self._subgraph, buckets=self.options.buckets)
        with jax.enable_x64(True):
            return tracing.run(phase.graph, {n: _concrete(v) for n, v in inputs.items()})

    def _subgraph(self, graph: Graph, values: Mapping[str, Any]) -> list[Any]:
        """Run a subgraph of one of the nodes, by a runner of its own."""
        runner = self._nested.get(id(graph))
        if runner is None:
            runner = self._nested[id(graph)] = Runner(graph, (), _text_names(values), Options())
        return [_concrete(v) for v in runner.run(values)]


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

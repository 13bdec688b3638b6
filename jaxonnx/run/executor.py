"""Runs a graph: as one program if one can hold it, else phase by phase."""

import dataclasses
import functools
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import core, lax

from jaxonnx.define.padded import cut
from jaxonnx.define.streams import KEY, is_key
from jaxonnx.errors import DataDependentShapeError, StaticValueError, UnpaddableError
from jaxonnx.graph.plan import Graph, Options, Spec
from jaxonnx.run.compiled import Compiled, as_declared, large_constants, replaceable
from jaxonnx.run.messages import must_be_known, value_dependent
from jaxonnx.run.phases import Phase, Schedule, closed, split
from jaxonnx.run.trace import Tracing

Leaves = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class _Split:
    """A graph in phases, as it was split for what had been found out by then.

    Attributes:
        phases: the parts in the order in which they run.
        compiled: the program of each; None for one that runs on concrete values.
        found: nodes that turned out to need concrete values, by first output.
        text: names of the values that are strings.
        unpadded: numbers of the phases that take no padding; filled while running.
    """

    phases: Schedule
    compiled: Sequence[Compiled | None]
    found: Mapping[str, str]
    text: frozenset[str]
    unpadded: set[int] = dataclasses.field(default_factory=set)


class _TextFoundError(Exception):
    """Values that turned out to be strings are about to enter a program."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = names


class Executor:
    """A graph with its phases; which nodes need concrete values is found out as it runs.

    A call keeps to the split that it began with, since another thread may make a new one.

    Attributes:
        graph: the graph; its inputs are all values that it reads from outside.
        leaves: names of the arrays that a call gives by position: the parameters, then the
            constants too large to be literals in a program.
        whole: the graph as one program, for traces and where it is the only phase.
    """

    def __init__(
        self,
        graph: Graph,
        options: Options,
        *,
        params: Sequence[str] = (),
        known: Collection[str] = (),
        text: Collection[str] = (),
        specs: Sequence[Spec] = (),
        leaves: Sequence[str] | None = None,
    ) -> None:
        """Split the graph as far as it tells by itself.

        Args:
            graph: the graph.
            options: how it is traced and run.
            params: names of the parameters.
            known: names of the inputs that are known while tracing.
            text: names of the inputs that are strings.
            specs: what is declared of the outputs, if anything is.
            leaves: names of what is given by position, where it is a part of a larger graph.
        """
        self.graph = closed(graph)
        self.leaves = (*params, *large_constants(graph)) if leaves is None else tuple(leaves)
        self._options = options
        self._places = {n: k for k, n in enumerate(self.leaves)}
        self._given = self.graph.given
        self._known = tuple(known)
        self._specs = specs
        self._pads = bool(options.bounds) or options.buckets
        self._axes: dict[Any, Any] = {}
        self._nested: dict[int, Executor] = {}
        self._lock = threading.Lock()
        self.whole = self._compile(self.graph, specs)
        self._current = self._split({}, frozenset(text))
        self._direct = not self.in_phases and not self._pads

    @functools.cached_property
    def constants(self) -> Leaves:
        """The last of the leaves: constants too large to be literals in a program."""
        with core.eval_context(), jax.enable_x64(True):
            return tuple(jnp.asarray(a) for a in large_constants(self.graph).values())

    @property
    def draws(self) -> bool:
        """Whether it may draw random numbers."""
        return KEY in self.graph.inputs

    @property
    def phases(self) -> Schedule:
        """The parts in the order in which they run."""
        return self._current.phases

    @property
    def in_phases(self) -> bool:
        """Whether it is known by now that no single program can hold the graph."""
        return self._current.compiled != [self.whole]

    @property
    def compilations(self) -> int:
        """How many programs have been compiled so far, those of subgraphs included."""
        nested = sum(e.compilations for e in self._nested.values())
        return nested + sum(c.compilations for c in self._current.compiled if c is not None)

    def trace(self, leaves: Leaves, values: Mapping[str, Any]) -> list[Any]:
        """The outputs inside a trace.

        Raises:
            StaticValueError: if a traced input decides a shape.
            DataDependentShapeError: if no single program can hold the graph.
        """
        try:
            return self.whole(leaves, _own(self.whole.reads, values))
        except StaticValueError as error:
            undecided = [n for n in self._known if isinstance(values.get(n), core.Tracer)]
            if undecided:
                raise StaticValueError(must_be_known(undecided)) from error
            labels = {label for phase in self.phases for label in phase.reasons}
            nodes = [n for n in self.graph.nodes if n.label in labels]
            if not nodes or not isinstance(error, DataDependentShapeError):
                raise
            raise DataDependentShapeError(value_dependent(nodes)) from error

    def run(self, leaves: Leaves, values: Mapping[str, Any], *, numeric: bool = False) -> list[Any]:
        """The outputs outside of a trace.

        Args:
            leaves: arrays by position.
            values: everything else by name.
            numeric: whether all values are known to be numeric arrays.
        """
        if numeric and self._direct and values.keys() <= self.whole.reads:
            try:
                return self.whole(leaves, values)
            except StaticValueError:
                pass  # the loop finds out which node it is
        while True:
            split = self._current
            found, text = dict(split.found), split.text
            try:
                return self._run(split, leaves, values)
            except _TextFoundError as error:
                text |= frozenset(error.names)
            except StaticValueError as error:
                node = next((n for n in self.graph.nodes if n is error.node), None)
                if node is None or node.key in found or not any(split.compiled):
                    raise
                found[node.key] = str(error).splitlines()[0]
            with self._lock:
                if self._current is split:  # else another thread was first
                    self._current = self._split(found, text)
                    self._direct = False

    def _split(self, found: Mapping[str, str], text: frozenset[str]) -> _Split:
        phases = split(self.graph, self._known, text, found, self._options.bounds)
        compiled = [
            self.whole
            if phase.graph is self.graph
            else self._compile(phase.graph)
            if phase.compiled
            else None
            for phase in phases
        ]
        return _Split(Schedule(phases), compiled, found, text)

    def _compile(self, graph: Graph, specs: Sequence[Spec] = ()) -> Compiled:
        return Compiled(
            graph,
            leaves=self.leaves,
            known=self._known,
            specs=specs,
            bounds=self._options.bounds,
            compute=self._options.compute,
        )

    def _run(self, split: _Split, leaves: Leaves, values: Mapping[str, Any]) -> list[Any]:
        if split.compiled == [self.whole]:
            outputs = _call(split, 0, leaves, values)
            return cut(outputs) if self._pads else outputs
        values = dict(values)
        for k, phase in enumerate(split.phases):
            if phase.compiled:
                results = _call(split, k, leaves, values)
            else:
                inputs = {n: self._find(n, leaves, values) for n in phase.graph.inputs}
                replaced = _own(replaceable(phase.graph), values)
                results = self._on_host(phase, {**inputs, **replaced})
            values.update(zip(phase.graph.outputs, results, strict=True))
        return self._finish([self._find(n, leaves, values) for n in self.graph.outputs])

    def _find(self, name: str, leaves: Leaves, values: Mapping[str, Any]) -> Any:
        """A value by name: given or computed, a leaf, or stored."""
        if name in values:
            return values[name]
        place = self._places.get(name)
        return self._given[name] if place is None else leaves[place]

    def _finish(self, outputs: list[Any]) -> list[Any]:
        """Outputs of phases as those of one program are: of the declared dtype, and JAX's."""
        outputs = cut(outputs) if self._pads else outputs
        if not self._specs:
            return outputs
        pairs = zip(outputs, self._specs, strict=True)
        checked = [jax.tree.map(lambda a, s=spec: as_declared(a, s), v) for v, spec in pairs]
        return [_as_arrays(v) for v in checked]

    def _on_host(self, phase: Phase, inputs: Mapping[str, Any]) -> list[Any]:
        axes = self._axes if self._options.buckets else None
        tracing = Tracing(limit=float("inf"), concrete=self._subgraph, buckets=axes)
        with jax.enable_x64(True):
            return tracing.run(phase.graph, {n: _concrete(v) for n, v in inputs.items()})

    def _subgraph(self, graph: Graph, values: Mapping[str, Any]) -> list[Any]:
        """Run a subgraph of one of the nodes, by an executor of its own."""
        executor = self._nested.get(id(graph))
        if executor is None:
            fresh = Executor(
                graph, Options(compute=self._options.compute), text=_text_names(values)
            )
            executor = self._nested.setdefault(id(graph), fresh)
        return [_concrete(v) for v in executor.run(executor.constants, values)]


def is_inside_a_trace(values: Iterable[Any]) -> bool:
    """Whether a value is abstract; under plain differentiation tracers have concrete ones."""
    for value in values:
        if isinstance(value, core.Tracer):
            if isinstance(lax.stop_gradient(value), core.Tracer):
                return True
        elif isinstance(value, (list, tuple, dict)) and is_inside_a_trace(jax.tree.leaves(value)):
            return True
    return False


def _own(names: frozenset[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values that have one of the names."""
    if values.keys() <= names:
        return dict(values)
    return {n: values[n] for n in values.keys() & names}


def _call(split: _Split, k: int, leaves: Leaves, values: Mapping[str, Any]) -> list[Any]:
    """Run a compiled phase, without padding if an operator in it has no exact rule for it."""
    compiled = split.compiled[k]
    assert compiled is not None
    own = _own(compiled.reads, values)
    text = _text_names(own)
    if text and not text <= split.text:
        raise _TextFoundError(text)
    if k not in split.unpadded:
        try:
            return compiled(leaves, own)
        except UnpaddableError:
            split.unpadded.add(k)
    return compiled(leaves, cut(own))


def _text_names(values: Mapping[str, Any]) -> set[str]:
    """Names of the values that are strings, or sequences or maps of whatever kind."""
    return {n for n, v in values.items() if n != KEY and _is_text(v)}


def _is_text(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_is_text, value))
    return isinstance(value, dict) or getattr(getattr(value, "dtype", None), "kind", "") in "OT"


def _concrete(value: Any) -> Any:
    """A value with its arrays as NumPy; those that are being differentiated stay as they are."""
    return jax.tree.map(_to_numpy, cut(value))


def _to_numpy(value: Any) -> Any:
    plain = isinstance(value, jax.Array) and not isinstance(value, core.Tracer)
    plain = plain and not is_key(value)
    return np.asarray(value) if plain else value


def _as_arrays(value: Any) -> Any:
    """What nodes outside of programs gave as JAX arrays, too, but for strings.

    The numbers of maps are Python's, unless they are being differentiated.
    """
    if isinstance(value, list):
        return [_as_arrays(v) for v in value]
    if isinstance(value, dict):
        return {k: _number(v) for k, v in value.items()}
    if value is None or getattr(value.dtype, "kind", "") == "T":
        return value
    with jax.enable_x64(True):
        return jnp.asarray(value)


def _number(value: Any) -> Any:
    """A map's value as a Python number or string if it is one."""
    known = isinstance(value, (np.ndarray, np.generic)) and value.ndim == 0
    return value.item() if known else value

"""One graph as one jitted function."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import core

from jaxonnx.define import experimental as checks
from jaxonnx.define.known import LITERAL_BYTES, is_symbolic, x64_enabled
from jaxonnx.define.padded import map_arrays
from jaxonnx.errors import InvalidModelError
from jaxonnx.graph.plan import Graph, Spec
from jaxonnx.run.precision import guard_double
from jaxonnx.run.trace import Tracing


class StaticValues:
    """Arrays as a key: equal where names, dtypes, shapes and bytes are."""

    def __init__(self, values: Mapping[str, np.ndarray]) -> None:
        self.values = values
        self._key = tuple((n, v.dtype, v.shape, v.tobytes()) for n, v in sorted(values.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StaticValues) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


class Compiled:
    """A graph with its jitted function, compiled once per combination of shapes.

    Attributes:
        graph: the graph; its inputs are all values that it reads from outside.
        reads: names of the values that a call may give it.
        compilations: how often the graph has been traced, once per combination of shapes.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        leaves: Sequence[str] = (),
        known: Collection[str] = (),
        specs: Sequence[Spec] = (),
        bounds: Mapping[str, int] | None = None,
        compute: np.dtype | None = None,
    ) -> None:
        """Prepare the function; nothing is traced yet.

        Args:
            graph: the graph.
            leaves: names of the arrays that every call gives by position, more than this graph
                needs maybe: parameters, and its constants too large to be literals.
            known: names of the inputs that are known while tracing.
            specs: what is declared of the outputs, if anything is.
            bounds: the most results of value-dependent nodes, by name.
            compute: the floating type to compute in, where it is not the declared one.
        """
        self.graph = graph
        self.compilations = 0
        self._bounds = dict(bounds or {})
        self._compute = compute
        self._specs = specs or [Spec(n, None, None) for n in graph.outputs]
        self._large = large_constants(graph)
        self.reads = replaceable(graph)
        self._static = tuple(n for n in graph.inputs if n in known)
        places = [k for k, n in enumerate(leaves) if n in self.reads]
        self._places = None if len(places) == len(leaves) else places
        self._leaves = tuple(leaves[k] for k in places)
        self._jit = jax.jit(self._run, static_argnums=(2, 3))

    def __call__(self, leaves: tuple[Any, ...], values: Mapping[str, Any]) -> list[Any]:
        """The outputs for arrays by position, and values of what it reads by name.

        Raises:
            StaticValueError: if a value is traced that decides a shape.
            DataDependentShapeError: if a node has more results than its bound; inside a trace that
                is a check for ``checkify``.
        """
        exact = x64_enabled()  # around the call: then derivatives are exact in double, too
        arguments = self._arguments(leaves, values)
        with jax.enable_x64(True):
            outputs, counts = self._jit(*arguments, exact)
        if counts:
            checks.check_bounds(counts, self._bounds)
        return outputs

    def lower(self, leaves: tuple[Any, ...], values: Mapping[str, Any]) -> Any:
        """The program before it is compiled, as ``jax.jit(...).lower`` gives it."""
        with jax.enable_x64(True):
            return self._jit.lower(*self._arguments(leaves, values), False)

    def _arguments(self, leaves: tuple[Any, ...], values: Mapping[str, Any]) -> tuple[Any, ...]:
        if self._places is not None:
            leaves = tuple(map(leaves.__getitem__, self._places))
        if not self._static:
            return leaves, values, None
        known = {
            n: np.asarray(values[n])
            for n in self._static
            if n in values and not isinstance(values[n], core.Tracer)
        }
        return leaves, {n: v for n, v in values.items() if n not in known}, StaticValues(known)

    def _run(
        self,
        leaves: tuple[Any, ...],
        values: dict[str, Any],
        static: StaticValues | None,
        exact: bool,
    ) -> tuple[list[Any], dict[str, Any]]:
        self.compilations += 1
        named = dict(zip(self._leaves, leaves, strict=True))
        large = {id(a): named.pop(n) for n, a in self._large.items() if n in named}
        tracing = Tracing(large, bounds=self._bounds, compute=self._compute)
        if not exact:
            tracing = dataclasses.replace(tracing, guard=guard_double)
        traced = {n: jax.tree.map(tracing.guarded, v) for n, v in {**named, **values}.items()}
        known = static.values if static else {}
        outputs = tracing.run(self.graph, {**traced, **known})
        lifted = [
            map_arrays(
                lambda v, s=spec: tracing.guarded(tracing.lift(as_declared(v, s), s.dtype)),
                tracing.declared(value, spec.dtype),
            )
            for value, spec in zip(outputs, self._specs, strict=True)
        ]
        return lifted, tracing.counts


def replaceable(graph: Graph) -> frozenset[str]:
    """Names of the values that a graph is given: inputs, and stored ones given in their place."""
    return frozenset((*graph.inputs, *(n for inner in graph.walk() for n in inner.given)))


def large_constants(graph: Graph) -> dict[str, np.ndarray]:
    """Constants that are arguments of a program, those of graphs inside included."""
    return {
        n: a
        for inner in graph.walk()
        for n, a in inner.given.items()
        if a.nbytes > LITERAL_BYTES and a.dtype.kind != "T"
    }


def as_declared(value: Any, spec: Spec) -> Any:
    """An array of an output if it has the declared dtype; dimensions take any integer one.

    Raises:
        InvalidModelError: if it has another.
    """
    dtype = getattr(value, "dtype", None)
    if dtype is None or spec.dtype is None or is_symbolic(value) or dtype == spec.dtype:
        return value
    raise InvalidModelError(f"output {spec.name!r} is {dtype}, but the model declares {spec}")

"""One graph as one compiled program."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
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

    def __init__(self, values: dict[str, np.ndarray]) -> None:
        self.values = values
        self._key = tuple((n, v.dtype, v.shape, v.tobytes()) for n, v in sorted(values.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StaticValues) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


class Compiled:
    """A graph with its jitted function, compiled once per combination of shapes.

    Attributes:
        graph: the graph.
        specs: what is declared of its outputs, where it is.
        bounds: the most results of value-dependent nodes, by name.
        compilations: how often the graph has been traced, once per combination of shapes.
    """

    def __init__(
        self, graph: Graph, specs: Sequence[Spec] = (), bounds: Mapping[str, int] | None = None
    ) -> None:
        self.graph = graph
        self.specs = specs
        self.bounds = dict(bounds or {})
        self.compilations = 0
        self._jit = jax.jit(self._run, static_argnames=("static", "exact"))

    def __call__(self, values: Mapping[str, Any], static: StaticValues) -> list[Any]:
        """The outputs for traced values by name, and values that are known while tracing.

        Raises:
            DataDependentShapeError: if a node has more results than its bound; inside a trace that
                is a check for ``checkify``.
        """
        exact = x64_enabled()  # around the call: then derivatives are exact in double, too
        with jax.enable_x64(True):
            outputs, counts = self._jit(dict(values), self._arguments, static=static, exact=exact)
        checks.check_bounds(counts, self.bounds)
        return outputs

    def lower(self, values: Mapping[str, Any], static: StaticValues) -> Any:
        """The program before it is compiled, as ``jax.jit(...).lower`` gives it."""
        with jax.enable_x64(True):
            return self._jit.lower(dict(values), self._arguments, static=static, exact=False)

    @functools.cached_property
    def _large(self) -> dict[str, np.ndarray]:
        """Constants that are arguments of the program."""
        return {
            n: a
            for graph in self.graph.walk()
            for n, a in graph.given.items()
            if a.nbytes > LITERAL_BYTES and a.dtype.kind != "T"
        }

    @functools.cached_property
    def _arguments(self) -> dict[str, jax.Array]:
        with core.eval_context(), jax.enable_x64(True):
            return {n: jnp.asarray(a) for n, a in self._large.items()}

    def _run(
        self,
        values: dict[str, Any],
        arguments: Mapping[str, jax.Array],
        *,
        static: StaticValues,
        exact: bool,
    ) -> tuple[list[Any], dict[str, Any]]:
        self.compilations += 1
        large = {id(self._large[n]): a for n, a in arguments.items()}
        tracing = Tracing(large, bounds=self.bounds)
        if not exact:
            tracing = dataclasses.replace(tracing, guard=guard_double)
        values = {n: jax.tree.map(tracing.guard, v) for n, v in values.items()}
        outputs = tracing.run(self.graph, {**values, **static.values})
        specs = self.specs or [Spec(n, None, None) for n in self.graph.outputs]
        lifted = [
            map_arrays(lambda v, s=spec: tracing.lift(as_declared(v, s), s.dtype), value)
            for value, spec in zip(outputs, specs, strict=True)
        ]
        return lifted, tracing.counts


def as_declared(value: Any, spec: Spec) -> Any:
    """An array of an output if it has the declared dtype; dimensions take any integer one.

    Raises:
        InvalidModelError: if it has another.
    """
    dtype = getattr(value, "dtype", None)
    if dtype is None or spec.dtype is None or is_symbolic(value) or dtype == spec.dtype:
        return value
    raise InvalidModelError(f"output {spec.name!r} is {dtype}, but the model declares {spec}")

"""Walks a graph under a JAX trace: known values stay known, everything else is traced."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import core, export

from jaxonnx import graph as graphs
from jaxonnx import padded, schema
from jaxonnx.errors import (
    DataDependentShapeError,
    StaticValueError,
)
from jaxonnx.known import (
    LITERAL_BYTES,
    is_known,
    is_symbolic,
    lift,
    tidy,
)
from jaxonnx.messages import notes, value_dependent
from jaxonnx.padded import Padded, cut, pad
from jaxonnx.plan import Graph, Node
from jaxonnx.precision import is_double
from jaxonnx.registry import Operator
from jaxonnx.tensors import type_of

Values = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Tracing:
    """What one trace of a model needs beside its values.

    Attributes:
        arguments: large known arrays by ``id``, as the arguments of the compiled program that
            stand for them where they meet a traced value.
        limit: known results above this many bytes are computed in the program instead.
        guard: applied to traced doubles that come from no other double.
        concrete: runs subgraphs outside of a trace; None while tracing.
        bounds: the most results of nodes whose number of them depends on values, by name of the
            node or of one of its outputs.
        counts: filled while tracing: the number of results by name in ``bounds``.
        buckets: outside of a trace, whether value-dependent sizes are padded to powers of two.
    """

    arguments: Mapping[int, jax.Array] = dataclasses.field(default_factory=dict)
    limit: float = LITERAL_BYTES
    guard: Callable[[Any], Any] = lambda value: value
    concrete: "Callable[[Graph, Values], list[Any]] | None" = None
    bounds: Mapping[str, int] = dataclasses.field(default_factory=dict)
    counts: dict[str, Any] = dataclasses.field(default_factory=dict)
    buckets: bool = False

    def lift(self, value: Any, dtype: Any = None) -> Any:
        """A known array as a traced one; anything else as it is."""
        if not is_known(value):
            return value
        argument = self.arguments.get(id(value))
        return lift(value, dtype) if argument is None else argument

    def run(self, graph: Graph, values: Values) -> list[Any]:
        """The outputs of ``graph`` for the values of its inputs and of the scopes around it."""
        values = {**graph.given, **values}
        for node in graph.nodes:
            args = [values[name] if name else None for name in node.inputs]
            with notes(node, args):
                results = self.evaluate(node, args, values)
            values.update((n, r) for n, r in zip(node.outputs, results, strict=False) if n)
        return [values[name] for name in graph.outputs]

    def evaluate(self, node: Node, args: Sequence[Any], values: Values) -> Sequence[Any]:
        """The outputs of one node; ``values`` are those that its subgraphs can see."""
        dtypes = [None if a is None or is_symbolic(a) else _dtype(a) for a in args]
        bound = schema.check_types(node, dtypes)
        operator = node.operator
        if operator is None:
            return self._run_body(node, args)
        attributes = {**schema.float_defaults(operator, node), **node.attributes}
        if operator.counts_outputs:
            attributes["outputs"] = len(node.outputs)
        args = [*args]
        if node.subgraphs:
            attributes = {n: self._subgraph(a, values) for n, a in attributes.items()}
        if self.concrete is not None:
            args = cut(args)
        if any(isinstance(a, Padded) for a in args):
            return padded.apply(operator, args, attributes, node.label)
        _require_known(node, operator, args)
        known = all(a is None or is_known(a) for a in args)
        name = bound_name(node, self.bounds)
        if name and operator.bounded is not None and (node.subgraphs or not known):
            return self._bounded(operator.bounded, args, attributes, name)
        if operator.host and self.concrete is None and not known:
            raise DataDependentShapeError(value_dependent([node]))
        if node.subgraphs:
            return _as_outputs(operator.function(*args, **attributes))
        if self._foldable(node, operator, args):
            results = _fold(node, operator, args, attributes, bound)
            if self.buckets and operator.bounded is not None:
                return _in_buckets(operator.bounded, args, attributes, results)
            if sum(getattr(r, "nbytes", 0) for r in results) <= self.limit:
                return results
        lifted = self._lift_all(node, operator, args, bound)
        results = _as_outputs(operator.function(*lifted, **attributes))
        if self.buckets and operator.bounded is not None:
            return _in_buckets(operator.bounded, lifted, attributes, results)
        doubles = any(is_double(a) for a in lifted)
        return results if doubles else [self.guard(r) for r in results]

    def _bounded(
        self, function: Callable[..., Any], args: Sequence[Any], attributes: Values, name: str
    ) -> Sequence[Any]:
        """The padded outputs of a node under a declared bound."""
        results = _as_outputs(function(*map(self.lift, args), size=self.bounds[name], **attributes))
        self.counts[name] = next(r.count for r in results if isinstance(r, Padded))
        return results

    def _run_body(self, node: Node, args: Sequence[Any]) -> list[Any]:
        """The outputs of a node that runs from a body which its schema builds for its inputs."""
        body = graphs.read_body(node, [type_of(a) for a in args])
        absent = [None] * (len(body.inputs) - len(args))
        results = iter(self.run(body, dict(zip(body.inputs, [*args, *absent], strict=True))))
        return [next(results) if name else None for name in node.outputs]

    def _subgraph(self, attribute: Any, values: Values) -> Any:
        """A subgraph as a function of its inputs; any other attribute as it is."""
        if not isinstance(attribute, Graph):
            return attribute
        traced = dataclasses.replace(self, bounds={}, concrete=None).run
        return Subgraph(attribute, values, self.concrete or traced, traced)

    def _foldable(self, node: Node, operator: Operator, args: Sequence[Any]) -> bool:
        """Whether all inputs are known, and in a form that the operator computes with."""
        known = all(a is None or is_known(a) for a in args) and not schema.is_random(node)
        return known and (operator.symbolic or not any(map(is_symbolic, args)))

    def _lift_all(
        self, node: Node, operator: Operator, args: Sequence[Any], bound: Mapping[str, np.dtype]
    ) -> list[Any]:
        """Inputs for a traced call: all but the static ones become traced."""
        lifted = []
        if schema.holds_values(node):  # a sequence may hold known values
            return [*args]
        for position, arg in enumerate(args):
            if operator.is_static(position):
                lifted.append(arg)
                continue
            dtype = None
            if is_symbolic(arg):
                dtype = schema.input_dtype(node, position, bound)
            lifted.append(self.lift(arg, dtype))
        return lifted


@dataclasses.dataclass(frozen=True)
class Subgraph:
    """A subgraph with the values of the scopes around it, as a function of its inputs.

    Attributes:
        graph: the subgraph.
        scope: values that are visible inside.
        run: runs a graph on values.
        trace: runs a graph on values inside a trace.
    """

    graph: Graph
    scope: Values
    run: Callable[[Graph, Values], list[Any]]
    trace: Callable[[Graph, Values], list[Any]]

    @property
    def concrete(self) -> bool:
        """Whether it runs outside of a trace."""
        return self.run is not self.trace

    def __call__(self, *args: Any) -> list[Any]:
        """The outputs for these inputs."""
        return self.run(self.graph, self._values(args))

    def traced(self, *args: Any) -> list[Any]:
        """The outputs for these inputs inside a trace, wherever it runs otherwise."""
        return self.trace(self.graph, self._values(args))

    def _values(self, args: Sequence[Any]) -> Values:
        return self.scope | dict(zip(self.graph.inputs, args, strict=True))


def _in_buckets(
    bounded: Callable[..., Any], args: Sequence[Any], attributes: Values, results: Sequence[Any]
) -> list[Any]:
    """Results padded to powers of two along the axes that the bounded form would pad."""
    form = jax.eval_shape(lambda *a: bounded(*a, size=1, **attributes), *args)
    return [
        pad(r, f.axis, _bucket(r.shape[f.axis])) if isinstance(f, Padded) else r
        for r, f in zip(results, _as_outputs(form), strict=True)
    ]


def _bucket(count: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(count - 1, 0).bit_length()


def bound_name(node: Node, bounds: Mapping[str, int]) -> str | None:
    """The name under which a bound for a node is declared, if there is one."""
    return next((n for n in (node.name, *node.outputs) if n and n in bounds), None)


def _as_outputs(result: Any) -> Sequence[Any]:
    return result if isinstance(result, tuple) else (result,)


def _dtype(value: Any) -> np.dtype | None:
    return np.dtype(value.dtype) if hasattr(value, "dtype") else None


def _require_known(node: Node, operator: Operator, args: Sequence[Any]) -> None:
    for position, arg in enumerate(args):
        if operator.is_static(position) and arg is not None and not is_known(arg):
            formal = schema.signature(node.op_type, node.version, node.domain)
            parameter = formal.input(position) if formal is not None else None
            name = parameter.name if parameter else operator.inputs[position]
            raise StaticValueError(
                f"{node.label}: the value of its input {name} ({node.inputs[position]!r}) must be "
                "known while tracing, but it is computed when the program runs. If it depends on a "
                "symbolic dimension, load the model with constraints=[...] that decide it, or "
                "trace with fixed sizes; if it depends on a graph input, fix that one with "
                "load(..., constants={...})"
            )


def _fold(
    node: Node,
    operator: Operator,
    args: Sequence[Any],
    attributes: Mapping[str, Any],
    bound: Mapping[str, np.dtype],
) -> list[Any]:
    """Evaluate a node on known values; the results are NumPy arrays of the schema's dtypes."""
    symbolic = any(map(is_symbolic, args))
    context = contextlib.nullcontext() if symbolic else core.eval_context()
    with context, np.errstate(all="ignore"):
        results = _as_outputs(operator.function(*args, **attributes))
        return [
            _settle(r, schema.output_dtype(node, k, bound)) if _is_concrete(r) else r
            for k, r in enumerate(results)
        ]


def _is_concrete(value: Any) -> bool:
    """Whether a result is an array with a value: a symbolic shape, too, gives a traced one."""
    if export.is_symbolic_dim(value):  # what NumPy gives for the only element of an object array
        return True
    kinds = (np.ndarray, np.generic, bool, int, float, str, jax.Array)
    return isinstance(value, kinds) and not isinstance(value, core.Tracer)


def _settle(value: Any, dtype: np.dtype | None) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype == object:
        return tidy(array)
    return array if dtype is None or array.dtype == dtype else array.astype(dtype)

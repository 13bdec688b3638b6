"""Walks a graph under a JAX trace: known values stay known, everything else is traced."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import core, export

from jaxonnx.define.dtypes import type_of
from jaxonnx.define.known import LITERAL_BYTES, is_known, is_symbolic, lift, tidy
from jaxonnx.define.padded import Padded, cut, pad
from jaxonnx.define.registry import Operator
from jaxonnx.define.streams import KEY
from jaxonnx.errors import DataDependentShapeError, StaticValueError
from jaxonnx.graph import facts
from jaxonnx.graph.plan import Graph, Node, bound_name
from jaxonnx.read import reader as graphs
from jaxonnx.run import mixed, padding
from jaxonnx.run.messages import notes, value_dependent
from jaxonnx.run.precision import is_double
from jaxonnx.run.sizes import refuse_huge, refuse_huge_results

Values = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class _Call:
    """A node whose operator is to be called.

    Attributes:
        node: the node.
        operator: what it calls.
        args: values of its inputs.
        attributes: those of the node and the schema's defaults; subgraphs as functions.
        dtypes: what the type variables of its schema stand for.
    """

    node: Node
    operator: Operator
    args: Sequence[Any]
    attributes: Values
    dtypes: Mapping[str, np.dtype]

    @functools.cached_property
    def known(self) -> bool:
        """Whether the values of all inputs are known."""
        return all(a is None or is_known(a) for a in self.args)

    @property
    def foldable(self) -> bool:
        """Whether all inputs are known, and in a form that the operator computes with."""
        plain = self.operator.symbolic or not any(map(is_symbolic, self.args))
        return self.known and plain and not facts.is_random(self.node)

    def run(self, args: Sequence[Any]) -> Sequence[Any]:
        """The outputs for ``args`` in place of the values themselves."""
        function = self.operator.function
        if not self.node.subgraphs:
            refuse_huge(function, args, self.attributes)
        return refuse_huge_results(_as_outputs(function(*args, **self.attributes)))

    def check(self) -> None:
        """Refuse known values that the operator forbids."""
        if self.operator.check is not None:
            self.operator.check(*self.args, **self.attributes)

    def bounded(self, args: Sequence[Any], size: int) -> Sequence[Any]:
        """The outputs of the form for at most ``size`` results, if the operator has one."""
        assert self.operator.bounded is not None
        return _as_outputs(self.operator.bounded(*args, size=size, **self.attributes))

    def require_known(self) -> None:
        """Refuse traced values of inputs that must be known.

        Raises:
            StaticValueError: if there is one.
        """
        node, operator = self.node, self.operator
        for position, arg in enumerate(self.args):
            if operator.is_static(position) and arg is not None and not is_known(arg):
                formal = facts.signature(node)
                parameter = formal.input(position) if formal is not None else None
                name = parameter.name if parameter else operator.inputs[position]
                raise StaticValueError(
                    f"{node.label}: the value of its input {name} ({node.inputs[position]!r}) must "
                    "be known while tracing, but it is computed when the program runs. If it "
                    "depends on a symbolic dimension, load the model with constraints=[...] that "
                    "decide it, or trace with fixed sizes; if it depends on a graph input, fix "
                    "that one with load(..., constants={...})"
                )


@dataclasses.dataclass(frozen=True)
class Tracing:
    """What one trace of a model needs beside its values.

    Attributes:
        arguments: large known arrays by ``id``, as the arguments of the compiled program that
            stand for them where they meet a traced value.
        limit: known results above this many bytes are computed in the program instead.
        guard: applied to what has a derivative in double: doubles that come in or go out, and
            what is computed from doubles.
        concrete: runs subgraphs outside of a trace; None while tracing.
        bounds: the most results of nodes whose number of them depends on values, by name of the
            node or of one of its outputs.
        counts: filled while tracing: the number of results by name in ``bounds``.
        buckets: outside of a trace, where value-dependent sizes are padded to powers of two: which
            axes, by node and kinds of its inputs, filled while running. None pads nothing.
        compute: the floating type to compute in; None for those that the model declares.
        observe: is shown every node and its results.
    """

    arguments: Mapping[int, jax.Array] = dataclasses.field(default_factory=dict)
    limit: float = LITERAL_BYTES
    guard: Callable[[Any], Any] = lambda value: value
    concrete: "Callable[[Graph, Values], list[Any]] | None" = None
    bounds: Mapping[str, int] = dataclasses.field(default_factory=dict)
    counts: dict[str, Any] = dataclasses.field(default_factory=dict)
    buckets: dict[Any, Sequence[int | None]] | None = None
    compute: np.dtype | None = None
    observe: Callable[[Node, Sequence[Any]], None] | None = None

    def lift(self, value: Any, dtype: Any = None) -> Any:
        """A known array as a traced one; anything else as it is."""
        if not is_known(value):
            return value
        argument = self.arguments.get(id(value))
        return lift(value, dtype) if argument is None else argument

    def guarded(self, value: Any) -> Any:
        """A double whose derivative is guarded; anything else as it is."""
        return self.guard(value) if is_double(value) else value

    def run(self, graph: Graph, values: Values) -> list[Any]:
        """The outputs of ``graph`` for the values of its inputs and of the scopes around it."""
        values = {**graph.given, **values}
        for node in graph.nodes:
            args = [values[name] if name else None for name in node.inputs]
            with notes(node, args):
                results = self.evaluate(node, args, values)
            if self.observe is not None:
                self.observe(node, results)
            values.update((n, r) for n, r in zip(node.outputs, results, strict=False) if n)
        return [values[name] for name in graph.outputs]

    def evaluate(self, node: Node, args: Sequence[Any], values: Values) -> Sequence[Any]:
        """The outputs of one node; ``values`` are those that its subgraphs can see."""
        args = self._unified(node, args)
        dtypes = facts.check_types(node, [mixed.seen(_dtype(a), self.compute) for a in args])
        operator = node.operator
        if operator is None:
            return self._run_body(node, args)
        args = [*args] if self.concrete is None else cut([*args])
        attributes = self._attributes(node, operator, values)
        if any(isinstance(a, Padded) for a in args):
            return padding.apply(operator, args, attributes, node.label)
        call = _Call(node, operator, args, attributes, dtypes)
        call.require_known()
        name = bound_name(node, self.bounds)
        if name and operator.bounded is not None and (node.subgraphs or not call.known):
            return self._run_bounded(call, name)
        if operator.host and self.concrete is None and not call.known:
            raise DataDependentShapeError(value_dependent([node]))
        if node.subgraphs:
            return call.run(args)
        results = self._run_known_or_traced(call)
        if self.buckets is None or operator.bounded is None:
            return results
        return _in_buckets(call, results, self.buckets)

    def _attributes(self, node: Node, operator: Operator, values: Values) -> Values:
        """The keywords that a node gives to its operator's function."""
        attributes = {**facts.float_defaults(node), **node.attributes}
        if operator.counts_outputs:
            attributes["outputs"] = len(node.outputs)
        if operator.draws and KEY in values:
            attributes["key"] = values[KEY].of(node.key, attributes.get("seed"))
        return {n: self._subgraph(a, values) for n, a in attributes.items()}

    def _run_known_or_traced(self, call: _Call) -> Sequence[Any]:
        """Known results of known values, unless they are large; all others are traced."""
        if call.foldable:
            results = _fold(call)
            if sum(r.nbytes for r in results if is_known(r)) <= self.limit:
                return results
        call.check()
        lifted = self._unified(call.node, self._lift_all(call))
        results = call.run(lifted)
        # A double that is made of none, by Cast, is no use yet: IsInf ends the derivative.
        doubles = any(map(is_double, lifted))
        return [self.guard(r) for r in results] if doubles else results

    def _run_bounded(self, call: _Call, name: str) -> Sequence[Any]:
        """The padded outputs of a node under the bound that is declared for ``name``."""
        lifted = self._unified(call.node, [self.lift(a) for a in call.args])
        results = call.bounded(lifted, self.bounds[name])
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
        inner = dataclasses.replace(self, bounds={}, concrete=None)

        def traced(graph: Graph, values: Values) -> list[Any]:
            return [inner.declared(v, None) for v in inner.run(graph, values)]

        return Subgraph(attribute, values, self.concrete or traced, traced)

    def _unified(self, node: Node, args: Sequence[Any]) -> Sequence[Any]:
        """Inputs of a node in the one floating type that it computes in."""
        return args if self.compute is None else mixed.unified(node, args, self.compute)

    def declared(self, value: Any, dtype: np.dtype | None) -> Any:
        """What leaves the graph in the dtype that is declared of it."""
        if self.compute is None:
            return value
        return jax.tree.map(lambda v: mixed.declared(v, dtype), value)

    def _lift_all(self, call: _Call) -> Sequence[Any]:
        """Inputs for a traced call: all but the static ones become traced."""
        text_may_be_there = self.concrete is not None and facts.is_random(call.node)
        if text_may_be_there or facts.holds_values(call.node):  # sequences may hold known values
            return call.args
        return [
            a
            if call.operator.is_static(k) or _is_setting(call, k)
            else self.lift(a, _declared_dtype(call, k))
            for k, a in enumerate(call.args)
        ]


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

    def at(self, number: Any) -> "Subgraph":
        """The subgraph for one turn of a loop, in which it draws other random numbers."""
        if KEY not in self.scope:
            return self
        return dataclasses.replace(self, scope=self.scope | {KEY: self.scope[KEY].turn(number)})

    def _values(self, args: Sequence[Any]) -> Values:
        return self.scope | dict(zip(self.graph.inputs, args, strict=True))


def _in_buckets(
    call: _Call, results: Sequence[Any], known: dict[Any, Sequence[int | None]]
) -> list[Any]:
    """Results padded to powers of two along the axes that the bounded form would pad."""
    if any(a is not None and a.dtype.kind == "T" for a in call.args):
        return [*results]
    key = call.node.key, *(None if a is None else (a.ndim, a.dtype) for a in call.args)
    axes = known.get(key)
    if axes is None:
        axes = known[key] = _padded_axes(call)
    return [
        r if axis is None else pad(r, axis, _bucket(r.shape[axis]))
        for r, axis in zip(results, axes, strict=True)
    ]


def _padded_axes(call: _Call) -> list[int | None]:
    """The axis along which the bounded form pads each result; None where it pads none."""
    form = jax.eval_shape(lambda *a: call.bounded(a, 1), *call.args)
    return [f.axis if isinstance(f, Padded) else None for f in form]


def _bucket(count: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(count - 1, 0).bit_length()


def _as_outputs(result: Any) -> Sequence[Any]:
    return result if isinstance(result, tuple) else (result,)


def _dtype(value: Any) -> np.dtype | None:
    """The dtype of an array; None of anything else, and of dimensions, which are any integers."""
    return np.dtype(value.dtype) if hasattr(value, "dtype") and not is_symbolic(value) else None


def _declared_dtype(call: _Call, position: int) -> np.dtype | None:
    """The dtype in which dimensions are traced; None for all else, which has one of its own."""
    if not is_symbolic(call.args[position]):
        return None
    return facts.input_dtype(call.node, position, call.dtypes)


def _is_setting(call: _Call, position: int) -> bool:
    """Whether a value is a known number that says how an element-wise operator works.

    It stays known, since the derivative of a power is simpler where its exponent is.
    """
    operator, value = call.operator, call.args[position]
    setting = operator.elementwise and operator.input_name(position) in operator.settings
    return setting and is_known(value) and not is_symbolic(value) and value.size == 1


def _fold(call: _Call) -> list[Any]:
    """Evaluate a node on known values; the results are NumPy arrays of the schema's dtypes."""
    symbolic = any(map(is_symbolic, call.args))
    context = contextlib.nullcontext() if symbolic else core.eval_context()
    with context, np.errstate(all="ignore"):
        return [
            _settle(r, facts.output_dtype(call.node, k, call.dtypes)) if _is_concrete(r) else r
            for k, r in enumerate(call.run(call.args))
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

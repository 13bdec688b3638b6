"""``load``: from a model file to a plan and its parameters, and to a model of them."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from jax import core

from jaxonnx.errors import InputError
from jaxonnx.graph.cone import static_cone
from jaxonnx.graph.cut import check_names, part, prune
from jaxonnx.graph.plan import Graph, Options, Plan, Spec, Template
from jaxonnx.graph.roles import is_float, sources_of, stored_values, take_weights
from jaxonnx.graph.toolkit import reads
from jaxonnx.model import Model
from jaxonnx.optimize import fold_constants, in_training, recognised, split_labels
from jaxonnx.read.reader import opsets_of, read_graph, spec_of
from jaxonnx.read.source import read
from jaxonnx.run import dims
from jaxonnx.run.inputs import bind
from jaxonnx.run.program import Program
from jaxonnx.run.types import value_types
from jaxonnx.write.template import template_of

if TYPE_CHECKING:
    import onnx_ir


def load(
    source: "str | os.PathLike[str] | bytes | onnx.ModelProto | onnx_ir.Model",
    *,
    constants: Mapping[str, Any] | None = None,
    trainable: Sequence[str] = (),
    frozen: Sequence[str] = (),
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    training: bool = False,
    constraints: Sequence[str] = (),
    bounds: Mapping[str, int] | None = None,
    buckets: Literal["pow2"] | None = None,
) -> Model:
    """Read an ONNX model.

    Args:
        source: a path, bytes, ``onnx.ModelProto`` or ``onnx_ir.Model``. External data is found
            beside a path, and only in its folder or below; if the path is a link, also beside the
            file that it leads to.
        constants: values for graph inputs, which then are no inputs any more.
        trainable: ONNX names, or patterns such as ``"blocks.*"``, of stored values that are
            weights whatever they are used for.
        frozen: likewise for values that are no weights; where both match this wins.
        inputs: names of values anywhere in the main graph that are the inputs instead.
        outputs: names of values anywhere in it that are the outputs instead; what they do not need
            is left out.
        training: whether batch normalization uses the statistics of its input and dropout drops,
            as the file may say for inference. Those inside of loops and branches do not gather
            statistics. See :attr:`Model.state`.
        constraints: what may be assumed of symbolic dimensions when the model is traced with
            them, in the form of ``jax.export``: ``["S<=512", "B>=2"]``.
        bounds: the most results of nodes whose number of results depends on values (NonZero,
            NonMaxSuppression, ...), by name of the node or of one of its outputs. Such a model can
            be traced: it gives :class:`Padded` arrays there, and arrays of the right size outside
            of a trace.
        buckets: ``"pow2"`` pads the results of such nodes to powers of two between the compiled
            stretches of ``model(x)``, where that is exact, so that fewer sizes are compiled.

    Returns:
        The model; its first call at each combination of input shapes compiles it.

    Raises:
        InvalidModelError: if the model breaks the ONNX specification.
        UnsupportedOpError: if it has operators that are not implemented; all are listed.
        InputError: if ``source`` or a value in ``constants`` is of the wrong kind, or another
            option names what the model does not have.
        OSError: if a file cannot be read.
    """
    if buckets not in (None, "pow2"):
        raise InputError(f"buckets is {buckets!r}, expected 'pow2' or None")
    plan, params, template = build_plan(
        source,
        constants=constants or {},
        trainable=trainable,
        frozen=frozen,
        inputs=inputs,
        outputs=outputs,
        training=training,
    )
    limits = checked_bounds(plan.graph, bounds or {})
    assumed = dims.check_constraints(plan.inputs, constraints)
    options = Options(assumed, limits, buckets == "pow2")
    with core.eval_context(), jax.enable_x64(True):
        arrays = {n: jnp.asarray(a) for n, a in params.items()}
    return Model(arrays, Program(plan, options, template))


def build_plan(
    source: Any,
    *,
    constants: Mapping[str, Any],
    trainable: Sequence[str],
    frozen: Sequence[str],
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    training: bool = False,
    missing: dict[str, list[str]] | None = None,
) -> tuple[Plan, dict[str, np.ndarray], Template]:
    """The plan of a model, the values of its weights by name, and its file without them.

    Args:
        source: what :func:`jaxonnx.load` accepts.
        constants: values that replace graph inputs.
        trainable: patterns of names of values that are weights whatever their use.
        frozen: patterns of names of values that are not.
        inputs: names of the values that become the inputs.
        outputs: names of the values that become the outputs.
        training: whether batch normalization and dropout train.
        missing: receives what is to be said of operators that are missing here, with the places of
            their nodes. Without it they are an error.
    """
    proto, folders = read(source)
    origins: dict[str, Any] = {}
    graph = read_graph(proto, folders, missing, origins)
    graph, given = _fix(graph, tuple(map(spec_of, proto.graph.input)), constants)
    graph = recognised(graph)
    wanted = tuple(map(spec_of, proto.graph.output))
    if inputs is not None or outputs is not None:
        graph, given, wanted = _cut(graph, given, wanted, proto, folders, inputs, outputs)
    graph, updates = in_training(graph) if training else (graph, {})
    graph = prune(split_labels(graph))
    cone = static_cone(graph, given)
    pinned = cone.pinned.union(constants)
    sources = sources_of(graph)
    defaults = {s.name for s in given if s.name in graph.initializers}
    floats = {n: a for n, a in graph.given.items() if is_float(a) and n not in pinned}
    with jax.enable_x64(True):
        graph = prune(fold_constants(graph, floats, defaults))
    stored = stored_values(graph, pinned, sources, trainable, frozen)
    graph, weights = take_weights(graph, stored)
    plan = Plan(
        graph=graph,
        inputs=given,
        outputs=wanted,
        defaults=frozenset(defaults),
        stored=stored,
        static=tuple(s.name for s in given if s.name in cone.inputs),
        opsets=opsets_of(proto),
        metadata=_metadata(proto),
        declared=tuple(map(spec_of, proto.graph.value_info)),
        updates={n: o for n, o in updates.items() if stored[n].role == "statistic"},
    )
    kept = weights | {n: a for g in graph.walk() for n, a in g.given.items() if n not in constants}
    template = template_of(proto, origins, kept, folders, own=proto is not source)
    return plan, {n: weights[n] for n in plan.params}, template


def _fix(
    graph: Graph, inputs: tuple[Spec, ...], constants: Mapping[str, Any]
) -> tuple[Graph, tuple[Spec, ...]]:
    """Turn the graph inputs that have a value in ``constants`` into constants."""
    if not constants:
        return graph, inputs
    fixed = tuple(s for s in inputs if s.name in constants)
    unknown = sorted(set(constants) - {s.name for s in inputs})
    if unknown:
        names = ", ".join(repr(s.name) for s in inputs)
        raise InputError(f"constants: no input is called {unknown[0]!r}; there are {names}")
    values = {n: np.asarray(v) for n, v in bind(fixed, (), (), constants).items()}
    initializers = {n: a for n, a in graph.initializers.items() if n not in values}
    graph = dataclasses.replace(
        graph,
        inputs=tuple(n for n in graph.inputs if n not in values),
        initializers=initializers,
        constants={**graph.constants, **values},
    )
    return graph, tuple(s for s in inputs if s.name not in values)


def _cut(
    graph: Graph,
    given: tuple[Spec, ...],
    wanted: tuple[Spec, ...],
    proto: onnx.ModelProto,
    folders: Sequence[pathlib.Path],
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
) -> tuple[Graph, tuple[Spec, ...], tuple[Spec, ...]]:
    """The part of a graph between values that are named, with what is declared of them.

    Raises:
        InputError: if a name is unknown or stored, or the outputs need an input that is not named.
    """
    own = [s.name for s in given]
    names = own if inputs is None else [*inputs]
    check_names("outputs", outputs or (), graph)
    check_names("inputs", names, graph)
    stored = [n for n in names if n in graph.given and n not in own]
    if stored:
        raise InputError(f"inputs: {stored[0]!r} is stored; give apply() another value of it")
    graph = part(graph, outputs or graph.outputs, [n for n in names if n not in own])
    read = {n for node in graph.nodes for n in reads(node)} | {*graph.outputs}
    needed = [n for n in own if n in read and n not in graph.initializers and n not in names]
    if needed:
        listed = ", ".join(map(repr, needed))
        raise InputError(f"inputs: the outputs need {listed} as well; name them too")
    names = [n for n in names if n in read] if inputs is None else names
    graph = dataclasses.replace(graph, inputs=tuple(names))
    specs = {s.name: s for s in (*map(spec_of, proto.graph.value_info), *given, *wanted)}
    if any(n not in specs for n in (*names, *graph.outputs)):
        specs = {**value_types(_whole(proto, folders), Options()), **specs}
    spec = lambda name: specs.get(name, Spec(name, None, None))
    return graph, tuple(map(spec, names)), tuple(map(spec, graph.outputs))


def _whole(proto: onnx.ModelProto, folders: Sequence[pathlib.Path]) -> Plan:
    """As much of the plan of a file as its types depend on."""
    graph = read_graph(proto, folders)
    given, wanted = (tuple(map(spec_of, side)) for side in (proto.graph.input, proto.graph.output))
    stored = stored_values(graph, (), sources_of(graph))
    static = tuple(s.name for s in given if s.name in static_cone(graph, given).inputs)
    defaults = frozenset(s.name for s in given if s.name in graph.initializers)
    return Plan(graph, given, wanted, defaults, stored, static, opsets_of(proto), {})


def _metadata(proto: onnx.ModelProto) -> dict[str, str]:
    fields = {
        "producer_name": proto.producer_name,
        "producer_version": proto.producer_version,
        "graph_name": proto.graph.name,
        "model_version": str(proto.model_version or ""),
        "ir_version": str(proto.ir_version or ""),
    }
    own = {p.key: p.value for p in proto.metadata_props}
    return {k: v for k, v in fields.items() if v} | own


def checked_bounds(graph: Graph, bounds: Mapping[str, int]) -> dict[str, int]:
    """``bounds``, if each names a node of the main graph that can have one.

    Raises:
        InputError: if one does not.
    """
    able = {
        name
        for node in graph.nodes
        if node.operator is not None and node.operator.bounded is not None
        for name in node.names
    }
    for name in bounds:
        if name not in able:
            names = ", ".join(map(repr, sorted(able))) or "no such node"
            raise InputError(
                f"bounds: {name!r} is no value-dependent node or output; there is {names}"
            )
    return dict(bounds)

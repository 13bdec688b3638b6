"""Dtype and shape of every value: as the file declares, else by abstract evaluation."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from jaxonnx.define.streams import KEY, Stream
from jaxonnx.errors import JaxonnxError
from jaxonnx.graph.plan import Node, Options, Plan, Spec
from jaxonnx.run.dims import abstract
from jaxonnx.run.trace import Tracing


def value_types(plan: Plan, options: Options) -> Mapping[str, Spec]:
    """What is known of every value by name, those inside subgraphs included.

    Dimensions that depend on symbolic ones are their expressions, as text. Where the shape of a
    result depends on values, what follows it is known only as far as the file declares it.
    """
    found: dict[str, Spec] = {s.name: s for s in (*plan.inputs, *plan.declared, *plan.outputs)}

    def observe(node: Node, results: Sequence[Any]) -> None:
        for name, value in zip(node.outputs, results, strict=False):
            if name and hasattr(value, "shape") and _is_open(found.get(name)):
                dims = tuple(d if isinstance(d, int) else str(d) for d in value.shape)
                found[name] = Spec(name, value.dtype, dims)

    given = {n: jax.ShapeDtypeStruct(s.shape, s.dtype) for n, s in plan.stored.items()}
    found |= {n: Spec(n, s.dtype, s.shape) for n, s in plan.stored.items()}
    try:
        inputs = abstract(
            [s for s in plan.inputs if s.name not in plan.defaults], options.constraints
        )
        weights = {n: given[n] for n in plan.params}
        stream = Stream(jax.random.key(0))
        tracing = Tracing(bounds=options.bounds, observe=observe)
        with jax.enable_x64(True):
            values = {**weights, **inputs, KEY: stream}
            jax.eval_shape(lambda values: _run(tracing, plan, values), values)
    except JaxonnxError:  # an input without a declared rank, or a node that no trace can hold
        pass
    return found


def _run(tracing: Tracing, plan: Plan, values: dict[str, Any]) -> None:
    tracing.run(plan.graph, values)


def _is_open(spec: Spec | None) -> bool:
    """Whether a declaration leaves the dtype, the rank or a size unsaid."""
    return spec is None or spec.dtype is None or spec.shape is None or None in spec.shape

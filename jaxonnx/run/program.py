"""The static part of a model: its plan and what is compiled from it."""

import functools
import hashlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import core, lax

from jaxonnx.define.padded import cut
from jaxonnx.errors import DataDependentShapeError, StaticValueError
from jaxonnx.graph import serial
from jaxonnx.graph.plan import Options, Plan
from jaxonnx.run import phases
from jaxonnx.run.compiled import Compiled, StaticValues, as_declared
from jaxonnx.run.messages import must_be_known, value_dependent
from jaxonnx.run.outputs import Outputs
from jaxonnx.run.runner import Runner

Arrays = Mapping[str, Any]


class Program:
    """A plan with its compiled functions; equal where the content is equal.

    Attributes:
        plan: the model without the values of its parameters.
        options: how it is traced and run.
        whole: the graph as one program, for models and callers that allow it.
    """

    def __init__(self, plan: Plan, options: Options) -> None:
        self.plan = plan
        self.options = options
        self.whole = Compiled(plan.graph, plan.outputs, options.bounds)

    @functools.cached_property
    def runner(self) -> Runner:
        """The graph in phases, for models that no single program can hold."""
        text = {s.name for s in self.plan.inputs if s.is_text}
        return Runner(self.plan.graph, self.plan.static, text, self.options)

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of the whole content, names of nodes included."""
        return hashlib.sha256(self.encode()).hexdigest()

    def encode(self) -> bytes:
        """The content as bytes; :meth:`decode` reads them."""
        return serial.encode((self.plan, self.options))

    @classmethod
    def decode(cls, data: bytes) -> "Program":
        """The program that :meth:`encode` was called on."""
        return cls(*serial.decode(data))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Program) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Program({self.plan.metadata.get('graph_name', '')!r}, {self.fingerprint[:12]})"

    def __deepcopy__(self, memo: Any) -> "Program":
        return self

    def __reduce__(self) -> Any:
        return Program.decode, (self.encode(),)

    def call(self, params: Arrays, inputs: Arrays) -> Any:
        """The outputs for checked inputs, as one array or :class:`Outputs`.

        Raises:
            DataDependentShapeError: if the model cannot be one program, but is to be traced.
        """
        inside = _is_inside_a_trace((params, inputs))
        if not inside and self._in_phases:
            outputs = self._call_in_phases(params, inputs)
        else:
            outputs = self._call_whole(params, inputs, inside)
        outputs = outputs if inside else cut(outputs)
        specs = self.plan.outputs
        return outputs[0] if len(specs) == 1 else Outputs(outputs, [s.name for s in specs])

    @property
    def _in_phases(self) -> bool:
        """Whether it is known before anything has run that no program can hold the graph."""
        return self._stored_text or not all(p.compiled for p in self.runner.phases)

    @functools.cached_property
    def _stored_text(self) -> bool:
        """Whether an output is a constant of strings."""
        given = self.plan.graph.given
        return any(given[n].dtype.kind == "T" for n in self.plan.graph.outputs if n in given)

    def _call_in_phases(self, params: Arrays, inputs: Arrays) -> list[Any]:
        outputs = zip(self.runner.run({**params, **inputs}), self.plan.outputs, strict=True)
        checked = [jax.tree.map(lambda a, s=spec: as_declared(a, s), v) for v, spec in outputs]
        return [_as_arrays(v) for v in checked]

    def _call_whole(self, params: Arrays, inputs: Arrays, inside: bool) -> list[Any]:
        static, traced = self._split(inputs)
        try:
            return self.whole({**params, **traced}, static)
        except StaticValueError as error:
            if not inside and error.node is not None:
                return self._call_in_phases(params, inputs)
            undecided = [n for n in self.plan.static if isinstance(inputs.get(n), core.Tracer)]
            if undecided:
                raise StaticValueError(must_be_known(undecided)) from error
            labels = {n for p in self.runner.phases for n in p.reasons}
            nodes = [n for n in self.plan.graph.nodes if n.label in labels]
            if isinstance(error, DataDependentShapeError) and nodes:
                raise DataDependentShapeError(value_dependent(nodes)) from error
            raise

    def _split(self, inputs: Arrays) -> tuple[StaticValues, dict[str, Any]]:
        """The static inputs, as far as they are known here, and all others."""
        known = {
            n: np.asarray(inputs[n])
            for n in self.plan.static
            if n in inputs and not isinstance(inputs[n], core.Tracer)
        }
        return StaticValues(known), {n: v for n, v in inputs.items() if n not in known}

    def schedule(self) -> phases.Schedule:
        """What runs where and why."""
        return phases.Schedule(self.runner.phases)


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


def _is_inside_a_trace(values: Any) -> bool:
    """Whether a value is abstract; under plain differentiation tracers have concrete ones."""
    leaves = [v for v in jax.tree.leaves(values) if isinstance(v, core.Tracer)]
    return any(isinstance(lax.stop_gradient(v), core.Tracer) for v in leaves)

"""The static part of a model: its plan and the compiled functions made from it."""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import core

from jaxonnx import serial
from jaxonnx.errors import InvalidModelError, StaticValueError
from jaxonnx.known import LITERAL_BYTES, is_symbolic, x64_enabled
from jaxonnx.outputs import Outputs
from jaxonnx.plan import Plan, Spec
from jaxonnx.trace import Tracing, guard_double

Arrays = Mapping[str, Any]


class Program:
    """A plan with its jitted function; equal where the content is equal.

    Attributes:
        plan: the model without the values of its parameters.
        constraints: what is assumed of symbolic dimensions, such as ``"S<=512"``.
    """

    def __init__(self, plan: Plan, constraints: Sequence[str] = ()) -> None:
        self.plan = plan
        self.constraints = tuple(constraints)
        self._jit = jax.jit(self._run, static_argnames=("static", "exact"))

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of the whole content, names of nodes included."""
        return hashlib.sha256(self.encode()).hexdigest()

    def encode(self) -> bytes:
        """The content as bytes; :meth:`decode` reads them."""
        return serial.encode((self.plan, self.constraints))

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
        """The outputs for checked inputs, as one array or :class:`Outputs`."""
        static, traced = self._split(inputs)
        exact = x64_enabled()  # around the call: then derivatives are exact in double, too
        with jax.enable_x64(True):
            return self._jit(dict(params), self._arguments, traced, static=static, exact=exact)

    def _split(self, inputs: Arrays) -> tuple["StaticValues", dict[str, Any]]:
        static = {n: v for n, v in inputs.items() if n in self.plan.static}
        for name, value in static.items():
            if isinstance(value, core.Tracer):
                raise StaticValueError(
                    f"input {name!r} must be known while tracing, since shapes inside the model "
                    "depend on its value, but it is traced here; pass a NumPy array, or fix it "
                    f"with load(..., constants={{{name!r}: value}})"
                )
        values = StaticValues({n: np.asarray(v) for n, v in static.items()})
        return values, {n: v for n, v in inputs.items() if n not in static}

    @functools.cached_property
    def _large(self) -> dict[str, np.ndarray]:
        """Constants that are arguments of the compiled program."""
        return {
            n: a
            for graph in self.plan.graph.walk()
            for n, a in graph.given.items()
            if a.nbytes > LITERAL_BYTES and a.dtype.kind != "T"
        }

    @functools.cached_property
    def _arguments(self) -> dict[str, jax.Array]:
        with core.eval_context(), jax.enable_x64(True):
            return {n: jnp.asarray(a) for n, a in self._large.items()}

    def _run(
        self,
        params: Arrays,
        arguments: Arrays,
        inputs: Arrays,
        *,
        static: "StaticValues",
        exact: bool,
    ) -> Any:
        large = {id(self._large[n]): a for n, a in arguments.items()}
        tracing = Tracing(large) if exact else Tracing(large, guard=guard_double)
        traced = {n: tracing.guard(jnp.asarray(v)) for n, v in {**params, **inputs}.items()}
        outputs = tracing.run(self.plan.graph, {**traced, **static.values})
        specs = self.plan.outputs
        outputs = [
            tracing.lift(_as_declared(v, s), s.dtype) for v, s in zip(outputs, specs, strict=True)
        ]
        return outputs[0] if len(specs) == 1 else Outputs(outputs, [s.name for s in specs])


def _as_declared(value: Any, spec: Spec) -> Any:
    """``value`` if it has the declared dtype; dimensions take any integer one."""
    dtype = getattr(value, "dtype", None)
    if None in (dtype, spec.dtype) or is_symbolic(value) or dtype == spec.dtype:
        return value
    raise InvalidModelError(f"output {spec.name!r} is {dtype}, but the model declares {spec}")


class StaticValues:
    """Arrays as a key: equal where names, dtypes, shapes and bytes are."""

    def __init__(self, values: dict[str, np.ndarray]) -> None:
        self.values = values
        self._key = tuple((n, v.dtype, v.shape, v.tobytes()) for n, v in sorted(values.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StaticValues) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

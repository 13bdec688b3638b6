"""The static part of a model: what it is, whether two are equal, and its executor."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxonnx.define.streams import KEY, Stream
from jaxonnx.errors import InputError
from jaxonnx.graph import serial
from jaxonnx.graph.cut import check_names, part, with_given
from jaxonnx.graph.plan import Options, Plan, Spec, Template
from jaxonnx.graph.roles import matching, take_weights
from jaxonnx.read.reader import refuse_missing
from jaxonnx.run.binding import Binder
from jaxonnx.run.executor import Executor, is_inside_a_trace
from jaxonnx.run.inputs import conform, split_key
from jaxonnx.run.outputs import Outputs
from jaxonnx.run.types import value_types


class Program:
    """A plan with its executor; equal where the content is equal.

    Attributes:
        plan: the model without the values of its parameters.
        options: how it is traced and run.
        template: the file that it was read from, without its arrays; no part of what it is.
        executor: runs it.
        bind: gives every input that a caller passes its name.
    """

    def __init__(self, plan: Plan, options: Options, template: Template) -> None:
        self.plan = plan
        self.options = options
        self.template = template
        self.bind = Binder(plan.inputs, plan.defaults)
        count = len(plan.outputs)
        self.executor = Executor(
            plan.graph,
            options,
            params=plan.params,
            known=plan.static,
            text={s.name for s in plan.inputs if s.is_text},
            specs=[*plan.outputs, *(Spec(n, None, None) for n in plan.graph.outputs[count:])],
        )
        self._names = tuple(s.name for s in plan.outputs)
        self._parts: dict[tuple[tuple[str, ...], frozenset[str]], Executor] = {}

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of the whole content, names of nodes included."""
        return serial.digest((self.plan, self.options))

    @functools.cached_property
    def types(self) -> Mapping[str, Spec]:
        """Dtype and shape of every value by name, as far as they are known."""
        return value_types(self.plan, self.options)

    def with_values(self, values: Mapping[str, Any]) -> "Program":
        """The same program with other values of what it stores."""
        graph = with_given(self.plan.graph, {n: np.asarray(v) for n, v in values.items()})
        return self.with_plan(dataclasses.replace(self.plan, graph=graph))

    def with_leaves(
        self, weights: Mapping[str, Any], patterns: Sequence[str]
    ) -> tuple["Program", dict[str, Any]]:
        """A program whose weights are the stored values that patterns name, and those weights.

        Args:
            weights: today's by name; those that are none any more are constants of the program.
            patterns: of ONNX names.

        Raises:
            InputError: if a pattern matches no stored value, or the name of one that decides a
                shape.
        """
        stored, graph = self.plan.stored, self.plan.graph
        free = [n for n, s in stored.items() if not s.fixed]
        chosen = matching("trainable", patterns, free, stored)
        role = lambda s: "weight" if s.name in chosen else "constant"
        keeps = lambda s: s.role != "weight" and s.name not in chosen
        stored = {
            n: s if keeps(s) else dataclasses.replace(s, role=role(s)) for n, s in stored.items()
        }
        held = {n: np.asarray(a) for n, a in weights.items()}
        whole = dataclasses.replace(graph, constants={**graph.constants, **held})
        rest, taken = take_weights(whole, stored)
        plan = dataclasses.replace(self.plan, graph=rest, stored=stored)
        return self.with_plan(plan), {n: taken[n] for n in plan.params}

    def with_plan(self, plan: Plan) -> "Program":
        """A program of another plan, run in the same way."""
        return Program(plan, self.options, self.template)

    def computing_in(self, dtype: np.dtype) -> "Program":
        """The same program, computing in another floating type."""
        options = dataclasses.replace(self.options, compute=dtype)
        return Program(self.plan, options, self.template)

    def encode(self) -> bytes:
        """The content as bytes; :meth:`decode` reads them."""
        return serial.encode((self.plan, self.options, self.template))

    @classmethod
    def decode(cls, data: bytes) -> "Program":
        """The program that :meth:`encode` was called on.

        Raises:
            UnsupportedOpError: if operators of it are not registered in this process.
        """
        plan, options, template = serial.decode(data)
        refuse_missing(plan.graph)
        return cls(plan, options, template)

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

    def call(
        self,
        leaves: tuple[Any, ...],
        args: Any,
        kwargs: Mapping[str, Any],
        *,
        inside: bool,
        other: Mapping[str, Any] | None = None,
        patch: Mapping[str, Any] | None = None,
        captured: Sequence[str] | None = None,
        updated: bool = False,
    ) -> Any:
        """The outputs for the inputs of a call, as one array or :class:`Outputs`.

        Args:
            leaves: the parameters in order, and the constants that the executor names after them.
            args: inputs by position, or one mapping.
            kwargs: inputs by name; parameters, too, that are inputs with a default; and ``key``.
            inside: whether a leaf or a value in ``other`` is abstract.
            other: values in the place of stored ones that are no leaves, by name.
            patch: values, or functions of them, in the place of those that nodes give, by name.
            captured: names of values that are to be given, in a dict, in place of the outputs.
            updated: whether the new statistics are wanted, too, as a second result.

        Raises:
            InputError: if a name, the count, a dtype, a rank or a size is wrong.
            DataDependentShapeError: if the model cannot be one program, but is to be traced.
        """
        key, kwargs = split_key(kwargs, self.plan.inputs) if "key" in kwargs else (None, kwargs)
        inputs, again = self.bind(args, kwargs)
        if self.executor.draws:
            inputs = {**inputs, KEY: Stream(key)}
        inputs = {**other, **inputs} if other else inputs
        if captured is not None or patch:
            names = self.plan.graph.outputs if captured is None else captured
            outputs = self._within(names, patch or {}, leaves, inputs, inside=inside)
            if captured is not None:
                return dict(zip(names, outputs, strict=True))
        elif inside or (not again and is_inside_a_trace(inputs.values())):
            outputs = self.executor.trace(leaves, inputs)
        else:
            outputs = self.executor.run(leaves, inputs, numeric=again)
        count = len(self._names)
        result = outputs[0] if count == 1 else Outputs(outputs[:count], self._names)
        if not updated:
            return result
        new = dict(zip(self.plan.graph.outputs[count:], outputs[count:], strict=True))
        return result, {n: new[o] for n, o in self.plan.updates.items()}

    def _within(
        self,
        names: Sequence[str],
        patch: Mapping[str, Any],
        leaves: tuple[Any, ...],
        inputs: Mapping[str, Any],
        *,
        inside: bool,
    ) -> list[Any]:
        """Values by name, with others in the place of some.

        A function is called with the value that earlier patches lead to.
        """
        check_names("capture", names, self.plan.graph, self.plan.params)
        check_names("patch", [*patch], self.plan.graph, self.plan.params)
        run = functools.partial(self._run_part, leaves=leaves, inside=inside)
        values = dict(inputs)
        given: set[str] = set()
        made = [o for node in self.plan.graph.nodes for o in node.outputs]
        for name in sorted(patch, key=lambda n: made.index(n) if n in made else -1):
            value = patch[name]
            if callable(value):
                value = value(run((name,), frozenset(given), values=values)[0])
            values[name] = self._fitting(name, value)
            given.add(name)
        return run(tuple(names), frozenset(given), values=values)

    def _run_part(
        self,
        names: tuple[str, ...],
        given: frozenset[str],
        *,
        leaves: tuple[Any, ...],
        values: Mapping[str, Any],
        inside: bool,
    ) -> list[Any]:
        """Values by name, where the values in ``given`` are inputs."""
        executor = self._parts.get((names, given))
        if executor is None:
            declared = {s.name: s for s in self.plan.outputs}
            executor = Executor(
                part(self.plan.graph, names, given),
                self.options,
                known=self.plan.static,
                specs=[declared.get(n, Spec(n, None, None)) for n in names],
                leaves=self.executor.leaves,
            )
            executor = self._parts.setdefault((names, given), executor)
        if inside or is_inside_a_trace(values.values()):
            return executor.trace(leaves, values)
        return executor.run(leaves, values)

    def _fitting(self, name: str, value: Any) -> Any:
        """A value in the place of another, if its type and its known sizes are the same.

        Raises:
            InputError: if they are not.
        """
        spec = self.types.get(name)
        try:
            return value if spec is None else conform(value, spec)
        except InputError as error:
            raise InputError(f"patch: {error}") from error

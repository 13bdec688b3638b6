"""The static part of a model: what it is, whether two are equal, and its executor."""

import functools
from collections.abc import Mapping
from typing import Any

from jaxonnx.define.streams import KEY, Stream
from jaxonnx.graph import serial
from jaxonnx.graph.plan import Options, Plan, Spec, Template
from jaxonnx.read.reader import refuse_missing
from jaxonnx.run.binding import Binder
from jaxonnx.run.executor import Executor, is_inside_a_trace
from jaxonnx.run.inputs import split_key
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
        self.executor = Executor(
            plan.graph,
            options,
            params=plan.params,
            known=plan.static,
            text={s.name for s in plan.inputs if s.is_text},
            specs=plan.outputs,
        )
        self._names = tuple(s.name for s in plan.outputs)

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of the whole content, names of nodes included."""
        return serial.digest((self.plan, self.options))

    @functools.cached_property
    def types(self) -> Mapping[str, Spec]:
        """Dtype and shape of every value by name, as far as they are known."""
        return value_types(self.plan, self.options)

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
    ) -> Any:
        """The outputs for the inputs of a call, as one array or :class:`Outputs`.

        Args:
            leaves: the parameters in order, and the constants that the executor names after them.
            args: inputs by position, or one mapping.
            kwargs: inputs by name; parameters, too, that are inputs with a default; and ``key``.
            inside: whether a leaf or a value in ``other`` is abstract.
            other: values in the place of stored ones that are no leaves, by name.

        Raises:
            InputError: if a name, the count, a dtype, a rank or a size is wrong.
            DataDependentShapeError: if the model cannot be one program, but is to be traced.
        """
        key, kwargs = split_key(kwargs, self.plan.inputs) if "key" in kwargs else (None, kwargs)
        inputs, again = self.bind(args, kwargs)
        if self.executor.draws:
            inputs = {**inputs, KEY: Stream(key)}
        inputs = {**other, **inputs} if other else inputs
        if inside or (not again and is_inside_a_trace(inputs.values())):
            outputs = self.executor.trace(leaves, inputs)
        else:
            outputs = self.executor.run(leaves, inputs, numeric=again)
        return outputs[0] if len(self._names) == 1 else Outputs(outputs, self._names)

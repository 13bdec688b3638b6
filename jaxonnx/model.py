"""``Model``: an ONNX file as a jitted, differentiable callable."""

import functools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import core
from jax.typing import ArrayLike

from jaxonnx.errors import InputError
from jaxonnx.graph.plan import Spec
from jaxonnx.graph.roles import near
from jaxonnx.run import dims
from jaxonnx.run.executor import is_inside_a_trace
from jaxonnx.run.mixed import compute_dtype
from jaxonnx.run.outputs import Outputs
from jaxonnx.run.parameters import check_parameters
from jaxonnx.run.phases import Schedule
from jaxonnx.run.program import Program
from jaxonnx.write.file import check_places, save
from jaxonnx.write.weights import read_weights, write_weights

if TYPE_CHECKING:
    from jaxonnx.summary import Summary


@jax.tree_util.register_pytree_with_keys_class
class Model:
    """An ONNX model as a function of its inputs and a PyTree of its parameters.

    ``model(x)`` is jitted: inputs go by position, by ONNX name as keywords, or as one mapping
    ``{name: array}``. NumPy and JAX arrays and Python numbers are accepted; integers narrower
    than declared are widened, nothing else is converted. A model with one output returns an
    array, one with several an :class:`~jaxonnx.run.outputs.Outputs`, a tuple whose items are also
    found by name. Each new combination of input shapes is compiled once; new parameters never
    compile anything.

    Random nodes draw from ``model(x, key=jax.random.key(0))``, each from a stream of its own, which
    other nodes do not change; those with a seed need no key.

    The leaves of the PyTree are the floating parameters, so ``jax.grad(loss)(model)``,
    ``jax.tree.map`` and optax work as they are. Integer weights and the graph are its static
    part. Do not call ``jax.jit(model)``, which closes over the parameters: use
    ``jax.jit(lambda model, x: model(x))``, and :meth:`inference` where integer weights are large.
    """

    def __init__(
        self,
        params: Mapping[str, Any],
        program: Program,
        constants: tuple[Any, ...] | None = None,
    ) -> None:
        self._params = dict(params)
        self._program = program
        self._constants = constants

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """The outputs for these inputs.

        Raises:
            InputError: if a name, the count, a dtype, a rank or a size is wrong, of an input or of
                a parameter; or if a node draws random numbers from neither a key nor a seed.
            StaticValueError: if an input that decides shapes is traced.
            DataDependentShapeError: if the shape of a result depends on values inside a trace, or
                there are more results than a bound.
            InvalidModelError: if the model breaks the ONNX specification for these inputs.
        """
        return self._program.call(self._leaves, args, kwargs, inside=self._inside)

    def apply(
        self,
        params: Mapping[str, Any],
        /,
        *args: Any,
        patch: Mapping[str, Any] | ArrayLike | None = None,
        state: Mapping[str, Any] | ArrayLike | None = None,
        **kwargs: Any,
    ) -> Any:
        """The outputs for these inputs under other parameters; pure.

        Args:
            params: a value for every name in :attr:`params`, and for any other in :attr:`stored`.
            *args: inputs by position, or one mapping.
            patch: by ONNX name of a value inside the model, what stands in its place: a value of
                the same type, or a function of the one that would be there.
            state: statistics by name, as :attr:`state` has them. With it, the new ones are a second
                result: ``y, state = model.apply(params, x, state=state, key=key)``. An array is
                the input of that name.
            **kwargs: inputs by ONNX name, and ``key``.

        Raises:
            InputError: also if a parameter is missing or unknown, or of another dtype or shape, or
                if a name in ``patch`` is unknown or inside of a loop or branch.
            JaxonnxError: as a call of the model.
        """
        plan = self._program.plan
        if state is not None and not isinstance(state, Mapping):  # an input of that name
            kwargs, state = {**kwargs, "state": state}, None
        if patch is not None and not isinstance(patch, Mapping):
            kwargs, patch = {**kwargs, "patch": patch}, None
        params = {**params, **state} if state else params
        check_parameters(params, plan)
        leaves = (*(params[n] for n in plan.params), *self._large)
        other = {n: v for n, v in params.items() if n not in self._params}
        inside = is_inside_a_trace((*leaves, *other.values()))
        return self._program.call(
            leaves,
            args,
            kwargs,
            inside=inside,
            other=other,
            patch=patch,
            updated=state is not None,
        )

    def capture(self, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Values inside the model by ONNX name, for inputs as of a call: ``capture(x, "h", "z")``.

        Args:
            *args: the inputs, by position or as one mapping, and then the names as strings.
            **kwargs: inputs by ONNX name, ``key``, and ``patch`` as of :meth:`apply`.

        Raises:
            InputError: if a name is unknown, or that of a value inside of a loop or branch.
            JaxonnxError: as a call of the model.
        """
        names = [a for a in args if isinstance(a, str)]
        inputs = args[: len(args) - len(names)]
        if not names or any(isinstance(a, str) for a in inputs):
            raise InputError("capture takes the inputs and then the names of values, as strings")
        patch = kwargs.pop("patch", None)
        return self._program.call(
            self._leaves, inputs, kwargs, inside=self._inside, patch=patch, captured=names
        )

    @functools.cached_property
    def _leaves(self) -> tuple[Any, ...]:
        """What the executor takes by position, checked: a model may be built of any leaves.

        It is kept, since a call costs less than to build it.
        """
        check_parameters(self._params, self._program.plan)
        return (*self._params.values(), *self._large)

    @functools.cached_property
    def _inside(self) -> bool:
        return is_inside_a_trace(self._leaves)

    @property
    def _large(self) -> tuple[Any, ...]:
        """Constants too large to be literals in a program."""
        return self._program.executor.constants if self._constants is None else self._constants

    @property
    def params(self) -> dict[str, Any]:
        """The weights by ONNX name, as a new dict."""
        return dict(self._params)

    @property
    def stored(self) -> dict[str, Any]:
        """Every stored floating value by ONNX name: weights, statistics and constants.

        :attr:`summary` tells them apart, and :meth:`apply` takes any of them, so that
        ``jax.grad(lambda v: loss(model.apply({**model.params, "bn.var": v}, x)))`` is the
        derivative by a statistic.
        """
        plan = self._program.plan
        rest = {n: a for g in plan.graph.walk() for n, a in g.given.items() if n in plan.stored}
        return {n: self._params[n] if n in self._params else rest[n] for n in plan.stored}

    @property
    def state(self) -> dict[str, Any]:
        """The statistics that training gathers, by ONNX name; none unless ``training=True``."""
        stored = self.stored
        return {n: stored[n] for n in self._program.plan.updates}

    def replace(self, params: Mapping[str, Any]) -> "Model":
        """The same model with some or all parameters replaced.

        Statistics can be replaced as well. They belong to the static part, so that the result
        compiles anew.

        Raises:
            InputError: if a name is unknown or that of a constant, or a dtype or shape differs from
                today's.
        """
        plan = self._program.plan
        rest = {n: v for n, v in params.items() if n not in self._params}
        known = [n for n, s in plan.stored.items() if s.role != "constant"]
        unknown = [n for n in rest if n not in known]
        if unknown:
            said = f"no weight or statistic is called {unknown[0]!r}{near(unknown[0], known)}"
            raise InputError(said)
        check_parameters(params, plan, all_weights=False)
        weights = {n: params.get(n, v) for n, v in self._params.items()}
        if not rest:
            return Model(weights, self._program, self._constants)
        if self._constants is not None or is_inside_a_trace(rest.values()):
            raise InputError(
                f"{next(iter(rest))!r} is a statistic: replace it outside of a trace, "
                "in a plain model"
            )
        return Model(weights, self._program.with_values(rest))

    def trainable(self, *patterns: str) -> "Model":
        """The same model with only some leaves: the stored values whose names match a pattern.

        ``model.trainable("classifier.*")`` freezes all else, as if the model had been loaded with
        these roles. Inside your own ``jax.jit``, pass ``whole = head.inference()`` as an argument
        and differentiate ``lambda params: loss(whole.replace(params)(x))`` at ``head.params``, so
        that what is frozen is no literal of the program.

        Raises:
            InputError: if a pattern matches no stored value or only ones that decide shapes, or if
                the model is traced or one of :meth:`inference`.
        """
        check_parameters(self._params, self._program.plan)
        return self._with_leaves(self._program, self._params, patterns)

    def _with_leaves(
        self, program: Program, weights: Mapping[str, Any], patterns: Sequence[str]
    ) -> "Model":
        """A model of ``program`` whose leaves are the stored values that patterns name."""
        self._check_plain(weights)
        program, leaves = program.with_leaves(weights, patterns)
        with core.eval_context(), jax.enable_x64(True):
            return Model({n: jnp.asarray(a) for n, a in leaves.items()}, program)

    def _check_plain(self, weights: Mapping[str, Any]) -> None:
        """Refuse to choose leaves inside of a trace, or where constants are leaves."""
        if self._constants is not None or is_inside_a_trace(weights.values()):
            raise InputError("leaves are chosen outside of a trace, of a plain model")

    def astype(self, dtype: Any) -> "Model":
        """The same model computing in ``dtype``: float16, bfloat16, or float32.

        Weights, inputs and outputs keep the types that the model declares, so gradients and
        optimizer states are as precise as before. Matrix products, convolutions and recurrent
        operators compute in ``dtype``, and what follows them does, as far as the newest version of
        an operator takes it. Normalizations and Softmax are computed in float32 inside, as ONNX
        says, and so is all that has met no product: positions, masks, scales. Finite numbers stay
        finite. Doubles and integers are as before, and so are nodes that run between programs.
        With float32 a model that is stored in half precision is computed in single.

        Raises:
            InputError: if ``dtype`` is another one.
        """
        program = self._program.computing_in(compute_dtype(dtype))
        return Model(self._params, program, self._constants)

    def inference(self) -> "Model":
        """The same model with every large array as a leaf, integer weights too; for inference.

        Inside your own ``jax.jit``, what is no leaf is a literal of the program: 4 MB of integer
        weights are 8 MB of text that is compiled. ``jax.jit(lambda m, x: m(x))(model.inference(),
        x)`` takes them as arguments. Leaves that are integers have no derivative, so differentiate
        by the plain model.
        """
        return Model(self._params, self._program, self._large)

    @property
    def inputs(self) -> tuple[Spec, ...]:
        """Name, dtype and shape of every input."""
        return self._program.plan.inputs

    @property
    def outputs(self) -> tuple[Spec, ...]:
        """Name, dtype and shape of every output, as declared."""
        return self._program.plan.outputs

    @property
    def input_names(self) -> tuple[str, ...]:
        """The ONNX names of the inputs; positional arguments are those without a default."""
        return tuple(s.name for s in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The ONNX names of the outputs."""
        return tuple(s.name for s in self.outputs)

    @property
    def static_inputs(self) -> tuple[str, ...]:
        """Names of the inputs whose values decide shapes: each value compiles anew."""
        return self._program.plan.static

    @property
    def opset(self) -> dict[str, int]:
        """The opset imports, domain to version; ``""`` is ONNX's own."""
        return dict(self._program.plan.opsets)

    @property
    def metadata(self) -> dict[str, str]:
        """Producer, graph name, version and the model's own properties."""
        return dict(self._program.plan.metadata)

    def abstract_inputs(self) -> dict[str, jax.ShapeDtypeStruct]:
        """The required inputs as shapes, with symbolic dimensions where the model has them.

        For ``jax.export.export(jax.jit(model.apply))(params, shapes)``; :meth:`export` is that
        with plain tuples.

        Raises:
            InputError: if an input has no declared rank or dtype.
        """
        required = [s for s in self.inputs if s.name not in self._program.plan.defaults]
        return dims.abstract(required, self._program.options.constraints)

    def export(self, *, platforms: Sequence[str] | None = None) -> jax.export.Exported:
        """The model as a function of parameters and inputs, both dicts by name.

        What it serializes to is loaded by ``jax.export.deserialize`` in a process that has no
        jaxonnx: several outputs are a plain tuple. Symbolic dimensions stay symbolic. Where it
        draws random numbers, a key is the third argument.

        Args:
            platforms: what it is lowered for; by default what JAX runs on.

        Raises:
            InputError: if an input has no declared rank or dtype.
            DataDependentShapeError: if no single program can hold the model.
        """

        def function(params: Mapping[str, Any], inputs: Mapping[str, Any], key: Any = None) -> Any:
            outputs = self.apply(params, inputs, key=key)
            return tuple(outputs) if isinstance(outputs, Outputs) else outputs

        keys = (jax.random.key(0),) if self._program.executor.draws else ()
        exported = jax.export.export(jax.jit(function), platforms=platforms)
        return exported(self.params, self.abstract_inputs(), *keys)

    def load_params(self, path: str | os.PathLike[str]) -> "Model":
        """The same model with the weights and statistics of a safetensors file, by ONNX name.

        Raises:
            InputError: if a weight is missing, a name is unknown, or a dtype or shape differs.
            OSError: if the file cannot be read.
        """
        values = read_weights(path)
        missing = [n for n in self._params if n not in values]
        if missing:
            raise InputError(f"{os.fspath(path)}: the weight {missing[0]!r} is missing")
        with core.eval_context(), jax.enable_x64(True):
            return self.replace({n: jnp.asarray(a) for n, a in values.items()})

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        format: Literal["onnx", "safetensors"] = "onnx",
    ) -> None:
        """Write the file that was read, with today's weights in their places.

        Nodes, names, opsets, metadata, functions and the order of all of them are those of the
        file; a weight goes to the initializer or the Constant node that it came from. External data
        stays external, in one file beside, ``PATH.data``. Both are written under other names first
        and then moved, so that no half of a file is ever there.

        Args:
            path: where to.
            format: ``"safetensors"`` writes weights and statistics alone, by ONNX name, for
                :meth:`load_params` (``pip install "jaxonnx[safetensors]"``).

        Raises:
            InputError: if a weight has no place of its own in the file and has changed: one that
                nodes compute, or that a function holds which is called more than once; or if one is
                traced.
            OSError: if the file cannot be written.
        """
        plan = self._program.plan
        check_parameters(self._params, plan)
        if format not in ("onnx", "safetensors"):
            raise InputError(f"format is {format!r}, expected 'onnx' or 'safetensors'")
        if is_inside_a_trace(self._params.values()):
            raise InputError("a model whose weights are traced cannot be saved")
        if format == "safetensors":
            kept = {n: a for n, a in self.stored.items() if plan.stored[n].role != "constant"}
            write_weights(path, kept)
            return
        check_places(self._program.template, self._params)
        given = {n: a for g in plan.graph.walk() for n, a in g.given.items()}
        save(path, self._program.template, {**given, **self._params})

    def schedule(self) -> Schedule:
        """What runs where outside of a trace, and why; it prints itself, a line each."""
        return self._program.executor.phases

    def summary(self) -> "Summary":
        """Operators, parameters and bytes as tables, which print themselves."""
        from jaxonnx.summary import Summary  # noqa: PLC0415 - rich is slow to import

        return Summary(self._program.plan, self._params)

    def __repr__(self) -> str:
        plan = self._program.plan
        count = sum(np.size(a) for a in self._params.values() if hasattr(a, "shape"))
        required = [s for s in self.inputs if s.name not in plan.defaults]
        inputs = ", ".join(f"{s.name}: {s}" for s in required)
        inputs += f" and {len(plan.defaults)} with a default" if plan.defaults else ""
        outputs = ", ".join(f"{s.name}: {s}" for s in self.outputs)
        opsets = ", ".join(f"{d or 'ai.onnx'} {v}" for d, v in plan.opsets.items())
        return (
            f"Model({inputs} -> {outputs}; {len(self._params)} parameter arrays, "
            f"{count:,} numbers; {len(plan.graph.nodes)} nodes; {opsets})"
        )

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        """The leaves with their names, and the static part."""
        leaves, static = self.tree_flatten()
        names = self._program.executor.leaves
        return tuple(zip(map(jax.tree_util.DictKey, names), leaves, strict=False)), static

    def tree_flatten(self) -> tuple[Any, Any]:
        """The leaves, and the static part: the program, and whether constants are leaves."""
        params = tuple(self._params.values())
        if self._constants is None:
            return params, (self._program, False)
        return params + self._constants, (self._program, True)

    @classmethod
    def tree_unflatten(cls, static: tuple[Program, bool], leaves: Any) -> "Model":
        """A model from leaves of any kind; nothing is checked."""
        program, inference = static
        leaves, names = tuple(leaves), program.plan.params
        params = dict(zip(names, leaves[: len(names)], strict=True))
        return cls(params, program, leaves[len(names) :] if inference else None)


jax.export.register_pytree_node_serialization(
    Model,
    serialized_name="jaxonnx.Model",
    serialize_auxdata=lambda static: bytes([static[1]]) + static[0].encode(),
    deserialize_auxdata=lambda data: (Program.decode(data[1:]), bool(data[0])),
)

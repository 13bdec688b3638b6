"""What errors say of nodes and their inputs."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from jax import errors
from jax.errors import InconclusiveDimensionOperation

from jaxonnx.define.known import as_dims, is_known, is_symbolic, shape_is_symbolic
from jaxonnx.errors import InvalidModelError, JaxonnxError, StaticValueError
from jaxonnx.graph.plan import Node

_RUNNING = "while running"

_ASSUME = (
    "a dimension is symbolic: if the model is only valid for some of its values, or JAX cannot "
    "decide a comparison, give load() what may be assumed of them, for example "
    "constraints=['S<=512']"
)

_TRACED = (
    errors.ConcretizationTypeError,  # also where a truth value or an index is asked for
    errors.TracerArrayConversionError,
    errors.TracerIntegerConversionError,
    errors.NonConcreteBooleanIndexError,
)
"""What JAX raises where a value is asked of something that is traced."""

_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"
"""What XLA says where it is so."""

_FEW = 8
"""The most elements of a known value that messages show."""


@contextlib.contextmanager
def notes(node: Node, args: Sequence[Any]) -> Iterator[None]:
    """Make an error from inside an operator one of ours that names the node.

    What Python, NumPy, JAX or XLA said is its cause. Lack of memory stays what it is.
    """
    try:
        yield
    except (MemoryError, RecursionError, Warning) as error:
        _add_note(error, node, args)
        raise
    except JaxonnxError as error:
        if isinstance(error, StaticValueError):
            error.node = node  # the outermost one in the end: where a plan can be split
        _add_note(error, node, args)
        raise
    except Exception as error:
        if _OUT_OF_MEMORY in str(error):
            _add_note(error, node, args)
            raise
        translated = _translated(error, node, args)
        translated.add_note(_note(node, args))
        raise translated from error


def _translated(error: Exception, node: Node, args: Sequence[Any]) -> JaxonnxError:
    """The error of ours that fits what an operator, or what it calls, said."""
    said = str(error).split("\n\n")[0].strip()  # JAX goes on with general advice
    text = f"{node.label}: {type(error).__name__}: {said}" if said else f"{node.label}: {error!r}"
    symbolic = any(map(_has_symbolic_shape, args))
    if isinstance(error, _TRACED):
        made = StaticValueError(f"{text}\n(it needs a value that is only known when it runs)")
        made.node = node
        return made
    if symbolic or isinstance(error, InconclusiveDimensionOperation):
        text += f"\n{_ASSUME}"
    if isinstance(error, InconclusiveDimensionOperation):
        return StaticValueError(text)
    return InvalidModelError(text)


def _add_note(error: BaseException, node: Node, args: Sequence[Any]) -> None:
    """Say which node an error comes from, unless it does so itself."""
    if not _says_where(error, node):
        error.add_note(_note(node, args))


def _note(node: Node, args: Sequence[Any]) -> str:
    pairs = zip(node.inputs, args, strict=True)
    inputs = ", ".join(f"{n!r}: {describe(a)}" for n, a in pairs if n) or "no inputs"
    return f"{_RUNNING} {node.label} with {inputs}"


def _has_symbolic_shape(value: Any) -> bool:
    return is_symbolic(value) or shape_is_symbolic(getattr(value, "shape", ()))


def _says_where(error: BaseException, node: Node) -> bool:
    """Whether an error names the node, or has the note of one inside of it."""
    named = isinstance(error, JaxonnxError) and node.label in str(error)
    return named or any(n.startswith(_RUNNING) for n in getattr(error, "__notes__", ()))


def describe(value: Any) -> str:
    """Dtype and shape of a value, and a small known value itself, for messages."""
    if is_symbolic(value):
        return f"dimensions {list(as_dims(value))}"
    if not hasattr(value, "dtype"):
        return type(value).__name__
    text = f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    return f"{text} = {value.tolist()}" if is_known(value) and value.size <= _FEW else text


def must_be_known(names: Sequence[str]) -> str:
    """The message for static inputs that are traced."""
    listed = ", ".join(map(repr, names))
    fixed = ", ".join(f"{n!r}: value" for n in names)
    return (
        f"input {listed} must be known while tracing, since shapes inside the model depend on its "
        "value, but it is traced here; pass a NumPy array, or fix it with "
        f"load(..., constants={{{fixed}}})"
    )


def value_dependent(nodes: Sequence[Node]) -> str:
    """The message for nodes that cannot be part of one compiled program."""
    lines = "\n".join(f"  {node.label}" for node in nodes)
    return (
        "the model cannot be traced as a whole, because these nodes need concrete values (the "
        f"shape of their result depends on them, or they are strings or maps):\n{lines}\n"
        "Call model(x) outside of jit, vmap and export, which runs these nodes between compiled "
        "stretches, declare how many results they can have with load(..., bounds={name: n}), or "
        "fix an input that decides an If with load(..., constants={name: value})"
    )

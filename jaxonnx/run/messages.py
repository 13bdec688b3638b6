"""What errors say of nodes and their inputs."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from jaxonnx.define.known import as_dims, is_known, is_symbolic, shape_is_symbolic
from jaxonnx.errors import JaxonnxError, StaticValueError
from jaxonnx.graph.plan import Node

_RUNNING = "while running"

_FEW = 8
"""The most elements of a known value that messages show."""


@contextlib.contextmanager
def notes(node: Node, args: Sequence[Any]) -> Iterator[None]:
    """Tell an error from inside an operator which node it comes from."""
    try:
        yield
    except Exception as error:
        if isinstance(error, StaticValueError):
            error.node = node  # the outermost one in the end: where a plan can be split
        if not _says_where(error, node):
            pairs = zip(node.inputs, args, strict=True)
            inputs = ", ".join(f"{n!r}: {describe(a)}" for n, a in pairs if n) or "no inputs"
            error.add_note(f"{_RUNNING} {node.label} with {inputs}")
            if not isinstance(error, JaxonnxError) and any(map(_has_symbolic_shape, args)):
                error.add_note(
                    "a dimension is symbolic: if the model is only valid for some of its values, "
                    "or JAX cannot decide a comparison, give load() what may be assumed of them, "
                    "for example constraints=['S<=512']"
                )
        raise


def _has_symbolic_shape(value: Any) -> bool:
    return is_symbolic(value) or shape_is_symbolic(getattr(value, "shape", ()))


def _says_where(error: Exception, node: Node) -> bool:
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

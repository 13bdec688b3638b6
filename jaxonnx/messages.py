"""What errors say of nodes and their inputs."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from jaxonnx.errors import JaxonnxError, StaticValueError
from jaxonnx.known import as_dims, is_known, is_symbolic
from jaxonnx.plan import Node


@contextlib.contextmanager
def notes(node: Node, args: Sequence[Any]) -> Iterator[None]:
    """Tell an error from inside an operator which node it comes from."""
    try:
        yield
    except Exception as error:
        if isinstance(error, StaticValueError):
            error.node = node  # the outermost one in the end: where a plan can be split
        present = getattr(error, "__notes__", [])
        if not (isinstance(error, JaxonnxError) and node.label in str(error)) and not any(
            note.startswith("while running") for note in present
        ):
            inputs = ", ".join(
                f"{n!r}: {describe(a)}" for n, a in zip(node.inputs, args, strict=True) if n
            )
            error.add_note(f"while running {node.label} with {inputs or 'no inputs'}")
        raise


def describe(value: Any) -> str:
    """Dtype and shape of a value, and a small known value itself, for messages."""
    if is_symbolic(value):
        return f"dimensions {list(as_dims(value))}"
    if not hasattr(value, "dtype"):
        return type(value).__name__
    text = f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    small = is_known(value) and value.size <= 8  # noqa: PLR2004 - what fits in a line
    return f"{text} = {value.tolist()}" if small else text


def value_dependent(nodes: Sequence[Node]) -> str:
    """The message for nodes that cannot be part of one compiled program."""
    lines = "\n".join(f"  {node.label}" for node in nodes)
    return (
        "the model cannot be traced as a whole, because these nodes need concrete values (the "
        f"shape of their result depends on them, or they are strings or maps):\n{lines}\n"
        "Call model(x) outside of jit, vmap and export, which runs these nodes between compiled "
        "stretches, or declare how many results they can have with load(..., bounds={name: n})"
    )

"""``Model.summary``: what a model consists of, as tables."""

import collections
from collections.abc import Iterable
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxonnx.model import Model
from jaxonnx.plan import Spec


def show(model: Model, console: Console | None = None) -> None:
    """Print inputs, outputs, operators and parameters of ``model``.

    Args:
        model: the model.
        console: where to; the standard output by default.
    """
    console = console or Console()
    for table in (_interface(model), _operators(model), _arrays(model)):
        if table.row_count:
            console.print(table)


def table(title: str, columns: Iterable[str], numbers: Iterable[str] = ()) -> Table:
    """An empty table in the style of all of ours; the columns in ``numbers`` align right."""
    made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    numbers = set(numbers)
    for column in columns:
        right = column in numbers
        made.add_column(column, justify="right" if right else "left", overflow="fold")
    return made


def add_row(to: Table, *cells: Any) -> None:
    """Add a row; names of ONNX values may hold brackets, so nothing in it is markup."""
    to.add_row(*(Text(str(c)) for c in cells))


def size(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def labelled(spec: Spec) -> tuple[str | int, ...] | None:
    """The shape of an input, its unnamed dimensions called ``input_0``, ``input_1``, ..."""
    return spec.labels


def _interface(model: Model) -> Table:
    made = table("Inputs and outputs", ("", "name", "dtype", "shape", "note"))
    optional = model._program.plan.defaults
    for spec in model.inputs:
        notes = ["optional"] if spec.name in optional else []
        notes += ["its value decides shapes"] if spec.name in model.static_inputs else []
        add_row(made, "in", *_cells(spec), ", ".join(notes))
    for spec in model.outputs:
        add_row(made, "out", *_cells(spec), "")
    return made


def _cells(spec: Spec) -> tuple[str, str, str]:
    shape = labelled(spec)
    return (
        spec.name,
        spec.held(spec.element),
        "any" if shape is None else f"[{', '.join(map(str, shape))}]",
    )


def _operators(model: Model) -> Table:
    nodes = [*model._program.plan.graph.all_nodes]
    made = table(f"Operators: {len(nodes):,} nodes", ("operator", "version", "nodes"), ("nodes",))
    counts = collections.Counter((n.domain, n.op_type, n.version) for n in nodes)
    for (domain, op_type, version), count in sorted(counts.items(), key=lambda c: (-c[1], c[0])):
        add_row(made, f"{domain}::{op_type}" if domain else op_type, version, count)
    return made


def _arrays(model: Model) -> Table:
    numeric = ("arrays", "numbers", "bytes")
    made = table("Stored arrays", ("", "dtype", *numeric), numeric)
    graph = model._program.plan.graph
    constants = [a for inner in graph.walk() for a in inner.given.values()]
    for kind, arrays in (("parameters", [*model.params.values()]), ("constants", constants)):
        for dtype in sorted({str(a.dtype) for a in arrays}):
            same = [a for a in arrays if str(a.dtype) == dtype]
            numbers, total = sum(np.size(a) for a in same), sum(a.nbytes for a in same)
            add_row(made, kind, dtype, f"{len(same):,}", f"{numbers:,}", size(total))
    return made

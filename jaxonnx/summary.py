"""``Model.summary``: what a model consists of, as tables."""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from rich import box
from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

from jaxonnx.graph import facts
from jaxonnx.graph.plan import Plan, Spec

_USERS = 3
"""The most nodes that are listed for a value."""


@dataclasses.dataclass(frozen=True, repr=False)
class Summary:
    """Inputs, outputs, operators and stored values of a model, which prints itself.

    Attributes:
        plan: the model that has been read.
        params: the values of its parameters by name.
    """

    plan: Plan
    params: Mapping[str, Any]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        del console, options
        values = (_values(self.plan, self.params), _arrays(self.plan, self.params))
        tables = (_interface(self.plan), _operators(self.plan), *values)
        yield from (t for t in tables if t.row_count)

    def __repr__(self) -> str:
        console = Console()
        with console.capture() as captured:
            console.print(self)
        return captured.get().rstrip()


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


def _interface(plan: Plan) -> Table:
    made = table("Inputs and outputs", ("", "name", "dtype", "shape", "note"))
    optional = plan.defaults
    for spec in plan.inputs:
        notes = ["optional"] if spec.name in optional else []
        notes += ["its value decides shapes"] if spec.name in plan.static else []
        add_row(made, "in", *_cells(spec), ", ".join(notes))
    for spec in plan.outputs:
        add_row(made, "out", *_cells(spec), "")
    return made


def _cells(spec: Spec) -> tuple[str, str, str]:
    shape = labelled(spec)
    return (
        spec.name,
        spec.held(spec.element),
        "any" if shape is None else f"[{', '.join(map(str, shape))}]",
    )


def _operators(plan: Plan) -> Table:
    nodes = [*plan.graph.all_nodes]
    columns = ["operator", "version", "nodes"]
    columns += [""] if any(facts.missing(n) is not None for n in nodes) else []
    made = table(f"Operators: {len(nodes):,} nodes", columns, ("nodes",))
    counts = collections.Counter((n.domain, n.op_type, n.version) for n in nodes)
    lacks = {(n.domain, n.op_type, n.version) for n in nodes if facts.missing(n) is not None}
    for key, count in sorted(counts.items(), key=lambda c: (-c[1], c[0])):
        domain, op_type, version = key
        title = f"{domain}::{op_type}" if domain else op_type
        note = ["MISSING" if key in lacks else ""] if lacks else []
        add_row(made, title, version or "", count, *note)
    return made


def _values(plan: Plan, params: Mapping[str, Any]) -> Table:
    numbers = ("numbers",)
    made = table("Stored values", ("name", "dtype", "shape", "role", *numbers, "used by"), numbers)
    arrays = {n: a for g in plan.graph.walk() for n, a in g.given.items()} | dict(params)
    for name, stored in plan.stored.items():
        array = arrays[name]
        role = f"{stored.role}, decides shapes" if stored.fixed else stored.role
        role += ", folded" if stored.source == "folded" else ""
        few = ", ".join(stored.users[:_USERS])
        rest = len(stored.users) - _USERS
        few += f" and {rest} more" if rest > 0 else ""
        add_row(made, name, array.dtype, [*array.shape], role, f"{array.size:,}", few)
    return made


def _arrays(plan: Plan, params: Mapping[str, Any]) -> Table:
    numeric = ("arrays", "numbers", "bytes")
    made = table("All that is stored", ("role", "dtype", *numeric), numeric)
    arrays = {n: a for g in plan.graph.walk() for n, a in g.given.items()} | dict(params)
    groups: dict[tuple[str, str], list[Any]] = collections.defaultdict(list)
    for name, array in arrays.items():
        role = plan.stored[name].role if name in plan.stored else "constant"
        groups[role, str(array.dtype)].append(array)
    for (role, dtype), same in sorted(groups.items(), reverse=True):
        numbers, total = sum(np.size(a) for a in same), sum(a.nbytes for a in same)
        add_row(made, role, dtype, f"{len(same):,}", f"{numbers:,}", size(total))
    return made

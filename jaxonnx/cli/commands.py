"""The command line: run, describe, check and differentiate an ONNX model without writing Python."""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

import jaxonnx
from jaxonnx import summary
from jaxonnx.cli import demo as demonstration
from jaxonnx.cli import session
from jaxonnx.cli.session import Clock, Difference
from jaxonnx.errors import InputError, JaxonnxError
from jaxonnx.loading import build_plan, load
from jaxonnx.model import Model
from jaxonnx.read.reader import listed

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

File = Annotated[pathlib.Path, typer.Argument(metavar="MODEL", help="The .onnx file.")]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="NAME=FILE.npy",
        help="The value of an input; repeat it for several. Others are random.",
    ),
]
Sizes = Annotated[
    list[str] | None,
    typer.Option(
        "--size",
        "-s",
        metavar="NAME=INT",
        help="The size of a dimension that the model leaves open, for random inputs; 1 unless "
        "given. [bold]jaxonnx info[/] shows the names.",
    ),
]
Seed = Annotated[int, typer.Option(help="Random inputs and draws are the same for the same seed.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


_MOST_LINES = 12
"""Of an error that lists what is missing."""


def main() -> None:
    """The entry point of the command ``jaxonnx``."""
    app()


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"jaxonnx {jaxonnx.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Run ONNX models on JAX: jitted, differentiable, the numbers checked.

    Try [bold]jaxonnx demo[/] first: it does all of this with a small model.

    Exit status: 0 if all is well, 1 if [bold]check[/] finds a difference, 2 on an error.
    """
    del version


@app.command()
def run(
    model: File,
    inputs: Inputs = None,
    sizes: Sizes = None,
    seed: Seed = 0,
    output: Annotated[
        pathlib.Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Save each output as DIR/NAME.npy."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Run a model once and print its outputs.

    Inputs come from .npy files.
    Those not given are random: floats normal, integers and booleans 0 or 1.

    Example: [bold]jaxonnx run bert.onnx -s batch=2 -s sequence=64 -o results[/]
    """
    with _reported(debug):
        console, clock = _start()
        loaded, values = _prepare(clock, model, inputs, sizes, seed)
        outputs = session.run(clock, loaded, values, seed)
        table = summary.table("Outputs", ("name", "dtype", "shape", "values"))
        for name, value in outputs.items():
            items = value if isinstance(value, list) else [value]
            for k, item in enumerate(items):
                title = f"{name}[{k}]" if items is value else name
                summary.add_row(table, title, *_described(item))
        console.print(table)
        if output is not None:
            for file in session.save(outputs, output).values():
                console.print(f"saved {file}", markup=False, highlight=False)
        console.print(str(clock), highlight=False)


@app.command()
def info(model: File, debug: Debug = False) -> None:
    """Show the inputs, outputs, operators and stored values of a model.

    Operators that jaxonnx does not have are marked, and listed at the end.
    """
    with _reported(debug):
        console, clock = _start()
        missing: dict[str, list[str]] = {}
        with clock.step("read"):
            plan, params, _ = build_plan(
                model, constants={}, trainable=(), frozen=(), missing=missing
            )
        opsets = ", ".join(f"{d or 'ai.onnx'} {v}" for d, v in plan.opsets.items())
        size = summary.size(model.stat().st_size)
        console.print(f"{model.name}: {size}, opset {opsets}", markup=False, highlight=False)
        console.print(summary.Summary(plan, params))
        for fault, places in missing.items():
            console.print(
                f"missing: {fault} (node {listed(places)})", markup=False, highlight=False
            )


@app.command()
def check(
    model: File,
    inputs: Inputs = None,
    sizes: Sizes = None,
    seed: Seed = 0,
    against: Annotated[
        str | None,
        typer.Option(
            help="What to compare with: [bold]onnxruntime[/] or [bold]reference[/], which is part "
            "of onnx, slow, and wrong on some old operators. onnxruntime if it is installed.",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="Largest error accepted, relative to the largest value of the output. 0.001 for "
            "float32 unless given; integers must be equal."
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Compare a model's outputs with those of another runtime; exit status 1 if they differ."""
    with _reported(debug):
        console, clock = _start()
        if against not in (None, *session.ORACLES):
            raise InputError(f"--against {against}: expected {' or '.join(session.ORACLES)}")
        loaded, values = _prepare(clock, model, inputs, sizes, seed)
        outputs = session.run(clock, loaded, values, seed)
        with clock.step("other runtime"):
            title, expected = session.oracle(model, values, against)
        rows = {n: session.compare(outputs[n], v, tolerance) for n, v in expected.items()}
        _print_differences(console, title, rows)
        console.print(str(clock), highlight=False)
    if not all(row.ok for row in rows.values()):
        raise typer.Exit(1)


@app.command()
def grad(
    model: File,
    inputs: Inputs = None,
    sizes: Sizes = None,
    seed: Seed = 0,
    limit: Annotated[
        int, typer.Option(help="Show so many, those of the largest norm first; 0 shows all.")
    ] = 20,
    debug: Debug = False,
) -> None:
    """Differentiate the sum of all floating outputs by every parameter and floating input."""
    with _reported(debug):
        console, clock = _start()
        loaded, values = _prepare(clock, model, inputs, sizes, seed)
        by_parameter, by_input = session.gradients(clock, loaded, values, seed)
        _print_gradients(console, by_parameter, by_input, limit)
        console.print(str(clock), highlight=False)


@app.command()
def demo(debug: Debug = False) -> None:
    """Read, run, check, differentiate and fool the model that comes with jaxonnx."""
    with _reported(debug):
        console, clock = _start()
        right = demonstration.show(console, clock)
    if not right:
        raise typer.Exit(1)


def _start() -> tuple[Console, Clock]:
    from jaxonnx.cli.session import Clock  # noqa: PLC0415 - likewise

    return Console(), Clock(Console(stderr=True))


def _read(clock: Clock, file: pathlib.Path) -> Model:
    with clock.step("read"):
        return load(file)


def _prepare(
    clock: Clock, file: pathlib.Path, pairs: list[str] | None, sizes: list[str] | None, seed: int
) -> tuple[Model, dict[str, Any]]:
    """The model and a checked value for each of its required inputs."""
    loaded = _read(clock, file)
    given = session.read_inputs(loaded, pairs or ())
    return loaded, session.random_inputs(loaded, given, _parse_sizes(sizes or ()), seed)


def _parse_sizes(pairs: list[str] | tuple[()]) -> dict[str, int]:
    sizes = {}
    for pair in pairs:
        name, equals, number = pair.rpartition("=")
        if not equals or not number.isdecimal():
            raise InputError(f"--size {pair!r} is not NAME=INT")
        sizes[name] = int(number)
    return sizes


def _described(value: Any) -> tuple[Any, Any, str]:
    """Dtype, shape and what there is to see of an output."""
    if not isinstance(value, np.ndarray):
        return "none" if value is None else type(value).__name__, "", str(value or "")
    return value.dtype, [*value.shape], _glance(value)


def _glance(value: np.ndarray) -> str:
    """All of a short array, the range and the mean of a long one."""
    if value.size <= 8 or value.dtype.kind in "TOSU":
        with np.printoptions(precision=5, threshold=8):
            return str(value.tolist() if value.dtype.kind in "TOSU" else value).replace("\n", "")
    if value.dtype.kind == "c":
        return f"magnitude to {np.abs(value).max():.5g}"
    wide = value.astype(np.float64)
    return f"{wide.min():.5g} to {wide.max():.5g}, mean {wide.mean():.5g}"


def _print_differences(console: Console, title: str, rows: dict[str, Difference]) -> None:
    numbers = ("largest error", "relative error")
    table = summary.table(f"Compared with {title}", ("output", *numbers, "verdict"), numbers)
    for name, row in rows.items():
        verdict = "ok" if row.ok else row.fault or "DIFFERENT"
        summary.add_row(table, name, f"{row.absolute:.2e}", f"{row.relative:.2e}", verdict)
    console.print(table)


def _print_gradients(
    console: Console, by_parameter: dict[str, Any], by_input: dict[str, Any], limit: int
) -> None:
    table = summary.table("Gradients", ("of", "name", "shape", "norm"), ("norm",))
    rows = [
        (kind, name, [*np.shape(g)], float(np.linalg.norm(np.abs(np.asarray(g, np.complex128)))))
        for kind, found in (("parameter", by_parameter), ("input", by_input))
        for name, g in found.items()
    ]
    rows.sort(key=lambda row: -row[3] if np.isfinite(row[3]) else -np.inf)
    for kind, name, shape, norm in rows[: limit or None]:
        summary.add_row(table, kind, name, shape, f"{norm:.4g}")
    console.print(table)
    zero = sum(norm == 0 for *_, norm in rows)
    bad = sum(not np.isfinite(norm) for *_, norm in rows)
    console.print(
        f"{len(by_parameter)} parameters, {len(by_input)} inputs; {zero} gradients are zero, "
        f"{bad} not finite",
        highlight=False,
    )


@contextlib.contextmanager
def _reported(debug: bool) -> Iterator[None]:
    """Turn an error into one line and exit status 2, unless the traceback is wanted."""
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        if debug:
            raise
        typer.echo(f"error: {_message(error)}", err=True)
        raise typer.Exit(2) from error


def _message(error: Exception) -> str:
    """What went wrong, with where in the model; the kind of error if it is not one of ours."""
    if isinstance(error, FileNotFoundError):
        return f"there is no file {error.filename}"
    if isinstance(error, OSError):
        return f"{error.filename or ''}: {error.strerror or error}"
    notes = [n for n in getattr(error, "__notes__", ()) if n.startswith("while running")]
    lines = str(error).splitlines() or [""]
    if not isinstance(error, JaxonnxError):
        return "; ".join([f"{type(error).__name__}: {lines[0]}", *notes])
    more = len(lines) - _MOST_LINES
    shown = [*lines[:_MOST_LINES], *([f"  and {more} more; --debug shows all"] if more > 0 else [])]
    return "; ".join(["\n".join(shown), *notes])

"""What the command line does with a model: inputs, timed steps, comparison, files."""

import contextlib
import dataclasses
import importlib.util
import pathlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from jaxonnx.errors import InputError, StaticValueError
from jaxonnx.graph.plan import Spec
from jaxonnx.model import Model
from jaxonnx.run.inputs import bind
from jaxonnx.summary import labelled

Arrays = dict[str, Any]

PATIENCE = 1.0
"""Seconds after which a step is shown while it is going on."""

TOLERANCE = {"float16": 1e-2, "bfloat16": 5e-2, "float64": 1e-6}
"""Largest relative error by dtype that ``check`` accepts; that of float32 for all others."""

_TOLERANCE = 1e-3


@dataclasses.dataclass
class Clock:
    """Times the steps of a command and shows those that take long."""

    console: Console
    times: dict[str, float] = dataclasses.field(default_factory=dict)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add what happens inside to the time of the step called ``name``."""
        status = self.console.status(f"{name} ...")
        timer = threading.Timer(PATIENCE, status.start)
        timer.start()
        start = time.perf_counter()
        try:
            yield
        finally:
            self.times[name] = self.times.get(name, 0) + time.perf_counter() - start
            timer.cancel()
            timer.join()
            status.stop()

    def __str__(self) -> str:
        return ", ".join(f"{name} {seconds:.2f} s" for name, seconds in self.times.items())


def execute(clock: Clock, model: Model, function: Callable[..., Any], *args: Any) -> Any:
    """``function(*args)``, which calls ``model``: compiled, its steps timed apart.

    A model that no single program can hold is called as it is; it runs in phases then.
    """
    with jax.enable_x64(True):
        lowered = None
        if not model._program.executor.in_phases:
            with clock.step("trace"), contextlib.suppress(StaticValueError):
                lowered = jax.jit(function).lower(*args)
        if lowered is None:
            with clock.step("compile and run in phases"):
                return jax.block_until_ready(function(*args))
        with clock.step("compile"):
            compiled = lowered.compile()
        with clock.step("run"):
            return jax.block_until_ready(compiled(*args))


def run(clock: Clock, model: Model, inputs: Arrays, seed: int) -> Arrays:
    """The outputs of a model by name: NumPy arrays, and whatever else ONNX has."""
    static, traced = _split(model, inputs)
    key = jax.random.key(seed)
    result = execute(clock, model, lambda m, x: m({**x, **static}, key=key), model, traced)
    results = result if isinstance(result, tuple) else (result,)
    pairs = zip(model.output_names, results, strict=True)
    return {n: jax.tree.map(np.asarray, r) for n, r in pairs}


def gradients(clock: Clock, model: Model, inputs: Arrays, seed: int) -> tuple[Arrays, Arrays]:
    """Derivatives of the sum of all floating outputs: by parameter, and by floating input."""
    static, traced = _split(model, inputs)
    floats = {n: v for n, v in traced.items() if jnp.issubdtype(v.dtype, jnp.inexact)}
    rest = {n: v for n, v in traced.items() if n not in floats}

    def loss(model: Model, floats: Arrays, rest: Arrays) -> Any:
        outputs = jax.tree.leaves(model({**floats, **rest, **static}, key=jax.random.key(seed)))
        real = [jnp.real(y) for y in outputs if jnp.issubdtype(y.dtype, jnp.inexact)]
        if not real:
            raise InputError("the model has no floating output, so there is no derivative")
        return sum(jnp.sum(y.astype(jnp.float64)) for y in real)

    by_model, by_input = execute(clock, model, jax.grad(loss, (0, 1)), model, floats, rest)
    return by_model.params, by_input


def _split(model: Model, inputs: Arrays) -> tuple[Arrays, Arrays]:
    """Inputs whose values must be known while tracing, text among them, and the others."""
    static = {n: v for n, v in inputs.items() if n in model.static_inputs or v.dtype.kind == "T"}
    return static, {n: v for n, v in inputs.items() if n not in static}


def read_inputs(model: Model, pairs: Sequence[str]) -> Arrays:
    """Arrays from ``NAME=FILE.npy`` pairs; names may hold an equals sign themselves."""
    given: Arrays = {}
    specs = {s.name: s for s in model.inputs}
    for pair in pairs:
        cuts = [k for k, c in enumerate(pair) if c == "=" and pair[:k] in specs]
        if not cuts:
            names = ", ".join(repr(n) for n in specs) or "none"
            raise InputError(f"--input {pair!r} is not NAME=FILE.npy with an input of: {names}")
        name, file = pair[: cuts[0]], pathlib.Path(pair[cuts[0] + 1 :])
        given[name] = _load_array(file, specs[name])
    return given


def _load_array(file: pathlib.Path, spec: Spec) -> np.ndarray:
    try:
        array = np.load(file, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"{file} is not an .npy file: {error}") from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{file} holds several arrays; save one with np.save")
    return array if spec.dtype is None or not _foreign(spec.dtype) else array.astype(spec.dtype)


def _foreign(dtype: np.dtype) -> bool:
    """Whether .npy files cannot hold a dtype: bfloat16, float8 and other small types."""
    return dtype.kind == "V" or dtype.type.__module__.startswith("ml_dtypes")


def random_inputs(model: Model, given: Arrays, sizes: Mapping[str, int], seed: int) -> Arrays:
    """``given``, checked, with random values for every other required input.

    Floats are normal, integers and booleans 0 or 1, inputs that decide shapes all 1.

    Args:
        model: the model.
        given: inputs that need none.
        sizes: sizes of dimensions that the model leaves open; 1 for those not named.
        seed: the same seed gives the same values.
    """
    rng = np.random.default_rng(seed)
    optional = model._program.plan.defaults
    wanted = [s for s in model.inputs if s.name not in given and s.name not in optional]
    named = {d for s in model.inputs for d in labelled(s) or () if isinstance(d, str)}
    unknown = [n for n in sizes if n not in named]
    if unknown:
        raise InputError(
            f"--size: no dimension is called {unknown[0]!r}; "
            f"there are {', '.join(sorted(map(repr, named))) or 'none'}"
        )
    made = {s.name: _random(s, s.name in model.static_inputs, sizes, rng) for s in wanted}
    return bind(model.inputs, optional, ({**given, **made},), {})


def _random(
    spec: Spec, static: bool, sizes: Mapping[str, int], rng: np.random.Generator
) -> np.ndarray:
    dims = labelled(spec)
    if dims is None or spec.dtype is None or spec.is_text or spec.kinds:
        raise InputError(
            f"input {spec.name!r} ({spec}) cannot be made up; give it with "
            f"--input '{spec.name}=FILE.npy'"
        )
    shape = tuple(sizes.get(d, 1) if isinstance(d, str) else d for d in dims)
    if static:
        return np.ones(shape, spec.dtype)
    if jnp.issubdtype(spec.dtype, jnp.inexact):
        return np.asarray(rng.standard_normal(shape)).astype(spec.dtype)
    return np.asarray(rng.integers(0, 2, shape)).astype(spec.dtype)


ORACLES = ("onnxruntime", "reference")


def oracle(path: pathlib.Path, inputs: Arrays, name: str | None) -> tuple[str, Arrays]:
    """What another runtime computes: its title, and the outputs by name.

    Args:
        path: the model file.
        inputs: values by name.
        name: one of :data:`ORACLES`; None takes onnxruntime where it is installed.
    """
    if name is None:
        name = ORACLES[0] if importlib.util.find_spec("onnxruntime") else ORACLES[1]
    inputs = {n: np.asarray(v) for n, v in inputs.items()}
    if name == "onnxruntime":
        import onnxruntime  # noqa: PLC0415 - optional

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # its errors come as exceptions
        providers = ["CPUExecutionProvider"]
        session = onnxruntime.InferenceSession(str(path), options, providers=providers)
        title = f"onnxruntime {onnxruntime.__version__}"
        names = [o.name for o in session.get_outputs()]
    else:
        import onnx  # noqa: PLC0415 - slow to import
        from onnx.reference import ReferenceEvaluator  # noqa: PLC0415 - likewise

        session = ReferenceEvaluator(str(path))
        title = f"the reference of onnx {onnx.__version__}"
        names = [str(n) for n in session.output_names]
    return title, dict(zip(names, session.run(None, inputs), strict=True))


@dataclasses.dataclass(frozen=True)
class Difference:
    """How two arrays differ.

    Attributes:
        absolute: the largest absolute difference.
        relative: that, divided by the largest expected magnitude.
        fault: what makes them incomparable, or ``""``.
        ok: whether ``relative`` is within the tolerance of the dtype and nothing is at fault.
    """

    absolute: float
    relative: float
    fault: str
    ok: bool


def compare(actual: Any, expected: Any, tolerance: float | None = None) -> Difference:
    """The difference of an output, or of the items of a sequence, from what was expected.

    Args:
        actual: ours.
        expected: theirs.
        tolerance: the largest relative error; by dtype if None. Anything but floats must be equal.
    """
    if isinstance(actual, list) and isinstance(expected, list):
        return _compare_items(actual, expected, tolerance)
    a, b = np.asarray(actual), np.asarray(expected)
    if a.shape != b.shape:
        return Difference(np.nan, np.nan, f"shape {[*a.shape]}, expected {[*b.shape]}", ok=False)
    if a.dtype.kind in "OSTU" or b.dtype.kind in "OSTU":
        same = a.astype(str).tolist() == b.astype(str).tolist()
        return Difference(0, 0, "" if same else "strings differ", ok=same)
    if a.dtype != b.dtype:
        return Difference(np.nan, np.nan, f"dtype {a.dtype}, expected {b.dtype}", ok=False)
    inexact = jnp.issubdtype(a.dtype, jnp.inexact)
    if tolerance is None:
        tolerance = TOLERANCE.get(a.dtype.name, _TOLERANCE) if inexact else 0
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    if (np.isfinite(a) != np.isfinite(b)).any() or (np.isnan(a) != np.isnan(b)).any():
        return Difference(np.inf, np.inf, "NaN or infinity differ", ok=False)
    with np.errstate(invalid="ignore"):
        same = (a == b) | np.isnan(a)
        absolute = float(np.where(same, 0, np.abs(a - b)).max(initial=0))
    largest = float(np.abs(b[np.isfinite(b)]).max(initial=0))
    relative = absolute / max(largest, float(np.finfo(np.float32).tiny))
    return Difference(absolute, relative, "", ok=relative <= tolerance)


def _compare_items(actual: list[Any], expected: list[Any], tolerance: float | None) -> Difference:
    """The worst difference of two items."""
    if len(actual) != len(expected):
        fault = f"{len(actual)} items, expected {len(expected)}"
        return Difference(np.nan, np.nan, fault, ok=False)
    pairs = zip(actual, expected, strict=True)
    each = [compare(a, b, tolerance) for a, b in pairs] or [Difference(0, 0, "", ok=True)]
    return min(each, key=lambda d: (d.ok, -d.relative))


def save(outputs: Arrays, folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Write every output to ``folder`` as .npy, and give the files by name.

    Types that .npy files cannot hold, such as bfloat16, are written as float32 or int8.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, pathlib.Path] = {}
    for name, array in _flat(outputs).items():
        base = re.sub(r"[^\w.-]+", "_", name).strip("._") or "output"
        file, count = folder / f"{base}.npy", 1
        while file in files.values():
            count += 1
            file = folder / f"{base}_{count}.npy"
        np.save(file, _storable(array), allow_pickle=False)
        files[name] = file
    return files


def _flat(outputs: Arrays) -> dict[str, np.ndarray]:
    """Every array by name; the items of a sequence are numbered."""
    flat: dict[str, np.ndarray] = {}
    for name, value in outputs.items():
        items = value if isinstance(value, list) else [value]
        names = [f"{name}_{k}" for k in range(len(items))] if items is value else [name]
        flat |= {n: np.asarray(v) for n, v in zip(names, items, strict=True) if v is not None}
    return flat


def _storable(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "T":
        return array.astype(str)
    if _foreign(array.dtype):
        return array.astype(np.float32 if jnp.issubdtype(array.dtype, jnp.inexact) else np.int8)
    return array

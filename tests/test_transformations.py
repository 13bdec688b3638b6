"""Every operator under every JAX transformation, with x64 off and no dtype narrowed in silence.

What is compared is each transformation against the plain call. Operators that need concrete values
cannot be transformed without a bound; test_padded.py has them under one. All modes of an operator
are one program, which is lowered for every platform and compiled once.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
import samples
from helpers import TOLERANCE, generator
from samples import title

import jaxonnx

NARROW = {np.dtype(np.int64): np.int32, np.dtype(np.uint64): np.uint32}
"""What a user's own jit makes of 64-bit integers while x64 is off, before the model sees them."""

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")

HOST = {
    *("Compress", "ImageDecoder", "NonMaxSuppression", "NonZero", "RegexFullMatch"),
    *("StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer", "Unique"),
    *(title(n, "ai.onnx.ml") for n in ("CastMap", "DictVectorizer", "ZipMap")),
}
"""Operators that are never part of a program, unless a bound is declared."""


def plain(sample: samples.Sample) -> tuple[Callable[..., Any], dict[str, np.ndarray]]:
    """A function of the traced inputs by name, which gives a list of arrays, and those inputs."""
    model = jaxonnx.load(sample.model)
    static = {n: v for n, v in sample.inputs.items() if n in model.static_inputs}
    traced = {n: v for n, v in sample.inputs.items() if n not in static}
    return lambda given: jax.tree.leaves(model({**static, **given})), traced


def has_doubles(*arrays: np.ndarray) -> bool:
    """Whether JAX would narrow one that integers' widening does not give back."""
    return any(v.dtype == np.float64 for v in arrays)


def narrow(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {n: v.astype(NARROW.get(v.dtype, v.dtype)) for n, v in inputs.items()}


def twice(inputs: Any) -> Any:
    return jax.tree.map(lambda v: jnp.stack([v, v]), inputs)


def loss(function: Callable[..., Any], inputs: dict[str, Any]) -> Callable[..., Any]:
    """A weighted sum of all floating outputs as a function of the floating inputs."""

    def total(floats: dict[str, Any]) -> Any:
        values = [v for v in function({**inputs, **floats}) if jnp.issubdtype(v.dtype, np.floating)]
        weights = [np.cos(np.arange(v.size, dtype=np.float32)).reshape(v.shape) for v in values]
        products = [jnp.sum(v.astype(np.float32) * w) for v, w in zip(values, weights, strict=True)]
        return sum(products, jnp.float32(0))

    return total


def second(function: Callable[..., Any], direction: Any) -> Callable[..., Any]:
    """A Hessian-vector product."""
    return lambda x: jax.jvp(jax.grad(function), (x,), (direction,))[1]


FORWARD: dict[str, Callable[..., Any]] = {
    "jit": jax.jit,
    "jit of jit": lambda f: jax.jit(jax.jit(f)),
    "vmap": lambda f: lambda x: jax.vmap(f)(twice(x)) if x else twice(f(x)),
}
REVERSE: dict[str, Callable[..., Any]] = {
    "grad of jit": lambda f: jax.grad(jax.jit(f)),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(f)),
    "vmap of grad": lambda f: lambda x: jax.vmap(jax.grad(f))(twice(x)),
}


def run(function: Callable[..., Any], inputs: Any) -> Any:
    """What a function gives when it is lowered for every platform and compiled for this one."""
    exported = jax.export.export(jax.jit(function), platforms=PLATFORMS)(inputs)
    quick = jax.jit(exported.call, compiler_options={"xla_backend_optimization_level": 0})
    return jax.tree.map(np.asarray, quick(inputs))


def assert_same(actual: np.ndarray, expected: np.ndarray, mode: str) -> None:
    actual = actual[1] if mode.startswith("vmap") else actual
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), mode
    if expected.dtype.kind in "fV":
        actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6, err_msg=mode)


def assert_as_documented(operator: str, gradient: dict[str, np.ndarray]) -> None:
    """The page of operators says whether there is a derivative other than 0."""
    domain, _, op_type = operator.rpartition("::")
    flows = any(v.astype(np.float64).any() for v in gradient.values())
    stated = generator().derivative(op_type, domain).startswith("yes")
    alone = len(samples.samples()[operator].model.graph.node) == 1
    assert flows == stated or not (stated or alone)


@pytest.fixture(autouse=True)
def explicit_x64():
    """A 64-bit dtype asked for where JAX would narrow it is an error."""
    jax.config.update("jax_explicit_x64_dtypes", "error")
    yield
    jax.config.update("jax_explicit_x64_dtypes", "warn")


def test_every_operator_is_here_or_listed():
    assert samples.operators(host=True) == HOST
    assert samples.samples().keys().isdisjoint(samples.WITHOUT_SAMPLE)
    covered = samples.samples().keys() | samples.WITHOUT_SAMPLE.keys()
    assert covered == samples.operators(host=False)


@pytest.mark.parametrize("operator", samples.samples())
def test_forward(operator):
    function, inputs = plain(samples.samples()[operator])
    expected = [np.asarray(v) for v in function(inputs)]
    wide = has_doubles(*inputs.values())
    with jax.enable_x64(wide):
        every = lambda x: {mode: apply(function)(x) for mode, apply in FORWARD.items()}
        results = run(every, inputs if wide else narrow(inputs))
    for mode, outputs in results.items():
        for a, e in zip(outputs, expected, strict=True):
            assert_same(a, e, mode)


@pytest.mark.parametrize("operator", samples.samples())
def test_derivatives(operator):
    function, inputs = plain(samples.samples()[operator])
    floats = {n: v for n, v in inputs.items() if jnp.issubdtype(v.dtype, jnp.floating)}
    with jax.enable_x64(True):
        outputs = jax.eval_shape(function, inputs)
    if not floats or not any(jnp.issubdtype(v.dtype, np.floating) for v in outputs):
        return  # nothing to differentiate
    wide = has_doubles(*floats.values(), *outputs)
    direction = {
        n: np.sin(np.arange(v.size).reshape(v.shape)).astype(v.dtype) for n, v in floats.items()
    }
    with jax.enable_x64(wide):
        total = loss(function, inputs if wide else narrow(inputs))
        expected = jax.tree.map(np.asarray, jax.grad(total)(floats))
        every = lambda x: {mode: apply(total)(x) for mode, apply in REVERSE.items()}
        along = lambda x: jax.jvp(total, (x,), (direction,))[1]
        gradients, change = run(lambda x: (every(x), along(x)), floats)
        jax.eval_shape(second(total, direction), floats)
    assert_as_documented(operator, expected)
    for mode, gradient in gradients.items():
        for name, values in gradient.items():
            assert_same(values, expected[name], mode)
    products = [np.vdot(*(t[n].astype(np.float64) for t in (expected, direction))) for n in floats]
    half = any(v.dtype.itemsize < 4 for v in floats.values())
    rtol, atol = TOLERANCE["bfloat16" if half else "float32"]
    np.testing.assert_allclose(change, sum(products), rtol=10 * rtol, atol=10 * atol)

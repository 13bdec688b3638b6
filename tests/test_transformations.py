"""Every operator under every JAX transformation, with x64 off and no dtype narrowed in silence.

The sample of an operator is the smallest case of ONNX's suite that it passes; what is compared is
each transformation against the plain call, so the oracle's value does not matter here. Operators
that need concrete values cannot be transformed without a bound; test_padded.py has them under one.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from conformance.suite import load_cases

import jaxonnx
from jaxonnx.define import registry

NARROW = {np.dtype(np.int64): np.int32, np.dtype(np.uint64): np.uint32}
"""What a user's own jit makes of 64-bit integers while x64 is off, before the model sees them."""


@functools.cache
def smallest_cases() -> dict[str, Any]:
    """The smallest plain case of every operator, one with floats if there is one, by name."""
    operators = [o for o in registry.registered() if o.domain == "" and not o.host]
    # The suite's loops take their trip count as an input; test_control_flow.py has the others.
    names = {o.op_type for o in operators} - {"Loop"}
    found: dict[str, Any] = {}
    for case in load_cases():
        if case.kind != "node" or case.expanded or case.operator not in names:
            continue
        values = [*case.data_sets[0][0], *case.data_sets[0][1]]
        if not all(isinstance(v, np.ndarray) and v.dtype.kind in "biufcV" for v in values):
            continue
        floats = any(v.dtype in (np.float32, np.float64) for v in case.data_sets[0][0])
        size = (not floats, sum(v.nbytes for v in values))
        if case.operator not in found or size < found[case.operator][0]:
            found[case.operator] = size, case
    return {name: case for name, (_, case) in sorted(found.items())}


@functools.cache
def sample(operator: str) -> tuple[Callable[..., Any], dict[str, np.ndarray], list[np.ndarray]]:
    """A function of the traced inputs by name, those inputs, and what it gives for them."""
    case = smallest_cases()[operator]
    proto = onnx.ModelProto.FromString(case.model)
    model = jaxonnx.load(proto)
    inputs = dict(zip([i.name for i in proto.graph.input], case.data_sets[0][0], strict=True))
    static = {n: v for n, v in inputs.items() if n in model.static_inputs}
    function = lambda traced: model({**static, **traced})
    traced = {n: v for n, v in inputs.items() if n not in static}
    return function, traced, [np.asarray(v) for v in jax.tree.leaves(function(traced))]


def has_doubles(inputs: dict[str, np.ndarray]) -> bool:
    """Whether JAX would narrow an input that integers' widening does not give back."""
    return any(v.dtype == np.float64 for v in inputs.values())


def narrow(inputs: dict[str, Any]) -> dict[str, Any]:
    return {n: v.astype(NARROW.get(v.dtype, v.dtype)) for n, v in inputs.items()}


def assert_same(actual: Any, expected: list[np.ndarray]) -> None:
    for a, e in zip(map(np.asarray, jax.tree.leaves(actual)), expected, strict=True):
        assert a.dtype == e.dtype
        assert a.shape == e.shape
        values = [v.astype(np.float64) if v.dtype.kind in "fV" else v for v in (a, e)]
        np.testing.assert_allclose(*values, rtol=1e-5, atol=1e-6)


def loss(function: Callable[..., Any], inputs: dict[str, Any]) -> Callable[..., Any]:
    """The sum of all floating outputs as a function of the floating inputs."""

    def total(floats: dict[str, Any]) -> Any:
        leaves = jax.tree.leaves(function({**inputs, **floats}))
        kept = [v for v in leaves if jnp.issubdtype(v.dtype, jnp.floating)]
        return sum((jnp.sum(v.astype(np.float32)) for v in kept), jnp.float32(0))

    return total


def second(function: Callable[..., Any]) -> Callable[..., Any]:
    """A Hessian-vector product along the ones."""
    return lambda x: jax.jvp(jax.grad(function), (x,), (jax.tree.map(jnp.ones_like, x),))[1]


FORWARD = {
    "jit": jax.jit,
    "jit of jit": lambda f: jax.jit(jax.jit(f)),
}
BACKWARD = {
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (x,))[1],
    "grad": jax.grad,
    "jit of grad": lambda f: jax.jit(jax.grad(f)),
    "grad of jit": lambda f: jax.grad(jax.jit(f)),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(f)),
    "vmap of grad": lambda f: (
        lambda x: jax.tree.map(
            lambda v: v[1], jax.vmap(jax.grad(f))(jax.tree.map(lambda v: jnp.stack([v, v]), x))
        )
    ),
}

pytestmark = [
    pytest.mark.parametrize("operator", smallest_cases()),
    pytest.mark.usefixtures("explicit_x64"),
]


@pytest.fixture
def explicit_x64():
    """A 64-bit dtype asked for where JAX would narrow it is an error."""
    jax.config.update("jax_explicit_x64_dtypes", "error")
    yield
    jax.config.update("jax_explicit_x64_dtypes", "warn")


@pytest.mark.parametrize("mode", FORWARD)
def test_forward(operator, mode):
    function, inputs, expected = sample(operator)
    wide = has_doubles(inputs)
    with jax.enable_x64(wide):
        assert_same(FORWARD[mode](function)(inputs if wide else narrow(inputs)), expected)


def test_vmap(operator):
    function, inputs, expected = sample(operator)
    if not inputs:
        assert_same(function({}), expected)
        return
    with jax.enable_x64(has_doubles(inputs)):
        batched = jax.vmap(function)({n: np.stack([v, v]) for n, v in inputs.items()})
    assert_same(jax.tree.map(lambda v: v[1], batched), expected)


def test_derivatives(operator):
    function, inputs, expected = sample(operator)
    floats = {n: v for n, v in inputs.items() if jnp.issubdtype(v.dtype, jnp.floating)}
    if not floats:  # nothing to differentiate
        return
    wide = any(v.dtype == np.float64 for v in [*floats.values(), *expected])
    with jax.enable_x64(wide):
        total = loss(function, inputs if wide else narrow(inputs))
        plain = jax.grad(total)(floats)
        for name, mode in BACKWARD.items():
            result = mode(total)(floats)
            if name != "jvp":
                jax.tree.map(lambda a, b: assert_same(a, [np.asarray(b)]), result, plain)
        jax.eval_shape(second(total), floats)


def test_lowers_for_every_platform(operator):
    function, inputs, _ = sample(operator)
    platforms = ["cpu", "cuda", "rocm", "tpu"]
    with jax.enable_x64(has_doubles(inputs)):
        exported = jax.export.export(jax.jit(function), platforms=platforms)(inputs)
    assert set(exported.platforms) == set(platforms)

"""What tests of functions that files spell out share: texts and derivatives."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import text_model

import jaxonnx
from jaxonnx import loading

PARTS = "float[3] y = {1, 2, -4}, float two = {2}, float half = {0.5}, float zero = {0}"
"""What is stored unless a test says otherwise."""


def vector(body: str, stored: str = PARTS) -> str:
    """A graph that makes ``z`` of ``x``, three numbers."""
    return f"(float[3] x) => (z) <{stored}> {{ {body} }}"


MODES: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "reverse": jax.grad,
    "forward": jax.jacfwd,
    "forward of reverse": lambda f: jax.jacfwd(jax.grad(f)),
    "reverse of reverse": lambda f: jax.jacrev(jax.grad(f)),
}


def weighted(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The sum of the results, each weighted by its number."""

    def total(x: Any) -> Any:
        y = jnp.asarray(function(x))
        return (y.reshape(-1) * np.arange(1, y.size + 1, dtype=y.dtype)).sum()

    return total


def derivatives(function: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    """All derivatives of a weighted sum, in both orders and modes, as one program."""
    total = weighted(function)
    return jax.jit(lambda x: {name: mode(total)(x) for name, mode in MODES.items()})


def true(function: Callable[[Any], Any], x: Any) -> tuple[Any, Any]:
    """The first and second derivative of a weighted sum, where both exist."""
    total = weighted(function)
    return jax.jit(lambda x: (jax.grad(total)(x), jax.hessian(total)(x)))(x)


def as_spelled(text: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> jaxonnx.Model:
    """The model in which nothing is recognised."""
    with monkeypatch.context() as patch:
        patch.setattr(loading, "recognised", lambda graph: graph)
        return jaxonnx.load(text_model(text, **options))


def kinds(model: jaxonnx.Model) -> list[str]:
    """The operators of a model's nodes, in order."""
    return [n.op_type for n in model._program.plan.graph.all_nodes]

"""Stated derivatives: what an operator's derivative is where mathematics leaves it open."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxonnx.define.convention import convention, under
from jaxonnx.define.experimental import refuse_transpose
from jaxonnx.define.known import x64_enabled, xp

Function = TypeVar("Function", bound=Callable[..., Any])


def kink(rule: Callable[..., Any]) -> Callable[[Function], Function]:
    """Give an operator its derivative.

    Args:
        rule: takes the tangents of all inputs, then the inputs, then every attribute as a
            keyword, and returns the tangent of the (single) output. It must be linear in the
            tangents: select with ``where``, never multiply by a mask. The tangent of an
            integer, boolean or absent input is None.

    Returns:
        A decorator that keeps the operator's signature.
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def wrapper(*inputs: Any, **attributes: Any) -> Any:
            bound = signature.bind(*inputs, **attributes)
            bound.apply_defaults()
            call = functools.partial(function, **bound.kwargs)
            if xp(*bound.args) is np:  # known values, dimension expressions among them
                return call(*bound.args)
            # JAX may hand over constants in a form of its own, which is no array of JAX.
            differentiable = jax.custom_jvp(lambda *values: call(*map(_readable, values)))
            # Derivatives are taken after the scopes have closed.
            x64, choices = x64_enabled(), convention()

            @differentiable.defjvp
            def jvp(primals: Any, tangents: Any) -> Any:
                with jax.enable_x64(x64), under(choices):
                    out = differentiable(*primals)
                    if not jnp.issubdtype(jnp.result_type(out), jnp.inexact):
                        return out, np.zeros(np.shape(out), jax.dtypes.float0)
                    read = [_readable(v) for v in (*tangents, *primals)]
                    return out, rule(*read, **bound.kwargs)

            return differentiable(*bound.args)

        return wrapper  # pyright: ignore[reportReturnType] - functools.wraps keeps the signature

    return decorate


def _readable(value: Any) -> Any:
    """A tangent or primal as a JAX array: NumPy promotes bfloat16 by other rules."""
    absent = value is None or getattr(value, "dtype", None) == jax.dtypes.float0
    return None if absent else jnp.asarray(value)


def forward_only(value: Any, message: str) -> Any:
    """``value``, of which there are forward derivatives only: reverse ones raise ``message``.

    Raises:
        StaticValueError: when a reverse derivative is taken.
    """
    if not jnp.issubdtype(value.dtype, jnp.inexact):
        return value

    @jax.custom_jvp
    def same(x: Any) -> Any:
        return x

    same.defjvp(lambda primals, tangents: (same(*primals), refuse_transpose(tangents[0], message)))
    return same(value)

"""Stated derivatives: what an operator's derivative is where mathematics leaves it open."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])


def kink(rule: Callable[..., Any]) -> Callable[[Function], Function]:
    """Give an operator its derivative.

    Args:
        rule: takes the tangents of all inputs, then the inputs, then every attribute as a
            keyword, and returns the tangent of the (single) output. It must be linear in the
            tangents: select with ``where``, never multiply by a mask. The tangent of an integer
            or boolean input is None.

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
            differentiable = jax.custom_jvp(lambda *xs: call(*xs))
            x64 = jax.config.jax_enable_x64  # derivatives are taken after the scope has closed

            @differentiable.defjvp
            def jvp(primals: Any, tangents: Any) -> Any:
                with jax.enable_x64(x64):
                    out = differentiable(*primals)
                    if not jnp.issubdtype(jnp.result_type(out), jnp.inexact):
                        return out, np.zeros(np.shape(out), jax.dtypes.float0)
                    read = [_readable(t) for t in tangents]
                    return out, rule(*read, *primals, **bound.kwargs)

            return differentiable(*bound.args)

        return wrapper  # pyright: ignore[reportReturnType] - functools.wraps keeps the signature

    return decorate


def _readable(tangent: Any) -> Any:
    return None if tangent.dtype == jax.dtypes.float0 else tangent

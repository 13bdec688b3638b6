"""Checks of values and derivatives, and the only use of JAX's experimental and internal interface.

``jax.experimental.checkify`` reports too many results. ``jax.interpreters`` make two primitives of
our own: one that refuses to be transposed, and a product in which 0 times infinity is 0.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import core
from jax.experimental import checkify
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from jaxonnx.errors import DataDependentShapeError, StaticValueError


def check_bounds(counts: Mapping[str, Any], bounds: Mapping[str, int]) -> None:
    """Report nodes with more results than their bound.

    Outside of a trace it is an error at once. Inside one it is a check that counts only under
    ``jax.experimental.checkify.checkify``; without that the results are cut.

    Args:
        counts: the numbers of results, by name in ``bounds``.
        bounds: the largest numbers allowed.

    Raises:
        DataDependentShapeError: if a bound is exceeded.
    """
    for name, count in counts.items():
        text = f"bound {bounds[name]} of {name!r} is exceeded"
        if isinstance(count, core.Tracer):
            number = count.astype(np.int32)  # checkify runs after the scope of x64 has closed
            checkify.debug_check(number <= bounds[name], text + ": there are {n} results", n=number)
        elif int(count) > bounds[name]:
            raise DataDependentShapeError(
                f"{text}: there are {int(count)} results; load the model with a larger one"
            )


def refuse_transpose(tangent: Any, message: str) -> Any:
    """``tangent``, whose transposition, as reverse derivatives need it, is an error.

    Raises:
        StaticValueError: saying ``message``, when it is transposed.
    """
    return _untransposable.bind(tangent, text=message)


def _transpose(cotangent: Any, x: Any, *, text: str) -> Any:
    del cotangent, x
    raise StaticValueError(text)


# JAX's own linear_call, which could say this, has no rule for vmap.
_untransposable = Primitive("jaxonnx_untransposable")
_untransposable.def_impl(lambda x, *, text: x)
_untransposable.def_abstract_eval(lambda x, *, text: x)
ad.deflinear2(_untransposable, _transpose)
batching.defvectorized(_untransposable)
mlir.register_lowering(_untransposable, lambda ctx, x, *, text: [x])


def times(a: Any, b: Any) -> Any:
    """``a * b``, and 0 where one of them is 0, whatever the other is.

    Derivatives are infinite at the edge of a domain. What does not move, or is not looked at, as in
    the branch of a ``where`` that is not taken, has no part in them: 0 times infinity is 0, in both
    modes and, in rules that are made of nothing else, in all orders.
    """
    dtype = jnp.result_type(a, b)
    return _product.bind(*jnp.broadcast_arrays(jnp.asarray(a, dtype), jnp.asarray(b, dtype)))


def _or_0(a: Any, b: Any) -> Any:
    return jnp.where((a == 0) | (b == 0), jnp.zeros_like(a), a * b)


def _transpose_product(cotangent: Any, a: Any, b: Any) -> Any:
    """It is linear in both, and its own transpose."""
    if isinstance(cotangent, ad.Zero):
        return None, None
    if ad.is_undefined_primal(a):
        return _product.bind(cotangent, b), None
    return None, _product.bind(a, cotangent)


def _batch_product(values: Any, axes: Any) -> Any:
    """Both with the new axis in front: they stay of one shape."""
    size = next(v.shape[a] for v, a in zip(values, axes, strict=True) if a is not None)
    pairs = zip(values, axes, strict=True)
    return _product.bind(*(batching.bdim_at_front(v, a, size) for v, a in pairs)), 0


_product = Primitive("jaxonnx_product")
_product.def_impl(jax.jit(_or_0))
_product.def_abstract_eval(lambda a, b: a)
ad.defjvp(
    _product,
    lambda change, a, b: _product.bind(change, b),
    lambda change, a, b: _product.bind(a, change),
)
ad.primitive_transposes[_product] = _transpose_product
batching.primitive_batchers[_product] = _batch_product
mlir.register_lowering(_product, mlir.lower_fun(_or_0, multiple_results=False))

"""Checks of values and derivatives, and the only use of JAX's experimental and internal interface.

``jax.experimental.checkify`` reports too many results, and a primitive of our own, made with
``jax.interpreters``, refuses to be transposed.
"""

from collections.abc import Mapping
from typing import Any

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

"""Refuses arrays that no machine can hold: XLA ends the process where a size passes 2**63."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxonnx.define.known import is_symbolic, shape_is_symbolic
from jaxonnx.errors import InvalidModelError

_MOST_BYTES = 2**63 - 1

_SUSPECT = 2**24
"""A product of numbers from which on they could be the shape of too large an array."""

_FEW = 16
"""The most numbers that a shape is taken to have."""


def refuse_huge_results(results: Sequence[Any]) -> Sequence[Any]:
    """``results`` of an operator, unless one is too large.

    Raises:
        InvalidModelError: if one is.
    """
    for result in results:
        _check(getattr(result, "shape", ()), getattr(result, "dtype", None))
    return results


def refuse_huge(
    function: Callable[..., Any], args: Sequence[Any], attributes: Mapping[str, Any]
) -> None:
    """Refuse a call on known values that would make too large an array on its way.

    It is traced for that, which makes none, where it is given numbers that are large for a shape.

    Raises:
        InvalidModelError: if it would.
    """
    if not any(map(_is_suspect, (*args, *attributes.values()))):
        return
    try:
        jaxpr = jax.make_jaxpr(lambda: function(*args, **attributes))()
    except Exception:  # the call itself will say what is wrong
        return
    for shape, dtype in _made(jaxpr.jaxpr):
        _check(shape, dtype)


def _check(shape: Sequence[Any], dtype: Any) -> None:
    if shape_is_symbolic(shape):
        return
    sizes = [int(d) for d in shape if int(d) > 0]  # XLA multiplies before it finds a 0
    if math.prod(sizes) * getattr(dtype, "itemsize", 1) > _MOST_BYTES:
        raise InvalidModelError(f"an array of shape {[*shape]} and type {dtype} is too large")


def _is_suspect(value: Any) -> bool:
    """Whether a value could be the shape of too large an array, or the number of its elements."""
    plain = isinstance(value, (int, float, tuple, np.ndarray)) and not is_symbolic(value)
    if not plain or np.size(value) > _FEW:
        return False
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "iuf":
        return False
    return math.prod(max(1.0, abs(float(n))) for n in numbers.flat) >= _SUSPECT


def _made(jaxpr: Any) -> Iterator[tuple[Sequence[Any], Any]]:
    """Shape and dtype of all that a program computes."""
    for equation in jaxpr.eqns:
        yield from ((v.aval.shape, v.aval.dtype) for v in equation.outvars)
        for inner in equation.params.values():
            if hasattr(inner, "jaxpr"):
                yield from _made(inner.jaxpr)

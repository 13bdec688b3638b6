"""Depthwise convolution on CPUs, where XLA's own is 10 to 40 times slower than what is here."""

import functools
import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from jaxonnx.define.known import shape_is_symbolic, x64_enabled
from jaxonnx.ops._precision import widened
from jaxonnx.ops._windows import Windows

MOST_TAPS = 64
"""Each element of a window is a term of the program: larger ones would take long to compile."""


def fits(x: Array, w: Array, group: int, found: Windows) -> bool:
    """Whether a convolution is depthwise, one output channel for each, and of a known shape."""
    alike = 1 < group == x.shape[1] == w.shape[0] and 1 <= math.prod(found.kernel) <= MOST_TAPS
    if not alike or shape_is_symbolic([*x.shape, *itertools.chain(*found.pads)]):
        return False
    return min(found.counts(x.shape[2:]), default=0) > 0


def convolve(x: Array, w: Array, found: Windows) -> Array:
    """Convolution of each channel of ``x`` (N, C, D1, ...) with its own ``w`` (C, 1, k1, ...)."""
    x64 = x64_enabled()  # derivatives are taken after the scope has closed
    product = jax.custom_jvp(functools.partial(_on_cpu, _terms, found))

    def jvp(primals: Any, tangents: Any) -> Any:
        (x, w), (dx, dw) = primals, tangents
        with jax.enable_x64(x64):
            y = product(x, w)
            parts = [] if isinstance(dx, SymbolicZero) else [product(dx, w)]
            if not isinstance(dw, SymbolicZero):
                parts.append(_on_cpu(_turns, found, x, dw))
            return y, functools.reduce(operator.add, parts, jnp.zeros_like(y))

    product.defjvp(jvp, symbolic_zeros=True)
    return product(x, w)


def _on_cpu(form: Any, found: Windows, x: Array, w: Array) -> Array:
    """The convolution in a form of ours on CPUs, in XLA's own elsewhere."""

    def ours(x: Array, w: Array) -> Array:
        return form(widened(x), widened(w), found).astype(x.dtype)

    def plain(x: Array, w: Array) -> Array:
        dilations = found.dilations
        return lax.conv_general_dilated(
            x, w, found.strides, found.pads, rhs_dilation=dilations, feature_group_count=x.shape[1]
        )

    return lax.platform_dependent(x, w, cpu=ours, default=plain)


def _terms(x: Array, w: Array, found: Windows) -> Array:
    """A sum with a term for each element of a window, which XLA fuses into one loop.

    Its derivative by ``x`` is such a sum too, that by ``w`` would be a loop for each element.
    """
    x, ends = _padded(x, found)
    taps = itertools.product(*map(range, found.kernel))
    terms = (
        lax.slice(x, start, [s + e for s, e in zip(start, ends, strict=True)], _steps(found))
        * _channels(w[(slice(None), 0, *tap)], x.ndim)
        for tap, start in ((tap, _start(tap, found)) for tap in taps)
    )
    return functools.reduce(operator.add, terms)


def _turns(x: Array, w: Array, found: Windows) -> Array:
    """The same sum with one turn of a loop for each element of a window.

    Its derivative by ``w`` is such a loop too, in place of one for each element, which takes longer
    to compile and, since all of them are large, to run.
    """
    x, ends = _padded(x, found)
    taps = [*itertools.product(*map(range, found.kernel))]
    starts = np.array([_start(tap, found) for tap in taps], np.int32)
    weights = jnp.moveaxis(w.reshape(w.shape[0], len(taps)), 1, 0)

    @jax.checkpoint  # else each turn would keep its part of x for the derivative
    def turn(y: Array, tap: Any) -> tuple[Array, None]:
        start, weight = tap
        part = lax.dynamic_slice(x, [*start], ends)
        part = lax.slice(part, [0] * x.ndim, ends, _steps(found))
        return y + part * _channels(weight, x.ndim), None

    counts = [(e - 1) // s + 1 for e, s in zip(ends, _steps(found), strict=True)]
    return lax.scan(turn, jnp.zeros(counts, x.dtype), (starts, weights))[0]


def _padded(x: Array, found: Windows) -> tuple[Array, list[int]]:
    """``x`` with its pads, and how far the first element of all windows reaches in each axis."""
    counts = found.counts(x.shape[2:])
    around = [(begin, end, 0) for begin, end in found.pads]
    x = lax.pad(x, np.zeros((), x.dtype), [(0, 0, 0), (0, 0, 0), *around])
    reach = [max((n - 1) * s + 1, 0) for n, s in zip(counts, found.strides, strict=True)]
    return x, [*x.shape[:2], *reach]


def _start(tap: Sequence[int], found: Windows) -> list[int]:
    return [0, 0, *(k * d for k, d in zip(tap, found.dilations, strict=True))]


def _steps(found: Windows) -> list[int]:
    return [1, 1, *found.strides]


def _channels(values: Array, rank: int) -> Array:
    return values.reshape(1, -1, *[1] * (rank - 2))

"""Matrix products and determinants."""

import re

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.known import broadcasts_to, same_dim
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops import _padding
from jaxonnx.ops._precision import widened

__all__ = ["det", "einsum", "gemm", "matmul"]

_TERM = r"[A-Za-z]*(\.\.\.)?[A-Za-z]*"
_EQUATION = re.compile(rf"{_TERM}(,{_TERM})*(->{_TERM})?")

_MATRIX = 2
"""The rank of a matrix."""


@register("MatMul", 1, 9, 13, padding=_padding.matmul, weights=["b"], product=True)
def matmul(a: ArrayLike, b: ArrayLike, /) -> Array:
    """Matrix product as of ``numpy.matmul``. Integers are exact, modulo the size of their type.

    Raises:
        InvalidModelError: if the inner sizes differ.
    """
    inner, rows = jnp.shape(a)[-1:], (jnp.shape(b)[-2:] or (None,))[0]
    if not inner or rows is None or not same_dim(inner[0], rows):
        shapes = f"{jnp.shape(a)} and {jnp.shape(b)}"
        raise InvalidModelError(f"A and B have shapes {shapes}: the inner sizes differ")
    batches = [s for s in (jnp.shape(a)[:-2], jnp.shape(b)[:-2]) if s]
    for one, other in zip(*map(reversed, batches), strict=False) if len(batches) > 1 else ():
        if not (same_dim(one, other) or same_dim(one, 1) or same_dim(other, 1)):
            raise InvalidModelError(
                f"A and B have shapes {jnp.shape(a)} and {jnp.shape(b)}: {one} and {other} do not "
                "broadcast"
            )
    return jnp.matmul(a, b)


@register("Gemm", 7, 9, 11, 13, padding=_padding.gemm, weights=["b", "c"], product=True)
def gemm(
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike | None = None,
    /,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803 - ONNX's name
    transB: int = 0,  # noqa: N803 - ONNX's name
) -> Array:
    """``alpha * A @ B + beta * C``, A and B transposed if asked; C broadcasts to the product.

    As in BLAS, C is not read where ``beta`` is 0.

    Raises:
        InvalidModelError: if A or B is no matrix, or C does not broadcast to the product.
    """
    a, b = jnp.asarray(a), jnp.asarray(b)
    if (a.ndim, b.ndim) != (_MATRIX, _MATRIX):
        raise InvalidModelError(f"A and B have shapes {a.shape} and {b.shape}, expected matrices")
    if not same_dim(a.shape[0 if transA else 1], b.shape[1 if transB else 0]):
        raise InvalidModelError(
            f"A and B have shapes {a.shape} and {b.shape} with {transA=} and {transB=}: the inner "
            "sizes differ"
        )
    # Contracted where it lies: for one row, a transposed weight costs XLA:CPU 30 times the product.
    contract = ((0 if transA else 1,), (1 if transB else 0,))
    product = _scaled(lax.dot_general(a, b, (contract, ((), ()))), alpha)
    if c is None or beta == 0:
        return product
    c = jnp.asarray(c)
    if not broadcasts_to(c.shape, product.shape):
        raise InvalidModelError(f"C has shape {c.shape}, expected one that fits {product.shape}")
    return product + _scaled(c, beta)


@register("Gemm", 1, 6, padding=_padding.gemm, weights=["b", "c"], product=True)
def gemm_1(
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike,
    /,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    broadcast: int = 0,
    transA: int = 0,  # noqa: N803 - ONNX's name
    transB: int = 0,  # noqa: N803 - ONNX's name
) -> Array:
    """:func:`gemm` where C may be smaller than the product only if ``broadcast`` is set.

    Raises:
        InvalidModelError: if ``broadcast`` is 0 and C is no matrix.
    """
    if not broadcast and jnp.ndim(c) != _MATRIX:
        raise InvalidModelError(f"C has shape {jnp.shape(c)}, expected a matrix: broadcast is 0")
    return gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)


def _scaled(x: Array, factor: float) -> Array:
    """``factor * x``, exact for integers where ``factor`` is one."""
    if factor == 1:
        return x
    if jnp.issubdtype(x.dtype, jnp.inexact):
        return factor * x
    if float(factor).is_integer():
        return x * np.array(int(factor)).astype(x.dtype)
    return (x.astype(float) * factor).astype(x.dtype)


@register("Einsum", 12, 28, product=True)
def einsum(*inputs: ArrayLike, equation: str) -> Array:
    """Einstein summation. Indices that the output lacks, ellipsis included, are summed.

    Raises:
        InvalidModelError: if the equation and the inputs differ in number or rank, or its
            ellipses stand for different numbers of dimensions.
    """
    equation = equation.replace(" ", "")
    if not _EQUATION.fullmatch(equation):
        raise InvalidModelError(f"{equation!r}, expected letters and ellipses as terms")
    terms = equation.split("->")[0].split(",")
    if len(terms) != len(inputs):
        raise InvalidModelError(f"{equation!r} has {len(terms)} terms, but {len(inputs)} inputs")
    hidden = {
        jnp.ndim(x) - len(t.replace("...", ""))
        for x, t in zip(inputs, terms, strict=True)
        if "..." in t
    }
    if len(hidden) > 1 or any(n < 0 for n in hidden):
        shapes = [jnp.shape(x) for x in inputs]
        raise InvalidModelError(f"the ellipses of {equation!r} differ in rank for shapes {shapes}")
    return jnp.einsum(equation, *inputs)


@register("Det", 11, 22)
def det(x: ArrayLike, /) -> Array:
    """Determinants of the square matrices in the last two dimensions, half types in float32.

    Raises:
        InvalidModelError: if they are not square.
    """
    x = jnp.asarray(x)
    if x.ndim < _MATRIX or not same_dim(*x.shape[-2:]):
        raise InvalidModelError(f"X has shape {x.shape}, expected square matrices")
    if same_dim(x.shape[-1], 0):  # the empty product; JAX has no determinant of it
        return jnp.ones(x.shape[:-2], x.dtype)
    return jnp.linalg.det(widened(x)).astype(x.dtype)

"""Operators that draw random numbers, from a ``key`` or, where there is none, from their ``seed``.

The numbers are those of ``jax.random``, of the distribution that ONNX names and of no other
runtime. Derivative by what a distribution depends on: 0.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.dtypes import dtype_of
from jaxonnx.define.known import xp
from jaxonnx.define.registry import register
from jaxonnx.define.streams import seeded
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops._precision import widened

__all__ = [
    "bernoulli",
    "dropout",
    "multinomial",
    "random_normal",
    "random_normal_like",
    "random_uniform",
    "random_uniform_like",
]

_DOUBLE = np.dtype(np.float64)


def _uniform(key: Array, shape: Sequence[Any], dtype: Any) -> Array:
    """Numbers in [0, 1), in double precision for double and in single for all else.

    Draws of 64-bit words cannot be lowered outside the scope of x64, so that two halves are drawn.
    """
    with jax.enable_x64(False):
        if dtype != _DOUBLE:
            return jax.random.uniform(key, shape, np.float32)
        high, low = jax.random.bits(key, (2, *shape), np.uint32)
    with jax.enable_x64(True):
        words = (high.astype(np.uint64) << np.uint64(21)) ^ (low.astype(np.uint64) >> np.uint64(11))
        return words.astype(_DOUBLE) * _DOUBLE.type(2**-53)


def _normal(key: Array, shape: Sequence[Any], dtype: Any) -> Array:
    """Numbers of mean 0 and deviation 1, in double precision for double and in single else."""
    if dtype != _DOUBLE:
        with jax.enable_x64(False):
            return jax.random.normal(key, shape, np.float32)
    with jax.enable_x64(True):
        centred = 2 * _uniform(key, shape, dtype) - (1 - 2**-53)  # never -1 or 1
        return np.sqrt(2) * lax.erf_inv(centred)


def _key(key: Array | None, seed: float | None) -> Array:
    return seeded(seed) if key is None else key


def _floating(number: int | None, like: Any = None) -> Any:
    """The dtype that an attribute names; that of ``like`` where there is none.

    Raises:
        InvalidModelError: if it is no floating one.
    """
    dtype = np.dtype(like.dtype) if number is None else dtype_of(number)
    if dtype is None or not jnp.issubdtype(dtype, np.floating):
        raise InvalidModelError(f"dtype is {dtype}, expected a floating type")
    return dtype


@register("RandomUniform", 1, 22)
def random_uniform(
    *,
    shape: Sequence[int],
    dtype: int = 1,
    low: float = 0.0,
    high: float = 1.0,
    seed: float | None = None,
    key: Array | None = None,
) -> Array:
    """Numbers drawn evenly from ``low`` to ``high``, in an array of shape ``shape``.

    Raises:
        InputError: if there is neither a ``key`` nor a ``seed``.
    """
    kind = _floating(dtype)
    return (low + _uniform(_key(key, seed), shape, kind) * (high - low)).astype(kind)


@register("RandomUniformLike", 1, 22)
def random_uniform_like(
    input: ArrayLike,
    /,
    *,
    dtype: int | None = None,
    low: float = 0.0,
    high: float = 1.0,
    seed: float | None = None,
    key: Array | None = None,
) -> Array:
    """Numbers drawn evenly from ``low`` to ``high``, in the shape of ``input`` and its dtype.

    Raises:
        InputError: if there is neither a ``key`` nor a ``seed``.
        InvalidModelError: if ``dtype`` is absent and that of ``input`` is no floating one.
    """
    kind = _floating(dtype, input)
    return (low + _uniform(_key(key, seed), np.shape(input), kind) * (high - low)).astype(kind)


@register("RandomNormal", 1, 22)
def random_normal(
    *,
    shape: Sequence[int],
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    key: Array | None = None,
) -> Array:
    """Normal numbers of mean ``mean`` and deviation ``scale``, in an array of shape ``shape``.

    Raises:
        InputError: if there is neither a ``key`` nor a ``seed``.
    """
    kind = _floating(dtype)
    return (mean + scale * _normal(_key(key, seed), shape, kind)).astype(kind)


@register("RandomNormalLike", 1, 22)
def random_normal_like(
    input: ArrayLike,
    /,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    key: Array | None = None,
) -> Array:
    """Normal numbers of mean ``mean`` and deviation ``scale``, of the shape and dtype of ``input``.

    Raises:
        InputError: if there is neither a ``key`` nor a ``seed``.
        InvalidModelError: if ``dtype`` is absent and that of ``input`` is no floating one.
    """
    kind = _floating(dtype, input)
    return (mean + scale * _normal(_key(key, seed), np.shape(input), kind)).astype(kind)


@register("Bernoulli", 15, 22)
def bernoulli(
    input: ArrayLike,
    /,
    *,
    dtype: int | None = None,
    seed: float | None = None,
    key: Array | None = None,
) -> Array:
    """1 with the probability that ``input`` gives for each element, else 0; NaN gives 0.

    So says the text of the schema; its function body gives 1 with the probability of 0.

    Raises:
        InputError: if there is neither a ``key`` nor a ``seed``.
    """
    chances = lax.stop_gradient(widened(jnp.asarray(input)))
    drawn = _uniform(_key(key, seed), chances.shape, chances.dtype) < chances
    return drawn.astype(jnp.result_type(input) if dtype is None else dtype_of(dtype))


@register("Multinomial", 7, 22)
def multinomial(
    input: ArrayLike,
    /,
    *,
    dtype: int = 6,
    sample_size: int = 1,
    seed: float | None = None,
    key: Array | None = None,
) -> Array:
    """Draws ``sample_size`` classes for each row of log-probabilities, which need no common sum.

    Raises:
        InputError: if there is neither a ``key`` nor a ``seed``.
        InvalidModelError: if ``input`` is not of shape [batch, classes], with one class or more.
    """
    logits = lax.stop_gradient(widened(jnp.asarray(input)))
    if logits.ndim != 2 or logits.shape[1] == 0:
        raise InvalidModelError(f"shape {list(logits.shape)}, expected [batch, classes]")
    batch, classes = logits.shape
    weights = jnp.exp(logits - jnp.max(logits, axis=1, keepdims=True))
    sums = jnp.cumsum(weights, axis=1)
    shares = _uniform(_key(key, seed), (batch, sample_size), logits.dtype) * sums[:, -1:]
    drawn = jax.vmap(lambda s, v: jnp.searchsorted(s, v, side="right"))(sums, shares)
    last = classes - 1 - jnp.argmax(weights[:, ::-1] > 0, axis=1, keepdims=True)
    return jnp.minimum(drawn, last.astype(drawn.dtype)).astype(dtype_of(dtype))


@register("Dropout", 12, 13, 22, static=["ratio", "training_mode"], settings=["ratio"])
def dropout(
    data: ArrayLike,
    ratio: ArrayLike | None = None,
    training_mode: ArrayLike | None = None,
    /,
    *,
    seed: int | None = None,
    key: Array | None = None,
    outputs: int = 1,
) -> Any:
    """``data``; in training with a share ``ratio`` set to 0 and the rest scaled up to match.

    An optional second output is the mask of what is kept. Derivative: 0 where it is dropped.

    Raises:
        InputError: if it is in training and there is neither a ``key`` nor a ``seed``.
        InvalidModelError: if ``ratio`` is not between 0 and 1.
    """
    share = 0.5 if ratio is None else float(np.asarray(ratio))
    if not 0 <= share <= 1:
        raise InvalidModelError(f"ratio is {share}, expected 0 to 1")
    training = training_mode is not None and bool(np.asarray(training_mode))
    if not training or share == 0:
        return _both(data, xp(data).ones(np.shape(data), bool), outputs)
    mask = _uniform(_key(key, seed), np.shape(data), np.float32) >= share
    kept = widened(jnp.asarray(data)) * (0 if share == 1 else 1 / (1 - share))
    return _both(jnp.where(mask, kept, 0).astype(jnp.result_type(data)), mask, outputs)


def _both(result: Any, mask: Any, outputs: int) -> Any:
    return result if outputs == 1 else (result, mask)


@register("Dropout", 10)
def dropout_10(data: ArrayLike, /, *, ratio: float = 0.5, outputs: int = 1) -> Any:
    """``data`` as it is: this version only runs inference; the mask is all true."""
    del ratio
    return dropout(data, outputs=outputs)


@register("Dropout", 7)
def dropout_7(data: ArrayLike, /, *, ratio: float = 0.5, outputs: int = 1) -> Any:
    """``data`` as it is: this version only runs inference; the mask is all 1, of its dtype."""
    del ratio
    result, mask = dropout(data, outputs=2)
    return _both(result, mask.astype(xp(data).asarray(data).dtype), outputs)


@register("Dropout", 1, 6)
def dropout_1(
    data: ArrayLike,
    /,
    *,
    ratio: float = 0.5,
    is_test: int = 0,
    key: Array | None = None,
    outputs: int = 1,
) -> Any:
    """``data``, with a share ``ratio`` set to 0 unless ``is_test``; the mask has its dtype.

    Raises:
        InputError: if ``is_test`` is 0 and there is no ``key``.
    """
    result = dropout(data, np.asarray(ratio), np.asarray(not is_test), key=key, outputs=2)
    return _both(result[0], result[1].astype(jnp.result_type(data)), outputs)

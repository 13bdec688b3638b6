"""What classical models share: rows of features, transforms of scores, labels of classes."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxonnx.define.dtypes import STRING
from jaxonnx.define.kinks import kink
from jaxonnx.define.known import concrete, x64_enabled
from jaxonnx.errors import InvalidModelError

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""Post-transforms, in the order of TreeEnsemble's numbers."""

_NEGLIGIBLE = 1e-7
"""Scores of a smaller magnitude are no part of ``SOFTMAX_ZERO``, as in onnxruntime."""

_WINITZKI = 0.147
"""The constant of S. Winitzki, "A handy approximation for the error function" (2008)."""


def rows(x: Any) -> Any:
    """Data as rows ``[N, F]``, double if it is double and single otherwise; ``[F]`` is one row.

    Raises:
        InvalidModelError: unless there are one or two dimensions.
    """
    x = jnp.asarray(x)
    if x.ndim not in (1, 2):
        raise InvalidModelError(f"the shape is {x.shape}, expected [F] or [N, F]")
    x = x if x.ndim == 2 else x[None]
    return x if x.dtype == np.float64 else x.astype(np.float32)


def widest(*dtypes: Any) -> Any:
    """Double if one of ``dtypes`` is and JAX has it at this point, otherwise single."""
    double = x64_enabled() and any(d == np.float64 for d in dtypes)
    return np.dtype(np.float64 if double else np.float32)


def floats(name: str, values: Any, count: int | None = None, of: str = "") -> np.ndarray:
    """An attribute's numbers, single precision unless they are a tensor; none if it is absent.

    Raises:
        InvalidModelError: if there are not ``count`` of them.
    """
    given = () if values is None else values
    array = given.ravel() if isinstance(given, np.ndarray) else np.array(given, np.float32)
    return counted(name, array, count, of)


def integers(name: str, values: Any, count: int | None = None, of: str = "") -> np.ndarray:
    """An attribute's integers; none if it is absent.

    Raises:
        InvalidModelError: if there are not ``count`` of them.
    """
    return counted(name, np.array(() if values is None else values, np.int64), count, of)


def counted(name: str, array: Any, count: int | None, of: str) -> Any:
    """``array``, if it has as many elements as expected.

    Raises:
        InvalidModelError: if it has not.
    """
    if count is not None and len(array) != count:
        raise InvalidModelError(f"{name} has {len(array)} elements, expected {count}: {of}")
    return array


def fit(x: Any, features: int) -> Any:
    """Rows, if they have as many features as a model was made for.

    Raises:
        InvalidModelError: if they have not.
    """
    if isinstance(x.shape[1], int) and x.shape[1] != features:
        raise InvalidModelError(f"the input has {x.shape[1]} features, the model {features}")
    return x


def _probit_rule(dp: Any, p: Any) -> Any:
    return dp * math.sqrt(2 * math.pi) * jnp.exp(probit(p) ** 2 / 2)


@kink(_probit_rule)
def probit(p: Any, /) -> Any:
    """The quantile of the normal distribution by Winitzki's formula, as in onnxruntime.

    The derivative is that of the exact quantile.
    """
    log = jnp.log(4 * p * (1 - p))
    v = 2 / (math.pi * _WINITZKI) + log / 2
    root = jnp.sqrt(jnp.maximum(jnp.sqrt(v * v - log / _WINITZKI) - v, 0))
    size = math.sqrt(2) * jnp.where(log == -np.inf, np.inf, root)
    return jnp.where(p < 0.5, -size, size)


def transformed(scores: Any, kind: str) -> Any:
    """Scores ``[N, C]`` after a post-transform, row by row; a single score takes PROBIT only.

    Raises:
        InvalidModelError: if the transform is unknown.
    """
    if kind not in TRANSFORMS:
        raise InvalidModelError(f"post_transform is {kind!r}, expected one of {TRANSFORMS}")
    if kind == "PROBIT":
        return probit(scores)
    if kind == "NONE" or scores.shape[1] < 2:
        return scores
    if kind == "LOGISTIC":
        return jax.nn.sigmoid(scores)
    if kind == "SOFTMAX":
        return jax.nn.softmax(scores, axis=1)
    return _softmax_zero(scores)


def _softmax_zero(scores: Any) -> Any:
    """Softmax over the scores of a row that are not 0; those that are stay so, all of them too."""
    counts = ~(jnp.abs(scores) <= _NEGLIGIBLE)  # NaN counts
    top = jax.lax.stop_gradient(scores.max(1, keepdims=True))
    powers = jnp.where(counts, jnp.exp(jnp.where(counts, scores, 0) - top), 0)
    total = powers.sum(1, keepdims=True)
    return powers / jnp.where(total == 0, 1, total)


def both_classes(score: Any, kind: str, *, complement: bool) -> Any:
    """Scores ``[N, 2]`` of two classes from those ``[N]`` of the second.

    ``LOGISTIC`` and ``PROBIT`` transform them; otherwise the first class has ``1 - score``, or
    ``-score`` without ``complement``, as in onnxruntime.
    """
    if kind == "LOGISTIC":
        return jax.nn.sigmoid(jnp.stack([-score, score], 1))
    if kind == "PROBIT":
        return probit(jnp.stack([1 - score, score], 1))
    transformed(score[:, None], kind)  # refuses unknown ones
    return jnp.stack([1 - score if complement else -score, score], 1)


def best(scores: Any) -> Any:
    """The position of the greatest score of each row, the first of equal ones; NaN is the least."""
    return lax.argmax(jnp.where(jnp.isnan(scores), -np.inf, scores), 1, np.int32)


def class_count(ints: Sequence[int] | None, strings: Sequence[str] | None) -> int:
    """The number of classes.

    Raises:
        InvalidModelError: unless exactly one of the two lists of labels is given.
    """
    if bool(ints) == bool(strings):
        raise InvalidModelError("exactly one of the classlabels_* is to be given")
    return len(ints or strings or ())


def labels(position: Any, ints: Sequence[int] | None, strings: Sequence[str] | None) -> Any:
    """The labels at positions ``[N]``; of a model with a single class, 1 for position 1, else 0."""
    if strings:
        names = strings if len(strings) > 1 else ("0", "1")
        return np.array(names, STRING)[concrete(position)]
    numbers = ints if ints and len(ints) > 1 else (0, 1)
    return jnp.asarray(np.array(numbers, np.int64))[position]

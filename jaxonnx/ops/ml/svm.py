"""Support vector machines of ``ai.onnx.ml``, as LIBSVM defines them."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops.ml import _scores

__all__ = ["svm_classifier", "svm_regressor"]

_ROUNDS = 100
"""The most rounds of coupling probabilities, as in LIBSVM."""

_CLOSE = 0.005
"""They are coupled once no condition is off by more than this by the number of classes."""

_LEAST = 1e-7
"""The least probability of a pair."""

Floats = Sequence[float] | None


@register("SVMRegressor", 1, domain="ai.onnx.ml")
def svm_regressor(
    x: ArrayLike,
    /,
    *,
    coefficients: Floats = None,
    kernel_params: Floats = None,
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: Floats = None,
    support_vectors: Floats = None,
) -> Array:
    """The regression of each row ``[F]`` as ``[N, 1]``; with ``one_class`` 1 if above 0, else -1.

    Without support vectors the coefficients are those of the features. Of the post-transforms only
    PROBIT is taken, since there is a single score. Derivative with ``one_class``: 0.

    Raises:
        InvalidModelError: if attributes do not fit each other or the features.
    """
    rows, weights = _scores.rows(x), _scores.floats("coefficients", coefficients)
    offset = _scores.floats("rho", rho, 1, "one offset")
    if n_supports > 0:
        vectors = _matrix("support_vectors", support_vectors, n_supports)
        rows = _kernel(rows, vectors, kernel_type, kernel_params)
        _scores.counted("coefficients", weights, n_supports, "one for each support vector")
    score = _dot(_scores.fit(rows, len(weights)), weights[None]) + offset.astype(rows.dtype)
    if one_class:
        score = jnp.where(score > 0, 1, -1)
    return _scores.transformed(score, post_transform).astype(np.float32)


@register("SVMClassifier", 1, domain="ai.onnx.ml")
def svm_classifier(
    x: ArrayLike,
    /,
    *,
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    coefficients: Floats = None,
    kernel_params: Floats = None,
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: Floats = None,
    prob_b: Floats = None,
    rho: Floats = None,
    support_vectors: Floats = None,
    vectors_per_class: Sequence[int] | None = None,
) -> tuple[Array, Array]:
    """The label of each row ``[F]`` and its scores.

    Each pair of classes has a score, and the class that wins the most pairs is the label, the first
    of equal ones. With ``prob_a`` and ``prob_b`` the scores are probabilities ``[N, C]``, by Platt
    scaling and pairwise coupling (T.-F. Wu, C.-J. Lin and R. Weng, 2004); otherwise those of the
    pairs ``[N, C * (C - 1) / 2]``, and of two classes ``[-s, s]``, or ``[1 - s, s]`` under a
    post-transform. Without support vectors the model is linear, with a score for each class.

    Raises:
        InvalidModelError: if attributes do not fit each other or the features.
    """
    rows, classes = _scores.rows(x), _scores.class_count(classlabels_ints, classlabels_strings)
    sizes = [*(vectors_per_class or ())]
    if sum(sizes) == 0:
        position, scores = _linear(rows, coefficients, rho, classes)
        label = _scores.labels(position, classlabels_ints, classlabels_strings)
        return label, _scores.transformed(scores, post_transform).astype(np.float32)
    _scores.counted("vectors_per_class", sizes, classes, "one for each class")
    vectors = _matrix("support_vectors", support_vectors, sum(sizes))
    kernels = _kernel(rows, vectors, kernel_type, kernel_params)
    pairs = [*itertools.combinations(range(classes), 2)]
    offset = _scores.floats("rho", rho, len(pairs), "one for each pair of classes")
    pair_scores = _dot(kernels, _pair_weights(coefficients, sizes, pairs)) + offset.astype(
        rows.dtype
    )
    position = _scores.best(_votes(pair_scores, pairs, classes))
    label = _scores.labels(position, classlabels_ints, classlabels_strings)
    if prob_a or prob_b:
        scale, shift = (
            _scores.floats(n, v, len(pairs), "one for each pair of classes").astype(rows.dtype)
            for n, v in (("prob_a", prob_a), ("prob_b", prob_b))
        )
        likely = jax.nn.sigmoid(-(pair_scores * scale + shift))
        scores = _coupled(jnp.clip(likely, _LEAST, 1 - _LEAST), pairs, classes)
        scores = _scores.transformed(scores, post_transform)
    elif classes == 2:
        complement = post_transform != "NONE"
        scores = _scores.both_classes(pair_scores[:, 0], post_transform, complement=complement)
    else:
        scores = _scores.transformed(pair_scores, post_transform)
    return label, scores.astype(np.float32)


_KERNELS: Mapping[str, Callable[..., Any]] = {
    "LINEAR": lambda x, v, gamma, coef0, degree: _dot(x, v),
    "POLY": lambda x, v, gamma, coef0, degree: _power(gamma * _dot(x, v) + coef0, degree),
    "RBF": lambda x, v, gamma, coef0, degree: jnp.exp(-gamma * _squared_distance(x, v)),
    "SIGMOID": lambda x, v, gamma, coef0, degree: jnp.tanh(gamma * _dot(x, v) + coef0),
}
"""Kernels of rows and support vectors by name."""


def _kernel(x: Any, vectors: np.ndarray, kind: str, params: Floats) -> Any:
    """The kernel of each row ``[N, F]`` with each support vector ``[V, F]``, as ``[N, V]``."""
    if kind not in _KERNELS:
        raise InvalidModelError(f"kernel_type is {kind!r}, expected one of {', '.join(_KERNELS)}")
    given = params or (0.0, 0.0, 0.0)
    gamma, coef0, degree = _scores.counted("kernel_params", given, 3, "gamma, coef0 and degree")
    return _KERNELS[kind](_scores.fit(x, vectors.shape[1]), vectors, gamma, coef0, degree)


def _dot(x: Any, vectors: np.ndarray) -> Any:
    return lax.dot_general(x, vectors.astype(x.dtype), (((1,), (1,)), ((), ())))


def _squared_distance(x: Any, vectors: np.ndarray) -> Any:
    """Summed up from differences: the squares' own sums would cancel where vectors are close."""
    difference = x[:, None] - vectors.astype(x.dtype)
    return (difference * difference).sum(2)


def _power(base: Any, exponent: float) -> Any:
    return lax.integer_pow(base, int(exponent)) if exponent == int(exponent) else base**exponent


def _matrix(name: str, values: Any, count: int) -> np.ndarray:
    """An attribute's numbers as ``count`` vectors."""
    flat = _scores.floats(name, values)
    if not len(flat) or len(flat) % count:
        raise InvalidModelError(f"{name} has {len(flat)} elements, expected a multiple of {count}")
    return flat.reshape(count, -1)


def _linear(x: Any, coefficients: Floats, rho: Floats, classes: int) -> tuple[Any, Any]:
    """The position of the best class of a linear model, and the scores of all.

    Of two classes the second is the best wherever a score is above 0, or, if no coefficient is
    negative, at least 1/2: so both runtimes read LIBLINEAR's models.
    """
    weights = _matrix("coefficients", coefficients, classes)
    offset = _scores.floats("rho", rho)
    if not len(offset):
        raise InvalidModelError("rho has 0 elements, expected one")
    scores = _dot(_scores.fit(x, weights.shape[1]), weights) + offset[0].astype(x.dtype)
    position = _scores.best(scores)
    if classes == 2:
        top = scores.max(1)
        second = top >= 0.5 if (weights >= 0).all() else top > 0
        position = jnp.where(second, 1, position)
    return position, scores


def _pair_weights(
    coefficients: Floats, sizes: Sequence[int], pairs: Sequence[tuple[int, int]]
) -> np.ndarray:
    """What each support vector counts in the score of each pair, ``[P, V]``.

    LIBSVM stores one row less than there are classes: a vector of class ``i`` has its coefficient
    against class ``j`` in row ``j - 1`` or, if ``j`` is before ``i``, in row ``j``.
    """
    classes, vectors = len(sizes), sum(sizes)
    flat = _scores.floats("coefficients", coefficients)
    count = (classes - 1) * vectors
    flat = _scores.counted("coefficients", flat, count, f"{classes - 1} rows of {vectors}")
    stored, own = flat.reshape(classes - 1, vectors), np.repeat(np.arange(classes), sizes)
    rows = [np.where(own == i, stored[j - 1], np.where(own == j, stored[i], 0)) for i, j in pairs]
    return np.array(rows, flat.dtype).reshape(len(pairs), vectors)


def _votes(scores: Any, pairs: Sequence[tuple[int, int]], classes: int) -> Any:
    """How many pairs each class wins: the first class of a pair where its score is above 0."""
    first, second = (np.eye(classes, dtype=bool)[[p[k] for p in pairs]] for k in (0, 1))
    return jnp.where((scores > 0)[..., None], first, second).sum(1).astype(np.float32)


def _coupled(likely: Any, pairs: Sequence[tuple[int, int]], classes: int) -> Any:
    """Probabilities ``[N, C]`` of classes from those of the first class of each pair ``[N, P]``.

    LIBSVM's second method: the probabilities ``p`` that minimise ``p @ Q @ p``, one after another
    in rounds, until they are close. The derivative is that of the rounds that are done.
    """
    first, second = (np.array([p[k] for p in pairs], int) for k in (0, 1))
    square = jnp.zeros((likely.shape[0], classes, classes), likely.dtype)
    wins = square.at[:, first, second].set(likely).at[:, second, first].set(1 - likely)
    losses = wins.swapaxes(1, 2)
    q = -losses * wins + jnp.eye(classes, dtype=likely.dtype) * (losses**2).sum(2)[..., None]

    def improve(k: Any, state: Any) -> Any:
        p, qp, total = state
        step = (total - qp[:, k]) / q[:, k, k]
        p = p.at[:, k].add(step)
        total = (total + step * (step * q[:, k, k] + 2 * qp[:, k])) / (1 + step) ** 2
        qp = (qp + step[:, None] * q[:, k]) / (1 + step)[:, None]
        return p / (1 + step)[:, None], qp, total

    def round_(_: Any, p: Any) -> Any:
        qp = (q * p[:, None]).sum(2)
        total = (p * qp).sum(1)
        close = jnp.abs(qp - total[:, None]).max(1) < _CLOSE / classes
        better, _, _ = lax.fori_loop(0, classes, improve, (p, qp, total))
        return jnp.where(close[:, None], p, better)

    start = jnp.full((likely.shape[0], classes), 1 / classes, likely.dtype)
    return lax.fori_loop(0, _ROUNDS, round_, start) if math.comb(classes, 2) else start

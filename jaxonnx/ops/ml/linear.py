"""Linear models of ``ai.onnx.ml``."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops.ml import _scores

__all__ = ["linear_classifier", "linear_regressor"]


@register("LinearRegressor", 1, domain="ai.onnx.ml")
def linear_regressor(
    x: ArrayLike,
    /,
    *,
    coefficients: Sequence[float] | None = None,
    intercepts: Sequence[float] | None = None,
    post_transform: str = "NONE",
    targets: int = 1,
) -> Array:
    """``x @ coefficients + intercepts`` for rows ``[N, F]``, as ``[N, targets]``.

    Of a single target only PROBIT is taken, as in onnxruntime.

    Raises:
        InvalidModelError: if attributes do not fit each other or the features.
    """
    scores = _products(_scores.rows(x), coefficients, intercepts, targets)
    return _scores.transformed(scores, post_transform).astype(np.float32)


@register("LinearClassifier", 1, domain="ai.onnx.ml")
def linear_classifier(
    x: ArrayLike,
    /,
    *,
    coefficients: Sequence[float],
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    intercepts: Sequence[float] | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Array, Array]:
    """The label of the best class of each row ``[F]``, and the scores ``[N, E]`` of all.

    With coefficients for one of two classes their product ``s`` is the score of the second one: it
    is the best where ``s > 0``. The first class has ``1 - s``, or both are transformed by LOGISTIC.
    ``multi_class`` changes nothing.

    Raises:
        InvalidModelError: if attributes do not fit each other or the features.
    """
    del multi_class
    rows, classes = _scores.rows(x), _scores.class_count(classlabels_ints, classlabels_strings)
    single = intercepts is not None and len(intercepts) == 1
    if not intercepts and isinstance(rows.shape[1], int):
        single = len(coefficients) == rows.shape[1]
    single &= classes <= 2
    scores = _products(rows, coefficients, intercepts, 1 if single else classes)
    position = (scores[:, 0] > 0).astype(np.int32) if single else _scores.best(scores)
    label = _scores.labels(position, classlabels_ints, classlabels_strings)
    if single and classes == 2:
        out = _scores.both_classes(scores[:, 0], post_transform, complement=True)
    else:
        out = _scores.transformed(scores, post_transform)
    return label, out.astype(np.float32)


def _products(x: Any, coefficients: Any, intercepts: Any, targets: int) -> Any:
    """Rows times the coefficients ``[targets, F]``, plus the intercepts."""
    weights = _scores.floats("coefficients", coefficients)
    if targets < 1 or not len(weights) or len(weights) % targets:
        raise InvalidModelError(
            f"coefficients has {len(weights)} elements, expected a multiple of {targets}"
        )
    weights = weights.reshape(targets, -1).astype(x.dtype)
    _scores.fit(x, weights.shape[1])
    product = lax.dot_general(x, weights, (((1,), (1,)), ((), ())))
    if not intercepts:
        return product
    return product + _scores.floats("intercepts", intercepts, targets, "one a target").astype(
        x.dtype
    )

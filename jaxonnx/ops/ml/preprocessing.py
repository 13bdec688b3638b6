"""Preparation of features in ``ai.onnx.ml``."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxonnx.define.known import concrete, infer_dim, is_known, xp
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops._indices import as_array, int32
from jaxonnx.ops.ml import _scores
from jaxonnx.ops.reduction import reduce_l1, reduce_max, reduce_sum_square

__all__ = [
    "array_feature_extractor",
    "binarizer",
    "feature_vectorizer",
    "imputer",
    "normalizer",
    "scaler",
]


@register("Scaler", 1, domain="ai.onnx.ml")
def scaler(
    x: ArrayLike,
    /,
    *,
    offset: Sequence[float] | None = None,
    scale: Sequence[float] | None = None,
) -> Array:
    """``(x - offset) * scale``, each one number or one for each feature, which lie last.

    Raises:
        InvalidModelError: if there are other numbers of them.
    """
    data = _as_float(x)
    shift, factor = (
        _per_feature(n, _scores.floats(n, v).astype(data.dtype), data)
        for n, v in (("offset", offset or (0.0,)), ("scale", scale or (1.0,)))
    )
    return ((data - shift) * factor).astype(np.float32)


_NORMS: Mapping[str, Callable[[Any], Any]] = {
    "MAX": lambda rows: reduce_max(rows, np.array([-1])),
    "L1": lambda rows: reduce_l1(rows, np.array([-1])),
    "L2": lambda rows: _safe_sqrt(reduce_sum_square(rows, np.array([-1]))),
}
"""What the elements of a row are divided by."""


@register("Normalizer", 1, domain="ai.onnx.ml")
def normalizer(x: ArrayLike, /, *, norm: str = "MAX") -> Array:
    """Rows divided by their greatest element, or their L1 or L2 norm; by 1 where that is 0.

    Derivative of the greatest element at ties: equal shares; of ``|x|`` at 0: 0; where the divisor
    is 0: 1.

    Raises:
        InvalidModelError: if ``norm`` is unknown, or the shape is neither ``[N, C]`` nor ``[C]``.
    """
    if norm not in _NORMS:
        raise InvalidModelError(f"norm is {norm!r}, expected one of {', '.join(_NORMS)}")
    rows = _scores.rows(x)
    if rows.shape[1] == 0:
        return jnp.zeros(np.shape(x), np.float32)
    divisor = _NORMS[norm](rows)
    out = rows / jnp.where(divisor == 0, 1, divisor)
    return out.reshape(np.shape(x)).astype(np.float32)


def _safe_sqrt(x: Any) -> Any:
    """The root, whose derivative at 0 is 0."""
    return jnp.where(x == 0, 0, jnp.sqrt(jnp.where(x == 0, 1, x)))


@register("Imputer", 1, domain="ai.onnx.ml")
def imputer(
    x: ArrayLike,
    /,
    *,
    imputed_value_floats: Sequence[float] | None = None,
    imputed_value_int64s: Sequence[int] | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Array:
    """``x`` with the elements that equal one value replaced, by one value or one a feature.

    NaN equals NaN. Derivative: 0 where an element is replaced.

    Raises:
        InvalidModelError: if the values for the type of ``x`` are absent or of another number.
    """
    data: Any = xp(x).asarray(x)
    if jnp.issubdtype(data.dtype, np.floating):
        name, values, replaced = "imputed_value_floats", imputed_value_floats, replaced_value_float
        others = imputed_value_int64s
    else:
        name, values, replaced = "imputed_value_int64s", imputed_value_int64s, replaced_value_int64
        others = imputed_value_floats
    if not values or others:
        raise InvalidModelError(f"exactly {name} is to be given for {data.dtype}")
    new = _per_feature(name, np.array(values).astype(data.dtype), data)
    hit = data == np.array(replaced).astype(data.dtype)
    hit = jnp.isnan(data) if replaced != replaced else hit  # noqa: PLR0124 - NaN
    return xp(data).where(hit, new, data)


@register("Binarizer", 1, domain="ai.onnx.ml", elementwise=True)
def binarizer(x: ArrayLike, /, *, threshold: float = 0.0) -> Array:
    """1 where ``x > threshold``, else 0, in the type of ``x``. The derivative is 0."""
    data: Any = xp(x).asarray(x)
    above = _as_float(data) > threshold
    return above.astype(data.dtype)


@register("FeatureVectorizer", 1, domain="ai.onnx.ml")
def feature_vectorizer(*x: ArrayLike, inputdimensions: Sequence[int] | None = None) -> Array:
    """All inputs side by side as rows of single precision; ``[C]`` is one row.

    Each is cut to its size in ``inputdimensions``, or filled up with zeros.

    Raises:
        InvalidModelError: if there are not as many sizes as inputs.
    """
    widths = _scores.integers("inputdimensions", inputdimensions) if inputdimensions else None
    if widths is not None:
        _scores.counted("inputdimensions", widths, len(x), "one for each input")
    parts = []
    for k, value in enumerate(x):
        part = jnp.asarray(value)
        count = part.shape[0] if part.ndim > 1 else 1
        part = part.reshape(count, infer_dim(part.shape, (count,)))
        if widths is not None:
            part = part[:, : widths[k]]
            part = jnp.pad(part, ((0, 0), (0, int(widths[k]) - part.shape[1])))
        parts.append(part.astype(np.float32))
    return jnp.concatenate(parts, axis=1)


@register("ArrayFeatureExtractor", 1, domain="ai.onnx.ml")
def array_feature_extractor(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The elements of the last dimension at the places ``y``; ``[F]`` gives one row.

    Derivative: that of each element goes to its place.

    Raises:
        InvalidModelError: if a known place is out of range. One that is computed while the program
            runs is taken at the nearest end.
    """
    data: Any = x if is_known(x) else jnp.asarray(x)
    size = data.shape[-1] if data.ndim else 0
    text = is_known(data) and data.dtype.kind == "T"
    places: Any = concrete(y) if text else as_array(y)
    if is_known(places) and isinstance(size, int):
        outside = places[(places < 0) | (places >= size)]
        if outside.size:
            raise InvalidModelError(f"y has {outside[0]}, but there are {size} features")
    module = xp(data, places)
    places = int32(module.asarray(places).reshape(-1))
    taken = module.take(data, places, axis=-1, mode="clip")
    return taken.reshape(1, -1) if data.ndim == 1 else taken


def _as_float(x: Any) -> Any:
    """Data in the type to compute in: double if it is double, otherwise single."""
    x = xp(x).asarray(x)
    return x if x.dtype == np.float64 else x.astype(np.float32)


def _per_feature(name: str, values: np.ndarray, data: Any) -> np.ndarray:
    """The numbers of an attribute, if it has one, or one for each feature.

    Raises:
        InvalidModelError: if there are other numbers of them.
    """
    features = data.shape[-1] if data.ndim else 1
    if len(values) not in (1, features):
        raise InvalidModelError(f"{name} has {len(values)} elements, expected {features} or 1")
    return values

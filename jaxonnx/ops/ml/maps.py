"""Operators of ``ai.onnx.ml`` that make maps, which are dicts, or take them apart."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxonnx.define.dtypes import STRING
from jaxonnx.define.known import xp
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops.casting import cast

__all__ = ["cast_map", "dict_vectorizer", "zip_map"]


@register("ZipMap", 1, domain="ai.onnx.ml", host=True)
def zip_map(
    x: ArrayLike,
    /,
    *,
    classlabels_int64s: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
) -> list[dict[Any, Array]]:
    """A sequence of one map for each row of ``x``, from the labels to the row's elements.

    Raises:
        InvalidModelError: if there are not as many labels as columns, or two kinds of them.
    """
    if bool(classlabels_int64s) == bool(classlabels_strings):
        raise InvalidModelError("exactly one of the classlabels_* is to be given")
    labels = classlabels_int64s or classlabels_strings or ()
    rows: Any = xp(x).reshape(x, (1, -1)) if np.ndim(x) < 2 else x
    if rows.ndim != 2 or rows.shape[1] != len(labels):
        raise InvalidModelError(f"{len(labels)} labels for an input of shape {list(np.shape(x))}")
    return [dict(zip(labels, row, strict=True)) for row in rows]


@register("CastMap", 1, domain="ai.onnx.ml", host=True)
def cast_map(
    x: Mapping[int, Any],
    /,
    *,
    cast_to: str = "TO_FLOAT",
    map_form: str = "DENSE",
    max_map: int = 1,
) -> Array:
    """The values of a map in the order of its keys, as a row ``[1, count]``.

    With ``map_form`` ``SPARSE`` a value lies at the column of its key, the others of the
    ``max_map`` columns are 0 or empty.

    Raises:
        InvalidModelError: if a key is outside of the columns, or an attribute is unknown.
    """
    targets = {"TO_FLOAT": np.dtype(np.float32), "TO_INT64": np.dtype(np.int64)}
    targets["TO_STRING"] = STRING
    if cast_to not in targets or map_form not in ("DENSE", "SPARSE"):
        raise InvalidModelError(f"cast_to is {cast_to!r} and map_form {map_form!r}")
    keys = sorted(x)
    if map_form == "SPARSE":
        if any(not 0 <= k < max_map for k in keys):
            raise InvalidModelError(f"keys {keys} are outside of {max_map} columns")
        keys = range(max_map)
    columns = [cast(_scalar(x[k]), to=targets[cast_to]) if k in x else None for k in keys]
    return _row(columns, targets[cast_to]).reshape(1, -1)


@register("DictVectorizer", 1, domain="ai.onnx.ml", host=True)
def dict_vectorizer(
    x: Mapping[Any, Any],
    /,
    *,
    int64_vocabulary: Sequence[int] | None = None,
    string_vocabulary: Sequence[str] | None = None,
) -> Array:
    """The values of a map in the order of a vocabulary of its keys, 0 or empty where it has none.

    Raises:
        InvalidModelError: if a key is not in the vocabulary.
    """
    vocabulary = int64_vocabulary or string_vocabulary or ()
    unknown = [k for k in x if k not in vocabulary]
    if unknown:
        raise InvalidModelError(f"key {unknown[0]!r} is not in the vocabulary")
    columns = [_scalar(x[k]) if k in x else None for k in vocabulary]
    dtype = next((c.dtype for c in columns if c is not None), np.dtype(np.float32))
    return _row(columns, dtype)


def _scalar(value: Any) -> Any:
    """A map's value as a 0-d array; strings are text."""
    if isinstance(value, str):
        return np.array(value, STRING)
    return xp(value).reshape(value, ())


def _row(columns: Sequence[Any], dtype: np.dtype) -> Any:
    """The columns stacked; None stands for 0 or the empty string."""
    empty = np.zeros((), dtype)
    filled = [empty if c is None else c for c in columns]
    if not filled:
        return np.zeros((0,), dtype)
    return (np if xp(*filled) is np else jnp).stack(filled)

"""Encoders of ``ai.onnx.ml``: each element is looked up in a table of keys."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.dtypes import STRING
from jaxonnx.define.known import concrete, is_known, xp
from jaxonnx.define.registry import register
from jaxonnx.errors import InputError, InvalidModelError

__all__ = ["category_mapper", "label_encoder", "one_hot_encoder"]

_FAR = 2.0**62
"""Numbers further from 0 are categories of nobody, and may not fit into an integer."""


@register("LabelEncoder", 4, domain="ai.onnx.ml")
def label_encoder(
    x: ArrayLike,
    /,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: np.ndarray | None = None,
    keys_floats: Sequence[float] | None = None,
    keys_int64s: Sequence[int] | None = None,
    keys_strings: Sequence[str] | None = None,
    keys_tensor: np.ndarray | None = None,
    values_floats: Sequence[float] | None = None,
    values_int64s: Sequence[int] | None = None,
    values_strings: Sequence[str] | None = None,
    values_tensor: np.ndarray | None = None,
) -> Array:
    """The value whose key equals an element, else the default; the derivative is 0.

    The last of equal keys counts, and any NaN equals any other.

    Raises:
        InvalidModelError: unless there is one table of keys and one of as many values.
    """
    keys = _table("keys", keys_floats, keys_int64s, keys_strings, keys_tensor)
    values = _table("values", values_floats, values_int64s, values_strings, values_tensor)
    if default_tensor is None or not default_tensor.size:
        default: Any = {"f": default_float, "i": default_int64, "T": default_string}[
            values.dtype.kind
        ]
    else:
        default = default_tensor.reshape(())[()]
    return _look_up(x, keys, values, default)


@register("LabelEncoder", 2, domain="ai.onnx.ml")
def label_encoder_2(
    x: ArrayLike,
    /,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    keys_floats: Sequence[float] | None = None,
    keys_int64s: Sequence[int] | None = None,
    keys_strings: Sequence[str] | None = None,
    values_floats: Sequence[float] | None = None,
    values_int64s: Sequence[int] | None = None,
    values_strings: Sequence[str] | None = None,
) -> Array:
    """The value whose key has the same bits as an element, else the default.

    Raises:
        InvalidModelError: unless there is one table of keys and one of as many values.
    """
    keys = _table("keys", keys_floats, keys_int64s, keys_strings)
    values = _table("values", values_floats, values_int64s, values_strings)
    default = {"f": default_float, "i": default_int64, "T": default_string}[values.dtype.kind]
    if keys.dtype.kind == "f":
        keys, x = keys.view(np.int32), _bits(x)
    return _look_up(x, keys, values, default)


@register("LabelEncoder", 1, domain="ai.onnx.ml")
def label_encoder_1(
    x: ArrayLike,
    /,
    *,
    classes_strings: Sequence[str] | None = None,
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Array:
    """Strings to their positions in ``classes_strings``, or positions to the strings."""
    classes = np.array(classes_strings or (), STRING)
    numbers = np.arange(len(classes), dtype=np.int64)
    if isinstance(x, np.ndarray) and x.dtype == STRING:
        return _look_up(x, classes, numbers, default_int64)
    return _look_up(x, numbers, classes, default_string)


@register("CategoryMapper", 1, domain="ai.onnx.ml")
def category_mapper(
    x: ArrayLike,
    /,
    *,
    cats_int64s: Sequence[int] | None = None,
    cats_strings: Sequence[str] | None = None,
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Array:
    """Strings to the integers at the same places of the lists, or integers to the strings.

    Raises:
        InvalidModelError: unless both lists are given, as long as each other.
    """
    numbers, names = _table("cats", None, cats_int64s, None), np.array(cats_strings or (), STRING)
    if isinstance(x, np.ndarray) and x.dtype == STRING:
        return _look_up(x, names, numbers, default_int64)
    return _look_up(x, numbers, names, default_string)


@register("OneHotEncoder", 1, domain="ai.onnx.ml")
def one_hot_encoder(
    x: ArrayLike,
    /,
    *,
    cats_int64s: Sequence[int] | None = None,
    cats_strings: Sequence[str] | None = None,
    zeros: int = 1,
) -> Array:
    """A new last dimension with 1 at the place of each element's category, the last of equal ones.

    Fractions are cut off. Without ``zeros`` every element must be one of the categories: a known
    one that is not is refused, one that is traced gives NaN. The derivative is 0.

    Raises:
        InvalidModelError: unless there is one list of categories.
        InputError: if an element must be a category and is known to be none.
    """
    cats = _table("cats", None, cats_int64s, cats_strings)
    place = _place(x, cats)
    if is_known(place) and not zeros and (place < 0).any():
        unknown = np.asarray(x)[place < 0][0]
        raise InputError(f"{unknown} is none of the {len(cats)} categories")
    hot = (place[..., None] == np.arange(len(cats), dtype=np.int32)).astype(np.float32)
    return hot if zeros or is_known(place) else jnp.where(place[..., None] < 0, np.nan, hot)


def _place(x: Any, cats: np.ndarray) -> Any:
    """The place of each element among the categories as int32; -1 if it is none."""
    places = np.arange(len(cats), dtype=np.int32)
    if STRING in (cats.dtype, x.dtype):
        return _look_up(x, cats, places, -1)
    module = xp(x)
    finite = module.isfinite(x)
    if x.dtype.kind == "f":
        x = module.clip(module.trunc(module.where(finite, x, 0)), -_FAR, _FAR)
    number = module.asarray(x).astype(module.asarray(cats).dtype)
    return module.where(finite, _look_up(number, cats.astype(number.dtype), places, -1), -1)


def _table(
    title: str,
    floats: Sequence[float] | None,
    ints: Sequence[int] | None,
    strings: Sequence[str] | None,
    tensor: np.ndarray | None = None,
) -> np.ndarray:
    """The one of the tables that is given."""
    forms = [(floats, np.float32), (ints, np.int64), (strings, STRING)]
    given = [np.array(v, d) for v, d in forms if v]
    given += [] if tensor is None or not tensor.size else [tensor.reshape(-1)]
    if len(given) != 1:
        raise InvalidModelError(f"{len(given)} of the {title}_* are given, expected exactly one")
    return given[0]


def _bits(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return np.atleast_1d(x).view(np.int32).reshape(x.shape)
    return lax.bitcast_convert_type(x, np.int32)


def _look_up(x: Any, keys: np.ndarray, values: np.ndarray, default: Any) -> Any:
    if len(keys) != len(values):
        raise InvalidModelError(f"{len(keys)} keys and {len(values)} values")
    if STRING in (keys.dtype, values.dtype):
        x = concrete(x)
        table = dict(zip(map(_comparable, keys.tolist()), values.tolist(), strict=True))
        found = [table.get(_comparable(v), default) for v in x.ravel().tolist()]
        return np.array(found, values.dtype).reshape(x.shape)
    if keys.dtype != x.dtype:
        raise InvalidModelError(f"the input is {x.dtype}, the keys are {keys.dtype}")
    keys, last = np.unique(keys[::-1], return_index=True)  # NaN is one key and sorted last
    values = values[::-1][last]
    module, default = xp(x), np.asarray(default, values.dtype)
    place = module.minimum(module.searchsorted(keys, x), len(keys) - 1)
    key = module.asarray(keys)[place]
    equal = (key == x) | ((key != key) & (x != x))  # noqa: PLR0124 - both NaN
    return module.where(equal, module.asarray(values)[place], default)


def _comparable(value: Any) -> Any:
    """A dictionary's key for a value; all NaN are one."""
    return "NaN" if isinstance(value, float) and value != value else value  # noqa: PLR0124

"""Checks what a caller passes to a model against what the model declares."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxonnx.errors import InputError
from jaxonnx.plan import Spec

_WEAK = (int, float, complex, list, tuple)  # Python numbers have no width; bool is an int


def bind(
    specs: Sequence[Spec],
    defaults: Collection[str],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> dict[str, Any]:
    """The value of every given input by name, checked and in the declared dtype.

    Args:
        specs: the declared inputs in order.
        defaults: names of those that may be left out.
        args: values by position, or one mapping from names to values. Inputs that have a default
            are given by name only.
        kwargs: values by name.

    Raises:
        InputError: if a name, the count, a dtype, a rank or a size is wrong.
    """
    if len(args) == 1 and isinstance(args[0], Mapping):
        kwargs, args = {**args[0], **kwargs}, ()
    required = [s.name for s in specs if s.name not in defaults]
    if len(args) > len(required):
        raise InputError(
            f"{len(args)} inputs by position, expected {_signature(specs, defaults)}"
        )
    given = dict(zip(required, args, strict=False))
    for name, value in kwargs.items():
        if name in given:
            raise InputError(f"input {name!r} is given twice, by position and by name")
        given[name] = value
    by_name = {s.name: s for s in specs}
    unknown = [n for n in given if n not in by_name]
    missing = [n for n in required if n not in given]
    if unknown or missing:
        faults = [f"no input is called {n!r}" for n in unknown]
        faults += [f"input {n!r} is missing" for n in missing]
        raise InputError(f"{'; '.join(faults)}; expected {_signature(specs, defaults)}")
    return {name: _conform(value, by_name[name]) for name, value in given.items()}


def _signature(specs: Sequence[Spec], defaults: Collection[str]) -> str:
    parts = [f"{s.name!r}: {s}{' (optional)' if s.name in defaults else ''}" for s in specs]
    return ", ".join(parts) or "no inputs"


def _conform(value: Any, spec: Spec) -> Any:
    """``value`` as an array of the declared dtype, if that changes neither kind nor precision."""
    if spec.dtype is not None and not isinstance(value, (np.ndarray, jax.Array)):
        value = _to_numpy(value, spec)
    if spec.dtype is None or not hasattr(value, "dtype"):
        return value
    if value.dtype != spec.dtype:
        if not _widens(value.dtype, spec.dtype):
            raise InputError(
                f"input {spec.name!r}: {value.dtype}[{_sizes(value.shape)}], expected {spec}; "
                f"convert it, for example with x.astype({spec.dtype.name!r})"
            )
        value = value.astype(spec.dtype)
    if spec.shape is not None and not _fits(value.shape, spec.shape):
        raise InputError(
            f"input {spec.name!r}: shape [{_sizes(value.shape)}], expected {spec}"
        )
    return value


def _to_numpy(value: Any, spec: Spec) -> np.ndarray:
    weak = isinstance(value, _WEAK)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"input {spec.name!r} is no array ({error}), expected {spec}") from error
    text = array.dtype.kind in "OUS" and spec.dtype is not None and spec.dtype.kind == "T"
    if text:
        return array.astype(spec.dtype)
    if weak and spec.dtype is not None and array.dtype.kind in "iuf":
        wanted = spec.dtype.kind if spec.dtype.kind in "iufcb" else "f"
        narrower = {"i": "i", "u": "i", "f": "if", "c": "ifc", "b": ""}[wanted]
        if array.dtype.kind in narrower:
            return array.astype(spec.dtype)
    return array


def _widens(given: np.dtype, declared: np.dtype) -> bool:
    """Whether ``given`` is a narrower integer of the same signedness as ``declared``."""
    same = given.kind == declared.kind and given.kind in "iu"
    return same and given.itemsize < declared.itemsize


def _fits(shape: Sequence[Any], declared: Sequence[int | str | None]) -> bool:
    """Whether the rank and every fixed size agree; a symbolic size fits what it may equal."""
    return len(shape) == len(declared) and all(
        not isinstance(want, int) or not isinstance(have, int) or have == want
        for have, want in zip(shape, declared, strict=True)
    )


def _sizes(shape: Sequence[Any]) -> str:
    return ", ".join(map(str, shape))

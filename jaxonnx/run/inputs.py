"""Checks what a caller passes to a model against what the model declares."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxonnx.define.known import x64_enabled
from jaxonnx.define.streams import is_key
from jaxonnx.errors import InputError
from jaxonnx.graph.plan import Spec

_PYTHON = (bool, int, float, complex, list, tuple)

_LISTED = 5
"""The most optional inputs that messages list."""


def split_key(kwargs: Mapping[str, Any], specs: Sequence[Spec]) -> tuple[Any, Mapping[str, Any]]:
    """The keyword ``key``, from which a model draws random numbers, and the other keywords.

    Where an input has that name, only a typed key is one; anything else is that input.

    Raises:
        InputError: if it is something else than one typed key.
    """
    key = kwargs["key"]
    if not is_key(key) and any(s.name == "key" for s in specs):
        return None, kwargs
    if key is not None and not (is_key(key) and key.shape == ()):
        found = f"{key.dtype}[{_sizes(key.shape)}]" if hasattr(key, "dtype") else repr(key)
        raise InputError(f"key is {found}, expected one typed key, such as jax.random.key(0)")
    return key, {n: v for n, v in kwargs.items() if n != "key"}


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
    by_name, how = {s.name: s for s in specs}, "by position"
    given: dict[str, Any] = {}
    required = [s.name for s in specs if s.name not in defaults]
    if len(args) == 1 and isinstance(args[0], Mapping) and not _is_map(args[0], by_name, required):
        given, args, how = dict(args[0]), (), "in the mapping"
    if len(args) > len(required):
        raise InputError(f"{len(args)} inputs by position, expected {_signature(specs, defaults)}")
    given |= zip(required, args, strict=False)
    for name, value in kwargs.items():
        if name in given:
            raise InputError(f"input {name!r} is given twice, {how} and by name")
        given[name] = value
    unknown = [n for n in given if n not in by_name]
    missing = [n for n in required if n not in given]
    if unknown or missing:
        faults = [f"no input is called {n!r}" for n in unknown]
        faults += [f"input {n!r} is missing" for n in missing]
        raise InputError(f"{'; '.join(faults)}; expected {_signature(specs, defaults)}")
    values = {name: conform(value, by_name[name]) for name, value in given.items()}
    _check_named_dims(specs, values)
    return values


def _check_named_dims(specs: Sequence[Spec], values: Mapping[str, Any]) -> None:
    """Refuse sizes that differ where the declared dimensions have one name.

    Raises:
        InputError: naming the dimension, both places and both sizes.
    """
    found: dict[str, tuple[int, Spec, int]] = {}
    for spec in specs:
        if spec.name not in values or spec.kinds:
            continue
        for axis, dim in enumerate(spec.shape or ()):
            size = values[spec.name].shape[axis]
            if not isinstance(dim, str) or dim == "?" or not isinstance(size, int):
                continue  # the size of a symbolic dimension cannot be decided here
            first, before, place = found.setdefault(dim, (size, spec, axis))
            if first != size:
                raise InputError(
                    f"the dimension {dim!r} is {first} in input {before.name!r} (axis {place}) and "
                    f"{size} in input {spec.name!r} (axis {axis}), expected {before} and {spec}: "
                    "sizes of one name must be equal; if the model declares it wrongly, give the "
                    "dimensions names of their own in the file"
                )


def _is_map(value: Mapping[Any, Any], specs: Mapping[str, Spec], required: Sequence[str]) -> bool:
    """Whether a mapping is the value of the first input rather than values by name."""
    kinds = specs[required[0]].kinds if required else ()
    return bool(kinds) and kinds[0].startswith("map") and not all(n in specs for n in value)


def _signature(specs: Sequence[Spec], defaults: Collection[str]) -> str:
    parts = [f"{s.name!r}: {s}" for s in specs if s.name not in defaults]
    optional = [f"{s.name!r}: {s} (optional)" for s in specs if s.name in defaults]
    if len(optional) > _LISTED:  # old models list all their weights
        optional = [f"{len(optional)} optional ones"]
    return ", ".join(parts + optional) or "no inputs"


def conform(value: Any, spec: Spec) -> Any:
    """``value`` as an array of the declared dtype, if that changes neither kind nor precision.

    The same holds for the elements of sequences (lists), of optionals and of maps (mappings).
    """
    if spec.kinds:
        return _conform_held(value, spec)
    if spec.dtype is None:
        return value
    if spec.dtype.kind == "T":
        value = _to_text(value, spec)
    if not isinstance(value, (np.ndarray, jax.Array)):
        value = _to_numpy(value, spec)
    fits = spec.shape is None or _fits(value.shape, spec.shape)
    if value.dtype == spec.dtype and fits:
        return value
    found = f"{value.dtype}[{_sizes(value.shape)}]"
    if value.dtype != spec.dtype and not _widens(value.dtype, spec.dtype):
        raise InputError(
            f"input {spec.name!r}: {found}, expected {spec}; {_remedy(value, spec.dtype)}"
        )
    if not fits:
        raise InputError(f"input {spec.name!r}: {found}, expected {spec}")
    with jax.enable_x64(True):
        return value.astype(spec.dtype)


def _conform_held(value: Any, spec: Spec) -> Any:
    """A sequence, optional or map with its elements checked."""
    kind = spec.kinds[0]
    if kind == "optional":
        return None if value is None else conform(value, spec.inner)
    if kind == "seq" and isinstance(value, (list, tuple)):
        return [conform(v, spec.inner) for v in value]
    if kind.startswith("map") and isinstance(value, Mapping):
        key = str if kind == "map(string)" else (int, np.integer)
        wrong = [k for k in value if not isinstance(k, key)]
        if wrong:
            raise InputError(f"input {spec.name!r}: a key is {wrong[0]!r}, expected {spec}")
        return {k if key is str else int(k): conform(v, spec.inner) for k, v in value.items()}
    raise InputError(f"input {spec.name!r}: {type(value).__name__}, expected {spec}")


def _to_text(value: Any, spec: Spec) -> Any:
    """Strings, in an array or a list, as an array of NumPy's ``StringDType``."""
    text = getattr(value, "dtype", None)
    if text is None or text.kind == "O":
        try:
            value = np.array(value, np.dtypes.StringDType(coerce=False))
        except (TypeError, ValueError) as error:
            raise InputError(f"input {spec.name!r}: {error}; expected {spec}") from error
    return value


def _to_numpy(value: Any, spec: Spec) -> np.ndarray:
    """An array of something else; Python numbers have no width and take the declared dtype."""
    try:
        array = np.asarray(value)
        if isinstance(value, _PYTHON) and not isinstance(value, np.generic):
            return _from_python(array, spec.dtype)
    except (TypeError, ValueError, OverflowError, FloatingPointError) as error:
        raise InputError(f"input {spec.name!r}: {error}; expected {spec}") from error
    return array


def _from_python(array: np.ndarray, dtype: Any) -> np.ndarray:
    """Python numbers in ``dtype``, if it is of their kind or a wider one and holds them."""
    if array.dtype.kind not in "biufc" or dtype.kind == "T":
        return array
    given, wanted = _rank(array.dtype), _rank(dtype)
    if array.size and (given > wanted or 0 in (given, wanted)):
        return array
    with np.errstate(over="raise", invalid="raise"):
        cast = array.astype(dtype)
    if jnp.issubdtype(dtype, np.integer) and not np.array_equal(cast.astype(array.dtype), array):
        raise OverflowError(f"{array.tolist()} is out of the range of {dtype.name}")
    return cast


def _rank(dtype: Any) -> int:
    """0 for booleans, 1 for integers, 2 for real and 3 for complex floats, -1 for all else."""
    order = (np.bool_, np.integer, np.inexact, np.complexfloating)
    return max((k for k, t in enumerate(order) if jnp.issubdtype(dtype, t)), default=-1)


def _remedy(value: Any, declared: np.dtype) -> str:
    """What to do about a wrong dtype; JAX narrows doubles while x64 is off."""
    doubles = (np.float64, np.complex128)
    if declared in doubles and isinstance(value, jax.Array) and not x64_enabled():
        return "put `with jax.enable_x64(True):` around the outermost call, or pass a NumPy array"
    return f"convert it, for example with x.astype({declared.name!r})"


def _widens(given: np.dtype, declared: np.dtype) -> bool:
    """Whether ``given`` is text, or an integer all of whose values ``declared`` has, too."""
    if declared.kind == "T":
        return given.kind in "OUST"
    if not all(jnp.issubdtype(d, np.integer) for d in (given, declared)):
        return False
    narrow, wide = jnp.iinfo(given), jnp.iinfo(declared)
    return wide.min <= narrow.min and narrow.max <= wide.max


def _fits(shape: Sequence[Any], declared: Sequence[int | str | None]) -> bool:
    """Whether the rank and every fixed size agree; a symbolic size fits what it may equal."""
    return len(shape) == len(declared) and all(
        not isinstance(want, int) or not isinstance(have, int) or have == want
        for have, want in zip(shape, declared, strict=True)
    )


def _sizes(shape: Sequence[Any]) -> str:
    return ", ".join(map(str, shape))

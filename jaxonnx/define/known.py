"""Values known while tracing are NumPy arrays, all others are ``jax.Array``: the type is the tag.

Dimensions of a shape-polymorphic trace (``jax.export`` expressions) are known too. They travel in
NumPy arrays of dtype ``object`` and count as int64.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import core, export, lax
from jax.errors import InconclusiveDimensionOperation

from jaxonnx.errors import DataDependentShapeError, StaticValueError

LITERAL_BYTES = 64 * 1024
"""Known arrays above this size are arguments of a compiled program, never literals in it."""


def x64_enabled() -> bool:
    """Whether JAX keeps 64-bit types at this point."""
    return jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue] - made by JAX


def xp(*values: Any) -> Any:
    """The array module for an operator's body: ``numpy`` where all ``values`` are known."""
    return jnp if any(isinstance(v, jax.Array) for v in values) else np


def is_known(value: Any) -> bool:
    """Whether ``value`` is an array known while tracing."""
    return isinstance(value, np.ndarray)


def concrete(value: Any) -> np.ndarray:
    """The value of an array outside of any trace; derivatives do not flow through it.

    Raises:
        DataDependentShapeError: inside a trace.
    """
    value = lax.stop_gradient(value) if isinstance(value, jax.Array) else value
    if isinstance(value, core.Tracer):
        raise DataDependentShapeError(f"a concrete value is needed, but {value} is traced")
    return np.asarray(value)


def is_symbolic(value: Any) -> bool:
    """Whether ``value`` is a known array that holds dimension expressions."""
    return isinstance(value, np.ndarray) and value.dtype == object


def shape_is_symbolic(shape: Iterable[Any]) -> bool:
    """Whether a dimension of ``shape`` is an expression."""
    return not all(_is_int(d) for d in shape)


def dimensions(shape: Iterable[Any]) -> np.ndarray:
    """A shape as a known 1-d array: int64, or ``object`` where a dimension is symbolic."""
    dims = [*shape]
    if all(map(_is_int, dims)):
        return np.array(dims, np.int64)
    out = np.empty(len(dims), object)
    out[:] = dims
    return out


def as_dims(values: Any) -> tuple[Any, ...]:
    """The elements of a known integer array as Python integers or dimension expressions."""
    flat = np.asarray(values).ravel()
    return tuple(v if flat.dtype == object and not _is_int(v) else int(v) for v in flat)


def tidy(value: np.ndarray) -> np.ndarray:
    """An ``object`` array without any symbolic element left becomes int64."""
    if value.dtype == object and all(map(_is_int, value.flat)):
        return value.astype(np.int64)
    return value


def lift(value: np.ndarray, dtype: Any = None) -> jax.Array:
    """A known value, symbolic or not, as a traced one; strings cannot be."""
    if value.dtype.kind == "T":
        raise DataDependentShapeError("strings cannot be part of a compiled program")
    if not is_symbolic(value):
        return jnp.asarray(value, dtype)
    dtype = jax.dtypes.canonicalize_dtype(dtype or np.int64)
    items = [jnp.asarray(d).astype(dtype) for d in value.flat]
    return jnp.stack(items).reshape(value.shape)


def same_dim(a: Any, b: Any) -> bool:
    """Whether two dimensions are provably equal. ``==`` answers False where it does not know."""
    difference = a - b
    return _is_int(difference) and int(difference) == 0


def infer_dim(shape: Sequence[Any], others: Sequence[Any]) -> Any:
    """The dimension that makes ``others`` have as many elements as ``shape``."""
    rest, left = [*shape], []
    for dim in others:  # equal factors are cancelled first: products of expressions may not divide
        match = next((k for k, d in enumerate(rest) if same_dim(d, dim)), None)
        if match is None:
            left.append(dim)
        else:
            del rest[match]
    divisor = math.prod(left)
    return math.prod(rest) // divisor if left else math.prod(rest)


def sure_at_least(a: Any, b: Any) -> bool:
    """Whether ``a >= b`` for dimensions, which must hold at every size or at none.

    Raises:
        StaticValueError: if it depends on the size, or cannot be proved.
    """
    return _sure(_at_least(a, b), f"{a} >= {b}")


def sure_equal(a: Any, b: Any) -> bool:
    """Whether ``a == b`` for dimensions, which must hold at every size or at none.

    Raises:
        StaticValueError: if it depends on the size, or cannot be proved.
    """
    return _sure(_equal(a, b), f"{a} == {b}")


def _sure(found: bool | None, question: str) -> bool:
    if found is None:
        raise StaticValueError(
            f"{question} does not hold at every size of the symbolic dimensions, or cannot be "
            f"proved: load the model with constraints=['{question}'] or others that decide it, or "
            "trace with fixed sizes"
        )
    return found


def broadcasts_to(shape: Sequence[Any], target: Sequence[Any]) -> bool:
    """Whether an array of ``shape`` provably broadcasts to the shape ``target``."""
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(same_dim(d, 1) or same_dim(d, n) for d, n in pairs)


def minimum(a: Any, b: Any) -> Any:
    """``numpy.minimum``, also of dimensions."""
    return _apply("minimum", core.min_dim, a, b)


def maximum(a: Any, b: Any) -> Any:
    """``numpy.maximum``, also of dimensions."""
    return _apply("maximum", core.max_dim, a, b)


def less(a: Any, b: Any) -> Any:
    """``numpy.less``; of dimensions it is known only where it is provable."""
    return _apply("less", _less, a, b)


def less_equal(a: Any, b: Any) -> Any:
    """``numpy.less_equal``; of dimensions it is known only where it is provable."""
    return _apply("less_equal", lambda x, y: _at_least(y, x), a, b)


def equal(a: Any, b: Any) -> Any:
    """``numpy.equal``; of dimensions it is known only where it is provable."""
    return _apply("equal", _equal, a, b)


def _apply(name: str, on_dims: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    a, b = _held(a), _held(b)
    if not (is_symbolic(a) or is_symbolic(b)):
        return getattr(xp(a, b), name)(a, b)
    pairs = np.broadcast(a, b)
    results = [on_dims(x, y) for x, y in pairs]
    if any(r is None for r in results):  # not provable for some element: decided when it runs
        return getattr(jnp, name)(lift(a), lift(b))
    if all(isinstance(r, bool) for r in results):
        return np.array(results, bool).reshape(pairs.shape)
    return dimensions(results).reshape(pairs.shape)


def _held(value: Any) -> Any:
    """A dimension as the array that NumPy takes it out of, in arithmetic on arrays without axes."""
    return dimensions([value]).reshape(()) if export.is_symbolic_dim(value) else value


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer))


def _at_least(a: Any, b: Any) -> bool | None:
    try:
        return bool(a >= b)
    except InconclusiveDimensionOperation:
        return None


def _less(a: Any, b: Any) -> bool | None:
    at_least = _at_least(a, b)
    return None if at_least is None else not at_least


def _equal(a: Any, b: Any) -> bool | None:
    if same_dim(a, b):
        return True
    return False if _less(a, b) or _less(b, a) else None

"""Computing in another floating type than a model declares.

Products are computed in the narrow type, and so is what follows them, as far as the operators take
it. All else stays in single precision: shapes, positions, statistics, what has met no product yet.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxonnx.define import registry
from jaxonnx.errors import InputError
from jaxonnx.graph.plan import Node

_SINGLE = np.dtype(np.float32)
COMPUTE = (*map(np.dtype, (np.float16, jnp.bfloat16)), _SINGLE)
"""The types to compute in; each may stand in the place of another."""


def compute_dtype(dtype: Any) -> np.dtype:
    """A dtype to compute in.

    Raises:
        InputError: if it is none of those.
    """
    try:
        wanted = None if dtype is None else np.dtype(dtype)
    except TypeError:
        wanted = None
    if wanted is None or wanted not in COMPUTE:
        names = ", ".join(d.name for d in COMPUTE)
        raise InputError(f"astype: {dtype!r} is none of {names}")
    return wanted


def seen(dtype: np.dtype | None, compute: np.dtype | None) -> np.dtype | None:
    """The dtype that a node's schema is asked about: one type stands for all that are exchanged."""
    return _SINGLE if compute is not None and dtype in COMPUTE else dtype


def unified(node: Node, args: Sequence[Any], compute: np.dtype) -> list[Any]:
    """Traced inputs of a node in the one type that it computes in."""
    operator = node.operator
    wanted = operator is not None and (operator.product or any(_is(a, compute) for a in args))
    narrow = wanted and _takes(node, args, compute)
    dtype = compute if narrow else _SINGLE
    return [jax.tree.map(lambda v: _as(v, dtype), a) for a in args]


def declared(value: Any, dtype: np.dtype | None) -> Any:
    """An output in the dtype that the model declares, single precision where it declares none."""
    if not _exchanged(value) or (dtype is not None and dtype not in COMPUTE):
        return value
    return _as(value, dtype or _SINGLE)


def _as(value: Any, dtype: np.dtype) -> Any:
    """A traced array in another type; finite numbers stay finite, as masks of -3.4e38 must."""
    if not _exchanged(value) or value.dtype == dtype:
        return value
    if jnp.finfo(dtype).max < jnp.finfo(value.dtype).max:
        most = np.asarray(jnp.finfo(dtype).max, value.dtype)
        value = jnp.where(jnp.isfinite(value), jnp.clip(value, -most, most), value)
    return value.astype(dtype)


def _exchanged(value: Any) -> bool:
    return isinstance(value, jax.Array) and value.dtype in COMPUTE


def _is(value: Any, dtype: np.dtype) -> bool:
    return isinstance(value, jax.Array) and value.dtype == dtype


def _takes(node: Node, args: Sequence[Any], dtype: np.dtype) -> bool:
    """Whether the newest version of a node's operator takes the traced floats in ``dtype``."""
    newest = max(registry.versions_of(node.op_type, node.domain))
    formal = registry.signature(node.op_type, newest, node.domain)
    if formal is None or node.subgraphs:
        return False
    inputs = [formal.input(k) for k, a in enumerate(args) if _exchanged(a)]
    return all(p is not None and p.dtypes is not None and dtype in p.dtypes for p in inputs)

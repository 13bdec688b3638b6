"""What operators do to arrays of which only a part is real.

A rule takes the operator's function, its inputs and the attributes of the node, and gives the
outputs such that the padding never reaches a real element, or None where it cannot be exact.
Operators name their rule in ``register(..., padding=rule)``.
"""

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxonnx.define.known import as_dims, is_known
from jaxonnx.define.padded import Padded
from jaxonnx.ops._extremum import least

Attributes = Mapping[str, Any]
Function = Callable[..., Any]


def _default(function: Function, name: str) -> Any:
    return inspect.signature(function).parameters[name].default


def _attribute(function: Function, attributes: Attributes, name: str) -> Any:
    """An attribute's value, by default the one of the version in force."""
    return attributes[name] if name in attributes else _default(function, name)


def softmax(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    (x,) = args
    axis = _attribute(function, attributes, "axis") % x.values.ndim
    flattens = _default(function, "axis") == 1  # before version 13
    if flattens and axis != x.values.ndim - 1:
        return None
    values = x.filled(-np.inf) if axis == x.axis else x.values
    return Padded(function(values, **attributes), x.count, x.axis)


def shape(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    del function
    (x,) = args
    count = jnp.minimum(x.count, x.size).astype(np.int64)
    dims = [count if k == x.axis else jnp.asarray(d, np.int64) for k, d in enumerate(x.shape)]
    start, end = attributes.get("start", 0), attributes.get("end")
    return jnp.stack(dims)[start:end]


def gather(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    data, indices = args
    axis = attributes.get("axis", 0) % np.ndim(getattr(data, "values", data))
    if not isinstance(data, Padded):
        out = function(data, indices.values, **attributes)
        return Padded(out, indices.count, axis + indices.axis)
    if data.axis != axis:
        if isinstance(indices, Padded):
            return None
        shift = np.ndim(indices) - 1 if data.axis > axis else 0
        return Padded(function(data.values, indices, **attributes), data.count, data.axis + shift)
    places = jnp.asarray(indices.values if isinstance(indices, Padded) else indices)
    count = jnp.minimum(data.count, data.size).astype(places.dtype)
    places = jnp.where(places < 0, places + count, places)
    real = (places >= 0) & (places < count)
    beyond = jnp.asarray(data.size, places.dtype)  # as what an index out of range finds
    out = function(data.values, jnp.where(real, places, beyond), **attributes)
    return Padded(out, indices.count, axis + indices.axis) if isinstance(indices, Padded) else out


def gather_nd(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    data, indices = args
    last = np.ndim(getattr(indices, "values", indices)) - 1
    if isinstance(data, Padded) or attributes.get("batch_dims", 0) or indices.axis == last:
        return None
    return Padded(function(data, indices.values, **attributes), indices.count, indices.axis)


def transpose(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    (x,) = args
    perm = attributes.get("perm") or tuple(reversed(range(x.values.ndim)))
    return Padded(function(x.values, **attributes), x.count, tuple(perm).index(x.axis))


def _axes(args: Sequence[Any], attributes: Attributes) -> tuple[int, ...] | None:
    """Axes given as a second input or as an attribute; None where there are none."""
    if len(args) > 1 and args[1] is not None:
        return as_dims(args[1]) if is_known(args[1]) else None
    return attributes.get("axes")


def unsqueeze(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    x, axes = args[0], _axes(args, attributes)
    if axes is None:
        return None
    rank = x.values.ndim + len(axes)
    new = {a % rank for a in axes}
    kept = [k for k in range(rank) if k not in new]
    return Padded(function(x.values, *args[1:], **attributes), x.count, kept[x.axis])


def squeeze(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    x, axes = args[0], _axes(args, attributes)
    gone = {a % x.values.ndim for a in axes} if axes is not None else set()
    if axes is None or x.axis in gone:
        return None
    axis = x.axis - sum(a < x.axis for a in gone)
    return Padded(function(x.values, *args[1:], **attributes), x.count, axis)


def reshape(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    """Only the dimensions behind a leading padded one may change."""
    x, shape = args[0], args[1] if len(args) > 1 else None
    if not isinstance(x, Padded) or shape is None or not is_known(shape) or x.axis != 0:
        return None
    dims = as_dims(shape)
    if dims[:1] == (0,) and attributes.get("allowzero"):
        return None
    if not dims or dims[0] not in (-1, 0) or 0 in dims[1:] or -1 in dims[1:]:
        return None
    if math.prod(dims[1:]) != math.prod(x.shape[1:]):
        return None
    return Padded(function(x.values, np.array([x.size, *dims[1:]]), **attributes), x.count, 0)


def concat(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    padded = [a for a in args if isinstance(a, Padded)]
    first, axis = padded[0], attributes.get("axis", 1)
    same = all(p.count is first.count and p.axis == first.axis for p in padded)
    if len(padded) < len(args) or not same or axis % first.values.ndim == first.axis:
        return None
    return Padded(function(*(a.values for a in args), **attributes), first.count, first.axis)


def matmul(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    a, b = args
    if isinstance(b, Padded) or a.axis == a.values.ndim - 1 or np.ndim(b) != 2:
        return None
    return Padded(function(a.values, b, **attributes), a.count, a.axis)


def matmul_integer(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    a, b, *zero_points = args
    if any(np.ndim(z) > 1 for z in zero_points[:1] if z is not None):
        return None  # one for each row
    return matmul(lambda x, y: function(x, y, *zero_points, **attributes), [a, b], {})


def quantize(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    """The first input alone is padded, with 0, which is in every range; so is the first output."""
    x, *rest = args
    if not isinstance(x, Padded) or any(isinstance(r, Padded) for r in rest):
        return None
    out = function(x.filled(0), *rest, **attributes)
    first, *others = out if isinstance(out, tuple) else (out,)
    return (Padded(first, x.count, x.axis), *others)


def gemm(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    a, *rest = args
    plain = isinstance(a, Padded) and not any(isinstance(r, Padded) for r in rest)
    bias_fits = len(rest) < 2 or rest[1] is None or np.ndim(rest[1]) < 2
    if not plain or a.axis != 0 or attributes.get("transA") or not bias_fits:
        return None
    return Padded(function(a.values, *rest, **attributes), a.count, 0)


def slice(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    """Forward slices; along the padded axis from a position that is not negative."""
    x, starts, ends, axes, steps = (*args, None, None)[:5]
    if not isinstance(x, Padded) or not is_known(starts) or attributes:
        return None
    firsts = as_dims(starts)
    chosen = range(len(firsts)) if axes is None else [a % x.values.ndim for a in as_dims(axes)]
    strides = (1,) * len(firsts) if steps is None else as_dims(steps)
    if x.axis not in chosen:
        return Padded(function(x.values, *args[1:]), x.count, x.axis)
    k = [*chosen].index(x.axis)
    if firsts[k] < 0 or strides[k] != 1 or len(firsts) > 1:
        return None
    end = jnp.asarray(ends).reshape(()).astype(np.int64)
    real = jnp.minimum(x.count, x.size).astype(np.int64)
    stop = jnp.where(end < 0, end + real, jnp.minimum(end, real))
    size = x.size
    if is_known(ends) and as_dims(ends)[0] >= 0:
        size = min(size, as_dims(ends)[0])
    values = x.values[(np.s_[:],) * x.axis + (np.s_[firsts[k] : size],)]
    return Padded(values, jnp.maximum(stop - firsts[k], 0), x.axis)


lowest = functools.partial(least, sign=1)
highest = functools.partial(least, sign=-1)


def reduce(identity: Callable[[Any], Any]) -> Function:
    """A reduction: the padding becomes the identity of its operation."""

    def rule(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
        x, axes = args[0], _axes(args, attributes)
        if axes is None and (attributes.get("noop_with_empty_axes") or len(args) > 1):
            return None
        rank = x.values.ndim
        gone = {a % rank for a in axes} if axes is not None else set(range(rank))
        out = function(x.filled(identity(x.dtype)), *args[1:], **attributes)
        if x.axis in gone:
            return out
        kept = attributes.get("keepdims", 1)
        return Padded(out, x.count, x.axis if kept else x.axis - sum(a < x.axis for a in gone))

    return rule


def mean(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    out = reduce(lambda _: 0)(function, args, attributes)
    if out is None or isinstance(out, Padded):
        return out
    if not jnp.issubdtype(out.dtype, jnp.inexact):
        return None  # it has been rounded
    x = args[0]
    real = jnp.minimum(x.count, x.size)
    return out * (x.size / real.astype(np.float64)).astype(out.dtype)


_NOWHERE = np.iinfo(np.int32).max
"""The place of the largest of no elements: as an index it is out of any range."""


def arg(fill: Callable[[Any], Any]) -> Function:
    def rule(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
        (x,) = args
        axis = attributes.get("axis", 0) % x.values.ndim
        if axis == x.axis:
            out = function(x.filled(fill(x.dtype)), **attributes)
            last = (jnp.minimum(x.count, x.size) - 1).astype(out.dtype)
            found = jnp.minimum(out, last)  # the last of equal ones may be padding
            return jnp.where(last < 0, _NOWHERE, found)
        out = function(x.values, **attributes)
        lost = axis < x.axis and not attributes.get("keepdims", 1)
        return Padded(out, x.count, x.axis - lost)

    return rule


def _last(dtype: Any) -> Any:
    """What comes last in ascending order."""
    return np.nan if jnp.issubdtype(dtype, jnp.inexact) else highest(dtype)


def top_k(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    """``k`` may be traced: then all slices are sorted, and no more than ``k`` are real."""
    x, k = args
    if not isinstance(x, Padded):
        return None
    axis = attributes.get("axis", -1) % x.values.ndim
    if axis != x.axis:
        return tuple(Padded(r, x.count, x.axis) for r in function(x.values, k, **attributes))
    fill = lowest if attributes.get("largest", 1) else _last
    size = min(x.size, as_dims(k)[0]) if is_known(k) else x.size
    results = function(x.filled(fill(x.dtype)), np.array([size]), **attributes)
    wanted = jnp.asarray(k).reshape(()).astype(np.int64)
    count = jnp.minimum(jnp.minimum(x.count, x.size).astype(np.int64), wanted)
    return tuple(Padded(r, count, axis) for r in results)


def identity(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    """The input as it is."""
    del function, attributes
    return args[0]


over_zero = reduce(lambda _: 0)
over_one = reduce(lambda _: 1)
over_lowest = reduce(lowest)
over_highest = reduce(highest)
arg_max = arg(lowest)
arg_min = arg(highest)

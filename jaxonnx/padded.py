"""Arrays of a fixed size of which only a number of slices, known when they run, are real.

They come from operators whose result's shape depends on values, under a declared bound or in a
bucket. Each rule here says what an operator does to them so that the padding never reaches a real
element; an operator without a rule is refused rather than guessed.
"""

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxonnx.errors import DataDependentShapeError, UnpaddableError
from jaxonnx.known import as_dims, is_known, xp
from jaxonnx.registry import Operator

Attributes = Mapping[str, Any]
Function = Callable[..., Any]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Padded:
    """An array of which the first ``count`` slices along ``axis`` are real.

    What lies behind them is padding: -1 where an operator makes positions, else unspecified. A
    ``count`` above the size of the axis says that the bound was exceeded.

    Attributes:
        values: the array.
        count: the number of real slices, a scalar integer array.
        axis: the axis, counted from 0.
    """

    values: Any
    count: Any
    axis: int = dataclasses.field(metadata={"static": True})

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the values."""
        return self.values.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the values, padding included."""
        return self.values.shape

    @property
    def size(self) -> int:
        """The bound: the size of the axis."""
        return self.values.shape[self.axis]

    def cut(self) -> Any:
        """The real slices alone; only outside of a trace.

        Raises:
            DataDependentShapeError: if the bound was exceeded.
        """
        count = int(self.count)
        if count > self.size:
            raise DataDependentShapeError(f"{count} results, but the declared bound is {self.size}")
        return self.values[(np.s_[:],) * self.axis + (np.s_[:count],)]

    def real(self) -> Any:
        """A mask of the real slices, shaped to broadcast against the values."""
        steps = jnp.arange(self.size, dtype=jnp.int32) < self.count.astype(jnp.int32)
        return steps.reshape((-1,) + (1,) * (self.values.ndim - self.axis - 1))

    def filled(self, fill: Any) -> Any:
        """The values with the padding replaced."""
        return jnp.where(self.real(), self.values, jnp.asarray(fill, self.values.dtype))


def map_arrays(function: Callable[[Any], Any], value: Any) -> Any:
    """``jax.tree.map`` where a padded array is one leaf."""
    return jax.tree.map(function, value, is_leaf=lambda v: isinstance(v, Padded))


def cut(value: Any) -> Any:
    """A value with the padding cut off wherever there is some."""
    return map_arrays(lambda v: v.cut() if isinstance(v, Padded) else v, value)


def pad(values: Any, axis: int, size: int) -> Padded:
    """An array as the first slices of one of ``size`` along ``axis``, padded with -1 or 0."""
    count = values.shape[axis]
    widths = [(0, size - count if k == axis else 0) for k in range(values.ndim)]
    fill = -1 if np.issubdtype(values.dtype, np.signedinteger) else 0
    padded = xp(values).pad(values, widths, constant_values=np.asarray(fill, values.dtype))
    return Padded(padded, np.asarray(count, np.int64), axis)


def apply(
    operator: Operator, args: Sequence[Any], attributes: Attributes, title: str
) -> Sequence[Any]:
    """The outputs of an operator of whose inputs some are padded.

    Raises:
        UnpaddableError: if there is no exact rule for it.
    """
    rule = _RULES.get(operator.op_type) if operator.domain == "" else None
    if rule is None and operator.function.__module__ in _POINTWISE:
        rule = _pointwise
    result = None if rule is None else rule(operator.function, [*map(_tame, args)], attributes)
    if result is None:
        raise UnpaddableError(
            f"{title} cannot follow an input of which only a part is real; run the model outside "
            "of a trace without bounds or buckets"
        )
    return result if isinstance(result, tuple) else (result,)


def _tame(value: Any) -> Any:
    """A padded float with 1 as padding: what an operator makes of it has finite derivatives.

    Otherwise an infinite one at the padding, times its cotangent of 0, would be NaN for whatever
    the padding was computed from.
    """
    if not isinstance(value, Padded) or not jnp.issubdtype(value.dtype, jnp.inexact):
        return value
    return Padded(value.filled(1), value.count, value.axis)


_POINTWISE = tuple(
    f"jaxonnx.ops.{name}"
    for name in ("activation", "casting", "comparison", "elementwise", "transcendental")
)


def _pointwise(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    """Element-wise: all padded inputs have the same axis, seen from the right, and count."""
    padded = [a for a in args if isinstance(a, Padded)]
    first = padded[0]
    place = first.values.ndim - first.axis
    if any(p.count is not first.count or p.values.ndim - p.axis != place for p in padded):
        return None
    shapes = [np.shape(a) for a in args if a is not None and not isinstance(a, Padded)]
    if any(len(s) >= place and s[len(s) - place] != 1 for s in shapes):
        return None
    out = function(*(a.values if isinstance(a, Padded) else a for a in args), **attributes)
    return Padded(out, first.count, out.ndim - place)


def _default(function: Function, name: str) -> Any:
    return inspect.signature(function).parameters[name].default


def _attribute(function: Function, attributes: Attributes, name: str) -> Any:
    """An attribute's value, by default the one of the version in force."""
    return attributes[name] if name in attributes else _default(function, name)


def _softmax(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    (x,) = args
    axis = _attribute(function, attributes, "axis") % x.values.ndim
    flattens = _default(function, "axis") == 1  # before version 13
    if flattens and axis != x.values.ndim - 1:
        return None
    values = x.filled(-np.inf) if axis == x.axis else x.values
    return Padded(function(values, **attributes), x.count, x.axis)


def _shape(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    del function
    (x,) = args
    count = jnp.minimum(x.count, x.size).astype(np.int64)
    dims = [count if k == x.axis else jnp.asarray(d, np.int64) for k, d in enumerate(x.shape)]
    start, end = attributes.get("start", 0), attributes.get("end")
    return jnp.stack(dims)[start:end]


def _gather(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
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
    places = indices.values if isinstance(indices, Padded) else indices
    count = jnp.minimum(data.count, data.size).astype(places.dtype)
    out = function(data.values, jnp.where(places < 0, places + count, places), **attributes)
    return Padded(out, indices.count, axis + indices.axis) if isinstance(indices, Padded) else out


def _gather_nd(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    data, indices = args
    last = np.ndim(getattr(indices, "values", indices)) - 1
    if isinstance(data, Padded) or attributes.get("batch_dims", 0) or indices.axis == last:
        return None
    return Padded(function(data, indices.values, **attributes), indices.count, indices.axis)


def _transpose(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    (x,) = args
    perm = attributes.get("perm") or tuple(reversed(range(x.values.ndim)))
    return Padded(function(x.values, **attributes), x.count, tuple(perm).index(x.axis))


def _axes(args: Sequence[Any], attributes: Attributes) -> tuple[int, ...] | None:
    """Axes given as a second input or as an attribute; None where there are none."""
    if len(args) > 1 and args[1] is not None:
        return as_dims(args[1]) if is_known(args[1]) else None
    return attributes.get("axes")


def _unsqueeze(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    x, axes = args[0], _axes(args, attributes)
    if axes is None:
        return None
    rank = x.values.ndim + len(axes)
    new = {a % rank for a in axes}
    kept = [k for k in range(rank) if k not in new]
    return Padded(function(x.values, *args[1:], **attributes), x.count, kept[x.axis])


def _squeeze(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    x, axes = args[0], _axes(args, attributes)
    gone = {a % x.values.ndim for a in axes} if axes is not None else set()
    if axes is None or x.axis in gone:
        return None
    axis = x.axis - sum(a < x.axis for a in gone)
    return Padded(function(x.values, *args[1:], **attributes), x.count, axis)


def _reshape(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
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


def _concat(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    padded = [a for a in args if isinstance(a, Padded)]
    first, axis = padded[0], attributes.get("axis", 1)
    same = all(p.count is first.count and p.axis == first.axis for p in padded)
    if len(padded) < len(args) or not same or axis % first.values.ndim == first.axis:
        return None
    return Padded(function(*(a.values for a in args), **attributes), first.count, first.axis)


def _matmul(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    a, b = args
    if isinstance(b, Padded) or a.axis == a.values.ndim - 1 or np.ndim(b) != 2:
        return None
    return Padded(function(a.values, b, **attributes), a.count, a.axis)


def _gemm(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    a, *rest = args
    plain = isinstance(a, Padded) and not any(isinstance(r, Padded) for r in rest)
    bias_fits = len(rest) < 2 or rest[1] is None or np.ndim(rest[1]) < 2
    if not plain or a.axis != 0 or attributes.get("transA") or not bias_fits:
        return None
    return Padded(function(a.values, *rest, **attributes), a.count, 0)


def _slice(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
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


def _lowest(dtype: Any) -> Any:
    if jnp.issubdtype(dtype, np.bool_):
        return False
    return -np.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).min


def _highest(dtype: Any) -> Any:
    if jnp.issubdtype(dtype, np.bool_):
        return True
    return np.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).max


def _reduce(identity: Callable[[Any], Any]) -> Function:
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


def _mean(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    out = _reduce(lambda _: 0)(function, args, attributes)
    if out is None or isinstance(out, Padded):
        return out
    if not jnp.issubdtype(out.dtype, jnp.inexact):
        return None  # it has been rounded
    x = args[0]
    real = jnp.minimum(x.count, x.size)
    return out * (x.size / real.astype(np.float64)).astype(out.dtype)


def _arg(fill: Callable[[Any], Any]) -> Function:
    def rule(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
        (x,) = args
        axis = attributes.get("axis", 0) % x.values.ndim
        if axis == x.axis:
            out = function(x.filled(fill(x.dtype)), **attributes)
            last = jnp.maximum(jnp.minimum(x.count, x.size) - 1, 0).astype(out.dtype)
            return jnp.minimum(out, last)  # the last of equal ones may be padding
        out = function(x.values, **attributes)
        lost = axis < x.axis and not attributes.get("keepdims", 1)
        return Padded(out, x.count, x.axis - lost)

    return rule


def _top_k(function: Function, args: Sequence[Any], attributes: Attributes) -> Any:
    """``k`` may be traced: then all slices are sorted, and no more than ``k`` are real."""
    x, k = args
    if not isinstance(x, Padded):
        return None
    axis = attributes.get("axis", -1) % x.values.ndim
    if axis != x.axis:
        return tuple(Padded(r, x.count, x.axis) for r in function(x.values, k, **attributes))
    fill = _lowest if attributes.get("largest", 1) else _highest
    size = min(x.size, as_dims(k)[0]) if is_known(k) else x.size
    results = function(x.filled(fill(x.dtype)), np.array([size]), **attributes)
    wanted = jnp.asarray(k).reshape(()).astype(np.int64)
    count = jnp.minimum(jnp.minimum(x.count, x.size).astype(np.int64), wanted)
    return tuple(Padded(r, count, axis) for r in results)


_RULES: dict[str, Function] = {
    "ArgMax": _arg(_lowest),
    "ArgMin": _arg(_highest),
    "Concat": _concat,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "Gemm": _gemm,
    "Hardmax": lambda *_: None,  # no element-wise one, unlike the others of its module
    "Identity": lambda function, args, attributes: args[0],
    "LogSoftmax": _softmax,
    "MatMul": _matmul,
    "ReduceL1": _reduce(lambda _: 0),
    "ReduceL2": _reduce(lambda _: 0),
    "ReduceLogSum": _reduce(lambda _: 0),
    "ReduceLogSumExp": _reduce(_lowest),
    "ReduceMax": _reduce(_lowest),
    "ReduceMean": _mean,
    "ReduceMin": _reduce(_highest),
    "ReduceProd": _reduce(lambda _: 1),
    "ReduceSum": _reduce(lambda _: 0),
    "ReduceSumSquare": _reduce(lambda _: 0),
    "Reshape": _reshape,
    "Shape": _shape,
    "Slice": _slice,
    "Softmax": _softmax,
    "Squeeze": _squeeze,
    "TopK": _top_k,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}

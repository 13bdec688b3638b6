"""Activation functions, each with its derivative at the kink."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.convention import convention
from jaxonnx.define.kinks import kink
from jaxonnx.define.known import broadcasts_to, is_symbolic, maximum, minimum, same_dim
from jaxonnx.define.older import older
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops import _padding, _softmax
from jaxonnx.ops._axes import from_front
from jaxonnx.ops._precision import widened

__all__ = [
    "celu",
    "clip",
    "elu",
    "gelu",
    "hard_sigmoid",
    "hard_swish",
    "hardmax",
    "leaky_relu",
    "log_softmax",
    "mish",
    "prelu",
    "relu",
    "selu",
    "shrink",
    "sigmoid",
    "softmax",
    "softplus",
    "softsign",
    "swish",
    "thresholded_relu",
]

_FLOAT_MAX = float(np.finfo(np.float32).max)


def _relu_tangent(dx: Any, x: Any) -> Array:
    at_0 = convention().relu
    below = jnp.where(x < 0, 0, at_0 * dx) if at_0 else 0
    return jnp.where(x > 0, dx, below)


@register("Relu", 1, 6, 13, 14, elementwise=True)
@kink(_relu_tangent)
def relu(x: ArrayLike, /) -> Array:
    """``max(x, 0)``. Derivative at 0: 0, or as :func:`jaxonnx.derivatives` says."""
    return jnp.maximum(x, 0)


@register("LeakyRelu", 1, 6, 16, elementwise=True)
@kink(lambda dx, x, *, alpha: jnp.where(x > 0, dx, alpha * dx))
def leaky_relu(x: ArrayLike, /, *, alpha: float = 0.01) -> Array:
    """``x`` where positive, else ``alpha * x``. Derivative at 0: ``alpha``."""
    x = jnp.asarray(x)
    return jnp.where(x > 0, x, alpha * x)


@register("PRelu", 7, 9, 16, elementwise=True, weights=["slope"])
def prelu(x: ArrayLike, slope: ArrayLike, /) -> Array:
    """``x`` where positive, else ``slope * x``; ``slope`` broadcasts to the shape of ``x``.

    Derivatives at ``x = 0``: ``slope`` by ``x``, 0 by ``slope``. He et al. 2015,
    https://arxiv.org/abs/1502.01852.

    Raises:
        InvalidModelError: if ``slope`` would have to be larger than ``x``.
    """
    x, slope = jnp.asarray(x), jnp.asarray(slope)
    if not broadcasts_to(slope.shape, x.shape):
        raise _slope_error(slope, x, "one that broadcasts to it")
    return _scale_negative(x, slope)


@register("PRelu", 1, 6, elementwise=True, weights=["slope"])
def prelu_1(x: ArrayLike, slope: ArrayLike, /) -> Array:
    """PRelu where a ``slope`` of shape ``[C]`` goes by channel (axis 1) and one value is shared.

    A slope of any other rank broadcasts as in later versions.

    Raises:
        InvalidModelError: if ``slope`` is none of these.
    """
    x, slope = jnp.asarray(x), jnp.asarray(slope)
    if all(same_dim(s, 1) for s in slope.shape):
        return _scale_negative(x, slope.reshape(()))
    if slope.ndim != 1 or x.ndim <= 1:
        return prelu(x, slope)
    if not same_dim(slope.shape[0], x.shape[1]):
        raise _slope_error(slope, x, "one value or one for each channel (axis 1)")
    return _scale_negative(x, slope.reshape(*slope.shape, *[1] * (x.ndim - 2)))


def _scale_negative(x: Array, slope: Array) -> Array:
    # JAX's derivative is the stated one. A rule of our own would meet instantiated zeros for an
    # input that is not differentiated, and -inf times such a zero is NaN.
    return jnp.where(x > 0, x, slope * _nonpositive(x))


def _nonpositive(x: Any) -> Array:
    return jnp.where(x > 0, 0, x)


def _slope_error(slope: Array, x: Array, expected: str) -> InvalidModelError:
    return InvalidModelError(f"slope has shape {slope.shape} and x {x.shape}; expected {expected}")


def _elu_tangent(dx: Any, x: Any, *, alpha: float) -> Array:
    return jnp.where(x > 0, dx, alpha * jnp.exp(_nonpositive(x)) * dx)


@register("Elu", 1, 6, 22, elementwise=True)
@kink(_elu_tangent)
def elu(x: ArrayLike, /, *, alpha: float = 1.0) -> Array:
    """``x`` where positive, else ``alpha * (exp(x) - 1)``. Derivative at 0: ``alpha``.

    Clevert et al. 2015, https://arxiv.org/abs/1511.07289.
    """
    x = jnp.asarray(x)
    return jnp.where(x > 0, x, alpha * jnp.expm1(_nonpositive(x)))


@register("Selu", 6, 22, elementwise=True)
def selu(
    x: ArrayLike,
    /,
    *,
    alpha: float = 1.67326319217681884765625,
    gamma: float = 1.05070102214813232421875,
) -> Array:
    """``gamma * elu(x, alpha)``. Derivative at 0: ``gamma * alpha``.

    Klambauer et al. 2017, https://arxiv.org/abs/1706.02515.
    """
    return gamma * elu(x, alpha=alpha)


selu_1 = older(selu, 1)


def _celu_tangent(dx: Any, x: Any, *, alpha: float) -> Array:
    return jnp.where(x > 0, dx, jnp.exp(_nonpositive(x) / alpha) * dx)


@register("Celu", 12, 28, elementwise=True)
@kink(_celu_tangent)
def celu(x: ArrayLike, /, *, alpha: float = 1.0) -> Array:
    """``x`` where positive, else ``alpha * (exp(x / alpha) - 1)``. Derivative at 0: 1.

    Barron 2017, https://arxiv.org/abs/1704.07483.
    """
    x = jnp.asarray(x)
    return jnp.where(x > 0, x, alpha * jnp.expm1(_nonpositive(x) / alpha))


@register("ThresholdedRelu", 10, 22, elementwise=True)
@kink(lambda dx, x, *, alpha: jnp.where(x > alpha, dx, 0))
def thresholded_relu(x: ArrayLike, /, *, alpha: float = 1.0) -> Array:
    """``x`` where above ``alpha``, else 0. Derivative at ``alpha``: 0.

    Konda et al. 2014, https://arxiv.org/abs/1402.3337.
    """
    x = jnp.asarray(x)
    return jnp.where(x > alpha, x, 0)


def _hard_sigmoid_tangent(dx: Any, x: Any, *, alpha: float, beta: float) -> Array:
    line = alpha * x + beta
    return jnp.where((line > 0) & (line < 1), alpha * dx, 0)


@register("HardSigmoid", 1, 6, 22, elementwise=True)
@kink(_hard_sigmoid_tangent)
def hard_sigmoid(x: ArrayLike, /, *, alpha: float = 0.2, beta: float = 0.5) -> Array:
    """``alpha * x + beta`` kept within 0 and 1. Derivative at both ends: 0."""
    return jnp.clip(alpha * jnp.asarray(x) + beta, 0, 1)


_BEND = 3
"""Where HardSwish becomes 0 and ``x``, in magnitude."""


def _hard_swish_tangent(dx: Any, x: Any) -> Array:
    slope = jnp.clip(x, -_BEND, _BEND) / 3 + 0.5
    return jnp.where(x <= -_BEND, 0, jnp.where(x >= _BEND, dx, slope * dx))


@register("HardSwish", 14, 22, elementwise=True)
@kink(_hard_swish_tangent)
def hard_swish(x: ArrayLike, /) -> Array:
    """``x * max(0, min(1, x / 6 + 1 / 2))``. Derivatives at -3 and 3: 0 and 1.

    Howard et al. 2019, https://arxiv.org/abs/1905.02244.
    """
    x = jnp.asarray(x)
    inner = jnp.clip(x, -_BEND, _BEND)
    bent = jnp.where(x <= -_BEND, 0, inner * (inner / 6 + 0.5))  # rounding would leave a trace
    return jnp.where(x > _BEND, x, bent)


@register("Mish", 18, 22, elementwise=True)
def mish(x: ArrayLike, /) -> Array:
    """``x * tanh(log(1 + exp(x)))``. Misra 2019, https://arxiv.org/abs/1908.08681."""
    return _gated(x, lambda z: jnp.tanh(jax.nn.softplus(z)), reach=1000)


@register("Swish", 24, elementwise=True)
def swish(x: ArrayLike, /, *, alpha: float = 1.0) -> Array:
    """``x * sigmoid(alpha * x)``. Ramachandran et al. 2017, https://arxiv.org/abs/1710.05941."""
    return _gated(x, jax.nn.sigmoid, alpha=alpha, reach=1000)


_NORMAL_CDF = {
    "none": lambda z: 0.5 * (1 + lax.erf(z * math.sqrt(0.5))),
    "tanh": lambda z: 0.5 * (1 + jnp.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))),
}


@register("Gelu", 20, elementwise=True)
def gelu(x: ArrayLike, /, *, approximate: str = "none") -> Array:
    """``x`` times the normal distribution function at ``x``, or times its ``tanh`` approximation.

    Hendrycks and Gimpel 2016, https://arxiv.org/abs/1606.08415.

    Raises:
        InvalidModelError: if ``approximate`` is neither ``"none"`` nor ``"tanh"``.
    """
    if approximate not in _NORMAL_CDF:
        raise InvalidModelError(f"approximate is {approximate!r}, expected 'none' or 'tanh'")
    return _gated(x, _NORMAL_CDF[approximate], reach=40)


def _gated(
    x: ArrayLike, gate: Callable[[Array], Array], *, alpha: float = 1.0, reach: float
) -> Array:
    """``x * gate(alpha * x)`` for a gate that rises from 0 to 1.

    Beyond ``reach`` the gate is 0 or 1 in every dtype. Taking the limit there keeps ``inf * 0``
    out of the value and of derivatives of any order. Half precision is computed in single, since
    a gate such as ``1 + erf`` cancels for negative arguments.
    """
    x = jnp.asarray(x)
    wide = widened(x)
    far = jnp.abs(alpha * wide) > reach
    limit = jnp.where(alpha * wide > 0, wide, 0)
    near = jnp.where(far, 0, wide)
    return jnp.where(far, limit, near * gate(alpha * near)).astype(x.dtype)


@register("Sigmoid", 1, 6, 13, elementwise=True)
def sigmoid(x: ArrayLike, /) -> Array:
    """``1 / (1 + exp(-x))``."""
    return jax.nn.sigmoid(x)


@register("Softplus", 1, 22, elementwise=True)
def softplus(x: ArrayLike, /) -> Array:
    """``log(exp(x) + 1)``."""
    return jax.nn.softplus(x)


def _softsign_tangent(dx: Any, x: Any) -> Array:
    scale = 1 + jnp.abs(x)
    return dx / scale / scale


@register("Softsign", 1, 22, elementwise=True)
@kink(_softsign_tangent)
def softsign(input: ArrayLike, /) -> Array:
    """``x / (1 + |x|)``, 1 and -1 at the infinities. Derivative at 0: 1."""
    x = jnp.asarray(input)
    return jnp.where(jnp.isinf(x), jnp.sign(x), x / (1 + jnp.abs(x)))


@register("Softmax", 13, padding=_padding.softmax)
def softmax(input: ArrayLike, /, *, axis: int = -1) -> Array:
    """``exp(x) / sum(exp(x))`` along ``axis``; half precision is computed in single.

    Raises:
        InvalidModelError: if there is no such axis.
    """
    x = jnp.asarray(input)
    return _softmax.softmax(widened(x), axes=(from_front(axis, x.ndim),)).astype(x.dtype)


@register("Softmax", 1, 11, padding=_padding.softmax)
def softmax_1(input: ArrayLike, /, *, axis: int = 1) -> Array:
    """Softmax over all dimensions from ``axis`` on, taken together."""
    x = jnp.asarray(input)
    return _softmax.softmax(widened(x), axes=_from(axis, x)).astype(x.dtype)


@register("LogSoftmax", 13, padding=_padding.softmax)
def log_softmax(input: ArrayLike, /, *, axis: int = -1) -> Array:
    """``x - log(sum(exp(x)))`` along ``axis``; half precision is computed in single.

    Raises:
        InvalidModelError: if there is no such axis.
    """
    x = jnp.asarray(input)
    return _softmax.log_softmax(widened(x), axes=(from_front(axis, x.ndim),)).astype(x.dtype)


@register("LogSoftmax", 1, 11, padding=_padding.softmax)
def log_softmax_1(input: ArrayLike, /, *, axis: int = 1) -> Array:
    """LogSoftmax over all dimensions from ``axis`` on, taken together."""
    x = jnp.asarray(input)
    return _softmax.log_softmax(widened(x), axes=_from(axis, x)).astype(x.dtype)


@register("Hardmax", 13)
def hardmax(input: ArrayLike, /, *, axis: int = -1) -> Array:
    """1 at the first maximum along ``axis``, else 0. Derivative: 0.

    Raises:
        InvalidModelError: if there is no such axis.
    """
    x = jnp.asarray(input)
    axis = from_front(axis, x.ndim)
    if any(same_dim(d, 0) for d in x.shape):
        return x
    first = lax.argmax(x, axis, np.int32)
    return jax.nn.one_hot(first, x.shape[axis], dtype=x.dtype, axis=axis)


@register("Hardmax", 1, 11)
def hardmax_1(input: ArrayLike, /, *, axis: int = 1) -> Array:
    """Hardmax over all dimensions from ``axis`` on, taken together."""
    x = jnp.asarray(input)
    axis = from_front(axis, x.ndim)
    rows = x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
    return hardmax(rows).reshape(x.shape)


def _from(axis: int, x: Array) -> tuple[int, ...]:
    """The axes from ``axis`` on."""
    return tuple(range(from_front(axis, x.ndim), x.ndim))


@register("Shrink", 9, elementwise=True)
def shrink(input: ArrayLike, /, *, bias: float = 0.0, lambd: float = 0.5) -> Array:
    """``x + bias`` below ``-lambd``, ``x - bias`` above ``lambd``, else 0.

    Derivative at both thresholds: 0. Integers are compared exactly, and sums truncated.
    """
    x = jnp.asarray(input)
    low, high = -lambd, lambd
    if jnp.issubdtype(x.dtype, np.integer):
        whole, limits = math.floor(lambd), np.iinfo(x.dtype)
        low, high = max(-whole, limits.min), min(whole, limits.max)
    below, above = _plus(x, bias), _plus(x, -bias)
    return jnp.where(x < low, below, jnp.where(x > high, above, 0))


def _plus(x: Array, bias: float) -> Array:
    """``x + bias`` in the dtype of ``x``, truncated toward 0 as a cast would."""
    if not jnp.issubdtype(x.dtype, np.integer):
        return x + bias
    whole = x + np.asarray(math.floor(bias)).astype(x.dtype)
    return whole + ((whole < 0) & (bias % 1 > 0)).astype(x.dtype)


@register("Clip", 11, 12, 13, symbolic=True, elementwise=True, settings=["min", "max"])
def clip(input: ArrayLike, min: ArrayLike | None = None, max: ArrayLike | None = None, /) -> Array:
    """``minimum(maximum(x, min), max)`` with scalar bounds; an absent bound bounds nothing.

    Derivative at a bound: 1 by ``x`` if ``min < max``. Where the result is a bound's value, that
    bound has the derivative 1; if ``min >= max`` this is ``max`` everywhere. NaN passes.

    Raises:
        InvalidModelError: if a bound has more than one element.
    """
    if any(map(is_symbolic, (input, min, max))):
        return _clip_dimensions(input, min, max)
    x = jnp.asarray(input)
    return _clip(x, _bound("min", min, x), _bound("max", max, x))


def _clip_dimensions(x: Any, low: Any, high: Any) -> Any:
    above = x if low is None else maximum(x, low.reshape(()))
    return above if high is None else minimum(above, high.reshape(()))


def _bound(name: str, value: ArrayLike | None, x: Array) -> Array | None:
    if value is None:
        return None
    bound = jnp.asarray(value, x.dtype)
    if not all(same_dim(d, 1) for d in bound.shape):
        raise InvalidModelError(f"{name} has shape {bound.shape}, expected a scalar")
    return bound.reshape(())


def _clip_tangent(dx: Any, dlow: Any, dhigh: Any, x: Any, low: Any, high: Any) -> Array:
    inside = convention().clip == "inside"
    tangent = dx
    if low is not None:
        tangent = jnp.where(x <= low if inside else x < low, dlow, tangent)
    if high is not None:
        tangent = jnp.where(x >= high if inside else x > high, dhigh, tangent)
    return tangent if low is None or high is None else jnp.where(low < high, tangent, dhigh)


@kink(_clip_tangent)
def _clip(x: Array, low: Array | None, high: Array | None, /) -> Array:
    above = x if low is None else jnp.maximum(x, low)
    return above if high is None else jnp.minimum(above, high)


@register("Clip", 1, 6, elementwise=True)
def clip_1(input: ArrayLike, /, *, max: float = _FLOAT_MAX, min: float = -_FLOAT_MAX) -> Array:
    """Clip with bounds as attributes, by default the ends of the range of float32.

    These ends bound infinity as float32, and nothing in other types.
    """
    x = jnp.asarray(input)
    if x.dtype == np.float32:
        return clip(x, min, max)
    return clip(x, None if min <= -_FLOAT_MAX else min, None if max >= _FLOAT_MAX else max)

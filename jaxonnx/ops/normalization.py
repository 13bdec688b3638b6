"""Normalizations: by the statistics of batches, channels, layers or neighbours."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.dtypes import dtype_of
from jaxonnx.define.known import same_dim
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops import elementwise
from jaxonnx.ops._axes import from_front, per_channel
from jaxonnx.ops._precision import widened, widened_alike

__all__ = [
    "batch_normalization",
    "group_normalization",
    "instance_normalization",
    "layer_normalization",
    "lp_normalization",
    "lrn",
    "mean_variance_normalization",
    "rms_normalization",
]

EPSILON = 9.999999747378752e-06  # the schemas' 1e-5, which is single precision


def _moments(x: Array, axes: Sequence[int]) -> tuple[Array, Array]:
    """Mean and population variance; ``axes`` become 1."""
    mean = jnp.mean(x, axes, keepdims=True)
    return mean, jnp.mean(jnp.square(x - mean), axes, keepdims=True)


def _standardized(x: Array, axes: Sequence[int], epsilon: float) -> Array:
    mean, variance = _moments(x, axes)
    return (x - mean) / jnp.sqrt(variance + epsilon)


@register(
    "BatchNormalization", 14, 15, weights=["scale", "b"], statistics=["input_mean", "input_var"]
)
def batch_normalization(
    x: ArrayLike,
    scale: ArrayLike,
    b: ArrayLike,
    input_mean: ArrayLike,
    input_var: ArrayLike,
    /,
    *,
    epsilon: float = EPSILON,
    momentum: float = 0.8999999761581421,
    training_mode: int = 0,
    outputs: int = 1,
) -> Any:
    """``(x - mean) / sqrt(var + epsilon) * scale + b`` per channel of ``x`` (N, C, D1, ...).

    Mean and population variance are those given or, with ``training_mode``, those of ``x``; the
    further outputs are then ``given * momentum + current * (1 - momentum)``.
    https://arxiv.org/abs/1502.03167

    Raises:
        InvalidModelError: if a parameter has not C elements, or running statistics are asked for
            without ``training_mode``.
    """
    if outputs > 1 and not training_mode:
        raise InvalidModelError(f"{outputs} outputs, expected 1 without training_mode")
    parameters = (scale, b, input_mean, input_var)
    results = _batch_norm(x, parameters, bool(training_mode), epsilon, momentum)
    return results[:outputs] if outputs > 1 else results[0]


@register("BatchNormalization", 9, weights=["scale", "b"], statistics=["mean", "var"])
def batch_normalization_9(
    x: ArrayLike,
    scale: ArrayLike,
    b: ArrayLike,
    mean: ArrayLike,
    var: ArrayLike,
    /,
    *,
    epsilon: float = EPSILON,
    momentum: float = 0.8999999761581421,
    outputs: int = 1,
) -> Any:
    """Batch normalization that trains where more outputs than the first are wanted.

    They are running mean and variance, and mean and population variance of ``x``.
    """
    results = _batch_norm(x, (scale, b, mean, var), outputs > 1, epsilon, momentum)
    return results[:outputs] if outputs > 1 else results[0]


@register("BatchNormalization", 7, weights=["scale", "b"], statistics=["mean", "var"])
def batch_normalization_7(
    x: ArrayLike,
    scale: ArrayLike,
    b: ArrayLike,
    mean: ArrayLike,
    var: ArrayLike,
    /,
    *,
    epsilon: float = EPSILON,
    momentum: float = 0.8999999761581421,
    spatial: int = 1,
    outputs: int = 1,
) -> Any:
    """Version 9, or the same per element (C, D1, ...) instead of per channel if not ``spatial``."""
    results = _batch_norm(
        x, (scale, b, mean, var), outputs > 1, epsilon, momentum, spatial=bool(spatial)
    )
    return results[:outputs] if outputs > 1 else results[0]


@register("BatchNormalization", 1, 6, weights=["scale", "b"], statistics=["mean", "var"])
def batch_normalization_1(
    x: ArrayLike,
    scale: ArrayLike,
    b: ArrayLike,
    mean: ArrayLike,
    var: ArrayLike,
    /,
    *,
    epsilon: float = EPSILON,
    is_test: int = 0,
    momentum: float = 0.8999999761581421,
    spatial: int = 1,
    outputs: int = 1,
) -> Any:
    """Version 7; a node with one output does not train, whatever ``is_test`` says.

    Raises:
        InvalidModelError: if more outputs are wanted with ``is_test``.
    """
    if outputs > 1 and is_test:
        raise InvalidModelError(f"{outputs} outputs, expected 1 with is_test")
    return batch_normalization_7(
        x,
        scale,
        b,
        mean,
        var,
        epsilon=epsilon,
        momentum=momentum,
        spatial=spatial,
        outputs=outputs,
    )


def _batch_norm(
    x: ArrayLike,
    parameters: Sequence[ArrayLike],
    training: bool,
    epsilon: float,
    momentum: float,
    *,
    spatial: bool = True,
) -> tuple[Array, ...]:
    """Y, running mean and variance, mean and variance, from scale, bias, mean and variance."""
    x, given = jnp.asarray(x), [jnp.asarray(p) for p in parameters]
    shape = (x.shape[1:2] or (1,)) if spatial else x.shape[1:]  # a single dimension is the batch
    for name, value in zip(("scale", "B", "mean", "var"), given, strict=True):
        if value.ndim != len(shape) or not all(map(same_dim, value.shape, shape)):
            raise InvalidModelError(f"{name} has shape {value.shape}, expected {shape}")
    wide, *wides = widened_alike(x, *given)
    scale, b, mean, var = (
        v.reshape(*shape, *[1] * (x.ndim - 1 - len(shape))) if x.ndim > 1 else v for v in wides
    )
    used = mean, var
    if training:
        used = _moments(wide, [a for a in range(x.ndim) if a != 1] if spatial else [0])
    y = (wide - used[0]) / jnp.sqrt(used[1] + epsilon) * scale + b
    current = [v.reshape(shape) for v in used]
    running = [
        old * momentum + new * (1 - momentum) for old, new in zip(wides[2:], current, strict=True)
    ]
    return y.astype(x.dtype), *(v.astype(given[2].dtype) for v in (*running, *current))


@register("InstanceNormalization", 1, 6, 22, weights=["scale", "b"])
def instance_normalization(
    input: ArrayLike, scale: ArrayLike, b: ArrayLike, /, *, epsilon: float = EPSILON
) -> Array:
    """Each channel of each instance to mean 0 and variance 1, times ``scale``, plus ``b``.

    ``input`` is (N, C, D1, ...), ``scale`` and ``b`` are (C). https://arxiv.org/abs/1607.08022

    Raises:
        InvalidModelError: if ``scale`` or ``b`` has not C elements.
    """
    x = jnp.asarray(input)
    wide, scale, b = widened_alike(x, per_channel("scale", scale, x), per_channel("B", b, x))
    return (_standardized(wide, range(2, x.ndim), epsilon) * scale + b).astype(x.dtype)


def _grouped(x: Array, num_groups: int) -> Array:
    """``x`` (N, C, D1, ...) as (N, num_groups, C / num_groups, D1, ...)."""
    batch, channels, *sizes = x.shape
    if channels % num_groups:
        raise InvalidModelError(f"X has {channels} channels, expected a multiple of {num_groups=}")
    return x.reshape(batch, num_groups, channels // num_groups, *sizes)


@register("GroupNormalization", 21, weights=["scale", "bias"])
def group_normalization(
    x: ArrayLike,
    scale: ArrayLike,
    bias: ArrayLike,
    /,
    *,
    epsilon: float = EPSILON,
    num_groups: int,
    stash_type: int = 1,
) -> Array:
    """Groups of channels to mean 0 and variance 1, times ``scale`` (C), plus ``bias`` (C).

    Statistics are taken in the precision of ``stash_type``, at least single and never less than
    that of ``x``. https://arxiv.org/abs/1803.08494

    Raises:
        InvalidModelError: if the channels are no multiple of ``num_groups``, or ``scale`` or
            ``bias`` has not C elements.
    """
    x = jnp.asarray(x)
    groups = _grouped(x, num_groups).astype(_stash(x, stash_type))
    y = _standardized(groups, range(2, groups.ndim), epsilon).reshape(x.shape).astype(x.dtype)
    return y * per_channel("scale", scale, x) + per_channel("bias", bias, x)


@register("GroupNormalization", 18, weights=["scale", "bias"])
def group_normalization_18(
    x: ArrayLike,
    scale: ArrayLike,
    bias: ArrayLike,
    /,
    *,
    epsilon: float = EPSILON,
    num_groups: int,
) -> Array:
    """Group normalization with one element of ``scale`` and ``bias`` per group.

    Raises:
        InvalidModelError: if the channels are no multiple of ``num_groups``, or ``scale`` or
            ``bias`` has not ``num_groups`` elements.
    """
    x = jnp.asarray(x)
    groups, *parameters = widened_alike(
        _grouped(x, num_groups),
        per_channel("scale", scale, x, num_groups),
        per_channel("bias", bias, x, num_groups),
    )
    scale, bias = (v[:, None] for v in parameters)
    y = _standardized(groups, range(2, groups.ndim), epsilon) * scale + bias
    return y.reshape(x.shape).astype(x.dtype)


def _stash(x: Array, stash_type: int) -> Any:
    """The dtype of statistics: double if ``stash_type`` or ``x`` is, else single."""
    dtype = dtype_of(stash_type)
    if dtype is None or not jnp.issubdtype(dtype, np.floating):
        raise InvalidModelError(f"stash_type is {stash_type}, expected a floating-point type")
    return np.float64 if np.float64 in (dtype, x.dtype) else np.float32


def _last_axes(x: Array, axis: int) -> range:
    """The axes from ``axis`` on."""
    return range(from_front(axis, x.ndim), x.ndim)


@register("LayerNormalization", 17, weights=["scale", "b"])
def layer_normalization(
    x: ArrayLike,
    scale: ArrayLike,
    b: ArrayLike | None = None,
    /,
    *,
    axis: int = -1,
    epsilon: float = EPSILON,
    stash_type: int = 1,
    outputs: int = 1,
) -> Any:
    """Dimensions from ``axis`` on to mean 0 and variance 1, times ``scale``, plus ``b``.

    Mean and ``1 / sqrt(variance + epsilon)``, the further outputs, have the type ``stash_type``.
    They are computed at least in single precision and never in less than that of ``x``.
    https://arxiv.org/abs/1607.06450

    Raises:
        InvalidModelError: if ``axis`` or ``stash_type`` is out of range.
    """
    x = jnp.asarray(x)
    wide = x.astype(_stash(x, stash_type))
    mean, variance = _moments(wide, _last_axes(x, axis))
    inverse = 1 / jnp.sqrt(variance + epsilon)
    y = ((wide - mean) * inverse).astype(x.dtype) * jnp.broadcast_to(scale, x.shape)
    if b is not None:
        y = y + jnp.broadcast_to(b, x.shape)
    stash = dtype_of(stash_type)
    return (y, mean.astype(stash), inverse.astype(stash))[:outputs] if outputs > 1 else y


@register("RMSNormalization", 23, weights=["scale"])
def rms_normalization(
    x: ArrayLike,
    scale: ArrayLike,
    /,
    *,
    axis: int = -1,
    epsilon: float = EPSILON,
    stash_type: int = 1,
) -> Array:
    """Dimensions from ``axis`` on divided by their root mean square, times ``scale``.

    The root is computed in the precision of ``stash_type``, at least single and never less than
    that of ``x``; the result has the type of ``scale``. https://arxiv.org/abs/1910.07467

    Raises:
        InvalidModelError: if ``axis`` or ``stash_type`` is out of range.
    """
    x, scale = jnp.asarray(x), jnp.asarray(scale)
    wide = x.astype(_stash(x, stash_type))
    square = jnp.mean(jnp.square(wide), _last_axes(x, axis), keepdims=True)
    y = (wide / jnp.sqrt(square + epsilon)).astype(x.dtype)
    return y.astype(scale.dtype) * jnp.broadcast_to(scale, x.shape)


@register("LRN", 1, 13)
def lrn(
    x: ArrayLike,
    /,
    *,
    alpha: float = 9.999999747378752e-05,
    beta: float = 0.75,
    bias: float = 1.0,
    size: int,
) -> Array:
    """``x / (bias + alpha / size * s) ** beta``, ``s`` the sum of squares over ``size`` channels.

    They are those around each channel of ``x`` (N, C, D1, ...), an even ``size`` having one more
    above. Alex Krizhevsky et al., ImageNet Classification with Deep Convolutional Neural Networks.
    """
    x = jnp.asarray(x)
    wide = widened(jnp.asarray(x))
    rest = (1,) * (x.ndim - 2)
    window, pads = (1, size, *rest), ((0, 0), ((size - 1) // 2, size // 2), *((0, 0) for _ in rest))
    total = lax.reduce_window(
        wide * wide, np.zeros((), wide.dtype), lax.add, window, (1,) * x.ndim, pads
    )
    return (wide / (bias + alpha / size * total) ** beta).astype(x.dtype)


@register("LpNormalization", 1, 22)
def lp_normalization(input: ArrayLike, /, *, axis: int = -1, p: int = 2) -> Array:
    """``input`` divided by its ``p``-norm along ``axis``. Where that is 0: 0, its derivative too.

    Raises:
        InvalidModelError: if ``p`` is not 1 or 2.
    """
    if p not in (1, 2):
        raise InvalidModelError(f"p is {p}, expected 1 or 2")
    x = jnp.asarray(input)
    wide = widened(jnp.asarray(x))
    total = jnp.sum(elementwise.abs(wide) if p == 1 else wide * wide, axis, keepdims=True)
    positive = jnp.where(total > 0, total, 1)
    y = wide / (positive if p == 1 else jnp.sqrt(positive))
    return jnp.where(total > 0, y, 0).astype(x.dtype)


@register("MeanVarianceNormalization", 9, 13)
def mean_variance_normalization(x: ArrayLike, /, *, axes: Sequence[int] = (0, 2, 3)) -> Array:
    """``x`` to mean 0 and standard deviation 1 over ``axes``.

    It divides by the deviation plus 1e-9. Derivative of the deviation at 0: 0.
    """
    x = jnp.asarray(x)
    wide = widened(jnp.asarray(x))
    mean, variance = _moments(wide, tuple(axes))
    deviation = jnp.where(variance > 0, jnp.sqrt(jnp.where(variance > 0, variance, 1)), 0)
    return ((wide - mean) / (deviation + 1e-9)).astype(x.dtype)

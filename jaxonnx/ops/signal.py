"""Fourier transforms, windows and the mel scale."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.dtypes import dtype_of
from jaxonnx.define.known import as_dims, shape_is_symbolic
from jaxonnx.define.older import older
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops._precision import wide

__all__ = [
    "blackman_window",
    "dft",
    "hamming_window",
    "hann_window",
    "mel_weight_matrix",
    "stft",
]

_FLOAT = 1  # ONNX's number of float32


@register("DFT", 20, static=["dft_length", "axis"])
def dft(
    input: ArrayLike,
    dft_length: ArrayLike | None = None,
    axis: ArrayLike | None = None,
    /,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Array:
    """Discrete Fourier transform along ``axis`` (-2 if absent), half types in float32.

    The last dimension holds real and imaginary part, or the real part alone. The signal is cut or
    zero-padded to ``dft_length``. With ``onesided``, the transform gives the ``dft_length // 2 +
    1`` first bins of a real signal, and the inverse a real signal from them.

    Raises:
        InvalidModelError: if ``axis`` is out of range or the last one, or ``onesided`` meets a
            complex signal, or real bins.
    """
    x = jnp.asarray(input)
    along = -2 if axis is None else as_dims(axis)[0]
    if not -x.ndim <= along < x.ndim or along % x.ndim == x.ndim - 1:
        raise InvalidModelError(f"axis is {along}, expected one of {x.ndim - 1} signal dimensions")
    along %= x.ndim
    length = None if dft_length is None else as_dims(dft_length)[0]
    signal = _complex(x)
    if onesided and jnp.iscomplexobj(signal) != bool(inverse):
        kind = "one-sided bins are complex" if inverse else "a one-sided transform takes real input"
        raise InvalidModelError(f"shape {x.shape} ends in {x.shape[-1]} parts, but {kind}")
    if not inverse:
        bins = _forward(signal, length, along, onesided)
    elif onesided:
        bins = jnp.fft.irfft(signal, length, along)
    else:
        bins = jnp.fft.ifft(signal, length, along)
    return _parts(bins, x.dtype)


dft_17 = older(dft, 17)


@register("STFT", 17, static=["frame_step", "frame_length"], settings=["window"])
def stft(
    signal: ArrayLike,
    frame_step: ArrayLike,
    window: ArrayLike | None = None,
    frame_length: ArrayLike | None = None,
    /,
    *,
    onesided: int = 1,
) -> Array:
    """Fourier transforms of the windowed frames that start every ``frame_step`` samples.

    The signal is (batch, length, parts), or (batch, length) where it is real; the result is
    (batch, frames, bins, 2). Frames have the length of the window, or ``frame_length``, or that of
    the signal. Half types are transformed in float32.

    Raises:
        InvalidModelError: if the window has another length than the frames, or ``onesided``
            meets a complex signal.
    """
    x = jnp.asarray(signal)
    if x.ndim < 3:  # torch.onnx writes it so, and onnxruntime takes it
        x = x[..., None]
    size: Any = x.shape[1] if window is None else jnp.shape(window)[0]
    if frame_length is not None:
        (size,) = as_dims(frame_length)
    if window is not None:
        if jnp.shape(window) != (size,):
            raise InvalidModelError(f"window has shape {jnp.shape(window)}, expected ({size},)")
        window = jnp.asarray(window).astype(wide(x.dtype))
    (step,) = as_dims(frame_step)
    if shape_is_symbolic((step,)) or step < 1:
        raise InvalidModelError(f"frame_step is {step}, expected a positive number")
    starts = jnp.arange((x.shape[1] - size) // step + 1, dtype=np.int32) * step
    cut = jax.vmap(lambda s: lax.dynamic_slice_in_dim(x, s, size, axis=1), out_axes=1)
    frames = _complex(cut(starts))
    if onesided and jnp.iscomplexobj(frames):
        raise InvalidModelError(f"the signal of shape {x.shape} is complex, but onesided is 1")
    frames = frames if window is None else frames * window
    return _parts(_forward(frames, size, frames.ndim - 1, onesided), x.dtype)


def _forward(signal: Array, length: Any, axis: int, onesided: int) -> Array:
    """The transform; a real signal's is mirrored, so that its real bins are exactly real."""
    if jnp.iscomplexobj(signal):
        return jnp.fft.fft(signal, length, axis)
    bins = jnp.fft.rfft(signal, length, axis)
    if onesided:
        return bins
    length = signal.shape[axis] if length is None else length
    mirrored = lax.slice_in_dim(bins, 1, length - length // 2, axis=axis)
    return jnp.concatenate([bins, jnp.flip(mirrored, axis).conj()], axis)


def _complex(x: Array) -> Array:
    """The complex array, or the real one, whose parts are in the last dimension of ``x``."""
    if x.ndim == 0 or x.shape[-1] not in (1, 2):
        raise InvalidModelError(f"shape {x.shape}, expected 1 or 2 parts in the last dimension")
    x = x.astype(wide(x.dtype))
    if x.shape[-1] == 1:
        return x[..., 0]
    return lax.complex(x[..., 0], x[..., 1])


def _parts(x: Array, dtype: Any) -> Array:
    """Real and imaginary part, the latter if there is one, in a new last dimension."""
    parts = [x.real, x.imag] if jnp.iscomplexobj(x) else [x]
    return jnp.stack(parts, axis=-1).astype(dtype)


@register("HannWindow", 17, static=["size"])
def hann_window(size: ArrayLike, /, *, output_datatype: int = _FLOAT, periodic: int = 1) -> Array:
    """``0.5 - 0.5 * cos(t)``, ``t`` over one period of ``size`` samples (less one if symmetric)."""
    return _cosine_window(size, (0.5, 0.5), output_datatype, periodic)


@register("HammingWindow", 17, static=["size"])
def hamming_window(
    size: ArrayLike, /, *, output_datatype: int = _FLOAT, periodic: int = 1
) -> Array:
    """``25/46 - 21/46 * cos(t)``, otherwise as :func:`hann_window`."""
    return _cosine_window(size, (25 / 46, 21 / 46), output_datatype, periodic)


@register("BlackmanWindow", 17, static=["size"])
def blackman_window(
    size: ArrayLike, /, *, output_datatype: int = _FLOAT, periodic: int = 1
) -> Array:
    """``0.42 - 0.5 * cos(t) + 0.08 * cos(2 * t)``, otherwise as :func:`hann_window`."""
    return _cosine_window(size, (0.42, 0.5, 0.08), output_datatype, periodic)


def _cosine_window(
    size: ArrayLike, coefficients: tuple[float, ...], output_datatype: int, periodic: int
) -> Array:
    """``sum(c[n] * cos(n * t))`` with ``t`` counted from the peak, where the sum is exactly 1."""
    dtype = _dtype(output_datatype)
    kind = np.float64 if dtype == np.float64 else np.float32
    (length,) = as_dims(size)
    period = jnp.asarray(length if periodic else length - 1, kind)
    t = (2 * jnp.arange(length, dtype=kind) - period) * (math.pi / jnp.maximum(period, 1))
    window = jnp.ones_like(t)
    for n, c in enumerate(coefficients):
        window = window - c * (1 - jnp.cos(n * t))
    return window.astype(dtype)


@register(
    "MelWeightMatrix",
    17,
    static=["num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"],
    settings=["lower_edge_hertz", "upper_edge_hertz"],
)
def mel_weight_matrix(
    num_mel_bins: ArrayLike,
    dft_length: ArrayLike,
    sample_rate: ArrayLike,
    lower_edge_hertz: ArrayLike,
    upper_edge_hertz: ArrayLike,
    /,
    *,
    output_datatype: int = _FLOAT,
) -> Array:
    """Triangles of height 1 over the bins of a DFT: (``dft_length // 2 + 1``, ``num_mel_bins``).

    Their ends are equally spaced in ``mel(f) = 2595 * log10(1 + f / 700)``, rounded down to bins.
    """
    (bands,), (length,), (rate,) = map(as_dims, (num_mel_bins, dft_length, sample_rate))
    edges = np.asarray([np.asarray(e).item() for e in (lower_edge_hertz, upper_edge_hertz)])
    low, high = 2595 * np.log10(1 + edges / 700)
    # ONNX divides by two more than the number of intervals, so the last one ends below `high`.
    mel = low + np.arange(bands + 2) * ((high - low) / (bands + 2))
    ends = (length + 1) * (700 * (10 ** (mel / 2595) - 1)) // rate

    dtype = _dtype(output_datatype)
    ends = ends.astype(np.float64 if dtype == np.float64 else np.float32)
    left, peak, right = ends[:-2], ends[1:-1], ends[2:]
    bins = jnp.arange(length // 2 + 1, dtype=ends.dtype)[:, None]
    rise = (bins - left) / np.maximum(peak - left, 1)
    fall = (right - bins) / np.maximum(right - peak, 1)
    return jnp.where(bins == peak, 1, jnp.maximum(jnp.minimum(rise, fall), 0)).astype(dtype)


def _dtype(number: int) -> np.dtype:
    dtype = dtype_of(number)
    if dtype is None:
        raise InvalidModelError(f"output_datatype is {number}, expected a type")
    return dtype

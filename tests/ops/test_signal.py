"""Fourier transforms, windows and the mel scale."""

import helpers
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import export
from onnx import TensorProto

from jaxonnx import ops
from jaxonnx.errors import InvalidModelError

# The bins of 1, 2, 0, -1 by hand.
SIGNAL = np.array([1, 2, 0, -1], np.float32).reshape(1, 4, 1)
BINS = np.array([[2, 0], [1, -3], [0, 0], [1, 3]], np.float32).reshape(1, 4, 2)


def parts(z, dtype: type = np.float32):
    return np.stack([z.real, z.imag], axis=-1).astype(dtype)


def scalar(value):
    return np.array(value, np.int64)


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("onesided", [0, 1])
def test_dft_of_a_real_signal(opset, onesided):
    options = {"axis": 1} if opset == 17 else {}
    (y,) = helpers.run_node("DFT", [SIGNAL], opset=opset, onesided=onesided, **options)
    helpers.assert_close(y, BINS[:, :3] if onesided else BINS)


@pytest.mark.parametrize("opset", [17, 20])
def test_dft_inverse(opset):
    (y,) = helpers.run_node("DFT", [BINS], opset=opset, inverse=1)
    helpers.assert_close(y, np.concatenate([SIGNAL, np.zeros_like(SIGNAL)], axis=-1))
    (y,) = helpers.run_node("DFT", [BINS[:, :3]], opset=opset, inverse=1, onesided=1)
    helpers.assert_close(y, SIGNAL)


@pytest.mark.parametrize("axis", [0, 1, -2, -3])
@pytest.mark.parametrize("length", [None, 3, 5])
@pytest.mark.parametrize("last", [1, 2])
def test_dft_axis_and_length(axis, length, last):
    x = np.random.default_rng(0).normal(size=(4, 5, last)).astype(np.float32)
    y = ops.dft(x, None if length is None else scalar(length), scalar(axis))
    z = x[..., 0] + 1j * (x[..., 1] if last == 2 else 0)
    helpers.assert_close(y, parts(np.fft.fft(z, length, axis % 3)), scale=3)


@pytest.mark.parametrize("length", [5, 6])
def test_dft_inverse_from_one_side_of_any_length(length):
    x = np.random.default_rng(0).normal(size=(2, length, 1)).astype(np.float32)
    bins = ops.dft(x, onesided=1)
    assert bins.shape == (2, length // 2 + 1, 2)
    back = ops.dft(bins, scalar(length), inverse=1, onesided=1)
    helpers.assert_close(back, x, scale=3)


def test_dft_of_a_real_signal_has_exactly_real_bins():
    x = np.random.default_rng(0).normal(size=(3, 10, 1)).astype(np.float32)
    y = np.asarray(ops.dft(x))
    assert not np.any(y[:, [0, 5], 1])
    helpers.assert_close(y[:, 6:], y[:, 4:0:-1] * np.array([1, -1], np.float32))


@pytest.mark.parametrize("dtype", helpers.FLOATS)
def test_dft_dtypes(dtype):
    with jax.enable_x64(True):
        helpers.assert_close(ops.dft(SIGNAL.astype(dtype)), BINS.astype(dtype))


def test_dft_errors():
    with pytest.raises(InvalidModelError, match="axis is 2, expected one of 2 signal dimensions"):
        ops.dft(SIGNAL, None, scalar(2))
    with pytest.raises(InvalidModelError, match="axis is -4"):
        ops.dft(SIGNAL, None, scalar(-4))
    with pytest.raises(InvalidModelError, match="takes real input"):
        ops.dft(BINS, onesided=1)
    with pytest.raises(InvalidModelError, match="bins are complex"):
        ops.dft(SIGNAL, inverse=1, onesided=1)


def frames(x, size, step, window):
    """The frames of the specification: ``(length - size) // step + 1`` of them."""
    count = (x.shape[1] - size) // step + 1
    return np.stack([x[:, k * step : k * step + size] * window for k in range(count)], axis=1)


@pytest.mark.parametrize("step", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [4, 5])
@pytest.mark.parametrize("onesided", [0, 1])
def test_stft_of_a_real_signal(step, size, onesided):
    rng = np.random.default_rng(0)
    x, window = rng.normal(size=(2, 12, 1)), rng.normal(size=size)
    transform = np.fft.rfft if onesided else np.fft.fft
    expected = parts(transform(frames(x[..., 0], size, step, window)))
    x, window = x.astype(np.float32), window.astype(np.float32)
    y = ops.stft(x, scalar(step), window, None, onesided=onesided)
    helpers.assert_close(y, expected, scale=3)


def test_stft_of_a_real_signal_without_parts():
    inputs = [SIGNAL[..., 0], scalar(2), None, scalar(4)]
    (y,) = helpers.run_node("STFT", inputs, opset=17)
    helpers.assert_close(y, ops.stft(SIGNAL, scalar(2), None, scalar(4)))
    model = helpers.node_model("STFT", inputs, opset=17)
    (expected,) = helpers.onnxruntime(model, *(v for v in inputs if v is not None))
    helpers.assert_close(y, expected, scale=3)


def test_stft_of_a_complex_signal():
    z = np.random.default_rng(0).normal(size=(2, 9, 2))
    expected = parts(np.fft.fft(frames(z[..., 0] + 1j * z[..., 1], 4, 2, 1)))
    y = ops.stft(z.astype(np.float32), scalar(2), None, scalar(4), onesided=0)
    helpers.assert_close(y, expected, scale=3)


def test_stft_node():
    inputs = [
        np.array([1, 2, 0, -1, 0, 0], np.float32).reshape(1, 6, 1),
        scalar(2),
        None,
        scalar(4),
    ]
    (y,) = helpers.run_node("STFT", inputs, opset=17)
    second = np.array([[-1, 0], [0, 1], [1, 0]], np.float32)  # of 0, -1, 0, 0
    helpers.assert_close(y, np.stack([BINS[0, :3], second])[None])


def test_stft_takes_the_whole_signal_by_default():
    y = ops.stft(SIGNAL, scalar(1))
    helpers.assert_close(y, BINS[:, None, :3])


@pytest.mark.parametrize("dtype", helpers.FLOATS)
def test_stft_dtypes(dtype):
    with jax.enable_x64(True):
        y = ops.stft(SIGNAL.astype(dtype), scalar(1), np.ones(4, dtype))
    helpers.assert_close(y, BINS[:, None, :3].astype(dtype))


def test_stft_is_accurate_for_long_frames():
    x = np.random.default_rng(0).normal(size=(1, 4096, 1)).astype(np.float32)
    y = np.asarray(ops.stft(x, scalar(1024), None, scalar(2048)), np.float64)
    exact = parts(np.fft.rfft(frames(x[..., 0].astype(np.float64), 2048, 1024, 1)), np.float64)
    assert np.abs(y - exact).max() < 1e-5 * np.abs(exact).max()


def test_stft_errors():
    with pytest.raises(InvalidModelError, match=r"window has shape \(3,\), expected \(4,\)"):
        ops.stft(SIGNAL, scalar(1), np.ones(3, np.float32), scalar(4))
    with pytest.raises(InvalidModelError, match="is complex, but onesided is 1"):
        ops.stft(BINS, scalar(1))


def test_gradients():
    rng = np.random.default_rng(0)
    x, z, window = rng.normal(size=(1, 6, 1)), rng.normal(size=(1, 4, 2)), rng.normal(size=4)
    helpers.check_gradients(jax.jit(lambda x, w: ops.stft(x, scalar(2), w)), x, window)
    helpers.check_gradients(jax.jit(lambda z: ops.dft(z, scalar(3), inverse=1)), z)
    helpers.check_gradients(jax.jit(lambda z: ops.dft(z, inverse=1, onesided=1)), z)


def test_single_precision_is_differentiable_outside_the_scope_of_doubles():
    x = np.random.default_rng(0).normal(size=(1, 8, 1)).astype(np.float32)
    jitted = jax.jit(lambda x: ops.stft(x, scalar(2), None, scalar(4)))

    def function(x):
        with jax.enable_x64(True):
            return jitted(x)

    y, pull = jax.vjp(function, x)
    tangent = jax.jvp(function, (x,), (x,))[1]
    helpers.assert_close(tangent, y)  # it is linear
    (cotangent,) = pull(y)
    inner = np.array(jnp.vdot(cotangent, x), np.float32)
    helpers.assert_close(inner, np.array(jnp.vdot(y, y), np.float32), scale=5)


def test_symbolic_shapes():
    n, t = export.symbolic_shape("n, t", constraints=["t>=4"])
    spec = jax.ShapeDtypeStruct((n, t, 1), np.float32)
    stft = export.export(jax.jit(lambda x: ops.stft(x, scalar(2), None, scalar(4))))(spec)
    x = np.random.default_rng(0).normal(size=(2, 9, 1)).astype(np.float32)
    helpers.assert_close(stft.call(x), parts(np.fft.rfft(frames(x[..., 0], 4, 2, 1))), scale=3)
    dft = export.export(jax.jit(lambda x: ops.dft(x, scalar(6))))(spec)
    helpers.assert_close(dft.call(x), parts(np.fft.fft(x[..., 0], 6)), scale=3)


WINDOWS = {
    "Hann": ([0, 0.5, 1, 0.5], [0, 0.75, 0.75, 0]),
    "Hamming": ([4 / 46, 25 / 46, 1, 25 / 46], [4 / 46, 35.5 / 46, 35.5 / 46, 4 / 46]),
    "Blackman": ([0, 0.34, 1, 0.34], [0, 0.63, 0.63, 0]),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name):
    periodic, symmetric = (np.array(w, np.float32) for w in WINDOWS[name])
    (y,) = helpers.run_node(f"{name}Window", [scalar(4)], opset=17)
    helpers.assert_close(y, periodic)
    (y,) = helpers.run_node(f"{name}Window", [scalar(4)], opset=17, periodic=0)
    helpers.assert_close(y, symmetric)


@pytest.mark.parametrize("name", WINDOWS)
def test_window_sizes(name):
    window = getattr(ops, f"{name.lower()}_window")
    first = np.array([4 / 46 if name == "Hamming" else 0], np.float32)
    helpers.assert_close(window(scalar(1)), first)
    helpers.assert_close(window(scalar(1), periodic=0), np.ones(1, np.float32))
    assert window(scalar(0)).shape == window(scalar(0), periodic=0).shape == (0,)
    oracle = {"Hann": np.hanning, "Hamming": None, "Blackman": np.blackman}[name]
    if oracle is not None:  # NumPy's Hamming window rounds its coefficients
        helpers.assert_close(window(scalar(400), periodic=0), oracle(400).astype(np.float32))


@pytest.mark.parametrize("dtype", [*helpers.FLOATS, np.uint8, np.int64])
@pytest.mark.parametrize("name", WINDOWS)
def test_window_dtypes(name, dtype):
    number = {ml_dtypes.bfloat16: TensorProto.BFLOAT16, np.float16: TensorProto.FLOAT16}.get(dtype)
    number = number or {np.float32: 1, np.float64: 11, np.uint8: 2, np.int64: 7}[dtype]
    with jax.enable_x64(True):
        y = getattr(ops, f"{name.lower()}_window")(scalar(4), output_datatype=number)
    helpers.assert_close(y, np.array(WINDOWS[name][0]).astype(dtype))  # integers: the peak alone


def test_window_of_no_type():
    with pytest.raises(InvalidModelError, match="output_datatype is 0, expected a type"):
        ops.hann_window(scalar(4), output_datatype=0)


def test_large_windows_and_matrices_are_no_literals():
    window = jax.make_jaxpr(lambda: ops.hann_window(scalar(2**17)))()
    arguments = scalar(128), scalar(1024), scalar(16000), np.float32(0), np.float32(8000)
    matrix = jax.make_jaxpr(lambda: ops.mel_weight_matrix(*arguments))()
    assert all(np.size(c) < 200 for c in [*window.consts, *matrix.consts])


def test_mel_weight_matrix():
    # The reference and onnxruntime agree on these: peaks in bins 1, 3, 5, 7, the last end in 11.
    arguments = [scalar(v) for v in (4, 32, 8000)] + [np.float32(100), np.float32(4000)]
    (y,) = helpers.run_node("MelWeightMatrix", arguments, opset=17)
    expected = np.zeros((17, 4), np.float32)
    expected[1:3, 0] = [1, 0.5]
    expected[2:5, 1] = [0.5, 1, 0.5]
    expected[4:7, 2] = [0.5, 1, 0.5]
    expected[6:11, 3] = [0.5, 1, 0.75, 0.5, 0.25]
    helpers.assert_close(y, expected)


def test_mel_triangles_of_no_width():
    arguments = [scalar(v) for v in (3, 16, 16000)] + [np.float32(0), np.float32(8000)]
    expected = np.zeros((9, 3), np.float32)
    expected[[0, 1, 2], [0, 1, 2]] = 1
    expected[3, 2] = 0.5
    helpers.assert_close(ops.mel_weight_matrix(*arguments), expected)
    with jax.enable_x64(True):
        y = ops.mel_weight_matrix(*arguments, output_datatype=TensorProto.DOUBLE)
    helpers.assert_close(y, expected.astype(np.float64))

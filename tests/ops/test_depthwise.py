"""The form of depthwise convolutions on CPUs against XLA's own, and where it is used."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers import assert_close, check_gradients, f32
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from jaxonnx import ops


@st.composite
def cases(draw):
    """Shapes and attributes of a depthwise convolution with at least one window."""
    rank = draw(st.integers(1, 3))
    each = lambda low, high: [draw(st.integers(low, high)) for _ in range(rank)]
    kernel, strides, dilations, pads = each(1, 3), each(1, 3), each(1, 2), each(0, 2) + each(0, 2)
    sizes = [(k - 1) * d + n for k, d, n in zip(kernel, dilations, each(1, 4), strict=True)]
    x = (draw(st.integers(0, 2)), draw(st.integers(2, 3)), *sizes)
    return x, kernel, {"strides": strides, "dilations": dilations, "pads": pads}


def plain(x, w, *, strides, dilations, pads):
    around = [*zip(pads[: x.ndim - 2], pads[x.ndim - 2 :], strict=True)]
    return lax.conv_general_dilated(
        x, w, strides, around, rhs_dilation=dilations, feature_group_count=x.shape[1]
    )


def arrays(shape, kernel, dtype=np.float32):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(shape), rng.standard_normal((shape[1], 1, *kernel))
    return x.astype(dtype), w.astype(dtype)


@settings(max_examples=10, deadline=None)
@given(cases())
def test_values_and_derivatives_are_those_of_xla(case):
    shape, kernel, attributes = case
    x, w = arrays(shape, kernel)
    group = shape[1]
    ours = lambda x, w: ops.conv(x, w, group=group, **attributes)
    theirs = lambda x, w: plain(x, w, **attributes)
    y, pull = jax.vjp(ours, x, w)
    expected, pull_expected = jax.vjp(theirs, x, w)
    assert_close(y, np.asarray(expected), scale=10)
    slope = np.cos(np.arange(y.size, dtype=np.float32)).reshape(y.shape)
    for a, e in zip(pull(slope), pull_expected(slope), strict=True):
        assert_close(a, np.asarray(e), scale=10)
    tangents = jnp.ones_like(x), jnp.ones_like(w)
    forward, forward_expected = (jax.jvp(f, (x, w), tangents)[1] for f in (ours, theirs))
    assert_close(forward, np.asarray(forward_expected), scale=10)


def test_derivatives_to_second_order():
    x, w = arrays((1, 2, 4, 3), (3, 2))
    function = lambda x, w: ops.conv(x, w, group=2, strides=[2, 1], pads=[1, 0, 1, 1])
    check_gradients(function, x, w)
    with jax.enable_x64(True):
        doubles = x.astype(np.float64), w.astype(np.float64)
        assert jax.grad(lambda x: function(x, doubles[1]).sum())(doubles[0]).dtype == np.float64


def test_it_is_batched():
    x, w = arrays((3, 2, 5), (3,))
    each = jax.vmap(lambda x, w: ops.conv(x[None], w, group=2)[0], in_axes=(0, None))(x, w)
    assert_close(each, np.asarray(ops.conv(x, w, group=2)))
    slopes = jax.vmap(jax.grad(lambda w, x: ops.conv(x[None], w, group=2).sum()), (None, 0))(w, x)
    whole = jax.grad(lambda w: ops.conv(x, w, group=2).sum())(w)
    assert_close(slopes.sum(0), np.asarray(whole))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_summed_in_single(dtype):
    x = np.ones((1, 2, 4096 // 64 + 7, 8), dtype)
    w = np.full((2, 1, 8, 8), 1 + 1 / 64, dtype)  # in half precision the sum of 64 would be off
    y = ops.conv(x, w, group=2)
    assert_close(y, np.full(y.shape, 65, dtype))


def test_infinities_and_nan_reach_what_sees_them():
    x = f32([[[1, np.inf, 2, 3, np.nan, 4], [0, 0, 0, 0, 0, 0]]])
    y = np.asarray(ops.conv(x, f32([[[1, 1]], [[1, 1]]]), group=2, pads=[1, 0]))
    np.testing.assert_array_equal(y[0, 0], [1, np.inf, np.inf, 5, np.nan, np.nan])
    np.testing.assert_array_equal(y[0, 1], np.zeros(6))


def convolutions(platform, shape=(1, 4, 8, 8), kernel=(3, 3)):
    """How many convolutions of XLA there are in the program and its derivative by weights."""
    x, w = arrays(shape, kernel)
    function = jax.value_and_grad(lambda w: ops.conv(x, w, group=shape[1]).sum())
    return (
        jax.export.export(jax.jit(function), platforms=[platform])(w)
        .mlir_module()
        .count("stablehlo.convolution")
    )


@pytest.mark.parametrize("platform", ["cuda", "rocm", "tpu"])
def test_accelerators_get_xlas_own(platform):
    assert convolutions(platform) == 2


def test_cpus_get_none_unless_windows_are_large():
    assert convolutions("cpu") == 0
    assert convolutions("cpu", (1, 4, 9, 9), (9, 9)) == 2

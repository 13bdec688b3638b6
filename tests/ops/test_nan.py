"""NaN is kept by maxima of any size, and none is made by Softmax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, f32

from jaxonnx import ops


def with_nan(*shape):
    """Numbers of which one in the middle is NaN."""
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    values[..., 50, 50] = np.nan
    return values


@pytest.mark.parametrize("operator", [ops.reduce_max, ops.reduce_min])
@pytest.mark.parametrize("axes", [None, [0], [1], [0, 1]])
def test_extrema_of_large_arrays(operator, axes):
    """XLA:CPU's vectorised maximum drops NaN from 64 x 64 on."""
    x = with_nan(100, 100)
    function = lambda x: operator(x, None if axes is None else np.array(axes), keepdims=0)
    found = np.asarray(jax.jit(function)(x))
    assert_close(np.isnan(found), np.isnan(x).any(None if axes is None else tuple(axes)))
    assert_close(found, np.asarray(function(x)))


@pytest.mark.parametrize(
    "operator",
    [
        ops.global_max_pool,
        lambda x: ops.max_pool(x, kernel_shape=[64, 64], strides=[36, 36]),
        lambda x: ops.max_roi_pool(x, f32([[0, 0, 0, 99, 99]]), pooled_shape=[1, 1]),
        lambda x: ops.roi_align(
            x,
            f32([[0, 0, 99, 99]]),
            np.array([0]),
            mode="max",
            output_height=1,
            output_width=1,
            sampling_ratio=99,
        ),
    ],
    ids=["GlobalMaxPool", "MaxPool", "MaxRoiPool", "RoiAlign"],
)
def test_pools_of_large_maps(operator):
    x = with_nan(1, 2, 100, 100)
    assert np.isnan(np.asarray(jax.jit(operator)(x))).all()
    assert not np.isnan(np.asarray(jax.jit(operator)(np.nan_to_num(x)))).any()


def test_an_extremum_of_integers_and_booleans():
    x = np.arange(10000, dtype=np.int32).reshape(100, 100)
    assert int(jax.jit(ops.reduce_max)(x).item()) == 9999
    assert bool(jax.jit(ops.reduce_max)(x > 5).item())
    assert not bool(jax.jit(ops.reduce_min)(x > 5).item())


def test_the_derivative_at_ties_is_shared_in_large_arrays():
    x = np.zeros((100, 100), np.float32)
    slope = jax.grad(lambda x: ops.reduce_max(x, keepdims=0))(x)
    assert_close(np.asarray(slope), np.full((100, 100), 1e-4, np.float32))


@pytest.mark.parametrize("x", [-3, -3.5, -100, -np.inf])
def test_hard_swish_is_exactly_0(x):
    for dtype in (np.float16, np.float32):
        found = jax.jit(ops.hard_swish)(np.full(100, x, dtype))
        assert not np.asarray(found).any()


@pytest.mark.parametrize("operator", [ops.softmax, ops.log_softmax])
def test_softmax_of_huge_equal_logits_that_are_computed(operator):
    """The maximum and the difference may be fused with what is before them, and round apart."""

    def function(x):
        logits = jnp.mean(x, 1) * np.float32(1.1)
        return operator(logits)

    for seed in range(8):
        row = np.random.default_rng(seed).uniform(1e30, 1e37, (1, 33, 1)).astype(np.float32)
        x = np.broadcast_to(row, (1, 33, 257))
        found = np.asarray(jax.jit(function)(x))
        assert np.isfinite(found).all()

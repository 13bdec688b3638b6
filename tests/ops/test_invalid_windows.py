"""Layers whose weights, windows and lengths do not fit are refused, saying found and expected."""

import numpy as np
import pytest

from jaxonnx import ops
from jaxonnx.errors import InvalidModelError


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


X, IMAGE = ones(3, 2, 4), ones(1, 2, 4, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.lstm(X, ones(1, 20, 3), ones(1, 20, 5)), r"W has .* expected \(1, 20, 4\)"),
        (lambda: ops.gru(X, ones(1, 15, 4), ones(1, 20, 5)), r"R has .* expected \(1, 15, 5\)"),
        (lambda: ops.rnn(X, ones(1, 5, 4), ones(1, 5, 5), ones(1, 9)), r"B has .* \(1, 10\)"),
        (
            lambda: ops.rnn(X, ones(1, 5, 4), ones(1, 5, 5), None, np.array([4, 1], np.int32)),
            r"sequence_lens are \[4, 1\], expected 0 to 3",
        ),
        (
            lambda: ops.rnn(X, ones(1, 5, 4), ones(1, 5, 5), None, np.array([-1, 1], np.int32)),
            r"sequence_lens are \[-1, 1\], expected 0 to 3",
        ),
        (
            lambda: ops.rnn(X, ones(1, 5, 4), ones(1, 5, 5), None, np.array([1], np.int32)),
            r"sequence_lens has shape \(1,\), expected \(2,\)",
        ),
        (lambda: ops.dft(ones(1, 4, 3)), "expected 1 or 2 parts"),
        (lambda: ops.stft(ones(1, 9, 3), np.array(2), ones(4)), "expected 1 or 2 parts"),
        (lambda: ops.stft(ones(1, 9, 1), np.array(0), ones(4)), "frame_step is 0"),
        (lambda: ops.einsum(ones(2, 2), equation="12->21"), "expected letters and ellipses"),
        (lambda: ops.conv(IMAGE, ones(1, 2, 2, 2), strides=[0, 1]), r"strides is \(0, 1\)"),
        (lambda: ops.conv(IMAGE, ones(1, 2, 2, 2), dilations=[1, 0]), r"dilations is \(1, 0\)"),
        (lambda: ops.conv(IMAGE, ones(1, 2, 2, 2), group=0), "group is 0"),
        (lambda: ops.conv_transpose(IMAGE, ones(2, 1, 2, 2), group=0), "group is 0"),
        (lambda: ops.conv_transpose(IMAGE, ones(2, 1, 2, 2), strides=[1, 0]), "strides is"),
        (lambda: ops.matmul(ones(2, 3), ones(2, 3)), "the inner sizes differ"),
        (lambda: ops.matmul(ones(2, 2, 3), ones(3, 3, 2)), "2 and 3 do not broadcast"),
        (lambda: ops.matmul(np.float32(1), ones(3)), "the inner sizes differ"),
        (lambda: ops.gemm(ones(2, 3), ones(2, 3)), "the inner sizes differ"),
        (lambda: ops.gemm(ones(2, 3), ones(2, 3), transA=1, transB=1), "the inner sizes differ"),
        (
            lambda: ops.attention(ones(1, 2, 3, 4), ones(1, 2, 5, 4), ones(1, 2, 6, 4)),
            "one length of K and V",
        ),
        (
            lambda: ops.attention(ones(1, 2, 3, 4), ones(1, 2, 5, 3), ones(1, 2, 5, 3)),
            "one size of Q and K",
        ),
        (
            lambda: ops.max_pool(IMAGE, kernel_shape=[2, 2], pads=[1, 1, 1, 2]),
            r"pads are \(1, 1, 1, 2\), expected less than windows of \(2, 2\)",
        ),
        (lambda: ops.lp_pool(IMAGE, kernel_shape=[2, 2], pads=[2, 0, 0, 0]), "expected less than"),
        (
            lambda: ops.average_pool(IMAGE, kernel_shape=[2, 2], pads=[0, 0, 2, 0]),
            "expected less than",
        ),
        (lambda: ops.max_pool(IMAGE, kernel_shape=[0, 1]), r"kernel_shape is \(0, 1\)"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(InvalidModelError, match=message):
        call()


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding_of_an_empty_sequence(interleaved):
    x, cache = ones(1, 2, 0, 4), ones(1, 0, 2)
    assert ops.rotary_embedding(x, cache, cache, interleaved=interleaved).shape == x.shape
    positions = np.zeros((1, 0), np.int64)
    y = ops.rotary_embedding(x, cache[0], cache[0], positions, interleaved=interleaved)
    assert y.shape == x.shape


def test_attention_with_values_wider_than_queries():
    """With equal scores the result is the mean of the values, whatever their width."""
    v = np.arange(12, dtype=np.float32).reshape(1, 1, 2, 6)
    y = ops.attention(ones(1, 1, 3, 2), ones(1, 1, 2, 2), v)
    assert np.allclose(y, np.broadcast_to(v.mean(2, keepdims=True), (1, 1, 3, 6)))
    packed = ops.attention(ones(1, 3, 2), ones(1, 2, 2), v[0], q_num_heads=1, kv_num_heads=1)
    assert np.allclose(packed, y[0])


def test_max_roi_pool_of_a_reversed_region_is_one_element_wide():
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    y = ops.max_roi_pool(x, np.array([[0, 2, 1, 0, 3]], np.float32), pooled_shape=[1, 1])
    assert y.item() == 14  # column 2, rows 1 to 3


@pytest.mark.parametrize("p", [0, -1])
@pytest.mark.parametrize(
    "pool",
    [lambda x, p: ops.lp_pool(x, kernel_shape=[2], p=p), lambda x, p: ops.global_lp_pool(x, p=p)],
)
def test_a_norm_has_a_positive_power(pool, p):
    with pytest.raises(InvalidModelError, match=f"p is {p}, expected a positive number"):
        pool(np.ones((1, 1, 3), np.float32), p)

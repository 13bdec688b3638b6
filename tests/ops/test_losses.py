"""Losses and SwiGLU, which run from the bodies of their schemas, by hand at every version."""

import jax
import numpy as np
import pytest
from helpers import assert_close, f32, i64, node_model, run_node

import jaxonnx

LOGS = np.log(f32([[1, 3], [2, 2], [4, 1]]))
TARGETS, WEIGHTS = i64([1, 0, 1]), f32([2, 10])
# Minus the logarithms of 3, 2 and 1; ignoring 0 leaves the first and the last.
PICKED = -np.log(f32([3, 2, 1]))
SHARES = -np.log(f32([3 / 4, 1 / 2, 1 / 5]))


@pytest.mark.parametrize("opset", [12, 13, 22])
@pytest.mark.parametrize(
    ("op_type", "losses"),
    [("NegativeLogLikelihoodLoss", PICKED), ("SoftmaxCrossEntropyLoss", SHARES)],
)
def test_of_rows(op_type, losses, opset):
    run = lambda *more, **a: run_node(op_type, [LOGS, TARGETS, *more], opset=opset, **a)[0]
    assert_close(run(reduction="none"), losses)
    assert_close(run(reduction="sum"), losses.sum())
    assert_close(run(), losses.mean())
    weighed = losses * f32([10, 2, 10])
    assert_close(run(WEIGHTS, reduction="none"), weighed)
    assert_close(run(WEIGHTS), weighed.sum() / f32(22))
    kept = losses * f32([1, 0, 1])
    assert_close(run(ignore_index=0, reduction="none"), kept)
    assert_close(run(ignore_index=0), kept.sum() / f32(2))
    assert_close(run(WEIGHTS, ignore_index=0), kept.sum() / f32(2))


@pytest.mark.parametrize("ignored", [-1, -100, 7])
@pytest.mark.parametrize("op_type", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_an_ignored_target_names_no_class(op_type, ignored):
    losses = PICKED if op_type[0] == "N" else SHARES
    targets = i64([1, ignored, 1])
    for inputs in ([LOGS, targets], [LOGS, targets, WEIGHTS]):
        (y,) = run_node(op_type, inputs, opset=13, ignore_index=ignored)
        assert_close(y, (losses[0] + losses[2]) / f32(2))


@pytest.mark.parametrize("opset", [12, 13])
def test_of_maps_and_their_probabilities(opset):
    """Classes are axis 1; the second output has the logarithms of the probabilities."""
    x, targets = LOGS.T[None], TARGETS[None]
    loss, logs = run_node("SoftmaxCrossEntropyLoss", [x, targets], opset=opset, outputs=2)
    assert_close(loss, SHARES.mean())
    expected = np.log(f32([[1, 3], [2, 2], [4, 1]]) / f32([[4], [4], [5]]))
    assert_close(logs, expected.T[None])
    (loss,) = run_node("NegativeLogLikelihoodLoss", [x, targets], opset=opset, reduction="none")
    assert_close(loss, PICKED[None])


def test_swiglu():
    a, b = f32([2, -1]), f32([3, 4])
    expected = a / (1 + np.exp(-2 * a)) * b
    assert_close(run_node("SwiGLU", [a, b], opset=28, alpha=2.0)[0], expected)


def test_derivative():
    """Probabilities less the target's 1, over the number of rows; 0 where it is ignored."""
    model = jaxonnx.load(
        node_model("SoftmaxCrossEntropyLoss", [LOGS, TARGETS], opset=13, ignore_index=0)
    )
    slope = jax.grad(lambda x: model(x, TARGETS))(LOGS)
    assert_close(slope, f32([[0.25, 0.75 - 1], [0, 0], [0.8, 0.2 - 1]]) / 2)

"""A detector that ends in NonMaxSuppression: any number of boxes, with and without buckets."""

import jax
import numpy as np
import onnx
import pytest
from helpers import assert_close
from onnx import TensorProto, helper

import jaxonnx

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def detector():
    """Boxes [1, N, 4] and scores [1, 1, N] scaled, suppressed, and the chosen ones gathered."""
    stored = {
        "gain": np.array([0.5], np.float32),
        "most": np.array(100),
        "overlap": np.array([0.5], np.float32),
        "least": np.array([0.25], np.float32),
        "third": np.array([2]),
        "last": np.array([1]),
        "first": np.array([0]),
    }
    nodes = [
        helper.make_node("Mul", ["raw", "gain"], ["scores"]),
        helper.make_node(
            "NonMaxSuppression",
            ["boxes", "scores", "most", "overlap", "least"],
            ["selected"],
            name="nms",
        ),
        helper.make_node("Gather", ["selected", "third"], ["column"], axis=1),
        helper.make_node("Squeeze", ["column", "last"], ["index"]),
        helper.make_node("Squeeze", ["boxes", "first"], ["flat_boxes"]),
        helper.make_node("Gather", ["flat_boxes", "index"], ["kept"]),
        helper.make_node("Squeeze", ["scores", "batch"], ["flat_scores"]),
        helper.make_node("Gather", ["flat_scores", "index"], ["kept_scores"]),
    ]
    stored["batch"] = np.array([0, 1])
    graph = helper.make_graph(
        nodes,
        "detector",
        [
            helper.make_tensor_value_info("boxes", FLOAT, [1, "N", 4]),
            helper.make_tensor_value_info("raw", FLOAT, [1, 1, "N"]),
        ],
        [
            helper.make_tensor_value_info("kept", FLOAT, ["K", 4]),
            helper.make_tensor_value_info("kept_scores", FLOAT, ["K"]),
            helper.make_tensor_value_info("selected", INT64, ["K", 3]),
        ],
        [onnx.numpy_helper.from_array(v, n) for n, v in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def scene(count, total=12):
    """``total`` boxes side by side, of which the first ``count`` score enough, the first best."""
    left = 2 * np.arange(total, dtype=np.float32)
    boxes = np.stack([np.zeros(total), left, np.ones(total), left + 1], 1).astype(np.float32)
    scores = np.where(np.arange(total) < count, 2 - np.arange(total) / 20, 0).astype(np.float32)
    return boxes[None], scores[None, None]


@pytest.mark.parametrize("options", [{}, {"buckets": "pow2"}, {"bounds": {"nms": 12}}])
@pytest.mark.parametrize("count", [5, 3, 0])
def test_any_number_of_boxes(options, count):
    boxes, scores = scene(count)
    out = jaxonnx.load(detector(), **options)(boxes, scores)
    assert_close(np.asarray(out.kept), boxes[0, :count])
    assert_close(np.asarray(out.kept_scores), scores[0, 0, :count] / 2)
    places = np.arange(count)
    assert_close(np.asarray(out.selected), np.stack([0 * places, 0 * places, places], 1))


def test_overlapping_boxes_are_suppressed():
    boxes, scores = scene(3)
    boxes[0, 1] = boxes[0, 0] + np.float32(0.1)
    assert_close(
        np.asarray(jaxonnx.load(detector())(boxes, scores).selected)[:, 2], np.array([0, 2])
    )


def test_buckets_bound_the_number_of_programs():
    exact, bucketed = jaxonnx.load(detector()), jaxonnx.load(detector(), buckets="pow2")
    counts = [5, 6, 7, 8, 5]
    for count in counts:
        for model in (exact, bucketed):
            assert np.asarray(model(*scene(count)).kept).shape == (count, 4)
    # One program before the node, and then one for each size behind it.
    assert exact._program.executor.compilations == 1 + 4
    assert bucketed._program.executor.compilations == 1 + 1


def test_inside_the_users_jit():
    model = jaxonnx.load(detector(), bounds={"nms": 6})
    boxes, scores = scene(4)
    out = jax.jit(model)(boxes, scores)
    assert isinstance(out.kept, jaxonnx.Padded)
    assert out.kept.shape == (6, 4)
    assert int(out.kept.count) == 4
    assert_close(np.asarray(out.kept.cut()), boxes[0, :4])


@pytest.mark.parametrize("options", [{}, {"bounds": {"nms": 6}}])
def test_derivatives_reach_the_kept_boxes(options):
    model = jaxonnx.load(detector(), **options)
    boxes, scores = scene(2)

    def loss(boxes, scores):
        out = model(boxes, scores)
        kept = out.kept_scores
        values = kept.filled(0) if isinstance(kept, jaxonnx.Padded) else kept
        return (values**2).sum()

    slope = jax.grad(loss, argnums=1)(boxes, scores)
    assert_close(np.asarray(slope), np.where(np.arange(12) < 2, scores / 2, 0).astype(np.float32))

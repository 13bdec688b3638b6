"""GridSample, AffineGrid and RoiAlign: modes, borders, versions, types, derivatives."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers import FLOATS, assert_close, check_gradients, onnxruntime, reference, run_node
from helpers import node_model as make
from jax import export

from jaxonnx import ops
from jaxonnx.errors import InvalidModelError


def ints(values: Any) -> np.ndarray:
    return np.array(values, np.int64)


def floats(values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def line(places, size, align_corners=1):
    """The grid that samples a row of ``size`` pixels at ``places``, counted in pixels."""
    places = np.asarray(places, np.float64)
    x = places * 2 / (size - 1) - 1 if align_corners else (2 * places + 1) / size - 1
    return floats(np.stack([x, np.zeros_like(x)], -1)[None, None])


ROW = floats([0, 1, 4, 9])[None, None, None]


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize(
    ("mode", "padding", "places", "expected"),
    [
        ("linear", "zeros", [0.5, 2.75, -0.25, 3.5, -1.5], [0.5, 7.75, 0, 4.5, 0]),
        ("linear", "border", [-0.25, -9, 3.25, 50], [0, 0, 9, 9]),
        ("nearest", "zeros", [1.25, 2.75, -0.75, 3.75], [1, 9, 0, 0]),
        ("nearest", "border", [-7, 1.75, 40], [0, 4, 9]),
        ("cubic", "zeros", [1.5, 1], [2.5 * 1.1875 - 9 * 0.09375, 1]),
        ("cubic", "border", [3, 100, -100], [9, 9, 0]),
    ],
)
def test_grid_sample_of_a_row(mode, padding, places, expected, align_corners):
    options: dict[str, Any] = {"mode": mode, "padding_mode": padding, "opset": 20}
    grid = line(places, 4, align_corners)
    (y,) = run_node("GridSample", [ROW, grid], align_corners=align_corners, **options)
    assert_close(y[0, 0, 0], floats(expected), scale=3)


def test_grid_sample_reflects():
    options: dict[str, Any] = {"padding_mode": "reflection", "opset": 22}
    # About the centers: -1 is 1, 4 is 2, -4 is 2; about the edges: -1 is 0, 4 is 3, -5 is 3.
    (y,) = run_node("GridSample", [ROW, line([-1, 4, -4, 8.5], 4)], align_corners=1, **options)
    assert_close(y[0, 0, 0], floats([1, 4, 4, 6.5]), scale=3)
    (y,) = run_node("GridSample", [ROW, line([-1, 4, -5, 8.5], 4, 0)], **options)
    assert_close(y[0, 0, 0], floats([0, 9, 9, 0.5]), scale=3)
    (y,) = run_node("GridSample", [ROW[..., :1] + 3, line([-3, 5], 4, 0)], **options)
    assert_close(y[0, 0, 0], floats([3, 3]))


def test_grid_sample_rounds_half_to_even():
    x = np.arange(5, dtype=np.float32)[None, None, None]
    (y,) = run_node(
        "GridSample", [x, line([0.5, 1.5, 2.5], 5)], opset=20, mode="nearest", align_corners=1
    )
    assert_close(y[0, 0, 0], floats([0, 2, 2]))


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    ("mode", "rank"), [("linear", 2), ("nearest", 2), ("cubic", 2), ("linear", 3), ("nearest", 3)]
)
def test_grid_sample_by_two_oracles(mode, rank, padding, align_corners):
    if (mode, padding) == ("cubic", "border"):
        align_corners = 0
    random = np.random.default_rng(0)
    x = random.normal(size=(2, 2, *(3, 4, 2)[:rank])).astype(np.float32)
    grid = random.uniform(-2, 2, (2, *(2, 3, 2)[:rank], rank)).astype(np.float32)
    options: dict[str, Any] = {"mode": mode, "padding_mode": padding}
    options["align_corners"] = align_corners
    model = make("GridSample", [x, grid], opset=20, **options)
    (right,) = onnxruntime(model, x, grid)
    if (mode, padding) != ("cubic", "border"):  # there the reference clamps places, not pixels
        assert_close(reference(model, x, grid)[0], right, scale=30)
    assert_close(ops.grid_sample(x, grid, **options), right, scale=30)


def test_grid_sample_16_has_other_names():
    grid = line([0.5, 1.5], 4)
    for old, new in (("bilinear", "linear"), ("bicubic", "cubic"), ("nearest", "nearest")):
        (y,) = run_node("GridSample", [ROW, grid], opset=16, mode=old)
        assert_close(y, ops.grid_sample(ROW, grid, mode=new))
    assert_close(run_node("GridSample", [ROW, grid], opset=16)[0], ops.grid_sample(ROW, grid))


@pytest.mark.parametrize("dtype", [*FLOATS, np.int8, np.uint64, np.bool_, np.complex64])
def test_grid_sample_dtypes(dtype):
    x = np.array([0, 4, 1])[None, None, None].astype(dtype)
    for kind in (np.float32, np.float64, ml_dtypes.bfloat16):
        grid = line([0.5, 1, 1.5], 3).astype(kind)
        (y,) = run_node("GridSample", [x, grid], opset=22, align_corners=1)
        exact = [2, 4, 2.5]
        expected = np.array(exact).astype(dtype)  # integers are cut off
        expected = np.array([True, True, True]) if dtype == np.bool_ else expected
        assert_close(y[0, 0, 0], expected)


def test_grid_sample_of_nothing():
    grid = np.zeros((1, 0, 3, 2), np.float32)
    assert run_node("GridSample", [ROW, grid], opset=20)[0].shape == (1, 1, 0, 3)
    empty = np.zeros((0, 2, 2, 2), np.float32)
    grid = np.zeros((0, 3, 3, 2), np.float32)
    assert run_node("GridSample", [empty, grid], opset=20)[0].shape == (0, 2, 3, 3)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_grid_sample_gradients(mode):
    sample = jax.jit(lambda v, g: ops.grid_sample(v * v, g, mode=mode, padding_mode="border"))
    x, places = np.array([0.5, -1.25, 2.0]), np.array([-1.2, -0.4, 0.3])
    check_gradients(sample, x[None, None], places[None, :, None])  # one dimension: few taps
    if mode == "linear":
        check_gradients(sample, np.ones((1, 1, 2, 2)) * x[:2], np.full((1, 1, 1, 2), 0.3))


def test_grid_sample_derivative_at_a_pixel_is_towards_the_next():
    row = floats([0, 1, 4, 9, 16])[None, None, None]
    sample = lambda g: ops.grid_sample(row, g, align_corners=1)[0, 0, 0, 0]
    grid = line([1], 5)
    slope = floats([3 * 2, 0])  # a step of 1 in the grid is one of 2 pixels
    assert_close(jax.grad(sample)(grid)[0, 0, 0, 0], slope[0])
    _, tangent = jax.jvp(sample, (grid,), (floats([1, 0]) * np.ones_like(grid),))
    assert_close(tangent, slope[0])


@pytest.mark.parametrize(
    ("grid", "options", "message"),
    [
        (np.zeros((1, 2, 2, 3)), {}, "grid has shape"),
        (np.zeros((1, 2, 2, 2)), {"mode": "area"}, "mode 'area', expected nearest"),
        (np.zeros((1, 2, 2, 2)), {"padding_mode": "wrap"}, "padding_mode 'wrap' is unknown"),
    ],
)
def test_grid_sample_errors(grid, options, message):
    with pytest.raises(InvalidModelError, match=message):
        run_node("GridSample", [ROW, floats(grid)], opset=20, **options)


IDENTITY = floats([[[1, 0, 0], [0, 1, 0]]])


def test_affine_grid():
    size = ints([1, 1, 2, 3])
    x, y = np.meshgrid([-2 / 3, 0, 2 / 3], [-0.5, 0.5])
    (grid,) = run_node("AffineGrid", [IDENTITY, size], opset=20)
    assert_close(grid, floats(np.stack([x, y], -1)[None]))
    x, y = np.meshgrid([-1, 0, 1], [-1, 1])
    (grid,) = run_node("AffineGrid", [IDENTITY, size], opset=20, align_corners=1)
    assert_close(grid, floats(np.stack([x, y], -1)[None]))
    theta = floats([[[1, 2, 3], [4, 5, 6]]])
    (grid,) = run_node("AffineGrid", [theta, size], opset=20, align_corners=1)
    assert_close(grid, floats(np.stack([x + 2 * y + 3, 4 * x + 5 * y + 6], -1)[None]))
    (grid,) = run_node("AffineGrid", [theta, ints([1, 1, 1, 1])], opset=20, align_corners=1)
    assert_close(grid, floats([[[[3, 6]]]]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_affine_grid_in_space(dtype):
    theta = np.array([[[0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 2]]]).astype(dtype)
    (grid,) = run_node("AffineGrid", [theta, ints([1, 1, 2, 1, 4])], opset=20)
    z, y, x = np.meshgrid([-0.5, 0.5], [0], [-0.75, -0.25, 0.25, 0.75], indexing="ij")
    assert_close(grid, np.stack([z, y, x + 2], -1)[None].astype(dtype))


def test_affine_grid_gradients_and_errors():
    check_gradients(lambda t: ops.affine_grid(t * t, ints([1, 1, 2, 3])), IDENTITY + 1)
    with pytest.raises(InvalidModelError, match=r"theta has shape .* for 3 dimensions"):
        run_node("AffineGrid", [IDENTITY, ints([1, 1, 2, 2, 2])], opset=20)


def rois(random, count):
    corners = random.uniform(-2, 7, (count, 2))
    boxes = np.concatenate([corners, corners + random.uniform(0.1, 8, (count, 2))], 1)
    return boxes.astype(np.float32), random.integers(0, 2, count)


@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 1, 2])
def test_roi_align_by_two_oracles(mode, ratio, coordinates):
    random = np.random.default_rng(2)
    x = random.normal(size=(2, 2, 6, 7)).astype(np.float32)
    boxes, images = rois(random, 12)
    options: dict[str, Any] = {"mode": mode, "sampling_ratio": ratio, "spatial_scale": 0.75}
    options |= {"coordinate_transformation_mode": coordinates}
    options |= {"output_height": 3, "output_width": 2}
    model = make("RoiAlign", [x, boxes, images], opset=16, **options)
    (first,), (second,) = (run(model, x, boxes, images) for run in (reference, onnxruntime))
    assert_close(first, second, scale=10)
    assert_close(ops.roi_align(x, boxes, images, **options), first, scale=10)


# One pixel a sample: bins of 2 x 2 pixels of 0 to 15.
@pytest.mark.parametrize("dtype", FLOATS)
def test_roi_align_by_hand(dtype):
    x = np.arange(16).reshape(1, 1, 4, 4).astype(dtype)
    box, first = np.array([[0, 0, 4, 4]]).astype(dtype), ints([0])
    size: dict[str, Any] = {"output_height": 2, "output_width": 2}
    opset = 22 if dtype == ml_dtypes.bfloat16 else 16
    (y,) = run_node("RoiAlign", [x, box, first], opset=opset, **size)
    assert_close(y, np.array([[[[2.5, 4.5], [10.5, 12.5]]]]).astype(dtype))
    (y,) = run_node("RoiAlign", [x, box, first], opset=opset, mode="max", **size)
    assert_close(y, np.array([[[[5, 7], [13, 15]]]]).astype(dtype))
    (y,) = run_node("RoiAlign", [x, box / 2, ints([-1])], opset=opset, spatial_scale=2.0, **size)
    assert_close(y, np.array([[[[2.5, 4.5], [10.5, 12.5]]]]).astype(dtype))


def test_roi_align_10_does_not_shift():
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    options: dict[str, Any] = {"opset": 10, "sampling_ratio": 1}
    (y,) = run_node("RoiAlign", [x, floats([[0, 0, 2, 2]]), ints([0])], **options)
    assert_close(y, floats([[[[5]]]]))
    (y,) = run_node("RoiAlign", [x, floats([[1, 1, 1.25, 1]]), ints([0])], **options)
    assert_close(y, floats([[[[1.5 + 6]]]]))  # of at least one pixel: its center is 1.5, 1.5


def test_roi_align_of_no_regions_and_empty_regions():
    x = np.ones((1, 2, 4, 4), np.float32)
    (y,) = run_node("RoiAlign", [x, np.zeros((0, 4), np.float32), ints([])], opset=16)
    assert y.shape == (0, 2, 1, 1)
    for mode in ("avg", "max"):
        (y,) = run_node("RoiAlign", [x, floats([[2, 2, 2, 2]]), ints([0])], opset=16, mode=mode)
        assert_close(y, np.zeros((1, 2, 1, 1), np.float32))  # no sample at all


@pytest.mark.parametrize(("mode", "ratio"), [("avg", 0), ("max", 1)])
def test_roi_align_gradients(mode, ratio):
    x = np.random.default_rng(3).normal(size=(1, 1, 4, 4))
    options: dict[str, Any] = {"mode": mode, "sampling_ratio": ratio, "output_height": 2}
    align = jax.jit(lambda v, b: ops.roi_align(v * v, b, np.array([0]), **options))
    check_gradients(align, x, np.array([[0.6, 0.7, 3.3, 2.9]]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "sum"}, "mode 'sum', expected avg or max"),
        ({"coordinate_transformation_mode": "center"}, "'center' is unknown"),
    ],
)
def test_roi_align_errors(options, message):
    x = np.zeros((1, 1, 2, 2), np.float32)
    with pytest.raises(InvalidModelError, match=message):
        run_node("RoiAlign", [x, floats([[0, 0, 1, 1]]), ints([0])], opset=16, **options)


def test_symbolic_shapes():
    b, h, r = export.symbolic_shape("b, h, r")
    random = np.random.default_rng(4)
    x = random.normal(size=(2, 3, 4, 5)).astype(np.float32)
    boxes, images = rois(random, 3)

    def outputs(x, boxes, images):
        size = np.array([x.shape[0], 1, x.shape[2], 2], object)
        theta = IDENTITY * x[:, :1, :1, :1].reshape(-1, 1, 1)
        grid = ops.affine_grid(theta, size)
        return ops.grid_sample(x, grid), ops.roi_align(x, boxes, images, output_width=2)

    shapes = [((b, 3, h, 5), np.float32), ((r, 4), np.float32), ((r,), np.int32)]
    specs = [jax.ShapeDtypeStruct(s, t) for s, t in shapes]
    got = export.export(jax.jit(outputs))(*specs).call(x, boxes, images.astype(np.int32))
    theta = IDENTITY * x[:, 0, 0, 0].reshape(-1, 1, 1)
    sampled = ops.grid_sample(x, ops.affine_grid(theta, ints([2, 1, 4, 2])))
    assert_close(got[0], sampled, scale=10)
    assert_close(got[1], ops.roi_align(x, boxes, images, output_width=2), scale=10)


BAD = [np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(
    ("mode", "reached"), [("nearest", [1, 2, 3]), ("linear", [1, 2, 3]), ("cubic", [1, 2, 3, 4])]
)
def test_grid_sample_lets_nothing_in_from_outside_of_a_support(bad, mode, reached):
    x = np.array([[[1, 2, bad, 4, 5, 6]]], np.float32)
    centers = np.array([0, 1.5, 2, 2.25, 3.5, 5], np.float32)  # of pixels where whole
    grid = (centers / 5 * 2 - 1).reshape(1, -1, 1)
    sample = lambda grid: ops.grid_sample(x, grid, mode=mode, align_corners=1)
    y = np.asarray(sample(grid))[0, 0]
    assert [*np.flatnonzero(~np.isfinite(y))] == reached
    slopes = np.asarray(jax.grad(lambda g: sample(g)[0, 0, jnp.array([0, 5])].sum())(grid))
    assert np.isfinite(slopes[0, [0, 5]]).all()


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align_lets_nothing_in_from_outside_of_a_support(bad, ratio, mode):
    x = np.ones((1, 1, 6, 6), np.float32)
    x[0, 0, 4, 1] = bad
    rois, images = np.array([[0, 0, 5, 5]], np.float32), np.zeros(1, np.int64)
    options: dict[str, Any] = {
        "mode": mode,
        "output_height": 5,
        "output_width": 5,
        "sampling_ratio": ratio,
    }
    y = ops.roi_align(
        x, rois, images, **options, coordinate_transformation_mode="output_half_pixel"
    )
    reached = np.zeros((5, 5), bool)
    reached[3:5, 0:2] = mode == "avg" or bad != -np.inf  # samples lie at halves or quarters
    assert np.array_equal(~np.isfinite(np.asarray(y)[0, 0]), reached)
    assert_close(
        np.asarray(y)[0, 0][~reached].max(), np.float32(1) if mode == "avg" else y[0, 0, 0, 4]
    )


def test_grid_sample_refuses_another_batch_size():
    with pytest.raises(InvalidModelError, match="grid has batch size 2, expected 1"):
        ops.grid_sample(np.ones((1, 1, 2, 2), np.float32), np.zeros((2, 1, 1, 2), np.float32))

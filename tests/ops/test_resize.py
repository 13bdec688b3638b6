"""Resize and Upsample: coordinates, modes, versions, types, symbolic sizes, derivatives."""

import operator
import re
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from helpers import FLOATS, assert_close, check_gradients, onnxruntime, reference, run_node
from helpers import node_model as make
from jax import export

from jaxonnx import ops
from jaxonnx.errors import InvalidModelError, StaticValueError


def ints(values: Any) -> np.ndarray:
    return np.array(values, np.int64)


def floats(values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def resize(x, scales=None, sizes=None, roi=None, opset=19, **options):
    inputs = [x, None if roi is None else floats(roi), None if scales is None else floats(scales)]
    inputs += [] if sizes is None else [ints(sizes)]
    return run_node("Resize", inputs, opset=opset, **options)[0]


# By the formulas of the text, of 0, 1, 2, 3.
@pytest.mark.parametrize(
    ("mode", "scale", "expected"),
    [
        ("half_pixel", 2, [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3]),
        ("asymmetric", 2, [0, 0.5, 1, 1.5, 2, 2.5, 3, 3]),
        ("align_corners", 1.75, [0, 0.5, 1, 1.5, 2, 2.5, 3]),
        ("pytorch_half_pixel", 0.5, [0.5, 2.5]),
        ("pytorch_half_pixel", 0.25, [0]),  # a length of 1 lies at place 0
        ("half_pixel", 0.25, [1.5]),
        ("half_pixel_symmetric", 0.625, [0.7, 2.3]),
        ("half_pixel_symmetric", 1.5, [0, 0.5, 3.5 / 3, 5.5 / 3, 2.5, 3]),
        ("tf_half_pixel_for_nn", 2, [0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3, 3]),
    ],
)
def test_coordinates(mode, scale, expected):
    opset = 11 if mode == "tf_half_pixel_for_nn" else 19
    options: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": mode}
    roi = [] if opset == 11 else None  # Resize-11 has no absent ones
    y = resize(floats([0, 1, 2, 3]), [scale], roi=roi, opset=opset, **options)
    assert_close(y, floats(expected))


def test_symmetric_coordinates_of_a_report():
    x, mode = floats([100, 200]), "half_pixel_symmetric"
    y = resize(x, [1.3], mode="linear", coordinate_transformation_mode=mode)
    assert_close(y, floats([100 + 150 / 13, 200 - 150 / 13]))
    assert_close(resize(x, [1.3], mode="linear"), floats([100, 100 + 0.85 / 1.3 * 100]))


@pytest.mark.parametrize("scales", [True, False])
def test_crop_and_resize(scales):
    target: dict[str, Any] = {"scales": [0.75]} if scales else {"sizes": [6]}
    options: dict[str, Any] = {"coordinate_transformation_mode": "tf_crop_and_resize"}
    x = np.arange(8, dtype=np.float32)
    y = resize(x, **target, roi=[0.25, 1.5], mode="linear", extrapolation_value=-7.0, **options)
    assert_close(y, floats([1.75, 3.5, 5.25, 7, -7, -7]))
    assert_close(resize(x, sizes=[1], roi=[0.25, 0.75], mode="linear", **options), floats([3.5]))
    # The size stays, but not the window; and the axes may come in another order.
    grid = np.stack([x, x + 10])
    options |= {"mode": "linear", "axes": [1, 0]}
    y = resize(grid, sizes=[8, 1], roi=[0, 0, 0.5, 1], **options)
    assert_close(y, np.arange(8, dtype=np.float32)[None] / 2 + 5)


@pytest.mark.parametrize(
    ("nearest_mode", "expected"),
    [
        ("round_prefer_floor", [0, 0, 1, 3]),
        ("round_prefer_ceil", [0, 1, 2, 3]),
        ("floor", [0, 0, 1, 2]),
        ("ceil", [0, 1, 2, 3]),
    ],
)
def test_nearest_modes(nearest_mode, expected):
    # Places 0, 0.5, 1.5 and 2.75 of 0, 1, 2, 3, 4.
    options: dict[str, Any] = {"coordinate_transformation_mode": "tf_crop_and_resize"}
    options["nearest_mode"] = nearest_mode
    x = floats([0, 1, 2, 3, 4])
    windows = [[place / 4, place / 4] for place in (0, 0.5, 1.5, 2.75)]
    places = [resize(x, sizes=[1], roi=window, **options) for window in windows]
    assert_close(np.concatenate(places), floats(expected))


@pytest.mark.parametrize(
    ("scale", "expected"),
    [(2, [0, 0, 1, 1, 2, 2]), (3, [0, 0, 0, 1, 1, 1, 2, 2, 2]), (4 / 3, [0, 0, 1, 2])],
)
def test_nearest_of_torch(scale, expected):
    options: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric"}
    options["nearest_mode"] = "floor"
    assert_close(resize(floats([0, 1, 2]), [scale], **options), floats(expected))
    assert_close(resize(floats([0, 1, 2]), sizes=[len(expected)], **options), floats(expected))


def test_scales_are_simple_fractions():
    options: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric"}
    options["nearest_mode"] = "floor"
    assert_close(resize(np.arange(9.0), [1 / 3], **options), np.array([0.0, 3.0, 6.0]))
    assert resize(np.arange(10.0), [0.7]).shape == (7,)  # as in shape inference, in float32
    assert resize(np.arange(7.0), [np.float32(np.pi)]).shape == (21,)


def test_cubic_by_hand():
    # Keys' weights at distance 1/4 with a = -3/4, over the clamped neighbours.
    near, far = [-0.1054687500, 0.8789062500, 0.2617187500, -0.0351562500], [0.0, 1.0, 4.0, 9.0]
    y = resize(floats(far), [2], mode="cubic")
    assert_close(y[3], np.float32(np.dot(near, far)))
    assert_close(y[1], np.float32(np.dot(near, [0, 0, 1, 4])))
    y = resize(floats(far), [2], mode="cubic", exclude_outside=1)
    assert_close(y[1], np.float32(np.dot(near[1:], [0, 1, 4]) / np.sum(near[1:])))
    y = resize(floats(far), [2], mode="cubic", cubic_coeff_a=-0.5)
    assert_close(y[3], np.float32(np.dot([-0.0703125, 0.8671875, 0.2265625, -0.0234375], far)))


def test_antialias_by_hand():
    # A triangle of width 4 about 0.5 and 2.5: weights 3, 3, 1 and 1, 3, 3, 1 over their sums.
    x = floats([8, 16, 24, 48])
    y = resize(x, [0.5], mode="linear", antialias=1)
    assert_close(y, floats([(3 * 8 + 8 + 3 * 16 + 24) / 8, (16 + 3 * 24 + 3 * 48 + 48) / 8]))
    y = resize(x, [0.5], mode="linear", antialias=1, exclude_outside=1)
    assert_close(y, floats([(3 * 8 + 3 * 16 + 24) / 7, (16 + 3 * 24 + 3 * 48) / 7]))
    assert_close(resize(x, [2], mode="linear", antialias=1), resize(x, [2], mode="linear"))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("target", [[4, 5], [7, 3], [1, 9]])
@pytest.mark.parametrize("transform", ["half_pixel", "align_corners", "asymmetric"])
def test_two_oracles(mode, target, transform):
    x = np.random.default_rng(0).normal(size=(1, 2, 4, 3)).astype(np.float32)
    inputs = [x, None, None, ints([1, 2, *target])]
    model = make("Resize", inputs, opset=19, mode=mode, coordinate_transformation_mode=transform)
    (first,), (second,) = (run(model, x, inputs[3]) for run in (reference, onnxruntime))
    assert_close(first, second, scale=10)
    options: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": transform}
    assert_close(ops.resize(x, None, None, inputs[3], **options), first, scale=10)


@pytest.mark.parametrize(
    ("policy", "sizes", "expected"),
    [
        ("not_larger", [8, 3], (6, 3)),
        ("not_smaller", [8, 3], (8, 4)),
        ("not_larger", [3, 9], (3, 2)),  # halves are rounded up
        ("stretch", [3, 9], (3, 9)),
    ],
)
def test_aspect_ratio(policy, sizes, expected):
    x = np.arange(16, dtype=np.float32).reshape(2, 4, 2)
    for axes in ([1, 2], [-2, -1]):
        y = resize(x, sizes=sizes, axes=axes, keep_aspect_ratio_policy=policy)
        assert y.shape == (2, *expected)


def test_axes_and_axes_left_alone():
    x = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    expected = x.repeat(2, 2)
    assert_close(resize(x, [2], axes=[-1], opset=18), expected)
    assert_close(resize(x, [1, 1, 2], opset=13), expected)
    assert_close(resize(x, scales=[], roi=[], sizes=[2, 2, 6], opset=11), expected)
    empty = np.zeros((0, 2, 3), np.float32)
    assert resize(empty, [1, 2, 2], mode="linear").shape == (0, 4, 6)
    assert resize(x, sizes=[2, 0, 3], mode="linear").shape == (2, 0, 3)


@pytest.mark.parametrize("dtype", [*FLOATS, np.complex64])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_inexact_dtypes(dtype, mode):
    x = np.array([0, 4, 8]).astype(dtype)
    y = resize(x, sizes=[2], mode=mode)
    right = {"nearest": [0, 8], "linear": [1, 7], "cubic": [0.765625, 7.234375]}[mode]
    assert_close(y, np.array(right).astype(dtype))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.int64, np.uint64])
def test_integers_round_and_saturate(dtype):
    x = np.array([0, 1, 5, 100], dtype)
    y = resize(x, [2], mode="linear")  # 0, 0.25, 0.75, 2, 4, 28.75, 76.25, 100
    assert_close(y, np.array([0, 0, 1, 2, 4, 29, 76, 100], dtype))
    assert_close(resize(x, [2]), x.repeat(2))
    if dtype == np.uint8:
        y = resize(np.array([0, 0, 255, 255], dtype), [2], mode="cubic")
        assert y.tolist() == [0, 0, 0, 58, 197, 255, 255, 255]


def test_nearest_keeps_large_integers_and_booleans():
    x = ints([2**53 + 1, -(2**62) - 1])
    assert_close(resize(x, [2]), x.repeat(2))
    assert_close(resize(np.array([True, False]), sizes=[4]), np.array([True, True, False, False]))
    x = np.array([1, 2], ml_dtypes.bfloat16)
    assert_close(resize(x, [2], opset=13), x.repeat(2))


def test_resize_10_rounds_up_where_it_shrinks():
    x = floats([[[[1, 2, 3, 4], [5, 6, 7, 8]]]])
    scales = floats([1, 1, 0.6, 0.6])
    (y,) = run_node("Resize", [x, scales], opset=10)
    assert_close(y, floats([[[[1, 3]]]]))
    (y,) = run_node("Resize", [x[..., :2], floats([1, 1, 2, 2])], opset=10, mode="linear")
    assert_close(y[0, 0, 0], floats([1, 1.5, 2, 2]))


def test_upsample_of_each_version():
    x = floats([[[[1, 2], [3, 4]]]])
    nearest, scales = x.repeat(2, 2).repeat(3, 3), floats([1, 1, 2, 3])
    linear = floats([[1, 1.5, 2, 2], [2, 2.5, 3, 3], [3, 3.5, 4, 4], [3, 3.5, 4, 4]])[None, None]
    square: dict[str, Any] = {"height_scale": 2.0, "width_scale": 2.0}
    old: dict[str, Any] = {"height_scale": 2.0, "width_scale": 3.0}
    assert_close(run_node("Upsample", [x], opset=1, **old)[0], nearest)
    assert_close(run_node("Upsample", [x], opset=1, mode="bilinear", **square)[0], linear)
    assert_close(run_node("Upsample", [x], opset=7, scales=[1.0, 1.0, 2.0, 3.0])[0], nearest)
    assert_close(run_node("Upsample", [x, scales], opset=9)[0], nearest)
    doubled = floats([1, 1, 2, 2])
    assert_close(run_node("Upsample", [x, doubled], opset=9, mode="linear")[0], linear)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_symbolic_shapes(mode):
    b, h, w = export.symbolic_shape("b, h, w")
    x = np.random.default_rng(1).normal(size=(2, 4, 6)).astype(np.float32)
    scales = floats([1, 2, 0.75])

    def outputs(v):
        sizes = np.array([v.shape[0], 2 * v.shape[1], 5], object)
        by_scale = ops.resize(v, None, scales, mode=mode)
        return by_scale, ops.resize(v, None, None, sizes, mode=mode, antialias=1)

    exported = export.export(jax.jit(outputs))(jax.ShapeDtypeStruct((b, h, w), np.float32))
    by_scale, by_size = exported.call(x)
    assert_close(by_scale, ops.resize(x, None, scales, mode=mode), scale=10)
    fixed = ops.resize(x, None, None, ints([2, 8, 5]), mode=mode, antialias=1)
    assert_close(by_size, fixed, scale=10)


def test_symbolic_sizes_that_cannot_be():
    (n,) = export.symbolic_shape("n")
    spec = jax.ShapeDtypeStruct((n, 2), np.float32)
    with pytest.raises(StaticValueError, match=r"3\.14.* is no simple fraction"):
        export.export(jax.jit(lambda x: ops.resize(x, None, floats([np.pi, 1]))))(spec)
    keep = lambda x: ops.resize(x, None, None, ints([4, 4]), keep_aspect_ratio_policy="not_larger")
    with pytest.raises(StaticValueError, match="'not_larger' needs fixed sizes"):
        export.export(jax.jit(keep))(spec)


@pytest.mark.parametrize("scale", [2, 0.5, 4 / 3, 5 / 3, 1.1, 0.1, 0.6, 2 / 3, 7 / 3, 1 / 49, 0.3])
def test_symbolic_lengths_are_those_of_fixed_sizes(scale):
    def length(shape: str, constraints: tuple[str, ...] = ()) -> Any:
        (size,) = export.symbolic_shape(shape, constraints=constraints)
        spec = jax.ShapeDtypeStruct((size,), np.float32)
        return jax.eval_shape(lambda x: ops.resize(x, None, floats([scale])), spec).shape[0]

    try:
        symbolic, last = length("S"), 40
    except StaticValueError as error:  # the message says up to which size they agree
        (constraint,) = re.findall(r'constraints=\["(.*)"\]', str(error))
        symbolic, last = length("S", (constraint,)), int(constraint.removeprefix("S<="))
    for size in range(1, last + 1):
        formula = {"S": size, "floordiv": operator.floordiv}
        fixed = ops.resize(np.zeros(size, np.float32), None, floats([scale]))
        assert eval(str(symbolic), formula) == fixed.shape[0], size


def test_a_scale_that_single_precision_rounds_down_needs_a_bound():
    spec = jax.ShapeDtypeStruct(export.symbolic_shape("S"), np.float32)
    assert ops.resize(np.zeros(27, np.float32), None, floats([7 / 3])).shape == (62,)
    with pytest.raises(StaticValueError, match=r"size S above 26: .*constraints=\[\"S<=26\"\]"):
        jax.eval_shape(lambda x: ops.resize(x, None, floats([7 / 3])), spec)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize(
    ("options", "reached"),
    [
        ({"mode": "linear"}, [5, 6, 7, 8]),
        ({"mode": "cubic"}, [3, 4, 5, 6, 7, 8, 9, 10]),
        ({"mode": "linear", "antialias": 1}, [5, 6, 7, 8]),
        ({"mode": "linear", "coordinate_transformation_mode": "align_corners"}, [5, 6, 7, 8]),
        ({"mode": "linear", "coordinate_transformation_mode": "asymmetric"}, [5, 6, 7]),
        ({"mode": "cubic", "exclude_outside": 1}, [3, 4, 5, 6, 7, 8, 9, 10]),
    ],
)
def test_what_is_not_finite_stays_in_its_support(bad, options, reached):
    x = floats([1, 2, 3, bad, 5, 6, 7])
    y = resize(x, [2], **options)
    assert [*np.flatnonzero(~np.isfinite(y))] == reached
    finite = resize(np.where(np.isfinite(x), x, 0), [2], **options)
    assert_close(np.delete(y, reached), np.delete(finite, reached))


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_what_is_not_finite_stays_in_its_support_where_an_axis_shrinks(mode):
    x = np.arange(24, dtype=np.float32)
    x[20] = np.inf
    y = resize(x, [0.25], mode=mode, antialias=1)
    reached = [4, 5] if mode == "linear" else [3, 4, 5]
    assert [*np.flatnonzero(~np.isfinite(y))] == reached
    upsampled = run_node("Upsample", [x, floats([2])], opset=9, mode="linear")[0]
    assert [*np.flatnonzero(~np.isfinite(upsampled))] == [39, 40, 41]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_gradients(mode):
    @jax.jit
    def outputs(x):
        x = x * x
        grown = ops.resize(x, None, floats([2, 1.5]), mode=mode)
        return grown, ops.resize(x, None, None, ints([2, 2]), mode=mode, antialias=1)

    check_gradients(outputs, np.arange(12.0).reshape(4, 3) / 4)


def test_derivative_of_nearest_counts_the_copies():
    x = floats([1, 2, 3])
    nearest = lambda v: ops.resize(v, None, None, ints([7]))
    _, pullback = jax.vjp(nearest, x)
    assert_close(pullback(np.ones(7, np.float32))[0], floats([2, 3, 2]))
    _, tangent = jax.jvp(nearest, (x,), (x,))
    assert_close(tangent, nearest(x))


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ({}, {}, "exactly one of scales and sizes"),
        ({"scales": [1.0], "sizes": [3]}, {}, "exactly one of scales and sizes"),
        ({"scales": [1.0, 2.0]}, {}, "2 scales or sizes, expected 1"),
        ({"scales": [-2.0]}, {}, "scale -2.0, expected a positive one"),
        ({"scales": [2.0]}, {"mode": "area"}, "mode 'area', expected nearest, linear or cubic"),
        ({"scales": [2.0]}, {"nearest_mode": "up"}, "nearest_mode 'up', expected one of"),
        (
            {"scales": [2.0]},
            {"coordinate_transformation_mode": "full_pixel"},
            "coordinate_transformation_mode 'full_pixel' is unknown",
        ),
        (
            {"scales": [2.0]},
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
            "roi has 0 entries, expected 2",
        ),
        ({"sizes": [2]}, {"keep_aspect_ratio_policy": "fit"}, "policy 'fit' is unknown"),
    ],
)
def test_errors(target, options, message):
    with pytest.raises(InvalidModelError, match=message):
        resize(floats([1, 2, 3]), **target, **options)
    with pytest.raises(InvalidModelError, match="axis 0 has size 0 and cannot grow to 2"):
        resize(floats([]), sizes=[2])

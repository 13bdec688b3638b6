"""What users of other importers reported, with the values of the specification.

A report whose behaviour belongs to one family of operators has its test in that family's file.
"""

from typing import Any

import jax
import ml_dtypes
import numpy as np
import onnx
import pytest
from helpers import assert_close, f32, i64, run_node, text_model, u8

import jaxonnx
from jaxonnx import ops
from jaxonnx.errors import InvalidModelError


@pytest.mark.parametrize("opset", [19, 20, 21, 22])
def test_zeros_written_by_pad_are_data_to_average_pool(opset):
    """[onnxruntime#26708] The result does not change with the opset."""
    model = text_model(
        """(float[1, 1, 2, 2] x) => (float[1, 1, 2, 2] y)
        <int64[8] pads = {0, 0, 0, 0, 0, 0, 1, 1}> {
            padded = Pad(x, pads)
            y = AveragePool<kernel_shape = [2, 2]>(padded)
        }""",
        opset=opset,
    )
    y = jaxonnx.load(model)(f32([[[[4, 8], [12, 16]]]]))
    assert_close(y, f32([[[[10, 6], [7, 4]]]]))


def test_average_pool_drops_a_window_that_starts_in_the_end_padding():
    """[tvm#18594] 17 and one of padding give 9 windows of 2, not 10."""
    x = np.ones((1, 1, 17), np.float32)
    y = ops.average_pool(x, kernel_shape=(2,), strides=(2,), pads=(0, 1), ceil_mode=1)
    assert y.shape == (1, 1, 9)


def test_a_bound_or_a_value_with_an_empty_name_is_absent():
    """[burn-onnx#106, onnx#3744]"""
    (y,) = run_node("Pad", [f32([1, 2]), i64([1, 0]), None, i64([0])], opset=18)
    assert_close(y, f32([0, 1, 2]))
    (y,) = run_node("Clip", [f32([-1, 5]), None, f32(3)], opset=13)
    assert_close(y, f32([-1, 3]))
    for opset in (10, 13, 19, 21, 25):
        (y,) = run_node("QuantizeLinear", [f32([-1, 3]), f32(0.5), None], opset=opset)
        assert_close(y, u8([0, 6]))
        (y,) = run_node("DequantizeLinear", [u8([0, 6]), f32(0.5), None], opset=opset)
        assert_close(y, f32([0, 3]))


@pytest.mark.parametrize(
    ("values", "scale", "expected"),
    [
        ([1, 2, 3, np.inf], 0.5, [1.5, np.inf]),
        ([5, np.nan, 3, 4], 2, [5, *[np.nan] * 4, 3.25, 3.75, 4]),
    ],
)
@pytest.mark.parametrize("opset", [11, 19])
def test_resize_lets_nothing_in_from_outside_of_a_support(values, scale, expected, opset):
    """[onnxruntime#32258]"""
    inputs = [f32(values), f32([]), f32([scale])]
    (y,) = run_node("Resize", inputs, opset=opset, mode="linear")
    assert_close(y, f32(expected))


@pytest.mark.parametrize(
    ("nearest_mode", "places"),
    [
        ("floor", [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]),
        ("round_prefer_floor", [0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3]),
        ("ceil", [0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3]),
    ],
)
def test_places_of_an_asymmetric_resize(nearest_mode, places):
    """[iree#24581] Place k reads ``k / 3``, rounded."""
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    options = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": nearest_mode}
    (y,) = run_node("Resize", [x, f32([]), f32([1, 1, 3, 3])], opset=11, **options)
    assert_close(y, x[:, :, places][..., places])


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [("none", 7), ("add", 14), ("mul", 70), ("max", 7), ("min", 2)],
)
def test_scatter_by_places_of_several_axes(reduction, expected):
    """[onnx#8096] A place may come twice where there is a reduction."""
    places, updates = ([[0, 1]], [7]) if reduction == "none" else ([[0, 1], [0, -1]], [7, 5])
    inputs = [f32([[1, 2], [3, 4]]), i64(places), f32(updates)]
    (y,) = run_node("ScatterND", inputs, opset=18, reduction=reduction)
    assert_close(y, f32([[1, expected], [3, 4]]))


def test_slice_1_without_axes():
    """[onnx2torch#152] The first axes, as many as there are starts."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    (y,) = run_node("Slice", [x], opset=1, starts=[1], ends=[3])
    assert_close(y, x[1:3])
    (y,) = run_node("Slice", [x], opset=1, starts=[-2, 0], ends=[2**31 - 1, -1])
    assert_close(y, x[-2:, :-1])


def test_wrap_takes_from_the_other_end():
    """[tvm#19827]"""
    (y,) = run_node("Pad", [f32([0, 1, 2]), i64([2, 1])], opset=19, mode="wrap")
    assert_close(y, f32([1, 2, 0, 1, 2, 0]))


@pytest.mark.parametrize(
    ("start", "end", "step", "expected"),
    [(2, 5, 2**62 + 7, [2]), (4, -6, -(2**62 + 9), [4])],
)
def test_steps_of_slice_beyond_the_axis(start, end, step, expected):
    """[onnxruntime#9368]"""
    inputs = [f32([0, 1, 2, 3, 4]), i64([start]), i64([end]), i64([0]), i64([step])]
    assert_close(run_node("Slice", inputs, opset=13)[0], f32(expected))
    assert_close(ops.slice(*inputs), f32(expected))


def test_gather_of_no_elements():
    empty, none = np.zeros((3, 0), np.float32), np.zeros((0, 2), np.int64)
    assert run_node("Gather", [empty, none], opset=13, axis=1)[0].shape == (3, 0, 2)


@pytest.mark.parametrize(
    ("op_type", "shape"), [("Gather", "2"), ("GatherElements", "2"), ("GatherND", "2, 1")]
)
def test_a_constant_index_out_of_range_is_refused_where_the_data_is_computed(op_type, shape):
    """[openvino#35687]"""
    model = text_model(
        f"""(float[4] x) => (float[2] y) <int64[{shape}] i = {{1, -6}}> {{
            data = Relu(x)
            y = {op_type}(data, i)
        }}"""
    )
    with pytest.raises(InvalidModelError, match="index -6, expected one in"):
        jaxonnx.load(model)(f32([1, 2, 3, 4]))


@pytest.mark.parametrize(
    ("op_type", "inputs", "options"),
    [
        ("Flatten", [f32([[1, 2]])], {"opset": 13, "axis": 3}),
        ("Flatten", [f32([[1, 2]])], {"opset": 13, "axis": -3}),
        ("Split", [f32([1, 2, 3]), i64([4, -1])], {"opset": 18, "outputs": 2}),
        ("Split", [f32([1, 2, 3]), i64([1, 1, 1])], {"opset": 18, "outputs": 2}),
        ("Split", [f32([1, 2, 3]), i64([1, 1])], {"opset": 13, "outputs": 2}),
        ("Split", [f32([1, 2, 3])], {"opset": 11, "outputs": 2, "split": [4, -1]}),
        ("Split", [f32([1, 2, 3])], {"opset": 2, "outputs": 2, "split": [1, 1, 1]}),
        ("SplitToSequence", [f32([1, 2, 3]), i64([4, -1])], {"opset": 11}),
        ("Expand", [f32([1, 2]), i64([3])], {"opset": 13}),
        ("Expand", [f32([[1], [2]]), i64([3, 2])], {"opset": 8}),
    ],
)
def test_sizes_that_do_not_fit_are_refused(op_type: str, inputs: Any, options: Any):
    """[tvm#20144, onnx#8255]"""
    with pytest.raises(InvalidModelError):
        run_node(op_type, inputs, **options)


def test_range_of_operands_with_one_element():
    """[openvino#21178]"""
    (y,) = run_node("Range", [f32([0.5]), f32([2.5]), f32([0.75])], opset=11)
    assert_close(y, f32([0.5, 1.25, 2]))


@pytest.mark.parametrize(("opset", "dtype"), [(7, np.float32), (10, bool), (12, bool), (13, bool)])
def test_the_mask_of_dropout_has_the_type_of_its_version(opset, dtype):
    """[onnxruntime#1507] That of the data before 10, boolean from then on."""
    y, mask = run_node("Dropout", [f32([1, 2])], opset=opset, outputs=2)
    assert_close(y, f32([1, 2]))
    assert_close(mask, np.ones(2, dtype))


@pytest.mark.parametrize("opset", [3, 7, 14, 22])
@pytest.mark.parametrize(("linear_before_reset", "expected"), [(0, 1.25), (1, 1.0)])
def test_where_gru_resets(opset, linear_before_reset, expected):
    """[onnxscript#2852] Both gates are 0.5; the new state is 0.5 * 1 + 1, or 0.5 * (1 + 1)."""
    one = np.ones((1, 1, 1), np.float32)
    r, b = f32([[[0], [0], [1]]]), f32([[0, 0, 0, 0, 0, 1]])
    inputs = [one, 0 * r, r, b, None, one]
    options = {"activations": ["Sigmoid", "Affine"], "hidden_size": 1, "opset": opset}
    _, last = run_node("GRU", inputs, outputs=2, linear_before_reset=linear_before_reset, **options)
    assert_close(last, f32([[[expected]]]))


LINEAR = {"activations": ["Affine"] * 3, "hidden_size": 1, "outputs": 3}


@pytest.mark.parametrize("opset", [7, 14, 22])
def test_lstm_in_reverse_gives_its_outputs_in_the_order_of_its_inputs(opset):
    """[onnxruntime#4187] All gates are 1, so the cell sums up."""
    x, w = f32([1, 10, 100]).reshape(3, 1, 1), f32([[[0], [0], [0], [1]]])
    gates = f32([[1, 1, 1, 0, 0, 0, 0, 0]])
    inputs = [x, w, 0 * w, gates]
    y, h, c = run_node("LSTM", inputs, direction="reverse", opset=opset, **LINEAR)
    assert_close(y, f32([111, 110, 100]).reshape(3, 1, 1, 1))
    assert_close(h, f32([[[111]]]))
    assert_close(c, f32([[[111]]]))


@pytest.mark.parametrize("opset", [7, 14, 22])
def test_peepholes_of_lstm(opset):
    """[opencv#29931] P holds those of i, o and f, and o sees the new cell.

    i = 2 * 7, f = 5 * 7, C = 35 * 7 + 14 * 1, o = 3 * 259, H = 777 * 259.
    """
    one, w = np.ones((1, 1, 1), np.float32), f32([[[0], [0], [0], [1]]])
    inputs = [one, w, 0 * w, None, None, 0 * one, 7 * one, f32([[2, 3, 5]])]
    _, h, c = run_node("LSTM", inputs, opset=opset, **LINEAR)
    assert_close(c, f32([[[259]]]))
    assert_close(h, f32([[[201243]]]))


def test_bfloat16_is_that_of_ml_dtypes():
    """[onnx#6991] Stored, given and computed."""
    model = text_model("(bfloat16[2] x) => (bfloat16[2] y) { y = Mul(x, w) }")
    stored = onnx.numpy_helper.from_array(np.array([2], ml_dtypes.bfloat16), "w")
    model.graph.initializer.append(stored)
    y = jaxonnx.load(model)(np.array([1, 1.5], ml_dtypes.bfloat16))
    assert_close(y, np.array([2, 3], ml_dtypes.bfloat16))


def test_large_int64_where_jax_computes_in_32_bits():
    """[LANfactory#79]"""
    (y,) = run_node("Add", [i64([2**40]), i64([0])], opset=14)
    assert_close(y, i64([2**40]))


def test_branches_of_different_rank():
    """[openvino#33027] Legal: the branch that is taken gives the rank."""
    model = text_model(
        """(float[2] x, bool c) => (float[?] y) {
            y = If (c) <
                then_branch = a () => (float[2] r) { r = Neg(x) },
                else_branch = b () => (float[1, 2] r) {
                    zero = Constant<value_ints = [0]>()
                    r = Unsqueeze(x, zero)
                }>
        }"""
    )
    model.graph.output[0].ClearField("type")
    loaded = jaxonnx.load(model)
    assert_close(loaded(f32([1, 2]), True), f32([-1, -2]))
    assert_close(loaded(f32([1, 2]), False), f32([[1, 2]]))


@pytest.mark.parametrize("opset", [1, 8, 9, 10, 12])
def test_flatten_of_every_opset(opset):
    """[onnx2torch#192] The newest version not above the opset."""
    (y,) = run_node("Flatten", [np.zeros((2, 3, 4), np.float32)], opset=opset)
    assert y.shape == (2, 12)


def test_updates_at_one_place_add_up():
    """[onnx-mlir#3551]"""
    inputs = [f32([0, 0, 0]), i64([-1, -1]), f32([1, 2])]
    assert_close(run_node("ScatterElements", inputs, opset=16, reduction="add")[0], f32([0, 0, 3]))


@pytest.mark.parametrize(
    ("old", "new", "allowzero"),
    [((0, 10), [0, 1, -1], 0), ((0, 10), [0, 1, -1], 1), ((2, 3), [0, -1], 1)],
)
def test_a_size_that_nothing_decides_is_refused(old, new, allowzero):
    """[onnxruntime#28449] Beside a dimension of 0 any size would do for -1."""
    inputs = [np.zeros(old, np.float32), i64(new)]
    with pytest.raises(InvalidModelError, match="cannot reshape"):
        run_node("Reshape", inputs, opset=14, allowzero=allowzero)


def test_a_batch_that_was_baked_in_is_named_and_can_be_replaced():
    """[GR00T#111]"""
    model = jaxonnx.load(
        text_model(
            """(float[N, 2, 3] x) => (float[1, 6] y) <int64[2] target = {1, 6}> {
                h = Relu(x)
                y = Reshape(h, target)
            }"""
        )
    )
    x = np.ones((4, 2, 3), np.float32)
    with pytest.raises(InvalidModelError, match="baked in when the model was exported") as caught:
        model(x)
    assert "node giving 'y' (Reshape-14)" in caught.value.__notes__[0]
    assert "'target': int64[2] = [1, 6]" in caught.value.__notes__[0]
    y = model.apply(model.params, x, patch={"target": i64([-1, 6])})
    assert_close(y, np.ones((4, 6), np.float32))


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("ReduceL2<keepdims = 0>(x)", [0, 0]),
        ("LpNormalization(x)", [0, 0]),
        ("LayerNormalization<epsilon = 1.0>(x, one)", [0.5, -0.5]),
        ("RMSNormalization<epsilon = 1.0>(x, one)", [1, 0]),
    ],
)
def test_derivatives_of_norms_are_finite_at_rows_of_zeros(node, expected):
    """[jax#11716] The deviation has none there: ``x / sqrt(var + 1)`` is linear at first order."""
    model = jaxonnx.load(
        text_model(
            f"(float[2] x) => (float[?] y) <float[2] one = {{1.0, 1.0}}> {{ y = {node} }}", opset=23
        )
    )
    assert_close(jax.grad(lambda x: model(x).ravel()[0])(f32([0, 0])), f32(expected))


LOOP = """(int64 m) => (int64[K] numbers, bool[K] flags) <bool{S} go = {{1}}> {{
    numbers, flags = Loop <body = b (int64{S} i, bool{S} c)
        => (bool{S} more, int64{S} number, bool{S} flag) {{
        more = Identity(c)
        number = Identity(i)
        flag = Identity(c)
    }}> (m, go)
}}"""


@pytest.mark.parametrize(("declared", "shape"), [("", (3,)), ("[1]", (3, 1))])
def test_the_rank_that_a_body_of_a_loop_declares(declared, shape):
    """[onnxruntime#1052]"""
    model = text_model(LOOP.format(S=declared))
    for output in model.graph.output:
        output.ClearField("type")
    numbers, flags = jaxonnx.load(model)(i64(3))
    assert_close(numbers, i64([0, 1, 2]).reshape(shape))
    assert_close(flags, np.ones(shape, bool))


@pytest.mark.parametrize(("declared", "shape"), [("", (3,)), ("[1]", (3, 1))])
def test_the_rank_that_a_body_of_a_scan_declares(declared, shape):
    """[onnxruntime#1052] Slices of a vector have no dimension, or one where it says so."""
    model = text_model(
        f"""(float[3] x) => (float[K] y) {{
            y = Scan <num_scan_inputs = 1, body = b (float{declared} v) => (float{declared} w) {{
                w = Neg(v)
            }}> (x)
        }}"""
    )
    model.graph.output[0].ClearField("type")
    assert_close(jaxonnx.load(model)(f32([1, 2, 3])), f32([-1, -2, -3]).reshape(shape))

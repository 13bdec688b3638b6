"""Indices and lengths that name what is not there: refused where known, never a number else."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers import assert_close, f32, i64, run_node, strings, text_model
from jax.experimental import checkify

import jaxonnx
from jaxonnx import ops
from jaxonnx.define.registry import snake_case
from jaxonnx.errors import InvalidModelError

X = f32([[1, 2], [3, 4], [5, 6]])
OUTSIDE = [3, -4, 2**40, -(2**40)]

GATHERS = {
    "Gather": ("y = Gather(x, i)", lambda n: [n]),
    "GatherElements": ("y = GatherElements(x, i)", lambda n: [[n, 0]]),
    "GatherND": ("y = GatherND(x, i)", lambda n: [[n, 0]]),
}
SCATTERS = {
    "ScatterElements": ("y = ScatterElements(x, i, u)", lambda n: [[n, 0]], f32([[7, 8]])),
    "ScatterND": ("y = ScatterND(x, i, u)", lambda n: [[n, 1]], f32([7])),
    "ScatterND of an inner index": ("y = ScatterND(x, i, u)", lambda n: [[1, n]], f32([7])),
}


def with_constant(text, indices, **more):
    """A model of ``text`` for a traced ``x`` and constant indices ``i``."""
    indices = np.array(indices)
    sizes = ", ".join(map(str, indices.shape))
    stored = f"int64[{sizes}] i = {{{', '.join(map(str, indices.ravel()))}}}"
    inputs = "".join(f", float[{', '.join(map(str, v.shape))}] {n}" for n, v in more.items())
    return jaxonnx.load(
        text_model(f"(float[3, 2] x{inputs}) => (float[?] y) <{stored}> {{ {text} }}")
    )


@pytest.mark.parametrize("index", OUTSIDE)
@pytest.mark.parametrize("name", GATHERS)
def test_gather_beside_traced_data(name, index):
    text, place = GATHERS[name]
    with pytest.raises(InvalidModelError, match=rf"index {index}, expected one in \[-3, 2\]"):
        with_constant(text, place(index))(X)


@pytest.mark.parametrize("index", OUTSIDE)
@pytest.mark.parametrize("name", ["ScatterElements", "ScatterND"])
def test_scatter_beside_traced_data(name, index):
    text, place, updates = SCATTERS[name]
    with pytest.raises(InvalidModelError, match=rf"index {index}, expected one in \[-3, 2\]"):
        with_constant(text, place(index), u=updates)(X, updates)


def test_inner_index_beside_traced_data():
    text, place, updates = SCATTERS["ScatterND of an inner index"]
    with pytest.raises(InvalidModelError, match=r"index 2, expected one in \[-2, 1\]"):
        with_constant(text, place(2), u=updates)(X, updates)


@pytest.mark.parametrize("name", GATHERS)
def test_gather_at_run_time(name):
    """NaN, and no derivative; a negative index is counted from the end once."""
    op, function = name, getattr(ops, snake_case(name))
    place = GATHERS[name][1]
    for index in OUTSIDE:
        (y,) = run_node(op, [X, i64(place(index))], opset=13)
        assert np.isnan(y.ravel()[0])
    (y,) = run_node(op, [X, i64(place(-3))], opset=13)
    assert y.ravel()[0] == 1
    gradient = jax.jit(jax.grad(lambda x, i: jnp.nansum(function(x, i))))
    places = jnp.asarray(place(3), np.int32)
    assert gradient(jnp.asarray(X), places).sum() == (1 if op == "GatherElements" else 0)


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        (np.float16, np.nan),
        (ml_dtypes.bfloat16, np.nan),
        (np.int32, np.iinfo(np.int32).min),
        (np.int64, np.iinfo(np.int64).min),
        (np.uint8, 255),
        (bool, True),
    ],
)
def test_what_stands_for_no_entry(dtype, fill):
    for op, index in (("Gather", [2]), ("GatherElements", [2]), ("GatherND", [[2]])):
        (y,) = run_node(op, [np.zeros(2, dtype), i64(index)], opset=13)
        assert_close(y, np.array([fill], dtype))


@pytest.mark.parametrize("name", SCATTERS)
def test_scatter_at_run_time(name):
    _, place, updates = SCATTERS[name]
    op = name.split()[0]
    for index in OUTSIDE:
        (y,) = run_node(op, [X, i64(place(index)), updates], opset=18)
        expected = X.copy()
        if op == "ScatterElements":
            expected[0, 1] = 8
        assert_close(y, expected)


def call_gather(x, i):
    return ops.gather(x, i)


def call_gather_nd(x, i):
    return ops.gather_nd(x, i[:, None])


def call_gather_elements(x, i):
    return ops.gather_elements(x, i[:, None])


def call_scatter(x, i):
    return ops.scatter_elements(x, i[:, None], jnp.ones((1, 1), np.float32))


def call_scatter_nd(x, i):
    return ops.scatter_nd(x, i[:, None], jnp.ones((1, 2), np.float32))


@pytest.mark.parametrize(
    "call", [call_gather, call_gather_elements, call_gather_nd, call_scatter, call_scatter_nd]
)
def test_checkify_finds_them(call):
    """Without it there is no check in the program."""
    modes = [
        jax.jit(call),
        jax.grad(lambda x, i: jnp.nansum(call(x, i))),
        lambda x, i: jax.vmap(call, (0, None))(x[None], i),
    ]
    for mode in modes:
        checked = checkify.checkify(mode, errors=checkify.index_checks)
        assert "out-of-bounds" in (checked(X, jnp.array([3]))[0].get() or "")
        assert checked(X, jnp.array([-3]))[0].get() is None


def test_checkify_finds_them_in_a_model():
    model = jaxonnx.load(
        text_model("(float[3, 2] x, int64[1] i) => (float[1, 2] y) { y = Gather(x, i) }")
    )
    checked = checkify.checkify(lambda i: model(X, i), errors=checkify.index_checks)
    with jax.enable_x64(True):
        assert "out-of-bounds" in (checked(jnp.array([7]))[0].get() or "")
        assert checked(jnp.array([2]))[0].get() is None


def test_empty_axis():
    """Nothing is taken from nothing; anything else is out of range."""
    none = np.zeros((0, 2), np.float32)
    for data in (none, jnp.asarray(none)):
        assert ops.gather(data, i64([])).shape == (0, 2)
        assert ops.gather(data, np.zeros((3, 0), np.int64)).shape == (3, 0, 2)
        assert ops.gather_elements(data, np.zeros((0, 2), np.int64)).shape == (0, 2)
        assert ops.gather_nd(data, np.zeros((0, 1), np.int64)).shape == (0, 2)
        with pytest.raises(InvalidModelError, match=r"index 0, expected one in \[0, -1\]"):
            ops.gather(data, i64([0]))
    (y,) = run_node("Gather", [none, i64([])], opset=13)
    assert y.shape == (0, 2)
    (y,) = run_node("GatherElements", [none, i64([[0, 0]])], opset=13)
    assert_close(y, f32([[np.nan, np.nan]]))
    (y,) = run_node("GatherND", [none, i64([[0]])], opset=13)
    assert_close(y, f32([[np.nan, np.nan]]))
    (y,) = run_node("Gather", [none, i64([0])], opset=13)
    assert_close(y, f32([[np.nan, np.nan]]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.gather_elements(X, i64([0])), "rank of"),
        (lambda: ops.gather_elements(X, i64([[0, 0, 0]])), "no more beside axis 0"),
        (lambda: ops.gather_nd(X, i64([[0], [1]]), batch_dims=1), "differ in batches"),
        (lambda: ops.gather_nd(X, i64([[0], [1], [1]]), batch_dims=2), "batch_dims is 2"),
        (lambda: ops.gather_nd(X, i64(0)), "batch_dims is 0 for ranks 2, 0"),
        (
            lambda: ops.scatter_elements(X, i64([[0, 1]]), f32([[7]])),
            r"\[1, 1\], expected \[1, 2\]",
        ),
        (lambda: ops.scatter_elements(X, i64([[0, 1]]), f32([7, 8])), r"\[2\], expected \[1, 2\]"),
        (lambda: ops.scatter_elements(X, i64([[0, 1, 1]]), f32([[7, 8, 9]])), "beside axis 0"),
        (lambda: ops.scatter_nd(X, i64([[0], [1]]), f32([[7, 8]])), r"\[1, 2\], expected \[2, 2\]"),
        (lambda: ops.scatter_nd(X, i64([[0]]), f32([7, 8])), r"\[2\], expected \[1, 2\]"),
        (lambda: ops.reverse_sequence(X, i64([4, 1])), r"are \[4, 1\], expected 0 to 3"),
        (lambda: ops.reverse_sequence(X, i64([-1, 1])), r"are \[-1, 1\], expected 0 to 3"),
        (lambda: ops.reverse_sequence(X, i64([1])), r"sequence_lens \[1\] for an input \[3, 2\]"),
    ],
)
def test_what_does_not_fit(call, message):
    with pytest.raises(InvalidModelError, match=message):
        call()


def test_lengths_beyond_the_end():
    """A model refuses constant ones, and takes traced ones for no sequence at all."""
    text = "y = ReverseSequence(x, i)"
    with pytest.raises(InvalidModelError, match="expected 0 to 3"):
        with_constant(text, [1, 4])(X)
    (y,) = run_node("ReverseSequence", [X, i64([2, 4])], opset=10)
    assert_close(y, f32([[3, np.nan], [1, np.nan], [5, np.nan]]))


def states(op_type, lens, outputs):
    """Results of a recurrent layer for three sequences of two steps."""
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op_type]
    x, w = np.ones((2, 3, 1), np.float32), np.full((1, gates, 1), 0.5, np.float32)
    function = getattr(ops, snake_case(op_type))
    return function(x, w, w, None, lens, outputs=outputs)


@pytest.mark.parametrize(("op_type", "outputs"), [("RNN", 2), ("GRU", 2), ("LSTM", 3)])
def test_lengths_of_recurrent_layers(op_type, outputs):
    wrong = np.array([2, 3, -1], np.int32)
    with pytest.raises(InvalidModelError, match=r"sequence_lens are \[2, 3, -1\], expected 0 to 2"):
        states(op_type, wrong, outputs)
    right = states(op_type, np.array([2, 2, 2], np.int32), outputs)
    found = jax.jit(lambda lens: states(op_type, lens, outputs))(wrong)
    for f, r in zip(found, right, strict=True):
        assert_close(f[..., 0, :], r[..., 0, :])
        assert np.isnan(f[..., 1:, :]).all()


def test_lengths_of_a_recurrent_layer_for_any_time():
    """A length cannot be refused while the time is not known."""
    (time,) = jax.export.symbolic_shape("t")
    w, lens = np.full((1, 1, 1), 0.5, np.float32), np.array([1, 3], np.int32)
    layer = jax.jit(lambda x: ops.rnn(x, w, w, None, lens))
    exported = jax.export.export(layer)(jax.ShapeDtypeStruct((time, 2, 1), np.float32))
    short, long = np.ones((2, 2, 1), np.float32), np.ones((3, 2, 1), np.float32)
    assert np.isnan(exported.call(short)[:, 0]).all(axis=(0, 2)).tolist() == [False, True]
    assert_close(exported.call(long), layer(long))
    with pytest.raises(InvalidModelError, match=r"are \[1, 3\], expected 0 to 2"):
        layer(short)


SCAN = """
(int64[2] n, KIND[2, 3] x) => (KIND[2] last, KIND[2, 3] all)
  <KIND[2] s = {0, 0}> {
  last, all = Scan <num_scan_inputs = 1, body = b (KIND a, KIND v)
      => (KIND c, KIND d) { c = Add(a, v) d = Identity(c) }> (n, s, x)
}
"""


@pytest.mark.parametrize("count", [4, -1])
@pytest.mark.parametrize(("kind", "fill"), [("float", np.nan), ("int64", np.iinfo(np.int64).min)])
def test_lengths_of_a_scan(kind, fill, count):
    model = jaxonnx.load(text_model(SCAN.replace("KIND", kind), opset=8))
    x = np.array([[1, 2, 3], [4, 5, 6]], {"float": np.float32, "int64": np.int64}[kind])
    last, rows = model(i64([2, count]), x)
    assert_close(last, np.array([3, fill], x.dtype))
    assert_close(rows, np.array([[1, 3, 0], [fill] * 3], x.dtype))
    fixed = jaxonnx.load(
        text_model(SCAN.replace("KIND", kind), opset=8), constants={"n": i64([2, count])}
    )
    with pytest.raises(InvalidModelError, match=rf"are \[2, {count}\], expected 0 to 3"):
        fixed(x)


def test_lengths_of_keys():
    q, k, v = np.ones((3, 1, 1, 2)), np.ones((3, 1, 2, 2)), np.ones((3, 1, 2, 1))

    def attend(lens):
        options = {"outputs": 4, "qk_matmul_output_mode": 3}
        return ops.attention(q, k, v, None, None, None, lens, **options)

    with pytest.raises(
        InvalidModelError, match=r"nonpad_kv_seqlen are \[2, 3, -1\], expected 0 to"
    ):
        attend(i64([2, 3, -1]))
    y, _, _, weights = jax.jit(attend)(i64([2, 3, -1]))
    assert_close(y, f32([1, np.nan, np.nan]).reshape(3, 1, 1, 1))
    assert_close(weights, f32([[0.5] * 2, [np.nan] * 2, [np.nan] * 2]).reshape(3, 1, 1, 2))


def test_positions_without_a_row():
    x, cache = np.ones((1, 1, 3, 2), np.float32), np.eye(2, 1, dtype=np.float32)
    for wrong in (2, -1, 2**32):
        with pytest.raises(InvalidModelError, match=r"position_ids are .*, expected 0 to 1"):
            ops.rotary_embedding(x, cache, cache, i64([[0, 1, wrong]]))
        nodes = "(float[1, 1, 3, 2] x, int64[1, 3] i) => (float[?] y)"
        stored = "<float[2, 1] c = {1, 0}>"
        model = jaxonnx.load(
            text_model(f"{nodes} {stored} {{ y = RotaryEmbedding(x, c, c, i) }}", opset=23)
        )
        y = model(x, i64([[0, 1, wrong]]))
        assert_close(y, f32([[[[0, 2], [0, 0], [np.nan, np.nan]]]]))


def test_regions_of_no_image():
    x, rois = np.ones((2, 1, 2, 2), np.float32), f32([[0, 0, 2, 2]] * 3)
    with pytest.raises(InvalidModelError, match=r"index -3, expected one in \[-2, 1\]"):
        ops.roi_align(x, rois, i64([1, 2, -3]))
    y = jax.jit(ops.roi_align)(x, rois, i64([-1, 2, -3]))
    assert_close(y[:, 0, 0, 0], f32([1, np.nan, np.nan]))


def test_gather_nd_of_strings_in_batches():
    words = strings(["a", "b"], ["c", "d"])
    (y,) = run_node("GatherND", [words, i64([[1], [0]])], opset=12, batch_dims=1)
    assert y.tolist() == ["b", "c"]
    (y,) = run_node("GatherND", [words, i64([[[1]], [[-2]]])], opset=12, batch_dims=1)
    assert y.tolist() == [["b"], ["c"]]

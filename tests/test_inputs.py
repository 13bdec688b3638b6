"""What a model accepts as inputs, and what it says of others."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers import assert_close, f32, i64, text_model
from onnx import TensorProto, helper

import jaxonnx
from jaxonnx.errors import InputError
from jaxonnx.graph.plan import Spec
from jaxonnx.run.inputs import conform


def identity(dtype=TensorProto.FLOAT, shape=("N", 3), name="x"):
    """A model that gives its input back."""
    info = helper.make_tensor_value_info(name, dtype, shape)
    graph = helper.make_graph([], "g", [info], [info])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


@pytest.fixture(scope="module")
def subtract():
    """``x - y/1`` of float32 matrices with three columns."""
    infos = [helper.make_tensor_value_info(n, 1, ["N", 3]) for n in ("x", "y/1")]
    node = helper.make_node("Sub", ["x", "y/1"], ["z"])
    made = [helper.make_tensor_value_info("z", 1, ["N", 3])]
    graph = helper.make_graph([node], "g", infos, made)
    opsets = [helper.make_opsetid("", 24)]
    return jaxonnx.load(helper.make_model(graph, opset_imports=opsets, ir_version=11))


X = f32([[1, 2, 3]])
Y = f32([[1, 1, 1]])


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((X, Y), {}),
        ((X,), {"y/1": Y}),
        ((), {"y/1": Y, "x": X}),
        (({"y/1": Y, "x": X},), {}),
        (({"x": X},), {"y/1": Y}),
    ],
)
def test_position_name_and_mapping(subtract, args, kwargs):
    assert_close(subtract(*args, **kwargs), f32([[0, 1, 2]]))


SIGNATURE = r"expected 'x': float32\[N, 3\], 'y/1': float32\[N, 3\]"


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "input 'x' is missing; input 'y/1' is missing; " + SIGNATURE),
        ((X,), {}, "input 'y/1' is missing; " + SIGNATURE),
        ((X, Y, Y), {}, "3 inputs by position, " + SIGNATURE),
        ((X, Y), {"z": Y}, "no input is called 'z'; " + SIGNATURE),
        ((X, Y), {"x": Y}, "input 'x' is given twice, by position and by name"),
        (({"x": X, "y": Y},), {}, "no input is called 'y'; input 'y/1' is missing; " + SIGNATURE),
        (({"x": X, "y/1": Y},), {"x": X}, "input 'x' is given twice, in the mapping and by name"),
        ((X, Y[0]), {}, r"input 'y/1': float32\[3\], expected float32\[N, 3\]"),
        ((X, Y[:, :2]), {}, r"input 'y/1': float32\[1, 2\], expected float32\[N, 3\]"),
        ((X.astype(float), Y), {}, r"'x': float64\[1, 3\], expected float32.*astype\('float32'\)"),
        ((X.astype(np.float16), Y), {}, "'x': float16"),
        ((X.astype(np.int32), Y), {}, "'x': int32"),
        ((X > 0, Y), {}, "'x': bool"),
        ((None, Y), {}, "'x': object"),
        (("text", Y), {}, "'x': <U4"),
        (([[1, 2, 3], [4]], Y), {}, "input 'x': setting an array element with a sequence"),
    ],
)  # fmt: skip
def test_wrong_inputs(subtract, args, kwargs, message):
    with pytest.raises(InputError, match=message) as caught:
        subtract(*args, **kwargs)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ValueError)


def test_jax_arrays_and_tracers_are_checked_alike(subtract):
    assert_close(subtract(jnp.asarray(X), jnp.asarray(Y)), X - Y)
    with pytest.raises(InputError, match=r"'x': int32\[1, 3\], expected float32"):
        subtract(jnp.asarray(X, np.int32), Y)
    with pytest.raises(InputError, match=r"'x': float32\[3\], expected float32\[N, 3\]"):
        jax.vmap(subtract)(X, Y)


@pytest.mark.parametrize(
    ("declared", "value", "expected"),
    [
        (TensorProto.FLOAT, 1.5, f32(1.5)),
        (TensorProto.FLOAT, 1, f32(1)),
        (TensorProto.DOUBLE, 0.1, np.float64(0.1)),
        (TensorProto.BFLOAT16, 1.5, ml_dtypes.bfloat16(1.5)),
        (TensorProto.INT64, 2**40, i64(2**40)),
        (TensorProto.UINT8, 255, np.uint8(255)),
        (TensorProto.BOOL, True, np.bool_(True)),
        (TensorProto.COMPLEX64, 1j, np.complex64(1j)),
        (TensorProto.COMPLEX64, 2.0, np.complex64(2)),
        (TensorProto.FLOAT, np.float32(2), f32(2)),
        (TensorProto.FLOAT, float("inf"), f32(np.inf)),
    ],
)
def test_python_scalars(declared, value, expected):
    assert_close(jaxonnx.load(identity(declared, []))(value), expected)


@pytest.mark.parametrize(
    ("value", "expected"), [([1, 2], [1, 2]), ((0.5,), [0.5]), ([], []), ([True], None)]
)
def test_python_lists(value, expected):
    model = jaxonnx.load(identity(TensorProto.FLOAT, ["N"]))
    if expected is None:
        with pytest.raises(InputError, match=r"bool\[1\], expected float32\[N\]"):
            model(value)
    else:
        assert_close(model(value), f32(expected))


@pytest.mark.parametrize(
    ("declared", "value", "message"),
    [
        (TensorProto.INT64, 1.5, r"float64\[\], expected int64\[\]"),
        (TensorProto.INT64, True, r"bool\[\], expected int64\[\]"),
        (TensorProto.BOOL, 1, r"int64\[\], expected bool\[\]"),
        (TensorProto.FLOAT, 1j, r"complex128\[\], expected float32\[\]"),
        (TensorProto.FLOAT, np.float64(1), r"float64\[\], expected float32\[\]"),
        (TensorProto.FLOAT, 1e300, "overflow"),
        (TensorProto.INT8, 300, "300 is out of the range of int8; expected int8"),
        (TensorProto.UINT8, -1, "-1 is out of the range of uint8"),
        (TensorProto.INT64, 2**70, "object"),
    ],
)
def test_wrong_python_scalars(declared, value, message):
    with pytest.raises(InputError, match=message):
        jaxonnx.load(identity(declared, []))(value)


@pytest.mark.parametrize("wrap", [np.asarray, jnp.asarray])
def test_narrower_integers_are_widened(wrap):
    model = jaxonnx.load(identity(TensorProto.INT64, ["N"]))
    assert_close(model(wrap(np.array([1, -2], np.int32))), i64([1, -2]))
    assert_close(model(wrap(np.array([1, -2], np.int8))), i64([1, -2]))


@pytest.mark.parametrize(
    ("declared", "given"),
    [
        (TensorProto.INT32, np.int64),
        (TensorProto.INT64, np.uint64),
        (TensorProto.INT8, np.uint8),
        (TensorProto.INT16, np.uint16),
        (TensorProto.UINT8, np.int8),
        (TensorProto.UINT32, np.int16),
        (TensorProto.INT64, np.bool_),
        (TensorProto.UINT64, np.int8),
        (TensorProto.DOUBLE, np.float32),
        (TensorProto.FLOAT, np.float16),
        (TensorProto.FLOAT, ml_dtypes.bfloat16),
        (TensorProto.FLOAT16, np.float32),
        (TensorProto.FLOAT, np.int32),
    ],
)
def test_kind_and_precision_never_change(declared, given):
    with pytest.raises(InputError, match=np.dtype(given).name):
        jaxonnx.load(identity(declared, ["N"]))(np.ones(2, given))


@pytest.mark.parametrize(
    ("declared", "given"),
    [
        (TensorProto.INT64, np.uint8),
        (TensorProto.INT64, np.uint16),
        (TensorProto.INT64, np.uint32),
        (TensorProto.INT32, np.uint16),
        (TensorProto.INT16, np.uint8),
        (TensorProto.UINT64, np.uint32),
        (TensorProto.UINT16, np.uint8),
        (TensorProto.INT8, ml_dtypes.int4),
        (TensorProto.INT8, ml_dtypes.uint4),
        (TensorProto.UINT8, ml_dtypes.uint4),
    ],
)
@pytest.mark.parametrize("wrap", [np.asarray, jnp.asarray])
def test_integers_are_widened_where_all_values_fit(declared, given, wrap):
    model = jaxonnx.load(identity(declared, ["N"]))
    highest = int(jnp.iinfo(given).max)
    result = np.asarray(model(wrap(np.array([0, highest]).astype(given))))
    assert result.tolist() == [0, highest]
    assert result.dtype == model.inputs[0].dtype


def test_widening_a_traced_integer():
    model = jaxonnx.load(identity(TensorProto.INT64, ["N"]))
    assert_close(jax.jit(model)(np.array([1, -2], np.int32)), i64([1, -2]))


@pytest.mark.parametrize("shape", [None, [None, 3], ["N", 3], [0, 3], [-1, 3], ["?", 3]])
def test_open_sizes_take_any(shape):
    model = jaxonnx.load(identity(shape=shape))
    for batch in (0, 1, 4):
        x = np.ones((batch, 3), np.float32)
        assert_close(model(x), x)


def test_fixed_sizes():
    model = jaxonnx.load(identity(shape=[2, 3]))
    with pytest.raises(InputError, match=r"'x': float32\[1, 3\], expected float32\[2, 3\]"):
        model(X)


def test_input_named_as_a_parameter_of_python():
    """Inputs called ``self``, ``args`` or ``params`` are inputs as others are."""
    for name in ("self", "args", "kwargs", "params", "x"):
        model = jaxonnx.load(identity(name=name))
        assert_close(model(**{name: X}), X)
        assert_close(model({name: X}), X)


def test_constants():
    proto = identity(TensorProto.INT64, ["N"])
    model = jaxonnx.load(proto, constants={"x": np.array([1, 2], np.int32)})
    assert model.input_names == ()
    assert_close(model(), i64([1, 2]))
    with pytest.raises(InputError, match="constants: no input is called 'z'; there are 'x'"):
        jaxonnx.load(proto, constants={"z": 1})
    with pytest.raises(InputError, match=r"'x': float64\[1\], expected int64\[N\]"):
        jaxonnx.load(proto, constants={"x": np.ones(1)})


def _bert():
    """Two inputs of the same batch and sequence, as language models declare them."""
    text = """
        (int64[batch, sequence] ids, int64[batch, sequence] mask, float[?, 2] x) => (y) {
            y = Add(ids, mask)
        }
    """
    return jaxonnx.load(text_model(text))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 12), r"'batch' is 2 in input 'ids' \(axis 0\) and 1 in input 'mask' \(axis 0\)"),
        ((2, 3), r"'sequence' is 12 in input 'ids' \(axis 1\) and 3 in input 'mask' \(axis 1\)"),
    ],
)
@pytest.mark.parametrize("traced", [False, True])
def test_dimensions_of_one_name_must_agree(shape, message, traced):
    model = _bert()
    call = jax.jit(model) if traced else model
    ids, x = np.ones((2, 12), np.int32), np.ones((5, 2), np.float32)
    assert call(ids, ids, x).shape == (2, 12)
    with pytest.raises(InputError, match=f"the dimension {message}.*names of their own"):
        call(ids, np.ones(shape, np.int32), x)


def test_dimensions_of_one_name_in_one_input_must_agree():
    model = jaxonnx.load(identity(shape=["N", "N"]))
    assert model(np.ones((2, 2), np.float32)).shape == (2, 2)
    with pytest.raises(InputError, match=r"'N' is 2 .* \(axis 0\) and 3 in input 'x' \(axis 1\)"):
        model(np.ones((2, 3), np.float32))


def test_dimensions_without_a_name_need_not_agree():
    model = jaxonnx.load(identity(shape=["?", "?", None, ""]))
    assert model(np.ones((1, 2, 3, 4), np.float32)).shape == (1, 2, 3, 4)


def test_dimensions_of_one_name_may_be_symbolic():
    model = _bert()
    ids = jax.ShapeDtypeStruct(jax.export.symbolic_shape("B, S"), np.int32)
    x = jax.ShapeDtypeStruct((5, 2), np.float32)
    assert jax.eval_shape(model, ids, ids, x).shape == ids.shape


def test_dimensions_of_an_input_that_is_left_out_are_not_compared():
    text = "(float[N] x, float[N] c) => (y) <float[2] c = {1, 2}> { y = Abs(x) }"
    model = jaxonnx.load(text_model(text))
    assert_close(model(f32([1, 2, 3])), f32([1, 2, 3]))
    with pytest.raises(InputError, match="'N' is 3 in input 'x'"):
        model(f32([1, 2, 3]), c=f32([1, 2]))


def _held(*kinds):
    return Spec("m", np.dtype(np.float32), (), kinds)


@pytest.mark.parametrize(
    ("kinds", "value", "expected"),
    [
        (["map(string)"], {"a": 1.5}, {"a": f32(1.5)}),
        (["map(int64)"], {3: 1.5, np.int32(-2): 2}, {3: f32(1.5), -2: f32(2)}),
        (["seq", "map(int64)"], ({3: 1.5}, {}), [{3: f32(1.5)}, {}]),
        (["optional", "map(string)"], {"a": 1}, {"a": f32(1)}),
        (["optional", "map(string)"], None, None),
    ],
)
def test_maps_are_checked_by_key_and_value(kinds, value, expected):
    found = conform(value, _held(*kinds))
    assert found == expected
    assert type(found) is type(expected)
    for part in found if isinstance(found, list) else [found or {}]:
        assert {type(k) for k in part} <= {str, int}
        assert all(v.dtype == np.float32 for v in part.values())


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("map(string)", {"a": 1.0, 3: 2.0}, r"a key is 3, expected map\(string, float32\[\]\)"),
        ("map(int64)", {3: 1.0, "a": 2.0}, r"a key is 'a', expected map\(int64, float32\[\]\)"),
        ("map(int64)", {3: np.float64(1)}, r"'m': float64\[\], expected float32\[\]"),
        ("map(int64)", [1.0], r"'m': list, expected map\(int64, float32\[\]\)"),
        ("seq", {3: 1.0}, r"'m': dict, expected seq\(float32\[\]\)"),
    ],
)
def test_wrong_maps(kind, value, message):
    with pytest.raises(InputError, match=message):
        conform(value, _held(kind))


@pytest.mark.parametrize(
    "value", [["a", "bc"], np.array(["a", "bc"]), np.array(["a", "bc"], object)]
)
def test_text_of_every_form(value):
    text = conform(value, Spec("s", np.dtypes.StringDType(), ("N",)))
    assert isinstance(text.dtype, np.dtypes.StringDType)
    assert text.tolist() == ["a", "bc"]


@pytest.mark.parametrize("value", [[1, 2], np.array(["a", 1], object)])
def test_numbers_are_no_text(value):
    with pytest.raises(InputError, match=r"input 's': .*; expected string\[N\]"):
        conform(value, Spec("s", np.dtypes.StringDType(coerce=False), ("N",)))


def test_a_map_is_the_value_of_the_first_input_or_values_by_name():
    model = jaxonnx.load(
        text_model(
            """(map(string, float) m) => (float[2] y)
            { y = ai.onnx.ml.DictVectorizer<string_vocabulary = ["a", "b"]>(m) }"""
        )
    )
    expected = f32([0, 2])
    assert_close(model({"b": 2.0}), expected)
    assert_close(model({"m": {"b": 2.0}}), expected)
    assert_close(model(m={"b": 2.0}), expected)


def test_key_is_a_keyword_unless_an_input_has_that_name():
    key = jax.random.key(0)
    plain = jaxonnx.load(identity())
    x = f32([[1, 2, 3]])
    assert_close(plain(x, key=key), x)
    with pytest.raises(InputError, match=r"key is 5, expected one typed key"):
        plain(x, key=5)
    named = jaxonnx.load(identity(name="key"))
    assert_close(named(key=x), x)
    assert_close(named(x, key=key), x)

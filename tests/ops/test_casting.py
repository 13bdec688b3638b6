"""Cast, CastLike and BitCast."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers import assert_close, check_gradients, run_node
from onnx import TensorProto

from jaxonnx import ops
from jaxonnx.errors import InvalidModelError

F8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]


def dtype(name):
    return np.dtype(getattr(ml_dtypes, name, name))


def both(x, **options):
    """The known and the traced result, which must agree."""
    known = ops.cast(x, **options)
    with jax.enable_x64(True):
        traced = np.asarray(jax.jit(lambda x: ops.cast(x, **options))(x))
    assert_close(traced.astype(np.float64), np.asarray(known).astype(np.float64))
    assert traced.dtype == known.dtype
    return traced


def test_float_to_integer_truncates():
    x = np.array([-2.7, -0.5, 0.5, 2.7], np.float32)
    assert_close(both(x, to=TensorProto.INT64), np.array([-2, 0, 0, 2], np.int64))


def test_integers_wrap():
    x = np.array([200, -1, 300], np.int16)
    assert_close(both(x, to=TensorProto.INT8), np.array([-56, -1, 44], np.int8))
    assert_close(both(x, to=TensorProto.UINT8), np.array([200, 255, 44], np.uint8))


def test_to_bool_and_back():
    x = np.array([0.0, -0.0, 0.5, np.nan], np.float32)
    assert_close(both(x, to=TensorProto.BOOL), np.array([False, False, True, True]))
    assert_close(both(x > 0, to=TensorProto.FLOAT), np.array([0, 0, 1, 0], np.float32))


def test_int64_to_float64_is_exact():
    x = np.array([2**40 + 1, 2**53], np.int64)
    assert_close(run_node("Cast", [x], opset=13, to=TensorProto.DOUBLE)[0], x.astype(np.float64))


@pytest.mark.parametrize("name", F8)
def test_float8_saturates(name):
    most = float(ml_dtypes.finfo(dtype(name)).max)
    x = np.array([1e6, -1e6, np.inf, -np.inf, np.nan, 1.0], np.float32)
    expected = np.array([most, -most, most, -most, np.nan, 1], np.float32)
    number = getattr(TensorProto, name.replace("float8_", "FLOAT8").upper().replace("_", ""))
    np.testing.assert_array_equal(both(x, to=number).astype(np.float32), expected)


@pytest.mark.parametrize("name", F8)
def test_float8_without_saturation(name):
    top = np.inf if name == "float8_e5m2" else np.nan
    number = getattr(TensorProto, name.replace("float8_", "FLOAT8").upper().replace("_", ""))
    y = both(np.array([1e6, np.inf], np.float32), to=number, saturate=0).astype(np.float32)
    np.testing.assert_array_equal(y, np.array([top, top], np.float32))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("up", [2.0, 2.0, 1.0]), ("down", [1.0, 1.0, 1.0]), ("nearest", [1.0, 2.0, 1.0])],
)
def test_float8_e8m0_rounds_to_powers_of_two(mode, expected):
    x = np.array([1.25, 1.5, 1.0], np.float32)
    y = both(x, to=TensorProto.FLOAT8E8M0, round_mode=mode)
    assert_close(y.astype(np.float32), np.array(expected, np.float32))


@pytest.mark.parametrize(("to", "expected"), [(TensorProto.INT4, -7), (TensorProto.UINT4, 9)])
def test_narrow_integers_wrap(to, expected):
    assert int(both(np.array([9.0], np.float32), to=to)[0]) == expected


def test_a_dtype_may_be_named():
    assert ops.cast(np.zeros(2), to=np.dtype(np.int32)).dtype == np.int32


def test_opset_1_names_types():
    x = np.array([1.5], np.float32)
    assert_close(run_node("Cast", [x], opset=1, to="INT32")[0], np.array([1], np.int32))


def test_undefined_type():
    with pytest.raises(InvalidModelError, match="the element type `to` is undefined"):
        ops.cast(np.zeros(1), to=0)
    with pytest.raises(InvalidModelError, match="element type 99 is not one of ONNX's"):
        ops.cast(np.zeros(1), to=99)


@pytest.mark.parametrize("opset", [15, 19, 24])
def test_cast_like(opset):
    x = np.array([1.5, -1.5], np.float32)
    y = run_node("CastLike", [x, np.zeros(0, np.float16)], opset=opset)[0]
    assert_close(y, x.astype(np.float16))


def test_bit_cast():
    x = np.array([1.0, -2.0], np.float32)
    (y,) = run_node("BitCast", [x], opset=26, to=TensorProto.INT32)
    assert_close(y, x.view(np.int32))
    (flags,) = run_node("BitCast", [np.array([True, False])], opset=26, to=TensorProto.UINT8)
    assert_close(flags, np.array([1, 0], np.uint8))


def test_gradients():
    check_gradients(lambda x: ops.cast(x, to=TensorProto.DOUBLE) ** 2, np.array([0.3, -2.0]))
    through_int = lambda x: jnp.sum(
        ops.cast(ops.cast(x, to=TensorProto.INT32), to=TensorProto.FLOAT)
    )
    assert_close(jax.grad(through_int)(np.ones(2, np.float32)), np.zeros(2, np.float32))

"""A plan as bytes: exact, equal where the content is, with a version."""

import json
import math
import time

import ml_dtypes
import numpy as np
import pytest
from helpers import text_model

import jaxonnx
from jaxonnx.errors import InputError
from jaxonnx.graph import serial
from jaxonnx.graph.plan import Node, Options, Spec

FLOATS = [0.1, -0.0, 1e-320, 2.0**-1074, 1.7976931348623157e308, math.inf, -math.inf, 1 / 3]


def again(value):
    return serial.decode(serial.encode(value))


@pytest.mark.parametrize("value", FLOATS)
def test_floats_are_exact(value):
    result = again(value)
    assert math.copysign(1, result) == math.copysign(1, value)
    assert result == value


def test_nan_stays_nan():
    assert math.isnan(again(math.nan))


def test_the_next_float_is_another():
    assert serial.encode(0.1) != serial.encode(math.nextafter(0.1, 1))
    assert serial.digest(0.0) != serial.digest(-0.0)


DTYPES = [
    np.bool_, np.int8, np.uint64, np.float16, np.float64, np.complex64, ml_dtypes.bfloat16,
    ml_dtypes.int4, ml_dtypes.uint2, ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 2)])
def test_arrays_are_exact(dtype, shape):
    with np.errstate(invalid="ignore"):  # what -1 becomes in unsigned types is of no matter
        array = np.array([0, 1, -1, 1.5]).astype(dtype)[: math.prod(shape)].reshape(shape)
    result = again(array)
    assert result.dtype == array.dtype
    assert result.shape == shape
    assert result.tobytes() == array.tobytes()


def test_bits_of_floats_are_kept():
    array = np.array([0x7FC00001, 0xFFC00000, 0x80000000, 1], np.uint32).view(np.float32)
    assert again(array).tobytes() == array.tobytes()


def test_arrays_that_are_not_contiguous():
    array = np.arange(12).reshape(3, 4).T[::2]
    np.testing.assert_array_equal(again(array), array)


def test_strings():
    array = np.array([["a", "ü\0"], ["", "😀"]], np.dtypes.StringDType())
    result = again(array)
    assert result.tolist() == array.tolist()
    assert result.dtype == array.dtype


def test_several_arrays_keep_their_places():
    arrays = {"a": np.arange(3, dtype=np.int8), "b": np.zeros(0), "c": np.arange(2.0)}
    result = again(arrays)
    assert [*result] == [*arrays]
    for name, array in arrays.items():
        np.testing.assert_array_equal(result[name], array)


@pytest.mark.parametrize(
    "value",
    [
        None, True, 7, "x", b"\0\xff", (1, (2.5,)), frozenset({"b", "a"}), {"k": (None,)},
        Options(("S<=5",), {"n": 3}, buckets=True),
        Spec("x", np.dtype(np.float32), (1, "N", None), ("seq",)),
        Spec("s", np.dtypes.StringDType(), None),
        Node("Op", "d", 3, "", ("a", ""), ("b",), {"k": (1, 2)}, ("f",), b"p"),
    ],
)  # fmt: skip
def test_everything_else(value):
    assert again(value) == value


def test_sets_are_in_one_order():
    assert serial.encode(frozenset("abcdef")) == serial.encode(frozenset("fedcba"))


def test_what_a_plan_does_not_hold():
    with pytest.raises(TypeError, match="a plan holds no list"):
        serial.encode([1])


def with_header(change):
    data = serial.encode((1.5, np.arange(3)))
    length = int.from_bytes(data[8:16], "little")
    header = json.loads(data[16 : 16 + length])
    change(header)
    text = json.dumps(header).encode()
    return data[:8] + len(text).to_bytes(8, "little") + text + data[16 + length :]


def test_another_version_is_refused():
    with pytest.raises(InputError, match="version 99 of the format, but this jaxonnx reads"):
        serial.decode(with_header(lambda h: h.update(version=99)))
    assert serial.decode(with_header(lambda h: None))[0] == 1.5


def test_other_bytes_are_refused():
    for data in (b"", b"jaxonnx\0", b"{}", serial.encode(1)[:-3]):
        with pytest.raises(InputError, match="no model of jaxonnx"):
            serial.decode(data)
    for data in (serial.encode(np.arange(3))[:-1], serial.encode(np.arange(3)) + b"0"):
        with pytest.raises(InputError, match="bytes of a model, expected"):
            serial.decode(data)


def test_fields_have_names():
    data = serial.encode(Options(("S<=5",)))
    assert b'{"Options":{"bounds":{"dict":[]},"buckets":false,"compute":null,"constraints"' in data


def test_a_digest_is_of_the_bytes():
    import hashlib

    value = {"w": np.arange(5), "x": 0.5}
    assert serial.digest(value) == hashlib.sha256(serial.encode(value)).hexdigest()
    assert serial.digest({"w": np.arange(5)}) != serial.digest({"w": np.arange(5, dtype=np.int8)})


def test_large_arrays_are_not_text():
    """Were they text, 100 MB would take seconds and three times the memory."""
    array = np.zeros(1_000_000, np.int8)
    assert len(serial.encode(array)) < 1_000_500
    big = np.zeros(100_000_000, np.int8)
    start = time.process_time()
    serial.digest(big)
    assert time.process_time() - start < 2


def test_programs_are_equal_by_content():
    text = "(float[N] x) => (float[N] y) <int64 k = {%d}> { c = CastLike(k, x) y = Mul(x, c) }"
    one, same, other = (jaxonnx.load(text_model(text % k))._program for k in (2, 2, 3))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != "something else"

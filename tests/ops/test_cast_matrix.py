"""Cast from every type to every other, known and traced, against the rules in the schema's text.

The expected values come from the codes of the target type: the nearest one, or the lower bits.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import jaxonnx
from jaxonnx import ops
from jaxonnx.define.dtypes import STRING
from jaxonnx.define.schema import onnx_signature
from jaxonnx.errors import UnsupportedOpError
from jaxonnx.ops.casting import NOT_IN_XLA

VERSIONS = (6, 9, 13, 19, 21, 23, 24, 25, 28)


def allowed(version: int) -> list[np.dtype]:
    """The types of a version of Cast."""
    signature = onnx_signature("Cast", version, "")
    assert signature is not None
    assert signature.inputs[0].dtypes is not None
    return sorted(signature.inputs[0].dtypes, key=lambda d: d.name)


NUMERIC = [t for t in allowed(28) if t != STRING]
TRACED = [t for t in NUMERIC if t.name not in NOT_IN_XLA]


def is_float(dtype):
    return jnp.issubdtype(dtype, np.floating)


def samples(dtype: np.dtype) -> np.ndarray:
    """Numbers of a type: small ones, ties, its ends, and others that narrower types lack."""
    if dtype.kind == "b":
        return np.array([False, True])
    if is_float(dtype):
        near = (0.0, 0.4, 0.5, 1.0, 1.3125, 1.5, 2.5, 3.5, 5.0, 6.5, 19.0, 100.7, 208.0, 300.0)
        wide = [s * n for n in (*near, 1e5, 1e6, 1e30, np.inf) for s in (1, -1)]
        with np.errstate(over="ignore", invalid="ignore"):
            return np.array([*wide, np.nan], np.float32).astype(dtype)
    info = ml_dtypes.iinfo(dtype)
    wide = (0, 1, 2, 3, 5, 7, 17, 100, 200, 300, 70_000, 2**31 + 5, 2**40 + 1, 2**63 + 9)
    inside = [n for w in wide for n in (w, -w) if info.min <= n <= info.max]
    return np.array([*inside, int(info.min), int(info.max)], object).astype(dtype)


def numbers(values: Any) -> list[Any]:
    """The elements as exact numbers of Python."""
    values = np.asarray(values)
    with np.errstate(invalid="ignore"):
        floating = is_float(values.dtype)
        return values.astype(np.float64).tolist() if floating else [int(v) for v in values]


@functools.cache
def codes(dtype: np.dtype) -> np.ndarray:
    """The non-negative finite numbers of a type of at most 16 bits, in order of their codes."""
    count = 2 ** ml_dtypes.finfo(dtype).bits
    found = np.arange(count, dtype=np.uint8 if count <= 256 else np.uint16).view(dtype)
    with np.errstate(invalid="ignore"):
        found = found.astype(np.float64)
    return found[np.isfinite(found) & ~np.signbit(found)]


def nearest(x: float, dtype: np.dtype, saturate: bool) -> float:
    """The number of a floating type nearest to ``x``, of two the one with an even code."""
    if np.isnan(x):
        return x
    if dtype.itemsize > 2:
        with np.errstate(over="ignore"):
            return float(dtype.type(x))
    near = codes(dtype)
    if abs(x) > near[-1] + (near[-1] - near[-2]) / 2:
        infinite = dtype.name in ("float16", "bfloat16", "float8_e5m2")
        top = near[-1] if saturate else np.inf if infinite else np.nan
        return float(np.copysign(top, x))
    distance = np.abs(near - abs(x))
    closest = np.flatnonzero(distance == distance.min())
    return float(np.copysign(near[min(closest, key=lambda k: k % 2)], x))


UNDEFINED = None


def converted(x: Any, dtype: np.dtype, saturate: bool) -> Any:
    """A number in another type; ``UNDEFINED`` where the schema says nothing."""
    if dtype.kind == "b":
        return int(x != 0)
    if dtype.name == "float8_e8m0fnu":
        if np.isinf(x) and not saturate:
            return np.nan
        return 2.0 ** np.clip(np.ceil(np.log2(x)), -127, 127) if x > 0 else UNDEFINED
    if is_float(dtype):
        small = dtype.name in ("float4_e2m1fn", *NOT_IN_XLA)  # without NaN and infinities
        return UNDEFINED if small and not np.isfinite(x) else nearest(x, dtype, saturate or small)
    info = ml_dtypes.iinfo(dtype)
    if isinstance(x, int):
        span = int(info.max) - int(info.min) + 1
        return (x - int(info.min)) % span + int(info.min)
    whole = int(x) if np.isfinite(x) else None
    return whole if whole is not None and info.min <= whole <= info.max else UNDEFINED


def assert_converted(found: Any, values: np.ndarray, dtype: np.dtype, saturate: bool) -> None:
    assert found.dtype == dtype
    pairs = [
        (f, e)
        for f, x in zip(numbers(found), numbers(values), strict=True)
        if (e := converted(x, dtype, saturate)) is not UNDEFINED
    ]
    assert pairs
    wrong = [(f, e) for f, e in pairs if f != e and not (np.isnan(f) and np.isnan(e))]
    assert not wrong, f"{values.dtype} to {dtype}"


@pytest.mark.parametrize("source", NUMERIC, ids=str)
def test_known_values(source):
    values = samples(source)
    for target in NUMERIC:
        narrow = target.name.startswith(("float8", "float6", "float4"))
        for saturate in {narrow, False}:
            found = ops.cast(values, to=target, saturate=int(saturate))
            assert_converted(found, values, target, saturate)
        like = ops.cast_like(values, np.zeros(0, target))
        assert_converted(like, values, target, narrow)


@pytest.mark.parametrize("source", TRACED, ids=str)
def test_traced_values(source):
    values = samples(source)
    narrow = {t: t.name.startswith(("float8", "float4")) for t in TRACED}

    def every(x):
        return {t: ops.cast(x, to=t) for t in TRACED}, {
            t: ops.cast(x, to=t, saturate=0) for t in TRACED
        }

    with jax.enable_x64(True):
        names = lambda found: [{t.name: v for t, v in f.items()} for f in found]
        clipped, plain = jax.jit(lambda x: names(every(x)))(values)
    for target in TRACED:
        assert_converted(clipped[target.name], values, target, narrow[target])
        assert_converted(plain[target.name], values, target, False)


@pytest.mark.parametrize("name", NOT_IN_XLA)
def test_what_xla_does_not_have_is_refused(name):
    dtype = np.dtype(getattr(ml_dtypes, name))
    with pytest.raises(UnsupportedOpError, match=f"XLA does not compute with {name}"):
        jax.eval_shape(lambda x: ops.cast(x, to=dtype), np.zeros(2, np.float32))


@pytest.mark.parametrize("source", NUMERIC, ids=str)
def test_strings_give_the_numbers_back(source):
    values = samples(source)
    text = ops.cast(values, to=STRING)
    assert text.dtype == STRING
    back = ops.cast(text, to=source, saturate=0)
    assert back.dtype == source
    np.testing.assert_array_equal(np.array(numbers(back)), np.array(numbers(values)))


@pytest.mark.parametrize("version", [1, *VERSIONS])
def test_every_version_converts_each_of_its_types(version):
    types = [t for t in allowed(version) if t in TRACED]
    infos = [helper.make_tensor_value_info(f"x{k}", number(t), [2]) for k, t in enumerate(types)]
    target = (lambda t: TensorProto.DataType.Name(number(t))) if version == 1 else number
    pairs = [(k, t) for k in range(len(types)) for t in types]
    nodes = [helper.make_node("Cast", [f"x{k}"], [f"y{k}_{t}"], to=target(t)) for k, t in pairs]
    outputs = [onnx.ValueInfoProto(name=n.output[0]) for n in nodes]
    graph = helper.make_graph(nodes, "casts", infos, outputs)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10
    )
    with jax.enable_x64(True):
        made = jax.eval_shape(jaxonnx.load(model), *(np.zeros(2, t) for t in types))
    assert [v.dtype for v in made] == [t for _, t in pairs]


def number(dtype: np.dtype) -> int:
    return helper.np_dtype_to_tensor_dtype(dtype)

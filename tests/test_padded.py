"""Bounds and buckets: padded arrays that never let padding reach a real element."""

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from helpers import assert_close, f32, i64, strings, text_model
from jax.experimental import checkify
from onnx import TensorProto, helper

import jaxonnx
from jaxonnx.define import registry
from jaxonnx.define.padded import pad
from jaxonnx.errors import (
    DataDependentShapeError,
    InputError,
    InvalidModelError,
    UnpaddableError,
)
from jaxonnx.run import padding

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def model_of(tail, outputs, stored=None):
    """The positive elements of ``x``, gathered as ``v``, then the nodes of ``tail``."""
    nodes = [
        ("Greater", ["x", "zero"], ["chosen"], {}),
        ("NonZero", ["chosen"], ["places"], {"name": "find"}),
        ("Squeeze", ["places", "first"], ["index"], {}),
        ("Gather", ["x", "index"], ["v"], {}),
        *tail,
    ]
    values = {"zero": np.float32(0), "first": np.array([0]), **(stored or {})}
    graph = helper.make_graph(
        [helper.make_node(op, i, o, **a) for op, i, o, a in nodes],
        "g",
        [helper.make_tensor_value_info("x", FLOAT, ["N"])],
        [helper.make_tensor_value_info(n, t, None) for n, t in outputs],
        [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in values.items()],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


X = np.array([1, -2, 3, -5, 4], np.float32)
V = X[X > 0]


def column(name):
    """Nodes that make ``v`` a [n, 1] column, then a [n, 2] product of it."""
    return [
        ("Unsqueeze", ["v", "last"], ["column"], {}),
        ("MatMul", ["column", "row"], [name], {}),
    ]


ROW = {"last": np.array([-1]), "row": np.array([[1, 2]], np.float32), "two": np.array([2])}
M = V[:, None] * ROW["row"]

CASES = {
    "gathered": ([], "v", FLOAT, V),
    "pointwise": ([("Mul", ["v", "v"], ["y"], {})], "y", FLOAT, V * V),
    "exp": ([("Exp", ["v"], ["y"], {})], "y", FLOAT, np.exp(V)),
    "positions": ([], "places", INT64, np.array([[0, 2, 4]])),
    "shape": ([("Shape", ["v"], ["y"], {})], "y", INT64, np.array([3])),
    "sum": ([("ReduceSum", ["v"], ["y"], {"keepdims": 0})], "y", FLOAT, V.sum()),
    "mean": ([("ReduceMean", ["v"], ["y"], {"keepdims": 0})], "y", FLOAT, V.mean()),
    "max": (
        [("Neg", ["v"], ["n"], {}), ("ReduceMax", ["n"], ["y"], {"keepdims": 0})],
        "y",
        FLOAT,
        (-V).max(),
    ),
    "min": ([("ReduceMin", ["v"], ["y"], {"keepdims": 0})], "y", FLOAT, V.min()),
    "product": ([("ReduceProd", ["v"], ["y"], {"keepdims": 0})], "y", FLOAT, V.prod()),
    "argmax": (
        [("Neg", ["v"], ["n"], {}), ("ArgMax", ["n"], ["y"], {"keepdims": 0})],
        "y",
        INT64,
        np.array(0),
    ),
    "softmax": ([("Softmax", ["v"], ["y"], {})], "y", FLOAT, np.exp(V) / np.exp(V).sum()),
    "top": ([("TopK", ["v", "two"], ["y", "i"], {})], "y", FLOAT, np.array([4, 3], np.float32)),
    "last": ([("Gather", ["v", "last"], ["y"], {})], "y", FLOAT, V[-1:]),
    "slice": ([("Slice", ["v", "first", "two"], ["y"], {})], "y", FLOAT, V[:2]),
    "matmul": (column("y"), "y", FLOAT, M),
    "transpose": ([*column("m"), ("Transpose", ["m"], ["y"], {})], "y", FLOAT, M.T),
    "rows": (
        [*column("m"), ("ReduceSum", ["m", "last"], ["y"], {"keepdims": 0})],
        "y",
        FLOAT,
        M.sum(1),
    ),
    "columns": (
        [*column("m"), ("ReduceSum", ["m", "first"], ["y"], {"keepdims": 0})],
        "y",
        FLOAT,
        M.sum(0),
    ),
    "concat": (
        [*column("m"), ("Concat", ["m", "column"], ["y"], {"axis": 1})],
        "y",
        FLOAT,
        np.c_[M, V],
    ),
    "reshape": ([*column("m"), ("Reshape", ["m", "shape"], ["y"], {})], "y", FLOAT, M[:, :, None]),
}


def case(name):
    tail, output, kind, expected = CASES[name]
    stored = {**ROW, "shape": np.array([-1, 2, 1])}
    return model_of(tail, [(output, kind)], stored), np.asarray(expected)


@pytest.mark.parametrize("name", CASES)
def test_between_stretches(name):
    proto, expected = case(name)
    assert_close(np.asarray(jaxonnx.load(proto)(X)), expected)


@pytest.mark.parametrize("name", CASES)
def test_in_buckets(name):
    proto, expected = case(name)
    assert_close(np.asarray(jaxonnx.load(proto, buckets="pow2")(X)), expected)


@pytest.mark.parametrize("name", CASES)
def test_under_a_bound(name):
    proto, expected = case(name)
    model = jaxonnx.load(proto, bounds={"find": 5})
    assert_close(np.asarray(model(X)), expected)
    traced = jax.jit(model)(X)
    if isinstance(traced, jaxonnx.Padded):
        assert traced.shape[traced.axis] >= expected.shape[traced.axis]
        traced = traced.cut()
    assert_close(np.asarray(traced), expected)


def test_padding_of_positions_is_minus_one():
    proto, _ = case("positions")
    traced = jax.jit(jaxonnx.load(proto, bounds={"places": 5}))(X)
    assert_close(np.asarray(traced.values), np.array([[0, 2, 4, -1, -1]]))
    assert int(traced.count) == 3


def test_a_model_without_bounds_names_its_nodes_when_traced():
    proto, _ = case("sum")
    with pytest.raises(DataDependentShapeError, match=r"node 'find' \(NonZero-13\)") as caught:
        jax.jit(jaxonnx.load(proto))(X)
    assert "model(x) outside of jit" in str(caught.value)
    assert "bounds={name: n}" in str(caught.value)


def test_an_exceeded_bound_is_reported():
    proto, _ = case("sum")
    model = jaxonnx.load(proto, bounds={"find": 2})
    with pytest.raises(DataDependentShapeError, match="bound 2 of 'find' is exceeded: there are 3"):
        model(X)
    error, _ = checkify.checkify(jax.jit(model))(X)
    assert "bound 2 of 'find' is exceeded" in (error.get() or "")
    error, _ = checkify.checkify(jax.jit(model))(X * np.array([1, 1, 1, 1, -1], np.float32))
    assert error.get() is None


def test_bounds_name_nodes_that_can_have_one():
    proto, _ = case("sum")
    with pytest.raises(
        InputError, match=r"bounds: 'v' is no value-dependent node .* 'find', 'places'"
    ):
        jaxonnx.load(proto, bounds={"v": 2})


@pytest.mark.parametrize("options", [{}, {"buckets": "pow2"}, {"bounds": {"find": 5}}])
def test_derivatives_flow_through_the_chosen_elements(options):
    tail = [("Mul", ["v", "v"], ["vv"], {}), ("ReduceSum", ["vv"], ["y"], {"keepdims": 0})]
    model = jaxonnx.load(model_of(tail, [("y", FLOAT)]), **options)
    assert_close(np.asarray(jax.grad(model)(X)), np.where(X > 0, 2 * X, 0))


@pytest.mark.parametrize("options", [{}, {"buckets": "pow2"}, {"bounds": {"find": 8}}])
def test_padding_has_no_part_in_derivatives(options):
    """Padded positions take the last element, which is 0 and has no finite derivative."""
    tail = [
        ("Sqrt", ["v"], ["root"], {}),
        ("Div", ["scale", "root"], ["part"], {}),
        ("ReduceSum", ["part"], ["y"], {"keepdims": 0}),
    ]
    proto = model_of(tail, [("y", FLOAT)], {"scale": np.float32(2)})
    model, x = jaxonnx.load(proto, trainable=["scale"], **options), f32([4, 1, 4, 0])
    slope, by_x = jax.grad(lambda m, x: m(x), argnums=(0, 1))(model, x)
    assert_close(slope.params["scale"], f32(2))
    assert_close(by_x, f32([-0.125, -1, -0.125, 0]))


UNIQUE = "{ y, first = Unique(x) }"


@pytest.mark.parametrize("options", [{}, {"buckets": "pow2"}, {"bounds": {"y": 8}}])
def test_unique_elements(options):
    """Their derivatives, those of none, and of strings, which are never padded."""
    model = jaxonnx.load(
        text_model(f"(float[N] x) => (float[M] y, int64[M] first) {UNIQUE}"), **options
    )
    x = f32([3, 1, 3, 2, 5])
    assert_close(jax.grad(lambda x: (model(x).y ** 2).sum())(x), f32([6, 2, 0, 4, 10]))
    assert model(x[:0]).y.shape == (0,)
    proto = text_model(f"(string[N] x) => (string[M] y, int64[M] first) {UNIQUE}")
    y, first = jaxonnx.load(proto, **options)(strings("b", "a", "b"))
    assert y.tolist() == ["a", "b"]
    assert_close(first, i64([1, 0]))


@pytest.mark.parametrize("options", [{"buckets": "pow2"}, {"bounds": {"p": 8}}])
def test_the_last_of_equal_elements_is_real(options):
    proto = text_model("""(float[N] x) => (int64[1, 1] y) {
      p = NonZero(x)
      none = Sub(p, p)
      bytes = Cast<to = 2>(none)
      y = ArgMax<axis = 1, select_last_index = 1>(bytes)
    }""")
    assert_close(jaxonnx.load(proto, **options)(f32([1, 0, 1, 0, 1])), i64([[2]]))


def test_the_mean_of_integers_is_of_real_ones():
    text = "(float[N] x) => (int64[1, 1] y) { p = NonZero(x) y = ReduceMean(p) }"
    model = jaxonnx.load(text_model(text), buckets="pow2")
    assert_close(model(f32([0, 1, 0, 1, 1])), i64([[2]]))


def test_reductions_of_booleans():
    tail = [
        ("Greater", ["v", "zero"], ["b"], {}),
        ("ReduceMax", ["b"], ["most"], {"keepdims": 0}),
        ("ReduceMin", ["b"], ["least"], {"keepdims": 0}),
    ]
    proto = model_of(tail, [("most", BOOL), ("least", BOOL)])
    proto.opset_import[0].version = 20
    most, least = jaxonnx.load(proto, bounds={"find": 5})(X)
    assert bool(most)
    assert bool(least)


def test_unknown_buckets_are_refused():
    with pytest.raises(InputError, match="buckets is 'pow3', expected 'pow2' or None"):
        jaxonnx.load(model_of([], [("v", FLOAT)]), buckets="pow3")  # pyright: ignore[reportArgumentType]


def test_buckets_compile_fewer_programs():
    proto, _ = case("sum")
    exact, bucketed = jaxonnx.load(proto), jaxonnx.load(proto, buckets="pow2")
    for count in (5, 6, 7, 8):
        x = np.where(np.arange(10) < count, 1, -1).astype(np.float32)
        assert_close(np.asarray(exact(x)), np.asarray(bucketed(x)))
    assert exact._program.executor.compilations == 1 + 4  # one before the node, then each size
    assert bucketed._program.executor.compilations == 1 + 1


def test_an_operator_without_a_rule_runs_unpadded():
    tail = [("CumSum", ["v", "axis"], ["y"], {"reverse": 1})]
    proto = model_of(tail, [("y", FLOAT)], {"axis": np.int64(0)})
    expected = np.cumsum(V[::-1])[::-1]
    assert_close(np.asarray(jaxonnx.load(proto, buckets="pow2")(X)), expected)
    with pytest.raises(DataDependentShapeError, match=r"CumSum-14\) cannot follow an input"):
        jax.jit(jaxonnx.load(proto, bounds={"find": 5}))(X)


@pytest.mark.parametrize("options", [{}, {"buckets": "pow2"}, {"bounds": {"find": 3}}])
def test_nothing_found(options):
    proto, _ = case("pointwise")
    none = -np.ones(4, np.float32)
    assert np.asarray(jaxonnx.load(proto, **options)(none)).shape == (0,)


POINTWISE = [
    o
    for o in registry.registered()
    if o.elementwise
    and o.op_type not in ("BitCast", "Cast", "CastLike")  # conversions are by definition
]


@np.errstate(all="ignore")
@pytest.mark.parametrize("operator", POINTWISE, ids=lambda o: f"{o.op_type}-{o.versions[-1]}")
def test_operators_taken_for_pointwise_are(operator):
    """Reversing the inputs reverses the result, so no element sees another."""
    kinds = (np.float32, np.int32, np.uint8, bool)
    values = np.array([0.3, -1.5, 2.0, 0.0, 1.0, -0.2]) * 3
    required = [p for p in operator.parameters.values() if p.kind is p.POSITIONAL_ONLY]
    count = sum(p.default is p.empty for p in required) or 2  # variadic: two
    if operator.op_type == "Where":
        inputs = [values > 0, f32(values), f32(-values)]
        assert_reversible(operator.function, inputs)
        return
    for kind in kinds:
        x = np.abs(values).astype(kind) if kind == np.uint8 else values.astype(kind)
        inputs = [np.roll(x, k) for k in range(count)]
        attributes = {"direction": "LEFT"} if operator.op_type == "BitShift" else {}
        try:
            operator.function(*inputs, **attributes)
        except (TypeError, ValueError):
            continue  # not a dtype of this operator
        assert_reversible(operator.function, inputs, **attributes)
        return
    raise AssertionError("no dtype fits")


def assert_reversible(function, inputs, **attributes):
    forward = np.asarray(function(*inputs, **attributes))
    backward = np.asarray(function(*(x[::-1] for x in inputs), **attributes))
    np.testing.assert_allclose(forward, backward[::-1], rtol=1e-6)


def padded(values, size, axis=0):
    """Some values as the first slices of a padded array."""
    with jax.enable_x64(True):
        return pad(jnp.asarray(values), axis, size)


def follow(op_type, args, attributes=None, version=None):
    """What an operator gives for padded inputs."""
    versions = registry.versions_of(op_type)
    operator = registry.lookup(op_type, version or max(versions))
    assert operator is not None
    with jax.enable_x64(True):  # as models are traced
        return padding.apply(operator, args, attributes or {}, op_type)


@pytest.mark.parametrize(("largest", "expected"), [(1, [np.nan, 3, 1]), (0, [1, 3, np.nan])])
def test_top_k_of_padded_values_with_nan(largest, expected):
    """ONNX leaves it open; both oracles put NaN first, and so last where the order ascends."""
    x = padded(f32([3, np.nan, 1]), 8)
    values, places = follow("TopK", [x, i64([5])], {"largest": largest})
    assert_close(np.asarray(values.cut()), f32(expected))
    assert_close(np.asarray(places.cut()), i64([1, 0, 2] if largest else [2, 0, 1]))


@pytest.mark.parametrize(("largest", "expected"), [(1, [9, 3, 1]), (0, [1, 3, 9])])
def test_top_k_of_padded_integers(largest, expected):
    values, _ = follow("TopK", [padded(i64([3, 9, 1]), 8), i64([5])], {"largest": largest})
    assert_close(np.asarray(values.cut()), i64(expected))


def test_gather_of_places_that_are_padding():
    x = padded(f32([3, 5]), 4)
    (found,) = follow("Gather", [x, i64([0, 1, -1, -2, 2, 3, -3])])
    assert_close(np.asarray(found), f32([3, 5, 5, 3, np.nan, np.nan, np.nan]))


def test_gather_of_nothing_found():
    (found,) = follow("Gather", [padded(f32([]), 4), i64([0, -1])])
    assert_close(np.asarray(found), f32([np.nan, np.nan]))


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
def test_the_place_of_nothing_found_is_no_place(op_type):
    (place,) = follow(op_type, [padded(f32([]), 4)])
    (found,) = follow("Gather", [padded(f32([1, 2]), 4), place])
    assert np.isnan(np.asarray(found)).all()


def test_a_slice_ends_with_what_is_real():
    (part,) = follow("Slice", [padded(f32([1, 2, 3]), 8), i64([1]), i64([6])])
    assert_close(np.asarray(part.cut()), f32([2, 3]))
    (part,) = follow("Slice", [padded(f32([1, 2, 3]), 8), i64([5]), i64([7])])
    assert_close(np.asarray(part.cut()), f32([]))


def test_the_mean_of_padded_integers_is_refused():
    """It rounds toward zero: 9 / 3 is 3, but 9 / 8 would have been 1 and scaled 2."""
    with pytest.raises(UnpaddableError):
        follow("ReduceMean", [padded(i64([0, 4, 5]), 8)], version=13)


def test_compress_by_a_condition_that_is_too_long():
    text = "(float[N] x, bool[C] c) => (float[M] y) { y = Compress<axis = 0>(x, c) }"
    for bounds in (None, {"y": 2}):
        model = jaxonnx.load(text_model(text), bounds=bounds)
        assert_close(np.asarray(model(X, np.array([False, True]))), X[1:2])
        with pytest.raises(InvalidModelError, match="length 6, expected at most 5"):
            model(X, np.zeros(6, bool))

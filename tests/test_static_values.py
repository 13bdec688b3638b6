"""Values known at trace time: shape arithmetic, static inputs, parameters and constants."""

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from helpers import assert_close, text_model
from onnx import TensorProto, helper

import jaxonnx
from jaxonnx.errors import JaxonnxError, StaticValueError

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def make(nodes, inputs, outputs, stored=None, opset=18, ir_version=10):
    infos = [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs]
    made = [helper.make_tensor_value_info(n, t, None) for n, t in outputs]
    tensors = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in (stored or {}).items()]
    graph = helper.make_graph(
        [helper.make_node(*n[:3], **n[3]) for n in nodes], "g", infos, made, tensors
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version
    )


def flatten_by_shape():
    """Shape, Gather, Concat, Reshape: what exporters write for ``x.reshape(len(x), -1)``."""
    return make(
        [
            ("Shape", ["x"], ["shape"], {}),
            ("Gather", ["shape", "zero"], ["batch"], {}),
            ("Unsqueeze", ["batch", "axis"], ["batch1"], {}),
            ("Concat", ["batch1", "rest"], ["target"], {"axis": 0}),
            ("Reshape", ["x", "target"], ["y"], {}),
        ],
        [("x", FLOAT, ["N", 2, 3])],
        [("y", FLOAT)],
        {"zero": np.int64(0), "axis": np.array([0]), "rest": np.array([-1])},
    )


def test_shape_arithmetic_works_at_any_batch():
    model = jaxonnx.load(flatten_by_shape())
    for batch in (1, 4):
        x = np.arange(6 * batch, dtype=np.float32).reshape(batch, 2, 3)
        assert_close(model(x), x.reshape(batch, 6))
        assert_close(jax.jit(model)(x), x.reshape(batch, 6))


def test_shape_arithmetic_works_with_a_symbolic_batch():
    model = jaxonnx.load(flatten_by_shape())
    exported = jax.export.export(jax.jit(model.apply))(model.params, model.abstract_inputs())
    assert str(exported.out_avals[0].shape) == "(N, 6)"
    x = np.arange(18, dtype=np.float32).reshape(3, 2, 3)
    assert_close(exported.call({}, {"x": x}), x.reshape(3, 6))


def test_shape_arithmetic_under_vmap_sees_the_single_example():
    model = jaxonnx.load(flatten_by_shape())
    x = np.arange(24, dtype=np.float32).reshape(2, 2, 2, 3)
    assert_close(jax.vmap(model)(x), x.reshape(2, 2, 6))


def reshape_by_input():
    return make(
        [("Reshape", ["x", "shape"], ["y"], {})],
        [("x", FLOAT, [None]), ("shape", INT64, [None])],
        [("y", FLOAT)],
    )


def test_a_static_input_keys_the_program_by_its_value():
    model = jaxonnx.load(reshape_by_input())
    assert model.static_inputs == ("shape",)
    x = np.arange(6, dtype=np.float32)
    for shape in ([2, 3], [3, 2], [2, 3]):
        assert_close(model(x, np.array(shape)), x.reshape(shape))
        assert_close(model(x, jnp.array(shape)), x.reshape(shape))
    assert model._program.executor.whole.compilations == 2


def test_a_static_input_may_not_be_traced():
    model = jaxonnx.load(reshape_by_input())
    with pytest.raises(
        StaticValueError, match=r"input 'shape' must be known .* load\(..., constants"
    ):
        jax.jit(model)(np.zeros(6, np.float32), np.array([2, 3], np.int32))


def test_a_static_input_can_be_fixed():
    model = jaxonnx.load(reshape_by_input(), constants={"shape": [2, 3]})
    assert model.input_names == ("x",)
    assert_close(jax.jit(model)(np.zeros(6, np.float32)), np.zeros((2, 3), np.float32))
    with pytest.raises(jaxonnx.errors.InputError, match="no input is called 'size'"):
        jaxonnx.load(reshape_by_input(), constants={"size": 1})


def test_a_static_input_on_the_cone_of_an_operand():
    model = jaxonnx.load(
        make(
            [("Mul", ["n", "two"], ["n2"], {}), ("Tile", ["x", "n2"], ["y"], {})],
            [("x", FLOAT, [None]), ("n", INT64, [1])],
            [("y", FLOAT)],
            {"two": np.array([2])},
        )
    )
    assert model.static_inputs == ("n",)
    assert_close(model(np.ones(2, np.float32), np.array([3])), np.ones(12, np.float32))


def test_float_initializers_on_a_cone_are_constants():
    """Resize-like scales are no parameters; the weight that meets data is."""
    model = jaxonnx.load(
        make(
            [
                ("Shape", ["x"], ["shape"], {}),
                ("Cast", ["shape"], ["floats"], {"to": FLOAT}),
                ("Mul", ["floats", "scale"], ["scaled"], {}),
                ("Cast", ["scaled"], ["ints"], {"to": INT64}),
                ("Tile", ["row", "ints"], ["tiled"], {}),
                ("Mul", ["tiled", "weight"], ["y"], {}),
            ],
            [("x", FLOAT, [None])],
            [("y", FLOAT)],
            {
                "scale": np.array([2.0], np.float32),
                "row": np.array([1.0], np.float32),
                "weight": np.full(4, 3, np.float32),
            },
        )
    )
    assert sorted(model.params) == ["weight"]
    assert_close(model(np.zeros(2, np.float32)), np.full(4, 3, np.float32))


def test_an_operand_computed_from_data_and_weights_runs_between_stretches():
    model = jaxonnx.load(
        make(
            [
                ("MatMul", ["x", "w"], ["h"], {}),
                ("Cast", ["h"], ["shape"], {"to": INT64}),
                ("Reshape", ["x", "shape"], ["y"], {}),
            ],
            [("x", FLOAT, [2])],
            [("y", FLOAT)],
            {"w": np.eye(2, dtype=np.float32)},
        )
    )
    assert model.static_inputs == ()
    x = np.array([2, 1], np.float32)
    assert_close(model(x), x.reshape(2, 1))
    with pytest.raises(
        StaticValueError, match=r"Reshape-14\).*input shape \('shape'\) must be known"
    ):
        jax.jit(model)(x)


def test_constraints_decide_symbolic_dimensions():
    def positions(constraints):
        model = make(
            [
                ("Shape", ["x"], ["shape"], {}),
                ("Slice", ["table", "zero", "shape", "zero"], ["rows"], {}),
                ("Add", ["x", "rows"], ["y"], {}),
            ],
            [("x", FLOAT, ["S"])],
            [("y", FLOAT)],
            {"table": np.arange(512, dtype=np.float32), "zero": np.array([0])},
        )
        model = jaxonnx.load(model, constraints=constraints)
        return jax.export.export(jax.jit(model.apply))(model.params, model.abstract_inputs())

    exported = positions(["S<=512"])
    x = np.zeros(5, np.float32)
    params = {"table": np.arange(512, dtype=np.float32)}
    assert_close(exported.call(params, {"x": x}), np.arange(5, dtype=np.float32))
    with pytest.raises(JaxonnxError, match=r"constraints=\['S<=512'\]"):
        positions([])


def test_overridable_defaults():
    model = jaxonnx.load(
        make(
            [("Add", ["x", "d"], ["h"], {}), ("Reshape", ["h", "s"], ["y"], {})],
            [("x", FLOAT, [None]), ("d", FLOAT, [1]), ("s", INT64, [None])],
            [("y", FLOAT)],
            {"d": np.array([42.0], np.float32), "s": np.array([-1])},
        )
    )
    one = np.ones(1, np.float32)
    assert_close(model(one), np.array([43], np.float32))
    assert_close(model(one, d=one), np.array([2], np.float32))
    assert_close(model(one, s=np.array([1, 1])), np.array([[43]], np.float32))
    assert list(model.stored) == ["d"]


def test_a_large_value_known_by_its_shape_is_no_literal():
    model = jaxonnx.load(
        make(
            [
                ("Shape", ["x"], ["shape"], {}),
                ("Size", ["x"], ["size"], {}),
                ("Range", ["zero", "size", "one"], ["steps"], {}),
                ("Mul", ["steps", "steps"], ["squares"], {}),
                ("Cast", ["squares"], ["floats"], {"to": FLOAT}),
                ("Add", ["x", "floats"], ["y"], {}),
            ],
            [("x", FLOAT, [None])],
            [("y", FLOAT)],
            {"zero": np.int64(0), "one": np.int64(1)},
        )
    )
    x = np.zeros(30_000, np.float32)
    assert len(jax.jit(model).lower(x).as_text()) < 20_000
    assert_close(model(x), (np.arange(30_000, dtype=np.int64) ** 2).astype(np.float32))


def test_constant_nodes_of_more_than_a_few_numbers_are_parameters():
    constant = lambda name, count: (
        "Constant",
        [],
        [name],
        {"value": helper.make_tensor("v", FLOAT, [count], [1.0] * count)},
    )
    nodes = [
        constant("weight", 9),
        constant("scale", 1),
        ("Mul", ["x", "weight"], ["h"], {}),
        ("Mul", ["h", "scale"], ["y"], {}),
    ]
    model = jaxonnx.load(make(nodes, [("x", FLOAT, [9])], [("y", FLOAT)]))
    assert list(model.params) == ["weight"]


def test_one_float_among_shape_arithmetic_is_no_data():
    model = jaxonnx.load(
        make(
            [
                ("Cast", ["n"], ["real"], {"to": FLOAT}),
                ("Mul", ["real", "half"], ["halved"], {}),
                ("Cast", ["halved"], ["size"], {"to": INT64}),
                ("ConstantOfShape", ["size"], ["y"], {}),
            ],
            [("n", INT64, [1])],
            [("y", FLOAT)],
            {"half": np.float32(0.5)},
        )
    )
    assert model.static_inputs == ("n",)
    assert model(np.array([6])).shape == (3,)


def test_an_operand_found_in_data_does_not_make_the_data_static():
    model = jaxonnx.load(
        make(
            [
                ("ReduceMax", ["lengths"], ["most"], {"keepdims": 1}),
                ("Tile", ["x", "most"], ["y"], {}),
            ],
            [("x", FLOAT, [1]), ("lengths", INT64, ["B"])],
            [("y", FLOAT)],
        )
    )
    assert model.static_inputs == ()
    one = np.ones(1, np.float32)
    assert_close(model(one, np.array([2, 3])), np.ones(3, np.float32))
    assert_close(model(one, np.array([1, 3, 2])), np.ones(3, np.float32))


def _rates(condition="Equal(rate, limit)", rate="int64 rate", shapes=("2, 2", "4")):
    """``x`` as a matrix or as it is, as a number decides, in the way of models of speech."""
    graph = f"""
        (float[4] x, {rate}) => (y) <int64 limit = {{16}}> {{
            go = {condition}
            y = If (go) <
                then_branch = one () => (float[{shapes[0]}] a) {{
                    pair = Constant <value_ints = [2, 2]> ()
                    a = Reshape(x, pair)
                }},
                else_branch = other () => (float[{shapes[1]}] b) {{ b = Neg(x) }}
            >
        }}
    """
    return jaxonnx.load(text_model(graph))


@pytest.mark.parametrize(
    ("condition", "rate", "shapes", "number"),
    [
        ("Equal(rate, limit)", "int64 rate", ("2, 2", "4"), np.int64(16)),
        ("Equal(rate, limit)", "int64 rate", ("N, M", "N"), np.int64(16)),
        ("Equal(rate, limit)", "int64[1] rate", ("2, 2", "4"), np.array([16])),
        ("Identity(rate)", "bool rate", ("2, 2", "4"), np.True_),
    ],
)
def test_number_that_alone_decides_the_shapes_of_an_if(condition, rate, shapes, number):
    model = _rates(condition, rate, shapes)
    assert model.static_inputs == ("rate",)
    x = np.arange(4, dtype=np.float32)
    assert_close(model(x, number), x.reshape(2, 2))
    assert_close(jax.jit(lambda x: model(x, number))(x), x.reshape(2, 2))
    assert_close(model(x, np.zeros_like(number)), -x)
    scanned = jax.lax.scan(lambda c, row: (c, model(row, number)), 0, x[None])[1]
    assert_close(scanned, x.reshape(1, 2, 2))


def test_traced_number_that_decides_the_shapes_of_an_if_names_the_remedy():
    model = _rates()
    x = np.ones(4, np.float32)
    with pytest.raises(StaticValueError, match=r"input 'rate' must be .*constants=\{'rate': value"):
        jax.jit(model)(x, np.int64(16))


@pytest.mark.parametrize("shapes", [("2, 2", "2, 2"), ("N, M", "N, M")])
def test_branches_of_equal_shape_leave_the_number_to_be_traced(shapes):
    assert _rates(shapes=shapes).static_inputs == ()


def test_open_shapes_that_turn_out_equal_can_be_decided_by_a_traced_number():
    graph = """
        (float[4] x, bool go) => (y) {
            y = If (go) <
                then_branch = one () => (float[?] a) { a = Abs(x) },
                else_branch = other () => (float[?] b) { b = Neg(x) }
            >
        }
    """
    model = jaxonnx.load(text_model(graph))
    assert model.static_inputs == ("go",)
    x = np.ones(4, np.float32)
    assert_close(jax.jit(model)(x, np.True_), x)
    assert_close(jax.jit(model)(x, np.False_), -x)


@pytest.mark.parametrize(
    ("condition", "rate"),
    [
        ("Cast <to = 9> (rate)", "float rate"),
        ("Cast <to = 9> (rate)", "int64[2] rate"),
        ("Less(rate, limit)", "int64 rate, int64[1, 1] limit"),
    ],
)
def test_conditions_that_no_single_number_decides(condition, rate):
    assert _rates(condition, rate).static_inputs == ()


def test_condition_computed_from_data_names_the_remedy():
    model = _rates("Cast <to = 9> (rate)", "float rate")
    x = np.ones(4, np.float32)
    assert_close(model(x, np.float32(0)), -x)
    with pytest.raises(StaticValueError, match=r"load\(\.\.\., constants=\{name: value\}\)"):
        jax.jit(model)(x, np.float32(0))

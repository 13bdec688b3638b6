"""Legal forms of a graph: names, initializers, outputs, order, domains and IR versions."""

import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from helpers import assert_close, f32, i64
from onnx import TensorProto, helper, parser

import jaxonnx
from jaxonnx.define.registry import register
from jaxonnx.errors import InputError, InvalidModelError

X = f32([-1, 2])


@register("Probe", 1, domain="test.graph")
def probe(a=None, b=None, c=None, /, *, outputs=1):
    """Numbers that tell which inputs are there."""
    present = [v is not None for v in (a, b, c)]
    results = tuple(
        jnp.float32(10 * k + sum(p << j for j, p in enumerate(present))) for k in (1, 2, 3)
    )
    return results[:outputs] if outputs > 1 else results[0]


def make(nodes, outputs, *, inputs=("x",), stored=None, opset=18, ir_version=10):
    """A model of float vectors from ``(op_type, inputs, outputs)`` triples."""
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in inputs]
    made = [onnx.ValueInfoProto(name=n) for n in outputs]
    tensors = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in (stored or {}).items()]
    protos = [n if isinstance(n, onnx.NodeProto) else helper.make_node(*n) for n in nodes]
    graph = helper.make_graph(protos, "g", infos, made, tensors)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("test.graph", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def test_initializer_that_is_no_input():
    model = jaxonnx.load(make([("Add", ["x", "w"], ["y"])], ["y"], stored={"w": f32([40])}))
    assert model.input_names == ("x",)
    assert_close(model(f32([3])), f32([43]))


@pytest.mark.parametrize("ir_version", [3, 10])
@pytest.mark.parametrize("value", [f32([40]), np.array([40], np.int32)], ids=["float", "int"])
def test_initializer_that_is_an_input_is_its_default(ir_version, value):
    """[onnx#2198] 43 where it is not given, 2 where -1 is."""
    proto = make(
        [("Cast", ["w"], ["f"]), ("Identity", ["f"], ["g"]), ("Add", ["x", "g"], ["y"])],
        ["y"],
        inputs=["x", "w"],
        stored={"w": value},
        ir_version=ir_version,
    )
    proto.graph.node[0].attribute.append(helper.make_attribute("to", TensorProto.FLOAT))
    proto.graph.input[1].CopyFrom(
        helper.make_tensor_value_info("w", helper.np_dtype_to_tensor_dtype(value.dtype), [1])
    )
    model = jaxonnx.load(proto)
    x = f32([3])
    assert_close(model(x), f32([43]))
    assert_close(model(x, w=np.array([-1], value.dtype)), f32([2]))
    assert_close(model(x), f32([43]))


def test_many_inputs_with_defaults_are_counted():
    """Models of IR version 3 list every weight as an input."""
    names = [f"w{k}" for k in range(9)]
    stored = {n: f32([1]) for n in names}
    model = jaxonnx.load(
        make([("Sum", ["x", *names], ["y"])], ["y"], inputs=["x", *names], stored=stored)
    )
    assert repr(model).startswith("Model(x: float32[...] and 9 with a default -> y: ")
    with pytest.raises(InputError, match=r"expected 'x': float32\[...\], 9 optional ones$"):
        model()


def test_default_that_decides_a_shape():
    proto = make([("Reshape", ["x", "s"], ["y"])], ["y"], inputs=["x", "s"], stored={"s": [2, 2]})
    proto.graph.input[1].CopyFrom(helper.make_tensor_value_info("s", TensorProto.INT64, [None]))
    model = jaxonnx.load(proto)
    assert model(np.zeros(4, np.float32)).shape == (2, 2)
    assert model(np.zeros(4, np.float32), s=np.array([4, 1])).shape == (4, 1)


def test_shape_of_a_default_is_not_fixed():
    proto = make([("Shape", ["w"], ["y"])], ["y"], inputs=["w"], stored={"w": X})
    model = jaxonnx.load(proto)
    assert_close(model(), i64([2]))
    assert_close(model(w=f32([1, 2, 3])), i64([3]))


def test_initializer_as_output():
    model = jaxonnx.load(make([], ["w"], inputs=[], stored={"w": X}))
    assert_close(model(), X)


def test_integer_initializer_as_output():
    proto = make([], ["w"], inputs=[], stored={"w": i64([2**40])})
    assert_close(jaxonnx.load(proto)(), i64([2**40]))


def test_output_of_another_type_than_declared():
    proto = make([("Relu", ["x"], ["y"])], ["y"])
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.INT64, ["N"]))
    with pytest.raises(InvalidModelError, match=r"declares int64\[N\]"):
        jaxonnx.load(proto)(X)


@pytest.mark.parametrize("declared", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_output_of_another_precision_than_declared(declared):
    found = TensorProto.DOUBLE if declared == TensorProto.FLOAT else TensorProto.FLOAT
    proto = make([("Cast", ["x"], ["y"])], ["y"])
    proto.graph.node[0].attribute.append(helper.make_attribute("to", found))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", declared, ["N"]))
    with pytest.raises(InvalidModelError, match="but the model declares"):
        jaxonnx.load(proto)(X)


def test_output_of_another_precision_than_declared_in_phases():
    proto = make([("NonZero", ["x"], ["p"]), ("Cast", ["x"], ["y"])], ["p", "y"])
    proto.graph.node[1].attribute.append(helper.make_attribute("to", TensorProto.DOUBLE))
    proto.graph.output[1].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"]))
    with pytest.raises(InvalidModelError, match="output 'y' is float64, but the model declares"):
        jaxonnx.load(proto)(X)


def test_constant_node_as_output():
    node = helper.make_node("Constant", [], ["y"], value_float=2.5)
    assert_close(jaxonnx.load(make([node], ["y"], inputs=[]))(), f32(2.5))


def test_input_as_output():
    assert_close(jaxonnx.load(make([], ["x"]))(X), X)


def test_same_output_twice():
    model = jaxonnx.load(make([("Relu", ["x"], ["y"])], ["y", "y", "x"]))
    outputs = model(X)
    assert outputs.names == ("y", "y", "x")
    for output, expected in zip(outputs, ([0, 2], [0, 2], [-1, 2]), strict=True):
        assert_close(output, f32(expected))


def test_unused_input_is_still_an_input():
    model = jaxonnx.load(make([("Relu", ["x"], ["y"])], ["y"], inputs=["unused", "x"]))
    assert model.input_names == ("unused", "x")
    assert_close(model(f32([7]), X), f32([0, 2]))


def test_unused_nodes_and_initializers():
    nodes = [("Relu", ["x"], ["y"]), ("Neg", ["w"], ["dead"])]
    assert_close(jaxonnx.load(make(nodes, ["y"], stored={"w": X}))(X), f32([0, 2]))


@pytest.mark.parametrize("names", [["same", "same"], ["", ""]])
def test_duplicate_and_empty_node_names(names):
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Neg", ["h"], ["y"])]
    for node, name in zip(nodes, names, strict=True):
        node.name = name
    assert_close(jaxonnx.load(make(nodes, ["y"]))(X), f32([-0.0, -2]))


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        (["x"], 11),
        (["x", "", ""], 11),
        (["x", "", "x"], 15),
        (["", "x", ""], 12),
        (["", "", "x"], 14),
        (["x", "x", "x"], 17),
    ],
)
def test_absent_inputs_never_shift_later_ones(inputs, expected):
    node = helper.make_node("Probe", inputs, ["y"], domain="test.graph")
    assert_close(jaxonnx.load(make([node], ["y"]))(X), f32(expected))


@pytest.mark.parametrize(
    ("names", "outputs", "expected"),
    [
        (["a", "b", "c"], ["a", "b", "c"], [11, 21, 31]),
        (["", "b", "c"], ["b", "c"], [21, 31]),
        (["a", "", "c"], ["c", "a"], [31, 11]),
        (["", "", "c"], ["c"], [31]),
        (["a", "b", ""], ["a", "b"], [11, 21]),
    ],
)
def test_absent_outputs_never_shift_later_ones(names, outputs, expected):
    node = helper.make_node("Probe", ["x"], names, domain="test.graph")
    result = jaxonnx.load(make([node], outputs))(X)
    result = result if isinstance(result, tuple) else (result,)
    assert [float(r) for r in result] == expected


def test_absent_output_does_not_feed_absent_inputs():
    """[torch-mlir#4550] ``""`` is no name, so nothing is stored under it."""
    nodes = [
        helper.make_node("Probe", ["x"], ["a", "", "c"], domain="test.graph"),
        helper.make_node("Probe", ["", "a"], ["y"], domain="test.graph"),
    ]
    assert_close(jaxonnx.load(make(nodes, ["y"]))(X), f32(12))


def test_node_whose_outputs_are_all_absent():
    nodes = [("Neg", ["x"], [""]), ("Relu", ["x"], ["y"])]
    assert_close(jaxonnx.load(make(nodes, ["y"]))(X), f32([0, 2]))


@pytest.mark.parametrize("name", ["a/b:0", "layer.0.weight", "1", "x y", "class", "é", "@1", "w@1"])
def test_any_text_is_a_name(name):
    proto = make(
        [("Add", ["in/" + name, name], [name + ":0"])],
        [name + ":0"],
        inputs=["in/" + name],
        stored={name: f32([1, 2])},
    )
    model = jaxonnx.load(proto)
    assert model.input_names == ("in/" + name,)
    assert model.output_names == (name + ":0",)
    assert list(model.params) == [name]
    assert_close(model({"in/" + name: X}), X + f32([1, 2]))
    assert_close(model(**{"in/" + name: X}), X + f32([1, 2]))


@pytest.mark.parametrize("imported", ["", "ai.onnx"])
@pytest.mark.parametrize("used", ["", "ai.onnx"])
def test_both_spellings_of_onnx_domain(imported, used):
    proto = make([helper.make_node("Relu", ["x"], ["y"], domain=used)], ["y"])
    proto.opset_import[0].domain = imported
    model = jaxonnx.load(proto)
    assert_close(model(X), f32([0, 2]))
    assert model.opset[""] == 18


def test_unsorted_nodes():
    nodes = [
        ("Neg", ["c"], ["y"]),
        ("Add", ["a", "b"], ["c"]),
        ("Relu", ["a"], ["b"]),
        ("Abs", ["x"], ["a"]),
    ]
    assert_close(jaxonnx.load(make(nodes, ["y"]))(X), f32([-2, -4]))


@pytest.mark.parametrize("ir_version", range(3, onnx.IR_VERSION + 1))
def test_ir_versions(ir_version):
    proto = make([("Relu", ["x"], ["y"])], ["y"], ir_version=ir_version)
    model = jaxonnx.load(proto)
    assert_close(model(X), f32([0, 2]))
    assert model.metadata["ir_version"] == str(ir_version)


def test_model_without_opset_import_has_opset_1():
    """Opsets are stated from IR version 3 on; Relu-1 still has ``consumed_inputs``."""
    node = helper.make_node("Relu", ["x"], ["y"], consumed_inputs=[0])
    proto = make([node], ["y"], ir_version=2)
    del proto.opset_import[:]
    model = jaxonnx.load(proto)
    assert model.opset == {"": 1}
    assert_close(model(X), f32([0, 2]))


def test_required_legacy_attribute():
    """BatchNormalization-1 requires ``consumed_inputs``, which computes nothing."""
    node = helper.make_node(
        "BatchNormalization", list("xsbmv"), ["y"], consumed_inputs=[0] * 5, is_test=1
    )
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    proto = make([node], ["y"], stored={"s": 2 * one, "b": one, "m": zero, "v": one}, opset=1)
    x = f32([[3.0]])
    assert_close(jaxonnx.load(proto)(x), f32([[7]]), scale=10)


@pytest.mark.parametrize(
    ("opset", "expected"),
    [(12, [[0.125, 0.125], [0.25, 0.5]]), (13, [[0.5, 0.5], [1 / 3, 2 / 3]])],
)
def test_opset_chooses_the_version(opset, expected):
    """[tvm#19420] Softmax flattens from ``axis`` on before opset 13."""
    x = np.log(f32([[[1, 1], [2, 4]]]))
    model = jaxonnx.load(make([("Softmax", ["x"], ["y"])], ["y"], opset=opset))
    assert_close(model(x), f32([expected]))


@pytest.mark.parametrize("opset", [7, 8, 9, 10, 11, 12, 13])
def test_operator_older_than_the_opset(opset):
    """[onnx2torch#152] Dropout-7 serves opset 9: the newest version not above it."""
    if opset < 12:
        assert_close(jaxonnx.load(make([("Dropout", ["x"], ["y"])], ["y"], opset=opset))(X), X)
    model = jaxonnx.load(make([("Add", ["x", "x"], ["y"])], ["y"], opset=opset))
    assert_close(model(X), X + X)


def test_declared_shapes():
    text = """<ir_version: 8, opset_import: ["" : 18]>
        g (float[N, 3, 0] x, int64[] s, float r) => (float y) { y = Relu(r) }"""
    model = jaxonnx.load(parser.parse_model(text))
    assert [i.shape for i in model.inputs] == [("N", 3, None), None, ()]
    assert [str(i) for i in model.inputs] == ["float32[N, 3, ?]", "int64[...]", "float32[]"]


def test_metadata():
    proto = make([("Relu", ["x"], ["y"])], ["y"])
    proto.producer_name, proto.model_version = "a tool", 7
    helper.set_model_props(proto, {"author": "me"})
    metadata = jaxonnx.load(proto).metadata
    assert metadata["producer_name"] == "a tool"
    assert metadata["model_version"] == "7"
    assert metadata["author"] == "me"
    assert metadata["graph_name"] == "g"


def test_loading_does_not_change_the_proto():
    proto = make([("Add", ["x", "w"], ["y"])], ["y"], inputs=["x", "w"], stored={"w": X})
    before = proto.SerializeToString()
    jaxonnx.load(proto, constants={"w": X})
    assert proto.SerializeToString() == before

"""Models that break the specification, or that we do not have: refused, with what is wrong."""

import numpy as np
import onnx
import pytest
from helpers import f32, i64
from onnx import TensorProto, helper, numpy_helper, parser

import jaxonnx
from jaxonnx.errors import InvalidModelError, UnsupportedOpError

X = f32([-1, 2])


def graph_of(text, *, opset=18, ir_version=10):
    """A model from the text of its graph."""
    head = f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>'
    return parser.parse_model(f"{head} g {text}")


def node_of(*args, opset=18, inputs=("x",), **attributes):
    """A model of one node on float inputs."""
    node = helper.make_node(*args, name="n", **attributes)
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in inputs]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def refused(proto, message, error: type[Exception] = InvalidModelError):
    with pytest.raises(error, match=message):
        jaxonnx.load(proto)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{ y = Neg(z) z = Relu(y) }", "nodes of the main graph form a cycle: 'y' -> 'z' -> 'y'"),
        ("{ y = Neg(y) }", "form a cycle: 'y' -> 'y'"),
        (
            "{ y = Neg(z) }",
            r"'z', an input of node '' \(Neg\) in the main graph, is produced by no",
        ),
        ("{ z = Neg(x) }", "'y', an output of the main graph, is produced by no node, input or"),
        ("{ y = Neg(x) y = Relu(x) }", "the main graph gives the value 'y' more than once"),
        ("{ x = Neg(x) y = Relu(x) }", "the main graph gives the value 'x' more than once"),
        ("{ y, y = Dropout(x) }", "the main graph gives the value 'y' more than once"),
    ],
)
def test_wrong_graphs(text, message):
    refused(graph_of(f"(float[N] x) => (float[N] y) {text}"), message)


def test_value_given_twice_by_inputs_and_initializers():
    proto = graph_of("(float[N] x, float[N] x) => (float[N] y) { y = Neg(x) }")
    refused(proto, "the main graph gives the value 'x' more than once")
    proto = graph_of("(float[N] x) => (float[N] y) { y = Neg(x) }")
    proto.graph.initializer.extend([numpy_helper.from_array(X, "w")] * 2)
    refused(proto, "the main graph gives the value 'w' more than once")
    del proto.graph.initializer[:]
    proto.graph.initializer.append(numpy_helper.from_array(X, "y"))
    refused(proto, "the main graph gives the value 'y' more than once")


def test_values_without_a_name():
    proto = graph_of("(float[N] x) => (float[N] y) { y = Neg(x) }")
    proto.graph.initializer.append(numpy_helper.from_array(X))
    refused(proto, "an input or initializer of the main graph has no name")
    del proto.graph.initializer[:]
    proto.graph.output.add()
    refused(proto, "an output of the main graph has no name")


def test_values_of_a_subgraph_are_not_visible_outside():
    proto = graph_of(
        "(bool c, float[N] x) => (float[N] y) {"
        "  z = If (c) <then_branch = t () => (float[N] a) { a = Neg(x) },"
        "              else_branch = e () => (float[N] b) { b = Abs(x) }>"
        "  y = Neg(a) }"
    )
    refused(proto, "'a', an input of node '' .Neg. in the main graph, is produced by no")


@pytest.mark.parametrize(
    ("args", "attributes", "message"),
    [
        (("Elu", ["x"], ["y"]), {"b": 1.0}, r"node 'n' \(Elu-6\): unknown attribute 'b'; it has a"),
        (("Relu", ["x"], ["y"]), {"b": 1.0}, r"\(Relu-14\): unknown attribute 'b'; it has none"),
        (("Concat", ["x"], ["y"]), {}, r"\(Concat-13\): the required attribute 'axis' is absent"),
        (("Elu", ["x"], ["y"]), {"alpha": 1}, "attribute 'alpha' is int, expected FLOAT"),
        (("Transpose", ["x"], ["y"]), {"perm": 0}, "attribute 'perm' is int, expected INTS"),
        (("Add", ["x"], ["y"]), {}, r"node 'n' \(Add-14\): 1 inputs, expected 2"),
        (("Neg", ["x", "x"], ["y"]), {}, r"\(Neg-13\): 2 inputs, expected 1"),
        (("Neg", ["x"], ["y", "z"]), {}, "2 outputs, expected 1"),
        (("Clip", ["x"] * 4, ["y"]), {}, "4 inputs, expected 1 to 3"),
        (("Concat", [], ["y"]), {"axis": 0}, "0 inputs, expected at least 1"),
        (("Add", ["", "x"], ["y"]), {}, r"\(Add-14\): the required input A is absent"),
        (("Add", ["x", ""], ["y"]), {}, "1 inputs, expected 2"),
    ],
)  # fmt: skip
def test_node_that_breaks_its_schema(args, attributes, message):
    refused(node_of(*args, **attributes), message)


def test_attribute_given_twice():
    proto = node_of("Elu", ["x"], ["y"], alpha=1.0)
    proto.graph.node[0].attribute.append(helper.make_attribute("alpha", 2.0))
    refused(proto, r"node 'n' \(Elu\) in the main graph has the attribute 'alpha' twice")


def test_attribute_of_no_type():
    proto = node_of("Elu", ["x"], ["y"], alpha=1.0)
    proto.graph.node[0].attribute[0].ClearField("type")
    refused(proto, r"attribute 'alpha' of node 'n' \(Elu\) in the main graph has no type")


def test_domain_that_is_not_imported():
    proto = node_of("Elu", ["x"], ["y"])
    proto.graph.node[0].domain = "com.example"
    refused(
        proto,
        r"node 'n' \(Elu\) in the main graph is of domain 'com.example', which is not imported; "
        "the imports are ''",
    )


def test_no_opset_import_where_there_must_be_one():
    proto = node_of("Elu", ["x"], ["y"])
    del proto.opset_import[:]
    refused(proto, "of domain '', which is not imported; the imports are none")


def test_newer_ir_version():
    proto = node_of("Elu", ["x"], ["y"])
    proto.ir_version = onnx.IR_VERSION + 1
    refused(proto, f"IR version {onnx.IR_VERSION + 1}, but the installed onnx knows IR versions up")


def test_unsupported_operators_are_listed_all_at_once():
    proto = graph_of(
        "(float[N] x) => (float[N] y) {"
        "  a = NoSuch(x)"
        "  b = NoSuch(a)"
        "  c = AnotherOne(b)"
        "  d = Gelu(c)"
        "  y = Relu(d) }"
    )
    proto.graph.node[0].name = "first"
    with pytest.raises(UnsupportedOpError) as caught:
        jaxonnx.load(proto)
    assert str(caught.value).splitlines() == [
        "the model uses operators that jaxonnx does not have:",
        "  NoSuch: no operator of this name is known in domain 'ai.onnx' "
        "(node 'first', giving 'b')",
        "  AnotherOne: no operator of this name is known in domain 'ai.onnx' (node giving 'c')",
        "  Gelu: the operator does not exist in opset 18 of domain 'ai.onnx' (node giving 'd')",
    ]
    assert isinstance(caught.value, NotImplementedError)


def test_many_nodes_of_one_unsupported_operator():
    names = [f"v{k}" for k in range(9)]
    nodes = [helper.make_node("NoSuch", ["x"], [n], name=n) for n in names]
    proto = node_of("Neg", ["x"], ["y"])
    proto.graph.node.extend(nodes)
    refused(proto, r"\(node 'v0', 'v1', 'v2', 'v3', 'v4' and 4 more\)", UnsupportedOpError)


def test_opset_newer_than_the_installed_onnx():
    newest = onnx.defs.onnx_opset_version()
    refused(
        node_of("Relu", ["x"], ["y"], opset=newest + 1),
        f"opset {newest + 1} is newer than the installed onnx, which knows up to {newest}",
        UnsupportedOpError,
    )


def test_deprecated_operator():
    proto = node_of("Upsample", ["x", "s"], ["y"], inputs=["x", "s"], opset=10)
    message = r"Upsample-10: the operator is deprecated since opset 10 \(node 'n'\)"
    refused(proto, message, UnsupportedOpError)


def test_unsupported_operator_in_a_subgraph_names_its_path():
    proto = graph_of(
        "(bool c, float[N] x) => (float[N] y) {"
        "  y = If (c) <then_branch = t () => (float[N] a) { a = NoSuch(x) },"
        "              else_branch = e () => (float[N] b) { b = Abs(x) }> }"
    )
    refused(proto, r"NoSuch: .* \(node giving 'a' in If.then_branch\)", UnsupportedOpError)


def test_inputs_of_one_type_variable_differ():
    proto = graph_of("(float[N] x, int64[N] i) => (float[N] y) { y = Add(x, i) }")
    with pytest.raises(InvalidModelError) as caught:
        jaxonnx.load(proto)(X, i64([1, 2]))
    assert str(caught.value) == (
        "node giving 'y' (Add-14): input B ('i') is int64, but another input of type T is float32"
    )


def test_type_that_the_schema_does_not_allow():
    proto = graph_of("(bool[N] x) => (bool[N] y) { y = Neg(x) }", opset=6)
    with pytest.raises(InvalidModelError) as caught:
        jaxonnx.load(proto)(np.array([True]))
    assert str(caught.value) == (
        "node giving 'y' (Neg-6): input X ('x') is bool, expected one of float16, float32, "
        "float64, int16, int32, int64, int8"
    )


def test_error_of_an_operator_names_its_node():
    proto = graph_of("(float[N] x, float[M] z) => (float y) { y = Add(x, z) }")
    with pytest.raises(InvalidModelError, match="ncompatible shapes") as caught:
        jaxonnx.load(proto)(X, f32([1, 2, 3]))
    note = "while running node giving 'y' (Add-14) with 'x': float32[2], 'z': float32[3]"
    assert note in caught.value.__notes__

"""Model-local functions: attributes, overloads, opset imports, names and nesting."""

import numpy as np
import pytest
from helpers import assert_close, f32
from onnx import AttributeProto, parser

import jaxonnx
from jaxonnx.errors import InvalidModelError, UnsupportedOpError

X = f32([-1, 2])

IMPORTS = 'opset_import: ["" : 18, "own" : 1]'


CALL = "(float[N] x) => (float[N] y) { y = own.f(x) }"


def parse(text):
    """A graph's text as a model."""
    return parser.parse_model(f"<ir_version: 10, {IMPORTS}> g {text}")


def parse_function(text):
    """A function's text, of domain "own" unless it says otherwise."""
    head = "" if text.lstrip().startswith("<") else f'<domain: "own", {IMPORTS}> '
    return parser.parse_function(head + text)


def load(text, functions):
    """A model from the graph's text and that of its functions."""
    proto = parse(text)
    proto.functions.extend(map(parse_function, functions))
    return jaxonnx.load(proto)


def test_body_replaces_the_call():
    model = load(
        CALL,
        ["f (a) => (b) { t = Relu(a) b = Neg(t) }"],
    )
    assert_close(model(X), f32([-0.0, -2]))


def test_attribute_reference():
    """[onnxruntime#10075] A reference takes the value of the call."""
    model = load(
        "(float[N] x) => (float[N] y, float[N] z) { y = own.f<a=0.5>(x) z = own.f<a=0.25>(x) }",
        ["f <a>(x) => (y) { y = LeakyRelu<alpha: float = @a>(x) }"],
    )
    assert_close(model(X).y, f32([-0.5, 2]))
    assert_close(model(X).z, f32([-0.25, 2]))


def test_reference_to_an_absent_attribute_leaves_the_operators_default():
    model = load(
        CALL,
        ["f <a>(x) => (y) { y = LeakyRelu<alpha: float = @a>(x) }"],
    )
    assert_close(model(X), f32([-0.01, 2]))


@pytest.mark.parametrize(("call", "expected"), [("own.f(x)", -0.5), ("own.f<a=0.25>(x)", -0.25)])
def test_default_attribute(call, expected):
    model = load(
        f"(float[N] x) => (float[N] y) {{ y = {call} }}",
        ["f <a: float = 0.5>(x) => (y) { y = LeakyRelu<alpha: float = @a>(x) }"],
    )
    assert_close(model(X), f32([expected, 2]))


def test_reference_in_a_constant_and_through_nested_calls():
    model = load(
        "(float[N] x) => (float[N] y) { y = own.outer<a=3.0>(x) }",
        [
            "outer <a>(x) => (y) { y = own.inner<b: float = @a>(x) }",
            "inner <b>(x) => (y) { c = Constant<value_float: float = @b>() y = Mul(x, c) }",
        ],
    )
    assert_close(model(X), 3 * X)


def test_own_opset_import():
    """Softmax in the function is version 11, which flattens; in the graph it is version 13."""
    model = load(
        "(float[A, B, C] x) => (float[A, B, C] y, float[A, B, C] z){ y = own.f(x) z = Softmax(x) }",
        ['<domain: "own", opset_import: ["" : 12]> f (x) => (y) { y = Softmax(x) }'],
    )
    x = np.zeros((1, 2, 2), np.float32)
    assert_close(model(x).y, np.full((1, 2, 2), 0.25, np.float32))
    assert_close(model(x).z, np.full((1, 2, 2), 0.5, np.float32))


def test_axes_as_an_attribute_inside_of_a_newer_model():
    """[onnxruntime#16341] ReduceMean takes its axes as an attribute in 17, as an input in 18."""
    model = load(
        """(float16[1, 2] x) => (float16[1, 2] y, float16[1] m) <int64[1] axes = {-1}> {
            y = own.norm(x)
            m = ReduceMean<keepdims = 0>(x, axes)
        }""",
        [
            """<domain: "own", opset_import: ["" : 17]> norm (x) => (y) {
                mean = ReduceMean<axes = [-1]>(x)
                rest = Sub(x, mean)
                squares = Mul(rest, rest)
                variance = ReduceMean<axes = [-1]>(squares)
                deviation = Sqrt(variance)
                y = Div(rest, deviation)
            }"""
        ],
    )
    y, m = model(np.array([[1, 5]], np.float16))
    assert_close(y, np.array([[-1, 1]], np.float16))
    assert_close(m, np.array([3], np.float16))


def test_overloads():
    functions = [parse_function(f"f (x) => (y) {{ y = {op}(x) }}") for op in ("Neg", "Relu")]
    functions[1].overload = "positive"
    proto = parse("(float[N] x) => (float[N] y, float[N] z) { y = own.f(x) z = own.f(x) }")
    proto.graph.node[1].overload = "positive"
    proto.functions.extend(functions)
    outputs = jaxonnx.load(proto)(X)
    assert_close(outputs.y, -X)
    assert_close(outputs.z, f32([0, 2]))


def test_function_replaces_an_operator_of_its_name():
    model = load(
        "(float[N] x) => (float[N] y) { y = Relu(x) }",
        ['<domain: "ai.onnx", opset_import: ["" : 18]> Relu (x) => (y) { y = Neg(x) }'],
    )
    assert_close(model(X), -X)


def test_function_of_an_unknown_operator_of_onnx():
    model = load(
        "(float[N] x) => (float[N] y) { y = NoSuchOperator(x) }",
        ['<domain: "", opset_import: ["" : 18]> NoSuchOperator (x) => (y) { y = Neg(x) }'],
    )
    assert_close(model(X), -X)


def test_output_that_is_an_input():
    model = load(
        "(float[N] x) => (float[N] y, float[N] z) { y, z = own.f(x) }",
        ["f (a) => (a, b) { b = Neg(a) }"],
    )
    assert_close(model(X).y, X)
    assert_close(model(X).z, -X)


def test_output_that_is_an_input_feeds_others():
    model = load(
        "(float[N] x) => (float[N] z) { y = own.f(x) z = Neg(y) }",
        ["f (a) => (a) { }"],
    )
    assert_close(model(X), -X)


def test_same_output_twice_and_a_constant_output():
    model = load(
        "(float[N] x) => (float[N] y, float[N] z, float c) { y, z, c = own.f(x) }",
        ["f (a) => (b, b, c) { b = Neg(a) c = Constant<value_float=4.0>() }"],
    )
    for output, expected in zip(model(X), (-X, -X, f32(4)), strict=True):
        assert_close(output, expected)


def test_output_read_inside_the_body():
    model = load(
        "(float[N] x) => (float[N] y, float[N] z) { y, z = own.f(x) }",
        ["f (a) => (b, c) { b = Neg(a) c = Add(a, b) }"],
    )
    assert_close(model(X).z, np.zeros(2, np.float32))


def test_inner_names_are_apart_from_the_callers():
    """``x``, ``y`` and ``t`` of the function are other values than those of the graph."""
    model = load(
        "(float[N] x) => (float[N] y, float[N] t, float[N] s)"
        "{ t = Abs(x) s = own.f(t) y = own.f(s) }",
        ["f (y) => (x) { t = Neg(y) s = Add(t, t) x = Add(s, y) }"],
    )
    assert_close(model(X).t, f32([1, 2]))
    assert_close(model(X).s, f32([-1, -2]))
    assert_close(model(X).y, f32([1, 2]))


def test_absent_inputs_and_outputs():
    function = """<domain: "own", opset_import: ["" : 18]>
        f (x, low, high) => (y, z) { y = Clip(x, low, high) z = Neg(x) }"""
    model = load("(float[N] x, float h) => (float[N] y) { y = own.f(x, , h) }", [function])
    assert_close(model(X, f32(1)), f32([-1, 1]))
    model = load("(float[N] x, float h) => (float[N] z) { , z = own.f(x) }", [function])
    assert_close(model(X, f32(1)), -X)


def test_unsorted_body():
    model = load(
        CALL,
        ["f (a) => (c) { c = Neg(b) b = Relu(a) }"],
    )
    assert_close(model(X), f32([-0.0, -2]))


@pytest.mark.parametrize(
    ("call", "function", "message"),
    [
        ("own.f(x, x)", "f (a) => (b) { b = Neg(a) }", "2 inputs, but function 'f' has 1"),
        ("own.f<k=1>(x)", "f <a>(a) => (b) { b = Neg(a) }", "attribute 'k'; function 'f' has a"),
        ("own.f(x)", "f (a) => (b) { b = own.f(a) }", "function 'f' calls itself"),
        ("own.f(x)", "f (a) => (b) { b = Neg(x) }", "'x', an input of node '' \\(Neg\\) in f, is"),
        ("own.f(x)", "f (a) => (b) { c = Neg(a) }", "'b', an output of f, is produced by no"),
        ("own.f(x)", "f (a) => (b) { b = Neg(a) b = Relu(a) }", "gives the value 'b' more than"),
        ("own.f(x)", "f (a) => (b) { b = Elu<alpha: float = @k>(a) }", "refers to 'k', which is"),
        ("own.f(x)", "f (a) => (b) { b = other.g(a) }", "domain 'other', which is not imported"),
    ],
)  # fmt: skip
def test_wrong_functions(call, function, message):
    with pytest.raises(InvalidModelError, match=message):
        load(
            f"(float[N] x) => (float[N] y) {{ y = {call} }}",
            [f"{function}"],
        )


def test_more_outputs_than_the_function_has():
    with pytest.raises(InvalidModelError, match="2 outputs, but function 'f' has 1"):
        load(
            "(float[N] x) => (float[N] y, float[N] z) { y, z = own.f(x) }",
            ["f (a) => (b) { b = Neg(a) }"],
        )


def test_unsupported_operator_inside_a_function_names_its_path():
    with pytest.raises(UnsupportedOpError, match=r"NoSuch: .*\(node giving 'b@?\d*' in f\)"):
        load(
            CALL,
            ["f (a) => (c) { b = NoSuch(a) c = Neg(b) }"],
        )


def test_reference_outside_of_a_function():
    proto = parse("(float[N] x) => (float[N] y) { y = Elu(x) }")
    attribute = proto.graph.node[0].attribute.add()
    attribute.name, attribute.ref_attr_name = "alpha", "a"
    attribute.type = AttributeProto.FLOAT
    with pytest.raises(InvalidModelError, match="refers to 'a', which is no attribute of an enc"):
        jaxonnx.load(proto)


def test_function_defined_twice():
    with pytest.raises(InvalidModelError, match=r"\('own', 'f', ''\) is defined more than once"):
        load(CALL, ["f (a) => (b) { b = Neg(a) }", "f (a) => (b) { b = Abs(a) }"])

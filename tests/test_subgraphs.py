"""Graphs inside of nodes: what they see, what they name, what they store."""

import jax
import pytest
from helpers import assert_close, f32, text_model
from onnx import parser

import jaxonnx
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError

X = f32([-1, 2])


@register("Call", 1, domain="test.subgraphs")
def call(*inputs, body):
    """The outputs of a subgraph for these inputs."""
    outputs = body(*inputs)
    return tuple(outputs) if len(outputs) > 1 else outputs[0]


def load(text, *functions, ir_version=10, **options):
    """A model from the text of its graph; ``own`` is the domain of functions and of Call."""
    imports = 'opset_import: ["" : 18, "own" : 1, "test.subgraphs" : 1]'
    proto = parser.parse_model(f"<ir_version: {ir_version}, {imports}> g {text}")
    heads = [f'<domain: "own", {imports}> {f}' for f in functions]
    proto.functions.extend(map(parser.parse_function, heads))
    return jaxonnx.load(proto, **options)


def test_outer_values_are_visible():
    """[burn#4119] Also those that are computed between other nodes, and initializers."""
    model = load(
        "(float[N] x) => (float[N] y) <float[1] w = {10.0}> {"
        "  t = Neg(x)"
        "  y = test.subgraphs.Call <body = b () => (float[N] r) { s = Add(t, w) r = Add(s, x) }> ()"
        "}",
        trainable=["w"],
    )
    assert_close(model(X), f32([10, 10]))
    assert_close(jax.grad(lambda m: m(X).sum())(model).params["w"], f32([2]))


def test_inputs_and_several_outputs():
    model = load(
        "(float[N] x) => (float[N] y, float[N] z) {"
        "  y, z = test.subgraphs.Call <body = b (float[N] a) => (float[N] p, float[N] a)"
        "    { p = Relu(a) }> (x) }"
    )
    assert_close(model(X).y, f32([0, 2]))
    assert_close(model(X).z, X)


def test_inner_names_may_be_those_of_the_outside():
    """Exporters give the outputs of a node and of its body one name; later values, too."""
    model = load(
        "(float[N] x) => (float[N] y, float[N] t, float[N] z) {"
        "  y = test.subgraphs.Call <body = b () => (float[N] y) { t = Neg(x) y = Add(t, t) }> ()"
        "  t = Abs(x)"
        "  z = test.subgraphs.Call <body = b (float[N] t) => (float[N] z) { z = Neg(t) }> (y) }"
    )
    assert_close(model(X).y, f32([2, -4]))
    assert_close(model(X).t, f32([1, 2]))
    assert_close(model(X).z, f32([-2, 4]))


def test_sorting_counts_what_subgraphs_read():
    model = load(
        "(float[N] x) => (float[N] y) {"
        "  y = test.subgraphs.Call <body = b () => (float[N] r) { r = Neg(t) }> ()"
        "  t = Abs(x) }"
    )
    assert_close(model(X), f32([-1, -2]))


def test_nested_and_unsorted():
    model = load(
        "(float[N] x) => (float[N] y) {"
        "  y = test.subgraphs.Call <body = outer () => (float[N] r) {"
        "    r = test.subgraphs.Call <body = inner () => (float[N] q) { q = Add(s, x) }> ()"
        "    s = Add(x, x) }> () }"
    )
    assert_close(model(X), 3 * X)


@pytest.mark.parametrize("ir_version", [3, 10])
def test_stored_values(ir_version):
    """IR version 3 lists initializers among the inputs, also of a subgraph."""
    inputs = "float[1] v" if ir_version == 3 else ""
    model = load(
        "(float[N] x) => (float[N] y, float[N] z) {"
        "  y = test.subgraphs.Call <body = b (" + inputs + ") => (float[N] r)"
        "    <float[1] v = {5.0}> {"
        "    c = Constant<value_float = 1.0>() s = Add(v, c) r = Add(x, s) }> ()"
        "  z = test.subgraphs.Call <body = b (" + inputs + ") => (float[N] r)"
        "    <float[1] v = {7.0}> { r = Add(x, v) }> () }",
        ir_version=ir_version,
    )
    assert_close(model(X).y, X + 6)
    assert_close(model(X).z, X + 7)
    assert {n: a.tolist() for n, a in model.stored.items()} == {"v": [5], "c": 1, "v@1": [7]}


def test_output_that_is_an_outer_value_or_a_stored_one():
    model = load(
        "(float[N] x) => (float[N] y, float[1] z) {"
        "  y, z = test.subgraphs.Call <body = b () => (float[N] x, float[1] w)"
        "    <float[1] w = {5.0}> { }> () }"
    )
    assert_close(model(X).y, X)
    assert_close(model(X).z, f32([5]))


def test_subgraph_in_a_function_sees_the_functions_values_and_attributes():
    """The captured value ``t`` is an output of the function, so has the caller's name."""
    model = load(
        "(float[N] x) => (float[N] y, float[N] u) { y, u = own.f <k = 3.0> (x) }",
        """f <k> (a) => (r, t) {
            t = Neg(a)
            r = test.subgraphs.Call <body = b () => (float[N] q) {
                c = Constant <value_float: float = @k> ()
                q = Mul(t, c)
            }> ()
        }""",
    )
    assert_close(model(X).y, -3 * X)
    assert_close(model(X).u, -X)


def test_function_called_in_a_subgraph():
    model = load(
        "(float[N] x) => (float[N] y) {"
        "  y = test.subgraphs.Call <body = b () => (float[N] r)"
        "    { s = own.f(x) r = own.f(s) }> () }",
        "f (x) => (y) { t = Constant <value_float = 2.0> () y = Mul(x, t) }",
    )
    assert_close(model(X), 4 * X)


def test_graph_given_to_a_function():
    """An attribute reference may be to a graph, which sees the caller's values."""
    model = load(
        "(float[N] x) => (float[N] y) {"
        "  t = Neg(x)"
        "  y = own.f <g = b (float[N] a) => (float[N] r) { r = Add(a, t) }> (x) }",
        "f <g> (t) => (y) { s = Add(t, t) y = test.subgraphs.Call <body: graph = @g> (s) }",
    )
    assert_close(model(X), X)


def test_inner_values_given_twice():
    with pytest.raises(InvalidModelError, match=r"Call\.body gives the value 'r' more than once"):
        load(
            "(float[N] x) => (float[N] y) {"
            "  y = test.subgraphs.Call <body = b () => (float[N] r) { r = Neg(x) r = Abs(x) }> () }"
        )


def test_missing_producer_names_the_path():
    with pytest.raises(InvalidModelError, match=r"'t', an input of node '' \(Neg\) in Call\.body"):
        load(
            "(float[N] x) => (float[N] y) {"
            "  y = test.subgraphs.Call <body = b () => (float[N] r) { r = Neg(t) }> () }"
        )


IF = """
    (float[2] x, bool go) => (y) {{
        [fork] {outputs} = If (go) <
            then_branch = one ({inputs}) => ({then}) {{ a = Abs(x) b = Neg(x) }},
            else_branch = two () => ({other}) {{ c = Neg(x) d = Abs(x) }}
        >
        y = Identity(r)
    }}
"""


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (("r, s", "", "a", "c, d"), "its then_branch gives 1 output, expected 2"),
        (("r, s", "", "a, b", "c"), "its else_branch gives 1 output, expected 2"),
        (("r", "", "a, b", "c"), "its then_branch gives 2 outputs, expected 1"),
        (("r", "float[2] q", "a", "c"), "its then_branch takes 1 input, expected 0"),
    ],
)
def test_branches_that_do_not_fit(parts, message):
    names = dict(zip(("outputs", "inputs", "then", "other"), parts, strict=True))
    with pytest.raises(InvalidModelError, match=rf"node 'fork' \(If-16\): {message}"):
        jaxonnx.load(text_model(IF.format(**names)))


LOOP = """
    (float[2] x, int64 n) => (y) {{
        [repeat] {outputs} = Loop (n, , {carried}) <
            body = step ({inputs}) => ({gives}) {{ g = Identity(go) v = Neg(x) w = Abs(x) }}
        >
        y = Identity(r)
    }}
"""


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (("r, s", "x", "int64 k, bool go, float[2] u", "g, v"), "gives 2 outputs, expected 3"),
        (("r", "x", "int64 k, bool go, float[2] u", "g, v, w"), "gives 3 outputs, expected 2"),
        (("r", "x", "int64 k, bool go", "g, v"), "takes 2 inputs, expected 3"),
        (("r", "x, x", "int64 k, bool go, float[2] u", "g, v"), "takes 3 inputs, expected 4"),
        (
            ("r", "x, x", "int64 k, bool go, float[2] u, float[2] t", "g, v"),
            "1 outputs, expected at least 2, one for each carried value",
        ),
    ],
)
def test_bodies_of_loops_that_do_not_fit(parts, message):
    names = dict(zip(("outputs", "carried", "inputs", "gives"), parts, strict=True))
    with pytest.raises(InvalidModelError, match=rf"node 'repeat' \(Loop-16\): .*{message}"):
        jaxonnx.load(text_model(LOOP.format(**names)))


SCAN = """
    (float[2] x, float[3] z) => (y) {{
        [sweep] {outputs} = Scan <num_scan_inputs = {count},
            body = step (float[2] u, float t) => ({gives}) {{ v = Neg(u) w = Identity(t) }}
        > (x, z)
        y = Identity(r)
    }}
"""


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (("r, s, q", 1, "v, w"), "its body gives 2 outputs, expected 3"),
        (("r", 1, "v, w"), "its body gives 2 outputs, expected 1"),
        (("r, s", 0, "v, w"), "num_scan_inputs is 0, expected 1 to 2"),
        (("r, s", 3, "v, w"), "num_scan_inputs is 3, expected 1 to 2"),
    ],
)
def test_bodies_of_scans_that_do_not_fit(parts, message):
    names = dict(zip(("outputs", "count", "gives"), parts, strict=True))
    with pytest.raises(InvalidModelError, match=rf"node 'sweep' \(Scan-16\): {message}"):
        jaxonnx.load(text_model(SCAN.format(**names)))


def test_bodies_that_fit():
    branches = IF.format(outputs="r, s", inputs="", then="a, b", other="c, d")
    steps = "int64 k, bool go, float[2] u"
    loop = LOOP.format(outputs="r, s", carried="x", inputs=steps, gives="g, v, w")
    for graph in (branches, loop, SCAN.format(outputs="r, s", count=1, gives="v, w")):
        jaxonnx.load(text_model(graph))

"""Bodies of If, Loop and Scan: traced once each, with the ranks that they declare."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, f32, i64
from onnx import parser

import jaxonnx
from jaxonnx.define.registry import register

DEPTH = 6
calls: list[str] = []


@register("Seen", 1, domain="test.bodies")
def seen(x, /, *, name):
    """``x``; says that it was called."""
    calls.append(name)
    return x


def load(text):
    imports = 'opset_import: ["" : 18, "test.bodies" : 1]'
    return jaxonnx.load(parser.parse_model(f"<ir_version: 10, {imports}> g {text}"))


def nested_if(level):
    """Conditions inside of both branches of conditions."""
    if level == DEPTH:
        return "r = Neg(x)"
    seen = f's = test.bodies.Seen<name = "{level}">(x)'
    inner = f"then_branch = t{level} () => (float[N] r) {{ {seen} {nested_if(level + 1)} }}"
    other = f"else_branch = e{level} () => (float[N] q) {{ {seen} q = Identity(s) }}"
    return f"r = If <{inner}, {other}> (c)"


def nested_loop(level):
    if level == DEPTH:
        return "r = Neg(v)"
    return (
        f"r = Loop <body = b{level} (int64 i, bool g, float[N] w) => (bool g2, float[N] r) {{"
        f' g2 = Identity(g) v = test.bodies.Seen<name = "{level}">(w) {nested_loop(level + 1)} }}>'
        " (m, yes, v)"
    )


def counts(model, *args):
    calls.clear()
    jax.block_until_ready(model(*args))
    return {k: calls.count(str(k)) for k in range(DEPTH)}


def test_nested_conditions_are_traced_once():
    model = load(f"(float[N] x, bool c) => (float[N] y) {{ {nested_if(0)} y = Identity(r) }}")
    assert counts(model, f32([1]), np.array(True)) == dict.fromkeys(range(DEPTH), 2)  # two branches
    assert_close(model(f32([1]), np.array(True)), f32([-1]))
    assert_close(model(f32([1]), np.array(False)), f32([1]))


@pytest.mark.parametrize("trips", ["int64 m = {1}", "int64 m = {2}"])
@pytest.mark.parametrize("condition", ["given", "constant"])
def test_nested_loops_are_traced_once(trips, condition):
    text = nested_loop(0)
    stored = f"<{trips}, bool yes = {{1}}>"
    if condition == "constant":
        text = text.replace("g2 = Identity(g)", "g2 = Identity(yes)")
    model = load(
        f"(float[N] x) => (float[N] y) {stored} {{ v = Identity(x) {text} y = Identity(r) }}"
    )
    assert counts(model, f32([1])) == dict.fromkeys(range(DEPTH), 1)
    assert_close(model(f32([1])), f32([1 if "2" in trips else -1]))
    gradient = jax.jit(jax.grad(lambda x: model(x).sum()))(f32([1]))
    assert_close(gradient, f32([1 if "2" in trips else -1]))


def test_a_while_loop_is_traced_once():
    model = load(
        "(float[N] x) => (float[N] y) <bool yes = {1}, float top = {100.0}> {"
        "  y = Loop <body = b (int64 i, bool g, float[N] v) => (bool g2, float[N] w) {"
        '    t = test.bodies.Seen<name = "0">(v) w = Add(t, t) m = ReduceMax<keepdims = 0>(w)'
        "    g2 = Less(m, top) }> (, yes, x) }"
    )
    assert counts(model, f32([1]))[0] == 1
    assert_close(model(f32([1])), f32([128]))


RANKS = """(float[2] x, int64 m) => (float[2] y, int64[K, 1] numbers, bool[K, 1] conditions)
    <bool yes = {1}> {
      y, numbers, conditions = Loop <body = b (int64[1] i, bool[1] go, float[2] v)
          => (bool[1] go2, float[2] w, int64[1] j, bool[1] o) {
        go2 = Identity(go) j = Identity(i) o = Identity(go) f = CastLike(i, v) w = Add(v, f)
      }> (m, yes, x)
    }"""


def test_a_loop_keeps_declared_ranks():
    text = RANKS.replace("int64 m)", "float[2] z)").replace("yes = {1}", "yes = {1}, int64 m = {3}")
    y, numbers, conditions = load(text)(f32([1, 2]), f32([0, 0]))
    assert_close(y, f32([4, 5]))
    assert_close(numbers, i64([[0], [1], [2]]))
    assert conditions.shape == (3, 1)
    y, numbers, conditions = load(RANKS)(f32([1, 2]), i64(2))  # outside of a trace
    assert_close(y, f32([2, 3]))
    assert_close(numbers, i64([[0], [1]]))
    assert load(RANKS)(f32([1, 2]), i64(0)).numbers.shape == (0, 1)


SCAN = """(float[3] x) => (float[1] y, float[3, 1] all) <float[1] zero = {0.0}> {
    y, all = Scan <num_scan_inputs = 1, body = b (float[1] s, float[1] e)
        => (float[1] t, float[1] u) { t = Add(s, e) u = Mul(e, e) }> (zero, x)
}"""


def test_a_scan_keeps_declared_ranks():
    y, squares = load(SCAN)(f32([1, 2, 3]))
    assert_close(y, f32([6]))
    assert_close(squares, f32([[1], [4], [9]]))
    tangent = jax.jvp(lambda x: load(SCAN)(x).y, (f32([1, 2, 3]),), (jnp.ones(3),))[1]
    assert_close(tangent, f32([3]))

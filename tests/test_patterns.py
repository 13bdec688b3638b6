"""Logarithms of probabilities and angles as exporters write them."""

import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnx.parser
import pytest
from helpers import assert_close, assert_same, f32, text_model
from spelled import as_spelled, derivatives, kinds, true, vector

import jaxonnx

ZEROS = f32([0, 0, 0])
X = f32([0.5, -2, 1.5])
LOGARITHMS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "log sigmoid": ("s = Sigmoid (x) z = Log (s)", jax.nn.log_sigmoid),
    "log of the rest": (
        "s = Sigmoid (x) r = Sub (one, s) z = Log (r)",
        lambda x: jax.nn.log_sigmoid(-x),
    ),
    "log softmax": ("s = Softmax <axis = 0> (x) z = Log (s)", jax.nn.log_softmax),
    "binary cross entropy": (
        """s = Sigmoid (x) a = Log (s) b = Mul (t, a) r = Sub (one, s) c = Log (r)
        u = Sub (one, t) d = Mul (u, c) e = Add (b, d) l = Neg (e) z = ReduceMean (l)""",
        lambda x: jnp.mean(jax.nn.softplus(x) - f32([1, 0, 1]) * x),
    ),
}
LABELS = "float one = {1}, float[3] t = {1, 0, 1}"
HUGE = f32([1e4, -1e4, 50])


@pytest.mark.parametrize("case", LOGARITHMS)
def test_a_logarithm(case, monkeypatch):
    """The value of the spelled chain where that is finite, and finite for all finite inputs."""
    body, function = LOGARITHMS[case]
    model = jaxonnx.load(text_model(vector(body, LABELS)))
    assert_close(model(X), as_spelled(vector(body, LABELS), monkeypatch)(X))
    all_of = derivatives(model)
    for x in (X, HUGE, -HUGE):
        assert_close(jnp.ravel(model(x)), jnp.ravel(function(x)))
        expected = true(function, x)
        for mode, found in all_of(x).items():
            assert np.isfinite(found).all()
            assert_close(found, expected[" of " in mode], scale=10)


@pytest.mark.parametrize("opset", [7, 11, 13, 22])
def test_a_logarithm_in_every_opset(opset):
    text = "(float[3] x) => (z) { s = Sigmoid (x) z = Log (s) }"
    model = jaxonnx.load(text_model(text, opset=opset))
    assert_same(model(f32([-1e4, 0, 1e4])), f32([-1e4, -np.log(np.float32(2)), 0]))


@pytest.mark.parametrize(
    "body",
    [
        "s = Sigmoid (x) e = Add (s, one) z = Log (e)",
        "s = Sigmoid (x) e = Clip (s, one) z = Log (e)",
        "s = Sigmoid (x) e = Sub (t, s) z = Log (e)",
        "s = Tanh (x) z = Log (s)",
    ],
)
def test_other_logarithms_stay(body):
    assert kinds(jaxonnx.load(text_model(vector(body, LABELS))))[-1] == "Log"


def test_what_is_put_inside_of_a_logarithm_counts():
    """A value by its name is that of the file, and so is what follows another one there."""
    text = vector("s = Sigmoid (x) z = Log (s)", LABELS)
    model = jaxonnx.load(text_model(text))
    assert_close(model.capture(X, "s")["s"], jax.nn.sigmoid(X))
    assert_close(
        model.apply(model.params, X, patch={"s": lambda s: 2 * s}), np.log(2 * jax.nn.sigmoid(X))
    )
    assert_close(model.apply(model.params, X, patch={"x": -X}), jax.nn.log_sigmoid(-X))
    head = jaxonnx.load(text_model(text), inputs=["s"])
    assert_close(head(f32([1, 2, 3])), np.log(f32([1, 2, 3])))
    assert head.input_names == ("s",)
    copy = pickle.loads(pickle.dumps(model))
    assert_close(copy.apply(copy.params, X, patch={"s": f32([1, 1, 1])}), ZEROS)


def test_what_is_put_inside_of_a_logarithm_in_a_branch_counts():
    text = """(float[3] x, bool c) => (z) {
        s = Sigmoid (x)
        z = If (c) <then_branch = t () => (float[3] a) { a = Log (s) },
                    else_branch = e () => (float[3] b) { b = Neg (s) }>
    }"""
    model = jaxonnx.load(text_model(text))
    assert_close(model(HUGE, True), f32([0, -1e4, 0]))
    patched = model.apply(model.params, X, True, patch={"s": f32([1, 1, 1])})
    assert_same(patched, ZEROS)


QUADRANTS = """q = Div (y, x) a = Atan (q) g = Greater (y, zero) p = Add (a, pi) m = Sub (a, pi)
    w = Where (g, p, m) l = Less (x, zero) z = Where (l, w, a)"""
ANGLES = {
    "TorchScript": QUADRANTS,
    "dynamo": QUADRANTS.replace("z =", "r =") + " n = IsNaN (r) z = Where (n, zero, r)",
    "the other way round": QUADRANTS.replace("g = Greater (y, zero)", "g = Less (zero, y)")
    .replace("l = Less (x, zero)", "l = GreaterOrEqual (x, zero)")
    .replace("Where (l, w, a)", "Where (l, a, w)"),
    "tf2onnx": """h = Sign (x) v = Sign (y) sx = Cast <to = 1> (h) sy = Cast <to = 1> (v)
        b = Sub (sx, one) c = Mul (sy, sy) d = Sub (c, one) e = Mul (sx, d) f = Add (sy, e)
        i = Mul (f, b) k = Mul (i, less) o = Mul (sx, sx) s = Sub (o, one) t = Add (x, s)
        q = Div (y, t) a = Atan (q) u = Mul (o, a) z = Add (u, k)""",
}


def angle(spelling: str) -> str:
    return f"""(float[N] y, float[N] x) => (z)
        <float zero = {{0}}, float one = {{1}}, float pi = {{3.14159265}},
         float less = {{-1.57079633}}> {{ {ANGLES[spelling]} }}"""


AROUND = f32([[1, 2, -1, 0.5, -3], [2, -1, -2, 0.25, 1]])
UPRIGHT = f32([[1, -2, 4, -0.5], [0, 0, -0.0, -0.0]])


@pytest.mark.parametrize("spelling", ANGLES)
def test_an_angle(spelling, monkeypatch):
    """Bits of the chain away from ``x = 0``, and there the value and derivatives of the angle."""
    model = jaxonnx.load(text_model(angle(spelling)))
    stacked = lambda v: model(v[0], v[1])
    assert_same(stacked(AROUND), as_spelled(angle(spelling), monkeypatch)(*AROUND))
    assert_same(stacked(UPRIGHT), np.sign(UPRIGHT[0]) * f32(np.pi / 2))
    for point in (AROUND, UPRIGHT):
        expected = true(lambda v: jnp.arctan2(v[0], v[1]), point)
        assert_close(
            stacked(point), np.arctan2(point[0], abs(point[1]) if point is UPRIGHT else point[1])
        )
        for mode, found in derivatives(stacked)(point).items():
            assert_close(found, expected[" of " in mode], scale=10)


@pytest.mark.parametrize("spelling", ANGLES)
def test_an_angle_of_the_origin_and_of_extremes(spelling):
    model = jaxonnx.load(text_model(angle(spelling)))
    total = lambda y, x: model(y, x).sum()
    y, x = f32([0, 1e30, 1e-30]), f32([0, 1e30, -1e-30])
    assert_close(model(y, x), f32([0, np.pi / 4, 3 * np.pi / 4]))
    for mode in (jax.jacrev, jax.jacfwd):
        by_y, by_x = mode(total, (0, 1))(y, x)
        assert_close(by_y, f32([0, 0.5e-30, -0.5e30]))
        assert_close(by_x, f32([0, -0.5e-30, -0.5e30]))
        for second in jax.tree.leaves(mode(jax.grad(total, (0, 1)), (0, 1))(y[:1], x[:1])):
            assert_same(second, f32([[0]]))


def test_an_angle_that_is_broadcast():
    model = jaxonnx.load(text_model(angle("TorchScript").replace("float[N] y", "float[M, 1] y")))
    y, x = f32([[1], [-2]]), f32([0, 3, -1])
    assert_close(model(y, x), np.arctan2(y, x))
    slope = jax.grad(lambda y: model(y, x).sum())(y)
    assert_close(slope, (x / (y * y + x * x)).sum(1, keepdims=True))


def test_what_is_put_inside_of_an_angle_counts():
    model = jaxonnx.load(text_model(angle("TorchScript")))
    y, x = AROUND
    inside = model.capture(y, x, "q", "a", "w", "z")
    assert_close(inside["q"], y / x)
    patched = lambda q: model.apply(model.params, abs(y), abs(x), patch={"q": q})
    assert_close(patched(abs(x)), np.arctan(abs(x)))
    assert_close(jax.grad(lambda q: patched(q).sum())(abs(x)), 1 / (1 + x * x))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("pi = {3.14159265}", "pi = {3}"),
        ("Less (x, zero)", "Less (y, zero)"),
        ("Greater (y, zero)", "Greater (y, one)"),
        ("p = Add (a, pi)", "p = Sub (a, pi)"),
        ("Atan", "Tanh"),
    ],
)
def test_what_is_no_angle_stays(old, new):
    assert "Atan2" in kinds(jaxonnx.load(text_model(angle("TorchScript"))))
    other = angle("TorchScript").replace(old, new)
    assert "Atan2" not in kinds(jaxonnx.load(text_model(other)))


@pytest.mark.parametrize(
    "text",
    [
        vector("s = Sigmoid (x) z = Log (s)", LABELS),
        angle("dynamo"),
    ],
)
def test_the_file_is_saved_as_it_was(text, tmp_path):
    proto = text_model(text)
    jaxonnx.load(proto).save(tmp_path / "same.onnx")
    assert [*onnx.load(tmp_path / "same.onnx").graph.node] == [*proto.graph.node]

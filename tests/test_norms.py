"""Norms and deviations as exporters write them: at 0 their derivative is 0, in both orders."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnx.parser
import pytest
from helpers import assert_close, assert_same, f32, text_model
from spelled import PARTS, as_spelled, derivatives, kinds, true, vector

import jaxonnx

ZEROS = f32([0, 0, 0])
X = f32([0.5, -2, 1.5])
Y = f32([1, 2, -4])
MEAN = "m = ReduceMean <keepdims = 1> (x) d = Sub (x, m)"
SIZE = """s = Shape (x) p = ReduceProd <keepdims = 0> (s)"""
DISTANCES = f32([[1, 2, 3], [4, 5, 7]])
APART = """(float[2, 3] x) => (float[2, 2] z)
    <int64[1] last = {-1}, int64[2] column = {2, 1}, float two = {2}, float less = {-2},
     float one = {1}, float zero = {0}> { %s }"""


def norm(x: Any) -> Any:
    return jnp.sqrt((x * x).sum())


def apart(x: Any) -> Any:
    """The distances between two points, 0 on the diagonal and flat there."""
    far = norm(x[0] - x[1])
    return far * (1 - jnp.eye(2, dtype=np.float32))


def power_norm(p: float) -> Callable[[Any], Any]:
    return lambda x: (jnp.abs(x) ** p).sum() ** (1 / p)


NORMS: dict[str, tuple[str, Callable[[Any], Any], np.ndarray, Any]] = {
    "norm, of products": (
        vector("q = Mul (x, x) r = ReduceSum <keepdims = 0> (q) z = Sqrt (r)"),
        norm,
        ZEROS,
        0,
    ),
    "norm, of powers": (
        vector("q = Pow (x, two) r = ReduceSum (q) z = Pow (r, half)"),
        norm,
        ZEROS,
        0,
    ),
    "norm, of ReduceSumSquare": (vector("r = ReduceSumSquare (x) z = Sqrt (r)"), norm, ZEROS, 0),
    "norm, by Einsum": (
        vector("""r = Einsum <equation = "i, i -> "> (x, x) z = Sqrt (r)"""),
        norm,
        ZEROS,
        0,
    ),
    "norm, of moved squares": (
        vector(
            "q = Mul (x, x) c = Cast <to = 1> (q) t = Transpose (c) r = ReduceSum (t) z = Sqrt (r)"
        ),
        norm,
        ZEROS,
        0,
    ),
    "root of the mean": (
        vector("q = Mul (x, x) r = ReduceMean (q) z = Sqrt (r)"),
        lambda x: norm(x) / np.float32(math.sqrt(3)),
        ZEROS,
        0,
    ),
    "p-norm, TorchScript and dynamo": (
        vector(
            "a = Abs (x) q = Pow (a, p) r = ReduceSum (q) e = CastLike (inverse, x) z = Pow (r, e)",
            "float p = {3}, double inverse = {0.3333333333}",
        ),
        power_norm(3),
        ZEROS,
        0,
    ),
    "pairwise distance, TorchScript": (
        vector(
            """d = Sub (x, y) q = Pow (d, two) r = ReduceSum <keepdims = 0> (q)
            e = Add (two, eps) i = Div (one, e) z = Pow (r, i)""",
            PARTS + ", float one = {1}, float eps = {1e-6}",
        ),
        lambda x: norm(x - Y),
        Y,
        0,
    ),
    "pairwise distance, dynamo": (
        vector(
            "d = Sub (x, y) e = Add (d, eps) z = ReduceL2 (e)",
            PARTS + ", float eps = {0.25}",
        ),
        lambda x: norm(x - Y + 0.25),
        Y - f32(0.25),
        0,
    ),
    "difference that is computed twice": (
        vector("a = Sub (x, y) b = Sub (x, y) q = Mul (a, b) r = ReduceSum (q) z = Sqrt (r)"),
        lambda x: norm(x - Y),
        Y,
        0,
    ),
    "hypotenuse": (
        vector(
            """q = Mul (x, x) f = Pow (y, zero) g = Sub (f, f) h = Mul (g, g) r = Add (q, h)
            z = Sqrt (r)"""
        ),
        jnp.abs,
        ZEROS,
        0,
    ),
    "standard deviation": (
        vector(f"{MEAN} q = Mul (d, d) v = ReduceMean (q) z = Sqrt (v)"),
        jnp.std,
        f32([2, 2, 2]),
        0,
    ),
    "corrected, TorchScript": (
        vector(
            f"""{MEAN} q = Mul (d, d) v = ReduceMean <keepdims = 0> (q) {SIZE}
            n = Cast <to = 1> (p) t = Mul (v, n) w = Sub (n, one) u = Div (t, w) z = Sqrt (u)""",
            "float one = {1}",
        ),
        lambda x: jnp.std(x, ddof=1),
        f32([2, 2, 2]),
        0,
    ),
    "corrected, dynamo": (
        vector(
            f"""{MEAN} q = Mul (d, d) v = ReduceMean <keepdims = 0> (q) {SIZE}
            n = CastLike (p, x) t = Mul (v, n) c = CastLike (one, x) w = Sub (n, c) u = Div (t, w)
            z = Sqrt (u)""",
            "double one = {1}",
        ),
        lambda x: jnp.std(x, ddof=1),
        f32([2, 2, 2]),
        0,
    ),
    "sum of squares by a number": (
        vector(
            f"{MEAN} q = Pow (d, two) r = ReduceSum (q) v = Div (r, n) z = Sqrt (v)",
            PARTS + ", float n = {2}",
        ),
        lambda x: jnp.std(x, ddof=1),
        f32([2, 2, 2]),
        0,
    ),
    "deviation by E[x^2] - E[x]^2": (
        vector(
            """q = Mul (x, x) a = ReduceMean (q) m = ReduceMean (x) b = Pow (m, two)
            v = Sub (a, b) c = Relu (v) z = Sqrt (c)"""
        ),
        jnp.std,
        f32([2, 2, 2]),
        0,
    ),
    "standardized": (
        vector(
            f"""{MEAN} q = Mul (d, d) v = ReduceMean (q) s = Sqrt (v) e = Add (s, eps)
            z = Div (d, e)""",
            "float eps = {0.5}",
        ),
        lambda x: (x - x.mean()) / (jnp.std(x) + 0.5),
        f32([2, 2, 2]),
        f32([-2, 0, 2]),  # (w - mean of w) / eps
    ),
    **{
        f"unit vector, {bound}": (
            vector(
                f"r = ReduceSumSquare (x) n = Sqrt (r) m = {bound} (n, eps) z = Div (x, m)",
                "float eps = {0.5}",
            ),
            lambda x: x / jnp.maximum(norm(x), 0.5),
            ZEROS,
            f32([2, 4, 6]),
        )
        for bound in ("Max", "Clip")
    },
    "clamped at 0": (
        vector("r = ReduceSumSquare (x) c = Clip (r, zero) m = Max (c, zero) z = Sqrt (m)"),
        norm,
        ZEROS,
        0,
    ),
    "cosine similarity, TorchScript": (
        vector(
            """xy = Mul (x, y) c = ReduceSum (xy) xx = Mul (x, x) a = ReduceSum (xx)
            yy = Mul (y, y) b = ReduceSum (yy) ab = Mul (a, b) r = Sqrt (ab) m = Max (r, eps)
            z = Div (c, m)""",
            PARTS + ", float eps = {0.5}",
        ),
        lambda x: (x * Y).sum() / jnp.maximum(norm(x) * norm(Y), 0.5),
        ZEROS,
        2 * Y,
    ),
    "cosine similarity, dynamo": (
        vector(
            """a = ReduceL2 (x) am = Max (a, eps) xn = Div (x, am) b = ReduceL2 (y)
            bm = Max (b, eps) yn = Div (y, bm) p = Mul (xn, yn) z = ReduceSum (p)""",
            PARTS + ", float eps = {0.5}",
        ),
        lambda x: (x * Y).sum() / jnp.maximum(norm(x), 0.5) / norm(Y),
        ZEROS,
        2 * Y / np.sqrt(np.float32(21)),
    ),
    "cosine similarity, each norm by itself": (
        vector(
            """xy = Mul (x, y) c = ReduceSum (xy) xx = Pow (x, two) a = ReduceSum (xx)
            s = Sqrt (a) b = ReduceL2 (y) ab = Mul (s, b) r = Add (ab, eps) z = Div (c, r)""",
            PARTS + ", float eps = {0.5}",
        ),
        lambda x: (x * Y).sum() / (norm(x) * norm(Y) + 0.5),
        ZEROS,
        2 * Y,
    ),
    "power pooling": (
        """(float[1, 1, 4] x) => (z) <float two = {2}, float half = {0.5}> {
            q = Pow (x, two) a = AveragePool <kernel_shape = [2], strides = [2]> (q)
            s = Sign (a) b = Abs (a) c = Relu (b) d = Mul (s, c) e = Mul (d, two) z = Pow (e, half)
        }""",
        lambda x: jnp.sqrt((x.reshape(1, 1, 2, 2) ** 2).sum(-1)),
        f32([[[0, 0, 0, 0]]]),
        0,
    ),
}
"""Text, what it computes, where that is 0, and the derivative of a weighted sum there."""

CDIST = {
    "cdist, TorchScript": """
        a0 = Unsqueeze (x, second) b0 = Unsqueeze (x, first) d = Sub (a0, b0) q = Pow (d, two)
        r = ReduceSum <keepdims = 0> (q, last) z = Pow (r, half)""",
    "cdist, broadcast": """
        a0 = Unsqueeze (x, second) b0 = Unsqueeze (x, first) d = Sub (a0, b0) q = Pow (d, two)
        r = ReduceSum <keepdims = 0> (q, last) z = Sqrt (r)""",
    "cdist, dynamo": """
        q = Pow (x, two) n = ReduceSum <keepdims = 1> (q, last) o = Expand (one, column)
        t = Mul (x, less) a = Concat <axis = -1> (t, n, o) b = Concat <axis = -1> (x, o, n)
        bt = Transpose <perm = [1, 0]> (b) m = MatMul (a, bt) c = Clip (m, zero) z = Sqrt (c)""",
    "cdist, expanded": """
        q = Mul (x, x) n = ReduceSum <keepdims = 1> (q, last) nt = Transpose <perm = [1, 0]> (n)
        xt = Transpose <perm = [1, 0]> (x) p = MatMul (x, xt) p2 = Mul (p, two)
        s = Add (n, nt) r = Sub (s, p2) c = Relu (r) z = Sqrt (c)""",
    "cdist, expanded the other way": """
        q = Mul (x, x) n = ReduceSum <keepdims = 1> (q, last) nt = Transpose <perm = [1, 0]> (n)
        xt = Transpose <perm = [1, 0]> (x) x2 = Mul (less, x) p = MatMul (x2, xt)
        s = Add (p, n) r = Add (s, nt) c = Max (r, zero) z = Sqrt (c)""",
    "cdist, by Gemm": """
        q = Mul (x, x) n = ReduceSum <keepdims = 1> (q, last) nt = Transpose <perm = [1, 0]> (n)
        s = Add (n, nt) r = Gemm <alpha = -2.0, transB = 1> (x, x, s) c = Clip (r, zero)
        z = Sqrt (c)""",
}


def cases() -> dict[str, tuple[str, Callable[[Any], Any], np.ndarray, Any, np.ndarray]]:
    found = {n: (*c, X if c[2].size == 3 else f32([[[1, 2, 3, -1]]])) for n, c in NORMS.items()}
    more = ", int64[1] first = {0}, int64[1] second = {1}, float half = {0.5}> {"
    together = f32([[1, 2, 3], [1, 2, 3]])
    text = APART.replace("> {", more)
    return found | {n: (text % b, apart, together, 0, DISTANCES) for n, b in CDIST.items()}


@pytest.mark.parametrize("case", cases())
def test_a_norm(case, monkeypatch):
    """Bits of the spelled chain; derivatives of the norm away from 0, and stated ones at 0."""
    text, function, at_0, slope, away = cases()[case]
    model = jaxonnx.load(text_model(text))
    for x in (at_0, away):
        assert_same(model(x), as_spelled(text, monkeypatch)(x))
    all_of = derivatives(model)
    expected = true(function, away)
    for mode, found in all_of(away).items():
        assert_close(found, expected[" of " in mode], scale=20)
    for mode, found in all_of(at_0).items():
        stated = 0 if " of " in mode else slope
        assert_close(found, np.broadcast_to(f32(stated), found.shape), scale=20)


ROOT = vector("q = Mul (x, x) r = ReduceSum <keepdims = 0> (q) z = Sqrt (r)")


@pytest.mark.parametrize(
    "body",
    [
        "z = Sqrt (x)",
        "r = ReduceSum (x) z = Sqrt (r)",
        "a = Abs (x) r = ReduceSum (a) z = Sqrt (r)",
        "q = Pow (x, half) r = ReduceSum (q) z = Sqrt (r)",
        "q = Mul (x, x) r = Sub (q, q) z = Sqrt (r)",
        "q = Mul (x, x) r = Mul (q, x) z = Sqrt (r)",
        "q = Mul (x, x) r = Mul (q, y) z = Sqrt (r)",  # the derivative by y is infinite
        "q = Mul (x, x) r = Add (q, x) z = Sqrt (r)",
        "q = Mul (x, x) r = Max (q, x) z = Sqrt (r)",
        "a = Add (x, two) b = Add (x, half) r = Mul (a, b) z = Sqrt (r)",
        "q = Mul (x, x) z = Pow (q, two)",
        "q = Mul (x, x) z = Pow (q, y)",
    ],
)
def test_what_is_no_norm_stays_a_root(body):
    assert "FlatAtZero" not in kinds(jaxonnx.load(text_model(vector(body))))


def test_a_root_of_what_is_never_0_needs_nothing():
    body = f"{MEAN} q = Mul (d, d) v = ReduceMean (q) e = Add (v, half) s = Sqrt (e) z = Div (d, s)"
    assert "FlatAtZero" not in kinds(jaxonnx.load(text_model(vector(body))))


def test_values_without_a_finite_norm():
    model = jaxonnx.load(text_model(ROOT))
    assert_same(model(f32([np.inf, 1, 1])), f32(np.inf))
    assert_same(model(f32([np.nan, 1, 1])), f32(np.nan))
    assert np.isnan(jax.grad(model)(f32([np.nan, 1, 1]))[0])


@pytest.mark.parametrize("dtype", ["double", "float16", "bfloat16"])
def test_a_norm_in_other_types(dtype):
    text = ROOT.replace("float[3] x", f"{dtype}[3] x")
    model = jaxonnx.load(text_model(text, opset=18))
    kind = {"double": np.float64, "float16": np.float16, "bfloat16": jnp.bfloat16}[dtype]
    with jax.enable_x64(dtype == "double"):
        slope = jax.grad(lambda x: model(x).astype(np.float32))
        assert_same(slope(jnp.zeros(3, kind)), np.zeros(3, kind))
        assert_close(slope(jnp.asarray([0, 3, 4], kind)), np.array([0, 0.6, 0.8], kind))


def test_in_a_branch_and_of_a_value_from_outside():
    text = """(float[3] x, bool c) => (z) {
        q = Mul (x, x)
        z = If (c) <
            then_branch = t () => (float a) { r = ReduceSum <keepdims = 0> (q) a = Sqrt (r) },
            else_branch = e () => (float b) { s = ReduceSum <keepdims = 0> (x) b = Exp (s) }>
    }"""
    model = jaxonnx.load(text_model(text))
    slope = jax.jit(jax.grad(model))
    assert_same(slope(ZEROS, True), ZEROS)
    assert_close(slope(f32([0, 3, 4]), True), f32([0, 0.6, 0.8]))


FUNCTION = """
<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
g (float[3] x) => (float z) { y = Neg (x) z = own.length (y) }
<domain: "own", opset_import: ["" : 18]>
length (v) => (n) { q = Mul (v, v) r = ReduceSum <keepdims = 0> (q) n = Sqrt (r) }
"""


def test_in_a_function():
    slope = jax.grad(jaxonnx.load(onnx.parser.parse_model(FUNCTION)))
    assert_same(slope(ZEROS), ZEROS)
    assert_close(slope(f32([0, 3, 4])), f32([0, 0.6, 0.8]))


def test_values_inside_keep_their_names():
    model = jaxonnx.load(text_model(ROOT))
    x = f32([0, 3, 4])
    inside = model.capture(x, "q", "r", "z")
    assert {n: v.tolist() for n, v in inside.items()} == {"q": [0, 9, 16], "r": 25, "z": 5}
    assert_same(model.apply(model.params, x, patch={"r": f32(4)}), f32(2))
    head = jaxonnx.load(text_model(ROOT), inputs=["r"])
    assert_same(head(f32(25)), f32(5))
    assert_same(jax.grad(head)(f32(0)), f32(0))  # of the norm still, not of a root
    assert_same(jaxonnx.load(text_model(ROOT), outputs=["r"])(x), f32(25))


def test_an_exponent_that_is_replaced_is_used():
    model = jaxonnx.load(text_model(NORMS["norm, of powers"][0]))
    assert_same(model.apply({**model.params, "half": f32(1)}, f32([0, 3, 4])), f32([25]))


@pytest.mark.parametrize("text", [ROOT, NORMS["corrected, dynamo"][0]])
def test_the_file_is_saved_as_it_was(text, tmp_path):
    proto = text_model(text)
    jaxonnx.load(proto).save(tmp_path / "same.onnx")
    assert [*onnx.load(tmp_path / "same.onnx").graph.node] == [*proto.graph.node]

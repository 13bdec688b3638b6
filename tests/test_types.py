"""Dtype and shape of every value of a model."""

from helpers import f32, i64, text_model
from onnx import TensorProto, helper, numpy_helper

import jaxonnx


def types(text, stored=None, declared=(), **options):
    """What is known of each value, as text."""
    proto = text_model(text)
    proto.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in (stored or {}).items())
    proto.graph.value_info.extend(declared)
    found = jaxonnx.load(proto, **options)._program.types
    return {n: str(s) for n, s in found.items()}


def test_the_file_is_silent():
    found = types(
        "(float[N, 2] x) => (y) { h = MatMul(x, w) y = Concat<axis = 0>(h, h) }",
        {"w": f32([[1, 2, 3], [4, 5, 6]])},
    )
    assert found == {
        "x": "float32[N, 2]",
        "w": "float32[2, 3]",
        "h": "float32[N, 3]",
        "y": "float32[2*N, 3]",
    }


def test_what_the_file_declares_holds():
    info = helper.make_tensor_value_info("h", TensorProto.FLOAT, ["rows"])
    found = types("(float[N] x) => (float[N] y) { h = Neg(x) y = Neg(h) }", declared=[info])
    assert found["h"] == "float32[rows]"


def test_inside_a_branch():
    found = types(
        """(bool c, float[2] x) => (float[2] y) {
            y = If(c) <
                then_branch = a () => (float[2] p) { i = Cast<to = 7>(x) p = Cast<to = 1>(i) },
                else_branch = b () => (float[2] q) { q = Neg(x) }
            >
        }"""
    )
    assert found["i"] == "int64[2]"
    assert found["q"] == "float32[2]"


def test_behind_a_shape_that_depends_on_values():
    text = "(float[N] x) => (int64[1, K] y) { h = Neg(x) n = NonZero(h) y = Neg(n) }"
    found = types(text)
    assert found["h"] == "float32[N]"
    assert "n" not in found
    assert found["y"] == "int64[1, K]"
    assert types(text, bounds={"n": 3})["n"] == "int64[1, 3]"


def test_an_input_without_a_rank():
    assert types("(float[] x, float y) => (float z) { z = Add(x, y) }", {"w": i64([1])})["z"]


def test_protected_names():
    proto = text_model("(float[N] x) => (float[N] y) { h = Mul(x, w) y = Neg(h) }")
    proto.graph.initializer.append(numpy_helper.from_array(f32([1, 2]), "w"))
    plan = jaxonnx.load(proto)._program.plan
    assert plan.protected == {"x", "w", "y"}

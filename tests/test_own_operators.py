"""Operators that users register: what is expected of their nodes, and where they are missing."""

import pickle
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import onnx.defs
import onnx.parser
import pytest
from helpers import assert_close, f32

import jaxonnx
from jaxonnx.errors import InvalidModelError, UnsupportedOpError

DOMAIN = "test.own"
X = f32([1, 2])


@jaxonnx.register("Any", 1, domain=DOMAIN)
def _any(x, /, **attributes: Any):
    """``x`` times the sum of all attributes."""
    return x * sum(attributes.values())


@jaxonnx.register("Typed", 1, domain=DOMAIN)
def _typed(x, y=None, /, *, scale: float, shift: int = 0, how: str = "up"):
    """Attributes of several types, of which one is required."""
    out = x * scale + shift
    out = out if y is None else out + y
    return out if how == "up" else -out


@jaxonnx.register("Named", 1, domain=DOMAIN)
def _named(x, z):
    """Inputs that are not positional-only."""
    return x - z


@jaxonnx.register("Sum", 1, domain=DOMAIN)
def _sum(first, /, *rest):
    """At least one input."""
    return sum(rest, first)


SCHEMA = onnx.defs.OpSchema(
    "Stated",
    DOMAIN,
    1,
    inputs=[
        onnx.defs.OpSchema.FormalParameter("a", "T"),
        onnx.defs.OpSchema.FormalParameter("b", "T"),
    ],
    outputs=[onnx.defs.OpSchema.FormalParameter("c", "T")],
    type_constraints=[("T", ["tensor(float)", "tensor(double)"], "floats")],
    attributes=[
        onnx.defs.OpSchema.Attribute("scale", onnx.defs.OpSchema.AttrType.FLOAT, required=True),
    ],
)


@jaxonnx.register("Stated", 1, domain=DOMAIN, schema=SCHEMA)
def _stated(a, b, /, *, scale):
    """``scale * a + b``."""
    return scale * a + b


def _model(call, inputs="float[N] x"):
    header = f'<ir_version: 10, opset_import: ["" : 18, "{DOMAIN}" : 1]>'
    return onnx.parser.parse_model(f"{header} g ({inputs}) => (y) {{ [own] y = {DOMAIN}.{call} }}")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("Any (x)", [0, 0]),
        ("Any <a = 2.0, other = 1.0> (x)", [3, 6]),
        ("Typed <scale = 2.0> (x)", [2, 4]),
        ('Typed <scale = 2.0, shift = 1, how = "down"> (x, x)', [-4, -7]),
        ("Named (x, x)", [0, 0]),
        ("Sum (x)", [1, 2]),
        ("Sum (x, x, x)", [3, 6]),
        ("Stated <scale = 2.0> (x, x)", [3, 6]),
    ],
)
def test_nodes_as_expected(call, expected):
    assert_close(jaxonnx.load(_model(call))(X), f32(expected))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("Any ()", "0 inputs, expected 1"),
        ("Any (x, x)", "2 inputs, expected 1"),
        ("Typed (x)", "the required attribute 'scale' is absent"),
        ("Typed <scale = 2> (x)", "attribute 'scale' is int, expected FLOAT"),
        ("Typed <scale = 2.0, shift = 1.0> (x)", "attribute 'shift' is float, expected INT"),
        ("Typed <scale = 2.0, how = 1> (x)", "attribute 'how' is int, expected STRING"),
        ("Typed <scale = 2.0, more = 1> (x)", "unknown attribute 'more'; it has how, scale, shift"),
        ("Typed <scale = 2.0> (x, x, x)", "3 inputs, expected 1 to 2"),
        ("Named (x)", "1 inputs, expected 2"),
        ("Sum ()", "0 inputs, expected at least 1"),
        ("Stated (x, x)", "the required attribute 'scale' is absent"),
        ("Stated <scale = 1> (x, x)", "attribute 'scale' is int, expected FLOAT"),
        ("Stated <scale = 1.0, b = 1> (x, x)", "unknown attribute 'b'; it has scale"),
        ("Stated <scale = 1.0> (x)", "1 inputs, expected 2"),
    ],
)
def test_nodes_that_are_not_as_expected(call, message):
    with pytest.raises(InvalidModelError, match=rf"node 'own' \(test\.own::\w+-1\): {message}"):
        jaxonnx.load(_model(call))


def test_types_of_a_stated_schema():
    model = jaxonnx.load(_model("Stated <scale = 1.0> (x, n)", "float[N] x, int32[N] n"))
    with pytest.raises(InvalidModelError, match=r"input b \('n'\) is int32, expected one of float"):
        model(X, np.ones(2, np.int32))
    model = jaxonnx.load(_model("Stated <scale = 1.0> (x, d)", "float[N] x, double[N] d"))
    with pytest.raises(InvalidModelError, match="another input of type T is float32"):
        model(X, np.ones(2))


REGISTERED = "import jaxonnx; jaxonnx.register('Sum', 1, domain='test.own')(lambda *x: sum(x))"

UNPICKLE = """
import pickle, sys
import jax, jaxonnx
try:
    {read}
except jaxonnx.UnsupportedOpError as error:
    print(error)
"""


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("way", ["pickle", "export"])
def test_operator_that_is_not_registered_where_a_model_arrives(tmp_path, way, registered):
    model = jaxonnx.load(_model("Sum (x, x)", "float[2] x"))
    if way == "pickle":
        data = pickle.dumps(model)
        read = "pickle.loads(open(sys.argv[1], 'rb').read())"
    else:
        data = bytes(jax.export.export(jax.jit(lambda m, x: m(x)))(model, X).serialize())
        read = "jax.export.deserialize(bytearray(open(sys.argv[1], 'rb').read()))"
    (tmp_path / "data").write_bytes(data)
    program = (REGISTERED if registered else "") + UNPICKLE.format(read=read)
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "data"],
        capture_output=True,
        text=True,
        check=True,
    )
    expected = "" if registered else "test.own::Sum-1: not implemented (node 'own')"
    assert done.stdout.strip().rpartition("\n")[2].strip() == expected


def test_operator_missing_in_a_body_that_a_schema_builds(monkeypatch):
    """A body may be known only once the types of its inputs are, yet load says what it lacks."""
    from jaxonnx.define import registry

    loss = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 22]>
        g (float[N, C] x, int64[N] t) => (y) { [loss] y = NegativeLogLikelihoodLoss (x, t) }
    """)
    jaxonnx.load(loss)
    kept = {k: v for k, v in registry._OPERATORS.items() if k[1] != "GatherElements"}
    monkeypatch.setattr(registry, "_OPERATORS", kept)
    with pytest.raises(UnsupportedOpError, match=r"GatherElements-13: .*in loss\)"):
        jaxonnx.load(loss)

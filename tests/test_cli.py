"""The command line on small models and on the one that comes along."""

import itertools

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from helpers import node_model
from onnx import helper
from typer.testing import CliRunner

import jaxonnx
from jaxonnx import models, summary
from jaxonnx.cli import session
from jaxonnx.cli.commands import app
from jaxonnx.graph.plan import Spec

runner = CliRunner(env={"COLUMNS": "120"})


def call(*args):
    return runner.invoke(app, [str(a) for a in args])


def write(path, nodes, inputs, outputs, initializers=(), opset=18):
    graph = helper.make_graph(nodes, "test", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.save(model, path)
    return path


@pytest.fixture
def elu(tmp_path):
    """``Elu`` at a free batch size."""
    info = helper.make_tensor_value_info("in/x:0", onnx.TensorProto.FLOAT, ["batch", 3])
    out = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 3])
    node = helper.make_node("Elu", ["in/x:0"], ["y"])
    return write(tmp_path / "elu.onnx", [node], [info], [out])


@pytest.fixture
def prelu(tmp_path):
    """``PRelu`` with a parameter."""
    info = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    out = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])
    slope = onnx.numpy_helper.from_array(np.array([0.5, 0.25], np.float32), "slope")
    node = helper.make_node("PRelu", ["x", "slope"], ["y"])
    return write(tmp_path / "prelu.onnx", [node], [info], [out], [slope])


def test_help_names_every_command():
    result = call("--help")
    assert result.exit_code == 0
    for name in ("run", "info", "check", "grad", "demo"):
        assert name in result.output
        assert call(name, "--help").exit_code == 0


def test_version():
    assert call("--version").output == f"jaxonnx {jaxonnx.__version__}\n"


def test_run_with_given_inputs_saves_outputs(elu, tmp_path):
    np.save(tmp_path / "x=1.npy", np.array([[-1, 0, 2]], np.float32))
    result = call("run", elu, "-i", f"in/x:0={tmp_path / 'x=1.npy'}", "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    saved = np.load(tmp_path / "out" / "y.npy")
    np.testing.assert_allclose(saved, [[np.expm1(-1), 0, 2]], rtol=1e-6)


def test_run_prints_the_split_of_the_time(elu):
    result = call("run", elu)
    assert result.exit_code == 0
    for name in ("read", "trace", "compile", "run"):
        assert f"{name} 0." in result.output


def test_random_inputs_have_the_size_and_the_seed_asked_for(elu, tmp_path):
    saved = []
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        result = call("run", elu, "-s", "batch=4", "--seed", seed, "-o", tmp_path / folder)
        assert result.exit_code == 0, result.output
        saved.append(np.load(tmp_path / folder / "y.npy"))
    assert saved[0].shape == (4, 3)
    assert (saved[0] == saved[1]).all()
    assert (saved[0] != saved[2]).any()


def test_random_integers_are_0_or_1():
    x = np.zeros((100,), np.int64)
    model = jaxonnx.load(node_model("Relu", [x], opset=14))
    (made,) = session.random_inputs(model, {}, {}, 0).values()
    assert made.dtype == np.int64
    assert set(made.tolist()) == {0, 1}


def test_unnamed_dimensions_are_named_after_their_input():
    assert summary.labelled(Spec("x", np.dtype("f4"), (None, 3, "?", "n"))) == (
        "x_0",
        3,
        "x_2",
        "n",
    )


def test_info(prelu):
    result = call("info", prelu)
    assert result.exit_code == 0
    assert "PRelu" in result.output
    assert "ai.onnx 18" in result.output
    assert "8 B" in result.output


@pytest.mark.parametrize("against", ["onnxruntime", "reference"])
def test_check_agrees(elu, against):
    result = call("check", elu, "--against", against)
    assert result.exit_code == 0, result.output
    assert "ok" in result.output


def test_check_finds_a_difference(elu, monkeypatch):
    monkeypatch.setattr(session, "oracle", lambda *_: ("zeros", {"y": np.zeros((1, 3), "f4")}))
    result = call("check", elu)
    assert result.exit_code == 1
    assert "DIFFERENT" in result.output


def test_grad_gives_the_norm_of_every_gradient(prelu, tmp_path):
    np.save(tmp_path / "x.npy", np.array([-3, -4], np.float32))
    result = call("grad", prelu, "-i", f"x={tmp_path / 'x.npy'}")
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.output.splitlines()]
    assert ["parameter", "slope", "[2]", "5"] in lines
    assert ["input", "x", "[2]", "0.559"] in lines


def test_demo():
    result = call("demo")
    assert result.exit_code == 0, result.output
    assert [line[:2] for line in result.output.splitlines() if line[:1].isdigit()] == [
        f"{k}." for k in range(1, 7)
    ]


def test_bundled_model_gives_what_onnxruntime_gives():
    x, expected = models.example()
    model = jaxonnx.load(models.path())
    np.testing.assert_allclose(model(x), expected, atol=1e-5)
    np.testing.assert_allclose(model(x[:1]), expected[:1], atol=1e-5)


def test_licence_note_lies_beside_the_model():
    text = models.path().with_suffix(".LICENSE").read_text(encoding="utf-8")
    assert "rapidocr-onnxruntime 1.4.4" in text
    assert "Apache License" in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run", "nowhere.onnx"], "error: there is no file nowhere.onnx"),
        (["run", "ELU", "-i", "z=z.npy"], "is not NAME=FILE.npy with an input of: 'in/x:0'"),
        (["run", "ELU", "-i", "in/x:0=z.npy"], "there is no file z.npy"),
        (["run", "ELU", "-s", "batch=two"], "--size 'batch=two' is not NAME=INT"),
        (["run", "ELU", "-s", "length=2"], "no dimension is called 'length'; there are 'batch'"),
        (["check", "ELU", "--against", "guess"], "expected onnxruntime or reference"),
    ],
)
def test_errors_are_one_line_and_status_2(elu, args, message):
    result = call(*[elu if a == "ELU" else a for a in args])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output


def test_a_file_that_is_no_model(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"this is no model")
    result = call("info", tmp_path / "bad.onnx")
    assert result.exit_code == 2
    assert "is not an ONNX model" in result.stderr


def test_an_input_of_the_wrong_shape(elu, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((1, 4), np.float32))
    result = call("run", elu, "-i", f"in/x:0={tmp_path / 'x.npy'}")
    assert result.exit_code == 2
    assert result.stderr == "error: input 'in/x:0': float32[1, 4], expected float32[batch, 3]\n"


def test_an_error_inside_an_operator_names_the_node(tmp_path):
    x = np.zeros((2, 3), np.float32)
    slope = np.zeros((2, 2), np.float32)
    onnx.save(node_model("PRelu", [x, slope], opset=16), tmp_path / "bad.onnx")
    result = call("run", tmp_path / "bad.onnx")
    assert result.exit_code == 2
    assert "while running node giving 'y0' (PRelu-16)" in result.stderr


def test_a_file_that_is_no_array(elu, tmp_path):
    (tmp_path / "x.npy").write_text("1 2 3")
    result = call("run", elu, "-i", f"in/x:0={tmp_path / 'x.npy'}")
    assert result.exit_code == 2
    assert "is not an .npy file" in result.stderr


@pytest.fixture
def odd(tmp_path):
    """A file with 39 nodes of an operator that is not here, of which the first has no name."""
    info = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    names = ["x", *(f"v{k}" for k in range(40))]
    nodes = [helper.make_node("Odd", [a], [b], domain="own") for a, b in itertools.pairwise(names)]
    graph = helper.make_graph(nodes, "odd", [info], [onnx.ValueInfoProto(name="v39")])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "odd.onnx")
    return tmp_path / "odd.onnx"


def test_info_marks_what_is_missing(odd):
    result = call("info", odd)
    assert result.exit_code == 0, result.output
    assert "own::Odd" in result.stdout
    assert "MISSING" in result.stdout
    line = "missing: own::Odd: no operator of this name is known in domain 'own' (node giving 'v0'"
    assert line in " ".join(result.stdout.split())


MISSING_HERE = {
    "in a branch": """(float[2] x, bool c) => (float[2] y) {
        y = If<then_branch = a () => (float[2] r) { r = own.Odd(x) },
               else_branch = b () => (float[2] q) { q = Neg(x) }>(c) }""",
    "where it decides a shape": """(float[2] x) => (float[N] y) <float[2] w = {1.0, 2.0}> {
        s = own.Odd(x) z = Mul(x, w) y = Reshape(z, s) }""",
    "with several outputs": "(float[2] x) => (float[2] y, float[2] z) { y, z = own.Odd(x) }",
    "of stored values": """(float[2] x) => (float[2] y) <int64[2] k = {0, 1}> {
        s = own.Odd(k) f = Cast<to = 1>(s) y = Add(x, f) }""",
    "beside a deprecated one": "(float[2] x) => (float[2] y) { s = own.Odd(x) y = Upsample(x, s) }",
}


@pytest.mark.parametrize("place", MISSING_HERE)
def test_info_prints_its_tables_where_operators_are_missing(place, tmp_path):
    text = f'<ir_version: 10, opset_import: ["" : 18, "own" : 1]> g {MISSING_HERE[place]}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "odd.onnx")
    result = call("info", tmp_path / "odd.onnx")
    assert result.exit_code == 0, result.output
    assert "Inputs and outputs" in result.stdout
    lines = result.stdout.splitlines()
    marked = {line.split()[0] for line in lines if line.endswith("MISSING") or "MISSING  " in line}
    assert marked == {"own::Odd", *(["Upsample"] if "deprecated" in place else [])}
    assert "missing: own::Odd: no operator of this name" in result.stdout


def test_info_marks_operators_of_an_opset_that_is_not_known(tmp_path):
    text = (
        '<ir_version: 10, opset_import: ["" : 99]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "new.onnx")
    result = call("info", tmp_path / "new.onnx")
    assert result.exit_code == 0, result.output
    assert "MISSING" in result.stdout
    assert "missing: Relu: opset 99 is newer than the installed onnx" in result.stdout


def test_info_marks_nothing_where_all_is_there(elu):
    assert "missing" not in call("info", elu).stdout.lower()


def test_info_by_way_of_a_link(elu, tmp_path):
    (tmp_path / "link.onnx").symlink_to(elu)
    result = call("info", tmp_path / "link.onnx")
    assert result.exit_code == 0, result.output
    assert "link.onnx" in result.stdout


def test_unsupported_operators_are_listed_briefly(odd):
    result = call("run", odd)
    assert result.exit_code == 2
    assert "Odd" in result.stderr
    assert result.stderr.count("\n") < 15


def test_a_model_that_no_single_program_can_hold(tmp_path):
    x = np.array([0, 3, 0, 5], np.float32)
    onnx.save(node_model("NonZero", [x], opset=13), tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", x)
    options = ["-i", f"x0={tmp_path / 'x.npy'}"]
    result = call("run", tmp_path / "model.onnx", *options, "-o", tmp_path)
    assert result.exit_code == 0, result.output
    assert "in phases" in result.output
    assert np.load(tmp_path / "y0.npy").tolist() == [[1, 3]]
    assert call("check", tmp_path / "model.onnx", *options).exit_code == 0
    result = call("grad", tmp_path / "model.onnx", *options)
    assert result.exit_code == 2
    assert "no floating output" in result.stderr


def test_debug_shows_the_traceback(elu):
    result = call("run", elu, "-s", "length=2", "--debug")
    assert isinstance(result.exception, jaxonnx.errors.InputError)


@pytest.mark.parametrize(
    ("actual", "expected", "ok"),
    [
        (np.array([1, 2], "f4"), np.array([1, 2.0001], "f4"), True),
        (np.array([1, 2], "f4"), np.array([1, 2.1], "f4"), False),
        (np.array([np.nan, np.inf], "f4"), np.array([np.nan, np.inf], "f4"), True),
        (np.array([np.nan], "f4"), np.array([1], "f4"), False),
        (np.array([1]), np.array([2]), False),
        (np.array([1], "f4"), np.array([1], "f8"), False),
        (np.array([1], "f4"), np.array([1, 1], "f4"), False),
        (np.array([], "f4"), np.array([], "f4"), True),
        (np.array(["a"]), np.array(["a"], object), True),
        (np.array(["a"]), np.array(["b"], object), False),
        (
            [np.array([1], "f4"), np.array([2], "f4")],
            [np.array([1], "f4"), np.array([2], "f4")],
            True,
        ),
        (
            [np.array([1], "f4"), np.array([2], "f4")],
            [np.array([1], "f4"), np.array([3], "f4")],
            False,
        ),
        ([np.array([1], "f4")], [], False),
    ],
)
def test_compare(actual, expected, ok):
    assert session.compare(actual, expected).ok == ok


def test_save_makes_distinct_file_names_and_widens_small_types(tmp_path):
    outputs = {"a/b": np.ones(2, ml_dtypes.bfloat16), "a:b": np.int32(3), "..": np.float32(1)}
    files = session.save({**outputs, "s": [np.float32(1), np.float32(2)]}, tmp_path)
    names = ["a_b.npy", "a_b_2.npy", "output.npy", "s_0.npy", "s_1.npy"]
    assert sorted(p.name for p in files.values()) == names
    assert np.load(files["a/b"]).dtype == np.float32

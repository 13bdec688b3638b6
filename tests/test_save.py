"""Models written back to files: what changed is new, all else is as it was."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnx_ir
import pytest
from helpers import assert_close, assert_same, f32, i64, onnxruntime, text_model
from onnx import helper, numpy_helper

import jaxonnx
from jaxonnx import models
from jaxonnx.errors import InputError
from jaxonnx.write.template import holders, tensor_of


def plain(proto):
    """A file with all of its dense numbers as raw bytes inside, so that two compare."""
    result = onnx.ModelProto()
    result.CopyFrom(proto)
    for tensor in filter(None, map(tensor_of, holders(result))):
        if tensor.data_type != onnx.TensorProto.STRING:
            fresh = numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name)
            tensor.CopyFrom(fresh)
    return result


def saved(model, folder, name="saved.onnx"):
    model.save(folder / name)
    return onnx.load(folder / name)


def tuned(model, by=0.5):
    """The model with all weights moved."""
    return jax.tree.map(lambda w: (w + by).astype(w.dtype), model)


EVERYWHERE = """(float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}, int64[1] axes = {0}> {
    k = Constant <value_floats = [3.0, 4.0]> ()
    t = Constant <value = float[2] {5, 6}> ()
    a = Add(x, w)
    b = Add(a, k)
    d = Add(b, t)
    e = If (c) <
        then_branch = yes () => (float[2] p) <float[2] v = {7, 8}> { p = Mul(d, v) },
        else_branch = no () => (float[2] q) {
            u = Constant <value = float[2] {9, 10}> ()
            q = Mul(d, u)
        }>
    s = Unsqueeze(e, axes)
    y = own.scale(s)
}
<domain: "own", opset_import: ["" : 18]> scale (v) => (r) {
    f = Constant <value = float[2] {11, 12}> ()
    r = Mul(v, f)
}
"""


@pytest.fixture
def everywhere():
    """A file that stores weights in every way, and a little of all else."""
    header = '<ir_version: 10, opset_import: ["" : 18, "own" : 1], producer_name: "us">'
    proto = onnx.parser.parse_model(f"{header} g {EVERYWHERE}")
    proto.metadata_props.add(key="a", value="b")
    proto.graph.doc_string = "documented"
    return proto


def test_a_model_as_it_is_gives_the_same_file(everywhere, tmp_path):
    assert plain(saved(jaxonnx.load(everywhere), tmp_path)) == plain(everywhere)
    bundled = onnx.load(models.path())
    assert plain(saved(jaxonnx.load(models.path()), tmp_path)) == plain(bundled)


def test_weights_go_to_where_they_came_from(everywhere, tmp_path):
    model = tuned(jaxonnx.load(everywhere))
    proto = saved(model, tmp_path)
    again = jaxonnx.load(tmp_path / "saved.onnx")
    x = f32([1, -2])
    for c in (True, False):
        assert_same(again(x, np.array(c)), model(x, np.array(c)))
        assert_close(model(x, np.array(c)), onnxruntime(proto, x, np.array(c))[0])
    assert {n: v.tolist() for n, v in again.params.items()} == {
        n: v.tolist() for n, v in model.params.items()
    }
    assert len(model.params) == 6
    assert [n.op_type for n in proto.graph.node] == [n.op_type for n in everywhere.graph.node]
    assert [*proto.graph.node[0].attribute[0].floats] == [3.5, 4.5]


def test_the_source_is_left_as_it_was(everywhere, tmp_path):
    before = copy.deepcopy(everywhere)
    saved(tuned(jaxonnx.load(everywhere)), tmp_path)
    assert everywhere == before


@pytest.mark.parametrize("form", ["bytes", "onnx_ir", "pickle"])
def test_every_way_to_a_model(everywhere, tmp_path, form):
    model = {
        "bytes": lambda: jaxonnx.load(everywhere.SerializeToString()),
        "onnx_ir": lambda: jaxonnx.load(onnx_ir.from_proto(everywhere)),
        "pickle": lambda: pickle.loads(pickle.dumps(jaxonnx.load(everywhere))),
    }[form]()
    proto = saved(tuned(model), tmp_path)
    assert numpy_helper.to_array(proto.graph.initializer[0]).tolist() == [1.5, 2.5]


def with_types(*arrays):
    """A model that casts each array to float and adds them up."""
    names = [f"w{k}" for k in range(len(arrays))]
    nodes = [helper.make_node("Cast", [n], [f"f{n}"], to=1) for n in names]
    nodes.append(helper.make_node("Sum", [f"f{n}" for n in names], ["y"]))
    tensors = [numpy_helper.from_array(a, n) for n, a in zip(names, arrays, strict=True)]
    graph = helper.make_graph(nodes, "g", [], [helper.make_empty_tensor_value_info("y")], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)


TYPES = ["float16", "bfloat16", "float64", "float8_e4m3fn", "int4", "uint2", "int64", "bool"]


@pytest.mark.parametrize("outside", [False, True])
def test_types(tmp_path, outside):
    values = np.array([1, 0, 1, 1, 0])
    arrays = [values.astype(getattr(jnp, t, t)) for t in TYPES]
    proto = with_types(*arrays)
    source = tmp_path / "source.onnx"
    options = {"save_as_external_data": True, "size_threshold": 0} if outside else {}
    onnx.save(copy.deepcopy(proto), source, **options)
    with jax.enable_x64(True):
        model = jaxonnx.load(source)
        again = saved(model, tmp_path)
    assert plain(again) == plain(proto)
    assert (tmp_path / "saved.onnx.data").exists() == outside


@pytest.fixture
def outside(tmp_path):
    """A model file with its weights in another, in the way of exporters."""
    text = """(float[N, 64] x) => (float[N, 8] y) <float[3] rest = {1, 2, 3}> {
        y = MatMul(x, w)
    }"""
    proto = text_model(text)
    values = np.arange(512, dtype=np.float32).reshape(64, 8)
    proto.graph.initializer.insert(0, numpy_helper.from_array(values, "w"))
    path = tmp_path / "model.onnx"
    options = {"all_tensors_to_one_file": True, "location": "model.onnx.data", "size_threshold": 64}
    onnx.save(proto, path, save_as_external_data=True, **options)
    return path


def test_external_data_stays_external(outside, tmp_path):
    model = tuned(jaxonnx.load(outside))
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    model.save(folder / "tuned.onnx")
    assert {p.name for p in folder.iterdir()} == {"tuned.onnx", "tuned.onnx.data"}
    proto = onnx.load(folder / "tuned.onnx", load_external_data=False)
    assert proto.graph.initializer[0].data_location == onnx.TensorProto.EXTERNAL
    assert proto.graph.initializer[1].data_location == onnx.TensorProto.DEFAULT
    x = np.ones((2, 64), np.float32)
    assert_same(jaxonnx.load(folder / "tuned.onnx")(x), model(x))
    assert_close(model(x), onnxruntime(onnx.load(folder / "tuned.onnx"), x)[0])


def test_saving_over_the_file_that_was_read(outside):
    model = jaxonnx.load(outside)
    x = np.ones((2, 64), np.float32)
    for _ in range(3):
        model = tuned(model)
        model.save(outside)
        assert_same(jaxonnx.load(outside)(x), model(x))
        assert len([*outside.parent.iterdir()]) == 2  # the model and one file of data


def test_nothing_half_is_left(outside, tmp_path, monkeypatch):
    model = tuned(jaxonnx.load(outside))
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def full(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr("jaxonnx.write.file.os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        model.save(outside)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    with pytest.raises(FileNotFoundError):
        model.save(tmp_path / "nowhere" / "model.onnx")


def test_a_file_that_is_no_model_is_replaced(outside, tmp_path):
    target = tmp_path / "notes.onnx"
    target.write_bytes(b"\xff\xff not a model")
    jaxonnx.load(outside).save(target)
    onnx.checker.check_model(target)


TWICE = """(float[2] x) => (float[2] y) { a = own.scale(x) y = own.scale(a) }
<domain: "own", opset_import: ["" : 18]> scale (v) => (r) {
    f = Constant <value = float[2] {11, 12}> ()
    r = Mul(v, f)
}"""


def test_a_function_that_is_called_twice_has_one_value(tmp_path):
    header = '<ir_version: 10, opset_import: ["" : 18, "own" : 1]>'
    model = jaxonnx.load(onnx.parser.parse_model(f"{header} g {TWICE}"))
    first, second = model.params
    both = model.replace(dict.fromkeys(model.params, f32([1, 2])))
    proto = saved(both, tmp_path)
    assert numpy_helper.to_array(proto.functions[0].node[0].attribute[0].t).tolist() == [1, 2]
    with pytest.raises(InputError, match=f"'{first}' and '{second}' are one value in the file"):
        model.replace({first: f32([1, 2])}).save(tmp_path / "other.onnx")


def test_a_value_that_nodes_compute_is_saved_by_what_it_is_made_of(tmp_path):
    text = """(float[2, 3] x) => (float[2, 3] y) <int64[1] n = {3}> {
        w = ConstantOfShape <value = float[1] {2}> (n)
        y = BatchNormalization(x, w, w, w, w)
    }"""
    model = jaxonnx.load(text_model(text), trainable=["w"])
    assert list(model.params) == ["w"]
    saved(model, tmp_path)
    with pytest.raises(InputError, match=r"'w' has no place in the file.*frozen=\['w'\]"):
        tuned(model).save(tmp_path / "other.onnx")


def sparse_model(form):
    values = numpy_helper.from_array(f32([1, 2]), "w")
    tensor = helper.make_sparse_tensor(values, numpy_helper.from_array(i64([0, 3]), "places"), [4])
    add = helper.make_node("Add", ["x", "w"], ["y"])
    constant = helper.make_node("Constant", [], ["w"], sparse_value=tensor)
    initializer = form == "initializer"
    graph = helper.make_graph(
        [add] if initializer else [constant, add],
        "g",
        [helper.make_tensor_value_info("x", 1, [4])],
        [helper.make_tensor_value_info("y", 1, [4])],
        sparse_initializer=[tensor] if initializer else [],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.mark.parametrize("form", ["initializer", "Constant node"])
def test_sparse_values(tmp_path, form):
    proto = sparse_model(form)
    model = jaxonnx.load(proto)
    assert saved(model, tmp_path) == proto
    other = model.replace({"w": f32([0, 5, 0, 6])})
    other.save(tmp_path / "other.onnx")
    again = jaxonnx.load(tmp_path / "other.onnx")
    assert_same(again(f32([0, 0, 0, 0])), f32([0, 5, 0, 6]))


def test_what_load_fixed_and_what_it_left_out_is_in_the_file_still(tmp_path):
    text = """(float[2] x, int64[1] n) => (float[2] y) <float[2] unused = {1, 2}> {
        y = Expand(x, n)
    }"""
    proto = text_model(text)
    model = jaxonnx.load(proto, constants={"n": i64([2])})
    assert plain(saved(model, tmp_path)) == plain(proto)


def test_traced_weights_are_refused(everywhere, tmp_path):
    model = jaxonnx.load(everywhere)
    with pytest.raises(InputError, match="weights are traced cannot be saved"):
        jax.jit(lambda m: m.save(tmp_path / "traced.onnx"))(model)
    with pytest.raises(InputError, match="expected float32"):
        jax.tree.map(lambda w: w.astype(jnp.bfloat16), model).save(tmp_path / "cast.onnx")

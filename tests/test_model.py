"""``Model``: calling, parameters, PyTree behaviour and JAX's transformations."""

import copy
import pickle

import chex
import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from helpers import assert_close
from jax.sharding import Mesh, PartitionSpec
from onnx import helper

import jaxonnx
from jaxonnx.errors import InputError
from jaxonnx.run.outputs import Outputs
from jaxonnx.run.parameters import check_parameters


def mlp(seed: int = 0) -> onnx.ModelProto:
    """``tanh(x @ w1 + b1) @ w2`` for ``x`` of shape [N, 3], with a second output."""
    rng = np.random.default_rng(seed)
    stored = {
        "layer.0/w": rng.normal(size=(3, 4)),
        "layer.0/b": rng.normal(size=4),
        "layer.1/w": rng.normal(size=(4, 2)),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "layer.0/w"], ["h0"]),
        helper.make_node("Add", ["h0", "layer.0/b"], ["h1"]),
        helper.make_node("Tanh", ["h1"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "layer.1/w"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", 1, ["N", 3])],
        [
            helper.make_tensor_value_info("logits", 1, ["N", 2]),
            helper.make_tensor_value_info("hidden", 1, ["N", 4]),
        ],
        [onnx.numpy_helper.from_array(v.astype(np.float32), n) for n, v in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def expected(params, x):
    hidden = np.tanh(x @ params["layer.0/w"] + params["layer.0/b"])
    return hidden @ params["layer.1/w"], hidden


X = np.arange(6, dtype=np.float32).reshape(2, 3) / 5


@pytest.fixture
def model():
    return jaxonnx.load(mlp())


def test_call_by_position_name_and_mapping(model):
    logits, hidden = expected(model.params, X)
    for out in (model(X), model(x=X), model({"x": X}), model(jnp.asarray(X)), model(X.tolist())):
        assert isinstance(out, Outputs)
        assert_close(out.logits, logits)
        assert_close(out["hidden"], hidden)
        assert_close(out[0], logits)


def test_outputs_name_what_there_is(model):
    out = model(X)
    assert len(out) == 2
    with pytest.raises(KeyError, match="there are logits, hidden"):
        out["nope"]
    with pytest.raises(AttributeError, match="there are logits, hidden"):
        _ = out.nope
    assert repr(out).startswith("Outputs(logits=")
    again = pickle.loads(pickle.dumps(out))
    assert again.names == out.names


def test_names_specs_and_repr(model):
    assert model.input_names == ("x",)
    assert model.output_names == ("logits", "hidden")
    assert [str(s) for s in model.inputs] == ["float32[N, 3]"]
    assert model.opset == {"": 20}
    assert model.metadata["graph_name"] == "mlp"
    assert model.static_inputs == ()
    text = repr(model)
    assert "x: float32[N, 3]" in text
    assert "3 parameter arrays, 24 numbers" in text


def test_params_is_a_new_dict_each_time(model):
    params = model.params
    params.clear()
    assert sorted(model.params) == ["layer.0/b", "layer.0/w", "layer.1/w"]


def test_replace_checks_names_and_shapes(model):
    doubled = model.replace({"layer.1/w": 2 * model.params["layer.1/w"]})
    assert_close(doubled(X).logits, 2 * np.asarray(model(X).logits))
    with pytest.raises(jaxonnx.errors.InputError, match="no weight or statistic is called 'w'"):
        model.replace({"w": 1})
    with pytest.raises(jaxonnx.errors.InputError, match=r"'layer.0/b' is float32\[3\], expected"):
        model.replace({"layer.0/b": np.zeros(3, np.float32)})


def test_apply_wants_every_parameter(model):
    with pytest.raises(jaxonnx.errors.InputError, match=r"'layer.0/w' is missing"):
        model.apply({"layer.0/b": np.zeros(4, np.float32)}, X)
    with pytest.raises(jaxonnx.errors.InputError, match="'more' is no stored value"):
        model.apply({**model.params, "more": X}, X)


def test_new_parameters_never_retrace_and_a_new_batch_size_once(model):
    chex.clear_trace_counter()
    counted = jax.jit(chex.assert_max_traces(lambda m, x: m(x).logits, n=2))
    for batch in (1, 4, 1, 4):
        for scale in (1, 2, 3):
            scaled = jax.tree.map(lambda p, s=scale: s * p, model)
            x = np.ones((batch, 3), np.float32)
            assert_close(counted(scaled, x), expected(scaled.params, x)[0])


def test_own_jit_compiles_once_per_shape(model):
    for batch in (1, 4, 1, 4):
        for scale in (1, 2):
            jax.tree.map(lambda p, s=scale: s * p, model)(np.ones((batch, 3), np.float32))
    assert model._program.executor.whole.compilations == 2


def test_grad_of_a_model_is_a_model(model):
    grads = jax.grad(lambda m: jnp.sum(m(X).logits))(model)
    assert isinstance(grads, jaxonnx.Model)
    hidden = expected(model.params, X)[1]
    assert_close(grads.params["layer.1/w"], np.tile(hidden.sum(0)[:, None], 2))


def test_tree_paths_are_onnx_names(model):
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(model)]
    assert paths == ["['layer.0/w']", "['layer.0/b']", "['layer.1/w']"]


@pytest.mark.parametrize(
    "again",
    [
        copy.deepcopy,
        lambda m: pickle.loads(pickle.dumps(m)),
        lambda m: jaxonnx.load(mlp()),
    ],
    ids=["deepcopy", "pickle", "load"],
)
def test_copies_are_tree_compatible(model, again):
    other = again(model)
    mean = jax.tree.map(lambda a, b: (a + b) / 2, model, other)
    chex.assert_trees_all_close(mean.params, model.params)
    assert_close(other(X).logits, model(X).logits)


def test_models_with_other_weights_are_tree_compatible_but_other_graphs_not(model):
    jax.tree.map(lambda a, b: a - b, model, jaxonnx.load(mlp(seed=1)))
    changed = mlp()
    changed.graph.node[2].op_type = "Sigmoid"
    with pytest.raises(ValueError, match=r"Program\('mlp', \w{12}\)"):
        jax.tree.map(lambda a, b: a - b, model, jaxonnx.load(changed))


def test_leaves_may_be_anything(model):
    nothing = jax.tree.map(lambda _: None, model)
    assert set(nothing.params.values()) == {None}
    shapes = jax.eval_shape(lambda m: m, model)
    assert "24 numbers" in repr(shapes)
    assert "nan" not in repr(nothing)


def test_vmap_over_stacked_models(model):
    models = [model, jaxonnx.load(mlp(seed=1))]
    stacked = jax.tree.map(lambda *ps: jnp.stack(ps), *models)
    out = jax.vmap(lambda m, x: m(x).logits, in_axes=(0, None))(stacked, X)
    assert_close(out, np.stack([expected(m.params, X)[0] for m in models]))


def test_vmap_over_inputs(model):
    batch = np.stack([X, 2 * X, 3 * X])
    assert_close(
        jax.vmap(model)(batch).logits, np.stack([expected(model.params, x)[0] for x in batch])
    )


def test_checkpoint(model):
    loss = lambda m: jnp.sum(m(X).logits ** 2)
    plain, saved = (jax.grad(f)(model).params for f in (loss, jax.checkpoint(loss)))
    chex.assert_trees_all_close(plain, saved, rtol=1e-6)


def test_shard_map_on_virtual_devices(model):
    mesh = Mesh(np.array(jax.devices()[:4]), ("data",))
    batch = np.arange(24, dtype=np.float32).reshape(8, 3) / 10
    spec = PartitionSpec("data")
    sharded = jax.shard_map(
        lambda m, x: m(x).logits, mesh=mesh, in_specs=(PartitionSpec(), spec), out_specs=spec
    )
    assert_close(jax.jit(sharded)(model, batch), expected(model.params, batch)[0])


def test_export_with_a_symbolic_batch_and_serialization(model):
    shapes = model.abstract_inputs()
    exported = jax.export.export(
        jax.jit(lambda m, inputs: m(inputs)), platforms=["cpu", "cuda", "rocm", "tpu"]
    )(model, shapes)
    again = jax.export.deserialize(exported.serialize())
    for batch in (1, 5):
        x = np.ones((batch, 3), np.float32)
        assert_close(again.call(model, {"x": x})[0], expected(model.params, x)[0])


def test_export_serializes_gradients(model):
    loss = lambda m, x: jnp.sum(m(x).logits)
    exported = jax.export.export(jax.jit(loss))(model, X)
    again = jax.export.deserialize(exported.serialize(vjp_order=1))
    grads = jax.grad(again.call)(model, X)
    chex.assert_trees_all_close(grads.params, jax.grad(loss)(model, X).params, rtol=1e-6)


def test_summary_prints_itself(model):
    text = repr(model.summary())
    assert "MatMul" in text
    assert "logits" in text


def test_public_names():
    names = {n for n in dir(jaxonnx) if not n.startswith("_")}
    failures = {n for n in dir(jaxonnx.errors) if n.endswith("Error")}
    own = {"load", "Model", "Outputs", "Padded", "Spec", "errors", "ops", "register"}
    own |= {"derivatives", "lora"}
    assert names == own | failures
    assert all(getattr(jaxonnx, n) is getattr(jaxonnx.errors, n) for n in failures)
    assert jaxonnx.__version__ in jaxonnx.__dict__.values()


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.ones((3, 4)), r"'layer.0/w' is float64\[3, 4\], expected float32\[3, 4\]; a model"),
        (np.ones((4, 3), np.float32), r"'layer.0/w' is float32\[4, 3\], expected float32\[3, 4\]$"),
        (
            jnp.ones((3, 4), jnp.bfloat16),
            r"'layer.0/w' is bfloat16\[3, 4\].*p.astype\('float32'\), and use",
        ),
        ([[1.0]], r"'layer.0/w' is list, expected float32\[3, 4\]$"),
        (1.0, r"'layer.0/w' is float, expected"),
        (None, r"'layer.0/w' is NoneType, expected"),
    ],
)
def test_parameters_of_another_type_or_shape(value, message, x64):
    model = jaxonnx.load(mlp())
    x = np.ones((2, 3), np.float32)
    changed = {**model.params, "layer.0/w": value}
    broken = jax.tree.map(lambda p: p, model)
    broken._params["layer.0/w"] = value
    calls = [
        lambda: model.replace({"layer.0/w": value}),
        lambda: model.apply(changed, x),
        lambda: broken(x),
    ]
    with jax.enable_x64(x64):
        for call in calls:
            with pytest.raises(InputError, match=rf"^params: {message}"):
                call()


def test_parameters_cast_alone_say_what_to_do():
    model = jax.tree.map(lambda p: p.astype(jnp.bfloat16), jaxonnx.load(mlp()))
    x = np.ones((2, 3), np.float32)
    for call in (model, jax.jit(model)):
        with pytest.raises(InputError, match="cannot be cast alone: cast them back, for example"):
            call(x)
    back = jax.tree.map(lambda p: p.astype(jnp.float32), model)
    assert back(x).logits.shape == (2, 2)


def test_parameters_are_checked_once_per_model(monkeypatch):
    counted = []

    def check(*args, **options):
        counted.append(args)
        return check_parameters(*args, **options)

    monkeypatch.setattr("jaxonnx.model.check_parameters", check)
    model, x = jaxonnx.load(mlp()), np.ones((2, 3), np.float32)
    for _ in range(3):
        model(x)
    assert len(counted) == 1

"""What is inside of a model: values that are captured, replaced and differentiated by."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, f32, i64, text_model

import jaxonnx
from jaxonnx.errors import InputError

X = f32([[1, -2]])
NET = """(float[N, 2] x) => (float[N, 2] y, float[N, 2] z)
    <float[2, 2] w = {1, 2, 3, 4}, float[2] b = {0.5, -0.5}> {
    h = MatMul(x, w)
    a = Add(h, b)
    r = Relu(a)
    y = Mul(r, h)
    z = Neg(r)
}"""
H, A, R = f32([[-5, -6]]), f32([[-4.5, -6.5]]), f32([[0, 0]])


@pytest.fixture
def model():
    return jaxonnx.load(text_model(NET))


def test_capture(model):
    found = model.capture(X, "r", "h", "y", "x", "b")
    assert [*found] == ["r", "h", "y", "x", "b"]
    assert_close(found["h"], H)
    assert_close(found["r"], R)
    assert_close(found["x"], X)
    assert_close(found["b"], f32([0.5, -0.5]))
    assert_close(model.capture("a", x=X)["a"], A)
    assert_close(model.capture({"x": X}, "a")["a"], A)


def test_patch_by_a_value(model):
    y, z = model.apply(model.params, X, patch={"a": f32([[2, 3]])})
    assert_close(z, f32([[-2, -3]]))
    assert_close(y, f32([[2, 3]]) * H)  # other uses of what came before stay
    y, z = model.apply(model.params, X, patch={"h": f32([[1, 1]])})
    assert_close(y, f32([[1.5, 0.5]]))


def test_patch_by_a_function(model):
    y, z = model.apply(model.params, X, patch={"a": lambda a: -a})
    assert_close(z, A)
    assert_close(y, -A * H)


def test_patches_see_those_before_them(model):
    patch = {"r": lambda r: r + 1, "h": lambda h: -h}  # in the order of the graph, not of the dict
    _, z = model.apply(model.params, X, patch=patch)
    assert_close(z, -(f32([[5.5, 5.5]]) + 1))
    captured = model.capture(X, "a", "z", patch=patch)
    assert_close(captured["a"], f32([[5.5, 5.5]]))
    assert_close(captured["z"], z)


def test_derivatives_by_an_intermediate_value(model):
    def total(h):
        return model.apply(model.params, X, patch={"h": h}).y.sum()

    h = f32([[1, 2]])
    assert_close(jax.grad(total)(h), 2 * h + f32([[0.5, -0.5]]))
    by_shift = jax.grad(
        lambda d: model.apply(model.params, X, patch={"h": lambda h: h + d}).y.sum()
    )
    assert_close(by_shift(f32([[6, 8]])), 2 * (H + f32([[6, 8]])) + f32([[0.5, -0.5]]))


def test_under_jit_and_vmap_and_by_weights(model):
    run = jax.jit(lambda m, x, s: m.apply(m.params, x, patch={"a": lambda a: s * a}).z)
    assert_close(run(model, X, f32(-1)), A)
    rows = jax.vmap(lambda x: model.capture(x[None], "h")["h"][0])(np.concatenate([X, 2 * X]))
    assert_close(rows, np.concatenate([H, 2 * H]))
    slope = jax.grad(lambda m: m.capture(X, "h")["h"].sum())(model).params["w"]
    assert_close(slope, f32([[1, 1], [-2, -2]]))


def test_programs_are_kept(model):
    for step in range(3):
        model.capture(X * step, "h")
        model.apply(model.params, X, patch={"a": f32([[step, step]])})
    parts = model._program._parts
    assert len(parts) == 2
    assert [e.compilations for e in parts.values()] == [1, 1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.capture(X, "hh"), r"capture: no value is called 'hh'; did you mean 'h'\?"),
        (lambda m: m.capture(X), "capture takes the inputs and then the names"),
        (lambda m: m.capture("h", X), "capture takes the inputs and then the names"),
        (lambda m: m.apply(m.params, X, patch={"q": X}), "patch: no value is called 'q'"),
        (
            lambda m: m.apply(m.params, X, patch={"a": i64([[1, 2]])}),
            r"patch: input 'a': int64\[1, 2\], expected float32\[N, 2\]",
        ),
        (lambda m: m.apply(m.params, X, patch={"a": X[0]}), r"patch: input 'a': float32\[2\]"),
        (lambda m: m.capture(X, "h", patch={"h": lambda h: h[0]}), r"patch: input 'h'"),
    ],
)
def test_what_is_refused(model, call, message):
    with pytest.raises(InputError, match=message):
        call(model)


def test_values_inside_of_branches_are_out_of_reach():
    model = jaxonnx.load(
        text_model("""(float[2] x, bool c) => (float[2] y) {
            y = If (c) <then_branch = t () => (float[2] a) { inner = Neg(x) a = Exp(inner) },
                        else_branch = e () => (float[2] b) { b = Neg(x) }>
        }""")
    )
    with pytest.raises(InputError, match=r"capture: 'inner' is inside of node giving 'y' \(If"):
        model.capture(f32([1, 2]), np.array(True), "inner")
    patched = model.apply({}, f32([1, 2]), np.array(True), patch={"y": lambda y: y + 1})
    assert_close(patched, np.exp(f32([-1, -2])) + 1)


def test_values_of_functions_and_phases():
    text = """(float[N] x) => (float[M] y) {
        a = own.twice(x)
        kept = NonZero(a)
        flat = Constant <value_ints = [-1]> ()
        places = Reshape(kept, flat)
        g = Gather(a, places)
        y = Exp(g)
    }"""
    functions = (
        '<domain: "own", opset_import: ["" : 18]> twice (v) => (r) { d = Add(v, v) r = Neg(d) }'
    )
    header = '<ir_version: 10, opset_import: ["" : 18, "own" : 1]>'
    import onnx.parser

    model = jaxonnx.load(onnx.parser.parse_model(f"{header} g {text} {functions}"))
    x = f32([1, 0, 2])
    found = model.capture(x, "d", "places", "g")
    assert_close(found["d"], 2 * x)
    assert found["places"].tolist() == [0, 2]
    assert_close(found["g"], f32([-2, -4]))
    assert_close(model.apply({}, x, patch={"g": jnp.negative}), np.exp(f32([2, 4])))
    assert_close(model.apply({}, x, patch={"a": f32([0, 3, 0])}), np.exp(f32([3])))


def test_a_model_is_cut_at_its_outputs(model):
    head = jaxonnx.load(text_model(NET), outputs=["h"])
    assert_close(head(X), H)
    assert list(head.params) == ["w"]
    assert head.output_names == ("h",)
    both = jaxonnx.load(text_model(NET), outputs=["z", "a"])
    assert_close(both(X).a, A)
    assert_close(both(X).z, -R)


def test_a_model_is_cut_at_its_inputs():
    tail = jaxonnx.load(text_model(NET), inputs=["h"])
    assert tail.input_names == ("h",)
    assert str(tail.inputs[0]) == "float32[N, 2]"
    assert_close(tail(H).z, -R)
    assert list(tail.params) == ["b"]
    middle = jaxonnx.load(text_model(NET), inputs=["a"], outputs=["r"])
    assert_close(middle(f32([[2, -3], [1, 1]])), f32([[2, 0], [1, 1]]))
    assert middle.export(platforms=["cpu", "tpu"])


def test_two_halves_are_the_whole(model):
    first = jaxonnx.load(text_model(NET), outputs=["a", "h"])
    second = jaxonnx.load(text_model(NET), inputs=["a", "h"])
    for ours, theirs in zip(second(*first(X)), model(X), strict=True):
        assert_close(ours, np.asarray(theirs))
    assert first.params.keys() | second.params.keys() == model.params.keys()


def test_what_is_cut_off_is_in_the_saved_file_still(tmp_path):
    head = jaxonnx.load(text_model(NET), outputs=["h"])
    head.replace({"w": f32([[1, 0], [0, 1]])}).save(tmp_path / "model.onnx")
    again = jaxonnx.load(tmp_path / "model.onnx")
    assert_close(again.capture(X, "a")["a"], X + f32([0.5, -0.5]))


SHAPED = """(float[N, 2] x, int64[K] s) => (float[M] y) {
    h = Neg(x)
    p = Shape(x)
    q = Concat <axis = 0> (p, s)
    r = ReduceProd(q)
    t = Reshape(h, s)
    y = Exp(t)
}"""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": ["h"]}, r"inputs: the outputs need 's' as well; name them too"),
        ({"inputs": ["hh", "s"]}, r"inputs: no value is called 'hh'; did you mean 'h'\?"),
        ({"outputs": ["z"]}, r"outputs: no value is called 'z'"),
    ],
)
def test_cuts_that_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        jaxonnx.load(text_model(SHAPED), **options)


def test_a_weight_is_no_input():
    with pytest.raises(InputError, match=r"inputs: 'w' is stored; give apply\(\) another value"):
        jaxonnx.load(text_model(NET), inputs=["x", "w"])


def test_inputs_that_are_not_needed_are_left_out():
    head = jaxonnx.load(text_model(SHAPED), outputs=["h"])
    assert head.input_names == ("x",)
    tail = jaxonnx.load(text_model(SHAPED), inputs=["h", "s"])
    assert tail.static_inputs == ("s",)
    assert_close(tail(X, i64([2])), np.exp(X[0]))

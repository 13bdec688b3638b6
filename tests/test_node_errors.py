"""Whatever goes wrong inside a node is an error of ours that names it."""

import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import onnx.parser
import pytest
from helpers import f32, i64, node_model, run_node, text_model
from onnx import numpy_helper

import jaxonnx
from jaxonnx.errors import InputError, InvalidModelError, JaxonnxError, StaticValueError

X = f32([1, 2])


class OwnError(Exception):
    """What an operator of a user may raise."""


def _fail(x, /, *, kind):
    """An operator that fails in many ways."""
    if kind == "own":
        raise OwnError
    if kind == "memory":
        raise MemoryError("too much")
    if kind == "stack":
        raise RecursionError("too deep")
    if kind == "xla":
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory")
    if kind == "input":
        raise InputError("it is wrong")
    if kind == "key":
        return {}["missing"]
    if kind == "warning":
        raise UserWarning("look")
    if kind == "advice":
        raise ValueError("first\nsecond\n\nthird")
    if kind == "number":
        return jnp.full(x.shape, float(x[0]), x.dtype)
    if kind == "truth":
        return x if x[0] > 0 else -x
    if kind == "numpy":
        return np.sort(x)
    if kind == "index":
        return jnp.arange(4, dtype=x.dtype)[: x[0].astype(int).__index__()]
    return x[x > 1]


jaxonnx.register("Fail", 1, domain="test.errors")(_fail)


def _model(kind, shape="N"):
    text = f"""
        <ir_version: 10, opset_import: ["" : 18, "test.errors" : 1]>
        g (float[{shape}] x) => (y) {{ [culprit] y = test.errors.Fail <kind = "{kind}"> (x) }}
    """
    return jaxonnx.load(onnx.parser.parse_model(text))


LABEL = r"node 'culprit' \(test\.errors::Fail-1\)"
NOTE = "while running node 'culprit' (test.errors::Fail-1) with 'x': float32[2]"


@pytest.mark.parametrize(
    ("kind", "cause", "message"),
    [
        ("own", OwnError, LABEL + r": OwnError\(\)$"),
        ("key", KeyError, LABEL + ": KeyError: 'missing'$"),
        ("advice", ValueError, LABEL + ": ValueError: first\nsecond$"),
    ],
)
@pytest.mark.parametrize("traced", [False, True])
def test_what_an_operator_raises_is_the_cause(kind, cause, message, traced):
    model = _model(kind)
    with pytest.raises(InvalidModelError, match=f"(?m){message}") as caught:
        (jax.jit(model) if traced else model)(X)
    assert type(caught.value.__cause__) is cause
    assert caught.value.__notes__[0] == NOTE


def test_errors_of_ours_stay_what_they_are():
    with pytest.raises(InputError, match=r"^it is wrong") as caught:
        _model("input")(X)
    assert caught.value.__cause__ is None
    assert caught.value.__notes__[0] == NOTE


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("memory", MemoryError),
        ("stack", RecursionError),
        ("xla", RuntimeError),
        ("warning", UserWarning),
    ],
)
def test_what_is_no_fault_of_the_model_stays_what_it_is(kind, error):
    with pytest.raises(error) as caught:
        _model(kind)(X)
    assert type(caught.value) is error
    assert caught.value.__notes__[0] == NOTE


@pytest.mark.parametrize("kind", ["number", "truth", "numpy", "index", "mask"])
def test_operators_that_ask_for_a_value_run_outside_of_programs(kind):
    model = _model(kind)
    assert np.asarray(model(X)).dtype == np.float32
    assert "culprit" in str(model.schedule())
    with pytest.raises(StaticValueError, match=LABEL) as caught:
        jax.jit(model)(X)
    assert caught.value.__cause__ is not None


def test_error_in_a_branch_names_the_node_inside():
    graph = """
        (float[N] x, float[M] z, bool go) => (y) {
            [outer] y = If (go) <
                then_branch = one () => (a) { [inner] a = Add(x, z) },
                else_branch = two () => (b) { b = Sub(x, z) }
            >
        }
    """
    model = jaxonnx.load(text_model(graph))
    with pytest.raises(InvalidModelError, match=r"node 'inner' in outer.then_branch \(Add-14\)"):
        model(X, f32([1, 2, 3]), True)


def test_error_while_folding_names_the_node():
    graph = "() => (y) <float[2] a = {1, 2}, float[3] b = {1, 2, 3}> { [sum] y = Add(a, b) }"
    with pytest.raises(InvalidModelError, match=r"node 'sum' \(Add-14\): "):
        jaxonnx.load(text_model(graph))()


def test_symbolic_dimensions_that_cannot_be_decided_name_constraints():
    graph = "(float[S] x, float[T] z) => (y) { [sum] y = Add(x, z) }"
    model = jaxonnx.load(text_model(graph))
    with pytest.raises(JaxonnxError, match=r"node 'sum' \(Add-14\)(.|\n)*constraints=\['S<=512'\]"):
        jax.export.export(jax.jit(model.apply))(model.params, model.abstract_inputs())


HUGE = 2**62

TOO_LARGE = {
    "ConstantOfShape": ([i64([HUGE, 4])], {}),
    "Expand": ([f32([1]), i64([HUGE, 4])], {}),
    "Tile": ([f32([1, 2]), i64([HUGE])], {}),
    "Range": ([i64(0), i64(2**63 - 1), i64(1)], {}),
    "Reshape": ([f32([]), i64([HUGE, 4, 0])], {"allowzero": 1}),
    "Pad": ([f32([[1]]), i64([0, HUGE, 0, HUGE])], {}),
    "CenterCropPad": ([f32([[1]]), i64([HUGE, HUGE])], {}),
    "OneHot": ([i64([0]), i64(HUGE), f32([0, 1])], {}),
    "Resize": ([f32([[1]]), None, None, i64([HUGE, HUGE])], {}),
    "AffineGrid": ([np.ones((1, 2, 3), np.float32), i64([1, 1, 2**32, 2**32])], {}),
    "HannWindow": ([i64(HUGE)], {}),
    "DFT": ([np.ones((1, 4, 1), np.float32), i64(HUGE)], {}),
    "ConvTranspose": (
        [np.ones((1, 1, 2, 2), np.float32)] * 2,
        {"output_shape": [HUGE, HUGE]},
    ),
}


def test_sizes_that_no_machine_has_are_refused():
    """Each would end the process if it reached XLA, so they run in one of their own."""
    program = """
        import sys
        sys.path.insert(0, sys.argv[1])
        import test_node_errors as t

        for name in t.TOO_LARGE:
            for folded in (False, True):
                print(name, folded, t.refusal(name, folded), flush=True)
    """
    here = __file__.rpartition("/")[0]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), here],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (lines, done.stderr[-2000:])
    assert lines == [f"{n} {f} InvalidModelError" for n in TOO_LARGE for f in (False, True)]


def refusal(name, folded):
    """The kind of error of one of the operators above, with all inputs stored or some given."""
    values, attributes = TOO_LARGE[name]
    model = node_model(name, values, opset=24, **attributes)
    given = []
    for info, value in zip([*model.graph.input], [v for v in values if v is not None], strict=True):
        if folded or value.dtype == np.int64:
            model.graph.initializer.append(numpy_helper.from_array(value, info.name))
            model.graph.input.remove(info)
        else:
            given.append(value)
    try:
        jaxonnx.load(model)(*given)
    except JaxonnxError as error:
        return type(error).__name__
    return "no error"


def test_large_sizes_that_fit_are_computed():
    (out,) = run_node("Expand", [f32(np.ones((0, 1))), i64([0, 2**40])], opset=24)
    assert out.shape == (0, 2**40)
    (out,) = run_node("Slice", [i64([1, 2, 3]), i64([1]), i64([2**63 - 1])], opset=24)
    assert out.tolist() == [2, 3]

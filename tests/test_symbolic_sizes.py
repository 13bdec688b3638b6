"""Exported with a symbolic size, a model gives what it gives at that size, or is refused."""

import jax
import numpy as np
import pytest
from helpers import f32, text_model

import jaxonnx
from jaxonnx.errors import JaxonnxError

SIZES = range(1, 13)


def load(body, outputs, constraints=(), opset=18):
    """A model of ``x``, float[S], and ``m``, float[S, 6]; its outputs are named."""
    declared = ", ".join(f"float[?] {o}" for o in outputs)
    proto = text_model(f"(float[S] x, float[S, 6] m) => ({declared}) {{ {body} }}", opset=opset)
    for output in proto.graph.output:
        output.ClearField("type")
    return jaxonnx.load(proto, constraints=constraints)


def export(model):
    return jax.export.export(jax.jit(model.apply))(model.params, model.abstract_inputs())


def agree(model, sizes):
    """The exported model gives at every size what the model gives."""
    exported = export(model)
    for size in sizes:
        rows = np.arange(size * 6, dtype=np.float32).reshape(size, 6)
        x = {"x": np.arange(1, size + 1, dtype=np.float32), "m": rows}
        direct = jax.tree.leaves(model(x))
        found = jax.tree.leaves(exported.call(model.params, x))
        for a, b in zip(found, direct, strict=True):
            assert np.asarray(a).tolist() == np.asarray(b).tolist(), size
            assert a.shape == b.shape, size


HEAD = """
    n = Shape<end = 1>(x)
    zero = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>()
    two = Constant<value_ints = [2]>() three = Constant<value_ints = [3]>()
    five = Constant<value_ints = [5]>() minus = Constant<value_ints = [-1]>()
    far = Constant<value_ints = [9223372036854775807]>()
    s0 = Constant<value_int = 0>() s1 = Constant<value_int = 1>() s2 = Constant<value_int = 2>()
    f0 = Constant<value_float = 0.0>()
    ns = Squeeze(n, zero)
"""

ALWAYS = {
    "slices": (
        "a = Slice(x, one, far) b = Slice(x, zero, minus) c = Slice(x, minus, far) "
        "t3 = Neg(three) d = Slice(x, t3, far) e = Slice(x, zero, t3) f = Slice(x, three, five) "
        "g = Slice(x, zero, n) h = Slice(x, n, far) nn = Add(n, n) i = Slice(x, one, nn)",
        "abcdefghi",
    ),
    "steps": (
        "low = Neg(far) a = Slice(x, zero, far, zero, two) b = Slice(x, minus, low, zero, minus) "
        "t = Neg(two) c = Slice(x, minus, low, zero, t) d = Slice(x, three, zero, zero, minus) "
        "e = Slice(x, zero, far, zero, far) f = Slice(x, one, far, zero, three) "
        "g = Slice(x, zero, far, zero, n) nn = Neg(n) h = Slice(x, minus, low, zero, nn) "
        "i = Slice(x, one, minus, zero, two) j = Slice(x, minus, low, zero, low)",
        "abcdefghij",
    ),
    "splits": (
        "a, b = Split<num_outputs = 2>(x) rest = Sub(n, one) pair = Concat<axis = 0>(one, rest) "
        "c, d = Split(x, pair) e, f, g = Split<axis = 1, num_outputs = 3>(m) "
        "twice = Concat<axis = 0>(x, x) h, i = Split<num_outputs = 2>(twice)",
        "abcdefghi",
    ),
    "expand, tile": (
        "a = Expand(one, n) n2 = Concat<axis = 0>(two, n) b = Expand(x, n2) c = Tile(x, three) "
        "d = Tile(x, n) e = Expand(f0, n2) f = Expand(x, one) column = Unsqueeze(x, one) "
        "six = Constant<value_ints = [6]>() n6 = Concat<axis = 0>(n, six) g = Expand(column, n6) "
        "h = Expand(column, six) i = Tile(m, n2)",
        "abcdefghi",
    ),
    "reshape": (
        "a = Reshape(m, minus) n23 = Constant<value_ints = [-1, 2, 3]>() b = Reshape(m, n23) "
        "c23 = Constant<value_ints = [0, 2, -1]>() c = Reshape(m, c23) "
        "two3 = Constant<value_ints = [2, 3]>() n3 = Concat<axis = 0>(n, two3) d = Reshape(m, n3) "
        "t3 = Concat<axis = 0>(two3, n) e = Reshape(m, t3) f = Flatten(m) g = Flatten<axis = 0>(m) "
        "h = Flatten<axis = 2>(m) i = Transpose(m) j = Unsqueeze(x, zero) k = Squeeze(j, zero) "
        "wide = Mul(n, two) w3 = Concat<axis = 0>(wide, three) l = Reshape(m, w3) "
        "half = Div(wide, two) h6 = Concat<axis = 0>(half, minus) o = Reshape(m, h6)",
        "abcdefghijklo",
    ),
    "made": (
        "a = Range(s0, ns, s1) b = Range(s0, ns, s2) c = Range(ns, s0, q) q = Constant<value_int = "
        "-2>() d = ConstantOfShape(n) less = Sub(ns, s2) e = Range(s0, less, s1) "
        "f = Range(s1, less, s2) g = EyeLike(m) h = Range(less, ns, s1) i = Range(s0, ns, ns)",
        "abcdefghi",
    ),
    "arithmetic": (
        "a1 = Sub(n, one) a = ConstantOfShape(a1) b1 = Div(n, two) b = ConstantOfShape(b1) "
        "c1 = Mod(n, three) c = ConstantOfShape(c1) d1 = Min(n, five) d = ConstantOfShape(d1) "
        "e1 = Max(n, five) e = ConstantOfShape(e1) f1 = Add(n, n) f = ConstantOfShape(f1) "
        "g1 = Mul(n, three) g = ConstantOfShape(g1) h1 = Sub(n, three) h2 = Max(h1, zero) "
        "h = ConstantOfShape(h2) i1 = Div(h1, two) j1 = Sub(zero, n) i = Add(i1, j1) j = Abs(h1) "
        "k = Mod(h1, two) l = Neg(h1) o1 = Add(n, one) o2 = Div(o1, two) o = ConstantOfShape(o2) "
        "p = Sub(i1, n) q = Sign(h1)",
        "abcdefghijklopq",
    ),
    "comparisons": (
        "a = Less(n, five) b = Equal(n, three) c = GreaterOrEqual(n, one) d = Where(c, n, five) "
        "e = Where(a, n, five) f = Greater(zero, n) g = LessOrEqual(n, n) h = Equal(n, zero) "
        "i = Equal(n, n) k = Not(a) shape_ = Where(h, one, n) l = ConstantOfShape(shape_)",
        "abcdefghikl",
    ),
    "shapes": (
        "both = Shape(m) a = Gather(both, zero) b = Gather<axis = 0>(both, minus) "
        "c = ReduceProd<keepdims = 0>(both) d = ReduceSum<keepdims = 0>(both) e = Size(m) "
        "f = Cast<to = 7>(n) g = Cast<to = 1>(n) h = Slice(both, zero, one) "
        "i = Concat<axis = 0>(n, both) j = ReduceMax<keepdims = 0>(both) k = Unsqueeze(ns, zero) "
        "l = ConstantOfShape(i) o = GatherElements(both, zero) cc = Unsqueeze(c, zero) "
        "p = ConstantOfShape(cc) q = ReduceMin(both) pos = Unsqueeze(zero, one) "
        "r = GatherND(both, pos) t = Tile(both, two) u = Identity(n) v = CastLike(n, x) "
        "w = ScatterElements(both, one, five) y = CumSum(both, s0) z = Squeeze(k, zero)",
        "abcdefghijklopqrtuvwyz",
    ),
    "pads and crops": (
        "pads = Constant<value_ints = [1, 2]>() a = Pad(x, pads) pair = Concat<axis = 0>(zero, n) "
        "b = Pad(x, pair) c = CenterCropPad(x, five) d = CenterCropPad(x, n) "
        "mn = CenterCropPad<axes = [1]>(m, n) "
        "e = Concat<axis = 1>(m, m) f = Concat<axis = 0>(x, x) "
        'g = Pad<mode = "wrap">(x, pads) back = Constant<value_ints = [0, -1]>() h = Pad(x, back)',
        ["a", "b", "c", "d", "mn", "e", "f", "g", "h"],
    ),
    "windows": (
        "x3 = Unsqueeze(x, five_) five_ = Constant<value_ints = [0, 1]>() "
        "a = MaxPool<kernel_shape = [2], strides = [2], ceil_mode = 1, pads = [1, 1]>(x3) "
        "b = AveragePool<kernel_shape = [3], strides = [2], ceil_mode = 1, pads = [1, 1]>(x3) "
        'c = MaxPool<kernel_shape = [3], auto_pad = "SAME_UPPER", strides = [2]>(x3) '
        "d = MaxPool<kernel_shape = [2], pads = [1, 0]>(x3) "
        "w = ConstantOfShape<value = float[1] {1.0}>(www) www = Constant<value_ints = [1, 1, 3]>() "
        "e = Conv<pads = [1, 1], strides = [2]>(x3, w) f = ConvTranspose<strides = [2]>(x3, w) "
        'g = Conv<auto_pad = "SAME_LOWER", strides = [2]>(x3, w) h = GlobalAveragePool(x3)',
        "abcdefgh",
    ),
}


@pytest.mark.parametrize("name", ALWAYS)
def test_at_every_size(name):
    body, outputs = ALWAYS[name]
    agree(load(HEAD + body, outputs), SIZES)


DECIDED = {
    "start": ("five_ = Sub(n, five) y = Slice(x, five_, far)", "S >= 5"),
    "start below": ("five_ = Sub(n, five) y = Slice(x, five_, far)", "S <= 4"),
    "end": ("five_ = Sub(n, five) y = Slice(x, zero, five_)", "S >= 5"),
    "end below": ("five_ = Sub(n, five) y = Slice(x, zero, five_)", "S <= 4"),
    "half": ("half = Div(n, two) last = Sub(half, one) y = Slice(x, zero, last)", "S >= 2"),
    "step": ("k = Sub(n, two) y = Slice(x, zero, far, zero, k)", "S >= 3"),
    "backward": ("k = Sub(n, two) y = Slice(x, k, zero, zero, minus)", "S >= 2"),
    "parts": ("y, z = Split_13(x)", "mod(S, 2) == 0"),
    "sizes": ("y, z = Split(x, pair) pair = Constant<value_ints = [2, 3]>()", "S == 5"),
    "rest": ("r = Sub(n, three) pair = Concat<axis = 0>(three, r) y, z = Split(x, pair)", "S >= 3"),
    "many parts": ("y, z, w = Split<num_outputs = 3>(x)", "mod(S, 3) == 0"),
    "expand": ("y = Expand(x, five)", "S == 5"),
    "expand below": ("k = Sub(n, two) y = Expand(f0, k)", "S >= 2"),
    "tile": ("k = Sub(n, two) k1 = Concat<axis = 0>(one, k) y = Tile(m, k1)", "S >= 2"),
    "reshape": ("rows = Constant<value_ints = [2, -1]>() y = Reshape(x, rows)", "mod(S, 2) == 0"),
    "reshape to a size": ("y = Reshape(m, t) t = Constant<value_ints = [3, 6]>()", "S == 3"),
    "reshape by a sign": (
        "k = Sub(n, two) t = Concat<axis = 0>(k, minus) y = Reshape(m, t)",
        "S == 3",
    ),
    "squeeze": ("y = Squeeze(x)", "S >= 2"),
    "squeeze to nothing": ("y = Squeeze(x)", "S == 1"),
    "squeeze an axis": ("y = Squeeze(x, zero)", "S == 1"),
    "concat": ("t = Transpose(m) y = Concat<axis = 0>(m, t)", "S == 6"),
    "shape": ("k = Sub(n, two) y = ConstantOfShape(k)", "S >= 2"),
    "range": ("k = Sub(ns, s2) y = Range(s0, ns, k)", "S >= 3"),
    "gather": ("y = Gather(x, five)", "S >= 6"),
    "gather from the end": ("k = Neg(three) y = Gather(x, k)", "S >= 3"),
    "gather elements": ("y = GatherElements(x, two)", "S >= 3"),
    "gather nd": ("at = Unsqueeze(two, zero) y = GatherND(x, at)", "S >= 3"),
    "scatter": ("y = ScatterElements(x, two, v) v = CastLike(five, x)", "S >= 3"),
    "scatter nd": (
        "at = Unsqueeze(two, zero) v = CastLike(five, x) y = ScatterND(x, at, v)",
        "S >= 3",
    ),
}
"""What holds at some sizes only, and what decides it."""


@pytest.mark.parametrize("name", DECIDED)
def test_at_some_sizes(name):
    body, constraint = DECIDED[name]
    opset = 17 if "Split_13" in body else 18
    body, outputs = HEAD + body.replace("Split_13", "Split"), ["y"]
    with pytest.raises(JaxonnxError) as caught:
        export(load(body, outputs, (), opset))
    assert "constraints=" in "\n".join([str(caught.value), *caught.value.__notes__])
    sizes = [n for n in SIZES if eval(constraint, {"S": n, "mod": lambda a, b: a % b})]
    assert sizes
    agree(load(body, outputs, [constraint], opset), sizes[:3])


def test_an_end_that_turns_out_negative_counts_from_the_end():
    """``x[:S - 5]`` of three elements is ``x[:-2]``, one element, as Python has it."""
    body, constraint = DECIDED["end below"]
    model = load(HEAD + body, ["y"], [constraint])
    x = {"x": f32([1, 2, 3]), "m": np.zeros((3, 6), np.float32)}
    for y in (model(x), export(model).call(model.params, x)):
        assert np.asarray(y).tolist() == [1]


def test_other_sizes_are_refused_when_they_run():
    """A constraint is checked by the exported program itself."""
    exported = export(load(HEAD + "k = Sub(n, two) y = Slice(x, k, far)", ["y"], ["S >= 2"]))
    with pytest.raises(ValueError, match="S"):
        exported.call({}, {"x": f32([1]), "m": np.zeros((1, 6), np.float32)})

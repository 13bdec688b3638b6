"""Known values and dimension expressions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close
from jax import export

from jaxonnx.define import known
from jaxonnx.errors import StaticValueError
from jaxonnx.graph.plan import Spec
from jaxonnx.run import dims

B, S = export.symbolic_shape("B, S", constraints=["S<=512", "B>=2"])


def test_xp_follows_the_types():
    assert known.xp(np.zeros(1), np.float32(1), 2) is np
    assert known.xp(np.zeros(1), jnp.zeros(1)) is jnp


def test_dimensions_are_int64_unless_symbolic():
    assert_close(known.dimensions([2, 3]), np.array([2, 3], np.int64))
    assert known.is_symbolic(known.dimensions([B, 3]))
    assert known.as_dims(known.dimensions([B, 3])) == (B, 3)
    assert_close(known.tidy(known.dimensions([B, 3])[1:]), np.array([3], np.int64))


def test_same_dim_is_about_proof():
    assert known.same_dim(B, B)
    assert known.same_dim(2 * B, B + B)
    assert not known.same_dim(B, S)
    assert not known.same_dim(B, 4)
    assert known.same_dim(4, np.int64(4))


def test_infer_dim_cancels_equal_factors():
    assert known.infer_dim((2, 3, 4), (4,)) == 6
    assert known.same_dim(known.infer_dim((B, S, 12), (B, S)), 12)
    assert known.same_dim(known.infer_dim((B, S, 12), (B, 12)), S)
    assert known.same_dim(known.infer_dim((B, S, 12), (B * S,)), 12)
    assert known.same_dim(known.infer_dim((B, S, 12), ()), 12 * B * S)


def test_what_holds_at_every_size_or_at_none():
    assert known.sure_at_least(B, 1)
    assert not known.sure_at_least(0, B)
    assert known.sure_equal(B * S, S * B)
    assert not known.sure_equal(B, 0)
    with pytest.raises(StaticValueError, match=r"load the model with constraints=\['B >= 3'\]"):
        known.sure_at_least(B, 3)
    with pytest.raises(StaticValueError, match=r"load the model with constraints=\['B == S'\]"):
        known.sure_equal(B, S)


@pytest.mark.parametrize(
    ("function", "args", "expected"),
    [
        (known.less, (S, 513), True),
        (known.less, (S, 512), None),
        (known.less_equal, (S, 512), True),
        (known.less, (B, 2), False),
        (known.equal, (B, 1), False),
        (known.equal, (B, B), True),
        (known.equal, (B, S), None),
    ],
)
def test_comparisons_are_known_where_provable(function, args, expected):
    function = jax.tree_util.Partial(function)
    sides = [known.dimensions([a]) for a in args]
    if expected is not None:
        result = function(*sides)
        assert isinstance(result, np.ndarray)
        assert result.tolist() == [expected]
        return
    shape = jax.ShapeDtypeStruct((B, S), np.float32)
    exported = export.export(jax.jit(lambda x: (x.sum(), function(*sides))))(shape)
    assert exported.out_avals[1].dtype == bool  # decided when the program runs


def test_minimum_and_maximum():
    low = known.minimum(known.dimensions([S, B]), known.dimensions([512, 1]))
    assert known.same_dim(low[0], S)
    assert int(low[1]) == 1
    assert_close(known.maximum(np.array([1, 5]), np.array([3])), np.array([3, 5]))


def test_lift_gives_the_dtype_asked_for():
    shape = jax.ShapeDtypeStruct((B, S), np.float32)
    lifted = lambda x: known.lift(known.dimensions([x.shape[0], 3]), np.int32)
    exported = export.export(jax.jit(lifted))(shape)
    assert_close(exported.call(np.zeros((7, 2), np.float32)), np.array([7, 3], np.int32))


def test_identifiers_are_legal_and_distinct():
    names = ["batch size", "batch_size", "p2o.DynamicDimension.0", "?", "7", "max", "unk__1"]
    found = dims.identifiers(names)
    assert len(set(found.values())) == len(names)
    assert found["batch size"] == "batch_size"
    assert all(v.isidentifier() for v in found.values())
    export.symbolic_shape(", ".join(found.values()))


def test_abstract_inputs():
    specs = [
        Spec("x", np.dtype(np.float32), ("batch size", None, 3)),
        Spec("ids", np.dtype(np.int64), ("batch size", "S")),
    ]
    shapes = dims.abstract(specs, ["S<=512", "batch size>=2"])
    assert str(shapes["x"].shape) == "(batch_size, x_1, 3)"
    assert shapes["ids"].dtype == np.int64
    assert shapes["ids"].shape[1] <= 512
    with pytest.raises(ValueError, match="input 'y' has no declared rank or dtype"):
        dims.abstract([Spec("y", None, None)], [])

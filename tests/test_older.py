"""Older versions that are derived from the functions of newer ones."""

import inspect

import jax.numpy as jnp
import numpy as np
import pytest

from jaxonnx import ops
from jaxonnx.define import registry
from jaxonnx.define.older import older
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops._legacy import aligned


@pytest.fixture
def vacant(monkeypatch):
    """Takes versions of an operator out of the table, for the time of a test."""
    table = dict(registry._OPERATORS)
    monkeypatch.setattr(registry, "_OPERATORS", table)

    def remove(op_type, *versions):
        for version in versions:
            del table["", op_type, version]

    return remove


def _doc(function):
    return inspect.getdoc(function) or ""


def test_an_attribute_that_became_an_input_arrives_as_an_array(vacant):
    vacant("Squeeze", 1, 11)
    squeeze_1 = older(ops.squeeze, 1, 11)
    x = jnp.ones((1, 2, 1))
    assert squeeze_1(x, axes=(2,)).shape == (1, 2)
    assert squeeze_1(x).shape == (2,)
    assert str(inspect.signature(squeeze_1)).endswith(
        "/, *, axes: collections.abc.Sequence[int] | None = None)"
    )
    with pytest.raises(TypeError, match="too many positional"):
        squeeze_1(x, (2,))


def test_an_older_version_shares_what_is_registered(vacant):
    vacant("Squeeze", 1, 11)
    squeeze_1 = older(ops.squeeze, 1, 11)
    new, old = registry.implementation(ops.squeeze), registry.implementation(squeeze_1)
    assert old is registry.lookup("Squeeze", 1)
    assert old is registry.lookup("Squeeze", 11)
    assert old.versions == (1, 11)
    assert old.symbolic
    assert old.padding is new.padding
    assert (new.static, old.static) == ({"axes"}, set())


def test_an_older_version_keeps_static_inputs_weights_and_element_wise_computation(vacant):
    vacant("TopK", 10)
    top_k_10 = registry.implementation(older(ops.top_k, 10))
    assert top_k_10.static == {"k"}
    assert top_k_10.searches
    vacant("Selu", 1)
    assert registry.implementation(older(ops.selu, 1)).elementwise


def test_name_and_docstring_say_which_versions_these_are(vacant):
    vacant("Slice", 1)
    slice_1 = older(ops.slice, 1, note="A note.")
    assert slice_1.__name__ == slice_1.__qualname__ == "slice_1"
    assert slice_1.__module__ == ops.slice.__module__
    first, note, *rest = _doc(slice_1).split("\n\n")
    assert first == (
        "Version 1 of Slice: ``starts``, ``ends`` and ``axes`` are attributes; "
        "there is no ``steps``."
    )
    assert note == "A note."
    assert "\n\n".join(rest) == inspect.getdoc(ops.slice)


def test_versions_that_differ_in_nothing_are_only_named(vacant):
    vacant("Relu", 6, 13)
    assert _doc(older(ops.relu, 6, 13)).startswith("Versions 6 and 13 of Relu.\n\n")


def test_a_required_attribute_is_required(vacant):
    vacant("TopK", 1, 10)
    top_k_1 = older(older(ops.top_k, 10), 1)
    assert top_k_1.__name__ == "top_k_1"
    values, places = top_k_1(jnp.array([1.0, 3.0, 2.0]), k=2)
    assert values.tolist() == [3.0, 2.0]
    assert places.tolist() == [1, 2]
    with pytest.raises(TypeError, match="missing a required argument: 'k'"):
        top_k_1(jnp.ones(3))


def test_defaults_are_those_of_the_older_schema(vacant):
    vacant("Selu", 1)
    selu_1 = older(ops.selu, 1)
    np.testing.assert_allclose(selu_1(jnp.float32(1)), 1.0507, rtol=1e-6)
    assert "``gamma`` is 1.0506999492645264 by default" in _doc(selu_1)
    assert selu_1(jnp.float32(1), gamma=2.0) == 2


def test_the_number_of_wanted_outputs_is_passed_on(vacant):
    vacant("Dropout", 7, 10)
    dropout_7 = older(ops.dropout, 7, 10)
    x = jnp.ones(3)
    assert dropout_7(x) is x
    assert dropout_7(x, ratio=0.3, outputs=2)[1].tolist() == [True] * 3


def test_inputs_prepares_them_from_attributes_of_its_own(vacant):
    vacant("Mul", 1, 6)

    def added(a, b, /, *, axis: int | None = None, broadcast: int = 0):
        return a, b + (axis or 0) + broadcast

    mul_1 = older(ops.mul, 1, 6, inputs=added)
    assert mul_1(2, 3) == 6
    assert mul_1(2, 3, axis=4, broadcast=1) == 16
    assert [*inspect.signature(mul_1).parameters] == ["a", "b", "axis", "broadcast"]


def test_inputs_may_be_those_of_the_newer_version(vacant):
    vacant("Pow", 1)
    pow_1 = older(ops.pow, 1, inputs=aligned)
    assert [*inspect.signature(pow_1).parameters] == ["x", "y", "axis", "broadcast"]
    x, y = np.full((2, 3), 2.0), np.array([1.0, 2.0])
    assert pow_1(x, y, axis=0, broadcast=1).tolist() == [[2.0] * 3, [4.0] * 3]
    with pytest.raises(InvalidModelError, match="broadcast is 0"):
        pow_1(x, y)


def test_attributes_have_values_fixed_or_converted(vacant):
    vacant("DepthToSpace", 1)
    x = jnp.arange(8).reshape(1, 8, 1, 1)
    crd = older(ops.depth_to_space, 1, fixed={"mode": "CRD"}, convert={"blocksize": abs})
    want = ops.depth_to_space(x, blocksize=2, mode="CRD")
    assert crd(x, blocksize=-2).tolist() == want.tolist()
    assert want.tolist() != ops.depth_to_space(x, blocksize=2).tolist()


def test_an_attribute_that_nothing_takes_is_refused(vacant):
    vacant("Mul", 1, 6)
    with pytest.raises(ValueError, match=r"Mul: .* \['axis', 'broadcast'\]"):
        older(ops.mul, 1, 6)


def test_a_function_that_is_not_registered_is_refused():
    with pytest.raises(ValueError, match="sorted is registered for no operator"):
        older(sorted, 1)


def test_a_version_without_a_schema_is_refused():
    with pytest.raises(ValueError, match=r"Relu: onnx\.defs has no schema of version 0"):
        older(ops.relu, 0)


def test_an_operator_with_a_form_for_bounds_is_refused(vacant):
    vacant("NonZero", 9)
    with pytest.raises(ValueError, match="NonZero has a form for bounds"):
        older(ops.non_zero, 9)


def test_derived_functions_have_the_names_that_they_are_assigned_to():
    for operator in registry.registered():
        function = operator.function
        if _doc(function).startswith("Version"):
            module = inspect.getmodule(function)
            assert getattr(module, function.__name__) is function

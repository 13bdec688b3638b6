"""What Softmax gives where XLA rounds its input in two ways, as it does behind a fused product."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxonnx.ops import _softmax


@pytest.fixture
def twice_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The difference sees other values than the maximum did: one unit in the last place lower."""
    below = _softmax._below
    monkeypatch.setattr(_softmax, "_below", lambda x, top: below(jnp.nextafter(x, -jnp.inf), top))


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
@pytest.mark.usefixtures("twice_rounded")
def test_of_equal_huge_logits(dtype: np.dtype) -> None:
    x = jnp.full((2, 4), 1e19, dtype)
    np.testing.assert_array_equal(_softmax.softmax(x, axes=(1,)), np.full((2, 4), 0.25))
    given = _softmax.log_softmax(x, axes=(1,)).astype(np.float32)
    np.testing.assert_allclose(given, np.full((2, 4), -np.log(4)), rtol=1e-2, atol=0)
    np.testing.assert_array_equal(_softmax.log_sum_exp(x, axes=(1,)), x[:, :1])


@pytest.mark.usefixtures("twice_rounded")
def test_of_one_huge_logit() -> None:
    x = jnp.asarray([[3e18, 1e19, -1e19]], np.float32)
    np.testing.assert_array_equal(_softmax.softmax(x, axes=(1,)), [[0, 1, 0]])
    given = _softmax.log_softmax(x, axes=(1,))
    assert given[0, 1] == 0
    assert (np.delete(given, 1) < -1e18).all()


def test_values_that_differ_by_one_unit_in_the_last_place_are_different() -> None:
    x = jnp.asarray([[2.0**29, 2.0**29 - 32]], np.float32)
    given = _softmax.softmax(x, axes=(1,))
    np.testing.assert_allclose(given, [[1, np.exp(-32)]], rtol=1e-6)
    x = jnp.asarray([[2.0**30, 2.0**30 - 256]], np.float32)
    np.testing.assert_allclose(_softmax.softmax(x, axes=(1,)), [[1, 0]], atol=1e-37)

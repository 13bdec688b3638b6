"""The bundled model at several batch sizes, on every platform, against onnxruntime."""

import jax
import numpy as np
import onnx
import pytest
from helpers import assert_close, onnxruntime

import jaxonnx
from jaxonnx import models

PLATFORMS = ["cpu", "cuda", "rocm", "tpu"]


@pytest.fixture(scope="module")
def model():
    return jaxonnx.load(models.path())


@pytest.fixture(scope="module")
def proto():
    return onnx.load(models.path())


def images(batch):
    return np.resize(models.example()[0], (batch, 3, 48, 192)).astype(np.float32)


@pytest.fixture(scope="module")
def exported(model):
    """The model with a symbolic batch, lowered for every platform."""
    (batch,) = jax.export.symbolic_shape("batch")
    shape = jax.ShapeDtypeStruct((batch, 3, 48, 192), np.float32)
    function = jax.jit(lambda m, x: m(x))
    return jax.export.export(function, platforms=PLATFORMS)(model, shape)


@pytest.mark.parametrize("batch", [1, 4])
def test_same_numbers_as_onnxruntime_called_and_exported(model, proto, exported, batch):
    x = images(batch)
    (expected,) = onnxruntime(proto, x)
    assert_close(np.asarray(model(x)), expected, scale=10)
    assert_close(np.asarray(exported.call(model, x)), expected, scale=10)


def test_lowers_for_every_platform_with_a_symbolic_batch(exported):
    assert set(exported.platforms) == set(PLATFORMS)
    assert str(exported.out_avals[0].shape) == "(batch, 2)"


def test_gradients_lower_for_every_platform(model):
    loss = lambda m, x: m(x).sum()
    shape = jax.ShapeDtypeStruct((1, 3, 48, 192), np.float32)
    exported = jax.export.export(jax.jit(jax.grad(loss)), platforms=PLATFORMS)(model, shape)
    assert set(exported.platforms) == set(PLATFORMS)

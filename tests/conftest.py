"""Settings of the whole suite."""

import os

# Before JAX starts: eight devices for the sharding tests.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import gc

import jax
import pytest


@pytest.fixture(autouse=True, scope="session")
def strict_promotion():
    """No implicit promotion between dtypes anywhere."""
    jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """Compiled programs of a module are dropped after it: all of them would fill the memory."""
    yield
    jax.clear_caches()
    gc.collect()

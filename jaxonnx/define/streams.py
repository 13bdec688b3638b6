"""Streams of random numbers: one for each node, and for each turn of the loops around it."""

import zlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxonnx.errors import InputError

KEY = "<key>"
"""The name under which graphs read the stream of a call."""


class Stream(NamedTuple):
    """What the random nodes of a graph draw from.

    Attributes:
        key: the caller's key, or None.
        turns: the numbers of the turns of the loops around, from the outside in.
    """

    key: Array | None
    turns: tuple[Any, ...] = ()

    def turn(self, number: Any) -> "Stream":
        """The stream inside a loop, for one of its turns."""
        return Stream(self.key, (*self.turns, number))

    def of(self, name: str, seed: float | None) -> Array | None:
        """The key of a node, which depends on no other; None if neither key nor seed is there.

        Args:
            name: which node it is.
            seed: what its own seed is, if it has one; the caller's key comes before it.
        """
        if self.key is None and seed is None:
            return None
        with jax.enable_x64(False):  # lowering a draw of 64-bit words outside the scope fails
            key = seeded(seed) if self.key is None else self.key
            if self.key is not None:
                key = jax.random.fold_in(key, np.uint32(zlib.crc32(name.encode())))
            for number in self.turns:
                key = jax.random.fold_in(key, jax.lax.convert_element_type(number, np.uint32))
        return key


def seeded(seed: float | None) -> Array:
    """The key for a seed, the same whatever JAX's default generator is.

    Raises:
        InputError: if there is none.
    """
    if seed is None:
        raise InputError(
            "it draws random numbers, but has neither a seed nor a key: call the model with "
            "key=jax.random.key(0), and another key for other numbers"
        )
    data = np.frombuffer(np.float64(seed).tobytes(), np.uint32)
    return jax.random.wrap_key_data(jnp.asarray(data), impl="threefry2x32")


def is_key(value: Any) -> bool:
    """Whether a value is a typed key of ``jax.random``, or an array of them."""
    dtype = getattr(value, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)

"""Gives what a caller passes the names of inputs; what was checked once is not checked again."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import core

from jaxonnx.graph.plan import Spec
from jaxonnx.run.inputs import bind


class Binder:
    """Checks calls against the declared inputs, once for each combination of names and types."""

    def __init__(self, specs: Sequence[Spec], defaults: Collection[str]) -> None:
        self._specs = specs
        self._defaults = defaults
        self._required = tuple(s.name for s in specs if s.name not in defaults)
        self._accepted: set[Any] = set()

    def __call__(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], bool]:
        """The value of every given input by name, checked and in the declared dtype.

        Returns:
            The values, and whether the same names and types, all of concrete numeric arrays, were
            given before.

        Raises:
            InputError: if a name, the count, a dtype, a rank or a size is wrong.
        """
        given = self._by_name(args, kwargs)
        try:
            key = tuple([(n, type(v), v.dtype, v.shape) for n, v in given.items()])
        except AttributeError:  # no mapping, or no arrays
            return bind(self._specs, self._defaults, args, kwargs), False
        if key in self._accepted:
            return given, True
        bound = bind(self._specs, self._defaults, args, kwargs)
        same = bound.keys() == given.keys() and all(bound[n] is v for n, v in given.items())
        if same and all(map(_is_plain, given.values())):
            self._accepted.add(key)
        return bound, False

    def _by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The values by name where no second look is needed: all by position, or all by name."""
        if not args:
            return dict(kwargs)
        if kwargs or (len(args) == 1 and isinstance(args[0], Mapping)):
            return {**args[0]} if not kwargs and type(args[0]) is dict else None
        if len(args) != len(self._required):
            return None
        return dict(zip(self._required, args, strict=True))


def _is_plain(value: Any) -> bool:
    """Whether a value is an array that holds numbers, outside of any trace."""
    array = isinstance(value, (np.ndarray, jax.Array)) and not isinstance(value, core.Tracer)
    return array and value.dtype.kind not in "OTUS"

"""Arrays of a fixed size of which only a number of slices, known when they run, are real.

They come from operators whose result's shape depends on values, under a declared bound or in a
bucket.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxonnx.define.known import xp
from jaxonnx.errors import DataDependentShapeError


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Padded:
    """An array of which the first ``count`` slices along ``axis`` are real.

    What lies behind them is padding: -1 where an operator makes positions, else unspecified. A
    ``count`` above the size of the axis says that the bound was exceeded.

    Attributes:
        values: the array.
        count: the number of real slices, a scalar integer array.
        axis: the axis, counted from 0.
    """

    values: Any
    count: Any
    axis: int = dataclasses.field(metadata={"static": True})

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the values."""
        return self.values.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the values, padding included."""
        return self.values.shape

    @property
    def size(self) -> int:
        """The bound: the size of the axis."""
        return self.values.shape[self.axis]

    def cut(self) -> Any:
        """The real slices alone; only outside of a trace.

        Raises:
            DataDependentShapeError: if the bound was exceeded.
        """
        count = int(self.count)
        if count > self.size:
            raise DataDependentShapeError(f"{count} results, but the declared bound is {self.size}")
        return self.values[(np.s_[:],) * self.axis + (np.s_[:count],)]

    def real(self) -> Any:
        """A mask of the real slices, shaped to broadcast against the values."""
        steps = jnp.arange(self.size, dtype=jnp.int32) < self.count.astype(jnp.int32)
        return steps.reshape((-1,) + (1,) * (self.values.ndim - self.axis - 1))

    def filled(self, fill: Any) -> Any:
        """The values with the padding replaced."""
        return jnp.where(self.real(), self.values, jnp.asarray(fill, self.values.dtype))


def map_arrays(function: Callable[[Any], Any], value: Any) -> Any:
    """``jax.tree.map`` where a padded array is one leaf."""
    return jax.tree.map(function, value, is_leaf=lambda v: isinstance(v, Padded))


def cut(value: Any) -> Any:
    """A value with the padding cut off wherever there is some."""
    return map_arrays(lambda v: v.cut() if isinstance(v, Padded) else v, value)


def pad(values: Any, axis: int, size: int) -> Padded:
    """An array as the first slices of one of ``size`` along ``axis``, padded with -1 or 0."""
    count = values.shape[axis]
    widths = [(0, size - count if k == axis else 0) for k in range(values.ndim)]
    fill = -1 if np.issubdtype(values.dtype, np.signedinteger) else 0
    padded = xp(values).pad(values, widths, constant_values=np.asarray(fill, values.dtype))
    return Padded(padded, np.asarray(count, np.int64), axis)

"""Checks of values while a program runs: the one place that uses JAX's experimental interface."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax import core
from jax.experimental import checkify

from jaxonnx.errors import DataDependentShapeError


def check_bounds(counts: Mapping[str, Any], bounds: Mapping[str, int]) -> None:
    """Report nodes with more results than their bound.

    Outside of a trace it is an error at once. Inside one it is a check that counts only under
    ``jax.experimental.checkify.checkify``; without that the results are cut.

    Raises:
        DataDependentShapeError: if a bound is exceeded.
    """
    for name, count in counts.items():
        text = f"bound {bounds[name]} of {name!r} is exceeded"
        if isinstance(count, core.Tracer):
            number = count.astype(np.int32)  # checkify runs after the scope of x64 has closed
            checkify.debug_check(number <= bounds[name], text + ": there are {n} results", n=number)
        elif int(count) > bounds[name]:
            raise DataDependentShapeError(
                f"{text}: there are {int(count)} results; load the model with a larger one"
            )

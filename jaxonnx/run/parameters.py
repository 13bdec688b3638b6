"""Checks values that a caller puts in place of those that a model stores."""

from collections.abc import Mapping
from typing import Any

from jaxonnx.errors import InputError
from jaxonnx.graph.plan import Plan, Stored
from jaxonnx.graph.roles import near

_LISTED = 5
"""The most faults that a message lists."""


def check_parameters(params: Mapping[str, Any], plan: Plan, *, all_weights: bool = True) -> None:
    """Refuse values of stored ones that have another dtype or shape, or cannot be replaced.

    Args:
        params: values by name.
        plan: the model.
        all_weights: whether there must be one for every weight.

    Raises:
        InputError: naming what is at fault.
    """
    needed = plan.params if all_weights else ()
    faults = [f"{n!r} is missing" for n in needed if n not in params]
    for name, value in params.items():
        stored = plan.stored.get(name)
        if stored is None:
            faults.append(f"{name!r} is no stored value{near(name, plan.stored)}")
        elif stored.fixed:
            faults.append(f"{name!r} decides a shape, so it cannot be replaced")
        elif fault := _fault(value, stored):
            faults.append(fault)
    if faults:
        raise InputError(f"params: {'; '.join(faults[:_LISTED])}")


def _fault(value: Any, stored: Stored) -> str | None:
    """What to say of a value that cannot take the place of a stored one; None if it can."""
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype == stored.dtype and shape == stored.shape:
        return None
    found = type(value).__name__ if dtype is None or shape is None else f"{dtype}{[*shape]}"
    said = f"{stored.name!r} is {found}, expected {stored.dtype}{[*stored.shape]}"
    if dtype is None or dtype == stored.dtype:
        return said
    return (
        f"{said}; a model computes in the types that it declares, so its parameters cannot be cast "
        f"alone: cast them back, for example with p.astype({stored.dtype.name!r}), and use "
        f"model.astype({str(dtype)!r}) to compute in that type"
    )

"""Calls operators of whose inputs some are padded, by the rule that each is registered with."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxonnx.define.padded import Padded
from jaxonnx.define.registry import Operator
from jaxonnx.errors import UnpaddableError


def apply(
    operator: Operator, args: Sequence[Any], attributes: Mapping[str, Any], title: str
) -> Sequence[Any]:
    """The outputs of an operator of whose inputs some are padded.

    Raises:
        UnpaddableError: if there is no exact rule for it.
    """
    rule = _pointwise if operator.elementwise else operator.padding
    result = None if rule is None else rule(operator.function, [*map(_tame, args)], attributes)
    if result is None:
        raise UnpaddableError(
            f"{title} cannot follow an input of which only a part is real; run the model outside "
            "of a trace without bounds or buckets"
        )
    return result if isinstance(result, tuple) else (result,)


def _tame(value: Any) -> Any:
    """A padded float with 1 as padding: what an operator makes of it has finite derivatives.

    Otherwise an infinite one at the padding, times its cotangent of 0, would be NaN for whatever
    the padding was computed from.
    """
    if not isinstance(value, Padded) or not jnp.issubdtype(value.dtype, jnp.inexact):
        return value
    return Padded(value.filled(1), value.count, value.axis)


def _pointwise(
    function: Callable[..., Any], args: Sequence[Any], attributes: Mapping[str, Any]
) -> Any:
    """Element-wise: all padded inputs have the same axis, seen from the right, and count."""
    padded = [a for a in args if isinstance(a, Padded)]
    first = padded[0]
    place = first.values.ndim - first.axis
    if any(p.count is not first.count or p.values.ndim - p.axis != place for p in padded):
        return None
    shapes = [np.shape(a) for a in args if a is not None and not isinstance(a, Padded)]
    if any(len(s) >= place and s[len(s) - place] != 1 for s in shapes):
        return None
    out = function(*(a.values if isinstance(a, Padded) else a for a in args), **attributes)
    return Padded(out, first.count, out.ndim - place)

"""What passes put where they recognise a function that a file spells out.

These are no operators of ONNX: their domain is our own.
"""

import math
from typing import Any

import jax.numpy as jnp
import onnx
from jax import Array, lax
from jax.typing import ArrayLike
from onnx.defs import OpSchema

from jaxonnx.define.experimental import times
from jaxonnx.define.kinks import kink
from jaxonnx.define.known import xp
from jaxonnx.define.own import DOMAIN
from jaxonnx.define.registry import register

__all__ = ["atan2", "flat_at_zero"]


def _schema(op_type: str, *inputs: str) -> OpSchema:
    """The schema of an operator on arrays of one type, any that Pow takes."""
    (numbers, *_) = onnx.defs.get_schema("Pow", 15).type_constraints
    return OpSchema(
        op_type,
        DOMAIN,
        1,
        inputs=[OpSchema.FormalParameter(name, "T") for name in inputs],
        outputs=[OpSchema.FormalParameter("out", "T")],
        type_constraints=[("T", [*numbers.allowed_type_strs], "")],
    )


def _flat_tangent(dx: Any, x: Any) -> Array:
    return jnp.where(x == 0, 0, dx)


@register(
    "FlatAtZero",
    1,
    domain=DOMAIN,
    elementwise=True,
    moves=True,
    schema=_schema("FlatAtZero", "x"),
)
@kink(_flat_tangent)
def flat_at_zero(x: ArrayLike, /) -> Array:
    """``x``. Derivative at 0: 0, so that of any root of it is 0 as well."""
    return xp(x).asarray(x)


def _atan2_tangent(dy: Any, dx: Any, dspelled: Any, y: Any, x: Any, spelled: Any) -> Any:
    """``(x dy - y dx) / (x * x + y * y)``, scaled so that no square overflows or vanishes."""
    del dspelled, spelled
    largest = lax.stop_gradient(jnp.maximum(jnp.abs(y), jnp.abs(x)))
    moves = (largest > 0) & (largest < jnp.inf) | jnp.isnan(largest)
    scale = jnp.where(moves, largest, 1)
    a, b = (jnp.where(moves, v / scale, 1) for v in (y, x))
    length = a * a + b * b
    by_y, by_x = (jnp.where(moves, v / length / scale, 0) for v in (b, -a))
    total = 0 if dy is None else times(by_y, dy)
    return total if dx is None else total + times(by_x, dx)


@register("Atan2", 1, domain=DOMAIN, elementwise=True, schema=_schema("Atan2", "y", "x", "spelled"))
@kink(_atan2_tangent)
def atan2(y: ArrayLike, x: ArrayLike, spelled: ArrayLike, /) -> Array:
    """The angle of the point ``x, y``, which ``spelled`` is wherever ``x`` is not 0.

    Derivative at 0, 0 and at infinity: 0.
    """
    m = xp(y, x, spelled)
    return m.where(m.equal(x, 0), m.sign(y) * (math.pi / 2), spelled)

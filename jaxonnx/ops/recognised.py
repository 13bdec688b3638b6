"""What passes put where they recognise a function that a file spells out.

These are no operators of ONNX: their domain is our own.
"""

from typing import Any

import jax.numpy as jnp
import onnx
from jax import Array
from jax.typing import ArrayLike
from onnx.defs import OpSchema

from jaxonnx.define.kinks import kink
from jaxonnx.define.known import xp
from jaxonnx.define.own import DOMAIN
from jaxonnx.define.registry import register

__all__ = ["flat_at_zero"]


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

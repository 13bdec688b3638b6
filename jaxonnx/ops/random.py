"""Operators that draw random numbers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxonnx.define.known import xp
from jaxonnx.define.registry import register

__all__ = ["dropout"]


@register("Dropout", 12, 13, 22, static=["ratio", "training_mode"], settings=["ratio"])
def dropout(
    data: ArrayLike,
    ratio: ArrayLike | None = None,
    training_mode: ArrayLike | None = None,
    /,
    *,
    seed: int | None = None,
    outputs: int = 1,
) -> Any:
    """``data``, in training with a share ``ratio`` set to 0 and the rest scaled up to match.

    The mask, an optional second output, is drawn from ``seed``, by default 0: it is the same at
    each call.
    """
    share = 0.5 if ratio is None else float(np.asarray(ratio))
    training = training_mode is not None and bool(np.asarray(training_mode))
    if not training or share == 0:
        return _both(data, xp(data).ones(np.shape(data), bool), outputs)
    with jax.enable_x64(False):  # random bits of 64-bit words cannot be lowered outside the scope
        mask = jax.random.bernoulli(jax.random.key(seed or 0), 1 - share, np.shape(data))
    kept = jnp.where(mask, jnp.asarray(data) / (1 - share), 0)
    return _both(kept, mask, outputs)


def _both(result: Any, mask: Any, outputs: int) -> Any:
    return result if outputs == 1 else (result, mask)


@register("Dropout", 10)
def dropout_10(data: ArrayLike, /, *, ratio: float = 0.5, outputs: int = 1) -> Any:
    """``data`` as it is: this version only runs inference; the mask is all true."""
    del ratio
    return dropout(data, outputs=outputs)


@register("Dropout", 7)
def dropout_7(data: ArrayLike, /, *, ratio: float = 0.5, outputs: int = 1) -> Any:
    """``data`` as it is: this version only runs inference; the mask is all 1, of its dtype."""
    del ratio
    result, mask = dropout(data, outputs=2)
    return _both(result, mask.astype(xp(data).asarray(data).dtype), outputs)


@register("Dropout", 1, 6)
def dropout_1(data: ArrayLike, /, *, ratio: float = 0.5, is_test: int = 0, outputs: int = 1) -> Any:
    """``data``, with a share ``ratio`` set to 0 unless ``is_test``; the mask has its dtype."""
    result = dropout(data, np.asarray(ratio), np.asarray(not is_test), outputs=2)
    return _both(result[0], result[1].astype(jnp.result_type(data)), outputs)

"""Which derivative is taken where mathematics leaves a choice, as far as a caller may choose."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_type_hints

import jax

from jaxonnx.errors import InputError


@dataclasses.dataclass(frozen=True)
class Convention:
    """The choices; the defaults are what ``docs/derivatives.md`` states.

    Attributes:
        relu: the derivative of Relu at 0.
        max: at ties of Max, Min, ReduceMax and ReduceMin, equal shares or all to the first.
        clip: the derivative of Clip at a bound: 1, or 0 as if it were beyond.
        round: the derivative of Floor, Ceil and Round: 0, or 1 as if they were not there.
    """

    relu: float = 0.0
    max: Literal["share", "first"] = "share"
    clip: Literal["bound", "inside"] = "bound"
    round: Literal["zero", "straight_through"] = "zero"


# Part of the key of everything that JAX compiles, so that another choice is traced anew.
_context = jax.make_user_context(default_value=Convention())


def convention() -> Convention:
    """The choices in force."""
    value: Any = _context.value
    return value


def under(choices: Convention) -> contextlib.AbstractContextManager[Any]:
    """A context in which ``choices`` are in force."""
    return _context(choices)


@contextlib.contextmanager
def derivatives(**choices: Any) -> Iterator[None]:
    """A context in which other derivatives are taken where there is a choice.

    ``with jaxonnx.derivatives(relu=0.5, max="first"): gradient = jax.grad(loss)(model)``. What
    counts is the context in which a model or an operator is called, which for a function under
    ``jax.jit`` is that of the outermost call; each choice is compiled for itself. Contexts nest.

    Args:
        **choices: ``relu``, the derivative of Relu at 0 (default 0); ``max``, at ties of Max, Min,
            ReduceMax and ReduceMin ``"share"`` (default) or ``"first"``; ``clip``, at a bound of
            Clip 1 for ``"bound"`` (default) or 0 for ``"inside"``; ``round``, of Floor, Ceil and
            Round 0 for ``"zero"`` (default) or 1 for ``"straight_through"``.

    Raises:
        InputError: if there is no such choice.
    """
    hints = get_type_hints(Convention)
    for name, value in choices.items():
        if name not in hints:
            raise InputError(
                f"derivatives: there is no choice of {name!r}, only {', '.join(hints)}"
            )
        allowed = get_args(hints[name])
        fits = value in allowed if allowed else isinstance(value, (int, float))
        if not fits:
            expected = " or ".join(map(repr, allowed)) or "a number"
            raise InputError(f"derivatives: {name} is {value!r}, expected {expected}")
    with under(dataclasses.replace(convention(), **choices)):
        yield

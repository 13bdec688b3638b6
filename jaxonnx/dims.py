"""Symbolic dimensions of a model's inputs for ``jax.export``."""

import keyword
import re
from collections.abc import Sequence

import jax
import jax.export

from jaxonnx.plan import Spec


def identifiers(names: Sequence[str]) -> dict[str, str]:
    """ONNX's dimension names as distinct identifiers: ``batch size`` becomes ``batch_size``."""
    found: dict[str, str] = {}
    for name in names:
        base = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "dim"
        if not base[0].isalpha() or keyword.iskeyword(base) or base in ("min", "max", "mod"):
            base = f"d_{base}"
        unique, count = base, 1
        while unique in found.values():
            count += 1
            unique = f"{base}_{count}"
        found.setdefault(name, unique)
    return found


def abstract(
    specs: Sequence[Spec], constraints: Sequence[str]
) -> dict[str, jax.ShapeDtypeStruct]:
    """Inputs as shapes: equal names are equal dimensions, unknown ones are dimensions apart.

    Args:
        specs: the declared inputs; each must have a dtype and a rank.
        constraints: what is assumed of the dimensions, by their ONNX names or identifiers.

    Raises:
        ValueError: if an input has no declared rank or dtype.
    """
    shapes = {s.name: _named(s) for s in specs}
    names = [d for dims in shapes.values() for d in dims if isinstance(d, str)]
    known = identifiers([*dict.fromkeys(names)])
    scope = jax.export.SymbolicScope([_rename(c, known) for c in constraints])
    with jax.enable_x64(True):
        return {
            s.name: jax.ShapeDtypeStruct(
                jax.export.symbolic_shape(
                    ", ".join(known.get(d, str(d)) for d in map(_text, shapes[s.name])),
                    scope=scope,
                ),
                s.dtype,
            )
            for s in specs
        }


def _text(dim: int | str) -> str:
    return str(dim)


def _named(spec: Spec) -> tuple[int | str, ...]:
    if spec.shape is None or spec.dtype is None:
        raise ValueError(f"input {spec.name!r} has no declared rank or dtype: {spec}")
    unknown = (None, "?")
    return tuple(
        f"{spec.name}_{k}" if d in unknown or d is None else d for k, d in enumerate(spec.shape)
    )


def _rename(constraint: str, known: dict[str, str]) -> str:
    for name, identifier in known.items():
        constraint = constraint.replace(name, identifier) if name != identifier else constraint
    return constraint

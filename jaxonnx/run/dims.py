"""Symbolic dimensions of a model's inputs for ``jax.export``."""

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence

import jax
import jax.export

from jaxonnx.errors import InputError
from jaxonnx.graph.plan import Spec

_FUNCTIONS = ("min", "max", "mod", "floordiv")
_EXPRESSION = re.compile(r"\s*\w+(\s*[-+*]\s*\w+)+\s*", re.ASCII)


def identifiers(names: Iterable[str]) -> dict[str, str]:
    """ONNX's dimension names as distinct identifiers: ``batch size`` becomes ``batch_size``."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        base = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "dim"
        if not base[0].isalpha() or keyword.iskeyword(base) or base in _FUNCTIONS:
            base = f"d_{base}"
        unique, count = base, 1
        while unique in found.values():
            count += 1
            unique = f"{base}_{count}"
        found[name] = unique
    return found


def abstract(specs: Sequence[Spec], constraints: Sequence[str]) -> dict[str, jax.ShapeDtypeStruct]:
    """Inputs as shapes: equal names are equal dimensions, unknown ones are dimensions apart.

    A name such as ``past + sequence`` is the sum of the dimensions ``past`` and ``sequence`` if
    there are such.

    Args:
        specs: the declared inputs; each must have a dtype and a rank.
        constraints: what is assumed of the dimensions, by their ONNX names or identifiers.

    Raises:
        InputError: if an input has no declared rank or dtype.
    """
    shapes = [_named(s) for s in specs]
    known = _known(shapes)
    scope = jax.export.SymbolicScope([_rename(c, known) for c in constraints])
    texts = [", ".join(known[d] if isinstance(d, str) else str(d) for d in dims) for dims in shapes]
    with jax.enable_x64(True):
        return {
            s.name: jax.ShapeDtypeStruct(jax.export.symbolic_shape(text, scope=scope), s.dtype)
            for s, text in zip(specs, texts, strict=True)
        }


def check_constraints(specs: Sequence[Spec], constraints: Sequence[str]) -> tuple[str, ...]:
    """``constraints``, if they say something of dimensions that the inputs have.

    Raises:
        InputError: if they do not.
    """
    if isinstance(constraints, str):
        raise InputError(f"constraints is a string, expected a list such as [{constraints!r}]")
    constraints = tuple(constraints)
    known = _known([s.labels for s in specs if s.labels is not None and not s.kinds])
    there = ", ".join(map(repr, known)) or "none"
    for constraint in constraints:
        if not isinstance(constraint, str):
            raise InputError(f"constraints: {constraint!r} is no string such as 'S<=512'")
        renamed = _rename(constraint, known)
        unknown = set(re.findall(r"[^\W\d]\w*", renamed)) - {*_FUNCTIONS, *_words(known.values())}
        if unknown:
            raise InputError(
                f"constraints: {constraint!r} speaks of {', '.join(map(repr, sorted(unknown)))}; "
                f"the dimensions of the inputs are {there}"
            )
        try:
            jax.export.SymbolicScope([renamed])
        except (ValueError, TypeError, SyntaxError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"constraints: {constraint!r} is not of a form such as 'S<=512', 'B>=2' or "
                f"'mod(S, 8) == 0'; the dimensions of the inputs are {there}: {reason}"
            ) from error
    return constraints


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"\w+", text)}


def _known(shapes: Iterable[Sequence[int | str]]) -> dict[str, str]:
    """What stands for each dimension's name: an identifier, or an expression of some."""
    names = [d for dims in shapes for d in dims if isinstance(d, str)]
    known = identifiers(n for n in names if not _is_expression(n, names))
    return known | {n: _rename(n, known) for n in names if n not in known}


def _named(spec: Spec) -> tuple[int | str, ...]:
    """The declared shape with a name of its own for each unknown size."""
    if spec.labels is None or spec.dtype is None or spec.kinds:
        raise InputError(f"input {spec.name!r} has no declared rank or dtype: {spec}")
    return spec.labels


def _is_expression(name: str, names: Sequence[str]) -> bool:
    """Whether a dimension's name is a sum, difference or product of others and of numbers."""
    words = re.findall(r"\w+", name)
    return bool(_EXPRESSION.fullmatch(name)) and all(w.isdigit() or w in names for w in words)


def _rename(text: str, known: Mapping[str, str]) -> str:
    """``text`` with identifiers in place of dimension names, the longest first."""
    names = sorted(known, key=len, reverse=True)
    pattern = "|".join(rf"(?<!\w){re.escape(n)}(?!\w)" for n in names)
    return re.sub(pattern, lambda m: known[m.group()], text) if names else text

"""Operators on strings, which are NumPy arrays of ``StringDType`` and never part of a program."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from jaxonnx.define.dtypes import STRING
from jaxonnx.define.known import concrete
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops._regex import compile_re2

__all__ = [
    "regex_full_match",
    "string_concat",
    "string_normalizer",
    "string_split",
    "tf_idf_vectorizer",
]


@register("StringConcat", 20, host=True)
def string_concat(x: ArrayLike, y: ArrayLike, /) -> np.ndarray:
    """The strings of ``x`` with those of ``y`` appended, broadcast."""
    return np.strings.add(concrete(x), concrete(y))


@register("StringSplit", 20, host=True)
def string_split(
    x: ArrayLike, /, *, maxsplit: int | None = None, delimiter: str | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The parts of each string between delimiters, and how many there are.

    Without ``delimiter`` runs of whitespace separate, and those at the ends are dropped. The parts
    lie on a new last dimension, padded with empty strings to the largest number of parts.
    """
    x = concrete(x)
    most = -1 if maxsplit is None else maxsplit
    rows = [str(s).split(delimiter or None, most) for s in x.flat]
    counts = np.array([len(r) for r in rows], np.int64).reshape(x.shape)
    width = max(map(len, rows), default=0)
    parts = np.array([r + [""] * (width - len(r)) for r in rows], STRING)
    return parts.reshape(*x.shape, width), counts


_CHANGES: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}


@register("StringNormalizer", 10, host=True)
def string_normalizer(
    x: ArrayLike,
    /,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str | None = None,
    stopwords: Sequence[str] | None = None,
) -> np.ndarray:
    """Strings without stop words, in upper or lower case; one empty string where none is left.

    Case is Unicode's, whatever the ``locale``, so that results do not depend on the machine.

    Raises:
        InvalidModelError: if the shape is neither ``[C]`` nor ``[1, C]``.
    """
    del locale
    x = concrete(x)
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise InvalidModelError(f"the shape is {list(x.shape)}, expected [C] or [1, C]")
    if case_change_action not in _CHANGES:
        raise InvalidModelError(
            f"case_change_action is {case_change_action!r}, expected one of {', '.join(_CHANGES)}"
        )
    form = str if is_case_sensitive else str.lower
    stopped = {form(w) for w in stopwords or ()}
    kept = [_CHANGES[case_change_action](s) for s in x.flat if form(s) not in stopped]
    return np.array(kept or [""], STRING).reshape((1,) * (x.ndim - 1) + (-1,))


@register("RegexFullMatch", 20, host=True)
def regex_full_match(x: ArrayLike, /, *, pattern: str | None = None) -> np.ndarray:
    """Whether ``pattern``, in the syntax of RE2, matches each whole string."""
    expression, x = compile_re2(pattern or ""), concrete(x)
    found = [expression.fullmatch(s) is not None for s in x.flat]
    return np.array(found, bool).reshape(x.shape)


@register("TfIdfVectorizer", 9, host=True)
def tf_idf_vectorizer(
    x: ArrayLike,
    /,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] | None = None,
    pool_strings: Sequence[str] | None = None,
    weights: Sequence[float] | None = None,
) -> np.ndarray:
    """How often each n-gram of a pool occurs in ``x`` or in each of its rows, or its weight.

    The items of an n-gram lie one to ``max_skip_count + 1`` apart, equally far from each other.
    ``mode`` is ``TF`` (counts), ``IDF`` (the weights of those that occur) or ``TFIDF`` (both
    multiplied). Returns float32[max(ngram_indexes) + 1], or a row of that for each row of ``x``.

    Raises:
        InvalidModelError: if ``x`` has more than two dimensions, or attributes do not fit.
    """
    x, pool = concrete(x), [*(pool_int64s or pool_strings or ())]
    if x.ndim > 2:
        raise InvalidModelError(f"the shape is {list(x.shape)}, expected [C] or [N, C]")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise InvalidModelError(f"mode is {mode!r}, expected TF, IDF or TFIDF")
    places = _ngrams(pool, ngram_counts)
    scale = np.asarray(weights or [1.0] * len(places), np.float32)
    if not len(places) == len(ngram_indexes) == len(scale):
        raise InvalidModelError(
            f"{len(places)} n-grams, {len(ngram_indexes)} ngram_indexes, {len(scale)} weights"
        )
    rows = [
        _occurrences(row, places, (min_gram_length, max_gram_length), max_skip_count)
        for row in np.atleast_2d(x).tolist()
    ]
    counts = np.array(rows, np.float32).reshape(len(rows), len(places))
    counts = np.minimum(counts, 1) if mode == "IDF" else counts
    values = counts if mode == "TF" else counts * scale
    out = np.zeros((len(rows), max(ngram_indexes, default=-1) + 1), np.float32)
    np.add.at(out.T, np.asarray(ngram_indexes, np.int64), values.T)
    return out if x.ndim > 1 else out[0]


def _ngrams(pool: Sequence[Any], starts: Sequence[int]) -> dict[tuple[Any, ...], int]:
    """The number of each n-gram of a pool; those of length ``n`` begin at ``starts[n - 1]``."""
    found: dict[tuple[Any, ...], int] = {}
    for length, (first, last) in enumerate(itertools.pairwise([*starts, len(pool)]), start=1):
        if not 0 <= first <= last <= len(pool) or (last - first) % length:
            raise InvalidModelError(f"ngram_counts {[*starts]} do not fit a pool of {len(pool)}")
        for k in range(first, last, length):
            found[tuple(pool[k : k + length])] = len(found)
    return found


def _occurrences(
    row: Sequence[Any], places: dict[tuple[Any, ...], int], lengths: tuple[int, int], skips: int
) -> list[int]:
    counts = [0] * len(places)
    for length in range(lengths[0], lengths[1] + 1):
        for step in range(1, skips + 2 if length > 1 else 2):
            for first in range(len(row) - (length - 1) * step):
                place = places.get(tuple(row[first : first + (length - 1) * step + 1 : step]))
                if place is not None:
                    counts[place] += 1
    return counts

"""RE2's regular expressions, which ONNX names, by Python's ``re`` as far as that has them.

https://github.com/google/re2/wiki/Syntax
"""

import functools
import re

from jaxonnx.errors import InvalidModelError, UnsupportedOpError

_LITERAL = r"\\(?:x[0-9A-Fa-f]{2}|0[0-7]{0,2}|[afnrtv]|(?!\w)[\x00-\x7f])"
_CHARACTER = rf"(?:{_LITERAL}|[^\\])"
_REPEAT = r"(?:[*+?]|\{\d+(?:,\d*)?\})"
_LACKING = r"\\[CQpP]|\\x\{|\\[1-7][0-7]"

_TOKEN = re.compile(
    rf"""\[(?P<inverted>\^?)(?P<set>\]?(?:\[:\^?\w*:\]|\\.|[^\]\\])*)\]
    | (?P<unsupported>{_LACKING} | \(\?[imsU-]+\) | \(\?[imsU-]*[mU][imsU-]*:
        | (?:\\[AbBz]|[$^]){_REPEAT})
    | (?P<changed>\\[zBsS]|\$|\(\?<(?=\w)|\{{(?=,))
    | (?:{_LITERAL} | \\[AbdDwW] | \(\?(?:P<|(?P<flags>[is]*(?:-[is]+)?):))
    | (?P<invalid>\\ | \[ | \(\? | {_REPEAT}\??+{_REPEAT}
        | \{{(?=\d+(?:,\d*)?\}})(?:\d+,)?0*(?!1000[,}}])[1-9]\d{{3}})
    | .""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ELEMENT = re.compile(
    rf"""(?P<unsupported>{_LACKING} | \[:\^?\w+:)
    | (?P<invalid>{_CHARACTER}-\\[dDsSwW])
    | (?P<changed>\\[sS]) | \\[dDwW]
    | (?P<first>{_CHARACTER})(?:-(?P<last>{_CHARACTER}))?
    | \\""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
"""What is read at once, outside of brackets and in them."""

_SPACE = {r"\s": r"\t\n\f\r ", r"\S": r"\x00-\x08\x0b\x0e-\x1f!-\U0010ffff"}
_CHANGED = {r"\z": r"\Z", "$": r"\Z", r"\B": r"(?!\b)", "(?<": "(?P<", "{": r"\{"}
_CHANGED |= {name: f"[{characters}]" for name, characters in _SPACE.items()}


@functools.cache
def compile_re2(pattern: str) -> re.Pattern[str]:
    """A pattern in RE2's syntax, compiled. ``(?i)`` takes ASCII letters alone for equal.

    Raises:
        InvalidModelError: if it is no valid RE2 syntax.
        UnsupportedOpError: if it means something that ``re`` lacks.
    """
    leading = re.match(r"\(\?([ims]+)\)", pattern)
    flags, start = (leading[1], leading.end()) if leading else ("", 0)
    tokens = [*_TOKEN.finditer(pattern, start)]
    groups = flags + "".join(t["flags"] or "" for t in tokens)
    if "i" in groups and (not pattern.isascii() or re.search(r"\\x[89A-Fa-f]", pattern)):
        raise UnsupportedOpError(f"the pattern {pattern!r} ignores the case of other than ASCII")
    try:
        text = "".join(_translated(token, lines="m" in flags) for token in tokens)
        return re.compile(pattern[:start] + text, re.ASCII)
    except (re.error, RecursionError) as error:
        raise InvalidModelError(f"the pattern {pattern!r} is not valid RE2: {error}") from error


def _translated(token: re.Match[str], *, lines: bool) -> str:
    """A token as ``re`` writes it."""
    _check(token)
    if token["set"] is not None:
        elements = map(_element, _ELEMENT.finditer(token["set"]))
        return f"[{token['inverted']}{''.join(elements)}]"
    return token[0] if lines and token[0] == "$" else _CHANGED.get(token["changed"], token[0])


def _element(token: re.Match[str]) -> str:
    """What is in brackets; ``re`` warns of unescaped characters that may become operators."""
    _check(token)
    ends = [e if len(e) > 1 else re.escape(e) for e in (token["first"], token["last"]) if e]
    return "-".join(ends) or _SPACE.get(token["changed"], token[0])


def _check(token: re.Match[str]) -> None:
    if token["unsupported"]:
        raise UnsupportedOpError(f"{token[0]!r} in {token.string!r} is not supported")
    if token["invalid"] or token[0] == "\\":
        raise re.error(f"{token[0]!r} at position {token.start()}")

"""RE2's regular expressions in the syntax of Python's ``re``.

https://github.com/google/re2/wiki/Syntax: no look-around and no backreferences, classes are ASCII,
``$`` is the end of the text, flags may be set anywhere in a group.
"""

import functools
import re
import sys
import unicodedata
from collections.abc import Sequence

from jaxonnx.errors import InvalidModelError, UnsupportedOpError

Ranges = Sequence[tuple[int, int]]

_ASCII = {
    "alnum": "09AZaz",
    "alpha": "AZaz",
    "ascii": "\x00\x7f",
    "blank": "\t\t  ",
    "cntrl": "\x00\x1f\x7f\x7f",
    "digit": "09",
    "graph": "!~",
    "lower": "az",
    "print": " ~",
    "punct": "!/:@[`{~",
    "space": "\t\r  ",
    "upper": "AZ",
    "word": "09AZ__az",
    "xdigit": "09AFaf",
    "d": "09",
    "w": "09AZ__az",
    "s": "\t\n\f\r  ",
}
"""First and last character of each range of a class, by POSIX name or Perl letter."""

_TOKEN = re.compile(
    r"""\\Q(?P<quoted>.*?)(?:\\E|\Z)
    | \\x\{(?P<hex>[0-9A-Fa-f]+)\} | \\x(?P<hex2>[0-9A-Fa-f]{2})
    | \\(?P<octal>0[0-7]{0,2}|[1-7][0-7]{1,2})
    | \\(?P<property>[pP](?:\{\^?\w+\}|[A-Z]))
    | \\(?P<perl>[dDwWsS])
    | \\(?P<escape>[^\w]|[AzbBaftnrv])
    | \[:(?P<posix>\^?[a-z]+):\]
    | \(\?(?P<flags>[imsU]*(?:-[imsU]+)?)(?P<ends>[:)])
    | \(\?P?<(?P<name>[A-Za-z_]\w*)>
    | (?P<repeat>(?:[*+?]|\{\d+(?:,\d*)?\})\??)
    | (?P<other>\\.|\(\?|.|\Z)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)


@functools.cache
def compile_re2(pattern: str) -> re.Pattern[str]:
    """A pattern in RE2's syntax, compiled.

    Raises:
        InvalidModelError: if it is no valid RE2 syntax.
        UnsupportedOpError: if it names a Unicode script.
    """
    try:
        return re.compile(_Translator(pattern).text())
    except re.error as error:
        raise InvalidModelError(f"the pattern {pattern!r} is not valid RE2: {error}") from error


class _Translator:
    """The state of one translation: where it is, and the flag groups that are open.

    Attributes:
        groups: for each open group the openings of the flag groups inside it, which end with it.
        lines: for each open group whether ``^`` and ``$`` are those of lines.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0
        self.groups: list[list[str]] = [[]]
        self.lines = [False]

    def text(self) -> str:
        """The whole pattern in Python's syntax."""
        parts = []
        repeated = False
        while self.position < len(self.pattern):
            token = self._next()
            if token["repeat"] and repeated:
                raise re.error("bad repetition operator")
            repeated = bool(token["repeat"])
            parts.append(self._outside(token))
        if len(self.groups) > 1:
            raise re.error("missing )")
        return "".join(parts) + ")" * len(self.groups[0])

    def _next(self) -> re.Match[str]:
        token = _TOKEN.match(self.pattern, self.position)
        if token is None:
            raise re.error("cannot be read")
        self.position = token.end()
        return token

    def _outside(self, token: re.Match[str]) -> str:
        """A token that is not in brackets."""
        if token["posix"] is not None:  # only a class inside of brackets
            self.position = token.start() + 1
            return self._brackets()
        if (ranges := _ranges(token)) is not None:
            return f"[{_spell(ranges)}]"
        if token["quoted"] is not None:
            return re.escape(token["quoted"])
        if token["escape"] is not None:
            plain = {"z": r"\Z", "b": r"(?a:\b)", "B": r"(?a:\B)"}
            return plain.get(token["escape"], token[0])
        if token["ends"] is not None:
            return self._flags(token["flags"], token["ends"])
        if token["name"] is not None:
            return self._open(f"(?P<{token['name']}>")
        if token["repeat"] is not None:
            return token[0]
        return self._other(token[0])

    def _other(self, text: str) -> str:
        if len(text) > 1:
            raise re.error(f"{text!r} is not supported")
        match text:
            case "[":
                return self._brackets()
            case "(":
                return self._open("(")
            case ")":
                if len(self.groups) == 1:
                    raise re.error("unexpected )")
                self.lines.pop()
                return ")" * (len(self.groups.pop()) + 1)
            case "|":  # flags hold to the end of the group, alternatives included
                opened = self.groups[-1]
                return ")" * len(opened) + "|" + "".join(opened)
            case "$":
                return "$" if self.lines[-1] else r"\Z"
            case "{" | "}":
                return "\\" + text
        return text

    def _open(self, text: str) -> str:
        self.groups.append([])
        self.lines.append(self.lines[-1])
        return text

    def _flags(self, flags: str, ends: str) -> str:
        """A group with flags, or flags for the rest of one; U does not matter to a full match."""
        on, _, off = flags.replace("U", "").partition("-")
        lines = ("m" in on or self.lines[-1]) and "m" not in off
        opening = f"(?{on}{'-' if off else ''}{off}:"
        if ends == ":":
            self._open("")
        else:
            self.groups[-1].append(opening)
        self.lines[-1] = lines
        return opening

    def _brackets(self) -> str:
        """A class in brackets, whose opening one has been read."""
        parts, first = ["["], True
        if self.pattern.startswith("^", self.position):
            self.position += 1
            parts.append("^")
        while self.position < len(self.pattern):
            token = self._next()
            if token[0] == "]" and not first:
                return "".join([*parts, "]"])
            first = False
            ranges = _ranges(token)
            if ranges is not None:
                parts.append(_spell(ranges))
            elif token["quoted"] is not None:
                parts.append(re.escape(token["quoted"]))
            elif token["escape"] is not None and not token["escape"].isalpha():
                parts.append(re.escape(token["escape"]))
            elif token["escape"] is not None:
                parts.append(token[0])
            else:  # one character; what else the token has is read again
                self.position = token.start() + 1
                parts.append("-" if token[0] == "-" else re.escape(token[0][0]))
        raise re.error("missing ]")


def _ranges(token: re.Match[str]) -> Ranges | None:
    """The characters of a token that is one character by number or a class."""
    for group, base in (("hex", 16), ("hex2", 16), ("octal", 8)):
        if token[group] is not None:
            number = int(token[group], base)
            return [(number, number)]
    if token["property"] is not None:
        name = token["property"][1:].strip("{}")
        inverted = token["property"].startswith("P") != name.startswith("^")
        return _inverted(_category(name.strip("^"))) if inverted else _category(name.strip("^"))
    name = token["posix"] or token["perl"]
    if name is None:
        return None
    inverted = name.startswith("^") or name.isupper()
    pairs = _ASCII.get(name.strip("^").lower())
    if pairs is None:
        raise re.error(f"there is no class {name!r}")
    ranges = [(ord(a), ord(b)) for a, b in zip(pairs[::2], pairs[1::2], strict=True)]
    return _inverted(ranges) if inverted else ranges


@functools.cache
def _category(name: str) -> Ranges:
    """The characters of a Unicode general category such as ``L`` or ``Lu``."""
    if name == "Any":
        return [(0, sys.maxunicode)]
    inside = [unicodedata.category(chr(k)).startswith(name) for k in range(sys.maxunicode + 1)]
    if not any(inside):
        raise UnsupportedOpError(f"the Unicode class {name!r} is no general category")
    pairs = zip([False, *inside], [*inside, False], strict=True)
    edges = [k for k, (a, b) in enumerate(pairs) if a != b]
    return [(a, b - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _inverted(ranges: Ranges) -> Ranges:
    firsts = [0, *(b + 1 for _, b in ranges)]
    lasts = [*(a - 1 for a, _ in ranges), sys.maxunicode]
    return [(a, b) for a, b in zip(firsts, lasts, strict=True) if a <= b]


def _spell(ranges: Ranges) -> str:
    return "".join(f"\\U{a:08x}" if a == b else f"\\U{a:08x}-\\U{b:08x}" for a, b in ranges)

"""The ways in which a value may be written, as patterns.

Patterns of each value:

- *signs*: the value sign by sign, each sign plain or escaped on its own (percent-encoded, JSON, Python, HTML). So it
  does not matter which signs an encoder left alone.
- *base64* of the value at each of the three places where it may begin within a group of three bytes, as in
  `base64("user:" + value)`. The signs at its edges hold bits of the value too and belong to it. Also of its encoded
  forms.
- *hex*, either case, with or without separators between the bytes.

And the whole of a longer value in lowercase, as hosts and the names of headers are written.

A sign that is itself the beginning of an escape (`%`, a backslash, `&`) can be read in two ways, and a pattern that
tried both for each could be made to take forever by a hostile text. So each sign is read in one way, the longer, and
the whole forms (plain, encoded once, encoded twice) are added as fixed texts.

A pattern is a row of tokens, each with the ways to write it as regular expressions. They hold no character class with a
sign outside ASCII: encoded, they are patterns for bytes.
"""

from __future__ import annotations

import base64
import html
import html.entities
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, quote_plus, unquote

from noonbell.actions.secrets.secret_records import SHORTEST_VALUE

# A longer value is looked for sign by sign in pieces of this length, so that a form is not too long to be compiled.
_PIECE: Final = 256
# Beyond this many signs only whole forms are looked for, not every mixture; `nested` finds those.
_LONGEST_BY_SIGNS: Final = 16 * _PIECE
# Of a longer whole form so many signs are compared; what follows them belongs to it by its length alone.
_ENOUGH_SIGNS: Final = 256
# So many signs of base64, or bytes in hex, are no chance; what follows them belongs to them by its length alone.
_ENOUGH_TOKENS: Final = 64
# By so many tokens a form is found; see `finding`.
LURE_TOKENS: Final = 5
# A line of a value with several lines counts as a value from this length on: logs are written line by line.
_SHORTEST_LINE: Final = 16
# So does a piece of a URL.
_SHORTEST_PIECE: Final = 16
# Hosts and names of headers are written in lowercase. A short value could be a word then.
_SHORTEST_LOWERED: Final = 16
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:(?P<user>[^/?#\s]*)@)?[^/?#@\s]*(?P<tail>\S*)")
_BETWEEN: Final = re.compile("[/?&=#]")

# Lines of base64 are broken anywhere, and the break may itself be escaped.
_BREAKS: Final = (r"[\r\n]{1,2}+", r"\\(?:r\\)?+n")
_BREAK: Final = f"(?:{'|'.join(_BREAKS)})?+"
_BASE64_END: Final = r"(?:={1,2}|(?:%3[dD]){1,2})?+"
_SHORT_ESCAPES: Final = {
    '"': [r"\\\""],
    "'": [r"\\'"],
    "/": [r"\\/"],
    "\b": [r"\\b"],
    "\f": [r"\\f"],
    "\n": [r"\\n"],
    "\r": [r"\\r"],
    "\t": [r"\\t"],
    "\\": [r"\\\\"],
}


class Token(NamedTuple):
    """One sign, or one byte. Each way begins with a literal or with a class, so that a search can leap over it."""

    ways: tuple[str, ...]
    brief: str = ""  # all ways in one expression that takes less time to compile, where there is one

    @property
    def source(self) -> str:
        return self.brief or self.ways[0] if len(self.ways) == 1 else f"(?>{'|'.join(self.ways)})"


class Pattern(NamedTuple):
    """A form of a value. The ways of its first token begin with literals."""

    tokens: tuple[Token, ...]
    size: int  # signs of the value: of two values that fit at one place, the longer has to be tried first
    end: str = ""
    end_reach: int = 4  # how many signs `end` may take
    shares_edge: bool = False  # the sign before it holds bits of the value

    @property
    def source(self) -> str:
        return "".join([*(token.source for token in self.tokens), self.end])


def patterns(value: str) -> Iterator[Pattern]:
    """Every pattern of a value; some may come twice."""
    yield from _patterns_of(value, by_signs=True)
    lines = value.splitlines()
    if len(lines) > 1:
        for line in lines:
            if len(line.strip()) >= _SHORTEST_LINE:
                yield from _patterns_of(line.strip(), by_signs=False)


def url_parts(value: str) -> set[str]:
    """Return what is secret in a URL by itself: the password, the path with its query, and every long piece of them.

    A server that repeats a request in its answer repeats the path, not the URL.
    """
    found = _URL.fullmatch(value)
    if found is None:
        return set()
    pieces = {found["tail"], *_BETWEEN.split(found["tail"]), found["user"] or ""}
    pieces |= {unquote(piece) for piece in pieces}
    password = (found["user"] or "").partition(":")[2]
    hidden = {piece for piece in pieces if len(piece) >= _SHORTEST_PIECE} | {password, unquote(password)}
    return {piece for piece in hidden if len(piece) >= SHORTEST_VALUE and len(set(piece)) >= 3}


def whole_forms(value: str) -> set[str]:
    """The fixed texts: what the usual encoders make of the value, once and twice over."""
    once = _encoded(value)
    return once.union(*map(_encoded, once))


def beginnings(value: str) -> set[str]:
    """The forms in which a cut text may end with the first part of the value."""
    found = whole_forms(value)
    data = value.encode()
    for lead in range(3):
        core = _base64_core(data, lead)
        found |= {core, core.replace("+", "-").replace("/", "_")}
    return found | {data.hex(), data.hex().upper()}


def _patterns_of(value: str, *, by_signs: bool) -> Iterator[Pattern]:
    size = len(value)
    whole = whole_forms(value)
    pieces = _pieces(value) if by_signs else []
    for piece in pieces:
        yield Pattern(tuple(_sign(char) for char in piece), len(piece))
    if pieces != [value] or len(whole) > 1:
        yield from (_fixed(form, size) for form in whole)
    for form in _encoded(value) if by_signs else {value}:
        yield from _base64(form.encode(), size)
    yield _hex(value.encode(), size)
    if size >= _SHORTEST_LOWERED and (lowered := value.lower()) != value:
        yield _fixed(lowered, size)


def _pieces(value: str) -> list[str]:
    """The value, or pieces of it as far as it is looked for sign by sign; none is shorter than the others."""
    covered = min(len(value), _LONGEST_BY_SIGNS)
    if covered <= _PIECE:
        return [value]
    begins = [min(begin, covered - _PIECE) for begin in range(0, covered, _PIECE)]
    return [value[begin : begin + _PIECE] for begin in begins]


def _fixed(form: str, size: int) -> Pattern:
    """Return the pattern of a fixed text: a few tokens by which it is found, and the rest in one."""
    # signs outside ASCII are several bytes: their length in text and in bytes differs
    compared = form[:_ENOUGH_SIGNS] if form.isascii() else form
    tokens = tuple(Token((re.escape(piece),)) for piece in (*compared[:LURE_TOKENS], compared[LURE_TOKENS:]) if piece)
    rest = len(form) - len(compared)
    return Pattern(tokens, size, rf"[\s\S]{{0,{rest}}}+" if rest else "", rest)


def _encoded(value: str) -> set[str]:
    percent = {quote(value, safe=""), quote(value), quote_plus(value)}
    lower = {re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), form) for form in percent}
    in_json = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    in_python = {repr(value)[1:-1], repr(value.encode())[2:-1]}
    in_html = {html.escape(value), html.escape(value, quote=False)}
    return {value} | percent | lower | in_json | in_python | in_html


@lru_cache(maxsize=1)
def _entities() -> dict[str, list[str]]:
    """The names that HTML has for a sign, such as `amp;`."""
    found: dict[str, list[str]] = {}
    for name, char in html.entities.html5.items():
        if name.endswith(";"):
            found.setdefault(char, []).append(name)
    return found


@lru_cache(maxsize=1024)
def _sign(char: str) -> Token:
    """The ways to write one sign, as expressions, the longer first."""
    data = char.encode()
    utf16 = char.encode("utf-16-be").hex()
    ways = [
        "".join(r"\\u" + _either_case(utf16[at : at + 4]) for at in range(0, len(utf16), 4)),
        "".join(r"\\x" + _either_case(f"{byte:02x}") for byte in data),
        "".join("%" + _either_case(f"{byte:02x}") for byte in data),
        *_SHORT_ESCAPES.get(char, []),
    ]
    ways += [f"&{name}" for name in _entities().get(char, ())]
    code = f"0{{0,8}}{ord(char)}(?![0-9])|[xX]0{{0,8}}{_either_case(f'{ord(char):x}')}(?![0-9a-fA-F])"
    ways.append(f"&#(?:{code});?+")
    if ord(char) > 127:
        # UTF-8 that was read as Latin-1, as header values are; and Latin-1 itself among bytes
        ways.append("".join(re.escape(latin) for latin in data.decode("latin-1")))
        if ord(char) < 256:
            ways += [r"\\x" + _either_case(f"{ord(char):02x}"), f"\\x{ord(char):02x}"]
    if char == " ":
        ways.append(r"\+")
    ways.append(re.escape(char))
    return Token(tuple(dict.fromkeys(ways)))


def _base64(data: bytes, size: int) -> Iterator[Pattern]:
    for lead in range(3):
        core = _base64_core(data, lead)
        first, *others = (_base64_ways(char) for char in core[:_ENOUGH_TOKENS])
        tokens = (Token(first), *(_breakable(ways) for ways in others))
        edge = r"[A-Za-z0-9+/_-]?+" if (lead + len(data)) % 3 else ""
        # breaks and escapes make it longer, but not twice as long
        rest = 2 * max(0, len(core) - _ENOUGH_TOKENS)
        loose = rf"[A-Za-z0-9+/_%\\\r\n-]{{0,{rest}}}+" if rest else ""
        yield Pattern(tokens, size, loose + edge + _BASE64_END, rest + 7, shares_edge=lead > 0)


def _base64_core(data: bytes, lead: int) -> str:
    """The signs that depend on the data alone where it begins `lead` bytes after the start of a group of three."""
    text = base64.b64encode(bytes(lead) + data).decode()
    return text[-(-8 * lead // 6) : 8 * (lead + len(data)) // 6]


def _base64_ways(char: str) -> tuple[str, ...]:
    if char == "+":
        return (r"\+", "-", "%2[bB]", r"\\u002[bB]")
    if char == "/":
        return ("/", "_", "%2[fF]", r"\\/", r"\\u002[fF]")
    return (char,)


@lru_cache(maxsize=128)
def _breakable(ways: tuple[str, ...]) -> Token:
    """A sign with or without a break before it. No way to write the sign begins as a break does."""
    sign = Token(ways).source
    return Token((*ways, *(broken + sign for broken in _BREAKS)), _BREAK + sign)


def _hex(data: bytes, size: int) -> Pattern:
    first, *others = (f"{byte:02x}" for byte in data[:_ENOUGH_TOKENS])
    second = _either_case(first[1])
    begin = Token(tuple(digit + second for digit in sorted({first[0], first[0].upper()})))
    tokens = (begin, *(_byte_in_hex(pair) for pair in others))
    rest = 3 * max(0, len(data) - _ENOUGH_TOKENS)
    return Pattern(tokens, size, f"[0-9a-fA-F :-]{{0,{rest}}}+" if rest else "", rest)


@lru_cache(maxsize=256)
def _byte_in_hex(pair: str) -> Token:
    digits = _either_case(pair)
    return Token((digits, f"[ :-]{digits}"), f"[ :-]?+{digits}")


def _either_case(digits: str) -> str:
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in digits)

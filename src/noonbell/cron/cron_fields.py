"""The five fields: their names, their ranges and the POSIX grammar of one of them.

A field is held as a bit mask: bit v is set when the value v matches. Rejections say what was found and what would be
right; which field and which expression they belong to is added by the caller.
"""

from __future__ import annotations

import re
from typing import Final

from noonbell.errors import FieldParseError

FIELD_NAMES: Final = ("minute", "hour", "day", "month", "weekday")
FIELD_RANGES: Final = {"minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 6)}

MAX_TEXT: Final = 1000

_RANGE_MASKS: Final = [[((2 << high) - 1) >> low << low for high in range(60)] for low in range(60)]
FULL_MASKS: Final = {name: _RANGE_MASKS[low][high] for name, (low, high) in FIELD_RANGES.items()}

# What people mostly write, looked up instead of read: '*' and each value, plain or with a leading zero.
_KNOWN: Final = {
    name: {"*": FULL_MASKS[name]}
    | {f"{value:02}": 1 << value for value in range(low, high + 1)}
    | {str(value): 1 << value for value in range(low, high + 1)}
    for name, (low, high) in FIELD_RANGES.items()
}

_NUMBER = re.compile(r"[0-9]+\Z")
_LETTERS = re.compile(r"[A-Za-z]{2,}")


def field_mask(text: str, name: str) -> int:
    """The bit mask of one field; raises FieldParseError."""
    known = _KNOWN[name]
    mask = known.get(text)
    if mask is not None:
        return mask
    if len(text) > MAX_TEXT:
        raise FieldParseError(f"is out of range: over {MAX_TEXT} characters", text, name)
    low, high = FIELD_RANGES[name]
    mask = 0
    for element in text.split(","):
        bit = known.get(element)
        if bit is not None and element != "*":
            mask |= bit
            continue
        first, dash, last = element.partition("-")
        # isdigit alone would let other scripts' digits through, and int() would read them
        if first.isdigit() and first.isascii() and (not dash or (last.isdigit() and last.isascii())):
            start = int(first)
            end = int(last) if dash else start
            if low <= start <= end <= high:
                mask |= _RANGE_MASKS[start][end]
                continue
        raise FieldParseError(_reason(element, name), text, name)
    return mask


def _out_of_range(element: str, name: str) -> str:
    low, high = FIELD_RANGES[name]
    hint = "; Sunday is 0" if name == "weekday" and element.lstrip("0") == "7" else ""
    return f"value {_shown(element)} is out of range {low}-{high}{hint}"


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 40 else repr(text[:40]) + "…"


def _reason(element: str, name: str) -> str:
    """Why an element is not a number or a range: the likeliest mistake first."""
    low, high = FIELD_RANGES[name]
    if not element:
        return "has an empty element in its list"
    if "/" in element:
        return f"uses step syntax {_shown(element)}; list the values instead"
    if element == "*":
        return "has '*' inside a list; '*' must be alone"
    if element.startswith("@"):
        return f"contains the macro {_shown(element)}; write the five fields"
    if any(token in element for token in "?#") or element in {"L", "W", "H", "C", "LW"}:
        return f"uses the extension {_shown(element)}, which POSIX does not have"
    bounds = element.split("-")
    if len(bounds) > 2 or (len(bounds) == 2 and not all(bounds)):
        return f"has a malformed range {_shown(element)}; a range is two numbers, such as {low}-{high}"
    for bound in bounds:
        if not _NUMBER.match(bound):
            if _LETTERS.match(bound):
                return f"contains the name {_shown(bound)}; use numbers from {low} to {high}"
            return f"contains {_shown(bound)}, which is not a decimal number"
    for bound in bounds:
        if len(bound.lstrip("0")) > 4 or not low <= int(bound) <= high:
            return _out_of_range(bound, name)
    return f"has a wrap-around range {_shown(element)}; the start must not be after the end"


def mask_values(mask: int) -> list[int]:
    """The values of a mask, ascending."""
    values = []
    while mask:
        low = mask & -mask
        values.append(low.bit_length() - 1)
        mask ^= low
    return values

"""Translation of other cron dialects to POSIX.

`translate` reads what people type elsewhere and returns the POSIX expression that fires at exactly the same minutes.
Where there is none, or where two dialects read the same text differently, it refuses and says why: a schedule that is
nearly right is worse than an error. A text that is POSIX already comes back as it is, with single blanks.

What is read, and how:

- Five fields are read as Vixie cron and its kin do: steps (`*/15`, `0-30/5`; `5/10` runs from 5 to the end of the
  field), names (`jan`, `MON`, `sunday`), 7 for Sunday, wrap-around ranges (`22-2`, `fri-mon`), `*` in a list, `?` as
  `*` in the day and weekday fields, and the macros from `@yearly` to `@hourly`.
- When the day or the weekday field *begins* with `*`, Vixie cron wants both to match; otherwise one is enough. POSIX
  has only the second rule, so `0 0 */2 * 1` (odd days that are Mondays) has no equivalent and `0 0 1-31/2 * 1` has.
- Six and seven fields are Quartz: seconds first (they must be 0) and a year last (it must be `*`). Quartz counts
  weekdays from 1 = Sunday to 7 = Saturday, and numbers are shifted accordingly, but only beside a `?` in the day field,
  which Quartz demands. Spring writes six fields too, has 1 = Monday and merely tolerates `?`; so a `?` is taken as the
  sign of Quartz, and without it only names and `*` are accepted as weekdays.
- `5/2` in the weekday field is refused where it matters whether the field ends at 6 or at 7.
- A step larger than its field is refused: taken by the letter, `*/90` is minute 0, which is never meant.

Not here: `L`, `W`, `#`, `H`, `@reboot`, `@every`, seconds, years. They cannot be said in POSIX.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from noonbell.cron.cron_fields import FIELD_NAMES, FIELD_RANGES, MAX_TEXT, field_mask
from noonbell.cron.days import can_match
from noonbell.errors import FieldParseError, InvalidCronExpressionError

_MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS: Final = "january february march april may june july august september october november december".split()
_WEEKDAYS: Final = "sunday monday tuesday wednesday thursday friday saturday".split()
_NAMES: Final = {
    "month": {name[:n]: i for i, name in enumerate(_MONTHS, 1) for n in (3, len(name))},
    "weekday": {name[:n]: i for i, name in enumerate(_WEEKDAYS) for n in (3, len(name))},
}
_QUARTZ_WEEKDAY: Final = "quartz weekday"
_BLANKS = re.compile(r"[ \t]+")
_ELEMENT = re.compile(r"(?P<first>\*|[A-Za-z]+|[0-9]+)(?:-(?P<last>[A-Za-z]+|[0-9]+))?(?:/(?P<step>[0-9]+))?\Z")
_EXTENSION = re.compile(r"(?:L(?:W|-[0-9]+)?|[0-9]+[LW]|[A-Za-z]{3}L|W|C|.*#.*|H(?:\(.*\))?(?:/.*)?)\Z", re.IGNORECASE)
# weekdays without a number in them, which Quartz and Spring read alike
_SAME_IN_SPRING = re.compile(r"(?:\*|[A-Za-z]+(?:-[A-Za-z]+)?(?:,[A-Za-z]+(?:-[A-Za-z]+)?)*)\Z")


class _RefusedError(Exception):
    """Why a field cannot be translated; the caller adds the expression."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Field:
    values: frozenset[int]
    is_full: bool
    is_star: bool  # begins with '*' or is '?': what Vixie cron goes by

    @property
    def text(self) -> str:
        return "*" if self.is_star and self.is_full else _listed(self.values)


def translate(text: str) -> str:
    """The POSIX expression of the same meaning; raises InvalidCronExpressionError where there is none."""
    if len(text) > MAX_TEXT:
        raise InvalidCronExpressionError(text, "expression", f"is longer than {MAX_TEXT} characters")
    parts = _BLANKS.sub(" ", text).strip(" \r\n").split(" ")
    try:
        if parts[0].startswith("@"):
            return _macro(parts)
        if len(parts) in (6, 7):
            posix = _from_quartz(parts)
        elif len(parts) == 5:
            posix = parts if _is_posix(parts) else _from_vixie(parts)
        else:
            found = len(parts) if parts[0] else 0
            raise _RefusedError("expression", f"has {found} parts; minute, hour, day, month and weekday are needed")
        _refuse_never(posix)
    except _RefusedError as refused:
        raise InvalidCronExpressionError(text, refused.field, refused.reason) from None
    return " ".join(posix)


def _macro(parts: list[str]) -> str:
    macro = parts[0].lower()
    if len(parts) == 1 and macro in _MACROS:
        return _MACROS[macro]
    if macro == "@reboot":
        reason = "is @reboot, which names an event and not a time"
    elif macro == "@every":
        reason = "is @every, an interval counted from a start; cron fields name civil times"
    else:
        reason = f"has an unknown macro; known are {', '.join(_MACROS)}"
    raise _RefusedError("expression", reason)


def _is_posix(parts: list[str]) -> bool:
    try:
        for part, name in zip(parts, FIELD_NAMES, strict=True):
            field_mask(part, name)
    except FieldParseError:
        return False
    return True


def _from_vixie(parts: list[str]) -> list[str]:
    minute, hour, day, month, weekday = (_read(part, name) for part, name in zip(parts, FIELD_NAMES, strict=True))
    if day.is_star or weekday.is_star:
        day, weekday = _both_must_match(day, weekday)
    return [field.text for field in (minute, hour, day, month, weekday)]


def _from_quartz(parts: list[str]) -> list[str]:
    if parts[0].strip("0"):
        raise _RefusedError("expression", f"has seconds {_shown(parts[0])}; POSIX fires at second 0 of a minute only")
    if len(parts) == 7 and parts[6] != "*":
        raise _RefusedError("expression", f"has the year {_shown(parts[6])}; POSIX repeats every year")
    _, _, _, day_text, _, weekday_text = parts[:6]
    if day_text == weekday_text == "?":
        raise _RefusedError("expression", "has '?' as day and as weekday; one of them must say when")
    if "?" not in (day_text, weekday_text) and not _SAME_IN_SPRING.match(weekday_text):
        raise _RefusedError(
            "weekday",
            f"has {_shown(weekday_text)} among {len(parts)} fields, where 1 is Sunday in Quartz and Monday in Spring; "
            "use names such as MON-FRI, or '?' as the day if it is Quartz",
        )
    names = (*FIELD_NAMES[:4], _QUARTZ_WEEKDAY)
    minute, hour, day, month, weekday = (_read(part, name) for part, name in zip(parts[1:6], names, strict=True))
    day, weekday = _both_must_match(day, weekday)
    return [field.text for field in (minute, hour, day, month, weekday)]


def _both_must_match(day: _Field, weekday: _Field) -> tuple[_Field, _Field]:
    """The two day fields where the dialect wants both: possible in POSIX when one of them holds on every day."""
    if not day.is_full and not weekday.is_full:
        raise _RefusedError(
            "expression",
            "wants its day and its weekday to match together, which POSIX cannot say: there, either one is enough",
        )
    if not weekday.is_full:
        day = replace(day, is_star=True)
    if not day.is_full:
        weekday = replace(weekday, is_star=True)
    return day, weekday


def _read(text: str, name: str) -> _Field:
    shift = 1 if name == _QUARTZ_WEEKDAY else 0
    name = name.removeprefix("quartz ")
    low, high = FIELD_RANGES[name]
    full = frozenset(range(low, high + 1))
    if text == "?" and name in ("day", "weekday"):
        return _Field(full, is_full=True, is_star=True)
    found: set[int] = set()
    for element in text.split(","):
        found.update(value - shift for value in _values(element, name, low + shift, high + shift))
    return _Field(frozenset(found), is_full=found == full, is_star=text.startswith("*"))


def _values(element: str, name: str, low: int, high: int) -> set[int]:
    """The values of one element of a list, folded into the field's range."""
    match = _ELEMENT.match(element)
    if match is None or (match["first"] == "*" and match["last"]):
        raise _RefusedError(name, _malformed(element))
    size = high - low + 1
    step = int(match["step"] or 1)
    if not 1 <= step <= size:
        raise _RefusedError(name, f"has step {step} in {_shown(element)}; a step here is from 1 to {size}")
    if match["first"] == "*":
        return set(range(low, high + 1, step))
    first = _number(match["first"], element, name, low, high)
    if match["last"]:
        last = _number(match["last"], element, name, low, high)
        if last < first:
            # 7-2 begins on Sunday; any other range that runs backwards passes the end of the field
            first, last = (low, last) if first > high else (first, last + size)
    else:
        last = high if match["step"] else first
        if match["step"] and low == 0 and size == 7 and first > 0 and (7 - first) % step == 0:
            clear = f"{first}-6/{step} or {first}-7/{step}" if first < 7 else "0"
            raise _RefusedError(
                name, f"has {_shown(element)}, which reaches Sunday only where weekdays end at 7; write {clear}"
            )
    return {low + (value - low) % size for value in range(first, last + 1, step)}


def _number(token: str, element: str, name: str, low: int, high: int) -> int:
    if not token.isdigit():
        names = _NAMES.get(name, {})
        if token.lower() not in names:
            raise _RefusedError(name, _malformed(element))
        return names[token.lower()] + (low if name == "weekday" else 0)
    value = int(token)
    top = 7 if name == "weekday" else high
    if not low <= value <= top:
        raise _RefusedError(name, f"value {_shown(token)} is out of range {low}-{top}")
    return value


def _malformed(element: str) -> str:
    if not element:
        return "has an empty element in its list"
    if element == "?":
        return "has '?', which belongs in the day or the weekday field, alone"
    if _EXTENSION.match(element):
        return f"uses {_shown(element)}, which no POSIX expression can say"
    return f"contains {_shown(element)}, which is not a number, name, range or step of this field"


def _refuse_never(posix: list[str]) -> None:
    if posix[4] != "*":
        return
    if not can_match(field_mask(posix[2], "day"), field_mask(posix[3], "month")):
        raise _RefusedError("expression", "never matches: no such day in any of these months")


def _listed(values: Iterable[int]) -> str:
    """Ascending, with runs of three and more as ranges."""
    runs: list[list[int]] = []
    for value in sorted(values):
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 40 else repr(text[:40]) + "…"

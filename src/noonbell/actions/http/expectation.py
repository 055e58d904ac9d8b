"""Expectations of an answer, which decide whether it is a success: its status, and what its body must say.

    "expect_status": [200, "202-204"]                          2xx where it is left out
    "assert": {"contains": "done"}
    "assert": {"json_path": "$.state", "equals": "ready"}
    "assert": {"json_path": "$.error", "exists": false}

Both kinds of assertion may be combined; then both must hold. A body that was cut is looked at as far as it came, and
cannot be read as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from noonbell.actions.checking import encodable
from noonbell.actions.egress import Incoming
from noonbell.actions.http.json_path import NOTHING, Step, parse_path, value_at
from noonbell.errors import ScheduleInvalidError

USUAL_STATUSES: Final = ((200, 299),)
_MOST_STATUSES: Final = 100
_LONGEST_CONTAINED: Final = 10_000
_STATUS_EXAMPLE: Final = 'a status such as 200, a range such as "200-299", or a list of them'

Ranges = tuple[tuple[int, int], ...]


class Expectation(msgspec.Struct, frozen=True):
    """The expectation of an answer, ready to be compared."""

    statuses: Ranges = USUAL_STATUSES
    contains: str | None = None
    path: tuple[Step, ...] | None = None
    written_path: str = ""
    exists: bool = True
    equals: Any = NOTHING

    def failure(self, answer: Incoming) -> tuple[str, str] | None:
        """Return the kind (`status` or `assertion`) and the reason of a failure, or None for a success."""
        if not any(low <= answer.status <= high for low, high in self.statuses):
            return "status", f"it answered {answer.status}, and {_ranges_text(self.statuses)} was expected"
        reason = self._unmet(answer)
        return None if reason is None else ("assertion", reason)

    def _unmet(self, answer: Incoming) -> str | None:
        if self.contains is not None and self.contains.encode() not in answer.body:
            return f"its body does not contain {self.contains!r:.100}{_as_far(answer)}"
        if self.path is None:
            return None
        try:
            found = value_at(answer.body, self.path)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return f"its body is not JSON{_as_far(answer)}"
        where = self.written_path
        if found is NOTHING:
            return f"its body has nothing at {where}" if self.exists else None
        if not self.exists:
            return f"its body has something at {where}, and nothing was expected"
        if self.equals is not NOTHING and not _same(found, self.equals):
            return f"its body has {_short(found)} at {where}, and {_short(self.equals)} was expected"
        return None


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are equal as JSON: true is not 1, at any depth."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _short(value: Any) -> str:
    written = msgspec.json.encode(value).decode()
    return written if len(written) <= 100 else written[:100] + "…"


def _as_far(answer: Incoming) -> str:
    return ", as far as it was read" if answer.cut else ""


def _ranges_text(statuses: Ranges) -> str:
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in statuses)


# --- checking ---------------------------------------------------------------------------------------------------------


def check_statuses(value: object) -> list[int | str]:
    """The expected statuses in the form that is stored."""
    many = value if isinstance(value, list | tuple) else [value]
    if not 1 <= len(many) <= _MOST_STATUSES:
        raise ScheduleInvalidError("action.expect_status", value, f"must be {_STATUS_EXAMPLE}")
    return [low if low == high else f"{low}-{high}" for low, high in map(_range, many)]


def _range(value: object) -> tuple[int, int]:
    low = high = value
    if isinstance(value, str):
        first, dash, last = value.partition("-")
        if first.strip().isdecimal() and (last.strip().isdecimal() or not dash):
            low, high = int(first), int(last if dash else first)
    if type(low) is not int or type(high) is not int or not 100 <= low <= high <= 599:
        raise ScheduleInvalidError("action.expect_status", value, f"must be {_STATUS_EXAMPLE}, from 100 to 599")
    return low, high


def check_assertion(value: object) -> dict[str, Any]:
    """The assertion in the form that is stored."""
    known = ("contains", "json_path", "equals", "exists")
    if not isinstance(value, Mapping) or not ({"contains", "json_path"} & value.keys()):
        right = 'must be an object such as {"contains": "done"} or {"json_path": "$.state", "equals": "ready"}'
        raise ScheduleInvalidError("action.assert", value, right)
    for key in value:
        if key not in known:
            raise ScheduleInvalidError(
                f"action.assert.{key}", value[key], f"is not known; known are {', '.join(known)}"
            )
    checked: dict[str, Any] = {}
    if "contains" in value:
        contained = value["contains"]
        if not isinstance(contained, str) or not 1 <= len(contained) <= _LONGEST_CONTAINED:
            right = f"must be a text of 1 to {_LONGEST_CONTAINED} characters"
            raise ScheduleInvalidError("action.assert.contains", contained, right)
        checked["contains"] = encodable("action.assert.contains", contained)
    if "json_path" in value:
        return checked | _checked_path(value)
    for key in ("equals", "exists"):
        if key in value:
            raise ScheduleInvalidError(f"action.assert.{key}", value[key], 'needs a "json_path"')
    return checked


def _checked_path(value: Mapping[str, Any]) -> dict[str, Any]:
    path = value["json_path"]
    try:
        parse_path(path if isinstance(path, str) else "")
    except ValueError as error:
        raise ScheduleInvalidError("action.assert.json_path", path, str(error)) from None
    checked: dict[str, Any] = {"json_path": path}
    exists = value.get("exists", True)
    if not isinstance(exists, bool):
        raise ScheduleInvalidError("action.assert.exists", exists, "must be True or False")
    if "equals" in value:
        if not exists:
            right = 'cannot be combined with "exists": false; what is not there equals nothing'
            raise ScheduleInvalidError("action.assert.equals", value["equals"], right)
        try:
            msgspec.json.encode(value["equals"])
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ScheduleInvalidError("action.assert.equals", value["equals"], f"is not JSON: {error}") from None
        checked["equals"] = value["equals"]
    elif not exists:
        checked["exists"] = False
    return checked


def expectation_of(action: Mapping[str, Any]) -> Expectation:
    """Return the expectation of a stored action."""
    statuses: Sequence[int | str] = action.get("expect_status", ())
    wanted = action.get("assert", {})
    path = wanted.get("json_path")
    return Expectation(
        statuses=tuple(map(_range, statuses)) or USUAL_STATUSES,
        contains=wanted.get("contains"),
        path=None if path is None else parse_path(path),
        written_path=path or "",
        exists=wanted.get("exists", True),
        equals=wanted.get("equals", NOTHING),
    )

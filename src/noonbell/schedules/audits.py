"""The audit as it is read: a stretch of missed slots, which is stored as one row, is read slot by slot.

A row keeps what its slots follow from, so they can be listed after its schedule was changed or deleted. Where that
gives another number of slots than were counted then, because the rules of the zone have changed since, the stretch is
returned as the range that was stored. The slots of one row share its audit_id; a cursor counts them within it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from noonbell.core.instants import moment
from noonbell.core.records import AuditEvent
from noonbell.core.turns import Slots
from noonbell.errors import ScheduleInvalidError
from noonbell.schedules.schedule_records import Audited, Page

# Between these a number of a detail is an instant: the years 2001 to 2255; durations are shorter.
_EARLIEST, _LATEST = 10**15, 9 * 10**15
_USERS_OWN: Final = frozenset({"action", "payload"})


class Place(NamedTuple):
    """A position in the audit: read up to `row`, and of that row `slots`; 0 means all of them."""

    row: int = 0
    slots: int = 0

    @classmethod
    def of(cls, cursor: str | None) -> Place:
        if cursor is None:
            return cls()
        try:
            row, _, slots = cursor.partition(".")
            return cls(int(row), int(slots or 0))
        except (AttributeError, ValueError):  # not even a text
            raise ScheduleInvalidError("cursor", cursor, "must be the next_cursor of a page") from None

    @property
    def after_row(self) -> int:
        """The last row that need not be read again."""
        return self.row - 1 if self.slots else self.row

    @property
    def before_row(self) -> int:
        """The same, where the newest come first."""
        return self.row + 1 if self.slots else self.row

    def __str__(self) -> str:
        return f"{self.row}.{self.slots}" if self.slots else str(self.row)


def page(rows: Sequence[tuple[int, AuditEvent]], after: Place, size: int, *, newest: bool = False) -> Page[Audited]:
    """The first `size` events of rows that were read past `after`; of the rows, one more than `size` is enough.

    With `newest` the rows come from the newest to the oldest, and so do the slots of each.
    """
    items: list[Audited] = []
    reached = after
    for number, event in rows:
        slots = after.slots if number == after.row else 0
        details = reversed(list(_details(event))) if newest else _details(event)
        for place, detail in enumerate(islice(details, slots, None), slots + 1):
            if len(items) == size:
                return Page(items, str(reached))
            at = moment(event.at)
            items.append(Audited(number, at, event.event, event.subject, event.actor, detail, event.team))
            reached = Place(number, place)
        reached = Place(number)
    return Page(items, None)


def dated(value: Any, write: Callable[[datetime], str]) -> Any:
    """A detail with its instants, which are stored as microseconds, as `write` writes them.

    What users have put in, the action and the payload of a schedule, stays as it is.
    """
    if isinstance(value, dict):
        return {name: one if name in _USERS_OWN else dated(one, write) for name, one in value.items()}
    if isinstance(value, list):
        return [dated(one, write) for one in value]
    if type(value) is int and _EARLIEST < value < _LATEST:
        return write(moment(value))
    return value


def _details(event: AuditEvent) -> Iterator[dict[str, Any]]:
    detail = msgspec.json.decode(event.detail)
    kept = detail.pop("slots_of", None) if isinstance(detail, dict) else None
    slots = None if kept is None else _slots(msgspec.convert(kept, Slots), detail)
    if slots is None:
        yield detail
        return
    for slot in slots:
        yield {"scheduled_for": slot, "count": 1, "reason": detail["reason"]}


def _slots(kept: Slots, detail: dict[str, Any]) -> list[int] | None:
    timing = kept.timing(detail["from"])
    found: list[int] = []
    slot: int | None = detail["from"]
    while slot is not None and slot <= detail["to"] and len(found) <= detail["count"]:
        found.append(slot)
        slot = timing.following(slot)
    return found if len(found) == detail["count"] else None

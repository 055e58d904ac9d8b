"""The audit as it is read: a stretch of missed slots, which is stored as one row, is told slot by slot.

A row keeps what its slots follow from, so it can be told after its schedule was changed or deleted. Where that gives
another number of slots than were counted then, because the rules of the zone have changed since, the stretch is told as
the range that was stored. The slots of one row share its audit_id; a cursor counts them within it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from noonbell.actions.callback import moment
from noonbell.core.records import AuditEvent
from noonbell.core.turns import Slots
from noonbell.errors import ScheduleInvalidError
from noonbell.schedules.records import Audited, Page


class Place(NamedTuple):
    """How far an audit was read: up to `row`, and of that row `told` slots; 0 stands for all of them."""

    row: int = 0
    told: int = 0

    @classmethod
    def of(cls, cursor: str | None) -> Place:
        if cursor is None:
            return cls()
        try:
            row, _, told = cursor.partition(".")
            return cls(int(row), int(told or 0))
        except (AttributeError, ValueError):  # not even a text
            raise ScheduleInvalidError("cursor", cursor, "must be the next_cursor of a page") from None

    @property
    def after_row(self) -> int:
        """The last row that need not be read again."""
        return self.row - 1 if self.told else self.row

    def __str__(self) -> str:
        return f"{self.row}.{self.told}" if self.told else str(self.row)


def page(rows: Sequence[tuple[int, AuditEvent]], after: Place, size: int) -> Page[Audited]:
    """The first `size` events of rows that were read past `after`; of the rows, one more than `size` is enough."""
    items: list[Audited] = []
    reached = after
    for number, event in rows:
        told = after.told if number == after.row else 0
        for place, detail in enumerate(islice(_details(event), told, None), told + 1):
            if len(items) == size:
                return Page(items, str(reached))
            at = moment(event.at)
            items.append(Audited(number, at, event.event, event.subject, event.actor, detail, event.team))
            reached = Place(number, place)
        reached = Place(number)
    return Page(items, None)


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

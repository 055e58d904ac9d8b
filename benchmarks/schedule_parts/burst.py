"""What is measured: how many schedules there are, when they come, and what they do."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from benchmarks.engine_parts.conditions import DUE, SPECS

SECOND = 1_000_000
HOUR = 3_600 * SECOND
DAY = 24 * HOUR
CREATED_AT = int(datetime.fromisoformat("2026-01-15T12:15:20+00:00").timestamp()) * SECOND
FIRST_AT = int(datetime.fromisoformat(DUE).timestamp()) * SECOND
# A row that is late by less than a minute fires. So the clock may pass by all of these at once.
SPREAD_SECONDS = 50

_REST = {"type": "cron", "spec": "0 0 1 7 *", "action": {"kind": "callback", "name": "work"}}
_PAYLOAD = {"text": "Good morning", "to": ["somebody@example.com"], "about": {"number": 1}}


class Kind(NamedTuple):
    """Schedules of one kind come due in a minute of each day that is theirs alone."""

    name: str
    due_at: int  # on the first day; all of them are due by then
    cron: str
    fields: dict[str, Any]


KINDS = (
    Kind("callbacks", FIRST_AT, "30 12", {}),
    # each row wakes at an instant of its own, this time and the next
    Kind("own times", FIRST_AT + HOUR + SPREAD_SECONDS * SECOND, "30 13", {"jitter_seconds": SPREAD_SECONDS}),
    Kind("messages", FIRST_AT + 2 * HOUR, "30 14", {"action": {"kind": "message", "to": "inbox"}, "payload": _PAYLOAD}),
)
# A burst is at most this part of the schedules.
SHARE = len(KINDS) + 1


def fields(schedules: int, burst: int) -> Iterator[dict[str, Any]]:
    """Schedules of which a burst of each kind comes due every day, spread evenly as in a store that has grown."""
    due = len(KINDS) * burst
    for number in range(schedules):
        place = number * due // schedules
        found = {**_REST, "name": f"schedule {number}"}
        if due and (number == 0 or place != (number - 1) * due // schedules):
            kind = KINDS[place % len(KINDS)]
            found |= {"spec": SPECS[place // len(KINDS) % len(SPECS)].format(kind.cron), **kind.fields}
        yield found

"""What is measured: how many schedules there are, when they come, and what they do."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
CREATED_AT = int(datetime.fromisoformat("2026-01-15T12:15:20+00:00").timestamp()) * 1_000_000
CALLBACKS_AT = int(datetime.fromisoformat("2026-01-15T12:30:00+00:00").timestamp()) * 1_000_000
MESSAGES_AT = CALLBACKS_AT + HOUR
# The lanes of the bare statements. Noonbell's schedules are in another one.
OURS, CALLBACKS, MESSAGES = "ours", "bare callbacks", "bare messages"

# Five specs of the same minute of every day, so that not every schedule is the same.
_SPECS = ("{} * * *", "{} 1-31 * *", "{} * 1-12 *", "{} * * 0-6", "{} 1-31 1-12 *")
_REST = "0 0 1 7 *"
PAYLOAD = {"text": "Good morning", "to": ["somebody@example.com"], "about": {"number": 1}}
# Texts of the bare statements, about as long as Noonbell's.
BODY = '{"specversion":"1.0","filler":"' + 480 * "x" + '"}'
DEFINITION = '{"action":{"kind":"callback","name":"work"}}'
POLICIES = '{"type":"cron","catch_up":"skip","definition":{"action":{"kind":"callback"}},"filler":"' + 60 * "x" + '"}'
DETAIL = '{"name":"burst-1","type":"cron","spec":"30 12 * * *","timezone":"UTC","filler":"' + 100 * "x" + '"}'


def fields(schedules: int, burst: int) -> Iterator[dict[str, Any]]:
    """Schedules of which four bursts come due, spread evenly as in a store that has grown.

    Two are for Noonbell, one with callbacks and one with messages, each in a minute of its own; two are for the bare
    statements, which find them by their names.
    """
    for number in range(schedules):
        place = number * 4 * burst // schedules
        due = burst and (number == 0 or place != (number - 1) * 4 * burst // schedules)
        spec, action, name = _REST, {"kind": "callback", "name": "work"}, "rest"
        more: dict[str, Any] = {}
        if due:
            name = (OURS, OURS, CALLBACKS, MESSAGES)[place % 4]
            if name == OURS:
                spec = _SPECS[place // 4 % len(_SPECS)].format("30 13" if place % 4 else "30 12")
            if place % 2:
                action, more = {"kind": "message", "to": "inbox"}, {"payload": PAYLOAD}
        yield {"name": f"{name} {number}", "type": "cron", "spec": spec, "action": action, **more}

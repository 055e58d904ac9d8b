"""Alerts about a monitor's flips: `failed` (it is down), `late`, and `recovered` (up, after one of these).

A flip that causes an alert is stored with the monitor until `Alerts` has taken it, so a crash in between loses none.
It may be given twice then, with the same `flip_id`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, Protocol

import msgspec

from noonbell.monitors.monitor_state import Flip, Status

logger = logging.getLogger("noonbell.monitors")

AlertEvent = Literal["failed", "recovered", "late"]


class MonitorFlipped(msgspec.Struct, frozen=True):
    """A flip, as it is passed to `Alerts`."""

    flip_id: str
    event: AlertEvent
    monitor_id: str
    name: str
    team: str
    tags: tuple[str, ...]
    was: Status
    status: Status
    at: datetime
    reason: str
    lasted: timedelta  # how long it was in the state before
    after: AlertEvent | None = None  # the event of this monitor that was notified before


class Alerts(Protocol):
    """A receiver of flips. If it raises, it has not taken this one; it gets it again after a while."""

    async def monitor_flipped(self, flipped: MonitorFlipped) -> None: ...


class LoggedAlerts:
    """A line in the log for each: what there is without any rules."""

    async def monitor_flipped(self, flipped: MonitorFlipped) -> None:
        level = logging.INFO if flipped.event == "recovered" else logging.WARNING
        logger.log(
            level, "monitor %s monitor=%s name=%r since=%s reason=%s", flipped.status, flipped.monitor_id,
            flipped.name, flipped.at.isoformat(), flipped.reason,
        )  # fmt: skip


def alert_event(flip: Flip, notified: AlertEvent | None) -> AlertEvent | None:
    """The event that a flip is outside, where `notified` is the one before it; None where there is none.

    What was notified as down or late is notified as up again, be it after a pause.
    """
    if flip.status == "down":
        return "failed"
    if flip.status == "late":
        return "late"
    return "recovered" if flip.status == "up" and (notified in ("failed", "late") or flip.was == "down") else None


def alerts_of(flips: Sequence[Flip], notified: AlertEvent | None) -> list[tuple[int, AlertEvent, AlertEvent | None]]:
    """The flips of one change that others are notified of: place, event, and the event before it.

    A lateness that is over already is none of them.
    """
    found: list[tuple[int, AlertEvent, AlertEvent | None]] = []
    for place, flip in enumerate(flips):
        event = alert_event(flip, notified)
        if event is not None and (event != "late" or place == len(flips) - 1):
            found.append((place, event, notified))
            notified = event
    return found

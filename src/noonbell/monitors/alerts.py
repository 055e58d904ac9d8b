"""What others are told of a monitor's flips: `failed` (it is down), `recovered` (it was down) and `late`.

A flip that others are told of is stored with the monitor until `Alerts` has taken it, so a crash in between loses none.
It may be given twice then, with the same `flip_id`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, Protocol

import msgspec

from noonbell.monitors.state import Flip, Status

logger = logging.getLogger("noonbell.monitors")

AlertEvent = Literal["failed", "recovered", "late"]


class MonitorFlipped(msgspec.Struct, frozen=True):
    """A flip, for whoever passes it on."""

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


class Alerts(Protocol):
    """Where flips go. Whatever it raises means that it has not taken this one; it is given again after a while."""

    async def monitor_flipped(self, flipped: MonitorFlipped) -> None: ...


class LoggedAlerts:
    """A line in the log for each: what there is without any rules."""

    async def monitor_flipped(self, flipped: MonitorFlipped) -> None:
        level = logging.INFO if flipped.event == "recovered" else logging.WARNING
        logger.log(
            level, 'Monitor "%s" is %s since %s: %s', flipped.name, flipped.status, flipped.at.isoformat(),
            flipped.reason,
        )  # fmt: skip


def alert_event(flip: Flip) -> AlertEvent | None:
    """What a flip is called outside; None where nobody is told."""
    if flip.status == "down":
        return "failed"
    if flip.status == "late":
        return "late"
    return "recovered" if flip.was == "down" and flip.status == "up" else None


def worth_telling(flips: Sequence[Flip]) -> list[int]:
    """The places of those flips of one change that others are told of; a lateness that is over already is not."""
    last = len(flips) - 1
    return [
        place
        for place, flip in enumerate(flips)
        if alert_event(flip) is not None and (flip.status != "late" or place == last)
    ]

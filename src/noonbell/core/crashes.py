"""Runs that were executing when their engine died. Pure.

Nobody knows which of them brought it down, if any did. Each counts the deaths it was part of (`crashes`), and one that
has counted MOST_CRASHES is not started again: it ends as abandoned, which is told, and its schedule goes on. What makes
that fair to the neighbours is that an engine starts suspects by and by (see `engine.suspects`): a run counts its third
death only where no other suspect had just begun.

A run that an engine cuts off because it is stopped has brought down nobody: that is no death.
"""

from __future__ import annotations

from typing import Final

import msgspec

from noonbell.core.records import MOST_CRASHES, AuditEvent
from noonbell.core.turns import ENGINE

_encode = msgspec.json.Encoder().encode

# What is told of an attempt that was executing when its engine died, and of one that its engine has cut off.
INTERRUPTED: Final = "interrupted: the instance ended before the attempt did"
CUT_OFF: Final = "interrupted: the engine was stopped before the attempt had ended"


def is_poisonous(crashes: int) -> bool:
    """Whether a run that has just counted another death, the `crashes` before it included, is given up."""
    return crashes + 1 >= MOST_CRASHES


def quarantined(schedule_id: str, run_for: int, attempts: int, crashes: int, at: int, *, team: str) -> AuditEvent:
    """What is told of a run that is given up."""
    detail = {
        "run_for": run_for,
        "attempts": attempts,
        "crashes": crashes + 1,
        "reason": f"the engine died {crashes + 1} times while this run was executing",
    }
    return AuditEvent(at, "schedule.quarantined", schedule_id, ENGINE, _encode(detail).decode(), team)

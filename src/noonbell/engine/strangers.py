"""Schedules whose action this engine does not know: they are left to others that share the lane.

Engines of one lane may differ: a program that brings its functions, a service beside it for people, an older version
during an upgrade. A run that such an engine claims could only fail. So, while others are up, it leaves what it does not
know as it stands, due as before. After a minute nobody seems to know it, and it is claimed all the same: its failure
says what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noonbell.core.records import StoredSchedule
from noonbell.core.turns import executes_alone

PATIENCE: Final = 60_000_000


class Strangers:
    """Those that were left to others at the last look, and since when."""

    def __init__(self, knows: Callable[[StoredSchedule], bool], others: Callable[[], bool]) -> None:
        self._knows = knows
        self._others = others
        self._others_up = False
        self._now = 0
        self._since: dict[int, int] = {}
        self._before: dict[int, int] = {}

    @property
    def kept(self) -> int:
        return len(self._since)

    def begin(self, now: int) -> None:
        """A look begins."""
        self._now, self._others_up = now, self._others()
        self._before, self._since = self._since, {}

    def leaves(self, stored: StoredSchedule) -> bool:
        if not self._others_up or self._knows(stored) or executes_alone(stored):
            return False
        since = self._before.get(stored.sid, self._now)
        if self._now - since >= PATIENCE:
            return False
        self._since[stored.sid] = since
        return True

"""Schedules whose action this engine does not know: they are deferred, for other engines of the lane.

Engines of one lane may differ: a program that brings its functions, a service beside it for people, an older version
during an upgrade. A run that such an engine claims could only fail. So, while other engines are up, it leaves the
schedule due as it is. After a minute no engine seems to know the action, and the schedule is claimed all the same: the
failure of the run says what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noonbell.core.records import StoredSchedule
from noonbell.core.turns import executes_alone

PATIENCE: Final = 60_000_000


class UnknownActions:
    """The schedules that were deferred at the last poll, and since when."""

    def __init__(self, knows: Callable[[StoredSchedule], bool], others: Callable[[], bool]) -> None:
        self._knows = knows
        self._others = others
        self.others_up = False  # as the poll began; while no other engine is up, nothing is deferred
        self._now = 0
        self._since: dict[int, int] = {}
        self._before: dict[int, int] = {}

    @property
    def kept(self) -> int:
        return len(self._since)

    def begin(self, now: int) -> None:
        """A poll begins."""
        self._now, self.others_up = now, self._others()
        self._before, self._since = self._since, {}

    def defers(self, stored: StoredSchedule) -> bool:
        """Return whether the schedule stays due as it is."""
        if not self.others_up or self._knows(stored) or executes_alone(stored):
            return False
        since = self._before.get(stored.sid, self._now)
        if self._now - since >= PATIENCE:
            return False
        self._since[stored.sid] = since
        return True

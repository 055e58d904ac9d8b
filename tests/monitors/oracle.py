"""A slow second opinion on monitors: it lives through every step of time and looks at the clock.

Nothing here imports `noonbell`. Time goes in steps of STEP seconds; at each, first the time is looked at and then the
pings of that moment, one after the other. Occurrences of a cron rhythm are given as a list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

STEP = 5
EARLY = 10


@dataclass
class SlowMonitor:
    """One monitor. `every` is an interval in seconds, or `occurrences` are those of a cron rhythm."""

    grace: int
    max_run: int
    every: int | None = None
    occurrences: Sequence[int] = ()
    status: str = "new"
    alive: int = 0
    open_runs: dict[str, int] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    story: list[tuple[int, str]] = field(default_factory=list)

    def live(self, start: int, end: int, pings: Sequence[tuple[int, str, str]]) -> list[tuple[int, str]]:
        """The flips of a life, as (when, to what)."""
        waiting = list(pings)
        for now in range(start, end, STEP):
            self._time(now)
            while waiting and waiting[0][0] == now:
                _, kind, run = waiting.pop(0)
                self._ping(now, kind, run)
        assert not waiting
        return self.story

    def _become(self, now: int, status: str) -> None:
        if status != self.status:
            self.status = status
            self.story.append((now, status))

    def _time(self, now: int) -> None:
        if self.status not in ("up", "late"):
            return
        if self.open_runs:
            hung = [run for run, began in self.open_runs.items() if now >= began + self.max_run]
            if hung:
                for run in hung:
                    del self.open_runs[run]
                self._become(now, "down")
            return
        due = self._due()
        if due is None:
            return
        if now >= due + self.grace:
            self._become(now, "down")
        elif now >= due:
            self._become(now, "late")

    def _due(self) -> int | None:
        if self.every is not None:
            return self.alive + self.every
        return next((at for at in self.occurrences if at > self.alive + EARLY), None)

    def _ping(self, now: int, kind: str, run: str) -> None:
        if kind == "log" or (kind == "start" and run in self.ended):
            return
        self.alive = now
        if kind == "start":
            self.open_runs[run] = now
            if self.status != "down":
                self._become(now, "up")
            return
        self.open_runs.pop(run, None)
        if run:
            self.ended.add(run)
        if self.status == "down":
            self.open_runs = {name: began for name, began in self.open_runs.items() if now < began + self.max_run}
        self._become(now, "up" if kind == "success" else "down")

"""An index of wake-ups: finds the schedules that wake first, without looking at the others.

Two heaps with lazy deletion: what was due at the latest look, and what was not. A look moves entries from one to the
other as time goes by, so it costs what has become due, never what exists; only a clock that went back moves some the
other way. `_wakes` is the truth; an entry that disagrees with it is left over and is dropped when it comes up.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

_Entry = tuple[float, int]


class WakeIndex:
    """The wake-ups of schedules, one each, in order of (instant, sid)."""

    __slots__ = ("_due", "_later", "_looked_at", "_wakes")

    def __init__(self) -> None:
        self._wakes: dict[int, float] = {}
        self._due: list[_Entry] = []
        self._later: list[_Entry] = []
        self._looked_at = float("-inf")

    def put(self, sid: int, at: object) -> None:
        """Wake it at this instant. Anything but an instant (None, or damage) never wakes."""
        if not isinstance(at, int | float):
            self._wakes.pop(sid, None)
            return
        if self._wakes.get(sid) == at:
            return
        self._wakes[sid] = at
        heappush(self._due if at <= self._looked_at else self._later, (at, sid))
        if len(self._due) + len(self._later) > 2 * len(self._wakes) + 64:
            self._sweep()

    def take(self, now: int, limit: int) -> list[int]:
        """Remove and return up to `limit` sids that wake by `now`, the earliest first."""
        self._look(now)
        taken: list[int] = []
        while self._due and len(taken) < limit:
            at, sid = heappop(self._due)
            if self._wakes.get(sid) == at:
                del self._wakes[sid]
                taken.append(sid)
        return taken

    def among(self, sids: Iterable[int], now: int) -> list[int]:
        """Return the sids that wake by `now`, the earliest first; they stay."""
        wakes = ((self._wakes.get(sid), sid) for sid in dict.fromkeys(sids))
        return [sid for _, sid in sorted((at, sid) for at, sid in wakes if at is not None and at <= now)]

    def following(self, now: int) -> int | None:
        """The earliest wake-up after `now`."""
        self._look(now)
        while self._later and self._wakes.get(self._later[0][1]) != self._later[0][0]:
            heappop(self._later)
        return int(self._later[0][0]) if self._later else None

    def _look(self, now: int) -> None:
        if now < self._looked_at:
            self._looked_at = now
            self._sweep()
        self._looked_at = now
        while self._later and self._later[0][0] <= now:
            heappush(self._due, heappop(self._later))

    def _sweep(self) -> None:
        entries = [(at, sid) for sid, at in self._wakes.items()]
        self._due = [entry for entry in entries if entry[0] <= self._looked_at]
        self._later = [entry for entry in entries if entry[0] > self._looked_at]
        heapify(self._due)
        heapify(self._later)

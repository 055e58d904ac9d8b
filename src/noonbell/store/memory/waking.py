"""Wake-ups of schedules in plain dicts, read without a claim."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from itertools import islice
from typing import Any

from noonbell.core.records import StoredSchedule
from noonbell.store.memory.handle import MemoryPart
from noonbell.store.memory.stored import stored
from noonbell.store.upcoming import MOST_SOUGHT


class WakingInMemory(MemoryPart):
    """The verbs of schedules that read wake-ups."""

    async def upcoming(self, after: int, upto: int, limit: int, team: str | None = None) -> list[StoredSchedule]:
        rows = self._tables().schedules
        soon = (sid for sid in self._soon(after, upto)[:MOST_SOUGHT] if team in (None, rows[sid]["team"]))
        return [stored(self.data, sid) for sid in islice(soon, limit)]

    def _soon(self, after: int, upto: int) -> list[int]:
        data = self._tables()
        found = [(data.schedules[sid]["next_run_at"], sid) for sid in data.durable if data.schedules[sid]["enabled"]]
        return [sid for at, sid in sorted((at, sid) for at, sid in found if at is not None) if after < at <= upto]

    async def wake_times(self, sids: Sequence[int]) -> dict[int, int | None]:
        data = self._tables()
        found: dict[int, int | None] = {}
        for sid in sids:
            row, durable = data.schedules.get(sid), data.durable.get(sid)
            if row is None or durable is None or row["removed_at"] is not None:
                continue
            wakes = (row["next_run_at"] if row["enabled"] == 1 else None, data.live_wake(sid, durable))
            times = [at for at in wakes if isinstance(at, int)]
            if times or row["enabled"] == 1:
                found[sid] = min(times, default=None)
        return found

    async def upcoming_wakes(
        self, lane: str, after: tuple[int, int], upto: int, limit: int, *, live: bool = False
    ) -> list[tuple[int, int]]:
        data = self._tables()
        of_lane = [sid for sid, durable in data.durable.items() if durable["lane"] == lane]
        if live:
            runs = (run for sid in of_lane for run in data.live.get(sid, {}).values() if run.state != "running")
            found: set[tuple[Any, int]] = {(run.wake_at, run.sid) for run in runs}
        else:
            rows = (data.schedules[sid] for sid in of_lane)
            found = {(row["next_run_at"], row["sid"]) for row in rows if row["enabled"] == 1}
        known = ((at, sid) for at, sid in found if isinstance(at, int))
        return nsmallest(limit, (one for one in known if after < one and one[0] <= upto))

"""Wake-ups of schedules in plain dicts, read without a claim."""

from __future__ import annotations

from heapq import nsmallest
from typing import Any

from noonbell.ports import WakeFilter
from noonbell.store.memory.handle import MemoryPart


class WakingInMemory(MemoryPart):
    """The verbs of schedules that read wake-ups."""

    async def wakes(self, wanted: WakeFilter, after: tuple[int, int], limit: int) -> list[tuple[int, int]]:
        data = self._tables()
        sids = [
            sid
            for sid, durable in data.durable.items()
            if wanted.lane in (None, durable["lane"]) and wanted.team in (None, data.schedules[sid]["team"])
        ]
        if wanted.live:
            runs = (run for sid in sids for run in data.live.get(sid, {}).values() if run.state != "running")
            found: set[tuple[Any, int]] = {(run.wake_at, run.sid) for run in runs}
        else:
            rows = (data.schedules[sid] for sid in sids)
            found = {(row["next_run_at"], row["sid"]) for row in rows if row["enabled"] == 1}
        known = ((at, sid) for at, sid in found if isinstance(at, int))
        return nsmallest(limit, (one for one in known if after < one and one[0] <= wanted.upto))

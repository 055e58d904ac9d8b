"""One claim by itself: what is left for the next one where a repair finds no room."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from noonbell.core.records import Start, StoredSchedule, Turn
from noonbell.ports import Claimed, LaneClaim, ScheduleFilter
from noonbell.testing.storage_cases.base import MINUTE, T0
from noonbell.timeline.claiming import Claim, ClaimRequest, LaneState
from noonbell.timeline.redis_timeline import Popped


class Starting:
    """A store that starts several runs of one popped schedule, and counts its claims."""

    def __init__(self, runs: int) -> None:
        self.claims = 0
        self._runs = runs
        self.runs = self.schedules = self

    async def claim(self, *_: object, **__: object) -> LaneClaim:
        self.claims += 1
        runs = self._runs if self.claims == 1 else 0
        starts = [Start(1, "scheduled", T0 + n, 1, 1, "cron", 1, T0, T0, None) for n in range(runs)]
        return LaneClaim(Claimed(starts, 1, full=False, next_wake_at=None, quarantined=[]), {})

    async def find(self, wanted: ScheduleFilter) -> list[Any]:
        columns = SimpleNamespace(definition="{}")
        woken = {"enabled": True, "next_run_at": T0 + MINUTE, "lives": [], "columns": columns}
        return [SimpleNamespace(sid=sid, **woken) for sid in wanted.sids or ()]


async def reach(_: str, ask: Callable[[], Awaitable[int | None]]) -> int | None:
    return await ask()


async def ack(_: str, __: object) -> None:
    """The set holds nothing else."""


@pytest.mark.parametrize(("runs", "full", "claims"), [(1, False, 2), (2, True, 1), (3, True, 1)])
async def test_a_repair_that_finds_no_room_is_made_at_once(*, runs: int, full: bool, claims: int) -> None:
    """Schedules whose runs may overlap start several of them: those fill the claim, though few were popped."""
    with_timeline: Any = SimpleNamespace(
        timeline=SimpleNamespace(ack=ack), counters=SimpleNamespace(repaired=0), reach=reach, note_inactive=len
    )
    store: Any = Starting(runs)
    state = LaneState(T0)
    state.owed = True

    def decide(stored: StoredSchedule) -> Turn:
        raise AssertionError(stored)

    popped = Popped([1], [], None, T0 + MINUTE, repair=True, repaired_at=T0)
    made = await Claim(with_timeline, store, ClaimRequest("default", "me", T0, 2, decide)).make(
        popped, state, full_at=2
    )
    assert (made.claimed.full, store.claims, state.owed) == (full, claims, full)

"""A suite that everything passes is worth nothing: each of these stores is wrong in one way and has to be found out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from noonbell.core.records import Declaration, LiveRun, Settlement, Span, Start
from noonbell.errors import NoonbellError
from noonbell.ports import Decide, LaneClaim, Ledger, Settled
from noonbell.store.memory import MemoryData, MemoryStore
from noonbell.store.memory.handle import MemoryHandle
from noonbell.store.memory.runs import MemoryRuns
from noonbell.store.memory.schedules import MemorySchedules
from noonbell.store.memory.tables import MemoryHold, Transaction
from noonbell.testing.storage_suite import StorageSuite
from tests.store.overriding import Overriding


class _RunsWithoutFence(MemoryRuns):
    def _mine(self, start: Start, owner: str) -> LiveRun | None:
        live = self.data.live[start.sid].get((start.kind, start.run_for))
        return live if live is not None and live.owner == owner else None


class ForgetsTheFence(MemoryStore):
    def _attach(self, handle: MemoryHandle) -> None:
        super()._attach(handle)
        self.runs = _RunsWithoutFence(handle)


class _RunsWithoutOwner(MemoryRuns):
    def _mine(self, start: Start, owner: str) -> LiveRun | None:
        live = self.data.live[start.sid].get((start.kind, start.run_for))
        return live if live is not None and live.fence == start.fence else None


class ForgetsTheOwner(MemoryStore):
    def _attach(self, handle: MemoryHandle) -> None:
        super()._attach(handle)
        self.runs = _RunsWithoutOwner(handle)


class TakesMoreThanItMay(Overriding, MemoryStore):
    async def runs_claim(self, lane: str, owner: str, now: int, limit: int, decide: Decide, **more: Any) -> LaneClaim:
        return await self.plain.runs.claim(lane, owner, now, limit + 1, decide, **more)


class SleepsTooLong(Overriding, MemoryStore):
    async def runs_claim(self, lane: str, owner: str, now: int, limit: int, decide: Decide, **more: Any) -> LaneClaim:
        claimed, stored = await self.plain.runs.claim(lane, owner, now, limit, decide, **more)
        return LaneClaim(claimed._replace(next_wake_at=None), stored)


class LetsOneBadRowStopAll(Overriding, MemoryStore):
    async def runs_claim(self, lane: str, owner: str, now: int, limit: int, decide: Decide, **more: Any) -> LaneClaim:
        claim = await self.plain.runs.claim(lane, owner, now, limit, decide, **more)
        for _, error in claim.claimed.quarantined:
            raise error
        return claim


class _NeverUndone(Transaction):
    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        super().__exit__(None, None, None)


class _HandleWithoutUndo(MemoryHandle):
    def transaction(self) -> Transaction:
        return _NeverUndone(self.tables())


class LeavesHalfDone(MemoryStore):
    def _attach(self, handle: MemoryHandle) -> None:
        super()._attach(_HandleWithoutUndo(handle.data, is_open=handle.is_open))


class CountsAnAttemptThatNeverWas(Overriding, MemoryStore):
    async def runs_hand_back(self, starts: Sequence[Start], owner: str, now: int) -> None:
        await self.plain.runs.hand_back(starts, owner, now)
        for start in starts:
            for key, live in self.data.live[start.sid].items():
                self.data.live[start.sid][key] = replace(live, attempt=start.attempt)


class DropsTheRetry(Overriding, MemoryStore):
    async def runs_settle(self, settlements: Sequence[Settlement]) -> Settled:
        return await self.plain.runs.settle([replace(settlement, wake_at=None) for settlement in settlements])


class TellsNobodyWhatAnEndWakes(Overriding, MemoryStore):
    async def runs_settle(self, settlements: Sequence[Settlement]) -> Settled:
        return (await self.plain.runs.settle(settlements))._replace(woken={})


class _SchedulesWithoutAttempts(MemorySchedules):
    def _revive(self, tx: Transaction, declaration: Declaration) -> None:
        for live in declaration.revived:
            tx.put_live(live)


class LosesTheInterruptedAttempt(MemoryStore):
    def _attach(self, handle: MemoryHandle) -> None:
        super()._attach(handle)
        self.schedules = _SchedulesWithoutAttempts(handle)


class _SchedulesWithOpenEpochs(MemorySchedules):
    def _close_epoch(self, tx: Transaction, sid: int, to_at: int) -> None:
        return


class ReusesEpochs(MemoryStore):
    def _attach(self, handle: MemoryHandle) -> None:
        super()._attach(handle)
        self.schedules = _SchedulesWithOpenEpochs(handle)


class LetsTwoHoldOneName(MemoryStore):
    async def hold(self, name: str, holder: str) -> MemoryHold:
        self.data.held.clear()
        return await super().hold(name, holder)


class DiesWithItsLock(MemoryStore):
    def kill(self) -> None:
        self._holds.clear()
        super().kill()


class LosesItsData(MemoryStore):
    def kill(self) -> None:
        super().kill()
        self.data = MemoryData()


class _HandleAfterDeath(MemoryHandle):
    def tables(self) -> MemoryData:
        return self.data


class WorksAfterDeath(MemoryStore):
    def _attach(self, handle: MemoryHandle) -> None:
        super()._attach(_HandleAfterDeath(handle.data, is_open=handle.is_open))


class SkipsARowBetweenPages(MemoryStore):
    async def read(self, table: Any, after: Any, limit: int, **bounds: Any) -> list[tuple[Any, ...]]:
        page = await super().read(table, after, limit, **bounds)
        return page[1:] if after else page


class GivesTheOldestFirst(Overriding, MemoryStore):
    async def history_spans(
        self, sid: int, from_at: int, to_at: int, limit: int | None = None, *, newest_first: bool = False
    ) -> list[Span]:
        found = await self.plain.history.spans(sid, from_at, to_at, limit)
        return found[::-1] if newest_first else found


class WritesInASnapshot(MemoryStore):
    async def snapshot(self, read: Any) -> Any:
        return await read(self)


WRONG = [
    ForgetsTheFence, ForgetsTheOwner, TakesMoreThanItMay, SleepsTooLong, LetsOneBadRowStopAll, LeavesHalfDone,
    CountsAnAttemptThatNeverWas, DropsTheRetry, LosesTheInterruptedAttempt, ReusesEpochs, LetsTwoHoldOneName,
    DiesWithItsLock, LosesItsData, WorksAfterDeath, SkipsARowBetweenPages, TellsNobodyWhatAnEndWakes,
    GivesTheOldestFirst, WritesInASnapshot,
]  # fmt: skip


async def failures(kind: type[MemoryStore]) -> list[str]:
    class Suite(StorageSuite):
        async def make_store(self) -> Ledger:
            return kind()

        async def reopen(self, store: Ledger) -> Ledger:
            assert isinstance(store, MemoryStore)
            return kind(store.data)

    failed = []
    for name in (name for name in dir(Suite) if name.startswith("test_")):
        try:
            await getattr(Suite(), name)()
        except (AssertionError, NoonbellError, ValueError):
            failed.append(name)
    return failed


async def test_the_right_store_passes() -> None:
    assert await failures(MemoryStore) == []


@pytest.mark.parametrize("kind", WRONG)
async def test_a_wrong_store_is_found_out(kind: type[MemoryStore]) -> None:
    assert await failures(kind) != []

"""A suite that everything passes is worth nothing: each of these stores is wrong in one way and has to be found out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from noonbell.core.records import Declaration, LiveRun, Settlement, Span, Start
from noonbell.errors import NoonbellError
from noonbell.ports import Decide, LaneClaim, Settled, Store
from noonbell.store.memory import MemoryData, MemoryStore
from noonbell.store.memory_tables import MemoryHold, Transaction
from noonbell.testing.storage_suite import StorageSuite


class ForgetsTheFence(MemoryStore):
    def _mine(self, start: Start, owner: str) -> LiveRun | None:
        live = self.data.live[start.sid].get((start.kind, start.run_for))
        return live if live is not None and live.owner == owner else None


class ForgetsTheOwner(MemoryStore):
    def _mine(self, start: Start, owner: str) -> LiveRun | None:
        live = self.data.live[start.sid].get((start.kind, start.run_for))
        return live if live is not None and live.fence == start.fence else None


class TakesMoreThanItMay(MemoryStore):
    async def claim(self, lane: str, owner: str, now: int, limit: int, decide: Decide, **more: Any) -> LaneClaim:
        return await super().claim(lane, owner, now, limit + 1, decide, **more)


class SleepsTooLong(MemoryStore):
    async def claim(self, lane: str, owner: str, now: int, limit: int, decide: Decide, **more: Any) -> LaneClaim:
        claimed, stored = await super().claim(lane, owner, now, limit, decide, **more)
        return LaneClaim(claimed._replace(next_wake_at=None), stored)


class LetsOneBadRowStopAll(MemoryStore):
    async def claim(self, lane: str, owner: str, now: int, limit: int, decide: Decide, **more: Any) -> LaneClaim:
        claim = await super().claim(lane, owner, now, limit, decide, **more)
        for _, error in claim.claimed.quarantined:
            raise error
        return claim


class _NeverUndone(Transaction):
    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        super().__exit__(None, None, None)


class LeavesHalfDone(MemoryStore):
    def _transaction(self) -> Transaction:
        return _NeverUndone(self._tables())


class CountsAnAttemptThatNeverWas(MemoryStore):
    async def hand_back(self, starts: Sequence[Start], owner: str, now: int) -> None:
        await super().hand_back(starts, owner, now)
        for start in starts:
            for key, live in self.data.live[start.sid].items():
                self.data.live[start.sid][key] = replace(live, attempt=start.attempt)


class DropsTheRetry(MemoryStore):
    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        return await super().settle([replace(settlement, wake_at=None) for settlement in settlements])


class TellsNobodyWhatAnEndWakes(MemoryStore):
    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        return (await super().settle(settlements))._replace(woken={})


class LosesTheInterruptedAttempt(MemoryStore):
    def _revive(self, tx: Transaction, declaration: Declaration) -> None:
        for live in declaration.revived:
            tx.put_live(live)


class ReusesEpochs(MemoryStore):
    def _close_epoch(self, tx: Transaction, sid: int, to_at: int) -> None:
        return


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


class WorksAfterDeath(MemoryStore):
    def _tables(self) -> MemoryData:
        return self.data


class SkipsARowBetweenPages(MemoryStore):
    async def read_ledger(self, table: Any, after: Any, limit: int, **bounds: Any) -> list[tuple[Any, ...]]:
        page = await super().read_ledger(table, after, limit, **bounds)
        return page[1:] if after else page


class GivesTheOldestFirst(MemoryStore):
    async def previous_spans(self, sid: int, after: int, upto: int, limit: int) -> list[Span]:
        return (await self.next_spans(sid, after, upto, limit))[::-1]


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
        async def make_store(self) -> Store:
            return kind()

        async def reopen(self, store: Store) -> Store:
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

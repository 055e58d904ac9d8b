"""Reading back from the newest, and many reads from one snapshot."""

# ruff: noqa: S101 - asserting is what these cases are for
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import combinations
from typing import Any, cast

from noonbell.core.records import LifecycleEvent, Settlement
from noonbell.errors import StoreError, StoreUnavailableError
from noonbell.ports import ScheduleStore
from noonbell.testing.storage_cases.base import (
    HOUR,
    ME,
    MINUTE,
    OWNER,
    T0,
    StorageCases,
    claim,
    event,
    ledger,
    raises,
    start_one,
)

M = [T0 + minute * MINUTE for minute in range(20)]
_LIMITS = (1, 2, 100)


class _OwnError(Exception):
    """What a reader raises."""


class SnapshotCases(StorageCases):
    @asynccontextmanager
    async def eventful(self) -> AsyncIterator[ScheduleStore]:
        """A task with runs at the minutes 3, 4, 9 and 14, spans before all but the second, and a manual run."""
        async with self.opened("a", "b") as store:
            for minute in (3, 4, 9, 14):
                starts = (await claim(store, M[minute])).starts
                await store.settle([Settlement(start, ME, "succeeded", M[minute] + 1) for start in starts])
            manual = await store.trigger(1, ME, M[9] + 2)
            assert manual is not None
            await store.settle([Settlement(manual, ME, "succeeded", M[9] + 3)])
            yield cast("ScheduleStore", store)

    # --- from the newest --------------------------------------------------------------------------------------------

    async def test_runs_before_an_instant_come_from_the_newest(self) -> None:
        async with self.eventful() as store:
            found = await store.previous_runs(1, T0, M[14], 100)
            assert [run.run_for for run in found] == [M[14], M[9], M[4], M[3]]
            assert {(run.sid, run.kind) for run in found} == {(1, "scheduled")}
            assert [run.run_for for run in await store.previous_runs(1, M[4], M[9], 100)] == [M[9]]
            assert [run.run_for for run in await store.previous_runs(1, M[3], M[9] - 1, 100)] == [M[4]]
            assert [run.run_for for run in await store.previous_runs(1, T0, M[14], 2)] == [M[14], M[9]]
            assert await store.previous_runs(9, T0, M[14], 100) == []

    async def test_spans_before_an_instant_come_from_the_newest(self) -> None:
        async with self.eventful() as store:
            found = await store.previous_spans(1, T0, M[14], 100)
            assert [(span.from_at, span.to_at) for span in found] == [(M[10], M[13]), (M[5], M[8]), (M[1], M[2])]
            assert [span.from_at for span in await store.previous_spans(1, M[7], M[9], 100)] == [M[5]]
            assert [span.from_at for span in await store.previous_spans(1, M[8], M[10], 100)] == [M[10]]
            assert [span.from_at for span in await store.previous_spans(1, T0, M[14], 1)] == [M[10]]
            assert await store.previous_spans(1, M[8], M[9], 100) == []
            assert await store.previous_spans(9, T0, M[14], 100) == []

    async def test_both_orders_find_the_same(self) -> None:
        async with self.eventful() as store:
            bounds = [at + by for at in M[:16] for by in (-1, 0)]
            for after, upto in list(combinations(bounds, 2))[::7]:
                runs = await store.next_runs(1, after, upto, 100)
                assert await store.previous_runs(1, after, upto, 100) == runs[::-1]
                spans = await store.next_spans(1, after, upto, 100)
                for limit in _LIMITS:
                    assert await store.previous_spans(1, after, upto, limit) == spans[::-1][:limit]

    # --- snapshots --------------------------------------------------------------------------------------------------

    async def test_a_snapshot_reads_what_the_verbs_read(self) -> None:
        async with self.eventful() as store:

            async def read(snapshot: ScheduleStore) -> list[Any]:
                return [
                    await snapshot.epochs(1), await snapshot.spans(1, T0, M[14]), await snapshot.runs(1, T0, M[14]),
                    await snapshot.live(1), await snapshot.next_runs(1, T0, M[9], 2), await snapshot.lifecycle(OWNER),
                    await ledger(snapshot), await snapshot.schedules(),
                ]  # fmt: skip

            assert await store.snapshot(read) == await read(store)
            within = await store.snapshot(lambda snapshot: snapshot.snapshot(read))
            assert within == await read(store), "also one within another"

    async def test_nothing_is_written_in_a_snapshot(self) -> None:
        async with self.eventful() as store:
            before = await ledger(store)
            with raises(StoreError):
                await store.snapshot(lambda snapshot: snapshot.record(_stopped()))
            assert await ledger(store) == before
            await store.record(_stopped())
            assert len(await store.lifecycle(OWNER)) == 1

    async def test_what_a_reader_raises_is_raised_and_harms_nothing(self) -> None:
        async with self.eventful() as store:

            async def read(snapshot: ScheduleStore) -> None:
                await snapshot.epochs(1)
                raise _OwnError

            for _ in range(10):  # more often than there are connections
                with raises(_OwnError):
                    await store.snapshot(read)
            assert len(await store.epochs(1)) == 1

    async def test_what_is_written_beside_a_snapshot_is_seen_whole_or_not_at_all(self) -> None:
        async with self.opened("a") as opened:
            store = cast("ScheduleStore", opened)

            async def read(snapshot: ScheduleStore) -> tuple[int, int, int]:
                live = await snapshot.live(1)
                runs = await snapshot.runs(1, T0, T0 + HOUR)
                return len(live), len(runs), len(await snapshot.live(1))

            for minute in range(1, 9):
                start = await start_one(store, M[minute])
                ended = Settlement(start, ME, "succeeded", M[minute] + 1)
                (live, runs, again), _ = await asyncio.gather(store.snapshot(read), store.settle([ended]))
                assert live == again
                assert live + runs == minute, "the run is alive or has ended, and never both or neither"

    async def test_a_closed_store_has_no_snapshots(self) -> None:
        store = cast("ScheduleStore", await self.make_store())
        await store.open()
        await store.close()
        with raises(StoreUnavailableError):
            await store.snapshot(lambda snapshot: snapshot.epochs(1))


def _stopped() -> LifecycleEvent:
    return event("stop-end", T0 + HOUR)

"""Reading back from the newest, and many reads from one snapshot."""

# ruff: noqa: S101 - asserting is what these cases are for
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import combinations
from typing import Any

from noonbell.core.records import LifecycleEvent, Settlement
from noonbell.errors import StoreError, StoreUnavailableError
from noonbell.ledger.ledger_rows import lifecycle_of, schedule_rows
from noonbell.ports import Ledger, RunFilter
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
    record_step,
    start_one,
)

M = [T0 + minute * MINUTE for minute in range(20)]
_LIMITS = (1, 2, 100)


class _OwnError(Exception):
    """The exception that a reader raises."""


class SnapshotCases(StorageCases):
    @asynccontextmanager
    async def eventful(self) -> AsyncIterator[Ledger]:
        """A task with runs at the minutes 3, 4, 9 and 14, spans before all but the second, and a manual run."""
        async with self.opened("a", "b") as store:
            for minute in (3, 4, 9, 14):
                starts = (await claim(store, M[minute])).starts
                await store.runs.settle([Settlement(start, ME, "succeeded", M[minute] + 1) for start in starts])
            manual = await store.runs.trigger(1, ME, M[9] + 2)
            assert manual is not None
            await store.runs.settle([Settlement(manual, ME, "succeeded", M[9] + 3)])
            yield store

    # --- from the newest --------------------------------------------------------------------------------------------

    async def test_runs_before_an_instant_come_from_the_newest(self) -> None:
        async with self.eventful() as store:
            found = await store.history.runs(RunFilter(1, T0 + 1, M[14], "scheduled"), 100, newest_first=True)
            assert [run.run_for for run in found] == [M[14], M[9], M[4], M[3]]
            assert {(run.sid, run.kind) for run in found} == {(1, "scheduled")}
            assert [
                run.run_for
                for run in await store.history.runs(RunFilter(1, M[4] + 1, M[9], "scheduled"), 100, newest_first=True)
            ] == [M[9]]
            assert [
                run.run_for
                for run in await store.history.runs(
                    RunFilter(1, M[3] + 1, M[9] - 1, "scheduled"), 100, newest_first=True
                )
            ] == [M[4]]
            assert [
                run.run_for
                for run in await store.history.runs(RunFilter(1, T0 + 1, M[14], "scheduled"), 2, newest_first=True)
            ] == [M[14], M[9]]
            assert await store.history.runs(RunFilter(9, T0 + 1, M[14], "scheduled"), 100, newest_first=True) == []

    async def test_spans_before_an_instant_come_from_the_newest(self) -> None:
        async with self.eventful() as store:
            found = await store.history.spans(1, T0 + 1, M[14], 100, newest_first=True)
            assert [(span.from_at, span.to_at) for span in found] == [(M[10], M[13]), (M[5], M[8]), (M[1], M[2])]
            assert [span.from_at for span in await store.history.spans(1, M[7] + 1, M[9], 100, newest_first=True)] == [
                M[5]
            ]
            assert [span.from_at for span in await store.history.spans(1, M[8] + 1, M[10], 100, newest_first=True)] == [
                M[10]
            ]
            assert [span.from_at for span in await store.history.spans(1, T0 + 1, M[14], 1, newest_first=True)] == [
                M[10]
            ]
            assert await store.history.spans(1, M[8] + 1, M[9], 100, newest_first=True) == []
            assert await store.history.spans(9, T0 + 1, M[14], 100, newest_first=True) == []

    async def test_both_orders_find_the_same(self) -> None:
        async with self.eventful() as store:
            bounds = [at + by for at in M[:16] for by in (-1, 0)]
            for after, upto in list(combinations(bounds, 2))[::7]:
                runs = await store.history.runs(RunFilter(1, after + 1, upto, "scheduled"), 100)
                assert (
                    await store.history.runs(RunFilter(1, after + 1, upto, "scheduled"), 100, newest_first=True)
                    == runs[::-1]
                )
                spans = await store.history.spans(1, after + 1, upto, 100)
                for limit in _LIMITS:
                    assert (
                        await store.history.spans(1, after + 1, upto, limit, newest_first=True) == spans[::-1][:limit]
                    )

    # --- snapshots --------------------------------------------------------------------------------------------------

    async def test_a_snapshot_reads_what_the_verbs_read(self) -> None:
        async with self.eventful() as store:

            async def read(snapshot: Ledger) -> list[Any]:
                return [
                    await snapshot.history.epochs(1), await snapshot.history.spans(1, T0, M[14]),
                    await snapshot.history.runs(RunFilter(1, T0, M[14])), await snapshot.runs.live(1),
                    await snapshot.history.runs(RunFilter(1, T0 + 1, M[9], "scheduled"), 2),
                    await lifecycle_of(snapshot, OWNER),
                    await ledger(snapshot), await schedule_rows(snapshot),
                ]  # fmt: skip

            assert await store.snapshot(read) == await read(store)
            within = await store.snapshot(lambda snapshot: snapshot.snapshot(read))
            assert within == await read(store), "also one within another"

    async def test_nothing_is_written_in_a_snapshot(self) -> None:
        async with self.eventful() as store:
            before = await ledger(store)
            with raises(StoreError):
                await store.snapshot(lambda snapshot: record_step(snapshot, _stopped()))
            assert await ledger(store) == before
            await record_step(store, _stopped())
            assert len(await lifecycle_of(store, OWNER)) == 1

    async def test_what_a_reader_raises_is_raised_and_harms_nothing(self) -> None:
        async with self.eventful() as store:

            async def read(snapshot: Ledger) -> None:
                await snapshot.history.epochs(1)
                raise _OwnError

            for _ in range(10):  # more often than there are connections
                with raises(_OwnError):
                    await store.snapshot(read)
            assert len(await store.history.epochs(1)) == 1

    async def test_what_is_written_beside_a_snapshot_is_seen_whole_or_not_at_all(self) -> None:
        async with self.opened("a") as opened:
            store = opened

            async def read(snapshot: Ledger) -> tuple[int, int, int]:
                live = await snapshot.runs.live(1)
                runs = await snapshot.history.runs(RunFilter(1, T0, T0 + HOUR))
                return len(live), len(runs), len(await snapshot.runs.live(1))

            for minute in range(1, 9):
                start = await start_one(store, M[minute])
                ended = Settlement(start, ME, "succeeded", M[minute] + 1)
                (live, runs, again), _ = await asyncio.gather(store.snapshot(read), store.runs.settle([ended]))
                assert live == again
                assert live + runs == minute, "the run is alive or has ended, and never both or neither"

    async def test_a_closed_store_has_no_snapshots(self) -> None:
        store = await self.make_store()
        await store.open()
        await store.close()
        with raises(StoreUnavailableError):
            await store.snapshot(lambda snapshot: snapshot.history.epochs(1))


def _stopped() -> LifecycleEvent:
    return event("stop-end", T0 + HOUR)

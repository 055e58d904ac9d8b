"""Pruning: the oldest day goes, its counts stay, and nothing that is still needed goes with it."""

# ruff: noqa: S101 - asserting is what these cases are for
from __future__ import annotations

from typing import Any, Final

from noonbell.core.records import AuditEvent, LifecycleEvent, PrunedDay, Settlement
from noonbell.ledger.ledger_rows import lifecycle_of
from noonbell.ports import AuditFilter, Ledger, Pruned, RunFilter
from noonbell.testing.storage_cases.base import (
    HOUR,
    ME,
    MINUTE,
    OTHER,
    OWNER,
    T0,
    StorageCases,
    changed,
    claim,
    declaration,
    fail,
    ledger,
    record_step,
)

DAY: Final = 24 * HOUR
FAR: Final = T0 + 1_000 * DAY


async def _prune(store: Ledger, before: int = FAR) -> Pruned | None:
    return await store.prune_day(before)


async def _run_at(store: Ledger, now: int) -> None:
    """Claim what is due and let it succeed."""
    starts = (await claim(store, now)).starts
    assert starts
    await store.runs.settle([Settlement(start, ME, "succeeded", now + 1) for start in starts])


async def _kept(store: Ledger) -> list[PrunedDay]:
    return [PrunedDay(*row) for row in await store.read("pruned", None, 1_000)]


class PruningCases(StorageCases):
    async def test_an_empty_ledger_has_nothing_to_prune(self) -> None:
        async with self.opened("a") as store:
            assert await _prune(store) is None

    async def test_a_day_goes_and_its_counts_stay(self) -> None:
        async with self.opened("a", "b") as store:
            await _run_at(store, T0 + HOUR)  # coalesces 59 into the run for 01:00
            await _run_at(store, T0 + HOUR + MINUTE)
            await _run_at(store, T0 + DAY + HOUR)  # a span that ends on the second day
            pruned = await _prune(store)
            assert pruned == Pruned(T0, runs=4, spans=2, attempts=0, audits=0, dead_letters=0)
            last = T0 + HOUR + MINUTE
            assert await _kept(store) == [PrunedDay(sid, 1, T0, T0 + MINUTE, last, 2, 59, last, last) for sid in (1, 2)]
            for sid in (1, 2):
                (span,) = await store.history.spans(sid, T0, FAR)
                assert (span.from_at, span.to_at) == (last + MINUTE, T0 + DAY + HOUR - MINUTE)
                assert [run.run_for for run in await store.history.runs(RunFilter(sid, T0, FAR))] == [T0 + DAY + HOUR]

    async def test_a_day_goes_only_when_it_is_over(self) -> None:
        async with self.opened("a") as store:
            await _run_at(store, T0 + HOUR)
            await _run_at(store, T0 + 2 * HOUR)
            before = await ledger(store)
            assert await _prune(store, T0 + DAY - 1) is None
            assert await ledger(store) == before
            assert await _prune(store, T0 + DAY) is not None

    async def test_days_go_one_by_one_oldest_first(self) -> None:
        async with self.opened("a") as store:
            for day in (0, 1, 3):
                await _run_at(store, T0 + day * DAY + HOUR)
            await _run_at(store, T0 + 9 * DAY)
            days = []
            while (pruned := await _prune(store)) is not None:
                days.append((pruned.day - T0) // DAY)
            assert days == [0, 1, 3, 8]
            assert [day.passed for day in await _kept(store)] == [59, 1439, 2879, 8579]

    async def test_the_run_at_the_cursor_stays_while_the_schedule_is_in_use(self) -> None:
        async with self.opened("a") as store:
            await _run_at(store, T0 + MINUTE)
            assert await _prune(store) is None
            await _run_at(store, T0 + 2 * MINUTE)
            await _prune(store)
            assert [run.run_for for run in await store.history.runs(RunFilter(1, T0, FAR))] == [T0 + 2 * MINUTE]
            await store.schedules.declare(declaration(parked=[1]))
            await _prune(store)
            assert await store.history.runs(RunFilter(1, T0, FAR)) == []

    async def test_a_live_run_stays_with_its_attempts_and_goes_when_it_has_ended(self) -> None:
        async with self.opened("a") as store:
            (start,) = (await claim(store, T0 + MINUTE)).starts
            await fail(store, start, T0 + MINUTE + 1, retry_at=T0 + MINUTE + 2)
            assert await _prune(store) is None
            assert len(await store.history.attempts(1, T0, FAR)) == 1
            await claim(store, T0 + 3 * MINUTE)  # takes over from the retry
            pruned = await _prune(store)
            assert pruned is not None
            assert (pruned.runs, pruned.spans, pruned.attempts) == (1, 1, 1)
            assert await store.history.attempts(1, T0, FAR) == []
            (live,) = await store.runs.live(1)
            assert live.run_for == T0 + 3 * MINUTE

    async def test_a_day_that_gets_more_is_pruned_again(self) -> None:
        async with self.opened("a") as store:
            await _run_at(store, T0 + MINUTE)
            await _run_at(store, T0 + 2 * MINUTE)
            await _prune(store)
            await _run_at(store, T0 + 4 * MINUTE)
            await _run_at(store, T0 + 5 * MINUTE)
            pruned = await _prune(store)
            assert pruned is not None
            assert (pruned.day, pruned.runs, pruned.spans) == (T0, 2, 1)
            last = T0 + 4 * MINUTE
            assert await _kept(store) == [PrunedDay(1, 1, T0, T0 + MINUTE, last, 3, 1, last, last)]

    async def test_each_epoch_has_its_own_counts(self) -> None:
        async with self.opened("a") as store:
            await _run_at(store, T0 + 2 * MINUTE)
            edit = changed(1, cursor_at=T0 + 2 * MINUTE, next_run_at=T0 + 3 * MINUTE, epoch=2, new_epoch=True)
            await store.schedules.declare(declaration(at=T0 + 2 * MINUTE + 1, changed=[edit]))
            await _run_at(store, T0 + 3 * MINUTE)
            await _run_at(store, T0 + 4 * MINUTE)
            await _prune(store)
            assert [(day.epoch, day.fired, day.passed) for day in await _kept(store)] == [(1, 1, 1), (2, 1, 0)]
            assert len(await store.history.epochs(1)) == 2

    async def test_manual_runs_go_uncounted(self) -> None:
        async with self.opened("a") as store:
            manual = await store.runs.trigger(1, ME, T0 + 1)
            assert manual is not None
            await store.runs.settle([Settlement(manual, ME, "failed", T0 + 2, error="no")])
            pruned = await _prune(store)
            assert pruned is not None
            assert (pruned.runs, pruned.attempts) == (1, 1)
            assert await _kept(store) == []

    async def test_lives_that_have_ended_go_whole_with_the_day_of_the_next_event_of_their_owner(self) -> None:
        async with self.opened() as opened:
            store = opened

            def life(instance: str, *steps: tuple[int, Any], owner: str = OWNER) -> list[LifecycleEvent]:
                return [LifecycleEvent(owner, T0 + hour * HOUR, instance, name) for hour, name in steps]

            first = life("one", (1, "init-ok"), (30, "stop-start"), (31, "stop-end"))
            second = life("two", (80, "init-ok"), (100, "crash"))
            third = life("three", (100, "init-ok"))
            lane = "lane:suite"
            beside = [
                *life("a", (1, "init-ok"), owner=lane),
                *life("b", (2, "init-ok"), (3, "stop-start"), (3, "stop-end"), owner=lane),
                *life("c", (4, "init-ok"), owner=lane),
                *life("a", (5, "stop-start"), (5, "stop-end"), owner=lane),
            ]
            only = life("last", (1, "init-ok"), (2, "stop-start"), (3, "stop-end"), owner=OTHER)
            for event in (*first, *second, *third, *beside, *only):
                await record_step(store, event)
            assert await store.prune_day(T0 + DAY) == Pruned(T0, 0, 0, 0, 0, 0, lifecycle_events=3)
            assert await lifecycle_of(store, lane) == [beside[0], *beside[4:]]
            assert await store.prune_day(T0 + 3 * DAY) is None
            assert await lifecycle_of(store, OWNER) == [*first, *second, *third]
            assert await store.prune_day(FAR) == Pruned(T0 + 3 * DAY, 0, 0, 0, 0, 0, lifecycle_events=3)
            assert await store.prune_day(FAR) == Pruned(T0 + 4 * DAY, 0, 0, 0, 0, 0, lifecycle_events=2)
            assert await store.prune_day(FAR) is None
            found = [await lifecycle_of(store, owner) for owner in (OWNER, lane, OTHER)]
            assert found == [third, [beside[0], *beside[4:]], only]
            assert (await store.schedules.read_declared(OWNER)).last_lifecycle == third[-1]
            await record_step(store, third[0])
            numbers = [row[0] for row in await store.read("lifecycle", None, 100)]
            assert len(set(numbers)) == len(numbers)

    async def test_audit_events_go_but_the_newest_and_numbers_are_not_given_twice(self) -> None:
        async with self.opened("a") as opened:
            store = opened
            events = [AuditEvent(T0 + hour * HOUR, "schedule.skipped", "x", "engine", "{}") for hour in (1, 2, 30)]
            await store.documents.write(audits=events)
            pruned = await store.prune_day(FAR)
            assert pruned is not None
            assert (pruned.day, pruned.audits) == (T0, 2)
            assert await store.prune_day(FAR) is None
            ((newest, event),) = await store.audit.page(AuditFilter(), 0, 10)
            assert event == events[2]
            await store.documents.write(audits=events[:1])
            assert [number for number, _ in await store.audit.page(AuditFilter(), newest, 10)] == [newest + 1]

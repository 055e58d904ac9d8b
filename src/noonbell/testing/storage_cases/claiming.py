"""Claiming, triggering and handing back: how runs begin."""

# ruff: noqa: S101 - asserting is what these cases are for
from __future__ import annotations

from msgspec.structs import replace

from noonbell.core.records import LiveRun, RemovedSchedule, Run, Settlement, Span, Start, StoredSchedule, Turn
from noonbell.ports import RunFilter
from noonbell.testing.storage_cases.base import (
    HOUR,
    ME,
    MINUTE,
    OTHER,
    OWNER,
    SECOND,
    T0,
    StorageCases,
    changed,
    claim,
    deciding,
    declaration,
    fail,
    ledger,
    new,
    only_live,
    raises,
    row_of,
    start_one,
)


class _Torn(BaseException):
    """No Exception: as a process that is being torn down."""


class ClaimingCases(StorageCases):
    async def test_a_due_task_starts(self) -> None:
        async with self.opened("a") as store:
            now = T0 + MINUTE + SECOND
            claimed = await claim(store, now)
            start = Start(1, "scheduled", T0 + MINUTE, 1, 1, "cron", 1, now, T0 + MINUTE, T0 + 2 * MINUTE)
            assert claimed == ([start], 1, False, T0 + 2 * MINUTE, [], False)
            live = LiveRun(1, "scheduled", T0 + MINUTE, 1, ME, "running", 1, None, now, now, 0, 1, "cron")
            assert await store.runs.live(1) == [live]
            row = await row_of(store, 1)
            assert (row["cursor_at"], row["next_run_at"]) == (now, T0 + 2 * MINUTE)
            assert (row["last_run_at"], row["last_attempt_at"]) == (now, now)

    async def test_a_running_task_is_not_claimed_again(self) -> None:
        async with self.opened("a") as store:
            await start_one(store, T0 + MINUTE)
            assert await claim(store, T0 + HOUR) == ([], 1, False, None, [], False)
            assert (await row_of(store, 1))["next_run_at"] is None, "what has come waits for the end of the run"
            assert await claim(store, T0 + HOUR) == ([], 0, False, None, [], False)

    async def test_what_is_not_due_is_not_looked_at(self) -> None:
        async with self.opened("a", "b") as store:
            before = await ledger(store)
            assert await claim(store, T0 + MINUTE - 1) == ([], 0, False, T0 + MINUTE, [], False)
            assert await ledger(store) == before

    async def test_due_means_at_or_before_now(self) -> None:
        async with self.opened("a") as store:
            assert len((await claim(store, T0 + MINUTE)).starts) == 1

    async def test_earlier_occurrences_are_coalesced_into_one_span(self) -> None:
        async with self.opened("a") as store:
            start = await start_one(store, T0 + 5 * MINUTE)
            assert start.run_for == T0 + 5 * MINUTE
            span = Span(1, T0 + MINUTE, T0 + 4 * MINUTE, 4, "coalesced", "one run for all that was due", 1)
            assert await store.history.spans(1, T0, T0 + HOUR) == [span]

    async def test_the_earliest_come_first_and_the_limit_holds(self) -> None:
        async with self.opened() as store:
            wakes = (3, 1, 2, 1)
            tasks = [new(f"t{i}", next_run_at=T0 + wake * SECOND) for i, wake in enumerate(wakes)]
            await store.schedules.declare(declaration(created=tasks))
            now = T0 + MINUTE
            order: list[int] = []
            for expected_full in (True, True, True, True, False):
                claimed = await claim(store, now, limit=1)
                order.extend(start.sid for start in claimed.starts)
                assert claimed.full is expected_full
            assert order == [2, 4, 3, 1]

    async def test_next_wake_at_is_the_earliest_that_is_not_due(self) -> None:
        async with self.opened("a") as store:
            later = [new("b", next_run_at=T0 + 9 * MINUTE), new("c", next_run_at=T0 + 8 * MINUTE)]
            await store.schedules.declare(declaration(created=[*later, new("never", next_run_at=None)]))
            claimed = await claim(store, T0 + MINUTE, limit=1)
            assert (claimed.full, claimed.next_wake_at) == (True, T0 + 2 * MINUTE)
            assert (await claim(store, T0 + 3 * MINUTE)).next_wake_at == T0 + 8 * MINUTE
            await fail(store, claimed.starts[0], T0 + MINUTE, retry_at=T0 + 90 * SECOND)
            assert (await claim(store, T0 + MINUTE + 1)).next_wake_at == T0 + 90 * SECOND

    async def test_an_early_wake_up_only_moves_the_wake_up(self) -> None:
        async with self.opened() as store:
            await store.schedules.declare(declaration(created=[new("a", next_run_at=T0 + SECOND)]))
            assert await claim(store, T0 + SECOND) == ([], 1, False, T0 + MINUTE, [], False)
            row = await row_of(store, 1)
            assert (row["cursor_at"], row["next_run_at"], row["last_run_at"]) == (T0, T0 + MINUTE, None)

    async def test_a_clock_behind_the_cursor_finds_nothing_due(self) -> None:
        async with self.opened() as store:
            await store.schedules.declare(declaration(created=[new("a", cursor_at=T0 + HOUR, next_run_at=T0)]))
            claimed = await claim(store, T0 + MINUTE)
            assert (claimed.starts, claimed.next_wake_at) == ([], T0 + HOUR + MINUTE)
            assert (await row_of(store, 1))["cursor_at"] == T0 + HOUR

    async def test_a_clock_that_went_back_wakes_at_the_right_time(self) -> None:
        async with self.opened("a") as store:
            assert (await claim(store, T0 + 59 * SECOND)).next_wake_at == T0 + MINUTE
            await store.schedules.declare(declaration(created=[new("b", next_run_at=T0 + 30 * SECOND)]))
            assert await claim(store, T0 + 20 * SECOND) == ([], 0, False, T0 + 30 * SECOND, [], False)
            assert (await claim(store, T0 + MINUTE)).looked == 2

    async def test_only_the_own_tasks_are_claimed(self) -> None:
        async with self.opened("a") as store:
            await store.schedules.declare(declaration(OTHER, created=[new("a", key="other", next_run_at=T0 + 2)]))
            claimed = await claim(store, T0 + MINUTE)
            assert ([start.sid for start in claimed.starts], claimed.next_wake_at) == ([1], T0 + 2 * MINUTE)
            assert (await row_of(store, 2))["next_run_at"] == T0 + 2
            assert [start.sid for start in (await claim(store, T0 + MINUTE, managed_by=OTHER)).starts] == [2]

    async def test_a_retry_starts_when_its_time_has_come(self) -> None:
        async with self.opened("a") as store:
            first = await start_one(store, T0 + MINUTE)
            await fail(store, first, T0 + 61 * SECOND, retry_at=T0 + 70 * SECOND)
            assert (await claim(store, T0 + 69 * SECOND)).looked == 0
            again = await start_one(store, T0 + 71 * SECOND)
            assert (again.run_for, again.fence, again.attempt, again.cause) == (T0 + MINUTE, 2, 2, "retry")
            live = await only_live(store, 1)
            assert (live.state, live.owner, live.fence, live.wake_at) == ("running", ME, 2, None)
            assert (live.started_at, live.attempt_at) == (T0 + MINUTE, T0 + 71 * SECOND)
            assert (await row_of(store, 1))["cursor_at"] == T0 + 71 * SECOND

    async def test_an_occurrence_preempts_a_retry(self) -> None:
        async with self.opened("a") as store:
            first = await start_one(store, T0 + MINUTE)
            await fail(store, first, T0 + 61 * SECOND, retry_at=T0 + 2 * MINUTE)
            now = T0 + 2 * MINUTE + SECOND
            claimed = await claim(store, now)
            (start,) = claimed.starts
            assert (claimed.looked, start.run_for, start.fence, start.cause) == (1, T0 + 2 * MINUTE, 1, "cron")
            assert start.preempted is not None
            assert start.preempted.run_for == T0 + MINUTE
            assert (await only_live(store, 1)).run_for == T0 + 2 * MINUTE
            (ended,) = await store.history.runs(RunFilter(1, T0, T0 + HOUR))
            assert replace(ended, owner=ME) == Run(1, T0 + MINUTE, "scheduled", "failed", 1, T0 + MINUTE, now, ME, 1)

    async def test_a_queued_orphan_restarts_and_takes_in_what_is_due(self) -> None:
        async with self.opened("a") as store:
            first = await start_one(store, T0 + MINUTE)
            now = T0 + 3 * MINUTE + SECOND
            orphan = replace(
                await only_live(store, 1), state="queued", owner=None, fence=2, wake_at=now, crashes=1, cause="orphan"
            )
            edit = changed(1, cursor_at=T0 + MINUTE, next_run_at=T0 + 2 * MINUTE, epoch=1, new_epoch=False)
            await store.schedules.declare(declaration(at=now, revived=[orphan], changed=[edit]))
            claimed = await claim(store, now, owner="instance-2")
            (start,) = claimed.starts
            assert (claimed.looked, start.run_for, start.fence) == (1, first.run_for, 3)
            assert (start.attempt, start.cause, start.due_at) == (2, "orphan", now)
            (span,) = await store.history.spans(1, T0, now)
            assert (span.from_at, span.to_at, span.n) == (T0 + 2 * MINUTE, T0 + 3 * MINUTE, 2)
            live = await only_live(store, 1)
            assert (live.owner, live.crashes, live.cause, live.attempt) == ("instance-2", 1, "orphan", 2)
            late = Settlement(first, ME, "succeeded", now)
            assert (await store.runs.settle([late])).stale == [late], "the dead instance's end comes too late"

    async def test_a_removed_task_is_not_claimed(self) -> None:
        async with self.opened("a") as store:
            await store.schedules.declare(declaration(removed=[RemovedSchedule(1, T0)]))
            assert await claim(store, T0 + HOUR) == ([], 0, False, None, [], False)

    async def test_a_bad_row_is_put_off_alone(self) -> None:
        async with self.opened("a", "bad", "c") as store:
            now = T0 + MINUTE
            error = ValueError("cannot be decided")

            def decide(stored: StoredSchedule) -> Turn:
                if stored.sid == 2:
                    raise error
                return deciding(now)(stored)

            claimed, _ = await store.runs.claim(OWNER, ME, now, 100, decide)
            assert [start.sid for start in claimed.starts] == [1, 3]
            assert (claimed.looked, claimed.quarantined) == (3, [(2, error)])
            assert claimed.next_wake_at == now + MINUTE
            row = await row_of(store, 2)
            assert (row["next_run_at"], row["cursor_at"], await store.runs.live(2)) == (now + MINUTE, T0, [])

    async def test_a_claim_that_fails_changes_nothing(self) -> None:
        async with self.opened("a", "b") as store:
            now = T0 + MINUTE
            before = await ledger(store)

            def torn(stored: StoredSchedule) -> Turn:
                if stored.sid == 2:
                    raise _Torn
                return deciding(now)(stored)

            with raises(_Torn):
                await store.runs.claim(OWNER, ME, now, 100, torn)
            assert await ledger(store) == before
            assert [start.sid for start in (await claim(store, now)).starts] == [1, 2], "both are still due"

    # --- trigger --------------------------------------------------------------------------------------------------

    async def test_a_manual_run_starts_and_its_end_puts_the_wake_up_back(self) -> None:
        async with self.opened("a") as store:
            now = T0 + SECOND
            start = await store.runs.trigger(1, ME, now)
            assert start == Start(1, "manual", now, 1, 1, "manual", 1, now, now, T0 + MINUTE)
            assert await store.runs.live(1) == [
                LiveRun(1, "manual", now, 1, ME, "running", 1, None, now, now, 0, 1, "manual")
            ]
            row = await row_of(store, 1)
            assert (row["next_run_at"], row["cursor_at"], row["last_attempt_at"]) == (None, T0, now)
            assert (await claim(store, T0 + MINUTE)).looked == 0
            assert (await store.runs.settle([Settlement(start, ME, "succeeded", T0 + 90 * SECOND)])).stale == []
            assert (await start_one(store, T0 + 91 * SECOND)).run_for == T0 + MINUTE

    async def test_a_trigger_is_refused_while_a_run_is_under_way(self) -> None:
        async with self.opened("manual", "running", "queued") as store:
            assert await store.runs.trigger(1, ME, T0) is not None
            _, queued = (await claim(store, T0 + MINUTE)).starts
            await store.runs.hand_back([queued], ME, T0 + MINUTE)
            before = await ledger(store)
            assert [await store.runs.trigger(sid, ME, T0 + MINUTE) for sid in (1, 2, 3)] == [None, None, None]
            assert await ledger(store) == before

    async def test_a_waiting_retry_is_left_alone_during_a_manual_run(self) -> None:
        async with self.opened("a") as store:
            first = await start_one(store, T0 + MINUTE)
            await fail(store, first, T0 + 61 * SECOND, retry_at=T0 + 70 * SECOND)
            manual = await store.runs.trigger(1, ME, T0 + 65 * SECOND)
            assert manual is not None
            assert await claim(store, T0 + 69 * SECOND) == ([], 0, False, None, [], False)
            assert await claim(store, T0 + 80 * SECOND) == ([], 0, False, None, [], False)
            assert (
                await store.runs.settle([Settlement(manual, ME, "failed", T0 + 81 * SECOND, None, "no")])
            ).stale == []
            retry = await start_one(store, T0 + 82 * SECOND)
            assert (retry.cause, retry.run_for, retry.attempt) == ("retry", T0 + MINUTE, 2)

    async def test_a_task_may_be_triggered_twice_in_one_instant(self) -> None:
        async with self.opened("a") as store:
            for _ in range(2):
                start = await store.runs.trigger(1, ME, T0)
                assert start is not None
                assert (await store.runs.settle([Settlement(start, ME, "succeeded", T0)])).stale == []
            assert len(await store.history.runs(RunFilter(1, T0, T0 + MINUTE, "manual"))) == 2

    async def test_an_unknown_schedule_cannot_be_triggered(self) -> None:
        async with self.opened("a") as store:
            before = await ledger(store)
            assert await store.runs.trigger(99, ME, T0) is None
            assert await ledger(store) == before

    # --- hand back ------------------------------------------------------------------------------------------------

    async def test_a_run_handed_back_starts_again_as_the_same_attempt(self) -> None:
        async with self.opened("a") as store:
            first = await start_one(store, T0 + MINUTE)
            await store.runs.hand_back([first], ME, T0 + 61 * SECOND)
            live = await only_live(store, 1)
            assert (live.state, live.attempt, live.owner, live.wake_at) == ("queued", 0, None, T0 + 61 * SECOND)
            assert (await row_of(store, 1))["next_run_at"] == T0 + 2 * MINUTE
            late = Settlement(first, ME, "succeeded", T0 + 62 * SECOND)
            assert (await store.runs.settle([late])).stale == [late]
            again = await start_one(store, T0 + 63 * SECOND)
            assert (again.run_for, again.attempt, again.fence, again.cause) == (first.run_for, 1, 2, "cron")

    async def test_without_a_known_following_a_run_handed_back_is_looked_at_at_once(self) -> None:
        async with self.opened("a") as store:
            first = await start_one(store, T0 + MINUTE)
            await store.runs.hand_back([replace(first, following=None)], ME, T0 + 61 * SECOND)
            assert (await row_of(store, 1))["next_run_at"] == T0 + 61 * SECOND

    async def test_a_manual_run_handed_back_is_forgotten(self) -> None:
        async with self.opened("a") as store:
            start = await store.runs.trigger(1, ME, T0 + SECOND)
            assert start is not None
            await store.runs.hand_back([start], ME, T0 + 2 * SECOND)
            assert (await store.runs.live(1), await store.history.runs(RunFilter(1, T0, T0 + HOUR))) == ([], [])
            assert (await row_of(store, 1))["next_run_at"] == T0 + MINUTE

    async def test_what_another_has_now_cannot_be_handed_back(self) -> None:
        async with self.opened("a", "b") as store:
            a, b = (await claim(store, T0 + MINUTE)).starts
            before = await ledger(store)
            await store.runs.hand_back([replace(a, fence=a.fence + 1), replace(b, fence=b.fence - 1)], ME, T0 + HOUR)
            await store.runs.hand_back([a, b], "instance-2", T0 + HOUR)
            await store.runs.hand_back([], ME, T0 + HOUR)
            assert await ledger(store) == before

    async def test_owned_are_the_running_runs_of_an_instance(self) -> None:
        async with self.opened("a", "b", "c", "d") as store:
            await claim(store, T0 + MINUTE, limit=1, owner="instance-2")
            b, c, _ = (await claim(store, T0 + MINUTE)).starts
            await fail(store, b, T0 + 61 * SECOND, retry_at=T0 + HOUR)
            await store.runs.hand_back([c], ME, T0 + 61 * SECOND)
            assert [live.sid for live in await store.runs.live(owner=ME)] == [4]
            assert await store.runs.live(owner="instance-2") == await store.runs.live(1)
            assert await store.runs.live(owner="unknown") == []

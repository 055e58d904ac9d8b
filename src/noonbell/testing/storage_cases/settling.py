"""Settling: how attempts end, and that an old hand changes nothing."""

# ruff: noqa: S101 - asserting is what these cases are for
from __future__ import annotations

from msgspec.structs import replace

from noonbell.core.attempts import omitted
from noonbell.core.records import Attempt, Outcome, Run, Settlement, Span, StoredSchedule, Turn
from noonbell.core.turns import left_alone
from noonbell.ledger.ledger_rows import schedule_rows
from noonbell.ports import RunFilter, Settled
from noonbell.testing.storage_cases.base import (
    HOUR,
    ME,
    MINUTE,
    OWNER,
    SECOND,
    T0,
    StorageCases,
    changed,
    claim,
    declaration,
    fail,
    ledger,
    only_live,
    row_of,
    start_one,
)


class SettlingCases(StorageCases):
    async def test_a_success_ends_the_run(self) -> None:
        async with self.opened("a") as store:
            start = await start_one(store, T0 + MINUTE)
            assert (await store.runs.settle([Settlement(start, ME, "succeeded", T0 + 61 * SECOND)])).stale == []
            assert await store.runs.live(1) == []
            ended = Run(1, T0 + MINUTE, "scheduled", "succeeded", 1, T0 + MINUTE, T0 + 61 * SECOND, ME, 1)
            assert await store.history.runs(RunFilter(1, T0, T0 + HOUR)) == [ended]
            row = await row_of(store, 1)
            assert (row["next_run_at"], row["last_success_at"]) == (T0 + 2 * MINUTE, T0 + 61 * SECOND)
            assert (row["last_failure_at"], row["cursor_at"]) == (None, T0 + MINUTE)
            assert await store.history.attempts(1, T0, T0 + HOUR) == [], "a first success has nothing more to record"

    async def test_a_failure_with_a_retry_leaves_the_run_waiting(self) -> None:
        async with self.opened("a") as store:
            start = await start_one(store, T0 + MINUTE)
            running = await only_live(store, 1)
            await fail(store, start, T0 + 61 * SECOND, retry_at=T0 + 9 * MINUTE)
            assert await store.history.runs(RunFilter(1, T0, T0 + HOUR)) == []
            waiting = replace(running, state="waiting", owner=None, wake_at=T0 + 9 * MINUTE)
            assert await store.runs.live(1) == [waiting]
            row = await row_of(store, 1)
            assert (row["next_run_at"], row["last_success_at"]) == (T0 + 2 * MINUTE, None)
            assert row["last_failure_at"] == T0 + 61 * SECOND
            assert await store.history.attempts(1, T0, T0 + HOUR) == [
                Attempt(
                    1,
                    T0 + MINUTE,
                    "scheduled",
                    1,
                    "failed",
                    "cron",
                    T0 + MINUTE,
                    T0 + 61 * SECOND,
                    ME,
                    "ValueError: no",
                )
            ]

    async def test_a_failure_without_a_retry_ends_the_run(self) -> None:
        async with self.opened("a") as store:
            start = await start_one(store, T0 + MINUTE)
            await fail(store, start, T0 + 61 * SECOND, retry_at=None)
            (ended,) = await store.history.runs(RunFilter(1, T0, T0 + HOUR))
            assert (ended.outcome, await store.runs.live(1)) == ("failed", [])

    async def test_every_outcome_but_a_first_success_is_kept_as_an_attempt(self) -> None:
        async with self.opened("a", "b", "c") as store:
            starts = (await claim(store, T0 + MINUTE)).starts
            outcomes: tuple[Outcome, ...] = ("failed", "abandoned", "unknown")
            ends = [
                Settlement(start, ME, outcome, T0 + 61 * SECOND)
                for start, outcome in zip(starts, outcomes, strict=True)
            ]
            assert (await store.runs.settle(ends)).stale == []
            for start, outcome in zip(starts, outcomes, strict=True):
                (run,) = await store.history.runs(RunFilter(start.sid, T0, T0 + HOUR))
                (attempt,) = await store.history.attempts(start.sid, T0, T0 + HOUR)
                assert (run.outcome, attempt.outcome) == (outcome, outcome)

    async def test_each_attempt_of_a_batch_keeps_its_own_detail(self) -> None:
        async with self.opened("a", "b", "c") as store:
            starts = (await claim(store, T0 + MINUTE)).starts
            details = (b"first", None, b"the third")
            ends = [Settlement(start, ME, "failed", T0 + 61 * SECOND) for start in starts]
            for end, detail in zip(ends, details, strict=True):
                end.detail = detail
            assert (await store.runs.settle(ends)).stale == []
            kept = [one.detail for start in starts for one in await store.history.attempts(start.sid, T0, T0 + HOUR)]
            assert kept == list(details)

    async def test_a_repeat_is_recorded_and_counted(self) -> None:
        async with self.opened("a") as store:
            first = await start_one(store, T0 + MINUTE)
            await fail(store, first, T0 + 61 * SECOND, retry_at=T0 + 62 * SECOND)
            second = await start_one(store, T0 + 63 * SECOND)
            assert (await store.runs.settle([Settlement(second, ME, "succeeded", T0 + 64 * SECOND)])).stale == []
            (ended,) = await store.history.runs(RunFilter(1, T0, T0 + HOUR))
            assert (ended.attempts, ended.started_at, ended.ended_at) == (2, T0 + MINUTE, T0 + 64 * SECOND)
            attempts = await store.history.attempts(1, T0, T0 + HOUR)
            assert [(a.attempt, a.outcome, a.cause, a.started_at, a.error) for a in attempts] == [
                (1, "failed", "cron", T0 + MINUTE, "ValueError: no"),
                (2, "succeeded", "retry", T0 + 63 * SECOND, None),
            ]
            row = await row_of(store, 1)
            assert (row["last_success_at"], row["last_failure_at"]) == (T0 + 64 * SECOND, T0 + 61 * SECOND)

    async def test_of_many_attempts_the_first_and_the_last_stay_on_record(self) -> None:
        async with self.opened("a", "b") as store:
            starts = (await claim(store, T0 + MINUTE)).starts
            for attempt in range(1, 41):
                at = T0 + MINUTE + attempt * SECOND
                for start in starts if attempt < 26 else starts[:1]:
                    await fail(store, start, at, retry_at=at + 1)
                starts = (await claim(store, at + 1)).starts
                kept = [one.attempt for one in await store.history.attempts(1, T0, T0 + HOUR)]
                assert kept == [n for n in range(1, attempt + 1) if n <= 5 or n > attempt - 20]
            recorded = await store.history.attempts(1, T0, T0 + HOUR)
            assert ([one.attempt for one in recorded][4:6], omitted(recorded)) == ([5, 21], 15)
            of_the_other = await store.history.attempts(2, T0, T0 + HOUR)
            assert [one.attempt for one in of_the_other] == list(range(1, 26)), "each run for itself"
            assert omitted(of_the_other) == 0

    async def test_a_success_by_hand_ends_the_run_whose_retry_it_clears(self) -> None:
        async with self.opened("a") as store:
            start = await start_one(store, T0 + MINUTE)
            await fail(store, start, T0 + 61 * SECOND, retry_at=T0 + 90 * SECOND)
            waiting = await only_live(store, 1)
            by_hand = await store.runs.trigger(1, ME, T0 + 62 * SECOND)
            assert by_hand is not None
            at = T0 + 63 * SECOND
            for stale in (replace(by_hand, fence=7), replace(by_hand, run_for=T0)):
                await store.runs.settle([Settlement(stale, ME, "succeeded", at, cleared=waiting)])
                assert len(await store.runs.live(1)) == 2, "an old hand clears nothing"
            settled = await store.runs.settle([Settlement(by_hand, ME, "succeeded", at, cleared=waiting)])
            assert (settled.stale, settled.woken) == ([], {1: T0 + 2 * MINUTE})
            assert await store.runs.live(1) == []
            ended = await store.history.runs(RunFilter(1, T0, T0 + HOUR))
            assert [(run.kind, run.outcome, run.ended_at) for run in ended] == [
                ("scheduled", "failed", at), ("manual", "succeeded", at),
            ]  # fmt: skip
            assert (ended[1].prev_for, ended[1].prev_manual) == (T0 + MINUTE, False), "it ended last"
            row = await row_of(store, 1)
            assert (row["ended_runs"], row["succeeded_runs"], row["next_run_at"]) == (2, 1, T0 + 2 * MINUTE)
            assert (await claim(store, T0 + 90 * SECOND)).looked == 0

    async def test_a_retry_that_has_begun_by_then_is_not_cleared(self) -> None:
        async with self.opened("a") as store:
            start = await start_one(store, T0 + MINUTE)
            running = await only_live(store, 1)
            by_hand = replace(start, kind="manual", run_for=T0)
            assert (await store.runs.settle([Settlement(by_hand, ME, "succeeded", T0 + HOUR, cleared=running)])).stale
            assert await store.runs.live(1) == [running]

    async def test_a_decision_without_a_start_moves_the_cursor(self) -> None:
        async with self.opened("a") as store:

            def folded(stored: StoredSchedule) -> Turn:
                span = Span(stored.sid, T0 + MINUTE, T0 + MINUTE, 1, "coalesced", "folded into the retry run", 1)
                turn = left_alone(stored)
                turn.cursor_at, turn.next_run_at, turn.spans = T0 + MINUTE, T0 + 2 * MINUTE, [span]
                return turn

            claimed, _ = await store.runs.claim(OWNER, ME, T0 + 61 * SECOND, 9, folded)
            assert (claimed.starts, claimed.next_wake_at) == ([], T0 + 2 * MINUTE)
            row = await row_of(store, 1)
            assert (row["cursor_at"], row["next_run_at"]) == (T0 + MINUTE, T0 + 2 * MINUTE)
            assert [span.n for span in await store.history.spans(1, T0, T0 + HOUR)] == [1]

    async def test_an_old_fence_or_owner_writes_nothing(self) -> None:
        async with self.opened("a") as store:
            start = await start_one(store, T0 + MINUTE)
            before = await ledger(store)
            at = T0 + 61 * SECOND
            stale = [
                Settlement(replace(start, fence=start.fence + 1), ME, "failed", at, None, "an old fence"),
                Settlement(replace(start, attempt=2), "instance-2", "succeeded", at),
                Settlement(replace(start, run_for=T0), ME, "succeeded", at),
                Settlement(replace(start, kind="manual"), ME, "failed", at, at + 1),
                Settlement(replace(start, sid=99), ME, "succeeded", at),
            ]
            assert (await store.runs.settle(stale)).stale == stale
            assert await ledger(store) == before

    async def test_a_settled_run_cannot_be_settled_again(self) -> None:
        async with self.opened("a", "b") as store:
            a, b = (await claim(store, T0 + MINUTE)).starts
            await fail(store, a, T0 + 61 * SECOND, retry_at=T0 + 9 * MINUTE)
            assert (await store.runs.settle([Settlement(b, ME, "succeeded", T0 + 61 * SECOND)])).stale == []
            before = await ledger(store)
            twice = [Settlement(start, ME, "failed", T0 + 62 * SECOND, None, "again") for start in (a, b)]
            assert (await store.runs.settle(twice)).stale == twice
            assert await ledger(store) == before

    async def test_stale_ones_do_not_hold_up_the_rest_of_their_batch(self) -> None:
        async with self.opened("a", "b", "c") as store:
            a, b, c = (await claim(store, T0 + MINUTE)).starts
            at = T0 + 61 * SECOND
            stale = Settlement(replace(b, fence=7), ME, "failed", at, at + SECOND, "stale")
            batch = [
                Settlement(a, ME, "succeeded", at),
                stale,
                Settlement(c, ME, "failed", at + 1, at + MINUTE, "fresh"),
            ]
            assert (await store.runs.settle(batch)).stale == [stale]
            assert [run.outcome for run in await store.history.runs(RunFilter(1, T0, T0 + HOUR))] == ["succeeded"]
            assert (await only_live(store, 2)).state == "running"
            assert (await only_live(store, 3)).wake_at == at + MINUTE
            assert [len(await store.history.attempts(sid, T0, T0 + HOUR)) for sid in (1, 2, 3)] == [0, 0, 1]
            assert [(await row_of(store, sid))["last_failure_at"] for sid in (1, 2, 3)] == [None, None, at + 1]

    async def test_each_end_is_judged_by_its_own_owner(self) -> None:
        async with self.opened("a", "b", "c") as store:
            (a,) = (await claim(store, T0 + MINUTE, limit=1)).starts
            b, c = (await claim(store, T0 + MINUTE, owner="instance-2")).starts
            at = T0 + 61 * SECOND
            theirs = Settlement(b, ME, "succeeded", at)
            batch = [Settlement(a, ME, "succeeded", at), theirs, Settlement(c, "instance-2", "succeeded", at)]
            assert (await store.runs.settle(batch)).stale == [theirs]
            assert (await only_live(store, 2)).owner == "instance-2"
            assert [run.owner for sid in (1, 2, 3) for run in await store.history.runs(RunFilter(sid, T0, at))] == [
                ME,
                "instance-2",
            ]

    async def test_a_failure_is_recorded_also_where_nothing_is_known_of_it(self) -> None:
        async with self.opened("a") as store:
            start = await start_one(store, T0 + MINUTE)
            assert (await store.runs.settle([Settlement(start, ME, "abandoned", T0 + 61 * SECOND)])).stale == []
            (attempt,) = await store.history.attempts(1, T0, T0 + HOUR)
            assert (attempt.outcome, attempt.error, attempt.cause) == ("abandoned", None, "cron")

    async def test_an_edit_during_the_run_asks_for_a_look_at_its_end(self) -> None:
        async with self.opened("a") as store:
            start = await start_one(store, T0 + MINUTE)
            edit = changed(1, cursor_at=T0 + MINUTE, next_run_at=None, epoch=2, new_epoch=True)
            await store.schedules.declare(declaration(at=T0 + 61 * SECOND, changed=[edit]))
            assert (await store.runs.settle([Settlement(start, ME, "succeeded", T0 + 62 * SECOND)])).stale == []
            assert (await row_of(store, 1))["next_run_at"] == T0 + MINUTE, "its cursor: a look at once"
            (ended,) = await store.history.runs(RunFilter(1, T0, T0 + HOUR))
            assert ended.epoch == 1, "the run belongs to the epoch in which it was due"

    async def test_an_end_reports_what_it_has_woken(self) -> None:
        async with self.opened("a", "b", "c", "d") as store:
            a, b, c, d = (await claim(store, T0 + MINUTE)).starts
            at = T0 + 2 * MINUTE + SECOND
            assert (await claim(store, at, limit=1)).looked == 1, "of the first its next occurrence has come"
            edit = changed(4, cursor_at=T0 + MINUTE, next_run_at=None, epoch=2, new_epoch=True)
            await store.schedules.declare(declaration(at=at, changed=[edit]))
            settled = await store.runs.settle(
                [
                    Settlement(a, ME, "succeeded", at),
                    Settlement(b, ME, "failed", at, at + SECOND, "no"),
                    Settlement(c, ME, "succeeded", at),
                    Settlement(d, ME, "succeeded", at),
                ]
            )
            assert settled == Settled([], {1: T0 + 2 * MINUTE, 2: T0 + 2 * MINUTE, 4: T0 + MINUTE})

    async def test_a_stale_end_has_woken_nothing(self) -> None:
        async with self.opened("a") as store:
            start = await start_one(store, T0 + MINUTE)
            stale = Settlement(replace(start, fence=7), ME, "failed", T0 + 61 * SECOND, T0 + 62 * SECOND, "no")
            assert await store.runs.settle([stale]) == Settled([stale], {})

    async def test_the_end_of_a_manual_run_wakes_the_retry_that_waited_beside_it(self) -> None:
        async with self.opened("a") as store:
            start = await start_one(store, T0 + MINUTE)
            await fail(store, start, T0 + 61 * SECOND, retry_at=T0 + 70 * SECOND)
            manual = await store.runs.trigger(1, ME, T0 + 65 * SECOND)
            assert manual is not None
            settled = await store.runs.settle([Settlement(manual, ME, "succeeded", T0 + 80 * SECOND)])
            assert settled == Settled([], {1: T0 + 70 * SECOND})

    async def test_the_last_occurrence_leaves_no_wake_up(self) -> None:
        async with self.opened("a") as store:
            start = await start_one(store, T0 + MINUTE)
            await claim(store, T0 + 2 * MINUTE)
            last = Settlement(replace(start, following=None), ME, "succeeded", T0 + 2 * MINUTE)
            assert (await store.runs.settle([last])).stale == []
            assert (await row_of(store, 1))["next_run_at"] is None

    async def test_an_empty_batch_is_fine(self) -> None:
        async with self.opened("a") as store:
            before = await ledger(store)
            assert await store.runs.settle([]) == Settled([], {})
            assert await ledger(store) == before

    async def test_texts_are_kept_as_they_are(self) -> None:
        texts = ["", "'; DROP TABLE runs; --", '{"a": [1]}', "Ünïcode ☃ 🕛", "two\nlines\tand a tab", "null", "1"]
        async with self.opened(*(f"task {text}" for text in texts)) as store:
            assert [row["name"] for row in await schedule_rows(store)] == [f"task {text}" for text in texts]
            starts = (await claim(store, T0 + MINUTE)).starts
            batch = zip(starts, texts, strict=True)
            settled = await store.runs.settle(
                [Settlement(s, ME, "failed", s.started_at, None, text) for s, text in batch]
            )
            assert settled.stale == []
            kept = [(await store.history.attempts(start.sid, T0, T0 + HOUR))[0].error for start in starts]
            assert kept == texts

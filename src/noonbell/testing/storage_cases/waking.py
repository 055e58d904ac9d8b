"""Wake-ups of schedules, of some of them and of a lane: the basis of a timeline in front of a store."""

# ruff: noqa: S101 - asserting is what these cases are for
from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from noonbell.core.records import (
    Definition,
    DurableSchedule,
    Edit,
    Epoch,
    ScheduleColumns,
    Settlement,
    Start,
    StoredSchedule,
    Turn,
)
from noonbell.core.turns import close, drop, look
from noonbell.ports import LaneClaim, Ledger, ScheduleChange, ScheduleFilter, Settled, WakeFilter
from noonbell.store.waking import wake_times
from noonbell.testing.storage_cases.base import ME, MINUTE, SECOND, T0, StorageCases, declaration, ledger, new

LANE = "waking"
_NEVER = (-1, -1)


def _schedule(
    name: str,
    next_run_at: int | None = T0 + MINUTE,
    *,
    lane: str = LANE,
    enabled: bool = True,
    overlap: Any = "coalesce",
) -> DurableSchedule:
    definition = msgspec.json.encode(Definition(action={"kind": "callback", "name": "x"}, overlap=overlap)).decode()
    columns = ScheduleColumns(name, "cron", "* * * * *", "UTC", None, "run_once", None, definition)
    return DurableSchedule(
        name, columns, enabled=enabled, managed_by="suite", lane=lane, cursor_at=T0, next_run_at=next_run_at,
        anchor_at=None, zone_hash="z1", policies="{}",
    )  # fmt: skip


async def _claim(store: Ledger, now: int, **narrowed: Any) -> LaneClaim:
    def take_turn(stored: StoredSchedule) -> Turn:
        return look(stored, now)

    return await store.runs.claim(LANE, ME, now, 100, take_turn, **narrowed)


def _started(claim: LaneClaim) -> list[int]:
    return [start.sid for start in claim.claimed.starts]


async def _delete(store: Ledger, schedule_id: str, at: int) -> None:
    def edit(stored: StoredSchedule) -> Edit:
        turn = drop(stored, at)
        return Edit(turn.cursor_at, turn, stored.columns, None)

    await store.schedules.apply(ScheduleChange(edited=[schedule_id], edit=edit))


class WakingCases(StorageCases):
    @asynccontextmanager
    async def waking(self, *created: DurableSchedule) -> AsyncIterator[Ledger]:
        """A new store with these schedules; their sids count from 1."""
        store = await self.make_store()
        await store.open()
        try:
            await store.schedules.apply(ScheduleChange(created, T0, "suite"))
            yield store
        finally:
            await store.close()

    # --- claiming some ----------------------------------------------------------------------------------------------

    async def test_a_claim_among_some_looks_at_those_that_are_due(self) -> None:
        later, asleep = _schedule("later", T0 + 2 * MINUTE), _schedule("asleep", enabled=False)
        created = (_schedule("a"), _schedule("b"), later, asleep, _schedule("elsewhere", lane="other"))
        async with self.waking(*created) as store:
            claim = await _claim(store, T0 + MINUTE, among=[5, 4, 3, 2, 99])
            assert _started(claim) == [2]
            assert (claim.claimed.looked, list(claim.stored)) == (1, [2])
            assert claim.claimed.next_wake_at == T0 + 2 * MINUTE, "of the one that it has looked at"
            assert _started(await _claim(store, T0 + MINUTE)) == [1], "the other one is still due"

    async def test_a_claim_among_none_of_the_due_ones_changes_nothing(self) -> None:
        async with self.waking(_schedule("a"), _schedule("b", T0 + 2 * MINUTE)) as store:
            before = await ledger(store)
            for among in ([], [2], [77]):
                claim = await _claim(store, T0 + MINUTE, among=among)
                assert (claim.claimed.looked, claim.claimed.starts, claim.claimed.next_wake_at) == (0, [], None)
            assert await ledger(store) == before

    async def test_a_claim_among_some_takes_the_earliest_first(self) -> None:
        created = [_schedule(f"s{i}", T0 + at) for i, at in enumerate((30, 10, 20, 10))]
        async with self.waking(*created) as store:
            seen: list[int] = []

            def take_turn(stored: StoredSchedule) -> Turn:
                seen.append(stored.sid)
                return look(stored, T0 + MINUTE)

            claim = await store.runs.claim(LANE, ME, T0 + MINUTE, 3, take_turn, among=[1, 2, 3, 4])
            assert (sorted(seen[:2]), seen[2:], claim.claimed.full) == ([2, 4], [3], True)

    async def test_a_claim_among_some_wakes_their_live_runs(self) -> None:
        async with self.waking(_schedule("a"), _schedule("b", None)) as store:
            (start,) = (await _claim(store, T0 + MINUTE)).claimed.starts
            assert _started(await _claim(store, T0 + MINUTE, among=[1])) == [], "it executes"
            await _fail(store, [start], T0 + MINUTE, wake_at=T0 + MINUTE + 9 * SECOND)
            assert await store.runs.ask("b", T0 + MINUTE, "suite") is not None
            assert _started(await _claim(store, T0 + MINUTE + 8 * SECOND, among=[1])) == []
            assert _started(await _claim(store, T0 + MINUTE + 9 * SECOND, among=[1])) == [1]
            assert _started(await _claim(store, T0 + MINUTE + 9 * SECOND, among=[2])) == [2], "asked for"

    async def test_a_claim_of_what_is_overdue_leaves_the_rest(self) -> None:
        async with self.waking(_schedule("a", T0 + 5 * SECOND), _schedule("b", T0 + 8 * SECOND)) as store:
            now = T0 + 9 * SECOND
            seen: list[int] = []

            def take_turn(stored: StoredSchedule) -> Turn:
                seen.append(stored.sid)
                return look(stored, now)

            claim = await store.runs.claim(LANE, ME, now, 100, take_turn, due_by=now - 2 * SECOND)
            assert (seen, claim.claimed.next_wake_at) == ([1], T0 + 8 * SECOND)
            assert (await store.schedules.find(ScheduleFilter(schedule_ids=["a"])))[0].next_run_at == T0 + MINUTE

    # --- when some wake ---------------------------------------------------------------------------------------------

    async def test_wake_times_are_those_of_the_next_occurrence(self) -> None:
        created = (_schedule("a"), _schedule("asleep", enabled=False), _schedule("never", None), _schedule("gone"))
        async with self.waking(*created) as store:
            await store.schedules.declare(declaration(created=[new("declared")]))
            await _delete(store, "gone", T0 + SECOND)
            assert wake_times(await store.schedules.find(ScheduleFilter(sids=[5, 4, 3, 2, 1, 99]))) == {
                1: T0 + MINUTE,
                3: None,
            }
            assert wake_times(await store.schedules.find(ScheduleFilter(sids=[]))) == {}

    async def test_wake_times_know_live_runs(self) -> None:
        async with self.waking(_schedule("a"), _schedule("b")) as store:
            starts = (await _claim(store, T0 + MINUTE)).claimed.starts
            assert wake_times(await store.schedules.find(ScheduleFilter(sids=[1, 2]))) == {
                1: T0 + 2 * MINUTE,
                2: T0 + 2 * MINUTE,
            }
            await _claim(store, T0 + 2 * MINUTE)
            assert wake_times(await store.schedules.find(ScheduleFilter(sids=[1, 2]))) == {1: None, 2: None}, (
                "their runs are under way"
            )
            await _fail(store, starts[:1], T0 + 2 * MINUTE, wake_at=T0 + 2 * MINUTE + 5)
            assert (wake_times(await store.schedules.find(ScheduleFilter(sids=[1]))))[1] in (
                T0 + 2 * MINUTE,
                T0 + 2 * MINUTE + 5,
            )
            await store.runs.settle([Settlement(starts[1], ME, "succeeded", T0 + 2 * MINUTE + 1)])
            assert wake_times(await store.schedules.find(ScheduleFilter(sids=[2]))) == {2: T0 + 2 * MINUTE}, (
                "what has come in between is due"
            )

    async def test_a_run_whose_turn_it_is_not_wakes_no_schedule(self) -> None:
        async with self.waking(_schedule("a"), _schedule("b", overlap="allow")) as store:
            now = T0 + MINUTE
            starts = (await _claim(store, now)).claimed.starts
            await _fail(store, starts, now, wake_at=now + SECOND)
            assert wake_times(await store.schedules.find(ScheduleFilter(sids=[1, 2]))) == {
                1: now + SECOND,
                2: now + SECOND,
            }
            for name in ("a", "b"):
                assert await store.runs.ask(name, now, "suite") is not None
            assert wake_times(await store.schedules.find(ScheduleFilter(sids=[1, 2]))) == {1: 0, 2: 0}, (
                "what a person asks for comes first"
            )
            assert _started(await _claim(store, now, among=[1, 2])) == [1, 2]
            assert wake_times(await store.schedules.find(ScheduleFilter(sids=[1, 2]))) == {1: None, 2: now + SECOND}, (
                "the other waits for its end"
            )
            assert _started(await _claim(store, now + SECOND, among=[1, 2])) == [2]

    # --- what an end wakes ------------------------------------------------------------------------------------------

    async def test_most_ends_wake_nothing(self) -> None:
        async with self.waking(_schedule("a"), _schedule("b")) as store:
            starts = (await _claim(store, T0 + MINUTE)).claimed.starts
            assert await _end(store, starts, T0 + MINUTE + 1) == {}
            assert wake_times(await store.schedules.find(ScheduleFilter(sids=[1, 2]))) == {
                1: T0 + 2 * MINUTE,
                2: T0 + 2 * MINUTE,
            }, "as since the claim"

    async def test_an_end_brings_back_a_wake_up_that_came_during_the_run(self) -> None:
        async with self.waking(_schedule("a"), _schedule("b")) as store:
            starts = (await _claim(store, T0 + MINUTE)).claimed.starts
            await _claim(store, T0 + 2 * MINUTE, among=[2])
            assert await _end(store, starts, T0 + 2 * MINUTE + 1) == {2: T0 + 2 * MINUTE}

    async def test_an_end_after_an_edit_asks_for_a_look(self) -> None:
        async with self.waking(_schedule("a"), _schedule("b", overlap="allow")) as store:
            starts = (await _claim(store, T0 + MINUTE)).claimed.starts
            await _edit(store, "a", T0 + MINUTE + 3, enabled=True)
            await _edit(store, "b", T0 + MINUTE + 3, enabled=True, next_run_at=T0 + 2 * MINUTE)
            assert await _end(store, starts, T0 + MINUTE + 5) == {1: T0 + MINUTE + 3, 2: T0 + MINUTE + 3}

    async def test_a_pause_during_the_run_leaves_nothing_to_wake(self) -> None:
        async with self.waking(_schedule("a")) as store:
            starts = (await _claim(store, T0 + MINUTE)).claimed.starts
            await _edit(store, "a", T0 + MINUTE + 3, enabled=False)
            assert await _end(store, starts, T0 + MINUTE + 5) == {}

    async def test_an_end_wakes_the_run_that_is_queued_behind_it(self) -> None:
        async with self.waking(_schedule("a")) as store:
            starts = (await _claim(store, T0 + MINUTE)).claimed.starts
            await _edit(store, "a", T0 + 2 * MINUTE + 3, enabled=False)
            (queued,) = [live for live in await store.runs.live(1) if live.state == "queued"]
            assert await _end(store, starts, T0 + 2 * MINUTE + 5) == {1: queued.wake_at}
            assert _started(await _claim(store, T0 + 2 * MINUTE + 5)) == [1]

    async def test_an_end_wakes_the_run_that_was_requested_in_between(self) -> None:
        async with self.waking(_schedule("a"), _schedule("b")) as store:
            starts = (await _claim(store, T0 + MINUTE)).claimed.starts
            await _fail(store, starts[:1], T0 + MINUTE, wake_at=T0 + MINUTE + 9 * SECOND)
            assert await store.runs.ask("a", T0 + MINUTE + 1, "suite") is not None
            (asked,) = (await _claim(store, T0 + MINUTE + 2)).claimed.starts
            assert asked.kind == "manual"
            woken = await _end(store, [asked, starts[1]], T0 + MINUTE + 3)
            assert woken == {1: T0 + MINUTE + 9 * SECOND}, "the retry that had to wait for it"

    async def test_what_was_asked_for_goes_one_after_the_other_with_its_retries(self) -> None:
        async with self.waking(_schedule("a", None, enabled=False)) as store:
            now = T0 + MINUTE
            assert await store.runs.ask("a", now, "suite") == now
            assert await store.runs.ask("a", now, "suite") is None
            assert await store.runs.ask("a", now, "suite", "api", queue=True, retry=False) == now + 1
            (first,) = (await _claim(store, now)).claimed.starts
            assert (first.run_for, first.cause) == (now, "manual")
            assert (wake_times(await store.schedules.find(ScheduleFilter(sids=[1])))) == {}, "it executes"
            await _fail(store, [first], now, wake_at=now + 9 * SECOND)
            assert (wake_times(await store.schedules.find(ScheduleFilter(sids=[1])))) == {1: now + 9 * SECOND}, (
                "the other one waits behind it"
            )
            assert _started(await _claim(store, now + 8 * SECOND)) == []
            (again,) = (await _claim(store, now + 9 * SECOND)).claimed.starts
            assert (again.run_for, again.attempt, again.cause) == (now, 2, "retry")
            assert await _end(store, [again], now + 10 * SECOND) == {1: 0}
            (second,) = (await _claim(store, now + 10 * SECOND)).claimed.starts
            assert (second.run_for, second.attempt, second.cause) == (now + 1, 1, "api_once")

    async def test_an_attempt_that_is_repeated_wakes_by_then_or_by_the_next_occurrence(self) -> None:
        async with self.waking(_schedule("a"), _schedule("b")) as store:
            a, b = (await _claim(store, T0 + MINUTE)).claimed.starts
            now = T0 + MINUTE + 1
            ends = [
                Settlement(a, ME, "failed", now, now + SECOND, "no"),
                Settlement(b, ME, "failed", now, now + MINUTE, "no"),
            ]
            assert await store.runs.settle(ends) == Settled([], {1: now + SECOND, 2: T0 + 2 * MINUTE})

    async def test_what_is_stale_wakes_nothing_and_hides_nothing(self) -> None:
        async with self.waking(_schedule("a"), _schedule("b")) as store:
            a, b = (await _claim(store, T0 + MINUTE)).claimed.starts
            await _claim(store, T0 + 2 * MINUTE)
            stale = Settlement(a, "another owner", "succeeded", T0 + 2 * MINUTE)
            ends = [stale, Settlement(b, ME, "succeeded", T0 + 2 * MINUTE)]
            assert await store.runs.settle(ends) == Settled([stale], {2: T0 + 2 * MINUTE})

    async def test_an_end_reports_all_that_waits_behind_it(self) -> None:
        async with self.waking(_schedule("a", overlap="allow")) as store:
            first, second = [(await _claim(store, T0 + n * MINUTE)).claimed.starts[0] for n in (1, 2)]
            now = T0 + 2 * MINUTE + 1
            await _fail(store, [first], now, wake_at=now + SECOND)
            assert (await store.schedules.find(ScheduleFilter(schedule_ids=["a"])))[0].next_run_at == T0 + 3 * MINUTE, (
                "as it was"
            )
            assert await _end(store, [second], now) == {1: now + SECOND}

    async def test_two_ends_of_one_schedule_wake_it_as_the_later_one_leaves_it(self) -> None:
        async with self.waking(_schedule("a", overlap="allow")) as store:
            first, second = [(await _claim(store, T0 + n * MINUTE)).claimed.starts[0] for n in (1, 2)]
            now = T0 + 2 * MINUTE + 1
            ends = [
                Settlement(first, ME, "failed", now, now + SECOND, "no"),
                Settlement(second, ME, "succeeded", now),
            ]
            assert await store.runs.settle(ends) == Settled([], {1: now + SECOND})

    # --- when a lane wakes ------------------------------------------------------------------------------------------

    async def test_coming_wakes_are_paged_in_their_order(self) -> None:
        instants = [T0 + 3, T0 + 1, T0 + 3, T0 + 3, T0 + 2, T0 + 9]
        created = [_schedule(f"s{i}", at) for i, at in enumerate(instants)]
        others = (_schedule("elsewhere", T0 + 1, lane="other"), _schedule("asleep", T0 + 1, enabled=False))
        async with self.waking(*created, *others, _schedule("never", None)) as store:
            expected = [(T0 + 1, 2), (T0 + 2, 5), (T0 + 3, 1), (T0 + 3, 3), (T0 + 3, 4)]
            for size in (1, 2, 100):
                found: list[tuple[int, int]] = []
                while page := await store.schedules.wakes(
                    WakeFilter(T0 + 8, LANE), found[-1] if found else _NEVER, size
                ):
                    assert len(page) <= size
                    found += page
                assert found == expected
            assert await store.schedules.wakes(WakeFilter(T0 + 9, LANE), (T0 + 3, 1 << 62), 100) == [(T0 + 9, 6)]

    async def test_coming_wakes_of_live_runs(self) -> None:
        async with self.waking(_schedule("a"), _schedule("b"), _schedule("c")) as store:
            starts = (await _claim(store, T0 + MINUTE)).claimed.starts
            assert await store.schedules.wakes(WakeFilter(T0 + 9 * MINUTE, LANE, live=True), _NEVER, 100) == [], (
                "they execute"
            )
            for start, wait in zip(starts, (7, 5, 900), strict=True):
                await _fail(store, [start], T0 + MINUTE, wake_at=T0 + MINUTE + wait * SECOND)
            found = await store.schedules.wakes(WakeFilter(T0 + 9 * MINUTE, LANE, live=True), _NEVER, 100)
            assert found == [(T0 + MINUTE + 5 * SECOND, starts[1].sid), (T0 + MINUTE + 7 * SECOND, starts[0].sid)]
            assert await store.schedules.wakes(WakeFilter(T0 + 9 * MINUTE, LANE, live=True), found[0], 100) == found[1:]
            assert await store.schedules.wakes(WakeFilter(T0 + 9 * MINUTE, "other", live=True), _NEVER, 100) == []


async def _edit(store: Ledger, schedule_id: str, at: int, *, enabled: bool, next_run_at: int | None = None) -> None:
    """Begin another epoch of the same schedule."""

    def edit(stored: StoredSchedule) -> Edit:
        turn = close(stored, at)
        turn.enabled, turn.next_run_at = enabled, next_run_at
        epoch = Epoch(stored.sid, stored.epoch + 1, turn.cursor_at, None, "* * * * *", "UTC", "z1", "{}", enabled)
        return Edit(turn.cursor_at, turn, stored.columns, epoch)

    await store.schedules.apply(ScheduleChange(edited=[schedule_id], edit=edit))


async def _end(store: Ledger, starts: Sequence[Start], at: int) -> dict[int, int]:
    """Let runs succeed; returns what that has woken."""
    settled = await store.runs.settle([Settlement(start, ME, "succeeded", at) for start in starts])
    assert settled.stale == []
    return settled.woken


async def _fail(store: Ledger, starts: Sequence[Start], at: int, wake_at: int) -> None:
    settled = await store.runs.settle([Settlement(start, ME, "failed", at, wake_at, "no") for start in starts])
    assert settled.stale == []

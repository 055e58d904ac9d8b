"""Engines that share a lane: its members, since when the lane is up, and what becomes of the runs of dead engines."""

# ruff: noqa: S101 - asserting is what these cases are for
from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import msgspec

from noonbell.core.presence import (
    MOST_GAPS,
    EngineRecord,
    EngineSign,
    Gap,
    Polls,
    engine_name,
    lane_name,
    lanes_up,
)
from noonbell.core.records import (
    AT_ONCE,
    MOST_CRASHES,
    Definition,
    DurableSchedule,
    LifecycleEvent,
    LiveRun,
    OutboxMessage,
    Outcome,
    ScheduleColumns,
    Settlement,
    Start,
    StoredSchedule,
    Turn,
)
from noonbell.core.turns import look
from noonbell.errors import StoreError
from noonbell.ledger.ledger_rows import lifecycle_of, schedule_rows
from noonbell.ports import AuditFilter, Hold, Ledger, RunFilter, ScheduleChange, ScheduleFilter
from noonbell.testing.storage_cases.base import MINUTE, SECOND, T0, StorageCases, only_live, record_step

LANE = "shared"
A, B, C = "engine-a", "engine-b", "engine-c"


def schedule(name: str, **definition: Any) -> DurableSchedule:
    made = msgspec.json.encode(Definition(action={"kind": "callback", "name": "x"}, **definition)).decode()
    columns = ScheduleColumns(name, "cron", "* * * * *", "UTC", None, "run_once", None, made)
    return DurableSchedule(
        name, columns, enabled=True, managed_by="suite", lane=LANE, cursor_at=T0, next_run_at=T0 + MINUTE,
        anchor_at=None, zone_hash="z1", policies="{}",
    )  # fmt: skip


def clock(at: int) -> Callable[[], int]:
    """A clock that shows one instant."""
    return lambda: at


def record(instance: str, at: int = T0, lane: str = LANE) -> EngineRecord:
    return EngineRecord(instance, lane, "host", 7, "1.2", "2026a", at, at)


async def join(store: Ledger, instance: str, at: int = T0, lane: str = LANE) -> tuple[Hold, int]:
    """Come up on the lane; returns since when the lane is."""
    hold = await store.hold(engine_name(instance), instance)
    since = await store.engines.join(record(instance, at, lane))
    event = LifecycleEvent(lane_name(lane), at, instance, "init-ok")
    await store.engines.beat(EngineSign(instance, at, since, "up", event=event), clock(at))
    return hold, since


async def claim(store: Ledger, owner: str, now: int, limit: int = 1) -> list[Start]:
    def take_turn(stored: StoredSchedule) -> Turn:
        return look(stored, now)

    return (await store.runs.claim(LANE, owner, now, limit, take_turn)).claimed.starts


async def crashes(store: Ledger) -> list[str]:
    return [event.instance for event in await lifecycle_of(store, lane_name(LANE)) if event.event == "crash"]


class EngineCases(StorageCases):
    @asynccontextmanager
    async def shared(self, *names: str, **definition: Any) -> AsyncIterator[tuple[Ledger, Ledger]]:
        """Two handles on the same data, as of two processes, with these schedules; their sids count from 1."""
        one = await self.make_store()
        await one.open()
        two = await self.reopen(one)
        await two.open()
        try:
            await one.schedules.apply(ScheduleChange([schedule(name, **definition) for name in names], T0, "suite"))
            yield one, two
        finally:
            await two.close()
            await one.close()

    async def test_engines_share_a_lane_and_are_listed(self) -> None:
        async with self.shared() as (one, two):
            held = [await join(one, A), await join(two, B, T0 + SECOND), await join(two, C, T0, "other")]
            await one.engines.beat(
                EngineSign(A, T0 + 2 * SECOND, T0 - SECOND, "stopping", "2026b", {"running": 3, "late": None}),
                clock(T0 + 2 * SECOND),
            )
            for store in (one, two):
                found = (await store.engines.members(T0 + 5 * SECOND)).alive
                assert [(e.lane, e.instance, e.state) for e in found] == [
                    ("other", C, "up"), (LANE, A, "stopping"), (LANE, B, "up"),
                ]  # fmt: skip
                engine = found[1]
                assert (engine.host, engine.pid, engine.version, engine.zone_data, engine.joined_at) == (
                    "host", 7, "1.2", "2026b", T0,
                )  # fmt: skip
                assert (engine.up_since, engine.load) == (T0 - SECOND, {"running": 3, "late": None})
                assert 0 <= engine.seen_ago_us <= 60 * SECOND
                assert lanes_up(found) == {"other": T0, LANE: T0 - SECOND}
                assert (await store.engines.members(0, LANE)).dead == []
            for hold, _ in held:
                hold.release()

    async def test_who_joins_takes_over_since_when_the_lane_is_up(self) -> None:
        async with self.shared() as (one, two):
            first, since = await join(one, A)
            assert since == T0
            second, since = await join(two, B, T0 + MINUTE)
            assert since == T0, "the lane has been up all the time"
            await one.engines.leave(A)
            first.release()
            third, since = await join(one, C, T0 + 2 * MINUTE)
            assert since == T0, "the one that is left knows it"
            assert lanes_up((await two.engines.members(T0)).alive) == {LANE: T0}
            for instance, hold, store in ((B, second, two), (C, third, one)):
                await store.engines.leave(instance)
                hold.release()
            assert lanes_up((await one.engines.members(T0)).alive) == {}
            fourth, since = await join(one, "engine-d", T0 + 3 * MINUTE)
            assert since == T0 + 3 * MINUTE, "nothing was up in between"
            fourth.release()

    async def test_a_lane_has_the_last_poll_of_all_its_engines(self) -> None:
        async with self.shared() as (one, two):
            assert await one.engines.polls() == {}
            held = [await join(one, A), await join(two, B), await join(two, C, T0, "other")]
            assert await one.engines.polls() == {}, "none of them has polled yet"
            for store, instance, at in ((one, A, 5), (two, B, 3), (two, C, 1), (one, "engine-unknown", 9)):
                sign = EngineSign(instance, T0 + at, T0, "up", last_poll_at=T0 + at, grace_us=70 * SECOND)
                if instance == "engine-unknown":  # it did not join, or was taken for dead: nothing of it is kept
                    with suppress(StoreError):
                        await store.engines.beat(sign, clock(T0 + at))
                else:
                    await store.engines.beat(sign, clock(T0 + at))
            expected = {LANE: Polls(T0 + 5, 70 * SECOND), "other": Polls(T0 + 1, 70 * SECOND)}
            assert await one.engines.polls() == await two.engines.polls() == expected
            assert [e.last_poll_at for e in (await one.engines.members(T0)).alive] == [T0 + 1, T0 + 5, T0 + 3]
            await one.engines.leave(A)
            assert await two.engines.polls() == expected, "it outlives the engine"
            for hold, _ in held:
                hold.release()

    async def test_a_gap_between_polls_is_recorded_once(self) -> None:
        async with self.shared() as (one, two):
            held = [await join(one, A), await join(two, B)]
            first = await one.engines.record_gaps(LANE, A, [Gap(0, T0, MINUTE)], clock(T0))
            assert first == Polls(T0, MINUTE, (Gap(0, T0, MINUTE),)), "nothing proves a poll before the first"
            later = T0 + 10 * MINUTE
            gap = Gap(T0 + SECOND, later, MINUTE)
            found = await one.engines.record_gaps(LANE, A, [gap], clock(later))
            assert found == Polls(later, MINUTE, (*first.gaps, gap))
            again = await two.engines.record_gaps(
                LANE, B, [Gap(T0 + SECOND, later + SECOND, MINUTE)], clock(later + SECOND)
            )
            assert again.gaps == found.gaps, "the other engine ended it"
            assert (await one.engines.record_gaps(LANE, A, [gap], clock(later))).gaps == found.gaps, (
                "it is tried again after a failure"
            )
            assert await one.engines.polls() == {LANE: again}
            for n in range(1, 2 * MOST_GAPS, 2):
                at = later + n * 5 * MINUTE
                again = await one.engines.record_gaps(LANE, A, [Gap(at - 4 * MINUTE, at, MINUTE)], clock(at))
            assert len(again.gaps) == MOST_GAPS
            assert again.gaps[-1].until == again.last_poll_at
            for hold, _ in held:
                hold.release()

    async def test_gaps_are_recorded_late_and_together(self) -> None:
        async with self.shared() as (one, two):
            held = [await join(one, A), await join(two, B)]
            first, second, third = (Gap(T0 + n * MINUTE, T0 + (n + 4) * MINUTE, MINUTE) for n in (0, 4, 10))
            await two.engines.record_gaps(LANE, B, [third], clock(third.until))
            found = await one.engines.record_gaps(LANE, A, [first, second], clock(third.until + MINUTE))
            assert found == Polls(third.until, MINUTE, (first, second, third))
            for hold, _ in held:
                hold.release()

    async def test_a_sign_of_life_that_was_delayed_does_not_set_the_clock_back(self) -> None:
        async with self.shared() as (one, two):
            held = [await join(one, A), await join(two, B)]
            gap = Gap(T0, T0 + 10 * MINUTE, MINUTE)
            found = await two.engines.record_gaps(LANE, B, [gap], clock(gap.until))
            sign = EngineSign(A, T0 + MINUTE, T0, "up", last_poll_at=T0 + MINUTE)  # made before, written after
            await one.engines.beat(sign, clock(gap.until + SECOND))
            assert (await one.engines.polls())[LANE] == found
            for hold, _ in held:
                hold.release()

    async def test_polls_follow_a_clock_that_is_set_back(self) -> None:
        async with self.shared() as (one, two):
            held = [await join(one, A), await join(two, B)]
            await one.engines.record_gaps(LANE, A, [Gap(0, T0, MINUTE)], clock(T0))
            ahead = T0 + 50 * MINUTE  # the clock was an hour ahead
            await one.engines.record_gaps(LANE, A, [Gap(T0, ahead, MINUTE)], clock(ahead))
            back = T0 + 2 * MINUTE
            await two.engines.beat(EngineSign(B, back, T0, "up", last_poll_at=back), clock(back))
            assert (await one.engines.polls())[LANE] == Polls(back, MINUTE, (Gap(0, T0, MINUTE),))
            later = await one.engines.record_gaps(
                LANE, A, [Gap(back, back + 5 * MINUTE, MINUTE)], clock(back + 5 * MINUTE)
            )
            await two.engines.beat(
                EngineSign(B, later.last_poll_at, T0, "up", last_poll_at=back), clock(later.last_poll_at)
            )
            assert (await one.engines.polls())[LANE] == later, (
                "an engine that has not polled for long does not set it back"
            )
            for hold, _ in held:
                hold.release()

    async def test_an_engine_that_only_begins_is_not_up(self) -> None:
        async with self.shared() as (one, two):
            hold = await one.hold(engine_name(A), A)
            assert await one.engines.join(record(A)) == T0
            assert lanes_up((await two.engines.members(T0)).alive) == {}
            other, since = await join(two, B, T0 + MINUTE)
            assert since == T0 + MINUTE
            hold.release()
            other.release()

    async def test_nothing_is_kept_of_a_sign_of_one_who_did_not_join(self) -> None:
        async with self.shared() as (one, two):
            hold = await one.hold(engine_name(A), A)
            await one.engines.beat(EngineSign(A, T0, T0, "up"), clock(T0))
            await one.engines.leave(A)
            assert (await two.engines.members(T0)).alive == []
            hold.release()

    async def test_two_engines_never_both_start_a_run(self) -> None:
        async with self.shared("a", "b", "c") as (one, two):
            held = [await join(one, A), await join(two, B)]
            now = T0 + MINUTE
            starts = [*(await claim(one, A, now)), *(await claim(two, B, now)), *(await claim(two, B, now, 10))]
            assert sorted(start.sid for start in starts) == [1, 2, 3]
            assert await claim(one, A, now, 10) == []
            assert len(await one.runs.live(owner=A)) == 1
            assert len(await one.runs.live(owner=B)) == 2
            for hold, _ in held:
                hold.release()

    async def test_clocks_that_differ_do_not_turn_back_when_a_schedule_ran_last(self) -> None:
        async with self.shared("a") as (one, two):
            held = [await join(one, A), await join(two, B)]
            later = T0 + MINUTE + 5 * SECOND
            (start,) = await claim(one, A, later)
            await one.runs.hand_back([start], A, AT_ONCE)
            (again,) = await claim(two, B, T0 + MINUTE + SECOND, 10)
            assert (again.sid, again.run_for) == (start.sid, start.run_for)
            (row,) = await schedule_rows(two, "suite")
            assert row["last_run_at"] == (await only_live(two, start.sid)).started_at == later
            for hold, _ in held:
                hold.release()

    async def test_the_runs_of_the_dead_are_freed_and_those_of_the_living_are_not_touched(self) -> None:
        async with self.shared("a", "b") as (one, two):
            await join(one, A)
            hold, _ = await join(two, B)
            (lost,), (kept,) = await claim(one, A, T0 + MINUTE), await claim(two, B, T0 + MINUTE)
            before = await only_live(two, kept.sid)
            assert await two.engines.rescue(LANE, B, T0 + MINUTE) == (0, [], 0), "both are alive"
            one.kill()
            await self.holder_dies()
            assert (await two.engines.members(0, LANE)).dead == [A]
            assert [e.instance for e in (await two.engines.members(T0)).alive] == [B]
            assert await two.engines.rescue(LANE, B, T0 + 2 * MINUTE) == (1, [A], 0)
            freed = await only_live(two, lost.sid)
            assert (freed.state, freed.cause, freed.owner, freed.wake_at) == ("queued", "orphan", None, 0)
            assert (freed.fence, freed.crashes) == (lost.fence + 1, 1)
            assert await only_live(two, kept.sid) == before
            assert (await two.engines.members(0, LANE)).dead == []
            assert await two.engines.rescue(LANE, B, T0 + 2 * MINUTE) == (0, [], 0), "once is enough"
            assert await crashes(two) == [A], "the engine that finds a dead one records its crash"
            (again,) = await claim(two, B, T0 + 2 * MINUTE)
            assert (again.sid, again.run_for, again.cause) == (lost.sid, lost.run_for, "orphan")
            # whatever the dead one says now comes too late
            late = Settlement(lost, A, "succeeded", T0 + 2 * MINUTE)
            assert (await two.runs.settle([late])).stale == [late]
            await two.runs.hand_back([lost], A, T0 + 2 * MINUTE)
            assert (await only_live(two, lost.sid)).owner == B
            hold.release()

    async def test_a_lane_is_freed_for_itself_alone(self) -> None:
        async with self.shared("a") as (one, two):
            await join(one, A)
            hold, _ = await join(two, B, lane="other")
            await claim(one, A, T0 + MINUTE)
            one.kill()
            await self.holder_dies()
            assert await two.engines.rescue("other", B, T0 + MINUTE) == (0, [], 0)
            assert (await only_live(two, 1)).owner == A
            hold.release()

    async def test_a_stop_hands_over_its_own_alone(self) -> None:
        async with self.shared("a", "b") as (one, two):
            held = [await join(one, A), await join(two, B)]
            (cut,), (kept,) = await claim(one, A, T0 + MINUTE), await claim(two, B, T0 + MINUTE)
            assert await one.engines.rescue(LANE, A, T0 + MINUTE, stopped=True) == (1, [], 0)
            freed = await only_live(one, cut.sid)
            assert (freed.state, freed.cause, freed.crashes) == ("queued", "orphan", 0)
            assert (await only_live(one, kept.sid)).owner == B
            assert await crashes(one) == []
            for hold, _ in held:
                hold.release()

    async def _dies_with(self, killer: Ledger, instance: str, runs: int) -> None:
        """An engine joins, claims so many runs, and dies."""
        await join(killer, instance)
        for _ in range(runs):  # one at a time: a claim may bring fewer than its limit
            assert len(await claim(killer, instance, T0 + MINUTE)) == 1
        killer.kill()
        await self.holder_dies()

    async def test_a_run_that_brings_down_engine_after_engine_is_given_up(self) -> None:
        async with self.shared("a") as (one, two):
            hold, _ = await join(two, B)
            ends: list[tuple[int, Outcome]] = []

            def notices_of_end(_: StoredSchedule, live: LiveRun, outcome: Outcome) -> Sequence[OutboxMessage]:
                ends.append((live.crashes, outcome))
                return []

            killer = one
            for death in range(1, MOST_CRASHES + 1):
                instance = f"engine-{death}"
                await self._dies_with(killer, instance, 1)
                freed = await two.engines.rescue(LANE, B, T0 + MINUTE, notices_of_end)
                assert freed == (int(death < MOST_CRASHES), [instance], 0)
                killer = await self.reopen(two)
                await killer.open()
            await killer.close()
            assert ends == [(MOST_CRASHES - 1, "abandoned")]
            (run,) = await two.history.runs(RunFilter(1, T0, T0 + MINUTE))
            assert run.outcome == "abandoned"
            (stored,) = await two.schedules.find(ScheduleFilter(schedule_ids=["a"]))
            assert stored.last_failure_at == T0 + MINUTE
            assert [e.event for _, e in await two.audit.page(AuditFilter(event="schedule.quarantined"), 0, 9)] != []
            assert await crashes(two) == [f"engine-{death}" for death in range(1, MOST_CRASHES + 1)]
            hold.release()

    async def test_of_two_runs_on_probation_beside_each_other_none_is_given_up(self) -> None:
        async with self.shared("a", "b") as (one, two):
            hold, _ = await join(two, B)
            killer = one
            for death in range(1, MOST_CRASHES + 1):
                await self._dies_with(killer, f"engine-{death}", 2)
                assert (await two.engines.rescue(LANE, B, T0 + MINUTE)).queued == 2, "either may be to blame"
                assert [(await only_live(two, sid)).crashes for sid in (1, 2)] == [death] * 2
                killer = await self.reopen(two)
                await killer.open()
            await self._dies_with(killer, "engine-alone", 1)
            assert (await two.engines.rescue(LANE, B, T0 + MINUTE)).queued == 0
            ended = [[run.outcome for run in await two.history.runs(RunFilter(sid, T0, T0 + MINUTE))] for sid in (1, 2)]
            assert sorted(ended) == [[], ["abandoned"]]
            hold.release()

    async def test_a_run_that_may_not_be_repeated_ends_with_its_engine(self) -> None:
        async with self.shared("a", at_most_once=True) as (one, two):
            await join(one, A)
            hold, _ = await join(two, B)
            await claim(one, A, T0 + MINUTE)
            one.kill()
            await self.holder_dies()
            assert await two.engines.rescue(LANE, B, T0 + MINUTE) == (0, [A], 0)
            (run,) = await two.history.runs(RunFilter(1, T0, T0 + MINUTE))
            assert (run.outcome, await two.runs.live(1)) == ("unknown", [])
            (stored,) = await two.schedules.find(ScheduleFilter(schedule_ids=["a"]))
            assert stored.last_failure_at == T0 + MINUTE, "the next success is a recovery"
            hold.release()

    async def test_streams_of_the_dead_are_freed_and_those_of_the_living_are_not(self) -> None:
        async with self.shared("a", "b") as (one, two):
            await join(one, A)
            hold, _ = await join(two, B)
            messages = [OutboxMessage(sid, LANE, f"m{sid}", "inbox", "{}", T0) for sid in (1, 2)]
            await one.outbox.post(messages, T0)
            assert len((await one.outbox.claim(LANE, A, T0, 1)).streams) == 1
            assert len((await two.outbox.claim(LANE, B, T0, 1)).streams) == 1
            one.kill()
            await self.holder_dies()
            await two.engines.rescue(LANE, B, T0)
            (stream,) = (await two.outbox.claim(LANE, "engine-x", T0, 10)).streams
            assert stream.attempt == 1, "counted as tried"
            assert len(await two.outbox.owned(B)) == 1
            hold.release()

    async def test_one_that_ends_without_a_word_is_recorded_as_far_as_it_had_come(self) -> None:
        async with self.shared() as (one, two):
            hold, _ = await join(two, B)
            await one.hold(engine_name(A), A)
            await one.engines.join(record(A))  # it never was up
            left = await one.hold(engine_name(C), C)
            await one.engines.join(record(C))
            for event in ("init-ok", "stop-start", "stop-end"):
                await record_step(one, LifecycleEvent(lane_name(LANE), T0, C, cast("Any", event)))
            left.release()  # it was cut off before it could leave
            one.kill()
            await self.holder_dies()
            assert await two.engines.rescue(LANE, B, T0) == (0, [A, C], 0)
            assert await crashes(two) == []
            hold.release()

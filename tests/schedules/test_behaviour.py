"""Catch-up x kind x downtime, overlap, quiet hours, retry, crash: by name, on both stores."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime, timedelta

import pytest

from noonbell.errors import ScheduleInvalidError
from noonbell.ledger import verify_store
from noonbell.ports import Decide, LaneClaim, ScheduleFilter
from noonbell.schedules import Fields
from noonbell.schedules.arguments import Order
from noonbell.timing import jitter_us
from tests.schedules.conftest import ACTION, IN_EARNEST, NOON, World

LONGEST_WAIT = IN_EARNEST
EVERY_DAY = list(range(7))
POLICIES = ("skip", "run_once", "run_all_capped")


async def down_for(world: World, minutes: float, how: str) -> None:
    """Nothing is up for a while: stopped, crashed, or asleep."""
    if how == "asleep":
        await world.clock.jump(timedelta(minutes=minutes))
        return
    await (world.crash() if how == "crashed" else world.schedules.stop())
    await world.minutes(minutes)
    await world.schedules.start()
    await world.clock.settle()


# --- catch-up x kind x downtime ---------------------------------------------------------------------------------------

CRON = {
    "skip": [("12:05", "fired"), ("12:10", "missed"), ("12:15", "missed"), ("12:20", "missed")],
    "run_once": [("12:05", "fired"), ("12:10", "coalesced"), ("12:15", "coalesced"), ("12:20", "fired")],
    "run_all_capped": [("12:05", "fired"), ("12:10", "fired"), ("12:15", "fired"), ("12:20", "missed")],
}
INTERVAL = {  # every five minutes from 12:00:30; it is up again at 12:23:30, and counts from its last start
    "skip": [("12:05:30", "fired"), ("12:10:30", "missed"), ("12:15:30", "missed"), ("12:20:30", "missed"),
             ("12:25:30", "fired")],
    "run_once": [("12:05:30", "fired"), ("12:10:30", "coalesced"), ("12:15:30", "coalesced"), ("12:20:30", "fired"),
                 ("12:28:30", "fired")],
    "run_all_capped": [("12:05:30", "fired"), ("12:10:30", "fired"), ("12:15:30", "fired"), ("12:20:30", "missed"),
                       ("12:28:30", "fired")],
}  # fmt: skip


@pytest.mark.parametrize("how", ["stopped", "crashed", "asleep"])
@pytest.mark.parametrize("policy", POLICIES)
async def test_cron_catches_up(world: World, policy: str, how: str) -> None:
    key = await world.create(spec="0,5,10,15,20 * * * *", catch_up_policy=policy, catch_up_cap=2)
    await world.schedules.start()
    await world.minutes(7)
    await down_for(world, 16, how)
    assert await world.told(key) == CRON[policy]
    assert world.called == [at for at, verdict in CRON[policy] if verdict == "fired"]


@pytest.mark.parametrize("how", ["stopped", "crashed", "asleep"])
@pytest.mark.parametrize("policy", POLICIES)
async def test_an_interval_catches_up_and_counts_from_its_start(world: World, policy: str, how: str) -> None:
    key = await world.create(type="interval", spec=300, catch_up_policy=policy, catch_up_cap=2)
    await world.schedules.start()
    await world.minutes(7)
    await down_for(world, 16, how)
    await world.minutes(6)
    assert await world.told(key) == INTERVAL[policy]


@pytest.mark.parametrize("how", ["stopped", "crashed", "asleep"])
@pytest.mark.parametrize("policy", POLICIES)
async def test_a_one_shot_catches_up_once_and_disables_itself(world: World, policy: str, how: str) -> None:
    key = await world.create(type="one_shot", spec="2026-03-04T12:10", catch_up_policy=policy)
    await world.schedules.start()
    await world.minutes(7)
    assert (await world.schedules.get(key)).enabled
    await down_for(world, 16, how)
    assert await world.told(key) == [("12:10", "missed" if policy == "skip" else "fired")]
    stored = await world.schedules.get(key)
    assert (stored.enabled, stored.next_run_at) == (False, None)


async def test_within_the_grace_being_late_is_no_miss(world: World) -> None:
    key = await world.create(catch_up_policy="skip")
    await world.schedules.start()
    await world.minutes(1)
    await down_for(world, 1, "stopped")
    assert await world.told(key) == [("12:01", "fired"), ("12:02", "fired")]


async def test_being_busy_is_no_downtime(world: World) -> None:
    key = await world.create(catch_up_policy="skip")
    world.duration = timedelta(minutes=10)
    await world.schedules.start()
    await world.minutes(11)
    assert await world.told(key) == [
        ("12:01", "fired"), *[(f"12:{m:02}", "coalesced") for m in range(2, 11)], ("12:11", "fired"),
    ]  # fmt: skip


BLOCKED = {
    "skip": ["missed"] * 9,
    "run_once": ["coalesced"] * 9,
    "run_all_capped": ["fired"] * 3 + ["missed"] * 6,
}


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_loop_that_was_blocked_catches_up(world: World, policy: str) -> None:
    """An action that never gives way keeps the loop from polling: what came meanwhile is for the policy."""
    await world.schedules.start()
    key = await world.create(catch_up_policy=policy, catch_up_cap=3)
    once = await world.create(type="one_shot", spec="2026-03-04T12:05:00Z", catch_up_policy=policy)
    await world.minutes(1)
    world.clock.stall(timedelta(minutes=10))
    await world.clock.settle()
    assert await world.told(key) == [
        ("12:01", "fired"), *[(f"12:{m:02}", BLOCKED[policy][m - 2]) for m in range(2, 11)], ("12:11", "fired"),
    ]  # fmt: skip
    assert await world.told(once) == [("12:05", "missed" if policy == "skip" else "fired")]
    metrics = world.schedules.metrics
    assert metrics is not None
    assert metrics["poll_gaps"] == 1
    assert 600.0 <= metrics["poll_gap_seconds"] <= 630.0


# --- audit ------------------------------------------------------------------------------------------------------------


async def test_each_missed_slot_is_told_up_to_a_thousand(world: World) -> None:
    key = await world.create(catch_up_policy="skip")
    await world.minutes(1001)  # 1,001 occurrences; the last lies within the grace
    await world.schedules.start()
    await world.clock.settle()
    found = await world.audits(key, "schedule.missed")
    assert len(found) == 1000
    assert found[0] == {"scheduled_for": 1_772_625_660_000_000, "count": 1, "reason": "not polled in time"}


async def test_more_missed_slots_are_told_as_a_range(world: World) -> None:
    key = await world.create(catch_up_policy="skip")
    await world.minutes(1002)
    await world.schedules.start()
    await world.clock.settle()
    (found,) = await world.audits(key, "schedule.missed")
    first = 1_772_625_660_000_000
    assert found == {"from": first, "to": first + 1000 * 60_000_000, "count": 1001, "reason": "not polled in time"}


async def test_a_cap_leaves_the_rest_missed_for_that_reason(world: World) -> None:
    key = await world.create(catch_up_policy="run_all_capped", catch_up_cap=3)
    await world.minutes(10)
    await world.schedules.start()
    await world.clock.settle()
    assert [one["reason"] for one in await world.audits(key, "schedule.missed")] == ["cap"] * 6
    assert world.called == ["12:01", "12:02", "12:03", "12:10"]


async def test_run_once_tells_how_many_slots_it_stands_for(world: World) -> None:
    key = await world.create(catch_up_policy="run_once")
    await world.minutes(10)
    await world.schedules.start()
    await world.clock.settle()
    (found,) = await world.audits(key, "schedule.coalesced")
    assert (found["slots"], found["count"]) == (10, 9)


async def test_after_a_downtime_batches_begin_small_and_follow_what_there_is_to_tell(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    many: list[Fields] = [{"type": "cron", "spec": "* * * * *", "action": ACTION} for _ in range(700)]
    keys = await world.schedules.create_many(many)
    await world.minutes(101)
    limits: list[int] = []
    claim = world.store.runs.claim

    async def counted(lane: str, owner: str, now: int, limit: int, take_turn: Decide) -> LaneClaim:
        limits.append(limit)
        return await claim(lane, owner, now, limit, take_turn)

    monkeypatch.setattr(world.store.runs, "claim", counted)
    await world.schedules.start()
    await world.clock.settle()
    # however many slots were missed, a schedule has one stretch of them to tell
    assert limits[:2] == [256, 512]
    assert len(world.calls) == 700
    assert len(await world.audits(keys[-1], "schedule.missed")) == 100


async def test_the_pages_of_an_audit_cut_a_stretch_of_missed_slots_anywhere(world: World) -> None:
    for name in ("a", "b", "c"):
        await world.create(name=name, catch_up_policy="skip", type="interval", spec="90")
    await world.schedules.pause((await world.schedules.list()).items[1].schedule_id)
    await world.minutes(16)
    await world.schedules.start()
    await world.clock.settle()
    whole = (await world.schedules.audit(limit=1000)).items
    assert [one.event for one in whole].count("schedule.missed") == 2 * 10
    orders: tuple[Order, ...] = ("oldest", "newest")
    for size, order in itertools.product((1, 2, 5, 9), orders):
        found, cursor = [], None
        while True:
            page = await world.schedules.audit(limit=size, cursor=cursor, order=order)
            assert len(page.items) == size or page.next_cursor is None
            found.extend(page.items)
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == (whole if order == "oldest" else whole[::-1])
    with pytest.raises(ScheduleInvalidError, match="must be one of newest, oldest"):
        await world.schedules.audit(order="up")  # type: ignore[arg-type]  # the thing under test
    with pytest.raises(ScheduleInvalidError, match="next_cursor"):
        await world.schedules.audit(cursor="1.x")


async def test_missed_slots_are_told_after_their_schedule_was_changed_and_deleted(world: World) -> None:
    key = await world.create(catch_up_policy="skip", spec="0,30 * * * *", timezone="Asia/Kolkata", dst="once")
    await world.minutes(180)
    await world.schedules.update(key, spec="5 * * * *")
    await world.schedules.delete(key)
    told = [one["scheduled_for"] for one in await world.audits(key, "schedule.missed")]
    first = 1_772_627_400_000_000  # 12:30 UTC
    assert told == [first + half * 30 * 60_000_000 for half in range(5)]  # the last is within the grace, and fired


# --- overlap ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overlap", "verdicts"),
    [
        ("coalesce", ["fired", "coalesced", "fired", "coalesced", "fired"]),
        ("skip", ["fired", "skipped", "skipped", "fired", "skipped"]),
        ("allow", ["fired", "fired", "fired", "fired", "fired"]),
    ],
)
async def test_overlap(world: World, overlap: str, verdicts: list[str]) -> None:
    key = await world.create(overlap=overlap)
    world.duration = timedelta(seconds=130)
    await world.schedules.start()
    await world.minutes(5)
    world.duration = timedelta(0)
    await world.minutes(3)
    told = await world.told(key)
    assert [verdict for _, verdict in told][:5] == verdicts
    most = 3 if overlap == "allow" else 1
    starts = [call.scheduled_for for call in world.calls]
    assert len(starts) == len(set(starts))
    assert most_at_once(await spans_of_runs(world, key)) == most


async def spans_of_runs(world: World, key: str) -> list[tuple[datetime, datetime]]:
    page = await world.schedules.occurrences(key, limit=1000)
    return [(one.started_at, one.ended_at) for one in page.items if one.started_at and one.ended_at]


def most_at_once(runs: list[tuple[datetime, datetime]]) -> int:
    return max(sum(began <= at < ended for began, ended in runs) for at, _ in runs)


# --- quiet hours ------------------------------------------------------------------------------------------------------


async def calm(world: World, begin: str, end: str) -> str:
    window = {"weekdays": EVERY_DAY, "from": begin, "to": end, "timezone": "UTC"}
    return (await world.schedules.create_quiet_hours("calm", [window])).policy_id


async def test_quiet_hours_skip_and_are_told_when_they_begin_and_are_over(world: World) -> None:
    policy = await calm(world, "12:03", "12:06")
    key = await world.create(quiet_hours_policy_id=policy)
    await world.schedules.start()
    await world.minutes(4)
    (begun,) = await world.audits(key, "schedule.skipped")
    assert (begun["expected"], begun["until"] - begun["from"], begun["reason"]) == (3, 180_000_000, "quiet hours")
    assert [verdict for _, verdict in await world.told(key)] == ["fired"] * 2 + ["skipped"] * 2
    assert (await world.schedules.get(key)).next_run_at == NOON.replace(minute=6, second=0)
    await world.minutes(3)
    assert [verdict for _, verdict in await world.told(key)] == ["fired"] * 2 + ["skipped"] * 3 + ["fired"] * 2
    _, skipped = await world.audits(key, "schedule.skipped")
    assert (skipped["count"], skipped["reason"]) == (3, "quiet hours")


@pytest.mark.parametrize("policy", ["run_once", "run_all_capped"])
async def test_a_catch_up_waits_for_the_end_of_quiet_hours(world: World, policy: str) -> None:
    quiet = await calm(world, "12:10", "12:20")
    key = await world.create(spec="5 * * * *", quiet_hours_policy_id=quiet, catch_up_policy=policy)
    await world.minutes(12)
    await world.schedules.start()
    await world.minutes(5)
    assert world.called == []
    await world.minutes(3)
    assert await world.told(key) == [("12:05", "fired")]
    assert (await world.schedules.get(key)).last_run_at == datetime(2026, 3, 4, 12, 20, tzinfo=UTC)


async def test_quiet_hours_in_use_stay_and_their_change_opens_an_epoch(world: World) -> None:
    from noonbell.errors import QuietHoursInUseError

    policy = await calm(world, "12:10", "12:20")
    key = await world.create(quiet_hours_policy_id=policy)
    with pytest.raises(QuietHoursInUseError, match="used by 1 schedule"):
        await world.schedules.delete_quiet_hours(policy)
    await world.schedules.update_quiet_hours(policy, windows=[])
    assert (await world.schedules.get(key)).epoch == 2
    await world.schedules.update(key, quiet_hours_policy_id=None)
    await world.schedules.delete_quiet_hours(policy)
    assert await world.schedules.list_quiet_hours() == []


# --- retry and crash --------------------------------------------------------------------------------------------------


async def test_one_attempt_unless_told_otherwise(world: World) -> None:
    key = await world.create(spec="5 * * * *")
    world.failures = 1
    await world.schedules.start()
    await world.minutes(30)
    (one,) = (await world.schedules.occurrences(key)).items
    assert (one.state, one.attempts, one.tried[0].error) == ("failed", 1, "ValueError: no")


async def test_retries_back_off_and_end_before_the_next_run(world: World) -> None:
    key = await world.create(retry={"attempts": 4, "delay_seconds": 40})
    world.failures = 2
    await world.schedules.start()
    await world.minutes(4)
    # 12:01:00 fails, 12:01:40 fails, 12:03:00 succeeds; then the minutes that came meanwhile
    assert [(call.scheduled_for.minute, call.attempt) for call in world.calls] == [
        (1, 1),
        (1, 2),
        (1, 3),
        (3, 1),
        (4, 1),
    ]
    assert await world.told(key) == [("12:01", "fired"), ("12:02", "coalesced"), ("12:03", "fired"), ("12:04", "fired")]
    assert len({call.run_id for call in world.calls}) == 3


async def test_a_new_occurrence_may_preempt_the_retry(world: World) -> None:
    key = await world.create(retry={"attempts": None, "delay_seconds": 600}, retry_vs_new="preempt")
    world.failures = 1
    await world.schedules.start()
    await world.minutes(2)
    page = await world.schedules.occurrences(key)
    assert [(one.verdict, one.state) for one in page.items] == [("fired", "failed"), ("fired", "succeeded")]


async def test_a_crash_repeats_the_run_under_the_same_id(world: World) -> None:
    key = await world.create(spec="5 * * * *")
    world.duration = timedelta(minutes=10)
    await world.schedules.start()
    await world.minutes(6)
    await crash_while_running(world)
    await world.schedules.start()
    await world.minutes(1)
    (one,) = (await world.schedules.occurrences(key)).items
    assert (one.verdict, one.state, one.attempts, one.tried[0].outcome) == ("fired", "succeeded", 2, "unknown")
    assert len({call.run_id for call in world.calls}) == 1


async def test_at_most_once_is_never_repeated(world: World) -> None:
    key = await world.create(spec="5,20 * * * *", at_most_once=True)
    world.duration = timedelta(minutes=10)
    await world.schedules.start()
    await world.minutes(6)
    await crash_while_running(world)
    await world.schedules.start()
    await world.minutes(10)
    page = await world.schedules.occurrences(key)
    assert [(one.verdict, one.state) for one in page.items] == [("fired", "unknown"), ("fired", "succeeded")]
    assert world.called == ["12:05", "12:20"]


async def crash_while_running(world: World) -> None:
    """The process dies with a run in hand: its end reaches a store that is closed."""
    world.duration = timedelta(0)
    world.store.kill()
    left = world.schedules
    world.schedules = world._new()
    await world.schedules.open()
    stopping = asyncio.get_running_loop().create_task(left.stop())
    await world.minutes(10)
    await stopping


async def test_jitter_puts_the_start_off_by_the_same_time_on_every_machine(world: World) -> None:
    key = await world.create(schedule_id="pinned", spec="*/10 * * * *", jitter_seconds=300)
    (first, *_) = await world.schedules.preview(key, 3)
    assert first.scheduled_for < first.starts_at < first.scheduled_for + timedelta(minutes=5)
    await world.schedules.start()
    await world.minutes(16)
    (one,) = (await world.schedules.occurrences(key)).items
    assert (one.verdict, one.started_at) == ("fired", first.starts_at)


def put_off(world: World, at: timedelta, limit: int, *, by_more_than: int) -> str:
    """A key whose jitter puts the start of what is due in `at` off by more than so many seconds."""
    due = world.clock.now() + at // timedelta(microseconds=1)
    names = map("late-{}".format, range(1000))
    return next(name for name in names if jitter_us(name, due, limit * 1_000_000) > by_more_than * 1_000_000)


@pytest.mark.parametrize("edited", [False, True])
async def test_what_its_jitter_puts_off_until_after_a_restart_is_not_missed(world: World, edited: bool) -> None:
    key = put_off(world, timedelta(seconds=4.5 * 60), 1800, by_more_than=900)
    await world.create(schedule_id=key, spec="5 12 * * *", jitter_seconds=1800)
    await world.schedules.start()
    await world.minutes(6)
    await down_for(world, 3, "stopped")
    await world.minutes(3)
    if edited:
        await world.schedules.update(key, spec="0 0 1 1 *", jitter_seconds=0)
    await world.minutes(30)
    assert await world.told(key) == [("12:05", "fired")]


async def stopped_while_it_runs(world: World) -> None:
    """From 12:10 to 12:25 a run executes, and a stop waits for it; 12:20 has come meanwhile."""
    world.duration = timedelta(minutes=15)
    await world.schedules.start()
    await world.minutes(20.5)
    stopping = asyncio.get_running_loop().create_task(world.schedules.stop())
    await world.minutes(4)
    await stopping
    world.duration = timedelta(0)


async def test_what_a_run_was_in_the_way_of_is_not_missed_after_a_restart(world: World) -> None:
    key = await world.create(spec="10,20 12 * * *")
    await stopped_while_it_runs(world)
    await world.schedules.start()
    await world.clock.settle()
    assert await world.told(key) == [("12:10", "fired"), ("12:20", "fired")]


async def test_what_came_after_a_stop_is_missed_and_what_came_before_is_not(world: World) -> None:
    key = await world.create(spec="*/10 12 * * *")
    await stopped_while_it_runs(world)
    await world.minutes(30)
    await world.schedules.start()
    await world.clock.settle()
    assert await world.told(key) == [
        ("12:10", "fired"), ("12:20", "fired"), ("12:30", "missed"), ("12:40", "missed"), ("12:50", "missed"),
    ]  # fmt: skip
    assert (await verify_store(world.store)).problems == []


async def test_under_overlap_skip_it_is_skipped_after_a_restart_too(world: World) -> None:
    key = await world.create(spec="10,20 12 * * *", overlap="skip")
    await stopped_while_it_runs(world)
    await world.minutes(5)
    await world.schedules.start()
    await world.clock.settle()
    assert await world.told(key) == [("12:10", "fired"), ("12:20", "skipped")]


async def test_what_a_retry_was_in_the_way_of_is_not_missed_after_a_restart(world: World) -> None:
    retry = {"attempts": 2, "delay_seconds": 900, "strategy": "fixed"}
    key = await world.create(spec="10,20 12 * * *", retry=retry)
    world.failures = 1
    await world.schedules.start()
    await world.minutes(21)
    await world.schedules.stop()
    await world.schedules.start()
    await world.minutes(5)
    assert await world.told(key) == [("12:10", "fired"), ("12:20", "fired")]


async def test_a_run_that_an_edit_has_fired_goes_before_a_retry_that_may_be_preempted(world: World) -> None:
    """The edit comes while the first run executes, and decides what came meanwhile."""
    retry = {"attempts": 3, "delay_seconds": 600, "strategy": "fixed"}
    key = await world.create(retry=retry, retry_vs_new="preempt")
    world.duration, world.failures = timedelta(seconds=90), 1
    await world.schedules.start()
    await world.minutes(1.75)
    await world.schedules.update(key, tags=["x"])
    world.duration = timedelta(0)
    await world.minutes(2)
    assert world.called == ["12:01", "12:02", "12:03", "12:04"]


async def test_a_retry_that_nothing_takes_the_place_of_sleeps_through_quiet_hours(world: World) -> None:
    """It may be preempted, but what has come lies in the quiet hours."""
    policy = await calm(world, "12:10", "12:30")
    retry = {"attempts": 3, "delay_seconds": 240, "strategy": "fixed"}
    key = await world.create(spec="9,11 12 * * *", retry=retry, retry_vs_new="preempt", quiet_hours_policy_id=policy)
    world.failures = 1
    await world.schedules.start()
    await world.minutes(20)
    (stored,) = await world.store.schedules.find(ScheduleFilter(schedule_ids=[key]))
    assert [live.wake_at for live in stored.lives] == [world.clock.now() + (9 * 60 + 30) * 1_000_000]
    await world.minutes(10)
    assert world.called == ["12:09", "12:09"]
    assert await world.told(key) == [("12:09", "fired"), ("12:11", "skipped")]


@pytest.mark.parametrize("verdict", ["skipped", "fired"])
async def test_overlap_goes_by_when_a_run_is_to_start(world: World, verdict: str) -> None:
    """The first executes for ten minutes: at 12:20 in any case, and when the second is to start or not."""
    first, second = (world.clock.now() + (minutes * 60 - 30) * 1_000_000 for minutes in (10, 20))

    def fits(name: str) -> bool:
        one, other = (jitter_us(name, at, 540_000_000) for at in (first, second))
        return one > 60_000_000 and (other > one) == (verdict == "fired")

    key = next(filter(fits, map("late-{}".format, range(1000))))
    await world.create(schedule_id=key, spec="10,20 12 * * *", jitter_seconds=540, overlap="skip")
    world.duration = timedelta(minutes=10)
    await world.schedules.start()
    await world.minutes(45)
    assert await world.told(key) == [("12:10", "fired"), ("12:20", verdict)]


async def test_an_interval_has_no_next_run_beyond_its_end(world: World) -> None:
    key = await world.create(type="interval", spec="600", end_at="2026-03-04T12:15")
    world.duration = timedelta(minutes=1)
    await world.schedules.start()
    await world.minutes(10.5)
    assert (await verify_store(world.store)).problems == [], "while it executes"
    await world.minutes(10)
    assert await world.told(key) == [("12:10:30", "fired")]
    assert (await world.schedules.get(key)).next_run_at is None
    assert (await world.schedules.preview(key, 3)) == []


async def test_what_its_jitter_puts_off_into_a_time_when_nothing_is_up_is_missed(world: World) -> None:
    key = put_off(world, timedelta(seconds=4.5 * 60), 1800, by_more_than=900)
    await world.create(schedule_id=key, spec="5 12 * * *", jitter_seconds=1800)
    await world.schedules.start()
    await world.minutes(6)
    await down_for(world, 40, "stopped")
    assert await world.told(key) == [("12:05", "missed")]


async def test_what_an_edit_finds_due_is_decided_by_the_old_terms(world: World) -> None:
    key = await world.create(spec="*/5 * * * *", catch_up_policy="run_once")
    await world.minutes(12)
    await world.schedules.update(key, spec="0 * * * *", catch_up_policy="skip")
    assert await world.told(key) == [("12:05", "coalesced"), ("12:10", "fired")]
    await world.schedules.start()
    await world.minutes(50)
    assert world.called == ["12:10", "13:00"]


async def test_an_edit_during_a_run_waits_with_what_is_due_until_it_ends(world: World) -> None:
    key = await world.create()
    world.duration = timedelta(minutes=5)
    await world.schedules.start()
    await world.minutes(4)
    await world.schedules.update(key, spec="0 * * * *")
    await world.minutes(1)
    assert world.called == ["12:01"]
    await world.minutes(30)
    assert world.called == ["12:01", "12:04"]
    assert await world.told(key) == [
        ("12:01", "fired"),
        ("12:02", "coalesced"),
        ("12:03", "coalesced"),
        ("12:04", "fired"),
    ]


async def test_an_interval_counts_from_the_edit_that_left_a_run_queued(world: World) -> None:
    key = await world.create(type="interval", spec="300", catch_up_policy="run_once")
    await world.minutes(12)
    edited = await world.schedules.update(key, tags=["late"])
    assert edited.next_run_at == datetime(2026, 3, 4, 12, 17, 30, tzinfo=UTC)
    await world.schedules.start()
    await world.minutes(6)
    assert await world.told(key) == [("12:05:30", "coalesced"), ("12:10:30", "fired"), ("12:17:30", "fired")]


async def test_an_interval_goes_on_counting_through_an_edit_that_leaves_nothing(world: World) -> None:
    key = await world.create(type="interval", spec="300")
    await world.schedules.start()
    await world.minutes(7)
    edited = await world.schedules.update(key, spec="120")
    assert edited.next_run_at == datetime(2026, 3, 4, 12, 9, 30, tzinfo=UTC)  # two minutes from 12:05:30, and again


async def test_a_capped_catch_up_that_an_edit_interrupts_is_finished_in_order(world: World) -> None:
    key = await world.create(catch_up_policy="run_all_capped", catch_up_cap=3)
    world.duration = timedelta(minutes=2)
    await world.minutes(10)
    await world.schedules.start()
    await world.minutes(1)
    await world.schedules.update(key, spec="0 * * * *")
    await world.minutes(20)
    # 12:01 was executing; the other two follow it, then 12:11; 12:10 was late as well, as the first poll was in time
    assert world.called == ["12:01", "12:02", "12:03", "12:11"]
    verdicts = [verdict for _, verdict in await world.told(key)]
    assert verdicts == ["fired"] * 3 + ["missed"] * 6 + ["coalesced", "fired"]
    assert most_at_once(await spans_of_runs(world, key)) == 1


async def test_a_trigger_is_refused_while_a_run_is_queued_behind_another(world: World) -> None:
    from noonbell.errors import ScheduleBusyError

    key = await world.create()
    world.duration = timedelta(minutes=5)
    await world.schedules.start()
    await world.minutes(2)
    await world.schedules.pause(key)
    with pytest.raises(ScheduleBusyError):
        await world.schedules.trigger(key)
    await world.minutes(20)
    # what was due before the pause still runs; nothing came in it
    assert world.called == ["12:01", "12:02"]
    paused = await world.schedules.get(key)
    assert (paused.enabled, paused.next_run_at, paused.running) == (False, None, 0)

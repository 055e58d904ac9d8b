"""Looking back through `Schedules`, on every store."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from noonbell.errors import ScheduleInvalidError, ScheduleNotFoundError
from noonbell.ledger import verify_store
from noonbell.ports import LEDGER_TABLES
from noonbell.schedules import Page, Run
from tests.schedules.conftest import World
from tests.schedules.test_behaviour import crash_while_running

DAY = 86_400_000_000


def shown(run: Run) -> tuple[str, str, str]:
    return f"{run.scheduled_for:%H:%M}", run.kind, run.state


async def all_runs(world: World, key: str, limit: int = 1000) -> list[Run]:
    found: list[Run] = []
    cursor: str | None = None
    while True:
        page = await world.schedules.runs(key, cursor=cursor, limit=limit)
        found.extend(page.items)
        if (cursor := page.next_cursor) is None:
            return found
        assert len(page.items) == limit


async def kept_runs(world: World) -> list[dict[str, Any]]:
    """The runs as the ledger has them."""
    columns = LEDGER_TABLES["runs"].columns
    return [dict(zip(columns, row, strict=True)) for row in await world.store.read("runs", None, 100_000)]


async def sid_of(world: World, key: str) -> int:
    history = await world.store.history.find(key)
    assert history is not None
    return history.sid


async def clean(world: World) -> None:
    report = await verify_store(world.store)
    assert [problem.text for problem in report.problems] == []


async def test_a_schedule_that_never_ran_has_no_history(world: World) -> None:
    key = await world.create()
    assert await world.schedules.runs(key) == Page([], None)
    stats = await world.schedules.statistics(key)
    assert (stats.runs, stats.success_rate, stats.duration, stats.lateness) == (0, None, None, None)
    assert (stats.streak, stats.last_failure, stats.since, stats.pruned, stats.all_runs) == (None, None, None, 0, 0)


async def test_how_each_has_ended_last_is_one_question(world: World) -> None:
    good, bad, never = await world.create(), await world.create(spec="2 12 * * *"), await world.create(spec="0 1 * * *")
    await world.schedules.start()
    await world.minutes(1)
    world.failures = 2
    await world.minutes(1)
    await world.schedules.trigger(good)
    await world.minutes(0.2)
    sids = [await sid_of(world, key) for key in (good, bad, never)]
    assert {run.sid: run.outcome for run in await world.store.history.past_runs([*sids, 10_000], None, 1)} == {
        sids[0]: "succeeded",
        sids[1]: "failed",
    }
    assert (await all_runs(world, good))[0].kind == "manual"
    assert {run.sid: run.outcome for run in await world.store.history.past_runs([], None, 1)} == {}


async def test_the_run_that_ended_last_comes_first(world: World) -> None:
    key, other = await world.create(), await world.create(spec="*/2 * * * *")
    await world.schedules.start()
    await world.minutes(2)
    world.failures = 2
    await world.minutes(1)
    manual = await world.schedules.trigger(key)
    await world.minutes(2)
    found = await all_runs(world, key)
    assert [shown(run)[:2] for run in found] == [
        ("12:05", "scheduled"),
        ("12:04", "scheduled"),
        ("12:03", "manual"),
        ("12:03", "scheduled"),
        ("12:02", "scheduled"),
        ("12:01", "scheduled"),
    ]
    assert found[2].run_id == manual
    failed = [run for run in (*found, *await all_runs(world, other)) if run.state == "failed"]
    assert len(failed) == 2
    assert {run.schedule_id for run in found} == {key}
    for limit in (1, 2, 3, 6):
        assert await all_runs(world, key, limit) == found
    await clean(world)


async def test_all_schedules_together_by_what_they_are_for(world: World) -> None:
    first, second = await world.create(name="first"), await world.create(name="second", spec="*/2 * * * *")
    await world.schedules.start()
    await world.minutes(1)
    world.failures = 1
    await world.minutes(3)
    page = await world.schedules.recent_runs()
    assert page.next_cursor is None
    assert [(f"{run.scheduled_for:%H:%M}", run.name) for run in page.items] == [
        ("12:04", "second"),
        ("12:04", "first"),
        ("12:03", "first"),
        ("12:02", "second"),
        ("12:02", "first"),
        ("12:01", "first"),
    ]
    (failed,) = (await world.schedules.recent_runs(outcome="failed")).items
    assert f"{failed.scheduled_for:%H:%M}" == "12:02"
    good = (await world.schedules.recent_runs(outcome="succeeded")).items
    assert good == [run for run in page.items if run.state == "succeeded"]
    assert (await world.schedules.recent_runs(outcome="unknown")).items == []
    found: list[Run] = []
    cursor: str | None = None
    for _ in range(3):
        part = await world.schedules.recent_runs(cursor=cursor, limit=2)
        found.extend(part.items)
        cursor = part.next_cursor
    assert (found, cursor) == (page.items, None)
    await world.schedules.delete(second)
    assert (await world.schedules.recent_runs()).items == page.items
    assert {run.schedule_id for run in found} == {first, second}


async def test_one_run_with_all_its_attempts(world: World) -> None:
    key = await world.create(retry={"attempts": 3, "delay_seconds": 10, "strategy": "fixed"})
    await world.schedules.start()
    world.failures = 2
    await world.minutes(1)
    (latest,) = (await world.schedules.runs(key)).items
    assert latest.tried == ()
    run = await world.schedules.run(latest.run_id)
    assert [(one.attempt, one.outcome, one.cause) for one in run.tried] == [
        (1, "failed", "cron"),
        (2, "failed", "retry"),
        (3, "succeeded", "retry"),
    ]
    assert [one.error for one in run.tried] == ["ValueError: no", "ValueError: no", None]
    assert (run.state, run.attempts) == ("succeeded", 3)
    assert run.duration is not None
    assert run.duration >= timedelta(seconds=20)


@pytest.mark.parametrize("failures", [0, 1])
async def test_the_attempts_of_a_one_shot_have_a_cause_of_their_own(world: World, failures: int) -> None:
    """Known from the run alone where it succeeds at once, and recorded where it does not; on every store."""
    retry = {"attempts": 2, "delay_seconds": 10, "strategy": "fixed"}
    key = await world.create(type="one_shot", spec="2026-03-04T12:01:00Z", retry=retry)
    world.failures = failures
    await world.schedules.start()
    await world.minutes(2)
    (latest,) = (await world.schedules.runs(key)).items
    run = await world.schedules.run(latest.run_id)
    assert [one.cause for one in run.tried] == ["one_shot", "retry"][: 1 + failures]
    (occurrence,) = (await world.schedules.occurrences(key)).items
    assert [one.cause for one in occurrence.tried] == (["one_shot", "retry"] if failures else [])


async def test_a_run_that_has_nothing_to_tell_has_its_attempt_too(world: World) -> None:
    key = await world.create()
    await world.schedules.start()
    world.duration = timedelta(seconds=7)
    await world.minutes(1)
    (latest,) = (await world.schedules.runs(key)).items
    run = await world.schedules.run(latest.run_id)
    (attempt,) = run.tried
    assert (attempt.attempt, attempt.outcome, attempt.cause, attempt.detail) == (1, "succeeded", "cron", None)
    assert (attempt.started_at, attempt.ended_at) == (run.started_at, run.ended_at)
    assert run.duration == timedelta(seconds=7)
    assert run.lateness is not None
    assert timedelta(0) <= run.lateness < timedelta(seconds=1)


async def test_a_run_that_has_not_ended(world: World) -> None:
    key = await world.create()
    await world.schedules.start()
    world.duration = timedelta(minutes=5)
    await world.minutes(1)
    (call,) = world.calls
    run = await world.schedules.run(call.run_id)
    assert (run.state, run.ended_at, run.duration, run.attempts) == ("running", None, None, 1)
    assert run.started_at is not None
    assert (await world.schedules.runs(key)).items == []


async def test_a_run_that_ends_while_it_is_read(world: World) -> None:
    """It is alive or has ended, and is never found missing between the two."""
    await world.create()
    await world.schedules.start()
    world.duration = timedelta(seconds=90)
    await world.minutes(1)
    (call,) = world.calls
    reads = [asyncio.ensure_future(world.schedules.run(call.run_id)) for _ in range(5)]
    await world.minutes(1)
    reads.append(asyncio.ensure_future(world.schedules.run(call.run_id)))
    states = [run.state for run in await asyncio.gather(*reads)]
    assert set(states) <= {"running", "succeeded"}
    assert states[-1] == "succeeded"


@pytest.mark.parametrize(
    "run_id",
    ["", "a", "a:b", "{}:scheduled:x", "{}:other:5", "{}:scheduled:5", "{}:manual:" + "9" * 30, "no:manual:5", 5],
)
async def test_a_run_that_is_not_there(world: World, run_id: Any) -> None:
    key = await world.create()
    with pytest.raises(ScheduleNotFoundError, match="Run not found"):
        await world.schedules.run(run_id.format(key) if isinstance(run_id, str) else run_id)


async def test_what_is_asked_wrongly_is_refused_by_its_field(world: World) -> None:
    key = await world.create()
    for cursor in ("", "5", "5.other", "x.manual", "1.2.manual", "9" * 30 + ".manual", 5):
        with pytest.raises(ScheduleInvalidError, match="cursor"):
            await world.schedules.runs(key, cursor=cursor)  # type: ignore[arg-type]  # one of them is no text
    with pytest.raises(ScheduleInvalidError, match="cursor"):
        await world.schedules.recent_runs(cursor="5.manual")
    with pytest.raises(ScheduleInvalidError, match="limit"):
        await world.schedules.runs(key, limit=0)
    with pytest.raises(ScheduleInvalidError, match="outcome"):
        await world.schedules.recent_runs(outcome="good")  # type: ignore[arg-type]  # that is the point
    for last in (0, -1, 100_001, True, 1.5):
        with pytest.raises(ScheduleInvalidError, match="last"):
            await world.schedules.statistics(key, last=last)  # type: ignore[arg-type]  # some of them are no numbers
    for sought in (world.schedules.runs, world.schedules.statistics):
        with pytest.raises(ScheduleNotFoundError):
            await sought("nobody")


async def test_a_deleted_schedule_keeps_its_history(world: World) -> None:
    key = await world.create(overlap="allow")
    await world.schedules.start()
    await world.minutes(1)
    world.duration = timedelta(minutes=30)
    await world.minutes(3)
    await world.schedules.delete(key)
    found = await all_runs(world, key)
    # those that were executing end together, in the order of what they are for
    assert [shown(run) for run in found] == [
        ("12:04", "scheduled", "abandoned"),
        ("12:03", "scheduled", "abandoned"),
        ("12:02", "scheduled", "abandoned"),
        ("12:01", "scheduled", "succeeded"),
    ]
    stats = await world.schedules.statistics(key)
    assert (stats.runs, stats.succeeded, stats.abandoned, stats.all_runs, stats.all_succeeded) == (4, 1, 3, 4, 1)
    await clean(world)


async def test_runs_that_overlap_come_in_the_order_of_their_ends(world: World) -> None:
    key = await world.create(overlap="allow")
    await world.schedules.start()
    world.duration = timedelta(seconds=90)
    await world.minutes(1)
    world.duration = timedelta(seconds=1)
    await world.minutes(1)
    await world.minutes(1)
    ends = [run.ended_at for run in await all_runs(world, key) if run.ended_at is not None]
    assert len(ends) == 3
    assert ends == sorted(ends, reverse=True)
    assert [f"{run.scheduled_for:%H:%M}" for run in await all_runs(world, key)] == ["12:03", "12:01", "12:02"]
    await clean(world)


async def test_runs_that_end_at_one_instant_are_all_reached(world: World) -> None:
    key = await world.create(overlap="allow")
    await world.schedules.start()
    world.duration = timedelta(minutes=2)
    await world.minutes(1)
    world.duration = timedelta(minutes=1)
    await world.minutes(1)
    world.duration = timedelta(0)
    await world.minutes(1)
    found = await all_runs(world, key)
    assert len({run.ended_at for run in found}) == 1
    assert sorted(shown(run)[0] for run in found) == ["12:01", "12:02", "12:03"]
    assert await all_runs(world, key, 1) == found
    assert (await world.schedules.statistics(key)).all_runs == 3
    await clean(world)


async def test_runs_that_end_with_the_claim_are_in_the_history(world: World) -> None:
    key = await world.create(action={"kind": "message", "to": "inbox"}, payload={"a": 1})
    await world.schedules.start()
    await world.minutes(4)
    found = await all_runs(world, key)
    assert [shown(run) for run in found] == [(f"12:0{n}", "scheduled", "succeeded") for n in (4, 3, 2, 1)]
    assert (await world.schedules.statistics(key)).all_succeeded == 4
    await clean(world)


async def test_after_a_crash_the_history_goes_on(world: World) -> None:
    key = await world.create(at_most_once=True)
    await world.schedules.start()
    await world.minutes(2)
    world.duration = timedelta(minutes=9)
    await world.minutes(1)
    await crash_while_running(world)
    await world.schedules.start()
    await world.minutes(2)
    states = [run.state for run in await all_runs(world, key)]
    assert states[-3:] == ["unknown", "succeeded", "succeeded"]
    assert len(states) >= 4
    await clean(world)


# --- pruning ----------------------------------------------------------------------------------------------------------


async def prune_all(world: World) -> None:
    """Drop every day that is over, as far as it may go."""
    now = world.clock.now()
    while await world.store.prune_day(now - now % DAY) is not None:
        pass


async def a_day_without_an_engine(world: World) -> None:
    await world.schedules.stop()
    await world.clock.advance(timedelta(days=1))
    await world.schedules.start()
    await world.minutes(3)


async def test_a_history_ends_where_it_was_pruned_and_its_counts_do_not(world: World) -> None:
    key = await world.create()
    world.failures = 2
    await world.schedules.start()
    await world.minutes(3)
    await a_day_without_an_engine(world)
    await a_day_without_an_engine(world)
    before = await all_runs(world, key)
    assert len(before) == 11
    await prune_all(world)
    left = await all_runs(world, key)
    assert left == before[:4]
    assert len(await kept_runs(world)) == 4
    stats = await world.schedules.statistics(key)
    assert (stats.runs, stats.all_runs, stats.all_succeeded, stats.pruned) == (4, 11, 9, 7)
    assert (stats.last_failure, stats.success_rate) == (None, 1.0)
    assert (await world.schedules.statistics(key, last=4)).pruned == 0
    assert (await world.schedules.statistics(key, last=6)).pruned == 2
    # a cursor that was pruned leads nowhere, and to no error
    _, kind, run_for = before[-2].run_id.rsplit(":", 2)
    assert (await world.schedules.runs(key, cursor=f"{run_for}.{kind}")).items == []
    with pytest.raises(ScheduleNotFoundError):
        await world.schedules.run(before[-1].run_id)
    await clean(world)


async def test_the_history_is_closed_over_runs_that_were_pruned_between_others(world: World) -> None:
    # a run at the cursor stays; those that a person asked for after it do not
    key = await world.create(spec="2 12 4 3 *")
    await world.schedules.start()
    await world.minutes(2)
    for _ in range(2):
        await world.schedules.trigger(key)
        await world.minutes(1)
    await a_day_without_an_engine(world)
    await world.schedules.trigger(key)
    await world.minutes(1)
    assert [run.kind for run in await all_runs(world, key)] == ["manual", "manual", "manual", "scheduled"]
    await prune_all(world)
    assert [run.kind for run in await all_runs(world, key)] == ["manual", "scheduled"]
    assert len(await kept_runs(world)) == 2
    stats = await world.schedules.statistics(key)
    assert (stats.runs, stats.all_runs, stats.pruned) == (2, 4, 2)
    await clean(world)


async def test_the_history_begins_anew_where_its_last_run_was_pruned(world: World) -> None:
    key = await world.create(spec="2 12 4 3 *")
    await world.schedules.start()
    await world.minutes(2)
    await world.schedules.trigger(key)
    await world.minutes(1)
    await a_day_without_an_engine(world)
    await prune_all(world)
    (kept,) = await all_runs(world, key)
    assert kept.kind == "scheduled"
    await world.schedules.trigger(key)
    await world.minutes(1)
    assert [run.kind for run in await all_runs(world, key)] == ["manual", "scheduled"]
    await clean(world)


async def test_a_late_end_of_an_old_run_does_not_hide_what_ended_before_it(world: World) -> None:
    await world.clock.advance(timedelta(hours=11, minutes=58))
    key = await world.create(overlap="allow")
    await world.schedules.start()
    world.duration = timedelta(seconds=150)
    await world.minutes(0.6)  # the run for 23:59, which lasts beyond midnight
    world.duration = timedelta(0)
    await world.minutes(5)
    before = await all_runs(world, key)
    assert [shown(run)[0] for run in before] == ["00:04", "00:03", "00:02", "23:59", "00:01", "00:00"]
    await prune_all(world)
    assert await all_runs(world, key) == [run for run in before if shown(run)[0] != "23:59"]
    assert len(await kept_runs(world)) == 5
    await clean(world)

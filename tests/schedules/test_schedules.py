"""The face: creating, reading, changing, deleting; what is refused and how that is said."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import noonbell
from noonbell.errors import (
    QuietHoursInvalidError,
    ScheduleBusyError,
    ScheduleExistsError,
    ScheduleInvalidError,
    ScheduleNotFoundError,
)
from noonbell.ledger import verify_store
from noonbell.ledger.ledger_rows import schedule_rows
from noonbell.ports import RunFilter, ScheduleFilter
from noonbell.schedules import Call, Fields, Retry
from noonbell.schedules.arguments import Order
from tests.patience import PATIENCE_SECONDS
from tests.schedules.conftest import ACTION, IN_EARNEST, World

LONGEST_WAIT = IN_EARNEST

# --- creating ---------------------------------------------------------------------------------------------------------


async def test_a_schedule_with_its_defaults(world: World) -> None:
    made = await world.schedules.create(name="report", type="cron", spec="0 9 * * 1-5", action=ACTION)
    assert made == await world.schedules.get(made.schedule_id)
    assert (made.timezone, made.catch_up_policy, made.overlap, made.dst) == ("UTC", "skip", "coalesce", "literal")
    assert made.retry == Retry(1, 5.0, "exponential", None, 0.0)
    assert (made.enabled, made.at_most_once, made.tags, made.payload, made.epoch) == (True, False, (), None, 1)
    assert made.next_run_at == datetime(2026, 3, 5, 9, tzinfo=UTC)
    assert made.understood is None


async def test_another_dialect_is_stored_as_posix_and_told(world: World) -> None:
    made = await world.schedules.create(type="cron", spec="@daily", action=ACTION, timezone="Europe/Kyiv")
    assert (made.spec, made.understood) == ("0 0 * * *", "0 0 * * *")
    assert made.next_run_at == datetime(2026, 3, 4, 22, tzinfo=UTC)
    changed = await world.schedules.update(made.schedule_id, spec="0 12 * * MON-FRI")
    assert changed.understood == changed.spec == "0 12 * * 1-5"


async def test_an_interval_that_starts_later_starts_then(world: World) -> None:
    start = datetime(2026, 3, 5, 8, tzinfo=UTC)
    key = await world.create(type="interval", spec="3600", start_at=start, end_at="2026-03-05T10:30")
    coming = await world.schedules.preview(key)
    assert [one.scheduled_for.hour for one in coming] == [8, 9, 10]


@pytest.mark.parametrize("paused", [False, True])
async def test_an_interval_that_is_changed_before_its_start_still_starts_then(world: World, paused: bool) -> None:
    start = datetime(2026, 3, 4, 14, tzinfo=UTC)
    key = await world.create(type="interval", spec="3600", start_at=start)
    if paused:
        await world.schedules.pause(key)
    for spec in ("86400", "60", "7200"):
        await world.schedules.update(key, spec=spec)
        assert [one.scheduled_for for one in await world.schedules.preview(key, 1)] == [start]
    await world.schedules.start()
    if paused:
        await world.schedules.resume(key)
    await world.minutes(4 * 60)
    assert world.called == ["14:00", "16:00"]
    assert (await verify_store(world.store)).problems == []


async def test_what_its_jitter_puts_off_is_still_to_come(world: World) -> None:
    key = await world.create(schedule_id="abc", spec="5 * * * *", jitter_seconds=3000)
    await world.schedules.start()
    await world.minutes(5)
    first, second = await world.schedules.preview(key, 2)
    assert (f"{first.scheduled_for:%H:%M}", f"{second.scheduled_for:%H:%M}") == ("12:05", "13:05")
    assert first.starts_at == (await world.schedules.get(key)).next_run_at
    await world.schedules.pause(key)
    (later,) = await world.schedules.preview(key, 1)
    assert later == second, "it does not come while it is paused, nor afterwards"


async def test_a_one_shot_without_offset_is_in_the_zone_of_the_schedule(world: World) -> None:
    made = await world.schedules.create(
        type="one_shot", spec="2026-03-05T20:00", timezone="Asia/Tokyo", action=ACTION, enabled=False
    )
    assert (made.enabled, made.next_run_at) == (False, None)
    resumed = await world.schedules.resume(made.schedule_id)
    assert resumed.next_run_at == datetime(2026, 3, 5, 11, tzinfo=UTC)


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "weekly"}, "type", "one of cron, interval, one_shot"),
    ({"spec": "61 * * * *"}, "spec", "minute"),
    ({"spec": "0 0 30 2 *"}, "spec", "is not a valid cron spec"),
    ({"spec": None}, "spec", "must be text"),
    ({"type": "interval", "spec": "5x"}, "spec", "must be a whole number of seconds"),
    ({"type": "interval", "spec": 0}, "spec", "at least 1 second"),
    ({"type": "one_shot", "spec": "2026-03-04T12:00"}, "spec", "is in the past: it is 2026-03-04T12:00:30"),
    ({"type": "one_shot", "spec": "2026-03-29T03:30", "timezone": "Europe/Kyiv"}, "spec", "does not exist"),
    ({"type": "one_shot", "spec": "2026-03-05"}, "spec", "no time"),
    ({"timezone": "Mars/Olympus"}, "timezone", "IANA zone"),
    ({"catch_up_policy": "sometimes"}, "catch_up_policy", "one of skip, run_once, run_all_capped"),
    ({"catch_up_cap": 0}, "catch_up_cap", "from 1 to 1000"),
    ({"overlap": "queue"}, "overlap", "one of coalesce, skip, allow"),
    ({"retry": {"attempts": 21}}, "retry.attempts", "from 1 to 20"),
    ({"retry": {"strategy": "linar"}}, "retry.strategy", "one of exponential, linear, fixed"),
    ({"retry": {"tries": 3}}, "retry.tries", "known are attempts"),
    ({"retry": {"delay_seconds": -1}}, "retry.delay_seconds", "not negative"),
    ({"dst": "twice"}, "dst", "one of literal, once"),
    ({"jitter_seconds": 60}, "jitter_seconds", "less than the 60 s"),
    ({"at_most_once": True, "retry": {"attempts": 2}}, "retry.attempts", "must be 1"),
    ({"at_most_once": "yes"}, "at_most_once", "True or False"),
    ({"start_at": datetime(2026, 3, 5)}, "start_at", "no time zone"),  # noqa: DTZ001 - that is the mistake
    ({"start_at": "2026-03-06T00:00", "end_at": "2026-03-05T00:00"}, "end_at", "not be before start_at"),
    ({"end_at": "2026-03-01T00:00"}, "end_at", "is in the past"),
    ({"spec": "0 9 5 3 *", "end_at": "2026-03-05T08:00"}, "spec", "never comes"),
    ({"quiet_hours_policy_id": "nope"}, "quiet_hours_policy_id", "create them first"),
    ({"payload": object()}, "payload", "cannot be written as JSON"),
    ({"tags": "red"}, "tags", "list of texts"),
    ({"action": {"kind": "shell"}}, "action.kind", "must be one of callback, command, http, message"),
    ({"action": {"kind": "callback"}}, "action.name", "not blank"),
    ({"name": " "}, "name", "not blank"),
    ({"catch_up": "skip"}, "catch_up", "did you mean catch_up"),
]


@pytest.mark.parametrize(
    ("fields", "field", "reason"), REFUSED, ids=[f"{field} {reason}" for _, field, reason in REFUSED]
)
async def test_a_refusal_names_the_field_the_value_and_what_is_right(
    world: World, fields: dict[str, Any], field: str, reason: str
) -> None:
    with pytest.raises(ScheduleInvalidError) as raised:
        await world.create(**fields)
    assert raised.value.field == field
    assert reason in str(raised.value)
    assert (await world.schedules.list()).items == []


async def test_names_and_ids_are_taken_once(world: World) -> None:
    key = await world.create(name="a", schedule_id="first")
    with pytest.raises(ScheduleExistsError, match='The schedule_id "first" is taken'):
        await world.create(schedule_id="first")
    with pytest.raises(ScheduleExistsError, match='The name "a" is taken'):
        await world.create(name="a")
    await world.create(name="b")
    with pytest.raises(ScheduleExistsError, match='The name "b" is taken'):
        await world.schedules.update(key, name="b")
    await world.schedules.delete(key)
    await world.create(name="a")  # a name is free again, an id is not
    with pytest.raises(ScheduleExistsError):
        await world.create(schedule_id="first")


async def test_many_are_created_in_batches_that_are_told(world: World) -> None:
    many: list[Fields] = [
        {"name": f"n{number}", "type": "cron", "spec": f"{number % 60} * * * *", "action": ACTION}
        for number in range(5_500)
    ]
    told: list[tuple[int, int]] = []
    ids = await world.schedules.create_many(many, progress=lambda done, of: told.append((done, of)))
    assert [of for _, of in told] == [5_500] * len(told)
    ends = [0, *(done for done, _ in told)]
    assert ends[-1] == 5_500
    assert all(0 < end - before <= 5_000 for before, end in pairwise(ends))
    assert len(set(ids)) == 5_500
    assert (await world.schedules.get(ids[7])).name == "n7"
    await world.schedules.update_many(ids[:5_200], {"tags": ["bulk"]})
    counted, cursor = 0, None
    while True:
        page = await world.schedules.list(tag="bulk", limit=1_000, cursor=cursor)
        counted += len(page.items)
        cursor = page.next_cursor
        if cursor is None:
            break
    assert counted == 5_200


async def test_one_bad_of_many_creates_none(world: World) -> None:
    good: Fields = {"type": "cron", "spec": "* * * * *", "action": ACTION}
    with pytest.raises(ScheduleInvalidError):
        await world.schedules.create_many([good, {**good, "spec": "nonsense"}])
    assert (await world.schedules.list()).items == []


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_lists_are_filtered_and_paged(world: World) -> None:
    for number in range(7):
        kind = {"type": "interval", "spec": "60"} if number % 2 else {}
        await world.create(name=f"job {number}", tags=["odd"] if number % 2 else ["even", "all"], **kind)
    names = []
    cursor = None
    while True:
        page = await world.schedules.list(limit=3, cursor=cursor)
        names.append([one.name for one in page.items])
        cursor = page.next_cursor
        if cursor is None:
            break
    assert [len(some) for some in names] == [3, 3, 1]
    assert [one.name for one in (await world.schedules.list(type="interval")).items] == ["job 1", "job 3", "job 5"]
    assert len((await world.schedules.list(tag="all")).items) == 4
    assert [one.name for one in (await world.schedules.list(name_contains="6")).items] == ["job 6"]
    with pytest.raises(ScheduleInvalidError, match="filter 'colour' is not known"):
        await world.schedules.list(colour="red")
    with pytest.raises(ScheduleInvalidError, match="must be the next_cursor of a page"):
        await world.schedules.list(cursor="abc")
    with pytest.raises(ScheduleInvalidError, match="from 1 to 1000"):
        await world.schedules.list(limit=0)


async def test_occurrences_come_in_pages_without_a_gap(world: World) -> None:
    key = await world.create(catch_up_policy="run_all_capped", catch_up_cap=5)
    await world.minutes(30)
    await world.schedules.start()
    await world.minutes(3)
    orders: tuple[Order, ...] = ("oldest", "newest")
    for order, limit in itertools.product(orders, (1, 4, 32, 33, 1000)):
        seen = []
        cursor = None
        while True:
            page = await world.schedules.occurrences(key, limit=limit, cursor=cursor, order=order)
            seen.extend(page.items)
            cursor = page.next_cursor
            if cursor is None:
                break
        seen = seen if order == "oldest" else seen[::-1]
        assert [one.scheduled_for.minute for one in seen] == list(range(1, 34))
        assert [one.verdict for one in seen] == ["fired"] * 5 + ["missed"] * 24 + ["fired"] * 4


async def test_the_newest_occurrences_of_long_and_dense_stretches(world: World) -> None:
    """Windows are widened over stretches without occurrences, and narrowed over those with very many."""
    dense = await world.create(name="dense", type="interval", spec="1", catch_up_policy="skip")
    rare = await world.create(name="rare", spec="0 0 1 * *", catch_up_policy="skip")
    await world.clock.advance(timedelta(days=400))
    await world.schedules.start()
    await world.clock.settle()
    begin = world.clock.at - timedelta(days=500)
    page = await world.schedules.occurrences(dense, limit=3, order="newest", start=begin)
    whole = await world.schedules.occurrences(dense, limit=3, start=world.clock.at - timedelta(seconds=2))
    assert page.items == whole.items[::-1]
    assert len(page.items) == 3
    page = await world.schedules.occurrences(rare, limit=5, order="newest", start=begin)
    whole = await world.schedules.occurrences(rare, start=begin)
    assert page.items == whole.items[::-1][:5]
    assert len(whole.items) == 13


@pytest.mark.parametrize(("overlap", "minute"), [("coalesce", 2), ("skip", 4)])
async def test_the_next_run_is_known_while_a_run_holds_a_due_slot(world: World, overlap: Any, minute: int) -> None:
    world.duration = timedelta(minutes=10)
    key = await world.create(overlap=overlap)
    await world.schedules.start()
    await world.minutes(3)
    stored = (await world.store.schedules.find(ScheduleFilter(schedule_ids=[key])))[0]
    assert stored.next_run_at is None, "a run holds what is due"
    made = await world.schedules.get(key)
    assert made.running == 1
    # coalesce: one run right after this one, due since the first slot that came meanwhile
    assert made.next_run_at is not None
    assert made.next_run_at.minute == minute
    (listed,) = (await world.schedules.list()).items
    assert listed.next_run_at == made.next_run_at


async def test_the_next_run_is_known_while_a_retry_holds_a_due_slot(world: World) -> None:
    world.failures = 1
    key = await world.create(retry={"attempts": 2, "delay_seconds": 300, "strategy": "fixed"})
    await world.schedules.start()
    await world.minutes(3)
    made = await world.schedules.get(key)
    assert made.running == 0
    assert made.next_run_at is not None
    assert made.next_run_at.minute == 2


async def test_what_has_come_and_is_not_decided_is_pending(world: World) -> None:
    key = await world.create()
    await world.minutes(2)
    assert await world.told(key) == [("12:01", "pending"), ("12:02", "pending")]


async def test_what_does_not_exist_is_not_found(world: World) -> None:
    for call in (
        world.schedules.get("x"), world.schedules.update("x", name="y"), world.schedules.delete("x"),
        world.schedules.preview("x"), world.schedules.occurrences("x"), world.schedules.get_quiet_hours("x"),
        world.schedules.delete_quiet_hours("x"),
    ):  # fmt: skip
        with pytest.raises(ScheduleNotFoundError, match='not found: "x"'):
            await call


# --- changing ---------------------------------------------------------------------------------------------------------


async def test_a_pause_is_an_epoch_without_occurrences(world: World) -> None:
    key = await world.create()
    await world.schedules.start()
    await world.minutes(2)
    paused = await world.schedules.pause(key)
    assert (paused.enabled, paused.next_run_at, paused.epoch) == (False, None, 2)
    assert (await world.schedules.pause(key)).epoch == 2
    await world.minutes(10)
    resumed = await world.schedules.resume(key)
    assert (resumed.enabled, resumed.epoch) == (True, 3)
    await world.minutes(1)
    assert await world.told(key) == [("12:01", "fired"), ("12:02", "fired"), ("12:13", "fired")]


async def test_a_one_shot_that_is_over_needs_a_new_time(world: World) -> None:
    key = await world.create(type="one_shot", spec="2026-03-04T12:05")
    await world.schedules.start()
    await world.minutes(6)
    with pytest.raises(ScheduleInvalidError, match="is in the past"):
        await world.schedules.resume(key)
    again = await world.schedules.update(key, spec="2026-03-04T12:30", enabled=True)
    assert again.next_run_at == datetime(2026, 3, 4, 12, 30, tzinfo=UTC)
    await world.minutes(30)
    assert await world.told(key) == [("12:05", "fired"), ("12:30", "fired")]


async def test_id_and_type_cannot_be_changed(world: World) -> None:
    key = await world.create()
    with pytest.raises(ScheduleInvalidError, match="cannot be changed from cron"):
        await world.schedules.update(key, type="interval", spec="30")
    with pytest.raises(ScheduleInvalidError, match="schedule_id 'y' cannot be changed"):
        await world.schedules.update_many([key], {"schedule_id": "y"})  # type: ignore[typeddict-unknown-key]  # refused
    assert (await world.schedules.get(key)).epoch == 1


async def test_changes_are_audited_with_before_and_after(world: World) -> None:
    key = await world.create(name="a", tags=["x"])
    await world.schedules.update(key, spec="0 * * * *", tags=["y"])
    await world.schedules.pause(key)
    await world.schedules.delete(key)
    page = await world.schedules.audit(subject=key)
    assert [one.event for one in page.items] == [
        "schedule.created", "schedule.updated", "schedule.paused", "schedule.deleted",
    ]  # fmt: skip
    assert page.items[1].detail == {
        "before": {"spec": "* * * * *", "tags": ["x"]},
        "after": {"spec": "0 * * * *", "tags": ["y"]},
    }
    assert {one.actor for one in page.items} == {"api"}
    first = await world.schedules.audit(limit=3)
    rest = await world.schedules.audit(cursor=first.next_cursor)
    assert [one.audit_id for one in (*first.items, *rest.items)] == [1, 2, 3, 4]
    assert (await world.schedules.audit(start=world.clock.at + timedelta(seconds=1))).items == []


async def test_what_is_due_when_a_schedule_is_deleted_is_missed(world: World) -> None:
    key = await world.create(catch_up_policy="run_once")
    (sid,) = [row["sid"] for row in await schedule_rows(world.store)]
    await world.minutes(3)
    await world.schedules.delete(key)
    (span,) = await world.store.history.spans(sid, 0, 1 << 60)
    assert (span.n, span.verdict, span.reason) == (3, "missed", "deleted")
    assert len(await world.audits(key, "schedule.missed")) == 3


# --- running ----------------------------------------------------------------------------------------------------------


async def test_a_trigger_runs_it_now_and_moves_nothing(world: World) -> None:
    key = await world.create(type="interval", spec="600", payload={"to": ["a", 1]})
    await world.schedules.start()
    await world.minutes(3)
    world.duration = timedelta(minutes=1)
    run_id = await world.schedules.trigger(key)
    await world.clock.settle()
    with pytest.raises(ScheduleBusyError):
        await world.schedules.trigger(key)
    (call,) = world.calls
    assert (call.run_id, call.manual, call.payload, call.attempt) == (run_id, True, {"to": ["a", 1]}, 1)
    world.duration = timedelta(0)
    await world.minutes(8)
    assert await world.told(key) == [("12:10:30", "fired")]
    assert len(await world.audits(key, "schedule.triggered")) == 1


async def test_a_trigger_without_an_engine_waits_for_one(world: World) -> None:
    key = await world.create(spec="0 0 1 1 *")
    run_id = await world.schedules.trigger(key)
    with pytest.raises(ScheduleBusyError):
        await world.schedules.trigger(key)
    await world.minutes(3)
    assert world.calls == []
    await world.schedules.start()
    await world.clock.settle()
    assert [(call.run_id, call.manual) for call in world.calls] == [(run_id, True)]
    (run,) = await world.store.history.runs(RunFilter(1, 0, world.clock.now(), "manual"))
    assert (run.outcome, run.attempts) == ("succeeded", 1)
    assert (await world.schedules.get(key)).next_run_at is not None
    assert (await verify_store(world.store)).problems == []


async def test_an_asked_for_run_outlives_a_crash_before_its_start(world: World) -> None:
    key = await world.create(spec="0 0 1 1 *")
    run_id = await world.schedules.trigger(key)
    await world.crash()
    await world.schedules.start()
    await world.clock.settle()
    assert [call.run_id for call in world.calls] == [run_id]


async def test_under_overlap_allow_a_trigger_is_never_refused(world: World) -> None:
    key = await world.create(overlap="allow")
    world.duration = timedelta(minutes=5)
    await world.schedules.start()
    await world.minutes(1)
    first, second = await world.schedules.trigger(key), await world.schedules.trigger(key)
    await world.clock.settle()
    assert first != second
    assert {call.run_id for call in world.calls if call.manual} == {first, second}
    assert len(world.calls) == 3
    await world.minutes(1)
    assert [verdict for _, verdict in await world.told(key)] == ["fired", "fired"]


async def test_a_paused_schedule_can_be_triggered(world: World) -> None:
    key = await world.create()
    await world.schedules.pause(key)
    await world.schedules.start()
    run_id = await world.schedules.trigger(key)
    await world.minutes(3)
    assert [call.run_id for call in world.calls] == [run_id]


async def test_a_callback_that_is_not_there_fails_the_run(world: World) -> None:
    key = await world.create(action={"kind": "callback", "name": "nobody"})
    await world.schedules.start()
    await world.minutes(1)
    (one,) = (await world.schedules.occurrences(key)).items
    assert one.state == "failed"
    assert one.tried[0].error is not None
    assert 'No callback named "nobody" is registered; registered: work' in one.tried[0].error


async def test_windows_are_checked_with_their_path(world: World) -> None:
    with pytest.raises(QuietHoursInvalidError, match=r"windows\[0\]\.from"):
        await world.schedules.create_quiet_hours(
            "x", [{"from": "25", "to": "06:00", "timezone": "UTC", "weekdays": [1]}]
        )


async def test_on_real_time_with_a_plain_function_and_a_file(tmp_path: Path) -> None:
    called: list[Call] = []
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work(call: Call) -> None:
        called.append(call)
        loop.call_soon_threadsafe(done.set)

    address = f"sqlite:///{tmp_path / 'real.db'}"
    async with noonbell.Schedules(address, callbacks={"work": work}) as schedules:
        await schedules.start()
        made = await schedules.create(type="interval", spec="1", action=ACTION)
        await asyncio.wait_for(done.wait(), PATIENCE_SECONDS)
    assert called[0].schedule_id == made.schedule_id
    async with noonbell.Schedules(address) as schedules:
        assert (await schedules.occurrences(made.schedule_id)).items[0].state == "succeeded"

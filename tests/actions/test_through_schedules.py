"""Actions as `Schedules` offers them: from a schedule to a message that arrived, a program that ran, a dead letter."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from noonbell import Schedules
from noonbell.actions.registry import Actions
from noonbell.core.attempt_detail import unpack
from noonbell.engine import lane_jobs as engine_lane
from noonbell.engine import membership
from noonbell.errors import CommandsOffError, ScheduleInvalidError, ScheduleNotFoundError
from noonbell.ledger import verify_store
from noonbell.ports import Ledger, RunFilter, ScheduleFilter
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from noonbell.testing import ManualClock
from tests.patience import until

NOON = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)
MESSAGE = {"kind": "message", "to": "inbox"}
EVERY_MINUTE: dict[str, Any] = {"type": "cron", "spec": "* * * * *"}


@pytest.fixture(autouse=True, scope="module")
def _alone() -> Iterator[None]:
    """No other engine is looked for: on manual time that would be hundreds of looks."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(membership, "LOOK", 3_600_000_000)
        patched.setattr(membership, "BEAT", 3_600_000_000)
        yield


class World:
    def __init__(self, store: Ledger) -> None:
        self.store = store
        self.clock = ManualClock(NOON)
        self.got: list[dict[str, Any]] = []
        self.refuse = False
        self.schedules = self.new()

    def new(self, **options: Any) -> Schedules:
        targets = {"inbox": self.receive}
        return Schedules(self.store, clock=self.clock, targets=targets, longest_wait=timedelta(minutes=1), **options)

    async def receive(self, event: dict[str, Any]) -> None:
        if self.refuse:
            raise ConnectionError("nobody home")
        self.got.append(event)

    async def minutes(self, minutes: float) -> None:
        await self.clock.advance(timedelta(minutes=minutes))

    async def stop(self, schedules: Schedules) -> None:
        task = asyncio.ensure_future(schedules.stop())
        while not task.done():
            await self.minutes(10)
        await task


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s.db", threaded=False)
    await store.open()
    made = World(store)
    yield made
    await made.stop(made.schedules)
    await store.close()


async def test_a_fired_occurrence_arrives_as_an_event(world: World) -> None:
    made = await world.schedules.create(
        name="stand-up", payload={"text": "{{name}} at {{scheduled_for}}"}, action=MESSAGE, **EVERY_MINUTE
    )
    await world.schedules.start()
    await world.minutes(2)
    assert [event["data"]["text"] for event in world.got] == [
        "stand-up at 2026-03-04T12:01:00Z",
        "stand-up at 2026-03-04T12:02:00Z",
    ]
    first = world.got[0]
    source = {"channel": "scheduler", "connector_id": made.schedule_id}
    assert (first["subject"], first["data"]["source"]) == ("stand-up", source)
    page = await world.schedules.occurrences(made.schedule_id)
    assert [(one.verdict, one.state) for one in page.items] == [("fired", "succeeded")] * 2
    assert (await verify_store(world.store)).problems == []


async def test_the_delivery_is_notified_whether_more_schedules_are_due(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a burst, schedules are claimed before messages."""
    more: list[bool] = []
    wake = Actions.wake

    def noted(actions: Actions, *, more_due: bool = False) -> None:
        more.append(more_due)
        wake(actions, more_due=more_due)

    monkeypatch.setattr(Actions, "wake", noted)
    monkeypatch.setattr(engine_lane, "FIRST_BATCH", 2)
    monkeypatch.setattr(engine_lane, "BATCH", 2)
    for _ in range(5):
        await world.schedules.create(payload={}, action=MESSAGE, **EVERY_MINUTE)
    await world.schedules.start()
    more.clear()
    await world.minutes(1)
    assert more == [True, True, False]
    assert len(world.got) == 5


async def test_a_triggered_message_arrives_too(world: World) -> None:
    made = await world.schedules.create(payload={}, action=MESSAGE, **EVERY_MINUTE)
    await world.schedules.start()
    run_id = await world.schedules.trigger(made.schedule_id)
    await world.minutes(0.1)
    assert [(event["id"], event["kind"]) for event in world.got] == [(run_id, "manual")]


async def test_messages_that_waited_for_an_engine_arrive_in_order(world: World) -> None:
    world.refuse = True
    await world.schedules.create(payload={}, action=MESSAGE, **EVERY_MINUTE)
    await world.schedules.start()
    await world.minutes(3)
    await world.stop(world.schedules)
    world.refuse = False
    world.schedules = world.new()
    await world.schedules.start()
    await world.minutes(6)
    times = [event["time"] for event in world.got]
    assert times[:3] == [f"2026-03-04T12:0{minute}:00Z" for minute in (1, 2, 3)]
    assert times == sorted(times)


async def test_dead_letters_are_seen_revived_and_dropped(world: World) -> None:
    one_shot: dict[str, Any] = {"type": "one_shot", "spec": "2026-03-04T12:01"}
    made = await world.schedules.create(payload={"n": 1}, action=MESSAGE, **one_shot)
    other = await world.schedules.create(payload={"n": 2}, action=MESSAGE, **one_shot)
    world.refuse = True
    await world.schedules.start()
    begin = world.clock.at
    while len((await world.schedules.dead_letters()).items) < 2:
        assert world.clock.at - begin < timedelta(hours=1)
        await world.minutes(1)
    page = await world.schedules.dead_letters(limit=1)
    assert page.next_cursor is not None
    second = await world.schedules.dead_letters(cursor=page.next_cursor)
    assert second.next_cursor is None
    letters = [*page.items, *second.items]
    assert {letter.schedule_id for letter in letters} == {made.schedule_id, other.schedule_id}
    assert {(letter.target, letter.attempts) for letter in letters} == {("inbox", 10)}
    assert all("nobody home" in letter.error for letter in letters)
    (mine,) = (await world.schedules.dead_letters(made.schedule_id)).items
    assert mine.event["data"]["n"] == 1
    assert mine.message_id == mine.event["id"]
    world.refuse = False
    assert await world.schedules.revive_dead_letters([mine.number]) == 1
    await world.clock.settle()
    assert [event["data"]["n"] for event in world.got] == [1]
    (left,) = (await world.schedules.dead_letters()).items
    assert await world.schedules.drop_dead_letters([left.number, mine.number]) == 1
    assert (await world.schedules.dead_letters()).items == []
    told = [event.event for event in (await world.schedules.audit()).items if event.event.startswith("message.")]
    assert told == ["message.dead", "message.dead", "message.revived", "message.dropped"]


async def test_dead_letters_of_nobody_and_numbers_that_are_none_are_refused(world: World) -> None:
    with pytest.raises(ScheduleNotFoundError):
        await world.schedules.dead_letters("nobody")
    wrong: Any = ["1"]
    with pytest.raises(ScheduleInvalidError):
        await world.schedules.drop_dead_letters(wrong)


async def test_a_target_can_be_registered_later(world: World) -> None:
    await world.schedules.create(payload={}, action={"kind": "message", "to": "late"}, **EVERY_MINUTE)
    await world.schedules.start()
    await world.minutes(1)
    world.schedules.deliver_to("late", world.receive)
    await world.minutes(1)
    assert len(world.got) == 2


async def test_a_message_needs_a_template(world: World) -> None:
    with pytest.raises(ScheduleInvalidError) as refused:
        await world.schedules.create(action=MESSAGE, **EVERY_MINUTE)
    assert refused.value.field == "payload"
    made = await world.schedules.create(payload={"text": "x"}, action=MESSAGE, **EVERY_MINUTE)
    with pytest.raises(ScheduleInvalidError) as refused:
        await world.schedules.update(made.schedule_id, payload={"text": "{{who}}"})
    assert refused.value.field == "payload.text"
    with pytest.raises(ScheduleInvalidError):
        await world.schedules.update(made.schedule_id, payload=None)


async def test_a_callback_may_have_any_payload_until_it_becomes_a_message(world: World) -> None:
    callback = {"kind": "callback", "name": "work"}
    made = await world.schedules.create(payload=[1], action=callback, **EVERY_MINUTE)
    with pytest.raises(ScheduleInvalidError) as refused:
        await world.schedules.update(made.schedule_id, action=MESSAGE)
    assert refused.value.field == "payload"
    changed = await world.schedules.update(made.schedule_id, action=MESSAGE, payload={})
    assert changed.action == MESSAGE


@pytest.mark.parametrize(
    ("action", "field"),
    [
        ("report", "action"),
        ({}, "action.kind"),
        ({"kind": "shell"}, "action.kind"),
        ({"kind": ["message"]}, "action.kind"),
        ({"kind": "callback"}, "action.name"),
        ({"kind": "callback", "name": "a", "nmae": "b"}, "action.nmae"),
        ({"kind": "command", "argv": ["a", 2]}, "action.argv[1]"),
    ],
)
async def test_what_is_no_action_is_refused_by_its_field(world: World, action: Any, field: str) -> None:
    with pytest.raises(ScheduleInvalidError) as refused:
        await world.schedules.create(payload={}, action=action, **EVERY_MINUTE)
    assert refused.value.field == field


# --- commands ---------------------------------------------------------------------------------------------------------

COMMAND: dict[str, Any] = {"kind": "command", "argv": [sys.executable, "-c", "import sys; print('done'); sys.exit(%d)"]}


def ending_with(code: int) -> dict[str, Any]:
    return {**COMMAND, "argv": [part.replace("%d", str(code)) for part in COMMAND["argv"]]}


async def test_commands_are_off_until_they_are_enabled(world: World) -> None:
    with pytest.raises(CommandsOffError, match="commands="):
        await world.schedules.create(action=ending_with(0), **EVERY_MINUTE)
    with pytest.raises(CommandsOffError):
        await world.schedules.create_many([{"type": "cron", "spec": "* * * * *", "action": ending_with(0)}])
    made = await world.schedules.create(action={"kind": "callback", "name": "x"}, **EVERY_MINUTE)
    with pytest.raises(CommandsOffError):
        await world.schedules.update(made.schedule_id, action=ending_with(0))
    assert [one.action["kind"] for one in (await world.schedules.list()).items] == ["callback"]
    picky = world.new(commands=["backup"])
    with pytest.raises(CommandsOffError, match="allows backup"):
        await picky.create(action=ending_with(0), **EVERY_MINUTE)


async def test_a_run_that_meets_commands_off_fails(world: World) -> None:
    made = await world.new(commands=True).create(action=ending_with(0), **EVERY_MINUTE)
    await world.schedules.start()
    await world.minutes(1)
    (one,) = (await world.schedules.occurrences(made.schedule_id)).items
    assert one.state == "failed"
    assert one.tried[0].error is not None
    assert "commands=[programs]" in one.tried[0].error


@pytest.mark.parametrize(("code", "state"), [(0, "succeeded"), (3, "failed")])
async def test_what_a_program_wrote_is_kept_with_its_attempt(world: World, code: int, state: str) -> None:
    world.schedules = world.new(commands=True)
    made = await world.schedules.create(action=ending_with(code), **EVERY_MINUTE)
    await world.schedules.start()
    await world.minutes(0.6)
    (stored,) = await world.store.schedules.find(ScheduleFilter(schedule_ids=[made.schedule_id]))

    async def has_run() -> bool:
        return bool(await world.store.history.runs(RunFilter(stored.sid, 0, 1 << 60)))

    await until(has_run)
    (run,) = await world.store.history.runs(RunFilter(stored.sid, 0, 1 << 60))
    (attempt,) = await world.store.history.attempts(stored.sid, 0, 1 << 60)
    assert (run.outcome, attempt.outcome) == (state, state)
    detail = unpack(attempt.detail or b"")
    assert (detail["stdout"], detail["exit_code"]) == ("done\n", code)
    (one,) = (await world.schedules.occurrences(made.schedule_id, end=NOON + timedelta(minutes=1))).items
    assert [tried.detail for tried in one.tried] == [detail]

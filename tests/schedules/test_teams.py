"""Teams: a view sees what belongs to its team, and of the rest nothing at all; the audit names who acted."""

from __future__ import annotations

from typing import Any

import pytest

from noonbell.errors import (
    ScheduleExistsError,
    ScheduleInvalidError,
    ScheduleNotFoundError,
    ScheduleViewError,
)
from noonbell.schedules import Schedules
from noonbell.store.memory import MemoryStore
from tests.schedules.conftest import ACTION, IN_EARNEST, World

LONGEST_WAIT = IN_EARNEST

NIGHT = {"from": "22:00", "to": "06:00", "timezone": "UTC", "weekdays": [1, 2]}
EVERY_MINUTE: dict[str, Any] = {"type": "cron", "spec": "* * * * *", "action": ACTION}


class Two:
    """Two teams in one store, with a schedule each, of one name."""

    def __init__(self, world: World) -> None:
        self.red = world.schedules.acting("ann", "red")
        self.blue = world.schedules.acting("bob", "blue")
        self.ids: dict[str, str] = {}

    async def fill(self) -> None:
        for name, view in (("red", self.red), ("blue", self.blue)):
            self.ids[name] = (await view.create(**EVERY_MINUTE, name="report", tags=["x"])).schedule_id


@pytest.fixture
async def two(world: World) -> Two:
    made = Two(world)
    await made.fill()
    return made


async def test_a_view_creates_into_its_team_in_the_name_of_its_actor(world: World, two: Two) -> None:
    made = await two.red.get(two.ids["red"])
    assert (made.team, made.name) == ("red", "report")
    (told,) = (await world.schedules.audit(subject=made.schedule_id)).items
    assert (told.event, told.actor, told.team) == ("schedule.created", "ann", "red")
    with pytest.raises(ScheduleExistsError):
        await two.red.create(**EVERY_MINUTE, name="report")
    with pytest.raises(ScheduleInvalidError, match=r'team .*must be "red"'):
        await two.red.create(**EVERY_MINUTE, team="blue")
    assert (await two.red.create(**EVERY_MINUTE, team="red", name="other")).team == "red"


async def test_without_a_team_all_is_seen_and_what_is_new_is_in_the_default_one(world: World, two: Two) -> None:
    assert (await world.schedules.create(**EVERY_MINUTE, name="report")).team == "default"
    assert (await world.schedules.create(**EVERY_MINUTE, name="report", team="green")).team == "green"
    teams = [one.team for one in (await world.schedules.list()).items]
    assert teams == ["red", "blue", "default", "green"]
    assert [one.schedule_id for one in (await world.schedules.list(team="blue", tag="x")).items] == [two.ids["blue"]]
    everybody = world.schedules.acting("root", None)
    assert len((await everybody.list()).items) == 4
    assert (await everybody.get(two.ids["red"])).team == "red"
    with pytest.raises(ScheduleInvalidError, match=r"team .*printable"):
        await world.schedules.create(**EVERY_MINUTE, team="a\nb")


async def test_a_schedule_stays_with_its_team(two: Two) -> None:
    with pytest.raises(ScheduleInvalidError, match=r"team .*cannot be changed"):
        await two.red.update(two.ids["red"], team="blue")  # type: ignore[call-arg]  # no field that changes


async def test_what_is_of_another_team_is_not_there(world: World, two: Two) -> None:
    foreign = two.ids["blue"]
    await world.schedules.start()
    await world.minutes(2)
    ran = (await two.blue.runs(foreign)).items[0].run_id
    refused = [
        two.red.get(foreign), two.red.preview(foreign), two.red.occurrences(foreign), two.red.runs(foreign),
        two.red.run(ran), two.red.statistics(foreign), two.red.update(foreign, name="mine"), two.red.pause(foreign),
        two.red.resume(foreign), two.red.delete(foreign), two.red.trigger(foreign), two.red.dead_letters(foreign),
        two.red.update_many([two.ids["red"], foreign], {"tags": ["y"]}),
    ]  # fmt: skip
    for asked in refused:
        with pytest.raises(ScheduleNotFoundError):
            await asked
    assert [one.schedule_id for one in (await two.red.list()).items] == [two.ids["red"]]
    with pytest.raises(ScheduleInvalidError, match=r'team .*must be "red"'):
        await two.red.list(team="blue")
    untouched = await two.blue.get(foreign)
    assert (untouched.epoch, untouched.enabled, untouched.name, untouched.tags) == (1, True, "report", ("x",))
    assert (await two.red.get(two.ids["red"])).tags == ("x",), "all of a batch or nothing"


async def test_a_deleted_schedule_of_another_team_is_not_there_either(two: Two) -> None:
    await two.blue.delete(two.ids["blue"])
    assert (await two.blue.runs(two.ids["blue"])).items == []
    with pytest.raises(ScheduleNotFoundError):
        await two.red.runs(two.ids["blue"])


async def test_recent_runs_and_the_audit_are_those_of_the_team(world: World, two: Two) -> None:
    await world.schedules.start()
    await world.minutes(2)
    assert {one.schedule_id for one in (await two.red.recent_runs()).items} == {two.ids["red"]}
    first = await two.red.recent_runs(limit=1)
    second = await two.red.recent_runs(limit=1, cursor=first.next_cursor)
    assert [one.schedule_id for one in (*first.items, *second.items)] == [two.ids["red"]] * 2
    assert {one.schedule_id for one in (await world.schedules.recent_runs()).items} == set(two.ids.values())
    assert {one.schedule_id for one in (await world.schedules.recent_runs(team="blue")).items} == {two.ids["blue"]}
    assert (await two.red.recent_runs(outcome="failed")).items == []

    await two.blue.trigger(two.ids["blue"])
    await two.blue.pause(two.ids["blue"])
    told = [(one.event, one.actor) for one in (await two.blue.audit()).items]
    assert told == [("schedule.created", "bob"), ("schedule.triggered", "bob"), ("schedule.paused", "bob")]
    assert [one.event for one in (await two.red.audit()).items] == ["schedule.created"]
    assert [one.event for one in (await world.schedules.audit(team="red")).items] == ["schedule.created"]
    assert (await two.red.audit(subject=two.ids["blue"])).items == []
    assert (await world.schedules.audit(team="default")).items == []


async def test_a_team_that_runs_little_is_looked_for_a_stretch_at_a_time(
    world: World, two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noonbell.schedules.history.MOST_SOUGHT", 1)
    rare = await world.schedules.acting("eve", "rare").create(**{**EVERY_MINUTE, "spec": "1 12 * * *"})
    await world.schedules.start()
    await world.minutes(5)
    view = world.schedules.acting("eve", "rare")
    first = await view.recent_runs(limit=1)
    assert (first.items, first.next_cursor is not None) == ([], True)
    found, cursor = [], first.next_cursor
    while cursor is not None:
        page = await view.recent_runs(limit=1, cursor=cursor)
        found += page.items
        cursor = page.next_cursor
    assert [one.schedule_id for one in found] == [rare.schedule_id]
    assert len((await two.red.recent_runs(limit=100)).items) == 5


async def test_missed_slots_are_told_to_their_team(world: World, two: Two) -> None:
    await world.minutes(10)
    await world.schedules.start()
    await world.minutes(1)
    missed = (await two.red.audit(event="schedule.missed")).items
    assert {one.subject for one in missed} == {two.ids["red"]}
    assert len(missed) == 9


async def test_quiet_hours_are_those_of_the_team(world: World, two: Two) -> None:
    calm = await two.red.create_quiet_hours("calm", [NIGHT], policy_id="calm")
    assert calm.team == "red"
    assert [one.policy_id for one in await two.red.list_quiet_hours()] == ["calm"]
    assert await two.blue.list_quiet_hours() == []
    for asked in (
        two.blue.get_quiet_hours("calm"),
        two.blue.update_quiet_hours("calm", windows=[]),
        two.blue.delete_quiet_hours("calm"),
    ):
        with pytest.raises(ScheduleNotFoundError):
            await asked
    for refused in (
        two.blue.create(**EVERY_MINUTE, name="quiet", quiet_hours_policy_id="calm"),
        two.blue.update(two.ids["blue"], quiet_hours_policy_id="calm"),
        world.schedules.update(two.ids["blue"], quiet_hours_policy_id="calm"),
    ):
        with pytest.raises(ScheduleInvalidError, match="names no quiet hours of this team"):
            await refused
    with pytest.raises(ScheduleInvalidError, match="is taken"):
        await two.blue.create_quiet_hours("mine", [], policy_id="calm")
    assert (await two.red.update(two.ids["red"], quiet_hours_policy_id="calm")).quiet_hours_policy_id == "calm"
    await two.red.update_quiet_hours("calm", windows=[])
    told = [(one.event, one.team) for one in (await two.red.audit(subject="calm")).items]
    assert told == [("quiet_hours.created", "red"), ("quiet_hours.updated", "red")]
    assert (await world.schedules.get_quiet_hours("calm")).team == "red"


async def test_dead_letters_are_those_of_the_team(world: World, two: Two) -> None:
    def refuse(_: object) -> None:
        raise ValueError("no")

    world.schedules.deliver_to("inbox", refuse)
    message = {"kind": "message", "to": "inbox"}
    at: dict[str, Any] = {"type": "one_shot", "spec": "2026-03-04T12:01", "action": message, "payload": {}}
    await two.red.create(**at, name="letter")
    await two.blue.create(**at, name="letter")
    await world.schedules.start()
    for _ in range(60):
        await world.minutes(10)
        if len((await world.schedules.dead_letters()).items) == 2:
            break
    (mine,) = (await two.red.dead_letters()).items
    (other,) = (await two.blue.dead_letters()).items
    assert (mine.team, other.team) == ("red", "blue")
    (told,) = (await two.red.audit(event="message.dead")).items
    assert told.detail["number"] == mine.number
    assert await two.red.drop_dead_letters([other.number]) == 0
    assert await two.red.revive_dead_letters([other.number]) == 0
    assert [one.number for one in (await world.schedules.dead_letters(team="blue")).items] == [other.number]
    assert await two.red.drop_dead_letters([mine.number, other.number]) == 1
    assert [one.event for one in (await two.red.audit(event="message.dropped")).items] == ["message.dropped"]
    assert (await two.blue.audit(event="message.dropped")).items == []
    assert [one.number for one in (await world.schedules.dead_letters()).items] == [other.number]


async def test_a_view_shares_the_engine_and_leaves_it_alone(world: World, two: Two) -> None:
    for asked in (two.red.start(), two.red.stop(), two.red.close(), two.red.open()):
        with pytest.raises(ScheduleViewError):
            await asked
    with pytest.raises(ScheduleViewError):
        two.red.register("x", print)
    await world.schedules.start()
    assert two.red.running
    await two.red.trigger(two.ids["red"])
    await world.clock.settle()
    assert [call.schedule_id for call in world.calls] == [two.ids["red"]], "the engine was woken through the view"


async def test_a_view_of_a_team_cannot_be_widened(two: Two) -> None:
    assert two.red.acting("eve", "red").team == "red"
    for team in (None, "blue"):
        with pytest.raises(ScheduleViewError, match='of the team "red" alone'):
            two.red.acting("eve", team)


async def test_what_acts_in_a_view_beside_schedules_names_its_actor(world: World, two: Two) -> None:
    await two.red.channels.create(name="hook", kind="webhook", config={"url": "https://example.com/"}, team="red")
    (told,) = (await two.red.audit(event="channel.created")).items
    assert (told.actor, told.team) == ("ann", "red")
    assert (await two.blue.audit(event="channel.created")).items == []


async def test_schedules_of_one_team_from_the_start() -> None:
    store = MemoryStore()
    async with Schedules(store, team="red") as red, Schedules(store) as all_of_them:
        message = {**EVERY_MINUTE, "action": {"kind": "message", "to": "t"}, "payload": {}}
        made, other = await red.create(**message), await all_of_them.create(**message)
        assert (made.team, other.team, red.team) == ("red", "default", "red")
        assert [one.schedule_id for one in (await red.list()).items] == [made.schedule_id]

"""Warnings with what was created or changed: targets that are not declared, one-shots inside quiet hours."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from noonbell.schedules import Schedules
from noonbell.schedules.warnings import Here, Subject, no_engine, of_many
from tests.schedules.conftest import NOON, World

MESSAGE: dict[str, Any] = {"type": "cron", "spec": "0 9 * * *", "payload": {}}
NIGHT = [{"weekdays": list(range(7)), "from": "22:00", "to": "06:00", "timezone": "UTC"}]


async def swallow(event: dict[str, Any]) -> None:
    del event


async def test_a_target_that_is_not_declared_is_warned_of(world: World) -> None:
    world.schedules.deliver_to("orders", swallow)
    right = await world.schedules.create(**MESSAGE, action={"kind": "message", "to": "orders"})
    assert right.warnings == ()
    wrong = await world.schedules.create(**MESSAGE, name="w", action={"kind": "message", "to": "order"})
    (warning,) = wrong.warnings
    assert warning.startswith('No target named "order" is declared in the lane "default" (declared: orders)')
    assert (await world.schedules.get(wrong.schedule_id)).warnings == ()
    mended = await world.schedules.update(wrong.schedule_id, action={"kind": "message", "to": "orders"})
    assert mended.warnings == ()
    assert len((await world.schedules.update(right.schedule_id, action={"kind": "message"})).warnings) == 1


async def test_the_targets_of_live_engines_are_known_to_other_processes(world: World) -> None:
    store = world.another_store()
    await store.open()
    client = Schedules(store, clock=world.clock)
    unknown = await client.create(**MESSAGE, name="a", action={"kind": "message", "to": "order"})
    assert unknown.warnings == (), "no engine is up: nothing is known of targets"
    world.schedules.deliver_to("orders", swallow)
    await world.schedules.start()
    await world.clock.advance(timedelta(hours=2))  # a sign of life
    wrong = await client.create(**MESSAGE, name="b", action={"kind": "message", "to": "order"})
    right = await client.create(**MESSAGE, name="c", action={"kind": "message", "to": "orders"})
    assert [len(one.warnings) for one in (wrong, right)] == [1, 0]
    await store.close()


async def test_many_are_warned_of_in_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.schedules.deliver_to("orders", swallow)
    many = [{**MESSAGE, "name": f"n{n}", "action": {"kind": "message", "to": "order"}} for n in range(12)]
    await world.schedules.create_many(many)  # type: ignore[arg-type]  # dicts of fields
    told = [one.message for one in caplog.records if one.name == "noonbell.schedules"]
    assert len(told) == 11
    assert told[-1] == "warnings of the same kinds about more schedules count=2"


async def test_a_one_shot_inside_quiet_hours_is_warned_of(world: World) -> None:
    night = await world.schedules.create_quiet_hours("night", NIGHT, policy_id="night")
    assert night.warnings == ()
    fields: dict[str, Any] = {"type": "one_shot", "action": {"kind": "callback", "name": "work"}}
    at = NOON.replace(hour=23)
    made = await world.schedules.create(**fields, name="late", spec=at.isoformat(), quiet_hours_policy_id="night")
    (warning,) = made.warnings
    assert '"late" is for 2026-03-04T23:00:30+00:00, inside its quiet hours "night": it is skipped' in warning
    day = await world.schedules.create(
        **fields, name="day", spec=NOON.replace(hour=20).isoformat(), quiet_hours_policy_id="night"
    )
    assert day.warnings == ()
    longer = await world.schedules.update_quiet_hours("night", windows=[{**NIGHT[0], "from": "19:00"}])
    assert [one.split(" is for ")[0] for one in longer.warnings] == ['"late"', '"day"']
    moved = await world.schedules.update(made.schedule_id, spec=NOON.replace(hour=18).isoformat())
    assert moved.warnings == ()


async def test_unknown_callbacks_of_many_are_logged_once_each(world: World, caplog: pytest.LogCaptureFixture) -> None:
    many = [
        {
            "type": "cron",
            "spec": "0 9 * * *",
            "name": f"n{n}",
            "action": {"kind": "callback", "name": f"unknown{n % 2}"},
        }
        for n in range(12)
    ]
    await world.schedules.start()
    await world.schedules.create_many(many)  # type: ignore[arg-type]  # dicts of fields
    logged = [one.message for one in caplog.records if one.message.startswith("No callback")]
    assert [one.split(" is ")[0] for one in logged] == ['No callback "unknown0"', 'No callback "unknown1"']


async def test_of_many_each_kind_of_warning_is_given_once(world: World) -> None:
    subjects = [
        Subject(f"s{n}", f"name {n}", "far", {"kind": "callback", "name": f"report{n % 2}"}, may_be_quiet=False)
        for n in range(1_000)
    ]
    store = world.another_store()
    await store.open()
    engine, callback = await of_many(store, subjects, Here(callbacks=()), 0)
    assert engine == (
        'No engine of the lane "far" is up: runs start when one is started (noonbell serve, or noonbell worker). '
        'The same for 999 more schedules: "name 1", "name 2", "name 3" and 996 others.'
    )
    assert callback == (
        'No callback "report0" is registered here: runs start only in an engine whose program registers it. The same '
        'for 999 more schedules: "name 1" (callback "report1"), "name 2", "name 3" (callback "report1") and 996 others.'
    )
    (one,) = await of_many(store, subjects[:1], Here(), 0)
    assert one == no_engine("far"), "as with one schedule; of callbacks nothing is known"
    long = [Subject("a", "x" * 500, "far", {"kind": "http"}, may_be_quiet=False)] * 5
    (bounded,) = await of_many(store, long, Here(), 0)
    assert len(bounded) < 500
    await store.close()

"""Dead letters in the rules: of messages, and of notices to other channels."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.notify.conftest import World, events

FAR = {"spec": "0 0 1 1 *", "payload": {}, "action": {"kind": "message", "to": "nowhere"}}


async def until_dead(world: World) -> None:
    """Let time pass until a message is given up."""
    begin = world.clock.at
    while not (await world.schedules.dead_letters()).items:
        assert world.clock.at - begin < timedelta(hours=2)
        await world.minutes(1)
        await world.settled()


async def test_a_message_that_is_a_dead_letter_is_notified(world: World) -> None:
    await world.channel()
    schedule_id = await world.schedule(**FAR, tags=["orders"])
    await world.schedules.rules.create(name="r", on=["undelivered"], channels=["ops"], tag="orders")
    await world.schedules.start()
    run_id = await world.schedules.trigger(schedule_id)
    await until_dead(world)
    await world.minutes(5)
    (told,) = await world.told(1)
    data: dict[str, Any] = told["data"]
    assert (data["event"], data["run_id"], data["attempts"]) == ("undelivered", run_id, 10)
    assert data["title"] == "backup: a message was not delivered"
    assert data["error"].startswith('The message to "nowhere" was not delivered: No target named "nowhere"')
    assert world.schedules.metrics is not None
    assert world.schedules.metrics["deliveries"] == {"delivered": 1, "failed": 10, "dead": 1}
    assert len((await world.schedules.dead_letters()).items) == 1


async def test_a_notice_that_is_a_dead_letter_is_notified_on_other_channels(world: World) -> None:
    await world.channel()
    await world.schedules.channels.create(
        name="gone", kind="webhook", config={"url": "http://127.0.0.1:9/none", "sign": False}, channel_id="gone"
    )
    await world.schedule()
    rule: dict[str, Any] = {"name": "r", "on": ["failed", "undelivered"], "window_seconds": 0}
    await world.schedules.rules.create(**rule, channels=["gone"])
    await world.schedules.rules.create(**{**rule, "on": ["undelivered"]}, channels=["ops"])
    world.plan = ["no"]
    await world.schedules.start()
    await world.minutes(1)
    await world.schedules.pause((await world.schedules.list()).items[0].schedule_id)
    await until_dead(world)
    for _ in range(15):
        await world.minutes(1)
        await world.settled()
    told = await world.told(1)
    assert events(told) == ["undelivered"]
    assert told[0]["data"]["error"].startswith('The notice "failed" to channel:gone was not delivered')
    letters = (await world.schedules.dead_letters()).items
    assert [letter.target for letter in letters] == ["channel:gone"], "its death is notified once, and not to itself"

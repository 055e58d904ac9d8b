"""Two engines that share a lane deliver to one channel in turns: what one has counted, the other knows."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from noonbell.notify.dispatcher import ChannelTarget, NotificationDispatcher
from noonbell.notify.notice_records import Notice
from tests.notify.conftest import World, events

NAMES = ("a", "b", "c", "d", "e")


def notice(world: World, name: str) -> str:
    made = Notice(f"{name}:1/failed", "failed", world.clock.now(), "schedule", name, name, "default", ())
    return msgspec.json.encode(made).decode()


def desks(world: World) -> list[NotificationDispatcher]:
    found = [schedules._lane.desk for schedules in (world.schedules, world.new())]
    return [desk for desk in found if desk is not None]


async def turn(desk: NotificationDispatcher, body: str) -> ChannelTarget:
    target = desk.target("channel:ops")
    assert target is not None
    await target.deliver(body)
    await target.turn_over()
    return target


async def test_what_is_held_back_is_counted_across_engines(world: World) -> None:
    await world.channel(most_per_minute=1)
    one, two = desks(world)
    for number, name in enumerate(NAMES):
        await turn((one, two)[number % 2], notice(world, name))
    assert events(await world.told(1)) == ["failed"], "the others came too soon after it"
    await turn(one, notice(world, "a"))
    await turn(two, notice(world, "a"))
    assert len(await world.told(1)) == 1, "what one has sent, the other knows"
    await world.clock.advance(timedelta(minutes=5))
    for desk in (one, two):
        await desk._ask_for_summaries()
    claim = await world.store.outbox.claim("default", "x", world.clock.now(), 10)
    bodies = [message.body for stream in claim.streams for _, message in stream.messages]
    assert len(bodies) == 1, "one has asked for a summary, and the other sees that"
    for desk in (one, two):  # a crash between the turn and its record brings it again
        await turn(desk, bodies[0])
    told = await world.told(2)
    assert events(told) == ["failed", "held"], "and there is one"
    assert told[1]["data"]["count"] == len(NAMES) - 1
    for desk in (one, two):
        await desk.close()

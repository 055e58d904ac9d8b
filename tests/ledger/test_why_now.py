"""why about the present: an engine that was killed, the grace, messages on their way, several in one minute."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from noonbell.errors import DeliveryError, TargetAwayError
from noonbell.ledger import Answer, why
from tests.schedules.conftest import IN_EARNEST, World, store_maker

GONE = "(instance I, up since 12:00:30, ended without recording a stop)"


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    made = World(store_maker(request.param, tmp_path), longest_wait=IN_EARNEST)
    await made.schedules.open()
    yield made
    task = asyncio.get_running_loop().create_task(made.schedules.stop())
    while not task.done():
        await made.clock.advance(timedelta(minutes=10))
    await task
    await made.store.close()


async def ask(world: World, name: str, at: str | None = None) -> Answer:
    asked = None if at is None else datetime.fromisoformat(f"2026-03-04T{at}")
    answer = await why(world.store, name, asked, now=world.clock.now())
    return Answer(re.sub(r"instance [^ ,.)]+", "instance I", answer.text), answer.facts)


async def killed_while_running(world: World, **fields: Any) -> None:
    await world.create(name="slow", schedule_id="slow", **fields)
    await world.schedules.start()
    world.duration = timedelta(hours=1)
    await world.minutes(1)
    assert "slow is running now for 2026-03-04 12:01 UTC" in (await ask(world, "slow", "12:01")).text
    world.store.kill()  # its process is gone; the callback that it leaves behind can write nothing
    world.store = world.another_store()
    await world.store.open()
    await world.minutes(3)


@pytest.mark.parametrize(
    ("at_most_once", "what"),
    [
        (False, "it counts as cut off, and is started again"),
        (True, "it ends as unknown and is not repeated, because it may run at most once"),
    ],
)
async def test_a_killed_engine_is_not_believed(world: World, what: str, *, at_most_once: bool) -> None:
    await killed_while_running(world, at_most_once=at_most_once)
    answer = await ask(world, "slow", "12:01")
    assert answer.text == (
        "slow was running for 2026-03-04 12:01 UTC: attempt 1 began at 12:01 on instance I. The scheduler is down "
        f"{GONE}. At the next start {what}."
    )
    assert answer.facts["cut_off"] is True
    answer = await ask(world, "slow", "12:02")
    assert answer.text == (
        f"slow has not run for 2026-03-04 12:02 UTC yet: the scheduler is down {GONE}. At the next start it will be "
        "missed, because its catch-up policy is skip."
    )
    assert answer.facts["scheduler_down"] is True


async def test_within_the_grace_it_may_still_run(world: World) -> None:
    await world.create(name="sync", schedule_id="sync")
    await world.schedules.start()
    await world.schedules.stop()
    assert (await ask(world, "sync", "12:01")).text.endswith("it has to be up before 12:02.")
    await world.minutes(1)
    assert (await ask(world, "sync", "12:01")).text.endswith(
        "If the next start comes before 12:02, it still runs; later it will be missed, because its catch-up policy is "
        "skip."
    )
    await world.schedules.start()
    await world.clock.settle()
    assert world.called == ["12:01"]
    await world.schedules.stop()
    await world.minutes(1.5)
    assert (await ask(world, "sync", "12:02")).text.endswith(
        "At the next start it will be missed, because its catch-up policy is skip."
    )
    await world.schedules.start()
    await world.clock.settle()
    assert ("12:02", "missed") in await world.told("sync")


async def test_what_was_missed_is_no_part_of_the_next_run(world: World) -> None:
    for name, policy in (("skips", "skip"), ("catches", "run_once")):
        await world.create(name=name, schedule_id=name, catch_up_policy=policy)
    await world.minutes(2.5)
    await world.schedules.start()
    await world.minutes(1)
    assert await world.told("skips") == [
        ("12:01", "missed"),
        ("12:02", "missed"),
        ("12:03", "fired"),
        ("12:04", "fired"),
    ]
    assert "It also covers" not in (await ask(world, "skips", "12:03")).text
    assert "It also covers 2 occurrences before it (12:01 to 12:02)." in (await ask(world, "catches", "12:03")).text


async def test_in_the_minute_of_its_creation_it_did_not_exist_yet(world: World) -> None:
    await world.create(name="fresh")
    answer = await ask(world, "fresh", "12:00")
    assert answer.text == (
        "fresh did not run at 2026-03-04 12:00 UTC, because it did not exist then yet: it was created at 2026-03-04 "
        "12:00:30 UTC by api."
    )
    assert answer.facts["verdict"] == "not there"


async def test_no_engine_was_ever_started(world: World) -> None:
    await world.create(name="idle")
    await world.minutes(3)
    assert (
        "yet: no scheduler has been started yet. At the next start it will be missed"
        in (await ask(world, "idle", "12:01")).text
    )


async def test_a_minute_with_several_occurrences(world: World) -> None:
    await world.create(name="tick", schedule_id="tick", type="interval", spec="7")
    await world.schedules.start()
    await world.minutes(2)
    answer = await ask(world, "tick", "12:01")
    assert answer.text.startswith(
        "tick has 8 occurrences in the minute of 2026-03-04 12:01 UTC: 12:01:05, 12:01:12, 12:01:19, 12:01:26, "
        "12:01:33 and 3 more. The first: tick ran for 2026-03-04 12:01:05 UTC"
    )
    exact = await ask(world, "tick", "12:01:12")
    assert exact.text.startswith("tick ran for 2026-03-04 12:01:12 UTC")


async def test_where_a_message_is(world: World) -> None:
    got: list[str] = []

    async def inbox(body: Any) -> None:
        got.append(str(body))
        if len(got) < 3:
            raise DeliveryError("inbox", "nobody home")

    world.schedules.deliver_to("inbox", inbox)
    await world.create(name="post", schedule_id="post", action={"kind": "message", "to": "inbox"}, payload={})
    await world.minutes(0.45)
    await world.schedules.start()
    await world.minutes(0.05)
    answer = await ask(world, "post", "12:01")
    assert re.search(
        r" Its message to inbox is still in the outbox, since 12:01, and was tried once in vain, the last time with: "
        r".*nobody home.*; the next try is at 12:01:\d\d\.$",
        answer.text,
    )
    assert answer.facts["message"] == "in the outbox"
    assert answer.facts["outbox"]["attempts"] == 1
    await world.minutes(10)
    answer = await ask(world, "post", "12:01")
    assert " Its message to inbox has left the outbox: it was delivered, unless" in answer.text
    assert len(got) >= 3


class Away:
    """A target that takes many at once, and is away."""

    most_together = 10

    async def deliver(self, body: str) -> None:
        await self.deliver_many([body])

    async def deliver_many(self, bodies: Sequence[str]) -> None:
        raise TargetAwayError("inbox", "nobody home")

    async def close(self) -> None: ...


async def test_a_message_that_waits_for_a_target_that_is_away(world: World) -> None:
    world.schedules.deliver_to("inbox", Away())
    action = {"kind": "message", "to": "inbox"}
    await world.create(name="first", schedule_id="first", action=action, payload={})
    for name in ("second", "third"):
        await world.create(name=name, schedule_id=name, spec="2 12 * * *", action=action, payload={})
    await world.schedules.start()
    await world.minutes(1.6)
    # one of the two has tried it alone, and the other was put off
    answers = [await ask(world, name, "12:02") for name in ("second", "third")]
    (waits,) = (answer for answer in answers if answer.facts["outbox"]["attempts"] == 0)
    assert re.search(
        r" Its message to inbox is still in the outbox, since 12:02, and was not tried yet, because its target is "
        r"away: .*nobody home; the next try is at 12:02:\d\d\.$",
        waits.text,
    )
    assert "nobody home" in waits.facts["outbox"]["error"]

"""Runs that only send a message: they end with the claim, and their messages are in the outbox by then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from noonbell.core.presence import Gap
from noonbell.core.records import OutboxMessage, Settlement, Start, StoredSchedule, Turn
from noonbell.core.turns import finish, look
from noonbell.ledger import verify_store
from noonbell.ports import LaneClaim, RunFilter, ScheduleChange, ScheduleFilter
from noonbell.schedules import changes
from noonbell.schedules.fields import read_fields
from noonbell.timing.timing_protocol import SECOND
from tests.schedules.conftest import ACTION, NOON, World

NOW = int(NOON.timestamp()) * SECOND
MINUTE = 60 * SECOND
DUE = NOW + MINUTE // 2


def message_of(stored: StoredSchedule, start: Start) -> OutboxMessage:
    body = f'{{"for":{start.run_for},"text":"☃ \\"quoted\\""}}'
    run_id = f"{stored.schedule_id}:{start.kind}:{start.run_for}"
    return OutboxMessage(stored.sid, stored.lane, run_id, "inbox", body, start.started_at)


async def create(world: World, name: str, **fields: Any) -> None:
    columns = read_fields({"name": name, "type": "cron", "spec": "* * * * *", "action": ACTION, **fields}, None).columns
    definition = msgspec.json.decode(columns.definition) | {"action": {"kind": "message", "target": "inbox"}}
    columns = replace(columns, definition=msgspec.json.encode(definition).decode())
    new = changes.created(name, columns, NOW, enabled=True, managed_by="api", lane="default")
    await world.store.schedules.apply(ScheduleChange([new], NOW, "me"))


async def claim(world: World, now: int, gaps: Sequence[Gap] = (), *, broken: bool = False) -> LaneClaim:
    def made(stored: StoredSchedule, start: Start) -> OutboxMessage:
        if broken:
            raise ValueError("the template has no such name")
        return message_of(stored, start)

    def take_turn(stored: StoredSchedule) -> Turn:
        turn = look(stored, now, gaps)
        finish(turn, stored, now, "me", made)
        return turn

    return await world.store.runs.claim("default", "me", now, 100, take_turn)


async def sent(world: World, now: int) -> list[OutboxMessage]:
    claimed = await world.store.outbox.claim("default", "you", now, 100)
    return [message for stream in claimed.streams for _, message in stream.messages]


async def test_the_run_is_over_and_its_message_is_in_the_outbox(world: World) -> None:
    await create(world, "a", overlap="skip")
    await create(world, "b", spec="*/5 * * * *")
    claimed = (await claim(world, DUE)).claimed
    assert claimed.starts == []
    assert claimed.looked == 1
    assert claimed.next_wake_at == DUE + MINUTE

    (stored,) = await world.store.schedules.find(ScheduleFilter(schedule_ids=["a"]))
    assert (stored.cursor_at, stored.next_run_at, stored.last_run_for) == (DUE, DUE + MINUTE, DUE)
    assert (stored.last_run_at, stored.last_attempt_at, stored.last_success_at) == (DUE, DUE, DUE)
    assert stored.last_failure_at is None
    assert stored.ran == (DUE, DUE)
    assert stored.lives == []
    (run,) = await world.store.history.runs(RunFilter(stored.sid, 0, DUE))
    assert (run.run_for, run.kind, run.outcome, run.attempts, run.owner) == (DUE, "scheduled", "succeeded", 1, "me")

    start = Start(stored.sid, "scheduled", DUE, 1, 1, "cron", 1, DUE, DUE, None)
    assert await sent(world, DUE) == [message_of(stored, start)]
    assert (await verify_store(world.store)).problems == []


async def test_a_stream_that_waits_keeps_its_wake_up_and_its_order(world: World) -> None:
    await create(world, "a")
    for minute in range(3):
        await claim(world, DUE + minute * MINUTE)
    early = await world.store.outbox.claim("default", "you", DUE - 1, 100)
    assert early.streams == []
    assert early.next_wake_at == DUE
    bodies = [message.message_id for message in await sent(world, DUE)]
    assert bodies == [f"a:scheduled:{DUE + minute * MINUTE}" for minute in range(3)]


@pytest.mark.parametrize("overlap", ["coalesce", "skip", "allow"])
async def test_a_capped_backlog_goes_on_at_the_next_look(world: World, overlap: str) -> None:
    await create(world, "a", catch_up_policy="run_all_capped", catch_up_cap=3, overlap=overlap)
    late = DUE + 9 * MINUTE + 30 * SECOND
    for left in (2, 1):
        claimed = (await claim(world, late, [Gap(NOW, late)])).claimed
        assert claimed.next_wake_at == late
        (stored,) = await world.store.schedules.find(ScheduleFilter(schedule_ids=["a"]))
        assert stored.backlog_left == left
    for _ in range(3):
        await claim(world, late, [Gap(NOW, late)])
    runs = await world.store.history.runs(RunFilter(1, 0, late))
    assert [run.run_for for run in runs] == [DUE, DUE + MINUTE, DUE + 2 * MINUTE, DUE + 9 * MINUTE]
    assert len(await sent(world, late)) == 4
    assert (await verify_store(world.store)).problems == []


async def test_an_interval_counts_on_from_the_claim(world: World) -> None:
    await create(world, "a", type="interval", spec="90")
    now = NOW + 95 * SECOND
    claimed = (await claim(world, now)).claimed
    assert claimed.next_wake_at == now + 90 * SECOND
    (stored,) = await world.store.schedules.find(ScheduleFilter(schedule_ids=["a"]))
    assert stored.anchor_at == now


async def test_a_one_shot_is_over_with_its_message(world: World) -> None:
    await create(world, "a", type="one_shot", spec="2026-03-04T12:01Z")
    await claim(world, DUE)
    (stored,) = await world.store.schedules.find(ScheduleFilter(schedule_ids=["a"]))
    assert (stored.enabled, stored.next_run_at) == (False, None)
    assert len(await sent(world, DUE)) == 1


async def test_a_message_that_cannot_be_made_is_left_to_the_run(world: World) -> None:
    await create(world, "a")
    claimed = (await claim(world, DUE, broken=True)).claimed
    (start,) = claimed.starts
    assert claimed.quarantined == []
    ended = Settlement(start, "me", "failed", DUE + 1, DUE + SECOND, "the template has no such name")
    assert (await world.store.runs.settle([ended])).stale == []
    assert await sent(world, DUE + MINUTE) == []


async def test_a_retry_settles_with_its_message_unless_it_is_stale(world: World) -> None:
    await create(world, "a")
    await create(world, "b")
    first = (await claim(world, DUE, broken=True)).claimed.starts
    await world.store.runs.settle([Settlement(start, "me", "failed", DUE + 1, DUE + SECOND, "no") for start in first])
    again = (await claim(world, DUE + SECOND)).claimed.starts
    assert [start.fence for start in again] == [2, 2]
    stored = await world.store.schedules.find(ScheduleFilter(schedule_ids=["a", "b"]))
    ended = [
        Settlement(start, owner, "succeeded", DUE + 2 * SECOND, messages=[message_of(seen, start)])
        for seen, start, owner in zip(stored, again, ("me", "somebody else"), strict=True)
    ]
    assert (await world.store.runs.settle(ended)).stale == [ended[1]]
    found = await world.store.outbox.claim("default", "you", DUE + 2 * SECOND, 100)
    assert [stream.sid for stream in found.streams] == [stored[0].sid]


async def test_other_actions_are_left_alone(world: World) -> None:
    await world.create(name="a")
    claimed = (await claim(world, DUE)).claimed
    assert [start.run_for for start in claimed.starts] == [DUE]
    assert await sent(world, DUE) == []

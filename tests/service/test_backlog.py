"""How much is waiting in a store: the same on every store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from noonbell.core.records import Delivery, OutboxMessage
from noonbell.schedules import Schedules
from noonbell.store.timed import time_verbs
from noonbell.testing import ManualClock

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


async def test_due_and_live_are_counted(each_store: Any) -> None:
    clock = ManualClock(START)
    times = time_verbs(each_store)
    schedules = Schedules(each_store, clock=clock)
    action = {"kind": "message", "to": "x"}
    for name in ("one", "two"):
        await schedules.create(schedule_id=name, name=name, type="interval", spec="60", action=action, payload={"a": 1})
    await schedules.create(name="paused", type="interval", spec="60", action=action, payload={"a": 1}, enabled=False)
    empty = {"outbox": 0, "outbox_oldest_us": 0, "dead_letters": 0}
    assert await each_store.backlog(clock.now()) == {"due": 0, **empty}
    await schedules.trigger("one")
    assert await each_store.backlog(clock.now()) == {"due": 0, "queued": 1, **empty}
    later = clock.now() + timedelta(seconds=60) // timedelta(microseconds=1)
    assert (await each_store.backlog(later))["due"] == 2
    assert sum(times.verbs["backlog"].buckets) == 3
    assert times.verbs["backlog"].total_seconds > 0
    assert times.verbs["backlog"].errors == 0


async def test_messages_and_dead_letters_are_counted(each_store: Any) -> None:
    at = 1_000_000
    await each_store.outbox.post([OutboxMessage(n, "l", f"m{n}", "x", "{}", at + n) for n in (5, 6, 7)], at)
    claim = await each_store.outbox.claim("l", "me", at + 10, 1)
    (stream,) = claim.streams
    await each_store.outbox.settle([Delivery(stream.sid, "me", at + 10, None, dead=stream.messages[0][0], error="no")])
    found = await each_store.backlog(at + 106)
    oldest = 100 if stream.sid != 5 else 99  # whichever stream came first
    assert found == {"due": 0, "outbox": 2, "outbox_oldest_us": 1 + oldest, "dead_letters": 1}


async def test_what_a_verb_raises_passes_through_and_is_counted(each_store: Any) -> None:
    times = time_verbs(each_store)
    with pytest.raises(Exception, match="nothing"):
        await each_store.runs.ask("nothing", 0, "me")
    assert times.verbs["runs.ask"].errors == 1

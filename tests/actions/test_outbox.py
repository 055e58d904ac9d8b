"""The outbox under random use: SQLite does what memory does, and a crash anywhere loses and reorders nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from noonbell.actions.delivery import Deliverer
from noonbell.actions.sender import Delivering
from noonbell.actions.targets import as_target
from noonbell.core.records import Delivery, Stream
from noonbell.ports import BOUNDS, PARTS, AwayTarget, Ledger, ScheduleChange, StreamBounds
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from noonbell.store.wrapping import verbs_of, with_verbs
from noonbell.testing import ManualClock
from noonbell.testing.storage_cases.base import SECOND, T0
from noonbell.testing.storage_cases.messages import LANE, schedule, send
from tests.effort import examples

NAMES = "abcd"


async def filled(store: Ledger) -> Ledger:
    await store.open()
    await store.schedules.apply(ScheduleChange([schedule(name) for name in NAMES], T0, "test"))
    return store


class Random:
    """The same random life for every store."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.now = T0
        self.held: dict[str, list[Stream]] = {"x": [], "y": []}

    async def step(self, store: Ledger) -> Any:
        pick = self.choose
        self.now += pick.choice([0, SECOND, 7 * SECOND])
        owner = pick.choice("xy")
        verb = pick.choice(["send", "send", "claim", "claim", "settle", "settle", "free", "revive", "drop", "look"])
        if verb == "send":
            return await send(store, self.now, **{pick.choice(NAMES): "m" * pick.choice([1, 2, 120])})
        if verb == "claim":
            claim = await store.outbox.claim(LANE, owner, self.now, pick.choice([1, 2, 10]), self.bounds())
            self.held[owner] += claim.streams
            return claim
        if verb == "settle":
            held, self.held[owner] = self.held[owner], []
            return await store.outbox.settle([self.delivery(stream, pick.choice("xy")) for stream in held])
        if verb == "free":
            self.held = {"x": [], "y": []}
            return await store.engines.rescue(LANE, "rescuer", self.now)
        numbers = [letter.number for letter in await store.outbox.dead_letters(None, 0, 100)]
        chosen = pick.sample(numbers, min(len(numbers), 2))
        if verb == "revive":
            return await store.outbox.resolve(chosen, redeliver_at=self.now)
        if verb == "drop":
            return await store.outbox.resolve(chosen)
        letters = await store.outbox.dead_letters(
            pick.choice([None, 1, 2]), pick.choice([0, *numbers]), pick.choice([1, 100])
        )
        return [letters, await store.outbox.owned(owner)]

    def bounds(self) -> StreamBounds:
        how = self.choose.choice([None, None, AwayTarget("?"), AwayTarget("?", tries=0), AwayTarget("?", self.now + 9)])
        most = self.choose.choice([BOUNDS.most_bytes, 0, 50, 1_000])
        return StreamBounds(most, {} if how is None else {"inbox": how})

    def delivery(self, stream: Stream, owner: str) -> Delivery:
        numbers = [number for number, _ in stream.messages]
        arrived = self.choose.randint(0, len(numbers))
        delivered = numbers[arrived - 1] if arrived else None
        end = self.choose.choice(["open", "dead", "later"])
        if end == "open" or arrived == len(numbers):
            return Delivery(stream.sid, owner, self.now, delivered)
        if end == "dead":
            return Delivery(stream.sid, owner, self.now, delivered, dead=numbers[arrived], error="no")
        return Delivery(stream.sid, owner, self.now, delivered, wake_at=self.now + 3 * SECOND, error="not yet")


@pytest.mark.parametrize("seed", range(examples(25)))
async def test_sqlite_does_what_memory_does(tmp_path: Path, seed: int) -> None:
    stores = (await filled(MemoryStore()), await filled(SqliteStore(tmp_path / "o.db", threaded=False)))
    lives = (Random(seed), Random(seed))
    for _ in range(120):
        expected, found = [await life.step(store) for life, store in zip(lives, stores, strict=True)]
        assert found == expected
    for store in stores:
        await store.close()


class Dying:
    """A store that dies at a given call, before or after it is done."""

    def __init__(self, store: Ledger, at_call: int, *, after: bool) -> None:
        self._store = store
        self._left = at_call
        self._after = after
        self.died = asyncio.Event()
        for part in PARTS:
            whole = getattr(store, part)
            setattr(
                self, part, with_verbs(whole, {name: self._counted(verb) for name, verb in verbs_of(whole).items()})
            )

    def _counted(self, verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                self._store.kill()
            result = await verb(*arguments)
            if self._left == 0:
                self._store.kill()
                self.died.set()
            return result

        return call


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at_call", range(1, 8))
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_crash_at_any_call_loses_and_reorders_nothing(
    tmp_path: Path, kind: str, at_call: int, after: bool
) -> None:
    data = MemoryStore().data

    def new() -> Ledger:
        return MemoryStore(data) if kind == "memory" else SqliteStore(tmp_path / "o.db", threaded=False)

    clock = ManualClock(T0)
    got: list[str] = []

    async def receive(event: dict[str, Any]) -> None:
        got.append(event["is"])

    async def live(store: Any, owner: str, seconds: float) -> None:
        how = Delivering(streams=1)
        deliverer = Deliverer(
            store, clock, lane=LANE, owner=owner, targets={"inbox": as_target("inbox", receive)}, how=how
        )
        stop = asyncio.Event()
        task = asyncio.ensure_future(deliverer.run(stop))
        await clock.advance(timedelta(seconds=seconds))
        stop.set()
        while not task.done():
            await clock.advance(timedelta(seconds=1))
        await task

    first = await filled(new())
    await send(first, T0, a="123", b="xyz")
    await live(Dying(first, at_call, after=after), "one", 6)
    first.kill()
    second = new()
    await second.open()
    await second.engines.rescue(LANE, "rescuer", clock.now())
    await send(second, clock.now(), a="4")
    await live(second, "two", 30)
    for letters in ("1234", "xyz"):
        of_stream = [letter for letter in got if letter in letters]
        assert sorted(set(of_stream)) == sorted(letters)
        assert sorted(letters, key=of_stream.index) == list(letters)  # each came first after the one before it
    assert (await second.outbox.claim(LANE, "looker", 1 << 60, 10)).streams == []
    await second.close()

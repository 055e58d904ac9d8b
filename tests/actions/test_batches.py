"""Messages of many streams that go together: order, what is refused, a target that is away and comes back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from noonbell.actions import backpressure, batches, delivery
from noonbell.actions.batches import LONGEST_BATCH, in_parts
from noonbell.core.records import Delivery, OutboxMessage
from noonbell.errors import DeliveryError, TargetAwayError
from noonbell.ports import Ledger, ScheduleChange, StreamClaim
from noonbell.store.memory import MemoryStore
from noonbell.store.wrapping import with_verbs
from noonbell.testing.storage_cases.base import SECOND, T0
from noonbell.testing.storage_cases.messages import LANE, schedule, send
from tests.actions.test_delivery import ME, World, make_store
from tests.patience import PATIENCE_SECONDS, until


class Bus:
    """A target that takes many at once, refuses what it is told to, and is away when it is told to be."""

    def __init__(self) -> None:
        self.most_together = 1_000
        self.got: list[str] = []
        self.batches: list[str] = []
        self.refuses = ""
        self.away = False
        self.leaves_at = ""
        self.arrives_yet = 0  # of a batch that meets it away
        self.closed = 0
        self.cut = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()

    async def deliver(self, body: str) -> None:
        await self.deliver_many([body])

    async def deliver_many(self, bodies: Sequence[str]) -> None:
        letters = "".join(msgspec.json.decode(body)["is"] for body in bodies)
        self.batches.append(letters)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cut.set()
            raise
        if self.away or set(letters) & set(self.leaves_at):
            self.got.extend(letters[: self.arrives_yet])
            raise TargetAwayError("Bus", "nobody there", self.arrives_yet)
        if bad := set(letters) & set(self.refuses):
            raise DeliveryError("Bus", f"no {min(bad)}")
        self.got.extend(letters)

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    store = make_store(request.param, tmp_path)
    await store.open()
    await store.schedules.apply(ScheduleChange([schedule(name) for name in "abcdef"], T0, "test"))
    yield World(store)
    await store.close()


@pytest.fixture
def bus(world: World) -> Bus:
    made = Bus()
    world.targets["inbox"] = made
    return made


async def test_streams_that_are_due_together_go_together(world: World, bus: Bus) -> None:
    await send(world.store, T0, a="123", b="xy", c="Z")
    deliverer = world.deliverer(streams=2)
    async with world.running(deliverer):
        assert sorted(bus.batches[0]) == sorted("123xyZ")
        assert len(bus.batches) == 1
    assert [letter for letter in bus.got if letter in "123"] == ["1", "2", "3"]
    assert deliverer.delivered == 6
    assert await world.left() == []


async def test_what_comes_while_a_batch_is_under_way_goes_with_the_next(world: World, bus: Bus) -> None:
    await send(world.store, T0, a="1")
    bus.go.clear()
    deliverer = world.deliverer()
    async with world.running(deliverer):
        for name, letter in zip("bcd", "234", strict=True):
            await send(world.store, T0, **{name: letter})
            deliverer.wake()
            await world.clock.settle()
        bus.go.set()
        await world.clock.settle()
        assert bus.batches == ["1", "234"]


async def test_a_batch_is_no_larger_than_the_target_takes(world: World, bus: Bus) -> None:
    bus.most_together = 40
    await send(world.store, T0, a="x" * 100, b="y" * 100)
    async with world.running(world.deliverer()):
        assert max(map(len, bus.batches)) <= 40
    assert sorted(bus.got) == ["x"] * 100 + ["y"] * 100


def test_stretches_are_bounded_by_count_and_by_length() -> None:
    def message(size: int) -> tuple[int, OutboxMessage]:
        return size, OutboxMessage(1, "l", "m", "t", "x" * size, 0, "team")

    half = LONGEST_BATCH // 2
    given = [message(size) for size in (1, 2, 3, half, half, half, LONGEST_BATCH + 1, 4)]
    assert [[number for number, _ in part] for part in in_parts(given, 3)] == [
        [1, 2, 3], [half, half], [half], [LONGEST_BATCH + 1], [4],
    ]  # fmt: skip
    assert list(in_parts([], 3)) == []


# --- refused ----------------------------------------------------------------------------------------------------------


async def test_one_that_is_refused_holds_up_its_own_stream_alone(world: World, bus: Bus) -> None:
    await send(world.store, T0, a="12", b="3", c="4x5", d="6", e="7")
    bus.refuses = "x"
    deliverer = world.deliverer(max_attempts=3)
    async with world.running(deliverer):
        assert sorted(bus.got) == ["1", "2", "3", "4", "6", "7"]
        assert len(bus.batches) < 12  # halved, not one by one
        await world.seconds(10)
        assert bus.got[-1] == "5"
    (letter,) = await world.store.outbox.dead_letters(None, 0, 10)
    assert (letter.message.message_id, letter.attempts) == ("c:scheduled:x", 3)
    assert letter.error == "The message did not reach Bus: no x"
    assert (deliverer.dead, len(bus.got)) == (1, 7)


class Busy(Bus):
    """A target that takes one batch at a time, and some while over it."""

    busy = False

    async def deliver_many(self, bodies: Sequence[str]) -> None:
        if self.busy:
            raise TargetAwayError("Busy", "what was sent before has not come to an end")
        self.busy = True
        try:
            for _ in range(5):
                await asyncio.sleep(0)
            await super().deliver_many(bodies)
        finally:
            self.busy = False


async def test_what_was_refused_with_another_of_its_stream_goes_again_in_its_turn(world: World) -> None:
    bus = world.targets["inbox"] = Busy()
    await send(world.store, T0, a="1x", b="2", c="3")
    bus.refuses = "x"
    async with world.running(world.deliverer(max_attempts=1)):
        await world.seconds(5)
    assert sorted(bus.got) == ["1", "2", "3"]
    assert [letter.message.message_id for letter in await world.store.outbox.dead_letters(None, 0, 10)] == [
        "a:scheduled:x"
    ]


async def test_a_target_that_goes_away_after_a_refusal_kills_nothing(world: World, bus: Bus) -> None:
    await send(world.store, T0, a="1x")
    bus.refuses = "x"
    real, refused = bus.deliver_many, False

    async def leaving(bodies: Sequence[str]) -> None:
        nonlocal refused
        try:
            await real(bodies)
        except DeliveryError:
            bus.away, refused = bus.away or not refused, True
            raise

    bus.deliver_many = leaving  # type: ignore[method-assign]  # to leave between two calls
    async with world.running(world.deliverer(max_attempts=1)):
        await world.seconds(100)
        assert await world.store.outbox.dead_letters(None, 0, 10) == []
        bus.away = False
        await world.seconds(31)
        assert bus.got == ["1"]
    assert [letter.message.message_id for letter in await world.store.outbox.dead_letters(None, 0, 10)] == [
        "a:scheduled:x"
    ]


# --- away -------------------------------------------------------------------------------------------------------------


async def test_nothing_dies_of_a_target_that_is_away(world: World, bus: Bus) -> None:
    await send(world.store, T0, a="12", b="3")
    bus.away = True
    async with world.running(world.deliverer(max_attempts=2)):
        await world.seconds(1_800)
        assert bus.got == []
        bus.away = False
        await world.seconds(31)
        assert sorted(bus.got) == ["1", "2", "3"]
    assert bus.got.index("1") < bus.got.index("2")
    assert await world.store.outbox.dead_letters(None, 0, 10) == []
    assert await world.left() == []


async def test_a_target_that_is_away_is_asked_by_one_message_and_ever_more_rarely(world: World, bus: Bus) -> None:
    await send(world.store, T0, a="1", b="2", c="3", d="4")
    bus.away = True
    asked: list[int] = []
    real = bus.deliver_many

    async def noted(bodies: Sequence[str]) -> None:
        asked.append((world.clock.now() - T0) // SECOND)
        await real(bodies)

    bus.deliver_many = noted  # type: ignore[method-assign]  # to see when it is asked
    async with world.running(world.deliverer()):
        await world.seconds(150)
    assert asked == [0, 1, 3, 7, 15, 31, 61, 91, 121]
    first, *rest = bus.batches
    assert sorted(first) == ["1", "2", "3", "4"]
    assert {len(batch) for batch in rest} == {1}
    assert {*rest} == {"1", "2", "3", "4"}  # in turns


async def test_what_is_not_sent_to_a_target_that_is_away_counts_as_no_try(world: World, bus: Bus) -> None:
    """Neither what waits while it goes away, nor what comes meanwhile: only what it was asked with."""
    await send(world.store, T0, a="1")
    bus.away = True
    bus.go.clear()
    deliverer = world.deliverer()
    async with world.running(deliverer):
        await send(world.store, T0, b="2")
        deliverer.wake()
        await world.clock.settle()  # claimed: it waits for the end of the batch with 1
        assert len(await world.store.outbox.owned(ME)) == 2
        bus.go.set()
        await world.clock.settle()
        await send(world.store, T0, c="3")
        deliverer.wake()
        await world.clock.settle()
        assert bus.batches == ["1"]
        found = [await world.store.outbox.sending(sid, f"{'abc'[sid - 1]}:scheduled:{sid}") for sid in (1, 2, 3)]
        assert [one and one.attempt for one in found] == [1, 0, 0]
        bus.away = False
        await world.seconds(10)
    assert sorted(bus.got) == ["1", "2", "3"]


class Counted:
    """A store that counts what is claimed from it, stream by stream, and what is written back."""

    def __init__(self, store: Ledger) -> None:
        self._store = store
        self.claimed: list[int] = []
        self.settled = 0
        self.outbox = with_verbs(store.outbox, {"claim": self._claim, "settle": self._settle})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def _claim(self, *given: Any) -> StreamClaim:
        claim = await self._store.outbox.claim(*given)
        self.claimed += [len(stream.messages) for stream in claim.streams]
        return claim

    async def _settle(self, deliveries: Sequence[Delivery]) -> None:
        self.settled += len(deliveries)
        await self._store.outbox.settle(deliveries)


async def test_while_it_is_away_the_outbox_is_not_read_again_and_again(world: World, bus: Bus) -> None:
    await send(world.store, T0, a="1" * 20 + "2", b="3" * 20 + "4", c="5" * 20 + "6")
    bus.away = True
    counted = Counted(world.store)
    async with world.running(world.deliverer(store=cast("Ledger", counted))):
        assert counted.claimed == [21, 21, 21]
        await world.seconds(100)
        assert counted.claimed[3:] == [1] * 7  # after 1, 3, 7, 15, 31, 61 and 91 seconds
        assert counted.settled == 10
        bus.away = False
        await world.seconds(31)
        assert sorted(bus.got) == sorted("1" * 20 + "2" + "3" * 20 + "4" + "5" * 20 + "6")
    assert [letter for letter in bus.got if letter in "12"] == ["1"] * 20 + ["2"]
    assert await world.left() == []


async def test_others_are_not_held_up_while_it_is_being_tried(world: World, bus: Bus) -> None:
    await send(world.store, T0, a="1", b="2", c="3")
    other = world.targets["elsewhere"] = Bus()
    bus.away = True
    deliverer = world.deliverer()
    async with world.running(deliverer):
        bus.go.clear()
        await world.seconds(2)
        assert len(bus.batches) == 2  # and the second has no answer yet
        for number in range(3):
            message = OutboxMessage(9, "post", f"x:scheduled:{number}", "elsewhere", f'{{"is":"{number}"}}', T0)
            await world.store.outbox.post([message], T0)
            deliverer.wake()
            await world.clock.settle()
            assert len(other.got) == number + 1
        await world.seconds(10)
        assert len(bus.batches) == 2
        bus.away = False
        bus.go.set()
        await world.seconds(2)
        assert sorted(bus.got) == ["1", "2", "3"]


async def test_a_target_that_refuses_is_back(world: World, bus: Bus) -> None:
    await send(world.store, T0, a="1", b="2", c="3", d="4")
    bus.away = True
    async with world.running(world.deliverer()):
        bus.away, bus.refuses = False, "1"
        await world.seconds(1)
        assert ["".join(sorted(batch)) for batch in bus.batches] == ["1234", "1", "23", "4"]
        bus.refuses = ""
        await world.seconds(5)
        assert sorted(bus.got) == ["1", "2", "3", "4"]


async def test_one_message_that_it_never_answers_to_does_not_keep_it_away(world: World, bus: Bus) -> None:
    await send(world.store, T0, a="x", b="2")
    bus.leaves_at = "x"
    async with world.running(world.deliverer()):
        await world.seconds(10)
        assert bus.got == ["2"]


async def test_one_message_that_it_never_answers_to_holds_up_others_for_seconds(world: World, bus: Bus) -> None:
    bus.leaves_at = "x"
    letters = "x" + "2" * 40
    given = [OutboxMessage(100 + n, LANE, f"m{n}", "inbox", f'{{"is":"{one}"}}', T0) for n, one in enumerate(letters)]
    await world.store.outbox.post(given, T0)
    async with world.running(world.deliverer()):
        await world.seconds(10)
        assert bus.got == ["2"] * 40
    assert await world.left() == [1]


async def test_after_an_outage_ever_more_go_together_until_all_do(world: World, bus: Bus) -> None:
    given = [OutboxMessage(100 + n % 20, LANE, f"m{n}", "inbox", '{"is":"1"}', T0) for n in range(60)]
    await world.store.outbox.post(given, T0)
    bus.away = True
    async with world.running(world.deliverer()):
        bus.away = False
        await world.seconds(1)
    assert list(map(len, bus.batches)) == [60, 1, 2, 4, 8, 16, 16, 13]
    assert len(bus.got) == 60


async def test_what_it_says_of_being_away_can_be_written(world: World, bus: Bus) -> None:
    async def gone(bodies: Sequence[str]) -> None:
        raise TargetAwayError("Bus", "no \udc80")

    bus.deliver_many = gone  # type: ignore[method-assign]  # to say what no encoding takes
    await send(world.store, T0, a="1", b="2")
    async with world.running(world.deliverer()):
        await world.seconds(5)
    waiting = await world.store.outbox.sending(1, "a:scheduled:1")
    assert waiting is not None
    assert waiting.error == "The message did not reach Bus: no \\udc80"


async def test_what_is_in_hand_is_bounded(world: World, bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    one = len('{"is":"1","to":"a"}')
    monkeypatch.setattr(backpressure, "MOST_BYTES_IN_FLIGHT", 10 * one)
    monkeypatch.setattr(delivery, "LEAST_ROOM", 5 * one)
    await send(world.store, T0, a="1" * 30, b="2" * 30)
    bus.go.clear()
    counted = Counted(world.store)
    deliverer = world.deliverer(store=cast("Ledger", counted))
    async with world.running(deliverer):
        assert counted.claimed == [5, 5]
        await send(world.store, T0, c="3")
        deliverer.wake()
        await world.clock.settle()
        assert counted.claimed == [5, 5]
        bus.go.set()
        await world.clock.settle()
        assert sorted(bus.got) == ["1"] * 30 + ["2"] * 30 + ["3"]


async def test_it_is_told_once_a_minute_and_when_it_is_back(
    world: World, bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "noonbell.delivery")
    await send(world.store, T0, a="1", b="2", c="3")
    bus.away = True
    async with world.running(world.deliverer()):
        await world.seconds(70)
        bus.away = False
        await world.seconds(31)
    told = [record.getMessage() for record in caplog.records if record.name == "noonbell.delivery"]
    assert told == [
        'The target "inbox" failed, what is sent there waits until it is back: nobody there',
        'The target "inbox" has failed for 1 min: nobody there',
        'The target "inbox" works again, after 1 min',
    ]


async def test_what_has_arrived_before_it_went_away_is_not_sent_again(world: World, bus: Bus) -> None:
    await send(world.store, T0, a="1234")
    bus.away, bus.arrives_yet = True, 2
    async with world.running(world.deliverer()):
        bus.away = False
        await world.seconds(2)
    assert bus.batches == ["1234", "3", "4"]
    assert bus.got == ["1", "2", "3", "4"]


async def test_a_target_that_is_away_does_not_hold_up_others(world: World, bus: Bus) -> None:
    bus.away = True
    await send(world.store, T0, a="1")
    other = Bus()
    world.targets["elsewhere"] = other
    message = OutboxMessage(2, "post", "b:scheduled:1", "elsewhere", '{"is":"x"}', T0, "default")
    await world.store.outbox.post([message], T0)
    async with world.running(world.deliverer()):
        assert other.got == ["x"]


async def test_a_batch_that_takes_too_long_is_a_target_that_is_away() -> None:
    store = MemoryStore()
    await store.open()
    await store.schedules.apply(ScheduleChange([schedule("a")], T0, "test"))
    world = World(store)
    bus = Bus()
    world.targets["inbox"] = bus
    bus.go.clear()
    await send(store, T0, a="1")
    async with world.running(world.deliverer(longest_delivery_seconds=0.05)):
        await asyncio.wait_for(bus.cut.wait(), 30)  # the limit is one of the event loop's own clock
        await world.clock.settle()
        bus.go.set()
        await world.seconds(2)
        assert bus.got == ["1"]
    await store.close()


# --- stopping ---------------------------------------------------------------------------------------------------------


async def test_a_stop_lets_the_batch_under_way_arrive(world: World, bus: Bus) -> None:
    await send(world.store, T0, a="1", b="2")
    bus.go.clear()
    stop = asyncio.Event()
    task = asyncio.ensure_future(world.deliverer().run(stop))
    await world.clock.settle()
    stop.set()
    await world.clock.settle()
    bus.go.set()
    await task
    assert sorted(bus.got) == ["1", "2"]
    assert bus.closed == 1
    assert await world.left() == []


async def test_a_stop_does_not_wait_for_ever(world: World, bus: Bus) -> None:
    await send(world.store, T0, a="1", b="2")
    bus.go.clear()
    stop = asyncio.Event()
    task = asyncio.ensure_future(world.deliverer(stop_seconds=0.05).run(stop))
    await world.clock.settle()
    stop.set()
    await task
    assert bus.got == []
    assert await world.left() == [1, 1]


@pytest.mark.parametrize("stopped", [True, False])
async def test_a_call_that_swallows_its_cancellation_is_abandoned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, stopped: bool
) -> None:
    """It holds up neither a stop nor, once its time is over, the messages that come later."""
    monkeypatch.setattr(batches, "_CANCEL_SECONDS", 0.01)
    store = MemoryStore()
    await store.open()
    await store.schedules.apply(ScheduleChange([schedule("a"), schedule("b")], T0, "test"))
    world, bus, release = World(store), Bus(), asyncio.Event()
    world.targets["inbox"] = bus
    real = bus.deliver_many

    async def swallowing(bodies: Sequence[str]) -> None:
        bus.deliver_many = real  # type: ignore[method-assign]  # the next call is as any other
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    bus.deliver_many = swallowing  # type: ignore[method-assign]  # to hang in the first call
    await send(store, T0, a="1")
    async with asyncio.timeout(PATIENCE_SECONDS):
        async with world.running(
            world.deliverer(stop_seconds=0.01, longest_delivery_seconds=60.0 if stopped else 0.01)
        ):
            await world.clock.settle()
            if not stopped:
                await until(lambda: "delivery abandoned" in caplog.text)
                await send(store, T0, b="2")
                await world.seconds(3)
                assert sorted(bus.got) == ["1", "2"]
    assert "delivery abandoned target='inbox'" in caplog.text
    assert await world.left() == ([1] if stopped else [])
    release.set()
    await world.clock.settle()
    await store.close()


async def test_one_that_is_cut_off_lets_the_batch_under_way_arrive(
    world: World, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_CANCELLED_SECONDS", 60.0)
    await send(world.store, T0, a="1", b="2")
    bus.go.clear()
    task = asyncio.ensure_future(world.deliverer(stop_seconds=60.0).run(asyncio.Event()))
    await world.clock.settle()
    task.cancel()
    await world.clock.settle()
    bus.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(bus.got) == ["1", "2"]
    assert await world.left() == []

"""The deliverer on manual time: order, patience, dead letters, and what a stop or a failing store leaves behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noonbell.actions import delivery, workers
from noonbell.actions.delivery import Deliverer
from noonbell.actions.sender import Delivering
from noonbell.actions.targets import Target, as_target
from noonbell.actions.targets.target import ChannelTarget
from noonbell.core.records import Delivery, OutboxMessage
from noonbell.engine.supervisor import Supervisor
from noonbell.errors import DeliveryError, StoreError
from noonbell.ports import PARTS, AuditFilter, Ledger, ScheduleChange
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from noonbell.store.wrapping import verbs_of, with_verbs
from noonbell.testing import ManualClock
from noonbell.testing.storage_cases.base import SECOND, T0
from noonbell.testing.storage_cases.messages import LANE, schedule, send
from tests.patience import until

ME = "instance-1"


class Inbox:
    """A target that keeps what it gets, and refuses what it is told to, as often as it is told."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self.tried: list[tuple[str, int]] = []
        self.refuses: dict[str, int] = {}
        self.clock: ManualClock | None = None

    async def __call__(self, event: dict[str, Any]) -> None:
        letter = event["is"]
        self.tried.append((letter, 0 if self.clock is None else (self.clock.now() - T0) // SECOND))
        if self.refuses.get(letter, 0) > 0:
            self.refuses[letter] -= 1
            raise ValueError(f"no {letter}")
        self.got.append(letter)


class World:
    def __init__(self, store: Ledger) -> None:
        self.store = store
        self.clock = ManualClock(T0)
        self.inbox = Inbox()
        self.inbox.clock = self.clock
        self.targets: dict[str, Target] = {"inbox": as_target("inbox", self.inbox)}

    def deliverer(self, *, store: Ledger | None = None, owner: str = ME, **how: Any) -> Deliverer:
        return Deliverer(
            store or self.store, self.clock, lane=LANE, owner=owner, targets=self.targets, how=Delivering(**how)
        )

    @asynccontextmanager
    async def running(self, deliverer: Deliverer) -> AsyncIterator[None]:
        stop = asyncio.Event()
        task = asyncio.ensure_future(deliverer.run(stop))
        try:
            await self.clock.settle()
            yield
        finally:
            stop.set()
            while not task.done():
                await self.clock.advance(timedelta(seconds=1))
            await task

    async def seconds(self, seconds: float) -> None:
        await self.clock.advance(timedelta(seconds=seconds))

    async def left(self) -> list[int]:
        """What is claimed by somebody; then the numbers of streams that wait."""
        assert await self.store.outbox.owned(ME) == []
        claim = await self.store.outbox.claim(LANE, "looker", 1 << 60, 1000)
        await self.store.outbox.settle([Delivery(stream.sid, "looker", T0, None) for stream in claim.streams])
        return [len(stream.messages) for stream in claim.streams]


def make_store(kind: str, folder: Path) -> Ledger:
    return MemoryStore() if kind == "memory" else SqliteStore(folder / "post.db", threaded=False)


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    store = make_store(request.param, tmp_path)
    await store.open()
    await store.schedules.apply(ScheduleChange([schedule(name) for name in "abcdef"], T0, "test"))
    yield World(store)
    await store.close()


async def test_messages_arrive_in_order_and_the_outbox_is_empty(world: World) -> None:
    await send(world.store, T0, a="123", b="xy")
    deliverer = world.deliverer()
    async with world.running(deliverer):
        assert [letter for letter in world.inbox.got if letter in "123"] == ["1", "2", "3"]
        assert [letter for letter in world.inbox.got if letter in "xy"] == ["x", "y"]
        await send(world.store, world.clock.now(), a="45")
        deliverer.wake()
        await world.clock.settle()
        assert world.inbox.got[-2:] == ["4", "5"]
    assert await world.left() == []
    assert (deliverer.delivered, deliverer.failed, deliverer.dead) == (7, 0, 0)


async def test_a_long_stream_is_delivered_to_its_end(world: World) -> None:
    await send(world.store, T0, a="x" * 250 + "y")
    async with world.running(world.deliverer()):
        assert world.inbox.got == ["x"] * 250 + ["y"]


async def test_messages_that_nobody_told_of_are_found(world: World) -> None:
    async with world.running(world.deliverer()):
        await send(world.store, T0, a="1")
        await world.seconds(5)
        assert world.inbox.got == ["1"]


async def test_a_failure_holds_up_its_own_stream_and_waits_longer_each_time(world: World) -> None:
    await send(world.store, T0, a="12", b="x")
    world.inbox.refuses = {"1": 5}
    async with world.running(world.deliverer()):
        assert world.inbox.got == ["x"]
        await world.seconds(60)
    assert [at for letter, at in world.inbox.tried if letter == "1"] == [0, 1, 3, 7, 15, 31]
    assert world.inbox.got == ["x", "1", "2"]


async def test_every_message_has_attempts_of_its_own(world: World) -> None:
    await send(world.store, T0, a="12")
    world.inbox.refuses = {"1": 2, "2": 2}
    async with world.running(world.deliverer(max_attempts=3)):
        await world.seconds(60)
    assert world.inbox.tried == [("1", 0), ("1", 1), ("1", 3), ("2", 3), ("2", 4), ("2", 6)]
    assert world.inbox.got == ["1", "2"]


async def test_the_wait_has_a_cap(world: World) -> None:
    await send(world.store, T0, a="1")
    world.inbox.refuses = {"1": 100}
    async with world.running(world.deliverer(longest_pause_us=2 * SECOND, max_attempts=6)):
        await world.seconds(60)
    assert [at for _, at in world.inbox.tried] == [0, 1, 3, 5, 7, 9]


@pytest.mark.parametrize("attempt", [1, 2, 9, 10, 60, 10_000])
def test_pauses_double_up_to_the_cap(attempt: int) -> None:
    assert Delivering().pause_us(attempt) == min(2 ** (attempt - 1), 300) * SECOND


async def test_after_the_last_attempt_it_is_a_dead_letter_and_the_stream_goes_on(world: World) -> None:
    await send(world.store, T0, a="123")
    world.inbox.refuses = {"2": 100}
    deliverer = world.deliverer(max_attempts=3)
    async with world.running(deliverer):
        await world.seconds(10)
        assert world.inbox.got == ["1", "3"]
    (letter,) = await world.store.outbox.dead_letters(None, 0, 10)
    assert (letter.message.message_id, letter.attempts, letter.error) == ("a:scheduled:2", 3, "ValueError: no 2")
    assert letter.died_at == T0 + 3 * SECOND
    ((_, audit),) = await world.store.audit.page(AuditFilter(event="message.dead"), 0, 10)
    assert (audit.subject, audit.at) == ("a", letter.died_at)
    assert msgspec.json.decode(audit.detail) == {
        "number": letter.number,
        "message_id": "a:scheduled:2",
        "target": "inbox",
        "attempts": 3,
        "error": "ValueError: no 2",
    }
    assert deliverer.dead == 1
    assert await world.left() == []


async def test_a_target_that_is_not_there_is_a_failure_that_says_so(world: World) -> None:
    await send(world.store, T0, a="1")
    world.targets.clear()
    async with world.running(world.deliverer(max_attempts=1)):
        await world.seconds(59)
        assert await world.store.outbox.dead_letters(None, 0, 10) == []
        await world.seconds(12)
    (letter,) = await world.store.outbox.dead_letters(None, 0, 10)
    told = 'No target named "inbox" is registered with any engine of the lane that has tried; registered here: none'
    assert letter.error == told
    assert letter.attempts == 1


async def test_messages_for_a_target_that_only_another_engine_knows_are_left_to_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    got: list[str] = []

    async def own(event: dict[str, Any]) -> None:
        got.append(event["is"])

    targets = {"own": as_target("own", own)}
    other = Deliverer(world.store, world.clock, lane=LANE, owner="instance-2", targets=targets)
    await send(world.store, T0, a="12", b="3", c="4")
    await world.store.outbox.post([OutboxMessage(9, LANE, "x:scheduled:1", "own", '{"is":"x"}', T0)], T0)
    async with world.running(other):
        await world.seconds(7)
        assert got == ["x"]  # what it knows is not held up by what it does not
        for sid, letter in ((1, "1"), (1, "2"), (2, "3"), (3, "4")):
            waiting = await world.store.outbox.sending(sid, f"{'abc'[sid - 1]}:scheduled:{letter}")
            assert waiting is not None
            assert (waiting.owner, waiting.attempt, waiting.wake_at <= world.clock.now()) == (None, 0, True)
        async with world.running(world.deliverer()):
            assert sorted(world.inbox.got) == ["1", "2", "3", "4"]
    assert (other.failed, other.dead) == (0, 0)
    assert [record.getMessage() for record in caplog.records if record.name == "noonbell.delivery"] == [
        "target not registered target=inbox: for 60 s its messages are left to other engines"
    ]


async def test_the_log_names_schedule_run_and_target(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await send(world.store, T0, a="1")
    world.inbox.refuses = {"1": 100}
    async with world.running(world.deliverer(max_attempts=2)):
        await world.seconds(5)
    facts = "schedule=a run=a:scheduled:1 target=inbox"
    assert [record.getMessage() for record in caplog.records if record.name == "noonbell.delivery"] == [
        f"delivery failed {facts} retry_seconds=1 reason=ValueError: no 1",
        f"dead letter {facts} reason=ValueError: no 1",
    ]


async def test_a_target_that_comes_later_gets_what_waits(world: World) -> None:
    await send(world.store, T0, a="1")
    target = world.targets.pop("inbox")
    async with world.running(world.deliverer()):
        world.targets["inbox"] = target
        await world.seconds(1)
        assert world.inbox.got == ["1"]


async def test_streams_go_side_by_side_up_to_a_bound(world: World) -> None:
    await send(world.store, T0, a="1", b="2", c="3", d="4")
    under_way, most, go = 0, 0, asyncio.Event()

    async def slow(event: dict[str, Any]) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await go.wait()
        under_way -= 1

    world.targets["inbox"] = as_target("inbox", slow)
    async with world.running(world.deliverer(streams=3)):
        assert under_way == 3
        go.set()
        await world.clock.settle()
    assert most == 3
    assert await world.left() == []


async def test_one_stream_is_never_delivered_twice_at_once(world: World) -> None:
    await send(world.store, T0, a="1")
    under_way, most = 0, 0

    async def slow(event: dict[str, Any]) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await world.clock.sleep(3)
        under_way -= 1

    world.targets["inbox"] = as_target("inbox", slow)
    deliverer = world.deliverer()
    async with world.running(deliverer):
        for _ in range(3):
            await send(world.store, world.clock.now(), a="23")
            deliverer.wake()
            await world.seconds(1)
        await world.seconds(60)
    assert (most, deliverer.delivered) == (1, 7)


async def test_a_stop_lets_the_delivery_under_way_end_and_gives_the_rest_back(world: World) -> None:
    await send(world.store, T0, a="123")

    async def slow(event: dict[str, Any]) -> None:
        await world.clock.sleep(2)
        world.inbox.got.append(event["is"])

    world.targets["inbox"] = as_target("inbox", slow)
    async with world.running(world.deliverer()):
        pass
    assert world.inbox.got == ["1"]
    assert await world.left() == [2]


async def test_a_stop_does_not_wait_for_ever(world: World) -> None:
    await send(world.store, T0, a="12", b="x")

    async def stuck(event: dict[str, Any]) -> None:
        if event["is"] == "2":
            await asyncio.Event().wait()
        world.inbox.got.append(event["is"])

    world.targets["inbox"] = as_target("inbox", stuck)
    async with world.running(world.deliverer(stop_seconds=0.05)):
        pass
    assert sorted(world.inbox.got) == ["1", "x"]
    assert await world.left() == [1]


async def test_a_delivery_that_takes_too_long_has_failed(world: World) -> None:
    await send(world.store, T0, a="1")

    async def stuck(event: dict[str, Any]) -> None:
        await asyncio.Event().wait()

    world.targets["inbox"] = as_target("inbox", stuck)
    deliverer = world.deliverer(longest_delivery_seconds=0.01, max_attempts=1)
    async with world.running(deliverer):
        await until(lambda: bool(deliverer.dead))
    (letter,) = await world.store.outbox.dead_letters(None, 0, 10)
    assert letter.error == "it took longer than 0.01 s"


async def deaths(world: World, count: int, most: int = 10) -> None:
    """Let processes die that had claimed what is there."""
    for _ in range(count):
        await world.store.outbox.claim(LANE, "dead", world.clock.now(), most)
        await world.store.engines.rescue(LANE, "rescuer", world.clock.now())


async def test_one_that_was_under_way_at_every_death_is_not_tried_again(world: World) -> None:
    await send(world.store, T0, a="12")
    await deaths(world, 4)
    async with world.running(world.deliverer(max_attempts=3)):
        await world.clock.settle()
        assert world.inbox.tried == [("2", 0)]
    (letter,) = await world.store.outbox.dead_letters(None, 0, 10)
    assert "4 times when the process ended" in letter.error


class Killing:
    """A target that a message "k" brings down, and the process with it; notes how many streams were in hand."""

    def __init__(self, world: World) -> None:
        self.tried: list[tuple[str, int]] = []
        self.died = asyncio.Event()
        self._world = world

    async def deliver(self, body: str) -> None:
        letter = msgspec.json.decode(body)["is"]
        self.tried.append((letter, len(await self._world.store.outbox.owned(ME))))
        if letter == "k":
            self.died.set()
            await asyncio.Event().wait()

    async def close(self) -> None: ...


async def test_the_last_try_after_many_deaths_is_made_alone_so_that_neighbours_of_a_killer_arrive(world: World) -> None:
    await send(world.store, T0, a="k", b="12", c="x", d="y")
    await deaths(world, 3)
    target = world.targets["inbox"] = Killing(world)
    task = asyncio.ensure_future(world.deliverer(max_attempts=3, stop_seconds=0.01).run(asyncio.Event()))
    while not target.died.is_set():
        await world.seconds(1)
    await send(world.store, world.clock.now(), e="z")
    await world.seconds(10)
    assert await world.store.outbox.owned(ME) == [1], "nothing is claimed beside it"
    await world.store.engines.rescue(
        LANE, "rescuer", world.clock.now()
    )  # it has died: its engine is not alive any more
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    async with world.running(world.deliverer(max_attempts=3)):
        await world.seconds(30)
        await world.clock.settle()
    assert sorted(one for one in target.tried if one[0] != "z") == [("1", 1), ("2", 1), ("k", 1), ("x", 1), ("y", 1)]
    (letter,) = await world.store.outbox.dead_letters(None, 0, 10)
    assert letter.message.message_id == "a:scheduled:k"
    assert await world.left() == []


async def test_a_last_try_comes_though_others_are_always_in_hand(world: World) -> None:
    await send(world.store, T0, a="1")
    await deaths(world, 2)
    await world.store.outbox.claim(LANE, "dead", T0, 10)

    async def take(event: dict[str, Any]) -> None:
        if event["is"] != "1":
            await world.clock.sleep(3)
        world.inbox.got.append(event["is"])

    world.targets["inbox"] = as_target("inbox", take)
    names = iter("abcdefghijklmnopqrstuvwxyz")
    await send(world.store, T0, b=next(names), c=next(names))
    deliverer = world.deliverer(max_attempts=3)
    async with world.running(deliverer):
        await world.store.engines.rescue(LANE, "rescuer", T0)  # its third death is found while others are in hand
        for turn in range(12):
            await world.seconds(2)
            await send(world.store, world.clock.now(), **{"bcdef"[turn % 5]: next(names)})
            deliverer.wake()
            await world.clock.settle()
        assert "1" in world.inbox.got
    assert await world.store.outbox.dead_letters(None, 0, 10) == []


async def test_a_stream_that_takes_long_lets_others_have_their_turn(world: World) -> None:
    await send(world.store, T0, a="1234")
    order: list[str] = []

    async def slow(event: dict[str, Any]) -> None:
        order.append(event["is"])
        await world.clock.sleep(4)

    world.targets["inbox"] = as_target("inbox", slow)
    deliverer = world.deliverer(streams=1)
    async with world.running(deliverer):
        await send(world.store, world.clock.now(), b="x")
        deliverer.wake()
        await world.seconds(60)
    assert order == ["1", "2", "x", "3", "4"]


# --- a store that fails -----------------------------------------------------------------------------------------------


class Failing:
    """A store whose verbs fail on demand, before they are done or after."""

    def __init__(self, store: Ledger, kind: type[Exception] = StoreError) -> None:
        self._store = store
        self._kind = kind
        self.before: dict[str, int] = {}
        self.after: dict[str, int] = {}
        for part in PARTS:
            whole = getattr(store, part)
            failing = {name: self._failing(name, verb) for name, verb in verbs_of(whole).items()}
            setattr(self, part, with_verbs(whole, failing if part == "outbox" else {}))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _failing(self, name: str, verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any) -> Any:
            self._fail(self.before, name)
            result = await verb(*arguments)
            self._fail(self.after, name)
            return result

        return call

    def _fail(self, times: dict[str, int], name: str) -> None:
        if times.get(name, 0) > 0:
            times[name] -= 1
            raise self._kind(f"{name} failed")


@pytest.mark.parametrize("verb", ["claim", "settle", "owned"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_store_that_fails_loses_nothing(world: World, verb: str, when: str) -> None:
    failing: Any = Failing(world.store)
    if verb == "owned":
        failing.before["claim"] = 1
    getattr(failing, when)[verb] = 3
    await send(world.store, T0, a="123", b="xy")
    deliverer = world.deliverer(store=failing)
    async with world.running(deliverer):
        await world.seconds(5)
        await send(world.store, world.clock.now(), a="45")
        deliverer.wake()
        await world.seconds(5)
    assert [letter for letter in world.inbox.got if letter.isdigit()] == ["1", "2", "3", "4", "5"]
    assert [letter for letter in world.inbox.got if letter.isalpha()] == ["x", "y"]
    assert await world.left() == []


async def test_a_settle_that_was_written_all_the_same_does_not_free_what_was_claimed_since(world: World) -> None:
    """The first settle fails after its commit; more messages come and are claimed before it is repeated."""
    failing: Any = Failing(world.store)
    failing.after["settle"] = 1
    under_way, most = 0, 0

    async def slow(event: dict[str, Any]) -> None:
        nonlocal under_way, most
        world.inbox.got.append(event["is"])
        under_way += 1
        most = max(most, under_way)
        await world.clock.sleep(2)
        under_way -= 1

    world.targets["inbox"] = as_target("inbox", slow)
    await send(world.store, T0, a="1")
    deliverer = world.deliverer(store=failing)
    async with world.running(deliverer):
        await send(world.store, world.clock.now(), a="2")
        await world.seconds(1.9)
        for _ in range(40):
            await world.seconds(0.1)
            deliverer.wake()
        await send(world.store, world.clock.now(), a="3")
        deliverer.wake()
        await world.seconds(10)
    assert (world.inbox.got, most) == (["1", "2", "3"], 1)
    assert await world.left() == []


async def test_a_stop_with_a_broken_store_ends(world: World) -> None:
    failing: Any = Failing(world.store)
    failing.before["settle"] = 1 << 30
    await send(world.store, T0, a="1")
    async with world.running(world.deliverer(store=failing)):
        await world.seconds(2)
    assert world.inbox.got == ["1"]
    assert await world.store.outbox.owned(ME) == [1]  # free again when the lane is taken over


async def test_ends_that_cannot_be_written_for_another_reason_are_written_later(world: World) -> None:
    failing: Any = Failing(world.store, ValueError)
    failing.before["settle"] = 2
    await send(world.store, T0, a="1", b="x")
    deliverer = world.deliverer(store=failing)
    async with world.running(deliverer):
        await world.seconds(5)
        await send(world.store, world.clock.now(), a="2")
        deliverer.wake()
        await world.clock.settle()
        assert sorted(world.inbox.got) == ["1", "2", "x"]
    assert await world.left() == []


async def test_a_log_handler_that_raises_does_not_end_the_recording(world: World) -> None:
    class Raising(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise RuntimeError(record.getMessage())

    handler, log = Raising(), logging.getLogger("noonbell.delivery")
    log.addHandler(handler)
    try:
        await send(world.store, T0, a="1", b="x")
        world.inbox.refuses = {"1": 1}
        deliverer = world.deliverer()
        async with world.running(deliverer):
            await world.seconds(5)
            await send(world.store, world.clock.now(), b="y")
            deliverer.wake()
            await world.clock.settle()
    finally:
        log.removeHandler(handler)
    assert sorted(world.inbox.got) == ["1", "x", "y"]
    assert await world.left() == []


class Leaving(BaseException):
    """An exception that is none of Exception."""


@pytest.mark.parametrize("raised", [Leaving, GeneratorExit, SystemExit, KeyboardInterrupt])
async def test_whatever_a_target_of_ones_own_raises_is_a_failed_try(world: World, raised: type[BaseException]) -> None:
    class Mine:
        tried = 0

        async def deliver(self, body: str) -> None:
            self.tried += 1
            raise raised

        async def close(self) -> None: ...

    mine = Mine()
    world.targets["inbox"] = mine
    await send(world.store, T0, a="1")
    async with world.running(world.deliverer(max_attempts=3)):
        await world.seconds(10)
    assert mine.tried == 3
    (letter,) = await world.store.outbox.dead_letters(None, 0, 10)
    assert raised.__name__ in letter.error


async def test_what_a_target_says_can_be_written(world: World) -> None:
    async def refuse(event: dict[str, Any]) -> None:
        raise DeliveryError("inbox", "no \udc80")

    world.targets["inbox"] = as_target("inbox", refuse)
    await send(world.store, T0, a="1")
    async with world.running(world.deliverer(max_attempts=1)):
        pass
    (letter,) = await world.store.outbox.dead_letters(None, 0, 10)
    assert letter.error == "The message did not reach inbox: no \\udc80"


# --- cut off ----------------------------------------------------------------------------------------------------------


def stuck_at(world: World, last: str) -> None:
    """Let the target never come back from a message."""

    async def take(event: dict[str, Any]) -> None:
        if event["is"] == last:
            await asyncio.Event().wait()
        world.inbox.got.append(event["is"])

    world.targets["inbox"] = as_target("inbox", take)


async def test_what_has_arrived_before_it_was_cut_off_is_not_sent_again(world: World) -> None:
    stuck_at(world, "4")
    await send(world.store, T0, a="1234", b="x")
    services = Supervisor(world.clock, {"delivery": world.deliverer(stop_seconds=0.05)})
    services.start()
    await world.clock.settle()
    services.cancel()
    await services.stop()
    assert sorted(world.inbox.got) == ["1", "2", "3", "x"]
    await world.store.engines.rescue(LANE, ME, world.clock.now(), None, stopped=True)
    (stream,) = (await world.store.outbox.claim(LANE, "next", world.clock.now(), 10)).streams
    assert (stream.attempt, [message.message_id for _, message in stream.messages]) == (0, ["a:scheduled:4"])


async def test_what_another_has_taken_over_is_left_to_it(world: World) -> None:
    stuck_at(world, "2")
    await send(world.store, T0, a="12")
    task = asyncio.ensure_future(world.deliverer(stop_seconds=0.05).run(asyncio.Event()))
    await world.clock.settle()
    await world.store.engines.rescue(LANE, "rescuer", T0)
    await world.store.outbox.claim(LANE, "next", T0, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    first = await world.store.outbox.sending(1, "a:scheduled:1")
    assert first is not None
    assert (first.owner, first.attempt) == ("next", 1)


async def test_what_has_arrived_before_a_fault_of_our_own_is_not_sent_again(world: World) -> None:
    failing: Any = Failing(world.store, ValueError)
    stuck_at(world, "3")
    await send(world.store, T0, a="123")
    deliverer = world.deliverer(store=failing, stop_seconds=0.05)
    task = asyncio.ensure_future(deliverer.run(asyncio.Event()))
    await world.clock.settle()
    failing.before["claim"] = 1
    deliverer.wake()
    with pytest.raises(ValueError, match="claim failed"):
        await task
    assert await world.left() == [1]


class Counting:
    """A channel that never comes back from "3", and the desk where it is found."""

    def __init__(self) -> None:
        self.counted: list[str] = []
        self.written: list[str] = []

    def target(self, name: str) -> ChannelTarget | None:
        return self if name == "channel:x" else None

    async def deliver(self, body: str) -> None:
        if (letter := msgspec.json.decode(body)["is"]) == "3":
            await asyncio.Event().wait()
        self.counted.append(letter)

    async def undelivered(self, message: OutboxMessage, attempts: int, error: str, at: int) -> None: ...

    async def turn_over(self) -> None:
        await asyncio.sleep(0)
        self.written = [*self.counted]

    async def close(self) -> None: ...


async def test_what_a_channel_has_counted_before_it_was_cut_off_is_written(world: World) -> None:
    desk, how = Counting(), Delivering(stop_seconds=0.05)
    notices = [OutboxMessage(-7, LANE, f"n{letter}", "channel:x", f'{{"is":"{letter}"}}', T0) for letter in "123"]
    await world.store.outbox.post(notices, T0)
    deliverer = Deliverer(world.store, world.clock, lane=LANE, owner=ME, targets={}, how=how, dispatcher=desk)
    task = asyncio.ensure_future(deliverer.run(asyncio.Event()))
    await world.clock.settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert desk.written == ["1", "2"]
    assert await world.left() == [1]


async def test_a_run_after_one_that_could_not_write_finds_what_that_left(world: World) -> None:
    await send(world.store, T0, a="12")
    failing: Any = Failing(world.store)
    failing.before["settle"] = 1
    inbox = world.targets["inbox"]
    stuck_at(world, "1")
    deliverer = world.deliverer(store=failing, stop_seconds=0.05)
    cut_off = asyncio.ensure_future(deliverer.run(asyncio.Event()))
    await world.clock.settle()
    cut_off.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cut_off
    assert await world.store.outbox.owned(ME) == [1]
    world.targets["inbox"] = inbox
    async with world.running(deliverer):
        assert world.inbox.got == ["1", "2"]
    assert await world.left() == []


# --- handlers that do not end -----------------------------------------------------------------------------------------


class Stubborn:
    """A handler that goes on when it is cancelled, until it is let go."""

    def __init__(self, *at: str) -> None:
        self.at = set(at)
        self.go = asyncio.Event()
        self.began: list[str] = []
        self.got: list[str] = []
        self.cancelled = 0

    async def __call__(self, event: dict[str, Any]) -> None:
        self.began.append(event["is"])
        while event["is"] in self.at and not self.go.is_set():
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
        self.got.append(event["is"])


async def test_a_stop_does_not_wait_for_a_handler_that_swallows_its_cancellation(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delivery, "_CLEANUP_SECONDS", 0.05)
    handler = Stubborn("2")
    world.targets["inbox"] = as_target("inbox", handler)
    await send(world.store, T0, a="123", b="x")
    async with world.running(world.deliverer(stop_seconds=0.05)):
        pass
    assert sorted(handler.got) == ["1", "x"]
    assert handler.cancelled >= 2
    assert "delivery abandoned sid=1" in caplog.text
    assert await world.left() == [2], "what had arrived before it is recorded, and the stream is free"
    handler.go.set()
    await world.clock.settle()
    assert await world.left() == [2], "its end counts for nothing"


async def test_a_cancelled_delivery_does_not_wait_for_it_either(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_LAST_SECONDS", 0.05)
    handler = Stubborn("1")
    world.targets["inbox"] = as_target("inbox", handler)
    await send(world.store, T0, a="1")
    task = asyncio.ensure_future(world.deliverer(stop_seconds=0.05).run(asyncio.Event()))
    await world.clock.settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await world.left() == [1]
    handler.go.set()


async def test_another_worker_goes_on_for_one_whose_handler_swallows_its_cancellation(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_CLEANUP_SECONDS", 0.02)
    handler = Stubborn("2")
    world.targets["inbox"] = as_target("inbox", handler)
    await send(world.store, T0, a="123", b="x", c="y")
    deliverer = world.deliverer(streams=1, longest_delivery_seconds=0.02)
    async with world.running(deliverer):
        await until(lambda: sorted(handler.got) == ["1", "x", "y"])
        await until(lambda: deliverer.failed == 1)
        handler.at = set()  # the next try of it ends
        await world.clock.settle()
        await world.seconds(2)
        await world.clock.settle()
        assert handler.began.count("2") == 2
        assert sorted(handler.got) == ["1", "2", "3", "x", "y"]
    assert await world.left() == []
    handler.go.set()
    await world.clock.settle()
    assert handler.got[-1] == "2", "the first try of it ends, and counts for nothing"
    assert deliverer.failed == 1


async def test_streams_that_wait_while_every_worker_hangs_are_freed_and_not_claimed_again(world: World) -> None:
    handler = Stubborn("1", "x")
    world.targets["inbox"] = as_target("inbox", handler)
    await send(world.store, T0, a="1", b="x", c="y", d="z")
    deliverer = world.deliverer(streams=2)
    async with world.running(deliverer):
        assert sorted(handler.began) == ["1", "x"]
        assert len(await world.store.outbox.owned(ME)) == 4
        await world.seconds(20)
        await world.clock.settle()
        assert len(await world.store.outbox.owned(ME)) == 2, "another engine can have the others"
        await send(world.store, world.clock.now(), e="w")
        deliverer.wake()
        await world.clock.settle()
        assert len(await world.store.outbox.owned(ME)) == 2, "nor is anything else claimed"
        handler.go.set()
        await world.clock.settle()
        await world.seconds(5)
        assert sorted(handler.got) == ["1", "w", "x", "y", "z"]
    assert await world.left() == []

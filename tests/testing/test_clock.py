"""ManualClock: time moves when it is told to, from waiter to waiter, and the loop runs dry in between."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from noonbell.testing import ManualClock, ManualEventLoop

START = datetime(2025, 3, 30, 0, 59, 30, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@contextmanager
def running(clock: ManualClock) -> Iterator[ManualEventLoop]:
    loop = clock.new_event_loop()
    try:
        yield loop
    finally:
        loop.close()


def test_it_starts_where_it_is_told() -> None:
    assert ManualClock(START).now() == int(START.timestamp()) * 1_000_000
    assert ManualClock(5).now() == 5
    assert ManualClock(START).at == START
    with pytest.raises(ValueError, match="time zone"):
        ManualClock(datetime(2025, 1, 1))  # noqa: DTZ001 - the case


async def test_waiters_wake_in_order_each_at_its_own_moment(clock: ManualClock) -> None:
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.elapsed()))
        await clock.sleep(1)
        woken.append((name, clock.elapsed()))

    tasks = [asyncio.create_task(sleeper(name, seconds)) for name, seconds in (("late", 5), ("soon", 2), ("zero", 0))]
    await clock.advance(10 * SECOND)
    assert woken == [("zero", 0), ("zero", 1), ("soon", 2), ("soon", 3), ("late", 5), ("late", 6)]
    assert clock.elapsed() == 10
    assert all(task.done() for task in tasks)


async def test_advance_lets_long_chains_of_callbacks_end(clock: ManualClock) -> None:
    done = asyncio.Event()

    async def chain(left: int) -> None:
        await asyncio.sleep(0)
        if left:
            await asyncio.create_task(chain(left - 1))
        else:
            done.set()

    task = asyncio.create_task(chain(200))
    await clock.advance(timedelta(0))
    assert done.is_set()
    await task


async def test_a_loop_that_never_rests_is_told(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noonbell.testing.manual_clock._MOST_ROUNDS", 1000)

    loop = asyncio.get_running_loop()
    stopped = False

    def again() -> None:
        if not stopped:
            loop.call_soon(again)

    again()
    with pytest.raises(RuntimeError, match="does not come to rest"):
        await clock.advance(SECOND)
    stopped = True


async def test_wait_ends_at_its_time_or_when_woken(clock: ManualClock) -> None:
    timed = asyncio.create_task(clock.wait(clock.now() + 3_000_000, asyncio.Event()))
    wakeup = asyncio.Event()
    woken = asyncio.create_task(clock.wait(clock.now() + 9_000_000, wakeup))
    await clock.advance(timedelta(seconds=2.999999))
    assert not timed.done()
    await clock.advance(timedelta(microseconds=1))
    assert timed.done()
    assert not woken.done()
    wakeup.set()
    await clock.settle()
    assert woken.done()


async def test_wait_for_a_time_that_has_passed_returns(clock: ManualClock) -> None:
    await clock.wait(clock.now() - 1, asyncio.Event())
    assert clock.next_in is None


async def test_a_jump_wakes_everybody_at_its_end(clock: ManualClock) -> None:
    seen: list[float] = []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        seen.append(clock.elapsed())

    tasks = [asyncio.create_task(sleeper(seconds)) for seconds in (1, 2, 100)]
    await clock.jump(50 * SECOND)
    assert seen == [50, 50]
    assert clock.at == START + 50 * SECOND
    tasks[-1].cancel()


async def test_time_elapses_in_a_jump_and_not_in_a_step(clock: ManualClock) -> None:
    await clock.advance(10 * SECOND)
    clock.stall(20 * SECOND)
    clock.step(40 * SECOND)
    assert clock.elapsed() == 30
    await clock.jump(80 * SECOND)
    assert clock.elapsed() == 110


async def test_a_stall_wakes_nobody_before_its_end(clock: ManualClock) -> None:
    seen: list[float] = []

    async def sleeper() -> None:
        await clock.sleep(1)
        seen.append(clock.elapsed())

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sleeper())
        await clock.settle()
        clock.stall(50 * SECOND)
        assert seen == []
        await clock.settle()
    assert seen == [50]


async def test_a_step_moves_the_wall_alone(clock: ManualClock) -> None:
    waiting = asyncio.create_task(clock.wait(clock.now() + 60_000_000, asyncio.Event()))
    await clock.settle()
    clock.step(timedelta(hours=2))
    assert clock.elapsed() == 0
    await clock.advance(59 * SECOND)
    assert not waiting.done()  # its timer runs on elapsed time
    await clock.advance(SECOND)
    assert waiting.done()
    clock.step(-timedelta(hours=3))
    assert clock.at == START + timedelta(minutes=1) - timedelta(hours=1)


async def test_time_goes_forward_only(clock: ManualClock) -> None:
    with pytest.raises(ValueError, match="step"):
        await clock.advance(-SECOND)
    with pytest.raises(ValueError, match="sleep"):
        await clock.jump(-SECOND)
    with pytest.raises(ValueError, match="takes"):
        clock.stall(-SECOND)


# --- the loop on manual time ------------------------------------------------------------------------------------------


def test_timers_of_asyncio_follow_the_clock(clock: ManualClock) -> None:
    seen: list[float] = []

    async def story() -> None:
        async def sleeper() -> None:
            await asyncio.sleep(3600)
            seen.append(clock.elapsed())
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 60)
            seen.append(clock.elapsed())

        task = asyncio.create_task(sleeper())
        await clock.advance(timedelta(hours=2))
        await task

    with running(clock) as loop:
        loop.run_until_complete(story())
    assert seen == [3600, 3660]


def test_a_cancelled_timer_does_not_fire(clock: ManualClock) -> None:
    called: list[str] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        late = loop.call_later(2, called.append, "late")
        loop.call_later(1, late.cancel)
        # both are due at the same moment: the first one cancels the second
        second = loop.call_at(5, called.append, "second")
        loop.call_at(5, called.append, "third")
        second.cancel()
        await clock.advance(10 * SECOND)

    with running(clock) as loop:
        loop.run_until_complete(story())
    assert called == ["third"]


def test_what_can_never_happen_is_told_instead_of_awaited(clock: ManualClock) -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    with running(clock) as loop:
        task = loop.create_task(forever())
        with pytest.raises(RuntimeError, match="can never happen"):
            loop.run_until_complete(task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)


def test_a_closed_loop_leaves_no_timers_behind(clock: ManualClock) -> None:
    with running(clock) as loop:
        loop.call_later(5, print)
        assert clock.next_in == 5 * SECOND
    assert clock.next_in is None

"""Workers: how many at once, who is held up by whom, and time limits that move from step to step."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from itertools import pairwise

import pytest

from noonbell.actions import workers as module
from noonbell.actions.workers import Pace, TimeLimit, Workers
from tests.patience import PATIENCE_SECONDS, until


class StreamInFlight:
    """What workers have served, and gates that hold some of it up."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.ended: list[int] = []
        self.gates: dict[int, asyncio.Event] = {}

    async def __call__(self, item: int, limit: TimeLimit) -> None:
        self.began.append(item)
        if item in self.gates:
            await self.gates[item].wait()
        self.ended.append(item)


async def idle(workers: Workers[int]) -> None:
    await until(lambda: not workers.tasks)


async def test_an_item_that_takes_long_holds_up_its_own_worker_alone() -> None:
    served = StreamInFlight()
    served.gates[1] = asyncio.Event()
    workers = Workers(2, PATIENCE_SECONDS, served)
    workers.add(range(1, 100))
    await until(lambda: len(served.ended) == 98)
    assert served.ended == list(range(2, 100))
    served.gates[1].set()
    await idle(workers)
    assert served.ended[-1] == 1


async def test_no_more_at_once_than_there_are_workers() -> None:
    served = StreamInFlight()
    served.gates = dict.fromkeys(range(10), asyncio.Event())
    workers = Workers(3, PATIENCE_SECONDS, served)
    for item in range(10):
        workers.add([item])
    await until(lambda: len(served.began) == 3)
    assert (len(workers.tasks), len(workers)) == (3, 7)
    served.gates[0].set()
    await idle(workers)
    assert served.began == list(range(10))


async def test_a_context_variable_that_one_item_sets_is_not_seen_by_the_next() -> None:
    variable: ContextVar[int] = ContextVar("variable", default=0)
    seen: list[int] = []

    async def serve(item: int, limit: TimeLimit) -> None:
        seen.append(variable.get())
        variable.set(item)

    workers = Workers(1, PATIENCE_SECONDS, serve)
    workers.add([1, 2, 3])
    await until(lambda: len(seen) == 3)
    await idle(workers)
    assert seen == [0, 0, 0]


async def test_what_no_worker_has_begun_can_be_withdrawn() -> None:
    served = StreamInFlight()
    served.gates[0] = asyncio.Event()
    workers = Workers(1, PATIENCE_SECONDS, served)
    workers.add(range(6))
    await until(lambda: served.began == [0])
    assert workers.withdraw(keep=2) == [5, 4, 3]
    assert workers.withdraw(keep=2) == []
    served.gates[0].set()
    await idle(workers)
    assert served.ended == [0, 1, 2]


async def test_a_worker_that_is_cancelled_leaves_the_queue_to_another() -> None:
    served = StreamInFlight()
    served.gates[0] = asyncio.Event()
    workers = Workers(1, PATIENCE_SECONDS, served)
    workers.add(range(3))
    await until(lambda: served.began == [0])
    for task in workers.tasks:
        task.cancel()
    await until(lambda: served.ended == [1, 2])
    await idle(workers)


# --- pace -------------------------------------------------------------------------------------------------------------


async def test_items_that_never_suspend_leave_the_event_loop_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STEPS_A_TURN", 10)
    pace, steps = Pace(), 0

    async def serve(item: int, limit: TimeLimit) -> None:
        nonlocal steps
        steps += 1
        if pace.is_due():
            await pace.rest()

    workers = Workers(4, PATIENCE_SECONDS, serve)
    workers.add(range(1_000))
    seen = [0]
    while workers.tasks:
        await asyncio.sleep(0)
        seen.append(steps)
    assert steps == 1_000
    # the one that comes first takes ten, each of the others at most one
    assert max(after - before for before, after in pairwise(seen)) <= 13


# --- time limits ------------------------------------------------------------------------------------------------------


async def test_a_step_that_takes_too_long_is_cancelled_and_the_next_is_not() -> None:
    limit = TimeLimit(0.01)
    limit.begin()
    limit.end()
    limit.begin()  # the timer of the first step fires before this one may end
    with pytest.raises(asyncio.CancelledError):
        await asyncio.Event().wait()
    limit.end()
    expired = [limit.expired]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    limit.seconds = PATIENCE_SECONDS
    limit.begin()
    await asyncio.sleep(0)
    limit.end()
    limit.close()
    assert [*expired, limit.expired] == [True, False]


async def test_nothing_is_cancelled_between_two_steps() -> None:
    limit = TimeLimit(0.0)
    limit.begin()
    limit.end()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not limit.expired


async def test_a_cancellation_by_others_is_told_from_the_limit() -> None:
    outcome: list[tuple[bool, int]] = []

    async def step() -> None:
        limit, task = TimeLimit(PATIENCE_SECONDS), asyncio.current_task()
        assert task is not None
        limit.begin()
        try:
            await asyncio.Event().wait()
        finally:
            limit.end()
            limit.close()
            outcome.append((limit.expired, task.cancelling()))

    task = asyncio.ensure_future(step())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert outcome == [(False, 1)]

"""How many requests are under way at once, and whose turn is next: the slots alone, and as a server counts."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.actions.http.slots import HttpLimits, HttpSlots
from noonbell.errors import NotStartedError, ScheduleInvalidError
from tests.actions.http.site import attempt, jobs_to, serving
from tests.effort import examples
from tests.patience import PATIENCE_SECONDS


class Row:
    """Takers in a row; `order` is who got a slot, in the order in which they did."""

    def __init__(self, slots: HttpSlots) -> None:
        self.slots = slots
        self.order: list[tuple[str, int]] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, host: str, sid: int) -> asyncio.Task[None]:
        async def take() -> None:
            await self.slots.take(host, sid)
            self.order.append((host, sid))

        task = asyncio.ensure_future(take())
        self.tasks.append(task)
        await asyncio.sleep(0)
        return task

    async def go(self, host: str) -> None:
        self.slots.give_back(host)
        await asyncio.sleep(0)


async def test_a_host_has_so_many_slots_and_all_together_so_many() -> None:
    row = Row(HttpSlots(HttpLimits(total=3, per_host=2)))
    for _ in range(3):
        await row.come("a", 1)
    assert (row.slots.busy, row.slots.waiting) == (2, 1)
    for _ in range(2):
        await row.come("b", 2)
    assert (row.slots.busy, row.slots.waiting) == (3, 2)
    await row.go("a")
    assert row.order == [("a", 1), ("a", 1), ("b", 2), ("b", 2)]  # b has waited for any slot, a for its second
    await row.go("b")
    assert row.order[-1] == ("a", 1)


async def test_schedules_take_turns_at_a_host() -> None:
    row = Row(HttpSlots(HttpLimits(total=10, per_host=1)))
    await row.come("a", 0)
    for _ in range(5):
        await row.come("a", 1)
    for sid in (2, 3, 3):
        await row.come("a", sid)
    for _ in range(8):
        await row.go("a")
    assert [sid for _, sid in row.order] == [0, 1, 2, 3, 1, 3, 1, 1, 1]


async def test_one_that_is_cancelled_gives_way() -> None:
    row = Row(HttpSlots(HttpLimits(total=1, per_host=1)))
    await row.come("a", 1)
    gone = await row.come("a", 2)
    await row.come("a", 3)
    gone.cancel()
    await row.go("a")
    assert [sid for _, sid in row.order] == [1, 3]
    # cancelled in the very moment in which the slot came
    late = await row.come("a", 4)
    last = await row.come("a", 5)
    row.slots.give_back("a")
    late.cancel()
    await asyncio.wait([late, last], timeout=PATIENCE_SECONDS)
    assert [sid for _, sid in row.order] == [1, 3, 5]
    await row.go("a")
    assert (row.slots.busy, row.slots.waiting) == (0, 0)


async def test_a_stop_takes_back_who_waits() -> None:
    row = Row(HttpSlots(HttpLimits(total=1, per_host=1)))
    await row.come("a", 1)
    waiting = [await row.come("a", 2), await row.come("b", 3)]
    row.slots.take_back()
    for task in waiting:
        with pytest.raises(NotStartedError):
            await task
    with pytest.raises(NotStartedError):
        await row.slots.take("c", 4)
    row.slots.give_back("a")
    assert (row.slots.busy, row.slots.waiting) == (0, 0)
    row.slots.reopen()
    await row.slots.take("c", 4)
    assert row.slots.busy == 1


@settings(max_examples=examples(150), deadline=None)
@given(
    total=st.integers(1, 4),
    per_host=st.integers(1, 3),
    steps=st.lists(st.tuples(st.sampled_from("come come go cancel".split()), st.integers(0, 2), st.integers(0, 3))),
)
def test_no_slot_is_lost_or_given_twice(total: int, per_host: int, steps: list[tuple[str, int, int]]) -> None:
    async def life() -> None:
        slots = HttpSlots(HttpLimits(total=total, per_host=per_host))
        held: Counter[str] = Counter()
        waiting: list[asyncio.Task[None]] = []

        async def take(host: str, sid: int) -> None:
            await slots.take(host, sid)
            held[host] += 1

        for what, number, sid in steps:
            host = f"host{number}"
            if what == "come":
                waiting.append(asyncio.ensure_future(take(host, sid)))
            elif what == "go" and held[host]:
                held[host] -= 1
                slots.give_back(host)
            elif what == "cancel" and waiting:
                waiting[sid % len(waiting)].cancel()
            for _ in range(3):
                await asyncio.sleep(0)
            assert slots.busy == held.total() <= total
            assert all(count <= per_host for count in held.values())
            # nobody waits beside a slot that he could have
            left = [task for task in waiting if not task.done()]
            if held.total() < total and left:
                assert any(count == per_host for count in held.values())
            waiting = left
        while held.total():
            host = next(host for host, count in held.items() if count)
            held[host] -= 1
            slots.give_back(host)
            for _ in range(3):
                await asyncio.sleep(0)
        assert not [task for task in waiting if not task.done()]
        assert (slots.busy, slots.waiting, slots._hosts, slots._ready) == (0, 0, {}, {})

    asyncio.run(life())


@pytest.mark.parametrize("limits", [{"total": 0}, {"per_host": -1}, {"total": True}])
def test_limits_are_whole_numbers_above_zero(limits: dict[str, int]) -> None:
    with pytest.raises(ScheduleInvalidError):
        HttpLimits(**limits)


# --- as a server counts them ------------------------------------------------------------------------------------------


async def test_a_server_never_sees_more_than_its_share() -> None:
    gate = asyncio.Event()

    async def handle(_: web.Request) -> web.Response:
        await gate.wait()
        return web.Response(text="ok")

    async with serving(handle) as one, serving(handle) as other:
        jobs = jobs_to(one, other, limits=HttpLimits(total=6, per_host=4))
        # both are 127.0.0.1, one host whatever the port
        runs = [attempt(jobs, {"kind": "http", "url": site.url()}) for site in (one, other) for _ in range(10)]
        tasks = [asyncio.ensure_future(run) for run in runs]
        await one.until(4)
        assert (one.under_way + other.under_way, jobs.slots.busy, jobs.slots.waiting) == (4, 4, 16)
        gate.set()
        told = await asyncio.gather(*tasks)
        assert one.most + other.most <= 8
        assert max(one.most, other.most) <= 4
        assert [one_told["error"] for one_told in told] == [None] * 20
        await jobs.close()


async def test_a_schedule_with_many_runs_does_not_keep_another_waiting() -> None:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async with serving(handle) as site:
        jobs = jobs_to(site, limits=HttpLimits(total=1, per_host=1))
        greedy = [asyncio.ensure_future(attempt(jobs, {"kind": "http", "url": site.url("/many")})) for _ in range(30)]
        await asyncio.sleep(0)
        modest = asyncio.ensure_future(attempt(jobs, {"kind": "http", "url": site.url("/one")}, sid=8))
        await asyncio.gather(*greedy, modest)
        assert [asked.path for asked in site.asked].index("/one") <= 2
        await jobs.close()

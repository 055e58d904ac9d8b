"""`verify` on durable cron schedules: clean after everything that can happen to them, and not after tampering."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from noonbell.ledger import verify_store
from noonbell.ledger.decided_epochs import DecidedEpochs
from noonbell.store.memory import MemoryStore
from noonbell.store.memory.tables import MemoryData
from tests.schedules.conftest import IN_EARNEST, World, store_maker


async def eventful() -> World:
    """Fired, coalesced, missed, skipped, paused, bounded, edited, jittered and overlapping occurrences."""
    world = World(store_maker("memory", Path()))
    schedules = world.schedules
    await schedules.open()
    window = {"weekdays": list(range(7)), "from": "12:10", "to": "12:15", "timezone": "UTC"}
    calm = (await schedules.create_quiet_hours("calm", [window])).policy_id
    first = await world.create(name="quiet", quiet_hours_policy_id=calm)
    second = await world.create(name="bounded", start_at="2026-03-04T12:05", end_at="2026-03-04T12:40")
    await world.create(name="overlapping", overlap="allow")
    await world.create(name="jittered", spec="*/5 * * * *", jitter_seconds=100, catch_up_policy="run_once")
    world.duration = timedelta(seconds=90)
    await schedules.start()
    await world.minutes(8)
    await schedules.pause(second)
    await world.minutes(8)
    await schedules.resume(second)
    await world.minutes(3)
    world.duration = timedelta(0)
    await world.minutes(2)
    await schedules.stop()
    await world.minutes(40)
    await schedules.start()
    await schedules.update(first, spec="*/2 * * * *")
    await world.minutes(4)
    await schedules.stop()
    return world


async def test_an_eventful_history_is_whole() -> None:
    world = await eventful()
    report = await verify_store(world.store)
    assert report.problems == []
    assert report.schedules == 4
    assert report.spans > 5
    assert report.runs > 40


def _forget_a_span(data: MemoryData) -> None:
    spans = data.spans[1]
    del spans[min(spans)]


def _forget_a_run(data: MemoryData) -> None:
    runs = data.runs[2]
    del runs[min(runs)]


def _shift_a_run(data: MemoryData) -> None:
    key = min(data.runs[3])
    run = data.runs[3].pop(key)
    data.runs[3][key[0] + 1, key[1]] = replace(run, run_for=key[0] + 1)


def _miscount_a_span(data: MemoryData) -> None:
    key = max(data.spans[1])
    data.spans[1][key] = replace(data.spans[1][key], n=data.spans[1][key].n + 1)


def _double_a_run(data: MemoryData) -> None:
    span = next(iter(data.spans[1].values()))
    run = next(iter(data.runs[1].values()))
    data.runs[1][span.from_at, "scheduled"] = replace(run, run_for=span.from_at, epoch=span.epoch)


def _unpause(data: MemoryData) -> None:
    data.epochs[2][2] = replace(data.epochs[2][2], enabled=True)


def _never_wake(data: MemoryData) -> None:
    data.schedules[4]["next_run_at"] = None


TAMPERING: list[Callable[[MemoryData], Any]] = [
    _forget_a_span, _forget_a_run, _shift_a_run, _miscount_a_span, _double_a_run, _unpause, _never_wake,
]  # fmt: skip


@pytest.mark.parametrize("tamper", TAMPERING, ids=lambda tamper: tamper.__name__.strip("_"))
async def test_tampering_is_found(tamper: Callable[[MemoryData], Any]) -> None:
    world = await eventful()
    store = world.store
    assert isinstance(store, MemoryStore)
    tamper(store.data)
    assert not (await verify_store(store)).clean


@pytest.mark.parametrize(("seconds", "found"), [(1, []), (2, ["overlap"])])
async def test_runs_may_meet_by_as_much_as_clocks_differ(seconds: int, found: list[str]) -> None:
    world = await eventful()
    store = world.store
    assert isinstance(store, MemoryStore)
    runs = store.data.runs[1]
    first, second = sorted(key for key in runs if key[1] == "scheduled")[:2]
    runs[first] = replace(runs[first], ended_at=runs[second].started_at + seconds * 1_000_000)
    assert [problem.kind for problem in (await verify_store(store)).problems] == found


@pytest.mark.parametrize(("minutes", "found"), [(0.5, ["overlap"]), (30, [])])
async def test_a_clock_that_was_set_back_while_a_run_ended_is_a_remark(minutes: float, found: list[str]) -> None:
    """The next run ended after it, by the chain, and long before it by the clock: so they did not overlap."""
    world = await eventful()
    store = world.store
    assert isinstance(store, MemoryStore)
    runs = store.data.runs[1]
    first, second = sorted(key for key in runs if key[1] == "scheduled")[:2]
    assert runs[second].prev_for == first[0]
    runs[first] = replace(runs[first], ended_at=runs[second].ended_at + round(minutes * 60_000_000))
    report = await verify_store(store)
    assert {problem.kind for problem in report.problems} == set(found)
    assert ["the clock was set back" in remark for remark in report.remarks if "lasted to" in remark] == [True] * (
        not found
    )
    third = sorted(key for key in runs if key[1] == "scheduled")[2]
    runs[third] = replace(runs[third], prev_for=None)
    found_with_third = [problem.at for problem in (await verify_store(store)).problems if problem.kind == "overlap"]
    assert found or found_with_third[0] == third[0], "it does not follow the run that shows the clock"
    runs[second] = replace(runs[second], prev_for=None)
    assert "overlap" in [problem.kind for problem in (await verify_store(store)).problems], "nothing shows the clock"


async def test_a_last_start_that_is_too_early_is_told() -> None:
    world = await eventful()
    store = world.store
    assert isinstance(store, MemoryStore)
    row = store.data.schedules[1]
    began = max(run.started_at for run in store.data.runs[1].values())
    assert row["last_run_at"] == began
    row["last_run_at"] = began - 1
    assert [problem.kind for problem in (await verify_store(store)).problems] == ["times"]


async def test_the_whole_is_counted_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Link by link all is well; the count of the whole goes its own way, and is heard where it differs."""
    world = await eventful()
    count = DecidedEpochs.count
    monkeypatch.setattr(DecidedEpochs, "count", lambda self, first, last: count(self, first, last) + 1)
    found = (await verify_store(world.store)).problems
    assert [problem.kind for problem in found] == ["count"] * 4


async def test_a_wake_up_that_is_late_by_the_least_is_told() -> None:
    world = await eventful()
    store = world.store
    assert isinstance(store, MemoryStore)
    store.data.schedules[3]["next_run_at"] += 1
    assert [problem.kind for problem in (await verify_store(store)).problems] == ["wake-up"]


async def test_two_runs_that_execute_at_once_are_told() -> None:
    world = World(store_maker("memory", Path()))
    await world.schedules.open()
    await world.create()
    world.duration = timedelta(minutes=5)
    await world.schedules.start()
    await world.minutes(1)
    store = world.store
    assert isinstance(store, MemoryStore)
    assert (await verify_store(store)).clean
    lives = store.data.live[1]
    (running,) = lives.values()
    next_for = running.run_for + 60_000_000
    lives["scheduled", next_for] = replace(running, run_for=next_for, started_at=next_for)
    assert "overlap" in [problem.kind for problem in (await verify_store(store)).problems]
    del lives["scheduled", next_for]
    stopping = asyncio.ensure_future(world.schedules.stop())
    await world.minutes(5)
    await stopping


async def test_a_span_that_ends_between_two_steps_of_its_interval_is_told() -> None:
    world = World(store_maker("memory", Path()), longest_wait=IN_EARNEST)
    await world.schedules.open()
    await world.create(type="interval", spec="60")
    await world.schedules.start()
    await world.minutes(2)
    await world.schedules.stop()
    await world.minutes(10)
    await world.schedules.start()
    await world.minutes(2)
    await world.schedules.stop()
    store = world.store
    assert isinstance(store, MemoryStore)
    assert (await verify_store(store)).clean
    spans = store.data.spans[1]
    key = next(key for key, span in spans.items() if span.verdict == "missed")
    spans[key] = replace(spans[key], to_at=spans[key].to_at + 1_000_000)
    assert "span" in [problem.kind for problem in (await verify_store(store)).problems]

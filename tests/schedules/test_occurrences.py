"""Occurrences page by page: all of them, each once, and no more of the ledger is read than a page needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from noonbell.errors import ScheduleNotFoundError
from noonbell.ports import RunFilter, ScheduleFilter
from noonbell.schedules import Occurrence
from noonbell.store.memory import MemoryStore
from noonbell.timing.cron_timing import CronTiming
from tests.schedules.conftest import IN_EARNEST, NOON, World
from tests.store.overriding import find_verb

START = NOON - timedelta(days=1)
READS = (
    "history.runs",
    "history.spans",
    "history.attempts",
    "history.past_runs",
    "runs.live",
    "read",
)
BOTH_ORDERS = pytest.mark.parametrize("order", ["oldest", "newest"])


async def paged(world: World, key: str, limit: int, **bounds: Any) -> list[Occurrence]:
    found: list[Occurrence] = []
    cursor: str | None = None
    while True:
        page = await world.schedules.occurrences(key, cursor=cursor, limit=limit, **({"start": START} | bounds))
        assert len(page.items) <= limit
        found.extend(page.items)
        if page.next_cursor is None:
            return found
        assert len(page.items) == limit
        cursor = page.next_cursor


async def newest_first(world: World, key: str, limit: int, **bounds: Any) -> list[Occurrence]:
    return await paged(world, key, limit, order="newest", **bounds)


async def eventful(world: World) -> list[str]:
    """Schedules of every kind with fired, skipped, coalesced, missed and pending occurrences, retries and edits."""
    window = {"weekdays": list(range(7)), "from": "12:20", "to": "12:35", "timezone": "UTC"}
    calm = (await world.schedules.create_quiet_hours("calm", [window])).policy_id
    keys = [
        await world.create(name="cron", retry={"attempts": 2, "delay_seconds": 5}),
        await world.create(name="quiet", quiet_hours_policy_id=calm),
        await world.create(name="interval", type="interval", spec="45"),
        await world.create(name="quiet interval", type="interval", spec="75", quiet_hours_policy_id=calm),
        await world.create(name="capped", catch_up_policy="run_all_capped", catch_up_cap=3),
        await world.create(name="once", type="one_shot", spec="2026-03-04T12:07"),
        await world.create(name="skipping", overlap="skip"),
    ]
    await world.schedules.start()
    world.failures = 3
    await world.minutes(6)
    world.duration = timedelta(seconds=90)
    await world.minutes(6)
    world.duration = timedelta(0)
    await world.minutes(4)
    await world.schedules.pause(keys[0])
    await world.minutes(5)
    await world.schedules.resume(keys[0])
    await world.schedules.update(keys[2], spec="50")
    await world.schedules.stop()
    await world.minutes(30)
    await world.schedules.start()
    await world.minutes(5)
    await world.schedules.stop()
    await world.minutes(3)
    return keys


# Pages of one item take a statement or more each: in the short variant the middle third of a history is read so.
@pytest.mark.parametrize("limits", [(2, 7), pytest.param((1, 2, 7), marks=pytest.mark.exhaustive)], ids=str)
async def test_pages_of_any_size_tell_the_same(world: World, limits: tuple[int, ...]) -> None:
    for key in await eventful(world):
        whole = await paged(world, key, 1000)
        assert whole
        assert [one.scheduled_for for one in whole] == sorted({one.scheduled_for for one in whole}), "each once"
        assert await newest_first(world, key, 1000) == whole[::-1]
        for limit in limits:
            assert await paged(world, key, limit) == whole
            assert await newest_first(world, key, limit) == whole[::-1]
        first, last = whole[len(whole) // 3].scheduled_for, whole[2 * len(whole) // 3].scheduled_for
        within = [one for one in whole if first <= one.scheduled_for <= last]
        for limit in (1, 3):
            assert await paged(world, key, limit, start=first, end=last) == within
            assert await newest_first(world, key, limit, start=first, end=last) == within[::-1]


async def test_what_is_told_is_what_the_ledger_holds(world: World) -> None:
    now = round(world.clock.now())
    for key in await eventful(world):
        (stored,) = await world.store.schedules.find(ScheduleFilter(schedule_ids=[key]))
        told = await paged(world, key, 10)
        runs = {
            run.run_for: run for run in await world.store.history.runs(RunFilter(stored.sid, 0, 1 << 60, "scheduled"))
        }
        fired = {round(one.scheduled_for.timestamp() * 1_000_000): one for one in told if one.verdict == "fired"}
        assert set(fired) == set(runs) | {live.run_for for live in stored.lives}
        spans = await world.store.history.spans(stored.sid, 0, 1 << 60)
        assert sum(one.verdict in ("skipped", "missed", "coalesced") for one in told) == sum(span.n for span in spans)
        for at, run in runs.items():
            tried = [one for one in await world.store.history.attempts(stored.sid, at, at) if one.kind == "scheduled"]
            assert (fired[at].state, len(fired[at].tried)) == (run.outcome, len(tried))
        assert all(round(one.scheduled_for.timestamp() * 1_000_000) > now for one in told)


class Counting:
    """Counts the rows that stores of one class give out, also on their snapshots."""

    def __init__(self, store: object, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        for path in READS:
            part, name = find_verb(store, path)
            monkeypatch.setattr(type(part), name, self._counted(getattr(type(part), name)))

    def _counted(self, verb: Callable[..., Awaitable[list[Any]]]) -> Callable[..., Awaitable[list[Any]]]:
        async def read(*args: Any, **named: Any) -> list[Any]:
            found = await verb(*args, **named)
            self.rows += len(found)
            return found

        return read


@BOTH_ORDERS
@pytest.mark.parametrize("kind", [{}, {"type": "interval", "spec": "60"}], ids=["cron", "interval"])
async def test_a_page_reads_what_it_gives(
    world: World, kind: dict[str, Any], order: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await world.create(overlap="skip", **kind)
    await world.schedules.start()
    await world.minutes(30)
    world.duration = timedelta(seconds=90)  # from now on every second one is skipped: as many spans as runs
    await world.minutes(30)
    counting = Counting(world.store, monkeypatch)
    for start in (NOON, NOON + timedelta(minutes=15), NOON + timedelta(minutes=40)):
        counting.rows = 0
        page = await world.schedules.occurrences(key, start=start, limit=10, order=order)
        assert len(page.items) == 10
        assert 10 <= counting.rows <= 40


@BOTH_ORDERS
async def test_the_runs_of_other_schedules_are_not_looked_at(
    world: World, order: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await world.create(spec="*/10 * * * *")
    await world.create(name="busy")
    await world.schedules.start()
    await world.minutes(35)
    scanned = 0

    async def scan(*_args: Any) -> list[Any]:
        nonlocal scanned
        scanned += 1
        return []

    usual = world.store.history.runs

    async def by_key(wanted: RunFilter, *more: Any, **named: Any) -> list[Any]:
        nonlocal scanned
        scanned += wanted.kind is None
        return await usual(wanted, *more, **named)

    monkeypatch.setattr(world.store.history, "runs", by_key)
    for path in ("history.latest_runs", "read"):
        part, name = find_verb(world.store, path)
        monkeypatch.setattr(type(part), name, scan)
    found = [f"{one.scheduled_for:%M}" for one in await paged(world, key, 2, order=order)]
    assert found == (["10", "20", "30"] if order == "oldest" else ["30", "20", "10"])
    assert scanned == 0


async def test_days_that_were_pruned_are_left_out(world: World) -> None:
    key = await world.create(spec="*/15 * * * *")
    await world.schedules.start()
    await world.minutes(30)
    await world.schedules.stop()
    await world.minutes(60 * 11)
    await world.schedules.start()
    await world.minutes(50)
    whole = await paged(world, key, 100)
    midnight = datetime(2026, 3, 5, tzinfo=UTC)
    while await world.store.prune_day(round(midnight.timestamp() * 1_000_000)) is not None:
        pass
    kept = [one for one in whole if one.scheduled_for >= midnight]
    assert 0 < len(kept) < len(whole)
    for limit in (5, 1000):
        assert await paged(world, key, limit) == kept
        assert await newest_first(world, key, limit) == kept[::-1]


async def test_a_deleted_schedule_keeps_its_history(world: World) -> None:
    key = await world.create(name="gone", overlap="skip")
    await world.schedules.start()
    await world.minutes(10)
    before = await paged(world, key, 4)
    await world.schedules.delete(key)
    await world.minutes(10)
    assert await paged(world, key, 4) == before
    assert await newest_first(world, key, 4) == before[::-1]
    assert [one.event for one in (await world.schedules.audit(subject=key)).items][-1] == "schedule.deleted"
    assert (await world.schedules.dead_letters(key)).items == []
    assert len((await world.schedules.runs(key)).items) == len(before)
    with pytest.raises(ScheduleNotFoundError):
        await world.schedules.get(key)
    with pytest.raises(ScheduleNotFoundError):
        await world.schedules.occurrences("never there")


async def test_years_of_minutes_are_not_walked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page near the end of ten years does not enumerate what lies before it, nor one at its end."""
    store = MemoryStore()
    world = World(lambda: store, NOON, longest_wait=IN_EARNEST)
    await world.schedules.open()
    key = await world.create(catch_up_policy="skip")
    await world.clock.advance(timedelta(days=3650))
    await world.schedules.start()
    await world.minutes(1)
    end = world.clock.now()
    start = datetime.fromtimestamp(end / 1_000_000, UTC) - timedelta(minutes=20)
    steps = 0

    def counted(step: Callable[[CronTiming, int], int | None]) -> Callable[[CronTiming, int], int | None]:
        def taken(self: CronTiming, at: int) -> int | None:
            nonlocal steps
            steps += 1
            assert steps < 100, "occurrences outside the page are enumerated"
            return step(self, at)

        return taken

    async def verdicts(**asked: Any) -> list[str]:
        nonlocal steps
        steps = 0
        with monkeypatch.context() as patched:
            patched.setattr(CronTiming, "following", counted(CronTiming.following))
            patched.setattr(CronTiming, "latest", counted(CronTiming.latest))
            page = await world.schedules.occurrences(key, limit=5, **asked)
        assert steps >= 5
        return [one.verdict for one in page.items]

    assert await verdicts(start=start) == ["missed"] * 5
    assert await verdicts(start=NOON, order="newest") == ["fired", "fired", "missed", "missed", "missed"]
    await world.schedules.stop()
    await world.clock.advance(timedelta(days=3650))
    assert await verdicts(start=NOON, order="newest") == ["pending"] * 5

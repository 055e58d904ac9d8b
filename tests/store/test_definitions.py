"""Definitions that claims keep: used under the epoch that they were read with, and bounded."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from noonbell import Schedules
from noonbell.core.records import ScheduleColumns
from noonbell.store.definitions import DefinitionCache
from noonbell.store.sqlite import SqliteStore
from noonbell.testing import ManualClock

NOON = 1_717_243_200_000_000  # 2024-06-01 12:00 UTC


def row(sid: int, payload: str | None = None) -> tuple[Any, ...]:
    shared = ("api", "default", "default", "cron", "* * * * *", "UTC", None, "skip", "{}")
    return (sid, f"id-{sid}", 1, 1, f"task {sid}", payload, *shared)


def test_a_definition_belongs_to_its_epoch() -> None:
    cache = DefinitionCache()
    (added,) = cache.add({1: 4}, [row(1)]).values()
    assert added.columns == ScheduleColumns("task 1", "cron", "* * * * *", "UTC", None, "skip", None, "{}")
    assert cache.find([1, 1, 2], [4, 5, 4]) == [added, None, None]


def test_a_part_is_removed_when_it_is_full_and_it_answers_all_the_same() -> None:
    cache = DefinitionCache(most_bytes=100_000)
    for sid in range(1, 1_000):
        assert set(cache.add({sid: 1}, [row(sid, "x" * 1_000)])) == {sid}
        assert len(cache) <= 100_000 // 1_500 + 2
    assert cache.find([999], [1]) != [None]


def test_texts_that_nothing_shares_count_as_well() -> None:
    cache = DefinitionCache(most_bytes=100_000)
    for sid in range(1, 100):
        *rest, _ = row(sid)
        cache.add({sid: 1}, [(*rest, f"{sid}" + "x" * 10_000)])
        assert len(cache) <= 100_000 // 10_000 + 1


def test_a_text_is_kept_once() -> None:
    cache = DefinitionCache()
    one, two = (cache.add({sid: 1}, [(*row(sid)[:-1], "{" + "}")])[sid] for sid in (1, 2))
    assert one.columns.definition is two.columns.definition


def test_a_cache_that_is_too_small_still_knows_a_part_of_what_comes_round() -> None:
    cache = DefinitionCache(most_bytes=100_000)
    for sid in range(1, 401):
        cache.add({sid: 1}, [row(sid)])
    known = [found is not None for found in cache.find(range(1, 401), [1] * 400)]
    assert 50 <= sum(known) < 400
    assert any(known[:200])


async def test_an_edit_by_another_process_is_seen_at_the_next_claim(tmp_path: Path) -> None:
    clock, seen = ManualClock(NOON), list[Any]()

    async def note(run: Any) -> None:
        seen.append(run.payload)

    ours = SqliteStore(tmp_path / "ledger.db", threaded=False)
    async with Schedules(ours, callbacks={"note": note}, clock=clock) as schedules:
        action = {"kind": "callback", "name": "note"}
        key = await schedules.create(name="a", type="cron", spec="* * * * *", action=action, payload={"n": 1})
        await schedules.start()
        await clock.advance(timedelta(minutes=2))
        other = SqliteStore(tmp_path / "ledger.db", threaded=False)
        async with Schedules(other, clock=clock) as elsewhere:
            await elsewhere.update(key.schedule_id, payload={"n": 2})
        await clock.advance(timedelta(minutes=2))
        await schedules.stop()
    assert [payload["n"] for payload in seen] == [1, 1, 2, 2]

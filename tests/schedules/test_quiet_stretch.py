"""A quiet stretch in the audit: a record when it begins, one with the exact count when it ends; skipped at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from noonbell.ledger import verify_store, why
from tests.schedules.conftest import NOON, World

LONG = {"weekdays": list(range(7)), "from": "12:03", "to": "13:00", "timezone": "UTC"}


async def quiet_world(world: World, **fields: Any) -> str:
    await world.schedules.create_quiet_hours("calm", [LONG], policy_id="calm")
    key = await world.create(name="hush", quiet_hours_policy_id="calm", **fields)
    await world.schedules.start()
    return key


async def records(world: World, key: str) -> list[tuple[str, int | None]]:
    """Each `schedule.skipped`, as what it is and its count."""
    told = await world.audits(key, "schedule.skipped")
    return [("begun", one["expected"]) if "expected" in one else ("over", one["count"]) for one in told]


async def test_each_is_skipped_from_the_moment_it_has_come(world: World) -> None:
    key = await quiet_world(world)
    await world.minutes(2.5)  # 12:03:00
    assert await records(world, key) == [("begun", 57)]
    assert await world.told(key) == [("12:01", "fired"), ("12:02", "fired"), ("12:03", "skipped")]
    await world.minutes(10)
    assert [verdict for _, verdict in await world.told(key)] == ["fired"] * 2 + ["skipped"] * 11
    page = await world.schedules.occurrences(key, limit=5)
    assert {one.reason for one in page.items if one.verdict == "skipped"} == {"quiet hours"}
    answer = await why(world.store, "hush", NOON.replace(minute=5, second=0), now=world.clock.now())
    assert answer.facts["verdict"] == "skipped"
    assert answer.text.startswith(
        "hush did not run for 2026-03-04 12:05 UTC: it is skipped, since it lies in the quiet"
    )
    assert "which last until 13:00" in answer.text
    assert await world.store.history.spans(1, 0, 1 << 60) == [], "the span is written with the end"
    assert (await verify_store(world.store)).problems == []
    await world.minutes(60)
    assert await records(world, key) == [("begun", 57), ("over", 57)]
    (span,) = await world.store.history.spans(1, 0, 1 << 60)
    assert (span.n, span.verdict) == (57, "skipped")
    assert (await verify_store(world.store)).problems == []


async def test_restarts_and_triggered_runs_do_not_tell_it_again(world: World) -> None:
    key = await quiet_world(world, retry={"attempts": 2, "delay_seconds": 90})
    await world.minutes(5)
    await world.crash()
    await world.schedules.start()
    await world.minutes(1)
    world.failures = 1
    await world.schedules.trigger(key)
    await world.minutes(5)
    await world.schedules.trigger(key)
    await world.minutes(5)
    assert await records(world, key) == [("begun", 57)]
    await world.minutes(60)
    assert await records(world, key) == [("begun", 57), ("over", 57)]
    assert [call.manual for call in world.calls[2:5]] == [True, True, True]
    assert (await verify_store(world.store)).problems == []


@pytest.mark.parametrize("edit", ["rename", "pause", "lift"])
async def test_an_edit_ends_the_record_with_what_came_so_far(world: World, edit: str) -> None:
    key = await quiet_world(world)
    await world.minutes(5)  # 12:05:30
    if edit == "rename":
        await world.schedules.update(key, name="other")
    elif edit == "pause":
        await world.schedules.pause(key)
    else:
        await world.schedules.update_quiet_hours("calm", windows=[{**LONG, "to": "12:04"}])
    assert await records(world, key) == [("begun", 57), ("over", 3)]
    await world.minutes(2)
    if edit == "rename":
        assert await records(world, key) == [("begun", 57), ("over", 3), ("begun", 54)]
    else:
        assert await records(world, key) == [("begun", 57), ("over", 3)]
    if edit == "lift":
        assert world.called == ["12:01", "12:02", "12:06", "12:07"]
    assert (await verify_store(world.store)).problems == []


async def test_every_stretch_has_its_pair(world: World) -> None:
    key = await quiet_world(world, type="interval", spec="600")
    await world.clock.advance(timedelta(days=2))
    told = await records(world, key)
    assert [what for what, _ in told] == ["begun", "over"] * 2
    assert [count for what, count in told if what == "begun"] == [count for what, count in told if what == "over"]
    assert (await verify_store(world.store)).problems == []


async def test_a_stretch_that_passed_while_nothing_was_up_is_told_at_its_end_alone(world: World) -> None:
    key = await quiet_world(world)
    await world.crash()
    await world.minutes(75)
    await world.schedules.start()
    await world.minutes(1)
    assert await records(world, key) == [("over", 57)]
    assert (await verify_store(world.store)).problems == []

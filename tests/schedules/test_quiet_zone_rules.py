"""New rules for the zone of quiet hours: the schedules that refer to them follow, and it is told what moves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from noonbell.ledger import verify_store
from noonbell.ledger.ledger_rows import stored_zone_rules
from noonbell.ports import AuditFilter, ScheduleChange
from noonbell.schedules import zone_rules
from noonbell.schedules.quiet_move import QUIET_CHANGED
from noonbell.schedules.zone_watch import ZoneWatch
from noonbell.store.memory import MemoryStore
from tests.schedules.conftest import World
from tests.schedules.zone_files import TOWN, ZoneFolder, zone_folder

EAST_2, EAST_3 = "XXX-2", "YYY-3"
CHANGED = "schedule.zone_rules_changed"
WINDOW = {"weekdays": list(range(7)), "from": "14:20", "to": "14:40", "timezone": TOWN}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[ZoneFolder]:
    path = tmp_path / "zoneinfo"
    path.mkdir()
    with zone_folder(path) as made:
        made.put(EAST_2, "2026a")
        yield made


async def restart(world: World) -> None:
    """Another process: it has read nothing of the zone yet."""
    await world.crash()
    ZoneInfo.clear_cache()
    zone_rules._read.clear()
    await world.schedules.start()


async def policy_events(world: World, policy_id: str) -> list[dict[str, Any]]:
    found = await world.store.audit.page(AuditFilter(policy_id, QUIET_CHANGED), 0, 100)
    return [msgspec.json.decode(event.detail) for _, event in found]


def micros(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


async def test_the_zone_of_quiet_hours_is_known_from_their_creation_on(world: World, folder: ZoneFolder) -> None:
    assert TOWN not in await stored_zone_rules(world.store)
    await world.schedules.create_quiet_hours("calm", [WINDOW])
    assert zone_rules.Rules.read((await stored_zone_rules(world.store))[TOWN]).zone_hash != ""


async def test_schedules_follow_and_it_is_told_what_moves(world: World, folder: ZoneFolder) -> None:
    calm = (await world.schedules.create_quiet_hours("calm", [WINDOW])).policy_id
    key = await world.create(spec="*/10 * * * *", quiet_hours_policy_id=calm)
    steps = await world.create(type="interval", spec="600", quiet_hours_policy_id=calm)
    other = await world.create(spec="*/10 * * * *")
    await world.schedules.start()
    await world.minutes(45)
    assert await world.told(key) == [
        ("12:10", "fired"), ("12:20", "skipped"), ("12:30", "skipped"), ("12:40", "fired"),
    ]  # fmt: skip
    folder.put("YYY-1", "2026b")  # it is quiet from 13:20 to 13:40 now
    await restart(world)
    (told,) = await world.audits(key, CHANGED)
    assert (told["timezone"], told["before"], told["after"]) == (TOWN, "2026a", "2026b")
    assert told["quiet_hours"] == calm
    assert 2 * 365 <= told["silenced"] <= 2 * 367
    assert 2 * 365 <= told["freed"] <= 2 * 367
    (policy,) = await policy_events(world, calm)
    first = micros(datetime(2026, 3, 4, 13, 20, tzinfo=UTC))
    assert policy["stretches"][0] == {"from_at": first, "to_at": first + 20 * 60_000_000, "quiet": True}
    assert len(await world.audits(steps, CHANGED)) == 1, "quiet hours hold for intervals, too"
    assert await world.audits(other, CHANGED) == []
    await world.minutes(60)
    assert [verdict for at, verdict in await world.told(key) if at in ("13:20", "13:30")] == ["skipped", "skipped"]
    assert {(await world.schedules.get(one)).epoch for one in (key, steps)} == {2}
    assert (await world.schedules.get(other)).epoch == 1
    assert (await verify_store(world.store)).problems == []
    await restart(world)
    assert len(await policy_events(world, calm)) == 1, "once is enough"


async def test_a_schedule_of_the_same_zone_has_one_new_epoch(world: World, folder: ZoneFolder) -> None:
    calm = (await world.schedules.create_quiet_hours("calm", [WINDOW])).policy_id
    key = await world.create(spec="0 16 * * *", timezone=TOWN, quiet_hours_policy_id=calm)
    await world.schedules.start()
    folder.put(EAST_3, "2026b")
    await restart(world)
    assert (await world.schedules.get(key)).epoch == 2
    assert len(await world.audits(key, CHANGED)) == 1
    assert (await verify_store(world.store)).problems == []


async def test_an_attempt_that_was_cut_off_is_not_told_twice(world: World, folder: ZoneFolder) -> None:
    calm = (await world.schedules.create_quiet_hours("calm", [WINDOW])).policy_id
    key = await world.create(quiet_hours_policy_id=calm)
    await world.schedules.start()
    folder.put(EAST_3, "2026b")
    known = await stored_zone_rules(world.store)
    await restart(world)
    await world.store.schedules.apply(
        ScheduleChange(zone_rules={TOWN: known[TOWN]})
    )  # as a crash before the end has left it
    await restart(world)
    assert len(await policy_events(world, calm)) == 1
    assert len(await world.audits(key, CHANGED)) == 1


async def test_quiet_hours_that_change_meanwhile_are_read_again(world: World, folder: ZoneFolder) -> None:
    calm = (await world.schedules.create_quiet_hours("calm", [WINDOW])).policy_id
    key = await world.create(quiet_hours_policy_id=calm)
    await world.schedules.start()
    await world.schedules.stop()
    folder.put(EAST_3, "2026b")
    apply, later = world.store.schedules.apply, {**WINDOW, "to": "14:50"}

    async def overtaken(change: ScheduleChange) -> list[int]:
        if change.quiet.put:
            world.store.schedules.apply = apply  # type: ignore[method-assign]  # the first put alone is overtaken
            await world.schedules.update_quiet_hours(calm, windows=[later])
        return await apply(change)

    world.store.schedules.apply = overtaken  # type: ignore[method-assign]  # somebody is quicker
    await ZoneWatch(world.store, world.clock).run_once()
    assert (await world.schedules.get_quiet_hours(calm)).windows[0]["to"] == "14:50"
    assert len(await world.audits(key, CHANGED)) == 1


async def test_quiet_hours_by_older_rules_are_not_judged(world: World, folder: ZoneFolder) -> None:
    folder.put(EAST_3, "2026b")
    calm = (await world.schedules.create_quiet_hours("calm", [WINDOW])).policy_id
    key = await world.create(quiet_hours_policy_id=calm)
    other = await world.create()
    await world.schedules.start()
    folder.put(EAST_2, "2026a")
    await restart(world)
    world.calls.clear()
    await world.minutes(3)
    assert {call.schedule_id for call in world.calls} == {other}
    assert (await world.schedules.get(key)).epoch == 1


async def test_a_ledger_is_not_judged_by_rules_that_it_does_not_know(world: World, folder: ZoneFolder) -> None:
    calm = (await world.schedules.create_quiet_hours("calm", [WINDOW])).policy_id
    await world.create(quiet_hours_policy_id=calm)
    await world.schedules.start()
    await world.minutes(45)
    folder.put(EAST_3, "2026b")
    ZoneInfo.clear_cache()
    assert (await verify_store(world.store)).problems == []


async def test_quiet_hours_from_before_they_were_watched_are_learnt(folder: ZoneFolder) -> None:
    store = MemoryStore()
    world = World(lambda: store)
    await world.schedules.open()
    await world.schedules.create_quiet_hours("calm", [WINDOW])
    del store.data.zone_rules[TOWN]
    await ZoneWatch(store, world.clock).run_once()
    assert zone_rules.Rules.read((await stored_zone_rules(store))[TOWN]).version == "2026a"

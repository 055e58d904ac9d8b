"""Duties of engines that share a database, both at the same thing at once: each effect is there once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from noonbell.engine import membership
from noonbell.ledger import verify_store
from noonbell.schedules import zone_rules
from noonbell.schedules.quiet_move import QUIET_CHANGED
from noonbell.schedules.zone_watch import ZoneWatch
from noonbell.store.postgres import PostgresStore
from noonbell.store.postgres.schema import LOCKS, PRUNING
from noonbell.testing.storage_cases.base import T0
from tests.schedules.conftest import World
from tests.schedules.zone_files import TOWN, ZoneFolder, zone_folder
from tests.store.overriding import find_verb
from tests.store.postgres_server import PostgresServer
from tests.store.test_postgres_durable import DAY, two_days

CHANGED = "schedule.zone_rules_changed"
WINDOW = {"weekdays": list(range(7)), "from": "14:20", "to": "14:40", "timezone": TOWN}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[ZoneFolder]:
    path = tmp_path / "zoneinfo"
    path.mkdir()
    with zone_folder(path) as made:
        made.put("XXX-2", "2026a")
        yield made


def overtaken(world: World, verb: str, monkeypatch: pytest.MonkeyPatch) -> ZoneWatch:
    """A watch of another engine, which does its whole work just before ours writes for the first time."""
    slow, quick = ZoneWatch(world.store, world.clock), ZoneWatch(world.store, world.clock)
    part, name = find_verb(world.store, verb)
    write = getattr(part, name)
    done: list[list[str]] = []

    async def late(*args: Any, **more: Any) -> Any:
        if not done:
            done.append([])
            done[0] = (await quick.run_once()).changed
            assert done[0] == [TOWN]
        return await write(*args, **more)

    monkeypatch.setattr(part, name, late)
    return slow


async def test_new_zone_rules_are_taken_over_once(
    world: World, folder: ZoneFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [await world.create(spec="0 15 * * *", timezone=TOWN) for _ in range(3)]
    folder.put("YYY-3", "2026b")
    slow = overtaken(world, "schedules.apply", monkeypatch)
    await slow.run_once()
    for key in keys:
        assert len(await world.audits(key, CHANGED)) == 1
        assert (await world.schedules.get(key)).epoch == 2
    assert (await verify_store(world.store)).problems == []


async def test_new_rules_of_quiet_hours_are_taken_over_once(
    world: World, folder: ZoneFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = (await world.schedules.create_quiet_hours("calm", [WINDOW])).policy_id
    key = await world.create(spec="*/10 * * * *", quiet_hours_policy_id=calm)
    folder.put("YYY-1", "2026b")
    slow = overtaken(world, "schedules.apply", monkeypatch)
    await slow.run_once()
    assert len(await world.audits(calm, QUIET_CHANGED)) == 1
    assert len(await world.audits(key, CHANGED)) == 1
    assert (await world.schedules.get(key)).epoch == 2


async def test_an_engine_with_older_zone_data_notices_soon_that_another_has_newer(
    world: World, folder: ZoneFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not go on by its old rules until the hour is over."""
    monkeypatch.setattr(membership, "LOOK", 2_000_000)
    monkeypatch.setattr(membership, "BEAT", 5_000_000)
    key = await world.create(spec="0 15 * * *", timezone=TOWN)
    await world.schedules.start()
    await world.minutes(0.1)
    assert world.schedules._lane._life is not None
    member = world.schedules._lane._life.member
    folder.put("YYY-3", "2026b")  # the host of another engine
    newer = membership.Membership(world.store, world.clock, "other", zone_data=zone_rules.zone_data_version)
    monkeypatch.setattr(member, "_zone_data", lambda: "2026a")
    await newer.join()
    await ZoneWatch(world.store, world.clock).run_once()
    folder.put("XXX-2", "2026a")  # and what ours finds
    ZoneInfo.clear_cache()
    await world.minutes(1)
    engine = world.schedules._lane.engine
    assert engine is not None
    assert engine.work._outdated() == {TOWN}
    assert (await world.schedules.get(key)).epoch == 2
    newer.release()


async def test_who_finds_another_at_pruning_leaves_it_to_him(postgres: PostgresServer) -> None:
    store = PostgresStore(await postgres.new_ledger(), pool_size=2)
    await store.open()
    await two_days(store)
    async with store._connections.writing(f"SELECT pg_advisory_xact_lock({LOCKS}, {PRUNING})"):
        assert await store.prune_day(T0 + DAY) is None
    pruned = await store.prune_day(T0 + DAY)
    assert pruned is not None
    assert pruned.runs > 0
    await store.close()

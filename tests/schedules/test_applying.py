"""Editing and creating together, and the zone rules that schedules were computed with."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from noonbell.core.records import DurableSchedule, Edit, StoredSchedule
from noonbell.errors import ScheduleExistsError, ScheduleInvalidError, ScheduleNotFoundError
from noonbell.ledger.ledger_rows import stored_zone_rules
from noonbell.ports import ScheduleChange, ScheduleFilter
from noonbell.schedules import changes
from noonbell.schedules.fields import read_fields
from noonbell.timing.timing_protocol import SECOND
from tests.schedules.conftest import ACTION, NOON, World

NOW = int(NOON.timestamp()) * SECOND


def made(name: str, timezone: str = "UTC") -> DurableSchedule:
    fields = {"name": name, "type": "cron", "spec": "0 9 * * *", "timezone": timezone, "action": ACTION}
    columns = read_fields(fields, None).columns
    return changes.created(f"id-{name}", columns, NOW, enabled=True, managed_by="file:a", lane="default")


def delete(stored: StoredSchedule) -> Edit:
    return changes.deleted(stored, NOW, "me")


async def names(world: World) -> list[str]:
    return [one.name for one in (await world.schedules.list(managed_by="file:a")).items]


async def test_a_deleted_name_can_be_taken_in_the_same_step(world: World) -> None:
    await world.store.schedules.apply(ScheduleChange([made("old"), made("kept")], NOW, "me"))
    new = made("old")
    new.schedule_id = "id-new"
    sids = await world.store.schedules.apply(ScheduleChange([new], NOW, "me", ["id-old"], delete))
    assert sids == [3]
    assert [one.schedule_id for one in (await world.schedules.list(managed_by="file:a")).items] == ["id-kept", "id-new"]


async def test_a_creation_that_fails_undoes_the_edits(world: World) -> None:
    await world.store.schedules.apply(ScheduleChange([made("old"), made("kept")], NOW, "me"))
    with pytest.raises(ScheduleExistsError):
        await world.store.schedules.apply(ScheduleChange([made("fresh"), made("kept")], NOW, "me", ["id-old"], delete))
    assert await names(world) == ["old", "kept"]
    audit = await world.schedules.audit(limit=1000)
    assert [one.event for one in audit.items] == ["schedule.created", "schedule.created"]


async def test_an_edit_that_fails_creates_nothing(world: World) -> None:
    with pytest.raises(ScheduleNotFoundError):
        await world.store.schedules.apply(ScheduleChange([made("fresh")], NOW, "me", ["id-unknown"], delete))
    assert await names(world) == []
    assert await stored_zone_rules(world.store) == {}


async def test_the_rules_of_a_zone_are_known_from_its_first_schedule_on(world: World) -> None:
    kyiv = made("kyiv", "Europe/Kyiv")
    await world.store.schedules.apply(ScheduleChange([made("utc"), kyiv], NOW, "me"))
    assert await stored_zone_rules(world.store) == {"UTC": made("utc").zone_hash, "Europe/Kyiv": kyiv.zone_hash}

    await world.store.schedules.apply(ScheduleChange(zone_rules={"Europe/Kyiv": "newer"}))
    again = made("again", "Europe/Kyiv")
    await world.store.schedules.apply(ScheduleChange([again], NOW, "me"))
    assert (await stored_zone_rules(world.store))["Europe/Kyiv"] == "newer"

    await world.schedules.update("id-utc", timezone="Asia/Tokyo")
    assert sorted(await stored_zone_rules(world.store)) == ["Asia/Tokyo", "Europe/Kyiv", "UTC"]


async def test_the_schedules_of_a_zone_come_in_pages_without_the_deleted(world: World) -> None:
    await world.store.schedules.apply(
        ScheduleChange([made(f"k{i}", "Europe/Kyiv") for i in range(5)] + [made("utc")], NOW, "me")
    )
    await world.schedules.delete("id-k1")
    first = await world.store.schedules.find(ScheduleFilter(timezone="Europe/Kyiv"), 0, 2)
    assert [one.schedule_id for one in first] == ["id-k0", "id-k2"]
    rest = await world.store.schedules.find(ScheduleFilter(timezone="Europe/Kyiv"), first[-1].sid, 10)
    assert [one.schedule_id for one in rest] == ["id-k3", "id-k4"]
    assert await world.store.schedules.find(ScheduleFilter(timezone="Asia/Tokyo"), 0, 10) == []


ALIKE: list[dict[str, Any]] = [
    {"name": "plain"},
    {"name": "again"},
    {"name": "paid", "payload": {"a": 1}},
    {"name": "tagged", "tags": ["red"]},
    {"name": "tagged too", "tags": ["red"], "payload": [1]},
    {"name": "number", "jitter_seconds": 1},
    {"name": "not quite the same number", "jitter_seconds": 1.5},
    {"name": "spread", "jitter_seconds": 1},
    {"name": "resting", "enabled": False},
    {"name": "resting too", "enabled": False},
    {"name": "ends", "end_at": NOON.replace(year=2027)},
    {"name": "ends too", "end_at": NOON.replace(year=2027)},
    {"name": "every", "type": "interval", "spec": "90"},
    {"name": "every too", "type": "interval", "spec": "90", "payload": "x"},
    {"name": "Kyiv", "timezone": "Europe/Kyiv"},
    {"name": "Kyiv too", "timezone": "Europe/Kyiv"},
]


def test_what_is_created_together_is_what_each_alone_would_be() -> None:
    creator = changes.ScheduleFactory(NOW, managed_by="api", lane="default")
    for number, one in enumerate(ALIKE):
        fields = {"type": "cron", "spec": "0 9 * * *", "action": ACTION, "schedule_id": f"s{number}", **one}
        columns, understood = read_fields(fields, None)
        enabled = one.get("enabled", True)
        alone = changes.created(f"s{number}", columns, NOW, enabled=enabled, managed_by="api", lane="default")
        assert creator.new(fields) == (alone, understood)


@pytest.mark.parametrize(("field", "value"), [("name", " "), ("payload", object()), ("schedule_id", ""), ("spec", "x")])
def test_one_that_is_like_the_others_is_checked_all_the_same(field: str, value: object) -> None:
    creator = changes.ScheduleFactory(NOW, managed_by="api", lane="default")
    fields = {"name": "a", "type": "cron", "spec": "0 9 * * *", "action": ACTION, "schedule_id": "s1"}
    creator.new(fields)
    with pytest.raises(ScheduleInvalidError) as raised:
        creator.new({**fields, field: value})
    assert raised.value.field == field


def test_new_ids_differ_and_grow_with_time() -> None:
    ids = [next(changes.new_ids(NOW + second * SECOND)) for second in range(100)]
    assert ids == sorted(set(ids))
    assert {len(one) for one in ids} == {32}
    together = list(islice(changes.new_ids(NOW), 1_000))
    assert len({*together, next(changes.new_ids(NOW))}) == 1_001
    assert {len(one) for one in together} == {32}

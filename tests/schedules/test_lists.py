"""Lists by tag and by what is disabled: they follow every edit, and know nothing of what was deleted."""

from __future__ import annotations

from typing import Any

from tests.schedules.conftest import World


async def listed(world: World, **wanted: Any) -> list[str]:
    return [one.name for one in (await world.schedules.list(**wanted)).items]


async def test_tags_follow_the_edits(world: World) -> None:
    first = await world.create(name="first", tags=["red", "round"])
    second = await world.create(name="second", tags=["red"])
    await world.create(name="third")
    assert await listed(world, tag="red") == ["first", "second"]
    await world.schedules.update(first, tags=["round", "blue"])
    await world.schedules.update(second, name="other")
    assert await listed(world, tag="red") == ["other"]
    assert await listed(world, tag="blue") == await listed(world, tag="round", team="default") == ["first"]
    assert await listed(world, tag="round", team="elsewhere") == []
    await world.schedules.delete(second)
    assert await listed(world, tag="red") == []
    await world.schedules.update(first, tags=[])
    assert await listed(world, tag="blue") == []


async def test_a_tag_beside_other_filters(world: World) -> None:
    night = {"from": "22:00", "to": "06:00", "timezone": "UTC", "weekdays": [1]}
    calm = (await world.schedules.create_quiet_hours("calm", [night])).policy_id
    await world.create(name="a", tags=["x"], quiet_hours_policy_id=calm)
    await world.create(name="b", tags=["x"], enabled=False)
    await world.create(name="c", tags=["y"], quiet_hours_policy_id=calm)
    assert await listed(world, tag="x", quiet_hours_policy_id=calm) == ["a"]
    assert await listed(world, tag="x", quiet_hours_policy_id=calm, team="default", enabled=True) == ["a"]
    assert await listed(world, tag="x", enabled=False, team="default") == ["b"]
    assert await listed(world, tag="x", type="cron", name_contains="A", managed_by="api", lane="default") == ["a"]


async def test_pages_of_what_is_disabled(world: World) -> None:
    for place in range(5):
        await world.create(name=f"s{place}", enabled=place % 2 == 0, team="late" if place == 3 else "default")
    assert await listed(world, enabled=False) == ["s1", "s3"]
    assert await listed(world, enabled=False, team="late") == ["s3"]
    first = await world.schedules.list(enabled=True, team="default", limit=2)
    rest = await world.schedules.list(enabled=True, team="default", limit=2, cursor=first.next_cursor)
    assert [one.name for one in (*first.items, *rest.items)] == ["s0", "s2", "s4"]


async def test_a_part_of_a_name_is_taken_as_it_is_written(world: World) -> None:
    names = ["50% off", "50 percent", "a_b", "aXb", "back\\slash", "Ärger", "MiXed"]
    for name in names:
        await world.create(name=name)
    assert await listed(world, name_contains="%") == ["50% off"]
    assert await listed(world, name_contains="A_B") == ["a_b"]
    assert await listed(world, name_contains="\\") == ["back\\slash"]
    assert await listed(world, name_contains="mixed") == ["MiXed"]
    assert await listed(world, name_contains="Ä") == ["Ärger"]
    assert await listed(world, name_contains="ä") == [], "only ASCII letters have a case, on every store"
    assert await listed(world, name_contains="x" * 2_000) == []
    assert await listed(world, name_contains="5", type="cron") == ["50% off", "50 percent"]


async def test_pages_of_every_filter_hold_what_the_filter_says(world: World) -> None:
    for number in range(12):
        kind = {"type": "interval", "spec": "60"} if number % 3 == 0 else {}
        await world.create(name=f"n{number}", tags=["odd"] if number % 2 else [], enabled=number % 4 != 1, **kind)
    await world.create(name="once", type="one_shot", spec="2030-01-01T00:00:00Z", tags=["odd"])
    by_filter: list[tuple[dict[str, Any], list[str]]] = [
        ({"type": "interval"}, ["n0", "n3", "n6", "n9"]),
        ({"type": "one_shot"}, ["once"]),
        ({"type": "interval", "enabled": False}, ["n9"]),
        ({"type": "interval", "tag": "odd"}, ["n3", "n9"]),
        ({"tag": "odd"}, ["n1", "n3", "n5", "n7", "n9", "n11", "once"]),
        ({"type": "one_shot", "name_contains": "ONC"}, ["once"]),
        ({"managed_by": "api", "name_contains": "n1"}, ["n1", "n10", "n11"]),
        ({"managed_by": "file:x"}, []),
    ]
    for wanted, expected in by_filter:
        assert await listed(world, **wanted) == expected, wanted
        assert await listed(world, team="default", **wanted) == expected, wanted

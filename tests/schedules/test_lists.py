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

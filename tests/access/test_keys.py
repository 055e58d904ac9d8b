"""API keys: known again, never stored, bounded in time, revoked at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from noonbell.access import Access
from noonbell.access.access import CACHED_SECONDS
from noonbell.access.access_records import API_KEY, implied
from noonbell.core.instants import moment
from noonbell.errors import (
    AccessInvalidError,
    AccessNotFoundError,
    DocumentConflictError,
    NaiveDatetimeError,
    StoreUnavailableError,
)
from noonbell.ports import AuditFilter, DocumentFilter
from noonbell.store.documents import removals
from tests.access.conftest import World


def events(world: World) -> list[tuple[str, str, str | None]]:
    return [(audit.event, audit.actor, audit.team) for audit in world.store.data.audits.values()]


async def test_a_key_is_known_again_and_is_not_in_the_store(world: World) -> None:
    record, key = await world.access.create_key("default", ["write"], name="deployments")
    caller = await world.access.authenticate(key)
    assert caller is not None
    assert (caller.actor, caller.team, caller.scopes) == (f"key:{record.key_id}", "default", implied(["write"]))
    assert caller.key_id == record.key_id
    assert sorted(caller.scopes) == ["read", "write"]
    secret = key.split("_", 2)[2]
    (document,) = await world.store.documents.find(DocumentFilter(API_KEY, [record.key_id]))
    assert key not in document.body
    assert secret not in document.body
    assert secret not in repr(await world.store.audit.page(AuditFilter(), 0, 100))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda key: key[:-1] + ("A" if key[-1] != "A" else "B"),
        lambda key: key + "A",
        lambda key: key[:-1],
        lambda key: key.replace("nbk_", "nbx_"),
        lambda key: key.upper(),
        lambda key: f" {key}",
        lambda key: f"{key}\n",
        lambda key: "",
        lambda key: "nbk_aaaaaaaaaaaa_" + key.split("_", 2)[2],
        lambda key: key.replace(key[4:16], "ааааааааааaa"),
    ],
)
async def test_a_key_that_is_nearly_right_is_wrong(world: World, spoil: Callable[[str], str]) -> None:
    _, key = await world.access.create_key("default", ["read"], name="one")
    assert await world.access.authenticate(spoil(key)) is None
    assert await world.access.authenticate(key) is not None


async def test_a_key_ends_when_it_expires(world: World) -> None:
    ends = moment(world.clock.now()) + timedelta(minutes=1)
    _, key = await world.access.create_key("default", ["read"], name="short", expires_at=ends)
    assert await world.access.authenticate(key) is not None
    await world.clock.jump(timedelta(seconds=60))
    assert await world.access.authenticate(key) is None


async def test_a_revoked_key_opens_nothing_from_now_on(world: World) -> None:
    record, key = await world.access.create_key("default", ["read"], name="one")
    assert await world.access.authenticate(key) is not None
    await world.access.acting("ann").revoke_key(record.key_id)
    assert await world.access.authenticate(key) is None
    assert events(world)[-2:] == [("api_key.created", "tests", "default"), ("api_key.revoked", "ann", "default")]
    with pytest.raises(AccessNotFoundError):
        await world.access.revoke_key(record.key_id)


async def test_a_key_that_is_revoked_while_it_makes_another_leaves_none(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, _ = await world.access.create_key("default", ["admin"], name="maker")
    write = world.store.documents.write

    async def late(*given: Any) -> Any:
        monkeypatch.setattr(world.store.documents, "write", write)
        assert await world.access.revoke_key(record.key_id) == [record.key_id]
        return await write(*given)

    monkeypatch.setattr(world.store.documents, "write", late)
    maker = world.access.acting(f"key:{record.key_id}")
    with pytest.raises(AccessNotFoundError):
        await maker.create_key("default", ["admin"], name="made", made_with=record.key_id)
    assert await world.access.list_keys("default") == []


async def test_a_key_that_another_process_revoked_works_for_seconds_more(world: World) -> None:
    record, key = await world.access.create_key("default", ["read"], name="one")
    assert await world.access.authenticate(key) is not None
    await world.store.documents.write(removed=removals(API_KEY, [record.key_id]))
    assert await world.access.authenticate(key) is not None
    await world.clock.jump(timedelta(seconds=CACHED_SECONDS))
    assert await world.access.authenticate(key) is None


async def version(world: World, key_id: str) -> int:
    (document,) = await world.store.documents.find(DocumentFilter(API_KEY, [key_id]))
    return document.version


async def test_the_last_use_is_kept_once_a_minute_and_written_beside_the_requests(world: World) -> None:
    record, key = await world.access.create_key("default", ["read"], name="one")
    first = world.clock.now()
    for _ in range(50):
        await world.access.authenticate(key)
    assert await version(world, record.key_id) == 1, "a request writes nothing"
    assert (await world.access.get_key(record.key_id)).last_used_at == moment(first)
    for _ in range(2):
        await world.access.write_uses()
        await world.clock.jump(timedelta(seconds=1))
        await world.access.authenticate(key)
    assert await version(world, record.key_id) == 2
    assert (await world.access.get_key(record.key_id)).last_used_at == moment(first)
    await world.clock.jump(timedelta(seconds=57))
    await world.access.authenticate(key)
    assert (await world.access.get_key(record.key_id)).last_used_at == moment(first)
    await world.clock.jump(timedelta(seconds=1))
    await world.access.authenticate(key)
    (listed,) = await world.access.acting("ann").list_keys("default")
    assert listed.last_used_at == moment(world.clock.now()), "also where it is not written yet"
    await world.access.write_uses()
    assert await version(world, record.key_id) == 3


async def test_a_use_that_another_process_has_written_is_not_written_again(world: World) -> None:
    record, key = await world.access.create_key("default", ["read"], name="one")
    other = Access(world.store, world.clock)
    for access in (world.access, other):
        await access.authenticate(key)
        await access.write_uses()
    assert await version(world, record.key_id) == 2


async def test_uses_that_cannot_be_written_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    record, key = await world.access.create_key("default", ["read"], name="one")
    await world.access.authenticate(key)

    async def fail(*_: Any) -> None:
        raise StoreUnavailableError("not now")

    with monkeypatch.context() as patched:
        patched.setattr(world.store.documents, "write", fail)
        with pytest.raises(StoreUnavailableError):
            await world.access.write_uses()
    await world.access.write_uses()
    assert await version(world, record.key_id) == 2


async def test_a_key_that_changes_at_that_moment_does_not_hold_up_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [await world.access.create_key("default", ["read"], name=name) for name in ("one", "two", "three")]
    for _, key in made:
        await world.access.authenticate(key)
    find = world.store.documents.find

    async def find_and_lose(wanted: DocumentFilter) -> Any:
        found = await find(wanted)
        await world.store.documents.write(removed=removals(API_KEY, [made[1][0].key_id]))
        return found

    with monkeypatch.context() as patched:
        patched.setattr(world.store.documents, "find", find_and_lose)
        await world.access.write_uses()
    left = {one.key_id: one.last_used_at for one in await world.access.list_keys("default")}
    assert left == {made[place][0].key_id: moment(world.clock.now()) for place in (0, 2)}


async def test_writing_the_last_use_does_not_bring_a_revoked_key_back(world: World) -> None:
    record, key = await world.access.create_key("default", ["read"], name="one")
    await world.access.authenticate(key)
    await world.store.documents.write(
        removed=removals(API_KEY, [record.key_id])
    )  # by somebody else, while it is remembered here
    assert await world.access.authenticate(key) is not None
    await world.access.write_uses()
    assert await world.store.documents.find(DocumentFilter(API_KEY, [record.key_id])) == []


async def test_keys_of_a_team_are_not_another_teams(world: World) -> None:
    await world.access.create_team("other")
    mine, _ = await world.access.create_key("default", ["read"], name="mine")
    theirs, key = await world.access.create_key("other", ["admin"], name="theirs")
    assert [one.key_id for one in await world.access.list_keys("default")] == [mine.key_id]
    with pytest.raises(AccessNotFoundError):
        await world.access.get_key(theirs.key_id, team="default")
    with pytest.raises(AccessNotFoundError):
        await world.access.revoke_key(theirs.key_id, team="default")
    caller = await world.access.authenticate(key)
    assert caller is not None
    assert caller.team == "other"
    assert not caller.manages_teams


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"scopes": []}, "scopes"),
        ({"scopes": ["fly"]}, "scopes"),
        ({"name": " "}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"name": "two\nlines"}, "name"),
        ({"team": "No Such Name"}, "team"),
        ({"expires_at": moment(0)}, "expires_at"),
    ],
)
async def test_fields_that_cannot_be_accepted_are_named(world: World, fields: dict[str, object], field: str) -> None:
    given = {"team": "default", "scopes": ["read"], "name": "one"} | fields
    with pytest.raises(AccessInvalidError) as caught:
        await world.access.create_key(given.pop("team"), given.pop("scopes"), **given)  # type: ignore[arg-type]  # wrong values are the point
    assert caught.value.field == field


async def test_what_a_key_cannot_be_made_for(world: World) -> None:
    with pytest.raises(AccessNotFoundError, match='Team not found: "nobody"'):
        await world.access.create_key("nobody", ["read"], name="one")
    with pytest.raises(NaiveDatetimeError):
        await world.access.create_key("default", ["read"], name="one", expires_at=datetime(2030, 1, 1))  # noqa: DTZ001 - the mistake under test


async def test_teams(world: World) -> None:
    team = await world.access.create_team("billing", "Billing and dunning")
    assert (team.name, team.title) == ("billing", "Billing and dunning")
    assert [one.name for one in await world.access.list_teams()] == ["billing", "default"]
    with pytest.raises(DocumentConflictError):
        await world.access.create_team("billing")
    for name in ("", "Big", "a/b", "-x", "a" * 64, "ä"):
        with pytest.raises(AccessInvalidError):
            await world.access.create_team(name)
    await world.access.ensure_default_team()
    assert ("team.created", "tests", "billing") in events(world)

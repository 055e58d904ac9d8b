"""The secrets of a store, and their move to a new master key while others read and write."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from noonbell.actions.secrets.keys import KeyRing, new_ring
from noonbell.actions.secrets.repository import SecretRepository
from noonbell.actions.secrets.secret_records import SealedSecret
from noonbell.actions.secrets.vault import Vault
from noonbell.errors import MasterKeyMissingError, SecretInvalidError, SecretUnreadableError


class Shelf:
    """A store in a dict. Every verb first gives way, so that others get between any two of them."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], SealedSecret] = {}

    async def put_secret(self, sealed: SealedSecret) -> bool:
        await asyncio.sleep(0)
        known = self.rows.get((sealed.team, sealed.name))
        if sealed.version != (1 if known is None else known.version + 1):
            return False
        self.rows[sealed.team, sealed.name] = sealed
        return True

    async def get_secrets(self, team: str, names: Sequence[str]) -> list[SealedSecret]:
        await asyncio.sleep(0)
        return [self.rows[team, name] for name in names if (team, name) in self.rows]

    async def list_secrets(self, team: str) -> list[SealedSecret]:
        await asyncio.sleep(0)
        return [sealed for key, sealed in sorted(self.rows.items()) if key[0] == team]

    async def drop_secret(self, team: str, name: str) -> bool:
        await asyncio.sleep(0)
        return self.rows.pop((team, name), None) is not None

    async def secrets_under_other_keys(
        self, key_version: int, limit: int, after: tuple[str, str] | None = None
    ) -> list[SealedSecret]:
        await asyncio.sleep(0)
        rows = sorted(self.rows.items())
        found = [row for key, row in rows if row.key_version != key_version and (after is None or key > after)]
        return found[:limit]

    async def rewrap_secrets(self, pairs: Sequence[tuple[SealedSecret, SealedSecret]]) -> int:
        await asyncio.sleep(0)
        done = 0
        for old, new in pairs:
            if self.rows.get((old.team, old.name)) == old:
                self.rows[old.team, old.name] = new
                done += 1
        return done


RING = new_ring()


def book(shelf: Shelf, ring: KeyRing = RING, now: int = 5) -> SecretRepository:
    return SecretRepository(shelf, Vault(ring), lambda: now)


async def test_put_list_use_remove() -> None:
    shelf = Shelf()
    first = await book(shelf, now=5).put("t", "A", "value one")
    second = await book(shelf, now=9).put("t", "A", "value two")
    await book(shelf).put("t", "B", "value bee")
    await book(shelf).put("other", "A", "value other")
    assert (first.version, first.created_at, first.updated_at) == (1, 5, 5)
    assert (second.version, second.created_at, second.updated_at) == (2, 5, 9)
    assert [found.name for found in await book(shelf).listed("t")] == ["A", "B"]
    assert await book(shelf).values("t", ["A", "B", "C", "no name"]) == {"A": "value two", "B": "value bee"}
    assert await book(shelf).values("t", []) == {}
    assert await book(shelf).remove("t", "A")
    assert not await book(shelf).remove("t", "A")
    assert await book(shelf).values("t", ["A"]) == {}
    assert "value" not in repr(await book(shelf).listed("t"))


async def test_nothing_is_stored_or_read_without_a_master_key() -> None:
    shelf = Shelf()
    await book(shelf).put("t", "A", "value one")
    bare = SecretRepository(shelf, None, lambda: 5)
    for refused in (bare.put("t", "B", "value two"), bare.values("t", ["A"]), bare.rotate()):
        with pytest.raises(MasterKeyMissingError, match="noonbell keys new"):
            await refused
    assert [found.name for found in await bare.listed("t")] == ["A"]
    assert await bare.values("t", []) == {}


async def test_bad_names_and_values_are_refused() -> None:
    shelf = Shelf()
    for team, name, value in (("t", "a-b", "value one"), ("", "A", "value one"), ("t", "A", "short")):
        with pytest.raises(SecretInvalidError):
            await book(shelf).put(team, name, value)
    assert shelf.rows == {}


async def test_writers_at_once_lose_nothing() -> None:
    shelf = Shelf()
    found = await asyncio.gather(*(book(shelf).put("t", "A", f"value {number}") for number in range(10)))
    assert sorted(facts.version for facts in found) == list(range(1, 11))


async def test_rotation_under_load() -> None:
    shelf = Shelf()
    for number in range(50):
        await book(shelf).put("t", f"S{number:02}", f"value {number}")
    ring = RING.with_new_key()
    old, new = book(shelf), book(shelf, ring)
    stop = asyncio.Event()
    reads = 0

    async def write() -> None:
        round_ = 0
        while not stop.is_set():
            round_ += 1
            # an instance with the new ring and one that has not been given it yet
            await new.put("t", f"S{round_ * 7 % 50:02}", f"newer {round_}")
            if round_ < 40:
                await old.put("t", f"OLD{round_}", f"older {round_}")

    async def read() -> None:
        nonlocal reads
        while not stop.is_set():
            values = await new.values("t", [f"S{number:02}" for number in range(50)])
            assert len(values) == 50
            assert all(value.startswith(("value ", "newer ")) for value in values.values())
            reads += 1

    work = [asyncio.create_task(write()), asyncio.create_task(read())]
    done = await new.rotate(page=7)
    stop.set()
    await asyncio.gather(*work)
    assert done.unreadable == []
    assert done.rewrapped > 0
    assert reads > 0
    # whoever still sealed under the old key is moved by the next
    await new.rotate(page=7)
    newest = ring.key(2)
    assert newest is not None
    alone = book(shelf, KeyRing({2: newest}))
    assert len(await alone.values("t", [name for _, name in shelf.rows])) == len(shelf.rows)
    assert (await new.rotate()).rewrapped == 0


async def test_rotation_tells_of_what_does_not_open_and_goes_on() -> None:
    shelf = Shelf()
    for name in ("A", "B", "C"):
        await book(shelf).put("t", name, f"value {name}")
    shelf.rows["t", "B"] = msgspec.structs.replace(shelf.rows["t", "B"], wrapped_key=bytes(60))
    done = await book(shelf, RING.with_new_key()).rotate(page=1)
    assert done.rewrapped == 2
    assert done.unreadable == [("t", "B")]
    assert shelf.rows["t", "B"].key_version == 1
    with pytest.raises(SecretUnreadableError, match='"B" of team "t"'):
        await book(shelf).values("t", ["B"])

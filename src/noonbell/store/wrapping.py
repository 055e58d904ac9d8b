"""Stores of which some verbs are replaced: to time them, to let them fail, to put a timeline in front of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from copy import copy
from typing import Any, TypeVar

from noonbell.ports import BackgroundService, Hold, Ledger, LedgerTable, Pruned

P = TypeVar("P")
T = TypeVar("T")


def verbs_of(part: object) -> dict[str, Callable[..., Any]]:
    """Return the verbs of a store or of a part of it, by name."""
    named = ((name, getattr(part, name)) for name in dir(type(part)) if not name.startswith("_"))
    return {name: found for name, found in named if inspect.iscoroutinefunction(found)}


def with_verbs(part: P, verbs: Mapping[str, Callable[..., Any]]) -> P:
    """Return a copy of a part of a store in which these verbs are replaced; the others work as before."""
    if unknown := verbs.keys() - verbs_of(part).keys():
        raise ValueError(f"{type(part).__name__} has no verb {min(unknown)!r}")
    wrapped = copy(part)
    vars(wrapped).update(verbs)
    return wrapped


def without_replaced(store: P) -> P:
    """Return a copy of a store whose own verbs are those of its class again: what a snapshot begins with."""
    plain = copy(store)
    for name in verbs_of(store):
        vars(plain).pop(name, None)
    return plain


class LedgerWrapper:
    """A ledger in front of another one: it passes on what belongs to no part. Its parts are its own."""

    def __init__(self, store: Ledger) -> None:
        self._store = store

    @property
    def lease_seconds(self) -> float:
        return self._store.lease_seconds

    @property
    def has_shared_clock(self) -> bool:
        return self._store.has_shared_clock

    @property
    def clock_offset_us(self) -> int:
        return self._store.clock_offset_us

    async def open(self) -> None:
        await self._store.open()

    async def close(self) -> None:
        await self._store.close()

    def kill(self) -> None:
        self._store.kill()

    async def hold(self, name: str, holder: str) -> Hold:
        return await self._store.hold(name, holder)

    async def holder(self, name: str) -> str | None:
        return await self._store.holder(name)

    def subscribe(self, lane: str, wake: Callable[[int], None]) -> Callable[[], None]:
        return self._store.subscribe(lane, wake)

    def services(self, lane: str, wake: Callable[[int], None]) -> Mapping[str, BackgroundService]:
        return self._store.services(lane, wake)

    async def snapshot(self, read: Callable[[Ledger], Coroutine[Any, Any, T]]) -> T:
        return await self._store.snapshot(read)

    async def read(
        self,
        table: LedgerTable,
        after: tuple[Any, ...] | None,
        limit: int,
        *,
        above_sid: int | None = None,
        upto_sid: int | None = None,
        managed_by: str | None = None,
    ) -> list[tuple[Any, ...]]:
        return await self._store.read(
            table, after, limit, above_sid=above_sid, upto_sid=upto_sid, managed_by=managed_by
        )

    async def backlog(self, now: int) -> dict[str, int]:
        return await self._store.backlog(now)

    async def prune_day(self, before: int) -> Pruned | None:
        return await self._store.prune_day(before)

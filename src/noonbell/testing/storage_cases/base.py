"""Shared parts of the storage cases: a store factory, small declarations to fill it with, and the whole ledger at once.

Time is made up: `T0` is midnight, tasks fire every minute unless they say otherwise, and no clock is read.
"""

# ruff: noqa: S101 - asserting is what these cases are for
from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC
from typing import Any, Final, Generic, TypeVar

from noonbell.core.records import (
    ChangedSchedule,
    Declaration,
    LifecycleEvent,
    LiveRun,
    NewSchedule,
    Settlement,
    Start,
    StoredSchedule,
    Turn,
)
from noonbell.core.terms import declared_terms
from noonbell.core.turns import look
from noonbell.ledger.ledger_rows import schedule_rows
from noonbell.ports import LEDGER_TABLES, Claimed, Decide, Ledger
from noonbell.timing import cron_timing

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
T0: Final = 1_704_067_200 * SECOND  # 2024-01-01 00:00 UTC
OWNER: Final = "scheduler:suite"
OTHER: Final = "scheduler:other"
ME: Final = "instance-1"

E = TypeVar("E", bound=BaseException)


class StorageCases:
    """A subclass says how its store is made; see StorageSuite."""

    async def make_store(self) -> Ledger:
        """A store on new, empty data."""
        raise NotImplementedError

    async def reopen(self, store: Ledger) -> Ledger:
        """Another handle on the data of `store`, which may be open, closed or killed."""
        raise NotImplementedError

    async def holder_dies(self) -> None:
        """Return when the holder of a name who was killed counts as dead; where that is at once, do nothing."""

    @asynccontextmanager
    async def opened(self, *tasks: str) -> AsyncIterator[Ledger]:
        """A new store, open, with these tasks declared at T0: their sids count from 1."""
        store = await self.make_store()
        await store.open()
        try:
            if tasks:
                await store.schedules.declare(declaration(created=[new(name) for name in tasks]))
            yield store
        finally:
            await store.close()


class Raised(Generic[E]):
    """The exception that a block has raised."""

    error: E


@contextmanager
def raises(kind: type[E]) -> Iterator[Raised[E]]:
    """The block has to raise an error of this kind."""
    raised: Raised[E] = Raised()
    try:
        yield raised
    except kind as error:
        raised.error = error
    else:
        raise AssertionError(f"{kind.__name__} was not raised")


def new(
    name: str, *, cursor_at: int = T0, next_run_at: int | None = T0 + MINUTE, key: str | None = None
) -> NewSchedule:
    """A task of every minute."""
    return NewSchedule(
        schedule_id=key or f"id-{name}", name=name, type="cron", spec="* * * * *", timezone="UTC", zone_hash="z1",
        policies="{}", retry_delay_us=5 * MINUTE, cursor_at=cursor_at, next_run_at=next_run_at,
    )  # fmt: skip


def changed(sid: int, *, cursor_at: int, next_run_at: int | None, epoch: int, new_epoch: bool) -> ChangedSchedule:
    """The same task, from now on every hour."""
    return ChangedSchedule(
        sid=sid, spec="0 * * * *", timezone="UTC", zone_hash="z2", policies="{}", retry_delay_us=MINUTE, epoch=epoch,
        cursor_at=cursor_at, next_run_at=next_run_at, new_epoch=new_epoch,
    )  # fmt: skip


def declaration(managed_by: str = OWNER, at: int = T0, **parts: Any) -> Declaration:
    """A declaration that does only what is named."""
    names = ("created", "changed", "removed", "revived", "interrupted", "events", "parked")
    return Declaration(managed_by, at, **{name: list(parts.get(name, ())) for name in names})


def event(name: Any, at: int = T0, managed_by: str = OWNER) -> LifecycleEvent:
    return LifecycleEvent(managed_by, at, ME, name)


async def record_step(store: Ledger, step: LifecycleEvent) -> None:
    """Append to the lifecycle of an owner."""
    await store.schedules.declare(declaration(step.managed_by, step.at, events=[step]))


def deciding(now: int, cron: str = "* * * * *") -> Decide:
    """The engine's own decision, for tasks of one expression."""
    terms = declared_terms(cron_timing(cron, UTC), "preempt")

    def decide(stored: StoredSchedule) -> Turn:
        return look(stored, now, terms=terms)

    return decide


async def claim(store: Ledger, now: int, *, limit: int = 100, owner: str = ME, managed_by: str = OWNER) -> Claimed:
    return (await store.runs.claim(managed_by, owner, now, limit, deciding(now))).claimed


async def start_one(store: Ledger, now: int) -> Start:
    """Claim, where exactly one task is due."""
    (start,) = (await claim(store, now)).starts
    return start


async def fail(store: Ledger, start: Start, at: int, retry_at: int | None, error: str = "ValueError: no") -> None:
    settled = await store.runs.settle([Settlement(start, ME, "failed", at, retry_at, error)])
    assert settled.stale == []


async def only_live(store: Ledger, sid: int) -> LiveRun:
    (live,) = await store.runs.live(sid)
    return live


async def row_of(store: Ledger, sid: int) -> dict[str, Any]:
    (row,) = [row for row in await schedule_rows(store) if row["sid"] == sid]
    return dict(row)


async def ledger(store: Ledger) -> dict[str, Sequence[tuple[Any, ...]]]:
    """Every row of every table."""
    return {table: await store.read(table, None, 1_000_000) for table in LEDGER_TABLES}

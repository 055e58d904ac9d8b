"""The ledger as a whole: its life, its parts, and what belongs to none of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

from noonbell.ports.audit import LedgerAudit
from noonbell.ports.documents import LedgerDocuments
from noonbell.ports.engines import LedgerEngines
from noonbell.ports.history import LedgerHistory
from noonbell.ports.ledger_tables import LedgerTable
from noonbell.ports.outbox import LedgerOutbox
from noonbell.ports.runs import LedgerRuns
from noonbell.ports.schedules import LedgerSchedules

T = TypeVar("T")

# The attributes of a ledger that hold its parts.
PARTS: Final = ("schedules", "runs", "history", "engines", "outbox", "documents", "audit")


class BackgroundService(Protocol):
    """A service that runs until it is stopped."""

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set. A service that raised is run again."""
        ...


class Hold(Protocol):
    """The exclusive right to a scheduler's name, kept while its instance lives."""

    def release(self) -> None: ...


class Pruned(NamedTuple):
    """The amounts that were dropped of a day."""

    day: int
    runs: int
    spans: int
    attempts: int
    audits: int
    dead_letters: int
    lifecycle_events: int = 0


@runtime_checkable
class Ledger(Protocol):
    """A durable ledger, in parts. An engine holds its own name (`core.presence.engine_name`).

    Where this handle holds the name of an owner, verbs that act for the owner raise LeaseLostError once the name is
    lost.
    """

    @property
    def schedules(self) -> LedgerSchedules: ...

    @property
    def runs(self) -> LedgerRuns: ...

    @property
    def history(self) -> LedgerHistory: ...

    @property
    def engines(self) -> LedgerEngines: ...

    @property
    def outbox(self) -> LedgerOutbox: ...

    @property
    def documents(self) -> LedgerDocuments: ...

    @property
    def audit(self) -> LedgerAudit: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def kill(self) -> None:
        """Drop everything at once, as a dying process does: nothing more is written, locks are free. For tests."""
        ...

    async def hold(self, name: str, holder: str) -> Hold:
        """Take the name, or raise SchedulerInUseError that names its holder."""
        ...

    async def holder(self, name: str) -> str | None:
        """Return who holds the name now, or None. The name is not taken."""
        ...

    @property
    def lease_seconds(self) -> float:
        """Return for how long after its last heartbeat a dead holder may count as alive; 0: it is known at once."""
        ...

    @property
    def has_shared_clock(self) -> bool:
        """Return whether the store has a clock of its own, which all engines go by."""
        ...

    @property
    def clock_offset_us(self) -> int:
        """Return how far the shared clock is ahead of this machine's, while a name is held; else 0."""
        ...

    def subscribe(self, lane: str, wake: Callable[[int], None]) -> Callable[[], None]:
        """Call `wake` with instants at which other processes have made schedules of the lane due, as hints.

        Hints may be lost; a store that has none never calls. Returns what ends the subscription.
        """
        ...

    def services(self, lane: str, wake: Callable[[int], None]) -> Mapping[str, BackgroundService]:
        """Return what an engine of the lane runs beside its loop for this ledger; `wake` polls at an instant."""
        ...

    async def snapshot(self, read: Callable[[Ledger], Coroutine[Any, Any, T]]) -> T:
        """Call `read` with a ledger on which every verb reads from the same snapshot, and return its result.

        All of it is one transaction, in which nothing can be written. On SQLite `read` runs in the thread of the
        connection, and other verbs wait for it: it awaits nothing but verbs of that ledger, one after the other, and
        leaves what can be computed later to its caller.
        """
        ...

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
        """Return up to `limit` raw rows of a table, in the order of its key and past the key `after`.

        The columns and keys are those of LEDGER_TABLES. Bounds on the sid (above_sid < sid <= upto_sid) narrow it to
        some schedules, and `managed_by` to those of an owner, where the table has such a column. Damaged rows come as
        they are stored.
        """
        ...

    async def backlog(self, now: int) -> dict[str, int]:
        """Count the schedules that are `due` by now, and the live runs that are `queued`, `running` and `waiting`.

        `outbox`: the messages that wait to be delivered; `outbox_oldest_us`: the age of the oldest of them; and the
        `dead_letters`.
        """
        ...

    async def prune_day(self, before: int) -> Pruned | None:
        """Drop the oldest day of the ledger if it ended by `before`; None if there is none or another prunes it now.

        Runs and attempts of the day, spans that end in it, audit events, dead letters: a PrunedDay for each schedule
        and epoch keeps the counts. Live runs, epochs and undecided time are not touched. What stays of a schedule's
        history remains linked.
        """
        ...

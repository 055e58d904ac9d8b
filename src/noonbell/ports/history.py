"""The port of the history: epochs, spans, ended runs and their attempts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from noonbell.core.records import Attempt, Epoch, History, Kind, Outcome, Run, Span
from noonbell.core.run_chain import RunKey


class LedgerKey(NamedTuple):
    """The place of a run in the ledger."""

    run_for: int
    sid: int
    kind: Kind


class PastRun(NamedTuple):
    """An ended run, and the schedule and the team that it belongs to."""

    schedule_id: str
    name: str
    run: Run
    team: str


class RunFilter(NamedTuple):
    """A filter of the ended runs of a schedule; None leaves a part open, the bounds on their instants are included.

    With `instants` those for these instants, each by one look-up.
    """

    sid: int
    from_at: int | None = None
    to_at: int | None = None
    kind: Kind | None = None
    instants: Sequence[int] | None = None


class LedgerHistory(Protocol):
    """The history of each schedule."""

    async def find(self, schedule_id: str) -> History | None:
        """Return where the history of a durable schedule begins, also of a deleted one; None without one."""
        ...

    async def epochs(self, sid: int) -> list[Epoch]:
        """Return the epochs of a schedule, oldest first."""
        ...

    async def spans(
        self, sid: int, from_at: int, to_at: int, limit: int | None = None, *, newest_first: bool = False
    ) -> list[Span]:
        """Return up to `limit` spans that touch [from_at, to_at]; it costs what it returns."""
        ...

    async def runs(self, wanted: RunFilter, limit: int | None = None, *, newest_first: bool = False) -> list[Run]:
        """Return up to `limit` ended runs in the order of their instants.

        The runs of other schedules between them are passed over one by one.
        """
        ...

    async def attempts(self, sid: int, from_at: int, to_at: int) -> list[Attempt]:
        """Return recorded attempts of runs for instants in [from_at, to_at]."""
        ...

    async def past_runs(self, sids: Sequence[int], before: RunKey | None, limit: int) -> list[Run]:
        """Return up to `limit` ended runs of each schedule, by sid and in the order of their ends, the last first.

        With `before` those that ended before that run of the schedule. It costs what it returns, however long the
        history is. It ends where the older runs were pruned; if `before` was pruned itself, it returns nothing.
        """
        ...

    async def latest_runs(self, before: LedgerKey | None, limit: int, outcome: Outcome | None = None) -> list[PastRun]:
        """Return ended runs of all durable schedules in the order of their instants, the last first, past `before`."""
        ...

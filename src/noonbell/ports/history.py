"""What has happened: epochs, spans, ended runs and their attempts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from noonbell.core.history import RunKey
from noonbell.core.records import Attempt, Epoch, History, Kind, Outcome, Run, Span


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


class LedgerHistory(Protocol):
    """What has happened, by schedule."""

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

    async def runs(
        self,
        sid: int,
        from_at: int,
        to_at: int,
        kind: Kind | None = None,
        limit: int | None = None,
        *,
        newest_first: bool = False,
    ) -> list[Run]:
        """Return up to `limit` ended runs for instants in [from_at, to_at].

        The runs of other schedules between them are passed over one by one.
        """
        ...

    async def runs_for(self, sid: int, instants: Sequence[int]) -> list[Run]:
        """Return the ended scheduled runs for these occurrences, each by one look-up."""
        ...

    async def attempts(self, sid: int, from_at: int, to_at: int) -> list[Attempt]:
        """Return recorded attempts of runs for instants in [from_at, to_at]."""
        ...

    async def past_runs(self, sid: int, before: RunKey | None, limit: int) -> list[Run]:
        """Return ended runs of a schedule in the order of their ends, the last first, past `before`.

        It costs what it returns, however long the history is. It ends where the older runs were pruned; if `before`
        was pruned itself, it returns nothing.
        """
        ...

    async def latest_runs(self, before: LedgerKey | None, limit: int, outcome: Outcome | None = None) -> list[PastRun]:
        """Return ended runs of all durable schedules in the order of their instants, the last first, past `before`."""
        ...

    async def last_outcomes(self, sids: Sequence[int]) -> dict[int, Outcome]:
        """Return the outcome of the run that ended last, by schedule; schedules without one are left out."""
        ...

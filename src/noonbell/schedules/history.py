"""Looking back: the runs of a schedule, of all schedules, one run whole, and what they add up to.

Histories hold the runs that have ended; what is queued, executing or waiting for its retry is returned by `run`. They
reach back as far as the ledger is kept, and a deleted schedule keeps its own. The runs of one schedule come in the
order of their ends, those of all schedules in the order of what they are for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, get_args

import msgspec

from noonbell.core.attempts import FIRST_KEPT, omitted
from noonbell.core.ids import RunId, parse_run_id, run_id
from noonbell.core.instants import moment
from noonbell.core.records import Attempt as StoredAttempt
from noonbell.core.records import Cause, History, Kind, LiveRun, Outcome
from noonbell.core.records import Run as StoredRun
from noonbell.core.run_chain import RunKey, key_of
from noonbell.core.turns import cause_of
from noonbell.errors import ScheduleInvalidError, ScheduleNotFoundError
from noonbell.ports import Ledger, LedgerKey, PastRun, RunFilter
from noonbell.schedules.arguments import require_id
from noonbell.schedules.occurrences import kind_of
from noonbell.schedules.schedule_records import Attempt, Page, attempt_records, page_size
from noonbell.schedules.statistics import Statistics, statistics_of

MOST_COUNTED: Final = 100_000
"""So many runs a statistic may look at."""

MOST_SOUGHT: Final = 20_000
"""So many runs a page of one team is looked for in."""

_BLOCK: Final = 1_000


class Run(msgspec.Struct, frozen=True):
    """A run. `state` is its outcome, or where it stands: queued, running, waiting.

    `started_at` is the start of its first attempt, `waited_seconds` how long that waited before it for an HTTP slot or
    a thread. `tried` and `attempts_omitted` are filled by `Schedules.run` alone. Of many attempts the record keeps the
    first and the last (`core.attempts`); so many between them were omitted.
    """

    run_id: str
    schedule_id: str
    name: str
    kind: Kind
    scheduled_for: datetime
    state: str
    attempts: int
    started_at: datetime | None
    ended_at: datetime | None
    tried: tuple[Attempt, ...] = ()
    waited_seconds: float = 0.0
    attempts_omitted: int = 0

    @property
    def first_after_omitted(self) -> Attempt | None:
        """The attempt before which some were omitted."""
        return next((one for one in self.tried if one.attempt > FIRST_KEPT), None) if self.attempts_omitted else None

    @property
    def duration(self) -> timedelta | None:
        """The time from its first attempt to its end."""
        return None if self.started_at is None or self.ended_at is None else self.ended_at - self.started_at

    @property
    def lateness(self) -> timedelta | None:
        """Return how long after its occurrence it began; None for a manual run, and for one that has not begun."""
        return None if self.started_at is None or self.kind == "manual" else self.started_at - self.scheduled_for


class RunHistory:
    """The part of `Schedules` that looks back."""

    _store: Ledger
    _team: str | None  # whose schedules are seen; None: those of all

    async def runs(self, schedule_id: str, *, cursor: str | None = None, limit: int = 100) -> Page[Run]:
        """The ended runs of a schedule, scheduled and manual, the one that ended last first."""
        size = page_size(limit)
        before = None if cursor is None else RunKey(*_read_cursor(cursor, ("run_for", "kind")))

        async def read(store: Ledger) -> tuple[History, list[StoredRun]]:
            history = await self._history(schedule_id, store)
            return history, await store.history.past_runs([history.sid], before, size + 1)

        history, found = await self._store.snapshot(read)
        items = [ended_run(history, run) for run in found[:size]]
        return Page(items, _cursor(*key_of(found[size - 1])) if len(found) > size else None)

    async def recent_runs(
        self,
        *,
        cursor: str | None = None,
        limit: int = 100,
        outcome: Outcome | None = None,
        team: str | None = None,
    ) -> Page[Run]:
        """The ended runs of all schedules, or those with this outcome; the one for the latest instant first.

        Those of one team are looked for among the runs of all, MOST_SOUGHT at a time: where a team runs little beside
        others, a page may hold fewer than `limit`, or none, and still have a `next_cursor`.
        """
        if outcome is not None and outcome not in get_args(Outcome):
            raise ScheduleInvalidError("outcome", outcome, f"must be one of {', '.join(get_args(Outcome))}")
        size = page_size(limit)
        before = None if cursor is None else LedgerKey(*_read_cursor(cursor, ("run_for", "sid", "kind")))
        only = self._only(team)
        if only is None:
            found, reached = await self._store.history.latest_runs(before, size + 1, outcome), None
        else:
            found, reached = await self._store.snapshot(lambda store: _of_team(store, only, before, size + 1, outcome))
        items = [_ended(one.schedule_id, one.name, one.run) for one in found[:size]]
        place = _place(found[size - 1]) if len(found) > size else reached
        return Page(items, None if place is None else _cursor(*place))

    async def run(self, run_id: str) -> Run:
        """Return one run, ended or not, with all its attempts and their output."""
        schedule_id, kind, run_for = _read_run_id(run_id)
        require_id("run", schedule_id)

        async def read(store: Ledger) -> Run:
            history = await store.history.find(schedule_id)
            if history is None or self._team not in (None, history.team):
                raise ScheduleNotFoundError("run", run_id)
            recorded = await store.history.attempts(history.sid, run_for, run_for)
            tried = [one for one in recorded if one.kind == kind]
            for ended in await store.history.runs(RunFilter(history.sid, run_for, run_for, kind)):
                return ended_run(history, ended, await _with_plain(store, ended, tried))
            for live in await store.runs.live(history.sid):
                if (live.kind, live.run_for) == (kind, run_for):
                    return live_run(history, live, tried)
            raise ScheduleNotFoundError("run", run_id)

        return await self._store.snapshot(read)

    async def statistics(self, schedule_id: str, *, last: int = 100) -> Statistics:
        """Return statistics of the `last` ended runs of a schedule."""
        if type(last) is not int or not 1 <= last <= MOST_COUNTED:
            raise ScheduleInvalidError("last", last, f"must be a number of runs from 1 to {MOST_COUNTED}")

        async def read(store: Ledger) -> tuple[History, list[StoredRun]]:
            history = await self._history(schedule_id, store)
            return history, await store.history.past_runs([history.sid], None, min(_BLOCK, last))

        history, runs = await self._store.snapshot(read)
        while len(runs) % _BLOCK == 0 < len(runs) < last:  # many are read block by block: others use the store as well
            block = await self._store.history.past_runs([history.sid], key_of(runs[-1]), min(_BLOCK, last - len(runs)))
            if not block:
                break
            runs += block
        return statistics_of(history, runs, last, lambda run: run_id(schedule_id, run.kind, run.run_for))

    def _only(self, team: str | None) -> str | None:
        """The team that is asked for, or the one that is seen."""
        if self._team is not None and team not in (None, self._team):
            raise ScheduleInvalidError("team", team, f'must be "{self._team}" here, or be left out')
        return team if self._team is None else self._team

    async def _history(self, schedule_id: str, store: Ledger | None = None) -> History:
        require_id("schedule", schedule_id)
        found = await (self._store if store is None else store).history.find(schedule_id)
        if found is None or self._team not in (None, found.team):
            raise ScheduleNotFoundError("schedule", schedule_id)
        return found


# --- reading from a snapshot ------------------------------------------------------------------------------------------


async def _of_team(
    store: Ledger, team: str, before: LedgerKey | None, wanted: int, outcome: Outcome | None
) -> tuple[list[PastRun], LedgerKey | None]:
    """Return up to `wanted` runs, and where the search ended if it was given up."""
    found: list[PastRun] = []
    sought, block = 0, wanted
    while sought < MOST_SOUGHT:
        rows = await store.history.latest_runs(before, block, outcome)
        found += [one for one in rows if one.team == team]
        if len(found) >= wanted or len(rows) < block:
            return found, None
        sought, before, block = sought + block, _place(rows[-1]), min(4 * block, _BLOCK)
    return found, before


async def _with_plain(store: Ledger, run: StoredRun, tried: Sequence[StoredAttempt]) -> Sequence[StoredAttempt]:
    """The attempts of a run: a single one that succeeded and left no detail is known from the run alone."""
    if tried or run.attempts != 1 or run.outcome != "succeeded":
        return tried
    kinds = {epoch.epoch: kind_of(epoch) for epoch in await store.history.epochs(run.sid)}
    cause: Cause = "manual" if run.kind == "manual" else cause_of(kinds.get(run.epoch, "cron"))
    return [
        StoredAttempt(
            run.sid, run.run_for, run.kind, 1, "succeeded", cause, run.began_at, run.ended_at, run.owner, None
        )
    ]


def _place(past: PastRun) -> LedgerKey:
    return LedgerKey(past.run.run_for, past.run.sid, past.run.kind)


def _id(schedule_id: str, run: StoredRun | LiveRun) -> str:
    return run_id(schedule_id, run.kind, run.run_for)


def ended_run(history: History, run: StoredRun, tried: Iterable[StoredAttempt] = ()) -> Run:
    return _ended(history.schedule_id, history.name, run, tried)


def _ended(schedule_id: str, name: str, run: StoredRun, tried: Iterable[StoredAttempt] = ()) -> Run:
    return Run(
        _id(schedule_id, run), schedule_id, name, run.kind, moment(run.run_for), run.outcome, run.attempts,
        moment(run.began_at), moment(run.ended_at), attempt_records(tried := list(tried)), run.waited_us / 1_000_000,
        attempts_omitted=omitted(tried),
    )  # fmt: skip


def live_run(history: History, live: LiveRun, tried: Iterable[StoredAttempt]) -> Run:
    started = None if live.started_at is None else moment(live.started_at)
    schedule_id = history.schedule_id
    return Run(
        _id(schedule_id, live), schedule_id, history.name, live.kind, moment(live.run_for), live.state, live.attempt,
        started, None, attempt_records(tried := list(tried)), attempts_omitted=omitted(tried),
    )  # fmt: skip


# --- what is read from outside ----------------------------------------------------------------------------------------


def _cursor(*parts: object) -> str:
    return ".".join(map(str, parts))


def _number(text: str) -> int | None:
    """A whole number that a store can hold."""
    try:
        number = int(text)
    except ValueError:
        return None
    return number if -(1 << 63) <= number < 1 << 63 else None


def _read_cursor(cursor: object, names: Sequence[str]) -> tuple[Any, ...]:
    parts = cursor.split(".") if isinstance(cursor, str) else []
    numbers = [_number(part) for part in parts[:-1]]
    if len(parts) == len(names) and None not in numbers and parts[-1] in get_args(Kind):
        return (*numbers, parts[-1])
    raise ScheduleInvalidError("cursor", cursor, "must be the next_cursor of a page")


def _read_run_id(given: object) -> RunId:
    found = parse_run_id(given) if isinstance(given, str) else None
    if found is None:
        raise ScheduleNotFoundError("run", str(given))
    return found

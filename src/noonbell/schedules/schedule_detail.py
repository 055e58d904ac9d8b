"""One schedule with everything that a page about it shows, read from one snapshot of the store.

How much is read depends on how many runs and occurrences are asked for, not on how long the schedule has existed or how
often it fires.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from noonbell.core.ids import run_id
from noonbell.core.instants import moment
from noonbell.core.records import Attempt, Epoch, History, LiveRun, QuietHoursPolicy, StoredSchedule
from noonbell.core.records import Run as StoredRun
from noonbell.ports import Clock, Ledger, ScheduleFilter
from noonbell.schedules import arguments
from noonbell.schedules.history import Run, RunHistory, ended_run, live_run
from noonbell.schedules.occurrences import decided_newest, upcoming
from noonbell.schedules.schedule_records import (
    Occurrence,
    Page,
    QuietHoursRecord,
    Schedule,
    Upcoming,
    page_size,
    quiet_hours_record,
    schedule_record,
)
from noonbell.schedules.statistics import Statistics, statistics_of

MOST_LIVE: Final = 20
"""Of so many live runs the attempts are read; others are left out."""


class ScheduleDetail(NamedTuple):
    """A schedule, deleted or not; of a deleted one `schedule` is None, and nothing comes.

    `runs` are the ended ones, the one that ended last first, and `statistics` is about these. `occurrences` are the
    newest first, up to the instant that was asked for.
    """

    history: History
    began_at: datetime
    schedule: Schedule | None
    coming: Sequence[Upcoming]
    quiet_hours: QuietHoursRecord | None
    live: Sequence[Run]
    runs: Sequence[Run]
    statistics: Statistics
    occurrences: Page[Occurrence]


class _Rows(NamedTuple):
    """The rows of a schedule that are read in one transaction."""

    history: History
    stored: StoredSchedule | None
    epochs: list[Epoch]
    live: list[tuple[LiveRun, list[Attempt]]]
    runs: list[StoredRun]
    occurrences: list[tuple[int, Occurrence]]
    quiet: QuietHoursPolicy | None


class Details(RunHistory):
    """The part of `Schedules` that shows one schedule whole."""

    _clock: Clock

    async def detail(
        self,
        schedule_id: str,
        *,
        upto: datetime | None = None,
        occurrences: int = 30,
        runs: int = 200,
        coming: int = 10,
    ) -> ScheduleDetail:
        """A schedule with its next, live and ended runs, and its occurrences up to `upto`, which is now by default."""
        now = self._clock.now()
        until = now if upto is None else arguments.instant("upto", upto)
        shown, wanted, ahead = (page_size(count) for count in (occurrences, runs, coming))

        async def read(store: Ledger) -> _Rows:
            history = await self._history(schedule_id, store)
            found = (
                await store.schedules.find(ScheduleFilter(schedule_ids=[schedule_id]))
                if history.removed_at is None
                else []
            )
            stored = found[0] if found else None
            epochs = await store.history.epochs(history.sid)
            decided = await decided_newest(
                store, history.sid, stored, now, after=-1, upto=until, limit=shown + 1, epochs=epochs
            )
            lives = [] if stored is None else stored.lives[:MOST_LIVE]
            return _Rows(
                history,
                stored,
                epochs,
                [(live, await _attempts_of(store, live)) for live in lives],
                await store.history.past_runs([history.sid], None, wanted),
                decided,
                await self._quiet_hours_of(store, stored),
            )

        rows = await self._store.snapshot(read)
        history, stored, found = rows.history, rows.stored, rows.occurrences
        return ScheduleDetail(
            history,
            moment(rows.epochs[0].from_at),
            None if stored is None else schedule_record(stored, now=now),
            [] if stored is None or not stored.enabled else upcoming(stored, now, ahead),
            None if rows.quiet is None else quiet_hours_record(rows.quiet),
            [live_run(history, live, tried) for live, tried in rows.live],
            [ended_run(history, run) for run in rows.runs],
            statistics_of(history, rows.runs, wanted, lambda run: run_id(schedule_id, run.kind, run.run_for)),
            Page([one for _, one in found[:shown]], str(found[shown - 1][0]) if len(found) > shown else None),
        )

    async def _quiet_hours_of(self, store: Ledger, stored: StoredSchedule | None) -> QuietHoursPolicy | None:
        policy_id = None if stored is None else stored.columns.quiet_hours_policy_id
        found = [] if policy_id is None else await store.schedules.quiet_hours(policy_id)
        return found[0] if found and self._team in (None, found[0].team) else None


async def _attempts_of(store: Ledger, live: LiveRun) -> list[Attempt]:
    return [one for one in await store.history.attempts(live.sid, live.run_for, live.run_for) if one.kind == live.kind]

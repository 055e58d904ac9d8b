"""Statistics of the latest runs of a schedule. Pure.

A run has succeeded, or it has not: `failed`, `abandoned` and `unknown` all count against it. Its duration is that of
the whole run, from its first attempt to its end, waits for retries included. It is late by what lies between the
occurrence and its first attempt, be it jitter, a backlog or an engine that was down; one that a person asked for has no
lateness. Percentiles are values that were measured: the smallest that so many percent do not exceed.

Runs that were pruned are not forgotten: `all_runs` and `all_succeeded` count them, and `pruned` says how many of those
that were asked for are not among the numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Literal

import msgspec

from noonbell.core.instants import moment
from noonbell.core.records import History, Run

RunIdOf = Callable[[Run], str]


class Spread(msgspec.Struct, frozen=True):
    """The middle of some durations, and what all but the longest stay below."""

    p50: timedelta
    p95: timedelta


class Streak(msgspec.Struct, frozen=True):
    """The latest runs in a row that have all succeeded, or all failed: which, and how many."""

    of: Literal["succeeded", "failed"]
    runs: int


class LastFailure(msgspec.Struct, frozen=True):
    """The latest run that did not succeed."""

    run_id: str
    outcome: str
    scheduled_for: datetime
    ended_at: datetime


class Statistics(msgspec.Struct, frozen=True):
    """The latest runs of a schedule, in numbers. What depends on runs is None where there are none."""

    schedule_id: str
    runs: int
    succeeded: int
    failed: int
    abandoned: int
    unknown: int
    success_rate: float | None
    duration: Spread | None
    lateness: Spread | None
    streak: Streak | None
    last_failure: LastFailure | None
    since: datetime | None  # the end of the oldest of these runs
    pruned: int
    all_runs: int
    all_succeeded: int


def statistics_of(history: History, runs: Sequence[Run], last: int, run_id_of: RunIdOf) -> Statistics:
    """The numbers of `runs`, newest first, which are what is left of the `last` that were asked for."""
    counts = Counter(run.outcome for run in runs)
    unsuccessful = next((run for run in runs if run.outcome != "succeeded"), None)
    return Statistics(
        schedule_id=history.schedule_id,
        runs=len(runs),
        succeeded=counts["succeeded"],
        failed=counts["failed"],
        abandoned=counts["abandoned"],
        unknown=counts["unknown"],
        success_rate=counts["succeeded"] / len(runs) if runs else None,
        duration=_spread([run.ended_at - run.began_at for run in runs]),
        lateness=_spread([run.began_at - run.run_for for run in runs if run.kind == "scheduled"]),
        streak=_streak(runs),
        last_failure=None
        if unsuccessful is None
        else LastFailure(
            run_id_of(unsuccessful), unsuccessful.outcome, moment(unsuccessful.run_for), moment(unsuccessful.ended_at)
        ),
        since=moment(runs[-1].ended_at) if runs else None,
        pruned=max(min(last, history.ended_runs) - len(runs), 0),
        all_runs=history.ended_runs,
        all_succeeded=history.succeeded_runs,
    )


def _streak(runs: Sequence[Run]) -> Streak | None:
    if not runs:
        return None
    good = runs[0].outcome == "succeeded"
    same = takewhile(lambda run: (run.outcome == "succeeded") == good, runs)
    return Streak("succeeded" if good else "failed", sum(1 for _ in same))


def _spread(durations: Sequence[int]) -> Spread | None:
    if not durations:
        return None
    ordered = sorted(durations)
    return Spread(*(timedelta(microseconds=ordered[-(-percent * len(ordered) // 100) - 1]) for percent in (50, 95)))

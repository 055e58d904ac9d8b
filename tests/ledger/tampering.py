"""Ways to tamper with the ledger of `eventful`, and what verify has to say of each.

The SQL may use the instants and lengths of NAMES.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.ledger.history import SECOND, us

NAMES: Final = {
    "first": us("2026-11-15T00:00:00"),
    "at": us("2026-11-15T00:10:00"),
    "half": us("2026-11-15T00:30:00"),
    "down": us("2026-11-15T00:31:00"),  # the first occurrence of a span that ends at 01:09
    "up": us("2026-11-15T01:10:00"),
    "last": us("2026-11-15T01:21:00"),
    "later": us("2026-11-15T02:00:00"),
    "minute": 60 * SECOND,
    "second": SECOND,
}


class Tampering(NamedTuple):
    """One way; `said` is the end of the sentence that names `task`, or all of it where no task is to blame."""

    how: str
    sql: str
    task: str | None
    said: str


TAMPERINGS: Final = [
    Tampering(
        "a run is deleted",
        "DELETE FROM runs WHERE sid = 1 AND run_for = :at",
        "sync",
        "the occurrence 2026-11-15T00:10:00Z has no verdict: no run and no span answers for it.",
    ),
    Tampering(
        "several runs are deleted",
        "DELETE FROM runs WHERE sid = 1 AND run_for BETWEEN :at AND :at + 3 * :minute",
        "sync",
        (
            "4 occurrences, the first of them 2026-11-15T00:10:00Z, have no verdict: no run and no "
            "span answers for them."
        ),
    ),
    Tampering(
        "the first run is deleted",
        "DELETE FROM runs WHERE sid = 1 AND run_for = :first",
        "sync",
        "the occurrence 2026-11-15T00:00:00Z has no verdict: no run and no span answers for it.",
    ),
    Tampering(
        "the live run is deleted",
        "DELETE FROM runs_live WHERE sid = 1",
        "sync",
        "the occurrence 2026-11-15T01:21:00Z has no verdict: no run and no span answers for it.",
    ),
    Tampering(
        "a span is deleted",
        "DELETE FROM spans WHERE sid = 1 AND from_at = :down",
        "sync",
        (
            "39 occurrences, the first of them 2026-11-15T00:31:00Z, have no verdict: no run and no "
            "span answers for them."
        ),
    ),
    Tampering(
        "a run is doubled by a span",
        "INSERT INTO spans VALUES (1, :at, :at, 1, 'coalesced', 'x', 1)",
        "sync",
        (
            "the occurrence 2026-11-15T00:10:00Z has two verdicts: a span from 2026-11-15T00:10:00Z "
            "to 2026-11-15T00:10:00Z, and a run."
        ),
    ),
    Tampering(
        "a run is doubled by a live run",
        (
            "INSERT INTO runs_live SELECT sid, kind, run_for, 1, NULL, 'waiting', 1, ended_at, "
            "started_at, started_at, 0, epoch, 'cron' FROM run_records WHERE sid = 1 AND run_for = :at"
        ),
        "sync",
        "the occurrence 2026-11-15T00:10:00Z has two verdicts: a live run (waiting), and a run.",
    ),
    Tampering(
        "a run names another one before it than there was",
        "UPDATE runs SET prev_for = :first WHERE sid = 1 AND run_for = :at",
        "sync",
        ("its history is broken: of 33 ended runs back from 2026-11-15T01:13:00Z some are not reached."),
    ),
    Tampering(
        "a schedule names another run as its last",
        "UPDATE schedule_state SET last_ended_for = :at WHERE sid = 1",
        "sync",
        ("its history is broken: of 33 ended runs back from 2026-11-15T00:10:00Z some are not reached."),
    ),
    Tampering(
        "a schedule has forgotten how many runs have ended",
        "UPDATE schedule_state SET ended_runs = 3, succeeded_runs = 2 WHERE sid = 1",
        "sync",
        "it counts 3 ended runs, but 33 are there.",
    ),
    Tampering(
        "a schedule counts more good runs than runs",
        "UPDATE schedule_state SET succeeded_runs = ended_runs + 1 WHERE sid = 1",
        "sync",
        "it counts 33 ended runs, 34 of them successful, which cannot be.",
    ),
    Tampering(
        "a run is doubled under another schedule",
        (
            "INSERT INTO runs SELECT run_for, 77, kind, outcome, attempts, started_at, ended_at, "
            "owner, epoch, prev_for, prev_manual, waited_us FROM runs WHERE sid = 1 AND run_for = :at"
        ),
        None,
        "A row of runs (2026-11-15T00:10:00Z) belongs to schedule 77, which does not exist.",
    ),
    Tampering(
        "a span is doubled",
        (
            "INSERT INTO spans SELECT sid, from_at + 5 * :minute, to_at, n - 5, verdict, reason, "
            "epoch FROM spans WHERE sid = 1 AND from_at = :down"
        ),
        "sync",
        (
            "the occurrence 2026-11-15T00:36:00Z has two verdicts: a span from 2026-11-15T00:31:00Z "
            "to 2026-11-15T01:09:00Z, and a span from 2026-11-15T00:36:00Z to 2026-11-15T01:09:00Z."
        ),
    ),
    Tampering(
        "a run is shifted by a minute",
        "UPDATE runs SET run_for = run_for + :minute WHERE sid = 3 AND run_for = :half",
        "gone",
        "a run for 2026-11-15T00:31:00Z lies after its cursor.",
    ),
    Tampering(
        "a run is shifted back by a minute",
        "UPDATE runs SET run_for = run_for - :minute WHERE sid = 3 AND run_for = :half",
        "gone",
        "a run for 2026-11-15T00:29:00Z answers for nothing: that is not an occurrence.",
    ),
    Tampering(
        "a run is shifted by a second",
        "UPDATE runs SET run_for = run_for + :second WHERE sid = 1 AND run_for = :at",
        "sync",
        "a run for 2026-11-15T00:10:01Z answers for nothing: that is not an occurrence.",
    ),
    Tampering(
        "a span begins a minute late",
        "UPDATE spans SET from_at = from_at + :minute WHERE sid = 1 AND from_at = :down",
        "sync",
        "the occurrence 2026-11-15T00:31:00Z has no verdict: no run and no span answers for it.",
    ),
    Tampering(
        "a span ends a minute late",
        "UPDATE spans SET to_at = to_at + :minute WHERE sid = 1 AND from_at = :down",
        "sync",
        (
            "the occurrence 2026-11-15T01:10:00Z has two verdicts: a span from 2026-11-15T00:31:00Z "
            "to 2026-11-15T01:10:00Z, and a run."
        ),
    ),
    Tampering(
        "a span counts wrong",
        "UPDATE spans SET n = n + 1 WHERE sid = 1 AND from_at = :down",
        "sync",
        "the span from 2026-11-15T00:31:00Z to 2026-11-15T01:09:00Z says 40 occurrences, but there are 39.",
    ),
    Tampering(
        "a span names no epoch",
        "UPDATE spans SET epoch = 9 WHERE sid = 1 AND from_at = :down",
        "sync",
        "the span from 2026-11-15T00:31:00Z to 2026-11-15T01:09:00Z belongs to epoch 9, which it does not have.",
    ),
    Tampering(
        "a span is turned round",
        "UPDATE spans SET to_at = from_at - :minute WHERE sid = 1 AND from_at = :down",
        "sync",
        "the span from 2026-11-15T00:31:00Z ends before it begins, at 2026-11-15T00:30:00Z.",
    ),
    Tampering(
        "a run names another epoch",
        "UPDATE runs SET epoch = 2 WHERE sid = 1 AND run_for = :at",
        "sync",
        "a run for 2026-11-15T00:10:00Z names epoch 2, but it belongs to epoch 1.",
    ),
    Tampering(
        "a run started before it was due",
        "UPDATE runs SET started_at = run_for - 1 WHERE sid = 1 AND run_for = :at",
        "sync",
        "the scheduled run for 2026-11-15T00:10:00Z started at 2026-11-15T00:09:59.999999Z, before it was due.",
    ),
    Tampering(
        "a run has no outcome",
        "UPDATE runs SET outcome = 'fine' WHERE sid = 1 AND run_for = :at",
        "sync",
        "the scheduled run for 2026-11-15T00:10:00Z ended as 'fine', which is not an outcome.",
    ),
    Tampering(
        "the cursor is moved ahead",
        "UPDATE schedule_state SET cursor_at = cursor_at + 2 * :minute WHERE sid = 1",
        "sync",
        (
            "2 occurrences, the first of them 2026-11-15T01:22:00Z, have no verdict: no run and no "
            "span answers for them."
        ),
    ),
    Tampering(
        "the cursor is moved back",
        "UPDATE schedule_state SET cursor_at = cursor_at - :minute WHERE sid = 1",
        "sync",
        (
            "it wakes at 2026-11-15T01:22:00Z, but after its cursor (2026-11-15T01:20:00Z) the next "
            "occurrence is 2026-11-15T01:21:00Z."
        ),
    ),
    Tampering(
        "the wake-up is lost",
        "UPDATE schedule_state SET next_run_at = NULL WHERE sid = 1",
        "sync",
        ("it has no wake-up, but after its cursor (2026-11-15T01:21:00Z) the next occurrence is 2026-11-15T01:22:00Z."),
    ),
    Tampering(
        "a removed task wakes",
        "UPDATE schedule_state SET next_run_at = :later WHERE sid = 3",
        "gone",
        "it is not in use, and yet it wakes at 2026-11-15T02:00:00Z.",
    ),
    Tampering(
        "a waiting run is owned",
        "UPDATE runs_live SET owner = 'one' WHERE sid = 1",
        "sync",
        "the live scheduled run for 2026-11-15T01:21:00Z is waiting and yet owned by 'one'.",
    ),
    Tampering(
        "a running run has no owner",
        "UPDATE runs_live SET state = 'running', wake_at = NULL WHERE sid = 1",
        "sync",
        "the live scheduled run for 2026-11-15T01:21:00Z is running and has no owner.",
    ),
    Tampering(
        "a waiting run will not wake",
        "UPDATE runs_live SET wake_at = NULL WHERE sid = 1",
        "sync",
        "the live scheduled run for 2026-11-15T01:21:00Z is waiting and will never wake: its wake_at is None.",
    ),
    Tampering(
        "an epoch is deleted",
        "DELETE FROM epochs WHERE sid = 2 AND epoch = 1",
        "hourly",
        "its first epoch is number 2: those before it are gone.",
    ),
    Tampering(
        "all epochs are deleted",
        "DELETE FROM epochs WHERE sid = 1",
        "sync",
        "it has no epoch, so nothing says when it was to run.",
    ),
    Tampering(
        "epochs leave a gap",
        "UPDATE epochs SET to_at = to_at - :second WHERE sid = 2 AND epoch = 1",
        "hourly",
        "epoch 2 begins at 2026-11-15T00:00:30Z, but epoch 1 ends at 2026-11-15T00:00:29Z.",
    ),
    Tampering(
        "the beginning is moved",
        "UPDATE epochs SET from_at = from_at - 5 * :minute WHERE sid = 1",
        "sync",
        "its first epoch begins at 2026-11-14T23:54:59.999999Z, but it was created at 2026-11-15T00:00:30Z.",
    ),
    Tampering(
        "an epoch is closed",
        "UPDATE epochs SET to_at = :last WHERE sid = 1",
        "sync",
        "it is in use, but its epoch 1 has ended.",
    ),
    Tampering(
        "an epoch's spec is changed",
        "UPDATE epochs SET spec = '0-59 * * * *' WHERE sid = 1",
        "sync",
        "it is stored as '* * * * *' in 'Europe/Kyiv', but its epoch 1 says '0-59 * * * *' in 'Europe/Kyiv'.",
    ),
    Tampering(
        "a run of recorded attempts is deleted",
        "DELETE FROM runs WHERE sid = 1 AND run_for = :up",
        "sync",
        "attempts are recorded of a scheduled run for 2026-11-15T01:10:00Z, which is not there.",
    ),
    Tampering(
        "a start is deleted",
        "DELETE FROM lifecycle WHERE id = 1",
        None,
        "scheduler:default: its lifecycle has stop-start at 2026-11-15T00:31:00Z by one as the first event.",
    ),
    Tampering(
        "a crash is deleted",
        "DELETE FROM lifecycle WHERE event = 'crash'",
        None,
        (
            "scheduler:default: its lifecycle has init-ok at 2026-11-15T01:20:20Z by three after "
            "init-ok (2026-11-15T01:10:20Z)."
        ),
    ),
]

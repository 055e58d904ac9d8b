"""What a look or an edit has decided, as rows on PostgreSQL: one statement for each table, whatever the batch."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from noonbell.core.records import Run, Start, Turn
from noonbell.store.postgres import ending, outbox
from noonbell.store.postgres.claiming import LIVE
from noonbell.store.postgres.connection import Connection


async def write_claimed(
    db: Connection, turns: list[Turn], owner: str, now: int, quarantined: list[tuple[int, Exception]]
) -> list[Turn]:
    """Write the turns together; if the ledger contradicts one of them, singly, and without those it refuses."""
    error = await _tried(db, turns, owner, now)
    if error is None:
        return turns
    written = []
    for turn in turns:
        error = await _tried(db, [turn], owner, now)
        if error is None:
            written.append(turn)
        else:
            quarantined.append((turn.sid, error))
    return written


async def _tried(db: Connection, turns: list[Turn], owner: str, now: int) -> Exception | None:
    if not turns:
        return None
    await db.execute("SAVEPOINT turns")
    try:
        await write(db, turns, owner, now)
    except asyncpg.IntegrityConstraintViolationError as error:
        await db.execute("ROLLBACK TO SAVEPOINT turns")
        return error
    return None


async def write(db: Connection, turns: Sequence[Turn], owner: str, now: int) -> None:
    """Write what was decided; what is to be told of it comes last in a transaction, and so is left to the caller."""
    if not turns:
        return
    if preempted := [live for turn in turns for live in turn.preempted]:
        await ending.end_live(db, preempted, "failed", now)
    if spans := [span for turn in turns for span in turn.spans]:
        await db.execute(
            "INSERT INTO spans (sid, from_at, to_at, n, verdict, reason, epoch) SELECT * FROM unnest("
            "$1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::text[], $6::text[], $7::int8[])",
            [s.sid for s in spans], [s.from_at for s in spans], [s.to_at for s in spans], [s.n for s in spans],
            [s.verdict for s in spans], [s.reason for s in spans], [s.epoch for s in spans],
        )  # fmt: skip
    await _write_starts(db, [start for turn in turns for start in turn.starts], owner, now)
    await _write_waiting(db, turns)
    if finished := [run for turn in turns for run in turn.finished]:
        await _write_finished(db, finished)
    await _write_schedules(db, turns, now)
    messages = [message for turn in turns for message in turn.messages]
    await outbox.append(db, messages, [now] * len(messages))


async def _write_starts(db: Connection, starts: Sequence[Start], owner: str, now: int) -> None:
    fresh = [start for start in starts if start.fence == 1]
    again = [start for start in starts if start.fence > 1]
    if fresh:
        await db.execute(
            "INSERT INTO runs_live (sid, kind, run_for, fence, owner, state, attempt, started_at, attempt_at, epoch, "
            "cause) SELECT b.sid, b.kind, b.run_for, 1, $6, 'running', 1, $7, $7, b.epoch, b.cause "
            "FROM unnest($1::int8[], $2::text[], $3::int8[], $4::int8[], $5::text[]) "
            "AS b (sid, kind, run_for, epoch, cause)",
            [s.sid for s in fresh], [s.kind for s in fresh], [s.run_for for s in fresh], [s.epoch for s in fresh],
            [s.cause for s in fresh], owner, now,
        )  # fmt: skip
    if again:
        await db.execute(
            "UPDATE runs_live l SET fence = b.fence, owner = $7, state = 'running', attempt = b.attempt, "
            "wake_at = NULL, started_at = coalesce(l.started_at, $8), attempt_at = $8, cause = b.cause "
            "FROM unnest($1::int8[], $2::text[], $3::int8[], $4::int8[], $5::int8[], $6::text[]) "
            "AS b (sid, kind, run_for, fence, attempt, cause) "
            "WHERE l.sid = b.sid AND l.kind = b.kind AND l.run_for = b.run_for",
            [s.sid for s in again], [s.kind for s in again], [s.run_for for s in again], [s.fence for s in again],
            [s.attempt for s in again], [s.cause for s in again], owner, now,
        )  # fmt: skip


async def _write_waiting(db: Connection, turns: Sequence[Turn]) -> None:
    if queued := [live for turn in turns for live in turn.queued]:
        await db.execute(
            f"INSERT INTO runs_live ({LIVE}) SELECT * FROM unnest($1::int8[], $2::text[], $3::int8[], $4::int8[], "
            "$5::text[], $6::text[], $7::int8[], $8::int8[], $9::int8[], $10::int8[], $11::int8[], $12::int8[], "
            "$13::text[])",
            *([getattr(live, name) for live in queued] for name in LIVE.split(", ")),
        )
    if put_off := [live for turn in turns for live in turn.put_off]:
        await db.execute(
            "UPDATE runs_live l SET wake_at = b.wake_at FROM unnest($1::int8[], $2::text[], $3::int8[], $4::int8[]) "
            "AS b (sid, kind, run_for, wake_at) WHERE l.sid = b.sid AND l.kind = b.kind AND l.run_for = b.run_for",
            [v.sid for v in put_off], [v.kind for v in put_off], [v.run_for for v in put_off],
            [v.wake_at for v in put_off],
        )  # fmt: skip


async def _write_finished(db: Connection, finished: Sequence[Run]) -> None:
    # the run before is the last one that its schedule knows of, but for several that end in one turn: those name it
    before: dict[int, int] = {}
    prevs: list[int | None] = []
    for run in finished:
        prevs.append(before.get(run.sid))
        before[run.sid] = run.run_for
    await db.execute(
        f"INSERT INTO runs ({ending.RUN}) SELECT b.run_for, b.sid, b.kind, b.outcome, b.attempts, b.started_at, "
        "b.ended_at, b.owner, b.epoch, coalesce(b.prev_for, s.last_ended_for), "
        "CASE WHEN b.prev_for IS NULL THEN coalesce(s.last_ended_manual, 0) ELSE 0 END "
        "FROM unnest($1::int8[], $2::int8[], $3::text[], $4::text[], $5::int8[], $6::int8[], $7::int8[], $8::text[], "
        "$9::int8[], $10::int8[]) "
        "AS b (run_for, sid, kind, outcome, attempts, started_at, ended_at, owner, epoch, prev_for) "
        "LEFT JOIN schedules s ON s.sid = b.sid",
        [r.run_for for r in finished], [r.sid for r in finished], [r.kind for r in finished],
        [r.outcome for r in finished], [r.attempts for r in finished], [r.started_at for r in finished],
        [r.ended_at for r in finished], [r.owner for r in finished], [r.epoch for r in finished],
        prevs,
    )  # fmt: skip


async def _write_schedules(db: Connection, turns: Sequence[Turn], now: int) -> None:
    await db.execute(
        "UPDATE schedules s SET cursor_at = b.cursor_at, next_run_at = b.next_run_at, enabled = b.enabled, "
        "anchor_at = b.anchor_at, backlog_left = b.backlog_left, backlog_until = b.backlog_until, "
        "last_run_for = b.last_run_for, "
        "last_run_at = CASE WHEN b.began > 0 THEN $10 ELSE s.last_run_at END, "
        "last_attempt_at = CASE WHEN b.began > 0 THEN $10 ELSE s.last_attempt_at END, "
        "last_success_at = CASE WHEN b.ended > 0 THEN $10 ELSE s.last_success_at END, "
        "last_ended_for = coalesce(b.ended_for, s.last_ended_for), "
        "last_ended_manual = CASE WHEN b.ended > 0 THEN 0 ELSE s.last_ended_manual END, "
        "ended_runs = s.ended_runs + b.ended, succeeded_runs = s.succeeded_runs + b.ended "
        "FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::int8[], "
        "$9::int8[], $11::int8[], $12::int8[]) AS b (sid, cursor_at, next_run_at, enabled, anchor_at, backlog_left, "
        "backlog_until, last_run_for, began, ended, ended_for) WHERE s.sid = b.sid",
        [t.sid for t in turns], [t.cursor_at for t in turns], [t.next_run_at for t in turns],
        [int(t.enabled) for t in turns], [t.anchor_at for t in turns], [t.backlog_left for t in turns],
        [t.backlog_until for t in turns], [t.last_run_for for t in turns],
        [int(bool(t.starts or t.finished)) for t in turns], now,
        [len(t.finished) for t in turns], [t.finished[-1].run_for if t.finished else None for t in turns],
    )  # fmt: skip

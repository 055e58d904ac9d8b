"""Writes of turns, the decisions of a poll or an edit, as rows on PostgreSQL: a statement or two for each table,
whatever the batch.

In a burst most turns differ in nothing but the schedule: what they share is sent once (see `batches`).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

import asyncpg

from noonbell.core.records import Run, Start, Turn
from noonbell.store.postgres import connection, ending, live_rows, outbox, slots
from noonbell.store.postgres.batches import batch, inline
from noonbell.store.postgres.claiming import LIVE
from noonbell.store.postgres.connection import Connection
from noonbell.store.postgres.numbers import extra_sql, number, owner_number_sql, times_sql
from noonbell.store.words import CAUSES, KINDS, OUTCOMES


class Owner(NamedTuple):
    """The instance that claims, and its number."""

    instance: str
    number: int


NO_OWNER: Final = Owner("", 0)


async def write_singly(
    db: Connection, turns: list[Turn], owner: Owner, now: int, *, in_slot: Container[int]
) -> tuple[list[Turn], list[tuple[int, Exception]]]:
    """Write the turns one by one; return those that are written, and the sids of those that the ledger refuses.

    The slots of the schedules `in_slot` are taken.
    """
    written: list[Turn] = []
    refused: list[tuple[int, Exception]] = []
    for turn in turns:
        await db.execute("SAVEPOINT turn")
        try:
            await write(db, [turn], owner, now, in_slot)
        except asyncpg.IntegrityConstraintViolationError as error:
            await db.execute("ROLLBACK TO SAVEPOINT turn")
            refused.append((turn.sid, error))
        else:
            written.append(turn)
    return written, refused


async def write(
    db: Connection,
    turns: Sequence[Turn],
    owner: Owner,
    now: int,
    in_slot: Container[int] = frozenset(),
    *,
    commit: bool = False,
) -> None:
    """Write what was decided; the audit comes last in a transaction, and so is left to the caller.

    With `commit` there is nothing to audit, and the transaction ends with it.
    """
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
    slotted = {turn.sid: start for turn in turns if (start := _for_slot(turn, in_slot)) is not None}
    others = [start for turn in turns for start in turn.starts if start is not slotted.get(turn.sid)]
    await _write_starts(db, others, owner.instance, now)
    await _write_waiting(db, turns)
    if finished := [run for turn in turns for run in turn.finished]:
        await _write_finished(db, finished)
    messages = [message for turn in turns for message in turn.messages]
    advance = _advance(turns, slotted, owner.number, now)
    await db.execute(connection.committing(advance) if commit and not messages else advance)
    await outbox.append(db, messages, [now] * len(messages))


def _for_slot(turn: Turn, in_slot: Container[int]) -> Start | None:
    """Return the start that goes into the slot of its schedule; the others of the turn are rows of `runs_live`."""
    if turn.sid not in in_slot:
        for start in turn.starts:
            if slots.fits(start):
                return start
    return None


_BEGIN: Final = (
    "INSERT INTO runs_live (sid, kind, run_for, fence, owner, state, attempt, started_at, attempt_at, epoch, cause) "
    "SELECT b.sid, b.kind, b.run_for, 1, $1, 'running', 1, $2, $2, b.epoch, b.cause FROM "
    "unnest($3::int8[], $4::text[], $5::int8[], $6::int8[], $7::text[]) AS b (sid, kind, run_for, epoch, cause)"
)


async def _write_starts(db: Connection, starts: Sequence[Start], owner: str, now: int) -> None:
    fresh = [start for start in starts if start.fence == 1]
    again = [start for start in starts if start.fence > 1]
    if fresh:
        await db.execute(
            _BEGIN, owner, now, [s.sid for s in fresh], [s.kind for s in fresh], [s.run_for for s in fresh],
            [s.epoch for s in fresh], [s.cause for s in fresh],
        )  # fmt: skip
    if again:
        await db.execute(
            live_rows.START_AGAIN,
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
        await slots.spill(db, [live.sid for live in put_off])
        await db.execute(
            live_rows.PUT_OFF, [v.sid for v in put_off], [v.kind for v in put_off], [v.run_for for v in put_off],
            [v.wake_at for v in put_off],
        )  # fmt: skip


_BEHIND_MANUAL: Final = "CASE WHEN {prev_for} IS NULL THEN coalesce(s.last_ended_manual, 0) ELSE 0 END"
_TIMES: Final = ("{run_for}", "{started_at}", "{ended_at}")
_END: Final = (
    f"INSERT INTO runs ({ending.RUN}) SELECT {{run_for}}, {{sid}}, {{kind}}, {{outcome}}::text, "
    f"{times_sql(*_TIMES)}, {owner_number_sql('{owner}')}, {{epoch}}, coalesce({{prev_for}}, s.last_ended_for), "
    f"{extra_sql('{attempts}', '0', _BEHIND_MANUAL, times=_TIMES)} "
    "FROM {batch} LEFT JOIN schedule_state s ON s.sid = {sid}"
)


async def _write_finished(db: Connection, finished: Sequence[Run]) -> None:
    # the run before is the last one that its schedule knows of, but for several that end in one turn: those name it
    before: dict[int, int] = {}
    prevs: list[int | None] = []
    for run in finished:
        prevs.append(before.get(run.sid))
        before[run.sid] = run.run_for
    part = batch(
        {
            "sid": [run.sid for run in finished],
            "run_for": [run.run_for for run in finished],
            "kind": [number(KINDS, run.kind) for run in finished],
            "outcome": [number(OUTCOMES, run.outcome) for run in finished],
            "attempts": [run.attempts for run in finished],
            "started_at": [run.started_at for run in finished],
            "ended_at": [run.ended_at for run in finished],
            "owner": [run.owner for run in finished],
            "epoch": [run.epoch for run in finished],
            "prev_for": prevs,
        },
        texts=("owner",),
    )
    await db.execute(_END.format(batch=part.source, **part.columns), *part.bindings)


_sid: Final = attrgetter("sid")
_ADVANCE: Final = """
    UPDATE schedule_state s SET cursor_at = {cursor_at}, next_run_at = {next_run_at}, enabled = {enabled},
        anchor_at = {anchor_at}, backlog_left = {backlog_left}, backlog_until = {backlog_until},
        last_run_for = {last_run_for},
        last_run_at = CASE WHEN {began} > 0 THEN greatest(s.last_run_at, {now}) ELSE s.last_run_at END,
        last_attempt_at = CASE WHEN {began} > 0 THEN {now} ELSE s.last_attempt_at END,
        last_success_at = CASE WHEN {ended} > 0 THEN {now} ELSE s.last_success_at END,
        last_ended_for = coalesce({ended_for}, s.last_ended_for),
        last_ended_manual = CASE WHEN {ended} > 0 THEN 0 ELSE s.last_ended_manual END,
        ended_runs = s.ended_runs + {ended}, succeeded_runs = s.succeeded_runs + {ended},
        slot_for = CASE WHEN {slot_for} IS NULL THEN s.slot_for ELSE {slot_for} END,
        slot_at = CASE WHEN {slot_for} IS NULL THEN s.slot_at ELSE {now} END,
        slot_owner = CASE WHEN {slot_for} IS NULL THEN s.slot_owner ELSE {owner} END,
        slot_epoch = CASE WHEN {slot_for} IS NULL THEN s.slot_epoch ELSE {slot_epoch} END,
        slot_cause = CASE WHEN {slot_for} IS NULL THEN s.slot_cause ELSE {slot_cause} END
    {batch} WHERE {matches}
"""


def _advance(turns: Sequence[Turn], slotted: Mapping[int, Start], owner: int, now: int) -> str:
    """Return the statement that writes the rows of the schedules."""
    turns = sorted(turns, key=_sid)
    starts = [slotted.get(turn.sid) for turn in turns]
    part = inline(
        {
            "sid": [turn.sid for turn in turns],
            "cursor_at": [turn.cursor_at for turn in turns],
            "next_run_at": [turn.next_run_at for turn in turns],
            "enabled": [int(turn.enabled) for turn in turns],
            "anchor_at": [turn.anchor_at for turn in turns],
            "backlog_left": [turn.backlog_left for turn in turns],
            "backlog_until": [turn.backlog_until for turn in turns],
            "last_run_for": [turn.last_run_for for turn in turns],
            "began": [int(bool(turn.starts or turn.finished)) for turn in turns],
            "ended": [len(turn.finished) for turn in turns],
            "ended_for": [turn.finished[-1].run_for if turn.finished else None for turn in turns],
            "slot_for": [None if start is None else start.run_for for start in starts],
            "slot_epoch": [None if start is None else start.epoch for start in starts],
            "slot_cause": [None if start is None else CAUSES.index(start.cause) for start in starts],
        }
    )
    named = {"now": f"{now:d}::int8", "owner": f"{owner:d}::int4", **part.columns}
    return _ADVANCE.format(batch=part.source, matches=part.matches, **named)

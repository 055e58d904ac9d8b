"""What a look or an edit has decided, as rows on PostgreSQL: a statement or two for each table, whatever the batch.

In a burst most turns differ in nothing but the schedule. Those travel as a list of numbers with the rest bound once;
the others with all there is to tell.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

import asyncpg

from noonbell.core.records import Run, Start, Turn
from noonbell.store.postgres import ending, live_rows, outbox, slots
from noonbell.store.postgres.claiming import LIVE
from noonbell.store.postgres.connection import Connection
from noonbell.store.postgres.numbers import extra_sql, number, owner_number_sql
from noonbell.store.words import CAUSES, KINDS, OUTCOMES

# From so many on, rows that are alike are worth a statement of their own.
LEAST_ALIKE: Final = 256


async def write_claimed(
    db: Connection,
    turns: list[Turn],
    owner: str,
    now: int,
    quarantined: list[tuple[int, Exception]],
    *,
    in_slot: Container[int],
) -> list[Turn]:
    """Write the turns together; if the ledger contradicts one of them, singly, and without those it refuses.

    The slots of the schedules `in_slot` are taken.
    """
    error = await _tried(db, turns, owner, now, in_slot)
    if error is None:
        return turns
    written = []
    for turn in turns:
        error = await _tried(db, [turn], owner, now, in_slot)
        if error is None:
            written.append(turn)
        else:
            quarantined.append((turn.sid, error))
    return written


async def _tried(db: Connection, turns: list[Turn], owner: str, now: int, in_slot: Container[int]) -> Exception | None:
    if not turns:
        return None
    await db.execute("SAVEPOINT turns")
    try:
        await write(db, turns, owner, now, in_slot)
    except asyncpg.IntegrityConstraintViolationError as error:
        await db.execute("ROLLBACK TO SAVEPOINT turns")
        return error
    return None


async def write(
    db: Connection, turns: Sequence[Turn], owner: str, now: int, in_slot: Container[int] = frozenset()
) -> None:
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
    slotted = {turn.sid: start for turn in turns if (start := _for_slot(turn, in_slot)) is not None}
    others = [start for turn in turns for start in turn.starts if start is not slotted.get(turn.sid)]
    await _write_starts(db, others, owner, now)
    await _write_waiting(db, turns)
    if finished := [run for turn in turns for run in turn.finished]:
        await _write_finished(db, finished)
    await _write_schedules(db, turns, slotted, owner, now)
    messages = [message for turn in turns for message in turn.messages]
    await outbox.append(db, messages, [now] * len(messages))


def _for_slot(turn: Turn, in_slot: Container[int]) -> Start | None:
    """Return the start that goes into the slot of its schedule; the others of the turn are rows of `runs_live`."""
    if not turn.starts or turn.sid in in_slot:
        return None
    return next((start for start in turn.starts if slots.fits(start)), None)


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


_ENDED: Final = (
    ("run_for", "int8"), ("kind", "int8"), ("outcome", "int8"), ("attempts", "int8"), ("started_at", "int8"),
    ("ended_at", "int8"), ("owner", "text"), ("epoch", "int8"), ("prev_for", "int8"),
)  # fmt: skip
_BEHIND_MANUAL: Final = "CASE WHEN {prev_for} IS NULL THEN coalesce(s.last_ended_manual, 0) ELSE 0 END"
_END: Final = (
    f"INSERT INTO runs ({ending.RUN}) SELECT {{run_for}}, {{sid}}, {{kind}}, {{outcome}}::text, {{started_at}}, "
    f"{{ended_at}}, {owner_number_sql('{owner}')}, {{epoch}}, coalesce({{prev_for}}, s.last_ended_for), "
    f"{extra_sql('{attempts}', '0', _BEHIND_MANUAL)} FROM "
)
_END_ALL: Final = (
    f"{_END.format(sid='b.sid', **{name: f'b.{name}' for name, _ in _ENDED})} "
    f"unnest($1::int8[], {', '.join(f'${place}::{kind}[]' for place, (_, kind) in enumerate(_ENDED, 2))}) "
    f"AS b (sid, {', '.join(name for name, _ in _ENDED)}) LEFT JOIN schedule_state s ON s.sid = b.sid"
)
_END_ALIKE: Final = (
    f"{_END.format(sid='s.sid', **{name: f'${place}::{kind}' for place, (name, kind) in enumerate(_ENDED, 2)})} "
    "schedule_state s WHERE s.sid = ANY($1::int8[])"
)


async def _write_finished(db: Connection, finished: Sequence[Run]) -> None:
    # the run before is the last one that its schedule knows of, but for several that end in one turn: those name it
    before: dict[int, int] = {}
    prevs: list[int | None] = []
    for run in finished:
        prevs.append(before.get(run.sid))
        before[run.sid] = run.run_for
    rows = [
        (
            r.sid, r.run_for, number(KINDS, r.kind), number(OUTCOMES, r.outcome), r.attempts, r.started_at, r.ended_at,
            r.owner, r.epoch, prev,
        )
        for r, prev in zip(finished, prevs, strict=True)
    ]  # fmt: skip
    await _each_kind(db, rows, _END_ALL, _END_ALIKE)


_ADVANCE: Final = """
    UPDATE schedule_state s SET cursor_at = {cursor_at}, next_run_at = {next_run_at}, enabled = {enabled},
        anchor_at = {anchor_at}, backlog_left = {backlog_left}, backlog_until = {backlog_until},
        last_run_for = {last_run_for},
        last_run_at = CASE WHEN {began} > 0 THEN greatest(s.last_run_at, $1) ELSE s.last_run_at END,
        last_attempt_at = CASE WHEN {began} > 0 THEN $1 ELSE s.last_attempt_at END,
        last_success_at = CASE WHEN {ended} > 0 THEN $1 ELSE s.last_success_at END,
        last_ended_for = coalesce({ended_for}, s.last_ended_for),
        last_ended_manual = CASE WHEN {ended} > 0 THEN 0 ELSE s.last_ended_manual END,
        ended_runs = s.ended_runs + {ended}, succeeded_runs = s.succeeded_runs + {ended},
        slot_for = CASE WHEN {slot_for} IS NULL THEN s.slot_for ELSE {slot_for} END,
        slot_at = CASE WHEN {slot_for} IS NULL THEN s.slot_at ELSE $1 END,
        slot_owner = CASE WHEN {slot_for} IS NULL THEN s.slot_owner
            ELSE (SELECT o.no FROM owners o WHERE o.instance = $2) END,
        slot_epoch = CASE WHEN {slot_for} IS NULL THEN s.slot_epoch ELSE {slot_epoch} END,
        slot_cause = CASE WHEN {slot_for} IS NULL THEN s.slot_cause ELSE {slot_cause} END
"""
_ADVANCED: Final = (
    "cursor_at", "next_run_at", "enabled", "anchor_at", "backlog_left", "backlog_until", "last_run_for", "began",
    "ended", "ended_for", "slot_for", "slot_epoch", "slot_cause",
)  # fmt: skip
_ADVANCE_ALL: Final = (
    f"{_ADVANCE.format(**{name: f'b.{name}' for name in _ADVANCED})} "
    f"FROM unnest({', '.join(f'${place}::int8[]' for place in range(3, 4 + len(_ADVANCED)))}) "
    f"AS b (sid, {', '.join(_ADVANCED)}) WHERE s.sid = b.sid"
)
_ADVANCE_ALIKE: Final = (
    f"{_ADVANCE.format(**{name: f'${place}::int8' for place, name in enumerate(_ADVANCED, 4)})} "
    "WHERE s.sid = ANY($3::int8[])"
)


async def _write_schedules(
    db: Connection, turns: Sequence[Turn], slotted: Mapping[int, Start], owner: str, now: int
) -> None:
    rows = []
    for turn in turns:
        start, finished = slotted.get(turn.sid), turn.finished
        rows.append((
            turn.sid, turn.cursor_at, turn.next_run_at, int(turn.enabled), turn.anchor_at, turn.backlog_left,
            turn.backlog_until, turn.last_run_for, int(bool(turn.starts or finished)), len(finished),
            finished[-1].run_for if finished else None,
            *((None, None, None) if start is None else (start.run_for, start.epoch, CAUSES.index(start.cause))),
        ))  # fmt: skip
    await _each_kind(db, rows, _ADVANCE_ALL, _ADVANCE_ALIKE, now, owner)


async def _each_kind(db: Connection, rows: Sequence[tuple[Any, ...]], singly: str, alike: str, *shared: Any) -> None:
    """Write rows that begin with a sid: in a burst most are alike behind it, and those travel as a list of sids.

    Both statements are given what is shared, then the sids, then the rest: as arrays, or as it is.
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row in rows:
        groups.setdefault(row[1:], []).append(row[0])
    left: list[tuple[Any, ...]] = []
    for rest, sids in groups.items():
        if len(sids) >= LEAST_ALIKE:
            await db.execute(alike, *shared, sids, *rest)
        else:
            left.extend((sid, *rest) for sid in sids)
    if left:
        await db.execute(singly, *shared, *(list(column) for column in zip(*left, strict=True)))

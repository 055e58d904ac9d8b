"""Writing turns on SQLite: what a look or an edit has decided about schedules, a statement or two for each table.

Most turns are fires: a schedule without live runs starts one, which goes into its slot (see `slots`) in the same update
that advances the schedule. In a burst these differ in nothing but the schedule, and travel as a list of numbers with
the rest bound once; or in the occurrence and the wake-up as well, and travel as triples. Other turns travel with all
their fields, and what they start is in `runs_live`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, Final

import apsw
import msgspec

from noonbell.core.records import Run, Start, Turn
from noonbell.store.sqlite import auditing, ending, outbox, slots
from noonbell.store.sqlite.numbers import number, owner_numbers
from noonbell.store.sqlite.rows import each
from noonbell.store.words import CAUSES, KINDS, OUTCOMES

_encode = msgspec.json.Encoder().encode

_Fire = tuple[int, int, int | None]  # sid, run_for, next_run_at

# From so many on, rows that are alike are worth a statement of their own.
LEAST_ALIKE: Final = 64

# A fire. The cursor is given by its distance from the occurrence that is fired, which is almost always nothing.
_FIRE: Final = """
    UPDATE schedule_state SET next_run_at = {next}, cursor_at = {run_for} + ?4, enabled = ?5, anchor_at = ?6,
        backlog_left = ?7, backlog_until = ?8, last_run_for = {run_for},
        last_run_at = max(ifnull(last_run_at, 0), ?2), last_attempt_at = ?2,
        slot_for = {run_for}, slot_owner = ?3, slot_epoch = ?9, slot_at = ?2, slot_cause = ?10
    {chosen}
"""
_FIRE_EACH: Final = _FIRE.format(
    run_for="b.run_for",
    next="b.next",
    chosen=f"FROM {each('?1', 'sid', 'run_for', 'next')} b WHERE schedule_state.sid = b.sid",
)
_FIRE_ALIKE: Final = _FIRE.format(run_for="?11", next="?12", chosen="WHERE sid IN (SELECT value FROM json_each(?1))")

_ADVANCE: Final = """
    UPDATE schedule_state SET cursor_at = b.value ->> 1, next_run_at = b.value ->> 2, enabled = b.value ->> 3,
        anchor_at = b.value ->> 4, backlog_left = b.value ->> 5, backlog_until = b.value ->> 6,
        last_run_for = b.value ->> 7, last_run_at = iif(b.value ->> 8, max(ifnull(last_run_at, 0), ?2), last_run_at),
        last_attempt_at = iif(b.value ->> 8, ?2, last_attempt_at),
        last_success_at = iif(b.value ->> 8 = 2, ?2, last_success_at),
        last_ended_for = coalesce(b.value ->> 9, last_ended_for),
        last_ended_manual = iif(b.value ->> 10, 0, last_ended_manual),
        ended_runs = ended_runs + (b.value ->> 10), succeeded_runs = succeeded_runs + (b.value ->> 10)
    FROM json_each(?1) b WHERE sid = b.value ->> 0
"""
_ADVANCE_ALIKE: Final = """
    UPDATE schedule_state SET cursor_at = ?3, next_run_at = ?4, enabled = ?5, anchor_at = ?6, backlog_left = ?7,
        backlog_until = ?8, last_run_for = ?9, last_run_at = iif(?10, max(ifnull(last_run_at, 0), ?2), last_run_at),
        last_attempt_at = iif(?10, ?2, last_attempt_at), last_success_at = iif(?10 = 2, ?2, last_success_at),
        last_ended_for = coalesce(?11, last_ended_for), last_ended_manual = iif(?12, 0, last_ended_manual),
        ended_runs = ended_runs + ?12, succeeded_runs = succeeded_runs + ?12
    WHERE sid IN (SELECT value FROM json_each(?1))
"""
_BEGIN: Final = """
    INSERT INTO runs_live (sid, kind, run_for, fence, owner, state, attempt, started_at, attempt_at, epoch, cause)
    SELECT {sid}, 'scheduled', {run_for}, 1, ?2, 'running', 1, ?3, ?3, {epoch}, {cause} FROM json_each(?1)
"""
_BEGIN_ALL: Final = _BEGIN.format(sid="value ->> 0", run_for="value ->> 1", epoch="value ->> 2", cause="value ->> 3")
_BEGIN_ALIKE: Final = _BEGIN.format(sid="value", run_for="?4", epoch="?5", cause="?6")
# The run before is the last one that its schedule knows of, but for several that end in one turn: those name it.
_END: Final = f"""
    INSERT INTO runs ({ending.RUN})
    SELECT {{run_for}}, s.sid, {{rest}}, coalesce({{prev}}, s.last_ended_for),
        iif({{prev}} IS NULL, s.last_ended_manual, 0)
    FROM json_each(?1) b CROSS JOIN schedule_state s ON s.sid = {{sid}}
"""
_END_ALL: Final = _END.format(
    sid="b.value ->> 0",
    run_for="b.value ->> 1",
    rest=", ".join(f"b.value ->> {place}" for place in range(2, 9)),
    prev="b.value ->> 9",
)
_END_ALIKE: Final = _END.format(sid="b.value", run_for="?2", rest="?3, ?4, ?5, ?6, ?7, ?8, ?9", prev="?10")


def write(db: apsw.Connection, turns: Sequence[Turn], owner: str, now: int, busy: Container[int] = ()) -> None:
    """Write what was decided. What `busy` schedules start, which are those with live runs, is not put into slots."""
    fires: dict[tuple[Any, ...], list[int]] = {}
    others: list[Turn] = []
    for turn in turns:
        starts = turn.starts
        if len(starts) == 1 and turn.sid not in busy and _is_fire(turn, start := starts[0]):
            run_for = start.run_for
            alike = (
                turn.cursor_at - run_for, turn.enabled, turn.anchor_at, turn.backlog_left, turn.backlog_until,
                start.epoch, start.cause, run_for, turn.next_run_at,
            )  # fmt: skip
            if (sids := fires.get(alike)) is None:
                fires[alike] = [turn.sid]
            else:
                sids.append(turn.sid)
        else:
            others.append(turn)
    if others and (others := _write_sent(db, others, now)):
        _write_others(db, others, owner, now)
    spans = [span for turn in turns if turn.spans for span in turn.spans]
    if spans:
        db.execute(
            "INSERT INTO spans SELECT value ->> 'sid', value ->> 'from_at', value ->> 'to_at', value ->> 'n', "
            "value ->> 'verdict', value ->> 'reason', value ->> 'epoch' FROM json_each(?)",
            (_encode(spans),),
        )
    if fires:
        _write_fires(db, fires, now, owner_numbers(db, (owner,))[owner])
    messages = [message for turn in turns if turn.messages for message in turn.messages]
    if messages:
        outbox.append(db, messages, now)
    audits = [event for turn in turns if turn.audits for event in turn.audits]
    if audits:
        auditing.append(db, audits)


def _is_fire(turn: Turn, start: Start) -> bool:
    """Return whether a turn with one start starts a new run, and changes no other."""
    return (
        start.fence == 1 and start.kind == "scheduled" and start.run_for == turn.last_run_for
        and not (turn.queued or turn.preempted or turn.put_off or turn.finished)
    )  # fmt: skip


def _write_fires(db: apsw.Connection, fires: dict[tuple[Any, ...], list[int]], now: int, owner_no: int) -> None:
    """Write fires: many that differ in the schedule alone, together; the others with occurrence and wake-up each."""
    left: dict[tuple[Any, ...], list[_Fire]] = {}
    for (*rest, cause, run_for, next_run_at), sids in fires.items():
        shared = (now, owner_no, *rest, number(CAUSES, cause))
        if len(sids) >= LEAST_ALIKE:
            db.execute(_FIRE_ALIKE, (_encode(sorted(sids)), *shared, run_for, next_run_at))
        else:
            left.setdefault(shared, []).extend((sid, run_for, next_run_at) for sid in sids)
    for shared, rows in left.items():
        rows.sort()  # rows of one page of the file are written together
        db.execute(_FIRE_EACH, (_encode(rows), *shared))


def _write_sent(db: apsw.Connection, turns: list[Turn], now: int) -> list[Turn]:
    """Write turns whose only run has ended with the claim, as a message does; returns the others.

    Many that differ in the schedule alone are written together. Few of a kind are left to the others.
    """
    groups: dict[tuple[Any, ...], list[Turn]] = {}
    left: list[Turn] = []
    for turn in turns:
        if len(turn.finished) != 1 or turn.starts or turn.queued or turn.preempted or turn.put_off:
            left.append(turn)
            continue
        run = turn.finished[0]
        alike = (
            turn.cursor_at, turn.next_run_at, turn.enabled, turn.anchor_at, turn.backlog_left, turn.backlog_until,
            turn.last_run_for, run.run_for, run.kind, run.outcome, run.attempts, run.started_at, run.ended_at,
            run.owner, run.epoch,
        )  # fmt: skip
        if (group := groups.get(alike)) is None:
            groups[alike] = [turn]
        else:
            group.append(turn)
    for group in groups.values():
        if len(group) < LEAST_ALIKE:
            left.extend(group)
            continue
        sids, run = _encode([turn.sid for turn in group]), group[0].finished[0]
        (ended,) = _ended([run], owner_numbers(db, (run.owner,)))
        db.execute(_END_ALIKE, (sids, *ended[1:]))
        db.execute(_ADVANCE_ALIKE, (sids, now, *_advanced(group[0])[1:]))
    return left


def _write_others(db: apsw.Connection, turns: Sequence[Turn], owner: str, now: int) -> None:
    preempted = [live for turn in turns for live in turn.preempted]
    if preempted:
        ending.end_live(db, preempted, "failed", now)
    _write_starts(db, [start for turn in turns for start in turn.starts], owner, now)
    _write_waiting(db, turns)
    finished = [run for turn in turns for run in turn.finished]
    if finished:
        _each_kind(db, _ended(finished, owner_numbers(db, {run.owner for run in finished})), _END_ALL, _END_ALIKE)
    _each_kind(db, [_advanced(turn) for turn in turns], _ADVANCE, _ADVANCE_ALIKE, now)


def _advanced(turn: Turn) -> tuple[Any, ...]:
    # nothing began, a run did, or one began and succeeded with the claim
    happened = 2 if turn.finished else 1 if turn.starts else 0
    return (
        turn.sid, turn.cursor_at, turn.next_run_at, int(turn.enabled), turn.anchor_at, turn.backlog_left,
        turn.backlog_until, turn.last_run_for, happened, turn.finished[-1].run_for if turn.finished else None,
        len(turn.finished),
    )  # fmt: skip


def _ended(finished: Sequence[Run], owners: dict[str, int]) -> list[tuple[Any, ...]]:
    before: dict[int, int] = {}
    rows = []
    for run in finished:
        rows.append(
            (
                run.sid, run.run_for, number(KINDS, run.kind), number(OUTCOMES, run.outcome), run.attempts,
                run.started_at, run.ended_at, owners[run.owner], run.epoch, before.get(run.sid),
            )
        )  # fmt: skip
        before[run.sid] = run.run_for
    return rows


def _write_starts(db: apsw.Connection, starts: list[Start], owner: str, now: int) -> None:
    fresh = [(start.sid, start.run_for, start.epoch, start.cause) for start in starts if start.fence == 1]
    if fresh:
        slots.spill(db, [row[0] for row in fresh])  # a run that is live twice must meet itself in `runs_live`
        _each_kind(db, fresh, _BEGIN_ALL, _BEGIN_ALIKE, owner, now)
    if len(fresh) == len(starts):
        return
    again = [
        (start.sid, start.kind, start.run_for, start.fence, start.attempt, start.cause)
        for start in starts
        if start.fence > 1
    ]
    db.execute(
        "UPDATE runs_live SET fence = b.value ->> 3, owner = ?2, state = 'running', attempt = b.value ->> 4, "
        "wake_at = NULL, started_at = coalesce(started_at, ?3), attempt_at = ?3, cause = b.value ->> 5 "
        "FROM json_each(?1) b WHERE sid = b.value ->> 0 AND kind = b.value ->> 1 AND run_for = b.value ->> 2",
        (_encode(again), owner, now),
    )


def _each_kind(db: apsw.Connection, rows: list[tuple[Any, ...]], singly: str, alike: str, *shared: Any) -> None:
    """Write rows that begin with a sid: those that are alike behind it together, the others one by one.

    Both statements are given a JSON text and what is shared; `alike` also gets what its rows have in common.
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row in rows:
        groups.setdefault(row[1:], []).append(row[0])
    left: list[tuple[Any, ...]] = []
    for rest, sids in groups.items():
        if len(sids) >= LEAST_ALIKE:
            db.execute(alike, (_encode(sids), *shared, *rest))
        else:
            left.extend((sid, *rest) for sid in sids)
    if left:
        db.execute(singly, (_encode(left), *shared))


def _write_waiting(db: apsw.Connection, turns: Sequence[Turn]) -> None:
    queued = [live for turn in turns if turn.queued for live in turn.queued]
    if queued:
        names = queued[0].__struct_fields__
        values = ", ".join(f"value ->> '{name}'" for name in names)
        db.execute(
            f"INSERT INTO runs_live ({', '.join(names)}) SELECT {values} FROM json_each(?)",
            (_encode(queued),),
        )
    put_off = [(live.sid, live.kind, live.run_for, live.wake_at) for turn in turns for live in turn.put_off]
    if put_off:
        db.execute(
            "UPDATE runs_live SET wake_at = b.value ->> 3 FROM json_each(?) b "
            "WHERE sid = b.value ->> 0 AND kind = b.value ->> 1 AND run_for = b.value ->> 2",
            (_encode(put_off),),
        )


def write_singly(
    db: apsw.Connection,
    turns: Sequence[Turn],
    owner: str,
    now: int,
    *,
    busy: Container[int],
    refused: Callable[[int, Exception], None],
) -> list[Turn]:
    """Write the turns that the ledger does not contradict, and report the others; return those that were written."""
    written: list[Turn] = []
    for turn in turns:
        try:
            with db:  # a savepoint
                write(db, [turn], owner, now, busy)
        except apsw.ConstraintError as error:
            refused(turn.sid, error)
        else:
            written.append(turn)
    return written

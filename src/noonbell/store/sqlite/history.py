"""The history of schedules on SQLite: epochs, spans, ended runs and attempts. `ending` links ended runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import apsw
import msgspec

from noonbell.core.records import Attempt, Epoch, History, Outcome, Run, Span
from noonbell.core.run_chain import RunKey, key_of, mended
from noonbell.ports import LedgerKey, PastRun, RunFilter
from noonbell.store.ledger_pages import RUNS_SQL, SPANS_SQL, direction
from noonbell.store.sqlite.numbers import RUN_WORDS, number
from noonbell.store.sqlite.part import Part
from noonbell.store.sqlite.tables import SCHEDULES
from noonbell.store.words import KINDS, MANUAL, OUTCOMES, SCHEDULED

_encode = msgspec.json.Encoder().encode

_FIELDS: Final = Run.__struct_fields__
_RUN: Final = ", ".join(RUN_WORDS.get(name, f"r.{name}") for name in _FIELDS)
_NAMED: Final = (
    f"r.run_for = {{c}}.prev_for AND r.sid = {{c}}.sid AND r.kind = iif({{c}}.prev_manual, {MANUAL}, {SCHEDULED})"
)
# Each step is one look-up by primary key.
_CHAIN: Final = f"""
    WITH RECURSIVE chain (place, {", ".join(_FIELDS)}) AS (
        SELECT 1, {_RUN} FROM ({{first}}) f CROSS JOIN runs r ON {_NAMED.format(c="f")}
        UNION ALL
        SELECT c.place + 1, {_RUN} FROM chain c CROSS JOIN runs r ON {_NAMED.format(c="c")} WHERE c.place < ?2
    )
    SELECT {", ".join(_FIELDS)} FROM chain ORDER BY sid, place
"""
_SIDS: Final = "(SELECT DISTINCT value AS sid FROM json_each(?1)) b"
_FROM_THE_LAST: Final = _CHAIN.format(
    first="SELECT s.sid, s.last_ended_for AS prev_for, s.last_ended_manual AS prev_manual "
    f"FROM {_SIDS} CROSS JOIN schedule_state s ON s.sid = b.sid"
)
_GOING_ON: Final = _CHAIN.format(
    first="SELECT t.sid, t.prev_for, t.prev_manual "
    f"FROM {_SIDS} CROSS JOIN runs t ON t.run_for = ?3 AND t.sid = b.sid AND t.kind = ?4"
)
_WHOLE: Final = 1 << 62


class SqliteHistory(Part):
    """The history of the schedules of a file."""

    async def find(self, schedule_id: str) -> History | None:
        return await self._connection.run(lambda db: _history_of(db, schedule_id), write=False)

    async def epochs(self, sid: int) -> list[Epoch]:
        rows = await self._read("SELECT * FROM epochs WHERE sid = ? ORDER BY epoch", (sid,))
        return [Epoch(*row) for row in rows]

    async def spans(
        self, sid: int, from_at: int, to_at: int, limit: int | None = None, *, newest_first: bool = False
    ) -> list[Span]:
        order = direction(newest_first=newest_first)
        if limit is None:  # damaged spans among them
            sql = f"SELECT * FROM spans WHERE sid = ? AND from_at <= ? AND to_at >= ? ORDER BY from_at {order}"
            return [Span(*row) for row in await self._read(sql, (sid, to_at, from_at))]
        sql = SPANS_SQL.format(order=order).replace("$", "?")
        return [Span(*row) for row in await self._read(sql, (sid, from_at - 1, to_at, limit))]

    async def runs(self, wanted: RunFilter, limit: int | None = None, *, newest_first: bool = False) -> list[Run]:
        order = direction(newest_first=newest_first)
        most = -1 if limit is None else limit
        from_at, to_at = wanted.from_at, wanted.to_at
        if wanted.kind is not None and wanted.instants is None and from_at is not None and to_at is not None:
            sql = RUNS_SQL.format(columns=_RUN, kind=number(KINDS, wanted.kind), order=order).replace("$", "?")
            return [Run(*row) for row in await self._read(sql, (wanted.sid, from_at - 1, to_at, most))]
        source = "runs r"
        bindings: list[Any] = []
        if wanted.instants is not None:
            source = "(SELECT DISTINCT value FROM json_each(?)) b CROSS JOIN runs r ON r.run_for = b.value"
            bindings.append(_encode(list(wanted.instants)).decode())
        parts: tuple[tuple[str, Any], ...] = (
            ("r.sid = ?", wanted.sid),
            ("r.run_for >= ?", from_at),
            ("r.run_for <= ?", to_at),
            ("r.kind = ?", None if wanted.kind is None else number(KINDS, wanted.kind)),
        )
        given = [(condition, value) for condition, value in parts if value is not None]
        sql = (
            f"SELECT {_RUN} FROM {source} WHERE {' AND '.join(condition for condition, _ in given)} "
            f"ORDER BY r.run_for {order}, 3 {order} LIMIT ?"
        )
        rows = await self._read(sql, (*bindings, *(value for _, value in given), most))
        return [Run(*row) for row in rows]

    async def attempts(self, sid: int, from_at: int, to_at: int) -> list[Attempt]:
        sql = "SELECT * FROM attempt_records WHERE sid = ? AND run_for BETWEEN ? AND ? ORDER BY run_for, kind, attempt"
        return [Attempt(*row) for row in await self._read(sql, (sid, from_at, to_at))]

    async def past_runs(self, sids: Sequence[int], before: RunKey | None, limit: int) -> list[Run]:
        return await self._connection.run(lambda db: chain(db, sids, before, limit), write=False)

    async def latest_runs(self, before: LedgerKey | None, limit: int, outcome: Outcome | None = None) -> list[PastRun]:
        return await self._connection.run(lambda db: _latest(db, before, limit, outcome), write=False)


def _history_of(db: apsw.Connection, schedule_id: str) -> History | None:
    row: Any = db.execute(
        f"SELECT {', '.join(History.__struct_fields__)} FROM {SCHEDULES} WHERE schedule_id = ? AND lane IS NOT NULL",
        (schedule_id,),
    ).fetchone()
    return None if row is None else History(*row)


def chain(db: apsw.Connection, sids: Sequence[int], before: RunKey | None, limit: int) -> list[Run]:
    """Return up to `limit` runs of each, newest first: from the last, or from the one that ended before `before`."""
    if limit < 1:
        return []
    chosen = _encode(list(sids)).decode()
    if before is None:
        found = db.execute(_FROM_THE_LAST, (chosen, limit))
    else:
        found = db.execute(_GOING_ON, (chosen, limit, before.run_for, number(KINDS, before.kind)))
    return [Run(*row) for row in found]


def _latest(db: apsw.Connection, before: LedgerKey | None, limit: int, outcome: Outcome | None) -> list[PastRun]:
    conditions: list[str] = ["d.lane IS NOT NULL"]
    bindings: list[Any] = [limit]
    if before is not None:
        conditions.append("(r.run_for, r.sid, r.kind) < (?2, ?3, ?4)")
        run_for, sid, kind = before
        bindings.extend((run_for, sid, number(KINDS, kind)))
    by = ""
    if outcome is not None:
        conditions.append(f"r.outcome = ?{len(bindings) + 1}")
        bindings.append(number(OUTCOMES, outcome))
        if outcome != "succeeded":  # few among many: they have an index of their own
            conditions.append("r.outcome <> 0")
            by = "INDEXED BY idx_runs_unsuccessful"
    sql = (
        f"SELECT d.schedule_id, d.name, d.team, {_RUN} FROM runs r {by} "
        "CROSS JOIN schedule_definitions d ON d.sid = r.sid "
        f"WHERE {' AND '.join(conditions)} ORDER BY r.run_for DESC, r.sid DESC, r.kind DESC LIMIT ?1"
    )
    return [PastRun(row[0], row[1], Run(*row[3:]), row[2]) for row in db.execute(sql, tuple(bindings))]


def mend(db: apsw.Connection, sids: list[int], gone: str, bounds: tuple[int, int]) -> None:
    """Close the chains of these schedules over the runs that are about to go, which `gone` selects."""
    for sid in sids:
        leaving = db.execute(f"SELECT r.run_for, {RUN_WORDS['kind']} {gone} AND r.sid = ?3", (*bounds, sid))
        first, changed = mended(chain(db, [sid], None, _WHOLE), {RunKey(*row) for row in leaving})
        if first is not None:
            db.execute(
                "UPDATE schedule_state SET last_ended_for = ?2, last_ended_manual = ?3 WHERE sid = ?1",
                (sid, first.run_for, int(first.kind == "manual")),
            )
        links = [
            (key.run_for, number(KINDS, key.kind), run.prev_for, int(run.prev_manual))
            for run in changed
            for key in (key_of(run),)
        ]
        db.execute(
            "UPDATE runs SET prev_for = b.value ->> 2, prev_manual = b.value ->> 3 FROM json_each(?1) b "
            "WHERE run_for = b.value ->> 0 AND sid = ?2 AND kind = b.value ->> 1",
            (_encode(links).decode(), sid),
        )

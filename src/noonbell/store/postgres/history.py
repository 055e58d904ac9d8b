"""The history of schedules on PostgreSQL: epochs, spans, ended runs and attempts. `ending` links ended runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Any, Final

from noonbell.core.records import Attempt, Epoch, History, Outcome, Run, Span
from noonbell.core.run_chain import RunKey, key_of, mended
from noonbell.ports import LedgerKey, PastRun, RunFilter
from noonbell.store.ledger_pages import RUNS_SQL, SPANS_SQL, direction
from noonbell.store.postgres.connection import Connection
from noonbell.store.postgres.ending import RUN
from noonbell.store.postgres.numbers import attempt_columns, extra_of, number, prev_kind_sql, run_columns
from noonbell.store.postgres.session import Part
from noonbell.store.postgres.stored import JOINED
from noonbell.store.words import KINDS, OUTCOMES, SUCCEEDED

_FIELDS: Final = Run.__struct_fields__
_RUN: Final = run_columns(_FIELDS)
_BARE: Final = ", ".join(f"r.{name}" for name in RUN.split(", "))  # as they are kept
# Each step is one look-up by primary key: LIMIT keeps the planner from joining with all days at once.
_NAMED: Final = f"""
    LATERAL (
        SELECT * FROM runs WHERE run_for = {{c}}.prev_for AND sid = {{c}}.sid
        AND kind = {prev_kind_sql("{c}")} LIMIT 1
    ) r
"""
_WALK: Final = f"""
    WITH RECURSIVE chain AS (
        SELECT 1::int8 AS place, {_BARE} FROM ({{first}}) f CROSS JOIN {_NAMED.format(c="f")}
        UNION ALL
        SELECT c.place + 1, {_BARE} FROM chain c CROSS JOIN {_NAMED.format(c="c")} WHERE c.place < {{most}}
    )
"""
# as a run would name it that ended next
_LAST_ENDED: Final = """
    SELECT s.sid, s.last_ended_for AS prev_for, ',,' || s.last_ended_manual AS extra
    FROM schedule_state s WHERE s.sid = {sids}
"""
_EACH: Final = "ANY($1::int8[])"
_CHAIN: Final = f"{_WALK} SELECT {_RUN} FROM chain r ORDER BY sid, place"
_FROM_THE_LAST: Final = _CHAIN.format(first=_LAST_ENDED.format(sids=_EACH), most="$2")
_GOING_ON: Final = _CHAIN.format(
    first="SELECT p.sid, p.prev_for, p.extra FROM unnest($1::int8[]) b (sid) CROSS JOIN LATERAL ("
    "SELECT * FROM runs WHERE run_for = $3 AND sid = b.sid AND kind = $4::int8 LIMIT 1) p",
    most="$2",
)
# The server walks all of a chain, and gives what touches a stretch of time; the newest run shows where it began. There
# are no more steps than ended runs: it comes to an end also where damage leads in a circle.
_AROUND: Final = f"""
    {_WALK.format(first=_LAST_ENDED.format(sids="$1"), most="(SELECT ended_runs FROM schedule_state WHERE sid = $1)")}
    SELECT place, {_RUN}
    FROM (SELECT *, lag(run_for) OVER (ORDER BY place) AS named_by FROM chain) r
    WHERE place = 1 OR (run_for >= $2 AND run_for < $3) OR (prev_for >= $2 AND prev_for < $3)
        OR (named_by >= $2 AND named_by < $3)
    ORDER BY place
"""
_PAGE: Final = 100


async def chain(db: Connection, sids: Sequence[int], before: RunKey | None, limit: int) -> list[Run]:
    """Return up to `limit` runs of each, newest first: from the last, or from the one that ended before `before`."""
    if limit < 1:
        return []
    chosen = sorted(set(sids))
    if before is None:
        rows = await db.fetch(_FROM_THE_LAST, chosen, limit)
    else:
        rows = await db.fetch(_GOING_ON, chosen, limit, before.run_for, number(KINDS, before.kind))
    return [Run(*row) for row in rows]


async def around(db: Connection, sid: int, bounds: tuple[int, int], timeout_seconds: float) -> list[list[Run]]:
    """The parts of a chain, newest first, with runs for this stretch of time; each with a run before and behind.

    The first part begins with the newest run of all. No lock is needed: only pruning changes what lies behind it.
    """
    rows = await db.fetch(_AROUND, sid, *bounds, timeout=timeout_seconds)
    parts = groupby(enumerate(rows), key=lambda pair: pair[1][0] - pair[0])  # neighbours have places that follow
    return [[Run(*tuple(row)[1:]) for _, row in part] for _, part in parts]


async def newer(db: Connection, sid: int, newest: Run | None) -> list[Run]:
    """The runs that have ended since this one was the last, newest first."""
    known = set() if newest is None else {key_of(newest)}
    found: list[Run] = []
    while page := await chain(db, [sid], key_of(found[-1]) if found else None, _PAGE):
        for run in page:
            if key_of(run) in known:
                return found
            known.add(key_of(run))  # damage may lead in a circle
            found.append(run)
    return found


async def mend(db: Connection, sid: int, parts: Sequence[Sequence[Run]], gone: Collection[RunKey]) -> None:
    """Close the chain of a schedule, which is locked, over runs that are about to go; they are in these parts of it."""
    closed = [mended(part, gone) for part in parts]
    first = closed[0].first if closed else None
    if first is not None:
        await db.execute(
            "UPDATE schedule_state SET last_ended_for = $2, last_ended_manual = $3 WHERE sid = $1",
            sid, first.run_for, int(first.kind == "manual"),
        )  # fmt: skip
    changed = [run for part in closed for run in part.runs]
    if changed:
        keys = [key_of(run) for run in changed]
        await db.execute(
            "UPDATE runs r SET prev_for = b.prev_for, extra = b.extra "
            "FROM unnest($2::int8[], $3::int8[], $4::int8[], $5::text[]) AS b (run_for, kind, prev_for, extra) "
            "WHERE r.run_for = b.run_for AND r.sid = $1::int8 AND r.kind = b.kind",
            sid, [key.run_for for key in keys], [number(KINDS, key.kind) for key in keys],
            [run.prev_for for run in changed], [extra_of(run) for run in changed],
        )  # fmt: skip


class PostgresHistory(Part):
    """The history of each schedule."""

    async def find(self, schedule_id: str) -> History | None:
        columns = ", ".join(History.__struct_fields__)
        sql = f"SELECT {columns} FROM {JOINED} WHERE schedule_id = $1 AND lane IS NOT NULL"
        async with self._connections.reading() as db:
            row = await db.fetchrow(sql, schedule_id)
        return None if row is None else History(*row)

    async def past_runs(self, sids: Sequence[int], before: RunKey | None, limit: int) -> list[Run]:
        async with self._connections.reading() as db:
            return await chain(db, sids, before, limit)

    async def latest_runs(self, before: LedgerKey | None, limit: int, outcome: Outcome | None = None) -> list[PastRun]:
        conditions: list[str] = ["d.lane IS NOT NULL"]
        bindings: list[Any] = [limit]
        if before is not None:
            # the first says nothing new, but a comparison of rows does not keep the planner from reading every day
            conditions.append("r.run_for <= $2 AND (r.run_for, r.sid, r.kind) < ($2, $3::int8, $4::int8)")
            bindings.extend((before[0], before[1], number(KINDS, before[2])))
        if outcome is not None:
            conditions.append(f"r.outcome = '{number(OUTCOMES, outcome)}'")
            if outcome != "succeeded":  # few among many: they have an index of their own
                conditions.append(f"r.outcome <> '{SUCCEEDED}'")
        sql = (
            f"SELECT d.schedule_id, d.name, d.team, {_RUN} FROM runs r JOIN schedule_definitions d ON d.sid = r.sid "
            f"WHERE {' AND '.join(conditions)} ORDER BY r.run_for DESC, r.sid DESC, r.kind DESC LIMIT $1"
        )
        async with self._connections.reading() as db:
            rows = await db.fetch(sql, *bindings)
        return [PastRun(row[0], row[1], Run(*tuple(row)[3:]), row[2]) for row in rows]

    async def epochs(self, sid: int) -> list[Epoch]:
        sql = (
            "SELECT sid, epoch, from_at, to_at, spec, timezone, zone_hash, policies, enabled = 1 FROM epochs "
            "WHERE sid = $1 ORDER BY epoch"
        )
        return [Epoch(*row) for row in await self._session.read(sql, sid)]

    async def spans(
        self, sid: int, from_at: int, to_at: int, limit: int | None = None, *, newest_first: bool = False
    ) -> list[Span]:
        order = direction(newest_first=newest_first)
        if limit is not None:
            rows = await self._session.read(SPANS_SQL.format(order=order), sid, from_at - 1, to_at, limit)
        else:
            sql = (
                "SELECT sid, from_at, to_at, n, verdict, reason, epoch FROM spans "
                f"WHERE sid = $1 AND from_at <= $2 AND to_at >= $3 ORDER BY from_at {order}"
            )
            rows = await self._session.read(sql, sid, to_at, from_at)
        return [Span(*row) for row in rows]

    async def runs(self, wanted: RunFilter, limit: int | None = None, *, newest_first: bool = False) -> list[Run]:
        order = direction(newest_first=newest_first)
        from_at, to_at = wanted.from_at, wanted.to_at
        kind = None if wanted.kind is None else number(KINDS, wanted.kind)
        page = limit is not None and kind is not None and wanted.instants is None
        if page and from_at is not None and to_at is not None:
            sql = RUNS_SQL.format(columns=_RUN, kind=kind, order=order)
            return [Run(*row) for row in await self._session.read(sql, wanted.sid, from_at - 1, to_at, limit)]
        bindings: list[Any] = []

        def bound(value: Any) -> str:
            bindings.append(value)
            return f"${len(bindings)}"

        source = "runs r"
        if wanted.instants is not None:  # LATERAL: each is one look-up in its own day
            day = f"SELECT * FROM runs WHERE run_for = b.at AND sid = {bound(wanted.sid)}::int8 OFFSET 0"
            source = f"unnest({bound(sorted(set(wanted.instants)))}::int8[]) b (at) CROSS JOIN LATERAL ({day}) r"
        conditions = [
            condition.format(bound(value))
            for condition, value in (
                ("r.sid = {}::int8", wanted.sid),
                ("r.run_for >= {}", from_at),
                ("r.run_for <= {}", to_at),
                ("r.kind = {}::int8", kind),
            )
            if value is not None
        ]
        sql = f"SELECT {_RUN} FROM {source} WHERE {' AND '.join(conditions)} ORDER BY r.run_for {order}, r.kind {order}"
        if limit is not None:
            sql += f" LIMIT {bound(limit)}"
        return [Run(*row) for row in await self._session.read(sql, *bindings)]

    async def attempts(self, sid: int, from_at: int, to_at: int) -> list[Attempt]:
        sql = (
            f"SELECT {attempt_columns(Attempt.__struct_fields__)} FROM attempts a "
            "WHERE a.sid = $1::int8 AND a.run_for BETWEEN $2 AND $3 ORDER BY a.run_for, a.kind, a.attempt"
        )
        return [Attempt(*row) for row in await self._session.read(sql, sid, from_at, to_at)]

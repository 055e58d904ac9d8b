"""Pages of the ledger of a schedule, from the oldest or from the newest, written once for the stores that speak SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, Literal

from noonbell.core.records import Run, Span

_Order = Literal["ASC", "DESC"]

_RUNS: Final = """
    SELECT {columns} FROM runs r
    WHERE r.run_for > $2 AND r.run_for <= $3 AND r.sid = CAST($1 AS int8) AND r.kind = {scheduled}
    ORDER BY r.run_for {order} LIMIT $4
"""
# spans lie one behind the other, so of those that begin before the stretch only the last can reach into it
_SPANS: Final = f"""
    SELECT {", ".join(Span.__struct_fields__)} FROM spans
    WHERE sid = $1 AND from_at <= $3 AND to_at > $2
        AND from_at >= coalesce((SELECT max(from_at) FROM spans WHERE sid = $1 AND from_at <= $2), $2)
    ORDER BY from_at {{order}} LIMIT $4
"""


class LedgerPages:
    """The verbs of ScheduleStore that read runs and spans between two instants."""

    _run_columns: ClassVar[str]  # of `runs r`, in words
    _scheduled: ClassVar[int]  # the number of that kind

    async def _look(self, sql: str, bindings: tuple[Any, ...]) -> Sequence[Any]:
        """Run a statement that reads, whose parameters are $1, $2 and so on."""
        raise NotImplementedError

    async def next_runs(self, sid: int, after: int, upto: int, limit: int) -> list[Run]:
        return await self._runs_between((sid, after, upto, limit), "ASC")

    async def previous_runs(self, sid: int, after: int, upto: int, limit: int) -> list[Run]:
        return await self._runs_between((sid, after, upto, limit), "DESC")

    async def next_spans(self, sid: int, after: int, upto: int, limit: int) -> list[Span]:
        return await self._spans_between((sid, after, upto, limit), "ASC")

    async def previous_spans(self, sid: int, after: int, upto: int, limit: int) -> list[Span]:
        return await self._spans_between((sid, after, upto, limit), "DESC")

    async def _runs_between(self, bindings: tuple[int, ...], order: _Order) -> list[Run]:
        sql = _RUNS.format(columns=self._run_columns, scheduled=self._scheduled, order=order)
        return [Run(*row) for row in await self._look(sql, bindings)]

    async def _spans_between(self, bindings: tuple[int, ...], order: _Order) -> list[Span]:
        return [Span(*row) for row in await self._look(_SPANS.format(order=order), bindings)]

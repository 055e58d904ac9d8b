"""Reading the ledger of a schedule from the newest, written once for the stores that speak SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from noonbell.core.records import Run, Span

_RUNS: Final = f"""
    SELECT {", ".join(Run.__struct_fields__)} FROM runs
    WHERE run_for > $2 AND run_for <= $3 AND sid = $1 AND kind = 'scheduled' ORDER BY run_for DESC LIMIT $4
"""
# spans lie one behind the other, so of those that begin before the stretch only the last can reach into it
_SPANS: Final = f"""
    SELECT {", ".join(Span.__struct_fields__)} FROM spans
    WHERE sid = $1 AND from_at <= $3 AND to_at > $2
        AND from_at >= coalesce((SELECT max(from_at) FROM spans WHERE sid = $1 AND from_at <= $2), $2)
    ORDER BY from_at DESC LIMIT $4
"""


class NewestFirst:
    """The verbs of ScheduleStore that read from the newest."""

    async def _look(self, sql: str, bindings: tuple[Any, ...]) -> Sequence[Any]:
        """Run a statement that reads, whose parameters are $1, $2 and so on."""
        raise NotImplementedError

    async def previous_runs(self, sid: int, after: int, upto: int, limit: int) -> list[Run]:
        return [Run(*row) for row in await self._look(_RUNS, (sid, after, upto, limit))]

    async def previous_spans(self, sid: int, after: int, upto: int, limit: int) -> list[Span]:
        return [Span(*row) for row in await self._look(_SPANS, (sid, after, upto, limit))]

"""Pages of the ledger of a schedule, from the oldest or from the newest, written once for the stores that speak SQL.

The parameters are $1 (sid), $2 and $3 (the bounds: after $2, up to $3) and $4 (the limit).
"""

from __future__ import annotations

from typing import Final

from noonbell.core.records import Span

RUNS_SQL: Final = """
    SELECT {columns} FROM runs r
    WHERE r.run_for > $2 AND r.run_for <= $3 AND r.sid = CAST($1 AS int8) AND r.kind = {kind}
    ORDER BY r.run_for {order} LIMIT $4
"""
# spans lie one behind the other, so of those that begin before the stretch only the last can reach into it
SPANS_SQL: Final = f"""
    SELECT {", ".join(Span.__struct_fields__)} FROM spans
    WHERE sid = $1 AND from_at <= $3 AND to_at > $2
        AND from_at >= coalesce((SELECT max(from_at) FROM spans WHERE sid = $1 AND from_at <= $2), $2)
    ORDER BY from_at {{order}} LIMIT $4
"""


def direction(*, newest_first: bool) -> str:
    return "DESC" if newest_first else "ASC"

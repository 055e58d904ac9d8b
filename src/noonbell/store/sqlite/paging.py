"""Whole tables in short pages: the statement behind `Ledger.read`.

Each page continues after the key of the last row, so no read transaction lasts longer than one page and a writer's log
can always be cleared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noonbell.ports import ALL_ROWS, LEDGER_TABLES, LedgerTable, RowBounds
from noonbell.store.sqlite.tables import SCHEDULES

# the tables whose name in the database is another one
_NAMES: Final[Mapping[str, str]] = {
    "schedules": SCHEDULES, "live": "live_runs", "runs": "run_records", "attempts": "attempt_records",
    "pruned": "pruned_days",
}  # fmt: skip


def statement(
    table: LedgerTable, after: tuple[Any, ...] | None, limit: int, bounds: RowBounds = ALL_ROWS
) -> tuple[str, tuple[Any, ...]]:
    """The SQL of a page and its bindings."""
    above_sid, upto_sid, managed_by = bounds
    shape = LEDGER_TABLES[table]
    key = ", ".join(shape.key)
    conditions: list[str] = []
    bindings: list[Any] = []
    if after is not None:
        conditions.append(f"({key}) > ({', '.join('?' * len(shape.key))})")
        bindings.extend(after)
        if shape.key[0] == "sid":  # says nothing new, but finds the place in a table that is keyed by it alone
            conditions.append("sid >= ?")
            bindings.append(after[0])
    if above_sid is not None and "sid" in shape.columns:
        conditions.append("sid > ?")
        bindings.append(above_sid)
    if upto_sid is not None and "sid" in shape.columns:
        conditions.append("sid <= ?")
        bindings.append(upto_sid)
    if managed_by is not None and "managed_by" in shape.columns:
        conditions.append("managed_by = ?")
        bindings.append(managed_by)
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    source = _NAMES.get(table, table)
    sql = f"SELECT {', '.join(shape.columns)} FROM {source} {where}ORDER BY {key} LIMIT ?"
    return sql, (*bindings, limit)

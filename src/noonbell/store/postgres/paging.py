"""Whole tables in short pages: the statement behind `read_ledger`.

Each page continues after the key of the last row, so no transaction lasts longer than one page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noonbell.ports import LEDGER_TABLES, LedgerTable
from noonbell.store.postgres.stored import JOINED

# the tables whose name in the database is another one, or which are two
_NAMES: Final[Mapping[str, str]] = {"schedules": JOINED, "live": "runs_live", "pruned": "pruned_days"}


def statement(
    table: LedgerTable, after: tuple[Any, ...] | None, limit: int, above_sid: int | None, upto_sid: int | None
) -> tuple[str, list[Any]]:
    """The SQL of a page and its bindings."""
    shape = LEDGER_TABLES[table]
    key = ", ".join(shape.key)
    bindings: list[Any] = [limit]
    conditions: list[str] = []

    def bound(value: Any) -> str:
        bindings.append(value)
        return f"${len(bindings)}"

    if after is not None:
        places = [bound(value) for value in after]
        conditions.append(f"({key}) > ({', '.join(places)})")
        # says nothing new, but a comparison of rows does not keep the planner from reading every day of `runs`
        conditions.append(f"{shape.key[0]} >= {places[0]}")
    if "sid" in shape.columns:
        if above_sid is not None:
            conditions.append(f"sid > {bound(above_sid)}")
        if upto_sid is not None:
            conditions.append(f"sid <= {bound(upto_sid)}")
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    source = _NAMES.get(table, table)
    return f"SELECT {', '.join(shape.columns)} FROM {source} {where}ORDER BY {key} LIMIT $1", bindings

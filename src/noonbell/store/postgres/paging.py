"""Whole tables in short pages: the statement behind `Ledger.read`.

Each page continues after the key of the last row, so no transaction lasts longer than one page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noonbell.ports import ALL_ROWS, LEDGER_TABLES, LedgerTable, RowBounds
from noonbell.store.postgres.numbers import attempt_columns, number, run_columns
from noonbell.store.postgres.stored import JOINED
from noonbell.store.words import KINDS

# the tables whose name in the database is another one, or which are two
_NAMES: Final[Mapping[str, str]] = {"schedules": JOINED, "live": "live_runs", "pruned": "pruned_days"}


def _source(table: LedgerTable) -> tuple[str, str, str]:
    """Return what a table is read from, the prefix of its columns if it holds numbers for words, and its columns."""
    columns = LEDGER_TABLES[table].columns
    if table == "runs":
        return "runs r", "r.", run_columns(columns)
    if table == "attempts":
        return "attempts a", "a.", attempt_columns(columns)
    return _NAMES.get(table, table), "", ", ".join(columns)


def statement(
    table: LedgerTable, after: tuple[Any, ...] | None, limit: int, bounds: RowBounds = ALL_ROWS
) -> tuple[str, list[Any]]:
    """The SQL of a page and its bindings."""
    above_sid, upto_sid, managed_by = bounds
    shape = LEDGER_TABLES[table]
    source, prefix, columns = _source(table)
    keys = [f"{prefix}{name}" for name in shape.key]
    key = ", ".join(keys)
    bindings: list[Any] = [limit]
    conditions: list[str] = []

    def bound(value: Any) -> str:
        bindings.append(value)
        return f"${len(bindings)}"

    if after is not None:
        places = [bound(value) for value in after]
        if prefix:  # the word in the key of such a table is a kind
            values = [number(KINDS, value) if isinstance(value, str) else value for value in after]
            bindings[1:] = values
            places = [f"{place}::int8" for place in places]
        conditions.append(f"({key}) > ({', '.join(places)})")
        # says nothing new, but a comparison of rows does not keep the planner from reading every day of `runs`
        conditions.append(f"{keys[0]} >= {places[0]}")
    if "sid" in shape.columns:
        if above_sid is not None:
            conditions.append(f"sid > {bound(above_sid)}::int8")
        if upto_sid is not None:
            conditions.append(f"sid <= {bound(upto_sid)}::int8")
    if managed_by is not None and "managed_by" in shape.columns:
        conditions.append(f"managed_by = {bound(managed_by)}")
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    return f"SELECT {columns} FROM {source} {where}ORDER BY {key} LIMIT $1", bindings

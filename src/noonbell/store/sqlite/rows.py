"""Many rows with one statement, as values or as JSON.

A wide row is bound about three times as fast as it is read back out of a JSON text. A block of rows is one step of the
statement, so the interpreter lock is asked for once in a block, not once in a row as with `executemany`. Narrow rows
that differ in a number or two are better off as JSON: `insert` is for the wide ones, `each` for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import apsw

# The text of a block of the widest row is short enough to be kept prepared.
BLOCK: Final = 100


def insert(db: apsw.Connection, into: str, rows: Sequence[Sequence[Any]], after: str = "") -> None:
    """Insert rows, in order, into `table (columns)`; `after` is what follows the values."""
    for first in range(0, len(rows), BLOCK):
        block = rows[first : first + BLOCK]
        sql = f"INSERT INTO {into} {_values(len(block[0]), len(block))} {after}"
        db.execute(sql, tuple(chain.from_iterable(block)), can_cache=len(block) in (1, BLOCK))


def each(bound: str, *names: str) -> str:
    """SQL for the rows of a JSON list of lists, as a table with these columns.

    Each column is read out of the JSON once, however often it is used: that is what the limit is for.
    """
    columns = ", ".join(f"value ->> {place} AS {name}" for place, name in enumerate(names))
    return f"(SELECT {columns} FROM jsonb_each({bound}) LIMIT -1)"


@lru_cache(maxsize=64)
def _values(width: int, count: int) -> str:
    row = f"({','.join('?' * width)})"
    return f"VALUES {','.join([row] * count)}"

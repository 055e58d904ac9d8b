"""Rows that travel to PostgreSQL as arrays, one for each column.

In a burst most columns have one value for all rows. Such a value is sent once: the driver takes about as long for each
element of an array as the server takes for a column of a row. What is shared by how many is seen batch by batch, so the
text of a statement names its columns, `{next_run_at}`, and is completed with what they are in this batch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple


class Batch(NamedTuple):
    """A batch as a part of a statement: what it is read from, what its columns are called, and its parameters."""

    source: str
    columns: dict[str, str]
    bindings: list[Any]


def batch(
    columns: Mapping[str, Sequence[Any]],
    *,
    first: int = 1,
    joined: Collection[str] = (),
    texts: Collection[str] = (),
) -> Batch:
    """Return a batch as `b`, whose parameters begin with the number `first`.

    The first column is always sent as an array, which says how many rows there are. Those that are `joined` are always
    columns of `b`: a condition on a parameter would be judged by statistics that say little of a burst (see
    `live_rows`), one on a column is a join clause. Values are int8, but for those in `texts`.
    """
    arrays: list[str] = []
    names: list[str] = []
    found: dict[str, str] = {}
    bindings: list[Any] = []
    for place, (name, values) in enumerate(columns.items(), first):
        kind = "text" if name in texts else "int8"
        shared = place > first and values.count(values[0]) == len(values)
        bindings.append(values[0] if shared else values)
        found[name] = f"b.{name}" if not shared or name in joined else f"${place}::{kind}"
        if not shared:
            arrays.append(f"${place}::{kind}[]")
        elif name in joined:
            arrays.append(f"array_fill(${place}::{kind}, ARRAY[cardinality(${first})])")
        else:
            continue
        names.append(name)
    return Batch(f"unnest({', '.join(arrays)}) AS b ({', '.join(names)})", found, bindings)

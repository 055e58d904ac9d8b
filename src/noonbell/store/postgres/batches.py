"""Rows that travel to PostgreSQL as arrays, one for each column.

In a burst most columns have one value for all rows. Such a value is sent once: the driver takes about as long for each
element of an array as the server takes for a column of a row. What is shared by how many is seen batch by batch, so the
text of a statement names its columns, `{next_run_at}`, and is completed with what they are in this batch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple


class Batch(NamedTuple):
    """A batch as a part of a statement: what it is read from, what its columns are called, and its parameters."""

    source: str
    columns: dict[str, str]
    bindings: list[Any]


# So many columns may differ and are found by their place. More of them are cheaper as a join.
_MOST_BY_PLACE: Final = 2
_NULL: Final = -(2**63)  # represents NULL in an array, where a real one makes each look into it a long one


class Keyed(NamedTuple):
    """A batch of rows of `schedule_state s` as a part of an UPDATE: where they come from, their condition, columns."""

    source: str  # empty, or a FROM
    matches: str
    columns: dict[str, str]
    bindings: list[Any]


def keyed(columns: Mapping[str, Sequence[int | None]]) -> Keyed:
    """Return a batch of whole numbers for rows of `schedule_state s`; the first column has their sids, ascending.

    The rows are looked up by `sid = ANY(...)`, which is one walk along the index, and the server joins nothing. What
    differs from row to row is found by the place of the sid in its array, in a binary search.
    """
    bindings: list[Any] = []
    found: dict[str, str] = {}
    for place, (name, values) in enumerate(columns.items(), 1):
        if place > 1 and values.count(values[0]) == len(values):
            bindings.append(values[0])
            found[name] = f"${place}::int8"
        else:
            bindings.append(_without_null(values))
            found[name] = f"nullif((${place}::int8[])[width_bucket(s.sid, $1::int8[])], {_NULL})"
    first = next(iter(columns))
    return Keyed("", "s.sid = ANY($1::int8[])", found | {first: "s.sid"}, bindings)


def inline(columns: Mapping[str, Sequence[int | None]], *, joins: bool = True) -> Keyed:
    """Return the same with the values as a part of the text, and no parameters. Many columns that differ are joined.

    A statement without parameters takes one message where others take two, and can be sent along with others. The
    driver needs half the time for it.
    """
    (key, keys), *others = columns.items()
    sids = _array(keys)
    shared = {name: values[0] for name, values in others if values.count(values[0]) == len(values)}
    found = {name: f"{'NULL' if value is None else int.__repr__(value)}::int8" for name, value in shared.items()}
    differing = {name: values for name, values in others if name not in shared}
    if len(differing) <= _MOST_BY_PLACE or not joins:
        for name, values in differing.items():
            found[name] = f"nullif(({_array(values)})[width_bucket(s.sid, {sids})], {_NULL})"
        return Keyed("", f"s.sid = ANY({sids})", found | {key: "s.sid"}, [])
    found |= {name: f"nullif(b.{name}, {_NULL})" for name in differing}
    arrays = ", ".join([sids, *map(_array, differing.values())])
    return Keyed(f"FROM unnest({arrays}) AS b ({', '.join([key, *differing])})", f"s.sid = b.{key}", found, [])


def _without_null(values: Sequence[Any]) -> Sequence[int]:
    return [_NULL if value is None else value for value in values] if None in values else values


def _array(values: Sequence[int | None]) -> str:
    return f"'{{{','.join(map(int.__repr__, _without_null(values)))}}}'::int8[]"


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

"""Lists and ranges: 'monday and thursday', '0 to 9, 20 and 30', 'june to august and december'."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from noonbell.language.cursor import TO, Cursor
from noonbell.language.phrase import Place


class Item(NamedTuple):
    """One element of a list: its values, and whether the word itself says that they come again ('mondays')."""

    values: frozenset[int]
    repeats: bool = False


class Listed(NamedTuple):
    """A whole list. `single`: one value, and no word that says that it comes again."""

    values: frozenset[int]
    single: bool
    place: Place


class Bounds(NamedTuple):
    """The first and the last value of a field, and whether a range may run over its end."""

    low: int
    high: int
    wraps: bool


def separators(cursor: Cursor) -> bool:
    """Take the separators of two elements, an 'and' after a comma included."""
    comma = cursor.take(",", ";") is not None
    return cursor.take("and", "or", "&") is not None or comma


def read_list(cursor: Cursor, read: Callable[[Cursor], Item | None], bounds: Bounds) -> Listed | None:
    """A list of what `read` reads; None, and nothing taken, where it does not begin here."""
    start = cursor.place()
    item = read(cursor)
    if item is None:
        return None
    values: frozenset[int] = frozenset()
    repeats = False
    while item is not None:
        item = _range(cursor, read, item, bounds)
        values |= item.values
        repeats = repeats or item.repeats
        before = cursor.at
        item = read(cursor) if separators(cursor) else None
        if item is None:
            cursor.at = before
    return Listed(values, len(values) == 1 and not repeats, cursor.since(start))


def _range(cursor: Cursor, read: Callable[[Cursor], Item | None], first: Item, bounds: Bounds) -> Item:
    before = cursor.at
    place = cursor.place(-1)
    last = read(cursor) if cursor.take(*TO) else None
    if last is None or len(first.values) > 1 or len(last.values) > 1:
        cursor.at = before
        return first
    (low,), (high,) = first.values, last.values
    if low <= high:
        return Item(frozenset(range(low, high + 1)), repeats=True)
    if not bounds.wraps:
        reason = f"the range runs backwards, from {low} to {high}"
        raise cursor.refusal(reason, cursor.since(place), (f"a range that rises, such as {high} to {low}",))
    return Item(frozenset({*range(low, bounds.high + 1), *range(bounds.low, high + 1)}), repeats=True)


def number_between(low: int, high: int, what: str) -> Callable[[Cursor], Item | None]:
    """A reader of plain numbers of a field."""

    def read(cursor: Cursor) -> Item | None:
        place = cursor.place()
        value = cursor.number()
        if value is None:
            return None
        if not low <= value <= high:
            near = cursor.replaced(place, str(min(max(value, low), high)))
            reason = f"{what} go from {low} to {high}"
            raise cursor.refusal(reason, cursor.since(place), (f"a number from {low} to {high}",), (near,))
        return Item(frozenset({value}))

    return read

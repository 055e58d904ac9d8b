"""Definitions of schedules that a store on PostgreSQL has read for its claims, by schedule and revision.

`schedule_state.rev` is raised by every update of a definition, by a trigger in the transaction of the update. A claim
reads it with the lock of the schedule: what was read before under the same number is what the table says now, whichever
process has edited it. Only definitions that are new to this store, or were edited, are read again.

Quiet hours are not in it: their documents are few, and are read by every claim that needs one.
"""

from __future__ import annotations

from sys import intern
from typing import Any, Final

Row = tuple[Any, ...]

# About 40 MB where schedules differ in little but their names. In a burst of more than these, the rest is read again.
MOST_KEPT: Final = 100_000


class DefinitionCache:
    """Rows of `schedule_definitions`, each with the revision that it was read under."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._rows: dict[int, tuple[int, Row]] = {}
        self._turned_away = 0
        self._made = 0

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, sid: int, rev: int) -> Row | None:
        """Return the definition that a schedule has under this revision, if it was read."""
        found = self._rows.get(sid)
        return found[1] if found is not None and found[0] == rev else None

    def put(self, sid: int, rev: int, row: Row) -> Row:
        """Keep a row and return it; where the cache is full of others for long, it begins again."""
        kept = tuple(intern(value) if type(value) is str else value for value in row)  # most of their texts are alike
        if len(self._rows) >= self._most and sid not in self._rows:
            self._turned_away += 1
            if self._turned_away <= self._most:
                return kept
            self._clear()
        self._rows[sid] = (rev, kept)
        return kept

    def since(self, made: int) -> DefinitionCache:
        """Return the cache, without what was read before the newest connection was made; they are counted.

        A new connection may lead to a database that was restored or failed over, where numbers mean something else.
        """
        if made != self._made:
            self._made = made
            self._clear()
        return self

    def _clear(self) -> None:
        self._rows.clear()
        self._turned_away = 0

"""Definitions that claims have read before, so that a fire reads the state of its schedule and nothing else.

Every change of a definition opens a new epoch of its schedule, and the state row has the number of that epoch. A
definition is used again only under the epoch that it was read with. The cache belongs to one connection to one database
and is emptied with it. Its size is bounded: when it is full, it is emptied before the next batch is added.

Texts that many schedules share, such as specs and policies, are kept once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from noonbell.core.records import ScheduleColumns

MOST_BYTES: Final = 64 * 1024 * 1024
_SKIPS: Final = '"overlap":"skip"'
_ENTRY_BYTES: Final = 600  # beside its texts


class Known(NamedTuple):
    """A definition, and the epoch that it was read with."""

    epoch: int
    schedule_id: str
    managed_by: str
    lane: str
    created_at: int
    updated_at: int
    team: str
    columns: ScheduleColumns
    skips: bool  # the overlap policy is `skip`, so a decision asks for the last run
    is_plain: bool  # it does not skip and has no quiet hours: a decision needs nothing beside the state


def extras(columns: ScheduleColumns) -> tuple[bool, bool]:
    """Return `skips` and `is_plain` of a definition."""
    skips = _SKIPS in str(columns.definition)
    return skips, not skips and columns.quiet_hours_policy_id is None


class DefinitionCache:
    """Definitions by sid."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._known: dict[int, Known] = {}
        self._texts: dict[str, str] = {}  # each text that schedules share, by itself

    def __len__(self) -> int:
        return len(self._known)

    def clear(self) -> None:
        self._known.clear()
        self._texts.clear()
        self._bytes = 0

    def find(self, sids: Iterable[int], epochs: Sequence[int]) -> list[Known | None]:
        """Return the definitions of schedules, each if it was read in this epoch."""
        return [
            known if known is not None and known[0] == epoch else None
            for known, epoch in zip(map(self._known.get, sids), epochs, strict=True)
        ]

    def add(self, epochs: dict[int, int], rows: Iterable[Any]) -> dict[int, Known]:
        """Take rows of sid, schedule_id, managed_by, lane, created_at, updated_at, team and the columns; return them.

        `epochs` has the epoch of each, as read in the same transaction.
        """
        if self._bytes > self._most_bytes:
            self.clear()
        shared = self._shared
        added: dict[int, Known] = {}
        for sid, schedule_id, managed_by, lane, created_at, updated_at, team, *columns in rows:
            name, kind, spec, timezone, policy, catch_up, payload, definition = columns
            written = ScheduleColumns(
                name, shared(kind), shared(spec), shared(timezone), policy, shared(catch_up), payload,
                shared(definition),
            )  # fmt: skip
            added[sid] = Known(
                epochs[sid], schedule_id, shared(managed_by), shared(lane), created_at, updated_at, shared(team),
                written, *extras(written),
            )  # fmt: skip
            self._bytes += _ENTRY_BYTES + len(str(name)) + len(str(payload or ""))
        self._known.update(added)
        return added

    def _shared(self, text: Any) -> Any:
        """Return the same text as one object; damage is passed on."""
        if type(text) is not str:
            return text
        known = self._texts.get(text)
        if known is None:
            known = self._texts[text] = text
            self._bytes += len(text)
        return known

"""Definitions that claims have read before, so that a fire reads the state of its schedule and nothing else.

Every change of a definition opens a new epoch of its schedule, and the state row has the number of that epoch. A
definition is used again only under the epoch that it was read with. The cache belongs to one connection to one database
and is emptied with it. Its size is bounded: when it is full, every second definition is removed before the next batch
is added. Bursts claim schedules in the same order every time, so a cache that removed the oldest ones would find none.

What many schedules have in common, such as specs and policies, is kept once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from noonbell.core.records import ScheduleColumns

MOST_BYTES: Final = 256 * 1024 * 1024
_SKIPS: Final = '"overlap":"skip"'
_ENTRY_BYTES: Final = 500  # beside its texts


class Shared(NamedTuple):
    """The part of a definition that many schedules have in common."""

    managed_by: str
    lane: str
    team: str
    type: str
    spec: str
    timezone: str
    quiet_hours_policy_id: str | None
    catch_up_policy: str
    definition: str


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


def extras(definition: str, quiet_hours_policy_id: str | None) -> tuple[bool, bool]:
    """Return `skips` and `is_plain` of a definition."""
    skips = _SKIPS in str(definition)
    return skips, not skips and quiet_hours_policy_id is None


class DefinitionCache:
    """Definitions by sid."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._known: dict[int, Known] = {}
        self._shared: dict[tuple[Any, ...], tuple[Shared, bool, bool]] = {}  # with `skips` and `is_plain`

    def __len__(self) -> int:
        return len(self._known)

    def clear(self) -> None:
        self._known.clear()
        self._shared.clear()
        self._bytes = 0

    def find(self, sids: Iterable[int], epochs: Sequence[int]) -> list[Known | None]:
        """Return the definitions of schedules, each if it was read in this epoch."""
        return [
            known if known is not None and known[0] == epoch else None
            for known, epoch in zip(map(self._known.get, sids), epochs, strict=True)
        ]

    def add(self, epochs: dict[int, int], rows: Iterable[Any]) -> dict[int, Known]:
        """Take rows of sid, schedule_id, created_at, updated_at, name, payload and the fields of `Shared`; return them.

        `epochs` has the epoch of each, as read in the same transaction.
        """
        if self._bytes > self._most_bytes:
            self._halve()
        shares = self._shared
        added: dict[int, Known] = {}
        size = 0
        for sid, schedule_id, created_at, updated_at, name, payload, *rest in rows:
            entry = shares.get(tuple(rest))
            if entry is None:
                shared = Shared(*rest)
                entry = shares[shared] = (shared, *extras(shared.definition, shared.quiet_hours_policy_id))
                size += _ENTRY_BYTES + sum(len(str(text)) for text in rest)
            (managed_by, lane, team, kind, spec, timezone, policy, catch_up, definition), skips, is_plain = entry
            added[sid] = Known(
                epochs[sid], schedule_id, managed_by, lane, created_at, updated_at, team,
                ScheduleColumns(name, kind, spec, timezone, policy, catch_up, payload, definition), skips, is_plain,
            )  # fmt: skip
            size += _ENTRY_BYTES + len(str(name)) + (0 if payload is None else len(str(payload)))
        self._bytes += size
        self._known.update(added)
        return added

    def _halve(self) -> None:
        """Remove every second definition. What they shared is kept again with the next one that has it."""
        if self._bytes > 2 * self._most_bytes or len(self._known) < 2:
            self.clear()
            return
        for sid in [*self._known][::2]:
            del self._known[sid]
        self._shared.clear()
        self._bytes //= 2

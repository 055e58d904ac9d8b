"""The subject of an answer: a schedule's rows with their epochs, and what is common to all answers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import Any, NamedTuple

from noonbell.core.records import Epoch
from noonbell.errors import StoreCorruptError
from noonbell.ledger.explanation_text import Times, Vocabulary
from noonbell.ledger.ledger_rows import EARLIEST, LATEST, is_instant, zone_named
from noonbell.ledger.policies import EpochPolicies, StoredQuietHours, policies_of
from noonbell.ledger.recurrence import EveryN, Recurrence, recurrence_of
from noonbell.ports import Ledger
from noonbell.timing import jitter_us


class Context(NamedTuple):
    """The facts that are common to all answers about a schedule."""

    store: Ledger
    now: int
    times: Times
    words: Vocabulary
    lane: str  # of declared tasks: their owner
    quiet: Mapping[str, StoredQuietHours]  # by policy id


class Subject(NamedTuple):
    """A schedule's row, and the epoch of it that an occurrence lies in."""

    row: Mapping[str, Any]
    epoch: Epoch
    policies: EpochPolicies
    recurrence: Recurrence

    @property
    def sid(self) -> int:
        found: int = self.row["sid"]
        return found

    @property
    def name(self) -> str:
        return str(self.row["name"])

    def delay(self, at: int) -> int:
        """Return how long the jitter delays the start of an occurrence."""
        return jitter_us(str(self.row["schedule_id"]), at, self.policies.jitter_us)


def times_of(row: Mapping[str, Any]) -> Times:
    """Return how the instants of a schedule are written: in its zone, or in UTC if that is not known."""
    name = row["timezone"]
    zone = zone_named(name) if isinstance(name, str) else None
    return Times(UTC, "UTC") if zone is None else Times(zone, name)


class Stored(NamedTuple):
    """A row of a schedule with its epochs: one for each time that it was created."""

    row: Mapping[str, Any]
    epochs: list[Epoch]

    def policies(self, epoch: Epoch) -> EpochPolicies:
        return policies_of(epoch.policies, self.row["managed_by"])

    def recurrence(self, epoch: Epoch, anchor_at: int | None = None) -> Recurrence:
        policies = self.policies(epoch)
        anchor = anchor_at if is_instant(anchor_at) else policies.anchor_at
        found = recurrence_of(policies.kind, epoch.spec, epoch.timezone, policies.dst, anchor)
        if isinstance(found, str):
            raise StoreCorruptError(f"{self.row['name']}, epoch {epoch.epoch}: {found}")
        return found

    def every(self, epoch: Epoch) -> int:
        """The length of an interval's step."""
        found = self.recurrence(epoch)
        assert isinstance(found, EveryN)  # noqa: S101 - asked of intervals alone
        return found.every

    def bounds(self, epoch: Epoch) -> tuple[int, int]:
        """The instant before the first that may be an occurrence of the epoch, and the last."""
        policies, last = self.policies(epoch), LATEST if epoch.to_at is None else epoch.to_at
        if epoch is self.epochs[-1]:
            last = self.row["removed_at"] or last  # a removed task ends at its cursor, and is due up to its removal
        last = min(last, policies.end_at or LATEST)
        return max(epoch.from_at, (policies.start_at or EARLIEST) - 1), last

    def upcoming(self, after: int) -> int | None:
        """The first occurrence after `after` and the cursor, as the schedule is now."""
        row, epoch = self.row, self.epochs[-1]
        if row["enabled"] == 0 or row["removed_at"] is not None or not is_instant(row["cursor_at"]):
            return None
        first, last = self.bounds(epoch)
        found = self.recurrence(epoch, row["anchor_at"]).after(max(after, row["cursor_at"], first))
        return None if found is None or found > last else found

    def pending(self, now: int) -> int | None:
        """The latest occurrence up to `now` that has no verdict yet."""
        first = self.upcoming(EARLIEST)
        if first is None or first > now:
            return None
        epoch = self.epochs[-1]
        return self.recurrence(epoch, self.row["anchor_at"]).latest(min(now, self.bounds(epoch)[1]))

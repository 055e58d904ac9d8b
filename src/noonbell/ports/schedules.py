"""Schedules as they are stored: declared, created, edited, found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from noonbell.core.records import (
    AuditEvent,
    Declaration,
    DurableSchedule,
    Edit,
    LifecycleEvent,
    QuietHoursPolicy,
    StoredSchedule,
)


class Declared(NamedTuple):
    """Stored tasks as raw rows, so that damage can be reported field by field, and the last step of their owner."""

    rows: list[Mapping[str, Any]]
    last_lifecycle: LifecycleEvent | None


class ScheduleFilter(NamedTuple):
    """A filter of schedules: durable ones that are not deleted, unless `declared` and `deleted` say otherwise.

    None leaves a part open. `name_contains` ignores case for ASCII letters alone. `declared` are declared tasks.
    """

    managed_by: str | None = None
    lane: str | None = None
    enabled: bool | None = None
    type: str | None = None
    tag: str | None = None
    name_contains: str | None = None
    quiet_hours_policy_id: str | None = None
    team: str | None = None
    timezone: str | None = None
    schedule_ids: Sequence[str] | None = None
    sids: Sequence[int] | None = None
    declared: bool | None = False
    deleted: bool | None = False


class WakeFilter(NamedTuple):
    """A filter of the wake-ups of durable schedules: up to an instant, and of a lane or a team if one is given.

    Those of schedules, or with `live` those of live runs: all of them, whether it is their turn or not.
    """

    upto: int
    lane: str | None = None
    team: str | None = None
    live: bool = False


class QuietHoursPut(NamedTuple):
    """Quiet hours that are created or replaced, with the audit event of it.

    `seen_at` is the `updated_at` that the writer has seen.
    """

    policy: QuietHoursPolicy
    audit: AuditEvent
    seen_at: int | None = None


class QuietHoursDrop(NamedTuple):
    """Quiet hours that are deleted, with the audit event of it; `seen_at` is as in QuietHoursPut."""

    policy_id: str
    audit: AuditEvent
    seen_at: int | None = None


class QuietChanges(NamedTuple):
    """The quiet hours that a change puts and drops."""

    put: Sequence[QuietHoursPut] = ()
    dropped: Sequence[QuietHoursDrop] = ()


NO_QUIET_CHANGES: Final = QuietChanges()

MakeEdit = Callable[[StoredSchedule], Edit | None]


def leave_unchanged(stored: StoredSchedule) -> None:
    """Edit nothing: the default of a change without edits."""
    del stored


class ScheduleChange(NamedTuple):
    """The changes of one transaction; a part that is left out changes nothing.

    `at` and `actor` are for the `schedule.created` of each created schedule. `edited` are the ids of the schedules that
    `edit` is called for. `zone_rules` are the rules to remember, by zone.
    """

    created: Sequence[DurableSchedule] = ()
    at: int = 0
    actor: str = ""
    edited: Sequence[str] = ()
    edit: MakeEdit = leave_unchanged
    quiet: QuietChanges = NO_QUIET_CHANGES
    zone_rules: Mapping[str, str] = MappingProxyType({})


class Sample(NamedTuple):
    """Enabled durable schedules of all teams, and how many there are in all."""

    schedules: list[StoredSchedule]
    total: int

    @property
    def whole(self) -> bool:
        return len(self.schedules) == self.total


class LedgerSchedules(Protocol):
    """Declared tasks and durable schedules. Those that were deleted are not seen, except where a verb says so."""

    # --- declared tasks -------------------------------------------------------------------------------------------

    async def read_declared(self, managed_by: str | None = None) -> Declared:
        """Return all tasks of an owner, or of all declared owners (DECLARED_OWNERS), that are not removed.

        Each is joined with its live runs. A row holds every column of `schedules`, the `zone_hash` of its epoch, and
        the columns of a live run (its kind and epoch as `live_kind`, `live_epoch`) or None for them; a schedule with
        two live runs has two rows. Without an owner the last step is left out. The cost depends on how many tasks are
        declared, and not on how many durable schedules there are.
        """
        ...

    async def declare(self, declaration: Declaration) -> list[int]:
        """Apply an override whole; returns the sids of the created schedules, in order."""
        ...

    # --- durable schedules ----------------------------------------------------------------------------------------

    async def apply(self, change: ScheduleChange) -> list[int]:
        """Make a change, all of it or nothing; returns the sids of the created schedules, in order.

        1. `edit` is called inside the transaction for each schedule in `edited`, and for each other one that refers to
           quiet hours in `quiet.put`; None leaves a schedule unchanged. Edits see the quiet hours as they were.
        2. The quiet hours in `quiet.put` are put.
        3. Schedules are created with their first epochs and a `schedule.created` each.
        4. The quiet hours in `quiet.dropped` are deleted, and the zone rules remembered.

        What `edit` raises undoes everything. So does an id of a schedule or of quiet hours that is not found
        (ScheduleNotFoundError), an id that was ever used or a name that is in its team by the same owner
        (ScheduleExistsError), quiet hours that are dropped while a schedule refers to them (QuietHoursInUseError), and
        quiet hours that were changed after `seen_at` (ScheduleChangedError).
        """
        ...

    async def find(self, wanted: ScheduleFilter, after_sid: int = 0, limit: int | None = None) -> list[StoredSchedule]:
        """Return up to `limit` schedules in the order of sids, past `after_sid`."""
        ...

    async def sample(self, size: int) -> Sample:
        """Return all that are enabled if they are no more than `size`; else about so many of them."""
        ...

    # --- wake-ups -------------------------------------------------------------------------------------------------

    async def wakes(self, wanted: WakeFilter, after: tuple[int, int], limit: int) -> list[tuple[int, int]]:
        """Return up to `limit` wake-ups as (instant, sid), in their order and past `after`.

        Where no lane is given, a store may look at the first MOST_SOUGHT (`noonbell.store.waking`) of each lane alone.
        """
        ...

    # --- quiet hours ----------------------------------------------------------------------------------------------

    async def quiet_hours(self, policy_id: str | None = None) -> list[QuietHoursPolicy]:
        """Return one policy or all, by id."""
        ...

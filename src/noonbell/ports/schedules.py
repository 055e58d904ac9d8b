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
    """The stored tasks of one owner, as raw rows, so that damage can be reported field by field."""

    rows: list[Mapping[str, Any]]
    last_lifecycle: LifecycleEvent | None


class ScheduleFilter(NamedTuple):
    """Which durable schedules are meant; None leaves a part open.

    `name_contains` ignores case for ASCII letters alone.
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
    """What one transaction changes; a part that is left out changes nothing.

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

    async def read_declared(self, managed_by: str) -> Declared:
        """Return all schedules of an owner that are not removed, each joined with its live runs.

        A row holds every column of `schedules`, the `zone_hash` of its epoch, and the columns of a live run (its kind
        and epoch as `live_kind`, `live_epoch`) or None for them; a schedule with two live runs has two rows.
        """
        ...

    async def declare(self, declaration: Declaration) -> list[int]:
        """Apply an override whole; returns the sids of the created schedules, in order."""
        ...

    async def declared_tasks(self) -> list[Mapping[str, Any]]:
        """Return rows of the tasks of all declared owners (DECLARED_OWNERS), oldest first, without removed ones.

        Its cost depends on how many tasks are declared, and not on how many durable schedules there are.
        """
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

    async def find(self, schedule_ids: Sequence[str]) -> list[StoredSchedule]:
        """Return those that exist, by sid."""
        ...

    async def by_sids(self, sids: Sequence[int]) -> list[StoredSchedule]:
        """Return the durable schedules of these sids, also deleted ones."""
        ...

    async def page(self, wanted: ScheduleFilter, after_sid: int, limit: int) -> list[StoredSchedule]:
        """Return a page in the order of sids, past `after_sid`."""
        ...

    async def sample(self, size: int) -> Sample:
        """Return all that are enabled if they are no more than `size`; else about so many of them."""
        ...

    async def rows(self, managed_by: str | None = None) -> list[Mapping[str, Any]]:
        """Return raw rows of the schedules table, oldest first, with removed ones."""
        ...

    async def deleted(self, sids: Sequence[int]) -> set[int]:
        """Return those of these schedules that were deleted."""
        ...

    # --- wake-ups -------------------------------------------------------------------------------------------------

    async def upcoming(self, after: int, upto: int, limit: int, team: str | None = None) -> list[StoredSchedule]:
        """Return durable schedules whose next wake-up lies in (after, upto], the earliest first."""
        ...

    async def wake_times(self, sids: Sequence[int]) -> dict[int, int | None]:
        """Return when these durable schedules wake: by their next occurrence or a live run, whichever is first.

        None where one has nothing to wake for now, as while its run is under way. Left out are those that do not exist,
        were deleted, or are paused and have no live run that wants to go on.
        """
        ...

    async def upcoming_wakes(
        self, lane: str, after: tuple[int, int], upto: int, limit: int, *, live: bool = False
    ) -> list[tuple[int, int]]:
        """Return wake-ups of a lane as (instant, sid), in their order, past `after` and up to `upto`.

        Those of schedules, or with `live` those of live runs: all of them, whether it is their turn or not.
        """
        ...

    # --- quiet hours ----------------------------------------------------------------------------------------------

    async def quiet_hours(self, policy_id: str | None = None) -> list[QuietHoursPolicy]:
        """Return one policy or all, by id."""
        ...

    # --- zone rules -----------------------------------------------------------------------------------------------

    async def zone_rules(self) -> dict[str, str]:
        """Return for each zone of durable schedules and quiet hours the rules they were computed with, hash first."""
        ...

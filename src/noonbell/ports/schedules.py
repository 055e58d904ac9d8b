"""Schedules as they are stored: declared, created, edited, found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


class QuietChanges(NamedTuple):
    """Quiet hours that are put or dropped together with schedules, each with its audit event."""

    put: Sequence[tuple[QuietHoursPolicy, AuditEvent]] = ()
    dropped: Sequence[tuple[str, AuditEvent]] = ()


NO_QUIET_CHANGES: Final = QuietChanges()

MakeEdit = Callable[[StoredSchedule], Edit | None]


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

    async def create(self, created: Sequence[DurableSchedule], at: int, actor: str) -> list[int]:
        """Create them with their first epochs and a `schedule.created` each; returns their sids, in order.

        Raises ScheduleExistsError where an id was ever used, or a name is in its team by the same owner.
        """
        ...

    async def edit(self, schedule_ids: Sequence[str], edit: MakeEdit) -> None:
        """Call `edit` for each, inside the transaction, and write what it returns; None leaves a schedule unchanged.

        What `edit` raises undoes everything, and so does an id that is not found (ScheduleNotFoundError) or a name that
        is taken (ScheduleExistsError).
        """
        ...

    async def apply(
        self,
        created: Sequence[DurableSchedule],
        schedule_ids: Sequence[str],
        edit: MakeEdit,
        at: int,
        actor: str,
        *,
        quiet: QuietChanges = NO_QUIET_CHANGES,
    ) -> list[int]:
        """Edit as `edit` does and then create as `create` does, all of it or nothing.

        Other schedules that refer to quiet hours in `quiet.put` are edited too. Edits see the quiet hours as they were;
        then they are put, and after the creations those in `quiet.dropped` go (QuietHoursInUseError where a schedule
        still refers to them; one that does not exist is passed over).
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

    async def put_quiet_hours(
        self, policy: QuietHoursPolicy, audit: AuditEvent, edit: MakeEdit, *, seen_at: int | None = None
    ) -> None:
        """Create or replace a policy; each schedule that refers to it is edited in the same transaction.

        With `seen_at`, the `updated_at` that the writer has seen, ScheduleChangedError is raised where the policy has
        another one by now, or is gone.
        """
        ...

    async def drop_quiet_hours(self, policy_id: str, audit: AuditEvent, *, seen_at: int | None = None) -> bool:
        """Delete a policy; False where there is none. Raises QuietHoursInUseError where a schedule refers to it.

        `seen_at` is as in put_quiet_hours.
        """
        ...

    async def quiet_hours(self, policy_id: str | None = None) -> list[QuietHoursPolicy]:
        """Return one policy or all, by id."""
        ...

    # --- zone rules -----------------------------------------------------------------------------------------------

    async def zone_rules(self) -> dict[str, str]:
        """Return for each zone of durable schedules and quiet hours the rules they were computed with, hash first."""
        ...

    async def put_zone_rules(self, rules: Mapping[str, str]) -> None: ...

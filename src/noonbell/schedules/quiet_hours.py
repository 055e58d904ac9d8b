"""Quiet hours: made, changed, looked at and deleted; each belongs to a team, as schedules do."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from noonbell.core.instants import moment
from noonbell.core.records import DEFAULT_TEAM, QuietHoursPolicy
from noonbell.errors import ScheduleChangedError, ScheduleInvalidError, ScheduleNotFoundError
from noonbell.ports import Clock, QuietChanges, QuietHoursDrop, QuietHoursPut, ScheduleChange
from noonbell.schedules import arguments, changes, warnings
from noonbell.schedules.engine_notifier import EngineNotifier
from noonbell.schedules.fields import check_team
from noonbell.schedules.schedule_records import QuietHoursRecord, quiet_hours_record
from noonbell.timing import QuietHours

_encode = msgspec.json.Encoder().encode


class QuietHoursEdits(EngineNotifier):
    """The part of `Schedules` that keeps quiet hours."""

    _clock: Clock
    _actor: str

    async def create_quiet_hours(
        self,
        name: str,
        windows: Sequence[Mapping[str, Any]],
        *,
        policy_id: str | None = None,
        team: str | None = None,
    ) -> QuietHoursRecord:
        """Quiet hours that schedules of the team may refer to; the windows are those of `QuietHours.from_json`."""
        chosen = uuid.uuid4().hex if policy_id is None else policy_id
        arguments.check_quiet_hours(chosen, name, windows)
        arguments.check_new_policy_id(chosen)
        if await self._store.schedules.quiet_hours(chosen):
            raise ScheduleInvalidError("policy_id", chosen, "is taken; choose another, or update it")
        owner = self._only(None if team is None else check_team(team)) or DEFAULT_TEAM
        return await self._put_quiet_hours(chosen, name, windows, owner)

    async def update_quiet_hours(
        self,
        policy_id: str,
        *,
        name: str | None = None,
        windows: Sequence[Mapping[str, Any]] | None = None,
        seen: QuietHoursRecord | None = None,
    ) -> QuietHoursRecord:
        """Change quiet hours; every schedule that refers to them goes on in a new epoch.

        With `seen`, only as they were seen: raises ScheduleChangedError where they have been changed since.
        """
        before = await self._quiet_hours(policy_id)
        seen_at = _seen_at(before, seen)
        kept = quiet_hours_record(before)
        arguments.check_quiet_hours(
            policy_id, kept.name if name is None else name, kept.windows if windows is None else windows
        )
        return await self._put_quiet_hours(
            policy_id, kept.name if name is None else name, kept.windows if windows is None else windows, before.team,
            before, seen_at=seen_at,
        )  # fmt: skip

    async def get_quiet_hours(self, policy_id: str) -> QuietHoursRecord:
        return quiet_hours_record(await self._quiet_hours(policy_id))

    async def _quiet_hours(self, policy_id: str) -> QuietHoursPolicy:
        arguments.require_id("quiet-hours policy", policy_id)
        found = await self._store.schedules.quiet_hours(policy_id)
        if not found or self._team not in (None, found[0].team):
            raise ScheduleNotFoundError("quiet-hours policy", policy_id)
        return found[0]

    async def list_quiet_hours(self) -> Sequence[QuietHoursRecord]:
        found = await self._store.schedules.quiet_hours()
        return [quiet_hours_record(policy) for policy in found if self._team in (None, policy.team)]

    async def delete_quiet_hours(self, policy_id: str, *, seen: QuietHoursRecord | None = None) -> None:
        """Delete quiet hours that no schedule refers to; with `seen`, only as they were seen."""
        before = await self._quiet_hours(policy_id)
        seen_at = _seen_at(before, seen)
        audit = changes.quiet_hours_event(self._clock.now(), self._actor, policy_id, before=before)
        dropped = QuietChanges(dropped=[QuietHoursDrop(policy_id, audit, seen_at)])
        await self._store.schedules.apply(ScheduleChange(quiet=dropped))

    async def _put_quiet_hours(
        self,
        policy_id: str,
        name: str,
        windows: Sequence[Mapping[str, Any]],
        team: str,
        before: QuietHoursPolicy | None = None,
        *,
        seen_at: int | None = None,
    ) -> QuietHoursRecord:
        document = _encode(QuietHours.from_json({"windows": list(windows)}).to_json()).decode()
        polls, now = await self._polls(), self._clock.now()
        policy = QuietHoursPolicy(policy_id, name, document, now, now, team)
        change = changes.EditBuilder({}, now, polls, self._actor, notifier=await self._notifier())
        audit = changes.quiet_hours_event(now, self._actor, policy_id, before=before, after=policy)
        await self._store.schedules.apply(
            ScheduleChange(edit=change.reopen, quiet=QuietChanges([QuietHoursPut(policy, audit, seen_at)]))
        )
        self._wake_after(change)
        found = await warnings.of_quiet_hours(self._store, policy_id)
        return msgspec.structs.replace(await self.get_quiet_hours(policy_id), warnings=found)


def _seen_at(policy: QuietHoursPolicy, seen: QuietHoursRecord | None) -> int | None:
    """Return when a policy was last changed before the caller read it; the store refuses the write after a later
    change.
    """
    if seen is None:
        return None
    if moment(policy.updated_at) != seen.updated_at:
        raise ScheduleChangedError(policy.policy_id, "quiet-hours policy")
    return policy.updated_at


def no_quiet_hours(policy_id: str) -> ScheduleInvalidError:
    """Return the error for a schedule that refers to quiet hours that its team does not have."""
    reason = "names no quiet hours of this team; create them first with create_quiet_hours"
    return ScheduleInvalidError("quiet_hours_policy_id", policy_id, reason)

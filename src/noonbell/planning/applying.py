"""Applying a plan: one transaction, or nothing.

Inside the transaction every schedule of the file's owner is read again. If one has been edited, paused or
deleted since the plan was made, nothing is written: what was shown is what is done. Every change is audited.

An engine that runs on the same store, here or in another process, sees the changes at its next poll.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from noonbell.core.presence import Polls
from noonbell.core.records import DurableSchedule, Edit, QuietHoursPolicy, StoredSchedule
from noonbell.errors import DeletionRefusedError, PlanOutdatedError, ScheduleNotFoundError
from noonbell.notify.dispatcher import read_book
from noonbell.notify.notifier import Notifier
from noonbell.planning.plans import Plan, owned
from noonbell.ports import Ledger, QuietChanges, QuietHoursDrop, QuietHoursPut, ScheduleChange
from noonbell.schedules import changes, warnings


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of an applied plan. `wake_at` is the earliest wake-up that it left, to notify an engine.

    `warnings` are about schedules that were created or changed: see `noonbell.schedules.warnings`.
    """

    created: int
    changed: int
    deleted: int
    wake_at: int | None
    warnings: tuple[str, ...] = ()


async def apply(
    store: Ledger,
    plan: Plan,
    *,
    now: int,
    actor: str | None = None,
    allow_delete: bool = False,
    lane: str = "default",
    here: warnings.Here | None = None,
) -> Applied:
    """Do what a plan says. `here` is what this program registers and delivers to, for the warnings.

    Raises DeletionRefusedError where the plan deletes and that is not allowed, PlanOutdatedError where the store has
    changed; nothing is written then.
    """
    if plan.deleted and not allow_delete:
        raise DeletionRefusedError(plan.deleted)
    if plan.empty:
        return Applied(0, 0, 0, None)
    who = plan.file.owner if actor is None else actor
    for one in await owned(store, plan.file.owner, plan.team):
        if one.schedule_id not in plan.seen:
            raise PlanOutdatedError(one.schedule_id, "was created")
    notifier = Notifier(lane)
    notifier.book = await read_book(store)
    edits = _Edits(plan, now, await store.engines.polls(), who, notifier)
    created = _created(plan, now, lane)
    try:
        change = ScheduleChange(created, now, who, list(plan.seen), edits, _quiet(plan, now, who))
        await store.schedules.apply(change)
    except ScheduleNotFoundError as error:
        raise PlanOutdatedError(error.sought, "was deleted") from error
    wakes = [new.next_run_at for new in created] + edits.wakes
    wake_at = min((wake for wake in wakes if wake is not None), default=None)
    found = await warnings.of_many(store, _subjects(plan, lane), warnings.Here() if here is None else here, now)
    return Applied(len(created), len(plan.ids("change")), len(plan.ids("delete")), wake_at, found)


class _Edits:
    """The change of each stored schedule; called inside the transaction."""

    def __init__(self, plan: Plan, now: int, polls: Mapping[str, Polls], actor: str, notifier: Notifier) -> None:
        self._plan = plan
        self._now = now
        self._actor = actor
        self._change = changes.EditBuilder({}, now, polls, actor, notifier=notifier)
        self._does: dict[str, Callable[[StoredSchedule], Edit]] = {
            **dict.fromkeys(plan.ids("change"), self._changed),
            **dict.fromkeys(plan.ids("delete"), self._deleted),
        }

    @property
    def wakes(self) -> list[int | None]:
        return [self._change.wake_at]

    def __call__(self, stored: StoredSchedule) -> Edit | None:
        seen = self._plan.seen.get(stored.schedule_id)
        if seen is None:  # another owner's, which uses quiet hours of this file
            return self._change.reopen(stored)
        if stored.epoch != seen.epoch:
            raise PlanOutdatedError(stored.schedule_id, "was changed")
        does = self._does.get(stored.schedule_id)
        if does is None:
            return None
        if stored.enabled != seen.enabled:
            raise PlanOutdatedError(stored.schedule_id, "has ended")
        return does(stored)

    def _changed(self, stored: StoredSchedule) -> Edit:
        columns = self._plan.file.schedules[stored.schedule_id].columns
        return self._change.edit(stored, columns, enabled=self._plan.enabled[stored.schedule_id])

    def _deleted(self, stored: StoredSchedule) -> Edit:
        return changes.deleted(stored, self._now, self._actor)


def _created(plan: Plan, now: int, lane: str) -> list[DurableSchedule]:
    found = (plan.file.schedules[key] for key in plan.ids("create"))
    return [
        changes.created(
            one.schedule_id,
            one.columns,
            now,
            enabled=one.enabled,
            managed_by=plan.file.owner,
            lane=lane,
            team=plan.team,
        )
        for one in found
    ]


def _subjects(plan: Plan, lane: str) -> list[warnings.Subject]:
    """Return the created and changed schedules, for the warnings."""
    lanes = dict.fromkeys(plan.ids("create"), lane) | {key: plan.seen[key].lane for key in plan.ids("change")}
    return [warnings.Subject.of(key, plan.file.schedules[key].columns, where) for key, where in lanes.items()]


def _quiet(plan: Plan, now: int, actor: str) -> QuietChanges:
    put: list[QuietHoursPut] = []
    dropped: list[QuietHoursDrop] = []
    for item in plan.quiet_hours:
        if item.kind == "delete":
            event = changes.quiet_hours_event(now, actor, item.id, before=plan.policies.get(item.id))
            dropped.append(QuietHoursDrop(item.id, event))
            continue
        declared = plan.file.quiet_hours[item.id]
        policy = QuietHoursPolicy(item.id, declared.name, declared.document, now, now, plan.team)
        before = None if item.kind == "create" else plan.policies.get(item.id)
        put.append(QuietHoursPut(policy, changes.quiet_hours_event(now, actor, item.id, before=before, after=policy)))
    return QuietChanges(put, dropped)

"""The changes of an `initialize`: declared tasks against stored ones.

Each task is new, preserved, overridden or orphaned; stored tasks that are not declared any more are removed. The
result is one Declaration, which a store applies whole. Nothing is read or written here.

- New: its cursor stands just before the current civil minute, so it is due at once exactly if that minute matches.
- Overridden: the history stays. If the expression or the zone changed, a new epoch begins at the cursor: the new
  expression is owed once if it has matched since.
- Orphaned: a run of another instance that has no end is put back to `queued`, to start at once under its own id.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta, tzinfo
from typing import Any, Literal, NamedTuple

import msgspec

from noonbell.core.records import (
    AT_ONCE,
    ChangedSchedule,
    Declaration,
    LifecycleEvent,
    LiveRun,
    NewSchedule,
    RemovedSchedule,
)
from noonbell.declarative.registrations import Registration
from noonbell.declarative.task_state import StoredTask
from noonbell.timing import CronTiming, cron_timing, rules_hash

RetryVsNew = Literal["preempt", "finish"]


def _policies(retry_vs_new: RetryVsNew) -> str:
    bundle = {
        "catch_up": "run_once",
        "dst": "literal",
        "overlap": "coalesce",
        "retry": "fixed, unlimited",
        "retry_vs_new": retry_vs_new,
    }
    return json.dumps(bundle, separators=(",", ":"))


class Plan(msgspec.Struct):
    """The declaration, and how it came about."""

    declaration: Declaration
    timings: list[CronTiming]  # of each registration, in order
    sids: list[int | None]  # of each registration; None: to be created
    schedule_ids: list[str]
    overridden: dict[str, dict[str, Any]]  # by name: what differs, as (stored, declared)
    orphaned: list[str]

    def difference(self, removed: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
        """Declared against stored; `removed` are the rows of tasks that are not declared any more."""
        created = self.declaration.created
        return {
            "new": {new.name: {"cron": new.spec, "retry_delay": _delay(new.retry_delay_us)} for new in created},
            "changed": dict(self.overridden),
            "removed": {
                row["name"]: {"cron": row.get("spec"), "retry_delay": _delay(row.get("retry_delay_us"))}
                for row in removed
            },
        }


class _Zone(NamedTuple):
    name: str
    rules: str


class _Wake(NamedTuple):
    cursor_at: int
    next_run_at: int | None
    executing: bool  # its wake-up is put back by the end of the run


def plan(
    registrations: Sequence[Registration],
    stored: dict[str, StoredTask],
    removed: Sequence[RemovedSchedule],
    *,
    managed_by: str,
    zone: tzinfo,
    zone_name: str,
    now: int,
    events: list[LifecycleEvent],
    orphans: bool = True,
    retry_vs_new: RetryVsNew = "preempt",
) -> Plan:
    """Compare, and say what is to be written. `orphans=False` leaves running runs alone: they are our own."""
    policies = _policies(retry_vs_new)
    declaration = Declaration(managed_by, now, [], [], list(removed), [], [], events)
    made = Plan(declaration, [], [], [], {}, [])
    named = _Zone(zone_name, rules_hash(zone))
    for registration in registrations:
        timing = cron_timing(registration.cron, zone)
        made.timings.append(timing)
        task = stored.get(registration.name)
        if task is None:
            new = _created(registration, timing, named, policies, now)
            declaration.created.append(new)
            made.sids.append(None)
            made.schedule_ids.append(new.schedule_id)
            continue
        made.sids.append(task.sid)
        made.schedule_ids.append(task.schedule_id)
        differs: dict[str, Any] = {}
        if task.spec != registration.cron:
            differs["cron"] = (task.spec, registration.cron)
        if task.retry_delay_us != registration.retry_delay_us:
            differs["retry_delay"] = (_delay(task.retry_delay_us), registration.retry_delay)
        if differs:
            made.overridden[registration.name] = differs
        live, executing = task.live, task.manual is not None
        if orphans:
            live, executing = _revived(task), False
            if live is not task.live and live is not None:
                declaration.revived.append(live)
                made.orphaned.append(registration.name)
            if task.manual is not None:
                declaration.interrupted.append(task.manual)
        executing = executing or (live is not None and live.state == "running")
        cursor = task.cursor_at if task.cursor_at is not None else _imported_cursor(task, timing, now)
        wake = _Wake(cursor, timing.following(cursor), executing)
        changed = _changed(registration, task, named, policies, wake)
        if changed is not None:
            declaration.changed.append(changed)
    return made


def _delay(microseconds: object) -> object:
    """A stored delay for people; what is damaged is shown as it is."""
    return timedelta(microseconds=microseconds) if type(microseconds) is int else microseconds


def first_cursor(timing: CronTiming, now: int) -> int:
    """Return where a new task's account begins: the current minute is its first."""
    return timing.minute_start(now) - 1


def _created(registration: Registration, timing: CronTiming, zone: _Zone, policies: str, now: int) -> NewSchedule:
    cursor = first_cursor(timing, now)
    return NewSchedule(
        schedule_id=uuid.uuid4().hex,
        name=registration.name,
        type="cron",
        spec=registration.cron,
        timezone=zone.name,
        zone_hash=zone.rules,
        policies=policies,
        retry_delay_us=registration.retry_delay_us,
        cursor_at=cursor,
        next_run_at=timing.following(cursor),
    )


def _imported_cursor(task: StoredTask, timing: CronTiming, now: int) -> int:
    """A record without a cursor comes from elsewhere: its last sign of life counts, else it is like a new task."""
    ended = max(task.last_success_at or 0, task.last_failure_at or 0)
    return task.last_attempt_at or ended or task.created_at or first_cursor(timing, now)


def _changed(
    registration: Registration, task: StoredTask, zone: _Zone, policies: str, wake: _Wake
) -> ChangedSchedule | None:
    new_epoch = task.spec != registration.cron or task.timezone != zone.name or task.zone_hash != zone.rules
    new_epoch = new_epoch or task.policies not in (None, policies)
    same = (
        not new_epoch
        and not task.filled
        and task.enabled
        and task.cursor_at == wake.cursor_at
        and task.next_run_at == (None if wake.executing else wake.next_run_at)
        and task.retry_delay_us == registration.retry_delay_us
    )
    if same:
        return None
    return ChangedSchedule(
        sid=task.sid,
        spec=registration.cron,
        timezone=zone.name,
        zone_hash=zone.rules,
        policies=policies,
        retry_delay_us=registration.retry_delay_us,
        epoch=task.epoch + new_epoch,
        cursor_at=wake.cursor_at,
        next_run_at=wake.next_run_at,
        new_epoch=new_epoch,
    )


def _revived(task: StoredTask) -> LiveRun | None:
    live = task.live
    if live is None or (live.state != "running" and live.wake_at is not None):
        return live
    return msgspec.structs.replace(
        live,
        state="queued",
        cause="orphan",
        owner=None,
        wake_at=AT_ONCE,
        fence=live.fence + 1,
        crashes=live.crashes + 1,
    )

"""Snapshots of a task's state, as immutable values."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Literal

import msgspec

from noonbell.core.instants import moment
from noonbell.declarative.task_state import StoredTask

ModeHint = Literal["cron", "retry", "idle"]


class TaskSnapshot(msgspec.Struct, frozen=True):
    """A task at one moment. Times are in the scheduler's zone; None: it has not happened.

    `mode_hint` says what the task is about: "cron" where an occurrence is due or its run is under way, "retry" where a
    retry is pending or under way, "idle" otherwise. A pending retry goes before an occurrence, here as in the engine. A
    run that a person asked for shows in `running` and changes no hint.
    """

    name: str
    cron: str
    last_attempt_at: datetime | None
    last_success_at: datetime | None
    last_failure_at: datetime | None
    running: bool
    pending_retry_until: datetime | None
    mode_hint: ModeHint


def snapshot(task: StoredTask, now: int, zone: tzinfo) -> TaskSnapshot:
    """The snapshot of a stored task."""

    def at(instant: int | None) -> datetime | None:
        return None if instant is None else moment(instant, zone)

    live = task.live
    return TaskSnapshot(
        name=task.name,
        cron=task.spec,
        last_attempt_at=at(task.last_attempt_at),
        last_success_at=at(task.last_success_at),
        last_failure_at=at(task.last_failure_at),
        running=any(run is not None and run.state == "running" for run in (live, task.manual)),
        pending_retry_until=at(live.wake_at) if live is not None and live.state == "waiting" else None,
        mode_hint=_mode_hint(task, now),
    )


def _mode_hint(task: StoredTask, now: int) -> ModeHint:
    live = task.live
    if live is not None and live.state == "running":
        return "retry" if live.cause == "retry" else "cron"
    if live is not None:
        return "retry" if live.state == "waiting" else "cron"
    return "cron" if task.next_run_at is not None and task.next_run_at <= now else "idle"

"""The engine's steps, emitted as the Scheduler's events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, timedelta, tzinfo
from typing import Any, Final

from noonbell.core.ids import run_id
from noonbell.core.instants import moment
from noonbell.core.records import LiveRun, Start
from noonbell.declarative import events as event_types
from noonbell.declarative.events import EventSink
from noonbell.engine import Task
from noonbell.errors import describe_error

_MOST_SHOWN: Final = 10


class EventEmitter:
    """An engine's Observer that emits the task events; silent and cheap without a listener."""

    def __init__(self, sink: EventSink, scheduler: str, instance: str, zone: Callable[[], tzinfo]) -> None:
        self._sink = sink
        self._scheduler = scheduler
        self._instance = instance
        self._zone = zone

    def started(self, task: Task, start: Start, at: int) -> None:
        if not self._sink.wants_task_events:
            return
        gone = start.preempted
        if gone is not None:
            self._emit(event_types.TaskRetryPreempted, task, at, gone, attempt=gone.attempt, cause="cron")
        kind = event_types.TaskRetryStarted if start.cause == "retry" else event_types.TaskRunStarted
        self._emit(kind, task, at, start, attempt=start.attempt, cause=start.cause)

    def cleared(self, task: Task, waiting: LiveRun, at: int) -> None:
        if self._sink.wants_task_events:
            self._emit(event_types.TaskRetryCleared, task, at, waiting, attempt=waiting.attempt, cause="manual")

    def ended(self, task: Task, start: Start, at: int, error: BaseException | None, retry_at: int | None) -> None:
        if not self._sink.wants(event_types.TaskRunFailed if error is not None else event_types.TaskRunCompleted):
            return
        facts: dict[str, Any] = {"attempt": start.attempt, "cause": start.cause}
        if error is None:
            duration = timedelta(microseconds=at - start.started_at)
            self._emit(event_types.TaskRunCompleted, task, at, start, **facts, duration=duration)
        else:
            retry = None if retry_at is None else moment(retry_at, self._zone())
            failure: dict[str, Any] = {"error": describe_error(error), "retry_at": retry, "exception": error}
            self._emit(event_types.TaskRunFailed, task, at, start, **facts, **failure)

    def _emit(
        self, kind: Callable[..., event_types.SchedulerEvent], task: Task, at: int, run: Start | LiveRun, **more: Any
    ) -> None:
        zone = self._zone()
        self._sink.emit(
            kind(
                at=moment(at, zone),
                instance=self._instance,
                scheduler=self._scheduler,
                task=task.name,
                run_id=run_id(task.schedule_id, run.kind, run.run_for),
                scheduled_for=moment(run.run_for, zone),
                **more,
            )
        )


def log_moved(logger: logging.Logger, before: Mapping[int, Task], after: Mapping[int, Task], now: int) -> None:
    """Log which tasks come at another time than before, now that they go by another zone."""
    moved = []
    for sid, task in after.items():
        old = before.get(sid)
        was, comes = None if old is None else old.terms.timing.following(now), task.terms.timing.following(now)
        if was is not None and comes is not None and was != comes:
            moved.append(f"{task.name} at {moment(comes, UTC):%F %H:%M} instead of {moment(was, UTC):%F %H:%M} UTC")
    if moved:
        shown = "; ".join(moved[:_MOST_SHOWN]) + ("; ..." if len(moved) > _MOST_SHOWN else "")
        logger.warning("%d of %d tasks come at another time: %s", len(moved), len(after), shown)

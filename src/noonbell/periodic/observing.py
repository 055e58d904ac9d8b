"""The engine's observer for periodic tasks: the task events, and the ends of runs that a caller awaits."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from datetime import tzinfo

from noonbell.core.records import LiveRun, Start
from noonbell.declarative.event_emitter import EventEmitter
from noonbell.declarative.events import EventSink
from noonbell.engine import Task


@dataclass
class AwaitedRun:
    """A run that a caller has requested and awaits."""

    ended: bool = False
    error: BaseException | None = None


class PeriodicObserver:
    """Emits the task events, and fills in the runs that were asked for (`asked`, by sid)."""

    def __init__(self, sink: EventSink, scheduler: str, instance: str, zone: Callable[[], tzinfo]) -> None:
        self._emitter = EventEmitter(sink, scheduler, instance, zone)
        self.asked: dict[int, AwaitedRun] = {}
        self.scheduled: Container[int] = ()  # sids of the tasks that will run again

    def started(self, task: Task, start: Start, at: int) -> None:
        self._emitter.started(task, start, at)

    def ended(self, task: Task, start: Start, at: int, error: BaseException | None, retry_at: int | None) -> None:
        # a task that was cancelled in the meantime is removed before its retry would come
        self._emitter.ended(task, start, at, error, retry_at if task.sid in self.scheduled else None)
        asked = self.asked.pop(task.sid, None) if start.kind == "manual" else None
        if asked is not None:
            asked.ended, asked.error = True, error

    def cleared(self, task: Task, waiting: LiveRun, at: int) -> None:
        self._emitter.cleared(task, waiting, at)

"""The events of a Scheduler: typed values, passed to a function of the caller's and to the log.

Every event is one log line, `TaskRunStarted task=sync-logs attempt=1 ...`, with the same facts as data in the record's
attribute `noonbell`. An error appears there as its type and message. The event itself carries the exception, and the
log record of a failed attempt has it as `exc_info`, so that its traceback is logged.

The sink never lets a listener disturb the scheduler: what `on_event` raises is logged, and that is all. It does not
queue either: a slow listener delays the event loop it is called on.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

import msgspec

from noonbell.core.records import Cause
from noonbell.declarative.registrations import is_async_callable

_PLAIN: Final = re.compile(r"[\w.:/+@-]+")


class SchedulerEvent(msgspec.Struct, frozen=True):
    """Something happened to a scheduler."""

    level: ClassVar[int] = logging.INFO

    at: datetime
    instance: str
    scheduler: str

    @property
    def name(self) -> str:
        """The name of the event, which is that of its class."""
        return type(self).__name__

    def fields(self) -> dict[str, Any]:
        """The facts as plain data: instants in ISO 8601, durations in seconds, no exception, nothing that is absent."""
        found: dict[str, Any] = {}
        # What it is about comes before where and when it happened: that is how a line is read.
        for field in (*self.__struct_fields__[3:], *self.__struct_fields__[:3]):
            value = getattr(self, field)
            if isinstance(value, datetime):
                found[field] = value.isoformat()
            elif isinstance(value, timedelta):
                found[f"{field}_seconds"] = value.total_seconds()
            elif value is not None and not isinstance(value, BaseException):
                found[field] = value
        return found


class SchedulerInitializationStarted(SchedulerEvent, frozen=True):
    """`initialize` was called and is at work."""


class SchedulerInitializationCompleted(SchedulerEvent, frozen=True):
    """The declared tasks are stored and running."""


class SchedulerInitializationFailed(SchedulerEvent, frozen=True):
    """`initialize` raised `exception`; nothing was changed."""

    level: ClassVar[int] = logging.WARNING

    error: str
    exception: BaseException | None = None


class PollingStarted(SchedulerEvent, frozen=True):
    """The loop looks for due tasks."""


class PollingStopRequested(SchedulerEvent, frozen=True):
    """The loop begins no further look."""


class PollingStopped(SchedulerEvent, frozen=True):
    """The loop has ended, and so has everything it started."""


class SchedulerStopRequested(SchedulerEvent, frozen=True):
    """`stop` was called."""


class SchedulerStopped(SchedulerEvent, frozen=True):
    """Nothing runs and nothing will, until the next `initialize`."""


class TaskEvent(SchedulerEvent, frozen=True):
    """Something happened to a run of a task. `run_id` is the same for all attempts of one run."""

    task: str
    run_id: str
    scheduled_for: datetime
    attempt: int
    cause: Cause


class TaskRunStarted(TaskEvent, frozen=True):
    """A run begins, or begins again after the instance that ran it had died."""


class TaskRunCompleted(TaskEvent, frozen=True):
    """The attempt ended well, and the run with it."""

    duration: timedelta


class TaskRunFailed(TaskEvent, frozen=True):
    """The attempt raised `exception`; `error` is its type and message. `retry_at` is None if no retry follows."""

    level: ClassVar[int] = logging.WARNING

    error: str
    retry_at: datetime | None
    exception: BaseException | None = None


class TaskRetryStarted(TaskEvent, frozen=True):
    """The retry delay has passed: the next attempt of the run begins."""


class TaskRetryPreempted(TaskEvent, frozen=True):
    """A new occurrence came due before the retry: this run ends as failed, and the next one begins."""


class TaskRetryCleared(TaskEvent, frozen=True):
    """A run by hand succeeded, so the retry is not needed: this run ends as failed. In `noonbell.periodic` alone."""


EventListener = Callable[[SchedulerEvent], object]


class EventSink:
    """Emits events: one log line each, then the listener."""

    def __init__(self, on_event: EventListener | None, logger: logging.Logger) -> None:
        if on_event is not None and not callable(on_event):
            raise TypeError(f"on_event must be a function that takes an event, not {type(on_event).__name__}")
        if on_event is not None and is_async_callable(on_event):
            raise TypeError(
                "on_event is an async function, but events are emitted without waiting; pass a plain function, e.g. "
                "queue.put_nowait, and await what it collects in a task of your own"
            )
        self._on_event = on_event
        self._logger = logger

    @property
    def wants_task_events(self) -> bool:
        """Return whether ordinary task events have a listener or a log; TaskRunFailed is not ordinary, see `wants`."""
        return self._on_event is not None or self._logger.isEnabledFor(logging.INFO)

    def wants(self, kind: type[SchedulerEvent]) -> bool:
        """Return whether an event of this kind has a listener or a log; if not, it need not be made."""
        return self._on_event is not None or self._logger.isEnabledFor(kind.level)

    def emit(self, event: SchedulerEvent | Callable[[], SchedulerEvent]) -> None:
        """Emit an event; one that is given as a function is made only if a listener or the log takes it."""
        if not isinstance(event, SchedulerEvent):
            if self._on_event is None and not self._logger.isEnabledFor(logging.WARNING):
                return
            event = event()
        if self._logger.isEnabledFor(event.level):
            fields = event.fields()
            facts = " ".join(f"{key}={_shown(value)}" for key, value in fields.items())
            self._logger.log(
                event.level, "%s %s", event.name, facts, extra={"noonbell": {"event": event.name, **fields}},
                exc_info=event.exception if isinstance(event, TaskRunFailed) else None,
            )  # fmt: skip
        if self._on_event is not None:
            self._call_listener(self._on_event, event)

    def _call_listener(self, on_event: EventListener, event: SchedulerEvent) -> None:
        try:
            answer = on_event(event)
        except KeyboardInterrupt:  # Ctrl-C, while the listener ran
            raise
        # What comes out of a plain function was not meant for the task that happens to be running: a cancellation or an
        # exit would end the engine.
        except BaseException:
            self._logger.exception("on_event raised at %s; the scheduler goes on", event.name)
            return
        if inspect.iscoroutine(answer):
            answer.close()
            self._logger.error("on_event returned a coroutine at %s, which is not awaited; it was closed", event.name)


def _shown(value: object) -> str:
    """A value in a log line: quoted where it could be taken for more than one, or for another line."""
    text = str(value)
    if _PLAIN.fullmatch(text):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())

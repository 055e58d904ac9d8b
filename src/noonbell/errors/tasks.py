"""Errors of declared and periodic tasks: registrations, the life of a scheduler, stored state."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from noonbell.errors.base import NoonbellError, describe_error


class RegistrationError(NoonbellError):
    """The declared tasks cannot be accepted; nothing was changed."""


class RegistrationsNotArrayError(RegistrationError):
    def __init__(self) -> None:
        super().__init__("Registrations must be an array")


class RegistrationShapeError(RegistrationError):
    """A registration that is not a tuple of its four parts; a note names the part that is wrong, and the remedy."""

    registration_index: int
    received: object

    def __init__(self, registration_index: int, received: object) -> None:
        super().__init__(
            "Invalid registration shape: expected [string, string, function, Duration]",
            registrationIndex=registration_index,
            received=received,
        )
        self.add_note(f"Registration {registration_index}: {_wrong_part(received)}")


_PARTS: Final[tuple[tuple[str, str, Callable[[object], bool]], ...]] = (
    ("name", "a string", lambda value: isinstance(value, str)),
    ("cron expression", "a string", lambda value: isinstance(value, str)),
    ("callback", "a function or another callable", callable),
    ("retry delay", "a datetime.timedelta, such as timedelta(minutes=5)", lambda value: isinstance(value, timedelta)),
)


def _wrong_part(received: object) -> str:
    right = "(name, cron expression, callback, retry delay)"
    if not isinstance(received, list | tuple):
        return f"it must be a tuple {right}, but is {received!r:.200} ({type(received).__name__})"
    if len(received) != len(_PARTS):
        return f"it must have 4 parts, {right}, but has {len(received)}: {received!r:.200}"
    for place, ((field, wanted, fits), value) in enumerate(zip(_PARTS, received, strict=True)):
        if not fits(value):
            return f"part {place}, its {field}, must be {wanted}, but is {value!r:.200} ({type(value).__name__})"
    return f"it must be a tuple {right}"


class InvalidRegistrationError(RegistrationError):
    field: str
    value: object
    reason: str

    def __init__(self, field: str, value: object, reason: str) -> None:
        super().__init__(f"Invalid registration: {field} {value!r} {reason}", field=field, value=value, reason=reason)


class ScheduleInvalidNameError(InvalidRegistrationError):
    """An empty or blank task name."""

    def __init__(self, value: object) -> None:
        super().__init__("name", value, "must be a text that is not blank")


class ScheduleDuplicateTaskError(RegistrationError):
    task_name: str

    def __init__(self, task_name: str) -> None:
        super().__init__(f'Task with name "{task_name}" is already scheduled', taskName=task_name)


class NegativeRetryDelayError(RegistrationError):
    retry_delay_ms: int

    def __init__(self, retry_delay_ms: int) -> None:
        super().__init__("Retry delay must be non-negative", retryDelayMs=retry_delay_ms)


class ScheduleFrequencyError(RegistrationError):
    """The expression fires more often than the polling loop looks."""

    expression: str

    def __init__(self, expression: str, minimum_spacing_seconds: float, poll_interval_seconds: float) -> None:
        super().__init__(
            f'Cron expression "{expression}" fires every {minimum_spacing_seconds:g} s at its densest, but the poll '
            f"interval is {poll_interval_seconds:g} s; poll more often or fire less often",
            expression=expression,
            minimumSpacingSeconds=minimum_spacing_seconds,
            pollIntervalSeconds=poll_interval_seconds,
        )


class SchedulerAlreadyActiveError(NoonbellError):
    current_state: str

    def __init__(self, current_state: str) -> None:
        super().__init__(
            f"Cannot initialize scheduler: scheduler is already {current_state}", currentState=current_state
        )


class StopFromTaskError(NoonbellError, RuntimeError):
    """A task called `stop` or `close` on the scheduler that runs it, and would wait for itself."""

    def __init__(self, method: str = "stop", *, owner: str = "scheduler", thread: bool = False) -> None:
        call = f"asyncio.create_task({owner}.{method}())"
        remedy = f"loop.call_soon_threadsafe(lambda: {call})" if thread else call
        runs = "task of this scheduler" if owner == "scheduler" else "run of these schedules"
        super().__init__(
            f"{method}() was called by a {runs} and would wait for itself; "
            f"let another task of the event loop call it, and do not wait for it: {remedy}"
        )


class ExitInTaskError(NoonbellError):
    """An asyncio task that an action had created raised SystemExit or KeyboardInterrupt; a service goes on."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__(f"a task of the action raised {describe_error(raised)}")


class SchedulerInUseError(NoonbellError):
    """Another live scheduler of this name works on the same store."""

    scheduler_name: str
    holder: str

    def __init__(self, scheduler_name: str, holder: str) -> None:
        kind, _, lane = scheduler_name.partition(":")
        text = f'Scheduler "{scheduler_name}" is already active in {holder}; stop it, or use another name'
        if kind == "lane" and lane:  # engines share a lane; only those of older versions held it for themselves
            text = (
                f'The lane "{lane}" is held by {holder}, an engine of an older version, which does not share it; '
                f'stop it first, or run another lane here: Schedules(..., lane="…")'
            )
        super().__init__(
            text,
            schedulerName=scheduler_name,
            holder=holder,
        )


class ScheduleDriftError(NoonbellError):
    """Declared and stored tasks differ, and the caller asked to be refused then. `difference` is the whole of it.

    It maps `new`, `changed` and `removed` to tasks by name. Of each it has `cron` and `retry_delay`: the value, or in
    `changed` those that differ, as (stored, declared).
    """

    difference: dict[str, dict[str, dict[str, Any]]]

    def __init__(self, difference: dict[str, dict[str, dict[str, Any]]]) -> None:
        parts = [
            f"{kind}: {', '.join(f'{name} ({_values(tasks[name])})' for name in sorted(tasks))}"
            for kind, tasks in difference.items()
            if tasks
        ]
        remedy = 'Nothing was changed; on_drift="override" stores what is declared'
        super().__init__(f"Declared and stored tasks differ; {'; '.join(parts)}. {remedy}", difference=difference)


def _values(facts: dict[str, Any]) -> str:
    pairs = {key: value if isinstance(value, tuple) else (value,) for key, value in facts.items()}
    return ", ".join(f"{key.replace('_', ' ')} {' -> '.join(map(_value, pair))}" for key, pair in pairs.items())


def _value(value: object) -> str:
    return str(value) if isinstance(value, timedelta) else repr(value)


class HostTimeZoneError(NoonbellError, ValueError):
    """The time zone of the host is none that occurrences can be computed in."""

    def __init__(self, tz: str | None, reason: str) -> None:
        found = "it has no IANA name" if tz is None else f"TZ is {tz!r}, which is not an IANA name"
        remedy = 'Pass time_zone="America/New_York" or another IANA name, or set TZ to one'
        super().__init__(f"The time zone of this host cannot be used: {found}. {remedy}", tz=tz, reason=reason)


class InitializationError(NoonbellError):
    """An unexpected error stopped `initialize`; the original is `details["cause"]` and `__cause__`."""

    cause: BaseException

    def __init__(self, message: str, cause: BaseException) -> None:
        super().__init__(f"{message}: {cause}", cause=cause)
        self.__cause__ = cause


class TaskNotFoundError(NoonbellError):
    task_name: str

    def __init__(self, task_name: str, known: list[str], what: str = "task") -> None:
        listed = ", ".join(sorted(known)[:10]) or "none"
        super().__init__(f'No {what} named "{task_name}"; known: {listed}', taskName=task_name, known=known)


class DailyTasksUnavailable(NoonbellError):  # noqa: N818 - the name is the specification's
    """The external program of the daily tasks is not installed."""

    program: str

    def __init__(self, program: str) -> None:
        super().__init__(f"Executable {program!r} was not found; the daily tasks were skipped", program=program)


class TaskTryDeserializeError(NoonbellError):
    """A stored task cannot be read."""


class TaskMissingFieldError(TaskTryDeserializeError):
    field: str

    def __init__(self, field: str) -> None:
        super().__init__(f"Missing required field: {field}", field=field)


class TaskInvalidTypeError(TaskTryDeserializeError):
    field: str

    def __init__(self, field: str, value: object, expected_type: str, actual_type: str) -> None:
        super().__init__(
            f"Invalid type for field '{field}': expected {expected_type}, got {actual_type}",
            field=field,
            value=value,
            expectedType=expected_type,
            actualType=actual_type,
        )


class TaskInvalidValueError(TaskTryDeserializeError):
    field: str
    reason: str

    def __init__(self, field: str, value: object, reason: str) -> None:
        super().__init__(f"Invalid value for field '{field}': {reason}", field=field, value=value, reason=reason)


class TaskInvalidStructureError(TaskTryDeserializeError):
    def __init__(self, message: str, value: object) -> None:
        super().__init__(message, value=value)

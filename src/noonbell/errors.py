"""Every error that Noonbell raises, in one tree.

    NoonbellError
    ├── CronError
    │   ├── InvalidCronExpressionError      parse, translate
    │   │   └── CronExpressionInvalidError  the same, found in a registration
    │   ├── FieldParseError                 parse_field
    │   ├── CronCalculationError            no next or previous occurrence
    │   └── NaiveDatetimeError              (also a ValueError)
    ├── LanguageError                       English that is not understood, and where
    ├── TimingError
    │   ├── IntervalInvalidError            parse_interval
    │   ├── OneShotInvalidError             parse_one_shot
    │   ├── BoundsInvalidError              an end before the start
    │   ├── QuietHoursInvalidError
    │   └── RetryPolicyInvalidError
    ├── RegistrationError
    │   ├── RegistrationsNotArrayError
    │   ├── RegistrationShapeError
    │   ├── InvalidRegistrationError
    │   │   └── ScheduleInvalidNameError
    │   ├── ScheduleDuplicateTaskError
    │   ├── NegativeRetryDelayError
    │   └── ScheduleFrequencyError
    ├── SchedulerAlreadyActiveError
    ├── StopFromTaskError
    ├── ExitInTaskError
    ├── SchedulerInUseError                 another live scheduler holds the name
    ├── ScheduleDriftError
    ├── HostTimeZoneError                   the host's zone has no IANA name
    ├── InitializationError                 anything unexpected during initialize
    ├── TaskNotFoundError
    ├── ScheduleError
    │   ├── ScheduleInvalidError            a field of a durable schedule
    │   ├── ScheduleNotFoundError
    │   ├── ScheduleExistsError             the id or the name is taken
    │   ├── QuietHoursInUseError
    │   ├── ScheduleBusyError               a trigger while a run is under way
    │   ├── ScheduleChangedError            it is not as it was seen
    │   ├── ScheduleViewError               a view was asked for what belongs to the whole
    │   ├── ScheduleFileInvalidError        all that is wrong in a file of schedules
    │   ├── PlanOutdatedError               the store has changed since the plan was made
    │   └── DeletionRefusedError            a plan that deletes, where that was not allowed
    ├── DocumentConflictError               changed by somebody else meanwhile, or taken
    ├── SettingsInvalidError                a setting of the service, and where it was given
    ├── AccessError
    │   ├── AccessInvalidError              a field of a team, an API key or a user
    │   ├── AccessNotFoundError
    │   └── LoginRefusedError               a wrong password or link, or too many of them
    ├── MonitorError
    │   ├── MonitorInvalidError             a field of a heartbeat monitor, or of a ping
    │   ├── MonitorNotFoundError
    │   └── PingUnknownError                a ping URL that no monitor has
    ├── NotifyError
    │   ├── ChannelInvalidError             a field of a channel
    │   ├── RuleInvalidError                a field of a rule
    │   ├── ChannelNotFoundError
    │   ├── RuleNotFoundError
    │   └── ChannelInUseError               a rule names it
    ├── ActionError
    │   ├── CommandsOffError                the operator has not enabled commands, or not this one
    │   ├── CommandFailedError              a program ended badly, or could not be started
    │   ├── HttpJobFailedError              a request was not sent, not answered, or not answered as expected
    │   ├── NotStartedError                 a stop came before the action was called
    │   └── DeliveryError                   a message did not reach its target
    │       └── TargetAwayError             nor would any other: the target as a whole cannot be reached
    ├── DailyTasksUnavailable
    ├── SecretError
    │   ├── SecretInvalidError              a name or a value that cannot be stored
    │   ├── SecretReferenceError            ${…} that is malformed or stands in a wrong place
    │   ├── SecretUnknownError              ${secrets.NAME} without such a secret
    │   ├── SecretUnreadableError           a sealed record that was changed, swapped or lost its key
    │   └── MasterKeyError                  a key file or variable that cannot be used
    │       └── MasterKeyMissingError
    ├── SigningKeyError                     no key in the form whsec_…
    ├── ReceiveError                        a received webhook; each has its `status`
    │   ├── WebhookMalformedError           400
    │   ├── WebhookRefusedError             401: signature or timestamp
    │   ├── WebhookTooLargeError            413
    │   ├── WebhookInProgressError          409: the same message is being handled
    │   ├── WebhookRepeatedError            200: the same message has been handled
    │   └── WebhookUnavailableError         503: messages cannot be remembered now
    ├── StoreError
    │   ├── StoreUnavailableError           full, read-only, locked: may pass
    │   │   └── LeaseLostError               another has taken the name since; does not pass by itself
    │   ├── StoreCorruptError
    │   └── StoreUrlError
    ├── TimelineError                       a Redis timeline that cannot be used as it is
    │   └── TimelineAwayError               not reached, or not answering: may pass
    └── TaskTryDeserializeError
        ├── TaskMissingFieldError
        ├── TaskInvalidTypeError
        ├── TaskInvalidValueError
        └── TaskInvalidStructureError

Each carries its facts twice: as attributes in snake_case, and in `details` under the keys of the specification
(camelCase). Nothing here imports the rest of the package.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Final, Self

_LONGEST_MESSAGE: Final = 2000
_MOST_FILE_PROBLEMS: Final = 100


def describe_error(error: BaseException, mask: Callable[[str], str] | None = None) -> str:
    """Any error as type and message, cut to a sane length; safe where its text cannot be made or encoded.

    `mask` takes secrets out of the message, before it is cut: half a secret would not be known as one. An error whose
    own team's secrets are out of it already (`masked`) is not searched for those of others: that confirms a guess.
    """
    try:
        message = str(error).encode("utf-8", "backslashreplace").decode()
    except BaseException as second:  # noqa: BLE001 - a broken message must not hide the error it belongs to
        message = f"(its message could not be made: {type(second).__name__})"
    if mask is not None and fact_of(error, "masked") is not True:
        message = mask(message)
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE] + "…"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def fact_of(error: BaseException, name: str) -> object:
    """Return an attribute of an error; None where it has none, or where reading it raises."""
    try:
        return getattr(error, name, None)
    except BaseException:  # noqa: BLE001 - an error that cannot be read is an error all the same
        return None


def raised_type(error: BaseException) -> str:
    """Return the name of the exception that a task raised, given what `periodic.run_now` raised for it."""
    cause = error.__cause__
    wrapped = isinstance(error, NoonbellError) and cause is not None and not isinstance(cause, Exception)
    return type(cause if wrapped else error).__name__


def _rebuild(kind: type[NoonbellError], args: tuple[Any, ...], state: dict[str, Any]) -> NoonbellError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def _shown(value: object, reason: str) -> str:
    """A value in a complaint; of what is missing there is nothing to show."""
    return "" if reason == "is missing" else f" {value!r:.200}"


def _snake(key: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", key).lower()


class NoonbellError(Exception):
    """The root. `details` holds the facts; each is an attribute as well."""

    details: Mapping[str, Any]

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.details = details
        for key, value in details.items():
            setattr(self, _snake(key), value)

    def with_facts(self, told: str, **details: Any) -> Self:
        """Itself, with facts that only a caller knows, in its words and among its details."""
        self.args = (f"{self}; {told}",)
        self.details = {**self.details, **details}
        for key, value in details.items():
            setattr(self, _snake(key), value)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # the constructors take other arguments than the message, so pickle rebuilds from what they made of them
        return _rebuild, (type(self), self.args, self.__dict__)


# --- cron -------------------------------------------------------------------------------------------------------------


class CronError(NoonbellError):
    """Something about a cron expression."""


class InvalidCronExpressionError(CronError):
    """The text is no POSIX cron expression. `suggestion` holds one of the same meaning, where there is one."""

    expression: str
    field: str
    reason: str

    def __init__(self, expression: str, field: str, reason: str, suggestion: str | None = None) -> None:
        shown = expression if len(expression) <= 1000 else expression[:100] + "…"
        super().__init__(
            f'Invalid cron expression "{shown}": {field} field {reason}',
            expression=expression,
            field=field,
            reason=reason,
        )
        self.suggestion = suggestion
        if suggestion is not None:
            self.add_note(f"The same schedule in POSIX: {suggestion}")


class CronExpressionInvalidError(InvalidCronExpressionError):
    """A registration's expression is invalid."""


class FieldParseError(CronError):
    """One field of an expression is malformed."""

    field_value: str
    field_name: str

    def __init__(self, message: str, field_value: str, field_name: str) -> None:
        super().__init__(message, fieldValue=field_value, fieldName=field_name)


class CronCalculationError(CronError):
    """The calendar ends before the expression matches again."""

    expression: str
    current_time: str
    cause: Exception

    def __init__(self, expression: str, current_time: str, cause: Exception) -> None:
        super().__init__(
            f"Failed to calculate next occurrence: {cause}",
            expression=expression,
            currentTime=current_time,
            cause=cause,
        )


class NaiveDatetimeError(CronError, ValueError):
    """A datetime without a zone says no instant."""

    def __init__(self, value: object) -> None:
        super().__init__(
            f"{value!r} has no time zone; pass an aware datetime, e.g. datetime(..., tzinfo=ZoneInfo('Europe/Kyiv'))",
            value=value,
        )


# --- English ----------------------------------------------------------------------------------------------------------


class LanguageError(NoonbellError):
    """A schedule in English that is not understood, or that no schedule can do.

    `position` and `end` say where in `text`, `word` is what stands there ("" at the end of the text). `accepted` tells
    what could stand there, `suggestions` are whole phrases that come near and are understood. `marked` shows the place.
    """

    text: str
    field: str
    position: int
    end: int
    word: str
    reason: str
    accepted: tuple[str, ...]
    suggestions: tuple[str, ...]

    def __init__(  # noqa: PLR0917 - the facts of one place, in the order in which they are told
        self,
        text: str,
        position: int,
        end: int,
        reason: str,
        accepted: tuple[str, ...] = (),
        suggestions: tuple[str, ...] = (),
    ) -> None:
        word = text[position:end]
        shown = text if len(text) <= 200 else text[:200] + "…"
        place = f'at "{word:.60}" (character {position + 1})' if word else "at its end"
        super().__init__(
            f'Cannot understand "{shown}" {place}: {reason}',
            text=text,
            field="text",
            position=position,
            end=end,
            word=word,
            reason=reason,
            accepted=accepted,
            suggestions=suggestions,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.text, self.position, self.end, self.reason, self.accepted, self.suggestions)

    @property
    def marked(self) -> tuple[str, str]:
        """The text on one line, and under it the place."""
        line = "".join(char if char.isprintable() else " " for char in self.text)
        return line, " " * self.position + "^" * max(1, self.end - self.position)


# --- timing: the other kinds and the policies ------------------------------------------------------------------------


class TimingError(NoonbellError):
    """When a schedule is to run, or when not, cannot be understood."""


class IntervalInvalidError(TimingError):
    """The text is no interval. `suggestion` holds one of the same meaning, where there is one."""

    expression: str
    field: str
    reason: str

    def __init__(self, expression: str, reason: str, suggestion: str | None = None) -> None:
        shown = expression if len(expression) <= 100 else expression[:100] + "…"
        super().__init__(
            f'Invalid interval "{shown}": {reason}',
            expression=expression,
            field="spec",
            reason=reason,
        )
        self.suggestion = suggestion
        if suggestion is not None:
            self.add_note(f"The same interval in seconds: {suggestion}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.expression, self.reason, self.suggestion)


class OneShotInvalidError(TimingError):
    """The text names no instant. Where a clock change took it, `alternatives` holds the nearest times that exist."""

    expression: str
    field: str
    reason: str
    alternatives: tuple[str, ...]

    def __init__(self, expression: str, reason: str, alternatives: tuple[str, ...] = ()) -> None:
        shown = expression if len(expression) <= 100 else expression[:100] + "…"
        super().__init__(
            f'Invalid one-shot time "{shown}": {reason}',
            expression=expression,
            field="spec",
            reason=reason,
            alternatives=alternatives,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.expression, self.reason, self.alternatives)


class BoundsInvalidError(TimingError):
    """The end of a schedule lies before its start."""

    start_at: int
    end_at: int

    def __init__(self, start_at: int, end_at: int) -> None:
        super().__init__(
            f"Invalid bounds: the end ({end_at} us since 1970) is before the start ({start_at})",
            startAt=start_at,
            endAt=end_at,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.start_at, self.end_at)


class QuietHoursInvalidError(TimingError):
    """A window of quiet hours is malformed; `field` says which part, as a path where it was read from a document."""

    field: str
    value: object
    reason: str

    def __init__(self, field: str, value: object, reason: str) -> None:
        super().__init__(
            f"Invalid quiet hours: {field}{_shown(value, reason)} {reason}", field=field, value=value, reason=reason
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.value, self.reason)


class RetryPolicyInvalidError(TimingError):
    field: str
    value: object
    reason: str

    def __init__(self, field: str, value: object, reason: str) -> None:
        super().__init__(
            f"Invalid retry policy: {field} {value!r:.200} {reason}", field=field, value=value, reason=reason
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.value, self.reason)


# --- registrations ----------------------------------------------------------------------------------------------------


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


# --- the scheduler ----------------------------------------------------------------------------------------------------


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
        told = f'Scheduler "{scheduler_name}" is already active in {holder}; stop it, or use another name'
        if kind == "lane" and lane:  # engines share a lane; only those of older versions held it for themselves
            told = (
                f'The lane "{lane}" is held by {holder}, an engine of an older version, which shares it with nobody; '
                f'stop it first, or run another lane here: Schedules(..., lane="…")'
            )
        super().__init__(
            told,
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
        found = "it has no IANA name" if tz is None else f"TZ is {tz!r}, which is no IANA name"
        remedy = 'Pass time_zone="America/New_York" or another IANA name, or set TZ to one'
        super().__init__(f"The time zone of this host cannot be used: {found}. {remedy}", tz=tz, reason=reason)


class InitializationError(NoonbellError):
    """Something unexpected stopped `initialize`; the original is `details["cause"]` and `__cause__`."""

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


# --- durable schedules ------------------------------------------------------------------------------------------------


class ScheduleError(NoonbellError):
    """Something about a durable schedule; nothing was changed."""


class ScheduleInvalidError(ScheduleError):
    """A field of a schedule cannot be accepted. `reason` says what would be right, `index` which one of many it is."""

    field: str
    value: object
    reason: str
    index: int | None

    def __init__(self, field: str, value: object, reason: str, index: int | None = None) -> None:
        place = field if index is None else f"[{index}].{field}" if field else f"[{index}]"
        super().__init__(
            f"Invalid schedule: {place}{_shown(value, reason)} {reason}",
            field=field,
            value=value,
            reason=reason,
            index=index,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.value, self.reason, self.index)


class ScheduleNotFoundError(ScheduleError):
    """There is no such schedule, or no such quiet-hours policy."""

    kind: str
    sought: str

    def __init__(self, kind: str, sought: str) -> None:
        super().__init__(f'There is no {kind} with the id "{sought}"', kind=kind, sought=sought)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.kind, self.sought)


class DocumentConflictError(NoonbellError):
    """A document is not of the version that was expected. `version` is what it has, 0 where there is none."""

    kind: str
    sought: str
    version: int | None

    def __init__(self, kind: str, sought: str, version: int | None) -> None:
        if version is None:
            told = f'The {kind} "{sought}" is taken; choose another id'
        elif version == 0:
            told = f'There is no {kind} "{sought}" any more; it was deleted meanwhile'
        else:
            told = f'The {kind} "{sought}" is there in version {version}; look at it again before you change it'
        super().__init__(told, kind=kind, sought=sought, version=version)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.kind, self.sought, self.version)


class ScheduleExistsError(ScheduleError):
    """An id or a name is taken. Of many that were to be created `written` of them are."""

    field: str
    value: str
    deleted: bool
    written: int = 0

    def __init__(self, field: str, value: str, *, deleted: bool = False) -> None:
        why = "was used by a deleted schedule; ids are never given twice" if deleted else "is taken; choose another"
        super().__init__(f'The {field} "{value}" {why}', field=field, value=value, deleted=deleted)


class QuietHoursInUseError(ScheduleError):
    policy_id: str
    schedules: int

    def __init__(self, policy_id: str, schedules: int) -> None:
        super().__init__(
            f'The quiet hours "{policy_id}" are used by {schedules} schedule(s); take them off those first',
            policyId=policy_id,
            schedules=schedules,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.policy_id, self.schedules)


class ScheduleBusyError(ScheduleError):
    """A run is under way; or, with `queued`, so many runs that were asked for are."""

    schedule_id: str
    queued: int | None

    def __init__(self, schedule_id: str, queued: int | None = None) -> None:
        what = f'A run of the schedule "{schedule_id}" is under way'
        remedy = "trigger it again when that has ended, or queue it (queue: true)"
        if queued is not None:
            what, remedy = f'{queued} triggered runs of the schedule "{schedule_id}" are live', "wait for one to end"
        super().__init__(f"{what}; {remedy}", scheduleId=schedule_id, queued=queued)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.schedule_id, self.queued)


class ScheduleChangedError(ScheduleError):
    """A schedule, or another `thing`, was to be changed as it was seen, and somebody else has changed it since."""

    schedule_id: str

    def __init__(self, schedule_id: str, thing: str = "schedule") -> None:
        super().__init__(
            f'The {thing} "{schedule_id}" was changed meanwhile; look at it again before you change it',
            scheduleId=schedule_id,
            thing=thing,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.schedule_id, self.details["thing"])


class ScheduleViewError(ScheduleError):
    """A view made by `Schedules.acting` was asked for something that belongs to the whole."""

    def __init__(self, asked: str, reason: str) -> None:
        super().__init__(f"{asked} is refused on a view of Schedules: {reason}", asked=asked, reason=reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.details["asked"], self.details["reason"])


# --- the service ------------------------------------------------------------------------------------------------------


class SettingsInvalidError(NoonbellError):
    """A setting cannot be accepted. `source` says where it was given; `value` is None where it is secret."""

    field: str
    value: object
    source: str
    reason: str

    def __init__(self, field: str, value: object, source: str, reason: str) -> None:
        shown = "" if value is None else f" {value!r:.200}"
        super().__init__(
            f"Invalid setting {field}{shown} ({source}): {reason}",
            field=field,
            value=value,
            source=source,
            reason=reason,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.value, self.source, self.reason)


class AccessError(NoonbellError):
    """Something about teams, API keys, users or logins."""


class AccessInvalidError(AccessError):
    """A field of a team, an API key or a user cannot be accepted. `value` is None where it is secret."""

    field: str
    value: object
    reason: str

    def __init__(self, field: str, value: object, reason: str) -> None:
        shown = "" if value is None else f" {value!r:.200}"
        super().__init__(f"Invalid {field}{shown}: {reason}", field=field, value=value, reason=reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.value, self.reason)


class AccessNotFoundError(AccessError):
    kind: str
    sought: str

    def __init__(self, kind: str, sought: str) -> None:
        super().__init__(f'There is no {kind} "{sought}"', kind=kind, sought=sought)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.kind, self.sought)


class LoginRefusedError(AccessError):
    """A login failed. The message never says whether the name or the password was wrong.

    `retry_after_seconds` is set where there were too many failures.
    """

    retry_after_seconds: int | None

    def __init__(self, reason: str, retry_after_seconds: int | None = None) -> None:
        super().__init__(reason, retryAfterSeconds=retry_after_seconds)
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.retry_after_seconds)


# --- heartbeat monitors -----------------------------------------------------------------------------------------------


class MonitorError(NoonbellError):
    """Something about a heartbeat monitor; nothing was changed."""


class MonitorInvalidError(MonitorError):
    """A field of a monitor or of a ping cannot be accepted. `reason` says what would be right."""

    field: str
    value: object
    reason: str

    def __init__(self, field: str, value: object, reason: str) -> None:
        super().__init__(f"Invalid monitor: {field} {value!r:.200} {reason}", field=field, value=value, reason=reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.value, self.reason)


class MonitorNotFoundError(MonitorError):
    sought: str

    def __init__(self, sought: str) -> None:
        super().__init__(f'There is no monitor with the id "{sought}"', sought=sought)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.sought,)


class PingUnknownError(MonitorError):
    """No monitor has the token of a ping. The message does not repeat it: a mistyped one is nearly a right one."""

    def __init__(self) -> None:
        super().__init__("No monitor has this ping URL: it is mistyped, or its monitor was deleted or given a new one")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


# --- notifications ----------------------------------------------------------------------------------------------------


class NotifyError(NoonbellError):
    """Something about a channel or a rule; nothing was changed."""


class ChannelInvalidError(NotifyError):
    """A field of a channel cannot be accepted. `value` is None where it is secret."""

    field: str
    value: object
    reason: str

    def __init__(self, field: str, value: object, reason: str) -> None:
        shown = "" if value is None else f" {value!r:.200}"
        super().__init__(f"Invalid channel: {field}{shown} {reason}", field=field, value=value, reason=reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.value, self.reason)


class RuleInvalidError(NotifyError):
    """A field of a rule cannot be accepted. `reason` says what would be right."""

    field: str
    value: object
    reason: str

    def __init__(self, field: str, value: object, reason: str) -> None:
        super().__init__(f"Invalid rule: {field} {value!r:.200} {reason}", field=field, value=value, reason=reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.value, self.reason)


class ChannelNotFoundError(NotifyError):
    sought: str

    def __init__(self, sought: str) -> None:
        super().__init__(f'There is no channel with the id "{sought}"', sought=sought)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.sought,)


class RuleNotFoundError(NotifyError):
    sought: str

    def __init__(self, sought: str) -> None:
        super().__init__(f'There is no rule with the id "{sought}"', sought=sought)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.sought,)


class ChannelInUseError(NotifyError):
    channel_id: str
    rules: Sequence[str]

    def __init__(self, channel_id: str, rules: Sequence[str]) -> None:
        super().__init__(
            f'The channel "{channel_id}" is named by the rules {", ".join(rules)}; change or delete those first',
            channelId=channel_id,
            rules=rules,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.channel_id, self.rules)


# --- secrets ----------------------------------------------------------------------------------------------------------


class SecretError(NoonbellError):
    """Something about a secret. No message here ever holds a value, or a part of one."""


class SecretInvalidError(SecretError):
    """A secret that cannot be stored. `field` says whether its team, name, version or value is the reason."""

    field: str
    reason: str

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"Invalid secret: {field} {reason}", field=field, reason=reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.reason)


class SecretReferenceError(SecretError):
    """A reference cannot be understood or followed. `place` says where it stands."""

    place: str
    reason: str

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"Invalid reference in {place}: {reason}", place=place, reason=reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.place, self.reason)


class SecretUnknownError(SecretError):
    """A reference names a secret that does not exist; nothing was sent."""

    name: str
    place: str

    def __init__(self, name: str, place: str) -> None:
        super().__init__(
            f'There is no secret "{name}", which {place} refers to; store it, or correct the name',
            name=name,
            place=place,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.place)


class SecretUnreadableError(SecretError):
    """A sealed record does not open: it was changed, belongs to another secret, or its master key is not here."""

    team: str
    name: str
    reason: str

    def __init__(self, team: str, name: str, reason: str) -> None:
        super().__init__(
            f'The secret "{name}" of team "{team}" cannot be opened: {reason}', team=team, name=name, reason=reason
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.team, self.name, self.reason)


class MasterKeyError(SecretError):
    """Master keys cannot be read or written. `source` is the file or the variable."""

    source: str
    reason: str

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"Master keys in {source}: {reason}", source=source, reason=reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source, self.reason)


class MasterKeyMissingError(MasterKeyError):
    """There is no master key, so no secret is stored or read."""


# --- signed messages --------------------------------------------------------------------------------------------------


class SigningKeyError(NoonbellError):
    """A key for signatures is malformed. The message never holds the key."""

    reason: str

    def __init__(self, reason: str) -> None:
        super().__init__(f"Invalid signing key: {reason}", reason=reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason,)


class ReceiveError(NoonbellError):
    """A received message is not to be handled. `status` is the answer to its sender."""

    status: int = 400
    reason: str

    def __init__(self, reason: str) -> None:
        super().__init__(reason, reason=reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason,)


class WebhookMalformedError(ReceiveError):
    """A header of the signature is missing or cannot be understood."""

    status = 400


class WebhookRefusedError(ReceiveError):
    """No signature fits any of the keys, or the message is too old or from the future."""

    status = 401


class WebhookTooLargeError(ReceiveError):
    status = 413


class WebhookInProgressError(ReceiveError):
    """The same message is being handled at this moment; its sender should ask again a little later."""

    status = 409


class WebhookRepeatedError(ReceiveError):
    """The same message has been handled; its sender is told so, with success."""

    status = 200


class WebhookUnavailableError(ReceiveError):
    """The memory of messages is full of such that are being handled, or cannot be written."""

    status = 503


# --- the way out ------------------------------------------------------------------------------------------------------


class EgressError(NoonbellError):
    """Something that was to leave this machine did not, or got no answer.

    Messages name host and port at most: no user, no path, no query, no header and no text of the other side.
    """

    kind: str
    where: str
    reason: str

    def __init__(self, kind: str, where: str, reason: str) -> None:
        super().__init__(f"{kind}: {where}: {reason}", kind=kind, where=where, reason=reason)


class EgressRefusedError(EgressError):
    """The host, the address or the request is not let out; nothing was sent to it."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__("refused-by-egress", where, reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.where, self.reason)


class EgressFailedError(EgressError):
    """It was let out, and failed on the way; `kind` is one of those in the drawing above."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.kind, self.where, self.reason)


class EgressPolicyInvalidError(EgressError):
    """The operator's rules cannot be understood."""

    field: str
    value: object

    def __init__(self, field: str, value: object, reason: str) -> None:
        super().__init__("policy", f"{field} {value!r:.200}", reason)
        self.field = field
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.value, self.reason)


# --- actions ----------------------------------------------------------------------------------------------------------


class ActionError(NoonbellError):
    """What a run was to do could not be done."""


class CommandsOffError(ActionError):
    """Commands are off, or this program is not among those that the operator allows."""

    program: str
    reason: str

    def __init__(self, program: str, reason: str) -> None:
        super().__init__(f"The command {program!r:.200} is not allowed: {reason}", program=program, reason=reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.program, self.reason)


class CommandFailedError(ActionError):
    """A program could not be started, or did not end with exit code 0.

    `detail` is the record of the attempt, packed (`core.detail`): how it ended, its output.
    """

    program: str
    reason: str
    detail: bytes

    def __init__(self, program: str, reason: str, detail: bytes) -> None:
        super().__init__(f"The command {program!r:.200} {reason}", program=program, reason=reason)
        self.detail = detail  # not among the details: it may be large

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.program, self.reason, self.detail)


class HttpJobFailedError(ActionError):
    """A request failed. `kind` is that of egress (`dns`, `tls`, `timeout`, …), or `status`, `assertion` or `secret`.

    `detail` is the record of the attempt, packed, and `retry_after_us` is when the other side asked to be tried again.
    Nothing here holds a secret.
    """

    masked: ClassVar[bool] = True
    kind: str
    reason: str
    detail: bytes
    retry_after_us: int | None

    def __init__(self, kind: str, reason: str, detail: bytes, *, retry_after_us: int | None = None) -> None:
        super().__init__(f"{kind}: {reason}", kind=kind, reason=reason, retryAfterUs=retry_after_us)
        self.detail = detail  # not among the details: it may be a megabyte


class NotStartedError(ActionError):
    """The engine stops, and the action was never called: its run is handed back with its attempt unchanged."""

    def __init__(self) -> None:
        super().__init__("The engine stopped before the action was called")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


class DeliveryError(ActionError):
    """A message did not reach its target."""

    target: str
    reason: str

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(f"The message did not reach {target}: {reason}", target=target, reason=reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.target, self.reason)


class TargetAwayError(DeliveryError):
    """The target as a whole cannot be reached or used: whatever else is sent there now would fail as well.

    Of several messages that were sent together the first `arrived` have arrived for certain.
    """

    arrived: int

    def __init__(self, target: str, reason: str, arrived: int = 0) -> None:
        super().__init__(target, reason)
        self.arrived = arrived

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.target, self.reason, self.arrived)


class ScheduleFileInvalidError(ScheduleError):
    """What is wrong in a file of schedules: the first hundred `problems`, and how many `more` there are.

    Each problem has a `text` with its line and column.
    """

    problems: Sequence[Any]
    more: int

    def __init__(self, problems: Sequence[Any], more: int = 0) -> None:
        shown = problems[:_MOST_FILE_PROBLEMS]
        more += len(problems) - len(shown)
        lines = [problem.text for problem in shown]
        if more:
            lines.append(f"and {more} more problems, which are not listed")
        super().__init__("\n".join(lines), problems=shown, more=more)


class PlanOutdatedError(ScheduleError):
    """Something else has changed the schedules since the plan was made; nothing was applied."""

    schedule_id: str

    def __init__(self, schedule_id: str, reason: str) -> None:
        super().__init__(
            f'The schedule "{schedule_id}" {reason} since the plan was made; nothing was applied, make a new plan',
            scheduleId=schedule_id,
            reason=reason,
        )


class DeletionRefusedError(ScheduleError):
    """The plan deletes schedules or quiet hours; whoever applies it must say that this is meant."""

    deleted: Sequence[str]

    def __init__(self, deleted: Sequence[str]) -> None:
        super().__init__(f"The plan deletes {', '.join(deleted)}; allow that, or declare them", deleted=deleted)


# --- stores -----------------------------------------------------------------------------------------------------------


class StoreError(NoonbellError):
    """The store could not do what was asked; nothing was half done. The original is `__cause__`."""


class StoreUnavailableError(StoreError):
    """Full, read-only, locked or gone: the same call may work later."""


class LeaseLostError(StoreUnavailableError):
    """Another has taken the name that was held here: whoever held it has to take it anew, and begin from the start."""


class StoreCorruptError(StoreError):
    """The file is not a database, or is damaged."""


class StoreUrlError(StoreError):
    """The store's address cannot be understood."""


class TimelineError(NoonbellError):
    """The Redis timeline cannot be used: its address makes no sense, or its server might drop what it is given."""


class TimelineAwayError(TimelineError):
    """The Redis timeline did not answer, or refused: the same call may work later."""


# --- stored task state ------------------------------------------------------------------------------------------------


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

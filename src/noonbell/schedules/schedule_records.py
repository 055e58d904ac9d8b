"""The results of `Schedules`: plain values with aware datetimes in UTC."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from noonbell.core.attempt_detail import unpack
from noonbell.core.ids import schedule_of
from noonbell.core.instants import moment, moment_or_none
from noonbell.core.records import Attempt as StoredAttempt
from noonbell.core.records import DeadLetter, QuietHoursPolicy, StoredSchedule, shown_cause
from noonbell.core.turns import definition_of, terms_of
from noonbell.errors import ScheduleInvalidError
from noonbell.timing.timing_protocol import SECOND

T = TypeVar("T")

_LARGEST_PAGE: Final = 1_000


class Retry(msgspec.Struct, frozen=True):
    """The retry policy: how often a failed run is attempted, counting all attempts, and the waits between them."""

    attempts: int | None
    delay_seconds: float
    strategy: str
    max_delay_seconds: float | None
    jitter: float


class Schedule(msgspec.Struct, frozen=True):
    """A durable schedule. `understood` is set in the answer to a create or update that typed another cron dialect."""

    schedule_id: str
    name: str
    enabled: bool
    type: str
    spec: str
    next_run_at: datetime | None
    last_run_at: datetime | None
    timezone: str
    quiet_hours_policy_id: str | None
    catch_up_policy: str
    payload: Any
    created_at: datetime
    updated_at: datetime
    catch_up_cap: int
    overlap: str
    retry: Retry
    retry_vs_new: str
    dst: str
    start_at: datetime | None
    end_at: datetime | None
    jitter_seconds: float
    at_most_once: bool
    tags: tuple[str, ...]
    action: dict[str, Any]
    managed_by: str
    lane: str
    epoch: int
    running: int
    last_success_at: datetime | None
    last_failure_at: datetime | None
    team: str
    understood: str | None = None
    warnings: tuple[str, ...] = ()  # of what was just created or changed: see docs/schedules.md


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Some of a list; `next_cursor` asks for what comes after, and is None at the end."""

    items: list[T]
    next_cursor: str | None = None


class Attempt(msgspec.Struct, frozen=True):
    """An attempt that failed, was cut off or was a repeat, or that left a detail: a program's output."""

    attempt: int
    outcome: str
    cause: str
    started_at: datetime | None
    ended_at: datetime
    error: str | None
    detail: dict[str, Any] | None = None


def attempt_records(found: Iterable[StoredAttempt]) -> tuple[Attempt, ...]:
    return tuple(
        Attempt(
            one.attempt, one.outcome, shown_cause(one.cause), moment_or_none(one.started_at), moment(one.ended_at),
            one.error, None if one.detail is None else unpack(one.detail),
        )
        for one in found
    )  # fmt: skip


class Occurrence(msgspec.Struct, frozen=True):
    """One nominal firing time and what became of it. `state` is that of its run: an outcome, or where it stands."""

    scheduled_for: datetime
    verdict: Literal["fired", "skipped", "missed", "coalesced", "pending"]
    reason: str = ""
    state: str | None = None
    attempts: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None
    tried: tuple[Attempt, ...] = ()


class Upcoming(msgspec.Struct, frozen=True):
    """A coming occurrence: when its start is due, jitter included, and whether quiet hours will silence it."""

    scheduled_for: datetime
    starts_at: datetime
    quiet: bool


class QuietHoursRecord(msgspec.Struct, frozen=True):
    """Quiet hours that schedules refer to by id."""

    policy_id: str
    name: str
    windows: list[dict[str, Any]]
    created_at: datetime
    updated_at: datetime
    team: str
    warnings: tuple[str, ...] = ()  # of what was just created or changed


class Audited(msgspec.Struct, frozen=True):
    """An audit event. The missed slots of one stretch share an id. Without a team it concerns all of them."""

    audit_id: int
    at: datetime
    event: str
    subject: str
    actor: str
    detail: dict[str, Any]
    team: str | None = None


class Undelivered(msgspec.Struct, frozen=True):
    """A message that could not be delivered: a dead letter. `event` is its CloudEvent."""

    number: int
    message_id: str
    schedule_id: str
    target: str
    event: dict[str, Any]
    created_at: datetime
    died_at: datetime
    attempts: int
    error: str
    team: str


def undelivered(letter: DeadLetter) -> Undelivered:
    message = letter.message
    return Undelivered(
        number=letter.number,
        message_id=message.message_id,
        schedule_id=schedule_of(message.message_id),
        target=message.target,
        event=msgspec.json.decode(message.body),
        created_at=moment(message.created_at),
        died_at=moment(letter.died_at),
        attempts=letter.attempts,
        error=letter.error,
        team=message.team,
    )


def _next_run(stored: StoredSchedule, now: int | None) -> int | None:
    """The instant at which the next run is due; what has come while a run executes or waits for a retry is due as soon
    as that ends.
    """
    if not stored.enabled or stored.next_run_at is not None or not stored.lives:
        return stored.next_run_at if stored.enabled else None
    terms = terms_of(stored)
    skipped = terms.policies.overlap == "skip" and any(live.state == "running" for live in stored.lives)
    decided = stored.cursor_at if now is None or not skipped else max(stored.cursor_at, now)
    at = terms.timing.following(decided)
    if at is None or terms.quiet.quiet_until(at) is not None:
        return None
    return at + terms.jitter(at)


def schedule_record(
    stored: StoredSchedule, understood: str | None = None, warnings: tuple[str, ...] = (), *, now: int | None = None
) -> Schedule:
    """A stored schedule as it is shown; with `now` the next run is exact where occurrences are skipped during runs."""
    columns, definition = stored.columns, definition_of(stored.columns.definition)
    retry = definition.retry
    return Schedule(
        schedule_id=stored.schedule_id,
        name=columns.name,
        enabled=stored.enabled,
        type=columns.type,
        spec=columns.spec,
        next_run_at=moment_or_none(_next_run(stored, now)),
        last_run_at=moment_or_none(stored.last_run_at),
        timezone=columns.timezone,
        quiet_hours_policy_id=columns.quiet_hours_policy_id,
        catch_up_policy=columns.catch_up_policy,
        payload=None if columns.payload is None else msgspec.json.decode(columns.payload),
        created_at=moment(stored.created_at),
        updated_at=moment(stored.updated_at),
        catch_up_cap=definition.cap,
        overlap=definition.overlap,
        retry=Retry(
            retry.attempts,
            retry.delay_us / SECOND,
            retry.strategy,
            None if retry.max_delay_us is None else retry.max_delay_us / SECOND,
            retry.jitter,
        ),
        retry_vs_new=definition.retry_vs_new,
        dst=definition.dst,
        start_at=moment_or_none(definition.start_at),
        end_at=moment_or_none(definition.end_at),
        jitter_seconds=definition.jitter_us / SECOND,
        at_most_once=definition.at_most_once,
        tags=definition.tags,
        action=definition.action,
        managed_by=stored.managed_by,
        lane=stored.lane,
        epoch=stored.epoch,
        running=sum(live.state == "running" for live in stored.lives),
        last_success_at=moment_or_none(stored.last_success_at),
        last_failure_at=moment_or_none(stored.last_failure_at),
        team=stored.team,
        understood=understood,
        warnings=warnings,
    )


def quiet_hours_record(policy: QuietHoursPolicy) -> QuietHoursRecord:
    windows = msgspec.json.decode(policy.document)["windows"]
    return QuietHoursRecord(
        policy.policy_id, policy.name, windows, moment(policy.created_at), moment(policy.updated_at), policy.team
    )


def page_size(limit: int, argument: str = "limit") -> int:
    if type(limit) is not int or not 1 <= limit <= _LARGEST_PAGE:
        raise ScheduleInvalidError(argument, limit, f"must be a whole number from 1 to {_LARGEST_PAGE}")
    return limit

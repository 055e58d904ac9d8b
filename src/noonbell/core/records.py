"""The records that the engine and the stores exchange.

Instants are whole microseconds since 1970 (UTC), in fields that end in `_at` or `_for`. The structs are plain values:
a store fills them from rows and writes them back, `decide` turns one into the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

# The team of whatever was given none.
DEFAULT_TEAM: Final = "default"

# The wake-up of a run that is to start at the next look, whatever the clock says by then: it may be set back.
AT_ONCE: Final = 0

# Owners of declared tasks: `noonbell.Scheduler` and `noonbell.periodic`. A durable schedule never has one of these.
DECLARED_OWNERS: Final = ("scheduler:", "periodic:")

# A durable schedule's run that was executing at so many deaths of an engine is abandoned (see `core.crashes`).
MOST_CRASHES: Final = 3

Kind = Literal["scheduled", "manual"]
LiveState = Literal["queued", "running", "waiting"]
TriggerSource = Literal["manual", "api"]  # how a run was asked for: by a person, or by a program over the API
# `…_once`: asked for without retries; `api_retry`: the retry of a run that was asked for over the API. Readers of the
# history are shown these as `manual`, `api` and `retry` (`shown_cause`).
Cause = Literal["cron", "retry", "orphan", "manual", "api", "manual_once", "api_once", "api_retry", "one_shot"]
Outcome = Literal["succeeded", "failed", "abandoned", "unknown"]
Verdict = Literal["skipped", "missed", "coalesced"]


# So many runs that were asked for may be live at a time, of one schedule that does not let runs overlap.
MOST_ASKED: Final = 100


def asked_cause(via: TriggerSource, *, retry: bool) -> Cause:
    """The cause of the first attempt of a run that was asked for."""
    if retry:
        return via
    return "manual_once" if via == "manual" else "api_once"


def retry_cause(cause: Cause) -> Cause:
    """The cause of the attempt after one that failed."""
    return "api_retry" if cause in ("api", "api_retry") else "retry"


def is_once(cause: Cause) -> bool:
    """Return whether the run was asked for without retries."""
    return cause in ("manual_once", "api_once")


def shown_cause(cause: Cause) -> Cause:
    shown: dict[Cause, Cause] = {"manual_once": "manual", "api_once": "api", "api_retry": "retry"}
    return shown.get(cause, cause)


class LiveRun(msgspec.Struct, gc=False):
    """A run that has not ended: executing, waiting for its retry, or queued to start."""

    sid: int
    kind: Kind
    run_for: int
    fence: int
    owner: str | None
    state: LiveState
    attempt: int  # how many attempts have been started
    wake_at: int | None
    started_at: int | None  # of its first attempt
    attempt_at: int | None  # of its latest attempt
    crashes: int
    epoch: int
    cause: Cause


class Span(msgspec.Struct, gc=False):
    """Neighbouring occurrences that share a verdict other than fired."""

    sid: int
    from_at: int  # the first of them
    to_at: int  # the last of them
    n: int
    verdict: Verdict
    reason: str
    epoch: int


class Run(msgspec.Struct, gc=False):
    """A run that has ended.

    `started_at` is when its first attempt was claimed; an interval counts from there. The attempt itself began at
    `began_at`: `waited_us` later, if it waited for an HTTP slot or a thread. `prev_for` and `prev_manual` name the run
    of the same schedule that ended before it, be it still kept or pruned.
    """

    sid: int
    run_for: int
    kind: Kind
    outcome: Outcome
    attempts: int
    started_at: int
    ended_at: int
    owner: str
    epoch: int
    prev_for: int | None = None
    prev_manual: bool = False
    waited_us: int = 0

    @property
    def began_at(self) -> int:
        return self.started_at + self.waited_us


class History(msgspec.Struct, gc=False):
    """The head of a durable schedule's history, deleted or not: the run that ended last.

    The counts are of all runs that have ended, the pruned ones among them.
    """

    sid: int
    schedule_id: str
    name: str
    removed_at: int | None
    last_ended_for: int | None
    last_ended_manual: bool
    ended_runs: int
    succeeded_runs: int
    team: str = DEFAULT_TEAM


class Start(msgspec.Struct, gc=False):
    """An attempt that the claim has committed; the action may be called now."""

    sid: int
    kind: Kind
    run_for: int
    fence: int
    attempt: int
    cause: Cause
    epoch: int
    started_at: int
    due_at: int  # when it could have started at the earliest: lateness counts from here
    following: int | None  # the schedule's next occurrence, put back when the run ends
    preempted: LiveRun | None = None
    waited_us: int = 0  # for an HTTP slot or a thread: from the claim to `started_at`


class Settlement(msgspec.Struct, gc=False):
    """The end of an attempt. With `wake_at` the run waits for its retry; without, it has ended.

    `cleared` is a run of the same schedule that waits for a retry which this end makes needless: it ends as failed.
    """

    start: Start
    owner: str
    outcome: Outcome
    ended_at: int
    wake_at: int | None = None
    error: str | None = None
    detail: bytes | None = None  # what the action reports, packed: output, a response
    messages: Sequence[OutboxMessage] = ()  # put into the outbox with the end
    cleared: LiveRun | None = None


class OutboxMessage(msgspec.Struct, gc=False):
    """A message on its way. Those of one schedule are delivered in the order in which they were written."""

    sid: int
    lane: str
    message_id: str  # the id of the run
    target: str  # the name of a registered target
    body: str  # a CloudEvent, as JSON
    created_at: int
    team: str = DEFAULT_TEAM


class Stream(msgspec.Struct, gc=False):
    """The messages of one schedule that were claimed for delivery, oldest first, each with its number.

    `attempt` is how often the first of them has been tried before.
    """

    sid: int
    attempt: int
    messages: list[tuple[int, OutboxMessage]]


class Sending(msgspec.Struct, gc=False):
    """A message that is still in the outbox: `ahead` of it are so many of its stream.

    `attempt` is how often the first of the stream has been tried, `error` what the last try of it ended with, where one
    has failed. An owner is delivering; without one the stream waits until `wake_at`.
    """

    message: OutboxMessage
    ahead: int
    attempt: int
    wake_at: int
    owner: str | None
    error: str | None


class Delivery(msgspec.Struct, gc=False):
    """The outcome of a claimed stream, which is free again once this is written.

    All up to `delivered` have arrived. With `dead` the next one is a dead letter, for the reason in `error`; with
    `wake_at` it is tried again then. `audit` is written with the dead letter.
    """

    sid: int
    owner: str
    at: int
    delivered: int | None
    dead: int | None = None
    wake_at: int | None = None
    error: str | None = None
    audit: AuditEvent | None = None


class DeadLetter(msgspec.Struct, gc=False):
    """A message that could not be delivered. `number` is its place in the outbox."""

    number: int
    message: OutboxMessage
    died_at: int
    attempts: int
    error: str


class PrunedDay(msgspec.Struct, gc=False):
    """The summary of a day of a schedule's ledger, in one epoch, kept when its runs and spans have been dropped.

    They reached from `first_at` to `to_at`: of a span that came from an earlier day, all of it. `last_for` and
    `last_started_at` are of the latest scheduled run among them.
    """

    sid: int
    epoch: int
    day: int  # its first instant, UTC
    first_at: int
    to_at: int
    fired: int
    passed: int  # skipped, missed and coalesced
    last_for: int | None
    last_started_at: int | None


class Attempt(msgspec.Struct, gc=False):
    """The record of one attempt, kept if it says more than its run: a failure, or a repeat."""

    sid: int
    run_for: int
    kind: Kind
    attempt: int
    outcome: Outcome
    cause: Cause
    started_at: int
    ended_at: int
    owner: str
    error: str | None
    detail: bytes | None = None  # packed: see core.detail


class Epoch(msgspec.Struct, gc=False):
    """A stretch (from_at, to_at] in which a schedule's spec, zone and policies stayed the same; to_at None: open."""

    sid: int
    epoch: int
    from_at: int
    to_at: int | None
    spec: str
    timezone: str
    zone_hash: str
    policies: str
    enabled: bool


class NewSchedule(msgspec.Struct, gc=False):
    """A schedule to be created, with its first epoch."""

    schedule_id: str
    name: str
    type: str
    spec: str
    timezone: str
    zone_hash: str
    policies: str
    retry_delay_us: int
    cursor_at: int
    next_run_at: int | None


class ChangedSchedule(msgspec.Struct, gc=False):
    """A schedule whose stored row is to be brought up to the declaration; it gets no wake-up while a run executes.

    With `new_epoch` the running epoch ends at the cursor and the next one begins there.
    """

    sid: int
    spec: str
    timezone: str
    zone_hash: str
    policies: str
    retry_delay_us: int
    epoch: int
    cursor_at: int
    next_run_at: int | None
    new_epoch: bool


class RemovedSchedule(msgspec.Struct, gc=False):
    """A schedule whose declaration is gone: its row and ledger stay, closed at the cursor; its live run ends."""

    sid: int
    cursor_at: int


LifecycleStep = Literal["init-ok", "stop-start", "stop-end", "crash"]


class LifecycleEvent(msgspec.Struct, gc=False):
    """A step in the life of a scheduler: init-ok, stop-start, stop-end, crash (inferred at the next start)."""

    managed_by: str
    at: int
    instance: str
    event: LifecycleStep
    detail: str = ""


class Declaration(msgspec.Struct):
    """Everything that one `initialize` changes, or a step of the owner's life; a store applies it whole or not at all.

    `revived` are live runs in their new state (orphans put back to `queued`), written by key (sid, kind, run_for).
    `interrupted` are manual runs of a dead instance: no repeat was requested, so they end as `unknown`. `events` are
    added to the lifecycle in order. `parked` are schedules that stay as they are and do not wake: not in use until they
    are among the `changed` of a later declaration.
    """

    managed_by: str
    at: int
    created: list[NewSchedule] = []
    changed: list[ChangedSchedule] = []
    removed: list[RemovedSchedule] = []
    revived: list[LiveRun] = []
    interrupted: list[LiveRun] = []
    events: list[LifecycleEvent] = []
    parked: list[int] = []


# --- durable schedules ------------------------------------------------------------------------------------------------


class Retrying(msgspec.Struct, frozen=True):
    """The retry policy of a schedule as it is stored."""

    attempts: int | None = 1
    delay_us: int = 5_000_000
    strategy: Literal["exponential", "linear", "fixed"] = "exponential"
    max_delay_us: int | None = None
    jitter: float = 0.0


class Definition(msgspec.Struct, frozen=True, omit_defaults=True):
    """The parts of a durable schedule that have no columns; stored as one JSON text, defaults left out."""

    overlap: Literal["coalesce", "skip", "allow"] = "coalesce"
    cap: int = 10
    retry_vs_new: Literal["finish", "preempt"] = "finish"
    retry: Retrying = Retrying()
    dst: Literal["literal", "once"] = "literal"
    start_at: int | None = None
    end_at: int | None = None
    jitter_us: int = 0
    at_most_once: bool = False
    tags: tuple[str, ...] = ()
    action: dict[str, Any] = {}


class AuditEvent(msgspec.Struct, gc=False):
    """A change or an unusual decision. `subject` is the id of a schedule or of a quiet-hours policy, `detail` JSON.

    Without a team it concerns all of them.
    """

    at: int
    event: str
    subject: str
    actor: str
    detail: str
    team: str | None = None


class QuietHoursPolicy(msgspec.Struct, gc=False):
    """Quiet hours that schedules may refer to; `document` is JSON as QuietHours reads it."""

    policy_id: str
    name: str
    document: str
    created_at: int
    updated_at: int
    team: str = DEFAULT_TEAM


class ScheduleColumns(msgspec.Struct, gc=False):
    """The part of a durable schedule that a person writes."""

    name: str
    type: str
    spec: str
    timezone: str
    quiet_hours_policy_id: str | None
    catch_up_policy: str
    payload: str | None
    definition: str  # a Definition


class StoredSchedule(msgspec.Struct, gc=False):
    """A schedule as it stands, with its quiet hours, its last scheduled run and its live runs.

    A declared task is on a private lane, whose name is that of its owner, and has no definition: its engine knows it.
    """

    sid: int
    schedule_id: str
    columns: ScheduleColumns
    enabled: bool
    managed_by: str
    lane: str
    created_at: int
    updated_at: int
    next_run_at: int | None
    last_run_at: int | None
    last_attempt_at: int | None
    last_success_at: int | None
    last_failure_at: int | None
    epoch: int
    cursor_at: int
    anchor_at: int | None  # what an interval counts from
    backlog_left: int | None
    backlog_until: int | None  # without backlog_left: the end of a quiet stretch whose beginning the audit has
    last_run_for: int | None  # of the latest scheduled run that was fired; of a one-shot that is over, its instant
    quiet: str | None  # the document of its quiet hours
    ran: tuple[int, int] | None  # when the run for last_run_for began and ended, if it has; under overlap skip alone
    lives: list[LiveRun]
    team: str = DEFAULT_TEAM


class DurableSchedule(msgspec.Struct, gc=False):
    """A durable schedule to be created, with its first epoch, which begins at its cursor."""

    schedule_id: str
    columns: ScheduleColumns
    enabled: bool
    managed_by: str
    lane: str
    cursor_at: int
    next_run_at: int | None
    anchor_at: int | None
    zone_hash: str
    policies: str
    team: str = DEFAULT_TEAM


class Turn(msgspec.Struct, gc=False):
    """The writes for one durable schedule: after a poll of it, or when its epoch is closed.

    `starts` are executing from now on; `queued` are fired and wait for an engine to start them. `preempted` end as
    failed. `put_off` are live runs with a new wake_at. `finished` are runs that began and ended with the claim itself:
    their messages are in the outbox.
    """

    sid: int
    cursor_at: int
    next_run_at: int | None
    enabled: bool
    anchor_at: int | None
    last_run_for: int | None
    backlog_left: int | None = None
    backlog_until: int | None = None
    starts: list[Start] = []
    queued: list[LiveRun] = []
    preempted: list[LiveRun] = []
    put_off: list[LiveRun] = []
    spans: list[Span] = []
    audits: list[AuditEvent] = []
    finished: list[Run] = []
    messages: list[OutboxMessage] = []


class Edit(msgspec.Struct):
    """A change of a durable schedule at `at`: its epoch ends there, and the next one begins.

    Without `epoch` the schedule is deleted: its row and ledger stay, its live runs end. `documents` are kinds and ids
    of what goes with it.
    """

    at: int
    turn: Turn
    columns: ScheduleColumns
    epoch: Epoch | None
    documents: list[tuple[str, str]] = []


# --- documents --------------------------------------------------------------------------------------------------------


class Document(msgspec.Struct, gc=False):
    """A small thing that people put in and take out: a secret, a channel, a monitor. `body` is JSON.

    An id is taken once for each kind. The version counts its writes, from 1. With `wake_at` an engine reads it then.
    """

    kind: str
    id: str
    team: str
    version: int
    body: str
    created_at: int
    updated_at: int
    wake_at: int | None = None


class DocumentRemoval(msgspec.Struct, gc=False):
    """A document to be removed; refused if it is there and its version is not `expected`."""

    kind: str
    id: str
    expected: int | None = None


class DocumentWrite(msgspec.Struct, gc=False):
    """A document to be put; refused unless its version is `expected`: 0 for one that must be new, None for any."""

    kind: str
    id: str
    team: str
    body: str
    expected: int | None = None
    wake_at: int | None = None

"""The seams of the engine: what a clock and a store must do.

A store's verbs are the state transitions of the ledger. Each is one transaction: it happens whole or not at all, and a
StoreError says that nothing happened. `decide` is called inside the claim's transaction, so it must not block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

from noonbell.core.history import RunKey
from noonbell.core.presence import EngineRecord, EngineSign, Gap, Polls
from noonbell.core.records import (
    Asked,
    Attempt,
    AuditEvent,
    DeadLetter,
    Declaration,
    Delivery,
    Document,
    DocumentWrite,
    DurableSchedule,
    Edit,
    Epoch,
    History,
    Kind,
    LifecycleEvent,
    LiveRun,
    OutboxMessage,
    Outcome,
    PrunedDay,
    QuietHoursPolicy,
    Run,
    Sending,
    Settlement,
    Span,
    Start,
    StoredSchedule,
    Stream,
    Turn,
)

T = TypeVar("T")
Decide = Callable[[StoredSchedule], Turn]

LedgerTable = Literal["schedules", "epochs", "live", "runs", "spans", "attempts", "pruned", "lifecycle"]


class TableShape(NamedTuple):
    """How `read_ledger` gives a table: its columns in order, and the key it is ordered by."""

    columns: tuple[str, ...]
    key: tuple[str, ...]


LEDGER_TABLES: Mapping[LedgerTable, TableShape] = {
    "schedules": TableShape(
        (
            "sid", "schedule_id", "name", "enabled", "type", "spec", "next_run_at", "last_run_at", "timezone",
            "quiet_hours_policy_id", "catch_up_policy", "payload", "created_at", "updated_at", "managed_by", "team",
            "epoch", "cursor_at", "retry_delay_us", "last_attempt_at", "last_success_at", "last_failure_at",
            "removed_at", "last_ended_for", "last_ended_manual", "ended_runs", "succeeded_runs", "anchor_at",
            "backlog_left",
        ),
        ("sid",),
    ),
    "epochs": TableShape(Epoch.__struct_fields__, ("sid", "epoch")),
    "live": TableShape(LiveRun.__struct_fields__, ("sid", "kind", "run_for")),
    "runs": TableShape(Run.__struct_fields__, ("run_for", "sid", "kind")),
    "spans": TableShape(Span.__struct_fields__, ("sid", "from_at")),
    "attempts": TableShape(Attempt.__struct_fields__, ("sid", "run_for", "kind", "attempt")),
    "pruned": TableShape(PrunedDay.__struct_fields__, ("sid", "epoch", "day")),
    "lifecycle": TableShape(("id", *LifecycleEvent.__struct_fields__), ("id",)),
}  # fmt: skip


class Clock(Protocol):
    """The only way time enters."""

    def now(self) -> int:
        """Wall time, in microseconds since 1970."""
        ...

    def elapsed(self) -> float:
        """Seconds on a clock that is never set and runs through suspend."""
        ...

    async def wait(self, until: int, wakeup: asyncio.Event) -> None:
        """Return when the wall time has come or `wakeup` is set, whichever is first."""
        ...


class Declared(NamedTuple):
    """The stored tasks of one owner, unread: rows as they stand, so that damage can be told field by field."""

    rows: list[Mapping[str, Any]]
    last_lifecycle: LifecycleEvent | None


class Claimed(NamedTuple):
    """What a claim committed."""

    starts: list[Start]
    looked: int  # rows that were looked at
    full: bool  # the limit was reached: there may be more
    next_wake_at: int | None  # the earliest thing that is not due yet
    quarantined: list[tuple[int, Exception]]
    locked: bool = False  # something that is due was another transaction's at that moment


class Settled(NamedTuple):
    """What the ends of attempts have brought about.

    `woken` are schedules that wake otherwise than before, and when: the wake-up that came during the run is back, an
    edit meanwhile wants a look, a run waits that may have its turn now, or the attempt is made again. The instant is
    never later than the right one, and may be earlier. Of all others a look that was made before knows when they wake.
    """

    stale: list[Settlement]  # their fence or owner is old, and nothing of them was written
    woken: dict[int, int]  # by sid


class Hold(Protocol):
    """The exclusive right to a scheduler's name, kept while its instance lives."""

    def release(self) -> None: ...


class Store(Protocol):
    """The durable ledger."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def kill(self) -> None:
        """Drop everything at once, as a dying process does: nothing more is written, locks are free. For tests."""
        ...

    async def hold(self, name: str, holder: str) -> Hold:
        """Take the name, or raise SchedulerInUseError that names its holder."""
        ...

    async def holder(self, name: str) -> str | None:
        """Who holds the name now, None where nobody does. It is looked at, not taken."""
        ...

    async def read_declared(self, managed_by: str) -> Declared:
        """All schedules of an owner that are not removed, each joined with its live runs.

        A row holds every column of `schedules`, the `zone_hash` of its epoch, and the columns of a live run (its kind
        and epoch as `live_kind`, `live_epoch`) or None for them; a schedule with two live runs has two rows.
        """
        ...

    async def declare(self, declaration: Declaration) -> list[int]:
        """Apply an override whole; returns the sids of the created schedules, in order."""
        ...

    async def claim(
        self,
        lane: str,
        owner: str,
        now: int,
        limit: int,
        decide: Decide,
        *,
        among: Sequence[int] | None = None,
        due_by: int | None = None,
    ) -> LaneClaim:
        """Let `decide` say what becomes of each schedule that is due by `now`, and commit that with the live runs.

        The private lane of declared tasks goes by the name of their owner.
        With `among` only the schedules of these sids are looked at, each by its key; what comes after them is not
        looked for, so that `next_wake_at` knows of them alone. With `due_by` only what was due by then is looked at.
        """
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        """Record the ends of attempts.

        Of many attempts of a run the first and the last stay on record (`core.attempts`). A run that an end clears
        (`Settlement.cleared`) ends before it, as failed.
        """
        ...

    async def hand_back(self, starts: Sequence[Start], owner: str, now: int) -> None:
        """Put claimed runs whose action was never called back to `queued`, to wake at `now`; the attempt is undone.

        A manual run that was claimed by `trigger` is forgotten instead.
        """
        ...

    async def trigger(self, sid: int, owner: str, now: int) -> Start | None:
        """Claim a manual run; None where a run of the schedule is executing or queued."""
        ...

    async def owned(self, owner: str) -> list[LiveRun]:
        """The runs that `owner` has claimed and not settled: what it must account for after a failed claim.

        It may read every schedule, so it is for that and for a stop alone.
        """
        ...

    async def deleted_among(self, sids: Sequence[int]) -> set[int]:
        """Those of these schedules that were deleted."""
        ...

    async def record(self, event: LifecycleEvent) -> None: ...

    # --- reading the ledger ---------------------------------------------------------------------------------------

    async def schedules(self, managed_by: str | None = None) -> list[Mapping[str, Any]]:
        """Rows of the schedules table, oldest first, with the removed ones."""
        ...

    async def declared_tasks(self) -> list[Mapping[str, Any]]:
        """Rows of the tasks of all declared owners (DECLARED_OWNERS), oldest first, without the removed ones.

        Its cost depends on how many tasks are declared, and not on how many durable schedules there are.
        """
        ...

    async def epochs(self, sid: int) -> list[Epoch]: ...

    async def spans(self, sid: int, from_at: int, to_at: int) -> list[Span]:
        """Spans that touch [from_at, to_at], oldest first."""
        ...

    async def runs(self, sid: int, from_at: int, to_at: int, kind: Kind | None = None) -> list[Run]:
        """Ended runs whose run_for lies in [from_at, to_at], oldest first."""
        ...

    async def live(self, sid: int) -> list[LiveRun]: ...

    async def attempts(self, sid: int, from_at: int, to_at: int) -> list[Attempt]:
        """Recorded attempts of runs whose run_for lies in [from_at, to_at]."""
        ...

    async def lifecycle(self, managed_by: str) -> list[LifecycleEvent]: ...

    async def read_ledger(
        self,
        table: LedgerTable,
        after: tuple[Any, ...] | None,
        limit: int,
        *,
        above_sid: int | None = None,
        upto_sid: int | None = None,
    ) -> list[tuple[Any, ...]]:
        """Up to `limit` rows of a table, unread, in the order of its key and past the key `after`.

        The columns and keys are those of LEDGER_TABLES. Bounds on the sid (above_sid < sid <= upto_sid) narrow it to
        some schedules; a lifecycle has no sid. Damaged rows come as they stand.
        """
        ...


# --- durable schedules ------------------------------------------------------------------------------------------------


class ScheduleFilter(NamedTuple):
    """Which durable schedules are meant; None leaves a part open.

    `name_contains` does not tell the capitals of ASCII letters from the small ones; of other letters it does.
    """

    managed_by: str | None = None
    lane: str | None = None
    enabled: bool | None = None
    type: str | None = None
    tag: str | None = None
    name_contains: str | None = None
    quiet_hours_policy_id: str | None = None
    team: str | None = None


class AuditFilter(NamedTuple):
    """Which audit events are meant; None leaves a part open, the bounds on `at` are included."""

    subject: str | None = None
    event: str | None = None
    actor: str | None = None
    from_at: int | None = None
    to_at: int | None = None
    team: str | None = None


class LaneClaim(NamedTuple):
    """What a claim committed, and the schedules of its starts by sid."""

    claimed: Claimed
    stored: Mapping[int, StoredSchedule]


class Rescue(NamedTuple):
    """What was freed: how many runs are queued again, and which engines were found dead.

    What is `left` of theirs, runs and streams, somebody else had locked at that moment: it is worth another look soon.
    """

    queued: int
    dead: list[str]
    left: int = 0


class AwayTarget(NamedTuple):
    """A target that is known to be away: `error` says how, `until` until when what is for it is put off.

    Without `until` so many streams are brought to try it; the others stay as they are.
    """

    error: str
    until: int | None = None
    tries: int = 1


class StreamBounds(NamedTuple):
    """What a claim of streams brings at most: bytes of messages, and which targets need nothing now, by name."""

    most_bytes: int = 16 * 1024 * 1024
    away: Mapping[str, AwayTarget] = MappingProxyType({})


BOUNDS: Final = StreamBounds()


class StreamClaim(NamedTuple):
    """Streams that are to be delivered now, and when the next one is."""

    streams: list[Stream]
    full: bool
    next_wake_at: int | None


class Pruned(NamedTuple):
    """How much of a day was dropped."""

    day: int
    runs: int
    spans: int
    attempts: int
    audits: int
    dead_letters: int
    lifecycle_events: int = 0


class LedgerKey(NamedTuple):
    """The place of a run in the ledger."""

    run_for: int
    sid: int
    kind: Kind


class PastRun(NamedTuple):
    """An ended run, and whose it is."""

    schedule_id: str
    name: str
    run: Run
    team: str


class QuietChanges(NamedTuple):
    """Quiet hours that are put or dropped together with schedules, each with the event that tells of it."""

    put: Sequence[tuple[QuietHoursPolicy, AuditEvent]] = ()
    dropped: Sequence[tuple[str, AuditEvent]] = ()


NO_QUIET_CHANGES: Final = QuietChanges()

MakeEdit = Callable[[StoredSchedule], Edit | None]
TellNumbers = Callable[[list[int]], AuditEvent]
TellCut = Callable[[StoredSchedule, LiveRun, Outcome], Sequence[OutboxMessage]]


class ScheduleStore(Store, Protocol):
    """A ledger that holds durable schedules too.

    Their runs end by the verbs of every store: settle, hand_back, owned and trigger. A lane is what its engines claim,
    of which there may be any number; a declared schedule has none. Deleted schedules are not seen by the verbs below.

    An engine holds its own name (`core.presence.engine_name`), and `owner` below is that engine. Where this handle
    holds the name of an owner, verbs that act for it raise HoldLostError once it is lost.
    """

    async def create_schedules(self, created: Sequence[DurableSchedule], at: int, actor: str) -> list[int]:
        """Create them with their first epochs and a `schedule.created` each; returns their sids, in order.

        Raises ScheduleExistsError where an id was ever used, or a name is in its team by the same owner.
        """
        ...

    async def edit_schedules(self, schedule_ids: Sequence[str], edit: MakeEdit) -> None:
        """Let `edit` say what changes of each, inside the transaction; None leaves one alone.

        What `edit` raises undoes everything, and so does an id that is not found (ScheduleNotFoundError) or a name that
        is taken (ScheduleExistsError).
        """
        ...

    async def apply_schedules(
        self,
        created: Sequence[DurableSchedule],
        schedule_ids: Sequence[str],
        edit: MakeEdit,
        at: int,
        actor: str,
        *,
        quiet: QuietChanges = NO_QUIET_CHANGES,
    ) -> list[int]:
        """Edit as `edit_schedules` does and then create as `create_schedules` does, all of it or nothing.

        Other schedules that refer to quiet hours in `quiet.put` are edited too. Edits see the quiet hours as they were;
        then they are put, and after the creations those in `quiet.dropped` go (QuietHoursInUseError where a schedule
        still refers to them; one that is not there is passed over).
        """
        ...

    async def find_schedules(self, schedule_ids: Sequence[str]) -> list[StoredSchedule]:
        """Those that exist, by sid."""
        ...

    async def list_schedules(self, wanted: ScheduleFilter, after_sid: int, limit: int) -> list[StoredSchedule]:
        """A page in the order of sids, past `after_sid`."""
        ...

    async def ask(
        self, schedule_id: str, at: int, actor: str, via: Asked = "manual", *, queue: bool = False, retry: bool = True
    ) -> int | None:
        """Queue a run that a person asks for, with a `schedule.triggered`; returns the instant that it is for.

        `via` is the cause of its first attempt. Without `retry` it is attempted once, whatever the schedule's policy.

        None where a run of the schedule is executing or queued, or was asked for and waits for its retry, unless its
        overlap is `allow`. With `queue` it starts after those, in the order in which they were asked for; None where
        MOST_ASKED are live. One of the lane's engines starts it. Raises ScheduleNotFoundError.
        """
        ...

    # --- engines --------------------------------------------------------------------------------------------------

    @property
    def lease_seconds(self) -> float:
        """So long after its last sign of life a holder may still count as alive; 0: a dead one is known at once."""
        ...

    async def join(self, engine: EngineRecord) -> int:
        """Put an engine, whose name is held, beside the others of its lane; returns since when the lane is up.

        That is the earliest that an engine which is alive knows of; where there is none, what the new one says itself.
        """
        ...

    async def beat(self, sign: EngineSign, now: Callable[[], int]) -> None:
        """A sign of life. Of one that did not join, or was taken for dead, nothing is kept.

        `now` is the clock. It is read after the polls of the lane are, within the transaction (`Polls.polled`).
        """
        ...

    async def leave(self, instance: str) -> None:
        """The engine has ended, and left nothing behind."""
        ...

    async def engines(self, now: int) -> list[EngineRecord]:
        """The engines that are alive, by lane and by when they joined."""
        ...

    async def dead_engines(self, lane: str) -> list[str]:
        """Those that have joined the lane, have not left it, and are alive no more: a cheap look."""
        ...

    async def polls(self) -> dict[str, Polls]:
        """When each lane was last polled, as recorded by `beat` and `record_gap`, and its latest gaps."""
        ...

    async def record_gaps(self, lane: str, instance: str, gaps: Sequence[Gap], now: Callable[[], int]) -> Polls:
        """Record gaps and the polls that ended them, unless another poll has ended one of them before.

        Returns the polls of the lane. `now` is the clock, read as in `beat`.
        """
        ...

    async def take_over(
        self, lane: str, owner: str, at: int, tell: TellCut | None = None, *, stopped: bool = False
    ) -> Rescue:
        """Free what dead engines of the lane have left; `owner` is who does it.

        Runs that were executing are queued again, as `orphan`. A run of an at-most-once schedule and one that a person
        asked for end as `unknown` instead. A run at its third death may end as `abandoned` (`core.crashes`), with a
        `schedule.quarantined`; its schedule goes on. What `tell` makes of each run that ends here is put into the
        outbox. Streams of messages can be claimed again. The crash of each dead engine is recorded in the lifecycle of
        the lane. What an engine that is alive has in hand is not touched.

        With `stopped` it is the owner itself, which stops and hands over what it has cut off: its runs and streams
        alone, and none of them counts a death.
        """
        ...

    # --- quiet hours ----------------------------------------------------------------------------------------------

    async def put_quiet_hours(
        self, policy: QuietHoursPolicy, audit: AuditEvent, edit: MakeEdit, *, seen_at: int | None = None
    ) -> None:
        """Create or replace a policy; each schedule that refers to it is edited in the same transaction.

        With `seen_at`, the `updated_at` that the writer has seen, ScheduleChangedError is raised where the policy has
        another one by now, or is gone.
        """
        ...

    async def drop_quiet_hours(self, policy_id: str, audit: AuditEvent, *, seen_at: int | None = None) -> bool:
        """Delete a policy; False where there is none. Raises QuietHoursInUseError where a schedule refers to it.

        `seen_at` is as in put_quiet_hours.
        """
        ...

    async def quiet_hours(self, policy_id: str | None = None) -> list[QuietHoursPolicy]:
        """One policy or all, by id."""
        ...

    # --- audit ----------------------------------------------------------------------------------------------------

    async def tell(self, audits: Sequence[AuditEvent]) -> None:
        """Append to the audit."""
        ...

    async def audit(self, wanted: AuditFilter, after_id: int, limit: int) -> list[tuple[int, AuditEvent]]:
        """A page in the order in which they were written, past `after_id`."""
        ...

    # --- messages -------------------------------------------------------------------------------------------------

    async def post_messages(self, messages: Sequence[OutboxMessage], at: int) -> None:
        """Put messages at the ends of their streams, which belong to no claim and no settle."""
        ...

    async def claim_streams(
        self, lane: str, owner: str, now: int, limit: int, bounds: StreamBounds = BOUNDS
    ) -> StreamClaim:
        """Up to `limit` streams of the lane that are due, each with its oldest messages; they are the owner's now.

        The claim is full where others are due and had no room. See `noonbell.store.portions` for what the bounds do.
        A stream belongs to one owner until its `Delivery` is written; `take_over` frees those of a dead one.
        """
        ...

    async def settle_streams(self, deliveries: Sequence[Delivery]) -> None:
        """Drop what was delivered, bury what is dead, and free the streams; one that is not the owner's is left.

        What is buried is told in the audit by the `audit` of its delivery.
        """
        ...

    async def sending(self, sid: int, message_id: str) -> Sending | None:
        """The message of this id in the stream of a schedule, as long as it is in the outbox."""
        ...

    async def owned_streams(self, owner: str) -> list[int]:
        """The sids of the streams that `owner` has claimed: what it must account for after a failed claim."""
        ...

    async def dead_letters(self, sid: int | None, after: int, limit: int, team: str | None = None) -> list[DeadLetter]:
        """A page by number, past `after`; of one schedule, of one team, or of all."""
        ...

    async def revive_dead_letters(self, numbers: Sequence[int], at: int, tell: TellNumbers | None = None) -> int:
        """Put them back at the end of their streams, to be delivered at once; returns how many there were.

        Where there was one, the audit is told what `tell` makes of the numbers that were there.
        """
        ...

    async def drop_dead_letters(self, numbers: Sequence[int], tell: TellNumbers | None = None) -> int:
        """Forget them; returns how many there were. The audit is told as by `revive_dead_letters`."""
        ...

    # --- looking back ---------------------------------------------------------------------------------------------

    async def history_of(self, schedule_id: str) -> History | None:
        """Where the history of a durable schedule begins, also of a deleted one; None where there never was one."""
        ...

    async def last_outcomes(self, sids: Sequence[int]) -> dict[int, Outcome]:
        """How the run of each of these schedules that ended last has ended; left out are those that have none."""
        ...

    async def past_runs(self, sid: int, before: RunKey | None, limit: int) -> list[Run]:
        """Ended runs of a schedule in the order of their ends, the last first, past `before`.

        It costs what it gives, however long the history is. It ends where the older ones were pruned; where `before`
        was itself, nothing comes.
        """
        ...

    async def latest_runs(self, before: LedgerKey | None, limit: int, outcome: Outcome | None = None) -> list[PastRun]:
        """Ended runs of all durable schedules in the order of what they are for, the last first, past `before`."""
        ...

    async def runs_for(self, sid: int, instants: Sequence[int]) -> list[Run]:
        """The ended scheduled runs for these occurrences, each one look-up."""
        ...

    async def next_runs(self, sid: int, after: int, upto: int, limit: int) -> list[Run]:
        """Up to `limit` ended scheduled runs for instants in (after, upto], the oldest first.

        The runs of other schedules between them are passed over one by one.
        """
        ...

    async def next_spans(self, sid: int, after: int, upto: int, limit: int) -> list[Span]:
        """Up to `limit` spans that touch (after, upto], the oldest first; it costs what it gives."""
        ...

    async def previous_runs(self, sid: int, after: int, upto: int, limit: int) -> list[Run]:
        """As `next_runs`, the newest first."""
        ...

    async def previous_spans(self, sid: int, after: int, upto: int, limit: int) -> list[Span]:
        """As `next_spans`, the newest first."""
        ...

    async def snapshot(self, read: Callable[[ScheduleStore], Coroutine[Any, Any, T]]) -> T:
        """Call `read` with a store on which every verb reads from the same snapshot, and return its result.

        All of it is one transaction, in which nothing can be written. On SQLite `read` runs in the thread of the
        connection, and other verbs wait for it: it awaits nothing but verbs of that store, one after the other, and
        leaves what can be computed later to its caller.
        """
        ...

    # --- pruning --------------------------------------------------------------------------------------------------

    async def prune_day(self, before: int) -> Pruned | None:
        """Drop the oldest day of the ledger if it ended by `before`; None where there is none, or another is at it.

        Runs and attempts of the day, spans that end in it, audit events, dead letters: a PrunedDay for each schedule
        and epoch keeps the counts. Live runs, epochs and undecided time are not touched. What stays of a schedule's
        history still hangs together.
        """
        ...

    # --- zone rules -----------------------------------------------------------------------------------------------

    async def zone_rules(self) -> dict[str, str]:
        """For each zone of durable schedules and quiet hours: the rules that they were computed with, hash first."""
        ...

    async def put_zone_rules(self, rules: Mapping[str, str]) -> None: ...

    async def schedules_in_zone(self, timezone: str, after_sid: int, limit: int) -> list[StoredSchedule]:
        """A page of the durable schedules of a zone, by sid."""
        ...


# --- documents --------------------------------------------------------------------------------------------------------


class DocumentStore(Protocol):
    """Small things that people put in and take out, by kind and id."""

    async def put_documents(
        self, writes: Sequence[DocumentWrite], at: int, audits: Sequence[AuditEvent] = ()
    ) -> list[Document]:
        """Put them, all or none, with what the audit is told; returns them as they are now, in order.

        Raises DocumentConflictError where one is not of the expected version, or is another team's.
        """
        ...

    async def get_documents(self, kind: str, ids: Sequence[str]) -> list[Document]:
        """Those that exist, by id."""
        ...

    async def list_documents(self, kind: str, team: str | None, after: str, limit: int) -> list[Document]:
        """A page by id, past `after`; of one team or of all."""
        ...

    async def drop_documents(
        self, kind: str, ids: Sequence[str], audits: Sequence[AuditEvent] = (), *, expected: int | None = None
    ) -> int:
        """Take them out; returns how many there were. The audit is told only where there was one.

        Raises DocumentConflictError, and takes none out, where one of them is not of the version `expected`.
        """
        ...

    async def due_documents(self, kind: str, now: int, limit: int) -> tuple[list[Document], int | None]:
        """Those whose wake_at has come, the earliest first, and when the next one comes that was not given."""
        ...

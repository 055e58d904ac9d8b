"""The durable schedules of one lane, as work for the loop.

Nothing is loaded at the start: a claim brings what it needs to run. After a downtime each schedule may have a thousand
missed slots to record, so batches begin small then, and grow as long as few are: no transaction becomes a giant, and
the engines of a lane share a burst more evenly.

Plain functions are claimed only as far as there are threads for them. Those that find none stay due as they are, and
what is due behind them and needs no thread is claimed past them, as long as they are not more than `_PAST_PLAIN`.

What a claim decides about each schedule is in `lane_decisions`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol

from msgspec.structs import replace

from noonbell.actions.results import Prepared
from noonbell.core.attempt_detail import has_traceback
from noonbell.core.ids import run_id
from noonbell.core.instants import moment
from noonbell.core.presence import GRACE_US, MOST_GAPS, Gap, Polls
from noonbell.core.records import LiveRun, OutboxMessage, Settlement, Span, Start, StoredSchedule, is_once
from noonbell.core.turns import definition_of
from noonbell.engine.crash_probation import CrashProbation, ProbationBatch
from noonbell.engine.jobs import BATCH, Batch, Capacity, Job, log_span
from noonbell.engine.lane_decisions import LaneDecisions, NotificationRules, Poll, ThreadBudget
from noonbell.engine.metrics import Metrics
from noonbell.engine.unknown_actions import UnknownActions
from noonbell.errors import StoreError, fact_of
from noonbell.ports import Claimed, Ledger
from noonbell.timing.retry import RetryPolicy

logger = logging.getLogger("noonbell.engine")

FIRST_BATCH: Final = 256
_SMALLEST_BATCH: Final = 32
_MANY_AUDITS: Final = 20_000
_PAST_PLAIN: Final = 512
# While all slots are taken: any end causes a poll, so this is only for what comes due in between.
_FULL_PAUSE: Final = 100_000
_FULL_PAUSE_EACH: Final = 500
# A poll that has waited longer for its first lock decides nothing: another one does, by the time that it is then.
_SHORT_WAIT: Final = 5_000_000


Prepare = Callable[[StoredSchedule, Start], Prepared]
Preparer = Callable[[str], Prepare]  # by definition


class OnMessages(Protocol):
    """Called when a claim has put messages into the outbox; with `more_due` the next claim follows at once."""

    def __call__(self, *, more_due: bool = False) -> None: ...


class LaneJobs:
    """The schedules of one lane."""

    def __init__(
        self,
        store: Ledger,
        *,
        lane: str,
        owner: str,
        preparer: Preparer,
        message_of: Callable[[StoredSchedule, Start, int], OutboxMessage] | None = None,
        on_messages: OnMessages | None = None,
        outdated: Callable[[], Collection[str]] = tuple,
        notices: NotificationRules | None = None,
        needs_thread: Callable[[StoredSchedule], bool] = lambda _: False,
        knows: Callable[[StoredSchedule], bool] = lambda _: True,
        others: Callable[[], bool] = lambda: False,
        up_since: int = 0,
        grace_us: int = GRACE_US,
        now: Callable[[], int] = lambda: 0,
    ) -> None:
        """`up_since`: since when the lane is up, as this engine joins. A longer time than `grace_us` is a gap.

        `now` is the clock.
        """
        self.owner = owner
        self.metrics = Metrics()
        self.left_due = False
        self._store = store
        self._lane = lane
        self._preparer = preparer
        self._message_of = message_of
        self._on_messages = on_messages
        self._outdated = outdated
        self._notices = notices
        self._needs_thread = needs_thread
        self._met_plain = False  # the last claim came upon plain functions
        self._probation = CrashProbation()
        self._unknown_actions = UnknownActions(knows, others)
        self._rescued_at: int | None = None  # when this engine freed runs of a dead one last
        self.up_since = up_since
        self.grace_us = grace_us
        self._polls = Polls()  # of the lane, as last read
        self._now = now
        self._unrecorded: tuple[Gap, ...] = ()
        self._batch = FIRST_BATCH
        self._debug = False  # DEBUG was on at the last claim

    async def claim(self, now: int, last_poll_at: int | None, room: Capacity) -> Batch:
        return await self._claim(now, last_poll_at, room, _SHORT_WAIT)

    async def _claim(self, now: int, last_poll_at: int | None, room: Capacity, longest_wait: int) -> Batch:
        poll = await self._begin_poll(now, last_poll_at, longest_wait)
        decisions = LaneDecisions(
            self.owner, now, poll,
            outdated=self._outdated(),
            threads=ThreadBudget(room.threads),
            needs_thread=self._needs_thread,
            unknown_actions=self._unknown_actions,
            probation=ProbationBatch(self._probation, now),
            message_of=self._message_of,
            notices=None if self._notices is None or self._notices.silent else self._notices,
        )  # fmt: skip
        limit = self._limit(room)
        claimed, stored = await self._store.runs.claim(self._lane, self.owner, now, limit, decisions.decide)
        if poll.kept:
            return await self._claim(self._now(), last_poll_at, room, self.grace_us)
        self._met_plain, self.left_due = decisions.threads.met, decisions.threads.kept > 0
        _log_spans(decisions.spans, claimed)
        if decisions.sent:
            self._count(decisions.sent.values(), now)
        if (decisions.sent or decisions.noticed) and self._on_messages is not None:
            self._on_messages(more_due=claimed.full)
        await self._end_poll(poll)
        await self._learn(claimed.starts, stored)
        self._begin_probation(decisions.probation.admitted, claimed.starts)
        self._fit_batch(decisions.audits, full=claimed.full)
        claimed = _with_pause(claimed, decisions.kept, now)
        _log_quarantined(claimed)
        return Batch(self._jobs(claimed.starts, stored), claimed, now)

    async def poll(self, now: int, last_poll_at: int | None) -> None:
        await self._store.engines.polls()  # a poll has not completed where the store is away
        await self._end_poll(await self._begin_poll(now, last_poll_at))

    async def _begin_poll(self, now: int, last_poll_at: int | None, longest_wait: int = 0) -> Poll:
        """Look up when the lane was polled if this engine has not polled it for longer than the grace, or not yet."""
        if last_poll_at is None or now - last_poll_at > self.grace_us:
            polls = (await self._store.engines.polls()).get(self._lane, Polls())
            self._polls = replace(self.with_unrecorded(polls), grace_us=self.grace_us)
            self._batch = FIRST_BATCH
        return Poll(now, self._now, self._polls, last_poll_at, longest_wait)

    async def _end_poll(self, poll: Poll) -> None:
        """Record the gap that a poll has ended; if that fails, the next poll tries again."""
        if poll.ended is not None:
            self._unrecorded = (*self._unrecorded, poll.ended)[-MOST_GAPS:]
            self._polls = self.with_unrecorded(self._polls)  # what is still due is decided by it, recorded or not
        gaps = self._unrecorded
        if not gaps:
            return
        try:
            self._polls = await self._store.engines.record_gaps(self._lane, self.owner, gaps, self._now)
        except StoreError as error:  # what was claimed starts all the same
            logger.error("poll gap not recorded lane=%s reason=%s", self._lane, error)  # noqa: TRY400 - the cause is in the message
            return
        self._unrecorded = ()
        for gap in gaps:
            if gap in self._polls.gaps and gap.since:
                self._report(gap)

    def _report(self, gap: Gap) -> None:
        self.up_since = gap.until
        seconds = (gap.until - gap.since) / 1_000_000
        self.metrics.poll_gaps += 1
        self.metrics.poll_gap_seconds += seconds
        since = moment(gap.since).isoformat(timespec="seconds")
        logger.warning("poll gap lane=%s seconds=%.1f since=%s", self._lane, seconds, since)

    def with_unrecorded(self, polls: Polls) -> Polls:
        """The polls of the lane as stored, with the gaps that could not be recorded yet."""
        return polls.ended(self._unrecorded, self._now())

    @property
    def has_unrecorded_gap(self) -> bool:
        """Return whether a gap could not be recorded yet. Until it is, no poll may be: if this engine died, its record
        would show a poll and no gap before it, and what was decided by the gap would contradict the record.
        """
        return bool(self._unrecorded)

    def _limit(self, room: Capacity) -> int:
        limit = min(self._batch, room.runs)
        return min(limit, room.threads or _PAST_PLAIN) if self._met_plain else limit

    def _fit_batch(self, audits: int, *, full: bool) -> None:
        if audits > _MANY_AUDITS:
            self._batch = max(self._batch // 2, _SMALLEST_BATCH)
        elif full:
            self._batch = min(self._batch * 2, BATCH)

    def _count(self, sent: Collection[tuple[Start, str]], now: int) -> None:
        """Runs that began and ended with the claim."""
        metrics = self.metrics
        metrics.started += len(sent)
        metrics.succeeded += len(sent)
        for start, name in sent:
            metrics.start_lateness.observe(max(now - max(start.due_at, self.up_since), 0) / 1_000_000, name)

    async def _learn(self, starts: Sequence[Start], stored: Mapping[int, StoredSchedule]) -> None:
        """Read how the run before these ended, after a restart between two attempts."""
        if self._notices is None or self._notices.silent:
            return
        unsure = [start for start in starts if self._notices.unsure(stored[start.sid], start)]
        if not unsure:
            return
        try:
            last = await self._store.history.past_runs([start.sid for start in unsure], None, 1)
        except StoreError as error:  # the runs go on; at worst no notice says that they recovered
            logger.error("outcomes of earlier runs could not be read: %s", error)  # noqa: TRY400 - the cause is in the message
            return
        ended = {run.sid: run.outcome for run in last}
        for start in unsure:
            self._notices.learn(start, failing=ended.get(start.sid, "succeeded") != "succeeded")

    def _begin_probation(self, admitted: LiveRun | None, starts: Sequence[Start]) -> None:
        """Note the run on probation that a claim has admitted, if it starts: a policy may have put it off."""
        if admitted is not None and any(
            (start.sid, start.kind, start.run_for) == (admitted.sid, admitted.kind, admitted.run_for)
            for start in starts
        ):
            self._probation.begin(admitted)

    def _jobs(self, starts: Sequence[Start], stored: Mapping[int, StoredSchedule]) -> list[Job[StoredSchedule]]:
        self._debug = logger.isEnabledFor(logging.DEBUG)
        by_definition: dict[str, Prepare] = {}
        jobs = []
        for start in starts:
            one = stored[start.sid]
            columns = one.columns
            try:
                if (prepare := by_definition.get(columns.definition)) is None:
                    prepare = by_definition[columns.definition] = self._preparer(columns.definition)
                prepared = prepare(one, start)
            except Exception as error:  # noqa: BLE001 - an action that cannot be called is the run's failure
                prepared = Prepared(_refusal(error), is_async=True)
            jobs.append(Job(start, one, columns.name, prepared.call, prepared.is_async, prepared.waits))
        return jobs

    def rescued(self, at: int) -> None:
        """Runs of a dead engine were freed here."""
        self._rescued_at = at

    def due_at(self, job: Job[StoredSchedule]) -> int:
        start = job.start  # an orphan that another engine has freed counts from its claim: this engine knows no more
        return start.due_at if start.cause != "orphan" or self._rescued_at is None else self._rescued_at

    def started(self, job: Job[StoredSchedule], at: int) -> None:
        del at
        if self._debug:
            logger.debug('Schedule "%s": run %s has started (attempt %d)', job.name, _run_of(job), job.start.attempt)

    def retry_at(self, job: Job[StoredSchedule], at: int, error: BaseException) -> int | None:
        start, stored = job.start, job.subject
        retry = retry_policy(stored)
        if is_once(start.cause) or not retry.allows(start.attempt + 1):
            return None
        delay = retry.delay_before(start.attempt + 1, f"{stored.schedule_id}:{start.run_for}")
        # the other side may have said when to come back, within what the policy allows for any delay
        asked = fact_of(error, "retry_after_us")
        return at + (max(delay, min(asked, retry.longest_delay_us)) if type(asked) is int else delay)

    def ended(self, job: Job[StoredSchedule], at: int, error: BaseException | None, retry_at: int | None) -> None:
        del at, error, retry_at
        self._probation.ended(job.start)

    def prepare_end(self, job: Job[StoredSchedule], settlement: Settlement, error: BaseException | None) -> None:
        self._probation.ended(job.start)  # before the log, whose handlers may raise: the next one would wait for ever
        if self._notices is not None and not self._notices.silent:
            try:
                if notices := self._notices.of_end(job.subject, settlement):
                    settlement.messages = [*settlement.messages, *notices]
            except Exception:
                logger.exception("notification rules failed, an end gets no notices schedule=%r", job.name)
        if error is not None or self._debug:
            _log_end(job, settlement, error if error is not None and has_traceback(error) else None)


def _log_spans(spans: dict[int, tuple[str, Sequence[Span]]], claimed: Claimed) -> None:
    """Log what was written: not what was decided for schedules that were put off."""
    refused = {sid for sid, _ in claimed.quarantined}
    for sid, (name, written) in spans.items():
        for span in written if sid not in refused else ():
            log_span(name, span)


def _log_quarantined(claimed: Claimed) -> None:
    for sid, error in claimed.quarantined:
        logger.error("The schedule with sid %d could not be decided and is put off for a minute: %r", sid, error)


def _with_pause(claimed: Claimed, kept: int, now: int) -> Claimed:
    """Return the claim with a pause: what was left due would be polled again at once, and in vain."""
    if not kept:
        return claimed
    return claimed._replace(full=False, next_wake_at=now + max(_FULL_PAUSE, kept * _FULL_PAUSE_EACH))


def _run_of(job: Job[StoredSchedule]) -> str:
    return run_id(job.subject.schedule_id, job.start.kind, job.start.run_for)


def _log_end(job: Job[StoredSchedule], settlement: Settlement, traced: BaseException | None) -> None:
    """Log an end; a failure with its traceback, where that adds something. The text of its error is masked already."""
    attempt = job.start.attempt
    if settlement.outcome == "succeeded":
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug('Schedule "%s": run %s has succeeded (attempt %d)', job.name, _run_of(job), attempt)
    elif settlement.wake_at is not None:
        logger.warning(
            'Schedule "%s": attempt %d of run %s failed and is tried again at %s: %s',
            job.name, attempt, _run_of(job), moment(settlement.wake_at).isoformat(timespec="seconds"), settlement.error,
            exc_info=traced,
        )  # fmt: skip
    else:
        logger.error(
            'Schedule "%s": run %s failed for good (attempt %d): %s', job.name, _run_of(job), attempt, settlement.error,
            exc_info=traced,
        )  # fmt: skip


def _refusal(error: Exception) -> Callable[[], Any]:
    async def refuse() -> None:
        raise error

    return refuse


def retry_policy(stored: StoredSchedule) -> RetryPolicy:
    retry = definition_of(stored.columns.definition).retry
    return RetryPolicy(retry.attempts, retry.delay_us, retry.strategy, retry.max_delay_us, retry.jitter)

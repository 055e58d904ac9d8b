"""The durable schedules of one lane, as work for the loop.

Nothing is loaded at the start: a claim brings what it needs to run. After a downtime each schedule may have a thousand
missed slots to tell, so batches begin small then, and grow as long as little is told: no transaction becomes a giant.

A run that only sends a message ends with the claim itself (`core.turns.finish`). Runs that were executing when an
engine died start again one at a time (`suspects`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from msgspec.structs import replace

from noonbell.actions.results import Prepared
from noonbell.core.records import AT_ONCE, Kind, LiveRun, OutboxMessage, Settlement, Start, StoredSchedule, Turn
from noonbell.core.turns import definition_of, finish, look
from noonbell.engine.metrics import Metrics
from noonbell.engine.suspects import Lineup, Suspects, without
from noonbell.engine.work import BATCH, Batch, Job
from noonbell.errors import StoreError
from noonbell.ports import LEDGER_TABLES, ScheduleStore
from noonbell.timing.retry import RetryPolicy

logger = logging.getLogger("noonbell.engine")

FIRST_BATCH: Final = 256
_SMALLEST_BATCH: Final = 32
_MUCH_TOLD: Final = 20_000
_OUTDATED_PAUSE: Final = 60_000_000


Prepare = Callable[[StoredSchedule, Start], Prepared]


class Notices(Protocol):
    """Says what is worth telling somebody (see `noonbell.notify`); that is committed with what it is about."""

    def of_turn(
        self, stored: StoredSchedule, turn: Turn, starts: Sequence[Start], now: int
    ) -> Sequence[OutboxMessage]: ...

    def of_end(self, stored: StoredSchedule, settlement: Settlement) -> Sequence[OutboxMessage]: ...

    def unsure(self, stored: StoredSchedule, start: Start) -> bool:
        """Whether it has to `learn` if the run before had failed."""
        ...

    def learn(self, start: Start, *, failing: bool) -> None: ...


class LaneWork:
    """The schedules of one lane."""

    def __init__(
        self,
        store: ScheduleStore,
        *,
        lane: str,
        owner: str,
        prepare: Prepare,
        message_of: Callable[[StoredSchedule, Start, int], OutboxMessage] | None = None,
        on_messages: Callable[[], None] | None = None,
        outdated: Callable[[], Collection[str]] = tuple,
        notices: Notices | None = None,
    ) -> None:
        self.owner = owner
        self.metrics = Metrics()
        self._store = store
        self._lane = lane
        self._prepare = prepare
        self._message_of = message_of
        self._on_messages = on_messages
        self._outdated = outdated
        self._notices = notices
        self._suspects = Suspects()
        self._up_since: int | None = None
        self._batch = FIRST_BATCH

    async def claim(self, now: int, up_since: int) -> Batch:
        if up_since != self._up_since:
            self._up_since, self._batch = up_since, FIRST_BATCH
        told, noticed = 0, False
        lineup = Lineup(self._suspects, now)
        sent: list[tuple[Start, str]] = []
        outdated = self._outdated()
        message_of = None if self._message_of is None else partial(_at, self._message_of, now)

        def take_turn(stored: StoredSchedule) -> Turn:
            nonlocal told, noticed
            if outdated and stored.columns.timezone in outdated and stored.columns.type != "interval":
                return _left_alone(stored, now + _OUTDATED_PAUSE)
            turn = _look(stored, now, up_since, lineup)
            told += len(turn.audits)
            starts = turn.starts
            if message_of is not None and starts:
                finish(turn, stored, now, self.owner, message_of)
                if turn.finished:
                    sent.extend((start, stored.columns.name) for start in starts if start not in turn.starts)
            if self._notices is not None:
                noticed |= _notice(self._notices, stored, turn, starts, now)
            return turn

        claimed, stored = await self._store.claim_by_policy(self._lane, self.owner, now, self._batch, take_turn)
        if sent:
            self._count(sent, now, up_since)
        if (sent or noticed) and self._on_messages is not None:
            self._on_messages()
        await self._learn(claimed.starts, stored)
        if lineup.chosen is not None:
            self._watch(lineup.chosen, claimed.starts, now)
        self._fit_batch(told, full=claimed.full)
        for sid, error in claimed.quarantined:
            logger.error("The schedule with sid %d could not be decided and is put off for a minute: %r", sid, error)
        return Batch([self._job(start, stored[start.sid]) for start in claimed.starts], claimed)

    def _fit_batch(self, told: int, *, full: bool) -> None:
        if told > _MUCH_TOLD:
            self._batch = max(self._batch // 2, _SMALLEST_BATCH)
        elif full:
            self._batch = min(self._batch * 2, BATCH)

    def _count(self, sent: list[tuple[Start, str]], now: int, up_since: int) -> None:
        """Runs that began and ended with the claim."""
        metrics = self.metrics
        metrics.started += len(sent)
        metrics.succeeded += len(sent)
        for start, name in sent:
            metrics.start_lateness.observe(max(now - max(start.due_at, up_since), 0) / 1_000_000, name)

    async def _learn(self, starts: Sequence[Start], stored: Mapping[int, StoredSchedule]) -> None:
        """After a restart between two attempts: ask how the run before these ended."""
        if self._notices is None:
            return
        for start in starts:
            if start.attempt > 1 and self._notices.unsure(stored[start.sid], start):
                try:
                    self._notices.learn(start, failing=await _had_failed(self._store, start.sid))
                except StoreError as error:  # the run goes on; at worst nobody is told that it recovered
                    logger.error("How the run before ended could not be read: %s", error)  # noqa: TRY400 - the cause is in the message

    def _watch(self, chosen: LiveRun, starts: Sequence[Start], now: int) -> None:
        key = (chosen.sid, chosen.kind, chosen.run_for)
        if any((start.sid, start.kind, start.run_for) == key for start in starts):
            self._suspects.begin(chosen, now)

    def _job(self, start: Start, stored: StoredSchedule) -> Job[StoredSchedule]:
        name = stored.columns.name
        try:
            prepared = self._prepare(stored, start)
        except Exception as error:  # noqa: BLE001 - an action that cannot be called is the run's failure
            return Job(start, stored, name, _refusal(error), is_async=True)
        return Job(start, stored, name, prepared.call, prepared.is_async)

    def due_at(self, job: Job[StoredSchedule]) -> int:
        return AT_ONCE if job.start.cause == "orphan" else job.start.due_at

    def started(self, job: Job[StoredSchedule], at: int) -> None:
        pass

    def retry_at(self, job: Job[StoredSchedule], at: int, error: BaseException) -> int | None:
        start, stored = job.start, job.subject
        retry = retry_policy(stored)
        if start.kind != "scheduled" or not retry.allows(start.attempt + 1):
            return None
        delay = retry.delay_before(start.attempt + 1, f"{stored.schedule_id}:{start.run_for}")
        # the other side may have said when to come back, within what the policy allows for any delay
        asked: int | None = getattr(error, "retry_after_us", None)
        return at + (delay if asked is None else max(delay, min(asked, retry.longest_delay_us)))

    def ended(self, job: Job[StoredSchedule], at: int, error: BaseException | None, retry_at: int | None) -> None:
        del at, error, retry_at
        self._suspects.ended(job.start)

    def tell(self, job: Job[StoredSchedule], settlement: Settlement) -> None:
        if self._notices is not None:
            try:
                settlement.messages.extend(self._notices.of_end(job.subject, settlement))
            except Exception:
                logger.exception("Nobody is told of an end of %r: the rules could not be applied", job.name)

    def wakes_at(self, settlements: Sequence[Settlement]) -> int:
        # an end may free a run that was queued behind it, whenever the schedule itself comes next
        del settlements
        return AT_ONCE


def _left_alone(stored: StoredSchedule, until: int) -> Turn:
    """Nothing is decided: this host does not know the rules that the schedule goes by."""
    waiting = [replace(live, wake_at=until) for live in stored.lives if live.state != "running"]
    return Turn(
        stored.sid, stored.cursor_at, until if stored.enabled else None, stored.enabled, stored.anchor_at,
        stored.last_run_for, stored.backlog_left, stored.backlog_until, put_off=waiting,
    )  # fmt: skip


def _look(stored: StoredSchedule, now: int, up_since: int, lineup: Lineup) -> Turn:
    held = lineup.held_back(stored) if stored.lives else ()
    if not held:
        return look(stored, now, up_since)
    rest = without(stored, held)
    if isinstance(rest, Turn):
        return rest
    turn = look(rest, now, up_since)
    turn.put_off.extend(held)
    return turn


def _notice(notices: Notices, stored: StoredSchedule, turn: Turn, starts: Sequence[Start], now: int) -> bool:
    """Add what a turn is worth telling; a rule that cannot be applied must not hold up the schedule."""
    try:
        messages = notices.of_turn(stored, turn, starts, now)
    except Exception:
        logger.exception("Nobody is told of a turn of %r: the rules could not be applied", stored.columns.name)
        return False
    turn.messages.extend(messages)
    return bool(messages)


async def _had_failed(store: ScheduleStore, sid: int) -> bool:
    """Whether the run of a schedule that ended last had failed."""
    columns = LEDGER_TABLES["schedules"].columns
    for row in await store.read_ledger("schedules", (sid - 1,), 1, above_sid=sid - 1, upto_sid=sid):
        facts = dict(zip(columns, row, strict=True))
        ended_for = facts["last_ended_for"]
        if ended_for is not None:
            kind: Kind = "manual" if facts["last_ended_manual"] else "scheduled"
            return any(run.outcome != "succeeded" for run in await store.runs(sid, ended_for, ended_for, kind))
    return False


def _at(
    message_of: Callable[[StoredSchedule, Start, int], OutboxMessage], now: int, stored: StoredSchedule, start: Start
) -> OutboxMessage:
    return message_of(stored, start, now)


def _refusal(error: Exception) -> Callable[[], Any]:
    async def refuse() -> None:
        raise error

    return refuse


def retry_policy(stored: StoredSchedule) -> RetryPolicy:
    retry = definition_of(stored.columns.definition).retry
    return RetryPolicy(retry.attempts, retry.delay_us, retry.strategy, retry.max_delay_us, retry.jitter)

"""The writes for a schedule when it is polled, when its epoch is closed and when it is deleted. Pure.

`look` asks `decide` and turns the answer into rows. Declared tasks come with their terms, and are not audited.

A schedule may have several live runs: those that overlap `allow` lets run side by side, and those that an edit has left
queued behind the one that executes. Without `allow` they go one after the other, the oldest first, and only when none
is left is a new occurrence decided.

`close` is what an edit or a pause does first: every occurrence up to that instant gets the verdict that a look at that
instant would give it. What is fired waits as `queued`, because the process that edits need not run an engine. Quiet
hours and jitter end with the epoch as far as verdicts go; when the queued run starts is for the terms that hold by
then.

An interval counts from its anchor: the start of the last run that was fired by a look, or the instant of the edit that
left one queued. While a capped catch-up is under way the anchor stays, so that its occurrences do. Whatever has come by
the start that moves the anchor has its verdict with it: the ledger of an interval has no holes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, cast
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import replace

from noonbell.core.decide import decide, without_jitter
from noonbell.core.presence import Gap
from noonbell.core.records import (
    AT_ONCE,
    AuditEvent,
    Cause,
    Definition,
    LiveRun,
    OutboxMessage,
    Run,
    ScheduleColumns,
    Span,
    Start,
    StoredSchedule,
    Turn,
    retry_cause,
)
from noonbell.core.terms import CAUGHT_UP, FOR_GOOD, Backlog, Policies, Position, Terms, Verdicts
from noonbell.timing.bounded import Bounded
from noonbell.timing.cron_timing import cron_timing
from noonbell.timing.interval import IntervalTiming, parse_interval
from noonbell.timing.jitter import jitter_us
from noonbell.timing.one_shot import OneShotTiming, parse_one_shot
from noonbell.timing.quiet_hours import Phase, QuietHours, split
from noonbell.timing.rules_hash import rules_hash
from noonbell.timing.timing_protocol import LATEST, SECOND, Timing

# A stretch of more missed slots than this is reported as one range, also to readers.
MOST_SLOTS: Final = 1_000
ENGINE: Final = "engine"

MessageOf = Callable[[StoredSchedule, Start], OutboxMessage]

_encode = msgspec.json.Encoder().encode
_NEVER_QUIET: Final = QuietHours()
# What an ordinary turn has none of. One for all of them, and nothing can be added to it.
_NONE: Final = cast("list[Any]", ())


# --- from rows to terms -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=65_536)
def definition_of(text: str) -> Definition:
    return msgspec.json.decode(text, type=Definition)


def executes_alone(stored: StoredSchedule) -> bool:
    """Return whether a look can start nothing: it goes on when its run has ended, and does not stay due until then."""
    alone = definition_of(stored.columns.definition).overlap != "allow"
    return alone and any(live.state == "running" for live in stored.lives)


@lru_cache(maxsize=4_096)
def quiet_hours_of(document: str | None) -> QuietHours:
    return _NEVER_QUIET if document is None else QuietHours.from_json(msgspec.json.decode(document))


@lru_cache(maxsize=4_096)
def quiet_zones(document: str | None) -> frozenset[str]:
    """The zones that quiet hours are written in."""
    windows = () if document is None else msgspec.json.decode(document)["windows"]
    return frozenset(window["timezone"] for window in windows)


def quiet_rules(document: str) -> dict[str, str]:
    """The hash of the rules of each of these zones, as they are now."""
    return {timezone: rules_hash(ZoneInfo(timezone)) for timezone in quiet_zones(document)}


def snapshot(columns: ScheduleColumns) -> str:
    """Return the fields that a person has written, as the detail of an audit event."""
    return _encode(columns).decode()


def timing_of(columns: ScheduleColumns, anchor_at: int | None) -> Timing:
    """The occurrences of a schedule; raises the errors of its kind where the spec cannot be read."""
    kind, definition = columns.type, columns.definition
    if kind == "interval":
        timing = IntervalTiming(anchor_at or 0, parse_interval(columns.spec) * SECOND)
        return _bounded(timing, definition_of(definition))
    return _lasting_timing(kind, columns.spec, ZoneInfo(columns.timezone), definition)


@lru_cache(maxsize=65_536)
def _lasting_timing(kind: str, spec: str, zone: ZoneInfo, text: str) -> Timing:
    """A timing that depends on nothing but what was written; schedules that say the same share it."""
    definition = definition_of(text)
    if kind == "cron":
        return _bounded(cron_timing(spec, zone, definition.dst), definition)
    return _bounded(OneShotTiming(parse_one_shot(spec, zone, stored=True)), definition)


def _bounded(timing: Timing, definition: Definition) -> Timing:
    if definition.start_at is None and definition.end_at is None:
        return timing
    return Bounded(timing, definition.start_at, definition.end_at)


def cause_of(kind: str) -> Cause:
    """Return the cause of a scheduled run's first attempt, by the kind of its schedule; that of an interval is `cron`
    as well.
    """
    return "one_shot" if kind == "one_shot" else "cron"


def terms_of(stored: StoredSchedule) -> Terms:
    columns = stored.columns
    definition = definition_of(columns.definition)
    terms = Terms(
        timing_of(columns, stored.anchor_at),
        Policies(columns.catch_up_policy, definition.cap, definition.overlap, definition.retry_vs_new),  # type: ignore[arg-type]  # checked when it was written
        quiet_hours_of(stored.quiet),
        parse_interval(columns.spec) * SECOND if columns.type == "interval" else None,
        end_at=definition.end_at,
        cause=cause_of(columns.type),
    )
    if definition.jitter_us:
        schedule_id, limit = stored.schedule_id, definition.jitter_us
        terms = replace(terms, jitter=lambda occurrence: jitter_us(schedule_id, occurrence, limit))
    return terms


# --- a look -----------------------------------------------------------------------------------------------------------


def look(stored: StoredSchedule, now: int, gaps: Sequence[Gap] = (), terms: Terms | None = None) -> Turn:
    """Decide what becomes of the schedule now; `gaps` are the stretches without a poll of its lane, oldest first.

    `terms` are those of a declared task; without them they follow from the stored definition.
    """
    if terms is not None:
        return ordinary_declared_look(stored, now, terms) or declared_look(stored, now, terms)
    return Looks(now, gaps).look(stored)


def ordinary_declared_look(stored: StoredSchedule, now: int, terms: Terms) -> Turn | None:
    """The same as `declared_look` for the many: one occurrence is due, and no run is live; else None."""
    cursor = stored.cursor_at
    if stored.lives or now <= cursor:
        return None
    due, before, following = terms.timing.look(now)
    if due is None or due <= cursor or (before is not None and before > cursor):
        return None
    start = Start(stored.sid, "scheduled", due, 1, 1, terms.cause, stored.epoch, now, due, following)
    return Turn(
        stored.sid, now, following, stored.enabled, stored.anchor_at, due, stored.backlog_left, stored.backlog_until,
        cast("list[Start]", (start,)), _NONE, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE,
    )  # fmt: skip


def declared_look(stored: StoredSchedule, now: int, terms: Terms) -> Turn:
    """Decide about a declared task, whatever has become of it; it is not audited."""
    turn = _unchanged(stored)
    live = stored.lives[0] if stored.lives else None
    if live is not None and live.kind == "manual":  # the order of live runs: it comes first, and its end wakes the rest
        return turn
    verdicts = decide(_position(stored, live), terms, now)
    start = verdicts.start
    turn.cursor_at, turn.next_run_at = verdicts.cursor_at, verdicts.next_run_at
    if verdicts.spans:
        turn.spans = list(verdicts.spans)
    if start is not None:
        turn.starts = [start]
        if start.preempted is not None:
            turn.preempted = [start.preempted]
        if start.fence == 1:
            turn.last_run_for = start.run_for
    return turn


class _Shared(NamedTuple):
    """The part of a look that is the same for all schedules with the same type, spec, zone and definition."""

    definition: Definition
    due: int | None  # the latest occurrence by now
    before: int | None
    following: int | None
    missed: bool  # it came in a gap


class Looks:
    """Looks at one instant, which find what the schedules of a burst have in common once for all of them."""

    def __init__(self, now: int, gaps: Sequence[Gap] = ()) -> None:
        self._now = now
        self._gaps = gaps
        self._shared: dict[tuple[str, str, str, str], _Shared] = {}

    def look(self, stored: StoredSchedule) -> Turn:
        """Decide what becomes of the schedule now."""
        return self.ordinary(stored) or whole_look(stored, self._now, self._gaps)

    def ordinary(self, stored: StoredSchedule) -> Turn | None:
        """The same for the many: one occurrence is due and late by little, or none; None where there is more to it."""
        cursor, now = stored.cursor_at, self._now
        if stored.lives or stored.quiet is not None or stored.backlog_left is not None or not stored.enabled:
            return None
        shared = self._shared_by(stored)
        if cursor > now or (shared.before is not None and shared.before > cursor):
            return None
        if shared.due is not None and shared.due > cursor:
            return self._fire(stored, shared, shared.due)
        columns, following, jitter = stored.columns, shared.following, shared.definition.jitter_us
        if following is not None and jitter:
            following += jitter_us(stored.schedule_id, following, jitter)
        enabled = following is not None or columns.type != "one_shot"
        return Turn(stored.sid, cursor, following, enabled, stored.anchor_at, stored.last_run_for)

    def _fire(self, stored: StoredSchedule, shared: _Shared, due: int) -> Turn | None:
        """Start the run of an occurrence, or wait for its jitter; None where it was missed or overlaps the last run."""
        definition, _, _, following, missed = shared
        now, kind, jitter = self._now, stored.columns.type, definition.jitter_us
        due_at = due
        if jitter:
            due_at += jitter_us(stored.schedule_id, due, jitter)
            if due_at > now:
                turn = _unchanged(stored)
                turn.next_run_at = due_at
                return turn
            missed = self._misses(due_at)
        ran = stored.ran
        if missed or (ran is not None and definition.overlap == "skip" and ran[0] < due_at <= ran[1]):
            return None
        anchor_at, enabled = stored.anchor_at, True
        if kind == "interval":
            anchor_at, following = now, now + parse_interval(stored.columns.spec) * SECOND
            following = None if definition.end_at is not None and following > definition.end_at else following
        elif following is not None:
            following += jitter_us(stored.schedule_id, following, jitter) if jitter else 0
        else:
            enabled = kind != "one_shot"
        cause = cause_of(kind)
        start = Start(stored.sid, "scheduled", due, 1, 1, cause, stored.epoch, now, due_at, following)
        return Turn(
            stored.sid, due, following, enabled, anchor_at, due, None, None, cast("list[Start]", (start,)),
            _NONE, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE,
        )  # fmt: skip

    def _shared_by(self, stored: StoredSchedule) -> _Shared:
        columns = stored.columns
        if columns.type == "interval":  # it counts from an anchor of its own
            return self._share(columns, stored.anchor_at)
        key = (columns.definition, columns.spec, columns.timezone, columns.type)
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = self._share(columns, None)
        return shared

    def _share(self, columns: ScheduleColumns, anchor_at: int | None) -> _Shared:
        due, before, following = timing_of(columns, anchor_at).look(self._now)
        missed = due is not None and self._misses(due)
        return _Shared(definition_of(columns.definition), due, before, following, missed)

    def _misses(self, due_at: int) -> bool:
        gaps = self._gaps
        return bool(gaps) and gaps[-1].until > due_at and any(gap.misses(due_at) for gap in gaps)


def whole_look(stored: StoredSchedule, now: int, gaps: Sequence[Gap] = ()) -> Turn:
    """The same for all: with live runs, quiet hours, catch-up and the rest."""
    turn = _unchanged(stored)
    terms = terms_of(stored)
    lives = _lives_in_order(stored, terms)
    if len(lives) != len(stored.lives):
        _start_asked(turn, stored, terms, now)
    if terms.policies.overlap == "allow":
        for live in lives:
            if live.state != "running" and live.wake_at is not None and live.wake_at <= now:
                if _waits(turn, terms, live, now):
                    continue
                _write(turn, stored, terms, now, _live_only(stored, terms, live, now), live=live)
        if stored.enabled:
            verdicts = decide(_position(stored, None), terms, now, gaps)
            _write(turn, stored, terms, now, verdicts)
            # the end of a run that was started again brings the schedule's wake-up back, too
            fresh = (start.following for start in turn.starts if start.fence == 1 and start.following is not None)
            wake_at = min(fresh, default=None) if turn.next_run_at is None else turn.next_run_at
            turn.starts = [replace(start, following=wake_at) if start.fence > 1 else start for start in turn.starts]
        return turn
    if len(lives) != len(stored.lives) or any(live.state == "running" for live in lives):
        return turn
    if len(lives) > 1 and terms.policies.retry_vs_new == "preempt" and lives[0].state == "waiting":
        turn.preempted.append(lives.pop(0))  # what an edit has fired since then is newer
    if lives and (_has_its_place(lives[0], now) or _waits(turn, terms, lives[0], now)):
        return turn
    if len(lives) > 1 or (lives and not stored.enabled):
        _write(turn, stored, terms, now, _live_only(stored, terms, lives[0], now), live=lives[0])
    elif stored.enabled:
        oldest = lives[0] if lives else None
        verdicts = decide(_position(stored, oldest), terms, now, gaps)
        _write(turn, stored, terms, now, verdicts, live=oldest)
    return turn


def _lives_in_order(stored: StoredSchedule, terms: Terms) -> list[LiveRun]:
    """The live runs that are decided about with the occurrences, the oldest first: all but those asked for.

    One that was asked for, is alone and waits for its retry is as any other that does.
    """
    if len(stored.lives) == 1 and stored.lives[0].state == "waiting" and terms.policies.overlap != "allow":
        return [*stored.lives]
    return sorted((live for live in stored.lives if live.kind == "scheduled"), key=lambda live: live.run_for)


def _start_asked(turn: Turn, stored: StoredSchedule, terms: Terms, now: int) -> None:
    """Start what a person asked for, and its retries: beside anything under overlap `allow`.

    Else when nothing executes, one after the other, the oldest first; what is queued behind one waits for its retries.
    """
    asked = sorted((live for live in stored.lives if live.kind == "manual"), key=lambda live: live.run_for)
    if terms.policies.overlap != "allow":
        if any(live.state == "running" for live in stored.lives):
            return
        del asked[1:]
    following = terms.timing.following(stored.cursor_at) if stored.enabled else None
    if following is not None:
        following += terms.jitter(following)
    for live in asked:
        if live.state != "running" and live.wake_at is not None and live.wake_at <= now:
            cause = retry_cause(live.cause) if live.state == "waiting" else live.cause
            due_at = live.wake_at if live.state == "waiting" else live.run_for
            turn.starts.append(
                Start(
                    live.sid, "manual", live.run_for, live.fence + 1, live.attempt + 1, cause, live.epoch, now, due_at,
                    following,
                )
            )  # fmt: skip


def _has_its_place(live: LiveRun, now: int) -> bool:
    """Return whether a run that starts again was put off: it does so then, whatever wakes its schedule before."""
    return live.state == "queued" and live.attempt > 0 and live.wake_at is not None and live.wake_at > now


def _waits(turn: Turn, terms: Terms, live: LiveRun, now: int) -> bool:
    """Return whether a queued run that was never attempted waits, as a catch-up does, for quiet hours or its jitter."""
    if live.state != "queued" or live.attempt > 0:
        return False
    start_at = max(terms.quiet.quiet_until(now) or AT_ONCE, live.run_for + terms.jitter(live.run_for))
    if start_at <= now:
        return False
    turn.put_off.append(replace(live, wake_at=min(start_at, FOR_GOOD)))
    return True


def _live_only(stored: StoredSchedule, terms: Terms, live: LiveRun, now: int) -> Verdicts:
    """The decision about a live run alone, as if nothing more were to come."""
    ended = replace(terms, timing=Bounded(terms.timing, None, stored.cursor_at))
    return decide(_position(stored, live), ended, now)


def _write(
    turn: Turn, stored: StoredSchedule, terms: Terms, now: int, verdicts: Verdicts, *, live: LiveRun | None = None
) -> None:
    """Add a decision to what is written."""
    if terms.every_us is not None:
        verdicts = _restart_count(stored, terms, verdicts)
    turn.cursor_at, turn.next_run_at = verdicts.cursor_at, verdicts.next_run_at
    backlog, start = verdicts.backlog, verdicts.start
    turn.backlog_left = None if backlog is None else backlog.left
    turn.backlog_until = _quiet_mark_after(stored, verdicts) if backlog is None else backlog.until
    turn.spans.extend(verdicts.spans)
    if verdicts.spans or verdicts.caught_up:
        turn.audits.extend(_unusual_events(stored, verdicts, now))
    if verdicts.quiet is not None and turn.backlog_until != _marked(stored):
        turn.audits.append(_entered_quiet(stored, terms, *verdicts.quiet, at=now))
    if live is not None and verdicts.live_wake_at is not None:
        turn.put_off.append(replace(live, wake_at=verdicts.live_wake_at))
    if start is not None:
        if backlog is not None and start.fence == 1:
            # the next of a backlog follows at once, one after the other
            start = replace(start, following=start.started_at)
            turn.next_run_at = None
        if start.preempted is not None:
            turn.preempted.append(start.preempted)
        turn.starts.append(start)
        if start.fence == 1:
            turn.last_run_for = start.run_for
            if terms.every_us is not None and backlog is None:
                turn.anchor_at = start.started_at
    if stored.columns.type == "one_shot" and terms.timing.following(turn.cursor_at) is None:
        turn.enabled, turn.next_run_at = False, None


def _marked(stored: StoredSchedule) -> int | None:
    """The end of the quiet stretch whose beginning is in the audit: a row without a backlog keeps it in its place."""
    return stored.backlog_until if stored.backlog_left is None else None


def _quiet_mark_after(stored: StoredSchedule, verdicts: Verdicts) -> int | None:
    """The same after a decision; the mark stays until the stretch has its verdict."""
    if verdicts.quiet is not None:
        return min(verdicts.quiet[1], FOR_GOOD)
    return _marked(stored) if verdicts.cursor_at == stored.cursor_at else None


def _entered_quiet(stored: StoredSchedule, terms: Terms, first: int, until: int, *, at: int) -> AuditEvent:
    """The beginning of a quiet stretch; its end is reported with the span, and the exact count."""
    ends = until <= LATEST
    expected = terms.timing.count(first - 1, until - 1) if ends else None
    detail = {"from": first, "until": until if ends else None, "expected": expected, "reason": "quiet hours"}
    return _event(stored, at, "skipped", detail)


def _restart_count(stored: StoredSchedule, terms: Terms, verdicts: Verdicts) -> Verdicts:
    """An interval counts from the start of its run: what came before that start and is still open is over with it."""
    start = verdicts.start
    if start is None or start.fence > 1 or verdicts.backlog is not None:
        return verdicts
    cursor, spans = verdicts.cursor_at, list(verdicts.spans)
    for quiet, first, last, n in split(terms.timing, terms.quiet, cursor, start.started_at):
        given = ("skipped", "quiet hours") if quiet else ("coalesced", "the interval counts from this start")
        spans.append(Span(stored.sid, first, last, n, *given, stored.epoch))  # type: ignore[arg-type]  # two literals
        cursor = last
    return replace(verdicts, cursor_at=cursor, spans=tuple(spans))


def _position(stored: StoredSchedule, live: LiveRun | None) -> Position:
    return Position(stored.sid, stored.epoch, stored.cursor_at, stored.ran, live, _backlog(stored))


def _backlog(stored: StoredSchedule) -> Backlog | None:
    if stored.backlog_left is None or stored.backlog_until is None:
        return None
    return Backlog(stored.backlog_left, stored.backlog_until)


def left_alone(stored: StoredSchedule) -> Turn:
    """Nothing is decided, and the schedule loses its wake-up."""
    return _unchanged(stored)


def _unchanged(stored: StoredSchedule) -> Turn:
    return Turn(
        stored.sid, stored.cursor_at, None, stored.enabled, stored.anchor_at, stored.last_run_for, stored.backlog_left,
        stored.backlog_until,
    )  # fmt: skip


# --- runs that end with the claim -------------------------------------------------------------------------------------


def sends_message(stored: StoredSchedule) -> bool:
    return definition_of(stored.columns.definition).action.get("kind") == "message"


def finish(turn: Turn, stored: StoredSchedule, now: int, owner: str, message_of: MessageOf) -> None:
    """Let first attempts that only send a message end with the claim: what they do is write the message.

    A start that is tried again stays one, and so does one whose message cannot be made: running it shows why, and its
    failure is recorded as that of any other run.
    """
    if not sends_message(stored):
        return
    left: list[Start] = []
    finished: list[Run] = []
    messages: list[OutboxMessage] = []
    for start in turn.starts:
        if start.fence > 1 or start.kind != "scheduled":
            left.append(start)
            continue
        try:
            message = message_of(stored, start)
        except Exception:  # noqa: BLE001 - it is met again by the run, and recorded there
            left.append(start)
            continue
        messages.append(message)
        finished.append(Run(start.sid, start.run_for, start.kind, "succeeded", 1, now, now, owner, start.epoch))
        turn.next_run_at = start.following
    turn.starts, turn.finished = left, finished
    turn.messages = [*turn.messages, *messages] if turn.messages else messages


# --- the end of an epoch ----------------------------------------------------------------------------------------------


def close(stored: StoredSchedule, now: int, gaps: Sequence[Gap] = ()) -> Turn:
    """Give every occurrence up to `now` its verdict; `gaps` as for `look`, with the one that lasts."""
    turn = _unchanged(stored)
    turn.cursor_at = at = _end_of(stored, now)
    # how long a queued run waits is for the new terms to say, and so is the sleep of a retry through quiet hours
    turn.put_off.extend(
        replace(live, wake_at=AT_ONCE)
        for live in stored.lives
        if (live.state == "queued" and live.attempt == 0) or _sleeps(stored, live, at)
    )
    if not stored.enabled:
        return turn
    terms = terms_of(stored)
    if not stored.lives and stored.backlog_left is None:
        coming = terms.timing.following(stored.cursor_at)
        if coming is None or coming > at:
            return turn  # as with most: nothing has come since the last look
    executing = [live.started_at for live in stored.lives if live.kind == "scheduled" and live.started_at is not None]
    ran = (min(executing), at) if executing else stored.ran
    last = replace(
        terms, timing=Bounded(terms.timing, None, at), quiet=_ended(terms.quiet, at + 1), jitter=lambda _occurrence: 0
    )
    gaps = without_jitter(terms, [gap for gap in gaps if gap.until > stored.cursor_at])
    position = replace(_position(stored, None), ran=ran)
    start: Start | None = None
    while True:
        # one microsecond later, when the quiet hours are over and nothing else can have become due
        verdicts = decide(position, last, at + 1, gaps)
        turn.spans.extend(verdicts.spans)
        turn.audits.extend(_unusual_events(stored, verdicts, at))
        if verdicts.start is None:
            break
        start = verdicts.start
        turn.queued.append(_queued(start))
        position = replace(position, cursor_at=verdicts.cursor_at, backlog=verdicts.backlog)
    turn.backlog_left = turn.backlog_until = None
    if start is not None:
        turn.last_run_for = start.run_for
        turn.anchor_at = stored.anchor_at if terms.every_us is None else at
        if terms.policies.retry_vs_new == "preempt":
            turn.preempted.extend(live for live in stored.lives if live.state == "waiting")
            turn.put_off = [live for live in turn.put_off if live.state != "waiting"]
    return turn


def _sleeps(stored: StoredSchedule, live: LiveRun, at: int) -> bool:
    """Return whether a retry that had come was put off to the end of quiet hours."""
    if live.state != "waiting" or stored.quiet is None:
        return False
    until = quiet_hours_of(stored.quiet).quiet_until(at)
    return until is not None and live.wake_at == min(until, FOR_GOOD)


def _end_of(stored: StoredSchedule, now: int) -> int:
    """Return the end of the epoch: now, or later if an engine whose clock is ahead has acted in it after that.

    An interval counts from the start of its last run, so it does not end before that start. An anchor after the last
    start is one that is still to come, with a start_at in the future.
    """
    at = max(now, stored.cursor_at)
    if stored.anchor_at is not None and stored.last_run_at is not None and stored.anchor_at <= stored.last_run_at:
        at = max(at, stored.anchor_at)
    return at


def drop(stored: StoredSchedule, now: int) -> Turn:
    """Give every occurrence up to `now` its verdict, and fire none: the schedule goes."""
    turn = _unchanged(stored)
    turn.cursor_at = _end_of(stored, now)
    turn.enabled, turn.backlog_left, turn.backlog_until = False, None, None
    if stored.enabled:
        terms = terms_of(stored)
        for quiet, first, last, n in split(terms.timing, terms.quiet, stored.cursor_at, turn.cursor_at):
            given = ("skipped", "quiet hours") if quiet else ("missed", "deleted")
            turn.spans.append(Span(stored.sid, first, last, n, *given, stored.epoch))  # type: ignore[arg-type]  # two literals
        closing = Verdicts(turn.cursor_at, None, tuple(turn.spans))
        turn.audits.extend(_unusual_events(stored, closing, turn.cursor_at))
    return turn


def _queued(start: Start) -> LiveRun:
    return LiveRun(
        start.sid, "scheduled", start.run_for, fence=1, owner=None, state="queued", attempt=0, wake_at=AT_ONCE,
        started_at=None, attempt_at=None, crashes=0, epoch=start.epoch, cause=start.cause,
    )  # fmt: skip


class _Ended(QuietHours):
    """Quiet hours that are over for good at an instant."""

    __slots__ = ("_end", "_whole")

    def __init__(self, whole: QuietHours, end: int) -> None:
        super().__init__(whole.windows)
        self._whole = whole
        self._end = end

    def phase(self, at: int, upto: int | None = None) -> Phase:
        if at >= self._end:
            return Phase(quiet=False, until=LATEST + 1)
        found = self._whole.phase(at, upto)
        return found if found.until <= self._end else Phase(found.quiet, self._end)


def _ended(quiet: QuietHours, end: int) -> QuietHours:
    return _Ended(quiet, end) if quiet.windows else quiet


# --- audit events -----------------------------------------------------------------------------------------------------


class Slots(msgspec.Struct, frozen=True):
    """The terms from which the slots of a missed stretch follow, kept with the audit event that summarizes them."""

    type: str
    spec: str
    timezone: str
    dst: Literal["literal", "once"]

    def timing(self, first: int) -> Timing:
        """The occurrences of the stretch; an interval's anchor did not move within it."""
        definition = _encode(Definition(dst=self.dst)).decode()
        columns = ScheduleColumns("", self.type, self.spec, self.timezone, None, "skip", None, definition)
        return timing_of(columns, first)


def _unusual_events(stored: StoredSchedule, verdicts: Verdicts, at: int) -> Iterator[AuditEvent]:
    """The unusual among a decision: what was missed, skipped or coalesced.

    A missed stretch is one event; up to a limit it says what its slots follow from, and is reported slot by slot when
    it is read. A schedule that was down for a day costs one row then, not one for each minute. A run that catches up
    says for how many slots it stands, also where that is one.
    """
    coalesced = [span for span in verdicts.spans if span.verdict == "coalesced"]
    for span in verdicts.spans:
        detail: dict[str, Any]
        if span.verdict == "missed" and span.n == 1:
            yield _event(stored, at, "missed", {"scheduled_for": span.from_at, "count": 1, "reason": span.reason})
        elif span.verdict != "coalesced":
            detail = {"from": span.from_at, "to": span.to_at, "count": span.n, "reason": span.reason}
            if span.verdict == "missed" and span.n <= MOST_SLOTS:
                columns = stored.columns
                dst = definition_of(columns.definition).dst
                detail["slots_of"] = Slots(columns.type, columns.spec, columns.timezone, dst)
            yield _event(stored, at, span.verdict, detail)
    start = verdicts.start
    if start is not None and (coalesced or verdicts.caught_up):
        folded = sum(span.n for span in coalesced)
        detail = {
            "from": coalesced[0].from_at if coalesced else start.run_for,
            "to": coalesced[-1].to_at if coalesced else start.run_for,
            "count": folded,
            "slots": folded + 1,
            "fired_for": start.run_for,
            "reason": coalesced[0].reason if coalesced else CAUGHT_UP,
        }
        yield _event(stored, at, "coalesced", detail)


def _event(stored: StoredSchedule, at: int, event: str, detail: dict[str, Any]) -> AuditEvent:
    return AuditEvent(at, f"schedule.{event}", stored.schedule_id, ENGINE, _encode(detail).decode(), stored.team)

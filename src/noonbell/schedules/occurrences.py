"""What became of each occurrence, read from the ledger: runs, live runs and spans, spans taken apart again.

Nothing is decided here. An occurrence that has come and is not decided yet is `pending`.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

import msgspec

from noonbell.actions.callback import moment
from noonbell.core.records import Attempt as StoredAttempt
from noonbell.core.records import Definition, Epoch, LiveRun, Run, ScheduleColumns, Span, StoredSchedule
from noonbell.core.turns import terms_of, timing_of
from noonbell.ports import ScheduleStore
from noonbell.schedules.records import Occurrence, Upcoming, attempt_records
from noonbell.timing import parse_interval
from noonbell.timing.protocol import SECOND

_Told = tuple[int, Occurrence]


class EpochTerms(msgspec.Struct, frozen=True):
    """The terms of an epoch, as its row keeps them: a Definition, and what else the occurrences depend on."""

    type: str
    catch_up: str
    quiet_hours_policy_id: str | None
    anchor_at: int | None
    dst: str
    definition: Definition


def written_terms(columns: ScheduleColumns, anchor_at: int | None) -> str:
    """The text of an epoch's policies."""
    definition = msgspec.json.decode(columns.definition, type=Definition)
    terms = EpochTerms(
        columns.type, columns.catch_up_policy, columns.quiet_hours_policy_id, anchor_at, definition.dst, definition
    )
    return msgspec.json.encode(terms).decode()


async def decided(store: ScheduleStore, stored: StoredSchedule, after: int, upto: int, now: int) -> Iterator[_Told]:
    """The occurrences in (after, upto], oldest first, made one by one as they are asked for."""
    sid = stored.sid
    tried: dict[int, list[StoredAttempt]] = {}
    for attempt in await store.attempts(sid, after + 1, upto):
        if attempt.kind == "scheduled":
            tried.setdefault(attempt.run_for, []).append(attempt)
    runs = await store.runs(sid, after + 1, upto, "scheduled")
    lives = [live for live in stored.lives if live.kind == "scheduled" and after < live.run_for <= upto]
    spans = await store.spans(sid, after + 1, upto)
    epochs = {epoch.epoch: epoch for epoch in await store.epochs(sid)} if spans else {}
    fired = sorted([*(_of_run(run, tried) for run in runs), *(_of_live(live, tried) for live in lives)], key=_when)
    passed = (told for span in spans for told in _of_span(span, epochs[span.epoch], after, upto))
    return merge(fired, passed, _pending(stored, after, min(upto, now)), key=_when)


def _when(told: _Told) -> int:
    return told[0]


def _of_run(run: Run, tried: dict[int, list[StoredAttempt]]) -> _Told:
    return run.run_for, Occurrence(
        moment(run.run_for), "fired", state=run.outcome, attempts=run.attempts, started_at=moment(run.started_at),
        ended_at=moment(run.ended_at), tried=attempt_records(tried.get(run.run_for, [])),
    )  # fmt: skip


def _of_live(live: LiveRun, tried: dict[int, list[StoredAttempt]]) -> _Told:
    return live.run_for, Occurrence(
        moment(live.run_for), "fired", state=live.state, attempts=live.attempt,
        started_at=None if live.started_at is None else moment(live.started_at),
        tried=attempt_records(tried.get(live.run_for, [])),
    )  # fmt: skip


def _of_span(span: Span, epoch: Epoch, after: int, upto: int) -> Iterator[_Told]:
    for at in instants(span, epoch, after):
        if at > upto:
            return
        yield at, Occurrence(moment(at), span.verdict, span.reason)


def instants(span: Span, epoch: Epoch, after: int) -> Iterator[int]:
    """The occurrences of a span that lie after `after`."""
    terms = msgspec.json.decode(epoch.policies, type=EpochTerms)
    if terms.type == "interval":  # within a span the anchor did not move
        every = parse_interval(epoch.spec) * SECOND
        skipped = max(0, (after - span.from_at) // every + 1)
        yield from range(span.from_at + skipped * every, span.to_at + 1, every)
        return
    definition = msgspec.json.encode(terms.definition).decode()
    columns = ScheduleColumns("", terms.type, epoch.spec, epoch.timezone, None, terms.catch_up, None, definition)
    timing = timing_of(columns, None)
    at = timing.following(max(after, span.from_at - 1))
    while at is not None and at <= span.to_at:
        yield at
        at = timing.following(at)


def _pending(stored: StoredSchedule, after: int, upto: int) -> Iterator[_Told]:
    if not stored.enabled:
        return
    timing = timing_of(stored.columns, stored.anchor_at)
    at = timing.following(max(after, stored.cursor_at))
    while at is not None and at <= upto:
        yield at, Occurrence(moment(at), "pending")
        at = timing.following(at)


def upcoming(stored: StoredSchedule, now: int, count: int) -> list[Upcoming]:
    """The next occurrences, as the schedule stands."""
    terms = terms_of(stored)
    found: list[Upcoming] = []
    at = terms.timing.following(max(now, stored.cursor_at))
    while at is not None and len(found) < count:
        found.append(Upcoming(moment(at), moment(at + terms.jitter(at)), terms.quiet.is_quiet(at)))
        at = terms.timing.following(at)
    return found

"""The verdict of each occurrence, read from the ledger: runs, live runs and spans, spans taken apart again.

Nothing is decided here. An occurrence that has come and is not decided yet is `pending`, or `skipped` if it lies in
quiet hours: those of a quiet stretch are written together when it is over, and nothing else can become of them. One
whose day was pruned is left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from heapq import merge
from itertools import islice
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import replace

from noonbell.core.instants import moment
from noonbell.core.records import Attempt as StoredAttempt
from noonbell.core.records import Definition, Epoch, LiveRun, Run, ScheduleColumns, Span, StoredSchedule
from noonbell.core.turns import definition_of, quiet_hours_of, terms_of, timing_of
from noonbell.ports import Ledger, RunFilter
from noonbell.schedules.schedule_records import Occurrence, Upcoming, attempt_records
from noonbell.timing import Timing, parse_interval, rules_hash
from noonbell.timing.timing_protocol import SECOND

_Dated = tuple[int, Occurrence]
_Fires = Callable[[Timing, int, int], Iterator[int]]


class EpochTerms(msgspec.Struct, frozen=True):
    """The terms of an epoch, as its row keeps them: a Definition, and what else the occurrences depend on."""

    type: str
    catch_up: str
    quiet_hours_policy_id: str | None
    anchor_at: int | None
    dst: str
    definition: Definition


def kind_of(epoch: Epoch) -> str:
    """The kind of schedule that it was in an epoch."""
    return msgspec.json.decode(epoch.policies, type=EpochTerms).type


def written_terms(columns: ScheduleColumns, anchor_at: int | None) -> str:
    """The text of an epoch's policies."""
    return _terms_text(
        columns.type, columns.catch_up_policy, columns.quiet_hours_policy_id, anchor_at, columns.definition
    )


@lru_cache(maxsize=1_024)
def _terms_text(kind: str, catch_up: str, quiet: str | None, anchor_at: int | None, written: str) -> str:
    definition = definition_of(written)
    return msgspec.json.encode(EpochTerms(kind, catch_up, quiet, anchor_at, definition.dst, definition)).decode()


async def decided(
    store: Ledger, sid: int, stored: StoredSchedule | None, now: int, *, after: int, upto: int, limit: int
) -> list[_Dated]:
    """Return up to `limit` of the occurrences in (after, upto], the oldest; of a deleted schedule `stored` is None.

    What is read and kept depends on `limit` alone, not on how much lies between the bounds.
    """
    reader = _Reader(store, sid, [] if stored is None else stored.lives)
    found: list[_Dated] = []
    for epoch in await store.history.epochs(sid):
        low, high = _decided_part(epoch, stored, after, upto)
        known = _known_timing(epoch) if low < high else None
        while low < high and len(found) < limit:
            part, low = await reader.step(known, epoch, low, high, limit - len(found))
            found.extend(part)
    if stored is not None:
        found.extend(islice(_pending(stored, after, min(upto, now), _fires), limit - len(found)))
    return await reader.with_attempts(found)


async def decided_newest(
    store: Ledger,
    sid: int,
    stored: StoredSchedule | None,
    now: int,
    *,
    after: int,
    upto: int,
    limit: int,
    epochs: Sequence[Epoch] | None = None,
) -> list[_Dated]:
    """The same, the newest first: the epochs are gone through from the last to the first. They may be passed in."""
    reader = _Reader(store, sid, [] if stored is None else stored.lives)
    found: list[_Dated] = []
    if stored is not None:
        found.extend(islice(_pending(stored, after, min(upto, now), _fires_back), limit))
    for epoch in reversed(await store.history.epochs(sid) if epochs is None else epochs):
        low, high = _decided_part(epoch, stored, after, upto)
        known = _known_timing(epoch) if low < high and len(found) < limit else None
        while low < high and len(found) < limit:
            part, high = await reader.step_back(known, epoch, low, high, limit - len(found))
            found.extend(part)
    return await reader.with_attempts(found)


def _decided_part(epoch: Epoch, stored: StoredSchedule | None, after: int, upto: int) -> tuple[int, int]:
    """The part of (after, upto] in which occurrences of the epoch are decided; an empty one where there are none."""
    decided_to = epoch.to_at if epoch.to_at is not None or stored is None else stored.cursor_at
    if decided_to is None or not epoch.enabled:
        return after, after
    return max(after, epoch.from_at), min(upto, decided_to)


def _known_timing(epoch: Epoch) -> Timing | None:
    """The occurrences of an epoch where they are known without its ledger.

    Those of an interval hang on when its runs began, and rules that have changed since say nothing about the past.
    """
    terms = msgspec.json.decode(epoch.policies, type=EpochTerms)
    if terms.type == "interval" or epoch.zone_hash != rules_hash(ZoneInfo(epoch.timezone)):
        return None
    return _timing(epoch, terms)


def _timing(epoch: Epoch, terms: EpochTerms) -> Timing:
    definition = msgspec.json.encode(terms.definition).decode()
    columns = ScheduleColumns("", terms.type, epoch.spec, epoch.timezone, None, terms.catch_up, None, definition)
    return timing_of(columns, None)


class _Reader:
    """Reads the ledger of one schedule in steps, each of which goes no further than it is asked for."""

    def __init__(self, store: Ledger, sid: int, lives: list[LiveRun]) -> None:
        self._store = store
        self._sid = sid
        self._lives = {live.run_for: live for live in lives if live.kind == "scheduled"}

    async def step(
        self, known: Timing | None, epoch: Epoch, low: int, high: int, limit: int
    ) -> tuple[list[_Dated], int]:
        """Return up to `limit` occurrences in (low, high], and how far the ledger has been read."""
        if known is None:
            return await self._as_written(epoch, low, high, limit)
        due = list(islice(_fires(known, low, high), limit))
        if not due:
            return [], high
        part = await self._looked_up(due)
        # days that were pruned have no rows, and hold no more of others than of this one: on to what is next
        return (part, due[-1]) if part else await self._as_written(epoch, low, high, limit)

    async def step_back(
        self, known: Timing | None, epoch: Epoch, low: int, high: int, limit: int
    ) -> tuple[list[_Dated], int]:
        """As `step`, from the newest to the oldest: what is left to read lies in (low, the instant that it returns]."""
        if known is None:
            return await self._as_written_back(epoch, low, high, limit)
        due = list(islice(_fires_back(known, low, high), limit))
        if not due:
            return [], low
        part = await self._looked_up(due[::-1])
        return (part[::-1], due[-1] - 1) if part else await self._as_written_back(epoch, low, high, limit)

    async def _looked_up(self, due: list[int]) -> list[_Dated]:
        """Return the verdicts of known occurrences: their runs are found by key, whatever ran beside them."""
        runs = {
            run.run_for: run
            for run in await self._store.history.runs(RunFilter(self._sid, kind="scheduled", instants=due))
        }
        spans = deque(await self._store.history.spans(self._sid, due[0], due[-1], len(due) + 1))
        part: list[_Dated] = []
        for at in due:
            while spans and spans[0].to_at < at:
                spans.popleft()
            if at in runs:
                part.append(_of_run(runs[at]))
            elif at in self._lives:
                part.append(_of_live(self._lives[at]))
            elif spans and spans[0].from_at <= at:
                part.append((at, Occurrence(moment(at), spans[0].verdict, spans[0].reason)))
        return part

    async def _as_written(self, epoch: Epoch, low: int, high: int, limit: int) -> tuple[list[_Dated], int]:
        """Return the verdicts of a stretch as the ledger holds them, in order."""
        found = await self._store.history.runs(RunFilter(self._sid, low + 1, high, "scheduled"), limit)
        runs = [_of_run(run) for run in found]
        ended = {at for at, _ in runs}
        alive = sorted(at for at in self._lives if low < at <= high and at not in ended)
        passed = (
            dated
            for span in await self._store.history.spans(self._sid, low + 1, high, limit)
            for dated in _of_span(span, instants(span, epoch, low, high))
        )
        every = merge(runs, (_of_live(self._lives[at]) for at in alive), passed, key=_when)
        part = list(islice(every, limit))
        return part, part[-1][0] if len(part) == limit else high

    async def _as_written_back(self, epoch: Epoch, low: int, high: int, limit: int) -> tuple[list[_Dated], int]:
        """Return the same as `_as_written`, the newest first."""
        found = await self._store.history.runs(
            RunFilter(self._sid, low + 1, high, "scheduled"), limit, newest_first=True
        )
        runs = [_of_run(run) for run in found]
        ended = {at for at, _ in runs}
        alive = sorted((at for at in self._lives if low < at <= high and at not in ended), reverse=True)
        passed = (
            dated
            for span in await self._store.history.spans(self._sid, low + 1, high, limit, newest_first=True)
            for dated in _of_span(span, instants_back(span, epoch, low, high))
        )
        every = merge(runs, (_of_live(self._lives[at]) for at in alive), passed, key=_when, reverse=True)
        part = list(islice(every, limit))
        return part, part[-1][0] - 1 if len(part) == limit else low

    async def with_attempts(self, found: list[_Dated]) -> list[_Dated]:
        """The same, each run with its recorded attempts."""
        fired = [at for at, occurrence in found if occurrence.verdict == "fired"]
        tried: dict[int, list[StoredAttempt]] = {}
        for attempt in await self._store.history.attempts(self._sid, min(fired), max(fired)) if fired else ():
            if attempt.kind == "scheduled":
                tried.setdefault(attempt.run_for, []).append(attempt)
        return [
            (at, replace(occurrence, tried=attempt_records(tried[at])) if at in tried else occurrence)
            for at, occurrence in found
        ]


def _when(dated: _Dated) -> int:
    return dated[0]


def _of_run(run: Run) -> _Dated:
    return run.run_for, Occurrence(
        moment(run.run_for), "fired", state=run.outcome, attempts=run.attempts, started_at=moment(run.began_at),
        ended_at=moment(run.ended_at),
    )  # fmt: skip


def _of_live(live: LiveRun) -> _Dated:
    return live.run_for, Occurrence(
        moment(live.run_for), "fired", state=live.state, attempts=live.attempt,
        started_at=None if live.started_at is None else moment(live.started_at),
    )  # fmt: skip


def _of_span(span: Span, found: Iterable[int]) -> Iterator[_Dated]:
    return ((at, Occurrence(moment(at), span.verdict, span.reason)) for at in found)


def instants(span: Span, epoch: Epoch, after: int, upto: int) -> Iterator[int]:
    """The occurrences of a span that lie in (after, upto], the oldest first."""
    terms = msgspec.json.decode(epoch.policies, type=EpochTerms)
    if terms.type == "interval":
        return iter(_steps(span, epoch, after, upto))
    return _fires(_timing(epoch, terms), max(after, span.from_at - 1), min(upto, span.to_at))


def instants_back(span: Span, epoch: Epoch, after: int, upto: int) -> Iterator[int]:
    """The same, the newest first."""
    terms = msgspec.json.decode(epoch.policies, type=EpochTerms)
    if terms.type == "interval":
        return reversed(_steps(span, epoch, after, upto))
    return _fires_back(_timing(epoch, terms), max(after, span.from_at - 1), min(upto, span.to_at))


def _steps(span: Span, epoch: Epoch, after: int, upto: int) -> range:
    """Return the occurrences of an interval: within a span its anchor did not move."""
    every = parse_interval(epoch.spec) * SECOND
    skipped = max(0, (after - span.from_at) // every + 1)
    return range(span.from_at + skipped * every, min(upto, span.to_at) + 1, every)


def _fires(timing: Timing, after: int, upto: int) -> Iterator[int]:
    at = timing.following(after)
    while at is not None and at <= upto:
        yield at
        at = timing.following(at)


def _fires_back(timing: Timing, after: int, upto: int) -> Iterator[int]:
    at = timing.latest(upto)
    while at is not None and at > after:
        yield at
        at = timing.latest(at - 1)


def _pending(stored: StoredSchedule, after: int, upto: int, fires: _Fires) -> Iterator[_Dated]:
    after = max(after, stored.cursor_at)
    if not stored.enabled or after >= upto:
        return
    timing, quiet = timing_of(stored.columns, stored.anchor_at), quiet_hours_of(stored.quiet)
    for at in fires(timing, after, upto):
        skipped = Occurrence(moment(at), "skipped", "quiet hours") if quiet.is_quiet(at) else None
        yield at, skipped or Occurrence(moment(at), "pending")


def upcoming(stored: StoredSchedule, now: int, count: int) -> list[Upcoming]:
    """The next occurrences, as the schedule stands."""
    terms = terms_of(stored)
    found: list[Upcoming] = []
    # what has come and is yet to start, put off by its jitter, is still to come
    longest = definition_of(stored.columns.definition).jitter_us if stored.enabled else 0
    at = terms.timing.following(max(now - longest, stored.cursor_at))
    while at is not None and len(found) < count:
        starts_at = at + terms.jitter(at)
        if starts_at > now:
            found.append(Upcoming(moment(at), moment(starts_at), terms.quiet.is_quiet(at)))
        at = terms.timing.following(at)
    return found

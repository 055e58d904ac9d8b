"""The one decision: what becomes of a schedule at an instant. Pure.

`decide` takes the schedule's position, its terms and the instant, and returns what is to be written. A schedule whose
starts consume everything that is due by then (declared tasks) is decided by `consuming`. For all others the occurrences
that are due and undecided fall into two parts:

- *missed*: no poll of the lane completed between their start time and the grace after it (`presence.Gap`). Catch-up
  says what becomes of them.
- *late*: a poll completed, and left them; being busy is not downtime. The latest is fired, those before it are
  coalesced into it, and under overlap `skip` those that came while the schedule's own run was executing are skipped.

Quiet hours are judged at the occurrence, and once more when a catch-up or a retry would start. A quiet stretch is one
span, written when it is over; until then its occurrences stay undecided and the schedule sleeps (`Verdicts.quiet`).

Every part is counted, never walked: a year of missed minutes costs as much as an hour of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from noonbell.core.consuming import decide_consuming
from noonbell.core.presence import Gap
from noonbell.core.records import Cause, LiveRun, Span, Start, Verdict, retry_cause
from noonbell.core.terms import CAUGHT_UP, FOR_GOOD, NOT_POLLED, Backlog, Position, Terms, Verdicts
from noonbell.timing.quiet_hours import split
from noonbell.timing.timing_protocol import LATEST


def decide(position: Position, terms: Terms, now: int, gaps: Sequence[Gap] = ()) -> Verdicts:
    """Decide what becomes of the schedule now. `gaps` are the stretches without a poll of its lane, oldest first."""
    live, policies = position.live, terms.policies
    if policies.consumes:
        return decide_consuming(position, terms, now)
    unchanged = Verdicts(position.cursor_at, None, backlog=position.backlog)
    if live is not None:
        if live.state == "queued":
            start = _again(live, live.cause, now, _wake(terms, position.cursor_at))
            return msgspec.structs.replace(unchanged, start=start)
        if live.state == "running" and policies.overlap != "allow":
            return unchanged
        if live.state == "waiting":
            due = _latest_due(terms, now)
            new = due is not None and due > position.cursor_at
            if not (new and policies.retry_vs_new == "preempt"):
                return _retry(live, terms, now, position, unchanged)
    found = _Decision(position, terms, now, gaps).verdicts()
    if live is None or live.state != "waiting" or live.wake_at is None or live.wake_at > now or found.start is not None:
        return found
    # nothing takes its place: it is tried again, or sleeps through quiet hours
    position = msgspec.structs.replace(position, cursor_at=found.cursor_at)
    return _retry(live, terms, now, position, msgspec.structs.replace(found, next_run_at=None))


def _retry(live: LiveRun, terms: Terms, now: int, position: Position, unchanged: Verdicts) -> Verdicts:
    wakes = terms.policies.retry_vs_new == "preempt"
    if live.wake_at is None or live.wake_at > now:
        return msgspec.structs.replace(unchanged, next_run_at=_wake(terms, position.cursor_at) if wakes else None)
    # a run that was asked for is not subject to quiet hours, and neither are its retries
    until = None if live.kind == "manual" else terms.quiet.quiet_until(now)
    if until is not None:
        return msgspec.structs.replace(unchanged, live_wake_at=min(until, FOR_GOOD))
    following = _wake(terms, position.cursor_at)
    return msgspec.structs.replace(unchanged, start=_again(live, retry_cause(live.cause), now, following))


class _Piece(NamedTuple):
    """Neighbouring occurrences. `verdict` is None while it is open: they may be fired."""

    first: int
    last: int
    n: int
    verdict: Verdict | None = None
    reason: str = ""

    def given(self, verdict: Verdict, reason: str) -> _Piece:
        """With this verdict, if it is open."""
        return self._replace(verdict=verdict, reason=reason) if self.verdict is None else self


class _Decision:
    """One decision in the making: the cursor moves over pieces, each leaving its span."""

    def __init__(self, position: Position, terms: Terms, now: int, gaps: Sequence[Gap]) -> None:
        self._position = position
        self._terms = terms
        self._now = now
        self._gaps = gaps
        self._cursor = position.cursor_at
        self._spans: list[Span] = []

    def verdicts(self) -> Verdicts:
        if self._position.backlog is not None:
            return self._continue(self._position.backlog)
        due = _latest_due(self._terms, self._now)
        if due is None or due <= self._cursor:
            return self._idle()
        unpolled = self._unpolled(due)
        policy = self._terms.policies.catch_up
        if policy == "skip":
            pieces = self._skipping(unpolled, due)
            fires = any(piece.verdict is None for piece in pieces)
            return self._fire(pieces, "one run for all that was due") if fires else self._pass_by(pieces)
        # the other policies make up for what was late before the last gap, too
        missed_to = unpolled[-1][1] if unpolled else self._cursor
        missed = self._pieces(self._cursor, missed_to)
        late = self._without_overlap(self._pieces(missed_to, due))
        catches_up = any(piece.verdict is None for piece in missed)
        fires = any(piece.verdict is None for piece in late)
        if catches_up and (policy == "run_all_capped" or not fires):
            quiet_until = self._terms.quiet.quiet_until(self._now)
            if quiet_until is not None:
                return self._idle(quiet_until)
        if catches_up and policy == "run_all_capped":
            total = sum(piece.n for piece in missed if piece.verdict is None)
            return self._continue(Backlog(min(total, self._terms.policies.cap), missed[-1].last))
        if not catches_up and not fires:
            return self._pass_by([*missed, *late])
        fired = self._fire([*missed, *late], CAUGHT_UP if catches_up else "one run for all that was due")
        return msgspec.structs.replace(fired, caught_up=catches_up)

    def _unpolled(self, due: int) -> list[tuple[int, int]]:
        """The gaps that hold occurrences behind the cursor and up to `due`: (after, upto] in terms of occurrences."""
        found = []
        for gap in self._gaps:
            if gap.missed_upto > self._cursor:
                after, upto = (_latest_due(self._terms, at) or self._cursor for at in (gap.since, gap.missed_upto))
                after = max(after, self._cursor)
                if min(upto, due) > after:
                    found.append((after, min(upto, due)))
        return found

    def _skipping(self, unpolled: list[tuple[int, int]], due: int) -> list[_Piece]:
        """Under catch-up `skip`: what came in a gap is missed, and what came between gaps is late."""
        pieces: list[_Piece] = []
        at = self._cursor
        for after, upto in unpolled:
            pieces.extend(self._without_overlap(self._pieces(at, after)))
            pieces.extend(piece.given("missed", NOT_POLLED) for piece in self._pieces(after, upto))
            at = upto
        return [*pieces, *self._without_overlap(self._pieces(at, due))]

    # --- the ways it can end --------------------------------------------------------------------------------------

    def _fire(self, pieces: list[_Piece], reason: str) -> Verdicts:
        """Fire the last occurrence that is open; the open ones before it are coalesced into it."""
        at = max(index for index, piece in enumerate(pieces) if piece.verdict is None)
        chosen, before = pieces[at], pieces[:at]
        if chosen.n > 1:
            before = [*before, _Piece(chosen.first, self._before(chosen.last), chosen.n - 1)]
        self._pass_over(before, "coalesced", reason)
        self._cursor = chosen.last
        self._pass_over(pieces[at + 1 :], "coalesced", reason)
        return self._start(chosen.last)

    def _continue(self, backlog: Backlog) -> Verdicts:
        """Fire the oldest of a capped backlog; behind the last of them the rest is missed."""
        quiet_until = self._terms.quiet.quiet_until(self._now)
        if quiet_until is not None:
            return msgspec.structs.replace(self._idle(quiet_until), backlog=backlog)
        pieces = self._pieces(self._cursor, backlog.until)
        at = next((index for index, piece in enumerate(pieces) if piece.verdict is None), None)
        if at is None:  # quiet hours were widened since, and hold all of it
            return self._pass_by(pieces)
        self._pass_over(pieces[:at], "missed", "cap")
        first, rest = pieces[at], pieces[at + 1 :]
        self._cursor = first.first
        if backlog.left > 1:
            return msgspec.structs.replace(self._start(first.first), backlog=Backlog(backlog.left - 1, backlog.until))
        if first.n > 1:
            rest = [_Piece(self._after(first.first), first.last, first.n - 1), *rest]
        self._pass_over(rest, "missed", "cap")
        return self._start(first.first)

    def _pass_by(self, pieces: list[_Piece]) -> Verdicts:
        """Nothing is fired: each piece has its verdict already."""
        self._pass_over(pieces, "missed", NOT_POLLED)
        return self._idle()

    def _start(self, run_for: int) -> Verdicts:
        terms, position, live = self._terms, self._position, self._position.live
        following = _wake(terms, self._cursor) if terms.every_us is None else terms.next_after(self._now)
        start = Start(
            sid=position.sid, kind="scheduled", run_for=run_for, fence=1, attempt=1, cause=terms.cause,
            epoch=position.epoch,
            started_at=self._now, due_at=run_for + terms.jitter(run_for), following=following,
            preempted=live if live is not None and live.state == "waiting" else None,
        )  # fmt: skip
        return Verdicts(self._cursor, following, tuple(self._spans), start)

    def _idle(self, wake_at: int | None = None) -> Verdicts:
        quiet: tuple[int, int] | None = None
        if wake_at is None:
            wake_at = _wake(self._terms, self._cursor)
            following = self._terms.timing.following(self._cursor)
            if following is not None and following <= self._now:
                until = self._ongoing_quiet(following)
                if until is not None:
                    wake_at, quiet = until, (following, until)
        if wake_at is not None and wake_at > LATEST:  # quiet for good: only a change of the quiet hours wakes it
            wake_at = None
        return Verdicts(self._cursor, wake_at, tuple(self._spans), quiet=quiet)

    # --- pieces ---------------------------------------------------------------------------------------------------

    def _pieces(self, after: int, upto: int) -> list[_Piece]:
        """The occurrences in (after, upto], cut by quiet hours; a quiet stretch that is not over is left out."""
        if after >= upto:
            return []
        pieces = []
        for stretch in split(self._terms.timing, self._terms.quiet, after, upto):
            piece = _Piece(stretch.first, stretch.last, stretch.n)
            if not stretch.quiet:
                pieces.append(piece)
                continue
            over = [piece]
            if self._ongoing_quiet(stretch.last) is not None:
                # several quiet times may have met here without an occurrence between them: only the last goes on
                *_, (began, _) = self._terms.quiet.stretches(stretch.first - 1, stretch.last)
                over = self._part(piece, None, began - 1)
            pieces.extend(part._replace(verdict="skipped", reason="quiet hours") for part in over)
        return pieces

    def _ongoing_quiet(self, occurrence: int) -> int | None:
        until = self._terms.quiet.quiet_until(occurrence)
        return until if until is not None and until > self._now else None

    def _without_overlap(self, late: list[_Piece]) -> list[_Piece]:
        """Under overlap `skip`: what was to start while the last run executed has its verdict."""
        if self._terms.policies.overlap != "skip" or self._position.ran is None:
            return late
        began, ended = (_latest_due(self._terms, at) or 0 for at in self._position.ran)
        cut: list[_Piece] = []
        for piece in late:
            if piece.verdict is not None:
                cut.append(piece)
            else:
                cut.extend(self._part(piece, None, began))
                cut.extend(
                    part._replace(verdict="skipped", reason="overlap") for part in self._part(piece, began, ended)
                )
                cut.extend(self._part(piece, ended, None))
        return cut

    def _part(self, piece: _Piece, after: int | None, upto: int | None) -> list[_Piece]:
        """The part of a piece in (after, upto], if there is one."""
        timing = self._terms.timing
        first = piece.first if after is None or after < piece.first else timing.following(after)
        last = piece.last if upto is None or upto >= piece.last else timing.latest(upto)
        if first is None or last is None or not piece.first <= first <= last <= piece.last:
            return []
        return [_Piece(first, last, timing.count(first - 1, last))]

    def _pass_over(self, pieces: list[_Piece], verdict: Verdict, reason: str) -> None:
        """Give the open ones this verdict, and write them all."""
        sid, epoch = self._position.sid, self._position.epoch
        for first, last, n, given, why in (piece.given(verdict, reason) for piece in pieces):
            assert given is not None  # noqa: S101 - that is what was just done
            span = Span(sid, first, last, n, given, why, epoch)
            before = self._spans[-1] if self._spans else None
            if before is not None and _joins(before, span) and before.to_at == self._cursor:
                # a quiet stretch is one span, though a part of it came while nothing was up
                span = msgspec.structs.replace(span, from_at=before.from_at, n=before.n + n)
                self._spans.pop()
            self._spans.append(span)
            self._cursor = last

    def _before(self, occurrence: int) -> int:
        found = self._terms.timing.latest(occurrence - 1)
        assert found is not None  # noqa: S101 - asked only inside a piece of two or more
        return found

    def _after(self, occurrence: int) -> int:
        found = self._terms.timing.following(occurrence)
        assert found is not None  # noqa: S101 - asked only inside a piece of two or more
        return found


def _joins(before: Span, span: Span) -> bool:
    return span.verdict == "skipped" and (before.verdict, before.reason) == (span.verdict, span.reason)


def without_jitter(terms: Terms, gaps: Sequence[Gap]) -> list[Gap]:
    """The gaps in terms of occurrences instead of their starts, for terms that have lost their jitter."""

    def latest(at: int) -> int:
        return _latest_due(terms, at) or 0

    return [Gap(latest(gap.since), latest(gap.missed_upto) + gap.grace_us, gap.grace_us) for gap in gaps]


def _latest_due(terms: Terms, now: int) -> int | None:
    """The latest occurrence whose start, jitter included, has come."""
    due = terms.timing.latest(now)
    if due is not None and due + terms.jitter(due) > now:
        due = terms.timing.latest(due - 1)
    return due


def _wake(terms: Terms, cursor: int) -> int | None:
    following = terms.timing.following(cursor)
    return None if following is None else following + terms.jitter(following)


def _again(live: LiveRun, cause: Cause, now: int, following: int | None) -> Start:
    return Start(
        sid=live.sid, kind=live.kind, run_for=live.run_for, fence=live.fence + 1, attempt=live.attempt + 1, cause=cause,
        epoch=live.epoch, started_at=now, due_at=live.wake_at or now, following=following,
    )  # fmt: skip

"""The decision for schedules whose starts consume what is due: declared tasks. Pure.

Steps, for a schedule whose cursor is `c`, decided at `now`:

1. The occurrences in (c, now] are due. However many they are, they are one request: the latest of them is fired and
   the others are coalesced into it, in one span.
2. A run that is queued (an orphan of a dead instance, or one handed back unstarted) starts again under its own id.
   What is due by then is coalesced into it.
3. A run that waits for its retry gives way to a due occurrence: it ends as failed, and the occurrence is fired. With
   `finish` it is the other way round: the occurrence is coalesced into the run that waits.
4. Otherwise the retry starts when its time has come.
5. Any start moves the cursor to `now`: it answers for all that was due by then. The cursor never goes back; where the
   clock has gone back behind it, nothing is due until the clock has caught up.

A start leaves the schedule's next occurrence as its wake-up. If that comes while the run executes, the schedule has no
wake-up until the run ends.
"""

from __future__ import annotations

from noonbell.core.records import Cause, LiveRun, Span, Start
from noonbell.core.terms import Position, Terms, Verdicts
from noonbell.timing.timing_protocol import Timing


def decide_consuming(position: Position, terms: Terms, now: int) -> Verdicts:
    """Decide what becomes of this schedule now."""
    cursor, live, timing = position.cursor_at, position.live, terms.timing
    before: int | None = None
    pending: int | None = None
    if now <= cursor:
        following = timing.following(cursor)
    else:
        latest, before, following = timing.look(now)
        pending = latest if latest is not None and latest > cursor else None
    if live is not None:
        if live.state == "running":
            return Verdicts(cursor, None)
        if live.state == "queued":
            folded = _spans(position, timing, pending, f"folded into the {live.cause} run")
            return Verdicts(max(now, cursor), None, folded, _again(position, live, live.cause, now, following))
        if pending is None or terms.policies.retry_vs_new == "finish":
            folded = _spans(position, timing, pending, "folded into the retry run")
            if live.wake_at is None or live.wake_at > now:
                return Verdicts(cursor if pending is None else pending, following, folded)
            return Verdicts(max(now, cursor), None, folded, _again(position, live, "retry", now, following))
    if pending is None:
        return Verdicts(cursor, following)
    start = Start(
        sid=position.sid, kind="scheduled", run_for=pending, fence=1, attempt=1, cause=terms.cause,
        epoch=position.epoch, started_at=now, due_at=pending, following=following, preempted=live,
    )  # fmt: skip
    last = before if before is not None and before > cursor else None
    return Verdicts(now, following, _spans(position, timing, last, "one run for all that was due"), start)


def _spans(position: Position, timing: Timing, last: int | None, reason: str) -> tuple[Span, ...]:
    """The span of what lies after the cursor and up to `last`; none without it."""
    if last is None:
        return ()
    first = timing.following(position.cursor_at)
    assert first is not None  # noqa: S101 - `last` lies after the cursor, so something follows it
    n = timing.count(position.cursor_at, last)
    return (Span(position.sid, first, last, n, "coalesced", reason, position.epoch),)


def _again(position: Position, live: LiveRun, cause: Cause, now: int, following: int | None) -> Start:
    return Start(
        sid=live.sid, kind=live.kind, run_for=live.run_for, fence=live.fence + 1, attempt=live.attempt + 1,
        cause=cause, epoch=position.epoch, started_at=now, due_at=live.wake_at or now, following=following,
    )  # fmt: skip

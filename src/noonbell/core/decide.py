"""The one decision: what becomes of a schedule at an instant.

Steps, for a schedule whose cursor is `c`, looked at at `now`:

1. The occurrences in (c, now] are due. However many they are, they are one request: the latest of them is fired and
   the others are coalesced into it, in one span.
2. A run that is queued (an orphan of a dead instance, or one handed back unstarted) starts again under its own id.
   What is due by then is coalesced into it.
3. A run that waits for its retry gives way to a due occurrence: it ends as failed, and the occurrence is fired. With
   `finish` it is the other way round: the occurrence is coalesced into the run that waits.
4. Otherwise the retry starts when its time has come.
5. Any start moves the cursor to `now`: it answers for all that was due by then. The cursor never goes back; where the
   clock has gone back behind it, nothing is due until the clock has caught up.

While a run executes its schedule has no wake-up; `following` is put back when it ends, and if it lies in the past by
then the next look finds it due.
"""

from __future__ import annotations

from noonbell.core.records import Cause, Decision, Due, LiveRun, Span, Start
from noonbell.timing import CronTiming


def decide(due: Due, timing: CronTiming, now: int, *, finish: bool = False) -> Decision:
    """Decide what becomes of this schedule now; with `finish`, retries take precedence over new occurrences."""
    cursor, live = due.cursor_at, due.live
    if now <= cursor:
        pending = None
        look_following = timing.following(cursor)
    else:
        look = timing.look(now)
        pending = look.latest if look.latest is not None and look.latest > cursor else None
        look_following = look.following
    if live is not None:
        if live.state == "running":
            return Decision(due.sid, cursor, None)
        if live.state == "queued":
            folded = None if pending is None else _span(due, timing, pending, f"folded into the {live.cause} run")
            start = _again(due, live, live.cause, now, look_following)
            return Decision(due.sid, max(now, cursor), None, start, folded)
        if pending is None or finish:
            folded = None if pending is None else _span(due, timing, pending, "folded into the retry run")
            if live.wake_at is None or live.wake_at > now:
                return Decision(due.sid, cursor if pending is None else pending, look_following, span=folded)
            start = _again(due, live, "retry", now, look_following)
            return Decision(due.sid, max(now, cursor), None, start, folded)
    if pending is None:
        return Decision(due.sid, cursor, look_following)
    start = Start(
        sid=due.sid, kind="scheduled", run_for=pending, fence=1, attempt=1, cause="cron", epoch=due.epoch,
        started_at=now, due_at=pending, following=look_following, preempted=live,
    )  # fmt: skip
    before = timing.look(now).before
    span = None
    if before is not None and before > cursor:
        span = _span(due, timing, before, "one run for all that was due")
    return Decision(due.sid, now, None, start, span)


def _span(due: Due, timing: CronTiming, last: int, reason: str) -> Span:
    first = timing.following(due.cursor_at)
    assert first is not None  # noqa: S101 - `last` lies after the cursor, so something follows it
    n = timing.count(due.cursor_at, last)
    return Span(due.sid, first, last, n, "coalesced", reason, due.epoch)


def _again(due: Due, live: LiveRun, cause: Cause, now: int, following: int | None) -> Start:
    return Start(
        sid=live.sid, kind=live.kind, run_for=live.run_for, fence=live.fence + 1, attempt=live.attempt + 1,
        cause=cause, epoch=due.epoch, started_at=now, due_at=live.wake_at or now, following=following,
    )  # fmt: skip

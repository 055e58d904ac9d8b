"""Turns at their edges: live runs at a look, and what an edit or a deletion decides in the midst of things."""

from __future__ import annotations

from typing import Any

from msgspec.json import encode
from msgspec.structs import replace

from noonbell.core.presence import Polls
from noonbell.core.records import AT_ONCE, Definition, LiveRun, StoredSchedule
from noonbell.core.turns import close, drop, look
from tests.core.test_ordinary_look import HOUR, MINUTE, QUIET, SECOND, T0, ordinary

QUIET_END = T0 + 2 * MINUTE  # of QUIET


def stored(*lives: LiveRun, cursor: int = T0, quiet: bool = False, enabled: bool = True, **said: Any) -> StoredSchedule:
    """A schedule of every minute."""
    plain = ordinary(cursor)
    columns = replace(plain.columns, definition=encode(Definition(**said)).decode())
    return replace(plain, columns=columns, lives=list(lives), quiet=QUIET if quiet else None, enabled=enabled)


def live(state: Any, **more: Any) -> LiveRun:
    plain = LiveRun(7, "scheduled", T0, 2, None, state, 1, AT_ONCE, T0, T0, 0, 1, "cron")
    if state == "running":
        plain = replace(plain, owner="me", wake_at=None)
    return replace(plain, **more)


# --- a look -----------------------------------------------------------------------------------------------------------


def test_only_a_run_that_was_never_attempted_waits_for_the_end_of_quiet_hours() -> None:
    now = T0 + MINUTE
    begun = look(stored(live("queued", cause="orphan"), quiet=True), now)
    assert [(start.run_for, start.attempt) for start in begun.starts] == [(T0, 2)], "it is under way, and goes on"
    fresh = look(stored(live("queued", attempt=0, started_at=None), quiet=True), now)
    assert fresh.starts == []
    assert [one.wake_at for one in fresh.put_off] == [QUIET_END]


def test_what_a_person_asks_of_a_paused_schedule_brings_no_wake_up_back() -> None:
    asked = live("queued", kind="manual", attempt=0, started_at=None, cause="manual")
    (start,) = look(stored(asked, enabled=False), T0 + SECOND).starts
    assert start.following is None
    (start,) = look(stored(asked), T0 + SECOND).starts
    assert start.following == T0 + MINUTE


# --- the end of an epoch ----------------------------------------------------------------------------------------------


def test_an_edit_calls_missed_what_no_poll_came_for() -> None:
    now = T0 + 10 * MINUTE
    turn = close(stored(live("running")), now)
    assert [one.run_for for one in turn.queued] == [now]
    assert [(span.n, span.verdict) for span in turn.spans] == [(9, "coalesced")]
    alone = close(stored(), now, Polls(T0 + 5 * MINUTE).at(now))
    assert [(span.n, span.verdict) for span in alone.spans] == [(5, "coalesced"), (4, "missed")]
    assert [one.run_for for one in alone.queued] == [now]


def test_runs_are_in_the_way_from_the_start_of_the_first_of_them() -> None:
    lives = live("waiting", wake_at=T0 + HOUR), live("running", run_for=T0 + MINUTE, started_at=T0 + 5 * MINUTE)
    turn = close(stored(*lives, overlap="skip"), T0 + 10 * MINUTE)
    assert turn.queued == []
    assert [(span.from_at, span.n, span.reason) for span in turn.spans] == [(T0 + MINUTE, 10, "overlap")]


def test_an_edit_wakes_a_retry_that_quiet_hours_put_off_and_no_other() -> None:
    now = T0 + SECOND
    asleep, delayed = live("waiting", wake_at=QUIET_END), live("waiting", wake_at=now + 5 * SECOND)
    assert [one.wake_at for one in close(stored(asleep, quiet=True), now).put_off] == [AT_ONCE]
    assert close(stored(delayed, quiet=True), now).put_off == []


def test_a_retry_that_is_preempted_by_an_edit_is_not_put_off_as_well() -> None:
    asleep = live("waiting", wake_at=QUIET_END)
    before = stored(asleep, cursor=T0 - HOUR, quiet=True, retry_vs_new="preempt")
    turn = close(before, T0 + SECOND)
    assert [one.run_for for one in turn.queued] == [T0 - 31 * MINUTE], "the last before quiet hours began"
    assert turn.preempted == [asleep]
    assert turn.put_off == []


def test_a_schedule_that_goes_in_quiet_hours_has_skipped_what_lies_in_them() -> None:
    turn = drop(stored(cursor=T0 - 32 * MINUTE, quiet=True), T0)
    told = [(span.from_at, span.n, span.verdict, span.reason) for span in turn.spans]
    assert told == [
        (T0 - 31 * MINUTE, 1, "missed", "deleted"),
        (T0 - 30 * MINUTE, 31, "skipped", "quiet hours"),
    ]

"""The rule of declared tasks against an oracle that walks every occurrence; and the short way against the whole one."""

from __future__ import annotations

from datetime import UTC
from typing import Any, Literal
from zoneinfo import ZoneInfo

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from noonbell.core.decide import decide
from noonbell.core.records import LiveRun, Span
from noonbell.core.terms import Position, declared_terms
from noonbell.core.turns import declared_look, look, ordinary_declared_look
from noonbell.timing import CronTiming, cron_timing
from tests.core.test_ordinary_look import HOUR, MINUTE, SECOND, T0, schedules
from tests.effort import examples

DAY = 24 * HOUR
ZONES = (UTC, ZoneInfo("Europe/Kyiv"), ZoneInfo("Australia/Lord_Howe"))
crons = st.sampled_from(["* * * * *", "0,20,40 * * * *", "30 3 * * *", "0 * * * *", "0 0 29 2 *"])
offsets = st.integers(-3 * HOUR, 3 * HOUR)
modes: st.SearchStrategy[Literal["preempt", "finish"]] = st.sampled_from(["preempt", "finish"])


@st.composite
def lives(draw: st.DrawFn) -> LiveRun | None:
    state: Any = draw(st.sampled_from([None, "running", "queued", "waiting", "waiting"]))
    if state is None:
        return None
    wake_at = None if state == "running" else T0 + draw(offsets)
    return LiveRun(7, "scheduled", T0 - DAY, 2, None, state, 3, wake_at, T0 - DAY, T0 - DAY, 0, 3, "cron")


def occurrences(timing: CronTiming, after: int, upto: int) -> list[int]:
    found: list[int] = []
    at = timing.following(after)
    while at is not None and at <= upto:
        found.append(at)
        at = timing.following(at)
    return found


def spans(due: list[int], reason: str) -> tuple[Span, ...]:
    return (Span(7, due[0], due[-1], len(due), "coalesced", reason, 3),) if due else ()


@settings(max_examples=examples(400), deadline=None)
@given(crons, st.sampled_from(ZONES), offsets, offsets, lives(), modes)
def test_the_rule_against_an_oracle(
    cron: str, zone: Any, cursor: int, now: int, live: LiveRun | None, mode: Literal["preempt", "finish"]
) -> None:
    timing = cron_timing(cron, zone)
    cursor, now = T0 + cursor, T0 + now
    due = occurrences(timing, cursor, now)
    found = decide(Position(7, 3, cursor, live=live), declared_terms(timing, mode), now)
    start = found.start
    following = timing.following(max(cursor, now))
    if live is not None and live.state == "running":
        assert (start, found.spans, found.cursor_at, found.next_run_at) == (None, (), cursor, None)
        return
    waits = live is not None and live.state == "waiting" and not (due and mode == "preempt")
    if live is not None and (live.state == "queued" or waits):
        reason = f"folded into the {'cron' if live.state == 'queued' else 'retry'} run"
        assert found.spans == spans(due, reason)
        if live.state == "queued" or (live.wake_at or 0) <= now:
            event("again")
            assert start is not None
            assert (start.run_for, start.fence, start.attempt) == (live.run_for, live.fence + 1, live.attempt + 1)
            assert (found.cursor_at, found.next_run_at, start.following) == (max(now, cursor), None, following)
        else:
            assert (start, found.cursor_at) == (None, due[-1] if due else cursor)
            assert found.next_run_at == following
        return
    if not due:
        assert (start, found.spans, found.cursor_at, found.next_run_at) == (None, (), cursor, following)
        return
    event("fired")
    assert start is not None
    assert (start.run_for, start.fence, start.cause, start.preempted) == (due[-1], 1, "cron", live)
    assert found.spans == spans(due[:-1], "one run for all that was due")
    assert (found.cursor_at, found.next_run_at) == (now, following)


@settings(max_examples=examples(200), deadline=None)
@given(
    schedules(), crons, st.sampled_from([T0 + offset for offset in (0, 1, SECOND, 30 * SECOND, MINUTE, -HOUR, HOUR)])
)
def test_the_short_way_gives_what_the_whole_way_gives(stored: Any, cron: str, now: int) -> None:
    stored = replace(stored, enabled=True)
    terms = declared_terms(cron_timing(cron, UTC), "preempt")
    short = ordinary_declared_look(stored, now, terms)
    event(f"answered {short is not None}")
    assume(short is not None)
    whole = declared_look(stored, now, terms)
    for name in whole.__struct_fields__:
        mine, its = getattr(short, name), getattr(whole, name)
        assert (list(mine) == its) if isinstance(its, list) else (mine == its), name
    assert list(look(stored, now, terms=terms).starts) == whole.starts

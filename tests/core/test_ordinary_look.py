"""The short way of a look gives what the whole way gives, wherever it answers at all."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from noonbell.core.presence import GRACE_US, Gap
from noonbell.core.records import Definition, LiveRun, ScheduleColumns, StoredSchedule
from noonbell.core.turns import Looks, look, whole_look
from tests.effort import examples

encode = msgspec.json.encode

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
T0 = 1_772_618_400 * SECOND  # 2026-03-04 10:00 UTC, a Wednesday
NEAR = (0, 1, -1, SECOND, 20 * SECOND, -SECOND, MINUTE, -MINUTE, GRACE_US + 1, 5 * MINUTE, -HOUR, HOUR)
QUIET = '{"windows":[{"weekdays":[0,1,2,3,4,5,6],"from":"09:30","to":"10:02","timezone":"UTC"}]}'

kinds = st.one_of(
    st.tuples(
        st.just("cron"),
        st.sampled_from(["* * * * *", "0,2,4,6 * * * *", "0 10 * * *", "30 2 * * *", "0 0 29 2 *"]),
    ),
    st.tuples(st.just("interval"), st.sampled_from(["1", "30", "60", "90", "3600"])),
    st.tuples(
        st.just("one_shot"),
        st.sampled_from(["2026-03-04T10:00Z", "2026-03-04T10:01Z", "2026-03-04T09:00Z", "2026-03-04T12:00"]),
    ),
)
near_t0 = st.sampled_from([T0 + offset for offset in NEAR])
definitions = st.builds(
    Definition,
    overlap=st.sampled_from(["coalesce", "skip", "allow"]),
    cap=st.sampled_from([1, 3]),
    retry_vs_new=st.sampled_from(["finish", "preempt"]),
    dst=st.sampled_from(["literal", "once"]),
    start_at=st.sampled_from([None, None, T0 - HOUR, T0, T0 + MINUTE]),
    end_at=st.sampled_from([None, None, T0 + MINUTE, T0 + 2 * HOUR]),
    jitter_us=st.sampled_from([0, 0, SECOND // 2, 20 * SECOND, 4 * HOUR]),
)


@st.composite
def schedules(draw: st.DrawFn) -> StoredSchedule:
    kind, spec = draw(kinds)
    catch_up = draw(st.sampled_from(["skip", "run_once", "run_all_capped"]))
    zone = draw(st.sampled_from(["UTC", "Europe/Kyiv", "Australia/Lord_Howe"]))
    definition = msgspec.json.encode(draw(definitions)).decode()
    cursor = draw(st.one_of(near_t0, st.sampled_from([T0 - 1, T0 - 30 * SECOND, T0 - 90 * SECOND])))
    backlog = draw(st.sampled_from([None] * 9 + [2]))
    began = draw(st.one_of(st.none(), near_t0))
    return StoredSchedule(
        sid=7,
        schedule_id=draw(st.sampled_from(["a", "b"])),
        columns=ScheduleColumns("n", kind, spec, zone, None, catch_up, None, definition),
        enabled=draw(st.sampled_from([True] * 9 + [False])),
        managed_by="api",
        lane="default",
        created_at=0,
        updated_at=0,
        next_run_at=None,
        last_run_at=None,
        last_attempt_at=None,
        last_success_at=None,
        last_failure_at=None,
        epoch=3,
        cursor_at=cursor,
        anchor_at=draw(st.sampled_from([cursor, T0, T0 - HOUR])) if kind == "interval" else None,
        backlog_left=backlog,
        backlog_until=None if backlog is None else cursor + 5 * MINUTE,
        last_run_for=draw(st.one_of(st.none(), near_t0)),
        quiet=draw(st.sampled_from([None] * 9 + [QUIET])),
        ran=None if began is None else (began, began + draw(st.sampled_from([0, SECOND, HOUR]))),
        lives=[_live(draw)] if draw(st.integers(0, 9)) == 9 else [],
    )


def _live(draw: st.DrawFn) -> LiveRun:
    state: Any = draw(st.sampled_from(["queued", "running", "waiting"]))
    return LiveRun(7, "scheduled", T0 - HOUR, 2, None, state, 1, T0, T0 - HOUR, T0 - HOUR, 0, 3, "cron")


@settings(max_examples=examples(200), deadline=None)
@given(
    schedules(),
    st.one_of(near_t0, st.sampled_from([T0, T0 + SECOND, T0 + 30 * SECOND])),
    st.lists(st.tuples(st.sampled_from([T0 - 24 * HOUR, T0 - HOUR, T0 - MINUTE, T0]), near_t0), max_size=2),
)
def test_the_short_way_agrees_with_the_whole_way(
    stored: StoredSchedule, now: int, bounds: list[tuple[int, int]]
) -> None:
    if stored.columns.type == "interval":
        assume((stored.anchor_at or 0) <= now + HOUR)
    gaps = [Gap(since, until) for since, until in bounds if since < until <= now]
    gaps = gaps if len(gaps) < 2 or gaps[0].until <= gaps[1].since else gaps[:1]
    short, whole = Looks(now, gaps).ordinary(stored), whole_look(stored, now, gaps)
    if short is None:
        event("left to the whole way")
    else:
        event("fired" if short.starts else "nothing due")
        assert encode(short) == encode(whole)  # what an ordinary turn has none of is one empty tuple for all
    assert encode(look(stored, now, gaps)) == encode(whole)


def test_the_short_way_is_taken() -> None:
    """Else the comparison above would hold without being asked."""
    stored = ordinary(cursor=T0 - MINUTE)
    found = Looks(T0 + SECOND).ordinary(stored)
    assert found is not None
    assert [start.run_for for start in found.starts] == [T0]
    idle = Looks(T0 + SECOND).ordinary(ordinary(cursor=T0))
    assert idle is not None
    assert (list(idle.starts), idle.next_run_at) == ([], T0 + MINUTE)


def ordinary(cursor: int) -> StoredSchedule:
    columns = ScheduleColumns("n", "cron", "* * * * *", "UTC", None, "skip", None, "{}")
    return StoredSchedule(
        7, "a", columns, enabled=True, managed_by="api", lane="default", created_at=0, updated_at=0, next_run_at=None,
        last_run_at=None, last_attempt_at=None, last_success_at=None, last_failure_at=None, epoch=1, cursor_at=cursor,
        anchor_at=None, backlog_left=None, backlog_until=None, last_run_for=None, quiet=None, ran=None, lives=[],
    )  # fmt: skip

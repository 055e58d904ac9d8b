"""What a channel holds back: windows, the bucket, summaries, repeats after a crash."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from noonbell.notify import channel_limits as limits
from noonbell.notify.channel_limits import MINUTE, ChannelState
from noonbell.notify.notice_records import Notice
from noonbell.notify.notice_text import render, summary_of

SECOND = 1_000_000
T0 = 1_772_625_600_000_000


def notice(
    number: int, at: int = T0, *, subject: str = "s", window: int = 600 * SECOND, event: str = "failed"
) -> Notice:
    return Notice(f"{subject}:{number}/{event}", event, at, "schedule", subject, subject, "default", window_us=window)  # type: ignore[arg-type]  # one of the events


def handle(state: ChannelState, one: Notice, now: int, rate: int | None) -> str:
    judged = limits.judge(state, one, now, rate)
    if judged == "send":
        limits.note_sent(state, one, now, rate)
    elif judged == "hold":
        limits.note_held(state, one, now)
    return judged


def test_the_same_event_within_the_window_is_held_another_is_not() -> None:
    state = ChannelState("l", "c")
    assert handle(state, notice(1), T0, 20) == "send"
    assert handle(state, notice(2), T0 + SECOND, 20) == "hold"
    assert handle(state, notice(3, event="recovered"), T0 + SECOND, 20) == "send"
    assert handle(state, notice(4, subject="t"), T0 + SECOND, 20) == "send"
    assert state.due_at == T0 + 600 * SECOND
    assert limits.due_for_summary(state, T0 + 599 * SECOND, 20) == []
    (held,) = limits.due_for_summary(state, T0 + 600 * SECOND, 20)
    assert held.count == 1


def test_a_schedule_and_a_monitor_of_one_id_are_two() -> None:
    state = ChannelState("l", "c")
    beats = [msgspec.structs.replace(notice(n), id=f"m{n}/failed", subject="monitor") for n in (1, 2)]
    assert handle(state, notice(1), T0, 20) == "send"
    assert handle(state, beats[0], T0 + SECOND, 20) == "send"
    assert handle(state, beats[1], T0 + 2 * SECOND, 20) == "hold"
    assert handle(state, notice(2), T0 + 2 * SECOND, 20) == "hold"
    assert len(limits.due_for_summary(state, T0 + 601 * SECOND, 20)) == 2


def test_windows_that_are_stored_hold_back() -> None:
    stored = f'{{"lane":"l","channel_id":"c","windows":{{"s\\nfailed":{T0 + MINUTE}}}}}'
    state = msgspec.json.decode(stored, type=ChannelState)
    assert handle(state, notice(1), T0, 20) == "hold"


def test_without_a_window_everything_is_told() -> None:
    state = ChannelState("l", "c")
    assert [handle(state, notice(n, window=0), T0, None) for n in range(50)] == ["send"] * 50


def test_the_bucket_fills_again() -> None:
    state = ChannelState("l", "c")
    first = [handle(state, notice(n, subject=f"s{n}"), T0, 4) for n in range(6)]
    assert first == ["send"] * 4 + ["hold"] * 2
    later = T0 + MINUTE // 4
    assert handle(state, notice(7, subject="s7"), later, 4) == "send"
    assert handle(state, notice(8, subject="s8"), later, 4) == "hold"


def test_a_clock_that_is_set_back_fills_nothing() -> None:
    state = ChannelState("l", "c")
    assert handle(state, notice(1, subject="a"), T0, 1) == "send"
    assert handle(state, notice(2, subject="b"), T0 - MINUTE, 1) == "hold"


def test_what_comes_again_after_a_crash_is_known() -> None:
    state = ChannelState("l", "c")
    handle(state, notice(1), T0, 20)
    handle(state, notice(2), T0, 20)
    again = msgspec.json.decode(msgspec.json.encode(state), type=ChannelState)
    assert [handle(again, notice(n), T0, 20) for n in (1, 2)] == ["known", "known"]
    assert sum(held.count for held in again.held.values()) == 1


def test_a_flood_of_subjects_is_counted_together() -> None:
    state = ChannelState("l", "c")
    for number in range(1_000):
        handle(state, notice(number, subject=f"s{number}"), T0, 1)
    assert len(state.held) <= limits.MOST_HELD + 1
    told = limits.due_for_summary(state, T0 + MINUTE, 1)
    assert sum(held.count for held in told) == 999
    letter = summary_of("c", told, T0)
    assert letter.title == "999 notices were held back"
    assert letter.text.count("\n") == 20


@given(
    st.lists(st.tuples(st.integers(0, 120), st.integers(0, 3), st.sampled_from(["failed", "late"])), max_size=80),
    st.one_of(st.none(), st.integers(1, 5)),
)
def test_nothing_is_lost_and_no_limit_is_broken(steps: list[tuple[int, int, str]], rate: int | None) -> None:
    state, now, said = ChannelState("l", "c"), T0, 0
    sends: list[int] = []
    last: dict[tuple[int, str], int] = {}
    for number, (pause, subject, event) in enumerate(steps):
        now += pause * SECOND
        told = limits.due_for_summary(state, now, rate)
        if told:
            said += sum(held.count for held in told)
            limits.note_summarised(state, told, now, rate)
            sends.append(now)
        one = notice(number, now, subject=str(subject), window=60 * SECOND, event=event)
        if handle(state, one, now, rate) == "send":
            said += 1
            sends.append(now)
            assert now - last.get((subject, event), 0) >= 60 * SECOND
            last[subject, event] = now
    assert said + sum(held.count for held in state.held.values()) == len(steps)
    if rate is not None:
        for begin in sends:
            # a full bucket and what flows into it within the minute
            assert sum(begin <= at < begin + MINUTE for at in sends) <= 2 * rate


def test_a_text_of_a_rule_is_filled_once_and_shown_as_it_is() -> None:
    one = msgspec.structs.replace(
        notice(1), name="{{error}}", error="<b>{{name}}</b>", title="{{name}} / {{ event }}", text="{{error}}\n{{team}}"
    )
    letter = render(one)
    assert letter.title == "{{error}} / failed"
    assert letter.text == "<b>{{name}}</b>\ndefault"


def test_a_title_that_comes_out_empty_gives_way_to_the_usual_one() -> None:
    assert render(msgspec.structs.replace(notice(1, event="recovered"), title="{{error}}")).title == "s works again"

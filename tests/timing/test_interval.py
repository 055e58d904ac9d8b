"""Every N seconds from an anchor: against counting step by step; and what is no interval."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonbell.errors import IntervalInvalidError, NoonbellError
from noonbell.timing import IntervalTiming, Timing, parse_interval

SECOND = 1_000_000
END_OF_CALENDAR = 253_402_300_800 * SECOND


def steps(anchor: int, every: int, end: int) -> list[int]:
    """Each occurrence up to `end`, one after the other."""
    found = []
    at = anchor
    while (at := at + every) <= end:
        found.append(at)
    return found


@given(
    st.integers(-(10**15), 10**16),
    st.integers(1, 3 * 10**11),
    st.lists(st.tuples(st.integers(-3, 40), st.integers(-1, 1)), min_size=2, max_size=6),
)
def test_arithmetic_is_counting(anchor: int, every: int, places: list[tuple[int, int]]) -> None:
    timing: Timing = IntervalTiming(anchor, every)
    truth = steps(anchor, every, anchor + 50 * every)
    moments = [anchor + k * every + step for k, step in places]  # on the occurrences and beside them
    for at in moments:
        passed = [t for t in truth if t <= at]
        ahead = [t for t in truth if t > at]
        assert timing.latest(at) == (passed[-1] if passed else None)
        assert timing.following(at) == ahead[0]
        look = timing.look(at)
        assert look.latest == (passed[-1] if passed else None)
        assert look.before == (passed[-2] if len(passed) > 1 else None)
        assert look.following == ahead[0]
        for upto in moments:
            assert timing.count(at, upto) == len([t for t in truth if at < t <= upto])


def test_the_anchor_is_no_occurrence() -> None:
    timing = IntervalTiming(1000, 30 * SECOND)
    assert timing.latest(1000) is None
    assert timing.following(0) == timing.following(1000) == 1000 + 30 * SECOND
    assert timing.look(1000 + 30 * SECOND) == (1000 + 30 * SECOND, None, 1000 + 60 * SECOND)


def test_it_ends_with_the_calendar() -> None:
    timing = IntervalTiming(END_OF_CALENDAR - 25 * SECOND, 10 * SECOND)
    assert timing.following(END_OF_CALENDAR - 15 * SECOND) == END_OF_CALENDAR - 5 * SECOND
    assert timing.following(END_OF_CALENDAR - 5 * SECOND) is None
    assert timing.count(0, 2 * END_OF_CALENDAR) == 2
    assert timing.latest(2 * END_OF_CALENDAR) == END_OF_CALENDAR - 5 * SECOND


@pytest.mark.parametrize("every", [0, -1])
def test_it_has_to_move(every: int) -> None:
    with pytest.raises(ValueError, match=f"every_us is {every}"):
        IntervalTiming(0, every)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("1", 1), (" 30\t", 30), ("0090", 90), ("3155760000", 3_155_760_000)]
)
def test_whole_seconds_are_read(text: str, seconds: int) -> None:
    assert parse_interval(text) == seconds


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty; a whole number of seconds is needed"),
        ("  ", "is empty; a whole number of seconds is needed"),
        ("0", "must be at least 1 second"),
        ("000", "must be at least 1 second"),
        ("-5", "must be at least 1 second"),
        ("1.5", "must be a whole number of seconds"),
        ("0,5", "must be a whole number of seconds"),
        ("+30", 'must be a whole number of seconds, such as "30"'),
        ("1_000", 'must be a whole number of seconds, such as "30"'),
        ("1e3", 'must be a whole number of seconds, such as "30"'),
        ("３０", 'must be a whole number of seconds, such as "30"'),
        ("٣٠", 'must be a whole number of seconds, such as "30"'),
        ("30\n", 'must be a whole number of seconds, such as "30"'),
        ("*/5 * * * *", 'must be a whole number of seconds, such as "30"'),
        ("P", 'must be a whole number of seconds, such as "30"'),
        ("3155760001", "is longer than a century (3155760000 seconds)"),
        ("9" * 5000, "is longer than a century (3155760000 seconds)"),
    ],
)
def test_anything_else_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(IntervalInvalidError) as raised:
        parse_interval(text)
    error = raised.value
    assert (error.expression, error.field, error.reason, error.suggestion) == (text, "spec", reason, None)
    assert str(error).startswith('Invalid interval "')
    assert str(error).endswith(f'": {reason}')
    assert len(str(error)) < 250


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("30s", "30"),
        ("5m", "300"),
        ("5 min", "300"),
        ("1h30m", "5400"),
        ("2 Hours", "7200"),
        ("1 day", "86400"),
        ("1w", "604800"),
        ("PT30S", "30"),
        ("pt1h", "3600"),
        ("P1DT1M", "86460"),
        ("0s", None),
        ("99999w", None),
    ],
)
def test_units_are_refused_with_the_number_they_stand_for(text: str, suggestion: str | None) -> None:
    with pytest.raises(IntervalInvalidError, match="has a unit") as raised:
        parse_interval(text)
    assert raised.value.suggestion == suggestion
    if suggestion is not None:
        assert raised.value.__notes__ == [f"The same interval in seconds: {suggestion}"]
        assert parse_interval(suggestion) == int(suggestion)


def test_a_value_that_is_no_text_is_refused() -> None:
    with pytest.raises(IntervalInvalidError, match="must be text, not int"):
        parse_interval(30)  # type: ignore[arg-type]  # the mistake under test


def test_the_error_travels_between_processes() -> None:
    with pytest.raises(NoonbellError) as raised:
        parse_interval("5m")
    again = pickle.loads(pickle.dumps(raised.value))  # noqa: S301 - made in the line itself
    assert (str(again), again.suggestion, again.details) == (str(raised.value), "300", raised.value.details)

"""CronExpression as a value: equality, hash, immutability, laziness, and clear errors for wrong arguments."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import cache
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.cron import CronExpression, parse, zone_of
from noonbell.errors import CronError, NaiveDatetimeError
from tests.cron.cases import expression_texts
from tests.cron.oracle import Shape, civil_days
from tests.effort import examples

NEW_YORK = ZoneInfo("America/New_York")

# Leap and common years that begin on each weekday: what two expressions match in these, they match everywhere.
ALL_KINDS_OF_YEAR = range(2000, 2028)


@cache
def minutes_matched(text: str) -> tuple[frozenset[int], frozenset[int], frozenset[date]]:
    """What an expression matches, in full: its minutes, its hours and its days."""
    shape = Shape(text)
    day, days = datetime(ALL_KINDS_OF_YEAR[0], 1, 1, tzinfo=UTC), set()
    while day.year in ALL_KINDS_OF_YEAR:
        if shape.day_shown(day):
            days.add(day.date())
        day += timedelta(days=1)
    return frozenset(shape.minutes), frozenset(shape.hours), frozenset(days)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0 0 * * *", "00  0 *\t* *"),
        ("0 0 * * *", "0 0 1-31 * *"),
        ("0 0 * * *", "0 0 * * 0-6"),
        ("0 0 * * *", "0 0 5 * 0-6"),
        ("0 0 * * *", "0 0 * 1-12 *"),
        ("1,2,3 * * * *", "3,1-2,2 0-23 * * *"),
        ("0 0 31 1,2 *", "0 0 31 1,4 *"),
        ("0 0 31 2 1", "0 0 30 2 1"),
        ("0 0 28-31 2 *", "0 0 28,29 2 *"),
    ],
)
def test_equal_when_the_same_minutes_match(one: str, other: str) -> None:
    assert minutes_matched(one) == minutes_matched(other)
    assert parse(one) == parse(other)
    assert hash(parse(one)) == hash(parse(other))
    assert len({parse(one), parse(other)}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0 0 * * *", "1 0 * * *"),
        ("0 0 * * 1", "0 0 1-31 * 1"),
        ("0 0 1 * *", "0 0 1 * 1"),
        ("0 0 28 2 *", "0 0 28,29 2 *"),
        ("0 0 1-30 * *", "0 0 * * *"),
    ],
)
def test_not_equal_when_some_minute_differs(one: str, other: str) -> None:
    assert minutes_matched(one) != minutes_matched(other)
    assert parse(one) != parse(other)


small_days = st.sampled_from(("*", "1-31", "29", "29-31", "30", "31", "1,15", "1-29"))
small_months = st.sampled_from(("*", "1-12", "2", "2,4", "4,6", "1"))
small_weekdays = st.sampled_from(("*", "0-6", "0", "1-5", "0,1-6"))


@given(*[small_days, small_months, small_weekdays] * 2)
@settings(max_examples=examples(60))
def test_equality_is_exactly_the_matched_minutes(d1: str, m1: str, w1: str, d2: str, m2: str, w2: str) -> None:
    texts = [f"0 0 {d1} {m1} {w1}", f"0 0 {d2} {m2} {w2}"]
    if any(not minutes_matched(text)[2] for text in texts):
        return  # parse refuses what never matches; test_parser sees to that
    one, other = map(parse, texts)
    same = minutes_matched(texts[0]) == minutes_matched(texts[1])
    assert (one == other) is same
    if same:
        assert hash(one) == hash(other)


def test_not_equal_to_other_things() -> None:
    assert parse("0 0 * * *") != "0 0 * * *"
    assert parse("0 0 * * *") is not None


@pytest.mark.parametrize("name", ["text", "minutes", "day_restricted", "anything", "_times"])
def test_immutable(name: str) -> None:
    expression = parse("0 0 * * *")
    expression.next(datetime(2024, 1, 1, tzinfo=UTC))
    with pytest.raises(AttributeError):
        setattr(expression, name, "x")
    with pytest.raises(AttributeError):
        delattr(expression, name)
    assert not hasattr(expression, "__dict__")


def test_text_is_kept_as_typed_and_copies_are_equal() -> None:
    text = "  05  0-3\t* *  1 "
    expression = parse(text)
    assert expression.text == str(expression) == text
    for twin in (copy.copy(expression), copy.deepcopy(expression), pickle.loads(pickle.dumps(expression))):  # noqa: S301 - our own bytes
        assert isinstance(twin, CronExpression)
        assert twin == expression
        assert twin.text == text
        assert (twin.day_restricted, twin.weekday_restricted) == (False, True)


@given(expression_texts())
def test_sets_are_what_the_fields_say(text: str) -> None:
    expression, shape = parse(text), Shape(text)
    assert expression.minutes == shape.minutes
    assert expression.hours == shape.hours
    assert expression.days == shape.days
    assert expression.months == shape.months
    assert expression.weekdays == shape.weekdays
    assert (expression.day_restricted, expression.weekday_restricted) == (shape.texts[2] != "*", shape.texts[4] != "*")


AT = datetime(2024, 1, 1, tzinfo=UTC)
NAIVE = datetime(2024, 1, 1)  # noqa: DTZ001 - naive on purpose


@pytest.mark.parametrize(
    "ask",
    [
        lambda e: e.next(NAIVE),
        lambda e: e.previous(NAIVE),
        lambda e: e.matches(NAIVE),
        lambda e: e.count(NAIVE, AT),
        lambda e: e.count(AT, NAIVE),
        lambda e: e.between(NAIVE, AT),
        lambda e: e.between(AT, NAIVE),
    ],
)
def test_a_naive_datetime_is_a_clear_error_at_once(ask: Callable[[CronExpression], Any]) -> None:
    with pytest.raises(NaiveDatetimeError, match="no time zone") as caught:
        ask(parse("* * * * *"))
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, CronError)


@pytest.mark.parametrize(
    "ask",
    [
        lambda e: e.next(AT, dst="twice"),
        lambda e: e.previous(AT, dst="twice"),
        lambda e: list(e.between(AT, AT + timedelta(1), dst="twice")),
        lambda e: e.count(AT, AT + timedelta(1), dst="twice"),
    ],
)
def test_an_unknown_policy_is_a_clear_error(ask: Callable[[CronExpression], Any]) -> None:
    with pytest.raises(ValueError, match="'literal' or 'once'"):
        ask(parse("0 2 * * *"))


@pytest.mark.parametrize(
    "zone", [UTC, NEW_YORK, timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(seconds=-2670))]
)
def test_results_are_in_the_zone_of_the_argument(zone: tzinfo) -> None:
    expression = parse("7 3 * * *")
    start = datetime(2024, 6, 1, 3, 7, tzinfo=zone)
    found = [expression.next(start), expression.previous(start), *expression.between(start, start + timedelta(days=2))]
    assert found == [start + timedelta(days=1), start, start, start + timedelta(days=1)]
    assert {at.tzinfo for at in found} == {zone}
    assert {(at.hour, at.minute, at.second, at.microsecond) for at in found} == {(3, 7, 0, 0)}


def test_the_end_of_a_stretch_may_lie_in_another_zone() -> None:
    hourly = parse("0 * * * *")
    end = datetime(2024, 1, 1, 3, tzinfo=UTC).astimezone(NEW_YORK)
    assert list(hourly.between(AT, end)) == [AT, AT + timedelta(hours=1), AT + timedelta(hours=2)]
    assert hourly.count(AT, end) == 3


def test_intervals_are_half_open_and_may_be_empty_or_reversed() -> None:
    hourly, hour, tick = parse("0 * * * *"), timedelta(hours=1), timedelta(microseconds=1)
    for start, end, wanted in (
        (AT, AT, []),
        (AT + hour, AT, []),
        (AT, AT + tick, [AT]),
        (AT + tick, AT + hour, []),
        (AT + tick, AT + hour + tick, [AT + hour]),
    ):
        assert list(hourly.between(start, end)) == wanted
        assert hourly.count(start, end) == len(wanted)
    assert hourly.next(AT - tick) == AT
    assert hourly.next(AT) == hourly.next(AT + tick) == AT + hour
    assert hourly.previous(AT) == hourly.previous(AT + hour - tick) == AT
    assert hourly.previous(AT - tick) == AT - hour


def test_between_is_lazy() -> None:
    forever = parse("* * * * *").between(AT, datetime(9999, 1, 1, tzinfo=UTC))
    assert list(islice(forever, 3)) == [AT + timedelta(minutes=n) for n in range(3)]


def test_count_enumerates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("count walked through occurrences")

    for name in ("epochs_between", "between", "next_epoch", "previous_epoch", "next", "previous"):
        monkeypatch.setattr(CronExpression, name, refuse)
    year = (datetime(2023, 1, 1, tzinfo=NEW_YORK), datetime(2024, 1, 1, tzinfo=NEW_YORK))
    assert parse("* * * * *").count(*year) == 365 * 24 * 60
    assert parse("30 1 * * *").count(*year) == 366  # 01:30 came twice on one day
    assert parse("30 1 * * *").count(*year, dst="once") == 365
    assert parse("30 2 * * *").count(*year) == 364  # and 02:30 not at all on another
    assert parse("30 2 * * *").count(*year, dst="once") == 365
    ages = (datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC))
    assert parse("* * * * *").count(*ages) == (ages[1] - ages[0]) // timedelta(minutes=1)
    # 9,998 years are 24 spells of 400 years with 97 leap days each, and 398 years with 96
    assert parse("0 0 29 2 *").count(*ages) == 24 * 97 + 96


@given(expression_texts(), st.integers(1950, 2080), st.integers(1, 400))
@settings(max_examples=examples(40))
def test_count_equals_enumeration(text: str, year: int, days: int) -> None:
    expression, start = parse(text), datetime(year, 1, 1, 0, 0, 30, tzinfo=NEW_YORK)
    end = start + timedelta(days=days)
    for policy in ("literal", "once"):
        low, high, zone = int(start.timestamp()), int(end.timestamp()), zone_of(NEW_YORK)
        listed = sum(1 for _ in expression.epochs_between(low, high, zone, policy))
        assert expression.count(start, end, dst=policy) == listed


@given(expression_texts())
@settings(max_examples=examples(40))
def test_minimum_spacing_is_the_least_of_all_distances(text: str) -> None:
    # 28 years hold every kind of turn of the year; few times a day keep them short
    civil = datetime(2000, 1, 1)  # noqa: DTZ001 - civil time without a zone
    shape = Shape(text)
    minutes, hours = sorted(shape.minutes)[:2], sorted(shape.hours)[:2]
    thin = " ".join([",".join(map(str, minutes)), ",".join(map(str, hours)), *shape.texts[2:]])
    found, before = None, None
    for at in civil_days(Shape(thin), civil, civil.replace(year=2029)):
        if before is not None and (found is None or at - before < found):
            found = at - before
        before = at
        if found is not None and found <= timedelta(minutes=1):
            break
    assert parse(thin).minimum_spacing() == found


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("* * * * *", timedelta(minutes=1)),
        ("0 0 * * *", timedelta(days=1)),
        ("0 0,23 * * *", timedelta(hours=1)),
        ("0 0,23 * * 1", timedelta(hours=23)),
        ("0 0 1 * *", timedelta(days=28)),
        ("0 0 1,31 * *", timedelta(days=1)),
        ("0 0 29 2 *", timedelta(days=1461)),
        ("0 0 1 1 *", timedelta(days=365)),
        ("59 23 31 12 *", timedelta(days=365)),
        ("0 0 28 2 1", timedelta(days=1)),
        ("0 0 1 1 0", timedelta(days=1)),
    ],
)
def test_minimum_spacing_in_plain_sight(text: str, wanted: timedelta) -> None:
    assert parse(text).minimum_spacing() == wanted

"""What is not understood: where it stops, why, what could stand there, and phrases that come near."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest

from noonbell.errors import LanguageError
from noonbell.language import parse

NOW = datetime(2026, 11, 16, 10, 20, 30, tzinfo=UTC)


def refused(text: str, timezone: str = "Europe/Kyiv") -> LanguageError:
    with pytest.raises(LanguageError) as caught:
        parse(text, now=NOW, timezone=timezone)
    error = caught.value
    assert error.text == text
    assert error.word == text[error.position : error.end]
    # what is suggested is understood, and is something else
    for suggestion in error.suggestions:
        assert suggestion != text
        assert parse(suggestion, now=NOW, timezone=timezone).spec
    return error


@pytest.mark.parametrize(
    ("text", "word", "suggestion"),
    [
        ("evry day", "evry", "every day"),
        ("every dya at 9am", "dya", "every day at 9am"),
        ("every weekdya at 9m", "weekdya", "every weekday at 9am"),
        ("tommorow at 5pm", "tommorow", "tomorrow at 5pm"),
        ("every wensday at noon", "wensday", "every wednesday at noon"),
        ("every febuary 3rd at noon", "febuary", "every february 3rd at noon"),
        ("every day at 9am in Kyev", "Kyev", "every day at 9am in Kyiv"),
        ("every day at 9am Europe/Kyjv", "Europe/Kyjv", "every day at 9am Europe/Kyiv"),
        ("evry weekdy at 9am", "evry", "every weekday at 9am"),  # two typos, mended together
        ("every purple monday", "purple", "every monday"),
        ("and at 9am", "and", "at 9am"),
    ],
)
def test_typos(text: str, word: str, suggestion: str) -> None:
    error = refused(text)
    assert error.word == word
    assert suggestion in error.suggestions


@pytest.mark.parametrize(
    ("text", "word", "suggestion"),
    [
        ("every day at 25:00", "25:00", "every day at 23:00"),
        ("every day at 24:00", "24:00", "every day at 0:00"),
        ("once on 2027-11-01T24:00Z", "2027-11-01T24:00Z", None),
        ("every day at 9:75", "9:75", "every day at 9:59"),
        ("every day at 13pm", "13pm", "every day at 13:00"),
        ("every day at 9.30am", "9.30", "every day at 9:30am"),
        ("every hour at :75", ":75", "every hour at :59"),
        ("every 31 february at noon", "31 february", "every 29 february at noon"),
        ("on 29 february 2027 at noon", "29 february 2027", "on 28 february 2027 at noon"),
        ("on the 31st of february and june at noon", None, None),
        ("on the 32nd of every month", "32nd", "on the 31st of every month"),
        ("on the 1th of every month", "1th", "on the 1st of every month"),
        ("on day 0 of the month", "0", "on day 1 of the month"),
        ("every 0 minutes", "every 0 minutes", "every minute"),
        ("5 times a day", "5 times a day", "4 times a day"),
        ("7 times an hour", "7 times an hour", "6 times an hour"),
        ("every 5 months", "every 5 months", "every 4 months"),
        ("every 2 years", "every 2 years", "every year"),
        ("at minutes 50 to 10", "50 to 10", None),
        ("in 0 minutes", "0 minutes", None),
    ],
)
def test_impossible_numbers(text: str, word: str | None, suggestion: str | None) -> None:
    if word is None:
        # one of the two months has a day 30 at most: nothing is left of 'the 31st'
        assert "no such day" in refused(text).reason
        return
    error = refused(text)
    assert error.word == word
    assert suggestion is None or suggestion in error.suggestions


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("every", "every hour"),
        ("at", "at 9am"),
        ("every day at", "every day at 9am"),
        ("every day at 9am and", None),
        ("twice", "twice a day"),
        ("tomorrow", "tomorrow at 9am"),
        ("on december 25", "on december 25 at 9am"),
        ("every morning", "every morning at 9am"),
        ("", "daily"),
    ],
)
def test_missing_words(text: str, suggestion: str | None) -> None:
    error = refused(text)
    assert error.suggestions
    assert suggestion is None or suggestion in error.suggestions
    assert error.accepted


@pytest.mark.parametrize(
    ("text", "reason", "suggestion"),
    [
        ("last day of the month", "cron has no last day", "on the first day of the month"),
        ("every other tuesday at 9am", "cron does not count weeks", "every tuesday at 9am"),
        ("every second tuesday", "cron does not count weeks", "every 2 weeks"),
        ("first monday of the month at 9am", "no n-th weekday", "every monday at 9am"),
        ("on the last friday of the month", "no n-th weekday", "every friday"),
        ("friday the 13th at noon", "either one is enough", None),
        ("every 7 minutes on weekdays", "only be an interval", "every 6 minutes on weekdays"),
        ("every 2 days at 9am", "only be an interval", "every day at 9am"),
        ("every 90 seconds from 9 to 17", "only be an interval", "every 90 seconds"),
        ("at 9:30am and 5pm", "would also fire at 09:00, 17:30", "at 5pm"),
        ("every 20 minutes from 9:30 to 12:00", "middle of an hour", "every 20 minutes from 09:00 to 12:40"),
        ("every 10 minutes from 22:00 to 02:00 on weekdays", "runs over midnight", None),
        ("every day at 9:30:15", "cron has no seconds", "every day at 09:30"),
        ("on 1 march and 2 june every year at noon", "just these dates", None),
        ("every day except sunday", "exceptions cannot be said", None),
        ("every day until friday", "end_at", None),
        ("every hour starting tomorrow", "start_at", None),
        ("every day at sunset", "sun's times", None),
        ("monthly on friday at 9am", "which friday", None),
        ("daily at 8pm UTC+2", "an offset is not a time zone", None),
        ("in 3 months", "name the date", None),
    ],
)
def test_what_cannot_be_said_is_refused_with_its_reason(text: str, reason: str, suggestion: str | None) -> None:
    error = refused(text)
    assert reason in error.reason
    assert suggestion is None or suggestion in error.suggestions


@pytest.mark.parametrize(
    ("text", "suggestions"),
    [
        ("monday at 9am", ("every monday at 9am", "next monday at 9am")),
        ("on the 15th at 9am", ("on the 15th of every month at 9am",)),
        ("every 30 minutes from 9 to 5", ("every 30 minutes from 9am to 5pm", "every 30 minutes from 9pm to 5am")),
        ("at 9 and 5pm", ("at 9am and 5pm", "at 9pm and 5pm")),
        ("every night at 7", ("every day at 7am", "every day at 7pm")),
        ("every sunday night at 1", ("every sunday at 1",)),
        ("every tuesday at 14h", ("every tuesday at 14:00",)),
        ("every tuesday at 1430", ("every tuesday at 14:30",)),
        ("biweekly", ("every 2 weeks", "every monday and thursday")),
        ("15 minutes", ("every 15 minutes", "in 15 minutes")),
        (
            "every day at 9am IST",
            tuple(f"every day at 9am {z}" for z in ("Asia/Kolkata", "Europe/Dublin", "Asia/Jerusalem")),
        ),
        ("at 9am and every monday", ("at 9am every monday", "at 9am")),
        ("twice a week", ("every monday and thursday",)),
        ("first day of the week", ("every monday", "every sunday")),
        ("january at 9am", ("every day in january at 9am",)),
        ("9-17 on weekdays", ("every hour from 9 to 17 on weekdays",)),
        ("in Kyiv", ("every day at 9am in Kyiv",)),
    ],
)
def test_two_readings_are_never_decided_silently(text: str, suggestions: tuple[str, ...]) -> None:
    assert refused(text).suggestions == suggestions


@pytest.mark.parametrize(
    "text",
    [
        "every day at 9am every day at 5pm every week",
        "every monday monday",
        "weekends tomorrow at 6pm",
        "in 10 minutes at 9am",
        "in 10 minutes on weekdays",
        "tomorrow every hour",
        "tomorrow every year at 9am",
        "every 15 minutes in the morning",
        "every 15 minutes at :05",
        "every 15 minutes at 9am",
        "twice a day at 9am",
        "every day on the 15th",
        "in Kyiv at 9am in Tokyo",
        "on tuesday 1 march 2027 at 9am",
        "every morning at 9pm",
        "at 9:00 (the second time) tomorrow",
        "1/3/2027 at noon",
        "🎉 every day",
        "every day at ٩",
        "every " * 200,
        "9" * 60,
    ],
)
def test_contradictions_and_nonsense(text: str) -> None:
    error = refused(text)
    assert error.reason


def test_what_has_passed_is_refused() -> None:
    assert refused("today at 9am").suggestions == ("tomorrow at 9am",)
    assert "has passed" in refused("on 1 march 2020 at noon").reason
    assert "has passed" in refused("2020-01-01T00:00Z").reason


def test_a_time_that_does_not_exist_is_refused_with_its_neighbours() -> None:
    error = refused("on 14 march 2027 at 2:30am", "America/New_York")
    assert "does not exist on 2027-03-14 in America/New_York" in error.reason
    assert error.suggestions == ("on 14 march 2027 at 01:30", "on 14 march 2027 at 03:30")


def test_the_place_is_marked() -> None:
    error = refused("every day at 25:00")
    assert error.marked == ("every day at 25:00", "             ^^^^^")
    assert str(error) == ('Cannot understand "every day at 25:00" at "25:00" (character 14): hours go from 0 to 23')
    assert refused("every day at").marked == ("every day at", "            ^")
    assert (error.position, error.end, error.field) == (13, 18, "text")
    assert error.details["accepted"] == ("a time from 00:00 to 23:59",)


def test_the_error_survives_pickling() -> None:
    error = refused("evry day")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    assert (again.word, again.suggestions, str(again)) == (error.word, error.suggestions, str(error))

"""What phrases mean, phrase by phrase, and what is told about what was left open."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from noonbell.errors import InvalidCronExpressionError, LanguageError, NaiveDatetimeError, ScheduleInvalidError
from noonbell.language import looks_like_cron, parse, schedule_fields

NOW = datetime(2026, 11, 16, 10, 20, 30, tzinfo=UTC)  # a Monday

INTERVAL = "this is an interval, counted from the start of the last run and not by the clock"

CRON = {
    "every weekday at 9am": "0 9 * * 1-5",
    "weekdays at 6am": "0 6 * * 1-5",
    "every monday and thursday at 14:30": "30 14 * * 1,4",
    "first day of the month at 9:30am": "30 9 1 * *",
    "every 15 minutes": "0,15,30,45 * * * *",
    "between 9 and 17 every 30 minutes on weekdays": "0,30 9-16 * * 1-5",
    "every 30 minutes from 09:00 to 17:30": "0,30 9-17 * * *",
    "every hour from 9 to 17": "0 9-17 * * *",
    "every 10 minutes from 10pm to 2am": "0,10,20,30,40,50 0,1,22,23 * * *",
    "every hour at :15": "15 * * * *",
    "half past nine every weekday": "30 9 * * 1-5",
    "at quarter to five pm": "45 16 * * *",
    "at 10 past 9am": "10 9 * * *",
    "at 10 minutes to nine": "50 8 * * *",
    "at 20 minutes before noon": "40 11 * * *",
    "5 minutes past every hour": "5 * * * *",
    "10 past the hour": "10 * * * *",
    "a quarter past every hour": "15 * * * *",
    "half past each hour": "30 * * * *",
    "5 minutes to every hour": "55 * * * *",
    "0 minutes to every hour": "0 * * * *",
    "5 and 35 past every hour": "5,35 * * * *",
    "every hour, 5 minutes past": "5 * * * *",
    "every 2 hours at 5 past": "5 0,2,4,6,8,10,12,14,16,18,20,22 * * *",
    "5 minutes past every 6th hour from 0": "5 0,6,12,18 * * *",
    "5 minutes past the hour from 9am to 5pm": "5 9-16 * * *",
    "every weekday, 5 minutes past every hour": "5 * * * 1-5",
    "every 6 hours starting at 9am": "0 3,9,15,21 * * *",
    "every 15 minutes starting at :05": "5,20,35,50 * * * *",
    "every january 1st at midnight": "0 0 1 1 *",
    "on the 15th of every month at 08:00": "0 8 15 * *",
    "on the 1st to 5th of march at noon": "0 12 1-5 3 *",
    "on 1 march and 1 september every year at noon": "0 12 1 3,9 *",
    "every quarter": "0 0 1 1,4,7,10 *",
    "weekends at 10am": "0 10 * * 0,6",
    "every night at 2": "0 2 * * *",
    "every evening at 8": "0 20 * * *",
    "every monday morning at 7:30": "30 7 * * 1",
    "at 8 in the evening on fridays": "0 20 * * 5",
    "nightly at 11": "0 23 * * *",
    "on the 13th or on any friday at noon": "0 12 13 * 5",
    "twice a week on monday and thursday at 9am": "0 9 * * 1,4",
    "every 7 minutes from 9:00 to 9:59": "0,7,14,21,28,35,42,49,56 9 * * *",
    "every 120 minutes": "0 0,2,4,6,8,10,12,14,16,18,20,22 * * *",
    "every day every 30 minutes from 9 to 17": "0,30 9-16 * * *",
    "run every day at 9am.": "0 9 * * *",
}


@pytest.mark.parametrize(("text", "spec"), CRON.items())
def test_cron(text: str, spec: str) -> None:
    understood = parse(text, now=NOW)
    assert (understood.kind, understood.spec, understood.language) == ("cron", spec, "english")


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("every weekday at 9am", ()),
        ("twice a day", ("twice a day: 00:00 and 12:00",)),
        ("at 5pm", ("no day was named: every day",)),
        ("every day at 5", ('"5" is read on the 24-hour clock: 05:00; for 17:00 say 5pm',)),
        ("every day at 5:30", ('"5:30" is read on the 24-hour clock: 05:30; for 17:30 say 5:30pm',)),
        ("every day at 12", ('"12" is read on the 24-hour clock: 12:00, at noon',)),
        ("every day at 12am", ('"12am" is 00:00, after midnight',)),
        ("every friday at midnight", ("midnight is 00:00, where the day begins",)),
        ("every day at 05:30 and 17:30", ()),
        ("every day at 9 and 17", ()),  # whoever says 17 counts to 24
        ("daily", ("no time was named: 00:00",)),
        ("weekly at 9am", ("no weekday was named: Sunday, as @weekly has it",)),
        ("monthly at 9am", ("no day was named: the first of the month",)),
        ("on the 31st of every month at 9am", ("months without a day 31 are left out",)),
        (
            "every 30 minutes from 9am to 5pm",
            ("the last one is at 16:30: 17:00 cannot be added by cron without others of its hour",),
        ),
        ("hourly from 9am to midnight", ("the last one is at 23:00: 00:00 belongs to the next day",)),
        (
            "every 7 minutes",
            (f"7 minutes do not divide an hour evenly: {INTERVAL}",),
        ),
        ("every 70 minutes", (f"70 minutes do not divide a day evenly: {INTERVAL}",)),
        ("every 5 hours", (f"5 hours do not divide a day evenly: {INTERVAL}",)),
        *(
            (
                f"every {count} minutes",
                (f"{count} minutes are no whole number of hours, which cron would need: {INTERVAL}",),
            )
            for count in (72, 80, 90, 96, 144)
        ),
        (
            "at noon on 1 march",
            ('"1 march" without a year or an "every" comes once, in 2027; for each year say "every 1 march"',),
        ),
    ],
)
def test_what_was_left_open_is_told(text: str, notes: tuple[str, ...]) -> None:
    assert parse(text, now=NOW).notes == notes


# --- zones ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "zone"),
    [
        ("in Kyiv", "Europe/Kyiv"),
        ("in kiev", "Europe/Kiev"),
        ("in São Paulo", "America/Sao_Paulo"),
        ("in new york", "America/New_York"),
        ("New York time", "America/New_York"),
        ("in San Francisco", "America/Los_Angeles"),
        ("europe/berlin", "Europe/Berlin"),
        ("in America/Argentina/Buenos_Aires", "America/Argentina/Buenos_Aires"),
        ("in Port-au-Prince", "America/Port-au-Prince"),
        ("in Indianapolis", "America/Indianapolis"),
        ("UTC", "UTC"),
        ("GMT", "UTC"),
        ("in Singapore", "Asia/Singapore"),
        ("in Poland", "Poland"),
    ],
)
def test_zones(words: str, zone: str) -> None:
    understood = parse(f"9am {words}", now=NOW, timezone="Asia/Tokyo")
    assert (understood.timezone, understood.zone_named, understood.spec) == (zone, True, "0 9 * * *")
    assert parse(f"{words} every monday at 9am", now=NOW).timezone == zone


def test_without_a_zone_the_given_one_holds() -> None:
    understood = parse("9am", now=NOW, timezone="Asia/Tokyo")
    assert (understood.timezone, understood.zone_named) == ("Asia/Tokyo", False)
    assert parse("9am", now=NOW, timezone=ZoneInfo("Asia/Tokyo")).timezone == "Asia/Tokyo"
    assert parse("9am", now=NOW).timezone == "UTC"


# --- what comes once --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("in 10 minutes", "2026-11-16T12:30:30+02:00"),
        ("in an hour and a half", "2026-11-16T13:50:30+02:00"),
        ("in half an hour", "2026-11-16T12:50:30+02:00"),
        ("in 2 days", "2026-11-18T12:20:30+02:00"),
        ("in a week at noon", "2026-11-23T12:00+02:00"),
        ("tomorrow at 5pm", "2026-11-17T17:00+02:00"),
        ("tomorrow evening at 8", "2026-11-17T20:00+02:00"),
        ("tonight at 9", "2026-11-16T21:00+02:00"),
        ("today at noon in New York", "2026-11-16T12:00-05:00"),
        ("next monday at 9am", "2026-11-23T09:00+02:00"),
        ("this monday at 11pm", "2026-11-16T23:00+02:00"),
        ("next friday at 17:00:30", "2026-11-20T17:00:30+02:00"),
        ("at noon on 1 march", "2027-03-01T12:00+02:00"),
        ("16 november at 9am", "2027-11-16T09:00+02:00"),  # today, and passed
        ("16 november at 9pm", "2026-11-16T21:00+02:00"),
        ("29 february at noon", "2028-02-29T12:00+02:00"),
        ("on july 4th, 2027 at noon", "2027-07-04T12:00+03:00"),
        ("2027-03-01 at 14:00", "2027-03-01T14:00+02:00"),
        ("2027-03-01T14:00Z", "2027-03-01T16:00+02:00"),
        ("once at 9am", "2026-11-17T09:00+02:00"),
        ("once on friday at 9am", "2026-11-20T09:00+02:00"),
    ],
)
def test_one_shots(text: str, spec: str) -> None:
    understood = parse(text, now=NOW, timezone="Europe/Kyiv")
    assert (understood.kind, understood.spec) == ("one_shot", spec)
    assert understood.at == datetime.fromisoformat(spec)


def test_a_distance_is_never_shorter_than_said() -> None:
    now = NOW.replace(microsecond=400_000)
    assert parse("in 1 second", now=now).at == datetime(2026, 11, 16, 10, 20, 32, tzinfo=UTC)


def test_distances_in_hours_elapse_and_distances_in_days_go_by_the_clock() -> None:
    now = datetime(2027, 3, 13, 12, 0, tzinfo=ZoneInfo("America/New_York"))  # the clocks go forward that night
    assert parse("in 24 hours", now=now, timezone="America/New_York").spec == "2027-03-14T13:00-04:00"
    assert parse("in 1 day", now=now, timezone="America/New_York").spec == "2027-03-14T12:00-04:00"


def test_a_time_that_comes_twice_means_the_first() -> None:
    understood = parse("on 7 november 2027 at 1:30am", now=NOW, timezone="America/New_York")
    assert understood.spec == "2027-11-07T01:30-04:00"
    assert "01:30 comes twice on 2027-11-07 in America/New_York: the first one" in understood.notes


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_the_same_text_at_the_same_time_means_the_same() -> None:
    for text in ("tomorrow at 5pm", "every 7 minutes", "every weekday at 9"):
        assert parse(text, now=NOW) == parse(text, now=NOW)
        assert parse(text, now=NOW.astimezone(ZoneInfo("Asia/Tokyo"))).spec == parse(text, now=NOW).spec


def test_a_naive_now_is_refused() -> None:
    with pytest.raises(NaiveDatetimeError):
        parse("every day", now=datetime(2026, 1, 1))  # noqa: DTZ001 - a naive time is what is tested


def test_a_zone_that_is_none_is_refused() -> None:
    for name in ("Nowhere/At_All", "", "../etc/passwd"):
        with pytest.raises(ScheduleInvalidError) as caught:
            parse("every day", now=NOW, timezone=name)
        assert (caught.value.field, caught.value.value) == ("timezone", name)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(LanguageError, match="must be text, not int"):
        parse(15, now=NOW)  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize(
    "text", ["tomorrow at 23:00", "in 2 days", "in 5 weeks", "next friday at 9am", "1 march at noon", "in 90 minutes"]
)
def test_the_end_of_the_calendar(text: str) -> None:
    with pytest.raises(LanguageError, match="calendar"):
        parse(text, now=datetime(9999, 12, 31, 23, tzinfo=UTC))


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("*/15 * * * *", "0,15,30,45 * * * *"),
        ("@daily", "0 0 * * *"),
        ("0 9 * * mon-fri", "0 9 * * 1-5"),
        ("0 0 1 1 1",) * 2,
    ],
)
def test_cron_dialects_are_read_too(text: str, spec: str) -> None:
    understood = parse(text, now=NOW, timezone="Europe/Kyiv")
    assert (understood.kind, understood.spec, understood.language) == ("cron", spec, "cron")
    assert understood.timezone == "Europe/Kyiv"


def test_a_bad_cron_expression_gets_the_error_of_cron() -> None:
    with pytest.raises(InvalidCronExpressionError, match="hour field"):
        parse("0 24 * * *", now=NOW)


@pytest.mark.parametrize("text", ["", "9am", "every 15 minutes", "9 am", "2027-03-01 12:00", "mon-fri 9am", "15 march"])
def test_english_is_not_taken_for_cron(text: str) -> None:
    assert not looks_like_cron(text)


def test_the_fields_of_a_schedule() -> None:
    assert schedule_fields("every weekday at 9am in Kyiv", now=NOW) == {
        "type": "cron",
        "spec": "0 9 * * 1-5",
        "timezone": "Europe/Kyiv",
    }
    assert schedule_fields("every 90 seconds", now=NOW, timezone="Asia/Tokyo") == {
        "type": "interval",
        "spec": "90",
        "timezone": "Asia/Tokyo",
    }


@pytest.mark.parametrize(
    "text", ["every weekday at 9am in Kyiv", "every 90 seconds", "tomorrow at 5pm", "in 10 minutes"]
)
async def test_a_schedule_can_be_created_from_them(text: str) -> None:
    from noonbell import Schedules
    from noonbell.testing import ManualClock

    async with Schedules("memory://", callbacks={"nothing": lambda call: None}, clock=ManualClock(NOW)) as schedules:
        fields = schedule_fields(text, now=NOW, timezone="Europe/Kyiv")
        created = await schedules.create(name="from English", action={"kind": "callback", "name": "nothing"}, **fields)
        assert (created.type, created.spec) == (fields["type"], fields["spec"])

"""dst_surprises: its sentences, and its days against a count of what really fires on each local day."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from noonbell.cron import parse
from noonbell.errors import NaiveDatetimeError
from noonbell.language import Surprise, dst_surprises

NEW_YORK = ZoneInfo("America/New_York")


def year(zone: str, first: str) -> tuple[ZoneInfo, datetime, datetime]:
    info = ZoneInfo(zone)
    start = datetime.fromisoformat(first).replace(tzinfo=info)
    return info, start, start + timedelta(days=365)


@pytest.mark.parametrize(
    ("text", "zone", "first", "sentences"),
    [
        (
            "30 1 * * *",
            "America/New_York",
            "2026-06-01",
            ["fires twice on 2026-11-01 (01:30 comes twice in America/New_York)"],
        ),
        (
            "30 2 * * *",
            "America/New_York",
            "2026-06-01",
            ["does not fire on 2027-03-14 (02:30 does not exist in America/New_York)"],
        ),
        (
            "0,30 1,2 * * *",
            "America/New_York",
            "2026-06-01",
            [
                "fires twice at 01:00 and 01:30 on 2026-11-01 (clocks go back in America/New_York)",
                "leaves out 02:00 and 02:30 on 2027-03-14 (clocks go forward in America/New_York)",
            ],
        ),
        (
            "* 2 * * *",
            "America/New_York",
            "2027-01-01",
            ["does not fire on 2027-03-14 (60 times from 02:00 to 02:59 do not exist in America/New_York)"],
        ),
        ("0 12 * * *", "America/New_York", "2026-06-01", []),
        ("30 1 * * 1", "America/New_York", "2026-06-01", []),
        ("30 2 * * *", "Asia/Tokyo", "2026-06-01", []),
        (
            "* * * * *",
            "America/New_York",
            "2026-06-01",
            ["runs on through the clock change on 2026-11-01 (1 h back in America/New_York)"],
        ),
        (
            "45 * * * *",
            "Australia/Lord_Howe",
            "2026-01-01",
            ["runs on through the clock change on 2026-04-05 (30 min back in Australia/Lord_Howe)"],
        ),
        (
            "15 * * * *",
            "Australia/Lord_Howe",
            "2026-01-01",
            [
                "runs on through the clock change on 2026-10-04 (30 min forward in Australia/Lord_Howe)",
            ],
        ),
        (
            "0 0 * * *",
            "America/Sao_Paulo",
            "2017-05-01",
            ["does not fire on 2017-10-15 (00:00 does not exist in America/Sao_Paulo)"],
        ),
        (
            "0 8 * * *",
            "Pacific/Apia",
            "2011-10-01",
            ["does not fire on 2011-12-30 (08:00 does not exist in Pacific/Apia)"],
        ),
    ],
)
def test_sentences(text: str, zone: str, first: str, sentences: list[str]) -> None:
    info, start, end = year(zone, first)
    assert [surprise.sentence for surprise in dst_surprises(parse(text), info, start, end)] == sentences


def test_facts_beside_the_sentence() -> None:
    info, start, end = year("America/New_York", "2026-06-01")
    (surprise,) = dst_surprises(parse("30 1 * * *"), info, start, end)
    assert surprise == Surprise(date(2026, 11, 1), "twice", (time(1, 30),), surprise.sentence)


def test_the_once_policy_moves_what_is_missing_and_repeats_nothing() -> None:
    info, start, end = year("America/New_York", "2026-06-01")
    expression = parse("30 1,2 * * *")
    (surprise,) = dst_surprises(expression, info, start, end, dst="once")
    assert surprise.kind == "moved"
    assert surprise.sentence == "fires at 03:00 on 2027-03-14 (02:30 does not exist in America/New_York)"
    day = datetime(2027, 3, 14, tzinfo=info)
    fired = [f"{at:%H:%M}" for at in expression.between(day, day + timedelta(days=1), dst="once")]
    assert fired == ["01:30", "03:00"]


def test_only_changes_within_the_period_count() -> None:
    expression = parse("30 1 * * *")
    change = datetime(2026, 11, 1, 6, tzinfo=UTC)
    hour = timedelta(hours=1)
    assert len(dst_surprises(expression, NEW_YORK, change - hour, change + hour)) == 1
    assert dst_surprises(expression, NEW_YORK, change - 2 * hour, change - hour) == []
    assert dst_surprises(expression, NEW_YORK, change + hour, change + 2 * hour) == []


def test_a_naive_period_is_refused() -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001 - a naive time is what is tested
    with pytest.raises(NaiveDatetimeError):
        dst_surprises(parse("0 0 * * *"), NEW_YORK, naive, naive)


@pytest.mark.parametrize(
    "zone",
    [
        "America/New_York",
        "Europe/Dublin",
        "Australia/Lord_Howe",
        "Africa/Casablanca",
        "America/Sao_Paulo",
        "America/Nuuk",
        "Antarctica/Troll",
        "Asia/Kathmandu",
    ],
)
@pytest.mark.parametrize("text", ["30 1 * * *", "0,20,40 0-3 * * *", "15 2 * * 0", "0 0,23 * * *", "* 1 1-15 * *"])
def test_the_days_are_those_whose_count_is_bent(zone: str, text: str) -> None:
    info, start, _ = year(zone, "2015-06-01")
    end = datetime(2021, 6, 1, tzinfo=info)
    expression = parse(text)
    real = Counter(at.date() for at in expression.between(start, end))
    # on UTC's own clock every civil minute comes once: what the text alone promises
    said = Counter(at.date() for at in expression.between(start.replace(tzinfo=UTC), end.replace(tzinfo=UTC)))
    bent = {day: "twice" if real[day] > said[day] else "skipped" for day in real | said if real[day] != said[day]}
    found = dst_surprises(expression, info, start, end)
    assert {surprise.date: surprise.kind for surprise in found} == bent
    for surprise in found:
        assert len(surprise.times) == abs(real[surprise.date] - said[surprise.date])

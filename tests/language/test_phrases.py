"""Generated phrases against the oracle, for cron, intervals and one-shots."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from noonbell.language import parse
from tests.language.oracle import MONTHS, WEEKDAYS, Choice, make, number

NOW = datetime(2026, 11, 16, 10, 20, 30, tzinfo=UTC)
PHRASES = 2_000
CHUNKS = 20


def fired(choice: Choice, first: date, days: int) -> list[datetime]:
    """What the package makes of the phrase, on a clock without changes."""
    understood = parse(choice.phrase, now=NOW, timezone="Europe/Paris")
    assert understood.timezone == (choice.zone or "Europe/Paris")
    assert understood.zone_named == (choice.zone is not None)
    expression = understood.expression
    assert expression is not None
    start = datetime(first.year, first.month, first.day, tzinfo=UTC)
    return [at.replace(tzinfo=None) for at in expression.between(start, start + timedelta(days=days))]


@pytest.mark.parametrize("seed", range(CHUNKS))
def test_generated_phrases_fire_when_the_oracle_says(seed: int) -> None:
    draw = random.Random(seed)
    wrong = []
    for _ in range(PHRASES // CHUNKS):
        choice = make(draw)
        # dense rhythms are compared over days, sparse ones over more than a year, from a day on which something happens
        days = max(3, min(400, 400 // len(choice.times)))
        first = choice.first_day(date(2026, 1, 1) + timedelta(days=draw.randrange(1500))) - timedelta(days=1)
        expected = list(choice.occurrences(first, days))
        assert expected
        if fired(choice, first, days) != expected:
            wrong.append(choice.phrase)
    assert wrong == []


def test_the_phrases_are_many_and_differ() -> None:
    phrases = {make(random.Random(seed)).phrase.lower() for seed in range(500)}
    assert len(phrases) > 450
    assert len({word for phrase in phrases for word in phrase.split() if word.isalpha()}) > 60


# --- intervals and one-shots ------------------------------------------------------------------------------------------


def test_generated_intervals() -> None:
    draw = random.Random(1)
    for _ in range(200):
        unit, size, counts = draw.choice(
            [
                ("second", 1, range(2, 300)),
                ("minute", 60, [7, 8, 9, 11, 13, 25, 40, 45, 50, 75, 90, 100, 1440]),
                ("hour", 3600, [5, 7, 9, 10, 11, 24, 36, 48]),
                ("day", 86_400, range(2, 60)),
                ("week", 604_800, range(2, 9)),
            ]
        )
        count = draw.choice(list(counts))
        phrase = f"{draw.choice(['every', 'each', 'Every'])} {number(draw, count)} {unit}s"
        understood = parse(phrase, now=NOW)
        assert (understood.kind, understood.seconds) == ("interval", count * size), phrase
        assert len(understood.notes) == 1
        assert "this is an interval" in understood.notes[0]


def test_generated_one_shots() -> None:
    draw = random.Random(2)
    zone = ZoneInfo("Asia/Tokyo")  # no clock changes: adding civil days is adding days
    here = NOW.astimezone(zone)
    for _ in range(300):
        hour, minute = draw.randrange(24), draw.randrange(60)
        clock = f"at {hour:02}:{minute:02}"
        ahead = draw.randint(1, 700)
        day = here.date() + timedelta(days=ahead)
        plain = f"{day.day} {MONTHS[day.month - 1]} {day.year}"
        words = draw.choice(
            [f"on {plain}", f"in {ahead} days", day.isoformat(), f"on {WEEKDAYS[day.weekday()]} {plain}", plain.lower()]
        )
        if ahead == 1:
            words = "tomorrow"
        elif ahead <= 7 and draw.random() < 0.7:
            words = f"next {WEEKDAYS[day.weekday()]}"
        phrase = draw.choice([f"{clock} {words}", f"{words} {clock}", f"{words}, {clock}"])
        understood = parse(phrase, now=NOW, timezone="Asia/Tokyo")
        expected = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
        assert (understood.kind, understood.at) == ("one_shot", expected), phrase


def test_distances_from_now() -> None:
    draw = random.Random(3)
    for _ in range(200):
        hours, minutes, seconds = draw.randint(0, 30), draw.randint(0, 90), draw.randint(0, 90)
        parts = [f"{n} {unit}" for n, unit in ((hours, "hours"), (minutes, "min"), (seconds, "s")) if n]
        if not parts:
            continue
        phrase = "in " + draw.choice([" and ", " ", ", "]).join(parts)
        expected = NOW + timedelta(hours=hours, minutes=minutes, seconds=seconds)
        assert parse(phrase, now=NOW).at == expected, phrase

"""Every description can be read again and means the same: of cron expressions, intervals and instants."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.cron import parse as parse_cron
from noonbell.errors import InvalidCronExpressionError, LanguageError
from noonbell.language import Understood, describe, describe_instant, describe_interval, parse
from noonbell.language.words import KNOWN
from tests.effort import examples
from tests.language.oracle import make
from tests.language.test_describe import POOLS, SENTENCES

NOW = datetime(2026, 11, 16, 10, 20, 30, tzinfo=UTC)
BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
CHUNKS = 10


def random_field(draw: random.Random, low: int, high: int) -> str:
    form = draw.random()
    if form < 0.35:
        return "*"
    if form < 0.6:
        first, last = sorted(draw.choices(range(low, high + 1), k=2))
        return f"{first}-{last}"
    return ",".join(map(str, sorted(draw.sample(range(low, high + 1), draw.randint(1, 5)))))


def random_expression(draw: random.Random) -> str:
    if draw.random() < 0.5:
        return " ".join(draw.choice(pool) for pool in POOLS)
    return " ".join(random_field(draw, low, high) for low, high in BOUNDS)


@pytest.mark.parametrize("seed", range(CHUNKS))
def test_descriptions_of_random_expressions_mean_the_same(seed: int) -> None:
    draw, tried = random.Random(seed), 0
    while tried < 2_500 // CHUNKS:
        try:
            expression = parse_cron(random_expression(draw))
        except InvalidCronExpressionError:  # a day that its months do not have
            continue
        tried += 1
        # a CronExpression is equal to every other that matches the same minutes
        understood = parse(describe(expression), now=NOW)
        assert understood.expression == expression, (expression.text, understood.description, understood.spec)
        assert understood.language == "english"


@pytest.mark.parametrize(("text", "sentence"), SENTENCES.items())
def test_the_sentences_that_people_read_can_be_read_again(text: str, sentence: str) -> None:
    assert parse(sentence, now=NOW).expression == parse_cron(text)
    assert parse(sentence.lower(), now=NOW).expression == parse_cron(text)


@given(st.integers(1, 36_525 * 86_400))
@settings(max_examples=examples(200), deadline=None)
def test_intervals(seconds: int) -> None:
    understood = parse(describe_interval(seconds), now=NOW)
    assert (understood.kind, understood.seconds) == ("interval", seconds)
    assert understood.description == describe_interval(seconds)
    assert understood.notes == ()


@pytest.mark.parametrize("seconds", [1, 59, 60, 61, 420, 900, 3600, 5400, 86_400, 604_800, 1_209_600, 2_678_400])
def test_an_interval_is_never_taken_for_a_rhythm_of_the_clock(seconds: int) -> None:
    assert parse(describe_interval(seconds), now=NOW).seconds == seconds


@given(
    st.integers(1, 20 * 365 * 86_400),
    st.sampled_from(["UTC", "Europe/Kyiv", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]),
)
@settings(max_examples=examples(300), deadline=None)
def test_instants(ahead: int, zone: str) -> None:
    at = (NOW + timedelta(seconds=ahead)).astimezone(ZoneInfo(zone))
    assert parse(describe_instant(at), now=NOW, timezone=zone).at == at


@pytest.mark.parametrize("minutes", range(-90, 91, 15))
def test_instants_around_a_clock_change(minutes: int) -> None:
    """The hour that comes twice is told apart."""
    at = (datetime(2027, 11, 7, 6, tzinfo=UTC) + timedelta(minutes=minutes)).astimezone(ZoneInfo("America/New_York"))
    understood = parse(describe_instant(at), now=NOW, timezone="America/New_York")
    assert understood.at == at
    assert understood.spec == at.isoformat(timespec="minutes")


def understand(text: str) -> Understood | LanguageError:
    try:
        return parse(text, now=NOW, timezone="Europe/Kyiv")
    except LanguageError as error:
        return error


def test_whatever_is_understood_is_described_so_that_it_can_be_read_again() -> None:
    """Phrases with words left out, put in and swapped: most are refused, and none is refused without a place."""
    draw, words = random.Random(11), sorted(KNOWN)
    understood = refused = 0
    for _ in range(300):
        pieces = make(draw).phrase.split()
        spot = draw.randrange(len(pieces))
        change = draw.randrange(3)
        if change == 0:
            del pieces[spot]
        elif change == 1:
            pieces.insert(spot, draw.choice(words))
        else:
            pieces[spot] = draw.choice(words)
        text = " ".join(pieces)
        found = understand(text)
        if isinstance(found, LanguageError):
            refused += 1
            assert 0 <= found.position <= found.end <= len(text)
            assert found.word == text[found.position : found.end]
            assert all(isinstance(understand(suggestion), Understood) for suggestion in found.suggestions)
            continue
        understood += 1
        again = parse(found.description, now=NOW, timezone=found.timezone)
        assert again.kind == found.kind
        assert again.expression == found.expression
        assert (again.seconds, again.at) == (found.seconds, found.at)
    assert understood > 25
    assert refused > 50

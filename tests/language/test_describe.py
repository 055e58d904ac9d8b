"""describe: the sentences people read, and that no two different schedules share one."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from noonbell.cron import CronExpression, parse
from noonbell.errors import InvalidCronExpressionError
from noonbell.language import describe

SENTENCES = {
    "* * * * *": "Every minute",
    "0,15,30,45 * * * *": "Every 15 minutes",
    "0 * * * *": "At minute 0 of every hour",
    "5 9-17 * * 1-5": "At minute 5 of every hour from 09 to 17, Monday to Friday",
    "0,15,30,45 9-17 * * 1-5": "Every 15 minutes from 09:00 to 17:45, Monday to Friday",
    "* 3 * * *": "Every minute from 03:00 to 03:59",
    "* 3,5 * * *": "Every minute during hours 03 and 05",
    "0-9,30 0-2,22,23 * * *": "At minutes 0 to 9 and 30 of hours 00 to 02, 22 and 23",
    "0 0,2,4,6,8,10,12,14,16,18,20,22 * * *": "At minute 0 of every 2nd hour from 00",
    "15 3 * * 1-5": "At 03:15, Monday to Friday",
    "30 2 * * *": "At 02:30 every day",
    "0,30 8,12 * * *": "At 08:00, 08:30, 12:00 and 12:30 every day",
    "5 1 * * 0": "At 01:05 every Sunday",
    "0 0 * * 0,6": "At 00:00 on Saturday and Sunday",
    "0 0 * * 0,1,5,6": "At 00:00 on Monday and Friday to Sunday",
    "0 0 31 * *": "At 00:00 on day 31 of the month",
    "0 0 1,15 * 1": "At 00:00 on day 1 and 15 of the month, or on any Monday",
    "0 0 1 1,7 1": "At 00:00 on day 1 of the month, or on any Monday, only in January and July",
    "0 12 14 2 *": "At 12:00 on 14 February every year",
    "0 0 29 2 *": "At 00:00 on 29 February (leap years only)",
    "0 0 1-7 1,4,7,10 *": "At 00:00 on day 1 to 7 of January, April, July and October",
    "0 0 * 6-8 *": "At 00:00 every day from June to August",
    "0 0 * 6-8,12 *": "At 00:00 every day in June to August and December",
    "* * * 2 *": "Every minute in February",
    # restricted in form only: every day is every day
    "0 0 1 * 0-6": "At 00:00 every day",
    "0 0 1-31 * 1": "At 00:00 every day",
    "0 0 1-30 4,6 *": "At 00:00 every day in April and June",
    # days that the months do not have are not promised
    "0 0 30 2 1": "At 00:00 every Monday in February",
    "0 0 29-31 2 *": "At 00:00 on 29 February (leap years only)",
}

POOLS = (
    ["*", "0-59", "0", "5", "0,30", "0,15,30,45", "0-14", "1,3,5,7,9,11,13", "0-58", "59"],
    ["*", "0-23", "0", "9-17", "3,5", "0,6,12,18", "0,2,4,6,8,10,12,14,16,18,20,22", "0-2,22,23", "8-10", "1-23"],
    ["*", "1-31", "1", "1,15", "29", "30", "29-31", "1-28", "1-29", "1-30", "2-31", "31"],
    ["*", "1-12", "2", "4,6,9,11", "2,4", "1", "1-3", "6-8", "1-6,8-12", "1,7"],
    ["*", "0-6", "0", "1", "1-5", "0,6", "1,3,5", "0-5", "6"],
)


@pytest.mark.parametrize(("text", "sentence"), SENTENCES.items())
def test_sentences(text: str, sentence: str) -> None:
    assert describe(text) == sentence
    assert describe(parse(text)) == sentence


def test_a_text_must_be_posix() -> None:
    with pytest.raises(InvalidCronExpressionError):
        describe("@daily")


def test_one_sentence_never_stands_for_two_schedules() -> None:
    by_sentence: dict[str, set[CronExpression]] = defaultdict(set)
    draw = random.Random(20261115)
    shared = 0
    for _ in range(12_000):
        text = " ".join(draw.choice(pool) for pool in POOLS)
        try:
            expression = parse(text)
        except InvalidCronExpressionError:  # a day that its months do not have
            continue
        schedules = by_sentence[describe(expression)]
        shared += bool(schedules) and all(expression.text != other.text for other in schedules)
        schedules.add(expression)
    # a CronExpression is equal to every other of the same minutes, so a set of them counts schedules
    assert {sentence: found for sentence, found in by_sentence.items() if len(found) > 1} == {}
    # the pools do hold different texts with one sentence: the check above had something to decide
    assert shared > 500


def test_random_lists_have_sentences_of_their_own() -> None:
    draw = random.Random(7)
    bounds = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
    by_sentence: dict[str, CronExpression] = {}
    for _ in range(4_000):
        fields = []
        for low, high in bounds:
            values = sorted(draw.sample(range(low, high + 1), draw.randint(1, 4)))
            fields.append(draw.choice(["*", ",".join(map(str, values))]))
        try:
            expression = parse(" ".join(fields))
        except InvalidCronExpressionError:  # a day that its months do not have
            continue
        assert by_sentence.setdefault(describe(expression), expression) == expression

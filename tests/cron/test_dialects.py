"""translate: examples by hand, and properties against an evaluator that reads the dialects on its own.

The evaluator below walks a field's values round a ring, one by one, and decides each calendar day by Vixie cron's rule;
it shares nothing with the code under test.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.cron import parse, translate
from noonbell.errors import InvalidCronExpressionError
from tests.effort import examples

EXACT = {
    # steps
    "*/15 * * * *": "0,15,30,45 * * * *",
    "0-30/5 * * * *": "0,5,10,15,20,25,30 * * * *",
    "5/10 * * * *": "5,15,25,35,45,55 * * * *",
    "*/7 * * * *": "0,7,14,21,28,35,42,49,56 * * * *",
    "*/1 */1 */1 */1 */1": "* * * * *",
    "*/60 */24 * * *": "0 0 * * *",
    "0 0 */10 * *": "0 0 1,11,21,31 * *",
    # names
    "0 0 1 jan *": "0 0 1 1 *",
    "0 0 1 JANUARY,jUl *": "0 0 1 1,7 *",
    "0 0 * * MON-FRI": "0 0 * * 1-5",
    "0 0 * * sunday,wednesday": "0 0 * * 0,3",
    # macros
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    " @Hourly\n": "0 * * * *",
    # 7 and wrap-around
    "0 0 * * 7": "0 0 * * 0",
    "0 0 * * 5-7": "0 0 * * 0,5,6",
    "0 0 * * 0-7": "0 0 * * 0-6",
    "0 0 * * 7-2": "0 0 * * 0-2",
    "0 0 * * fri-mon": "0 0 * * 0,1,5,6",
    "0 22-2 * * *": "0 0-2,22,23 * * *",
    "0 22-2/2 * * *": "0 0,2,22 * * *",
    "0 0 1 11-2 *": "0 0 1 1,2,11,12 *",
    "0 0 30-2 * *": "0 0 1,2,30,31 * *",
    # '*' in a list, '?'
    "*,5 * * * *": "* * * * *",
    "0 12 ? * 1": "0 12 * * 1",
    "0 12 1 * ?": "0 12 1 * *",
    # the two rules for day and weekday: each where it can be said
    "0 0 1-31/2 * 1": "0 0 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31 * 1",
    "0 0 1-31/1 * 1/4": "0 0 1-31 * 1,5",
    "0 0 1-31/1 * */2": "0 0 * * 0,2,4,6",
    "0 0 31 feb mon": "0 0 31 2 1",
    # Quartz
    "0 0 12 * * ?": "0 12 * * *",
    "00 30 9 ? * 2-6": "30 9 * * 1-5",
    "0 0 12 ? * 1": "0 12 * * 0",
    "0 0 12 ? * 7": "0 12 * * 6",
    "0 0 12 ? * 6-1": "0 12 * * 0,5,6",
    "0 0 12 ? * 1/2": "0 12 * * 0,2,4,6",
    "0 0 12 ? * MON-FRI *": "0 12 * * 1-5",
    "0 0/15 8-10 1 JAN ? *": "0,15,30,45 8-10 1 1 *",
    # six fields without '?': read alike by Quartz and Spring
    "0 0 12 * * *": "0 12 * * *",
    "0 0 12 * * MON-FRI": "0 12 * * 1-5",
    # POSIX comes back as it is
    "05  3,1\t* * 1,2,3": "05 3,1 * * 1,2,3",
    " 0 0 1-31 * 0-6 ": "0 0 1-31 * 0-6",
}

REFUSED = {
    "@reboot": ("expression", "event"),
    "@every 5m": ("expression", "interval"),
    "@daily 0": ("expression", "macro"),
    "@fortnightly": ("expression", "@weekly"),
    "": ("expression", "0 parts"),
    "* * *": ("expression", "3 parts"),
    "* * * * * * * *": ("expression", "8 parts"),
    "*/0 * * * *": ("minute", "step 0"),
    "*/90 * * * *": ("minute", "step 90"),
    "* */25 * * *": ("hour", "from 1 to 24"),
    "0 0 L * *": ("day", "'L'"),
    "0 0 15W * *": ("day", "'15W'"),
    "0 0 * * 5L": ("weekday", "'5L'"),
    "0 0 * * 5#3": ("weekday", "'5#3'"),
    "H/15 * * * *": ("minute", "'H/15'"),
    "? * * * *": ("minute", "'?'"),
    "0 0 ?,1 * *": ("day", "'?'"),
    "0 0 * * 8": ("weekday", "0-7"),
    "0 0 * 0 mon": ("month", "1-12"),
    "0 24/2 * * *": ("hour", "0-23"),
    "0 0 mon * *": ("day", "'mon'"),
    "0 0 * mon *": ("month", "'mon'"),
    "*-5 * * * *": ("minute", "'*-5'"),
    "1-2-3 * * * *": ("minute", "'1-2-3'"),
    "1//2 * * * *": ("minute", "'1//2'"),
    "1,,2/3 * * * *": ("minute", "empty"),
    "٣/2 * * * *": ("minute", "'٣/2'"),
    "0 0 * * 1/2": ("weekday", "1-6/2 or 1-7/2"),
    "0 0 */2 * 1": ("expression", "together"),
    "0 0 1 * */2": ("expression", "together"),
    "0 0 31 feb *": ("expression", "never matches"),
    "0 0 31 2 *": ("expression", "never matches"),
    "30 0 12 * * ?": ("expression", "seconds '30'"),
    "* 0 12 * * ?": ("expression", "seconds"),
    "0 0 12 * * ? 2030": ("expression", "year '2030'"),
    "0 0 12 * * 1-5": ("weekday", "Spring"),
    "0 0 12 * * */2": ("weekday", "Spring"),
    "0 0 12 ? * 0": ("weekday", "1-7"),
    "0 0 12 ? * ?": ("expression", "'?' as day and as weekday"),
    "0 0 12 1 * MON": ("expression", "together"),
    "0 12 * * ? *": ("month", "'?'"),
    "*" * 1001: ("expression", "1000 characters"),
}


@pytest.mark.parametrize(("typed", "posix"), EXACT.items())
def test_exact(typed: str, posix: str) -> None:
    assert translate(typed) == posix
    assert translate(posix) == posix
    assert parse(posix).text == posix


@pytest.mark.parametrize(("typed", "field", "part"), [(text, *why) for text, why in REFUSED.items()])
def test_refused_with_field_and_reason(typed: str, field: str, part: str) -> None:
    with pytest.raises(InvalidCronExpressionError) as caught:
        translate(typed)
    assert caught.value.expression == typed
    assert caught.value.field == field
    assert part in caught.value.reason


def test_the_strict_parser_offers_the_translation() -> None:
    with pytest.raises(InvalidCronExpressionError) as caught:
        parse("*/15 * * * *")
    assert caught.value.suggestion == "0,15,30,45 * * * *"


# --- an evaluator of its own ------------------------------------------------------------------------------------------

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
BOUNDS = {"minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 6), "quartz": (1, 7)}


def walk(first: int, last: int, step: int, low: int, high: int) -> set[int]:
    """Every step-th value met on the way from first to last, going round from high to low."""
    met, at, paces = set(), first, 0
    while True:
        if paces % step == 0:
            met.add(at)
        if at == last:
            return met
        at = low if at == high else at + 1
        paces += 1


@dataclass(frozen=True)
class Part:
    """A generated field: its text, and what it means by the dialect's own rules."""

    text: str
    values: frozenset[int]
    star: bool
    unclear: bool = False  # n/s in the weekday field, where dialects differ on Sunday


@st.composite
def element(draw: st.DrawFn, kind: str) -> Part:
    low, high = BOUNDS[kind]
    size = high - low + 1
    top = 7 if kind == "weekday" else high
    a, b = draw(st.integers(low, top)), draw(st.integers(low, top))
    step = draw(st.integers(1, size))
    names = {"month": ["", *MONTHS], "weekday": [*WEEKDAYS, "7"], "quartz": ["", *WEEKDAYS]}.get(kind)
    said = [names[v] if names and draw(st.booleans()) else str(v) for v in (a, b)]
    shape = draw(st.sampled_from(["star", "star/step", "one", "one/step", "range", "range/step"]))
    suffix = f"/{step}" if shape.endswith("/step") else ""
    pace = step if suffix else 1
    if shape.startswith("star"):
        return Part("*" + suffix, frozenset(walk(low, high, pace, low, high)), star=True)
    if shape == "one":
        return Part(said[0], frozenset({a % 7 if kind == "weekday" else a}), star=False)
    if shape == "one/step":
        to_six = {v for v in range(a, high + 1) if (v - a) % pace == 0}
        to_seven = {v % 7 for v in range(a, 8) if (v - a) % pace == 0}
        unclear = kind == "weekday" and to_six != to_seven
        return Part(said[0] + suffix, frozenset(to_six), star=False, unclear=unclear)
    if kind == "weekday" and a <= b:  # the ring has eight places here, two of them Sunday
        values = {v % 7 for v in range(a, b + 1) if (v - a) % pace == 0}
    else:
        values = walk(a % 7 if kind == "weekday" else a, b, pace, low, high)
    return Part(f"{said[0]}-{said[1]}{suffix}", frozenset(values), star=False)


@st.composite
def field(draw: st.DrawFn, kind: str) -> Part:
    if draw(st.integers(0, 2)) == 0:
        low, high = BOUNDS[kind]
        return Part("*", frozenset(range(low, high + 1)), star=True)
    parts = draw(st.lists(element(kind), min_size=1, max_size=3))
    return Part(
        ",".join(part.text for part in parts),
        frozenset().union(*(part.values for part in parts)),
        star=parts[0].star,
        unclear=any(part.unclear for part in parts),
    )


def is_full(part: Part, kind: str) -> bool:
    low, high = BOUNDS[kind]
    return part.values == frozenset(range(low, high + 1))


DATES = [date(2024, 1, 1) + timedelta(days=n) for n in range(366)] + [
    date(2025, 1, 1) + timedelta(days=n) for n in range(365)
]


def fires_on(day: date, dom: Part, month: Part, weekdays: frozenset[int], both: bool) -> bool:
    if day.month not in month.values:
        return False
    by_dom, by_weekday = day.day in dom.values, day.isoweekday() % 7 in weekdays
    return by_dom and by_weekday if both else by_dom or by_weekday


def check(typed: str, parts: tuple[Part, Part, Part, Part], weekdays: frozenset[int], both: bool) -> None:
    minute, hour, dom, month = parts
    posix = translate(typed)
    assert translate(posix) == posix
    found = parse(posix)
    assert found.minutes == minute.values
    assert found.hours == hour.values
    at = timedelta(hours=min(hour.values), minutes=min(minute.values))
    for day in DATES:
        instant = datetime(day.year, day.month, day.day, tzinfo=UTC) + at
        assert found.matches(instant) == fires_on(day, dom, month, weekdays, both), (typed, posix, day)


def never(dom: Part, month: Part) -> bool:
    lengths = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
    return min(dom.values) > max(lengths.get(m, 31) for m in month.values)


@settings(max_examples=examples(120), deadline=None, derandomize=True)
@given(field("minute"), field("hour"), field("day"), field("month"), field("weekday"))
def test_five_fields_mean_what_vixie_cron_reads(minute: Part, hour: Part, dom: Part, month: Part, dow: Part) -> None:
    typed = " ".join(part.text for part in (minute, hour, dom, month, dow))
    both = dom.star or dow.star
    unsayable = both and not is_full(dom, "day") and not is_full(dow, "weekday")
    dead = both and is_full(dow, "weekday") and never(dom, month)
    if dow.unclear or unsayable or dead:
        with pytest.raises(InvalidCronExpressionError):
            translate(typed)
        return
    check(typed, (minute, hour, dom, month), dow.values, both)


@settings(max_examples=examples(80), deadline=None, derandomize=True)
@given(field("minute"), field("hour"), field("day"), field("month"), field("quartz"), st.booleans(), st.booleans())
def test_quartz_means_what_quartz_reads(
    minute: Part, hour: Part, dom: Part, month: Part, dow: Part, by_day: bool, with_year: bool
) -> None:
    every_day = Part("?", frozenset(range(1, 32)), star=True)
    every_weekday = Part("?", frozenset(range(1, 8)), star=True)
    dom, dow = (dom, every_weekday) if by_day else (every_day, dow)
    fields = ["0", *(part.text for part in (minute, hour, dom, month, dow)), *(["*"] if with_year else [])]
    typed = " ".join(fields)
    if by_day and never(dom, month):
        with pytest.raises(InvalidCronExpressionError):
            translate(typed)
        return
    check(typed, (minute, hour, dom, month), frozenset(v - 1 for v in dow.values), both=True)


@settings(max_examples=examples(250), deadline=None, derandomize=True)
@given(st.text(alphabet="0123456789*/-,?#@LWHsunmojaf \t", max_size=40))
def test_any_text_gives_posix_or_the_declared_error(text: str) -> None:
    posix = translated(text)
    if isinstance(posix, InvalidCronExpressionError):
        assert posix.expression == text
        assert posix.reason
    else:
        assert parse(posix).text == posix
        assert translate(posix) == posix


def translated(text: str) -> str | InvalidCronExpressionError:
    try:
        return translate(text)
    except InvalidCronExpressionError as error:
        return error

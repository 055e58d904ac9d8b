"""What the property tests draw from: expressions, zones and instants, with the awkward ones well represented."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from tests.cron.oracle import Walk
from tests.cron.zone_facts import Change, changes

# Zone: the years whose clock changes are looked at.
NOTABLE = {
    "Africa/Cairo": (2010, 2010),  # summer time interrupted for Ramadan
    "Africa/Casablanca": (2023, 2024),  # the other way round: an hour back for Ramadan
    "Africa/Monrovia": (1972, 1972),  # from an offset with seconds to none
    "America/Juneau": (1867, 1867),  # a day shown twice, by offsets with seconds
    "America/New_York": (2024, 2024),
    "America/Sao_Paulo": (2017, 2018),  # midnight is missing
    "America/St_Johns": (2010, 2011),  # a minute after midnight, half-hour offset
    "Antarctica/Troll": (2023, 2024),  # two hours at once
    "Asia/Kathmandu": (1985, 1986),  # a quarter of an hour
    "Australia/Lord_Howe": (2023, 2024),  # half an hour
    "Europe/Dublin": (2023, 2024),  # negative summer time
    "Pacific/Apia": (2010, 2011),  # a day is missing
    "Pacific/Kwajalein": (1993, 1993),  # as is one here
}
PLAIN_ZONES = ("UTC", "Asia/Kolkata", "America/Caracas", "Etc/GMT+12", "Pacific/Kiritimati")

# Around a change the oracle walks this far each way.
REACH = 2 * 86_400


def notable_changes() -> list[tuple[str, Change]]:
    return [(key, change) for key, years in NOTABLE.items() for change in changes(key, *years)]


@lru_cache(maxsize=256)
def walk_around(key: str, at: int) -> Walk:
    return Walk(at - REACH, at + REACH, ZoneInfo(key))


def at_in(seconds: float, key: str) -> datetime:
    return datetime.fromtimestamp(seconds, ZoneInfo(key))


@st.composite
def field_texts(draw: st.DrawFn, low: int, high: int, star: bool = True) -> str:
    if star and draw(st.booleans()):
        return "*"
    elements = []
    for _ in range(draw(st.integers(1, 4))):
        first = draw(st.integers(low, high))
        last = draw(st.one_of(st.none(), st.integers(first, high)))
        zeros = "0" * draw(st.integers(0, 1))
        elements.append(f"{zeros}{first}" if last is None else f"{zeros}{first}-{last}")
    return ",".join(elements)


@st.composite
def expression_texts(draw: st.DrawFn) -> str:
    """Any expression that some day matches; mostly those that match near a given day."""
    fields = [
        draw(field_texts(0, 59)),
        draw(st.one_of(field_texts(0, 23), field_texts(0, 4, star=False), st.just("23"))),
        draw(st.one_of(st.just("*"), field_texts(1, 31))),
        draw(st.one_of(st.just("*"), st.just("*"), field_texts(1, 12))),
        draw(st.one_of(st.just("*"), field_texts(0, 6))),
    ]
    if fields[2] != "*" and fields[4] == "*" and fields[3] != "*":
        fields[2] += ",1"  # so that no month is without the day
    return " ".join(fields)


@st.composite
def moments(draw: st.DrawFn, at: int, shift: int, reach: int) -> float:
    """An instant near a change: at its edges, at their mirror images, or anywhere within reach."""
    edge = draw(st.sampled_from((-shift, 0, shift)))
    near = st.integers(-90, 90).map(lambda step: float(at + edge + step))
    anywhere = st.integers(2 * (at - reach), 2 * (at + reach) - 1).map(lambda halves: halves / 2)
    return draw(st.one_of(near, anywhere))

"""Time zones as people name them: IANA names, their cities, and a few large cities that no zone is named after.

Abbreviations are refused: EST is a fixed offset in the zone data and not New York, and IST has three meanings.
"""

from __future__ import annotations

import unicodedata
from datetime import datetime
from difflib import get_close_matches
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from noonbell.errors import ScheduleInvalidError
from noonbell.language.cursor import Cursor

_MOST_TOKENS: Final = 5
_REGIONS: Final = frozenset(
    "Africa America Antarctica Arctic Asia Atlantic Australia Europe Indian Pacific".split(),
)
_UTC: Final = frozenset({"utc", "gmt", "zulu"})
_OTHER_CITIES: Final = {
    "America/New_York": ("boston", "washington", "philadelphia", "atlanta", "miami"),
    "America/Chicago": ("houston", "dallas", "austin"),
    "America/Los_Angeles": ("san francisco", "seattle", "san diego", "las vegas"),
    "America/Toronto": ("ottawa",),
    "America/Sao_Paulo": ("rio de janeiro", "brasilia"),
    "Asia/Kolkata": ("mumbai", "delhi", "new delhi", "bangalore", "bengaluru", "chennai", "hyderabad"),
    "Asia/Shanghai": ("beijing", "shenzhen", "guangzhou"),
    "Asia/Tokyo": ("osaka", "kyoto"),
    "Asia/Dubai": ("abu dhabi",),
    "Asia/Jerusalem": ("haifa",),
    "Asia/Ho_Chi_Minh": ("hanoi",),
    "Australia/Sydney": ("canberra",),
    "Europe/Berlin": ("munich", "hamburg", "frankfurt", "cologne"),
    "Europe/Istanbul": ("ankara",),
    "Europe/Kyiv": ("lviv", "odesa", "kharkiv", "dnipro"),
    "Europe/London": ("edinburgh", "manchester"),
    "Europe/Madrid": ("barcelona",),
    "Europe/Paris": ("lyon",),
    "Europe/Rome": ("milan",),
    "Europe/Warsaw": ("krakow",),
    "Europe/Zurich": ("geneva", "bern"),
}
_ABBREVIATIONS: Final = {
    **dict.fromkeys(("est", "edt", "et", "eastern"), ("America/New_York",)),
    **dict.fromkeys(("cst", "cdt", "ct", "central"), ("America/Chicago", "Asia/Shanghai")),
    **dict.fromkeys(("mst", "mdt", "mt", "mountain"), ("America/Denver",)),
    **dict.fromkeys(("pst", "pdt", "pt", "pacific"), ("America/Los_Angeles",)),
    **dict.fromkeys(("cet", "cest", "met", "mest"), ("Europe/Berlin", "Europe/Paris")),
    **dict.fromkeys(("eet", "eest"), ("Europe/Kyiv", "Europe/Athens")),
    **dict.fromkeys(("wet", "west"), ("Europe/Lisbon",)),
    "bst": ("Europe/London",),
    "ist": ("Asia/Kolkata", "Europe/Dublin", "Asia/Jerusalem"),
    "jst": ("Asia/Tokyo",),
    "msk": ("Europe/Moscow",),
    "hst": ("Pacific/Honolulu",),
    "aest": ("Australia/Sydney",),
    "aedt": ("Australia/Sydney",),
}


def read_zone(cursor: Cursor) -> str | None:
    """The zone that is named here, with a 'time' after it; None, and nothing taken, where no zone is."""
    token = cursor.peek()
    if token.kind == "zone":
        return _iana(cursor)
    if token.kind != "word":
        return None
    if token.low in _UTC:
        return _utc(cursor)
    if token.low in _ABBREVIATIONS:
        meant = _ABBREVIATIONS[token.low]
        candidates = tuple(cursor.replaced(cursor.place(), zone) for zone in meant)
        reason = "this abbreviation is not a time zone; name the zone or a city"
        raise cursor.refusal(reason, cursor.place(), meant, candidates)
    for length in range(_MOST_TOKENS, 0, -1):
        last = cursor.peek(length - 1)
        if last.kind != "word" or any(cursor.peek(i).kind not in ("word", "mark") for i in range(length)):
            continue
        zones = zones_of(cursor.text[token.start : last.end])
        if len(zones) == 1:
            cursor.at += length
            cursor.take("time")
            return zones[0]
        if zones:
            place = cursor.place().to(cursor.place(length - 1))
            candidates = tuple(cursor.replaced(place, zone) for zone in zones)
            raise cursor.refusal("several zones have a city of this name", place, zones, candidates)
    return None


def zones_of(name: str) -> tuple[str, ...]:
    """The zones that a city, or a zone without a region, is the name of."""
    wanted = _plain(name)
    found = _cities().get(wanted, ())
    return found or _alone().get(wanted, ())


def near_cities(name: str) -> list[str]:
    """Names of cities and zones that look like this one, as they are written."""
    known = {**_alone(), **_cities()}
    close = get_close_matches(_plain(name), known, n=3, cutoff=0.75)
    return [city.title() for city in close]


def zone_named(name: str) -> ZoneInfo:
    """The zone that a caller gave by its IANA name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        reason = "must be the name of an IANA zone, such as Europe/Kyiv or UTC"
        raise ScheduleInvalidError("timezone", name, reason) from error


def _iana(cursor: Cursor) -> str:
    token, place = cursor.peek(), cursor.place()
    by_low = _by_low()
    found = by_low.get(token.low)
    if found is None:
        near = get_close_matches(token.low, by_low, n=3, cutoff=0.7)
        candidates = tuple(cursor.replaced(place, by_low[low]) for low in near)
        raise cursor.refusal("this is not a known time zone", place, ("an IANA name, such as Europe/Kyiv",), candidates)
    cursor.next()
    cursor.take("time")
    return found


def _utc(cursor: Cursor) -> str:
    first = cursor.place()
    cursor.next()
    cursor.take("time")
    if cursor.sees("+", "-") and cursor.peek(1).kind in ("number", "clock"):
        place = first.to(cursor.place(1))
        reason = "an offset is not a time zone, it has no rules for summer; name the zone or a city"
        raise cursor.refusal(reason, place, ("a city or an IANA name", "UTC"), (cursor.replaced(place, "UTC"),))
    return "UTC"


@lru_cache(maxsize=1)
def _by_low() -> dict[str, str]:
    """Every zone by its name in lower case; finding them in the file system takes 20 ms."""
    return {zone.lower(): zone for zone in available_timezones()}


@lru_cache(maxsize=1)
def _cities() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for zone in sorted(available_timezones(), key=lambda name: (name.count("/"), name)):
        region, _, rest = zone.partition("/")
        if region in _REGIONS and rest:
            found.setdefault(_plain(rest.rpartition("/")[2]), []).append(zone)
    for zone, cities in _OTHER_CITIES.items():
        for city in cities:
            found.setdefault(city, [zone])
    return {city: _distinct(zones) for city, zones in found.items()}


@lru_cache(maxsize=1)
def _alone() -> dict[str, tuple[str, ...]]:
    """Zones without a region that are words, such as Poland; codes such as EST are not."""
    return {_plain(zone): (zone,) for zone in available_timezones() if zone.isalpha() and not zone.isupper()}


def _distinct(zones: list[str]) -> tuple[str, ...]:
    """Old and new names of one zone count as one: the shorter path, as in America/Indianapolis."""
    if len(zones) > 1:
        tables = {ZoneInfo(zone): zone for zone in reversed(zones)}
        rules = {_rules(zone): name for zone, name in tables.items()}
        return tuple(sorted(rules.values()))
    return tuple(zones)


def _rules(zone: ZoneInfo) -> tuple[object, ...]:
    months = (datetime(year, month, 1, tzinfo=zone) for year in (2000, 2015, 2026) for month in range(1, 13))
    return tuple(month.utcoffset() for month in months)


def _plain(name: str) -> str:
    letters = unicodedata.normalize("NFKD", name.lower())
    letters = "".join(char if char.isalnum() else " " for char in letters if not unicodedata.combining(char))
    return " ".join(letters.split())

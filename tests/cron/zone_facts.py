"""Where the zones' clocks really change, read from the zone data itself.

The transitions come from the tables and closing rules that the standard library's pure-Python reader of TZif files
holds. `noonbell.cron` never looks there: it probes offsets. So the two can be held against each other.
"""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)


class Change(NamedTuple):
    """At the UTC second `at` the offset goes from `before` to `after` seconds."""

    at: int
    before: int
    after: int


def all_zones() -> list[str]:
    """Every IANA zone that this machine's zone data has."""
    return sorted(zoneinfo.available_timezones() - {"localtime"})


def year_start(year: int) -> int:
    return (datetime(year, 1, 1, tzinfo=UTC) - _EPOCH) // _SECOND


@cache
def changes(key: str, first_year: int, last_year: int) -> tuple[Change, ...]:
    """The changes of offset from the start of the first year to the end of the last (UTC)."""
    reader: Any = import_module("zoneinfo._zoneinfo").ZoneInfo
    table: Any = reader.no_cache(key)
    offsets: list[tuple[int, int]] = [
        (at, info.utcoff // _SECOND) for at, info in zip(table._trans_utc, table._ttinfos, strict=True)
    ]
    rule: Any = table._tz_after
    if hasattr(rule, "transitions"):
        explicit_to = offsets[-1][0] if offsets else year_start(first_year) - 1
        standard, summer = rule.std.utcoff // _SECOND, rule.dst.utcoff // _SECOND
        ruled: list[tuple[int, int]] = []
        for year in range(datetime.fromtimestamp(explicit_to, UTC).year, last_year + 2):
            summer_from, summer_to = rule.transitions(year)
            ruled += [(summer_from - standard, summer), (summer_to - summer, standard)]
        offsets += sorted(change for change in ruled if change[0] > explicit_to)
    before: int = (table._tti_before or table._tz_after).utcoff // _SECOND if offsets else 0
    low, high = year_start(first_year), year_start(last_year + 1)
    found = []
    for at, after in offsets:
        if after != before and low <= at < high:
            found.append(Change(at, before, after))
        before = after
    return tuple(found)

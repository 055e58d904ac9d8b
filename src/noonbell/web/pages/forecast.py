"""The forecast: the coming week as a heat map of starts per minute, and its busiest minutes by name.

A forecast of many schedules takes a moment, so it is cached briefly for each team.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi.responses import Response

from noonbell.bootstrap import Service
from noonbell.core.instants import moment
from noonbell.web.forecast_load import HOUR, MINUTE, SCHEDULES, WEEK, Forecast, look_ahead
from noonbell.web.routing import page_router
from noonbell.web.session import Visiting

router = page_router()

KEPT_SECONDS: Final = 30.0
_STEPS: Final = 5
_HOURS: Final = 24
_PART: Final = 15  # minutes: hours begin at none but such in every zone


class Cell(NamedTuple):
    """An hour of the week: its number from now, the starts of its busiest minute, all its starts, and its shade."""

    hour: int
    peak: float
    total: float
    step: int


@dataclass(frozen=True, slots=True)
class Row:
    day: date
    cells: tuple[Cell | None, ...]


class _Kept(NamedTuple):
    at: float
    found: Forecast


_kept: WeakKeyDictionary[Service, dict[str, _Kept]] = WeakKeyDictionary()


@router.get("/forecast")
async def show(visitor: Visiting) -> Response:
    zone, errors = _zone(visitor.request.query_params.get("zone", "UTC").strip() or "UTC")
    found = await _ahead(visitor.service, visitor.team)
    rows = heat_map(found, zone)
    cells = [cell for row in rows for cell in row.cells if cell is not None]
    asked = visitor.request.query_params.get("hour", "")
    hottest = max(cells, key=lambda cell: cell.peak)
    chosen = next((cell for cell in cells if str(cell.hour) == asked), hottest)
    return visitor.page(
        "forecast.html", forecast=found, rows=rows, zone=zone, errors=errors, chosen=chosen,
        minutes=_minutes(found, chosen.hour, zone), begins=moment(found.begins), said=_said(found, zone),
        peak=found.peak, short=short, typed=visitor.request.query_params.get("zone", "UTC"),
    )  # fmt: skip


async def _ahead(service: Service, team: str) -> Forecast:
    kept = _kept.setdefault(service, {})
    known, elapsed = kept.get(team), service.clock.elapsed()
    if known is not None and elapsed - known.at < KEPT_SECONDS:
        return known.found
    sample = await service.store.schedules.sample(SCHEDULES)
    found = await look_ahead(sample, team, service.clock.now())
    kept[team] = _Kept(service.clock.elapsed(), found)
    return found


def _zone(name: str) -> tuple[str, dict[str, str]]:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return "UTC", {"zone": "is not a time zone; enter an IANA zone such as Europe/Kyiv"}
    return name, {}


def _said(found: Forecast, zone: str) -> Callable[[int], str]:
    """Return a minute of the week as readable text."""
    local = ZoneInfo(zone)

    def said(minute: int) -> str:
        at = moment(found.begins + minute * MINUTE).astimezone(local)
        return f"{at:%a} {at.day} {at:%b %H:%M}"

    return said


def heat_map(found: Forecast, zone: str) -> list[Row]:
    """Return days by hours, by the clock of a zone. An hour that the clock repeats is drawn as one."""
    local = ZoneInfo(zone)
    begins: dict[tuple[date, int], int] = {}
    for minute in (0, *range(-found.begins // MINUTE % _PART, WEEK, _PART)):
        at = moment(found.begins + minute * MINUTE).astimezone(local)
        begins.setdefault((at.date(), at.hour), minute)
    ends = [*begins.values(), WEEK][1:]
    top = found.peak
    rows: dict[date, list[Cell | None]] = {}
    for ((day, hour), first), end in zip(begins.items(), ends, strict=True):
        counts = found.counts[first:end]
        cell = Cell(first, max(counts), sum(counts), _step(max(counts), top))
        rows.setdefault(day, [None] * _HOURS)[hour] = cell
    return [Row(day, tuple(cells)) for day, cells in sorted(rows.items())]


def _step(starts: float, top: float) -> int:
    """Return the shade: 0 for no starts, then equal steps up to the busiest minute, which has the last one."""
    return 0 if not starts else 1 + min(int(starts / top * _STEPS), _STEPS - 1)


def _minutes(found: Forecast, first: int, zone: str) -> list[tuple[datetime, float]]:
    """Return the minutes of the hour that begins with minute `first`."""
    local = ZoneInfo(zone)
    counts = found.counts[first : first + HOUR]
    return [(moment(found.begins + (first + place) * MINUTE).astimezone(local), n) for place, n in enumerate(counts)]


def short(starts: float) -> str:
    """Return a count in a few characters: 7, 950, 1.2k, 35k."""
    if starts < 10 and not float(starts).is_integer():
        return f"{starts:.1f}"
    if starts < 1_000:
        return str(round(starts))
    return f"{starts / 1000:.1f}k" if starts < 10_000 else f"{starts / 1000:.0f}k"

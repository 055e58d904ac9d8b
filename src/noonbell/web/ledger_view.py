"""The latest occurrences of a schedule, newest first.

The ledger is read from the past to the present. So a window before the wanted end is tried, short at first and longer
until it holds enough: what is read depends on how many are shown, not on how often the schedule fires.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from noonbell.schedules import Schedules
from noonbell.schedules.records import Occurrence

_WINDOWS: Final = tuple(
    timedelta(minutes=minutes)
    for minutes in (2, 20, 180, 1_440, 10_080, 89_280, 792_000, 10_512_000)
)  # fmt: skip
_BLOCK: Final = 500
_MOST_BLOCKS: Final = 20
_FIRST: Final = datetime.fromisoformat("1970-01-02T00:00:00+00:00")


class Latest(NamedTuple):
    """Newest first; `older` says that there are some before these."""

    items: list[Occurrence]
    older: bool


async def latest_occurrences(schedules: Schedules, schedule_id: str, until: datetime, wanted: int) -> Latest:
    """The last `wanted` occurrences up to `until`."""
    found: list[Occurrence] = []
    for window in _WINDOWS:
        start = max(until - window, _FIRST) if window < until - _FIRST else _FIRST
        found = await _tail(schedules, schedule_id, start, until, wanted + 1)
        if len(found) > wanted or start == _FIRST:
            break
    return Latest(found[-wanted:][::-1], older=len(found) > wanted)


async def _tail(
    schedules: Schedules, schedule_id: str, start: datetime, until: datetime, wanted: int
) -> list[Occurrence]:
    """The last of a window; one that holds far more than expected is given up after some pages."""
    kept: list[Occurrence] = []
    cursor: str | None = None
    for _ in range(_MOST_BLOCKS):
        page = await schedules.occurrences(schedule_id, start=start, end=until, cursor=cursor, limit=_BLOCK)
        kept = [*kept, *page.items][-wanted:]
        cursor = page.next_cursor
        if cursor is None:
            break
    return kept

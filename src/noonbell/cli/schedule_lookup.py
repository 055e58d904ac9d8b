"""Lookup of a schedule by its id or its name."""

from __future__ import annotations

import difflib
from typing import Any, Final, Protocol

from noonbell.errors import NoonbellError, ScheduleNotFoundError
from noonbell.schedules.schedule_records import Page, Schedule

_MOST_NAMES: Final = 1_000


class Listing(Protocol):
    async def get(self, schedule_id: str) -> Schedule: ...
    async def list(self, *, cursor: str | None = None, limit: int = 100, **wanted: Any) -> Page[Schedule]: ...


async def find_schedule(schedules: Listing, given: str, owner: str | None = None) -> Schedule:
    """Return the schedule with this id, else the one with this name; if several match, the error lists their ids."""
    try:
        found = await schedules.get(given)
        if owner in (None, found.managed_by):
            return found
    except ScheduleNotFoundError:
        pass
    named = [one for one in await _containing(schedules, given) if one.name == given]
    if owner is not None:
        named = [one for one in named if one.managed_by == owner]
    if len(named) == 1:
        return named[0]
    if not named:
        raise await _unknown(schedules, given)
    listed = ", ".join(f"{one.schedule_id} ({one.managed_by})" for one in named)
    error = NoonbellError(f'{len(named)} schedules are named "{given}"; pass one of the ids: {listed}')
    error.details = {"value": given, "known": [one.schedule_id for one in named]}
    raise error


async def _containing(schedules: Listing, text: str) -> list[Schedule]:
    found: list[Schedule] = []
    cursor: str | None = None
    while len(found) < _MOST_NAMES:
        page = await schedules.list(cursor=cursor, limit=200, name_contains=text)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


async def _unknown(schedules: Listing, given: str) -> ScheduleNotFoundError:
    """Return the error of an unknown schedule, with similar names."""
    page = await schedules.list(limit=_MOST_NAMES)
    known = {name for one in page.items for name in (one.name, one.schedule_id)}
    near = difflib.get_close_matches(given, known, n=3, cutoff=0.6)
    error = ScheduleNotFoundError("schedule", given)
    error.args = (f'Schedule not found: no id or name "{given}"',)
    error.details = {**error.details, "value": given, "known": near}
    if near:
        error.add_note(f"Did you mean: {', '.join(near)}")
    elif not page.items:
        error.add_note("No schedules yet: noonbell schedules add creates one")
    return error

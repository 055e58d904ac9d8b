"""The preview of a schedule before it is saved: its next starts, clock changes that affect it, and collisions.

Collisions are with the chosen quiet hours, and with minutes in which other schedules of the team wake next. The latter
come from a bounded read of the index of wake-ups, so the page says 'at least'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from noonbell.core.instants import moment
from noonbell.core.turns import timing_of
from noonbell.cron import parse
from noonbell.language import Surprise, Understood
from noonbell.language.preview import coming_surprises
from noonbell.ports import Ledger, ScheduleFilter, WakeFilter
from noonbell.schedules.fields import first_anchor, read_fields, require_future
from noonbell.schedules.schedule_records import QuietHoursRecord
from noonbell.timing import QuietHours
from noonbell.web.session import RequestContext

_FIRES: Final = 10
_MINUTE: Final = 60_000_000
_MOST_BESIDE: Final = 50
_LOOKED_AT: Final = 5
BUSY: Final = 5
_NOTHING: Final = {"kind": "callback", "name": "preview"}


@dataclass(frozen=True, slots=True)
class Coming:
    """One of the next starts. `beside` is the known number of other schedules that wake in its minute."""

    at: datetime
    quiet: bool
    beside: int = 0

    @property
    def busy(self) -> bool:
        return self.beside >= BUSY


@dataclass(frozen=True, slots=True)
class SchedulePreview:
    """The preview of a schedule that is not saved yet."""

    meant: Understood
    spec: str
    timezone: str
    fires: Sequence[Coming]
    surprises: Sequence[Surprise]
    quiet_name: str | None

    @property
    def silenced(self) -> int:
        return sum(1 for fire in self.fires if fire.quiet)

    @property
    def busiest(self) -> Coming | None:
        found = max(self.fires, key=lambda fire: fire.beside, default=None)
        return found if found is not None and found.busy else None


async def preview_schedule(
    visitor: RequestContext,
    meant: Understood,
    given: dict[str, Any],
    quiet: QuietHoursRecord | None,
    editing: str | None,
) -> SchedulePreview:
    """Return the preview. `given` are start_at, end_at and dst; invalid ones raise the errors of the library."""
    now = visitor.service.clock.now()
    fields = {**meant.fields, **given, "action": _NOTHING}
    columns = read_fields(fields, None, now=now).columns
    timing = timing_of(columns, first_anchor(columns, now))
    require_future(columns, timing, now)
    hours = QuietHours() if quiet is None else QuietHours.from_json({"windows": quiet.windows})
    found: list[int] = []
    at = timing.following(now)
    while at is not None and len(found) < _FIRES:
        found.append(at)
        at = timing.following(at)
    beside = {at: await _beside(visitor, at, editing) for at in found[:_LOOKED_AT]}
    fires = [Coming(moment(at), hours.is_quiet(at), beside.get(at, 0)) for at in found]
    bent = (
        coming_surprises(parse(columns.spec), moment(now), ZoneInfo(columns.timezone), given.get("dst", "literal"))
        if columns.type == "cron"
        else ()
    )
    return SchedulePreview(meant, columns.spec, columns.timezone, fires, bent, None if quiet is None else quiet.name)


async def _beside(visitor: RequestContext, at: int, editing: str | None) -> int:
    """Count the other schedules of the team that wake next in the minute of `at`."""
    begin = at - at % _MINUTE
    wanted = WakeFilter(begin + _MINUTE - 1, team=visitor.team)

    async def read(store: Ledger) -> int:
        wakes = {sid for _, sid in await store.schedules.wakes(wanted, (begin, -1), _MOST_BESIDE)}
        edited = [] if editing is None else await store.schedules.find(ScheduleFilter(schedule_ids=[editing]))
        return len(wakes - {one.sid for one in edited})

    return await visitor.service.store.snapshot(read)

"""The overview: what comes, what runs, what went wrong, and who looks after it.

Every number has a bound, so that the page costs the same with a thousand schedules and with a million; where a bound is
reached the page says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, cast

from fastapi.responses import Response

from noonbell.access.records import moment
from noonbell.actions.callback import run_id
from noonbell.core.presence import lanes_up
from noonbell.monitors.records import Monitor
from noonbell.ports import LEDGER_TABLES
from noonbell.schedules.history import Run
from noonbell.store.coming import ComingStore
from noonbell.web.ahead import MINUTE, MINUTES, MOST_SCHEDULES, NextHour, next_hour
from noonbell.web.routing import page_router
from noonbell.web.session import Visiting, Visitor

router = page_router()

_MOST_LIVE: Final = 200
_SHOWN_LIVE: Final = 12
_LATEST: Final = 60
_MOST_FAILURES: Final = 50
_SHOWN_FAILURES: Final = 8
_MOST_LETTERS: Final = 100
_MOST_MONITORS: Final = 1_000
_LIVE: Final = LEDGER_TABLES["live"].columns


class Alive(NamedTuple):
    """A run that has not ended."""

    run_id: str
    name: str
    state: str
    attempt: int
    since: datetime | None
    scheduled_for: datetime
    kind: str


class Instance(NamedTuple):
    lane: str
    up_since: datetime
    here: bool


@router.get("/")
async def overview(visitor: Visiting) -> Response:
    latest = (await visitor.schedules.recent_runs(limit=_LATEST)).items
    failures = await _failures(visitor)
    day_ago = visitor.now - timedelta(days=1)
    alive, more_alive = await _alive(visitor)
    monitors, more_monitors = await _monitors(visitor)
    hour = await _hour(visitor)
    letters = await visitor.schedules.dead_letters(limit=_MOST_LETTERS)
    return visitor.page(
        "overview.html",
        hour=hour,
        bars=_bars(hour),
        latest=latest,
        late=_late(latest),
        alive=alive[:_SHOWN_LIVE],
        alive_count=f"{len(alive)}{'+' if more_alive else ''}",
        failures=failures[:_SHOWN_FAILURES],
        failed_today=sum(1 for run in failures if run.ended_at is not None and run.ended_at >= day_ago),
        failures_full=len(failures) >= _MOST_FAILURES,
        instances=await _instances(visitor),
        stalled_for=timedelta(seconds=visitor.service.poll_age or 0) if visitor.service.stalled else None,
        lane=visitor.service.settings.lane,
        monitors=monitors,
        more_monitors=more_monitors,
        undelivered=f"{len(letters.items)}{'+' if letters.next_cursor else ''}" if letters.items else "",
        backlog=await visitor.service.backlog() if visitor.caller.manages_teams else None,
        down=[one for one in monitors if one.status == "down"],
        fresh=not latest and not alive and not (await visitor.schedules.list(limit=1)).items,
    )


# --- what comes -------------------------------------------------------------------------------------------------------


async def _hour(visitor: Visitor) -> NextHour:
    now = visitor.service.clock.now()
    store = cast("ComingStore", visitor.service.store)
    soon = await store.coming(now, now + MINUTES * MINUTE, MOST_SCHEDULES + 1, visitor.team)
    return next_hour(soon, now)


def _bars(hour: NextHour) -> list[dict[str, Any]]:
    """What is drawn of each minute: places and heights as numbers, since styles cannot be written into the page."""
    most = max(1, hour.peak[1])
    bars = []
    for minute, (loud, quiet) in enumerate(zip(hour.counts, hour.quiet, strict=True)):
        if loud or quiet:
            high = max(4.0, 88.0 * (loud + quiet) / most)
            still = high * quiet / (loud + quiet)
            bars.append({"minute": minute, "count": loud, "quiet": quiet, "high": high - still, "still": still})
    return bars


# --- what is and was --------------------------------------------------------------------------------------------------


async def _alive(visitor: Visitor) -> tuple[list[Alive], bool]:
    """The live runs of the team, those that execute first; and whether there may be more."""
    found = await visitor.service.store.read_ledger("live", None, _MOST_LIVE)
    rows = [dict(zip(_LIVE, row, strict=True)) for row in found]
    store = cast("ComingStore", visitor.service.store)
    known = {one.sid: one for one in await store.schedules_by_number(list({row["sid"] for row in rows}))}
    alive = [
        Alive(
            run_id(known[row["sid"]].schedule_id, row["kind"], row["run_for"]),
            known[row["sid"]].columns.name,
            row["state"],
            row["attempt"],
            None if row["attempt_at"] is None else moment(row["attempt_at"]),
            moment(row["run_for"]),
            row["kind"],
        )
        for row in rows
        if row["sid"] in known and known[row["sid"]].team == visitor.team
    ]
    alive.sort(key=lambda one: (one.state != "running", one.since or one.scheduled_for))
    return alive, len(found) == _MOST_LIVE


async def _failures(visitor: Visitor) -> list[Run]:
    """The latest runs that did not succeed, whatever they ended as."""
    found: list[Run] = []
    for outcome in ("failed", "abandoned", "unknown"):
        page = await visitor.schedules.recent_runs(limit=_MOST_FAILURES, outcome=outcome)
        found += page.items
    found.sort(key=lambda run: run.ended_at or run.scheduled_for, reverse=True)
    return found[:_MOST_FAILURES]


def _late(latest: Sequence[Run]) -> dict[str, timedelta] | None:
    """How late the latest runs began: the middle one, and what all but the latest few stay below."""
    found = sorted(run.lateness for run in latest if run.lateness is not None)
    if not found:
        return None
    return {"middle": found[len(found) // 2], "most": found[-(-95 * len(found) // 100) - 1], "worst": found[-1]}


async def _instances(visitor: Visitor) -> list[Instance]:
    service = visitor.service
    up = lanes_up(await service.store.engines(0))
    own = service.settings.lane
    return [
        Instance(lane, moment(since), here=lane == own and service.schedules.running)
        for lane, since in sorted(up.items())
    ]


async def _monitors(visitor: Visitor) -> tuple[Sequence[Monitor], bool]:
    """The first of them, and whether there are more, at which nobody looks here."""
    page = await visitor.service.monitors.list(team=visitor.team, limit=_MOST_MONITORS)
    return page.items, page.next_cursor is not None

"""The overview: upcoming starts, live runs, failures, engines and monitors.

Every number has a bound, so that the page costs the same with a thousand schedules and with a million; if a bound is
reached, the page says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from fastapi.responses import Response

from noonbell.core.ids import run_id
from noonbell.core.instants import moment
from noonbell.core.presence import EngineRecord, lanes_up
from noonbell.core.records import StoredSchedule
from noonbell.monitors.monitor_records import Monitor
from noonbell.ports import LEDGER_TABLES, Ledger, ScheduleFilter, WakeFilter
from noonbell.schedules import Page, Schedules, Undelivered
from noonbell.schedules.history import Run
from noonbell.web.next_hour import MINUTE, MINUTES, MOST_SCHEDULES, NextHour, next_hour
from noonbell.web.routing import page_router
from noonbell.web.session import RequestContext, Visiting

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
    """A live run."""

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


class _Snapshot(NamedTuple):
    """A consistent read of the store. `known` are the schedules of the live rows, by number."""

    live: list[dict[str, Any]]
    known: dict[int, StoredSchedule]
    soon: list[StoredSchedule]
    letters: Page[Undelivered]
    engines: list[EngineRecord]
    backlog: dict[str, int] | None
    any_schedule: bool


@router.get("/")
async def overview(visitor: Visiting) -> Response:
    schedules, now = visitor.schedules, visitor.service.clock.now()
    latest = (await schedules.recent_runs(limit=_LATEST)).items
    failures = await _failures(schedules)
    day_ago = visitor.now - timedelta(days=1)
    operates = visitor.caller.manages_teams
    found = await visitor.service.store.snapshot(
        lambda store: _standing(store, schedules.reading_from(store), visitor.team, now, operates=operates)
    )
    alive = _alive(found, visitor.team)
    monitors, more_monitors = await _monitors(visitor)
    hour = next_hour(found.soon, now)
    letters = found.letters
    return visitor.page(
        "overview.html",
        hour=hour,
        bars=_bars(hour),
        latest=latest,
        late=_late(latest),
        alive=alive[:_SHOWN_LIVE],
        alive_count=f"{len(alive)}{'+' if len(found.live) == _MOST_LIVE else ''}",
        failures=failures[:_SHOWN_FAILURES],
        failed_today=sum(1 for run in failures if run.ended_at is not None and run.ended_at >= day_ago),
        failures_full=len(failures) >= _MOST_FAILURES,
        instances=_instances(visitor, found.engines),
        stalled_for=timedelta(seconds=visitor.service.poll_age or 0) if visitor.service.stalled else None,
        lane=visitor.service.settings.lane,
        monitors=monitors,
        more_monitors=more_monitors,
        undelivered=f"{len(letters.items)}{'+' if letters.next_cursor else ''}" if letters.items else "",
        backlog=found.backlog,
        down=[one for one in monitors if one.status == "down"],
        fresh=not latest and not alive and not found.any_schedule,
    )


async def _standing(store: Ledger, schedules: Schedules, team: str, now: int, *, operates: bool) -> _Snapshot:
    live = [dict(zip(_LIVE, row, strict=True)) for row in await store.read("live", None, _MOST_LIVE)]
    wanted = WakeFilter(now + MINUTES * MINUTE, team=team)
    wakes = await store.schedules.wakes(wanted, (now + 1, -1), MOST_SCHEDULES + 1)
    return _Snapshot(
        live,
        await _by_sids(store, [row["sid"] for row in live]),
        list((await _by_sids(store, [sid for _, sid in wakes])).values()),
        await schedules.dead_letters(limit=_MOST_LETTERS),
        (await store.engines.members(0)).alive,
        await store.backlog(now) if operates else None,
        bool(await store.schedules.find(ScheduleFilter(team=team), 0, 1)),
    )


async def _by_sids(store: Ledger, sids: Sequence[int]) -> dict[int, StoredSchedule]:
    """Return schedules, deleted ones among them, in the order of `sids`."""
    found = {one.sid: one for one in await store.schedules.find(ScheduleFilter(sids=sids, deleted=None))}
    return {sid: found[sid] for sid in sids if sid in found}


# --- upcoming starts --------------------------------------------------------------------------------------------------


def _bars(hour: NextHour) -> list[dict[str, Any]]:
    """Return the bar of each minute: positions and heights as numbers, because the page allows no inline styles."""
    most = max(1, hour.peak[1])
    bars = []
    for minute, (loud, quiet) in enumerate(zip(hour.counts, hour.quiet, strict=True)):
        if loud or quiet:
            high = max(4.0, 88.0 * (loud + quiet) / most)
            still = high * quiet / (loud + quiet)
            bars.append({"minute": minute, "count": loud, "quiet": quiet, "high": high - still, "still": still})
    return bars


# --- live and ended runs ----------------------------------------------------------------------------------------------


def _alive(found: _Snapshot, team: str) -> list[Alive]:
    """Return the live runs of the team, executing ones first."""
    known = found.known
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
        for row in found.live
        if row["sid"] in known and known[row["sid"]].team == team
    ]
    alive.sort(key=lambda one: (one.state != "running", one.since or one.scheduled_for))
    return alive


async def _failures(schedules: Schedules) -> list[Run]:
    """Return the latest runs that ended in any state but success."""
    found: list[Run] = []
    for outcome in ("failed", "abandoned", "unknown"):
        page = await schedules.recent_runs(limit=_MOST_FAILURES, outcome=outcome)
        found += page.items
    found.sort(key=lambda run: run.ended_at or run.scheduled_for, reverse=True)
    return found[:_MOST_FAILURES]


def _late(latest: Sequence[Run]) -> dict[str, timedelta] | None:
    """Return the lateness of the latest runs: the median and a high percentile."""
    found = sorted(run.lateness for run in latest if run.lateness is not None)
    if not found:
        return None
    return {"middle": found[len(found) // 2], "most": found[-(-95 * len(found) // 100) - 1], "worst": found[-1]}


def _instances(visitor: RequestContext, engines: Sequence[EngineRecord]) -> list[Instance]:
    service = visitor.service
    up = lanes_up(engines)
    own = service.settings.lane
    return [
        Instance(lane, moment(since), here=lane == own and service.schedules.running)
        for lane, since in sorted(up.items())
    ]


async def _monitors(visitor: RequestContext) -> tuple[Sequence[Monitor], bool]:
    """Return the first monitors, and whether there are more."""
    page = await visitor.service.monitors.list(team=visitor.team, limit=_MOST_MONITORS)
    return page.items, page.next_cursor is not None

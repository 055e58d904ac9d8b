"""One run: every attempt with its request and response, live while it runs; and a button to run it again."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, NamedTuple

from fastapi.responses import Response

from noonbell.api.routes.runs import RunInPath
from noonbell.core.instants import instant, moment
from noonbell.core.presence import EngineRecord, lanes_up
from noonbell.core.records import StoredSchedule
from noonbell.errors import ScheduleBusyError
from noonbell.ledger import why_schedule
from noonbell.ports import Ledger, ScheduleFilter
from noonbell.schedules import Schedules
from noonbell.schedules.history import Run
from noonbell.schedules.schedule_records import Attempt, schedule_record
from noonbell.web import attempt_view as exchange
from noonbell.web.rendering import segment
from noonbell.web.routing import page_router
from noonbell.web.session import Changing, Visiting

router = page_router()

_CAUSES: Final = {
    "cron": "by its schedule", "one_shot": "at its time", "retry": "a retry", "orphan": "again, after its engine died",
    "manual": "started by hand", "api": "started through the API",
}  # fmt: skip
_ALIVE: Final = ("queued", "running", "waiting")


class _Found(NamedTuple):
    """The rows of the page, read in one transaction; `stored` is None if the schedule was deleted."""

    run: Run
    stored: StoredSchedule | None
    engines: list[EngineRecord]
    why: str


@router.get("/runs/{run_id}")
async def show(visitor: Visiting, run_id: RunInPath) -> Response:
    schedules, now = visitor.schedules, visitor.service.clock.now()
    found = await visitor.service.store.snapshot(lambda store: _read(store, schedules, run_id, now))
    run, stored = found.run, found.stored
    schedule = None if stored is None else schedule_record(stored, now=now)
    return visitor.page(
        "run.html",
        run=run,
        schedule=schedule,
        zone="UTC" if schedule is None else schedule.timezone,
        live=run.state in _ALIVE,
        wakes_at=_wakes_at(run, stored) if run.state == "waiting" else None,
        engines=lanes_up(found.engines),
        attempts=[_attempt(run, one) for one in reversed(run.tried)],
        why=found.why,
        CAUSES=_CAUSES,
    )


async def _read(store: Ledger, schedules: Schedules, run_id: str, now: int) -> _Found:
    run = await schedules.reading_from(store).run(run_id)
    stored = await store.schedules.find(ScheduleFilter(schedule_ids=[run.schedule_id]))
    engines = (await store.engines.members(0)).alive if run.state in _ALIVE else []
    return _Found(run, stored[0] if stored else None, engines, await _why(store, run, now))


@router.post("/runs/{run_id}/again")
async def again(visitor: Changing, run_id: RunInPath) -> Response:
    """Run the same schedule again, now; the earlier run is not changed."""
    run = await visitor.schedules.run(run_id)
    try:
        new_id = await visitor.schedules.trigger(run.schedule_id)
    except ScheduleBusyError:
        message = "A run of this schedule is in progress; run it again after that run has ended"
        return visitor.go(f"/runs/{segment(run_id)}", message, "bad")
    visitor.service.events.nudge()
    return visitor.go(f"/runs/{segment(new_id)}", "The run is queued; it starts at once if an engine is up")


def _attempt(run: Run, one: Attempt) -> dict[str, Any]:
    """Return an attempt for the template; `omitted` is the number of unrecorded attempts just before it."""
    omitted = run.attempts_omitted if one is run.first_after_omitted else 0
    traceback = (one.detail or {}).get("traceback")
    return {"attempt": one, "shown": exchange.view_of(one.detail), "traceback": traceback, "omitted": omitted}


def _wakes_at(run: Run, stored: StoredSchedule | None) -> datetime | None:
    for live in () if stored is None else stored.lives:
        if (live.kind, live.run_for) == (run.kind, instant(run.scheduled_for)) and live.wake_at:
            return moment(live.wake_at)
    return None


async def _why(store: Ledger, run: Run, now: int) -> str:
    if run.kind == "manual":
        return "This run was started by hand; the audit names by whom. It is not an occurrence and changes none."
    history = await store.history.find(run.schedule_id)
    if history is None:
        return ""
    return (await why_schedule(store, history.sid, run.scheduled_for, now=now)).text

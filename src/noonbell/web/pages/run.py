"""One run: every attempt with what it sent and got, live while it runs; and asking for another one."""

from __future__ import annotations

from typing import Any, Final

from fastapi.responses import Response

from noonbell.api.routes.runs import RunInPath
from noonbell.core.presence import lanes_up
from noonbell.errors import ScheduleBusyError, ScheduleNotFoundError
from noonbell.ledger import why_schedule
from noonbell.schedules import Schedule
from noonbell.schedules.history import Run
from noonbell.schedules.records import Attempt
from noonbell.web import exchange
from noonbell.web.rendering import segment
from noonbell.web.routing import page_router
from noonbell.web.session import Changing, Visiting, Visitor
from noonbell.web.times import instant, moment

router = page_router()

_CAUSES: Final = {
    "cron": "by its schedule", "one_shot": "at its time", "retry": "a retry", "orphan": "again, after its engine died",
    "manual": "asked for by hand", "api": "asked for over the API",
}  # fmt: skip
_ALIVE: Final = ("queued", "running", "waiting")


@router.get("/runs/{run_id}")
async def show(visitor: Visiting, run_id: RunInPath) -> Response:
    run = await visitor.schedules.run(run_id)
    schedule = await _schedule(visitor, run.schedule_id)
    live = run.state in _ALIVE
    return visitor.page(
        "run.html",
        run=run,
        schedule=schedule,
        zone="UTC" if schedule is None else schedule.timezone,
        live=live,
        wakes_at=await _wakes_at(visitor, run) if run.state == "waiting" else None,
        engines=lanes_up(await visitor.service.store.engines(0)) if live else {},
        attempts=[_attempt(run, one) for one in reversed(run.tried)],
        why=await _why(visitor, run),
        CAUSES=_CAUSES,
    )


@router.post("/runs/{run_id}/again")
async def again(visitor: Changing, run_id: RunInPath) -> Response:
    """Run the same schedule once more, now; the run that was is left as it is."""
    run = await visitor.schedules.run(run_id)
    try:
        new_id = await visitor.schedules.trigger(run.schedule_id)
    except ScheduleBusyError:
        told = "The schedule is running just now; ask again when that run has ended"
        return visitor.go(f"/runs/{segment(run_id)}", told, "bad")
    visitor.service.events.nudge()
    return visitor.go(f"/runs/{segment(new_id)}", "Asked for; it starts at once where an engine is up")


def _attempt(run: Run, one: Attempt) -> dict[str, Any]:
    """An attempt for the template; `omitted` is how many were left out of the record just before it."""
    omitted = run.attempts_omitted if one is run.first_after_omitted else 0
    traceback = (one.detail or {}).get("traceback")
    return {"attempt": one, "shown": exchange.told(one.detail), "traceback": traceback, "omitted": omitted}


async def _schedule(visitor: Visitor, schedule_id: str) -> Schedule | None:
    try:
        return await visitor.schedules.get(schedule_id)
    except ScheduleNotFoundError:
        return None  # deleted: its runs stay


async def _wakes_at(visitor: Visitor, run: Run) -> object:
    found = await visitor.service.store.find_schedules([run.schedule_id])
    for one in found:
        for live in one.lives:
            if (live.kind, live.run_for) == (run.kind, instant(run.scheduled_for)) and live.wake_at:
                return moment(live.wake_at)
    return None


async def _why(visitor: Visitor, run: Run) -> str:
    if run.kind == "manual":
        return "Somebody asked for this run; the audit names who. It stands beside the occurrences and changes none."
    history = await visitor.service.store.history_of(run.schedule_id)
    if history is None:
        return ""
    answer = await why_schedule(visitor.service.store, history.sid, run.scheduled_for, now=instant(visitor.now))
    return answer.text

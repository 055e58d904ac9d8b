"""One schedule: its definition, its upcoming occurrences, and the verdict on every past one.

A deleted schedule keeps its history, and tasks that a program has declared are shown read-only; neither can be changed
here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from fastapi.responses import Response

from noonbell.actions.http import credentials
from noonbell.api.declared_tasks_view import Declared, DeclaredTasks
from noonbell.api.paging import ScheduleInPath
from noonbell.api.problems import ProblemError
from noonbell.api.schedule_presenter import declared_response, not_editable, schedule_response
from noonbell.core.instants import instant, moment
from noonbell.core.records import History
from noonbell.errors import ScheduleBusyError, ScheduleInvalidError, ScheduleNotFoundError, raised_type
from noonbell.ledger import why_schedule
from noonbell.periodic.application import NAME as APPLICATION
from noonbell.ports import RunFilter
from noonbell.schedules.history import Run
from noonbell.web.rendering import segment
from noonbell.web.routing import page_router
from noonbell.web.session import Changing, RequestContext, Visiting
from noonbell.web.year import year_of

router = page_router()

_SHOWN: Final = 30
_CHARTED: Final = 200
_COMING: Final = 10
TASK_PATIENCE_SECONDS: Final = 5.0

under_way: Final[set[asyncio.Task[bool]]] = set()  # the event loop itself holds them only weakly


@router.get("/schedules/{schedule_id}")
async def show(visitor: Visiting, declared: Declared, schedule_id: ScheduleInPath) -> Response:
    until = _until(visitor)
    try:
        found = await visitor.schedules.detail(
            schedule_id, upto=until, occurrences=_SHOWN, runs=_CHARTED, coming=_COMING
        )
    except ScheduleNotFoundError:
        return await _declared_page(visitor, declared, schedule_id)
    history = found.history
    schedule = None if found.schedule is None else schedule_response(found.schedule)
    zone = "UTC" if schedule is None else schedule.timezone
    return visitor.page(
        "schedule.html",
        schedule=schedule,
        schedule_id=schedule_id,
        name=history.name,
        removed_at=None if history.removed_at is None else moment(history.removed_at),
        zone=zone,
        coming=found.coming,
        statistics=found.statistics,
        alive=found.live,
        year=await year_of(visitor.service.store, history.sid, zone, visitor.now, found.began_at),
        points=_points(found.runs),
        ledger=found.occurrences,
        until=until,
        quiet=found.quiet_hours,
        action=None if schedule is None else credentials.shown(schedule.action),
    )


async def _declared_page(visitor: RequestContext, declared: DeclaredTasks, schedule_id: str) -> Response:
    row = await declared.find(visitor.team, schedule_id)
    if row is None:
        raise ScheduleNotFoundError("schedule", schedule_id)
    schedule = declared_response(row)
    sid, now = int(row["sid"]), instant(visitor.now)
    runs = await visitor.service.store.history.runs(
        RunFilter(sid, now - timedelta(days=1) // timedelta(microseconds=1), now)
    )
    answer = await why_schedule(visitor.service.store, sid, None, now=now)
    return visitor.page(
        "schedule_declared.html", schedule=schedule, runs=runs[-_SHOWN:][::-1], moment=moment, why=answer.text,
        runnable=_task_of(visitor, row) is not None,
    )  # fmt: skip


def _task_of(visitor: RequestContext, row: Mapping[str, Any]) -> str | None:
    """Return the name of a task that this service runs for its application; None for a task of another program."""
    tasks = visitor.service.tasks
    if tasks is None or row["managed_by"] != f"periodic:{APPLICATION}" or row["name"] not in tasks.task_names:
        return None
    return str(row["name"])


async def _history(visitor: RequestContext, schedule_id: str) -> History | None:
    found = await visitor.service.store.history.find(schedule_id)
    return found if found is not None and found.team == visitor.team else None


def _until(visitor: RequestContext) -> datetime | None:
    """Return the end of the ledger that is shown: an instant, or the end of a day."""
    before, day = visitor.request.query_params.get("before"), visitor.request.query_params.get("day")
    try:
        if before:
            at = datetime.fromisoformat(before.replace(" ", "+"))
        elif day:
            at = datetime.fromisoformat(f"{day}T00:00:00+00:00") + timedelta(days=1)
        else:
            return None
    except (ValueError, OverflowError):
        raise ScheduleInvalidError("day", before or day, "must be a day such as 2026-11-01") from None
    if at.tzinfo is None or not 1970 < at.year < 9998:
        raise ScheduleInvalidError("before", before, "must be an ISO 8601 time with an offset")
    return min(at, visitor.now)


def _points(runs: Sequence[Run]) -> str:
    """Return the points of the charts, oldest first: end in seconds, duration and lateness in ms, and state."""
    rows = [run for run in reversed(runs) if run.started_at is not None and run.ended_at is not None]
    rows.sort(key=lambda run: run.ended_at or run.scheduled_for)
    return json.dumps(
        {
            "at": [round(run.ended_at.timestamp(), 3) for run in rows if run.ended_at is not None],
            "duration": [None if run.duration is None else _ms(run.duration) for run in rows],
            "late": [None if run.lateness is None else _ms(run.lateness) for run in rows],
            "good": [run.state == "succeeded" for run in rows],
        }
    )


def _ms(span: timedelta) -> float:
    return round(span.total_seconds() * 1000, 1)


# --- why --------------------------------------------------------------------------------------------------------------


@router.get("/schedules/{schedule_id}/why")
async def why(visitor: Visiting, declared: Declared, schedule_id: ScheduleInPath) -> Response:
    """Explain why the schedule ran or did not run at a moment; without one, at its latest occurrence."""
    history = await _history(visitor, schedule_id)
    if history is not None:
        sid, name = history.sid, history.name
    else:
        row = await declared.find(visitor.team, schedule_id)
        if row is None:
            raise ScheduleNotFoundError("schedule", schedule_id)
        sid, name = int(row["sid"]), str(row["name"])
    asked = visitor.request.query_params.get("at", "").strip()
    answer = await why_schedule(visitor.service.store, sid, _moment(asked), now=instant(visitor.now))
    values: dict[str, Any] = {"text": answer.text, "name": name, "schedule_id": schedule_id, "asked": asked}
    if visitor.by_script:
        return visitor.part("parts/why.html", **values)
    return visitor.page("why.html", **values)


def _moment(asked: str) -> datetime | None:
    """Return a typed moment; without an offset it is local time of the schedule's zone."""
    if not asked:
        return None
    try:
        at = datetime.fromisoformat(asked.replace(" ", "+"))
    except ValueError:
        raise ScheduleInvalidError("at", asked, "must be a time such as 2026-11-01T09:30") from None
    if not 1970 < at.year < 9998:
        raise ScheduleInvalidError("at", asked, "must lie between the years 1971 and 9997")
    return at


# --- changing ---------------------------------------------------------------------------------------------------------


async def _require_editable(visitor: RequestContext, declared: DeclaredTasks, schedule_id: str) -> None:
    row = await declared.find(visitor.team, schedule_id)
    if row is not None:
        raise not_editable(str(row["managed_by"]))


@router.post("/schedules/{schedule_id}/pause")
async def pause(visitor: Changing, declared: Declared, schedule_id: ScheduleInPath) -> Response:
    await _require_editable(visitor, declared, schedule_id)
    await visitor.schedules.pause(schedule_id)
    visitor.service.events.nudge()
    return visitor.go(f"/schedules/{segment(schedule_id)}", "Paused: it has no occurrences until it is resumed")


@router.post("/schedules/{schedule_id}/resume")
async def resume(visitor: Changing, declared: Declared, schedule_id: ScheduleInPath) -> Response:
    await _require_editable(visitor, declared, schedule_id)
    await visitor.schedules.resume(schedule_id)
    visitor.service.events.nudge()
    return visitor.go(f"/schedules/{segment(schedule_id)}", "Resumed")


@router.post("/schedules/{schedule_id}/run")
async def run_now(visitor: Changing, declared: Declared, schedule_id: ScheduleInPath) -> Response:
    """Start a run now, and redirect to its page."""
    row = await declared.find(visitor.team, schedule_id)
    task = None if row is None else _task_of(visitor, row)
    if task is not None:
        return await _run_task(visitor, schedule_id, task)
    await _require_editable(visitor, declared, schedule_id)
    try:
        run_id = await visitor.schedules.trigger(schedule_id)
    except ScheduleBusyError:
        message = "A run of this schedule is in progress; run it again after that run has ended"
        return visitor.go(f"/schedules/{segment(schedule_id)}", message, "bad")
    visitor.service.events.nudge()
    warnings = await visitor.schedules.warnings(await visitor.schedules.get(schedule_id))
    return visitor.go(f"/runs/{segment(run_id)}", " ".join(warnings) or None, "plain")


async def _run_task(visitor: RequestContext, schedule_id: str, task: str) -> Response:
    """Run a task of the application. Wait for a short one; a longer one continues, and its page shows the end."""
    tasks = visitor.service.tasks
    assert tasks is not None  # noqa: S101 - it is one of them
    back = f"/schedules/{segment(schedule_id)}"
    run = asyncio.get_running_loop().create_task(tasks.run_now(task), name="noonbell-task-now")
    under_way.add(run)
    run.add_done_callback(_ended)
    done, _ = await asyncio.wait([run], timeout=TASK_PATIENCE_SECONDS)
    visitor.service.events.nudge()
    if not done:
        return visitor.go(back, "The task is running; this page shows when it has ended", "plain")
    if (error := run.exception()) is not None:
        message = f"The task failed with {raised_type(error)}; see its run and the log for the message"
        return visitor.go(back, message, "bad")
    if not run.result():
        return visitor.go(back, "A run of the task is in progress; run it again after that run has ended", "bad")
    return visitor.go(back, "The task has run and succeeded")


def _ended(run: asyncio.Task[bool]) -> None:
    """Retrieve the exception, so that asyncio does not warn; the failure is in the ledger and in the log."""
    under_way.discard(run)
    if not run.cancelled():
        run.exception()


@router.post("/schedules/{schedule_id}/delete")
async def delete(visitor: Changing, declared: Declared, schedule_id: ScheduleInPath) -> Response:
    await _require_editable(visitor, declared, schedule_id)
    if not visitor.form.ticked("sure"):
        raise ProblemError(422, "Confirm the deletion; nothing was deleted")
    name = (await visitor.schedules.get(schedule_id)).name
    await visitor.schedules.delete(schedule_id)
    visitor.service.events.nudge()
    return visitor.go("/schedules", f"“{name}” is deleted; its history stays")

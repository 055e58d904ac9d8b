"""`GET /api/periodic?period=hour|hourly|day|daily`: runs the hourly or the daily task of an application now.

An application mounts it beside its own scheduler, with its own authentication:

    cron = periodic.make(...)
    app.include_router(periodic_router(cron, dependencies=[Depends(my_login)]))

The service has it with `--tasks` and requires a key of the first team with the scope write: declared tasks belong to
that team, and other teams get a 404.

The response is sent when the run has ended: 200, or 500 if the task failed. A run that takes longer than PATIENCE
continues, and the response is 202. Such a run is not retried and changes no schedule.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from noonbell.api.problems import ProblemError, answer, problems
from noonbell.errors import TaskNotFoundError, raised_type
from noonbell.periodic import DAILY, HOURLY, PeriodicScheduler

PERIODS: Final = {"hour": HOURLY, "hourly": HOURLY, "day": DAILY, "daily": DAILY}
PATIENCE_SECONDS: Final = 25.0
PATH: Final = "/api/periodic"


class Ran(BaseModel):
    """The outcome of the run."""

    task: str
    state: Literal["succeeded", "running"]


def periodic_router(
    scheduler: PeriodicScheduler, *, dependencies: Sequence[Any] = (), patience_seconds: float = PATIENCE_SECONDS
) -> APIRouter:
    """Return the route for a scheduler with tasks named `hourly` and `daily`, as `schedule_all` declares them."""
    router = APIRouter(tags=["tasks"], dependencies=dependencies)
    under_way: set[asyncio.Task[bool]] = set()  # the event loop itself holds them only weakly

    @router.get(
        PATH,
        summary="Run the hourly or the daily task now",
        response_model=Ran,
        responses={202: {"model": Ran, "description": "It is still running"}, **problems(400, 404, 409, 500)},
        openapi_extra={
            "parameters": [
                {"name": "period", "in": "query", "required": True, "schema": {"type": "string", "enum": [*PERIODS]}}
            ]
        },
    )
    async def run_periodic(request: Request) -> Response:
        # not a typed parameter: a missing or wrong value is a 400 here, not a 422
        asked = request.query_params.getlist("period")
        if len(asked) != 1 or asked[0] not in PERIODS:
            detail = f"period must be one of {', '.join(PERIODS)}"
            problem = ProblemError(400, detail, kind="period-invalid", field="period", value=", ".join(asked))
            return answer(request, problem)
        name = PERIODS[asked[0]]
        run = asyncio.get_running_loop().create_task(scheduler.run_now(name), name="noonbell-periodic-now")
        under_way.add(run)
        run.add_done_callback(under_way.discard)
        done, _ = await asyncio.wait([run], timeout=patience_seconds)
        if not done:
            run.add_done_callback(_look_at)
            return JSONResponse({"task": name, "state": "running"}, 202)
        return _ended(request, name, run)

    return router


def _ended(request: Request, name: str, run: asyncio.Task[bool]) -> Response:
    error = run.exception()
    if isinstance(error, TaskNotFoundError):
        return answer(request, ProblemError(404, str(error), kind="task-not-found"))
    if error is not None:
        # the message of the exception may not be meant for the caller
        detail = f'The task "{name}" failed with {raised_type(error)}; see its run and the log for the message'
        return answer(request, ProblemError(500, detail, kind="task-failed"))
    if not run.result():
        return answer(request, ProblemError(409, f'A run of the task "{name}" is under way', kind="task-busy"))
    return JSONResponse({"task": name, "state": "succeeded"})


def _look_at(run: asyncio.Task[bool]) -> None:
    """Retrieve the exception, so that asyncio does not warn; the failure is in the ledger and in the log."""
    if not run.cancelled():
        run.exception()

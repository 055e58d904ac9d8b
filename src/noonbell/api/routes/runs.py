"""The history: runs of all schedules and of one, the verdicts of occurrences, and statistics."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from noonbell.api.bodies import api_router
from noonbell.api.callers import Reading
from noonbell.api.deps import Serving, schedules_of
from noonbell.api.models.base import PLAIN, PageOf, QueryParams
from noonbell.api.models.schedules import OccurrenceResponse, Outcome, RunResponse, StatisticsResponse, WholeRun
from noonbell.api.paging import DEFAULT_LIMIT, Instant, Limit, NumberCursor, RunCursor, ScheduleInPath, Slashed, as_page
from noonbell.api.problems import problems
from noonbell.schedules.arguments import Order

router = api_router("runs")

RunInPath = Annotated[str, Slashed, Path(alias="run_id", min_length=1, max_length=600, pattern=PLAIN)]


class Runs(QueryParams):
    limit: Limit = DEFAULT_LIMIT
    cursor: RunCursor | None = None


class LatestRuns(Runs):
    outcome: Outcome | None = None


class Stretch(QueryParams):
    """A time range from `start` to `end`; by default the last day."""

    start: Instant | None = None
    end: Instant | None = None
    limit: Limit = DEFAULT_LIMIT
    cursor: NumberCursor | None = None
    order: Order = "newest"


class Last(QueryParams):
    last: Annotated[int, Query(ge=1, le=100_000)] = 100


@router.get("/runs", summary="The latest runs of all schedules")
async def list_runs(service: Serving, caller: Reading, asked: Annotated[LatestRuns, Query()]) -> PageOf[RunResponse]:
    """Ended runs, the one for the latest instant first."""
    page = await schedules_of(service, caller).recent_runs(
        cursor=asked.cursor, limit=asked.limit, outcome=asked.outcome
    )
    return as_page(RunResponse, page)


@router.get("/runs/{run_id}", summary="One run with its attempts", responses=problems(404))
async def get_run(service: Serving, caller: Reading, run_id: RunInPath) -> WholeRun:
    """A run, ended or not, with the detail of each attempt: a response, an output, an error."""
    return WholeRun.model_validate(await schedules_of(service, caller).run(run_id))


@router.get("/schedules/{schedule_id}/runs", summary="The runs of a schedule", responses=problems(404))
async def list_runs_of_schedule(
    service: Serving, caller: Reading, schedule_id: ScheduleInPath, asked: Annotated[Runs, Query()]
) -> PageOf[RunResponse]:
    """Ended runs, the one that ended last first. A deleted schedule keeps its runs."""
    page = await schedules_of(service, caller).runs(schedule_id, cursor=asked.cursor, limit=asked.limit)
    return as_page(RunResponse, page)


@router.get("/schedules/{schedule_id}/occurrences", summary="The occurrences of a schedule", responses=problems(404))
async def list_occurrences(
    service: Serving, caller: Reading, schedule_id: ScheduleInPath, asked: Annotated[Stretch, Query()]
) -> PageOf[OccurrenceResponse]:
    """Each nominal time with its verdict, newest first; `order=oldest` reverses the list.

    A cursor is valid only with the order that returned it.
    """
    page = await schedules_of(service, caller).occurrences(
        schedule_id, start=asked.start, end=asked.end, cursor=asked.cursor, limit=asked.limit,
        order=asked.order,
    )  # fmt: skip
    return as_page(OccurrenceResponse, page)


@router.get("/schedules/{schedule_id}/statistics", summary="Statistics of the latest runs", responses=problems(404))
async def statistics(
    service: Serving, caller: Reading, schedule_id: ScheduleInPath, asked: Annotated[Last, Query()]
) -> StatisticsResponse:
    return StatisticsResponse.model_validate(
        await schedules_of(service, caller).statistics(schedule_id, last=asked.last)
    )

"""`why` and `verify`: explain and check the ledger, a bounded part at a time.

`verify` checks schedules page by page, by default over the last day, so that a request is bounded; the command
`noonbell verify` checks a whole ledger.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated, Final
from zoneinfo import ZoneInfo

from fastapi import Query
from pydantic import Field

from noonbell.api.bodies import api_router
from noonbell.api.callers import Reading
from noonbell.api.declared_tasks_view import Declared, DeclaredTasks
from noonbell.api.deps import Serving
from noonbell.api.models.base import QueryParams
from noonbell.api.models.planned import ProblemFound, VerifyResponse, WhyResponse
from noonbell.api.paging import Instant, NumberCursor, ScheduleInPath
from noonbell.api.problems import problems
from noonbell.bootstrap import Service
from noonbell.core.instants import instant, moment
from noonbell.errors import LanguageError, ScheduleInvalidError, ScheduleNotFoundError
from noonbell.language.time_phrases import read_time
from noonbell.ledger import Report, verify_schedules, why_schedule
from noonbell.ports import ScheduleFilter

router = api_router("ledger")

_LONGEST: Final = timedelta(days=31)
_CIVIL: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?")


class Moment(QueryParams):
    at: Annotated[str, Field(max_length=40)] | None = Field(
        default=None,
        description='ISO 8601 or English, such as "yesterday at 9"; without an offset in the zone of the schedule.',
        examples=["2026-11-01T09:30", "yesterday at 9"],
    )


class Stretch(QueryParams):
    """A time range of at most 31 days; by default the last day."""

    start: Instant | None = None
    end: Instant | None = None


class Pages(Stretch):
    limit: Annotated[int, Query(ge=1, le=200)] = 50
    cursor: NumberCursor | None = None


@router.get("/schedules/{schedule_id}/why", summary="Why a schedule did or did not run", responses=problems(404))
async def why_it_ran(
    service: Serving, caller: Reading, declared: Declared, schedule_id: ScheduleInPath,
    asked: Annotated[Moment, Query()],
) -> WhyResponse:  # fmt: skip
    """At a moment; without one, at its latest occurrence, and what comes next."""
    sid = await _sid(service, declared, caller.team, schedule_id)
    at = None if asked.at is None else _moment(asked.at, await _here(service, declared, caller.team, schedule_id))
    answer = await why_schedule(service.store, sid, at, now=service.clock.now())
    return WhyResponse(text=answer.text, facts=answer.facts)


@router.get("/schedules/{schedule_id}/verify", summary="Verify a schedule", responses=problems(404))
async def verify_schedule(
    service: Serving, caller: Reading, declared: Declared, schedule_id: ScheduleInPath,
    asked: Annotated[Stretch, Query()],
) -> VerifyResponse:  # fmt: skip
    """Checks that every occurrence of the time range has one verdict, and every run its occurrence."""
    sid = await _sid(service, declared, caller.team, schedule_id)
    start, end = _stretch(asked, service.clock.now())
    report = await verify_schedules(service.store, [sid], from_at=instant(start), to_at=instant(end))
    return _verify_response(report, start, end)


@router.get("/verify", summary="Verify all schedules, page by page")
async def verify_page(service: Serving, caller: Reading, asked: Annotated[Pages, Query()]) -> VerifyResponse:
    """Checks a page of the team's schedules; `next_cursor` is null when all have been checked."""
    start, end = _stretch(asked, service.clock.now())
    wanted = ScheduleFilter(team=caller.team)
    found = await service.store.schedules.find(wanted, int(asked.cursor or 0), asked.limit + 1)
    sids = [stored.sid for stored in found[: asked.limit]]
    report = await verify_schedules(service.store, sids, from_at=instant(start), to_at=instant(end))
    return _verify_response(report, start, end, str(sids[-1]) if len(found) > asked.limit else None)


async def _sid(service: Service, declared: DeclaredTasks, team: str, schedule_id: str) -> int:
    """Return the number of a schedule, also of a deleted one."""
    history = await service.store.history.find(schedule_id)
    if history is not None and history.team == team:
        return history.sid
    row = await declared.find(team, schedule_id)
    if row is None:
        raise ScheduleNotFoundError("schedule", schedule_id)
    return int(row["sid"])


def _stretch(asked: Stretch, now: int) -> tuple[datetime, datetime]:
    end = moment(now) if asked.end is None else asked.end
    start = end - timedelta(days=1) if asked.start is None else asked.start
    if start > end:
        raise ScheduleInvalidError("start", start.isoformat(), f"lies after the end, {end.isoformat()}")
    if end - start > _LONGEST:
        raise ScheduleInvalidError("start", start.isoformat(), "lies more than 31 days before the end; ask in parts")
    return start, end


async def _here(service: Serving, declared: Declared, team: str, schedule_id: str) -> datetime:
    """Return the current time in the zone of a schedule; in UTC if it was deleted."""
    row = await declared.find(team, schedule_id)
    found = [] if row is not None else await service.store.schedules.find(ScheduleFilter(schedule_ids=[schedule_id]))
    zone = str(row["timezone"]) if row is not None else found[0].columns.timezone if found else "UTC"
    return moment(service.clock.now()).astimezone(ZoneInfo(zone))


def _moment(text: str, here: datetime) -> datetime:
    written = re.sub(r"(\d) (\d\d:\d\d)$", r"\1+\2", text)  # an unescaped plus
    right = (
        "must be an ISO 8601 time between 1970 and 9997, such as 2026-11-01T09:30 or 2026-11-01T09:30:00Z, or English, "
        'such as "yesterday at 9"'
    )
    if re.match(r"\d{4}-\d\d-\d\dT", written) and not _CIVIL.fullmatch(written):
        raise ScheduleInvalidError("at", text, right)
    try:
        at = read_time(written, here)
    except LanguageError as error:
        raise ScheduleInvalidError("at", text, f"{error.reason}; it {right}") from error
    if not 1970 < at.year < 9998:
        raise ScheduleInvalidError("at", text, right)
    return at


def _verify_response(report: Report, start: datetime, end: datetime, next_cursor: str | None = None) -> VerifyResponse:
    return VerifyResponse(
        whole=report.clean,
        schedules=report.schedules,
        occurrences=report.occurrences,
        runs=report.runs,
        spans=report.spans,
        pruned_days=report.pruned,
        problems=[
            ProblemFound(
                kind=problem.kind,
                text=problem.text,
                schedule=problem.schedule,
                at=None if problem.at is None else moment(problem.at),
            )
            for problem in report.problems
        ],
        more_problems=report.more,
        remarks=report.remarks,
        start=start,
        end=end,
        next_cursor=next_cursor,
    )

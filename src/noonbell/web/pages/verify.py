"""Verify: check that every occurrence of a time range has one verdict and every run its occurrence.

It covers one schedule, or all schedules of the team. A click checks SCHEDULES of them or takes SECONDS, whichever ends
first, and covers at most 31 days; if more are left, the page shows the progress and continues from there. The command
`noonbell verify` checks a whole store.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, NamedTuple

from fastapi.responses import Response

from noonbell.api.declared_tasks_view import Declared
from noonbell.api.paging import ScheduleInPath
from noonbell.core.instants import instant, moment
from noonbell.errors import ScheduleNotFoundError
from noonbell.ledger import Report, verify_schedules
from noonbell.ports import ScheduleFilter
from noonbell.web.routing import page_router
from noonbell.web.session import RequestContext, Visiting

router = page_router()

SCHEDULES: Final = 500
SECONDS: Final = 3.0
_PAGE: Final = 50
_LONGEST: Final = 31
_SHOWN: Final = 200
_NUMBER: Final = re.compile("[0-9]{1,18}", re.ASCII)


class Stretch(NamedTuple):
    """A time range from the beginning of a day to the end of another, in UTC, or to now."""

    start: datetime
    end: datetime
    errors: dict[str, str]


@router.get("/verify")
async def show(visitor: Visiting) -> Response:
    """Show the form; with `go`, check the schedules of the team."""
    asked = _stretch(visitor)
    report: Report | None = None
    begun, reached = _number(visitor.request.query_params.get("cursor", "")), None
    if visitor.request.query_params.get("go") and not asked.errors:
        report, reached = await _team(visitor, asked, begun)
    return _page(visitor, asked, report, begun=begun, reached=reached)


@router.get("/schedules/{schedule_id}/verify")
async def show_one(visitor: Visiting, declared: Declared, schedule_id: ScheduleInPath) -> Response:
    """Check one schedule, which may be deleted or a declared task, in one step."""
    history = await visitor.service.store.history.find(schedule_id)
    if history is not None and history.team == visitor.team:
        sid, name = history.sid, history.name
    else:
        row = await declared.find(visitor.team, schedule_id)
        if row is None:
            raise ScheduleNotFoundError("schedule", schedule_id)
        sid, name = int(row["sid"]), str(row["name"])
    asked = _stretch(visitor)
    report = None if asked.errors else await _looked(visitor, [sid], asked)
    return _page(visitor, asked, report, schedule_id=schedule_id, name=name)


async def _team(visitor: RequestContext, asked: Stretch, after: int) -> tuple[Report, int | None]:
    """Return the report, and the cursor to continue from; None if all schedules were checked."""
    clock, total = visitor.service.clock, Report([], [])
    until = clock.elapsed() + SECONDS
    while True:
        found = await visitor.service.store.schedules.find(ScheduleFilter(team=visitor.team), after, _PAGE + 1)
        sids = [stored.sid for stored in found[:_PAGE]]
        if sids:
            _add(total, await _looked(visitor, sids, asked))
            after = sids[-1]
        if len(found) <= _PAGE:
            return total, None
        if total.schedules >= SCHEDULES or clock.elapsed() >= until:
            return total, after


async def _looked(visitor: RequestContext, sids: Sequence[int], asked: Stretch) -> Report:
    return await verify_schedules(visitor.service.store, sids, from_at=instant(asked.start), to_at=instant(asked.end))


def _add(total: Report, found: Report) -> None:
    total.problems += found.problems
    total.remarks += [one for one in found.remarks if one not in total.remarks]
    for name in ("more", "schedules", "occurrences", "runs", "spans", "pruned"):
        setattr(total, name, getattr(total, name) + getattr(found, name))


def _stretch(visitor: RequestContext) -> Stretch:
    """Return the time range of the query; by default the last 24 hours."""
    asked, errors = visitor.request.query_params, {}
    read: dict[str, datetime | None] = {}
    for name in ("from", "to"):
        text = asked.get(name, "")
        try:
            read[name] = datetime.combine(date.fromisoformat(text), time(), UTC) if text else None
        except ValueError:
            read[name], errors[name] = None, "must be a day such as 2026-11-01"
    end = visitor.now if read["to"] is None else min(visitor.now, read["to"] + timedelta(days=1))
    start = end - timedelta(days=1) if read["from"] is None else read["from"]
    if not errors and start >= end:
        errors["from"] = "must not lie after the last day, or in the future"
    elif not errors and end - start > timedelta(days=_LONGEST):
        errors["from"] = f"must lie {_LONGEST} days before the last day at most; look in parts"
    elif not errors and start.year < 1971:
        errors["from"] = "must lie after the year 1970"
    return Stretch(start, end, errors)


def _number(text: str) -> int:
    return int(text) if _NUMBER.fullmatch(text) else 0


def _page(
    visitor: RequestContext,
    asked: Stretch,
    report: Report | None,
    *,
    schedule_id: str | None = None,
    name: str | None = None,
    begun: int = 0,
    reached: int | None = None,
) -> Response:
    problems = [] if report is None else report.problems
    return visitor.page(
        "verify.html", 422 if asked.errors else 200, asked=asked, report=report, schedule_id=schedule_id, name=name,
        first=begun == 0, reached=reached, bound=SCHEDULES,
        problems=[(one, None if one.at is None else moment(one.at)) for one in problems[:_SHOWN]],
        beyond=0 if report is None else len(problems) - len(problems[:_SHOWN]) + report.more,
    )  # fmt: skip

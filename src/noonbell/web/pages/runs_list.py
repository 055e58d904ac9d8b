"""The latest runs of all schedules of the team, newest first, filtered by outcome; or all runs of one schedule."""

from __future__ import annotations

import re
from typing import Final, cast, get_args

from fastapi.responses import Response

from noonbell.core.records import Outcome
from noonbell.web.routing import page_router
from noonbell.web.session import Visiting

router = page_router()

_PAGE: Final = 50
_CURSOR: Final = re.compile(r"-?[0-9]{1,18}\.[0-9]{1,18}\.(scheduled|manual)", re.ASCII)
OUTCOMES: Final[tuple[str, ...]] = get_args(Outcome)


@router.get("/runs")
async def show(visitor: Visiting) -> Response:
    asked = visitor.request.query_params
    outcome = asked.get("outcome", "") if asked.get("outcome") in OUTCOMES else ""
    given = asked.get("cursor", "")
    cursor = given if _CURSOR.fullmatch(given) else None
    of = asked.get("schedule", "").strip()
    if of:
        outcome = ""  # the runs of one schedule are few enough to read
        page = await visitor.schedules.runs(of, cursor=cursor, limit=_PAGE)
    else:
        page = await visitor.schedules.recent_runs(
            cursor=cursor, limit=_PAGE, outcome=cast("Outcome", outcome) if outcome else None
        )
    return visitor.page(
        "runs.html", items=page.items, more=page.next_cursor, outcome=outcome, outcomes=OUTCOMES, of=of,
        first=cursor is None,
    )  # fmt: skip

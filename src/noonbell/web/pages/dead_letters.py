"""Dead letters of schedules and of channels: their content, and why delivery was given up.

Each can be sent again once its cause is fixed, or dropped.
"""

from __future__ import annotations

import re
from typing import Final

from fastapi.responses import Response

from noonbell.web.rendering import pretty
from noonbell.web.routing import page_router
from noonbell.web.session import Changing, RequestContext, Visiting

router = page_router()

_PAGE: Final = 50
_NUMBER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)


@router.get("/dead-letters")
async def show(visitor: Visiting) -> Response:
    given = visitor.request.query_params.get("cursor", "")
    cursor = given if _NUMBER.fullmatch(given) else None
    of = visitor.request.query_params.get("schedule", "").strip()
    page = await visitor.schedules.dead_letters(of or None, cursor=cursor, limit=_PAGE)
    mask = await visitor.masking()
    items = [
        {"letter": one, "error": mask(one.error), "event": mask(pretty(one.event)), "target": mask(one.target)}
        for one in page.items
    ]
    return visitor.page("dead_letters.html", items=items, more=page.next_cursor, first=cursor is None, of=of)


@router.post("/dead-letters/revive")
async def revive(visitor: Changing) -> Response:
    found = await visitor.schedules.revive_dead_letters(_numbers(visitor))
    visitor.service.events.nudge()
    return visitor.go("/dead-letters", f"{found} on the way again")


@router.post("/dead-letters/drop")
async def drop(visitor: Changing) -> Response:
    found = await visitor.schedules.drop_dead_letters(_numbers(visitor))
    visitor.service.events.nudge()
    return visitor.go("/dead-letters", f"{found} dropped", "plain")


def _numbers(visitor: RequestContext) -> list[int]:
    return [int(number) for number in visitor.form.all("ids") if _NUMBER.fullmatch(number)][:_PAGE]

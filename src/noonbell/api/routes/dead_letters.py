"""Dead letters: messages and notices that could not be delivered."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from noonbell.api.bodies import api_router
from noonbell.api.callers import Reading, Writing
from noonbell.api.deps import Serving, schedules_of
from noonbell.api.models.base import Name, PageOf, QueryParams
from noonbell.api.models.resources import DeadLetterResponse, Found, NumbersRequest
from noonbell.api.paging import DEFAULT_LIMIT, Limit, NumberCursor, as_page
from noonbell.api.problems import problems

router = api_router("dead letters")


class Filters(QueryParams):
    schedule_id: Name | None = None
    limit: Limit = DEFAULT_LIMIT
    cursor: NumberCursor | None = None


@router.get("/dead-letters", summary="List dead letters, oldest first", responses=problems(404))
async def list_dead_letters(
    service: Serving, caller: Reading, asked: Annotated[Filters, Query()]
) -> PageOf[DeadLetterResponse]:
    page = await schedules_of(service, caller).dead_letters(asked.schedule_id, cursor=asked.cursor, limit=asked.limit)
    return as_page(DeadLetterResponse, page)


@router.post("/dead-letters/revive", summary="Deliver dead letters again")
async def revive_dead_letters(service: Serving, caller: Writing, given: NumbersRequest) -> Found:
    """The messages are appended to their streams. The response contains their number."""
    found = await schedules_of(service, caller).revive_dead_letters(given.numbers)
    service.events.nudge()
    return Found(found=found)


@router.post("/dead-letters/drop", summary="Forget dead letters")
async def drop_dead_letters(service: Serving, caller: Writing, given: NumbersRequest) -> Found:
    found = await schedules_of(service, caller).drop_dead_letters(given.numbers)
    service.events.nudge()
    return Found(found=found)

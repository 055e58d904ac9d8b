"""The audit: who changed what, and every unusual decision."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from fastapi import Query

from noonbell.actions.http.credentials import without_credentials
from noonbell.api.bodies import api_router
from noonbell.api.callers import Reading
from noonbell.api.deps import Serving, schedules_of
from noonbell.api.models.base import Name, PageOf, QueryParams
from noonbell.api.models.resources import AuditResponse
from noonbell.api.paging import DEFAULT_LIMIT, AuditCursor, Instant, Limit, as_page
from noonbell.schedules.arguments import Order
from noonbell.schedules.audits import dated
from noonbell.schedules.schedule_records import Page

router = api_router("audit")


class Filters(QueryParams):
    """Which events are meant; all that are given have to hold."""

    subject: Name | None = None
    event: Name | None = None
    actor: Name | None = None
    start: Instant | None = None
    end: Instant | None = None
    limit: Limit = DEFAULT_LIMIT
    cursor: AuditCursor | None = None
    order: Order = "newest"


@router.get("/audit", summary="List audit events, newest first")
async def list_audit(service: Serving, caller: Reading, asked: Annotated[Filters, Query()]) -> PageOf[AuditResponse]:
    """Events of the team. Missed slots come one by one, as long as a stretch has 1,000 of them at most.

    `order=oldest` turns the list round; a cursor belongs to the order that gave it.
    """
    page = await schedules_of(service, caller).audit(
        subject=asked.subject, event=asked.event, actor=asked.actor, start=asked.start, end=asked.end,
        cursor=asked.cursor, limit=asked.limit, order=asked.order,
    )  # fmt: skip
    items = [msgspec.structs.replace(one, detail=dated(one.detail, _iso)) for one in page.items]
    found = as_page(AuditResponse, Page(items, page.next_cursor))
    if not caller.may("write"):
        for one in found.items:
            one.detail = without_credentials(one.detail)
    return found


def _iso(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")

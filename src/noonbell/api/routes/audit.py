"""The audit: who changed what, and every unusual decision."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from noonbell.actions.http.credentials import without_credentials
from noonbell.api.bodies import api_router
from noonbell.api.callers import Reading
from noonbell.api.deps import Serving, schedules_of
from noonbell.api.models.base import Asked, Name, PageOf
from noonbell.api.models.things import AuditTold
from noonbell.api.paging import DEFAULT_LIMIT, AuditCursor, Instant, Limit, told

router = api_router("audit")


class Filters(Asked):
    """Which events are meant; all that are given have to hold."""

    subject: Name | None = None
    event: Name | None = None
    actor: Name | None = None
    start: Instant | None = None
    end: Instant | None = None
    limit: Limit = DEFAULT_LIMIT
    cursor: AuditCursor | None = None


@router.get("/audit", summary="List audit events, oldest first")
async def list_audit(service: Serving, caller: Reading, asked: Annotated[Filters, Query()]) -> PageOf[AuditTold]:
    """Events of the team. Missed slots come one by one, as long as a stretch has 1,000 of them at most."""
    page = await schedules_of(service, caller).audit(
        subject=asked.subject, event=asked.event, actor=asked.actor, start=asked.start, end=asked.end,
        cursor=asked.cursor, limit=asked.limit,
    )  # fmt: skip
    found = told(AuditTold, page)
    if not caller.may("write"):
        for one in found.items:
            one.detail = without_credentials(one.detail)
    return found

"""The events of the team for the dashboard: the stream of the API, opened by a session."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header
from fastapi.responses import Response

from noonbell.access import Caller
from noonbell.api.routes.events import stream_for
from noonbell.web import forms
from noonbell.web.routing import page_router
from noonbell.web.session import Visiting

router = page_router()

LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=100)]


@router.get("/events")
async def follow(visitor: Visiting, last_event_id: LastEventId = None) -> Response:
    async def ask() -> Caller | None:
        found = await forms.session_of(visitor.service, visitor.request)
        return None if found is None else found[1]

    return await stream_for(visitor.request, visitor.service, visitor.caller, ask, last_event_id)

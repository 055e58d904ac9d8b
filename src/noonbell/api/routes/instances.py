"""The live engines, their runs in flight, and since when their lanes are up."""

from __future__ import annotations

import hashlib
from typing import Annotated

from fastapi import Query

from noonbell.api.bodies import api_router
from noonbell.api.callers import Reading
from noonbell.api.deps import Serving
from noonbell.api.models.access import InstanceResponse
from noonbell.api.models.base import PageOf
from noonbell.api.paging import ByText, page_of
from noonbell.core.instants import moment
from noonbell.core.presence import EngineRecord

router = api_router("health")


@router.get("/instances", summary="The live engines")
async def list_instances(
    service: Serving, caller: Reading, asked: Annotated[ByText, Query()]
) -> PageOf[InstanceResponse]:
    """Engines by lane, and by the time at which they joined."""
    now = service.clock.now()
    engines = (await service.store.engines.members(now)).alive
    found, next_cursor = page_of(engines, _place, asked)
    whole = caller.manages_teams
    return PageOf(
        items=[
            InstanceResponse(
                lane=one.lane,
                state=one.state,
                here=one.instance == service.schedules.instance,
                up_since=moment(one.up_since),
                joined_at=moment(one.joined_at),
                seen_seconds_ago=round(one.seen_ago_us / 1_000_000, 3),
                last_poll_seconds_ago=one.poll_seconds_ago(now),
                version=one.version,
                zone_data=one.zone_data,
                load={name: value for name, value in one.load.items() if name != "targets"},
                instance=one.instance if whole else None,
                host=one.host if whole else None,
                pid=one.pid if whole else None,
            )
            for one in found
        ],
        next_cursor=next_cursor,
    )


def _place(one: EngineRecord) -> str:
    """Return the sort key of an engine; its name is for the operator alone, so the key has a digest of it."""
    return f"{one.lane} {one.joined_at:020d}.{hashlib.sha256(one.instance.encode()).hexdigest()[:12]}"

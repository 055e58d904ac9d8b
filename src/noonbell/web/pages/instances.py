"""Which engines are alive, and how the one in this process is doing."""

from __future__ import annotations

from fastapi.responses import Response

from noonbell import __version__
from noonbell.web.routing import page_router
from noonbell.web.session import Visiting
from noonbell.web.times import moment

router = page_router()


@router.get("/instances")
async def show(visitor: Visiting) -> Response:
    service = visitor.service
    lanes = []
    for lane, since in sorted((await service.store.lanes_up()).items()):
        holder = await service.store.holder(f"lane:{lane}") if visitor.caller.manages_teams else None
        here = lane == service.settings.lane and service.schedules.running
        lanes.append({"lane": lane, "since": moment(since), "here": here, "holder": holder})
    return visitor.page(
        "instances.html",
        lanes=lanes,
        version=__version__,
        started_at=None if service.started_at is None else moment(service.started_at),
        lane=service.settings.lane,
        running=service.schedules.running,
        lost=service.schedules.lanes_lost,
        backlog=await service.backlog() if visitor.caller.manages_teams else None,
        measured=service.schedules.metrics or {},
        verbs=_verbs(visitor) if visitor.caller.manages_teams else [],
    )


def _verbs(visitor: Visiting) -> list[dict[str, object]]:
    """What the store was asked most, and how long that took on average."""
    found = []
    for name, times in visitor.service.times.verbs.items():
        calls = sum(times.buckets)
        if calls:
            found.append({"name": name, "calls": calls, "mean": times.total_seconds / calls, "errors": times.errors})
    return sorted(found, key=lambda one: -int(str(one["calls"])))[:12]

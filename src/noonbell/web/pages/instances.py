"""The live engines of each lane, their runs in flight, and the state of the engine in this process."""

from __future__ import annotations

from fastapi.responses import Response

from noonbell import __version__
from noonbell.core.instants import moment
from noonbell.core.presence import EngineRecord
from noonbell.web.routing import page_router
from noonbell.web.session import Visiting

router = page_router()


@router.get("/instances")
async def show(visitor: Visiting) -> Response:
    service = visitor.service
    engines = (await service.store.engines.members(service.clock.now())).alive
    return visitor.page(
        "instances.html",
        engines=[_shown(visitor, one) for one in engines],
        versions=sorted({one.version for one in engines}),
        zone_data=sorted({one.zone_data for one in engines}),
        version=__version__,
        started_at=None if service.started_at is None else moment(service.started_at),
        lane=service.settings.lane,
        running=service.schedules.running,
        lost=service.schedules.lanes_lost,
        backlog=await service.backlog() if visitor.caller.manages_teams else None,
        measured=service.schedules.metrics or {},
        verbs=_verbs(visitor) if visitor.caller.manages_teams else [],
    )


def _shown(visitor: Visiting, one: EngineRecord) -> dict[str, object]:
    """Return an engine for the page; its host and process are only for users who manage teams."""
    return {
        "lane": one.lane,
        "state": one.state,
        "here": one.instance == visitor.service.schedules.instance,
        "joined_at": moment(one.joined_at),
        "up_since": moment(one.up_since),
        "seen_seconds": one.seen_ago_us / 1_000_000,
        "polled_seconds": one.poll_seconds_ago(visitor.service.clock.now()),
        "version": one.version,
        "zone_data": one.zone_data,
        "load": one.load,
        "where": f"{one.host}, process {one.pid}" if visitor.caller.manages_teams else None,
        "instance": one.instance if visitor.caller.manages_teams else None,
    }


def _verbs(visitor: Visiting) -> list[dict[str, object]]:
    """Return the most frequent calls of the store, and their average duration."""
    found = []
    for name, times in visitor.service.times.verbs.items():
        calls = sum(times.buckets)
        if calls:
            found.append({"name": name, "calls": calls, "mean": times.total_seconds / calls, "errors": times.errors})
    return sorted(found, key=lambda one: -int(str(one["calls"])))[:12]

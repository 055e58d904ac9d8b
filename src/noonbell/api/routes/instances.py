"""Which engines are alive, and since when."""

from __future__ import annotations

from fastapi import APIRouter

from noonbell.access.records import moment
from noonbell.api.callers import Reading
from noonbell.api.deps import Serving
from noonbell.api.models.access import InstanceTold
from noonbell.api.models.base import PageOf

router = APIRouter(tags=["health"])


@router.get("/instances", summary="The lanes whose engines are alive")
async def list_instances(service: Serving, caller: Reading) -> PageOf[InstanceTold]:
    items = []
    for lane, since in sorted((await service.store.lanes_up()).items()):
        holder = await service.store.holder(f"lane:{lane}") if caller.manages_teams else None
        here = lane == service.settings.lane and service.schedules.running
        items.append(InstanceTold(lane=lane, up_since=moment(since), here=here, holder=holder))
    return PageOf(items=items)

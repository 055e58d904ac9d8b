"""What routes are given: the service they belong to, and its faces in the name of a caller."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from noonbell.access import Access, Caller
from noonbell.bootstrap import Service
from noonbell.monitors import Monitors
from noonbell.schedules import Schedules


def get_service(request: Request) -> Service:
    return cast("Service", request.app.state.service)


Serving = Annotated[Service, Depends(get_service)]


def schedules_of(service: Service, caller: Caller) -> Schedules:
    """The schedules of the caller's team, in his name."""
    return service.schedules.acting(caller.actor, caller.team)


def access_of(service: Service, caller: Caller) -> Access:
    return service.access.acting(caller.actor)


def monitors_of(service: Service, caller: Caller) -> Monitors:
    """The monitors in the name of the caller; which team is meant is said at each call."""
    return service.monitors.acting(caller.actor)

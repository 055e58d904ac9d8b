"""Dependencies of routes: the service, and its interfaces on behalf of a caller."""

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
    """Return the schedules of the caller's team; changes are recorded under the caller's name."""
    return service.schedules.acting(caller.actor, caller.team)


def access_of(service: Service, caller: Caller) -> Access:
    return service.access.acting(caller.actor)


def monitors_of(service: Service, caller: Caller) -> Monitors:
    """Return the monitors on behalf of the caller; each call names the team."""
    return service.monitors.acting(caller.actor)

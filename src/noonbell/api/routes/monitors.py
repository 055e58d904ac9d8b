"""Heartbeat monitors. Pings are sent to /ping/…, without a key."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Request, Response

from noonbell.access import Caller
from noonbell.api.bodies import api_router
from noonbell.api.callers import Reading, Writing
from noonbell.api.deps import Serving, monitors_of
from noonbell.api.etags import NOT_MODIFIED, IfMatch, IfNoneMatch, changing, holds, require, tag, unchanged
from noonbell.api.idempotency import Answer, Attempt, IdempotencyKey, once
from noonbell.api.idempotency import as_answer as answered
from noonbell.api.models.base import PageOf, QueryParams
from noonbell.api.models.resources import (
    FlipList,
    FlipResponse,
    MonitorChanges,
    MonitorRequest,
    MonitorResponse,
    PingList,
    PingResponse,
)
from noonbell.api.paging import ById
from noonbell.api.problems import problems
from noonbell.bootstrap import Service
from noonbell.errors import MonitorInvalidError, MonitorNotFoundError
from noonbell.monitors import Monitor

router = api_router("monitors")

MonitorInPath = Annotated[str, Path(alias="monitor_id", pattern=r"^[A-Za-z0-9._-]{1,200}$")]


class LastPings(QueryParams):
    limit: Annotated[int, Query(ge=1, le=50)] = 50


class LastFlips(QueryParams):
    limit: Annotated[int, Query(ge=1, le=200)] = 200


async def _find(service: Service, caller: Caller, monitor_id: str) -> Monitor:
    """Return a monitor; one of another team counts as not found."""
    found = await service.monitors.get(monitor_id)
    if found.team != caller.team:
        raise MonitorNotFoundError(monitor_id)
    return found


@router.get("/monitors", summary="List monitors")
async def list_monitors(service: Serving, caller: Reading, asked: Annotated[ById, Query()]) -> PageOf[MonitorResponse]:
    page = await service.monitors.list(team=caller.team, cursor=asked.cursor, limit=asked.limit)
    return PageOf(items=[_shown(caller, one) for one in page.items], next_cursor=page.next_cursor)


@router.post(
    "/monitors", status_code=201, summary="Create a monitor", response_model=MonitorResponse, responses=problems(409)
)
async def create_monitor(
    request: Request, service: Serving, caller: Writing, given: MonitorRequest, key: IdempotencyKey = None
) -> Response:
    """No ping is due until the first one has arrived."""
    monitors = monitors_of(service, caller)
    fields = given.given()

    async def create(attempt: Attempt) -> Answer:
        chosen = {"monitor_id": attempt.new_id, **fields}
        try:
            made = await monitors.create(**chosen, team=caller.team)
        except MonitorInvalidError as error:
            if not attempt.repeated or error.field != "monitor_id":
                raise
            made = await _find(service, caller, str(chosen["monitor_id"]))
            if not attempt.may_have_made(made.created_at):
                raise
        service.events.nudge()
        return answered(201, MonitorResponse.model_validate(made), ETag=tag(made.version))

    return await once(request, service, caller, key, create)


@router.get("/monitors/{monitor_id}", summary="One monitor", responses=problems(404) | NOT_MODIFIED)
async def get_monitor(
    response: Response, service: Serving, caller: Reading, monitor_id: MonitorInPath, if_none_match: IfNoneMatch = None
) -> MonitorResponse:
    found = await _find(service, caller, monitor_id)
    if holds(if_none_match, tag(found.version)):
        return unchanged(tag(found.version))  # type: ignore[no-any-return]  # a response in place of the model
    return _monitor_response(response, caller, found)


@router.patch("/monitors/{monitor_id}", summary="Change a monitor", responses=problems(404, 409, 412))
async def update_monitor(
    *, response: Response, service: Serving, caller: Writing, monitor_id: MonitorInPath, given: MonitorChanges,
    if_match: IfMatch = None,
) -> MonitorResponse:  # fmt: skip
    """If the schedule of the pings changes, the next ping is due counted from now."""
    found = await _find(service, caller, monitor_id)
    require(if_match, tag(found.version))
    with changing(if_match):
        version = None if if_match is None else found.version
        changed = await monitors_of(service, caller).update(monitor_id, version=version, **given.given())
    service.events.nudge()
    return _monitor_response(response, caller, changed)


@router.delete("/monitors/{monitor_id}", status_code=204, summary="Delete a monitor", responses=problems(404, 412))
async def delete_monitor(
    service: Serving, caller: Writing, monitor_id: MonitorInPath, if_match: IfMatch = None
) -> None:
    """Pings and flips of the monitor are deleted with it; the audit is kept."""
    found = await _find(service, caller, monitor_id)
    require(if_match, tag(found.version))
    with changing(if_match):
        version = None if if_match is None else found.version
        await monitors_of(service, caller).delete(monitor_id, version=version)
    service.events.nudge()


@router.post("/monitors/{monitor_id}/pause", summary="Pause a monitor", responses=problems(404, 409))
async def pause_monitor(
    response: Response, service: Serving, caller: Writing, monitor_id: MonitorInPath
) -> MonitorResponse:
    """Pings of a paused monitor are recorded, and its status does not change."""
    await _find(service, caller, monitor_id)
    paused = await monitors_of(service, caller).pause(monitor_id)
    service.events.nudge()
    return _monitor_response(response, caller, paused)


@router.post("/monitors/{monitor_id}/resume", summary="Resume a monitor", responses=problems(404, 409))
async def resume_monitor(
    response: Response, service: Serving, caller: Writing, monitor_id: MonitorInPath
) -> MonitorResponse:
    """The next ping is due counted from now."""
    await _find(service, caller, monitor_id)
    resumed = await monitors_of(service, caller).resume(monitor_id)
    service.events.nudge()
    return _monitor_response(response, caller, resumed)


@router.post("/monitors/{monitor_id}/renew-token", summary="Replace the ping URL", responses=problems(404, 409))
async def renew_token(
    response: Response, service: Serving, caller: Writing, monitor_id: MonitorInPath
) -> MonitorResponse:
    """The old ping URL stops working at once."""
    await _find(service, caller, monitor_id)
    renewed = await monitors_of(service, caller).renew_token(monitor_id)
    service.events.nudge()
    return _monitor_response(response, caller, renewed)


@router.get("/monitors/{monitor_id}/pings", summary="The last pings, newest first", responses=problems(404))
async def list_pings(
    service: Serving, caller: Reading, monitor_id: MonitorInPath, asked: Annotated[LastPings, Query()]
) -> PingList:
    await _find(service, caller, monitor_id)
    found = await service.monitors.pings(monitor_id, limit=asked.limit)
    return PingList(items=[PingResponse.model_validate(one) for one in found])


@router.get("/monitors/{monitor_id}/flips", summary="The last changes of a monitor's status", responses=problems(404))
async def list_flips(
    service: Serving, caller: Reading, monitor_id: MonitorInPath, asked: Annotated[LastFlips, Query()]
) -> FlipList:
    await _find(service, caller, monitor_id)
    found = await service.monitors.flips(monitor_id, limit=asked.limit)
    return FlipList(items=[FlipResponse.model_validate(one) for one in found])


def _monitor_response(response: Response, caller: Caller, monitor: Monitor) -> MonitorResponse:
    response.headers["ETag"] = tag(monitor.version)
    return _shown(caller, monitor)


def _shown(caller: Caller, monitor: Monitor) -> MonitorResponse:
    """Return the monitor without its ping path for callers who may only read: the path allows pinging."""
    shown = MonitorResponse.model_validate(monitor)
    if not caller.may("write"):
        shown.ping_path = None
    return shown

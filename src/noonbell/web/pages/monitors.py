"""Heartbeat monitors: external jobs whose pings arrive in time, or do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import Path
from fastapi.responses import Response

from noonbell.api.deps import monitors_of
from noonbell.errors import MonitorNotFoundError, NoonbellError
from noonbell.monitors import Monitor
from noonbell.web.pages.refused import listed, number, refused
from noonbell.web.rendering import segment
from noonbell.web.routing import page_router
from noonbell.web.session import Changing, Form, RequestContext, Visiting

router = page_router()

MonitorInPath = Annotated[str, Path(alias="monitor_id", pattern=r"^[A-Za-z0-9._-]{1,200}$")]
_PAGE: Final = 50
_PINGS: Final = 20
_FLIPS: Final = 20
_FIELDS: Final = ("name", "type", "spec", "timezone", "grace_seconds", "max_run_seconds", "tags", "monitor_id")


async def _find(visitor: RequestContext, monitor_id: str) -> Monitor:
    """Return a monitor; one of another team counts as not found."""
    found = await visitor.service.monitors.get(monitor_id)
    if found.team != visitor.team:
        raise MonitorNotFoundError(monitor_id)
    return found


@router.get("/monitors")
async def show(visitor: Visiting) -> Response:
    cursor = visitor.request.query_params.get("cursor")
    page = await visitor.service.monitors.list(team=visitor.team, cursor=cursor, limit=_PAGE)
    return visitor.page("monitors.html", items=page.items, more=page.next_cursor, cursor=cursor)


@router.get("/monitors/new")
async def new(visitor: Visiting) -> Response:
    return _form(visitor, None, {"type": "cron", "timezone": "UTC", "grace_seconds": 300})


@router.post("/monitors/new")
async def create(visitor: Changing) -> Response:
    fields = _read(visitor.form)
    if chosen := visitor.form.text("monitor_id"):
        fields["monitor_id"] = chosen
    try:
        made = await monitors_of(visitor.service, visitor.caller).create(**fields, team=visitor.team)
    except NoonbellError as error:
        return _form(visitor, None, visitor.form, await refused(visitor, error, _FIELDS))
    visitor.service.events.nudge()
    understood = "" if made.understood is None else f" Understood as {made.understood}."
    return visitor.go(_path(made.monitor_id), f"The monitor was created; it starts with its first ping.{understood}")


@router.get("/monitors/{monitor_id}")
async def one(visitor: Visiting, monitor_id: MonitorInPath) -> Response:
    monitor = await _find(visitor, monitor_id)
    monitors = visitor.service.monitors
    return visitor.page(
        "monitor.html",
        monitor=monitor,
        base=_path(monitor_id),
        ping_url=visitor.service.settings.address + monitor.ping_path,
        pings=await monitors.pings(monitor_id, limit=_PINGS),
        flips=await monitors.flips(monitor_id, limit=_FLIPS),
    )


@router.get("/monitors/{monitor_id}/edit")
async def edit(visitor: Visiting, monitor_id: MonitorInPath) -> Response:
    monitor = await _find(visitor, monitor_id)
    typed = {name: getattr(monitor, name) for name in _FIELDS} | {"tags": ", ".join(monitor.tags)}
    return _form(visitor, monitor, typed)


@router.post("/monitors/{monitor_id}/edit")
async def change(visitor: Changing, monitor_id: MonitorInPath) -> Response:
    monitor = await _find(visitor, monitor_id)
    try:
        await monitors_of(visitor.service, visitor.caller).update(monitor_id, **_read(visitor.form))
    except NoonbellError as error:
        return _form(visitor, monitor, visitor.form, await refused(visitor, error, _FIELDS))
    visitor.service.events.nudge()
    return visitor.go(_path(monitor_id), "The monitor is changed")


@router.post("/monitors/{monitor_id}/pause")
async def pause(visitor: Changing, monitor_id: MonitorInPath) -> Response:
    await _find(visitor, monitor_id)
    await monitors_of(visitor.service, visitor.caller).pause(monitor_id)
    visitor.service.events.nudge()
    return visitor.go(_path(monitor_id), "Paused: pings are recorded, and the status does not change", "plain")


@router.post("/monitors/{monitor_id}/resume")
async def resume(visitor: Changing, monitor_id: MonitorInPath) -> Response:
    await _find(visitor, monitor_id)
    await monitors_of(visitor.service, visitor.caller).resume(monitor_id)
    visitor.service.events.nudge()
    return visitor.go(_path(monitor_id), "Resumed; the next ping is due counted from now")


@router.post("/monitors/{monitor_id}/renew-token")
async def renew(visitor: Changing, monitor_id: MonitorInPath) -> Response:
    await _find(visitor, monitor_id)
    await monitors_of(visitor.service, visitor.caller).renew_token(monitor_id)
    visitor.service.events.nudge()
    return visitor.go(_path(monitor_id), "The monitor has a new address for pings; the old one stops working at once")


@router.post("/monitors/{monitor_id}/delete")
async def delete(visitor: Changing, monitor_id: MonitorInPath) -> Response:
    monitor = await _find(visitor, monitor_id)
    await monitors_of(visitor.service, visitor.caller).delete(monitor_id)
    visitor.service.events.nudge()
    return visitor.go("/monitors", f"The monitor “{monitor.name}” is deleted")


# --- its form ---------------------------------------------------------------------------------------------------------


def _path(monitor_id: str) -> str:
    return f"/monitors/{segment(monitor_id)}"


def _read(form: Form) -> dict[str, Any]:
    return {
        **{name: form.text(name) for name in ("name", "type", "spec")},
        "timezone": form.text("timezone") or "UTC",
        "grace_seconds": number(form.text("grace_seconds") or "0"),
        "max_run_seconds": number(form.text("max_run_seconds")),
        "tags": listed(form.text("tags")),
    }


def _form(
    visitor: RequestContext, monitor: Monitor | None, typed: Mapping[str, Any], errors: Mapping[str, str] | None = None
) -> Response:
    shown = {name: _plain(typed.get(name)) for name in _FIELDS}
    action = "/monitors/new" if monitor is None else f"{_path(monitor.monitor_id)}/edit"
    return visitor.page(
        "monitor_form.html", 422 if errors else 200, monitor=monitor, typed=shown, errors=errors or {}, action=action
    )


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return "" if value is None else value

"""The audit, newest first: changes with their actors, and unusual decisions; filters are kept in the address."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Final

import msgspec
from fastapi import Path
from fastapi.responses import Response

from noonbell.actions.http.credentials import without_credentials
from noonbell.api.problems import ProblemError
from noonbell.core.instants import instant, moment
from noonbell.core.records import AuditEvent
from noonbell.ports import AuditFilter
from noonbell.schedules.audits import dated
from noonbell.web.rendering import pretty, segment
from noonbell.web.routing import page_router
from noonbell.web.session import Visiting

router = page_router()

_PAGE: Final = 50
_SLOTS: Final = 200
_SLOT_CURSOR: Final = re.compile(r"[0-9]{1,18}\.[0-9]{1,18}", re.ASCII)
NumberInPath = Annotated[int, Path(alias="number", ge=1, lt=2**63)]
_CURSOR: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_SHORT: Final = 3
_LONGEST: Final = 60
# Suggestions while typing; any other text can be entered.
EVENTS: Final = (
    "schedule.created", "schedule.updated", "schedule.paused", "schedule.resumed", "schedule.deleted",
    "schedule.triggered", "schedule.missed", "schedule.skipped", "schedule.quarantined",
    "schedule.zone_rules_changed", "quiet_hours.created", "quiet_hours.updated", "quiet_hours.deleted",
    "secret.created", "secret.updated", "secret.deleted", "channel.created", "channel.updated", "channel.deleted",
    "rule.created", "rule.updated", "rule.deleted", "monitor.created", "monitor.updated", "monitor.up", "monitor.late",
    "monitor.down", "message.dead", "api_key.created", "api_key.revoked", "user.created", "user.deleted",
    "user.link_made", "user.password_changed", "user.scope_changed",
    "login.succeeded", "login.failed", "logout",
)  # fmt: skip


@router.get("/audit")
async def show(visitor: Visiting) -> Response:
    asked = {name: visitor.request.query_params.get(name, "").strip() for name in ("subject", "event", "actor")}
    days = {name: visitor.request.query_params.get(name, "") for name in ("from", "to")}
    begin, errors = _day(days["from"], "from")
    end, more_errors = _day(days["to"], "to")
    wanted = AuditFilter(
        asked["subject"] or None, asked["event"] or None, asked["actor"] or None,
        None if begin is None else instant(begin),
        None if end is None else instant(end + timedelta(days=1)) - 1, visitor.team,
    )  # fmt: skip
    cursor = visitor.request.query_params.get("cursor", "")
    before = int(cursor) if _CURSOR.fullmatch(cursor) else None
    rows = await visitor.service.store.audit.page(wanted, before, _PAGE + 1, newest_first=True)
    mask = await visitor.masking()
    items = [_audit_row(mask, number, event) for number, event in rows[:_PAGE]]
    return visitor.page(
        "audit.html", items=items, asked=asked | days, errors=errors | more_errors, first=before is None,
        more=rows[_PAGE - 1][0] if len(rows) > _PAGE else None, events=EVENTS,
        filtered=any((*asked.values(), *days.values())),
    )  # fmt: skip


def _day(text: str, field: str) -> tuple[datetime | None, dict[str, str]]:
    """Return the beginning of a day in UTC."""
    if not text:
        return None, {}
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC), {}
    except ValueError:
        return None, {field: "must be a day such as 2026-11-01"}


def _audit_row(mask: Callable[[str], str], number: int, event: AuditEvent) -> dict[str, Any]:
    detail = msgspec.json.decode(event.detail)
    detail = detail if isinstance(detail, dict) else {"detail": detail}
    # the data from which the slots of a span are calculated, for programs and for the page of the slots
    slots = detail.get("count") if detail.pop("slots_of", None) is not None else None
    detail = _dated(without_credentials(detail))
    text = mask(msgspec.json.format(msgspec.json.encode(detail), indent=2).decode())
    return {
        "number": number, "at": moment(event.at), "event": event.event, "subject": event.subject,
        "actor": event.actor, "detail": text if detail else "", "gist": mask(_gist(detail)),
        "link": _link(event), "slots": slots if slots != 1 else None,
    }  # fmt: skip


@router.get("/audit/{number}")
async def show_slots(visitor: Visiting, number: NumberInPath) -> Response:
    """Show one event; a span of missed slots is listed slot by slot, as in the API."""
    cursor = visitor.request.query_params.get("cursor", "")
    begun = cursor if _SLOT_CURSOR.fullmatch(cursor) and cursor.partition(".")[0] == str(number) else None
    page = await visitor.schedules.audit(cursor=begun or str(number - 1), limit=_SLOTS)
    items = [one for one in page.items if one.audit_id == number]
    if not items:
        raise ProblemError(404, f"Audit event not found: {number}", kind="event-not-found")
    more = page.next_cursor if page.next_cursor and page.next_cursor.startswith(f"{number}.") else None
    mask = await visitor.masking()
    slots = [one.detail.get("scheduled_for") for one in items]
    details = [] if any(slots) else [mask(pretty(_dated(without_credentials(one.detail)))) for one in items]
    return visitor.page(
        "audit_event.html", event=items[0], number=number, more=more, first=begun is None, details=details,
        slots=[moment(slot) for slot in slots if isinstance(slot, int)],
        reason=mask(str(items[0].detail.get("reason") or "")),
    )  # fmt: skip


def _dated(value: Any) -> Any:
    """Return a value with its instants as readable dates."""
    return dated(value, lambda at: f"{at:%Y-%m-%d %H:%M:%S} UTC")


def _gist(detail: dict[str, Any]) -> str:
    """Return the scalar values of a detail on one line."""
    plain = [
        f"{name} {value if not isinstance(value, bool) else 'yes' if value else 'no'}"
        for name, value in detail.items()
        if isinstance(value, str | int | float) and len(str(value)) <= _LONGEST and name != "team"
    ]
    return ", ".join(plain[:_SHORT])


def _link(event: AuditEvent) -> str | None:
    """Return the address of the page of an event's subject, if it has one."""
    kind = event.event.partition(".")[0]
    if event.event.endswith(".deleted"):
        return None
    return {
        "schedule": f"/schedules/{segment(event.subject)}",
        "monitor": f"/monitors/{segment(event.subject)}",
        "quiet_hours": f"/quiet-hours/{segment(event.subject)}",
        "channel": f"/channels/{segment(event.subject)}",
        "rule": f"/rules/{segment(event.subject)}",
    }.get(kind)

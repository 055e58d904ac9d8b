"""The form of a rule, which sends events to channels. Rules are listed on the page of the channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import Path
from fastapi.responses import Response

from noonbell.errors import NoonbellError, RuleNotFoundError
from noonbell.notify import Rule
from noonbell.notify.notice_records import EVENTS
from noonbell.web.pages.refused import number, refused
from noonbell.web.rendering import segment
from noonbell.web.routing import page_router
from noonbell.web.session import Changing, Form, RequestContext, Visiting

router = page_router()

RuleInPath = Annotated[str, Path(alias="rule_id", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
_MOST: Final = 200
_ABOUT: Final = {
    "failed": "a run has failed, after its last attempt",
    "recovered": "it succeeds again after a failure",
    "succeeded": "a run has succeeded",
    "late": "a run begins too late, or a monitor hears nothing in time",
    "missed": "occurrences were missed",
    "slow": "a run takes too long",
    "undelivered": "a message, or a notice to another channel, is a dead letter",
    "no_engine": "no engine polls, as seen by a process without one (serve --no-engine)",
}
_FIELDS: Final = (
    "name", "on", "channels", "schedule_id", "monitor_id", "tag", "late_seconds", "slow_seconds", "window_minutes",
    "title", "text",
)  # fmt: skip
_NAMED: Final = {"window_seconds": "window_minutes"}


async def _find(visitor: RequestContext, rule_id: str) -> Rule:
    """Return a rule; one of another team counts as not found."""
    found = await visitor.service.rules.get(rule_id)
    if found.team != visitor.team:
        raise RuleNotFoundError(rule_id)
    return found


@router.get("/rules/new")
async def new(visitor: Visiting) -> Response:
    asked = visitor.request.query_params
    about = {name: asked.get(name, "") for name in ("schedule_id", "monitor_id", "tag")}
    typed = {"on": ["failed", "recovered"], "channels": [], "window_minutes": 15, "enabled": True}
    return await _form(visitor, None, typed | about)


@router.post("/rules/new")
async def create(visitor: Changing) -> Response:
    try:
        made = await visitor.schedules.rules.create(**_read(visitor.form), team=visitor.team)
    except NoonbellError as error:
        return await _form(visitor, None, _retyped(visitor.form), await refused(visitor, error, _FIELDS, _NAMED))
    visitor.service.events.nudge()
    return visitor.go("/channels#rules", f"The rule “{made.name}” counts from now on")


@router.get("/rules/{rule_id}")
async def edit(visitor: Visiting, rule_id: RuleInPath) -> Response:
    rule = await _find(visitor, rule_id)
    typed = {name: getattr(rule, name) for name in _FIELDS if name != "window_minutes"}
    return await _form(visitor, rule, {**typed, "window_minutes": rule.window_seconds / 60, "enabled": rule.enabled})


@router.post("/rules/{rule_id}")
async def change(visitor: Changing, rule_id: RuleInPath) -> Response:
    rule = await _find(visitor, rule_id)
    try:
        await visitor.schedules.rules.update(rule_id, **_read(visitor.form))
    except NoonbellError as error:
        return await _form(visitor, rule, _retyped(visitor.form), await refused(visitor, error, _FIELDS, _NAMED))
    visitor.service.events.nudge()
    return visitor.go("/channels#rules", f"The rule “{rule.name}” is changed")


@router.post("/rules/{rule_id}/turn")
async def turn(visitor: Changing, rule_id: RuleInPath) -> Response:
    rule = await _find(visitor, rule_id)
    changed = await visitor.schedules.rules.update(rule_id, enabled=not rule.enabled)
    visitor.service.events.nudge()
    state = "on" if changed.enabled else "off; it sends no notices"
    return visitor.go("/channels#rules", f"The rule “{rule.name}” is {state}", "good" if changed.enabled else "plain")


@router.post("/rules/{rule_id}/delete")
async def delete(visitor: Changing, rule_id: RuleInPath) -> Response:
    rule = await _find(visitor, rule_id)
    await visitor.schedules.rules.delete(rule_id)
    visitor.service.events.nudge()
    return visitor.go("/channels#rules", f"The rule “{rule.name}” is deleted")


# --- its form ---------------------------------------------------------------------------------------------------------


async def _form(
    visitor: RequestContext, rule: Rule | None, typed: Mapping[str, Any], errors: Mapping[str, str] | None = None
) -> Response:
    channels = (await visitor.service.channels.list(team=visitor.team, limit=_MOST)).items
    shown = {name: _plain(typed.get(name)) for name in _FIELDS} | {"enabled": bool(typed.get("enabled"))}
    action = "/rules/new" if rule is None else f"/rules/{segment(rule.rule_id)}"
    return visitor.page(
        "rule.html", 422 if errors else 200, rule=rule, typed=shown, errors=errors or {}, channels=channels,
        events=[(event, _ABOUT[event]) for event in sorted(EVENTS, key=list(_ABOUT).index)], action=action,
    )  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return "" if value is None else value


def _read(form: Form) -> dict[str, Any]:
    minutes = number(form.text("window_minutes"))
    return {
        "name": form.text("name"),
        "on": form.all("on"),
        "channels": form.all("channels"),
        **{name: form.text(name) or None for name in ("schedule_id", "monitor_id", "tag", "title")},
        "text": form.get("text", "").replace("\r\n", "\n").strip() or None,
        "late_seconds": number(form.text("late_seconds")),
        "slow_seconds": number(form.text("slow_seconds")),
        "window_seconds": minutes * 60 if isinstance(minutes, int | float) else minutes or 0,
        "enabled": form.ticked("enabled"),
    }


def _retyped(form: Form) -> dict[str, Any]:
    typed: dict[str, Any] = {name: form.get(name, "") for name in _FIELDS}
    return {**typed, "on": form.all("on"), "channels": form.all("channels"), "enabled": form.ticked("enabled")}

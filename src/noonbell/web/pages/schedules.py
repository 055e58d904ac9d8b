"""The list of schedules, with search, filters, pages of fifty, and bulk changes.

The cost of a page is that of its rows: the cursor is the number of the last schedule, and no page counts them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fastapi.responses import Response

from noonbell.actions.http.credentials import shown
from noonbell.api.declared_tasks_view import Declared
from noonbell.api.listing import schedule_page
from noonbell.api.problems import ProblemError
from noonbell.errors import NoonbellError, ScheduleBusyError, ScheduleInvalidError
from noonbell.ports import ScheduleFilter
from noonbell.schedules import Schedules
from noonbell.web.pages.refused import number
from noonbell.web.routing import page_router
from noonbell.web.session import Changing, Form, RequestContext, Visiting

router = page_router()

PAGE: Final = 50
_LONGEST_CURSOR: Final = 18
_TYPES: Final = ("cron", "interval", "one_shot")
FILTERS: Final = ("q", "state", "type", "tag", "quiet", "owner", "lane")


@router.get("/schedules")
async def schedules(visitor: Visiting, declared: Declared) -> Response:
    asked = visitor.request.query_params
    wanted = _wanted(visitor)
    after = asked.get("cursor", "")
    number = int(after) if after.isascii() and after.isdigit() and len(after) <= _LONGEST_CURSOR else 0
    service = visitor.service
    found = await schedule_page(
        service.store, await declared.of_team(visitor.team), wanted, number, PAGE, now=service.clock.now()
    )
    quiet = await visitor.schedules.list_quiet_hours()
    return visitor.page(
        "schedules.html",
        items=[one.model_copy(update={"action": shown(one.action)}) for one in found.items],
        next_cursor=found.next_cursor,
        first=number == 0,
        filtered=any(asked.get(name) for name in FILTERS),
        filters={name: asked.get(name) for name in FILTERS},
        quiet_hours=quiet,
        quiet_names={one.policy_id: one.name for one in quiet},
    )


def _wanted(visitor: RequestContext) -> ScheduleFilter:
    """Return the filters of the address; an invalid one is ignored, because users edit the address by hand."""
    asked = visitor.request.query_params
    state, kind = asked.get("state"), asked.get("type")
    return ScheduleFilter(
        team=visitor.team,
        enabled={"on": True, "paused": False}.get(state or ""),
        type=kind if kind in _TYPES else None,
        tag=_text(asked.get("tag")),
        name_contains=_text(asked.get("q")),
        quiet_hours_policy_id=_text(asked.get("quiet")),
        managed_by=_text(asked.get("owner")),
        lane=_text(asked.get("lane")),
    )


def _text(value: str | None) -> str | None:
    found = (value or "").strip().replace("\0", "")[:500]
    return found or None


# --- many at once -----------------------------------------------------------------------------------------------------


@router.post("/schedules/bulk")
async def bulk(visitor: Changing) -> Response:
    """Apply one operation to each selected schedule; if one is refused, the others are done and the page names it."""
    ids = list(dict.fromkeys(visitor.form.all("ids")))[:PAGE]
    back = visitor.form.text("back")
    path = back if back.startswith("/schedules") else "/schedules"
    if not ids:
        return visitor.go(path, "Select the schedules first; nothing was changed", "bad")
    if visitor.form.text("do") == "edit":
        return await _edit(visitor, ids, path)
    done = _DONE.get(visitor.form.text("do"))
    if done is None:
        raise ProblemError(422, "Choose an operation for the selected schedules", field="do")
    refused: list[str] = []
    for schedule_id in ids:
        try:
            await _do(visitor, schedule_id)
        except NoonbellError as error:
            refused.append(f"{schedule_id}: {error}")
    visitor.service.events.nudge()
    message = f"{len(ids) - len(refused)} of {len(ids)} {done}"
    if refused:
        return visitor.go(path, f"{message}. Not done: {'; '.join(refused[:3])}", "bad")
    return visitor.go(path, message)


async def _edit(visitor: RequestContext, ids: list[str], path: str) -> Response:
    """Change the same fields of all selected schedules, as a whole or not at all."""
    try:
        changes = changes_of(visitor.form)
        if not changes:
            return visitor.go(path, "Fill in the fields to change; nothing was changed", "bad")
        await visitor.schedules.update_many(ids, changes)  # type: ignore[arg-type]  # checked there, field by field
    except NoonbellError as error:
        reason = (await visitor.masking())(str(error))
        return visitor.go(path, f"None of {len(ids)} was changed. {reason}", "bad")
    visitor.service.events.nudge()
    return visitor.go(path, f"{len(ids)} changed: {', '.join(changes)}")


def changes_of(form: Form) -> dict[str, Any]:
    """Return the fields that were filled in; an empty field keeps the value of each schedule."""
    changes: dict[str, Any] = {
        name: form.text(f"edit_{name}")
        for name in ("timezone", "catch_up_policy", "overlap", "retry_vs_new", "dst")
        if form.text(f"edit_{name}")
    }
    for name in ("jitter_seconds", "catch_up_cap"):
        if form.text(f"edit_{name}"):
            changes[name] = number(form.text(f"edit_{name}"))
    retry = {
        name: number(form.text(f"edit_{name}")) for name in ("attempts", "delay_seconds") if form.text(f"edit_{name}")
    }
    if len(retry) == 1:
        raise ScheduleInvalidError("retry", retry, "must have both, attempts and a delay: they are set together")
    return changes | ({"retry": retry} if retry else {})


_DONE: Final = {
    "pause": "paused", "resume": "resumed", "run": "asked to run now", "delete": "deleted", "tag": "tagged",
    "untag": "untagged", "quiet": "given these quiet hours",
}  # fmt: skip


async def _do(visitor: RequestContext, schedule_id: str) -> None:
    schedules, form = visitor.schedules, visitor.form
    what = form.text("do")
    if what == "pause":
        await schedules.pause(schedule_id)
    elif what == "resume":
        await schedules.resume(schedule_id)
    elif what == "delete":
        await schedules.delete(schedule_id)
    elif what == "quiet":
        await schedules.update(schedule_id, quiet_hours_policy_id=form.text("policy") or None)
    elif what == "run":
        await _run(schedules, schedule_id)
    else:
        await _retag(schedules, schedule_id, form.text("value"), add=what == "tag")


async def _run(schedules: Schedules, schedule_id: str) -> None:
    try:
        await schedules.trigger(schedule_id)
    except ScheduleBusyError as error:
        raise ScheduleInvalidError("schedule", schedule_id, "is running already") from error


async def _retag(schedules: Schedules, schedule_id: str, tag: str, *, add: bool) -> None:
    if not tag:
        raise ScheduleInvalidError("tags", tag, "must be named beside the button")
    before: Sequence[Any] = (await schedules.get(schedule_id)).tags
    after = [*before, tag] if add else [one for one in before if one != tag]
    if list(dict.fromkeys(after)) != list(before):
        await schedules.update(schedule_id, tags=after)

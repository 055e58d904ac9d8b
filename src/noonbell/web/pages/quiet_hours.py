"""Quiet hours: each as a grid of the coming week, and the form of their windows, which updates the grid.

The form works without a script: a button adds a window, and one whose times are left empty is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import Path
from fastapi.responses import Response

from noonbell.api.models.base import PLAIN
from noonbell.api.paging import Slashed
from noonbell.errors import NoonbellError
from noonbell.schedules import QuietHoursRecord
from noonbell.timing import QuietHours
from noonbell.web.pages.refused import listed, refused
from noonbell.web.rendering import segment
from noonbell.web.routing import page_router
from noonbell.web.session import Changing, Form, RequestContext, Visiting
from noonbell.web.week import ORDER, WEEKDAYS, in_words, week_of

router = page_router()

_MOST_WARNINGS: Final = 3

PolicyInPath = Annotated[str, Slashed, Path(alias="policy_id", min_length=1, max_length=500, pattern=PLAIN)]
_PLACE: Final = re.compile(r"windows\[(\d+)\](?:\.(\w+))?")
_PARTS: Final = ("from", "to", "timezone", "valid_from", "valid_to")
_MOST_WINDOWS: Final = 100
_USERS: Final = 5
_NEW: Final[Mapping[str, Any]] = {
    "weekdays": [1, 2, 3, 4, 5], "dates": "", "from": "22:00", "to": "06:00", "timezone": "UTC", "valid_from": "",
    "valid_to": "",
}  # fmt: skip


@router.get("/quiet-hours")
async def show(visitor: Visiting) -> Response:
    items = []
    for record in await visitor.schedules.list_quiet_hours():
        users = await visitor.schedules.list(quiet_hours_policy_id=record.policy_id, limit=_USERS)
        words = [in_words(one) for one in record.windows]
        grid = _grid(visitor, record.windows)
        more = users.next_cursor is not None
        items.append({"record": record, "grid": grid, "words": words, "users": users.items, "more": more})
    return visitor.page("quiet_hours.html", items=items, weekdays=WEEKDAYS)


@router.get("/quiet-hours/new")
async def new(visitor: Visiting) -> Response:
    return _form(visitor, None, "", [dict(_NEW)])


@router.post("/quiet-hours/new")
async def create(visitor: Changing) -> Response:
    name, windows = visitor.form.text("name"), _typed(visitor.form)
    if visitor.form.ticked("add"):
        return _form(visitor, None, name, [*windows, dict(_NEW)])
    try:
        made = await visitor.schedules.create_quiet_hours(name, _read(windows))
    except NoonbellError as error:
        return _form(visitor, None, name, windows, await _refused(visitor, error))
    visitor.service.events.nudge()
    return visitor.go("/quiet-hours", f"“{made.name}” was created; select it in schedules that should not run then")


@router.post("/quiet-hours/preview")
async def preview(visitor: Changing) -> Response:
    """Return the grid for the typed windows, for the script of the form. Incomplete input keeps the last grid."""
    try:
        grid = _grid(visitor, _read(_typed(visitor.form)))
    except NoonbellError:
        return Response(status_code=204)
    return visitor.part("parts/week.html", grid=grid, weekdays=WEEKDAYS)


@router.get("/quiet-hours/{policy_id}")
async def edit(visitor: Visiting, policy_id: PolicyInPath) -> Response:
    record = await visitor.schedules.get_quiet_hours(policy_id)
    windows = [{**_NEW, "weekdays": [], **one, "dates": ", ".join(one.get("dates", []))} for one in record.windows]
    return _form(visitor, record, record.name, windows)


@router.post("/quiet-hours/{policy_id}")
async def change(visitor: Changing, policy_id: PolicyInPath) -> Response:
    record = await visitor.schedules.get_quiet_hours(policy_id)
    name, windows = visitor.form.text("name"), _typed(visitor.form)
    if visitor.form.ticked("add"):
        return _form(visitor, record, name, [*windows, dict(_NEW)])
    try:
        changed = await visitor.schedules.update_quiet_hours(policy_id, name=name, windows=_read(windows))
    except NoonbellError as error:
        return _form(visitor, record, name, windows, await _refused(visitor, error))
    visitor.service.events.nudge()
    warned = "".join(f". Warning: {warning}" for warning in changed.warnings[:_MOST_WARNINGS])
    return visitor.go("/quiet-hours", f"“{name}” is changed; it counts from now on{warned}")


@router.post("/quiet-hours/{policy_id}/delete")
async def delete(visitor: Changing, policy_id: PolicyInPath) -> Response:
    record = await visitor.schedules.get_quiet_hours(policy_id)
    await visitor.schedules.delete_quiet_hours(policy_id)
    visitor.service.events.nudge()
    return visitor.go("/quiet-hours", f"“{record.name}” is deleted")


# --- windows in a form ------------------------------------------------------------------------------------------------


def _grid(visitor: RequestContext, windows: Sequence[Mapping[str, Any]]) -> Any:
    return week_of(QuietHours.from_json({"windows": list(windows)}), visitor.now)


def _typed(form: Form) -> list[dict[str, Any]]:
    """Return the windows of a form as they were typed, without those that have no times."""
    count = int(form.text("count")) if re.fullmatch("[0-9]{1,3}", form.text("count")) else 0
    found = []
    for place in range(min(count, _MOST_WINDOWS)):
        typed: dict[str, Any] = {part: form.text(f"w{place}_{part}") for part in (*_PARTS, "dates")}
        days = [int(day) for day in form.all(f"w{place}_weekdays") if re.fullmatch("[0-6]", day)]
        if typed["from"] or typed["to"]:
            found.append({**typed, "weekdays": days})
    return found


def _read(windows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the windows in the form that the library takes."""
    read = []
    for window in windows:
        one: dict[str, Any] = {part: window[part] for part in _PARTS if window[part]}
        one = {"from": "", "to": "", "timezone": "", **one}
        if window["weekdays"]:
            one["weekdays"] = window["weekdays"]
        if dates := listed(str(window["dates"])):
            one["dates"] = dates
        read.append(one)
    return read


async def _refused(visitor: RequestContext, error: NoonbellError) -> dict[str, str]:
    found = _PLACE.match(str(getattr(error, "field", "")))
    if found is not None:
        part = found[2] or "weekdays"
        reason = getattr(error, "reason", str(error))
        mask = await visitor.masking()
        return await refused(visitor, error, ()) and {f"w{found[1]}_{part}": mask(str(reason))}
    return await refused(visitor, error, ("name",))


def _form(
    visitor: RequestContext,
    record: QuietHoursRecord | None,
    name: str,
    windows: Sequence[Mapping[str, Any]],
    errors: Mapping[str, str] | None = None,
) -> Response:
    try:
        grid = _grid(visitor, _read(windows)) if windows else None
    except NoonbellError:
        grid = None
    action = "/quiet-hours/new" if record is None else f"/quiet-hours/{segment(record.policy_id)}"
    return visitor.page(
        "quiet_hours_form.html", 422 if errors else 200, record=record, name=name, windows=windows or [dict(_NEW)],
        errors=errors or {}, action=action, grid=grid, weekdays=WEEKDAYS, order=ORDER,
    )  # fmt: skip

"""Plan and apply: paste a file of schedules, see the changes in words, and apply exactly these.

The form contains a digest of the plan that was shown. If the store or the text has changed since, nothing is written:
the page lists the changes and shows the current plan. Errors in a file are shown by line, beside its text. A large text
is parsed in a thread, as in the API.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, cast

from fastapi.responses import Response

from noonbell.actions.http.credentials import shown_value
from noonbell.api.models.planned import LARGEST_FILE
from noonbell.api.routes.plans import plan_text
from noonbell.core.turns import definition_of
from noonbell.errors import DeletionRefusedError, NoonbellError, PlanOutdatedError, ScheduleFileInvalidError
from noonbell.planning import FieldChange, Item, Plan, Problem, apply
from noonbell.planning.plans import MOST_COMPARED
from noonbell.web.routing import page_router
from noonbell.web.session import Changing, Form, RequestContext
from noonbell.web.week import in_words

router = page_router()

_MOST_SHOWN: Final = 200
_AROUND: Final = 1
_LONGEST_LINE: Final = 200
_LONGEST_VALUE: Final = 500
_EXAMPLE: Final = """\
name = "billing"

[defaults]
timezone = "Europe/Kyiv"

[schedules.report]
cron = "0 9 * * 1-5"
action = { kind = "http", method = "POST", url = "https://example.com/report" }
"""


class Excerpt(NamedTuple):
    """A problem with the lines around it: number, text, and whether the problem is in it."""

    problem: Problem
    lines: list[tuple[int, str, bool]]


class Change(NamedTuple):
    field: str
    before: str
    after: str


class Shown(NamedTuple):
    """An item of a plan, for the page."""

    item: Item
    title: str
    changes: list[Change]


@router.get("/plan")
async def show(visitor: Changing) -> Response:
    return _page(visitor, {"text": "", "format": "toml", "name": ""})


@router.post("/plan")
async def make(visitor: Changing) -> Response:
    """Show the changes that the text would make. Nothing is written."""
    typed = _typed(visitor.form)
    try:
        made = await _planned(visitor, typed)
    except ScheduleFileInvalidError as error:
        return _unreadable(visitor, typed, error)
    return await _shown(visitor, typed, made)


@router.post("/plan/apply")
async def apply_plan(visitor: Changing) -> Response:
    """Apply the plan that was shown, as a whole or not at all."""
    typed, form = _typed(visitor.form), visitor.form
    try:
        made = await _planned(visitor, typed)
    except ScheduleFileInvalidError as error:
        return _unreadable(visitor, typed, error)
    if form.text("digest") != digest_of(made):
        return await _shown(visitor, typed, made, 409, outdated=_what_changed(form, made))
    service, now = visitor.service, visitor.service.clock.now()
    try:
        for declared in made.file.schedules.values():
            service.schedules.require_allowed(definition_of(declared.columns.definition).action)
        done = await apply(
            service.store, made, now=now, actor=visitor.caller.actor, allow_delete=form.ticked("allow_delete"),
            lane=service.settings.lane, here=service.schedules.here,
        )  # fmt: skip
    except DeletionRefusedError:
        return await _shown(visitor, typed, made, 422, undeleted=True)
    except PlanOutdatedError as error:
        again = await _planned(visitor, typed)
        return await _shown(visitor, typed, again, 409, outdated=[str(error)])
    except NoonbellError as error:
        return await _shown(visitor, typed, made, 422, refused=(await visitor.masking())(str(error)))
    service.events.nudge()
    outcome = f"Applied: {done.created} created, {done.changed} changed, {done.deleted} deleted"
    outcome = ". ".join([outcome, *(f"Warning: {warning.removesuffix('.')}" for warning in done.warnings)])
    return visitor.go(f"/schedules?owner={made.file.owner}", outcome, "plain" if done.warnings else "good")


# --- reading ----------------------------------------------------------------------------------------------------------


def _typed(form: Form) -> dict[str, str]:
    text = form.get("text", "").replace("\r\n", "\n")  # as browsers send the ends of lines
    chosen = form.text("format") if form.text("format") in ("toml", "yaml") else "toml"
    return {"text": text, "format": chosen, "name": form.text("name")}


async def _planned(visitor: RequestContext, typed: Mapping[str, str]) -> Plan:
    text = typed["text"]
    if len(text) > LARGEST_FILE or not text.strip():
        reason = (
            f"has more than {LARGEST_FILE // 1024} Ki characters; apply it with noonbell apply" if text.strip()
            else "is empty; paste a file of schedules"
        )  # fmt: skip
        raise ScheduleFileInvalidError([Problem("text", 1, 1, "", None, f"The text {reason}")])
    form = cast("Literal['toml', 'yaml']", typed["format"])
    return await plan_text(visitor.request, visitor.caller, text, form, typed["name"] or None)


def _unreadable(visitor: RequestContext, typed: Mapping[str, str], error: ScheduleFileInvalidError) -> Response:
    return _page(visitor, typed, 422, problems=_excerpts(typed["text"], error.problems), more_problems=error.more)


def _excerpts(text: str, problems: Sequence[Problem]) -> list[Excerpt]:
    lines = text.split("\n")
    found = []
    for one in problems:
        first, last = max(1, one.line - _AROUND), min(len(lines), one.line + _AROUND)
        around = [(number, lines[number - 1][:_LONGEST_LINE], number == one.line) for number in range(first, last + 1)]
        found.append(Excerpt(one, around))
    return found


# --- the plan that was shown ------------------------------------------------------------------------------------------


def digest_of(made: Plan) -> str:
    """Return a digest that is equal for two plans that make the same changes to the same state."""
    items = [
        [one.kind, one.id, one.name, [[change.field, change.before, change.after] for change in one.changes]]
        for one in (*made.schedules, *made.quiet_hours)
    ]
    state = json.dumps([made.fingerprint, items], sort_keys=True, default=str)
    return hashlib.sha256(state.encode()).hexdigest()[:32]


def _seen(made: Plan) -> str:
    """Return the state of the schedules of the file's owner, which is compared when the plan is applied."""
    return json.dumps({key: [one.epoch, one.enabled] for key, one in made.seen.items()}, separators=(",", ":"))


def _what_changed(form: Form, made: Plan) -> list[str]:
    """Return, in words, the differences between the plan that was shown and the current one."""
    changes = []
    if form.text("file") != made.file.fingerprint:
        changes.append("The text has changed since the plan was made")
    try:
        before: Any = json.loads(form.get("seen", "{}"))
    except (ValueError, RecursionError):
        before = {}
    now = {key: [one.epoch, one.enabled] for key, one in made.seen.items()}
    if isinstance(before, dict) and form.text("owner") == made.file.owner:
        changes += [f'The schedule "{key}" was created since then' for key in now if key not in before]
        changes += [f'The schedule "{key}" was deleted since then' for key in before if key not in now]
        changes += [
            f'The schedule "{key}" was changed since then' for key in now if key in before and before[key] != now[key]
        ]
    return changes[:20] or ["Quiet hours have changed, or times have passed, so that the same text makes another plan"]


async def _shown(
    visitor: RequestContext, typed: Mapping[str, str], made: Plan, status: int = 200, **values: Any
) -> Response:
    mask = await visitor.masking()
    prefix = f"{made.file.owner}:"
    titled = [(one, f"quiet hours {one.id.removeprefix(prefix)}") for one in made.quiet_hours]
    titled += [(one, one.id) for one in made.schedules]
    items = [Shown(one, title, _changes(one, mask)) for one, title in titled[:_MOST_SHOWN]]
    facts = {
        "plan": made, "items": items, "beyond": len(titled) - _MOST_SHOWN, "digest": digest_of(made),
        "seen": _seen(made), "unworded": len(made.schedules) > MOST_COMPARED,
        "counts": {kind: sum(one.kind == kind for one in made.schedules) for kind in ("create", "change", "delete")},
    }  # fmt: skip
    return _page(visitor, typed, status, **(facts | values))


def _changes(item: Item, mask: Callable[[str], str]) -> list[Change]:
    return [
        Change(one.field, mask(_said(one, one.before)), mask(_said(one, one.after)))
        for one in item.changes
    ]  # fmt: skip


def _said(change: FieldChange, value: Any) -> str:
    """Return a value as text, without literal credentials."""
    if change.field in ("windows", "quiet_hours") and isinstance(value, list):
        return "; ".join(in_words(one) for one in value) or "none"
    value = shown_value(change.field, value)
    if value is None:
        return "none"
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return said if len(said) <= _LONGEST_VALUE else f"{said[:_LONGEST_VALUE]}…"


def _page(visitor: RequestContext, typed: Mapping[str, str], status: int = 200, **values: Any) -> Response:
    usual: dict[str, Any] = {
        "plan": None, "items": [], "beyond": 0, "problems": [], "more_problems": 0, "outdated": [],
        "undeleted": False, "refused": None,
        "counts": {}, "unworded": False, "most": MOST_COMPARED, "example": _EXAMPLE, "digest": "", "seen": "",
    }  # fmt: skip
    return visitor.page("plan.html", status, typed=typed, **(usual | values))

"""The form of a schedule: it interprets and previews the input while it is typed, tests the action, and saves.

A preview and a test are parts of a page for the script, and whole pages without scripts: the same form with the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi.responses import Response

from noonbell.actions.http import credentials
from noonbell.actions.http.definition import METHODS
from noonbell.api.declared_tasks_view import Declared
from noonbell.api.models.schedules import ScheduleResponse
from noonbell.api.paging import ScheduleInPath
from noonbell.api.schedule_presenter import not_editable, schedule_response
from noonbell.errors import (
    CronError,
    LanguageError,
    NoonbellError,
    ScheduleChangedError,
    ScheduleExistsError,
    ScheduleInvalidError,
    ScheduleNotFoundError,
)
from noonbell.schedules.schedule_records import QuietHoursRecord, Schedule
from noonbell.web import attempt_view as exchange
from noonbell.web.rendering import segment
from noonbell.web.routing import page_router
from noonbell.web.schedule_fields import DEFAULTS, action_of, fields_of, place_of, typed_of, understood
from noonbell.web.schedule_preview import SchedulePreview, preview_schedule
from noonbell.web.session import Changing, Form, RequestContext
from noonbell.web.trial import try_action

router = page_router()

_EXAMPLES: Final = (
    "every weekday at 9am in Kyiv", "every 15 minutes", "the last Friday of the month at 17:00", "0 3 * * *",
    "tomorrow at 6pm",
)  # fmt: skip


# --- pages ------------------------------------------------------------------------------------------------------------


@router.get("/schedules/new")
async def new(visitor: Changing) -> Response:
    """Show an empty form, or one filled from an existing schedule."""
    typed = dict(DEFAULTS)
    like = visitor.request.query_params.get("like")
    if like:
        typed = _typed(schedule_response(await visitor.schedules.get(like)))
        typed |= {"name": f"{typed['name']} (copy)", "like": like}
    if text := visitor.request.query_params.get("when"):
        typed["when"] = text[:500]
    return await _form(visitor, typed)


@router.post("/schedules/new")
async def create(visitor: Changing) -> Response:
    form = visitor.form
    try:
        meant = understood(form, visitor.service.clock.now())
        fields = await _fields(visitor) | dict(meant.fields)
        fields.setdefault("name", form.text("when"))
        if form.text("schedule_id"):
            fields["schedule_id"] = form.text("schedule_id")
        made = await visitor.schedules.create(**fields)
    except NoonbellError as error:
        return await _refused(visitor, error)
    visitor.service.events.nudge()
    warnings = [*(f"Warning: {warning}." for warning in made.warnings), *await visitor.schedules.warnings(made)]
    message = " ".join([f"Created. {meant.description}.", *warnings])
    return visitor.go(f"/schedules/{segment(made.schedule_id)}", message, "plain" if warnings else "good")


@router.get("/schedules/{schedule_id}/edit")
async def edit(visitor: Changing, declared: Declared, schedule_id: ScheduleInPath) -> Response:
    await _require_editable(visitor, declared, schedule_id)
    schedule = schedule_response(await visitor.schedules.get(schedule_id))
    typed = _typed(schedule)
    typed |= {
        "when_was": typed["when"],
        "zone_was": typed["timezone"],
        "seen": _seen(schedule.epoch, schedule.updated_at),
    }
    written = credentials.written_out(schedule.action)
    return await _form(visitor, typed, editing=schedule_id, name=schedule.name, written=written)


@router.post("/schedules/{schedule_id}/edit")
async def change(visitor: Changing, declared: Declared, schedule_id: ScheduleInPath) -> Response:
    """Save the changed fields, unless the schedule was changed since the form was loaded."""
    await _require_editable(visitor, declared, schedule_id)
    form = visitor.form
    before = await visitor.schedules.get(schedule_id)
    try:
        if form.text("seen") != _seen(before.epoch, before.updated_at):
            raise ScheduleChangedError(schedule_id)
        fields = fields_of(form)
        fields["action"] = credentials.unveiled(fields["action"], before.action)
        same = (form.text("when"), form.text("timezone")) == (form.text("when_was"), form.text("zone_was"))
        if not same:
            fields |= dict(understood(form, visitor.service.clock.now()).fields)
        saved = await visitor.schedules.unchanged_since(before).update(schedule_id, **_changed(fields, before))
    except NoonbellError as error:
        return await _refused(visitor, error, editing=schedule_id, name=before.name)
    visitor.service.events.nudge()
    message = _with_warnings("Saved. Occurrences that were due before are decided by the previous values.", saved)
    return visitor.go(f"/schedules/{segment(schedule_id)}", message)


def _with_warnings(message: str, made: Schedule) -> str:
    return " ".join([message, *(f"Warning: {warning}." for warning in made.warnings)])


async def _require_editable(visitor: RequestContext, declared: Declared, schedule_id: str) -> None:
    row = await declared.find(visitor.team, schedule_id)
    if row is not None:
        raise not_editable(str(row["managed_by"]))


def _seen(epoch: int, updated_at: Any) -> str:
    return f"{epoch}-{updated_at.isoformat()}"


def _changed(fields: dict[str, Any], before: Any) -> dict[str, Any]:
    """Return only fields whose values changed: an unchanged field would begin a new epoch needlessly."""
    changed: dict[str, Any] = {}
    for name, value in fields.items():
        was: Any = getattr(before, name, None)
        if name in ("start_at", "end_at"):
            same = value == (None if was is None else was.isoformat())
        elif name == "tags":
            same = list(value) == list(was)
        elif name == "retry":
            same = all(
                value.get(key) == getattr(was, key) for key in ("attempts", "delay_seconds", "strategy", "jitter")
            )
            same = same and value.get("max_delay_seconds") == was.max_delay_seconds
        else:
            same = value == was
        if not same:
            changed[name] = value
    return changed


# --- looking ahead, and trying ----------------------------------------------------------------------------------------


@router.post("/schedules/preview")
async def preview(visitor: Changing) -> Response:
    values = await _preview(visitor)
    if visitor.by_script:
        return visitor.part("parts/preview.html", examples=_EXAMPLES, **values)
    return await _form(visitor, dict(visitor.form), editing=_editing(visitor.form), **values)


@router.post("/schedules/test")
async def test_now(visitor: Changing) -> Response:
    """Send the request of the form once, and show the request and the response."""
    editing = _editing(visitor.form)
    if editing is not None:
        await visitor.schedules.get(editing)  # it has to be one of the team's
    values: dict[str, Any] = {"trial": None, "shown": None, "trial_error": None}
    try:
        action = credentials.unveiled(action_of(visitor.form), await _stored_action(visitor))
        found = await try_action(visitor, action, editing)
        values |= {"trial": found, "shown": exchange.view_of(found.detail)}
    except NoonbellError as error:
        values["trial_error"] = (await visitor.masking())(str(error))
    if visitor.by_script:
        return visitor.part("parts/trial.html", editing=editing, **values)
    return await _form(visitor, dict(visitor.form), editing=editing, **await _preview(visitor), **values)


async def _preview(visitor: RequestContext) -> dict[str, Any]:
    """Return the interpretation and the preview of the text, or the errors in it."""
    form = visitor.form
    values: dict[str, Any] = {"preview": None, "not_understood": None, "invalid_reason": None, "blank": False}
    if not form.text("when"):
        return values | {"blank": True}
    try:
        values["preview"] = await _look(visitor, form)
    except LanguageError as error:
        values["not_understood"] = error
    except (ScheduleInvalidError, CronError) as error:
        values["invalid_reason"] = str(error)
    return values


async def _look(visitor: RequestContext, form: Form) -> SchedulePreview:
    meant = understood(form, visitor.service.clock.now())
    given: dict[str, Any] = {"dst": form.text("dst") or "literal"}
    for name in ("start_at", "end_at"):
        if form.text(name):
            given[name] = form.text(name)
    return await preview_schedule(visitor, meant, given, await _quiet(visitor, form), _editing(form))


async def _quiet(visitor: RequestContext, form: Form) -> QuietHoursRecord | None:
    policy_id = form.text("quiet_hours_policy_id")
    if not policy_id:
        return None
    try:
        return await visitor.schedules.get_quiet_hours(policy_id)
    except ScheduleNotFoundError:
        return None


def _editing(form: Form) -> str | None:
    return form.text("editing") or None


# --- credentials that are written out ---------------------------------------------------------------------------------


def _typed(schedule: ScheduleResponse) -> dict[str, str]:
    """Return the inputs of a schedule, with credentials hidden."""
    return typed_of(schedule.model_copy(update={"action": credentials.veiled(schedule.action)}))


async def _fields(visitor: RequestContext) -> dict[str, Any]:
    fields = fields_of(visitor.form)
    fields["action"] = credentials.unveiled(fields["action"], await _stored_action(visitor))
    return fields


async def _stored_action(visitor: RequestContext) -> Mapping[str, Any] | None:
    """Return the action of the schedule that is edited or copied: hidden credentials are taken from it."""
    of = _editing(visitor.form) or visitor.form.text("like")
    try:
        return schedule_response(await visitor.schedules.get(of)).action if of else None
    except ScheduleNotFoundError:
        return None


@router.post("/schedules/{schedule_id}/move-credential")
async def move_credential(visitor: Changing, declared: Declared, schedule_id: ScheduleInPath) -> Response:
    """Move a literal credential of the action into a secret, and let the action refer to it."""
    await _require_editable(visitor, declared, schedule_id)
    back = f"/schedules/{segment(schedule_id)}/edit"
    place, name = visitor.form.text("place"), visitor.form.text("named")
    before = await visitor.schedules.get(schedule_id)
    one = next((found for found in credentials.written_out(before.action) if found.place == place), None)
    if one is None:
        return visitor.go(back, "The credential was not found in the action; nothing was changed", "plain")
    secrets = visitor.schedules.secrets
    if any(facts.name == name for facts in await secrets.list(visitor.team)):
        return visitor.go(back, f"The secret {name} already exists and was not changed: choose another name", "bad")
    action = credentials.replaced(before.action, place, f"{one.before}${{secrets.{name}}}")
    try:
        await secrets.put(visitor.team, name, one.value)
        try:
            await visitor.schedules.unchanged_since(before).update(schedule_id, action=action)
        except NoonbellError:
            await secrets.delete(visitor.team, name)  # nothing refers to it
            raise
    except NoonbellError as error:
        reason = (await visitor.masking())(str(error))
        return visitor.go(back, f"{one.label} was not moved. {reason}", "bad")
    visitor.service.events.nudge()
    return visitor.go(back, f"{one.label} is the secret {name} now, and is masked in every record from now on")


# --- the form ---------------------------------------------------------------------------------------------------------


async def _refused(visitor: RequestContext, error: NoonbellError, **more: Any) -> Response:
    """Show the form again with the typed values, and each error at its input."""
    errors: dict[str, str] = {}
    overall: str | None = None
    if isinstance(error, LanguageError):
        errors["when"] = error.reason
    elif isinstance(error, CronError):
        errors["when"] = str(error)
    elif isinstance(error, ScheduleInvalidError):
        errors[place_of(error.field)] = error.reason
    elif isinstance(error, ScheduleExistsError):
        errors[place_of(error.field)] = "is taken; choose another"
    elif isinstance(error, ScheduleChangedError):
        overall = "This schedule was changed after you loaded the form. Reload the form to see the current values."
    else:
        overall = (await visitor.masking())(str(error))
    mask = await visitor.masking()
    masked = {name: mask(text) for name, text in errors.items()}
    previewed = await _preview(visitor)
    return await _form(visitor, dict(visitor.form), status=422, errors=masked, overall=overall, **previewed, **more)


async def _form(
    visitor: RequestContext, typed: Mapping[str, str], *, status: int = 200, editing: str | None = None, **values: Any
) -> Response:
    shown: dict[str, Any] = {
        "typed": typed,
        "errors": {},
        "overall": None,
        "name": None,
        "preview": None,
        "not_understood": None,
        "invalid_reason": None,
        "blank": not typed.get("when"),
        "trial": None,
        "shown": None,
        "trial_error": None,
        "examples": _EXAMPLES,
        "written": [],
        "usable": visitor.service.secrets.usable,
    }
    if status == 200 and typed.get("when") and "preview" not in values:
        visitor.form = Form({name: [value] for name, value in {**typed, "editing": editing or ""}.items()})
        values |= await _preview(visitor)
    return visitor.page(
        "schedule_form.html",
        status,
        editing=editing,
        quiet_hours=await visitor.schedules.list_quiet_hours(),
        methods=METHODS,
        commands_allowed=bool(visitor.service.settings.allowed_commands),
        **(shown | values),
    )

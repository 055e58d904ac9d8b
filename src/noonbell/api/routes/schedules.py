"""Schedules: listed, created, changed, paused, triggered, deleted."""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import Query, Request, Response

from noonbell.api.bodies import api_router
from noonbell.api.callers import Reading, Writing
from noonbell.api.declared_tasks_view import Declared, DeclaredTasks
from noonbell.api.deps import Serving, schedules_of
from noonbell.api.etags import NOT_MODIFIED, IfMatch, IfNoneMatch, holds, schedule_tag, unchanged
from noonbell.api.idempotency import Answer, Attempt, IdempotencyKey, as_answer, once
from noonbell.api.listing import schedule_page
from noonbell.api.models.base import Flag, Name, PageOf, QueryParams, Tag, flag
from noonbell.api.models.schedules import (
    Changed,
    CreatedSchedules,
    ManyChanges,
    ManySchedules,
    ScheduleChanges,
    ScheduleCreate,
    ScheduleResponse,
    Triggered,
    TriggerRequest,
    Type,
    UpcomingList,
    UpcomingResponse,
)
from noonbell.api.offload import in_thread, offload_of
from noonbell.api.paging import DEFAULT_LIMIT, Limit, NumberCursor, ScheduleInPath
from noonbell.api.problems import problems
from noonbell.api.schedule_presenter import declared_response, fields_of, for_caller, not_editable, schedule_response
from noonbell.core.ids import run_id as run_id_of
from noonbell.core.instants import moment
from noonbell.errors import (
    LanguageError,
    ScheduleChangedError,
    ScheduleError,
    ScheduleInvalidError,
    ScheduleNotFoundError,
)
from noonbell.ports import ScheduleFilter
from noonbell.schedules import Schedule, Schedules

router = api_router("schedules", large=True)

# Parsing a text in English takes up to 3 ms: larger batches are parsed outside of the event loop.
_FEW: Final = 10
_MOST_WAITING: Final = 8


class Filters(QueryParams):
    """The filters of a list of schedules; all given ones must match."""

    enabled: Flag | None = None
    type: Type | None = None
    tag: Tag | None = None
    name_contains: Name | None = None
    managed_by: Name | None = None
    lane: Name | None = None
    quiet_hours_policy_id: Name | None = None
    limit: Limit = DEFAULT_LIMIT
    cursor: NumberCursor | None = None


class Count(QueryParams):
    count: Annotated[int, Query(ge=1, le=1_000)] = 10


# --- reading ----------------------------------------------------------------------------------------------------------


@router.get("/schedules", summary="List schedules, oldest first")
async def list_schedules(
    service: Serving, caller: Reading, declared: Declared, asked: Annotated[Filters, Query()]
) -> PageOf[ScheduleResponse]:
    """Schedules of the key's team, including those that programs have declared."""
    wanted = ScheduleFilter(
        managed_by=asked.managed_by, lane=asked.lane, enabled=flag(asked.enabled), type=asked.type, tag=asked.tag,
        name_contains=asked.name_contains, quiet_hours_policy_id=asked.quiet_hours_policy_id, team=caller.team,
    )  # fmt: skip
    tasks = await declared.of_team(caller.team)
    page = await schedule_page(
        service.store, tasks, wanted, int(asked.cursor or 0), asked.limit, now=service.clock.now()
    )
    page.items = [for_caller(one, caller) for one in page.items]
    return page


@router.get("/schedules/{schedule_id}", summary="One schedule", responses=problems(404) | NOT_MODIFIED)
async def get_schedule(
    *, response: Response, service: Serving, caller: Reading, declared: Declared, schedule_id: ScheduleInPath,
    if_none_match: IfNoneMatch = None,
) -> ScheduleResponse:  # fmt: skip
    try:
        found = schedule_response(await schedules_of(service, caller).get(schedule_id))
    except ScheduleNotFoundError:
        row = await declared.find(caller.team, schedule_id)
        if row is None:
            raise
        found = declared_response(row)
    current = schedule_tag(found)
    if holds(if_none_match, current):
        return unchanged(current)  # type: ignore[no-any-return]  # a response in place of the model
    response.headers["ETag"] = current
    return for_caller(found, caller)


@router.get("/schedules/{schedule_id}/preview", summary="The next occurrences", responses=problems(404))
async def preview_schedule(
    service: Serving, caller: Reading, schedule_id: ScheduleInPath, asked: Annotated[Count, Query()]
) -> UpcomingList:
    found = await schedules_of(service, caller).preview(schedule_id, asked.count)
    return UpcomingList(items=[UpcomingResponse.model_validate(one) for one in found])


# --- creating ---------------------------------------------------------------------------------------------------------


@router.post(
    "/schedules", status_code=201, summary="Create a schedule", response_model=ScheduleResponse, responses=problems(409)
)
async def create_schedule(
    request: Request, service: Serving, caller: Writing, given: ScheduleCreate, key: IdempotencyKey = None
) -> Response:
    """The time is a `type` and a `spec`, or a `text` in English, whose interpretation the response contains."""
    schedules = schedules_of(service, caller)
    fields, understood = fields_of(given.given(), service.clock.now())

    async def create(attempt: Attempt) -> Answer:
        named = {"schedule_id": attempt.new_id, **fields}
        if "name" not in named:
            named["name"] = named["schedule_id"]
        try:
            made = await schedules.create(**named)
        except ScheduleError:  # the id is taken, or a one-shot is in the past
            earlier = await _made_before(schedules, attempt, named["schedule_id"])
            if earlier is None:
                raise
            made = earlier
        service.events.nudge()
        answer = schedule_response(made, understood)
        answer.warnings = [*made.warnings, *await schedules.warnings(made)]
        return as_answer(201, answer, ETag=schedule_tag(answer), Location=_address(request, made.schedule_id))

    return await once(request, service, caller, key, create)


@router.post(
    "/bulk/schedules", status_code=201, summary="Create many schedules", response_model=CreatedSchedules,
    responses=problems(409),
)  # fmt: skip
async def create_schedules(
    request: Request, service: Serving, caller: Writing, given: ManySchedules, key: IdempotencyKey = None
) -> Response:
    """Creates all schedules or none: an error names the position of the invalid one."""
    schedules = schedules_of(service, caller)
    now = service.clock.now()
    if len(given.schedules) <= _FEW:
        many = _fields_of_many(given, now)
    else:
        many = await offload_of(request.app).run(
            caller, lambda: in_thread(_fields_of_many, given, now), most=_MOST_WAITING, what="batch"
        )

    async def create(attempt: Attempt) -> Answer:
        for place, fields in enumerate(many):
            fields.setdefault("schedule_id", f"{attempt.new_id}-{place}")
        ids = [str(fields["schedule_id"]) for fields in many]
        found = await service.store.schedules.find(ScheduleFilter(schedule_ids=ids)) if attempt.repeated else []
        ours = [one for one in found if one.team == caller.team and attempt.may_have_made(moment(one.created_at))]
        if len(ours) < len(set(ids)):
            await schedules.create_many(many)  # type: ignore[arg-type]  # checked there, field by field
        service.events.nudge()
        return as_answer(201, CreatedSchedules(schedule_ids=ids, warnings=await schedules.warnings_of_many(many)))

    return await once(request, service, caller, key, create)


def _fields_of_many(given: ManySchedules, now: int) -> list[dict[str, Any]]:
    many = []
    for place, one in enumerate(given.schedules):
        try:
            many.append(fields_of(one.given(), now)[0])
        except ScheduleInvalidError as error:
            raise ScheduleInvalidError(error.field, error.value, error.reason, place) from error
        except LanguageError as error:
            raise ScheduleInvalidError("text", error.text, f"is not understood: {error}", place) from error
    return many


# --- changing ---------------------------------------------------------------------------------------------------------


@router.patch("/schedules/{schedule_id}", summary="Change fields of a schedule", responses=problems(404, 409, 412))
async def update_schedule(
    *, response: Response, service: Serving, caller: Writing, declared: Declared, schedule_id: ScheduleInPath,
    given: ScheduleChanges, if_match: IfMatch = None,
) -> ScheduleResponse:  # fmt: skip
    """Occurrences that were due before the change are decided by the previous values."""
    schedules = await _editable(schedules_of(service, caller), declared, caller.team, schedule_id, if_match)
    return _tagged_response(response, service, await schedules.update(schedule_id, **given.given()))


@router.patch("/bulk/schedules", summary="Change the same fields of many schedules", responses=problems(404, 409))
async def update_schedules(service: Serving, caller: Writing, declared: Declared, given: ManyChanges) -> Changed:
    for schedule_id in given.schedule_ids:
        await _refuse_declared(declared, caller.team, schedule_id)
    ids = list(dict.fromkeys(given.schedule_ids))
    await schedules_of(service, caller).update_many(ids, given.changes.given())  # type: ignore[arg-type]  # as above
    service.events.nudge()
    return Changed(changed=len(ids))


@router.post("/schedules/{schedule_id}/pause", summary="Pause a schedule", responses=problems(404, 409, 412))
async def pause_schedule(
    *, response: Response, service: Serving, caller: Writing, declared: Declared, schedule_id: ScheduleInPath,
    if_match: IfMatch = None,
) -> ScheduleResponse:  # fmt: skip
    """A paused schedule has no occurrences until it is resumed; occurrences due before are still decided."""
    schedules = await _editable(schedules_of(service, caller), declared, caller.team, schedule_id, if_match)
    return _tagged_response(response, service, await schedules.pause(schedule_id))


@router.post("/schedules/{schedule_id}/resume", summary="Resume a schedule", responses=problems(404, 409, 412))
async def resume_schedule(
    *, response: Response, service: Serving, caller: Writing, declared: Declared, schedule_id: ScheduleInPath,
    if_match: IfMatch = None,
) -> ScheduleResponse:  # fmt: skip
    schedules = await _editable(schedules_of(service, caller), declared, caller.team, schedule_id, if_match)
    return _tagged_response(response, service, await schedules.resume(schedule_id))


@router.post(
    "/schedules/{schedule_id}/trigger", status_code=202, summary="Start a run now", response_model=Triggered,
    responses=problems(404, 409),
)  # fmt: skip
async def trigger_schedule(
    *, request: Request, service: Serving, caller: Writing, declared: Declared, schedule_id: ScheduleInPath,
    given: TriggerRequest | None = None, key: IdempotencyKey = None,
) -> Response:  # fmt: skip
    """A manual run changes no occurrence. It is refused while a run is in progress, unless `overlap` is `allow` or
    `queue` is true.

    A run that fails is retried by the schedule's retry policy.
    """
    await _refuse_declared(declared, caller.team, schedule_id)
    how = TriggerRequest() if given is None else given

    async def trigger(attempt: Attempt) -> Answer:
        schedules = schedules_of(service, caller)
        run_id = await _asked_before(schedules, attempt, schedule_id, caller.actor)
        if run_id is None:
            run_id = await schedules.trigger(
                schedule_id, via="api", asked_at=attempt.begun_at, queue=how.queue, retry=how.retry
            )
        service.events.nudge()
        warnings = await schedules.warnings(await schedules.get(schedule_id))
        return as_answer(202, Triggered(run_id=run_id, warnings=warnings))

    return await once(request, service, caller, key, trigger)


@router.delete(
    "/schedules/{schedule_id}", status_code=204, summary="Delete a schedule", responses=problems(404, 409, 412)
)
async def delete_schedule(
    service: Serving, caller: Writing, declared: Declared, schedule_id: ScheduleInPath, if_match: IfMatch = None
) -> None:
    """The history of the schedule is kept, and its id is never used again."""
    schedules = await _editable(schedules_of(service, caller), declared, caller.team, schedule_id, if_match)
    await schedules.delete(schedule_id)
    service.events.nudge()


async def _made_before(schedules: Schedules, attempt: Attempt, schedule_id: str) -> Schedule | None:
    """Return the schedule that an earlier attempt of the same request has created."""
    if not attempt.repeated:
        return None
    try:
        found = await schedules.get(schedule_id)
    except ScheduleNotFoundError:
        return None
    return found if attempt.may_have_made(found.created_at) else None


async def _asked_before(schedules: Schedules, attempt: Attempt, schedule_id: str, actor: str) -> str | None:
    """Return the id of the run that an earlier attempt of the same request has started."""
    if not attempt.repeated:
        return None
    at = attempt.begun_at
    found = await schedules.audit(
        subject=schedule_id, event="schedule.triggered", actor=actor, start=at, end=at, limit=1
    )
    return next((run_id_of(schedule_id, "manual", one.detail["run_for"]) for one in found.items), None)


async def _editable(
    schedules: Schedules, declared: DeclaredTasks, team: str, schedule_id: str, if_match: str | None
) -> Schedules:
    """Return schedules whose next change is refused if the schedule was changed since it was read."""
    await _refuse_declared(declared, team, schedule_id)
    if if_match is None:
        return schedules
    seen = await schedules.get(schedule_id)
    if not holds(if_match, schedule_tag(seen)):
        raise ScheduleChangedError(schedule_id)
    return schedules.unchanged_since(seen)


async def _refuse_declared(declared: DeclaredTasks, team: str, schedule_id: str) -> None:
    row = await declared.find(team, schedule_id)
    if row is not None:
        raise not_editable(str(row["managed_by"]))


def _tagged_response(response: Response, service: Serving, schedule: Schedule) -> ScheduleResponse:
    service.events.nudge()
    found = schedule_response(schedule)
    response.headers["ETag"] = schedule_tag(found)
    return found


def _address(request: Request, schedule_id: str) -> str:
    return f"{request.url.path.rstrip('/')}/{quote(schedule_id, safe='')}"

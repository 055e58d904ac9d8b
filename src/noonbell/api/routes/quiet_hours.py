"""Quiet hours that schedules refer to."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query, Request, Response

from noonbell.api.bodies import api_router
from noonbell.api.callers import Reading, Writing
from noonbell.api.deps import Serving, schedules_of
from noonbell.api.etags import NOT_MODIFIED, IfMatch, IfNoneMatch, holds, require, tag, unchanged
from noonbell.api.idempotency import Answer, Attempt, IdempotencyKey, once
from noonbell.api.idempotency import as_answer as answered
from noonbell.api.models.base import PLAIN, PageOf
from noonbell.api.models.resources import QuietHoursChanges, QuietHoursRequest, QuietHoursResponse
from noonbell.api.paging import ByText, Slashed, page_of
from noonbell.api.problems import problems
from noonbell.errors import ScheduleNotFoundError
from noonbell.schedules import QuietHoursRecord, Schedules

router = api_router("quiet hours", large=True)

PolicyInPath = Annotated[str, Slashed, Path(alias="policy_id", min_length=1, max_length=500, pattern=PLAIN)]


@router.get("/quiet-hours", summary="List quiet hours")
async def list_quiet_hours(
    service: Serving, caller: Reading, asked: Annotated[ByText, Query()]
) -> PageOf[QuietHoursResponse]:
    """Quiet hours of the team, by id."""
    every = await schedules_of(service, caller).list_quiet_hours()
    found, next_cursor = page_of(every, lambda one: one.policy_id, asked)
    return PageOf(items=[QuietHoursResponse.model_validate(one) for one in found], next_cursor=next_cursor)


@router.post(
    "/quiet-hours", status_code=201, summary="Create quiet hours", response_model=QuietHoursResponse,
    responses=problems(409),
)  # fmt: skip
async def create_quiet_hours(
    request: Request, service: Serving, caller: Writing, given: QuietHoursRequest, key: IdempotencyKey = None
) -> Response:
    schedules = schedules_of(service, caller)
    fields = given.given()

    async def create(attempt: Attempt) -> Answer:
        policy_id = fields.get("policy_id", attempt.new_id)
        made: QuietHoursRecord | None = None
        if attempt.repeated:
            made = await _there(schedules.get_quiet_hours, policy_id)
        if made is None or not attempt.may_have_made(made.created_at):
            made = await schedules.create_quiet_hours(fields["name"], fields["windows"], policy_id=policy_id)
        service.events.nudge()
        return answered(201, QuietHoursResponse.model_validate(made), ETag=_tag(made))

    return await once(request, service, caller, key, create)


async def _there(get: Any, policy_id: str) -> QuietHoursRecord | None:
    try:
        found: QuietHoursRecord = await get(policy_id)
    except ScheduleNotFoundError:
        return None
    return found


@router.get("/quiet-hours/{policy_id}", summary="Quiet hours", responses=problems(404) | NOT_MODIFIED)
async def get_quiet_hours(
    response: Response, service: Serving, caller: Reading, policy_id: PolicyInPath, if_none_match: IfNoneMatch = None
) -> QuietHoursResponse:
    found = await schedules_of(service, caller).get_quiet_hours(policy_id)
    if holds(if_none_match, _tag(found)):
        return unchanged(_tag(found))  # type: ignore[no-any-return]  # a response in place of the model
    response.headers["ETag"] = _tag(found)
    return QuietHoursResponse.model_validate(found)


@router.patch("/quiet-hours/{policy_id}", summary="Change quiet hours", responses=problems(404, 409, 412))
async def update_quiet_hours(
    *, response: Response, service: Serving, caller: Writing, policy_id: PolicyInPath, given: QuietHoursChanges,
    if_match: IfMatch = None,
) -> QuietHoursResponse:  # fmt: skip
    """Every schedule that refers to the quiet hours continues in a new epoch."""
    schedules, fields = schedules_of(service, caller), given.given()
    changed = await schedules.update_quiet_hours(
        policy_id,
        name=fields.get("name"),
        windows=fields.get("windows"),
        seen=await _seen(schedules, policy_id, if_match),
    )
    service.events.nudge()
    response.headers["ETag"] = _tag(changed)
    return QuietHoursResponse.model_validate(changed)


@router.delete(
    "/quiet-hours/{policy_id}", status_code=204, summary="Delete quiet hours", responses=problems(404, 409, 412)
)
async def delete_quiet_hours(
    service: Serving, caller: Writing, policy_id: PolicyInPath, if_match: IfMatch = None
) -> None:
    """Refused while a schedule refers to them."""
    schedules = schedules_of(service, caller)
    await schedules.delete_quiet_hours(policy_id, seen=await _seen(schedules, policy_id, if_match))
    service.events.nudge()


async def _seen(schedules: Schedules, policy_id: str, if_match: str | None) -> QuietHoursRecord | None:
    """Return the record that If-Match names, if it was sent; the store detects a change after this read."""
    if if_match is None:
        return None
    seen = await schedules.get_quiet_hours(policy_id)
    require(if_match, _tag(seen))
    return seen


def _tag(record: QuietHoursRecord) -> str:
    return tag(int(record.updated_at.timestamp() * 1_000_000))

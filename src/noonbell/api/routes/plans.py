"""Plan and apply: a file of schedules, sent as its text.

Reading a large file and comparing it with the store takes seconds of the processor: `api/offload.py` does it beside the
event loop, and each key has one file read at a time.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Literal

from fastapi import Request, Response

from noonbell.access import Caller
from noonbell.actions.http.credentials import shown_value
from noonbell.api.bodies import api_router
from noonbell.api.callers import Reading, Writing
from noonbell.api.deps import Serving, get_service
from noonbell.api.models.planned import AppliedTold, ApplyGiven, FileGiven, PlanItem, PlanTold
from noonbell.api.offload import offload_of
from noonbell.api.problems import ProblemError, problems
from noonbell.core.turns import definition_of
from noonbell.errors import ScheduleFileInvalidError
from noonbell.planning import Plan, apply, loads, plan
from noonbell.planning.plans import Item

router = api_router("plans")


@router.post("/plan", summary="What a file would change", response_model=PlanTold)
async def make_plan(request: Request, caller: Reading, given: FileGiven) -> Response:
    """Nothing is written. The first hundred problems of the file are listed, with their lines."""
    made = await _planned(request, caller, given)
    return await asyncio.to_thread(lambda: _answer(_told(made, hide=not caller.may("write"))))


@router.post(
    "/apply", summary="Let the schedules be as a file says", responses=problems(409), response_model=AppliedTold
)
async def apply_file(request: Request, service: Serving, caller: Writing, given: ApplyGiven) -> Response:
    """All of it or nothing. Deleting has to be allowed; with a fingerprint, what was planned is what is done."""
    made = await _planned(request, caller, given)
    fingerprint = given.given().get("fingerprint", made.fingerprint)
    if fingerprint != made.fingerprint:
        detail = "The plan would be another one by now; make a new plan, and look at it"
        raise ProblemError(409, detail, kind="plan-outdated", field="fingerprint", value=fingerprint)
    for declared in made.file.schedules.values():
        service.schedules.require_allowed(definition_of(declared.columns.definition).action)
    done = await apply(
        service.store, made, now=made.made_at, actor=caller.actor, allow_delete=given.allow_delete,
        lane=service.settings.lane,
    )  # fmt: skip
    service.events.nudge()
    counts = {"created": done.created, "changed": done.changed, "deleted": done.deleted}
    warnings = list(done.warnings)
    return await asyncio.to_thread(lambda: _answer(AppliedTold(**counts, plan=_told(made), warnings=warnings)))


async def _planned(request: Request, caller: Caller, given: FileGiven) -> Plan:
    return await plan_text(request, caller, given.text, given.format, given.given().get("name"))


async def plan_text(
    request: Request, caller: Caller, text: str, form: Literal["toml", "yaml"], name: str | None
) -> Plan:
    """Read a text and compare it with the store, for the API and for the page."""
    service = get_service(request)

    async def work() -> Plan:
        try:
            file = await asyncio.to_thread(loads, text, format=form, source="text", name=name)
        except ScheduleFileInvalidError as error:
            raise error.with_traceback(None) from None  # its frames would keep the whole document for a while
        return await plan(service.store, file, now=service.clock.now(), team=caller.team)

    return await offload_of(request.app).run(caller, work, most=1, what="file")


def _answer(told: PlanTold | AppliedTold) -> Response:
    return Response(told.model_dump_json(), media_type="application/json")


def _told(made: Plan, *, hide: bool = False) -> PlanTold:
    facts = made.to_json()
    facts["schedules"] = [_item(one, hide=hide) for one in made.schedules]
    facts["quiet_hours"] = [_item(one) for one in made.quiet_hours]
    return PlanTold(**facts)


def _item(item: Item, *, hide: bool = False) -> PlanItem:
    told = PlanItem.model_validate(asdict(item))
    if hide:
        for one in told.changes:
            one.before, one.after = shown_value(one.field, one.before), shown_value(one.field, one.after)
    return told

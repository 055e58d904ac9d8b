"""Plan and apply: a file of schedules, sent as its text.

Parsing a large file and comparing it with the store takes seconds of CPU time. A small file is parsed in a thread
(`api/offload.py`), a large one in a separate process (`api/helper.py`), and one file at a time for each key.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final, Literal

import msgspec
from fastapi import Request, Response

from noonbell.access import Caller
from noonbell.actions.http.credentials import shown_value
from noonbell.api.bodies import api_router
from noonbell.api.callers import Reading, Writing
from noonbell.api.deps import Serving, get_service
from noonbell.api.helper import HelperProcess
from noonbell.api.models.planned import AppliedResponse, ApplyRequest, FileRequest, PlanResponse
from noonbell.api.offload import in_thread, offload_of
from noonbell.api.problems import ProblemError, problems
from noonbell.core.turns import definition_of
from noonbell.errors import ScheduleFileInvalidError
from noonbell.planning import FieldChange, Item, Plan, apply, loads, plan

router = api_router("plans")
# Up to here a thread delays others less than starting a process would; about a hundred schedules.
SMALL_FILE: Final = 16 * 1024


@router.post("/plan", summary="The changes that a file would make", response_model=PlanResponse)
async def make_plan(request: Request, caller: Reading, given: FileRequest) -> Response:
    """Nothing is written. Errors list the first hundred problems of the file, with their lines."""
    made = await _planned(request, caller, given)
    return await asyncio.to_thread(lambda: _response(_plan_facts(made, hide=not caller.may("write"))))


@router.post("/apply", summary="Apply a file of schedules", responses=problems(409), response_model=AppliedResponse)
async def apply_file(request: Request, service: Serving, caller: Writing, given: ApplyRequest) -> Response:
    """Applies the whole file or nothing. Deletions must be allowed; with a fingerprint, only that plan is applied."""
    made = await _planned(request, caller, given)
    fingerprint = given.given().get("fingerprint", made.fingerprint)
    if fingerprint != made.fingerprint:
        detail = "The plan is outdated; make a new plan and review it"
        raise ProblemError(409, detail, kind="plan-outdated", field="fingerprint", value=fingerprint)
    for declared in made.file.schedules.values():
        service.schedules.require_allowed(definition_of(declared.columns.definition).action)
    done = await apply(
        service.store, made, now=made.made_at, actor=caller.actor, allow_delete=given.allow_delete,
        lane=service.settings.lane, here=service.schedules.here,
    )  # fmt: skip
    service.events.nudge()
    counts = {"created": done.created, "changed": done.changed, "deleted": done.deleted}
    warnings = list(done.warnings)
    return await asyncio.to_thread(lambda: _response({**counts, "plan": _plan_facts(made), "warnings": warnings}))


async def _planned(request: Request, caller: Caller, given: FileRequest) -> Plan:
    return await plan_text(request, caller, given.text, given.format, given.given().get("name"))


async def plan_text(
    request: Request, caller: Caller, text: str, form: Literal["toml", "yaml"], name: str | None
) -> Plan:
    """Parse a text and compare it with the store, for the API and for the page."""
    service = get_service(request)

    async def compared(compute: Any) -> Plan:
        try:
            file = await compute(loads, text, format=form, source="text", name=name)
        except ScheduleFileInvalidError as error:
            raise error.with_traceback(None) from None  # its frames would keep the whole document for a while
        return await plan(service.store, file, now=service.clock.now(), team=caller.team, compute=compute)

    async def work() -> Plan:
        if len(text) <= SMALL_FILE:
            return await compared(in_thread)
        async with HelperProcess() as helper:
            return await compared(helper.call)

    return await offload_of(request.app).run(caller, work, most=1, what="file")


# Plans are encoded without the response models, which take several times the memory and time for thousands of items.


def _response(facts: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(facts), media_type="application/json")


def _plan_facts(made: Plan, *, hide: bool = False) -> dict[str, Any]:
    facts = made.facts()
    return {**facts, "schedules": [_hidden(one) for one in made.schedules]} if hide else facts


def _hidden(item: Item) -> Item:
    """Return the item without credentials, for callers that may only read."""
    changes = (
        FieldChange(one.field, shown_value(one.field, one.before), shown_value(one.field, one.after))
        for one in item.changes
    )
    return replace(item, changes=tuple(changes))

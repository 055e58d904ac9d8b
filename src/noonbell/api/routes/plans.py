"""Plan and apply: a file of schedules, sent as its text.

Reading a large file takes seconds of the processor: a thread does it, so that runs and requests go on meanwhile, and
each key has one file read at a time.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Final, Literal

from fastapi import APIRouter, Request

from noonbell.access import Caller
from noonbell.api.callers import Reading, Writing
from noonbell.api.deps import Serving
from noonbell.api.models.planned import AppliedTold, ApplyGiven, FileGiven, PlanItem, PlanTold
from noonbell.api.problems import ProblemError, problems
from noonbell.core.turns import definition_of
from noonbell.planning import Plan, ScheduleFile, apply, loads, plan
from noonbell.planning.plans import Item

router = APIRouter(tags=["plans"])

_RETRY_SECONDS: Final = 2


@router.post("/plan", summary="What a file would change")
async def make_plan(request: Request, service: Serving, caller: Reading, given: FileGiven) -> PlanTold:
    """Nothing is written. Every problem of the file is told, with its line."""
    file = await _file(request, caller, given)
    return _told(await plan(service.store, file, now=service.clock.now(), team=caller.team))


@router.post("/apply", summary="Let the schedules be as a file says", responses=problems(409))
async def apply_file(request: Request, service: Serving, caller: Writing, given: ApplyGiven) -> AppliedTold:
    """All of it or nothing. Deleting has to be allowed; with a fingerprint, what was planned is what is done."""
    file = await _file(request, caller, given)
    now = service.clock.now()
    made = await plan(service.store, file, now=now, team=caller.team)
    fingerprint = given.given().get("fingerprint", made.fingerprint)
    if fingerprint != made.fingerprint:
        detail = "The plan would be another one by now; make a new plan, and look at it"
        raise ProblemError(409, detail, kind="plan-outdated", field="fingerprint", value=fingerprint)
    for declared in made.file.schedules.values():
        service.schedules.require_allowed(definition_of(declared.columns.definition).action)
    done = await apply(
        service.store, made, now=now, actor=caller.actor, allow_delete=given.allow_delete, lane=service.settings.lane
    )
    service.events.nudge()
    return AppliedTold(
        created=done.created, changed=done.changed, deleted=done.deleted, plan=_told(made), warnings=list(done.warnings)
    )


async def _file(request: Request, caller: Caller, given: FileGiven) -> ScheduleFile:
    return await read_declared(request, caller, given.text, given.format, given.given().get("name"))


async def read_declared(
    request: Request, caller: Caller, text: str, form: Literal["toml", "yaml"], name: str | None
) -> ScheduleFile:
    """Read the text. Whoever hangs up meanwhile does not free his place: the thread goes on to its end."""
    state = request.app.state
    if not hasattr(state, "files_read"):
        state.files_read = set()
    reading: set[str] = state.files_read
    who = caller.key_id or caller.actor
    if who in reading:
        raise ProblemError(
            429, "Another file of this key is being read; send one after the other", kind="too-many-requests",
            headers={"Retry-After": str(_RETRY_SECONDS)},
        )  # fmt: skip
    reading.add(who)
    work = asyncio.ensure_future(asyncio.to_thread(loads, text, format=form, source="text", name=name))
    work.add_done_callback(lambda _: reading.discard(who))
    return await asyncio.shield(work)


def _told(made: Plan) -> PlanTold:
    facts = made.to_json()
    facts["schedules"] = [_item(one) for one in made.schedules]
    facts["quiet_hours"] = [_item(one) for one in made.quiet_hours]
    return PlanTold(**facts)


def _item(item: Item) -> PlanItem:
    return PlanItem.model_validate(asdict(item))

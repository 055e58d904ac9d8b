"""Plan and apply: a file of schedules, sent as its text."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter

from noonbell.api.callers import Reading, Writing
from noonbell.api.deps import Serving
from noonbell.api.models.planned import AppliedTold, ApplyGiven, FileGiven, PlanItem, PlanTold
from noonbell.api.problems import ProblemError, problems
from noonbell.core.turns import definition_of
from noonbell.planning import Plan, ScheduleFile, apply, loads, plan
from noonbell.planning.plans import Item

router = APIRouter(tags=["plans"])


@router.post("/plan", summary="What a file would change")
async def make_plan(service: Serving, caller: Reading, given: FileGiven) -> PlanTold:
    """Nothing is written. Every problem of the file is told, with its line."""
    return _told(await plan(service.store, _file(given), now=service.clock.now(), team=caller.team))


@router.post("/apply", summary="Let the schedules be as a file says", responses=problems(409))
async def apply_file(service: Serving, caller: Writing, given: ApplyGiven) -> AppliedTold:
    """All of it or nothing. Deleting has to be allowed; with a fingerprint, what was planned is what is done."""
    now = service.clock.now()
    made = await plan(service.store, _file(given), now=now, team=caller.team)
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
    return AppliedTold(created=done.created, changed=done.changed, deleted=done.deleted, plan=_told(made))


def _file(given: FileGiven) -> ScheduleFile:
    return loads(given.text, format=given.format, source="text", name=given.given().get("name"))


def _told(made: Plan) -> PlanTold:
    facts = made.to_json()
    facts["schedules"] = [_item(one) for one in made.schedules]
    facts["quiet_hours"] = [_item(one) for one in made.quiet_hours]
    return PlanTold(**facts)


def _item(item: Item) -> PlanItem:
    return PlanItem.model_validate(asdict(item))

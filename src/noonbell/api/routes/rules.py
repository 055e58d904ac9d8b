"""Rules: which events are sent to which channels."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Request, Response

from noonbell.access import Caller
from noonbell.api.bodies import api_router
from noonbell.api.callers import Reading, Writing
from noonbell.api.deps import Serving, schedules_of
from noonbell.api.etags import NOT_MODIFIED, IfMatch, IfNoneMatch, changing, holds, require, tag, unchanged
from noonbell.api.idempotency import Answer, Attempt, IdempotencyKey, once
from noonbell.api.idempotency import as_answer as answered
from noonbell.api.models.base import PageOf
from noonbell.api.models.resources import RuleChanges, RuleRequest, RuleResponse
from noonbell.api.paging import ById, as_page
from noonbell.api.problems import problems
from noonbell.bootstrap import Service
from noonbell.errors import RuleInvalidError, RuleNotFoundError
from noonbell.notify import Rule

router = api_router("rules")

RuleInPath = Annotated[str, Path(alias="rule_id", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


async def _find(service: Service, caller: Caller, rule_id: str) -> Rule:
    """Return a rule; one of another team counts as not found."""
    found = await service.rules.get(rule_id)
    if found.team != caller.team:
        raise RuleNotFoundError(rule_id)
    return found


@router.get("/rules", summary="List rules")
async def list_rules(service: Serving, caller: Reading, asked: Annotated[ById, Query()]) -> PageOf[RuleResponse]:
    return as_page(RuleResponse, await service.rules.list(team=caller.team, cursor=asked.cursor, limit=asked.limit))


@router.post("/rules", status_code=201, summary="Create a rule", response_model=RuleResponse, responses=problems(409))
async def create_rule(
    request: Request, service: Serving, caller: Writing, given: RuleRequest, key: IdempotencyKey = None
) -> Response:
    """A rule is for one schedule, one monitor, everything with a tag, or, without these, everything of the team."""
    rules = schedules_of(service, caller).rules
    fields = given.given()

    async def create(attempt: Attempt) -> Answer:
        chosen = {"rule_id": attempt.new_id[:12] + attempt.new_id[-8:], **fields}
        try:
            made = await rules.create(**chosen, team=caller.team)
        except RuleInvalidError as error:
            if not attempt.repeated or error.field != "rule_id":
                raise
            made = await _find(service, caller, str(chosen["rule_id"]))
            if not attempt.may_have_made(made.created_at):
                raise
        service.events.nudge()
        return answered(201, RuleResponse.model_validate(made), ETag=tag(made.version))

    return await once(request, service, caller, key, create)


@router.get("/rules/{rule_id}", summary="One rule", responses=problems(404) | NOT_MODIFIED)
async def get_rule(
    response: Response, service: Serving, caller: Reading, rule_id: RuleInPath, if_none_match: IfNoneMatch = None
) -> RuleResponse:
    found = await _find(service, caller, rule_id)
    if holds(if_none_match, tag(found.version)):
        return unchanged(tag(found.version))  # type: ignore[no-any-return]  # a response in place of the model
    response.headers["ETag"] = tag(found.version)
    return RuleResponse.model_validate(found)


@router.patch("/rules/{rule_id}", summary="Change a rule", responses=problems(404, 409, 412))
async def update_rule(
    *, response: Response, service: Serving, caller: Writing, rule_id: RuleInPath, given: RuleChanges,
    if_match: IfMatch = None,
) -> RuleResponse:  # fmt: skip
    found = await _find(service, caller, rule_id)
    require(if_match, tag(found.version))
    with changing(if_match):
        changed = await schedules_of(service, caller).rules.update(
            rule_id, version=None if if_match is None else found.version, **given.given()
        )
    service.events.nudge()
    response.headers["ETag"] = tag(changed.version)
    return RuleResponse.model_validate(changed)


@router.delete("/rules/{rule_id}", status_code=204, summary="Delete a rule", responses=problems(404, 412))
async def delete_rule(service: Serving, caller: Writing, rule_id: RuleInPath, if_match: IfMatch = None) -> None:
    found = await _find(service, caller, rule_id)
    require(if_match, tag(found.version))
    with changing(if_match):
        version = None if if_match is None else found.version
        await schedules_of(service, caller).rules.delete(rule_id, version=version)
    service.events.nudge()

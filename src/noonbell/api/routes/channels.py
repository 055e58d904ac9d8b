"""Channels: where notices can go. What is secret in a config is sealed, and shows as ***."""

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
from noonbell.api.models.resources import (
    ChannelChanges,
    ChannelRequest,
    ChannelResponse,
    SigningKeyResponse,
    SigningKeysResponse,
    Tested,
)
from noonbell.api.paging import ById, as_page
from noonbell.api.problems import problems
from noonbell.bootstrap import Service
from noonbell.errors import ChannelInvalidError, ChannelNotFoundError, DeliveryError
from noonbell.notify import Channel

router = api_router("channels")

ChannelInPath = Annotated[str, Path(alias="channel_id", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


async def _find(service: Service, caller: Caller, channel_id: str) -> Channel:
    """Return a channel; one of another team counts as not found."""
    found = await service.channels.get(channel_id)
    if found.team != caller.team:
        raise ChannelNotFoundError(channel_id)
    return found


@router.get("/channels", summary="List channels")
async def list_channels(service: Serving, caller: Reading, asked: Annotated[ById, Query()]) -> PageOf[ChannelResponse]:
    page = await service.channels.list(team=caller.team, cursor=asked.cursor, limit=asked.limit)
    return as_page(ChannelResponse, page)


@router.post(
    "/channels", status_code=201, summary="Create a channel", response_model=ChannelResponse, responses=problems(409)
)
async def create_channel(
    request: Request, service: Serving, caller: Writing, given: ChannelRequest, key: IdempotencyKey = None
) -> Response:
    channels = schedules_of(service, caller).channels
    fields = given.given()

    async def create(attempt: Attempt) -> Answer:
        chosen = {"channel_id": attempt.new_id[:12] + attempt.new_id[-8:], **fields}
        try:
            made = await channels.create(**chosen, team=caller.team)
        except ChannelInvalidError as error:
            if not attempt.repeated or error.field != "channel_id":
                raise
            made = await _find(service, caller, str(chosen["channel_id"]))
            if not attempt.may_have_made(made.created_at):
                raise
        service.events.nudge()
        return answered(201, ChannelResponse.model_validate(made), ETag=tag(made.version))

    return await once(request, service, caller, key, create)


@router.get("/channels/{channel_id}", summary="One channel", responses=problems(404) | NOT_MODIFIED)
async def get_channel(
    response: Response, service: Serving, caller: Reading, channel_id: ChannelInPath, if_none_match: IfNoneMatch = None
) -> ChannelResponse:
    found = await _find(service, caller, channel_id)
    if holds(if_none_match, tag(found.version)):
        return unchanged(tag(found.version))  # type: ignore[no-any-return]  # a response in place of the model
    response.headers["ETag"] = tag(found.version)
    return ChannelResponse.model_validate(found)


@router.patch("/channels/{channel_id}", summary="Change a channel", responses=problems(404, 409, 412))
async def update_channel(
    *, response: Response, service: Serving, caller: Writing, channel_id: ChannelInPath, given: ChannelChanges,
    if_match: IfMatch = None,
) -> ChannelResponse:  # fmt: skip
    """A `config` replaces the whole one, with its secrets."""
    found = await _find(service, caller, channel_id)
    require(if_match, tag(found.version))
    with changing(if_match):
        changed = await schedules_of(service, caller).channels.update(
            channel_id, version=None if if_match is None else found.version, **given.given()
        )
    service.events.nudge()
    response.headers["ETag"] = tag(changed.version)
    return ChannelResponse.model_validate(changed)


@router.delete("/channels/{channel_id}", status_code=204, summary="Delete a channel", responses=problems(404, 409, 412))
async def delete_channel(
    service: Serving, caller: Writing, channel_id: ChannelInPath, if_match: IfMatch = None
) -> None:
    """Refused while a rule names it."""
    found = await _find(service, caller, channel_id)
    require(if_match, tag(found.version))
    with changing(if_match):
        version = None if if_match is None else found.version
        await schedules_of(service, caller).channels.delete(channel_id, version=version)
    service.events.nudge()


@router.post("/channels/{channel_id}/test", summary="Send a test notice", responses=problems(404, 409))
async def send_test_notice(service: Serving, caller: Writing, channel_id: ChannelInPath) -> Tested:
    """Sends a notice past all limits. The response contains the receiver's answer, or why delivery failed."""
    await _find(service, caller, channel_id)
    try:
        return Tested(delivered=True, answer=await schedules_of(service, caller).channels.test(channel_id))
    except DeliveryError as error:
        return Tested(delivered=False, answer=str(error))


@router.get("/channels/{channel_id}/signing-keys", summary="The keys that sign", responses=problems(404, 409))
async def channel_signing_keys(service: Serving, caller: Writing, channel_id: ChannelInPath) -> SigningKeysResponse:
    """The keys with which the receiver of a webhook verifies requests, newest first."""
    await _find(service, caller, channel_id)
    found = await schedules_of(service, caller).channels.signing_keys(channel_id)
    return SigningKeysResponse(items=[SigningKeyResponse(key=key) for key in found])

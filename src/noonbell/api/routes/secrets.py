"""Secrets, which are never returned, and the keys that sign the requests of a schedule, which are.

A signing key grants no access to this service; the receiver of signed requests needs it to verify them. Reading it
requires the scope `write` all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

from fastapi import Path, Query

from noonbell.actions.secrets.secret_records import SecretFacts
from noonbell.actions.signatures import SigningKey
from noonbell.api.bodies import api_router
from noonbell.api.callers import Administering, Reading, Writing
from noonbell.api.deps import Serving, schedules_of
from noonbell.api.models.base import PageOf
from noonbell.api.models.resources import (
    OverlapRequest,
    RotationResponse,
    SecretRequest,
    SecretResponse,
    SigningKeyResponse,
    SigningKeysResponse,
)
from noonbell.api.paging import ById, ScheduleInPath, page_of
from noonbell.api.problems import ProblemError, problems
from noonbell.core.instants import moment

router = api_router("secrets")

NameInPath = Annotated[str, Path(alias="name", pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]


@router.get("/secrets", summary="List secrets")
async def list_secrets(service: Serving, caller: Reading, asked: Annotated[ById, Query()]) -> PageOf[SecretResponse]:
    """Names, versions and times; no value. By name."""
    every = await schedules_of(service, caller).secrets.list(caller.team)
    found, next_cursor = page_of(every, lambda facts: facts.name, asked)
    return PageOf(items=[_secret_response(facts) for facts in found], next_cursor=next_cursor)


@router.put("/secrets/{name}", summary="Store a secret", responses=problems(409))
async def put_secret(service: Serving, caller: Writing, name: NameInPath, given: SecretRequest) -> SecretResponse:
    """Create a secret, or give an existing one a new value."""
    stored = await schedules_of(service, caller).secrets.put(caller.team, name, given.value)
    service.events.nudge()
    return _secret_response(stored)


@router.delete("/secrets/{name}", status_code=204, summary="Remove a secret", responses=problems(404))
async def delete_secret(service: Serving, caller: Writing, name: NameInPath) -> None:
    if not await schedules_of(service, caller).secrets.delete(caller.team, name):
        raise ProblemError(404, f'Secret not found: "{name}"', kind="secret-not-found")
    service.events.nudge()


@router.post("/master-key/rotation", summary="Rewrap all secrets under the newest master key", responses=problems(409))
async def rotate_secrets(service: Serving, caller: Administering) -> RotationResponse:
    """For the operator, after a master key was added. It rewraps the secrets of all teams and returns none."""
    if not caller.manages_teams:
        raise ProblemError(
            403, "The master key belongs to all teams; this requires an admin of the first team", kind="operator"
        )
    done = await schedules_of(service, caller).secrets.rotate()
    return RotationResponse(rewrapped=done.rewrapped, unreadable=len(done.unreadable))


# --- signing keys -----------------------------------------------------------------------------------------------------


@router.get("/schedules/{schedule_id}/signing-keys", summary="The keys that sign", responses=problems(404, 409))
async def signing_keys(service: Serving, caller: Writing, schedule_id: ScheduleInPath) -> SigningKeysResponse:
    """The keys, newest first. The first request creates the first key."""
    schedules = schedules_of(service, caller)
    await schedules.get(schedule_id)
    return _keys(await schedules.secrets.signing_keys(schedule_id, caller.team))


@router.post("/schedules/{schedule_id}/signing-keys", summary="Replace the key", responses=problems(404, 409))
async def rotate_signing_keys(
    service: Serving, caller: Writing, schedule_id: ScheduleInPath, given: OverlapRequest | None = None
) -> SigningKeysResponse:
    """The old key keeps signing beside the new one for a while: a day, if the request has no body."""
    schedules = schedules_of(service, caller)
    await schedules.get(schedule_id)
    overlap = timedelta(seconds=(given or OverlapRequest()).overlap_seconds)
    return _keys(await schedules.secrets.rotate_signing_keys(schedule_id, caller.team, overlap=overlap))


@router.delete(
    "/schedules/{schedule_id}/signing-keys", status_code=204, summary="Forget the keys", responses=problems(404, 409)
)
async def drop_signing_keys(service: Serving, caller: Writing, schedule_id: ScheduleInPath) -> None:
    schedules = schedules_of(service, caller)
    await schedules.get(schedule_id)
    if not await schedules.secrets.drop_signing_keys(schedule_id, caller.team):
        raise ProblemError(404, "The schedule has no signing keys", kind="signing-keys-not-found")


def _secret_response(facts: SecretFacts) -> SecretResponse:
    return SecretResponse(
        name=facts.name, version=facts.version, key_version=facts.key_version, created_at=moment(facts.created_at),
        updated_at=moment(facts.updated_at),
    )  # fmt: skip


def _keys(keys: Sequence[SigningKey]) -> SigningKeysResponse:
    return SigningKeysResponse(
        items=[
            SigningKeyResponse(
                key=key.key,
                created_at=moment(key.created_at),
                until=None if key.expires_at is None else moment(key.expires_at),
            )
            for key in keys
        ]
    )

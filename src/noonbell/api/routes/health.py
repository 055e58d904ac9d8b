"""Liveness and readiness of the service, for process supervisors and load balancers. No key is required."""

from __future__ import annotations

import asyncio
from typing import Final, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from noonbell.api.deps import Serving
from noonbell.errors import NoonbellError

router = APIRouter(tags=["health"])

_PATIENCE_SECONDS: Final = 5.0


class Health(BaseModel):
    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """The readiness of the service, and the state of each part."""

    ready: bool
    store: Literal["ok", "failing"] = Field(description="Whether the database answers")
    engine: Literal["running", "stalled", "stopped"] = Field(
        description="Whether an engine polls: the one in this process, or, without one, any engine of the lane. "
        "`stalled`: no poll completed within 60 seconds. `stopped`: there should be one here, and none runs"
    )
    last_poll_seconds: float | None = Field(default=None, description="How long ago a poll completed")
    stopping: bool = False


@router.get("/healthz", summary="Liveness: the process responds")
async def healthz() -> Health:
    return Health()


@router.get("/readyz", summary="Readiness: the service can work", responses={503: {"model": Readiness}})
async def readyz(service: Serving, response: Response) -> Readiness:
    """503 while the service starts or stops, its database does not answer, or no engine polls."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await service.access.list_teams(limit=1)
        answers = True
    except (NoonbellError, TimeoutError):
        answers = False
    ready = answers and service.ready
    if not ready:
        response.status_code = 503
    age = service.poll_age
    return Readiness(
        ready=ready,
        store="ok" if answers else "failing",
        engine=service.engine_health,
        last_poll_seconds=None if age is None else round(age, 3),
        stopping=service.stopping.is_set(),
    )

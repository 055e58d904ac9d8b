"""`GET /metrics`: the metrics of the service, for Prometheus. It requires a key of the team `default`.

The metrics are about the process and its database, not about a team: no label is the name of a schedule.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from noonbell.access.access_records import DEFAULT_TEAM
from noonbell.api.callers import Reading
from noonbell.api.measures import CONTENT_TYPE, Measures
from noonbell.api.problems import ProblemError

router = APIRouter(tags=["health"])


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The numbers"}},
)
async def metrics(request: Request, caller: Reading) -> Response:
    if caller.team != DEFAULT_TEAM:
        raise ProblemError(403, "The metrics of the whole service are for the team default", kind="foreign-team")
    measures: Measures = request.app.state.measures
    return Response(await measures.text(), media_type=CONTENT_TYPE)

"""Waiting for the end of a run, and following live events."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from noonbell.cli.progress import working

if TYPE_CHECKING:
    from noonbell.cli.backend.backend_protocol import Backend
    from noonbell.cli.connection_target import ConnectionTarget
    from noonbell.schedules.history import Run

UNDER_WAY: Final = ("queued", "running", "waiting")
_LOOK_SECONDS: Final = 0.5


def until_ended(place: ConnectionTarget, run_id: str) -> Run:
    """Return the run when it has ended, with a progress bar until then. Ctrl-C ends the waiting, not the run."""

    async def wait(backend: Backend) -> Run:
        while True:
            run = await backend.schedules.run(run_id)
            if run.state not in UNDER_WAY:
                return run
            await asyncio.sleep(_LOOK_SECONDS)

    with working(f"Waiting for {run_id}", as_json=place.as_json):
        return place.ask(wait, read_only=True, live=True)


async def events_of(backend: Backend, team: str | None) -> Any:
    """Yield the live events of a team, and close the stream when the reader stops."""
    async with aclosing(backend.follow(backend.team_seen(team))) as events:  # type: ignore[type-var]  # generators, which can be closed
        async for event in events:
            yield event

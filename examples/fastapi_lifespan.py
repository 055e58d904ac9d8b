"""A web application that runs its own scheduled tasks.

The scheduler lives as long as the application: it starts before the first request and stops after the last one, waiting
for what still runs. Try it:

    uvicorn examples.fastapi_lifespan:app

and look at http://127.0.0.1:8000/beats. Stop it for a few minutes and start it again: `beat` runs once for all that
was missed, and `noonbell why --db sqlite:///beats.db beat` says so.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from fastapi import FastAPI

from noonbell import Scheduler

beats: deque[str] = deque(maxlen=100)


async def beat() -> None:
    beats.append(datetime.now(UTC).isoformat(timespec="seconds"))


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    async with Scheduler(os.environ.get("BEATS_STORE", "sqlite:///beats.db")) as scheduler:
        await scheduler.initialize([("beat", "* * * * *", beat, timedelta(seconds=30))])
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/beats")
async def list_beats() -> list[str]:
    return list(beats)

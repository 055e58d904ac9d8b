"""Real processes: `serve --no-engine` reports that the `worker` beside it is killed, stopped, or without a database.

Their clock runs faster, so that the grace of a minute passes in seconds; how soon the report comes is measured in real
time by the exhaustive tests alone. `test_engine_watch.py` proves the 90 seconds on manual time.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from noonbell import Schedules
from tests.faults.cluster.clock import new_setting
from tests.faults.cluster.proxy import Proxy
from tests.notify.servers import Hook, hook_server
from tests.patience import PATIENCE_SECONDS, until
from tests.service.conftest import StreamInFlight, announced, command, environment
from tests.service.fast_clock import VARIABLE
from tests.store.postgres_server import PostgresServer

ROOT = Path(__file__).resolve().parent.parent.parent
FAST = 10
WITHIN_SECONDS = 90.0
REAL_TIME = pytest.param(1, marks=pytest.mark.exhaustive)


class Pair:
    """A worker, and a service without an engine, on one database."""

    def __init__(self, worker: subprocess.Popen[str], service: StreamInFlight, hook: Hook) -> None:
        self.worker = worker
        self.service = service
        self.hook = hook

    async def ready(self) -> dict[str, Any]:
        async with httpx2.AsyncClient(base_url=self.service.address, timeout=PATIENCE_SECONDS) as client:
            answer = await client.get("/readyz")
        found: dict[str, Any] = answer.json()
        assert answer.status_code == (200 if found["ready"] else 503)
        return found

    async def reported(self, trouble: Callable[[], None], speed: int) -> dict[str, Any]:
        """The notice that some trouble brings."""

        async def polls() -> bool:
            found = await self.ready()
            return bool(found["engine"] == "running" and found["last_poll_seconds"] < 30)

        await until(polls)
        assert self.hook.came == []
        began = time.monotonic()
        trouble()
        await self.hook.wait_for(1)
        if speed == 1:
            assert time.monotonic() - began <= WITHIN_SECONDS
        told: dict[str, Any] = self.hook.came[0].json["data"]
        assert (told["event"], told["name"]) == ("no_engine", "default")
        return told


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    async with AsyncExitStack() as stack:
        hook = await stack.enter_async_context(hook_server())

        async def make(store: str, speed: int) -> Pair:
            async with Schedules(store) as schedules:
                config = {"url": f"{hook.url}/hook", "sign": False}
                await schedules.channels.create(name="ops", kind="webhook", config=config, channel_id="ops")
                await schedules.rules.create(name="engines", on=["no_engine"], channels=["ops"])
            setting = msgspec.json.encode(new_setting(tmp_path / "clock", speed=speed)).decode()
            environ = environment(tmp_path, **{VARIABLE: setting}) | {"PYTHONPATH": str(ROOT)}

            def begin(*arguments: str) -> tuple[subprocess.Popen[str], str]:
                started = command(*arguments, "--store", store, "--json", module="tests.service.fast_clock")
                return stack.enter_context(announced(started, tmp_path, environ))

            # in threads: what they are connected through is served by this event loop
            worker, _ = await asyncio.to_thread(begin, "worker")
            process, line = await asyncio.to_thread(begin, "serve", "--no-engine", "--port", "0", "--allow", hook.place)
            return Pair(worker, StreamInFlight(process, json.loads(line)), hook)

        yield make


@pytest.mark.parametrize("speed", [FAST, REAL_TIME])
async def test_a_worker_that_is_killed(start: Callable[..., Any], tmp_path: Path, speed: int) -> None:
    pair: Pair = await start(f"sqlite:///{tmp_path / 'nb.db'}", speed)
    told = await pair.reported(pair.worker.kill, speed)
    assert "Start an engine: noonbell serve, or noonbell worker." in told["text"]
    assert (await pair.ready())["engine"] == "stalled"


@pytest.mark.exhaustive
@pytest.mark.parametrize("speed", [FAST, 1])
async def test_a_worker_that_is_stopped_and_goes_on(start: Callable[..., Any], tmp_path: Path, speed: int) -> None:
    pair: Pair = await start(f"sqlite:///{tmp_path / 'nb.db'}", speed)
    await pair.reported(lambda: os.kill(pair.worker.pid, signal.SIGSTOP), speed)
    os.kill(pair.worker.pid, signal.SIGCONT)
    await pair.hook.wait_for(2)
    assert pair.hook.came[1].json["data"]["event"] == "recovered"
    assert (await pair.ready())["ready"] is True


@pytest.mark.exhaustive
@pytest.mark.parametrize("speed", [FAST, 1])
async def test_a_database_that_is_away(start: Callable[..., Any], postgres: PostgresServer, speed: int) -> None:
    database = (await postgres.new_database()).rpartition("/")[2]
    async with Proxy(postgres.port) as proxy:
        pair: Pair = await start(postgres.dsn(database, proxy.port), speed)

        def cut() -> None:
            proxy.close()
            proxy.cut()

        told = await pair.reported(cut, speed)
        assert "The database does not answer: " in told["text"]
        found = await pair.ready()
        assert (found["ready"], found["store"], found["engine"]) == (False, "failing", "stalled")
        pair.worker.kill()
        pair.service.process.kill()

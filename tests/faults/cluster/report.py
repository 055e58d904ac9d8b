"""How a run is begun and told: its servers and folders, many clusters at once, and the one line of JSON at the end."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from statistics import quantiles
from typing import Any, Final
from unittest import mock

from tests.faults.cluster.cluster import Cluster, Outcome, Setting
from tests.faults.cluster.nursery import Nursery
from tests.redis_server import RedisServer
from tests.store import postgres_server
from tests.store.postgres_server import PostgresServer

BACKENDS: Final = ("postgres", "redis", "sqlite")  # "redis" is PostgreSQL with the timeline in front of it
_MOST_TOLD: Final = 10

Drive = Callable[[Cluster], Awaitable[None]]


class BusyServer(PostgresServer):
    """Has room for the connections of many clusters."""

    def start(self) -> None:
        with mock.patch.dict(postgres_server.SETTINGS, max_connections="300"):
            super().start()


class Grounds:
    """The servers of a run, and a place for its clusters. Servers start when they are first asked for."""

    def __init__(self, nursery: Nursery, folder: Path, stack: AsyncExitStack) -> None:
        self.nursery = nursery
        self._folder = folder
        self._stack = stack
        self._server: PostgresServer | None = None
        self._redis: RedisServer | None = None
        self._count = 0

    @property
    def server(self) -> PostgresServer:
        if self._server is None:
            self._server = BusyServer()
            self._stack.callback(self._server.stop)
        return self._server

    @property
    def redis(self) -> RedisServer:
        if self._redis is None:
            self._redis = RedisServer()
            self._stack.callback(self._redis.stop)
        return self._redis

    async def cluster(self, backend: str, *, seed: int = 1, **more: Any) -> Cluster:
        """A database that nobody has used, without workers yet."""
        self._count += 1
        folder = self._folder / f"{backend}-{self._count}"
        address = str(folder / "schedules.db") if backend == "sqlite" else await self.server.new_database()
        timeline = self.redis.url if backend == "redis" else None
        setting = Setting(address, folder, timeline=timeline, seed=seed * 1000 + self._count)
        cluster = Cluster(self.nursery, replace(setting, **more))
        async with cluster.store():  # the tables are made now: the clock of the cluster goes on meanwhile
            return cluster


@asynccontextmanager
async def grounds(folder: Path | None = None) -> AsyncIterator[Grounds]:
    """For the time of a run. Where a folder is given, logs and evidence stay in it."""
    async with AsyncExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="noonbell-cluster-")))
        nursery = await stack.enter_async_context(Nursery())
        yield Grounds(nursery, place, stack)


async def judged(cluster: Cluster, drive: Drive) -> Outcome:
    """One cluster, driven and judged."""
    await drive(cluster)
    await cluster.rest()
    return await cluster.judged()


async def each(made: Iterable[Callable[[], Awaitable[Outcome]]], at_once: int) -> list[Outcome]:
    """Many clusters, so many at a time; each is told of when it is over."""
    free = asyncio.Semaphore(at_once)

    async def one(number: int, run: Callable[[], Awaitable[Outcome]]) -> Outcome:
        async with free:
            outcome = await run()
        tell(number, outcome)
        return outcome

    return list(await asyncio.gather(*(one(number, run) for number, run in enumerate(made, start=1))))


def tell(number: int, outcome: Outcome) -> None:
    found = outcome.findings
    told = f"cluster {number}: {outcome.seconds:.0f} s, {outcome.trials} trials, {found.starts} starts, "
    told += f"{found.interrupted} interrupted, {found.repeated} repeated, {found.stalls} stalls, "
    told += f"{len(found.wrong)} violations"
    print(told, file=sys.stderr, flush=True)
    for text in found.wrong[:_MOST_TOLD]:
        print(f"  {text}", file=sys.stderr, flush=True)


def at_quantiles(seconds: list[float]) -> tuple[float | None, float | None]:
    """The median and the 99th of a hundred; None where nothing was measured."""
    if not seconds:
        return None, None
    cuts = quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else [seconds[0]] * 99
    return round(cuts[49], 3), round(cuts[98], 3)


def summary(run: str, outcomes: list[Outcome], wanted_trials: int, began: float, **facts: Any) -> dict[str, Any]:
    """The line that a run ends with. It is not ok where something is wrong, or where too little was tried."""

    def total(kind: str) -> int:
        return sum(len(getattr(outcome.findings, kind)) for outcome in outcomes)

    def count(kind: str) -> int:
        return sum(getattr(outcome.findings, kind) for outcome in outcomes)

    middle, late = at_quantiles([seconds for outcome in outcomes for seconds in outcome.findings.recovery])
    restart = at_quantiles([seconds for outcome in outcomes for seconds in outcome.findings.restarts])
    trials = sum(outcome.trials for outcome in outcomes)
    line = {
        "run": run,
        "trials": trials,
        "lost": total("lost"),
        "unexplained_repeats": total("repeats"),
        "stale_writes": total("stale"),
        "overlaps": total("overlaps"),
        "other": total("other"),
        "recovery_p50_s": middle,
        "recovery_p99_s": late,
        "restart_p50_s": restart[0],
        "restart_p99_s": restart[1],
        "starts": count("starts"),
        "interrupted": count("interrupted"),
        "repeated": count("repeated"),
        "given_up": count("given_up"),
        "stalls": count("stalls"),
        **facts,
        "seconds": round(time.monotonic() - began, 1),
    }
    wrong = any(outcome.findings.wrong for outcome in outcomes)
    return line | {"ok": trials >= wanted_trials and not wrong}


def shared_out(backends: list[str], trials: int, most_each: int) -> list[tuple[str, int]]:
    """The trials of a run, as clusters: which backend, and how many of them."""
    shares = [trials // len(backends)] * len(backends)
    shares[0] += trials - sum(shares)
    return [
        (backend, min(most_each, share - first))
        for backend, share in zip(backends, shares, strict=True)
        for first in range(0, share, most_each)
    ]


def options(doc: str | None, *, at_once: int = 4) -> argparse.ArgumentParser:
    """What every run understands."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=8)
    parser.add_argument("--at-once", type=int, default=at_once, help="how many clusters run at the same time")
    parser.add_argument("--keep", type=Path, help="a folder in which logs and evidence stay")
    return parser


def end(line: dict[str, Any]) -> int:
    """Print the line; the exit status that goes with it."""
    print(json.dumps(line), flush=True)
    return 0 if line["ok"] else 1

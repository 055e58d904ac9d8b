"""Stretches without a poll: the only worker is frozen, dies, or cannot reach its database, and comes back.

    python -m tests.faults.cluster.gaps [--gaps N] [--backends postgres sqlite] [--speed N] [--at-once N] [--seed S]

Three schedules of every minute have the three catch-up policies. The worker is stopped by SIGSTOP, killed and replaced,
or cut off from its database, for two to five minutes of a clock that runs `--speed` times as fast; `catch_up` judges
what became of every minute. A trial is a gap. With `--speed 1` it takes as long as it says.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final, Literal

import apsw

from tests.faults.cluster import evidence
from tests.faults.cluster.catch_up import Unpolled
from tests.faults.cluster.clock import MINUTE, SECOND, real_us
from tests.faults.cluster.cluster import Cluster, Outcome, happens
from tests.faults.cluster.plan import Plan
from tests.faults.cluster.proxy import Proxy
from tests.faults.cluster.report import Grounds, each, end, grounds, options, shared_out, summary
from tests.patience import PATIENCE_SECONDS

GAPS_EACH: Final = 4
BETWEEN: Final = 2 * MINUTE + 17 * SECOND
CAP: Final = 2
MINUTES: Final = (2, 3, 4, 5)

Trouble = Literal["freeze", "kill", "unreachable"]
TROUBLES: Final[tuple[Trouble, ...]] = ("freeze", "kill", "unreachable")


class Driver:
    """One cluster with one worker, and the way to its database."""

    def __init__(self, cluster: Cluster, proxy: Proxy | None) -> None:
        self._cluster = cluster
        self._proxy = proxy
        self._address = cluster.setting.address
        if proxy is not None:
            before, _, rest = self._address.rpartition(":")
            self._address = f"{before}:{proxy.port}/{rest.partition('/')[2]}"

    async def begin(self, gaps: int, first: int) -> None:
        cluster, plan = self._cluster, Plan()
        last = first + gaps * (max(MINUTES) * MINUTE + BETWEEN) + 2 * MINUTE
        for policy in ("skip", "run_once", "run_all_capped"):
            plan.cron(policy, first, last, catch_up_policy=policy, catch_up_cap=CAP)
        await cluster.create(plan)
        cluster.unpolled = []
        await self._hire()

    async def _hire(self) -> None:
        await self._cluster.up(await self._cluster.hire(address=self._address))

    async def pass_time(self, us: int) -> None:
        await asyncio.sleep(us / SECOND / self._cluster.setting.speed)

    async def gap(self, trouble: Trouble, minutes: int) -> None:
        cluster = self._cluster
        seconds = minutes * 60 / cluster.setting.speed
        polled = self._last_start()
        since = cluster.clock.now()
        if trouble == "freeze":
            await cluster.pause(cluster.workers[0], seconds)
        elif trouble == "kill":
            await cluster.kill(cluster.workers[0])
            since = cluster.clock.now()
            await asyncio.sleep(seconds)
        else:
            since = await self._unreachable(seconds)
        until, number = cluster.clock.now(), len(self._starts())
        if trouble == "kill":
            await self._hire()

        async def begun() -> bool:
            return len(self._starts()) > number

        if not await happens(begun, PATIENCE_SECONDS):
            cluster.wrong.append(f"nothing has started after a {trouble}")
        assert cluster.unpolled is not None
        cluster.unpolled.append(Unpolled(polled, since, until, cluster.clock.now()))
        cluster.trials += 1

    async def _unreachable(self, seconds: float) -> int:
        """Let nothing pass; what was under way then may still have been committed. Returns since when nothing is."""
        cluster, began = self._cluster, real_us()
        if self._proxy is not None:
            self._proxy.close()
            self._proxy.cut()
            since = cluster.clock.now()
            await asyncio.sleep(seconds)
            self._proxy.cut()  # nothing that was sent meanwhile arrives
            self._proxy.open()
        else:
            since = await asyncio.to_thread(self._lock, seconds)
        cluster.evidence.write("pause", None, t0=began)
        return since

    def _lock(self, seconds: float) -> int:
        """Hold the write lock of the file."""
        db = apsw.Connection(self._cluster.setting.address)
        db.set_busy_timeout(60_000)
        db.execute("BEGIN IMMEDIATE")
        since = self._cluster.clock.now()
        time.sleep(seconds)
        db.execute("ROLLBACK")
        db.close()
        return since

    def _starts(self) -> list[int]:
        lines = evidence.read(self._cluster.setting.folder / "evidence")
        return [line["f"] for line in lines if line["m"] == "start"]

    def _last_start(self) -> int:
        """The last occurrence that has started: a poll came after it."""
        return max(self._starts(), default=self._cluster.clock.now())


async def leave_gaps(cluster: Cluster, server_port: int | None, troubles: list[Trouble]) -> None:
    chosen = cluster.chosen
    async with AsyncExitStack() as stack:
        proxy = None if server_port is None else await stack.enter_async_context(Proxy(server_port))
        driver = Driver(cluster, proxy)
        await driver.begin(len(troubles), cluster.ahead(1.0))
        await driver.pass_time(BETWEEN)
        for trouble in troubles:
            await driver.gap(trouble, chosen.choice(MINUTES))
            await driver.pass_time(BETWEEN + chosen.randrange(MINUTE))
        await cluster.rest()
        await asyncio.gather(*(cluster.dismiss(worker) for worker in list(cluster.workers)))


async def run(given: Any) -> list[Outcome]:
    kinds = [TROUBLES[number % len(TROUBLES)] for number in range(given.gaps)]

    async def one(place: Grounds, backend: str, first: int, gaps: int) -> Outcome:
        cluster = await place.cluster(backend, seed=given.seed, speed=given.speed, workers=1)
        port = None if backend == "sqlite" else place.server.port
        await leave_gaps(cluster, port, kinds[first : first + gaps])
        return await cluster.judged()

    async with grounds(given.keep) as place:
        shares, runs = shared_out(given.backends, given.gaps * len(given.backends), GAPS_EACH), []
        done = dict.fromkeys(given.backends, 0)
        for backend, gaps in shares:
            runs.append(partial(one, place, backend, done[backend], gaps))
            done[backend] += gaps
        return await each(runs, given.at_once)


def main() -> int:
    parser = options(__doc__, at_once=8)
    parser.add_argument("--gaps", type=int, default=60, help="so many on each backend")
    parser.add_argument("--backends", nargs="+", choices=("postgres", "sqlite"), default=["postgres", "sqlite"])
    parser.add_argument("--speed", type=int, default=20)
    given = parser.parse_args()
    began = time.monotonic()
    outcomes = asyncio.run(run(given))
    wanted = given.gaps * len(given.backends)
    return end(summary("gaps", outcomes, wanted, began, backends=given.backends, speed=given.speed))


if __name__ == "__main__":
    sys.exit(main())

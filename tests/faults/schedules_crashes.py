"""Durable schedules on SQLite and PostgreSQL: `kill -9` at named points and at random, and databases in trouble.

    python -m tests.faults.schedules_crashes [--trials N] [--random N] [--seed S] [--databases sqlite postgres]

For each database: N deaths at each named point, each point with a database of its own; deaths at random moments, spread
over a few. On PostgreSQL also N rounds of cut connections, lost answers, killed backends and restarts of the server.
After each campaign the journal of the actions is held against the ledger (see tests/crash/schedules_judge.py), and the
ledger has to verify. A full disk is a matter of `make test`: it is the same each time.

Progress goes to standard error. The last line on standard output is one JSON object; the exit status is 1 when anything
is unexplained, or when fewer lives were killed than were to be.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import fields
from pathlib import Path

from tests.crash.schedules_campaign import Campaign, Outcome, happens
from tests.crash.schedules_trouble import CuttingProxy, answers, kill_a_backend
from tests.crash.schedules_victim import LEASE_SECONDS, POINTS
from tests.store.postgres_server import PostgresServer

RANDOM_CAMPAIGN = 15
TROUBLE_CAMPAIGN = 5


class Runs:
    """Campaigns on one kind of database."""

    def __init__(self, server: PostgresServer | None, seed: int) -> None:
        self._server = server
        self._seed = seed
        self.outcomes: list[Outcome] = []

    @property
    def name(self) -> str:
        return "sqlite" if self._server is None else "postgres"

    async def at_point(self, point: str, trials: int) -> None:
        async def deaths(campaign: Campaign) -> None:
            await campaign.live_for(1)
            for _ in range(trials):
                await campaign.die_at(point)

        await self._campaign(point, deaths)

    async def at_random(self, trials: int) -> None:
        for first in range(0, trials, RANDOM_CAMPAIGN):
            times = min(RANDOM_CAMPAIGN, trials - first)

            async def deaths(campaign: Campaign, times: int = times) -> None:
                for _ in range(times):
                    await campaign.die_at_random()

            await self._campaign("random", deaths)

    async def in_trouble(self, rounds: int) -> None:
        for first in range(0, rounds, TROUBLE_CAMPAIGN):
            times = min(TROUBLE_CAMPAIGN, rounds - first)

            async def trouble(campaign: Campaign, times: int = times) -> None:
                assert self._server is not None
                await self._trouble(campaign, self._server, times)

            await self._campaign("trouble", trouble)

    async def _trouble(self, campaign: Campaign, server: PostgresServer, rounds: int) -> None:
        chosen = random.Random(self._seed)
        async with CuttingProxy(server.port, self._seed) as proxy:
            through = server.dsn(campaign.address.rpartition("/")[2], proxy.port)
            async with campaign.life(address=through) as victim:
                await campaign.hear(victim, "up")
                for _ in range(rounds):
                    proxy.lost_share = chosen.uniform(0.05, 0.4)
                    for _ in range(10):
                        await asyncio.sleep(chosen.uniform(0.02, 0.4))
                        proxy.cut()
                    proxy.lost_share = 0.0
                    await kill_a_backend(campaign.address)
                    await asyncio.sleep(chosen.uniform(0.1, 1))
                    await server.in_thread("halt")
                    await asyncio.sleep(chosen.uniform(0, 2 * LEASE_SECONDS))
                    await server.in_thread("start")
                    await asyncio.sleep(chosen.uniform(0.1, 1))
                if not await happens(lambda: answers(campaign.address)):
                    campaign.outcome.wrong.append("the server has not come back")
                await campaign.finish(victim)

    async def _campaign(self, name: str, run: Callable[[Campaign], Awaitable[None]]) -> None:
        with tempfile.TemporaryDirectory(prefix="noonbell-crash-") as folder:
            address = str(Path(folder) / "schedules.db")
            if self._server is not None:
                address = await self._server.new_database()
            campaign = Campaign(address, Path(folder), self._seed)
            self._seed += 1
            try:
                await run(campaign)
                outcome = campaign.outcome if campaign.is_judged else await campaign.judged()
            except TimeoutError:
                outcome = campaign.outcome
                outcome.wrong.append("something did not come in time")
        self.outcomes.append(outcome)
        told = f"{self.name} {name}: {outcome.kills} killed, {outcome.runs} runs, {outcome.interrupted} interrupted, "
        told += f"{outcome.repeated} repeated, {outcome.messages} messages, {len(outcome.wrong)} violations"
        print(told, file=sys.stderr, flush=True)
        for text in outcome.wrong[:10]:
            print(f"  {text}", file=sys.stderr, flush=True)


async def run(databases: list[str], trials: int, at_random: int, seed: int) -> dict[str, Outcome]:
    """Databases side by side: most of a campaign is waiting."""
    outcomes = await asyncio.gather(*(_run_on(database, trials, at_random, seed) for database in databases))
    return dict(zip(databases, outcomes, strict=True))


async def _run_on(database: str, trials: int, at_random: int, seed: int) -> Outcome:
    server = PostgresServer() if database == "postgres" else None
    try:
        runs = Runs(server, seed)
        for point in POINTS:
            await runs.at_point(point, trials)
        await runs.at_random(at_random)
        if server is not None:
            await runs.in_trouble(trials)
    finally:
        if server is not None:
            server.stop()
    return total(runs.outcomes)


def total(outcomes: list[Outcome]) -> Outcome:
    counts = {
        part.name: sum(getattr(outcome, part.name) for outcome in outcomes)
        for part in fields(Outcome)
        if part.name != "wrong"
    }
    return Outcome(**counts, wrong=[text for outcome in outcomes for text in outcome.wrong])


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--trials", type=int, default=10, help="deaths at each named point, and rounds of trouble")
    options.add_argument("--random", type=int, default=45, help="deaths at random moments")
    options.add_argument("--seed", type=int, default=4)
    options.add_argument("--databases", nargs="+", choices=["sqlite", "postgres"], default=["sqlite", "postgres"])
    given = options.parse_args()
    began = time.monotonic()
    found = asyncio.run(run(given.databases, given.trials, given.random, given.seed))
    wrong = sum(len(outcome.wrong) for outcome in found.values())
    counts = {
        name: {part.name: getattr(outcome, part.name) for part in fields(Outcome) if part.name != "wrong"}
        for name, outcome in found.items()
    }
    print(json.dumps({**counts, "violations": wrong, "seconds": round(time.monotonic() - began, 1)}))
    wanted = given.trials * len(POINTS) + given.random
    complete = all(outcome.kills == wanted for outcome in found.values())
    return 0 if complete and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())

"""Put a database of durable schedules through deaths and failures; then judge.

A campaign is one database, one journal and many lives, each a process of its own (see `schedules_victim`). The last one
is left alone: every schedule is paused, and when nothing executes or waits any more it is stopped properly. Every wait
has a limit: what does not happen in time is a finding, not a hang.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from noonbell.engine import SystemClock
from noonbell.ledger import verify_store
from noonbell.ledger.schedule_audit import CLOCK_SKEW
from noonbell.ports import Ledger
from noonbell.store.postgres import PostgresStore
from noonbell.store.sqlite import SqliteStore
from tests.crash.schedules_judge import DAY, MINUTE, PATIENCE, judge, judge_letters, read, read_ledger
from tests.crash.schedules_victim import SPEED
from tests.patience import PATIENCE_SECONDS

ROOT: Final = Path(__file__).resolve().parent.parent.parent
LIFE_SECONDS: Final = PATIENCE_SECONDS
RANDOM_SECONDS: Final = 1.5
# How often a life comes to a point before it dies there, at most; some are passed many times a second.
_PASSES: Final = {"in-callback": 30, "in-delivery": 12, "before-prune-commit": 1, "after-prune-commit": 1}


@dataclass
class Outcome:
    """What came of a campaign."""

    kills: int = 0
    lives: int = 0
    starts: int = 0
    interrupted: int = 0
    repeated: int = 0
    messages: int = 0
    brought_again: int = 0
    edits: int = 0
    runs: int = 0
    spans: int = 0
    pruned_days: int = 0
    crashes_recorded: int = 0
    wrong: list[str] = field(default_factory=list)


def kill(victim: asyncio.subprocess.Process) -> None:
    """Send SIGKILL. `Process.kill` looks first whether the process has ended, and then its exit status is lost."""
    with suppress(ProcessLookupError):
        os.kill(victim.pid, signal.SIGKILL)


class Campaign:
    """One database that is put through many deaths."""

    def __init__(self, address: str, folder: Path, seed: int) -> None:
        """`address` is the path of an SQLite file or the address of a PostgreSQL database."""
        self.outcome = Outcome()
        self.is_judged = False
        self.address = address
        self._journal = folder / "journal"
        self._errors = folder / "errors"
        self._chosen = random.Random(seed)
        self._origin = SystemClock().elapsed()
        self._leap = 0
        self._is_pruned = False  # whoever prunes next may find nothing: lives that die of it do little else

    # --- lives --------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def life(
        self, point: str = "none", nth: int = 0, *, address: str | None = None
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """A process that is alive, and gone afterwards whatever happens."""
        self.outcome.lives += 1
        arguments = [self._journal, self.outcome.lives, self._origin, self._leap, point, nth]
        with self._errors.open("a") as errors:
            victim = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.crash.schedules_victim", address or self.address, *map(str, arguments),
                cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        try:
            await self.hear(victim, "alive")
            yield victim
        finally:
            if victim.returncode is None:
                kill(victim)
            await victim.wait()

    async def hear(self, victim: asyncio.subprocess.Process, word: str) -> None:
        assert victim.stdout is not None
        async with asyncio.timeout(LIFE_SECONDS):
            said = (await victim.stdout.readline()).decode().strip()
        assert said == word, f'a life said "{said}" and not "{word}"; {self._last_errors()}'

    async def tell(self, victim: asyncio.subprocess.Process, word: str, answer: str) -> None:
        assert victim.stdin is not None
        victim.stdin.write(f"{word}\n".encode())
        await victim.stdin.drain()
        await self.hear(victim, answer)

    async def die_at(self, point: str) -> None:
        """A life that ends at the point, some way into it."""
        if "prune" in point:
            if self._is_pruned:
                await self.live_to_a_run()
            self._leap += 2 * DAY  # there is a day to prune, and much was missed
            self._is_pruned = True
        async with self.life(point, self._chosen.randint(1, _PASSES.get(point, 4))) as victim:
            try:
                async with asyncio.timeout(LIFE_SECONDS):
                    await victim.wait()
            except TimeoutError:
                self.outcome.wrong.append(f"{point} was not reached in {LIFE_SECONDS:g} s")
                return
        self._count_death(victim.returncode)

    async def die_at_random(self) -> None:
        async with self.life() as victim:
            await asyncio.sleep(self._chosen.uniform(0, RANDOM_SECONDS))
            kill(victim)
        self._count_death(victim.returncode)

    async def live_for(self, seconds: float) -> None:
        """A life without trouble."""
        async with self.life() as victim:
            await self.hear(victim, "up")
            await asyncio.sleep(seconds)
            await self.stop(victim)

    async def live_to_a_run(self) -> None:
        """A life without trouble, until a run has ended in it: the day in which it falls has something to prune."""

        async def one_more() -> bool:
            return await self.runs() > before

        before = await self.runs()
        async with self.life() as victim:
            await self.hear(victim, "up")
            if not await happens(one_more):
                self.outcome.wrong.append(f"nothing has run in {LIFE_SECONDS:g} s")
            await self.stop(victim)

    async def stop(self, victim: asyncio.subprocess.Process) -> None:
        await self.tell(victim, "stop", "stopped")
        async with asyncio.timeout(LIFE_SECONDS):
            status = await victim.wait()
        if status:
            self.outcome.wrong.append(f"a life that was told to stop ended with status {status}")

    def _count_death(self, status: int | None) -> None:
        if status == -signal.SIGKILL:
            self.outcome.kills += 1
        else:
            self.outcome.wrong.append(f"a life ended with status {status} and not by SIGKILL")

    # --- the end ------------------------------------------------------------------------------------------------------

    async def judged(self) -> Outcome:
        """One more life, which brings everything to its end."""
        async with self.life() as victim:
            await self.hear(victim, "up")
            await asyncio.sleep(1)
            await self.finish(victim)
        return self.outcome

    async def finish(self, victim: asyncio.subprocess.Process) -> None:
        """Bring everything to its end in this life, and judge."""
        await self.tell(victim, "finish", "finished")
        async with self.looking() as store:
            await self._await_rest(store)
        await self.stop(victim)
        async with self.looking() as store:
            await self._judge(store)

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[Ledger]:
        store = _store(self.address)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    async def runs(self) -> int:
        """How many runs have ended by now."""
        async with self.looking() as store:
            return len(await store.read("runs", None, 1_000_000))

    def _last_errors(self) -> str:
        return self._errors.read_text()[-2000:] or "it left no word of an error"

    def log(self) -> str:
        """What the lives have logged."""
        return Path(f"{self._journal}.log").read_text()

    async def _await_rest(self, store: Ledger) -> None:
        async def at_rest() -> bool:
            return not await store.read("live", None, 1) and not await _count(store, "outbox")

        if not await happens(at_rest):
            self.outcome.wrong.append("runs or messages do not come to an end")

    async def _judge(self, store: Ledger) -> None:
        self.is_judged = True
        outcome = self.outcome
        story = read([json.loads(line) for line in self._journal.read_text().splitlines()])
        ledger = await read_ledger(store)
        outcome.wrong.extend(judge(story, ledger, patience=PATIENCE if outcome.lives > 1 else 2 * MINUTE))
        if left := await _count(store, "outbox"):
            outcome.wrong.append(f"{left} rows are left in outbox")
        letters = await store.outbox.dead_letters(None, 0, 1_000)
        outcome.wrong.extend(judge_letters(story, letters, deaths=outcome.kills))
        # Verify grants a second to clocks that differ, and so to a look that goes by a reading from before its rows.
        # Here a second of the machine is a minute of the clock; the judge sees overlaps by the journal, to the line.
        report = await verify_store(store, clock_skew=SPEED * CLOCK_SKEW)
        outcome.wrong.extend(problem.text for problem in report.problems)
        outcome.starts = sum(map(len, story.tries.values()))
        outcome.interrupted, outcome.repeated = story.interrupted, story.repeated
        outcome.messages = sum(map(len, story.arrivals.values()))
        outcome.brought_again = story.brought_again
        outcome.edits = len(story.acknowledged)
        outcome.runs, outcome.spans = report.runs, report.spans
        outcome.pruned_days = sum(map(len, ledger.pruned.values()))
        outcome.crashes_recorded = ledger.crashes
        if ledger.crashes > outcome.kills:
            outcome.wrong.append(f"{ledger.crashes} crashes are recorded, and there were {outcome.kills}")


async def happens(found: Callable[[], Awaitable[bool]], seconds: float = LIFE_SECONDS) -> bool:
    """Whether it comes true in time."""
    until = SystemClock().elapsed() + seconds
    while SystemClock().elapsed() < until:
        if await found():
            return True
        await asyncio.sleep(0.05)
    return False


def _store(address: str) -> Ledger:
    if "://" in address:
        return PostgresStore(address, pool_size=1, read_only=True)
    return SqliteStore(address, read_only=True)


async def _count(store: Any, table: str) -> int:
    """Of a table that is not part of the ledger proper."""
    sql = f"SELECT count(*) FROM {table}"  # noqa: S608 - the names are ours
    rows = await (store._read(sql) if isinstance(store, PostgresStore) else store.runs._read(sql, ()))
    return int(rows[0][0])

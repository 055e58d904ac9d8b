"""Workers that are replaced one by one with those of the next version, under load.

    python -m tests.faults.cluster.upgrades [--rolls N] [--backends postgres redis] [--at-once N] [--seed S]

The next version is a copy of the package with one more step for the tables (see `next_version`). The first of them that
starts brings the tables up to date while the others work. What happens on the way is one of `WAYS`:

- `in order`: each is told to stop by SIGTERM; its successor is there before it goes, or comes as it goes;
- `old dies`: the last one of the old version is killed, and what it had in hand is rescued by new ones;
- `new dies`: the first one of the new version is killed, and old ones rescue it, on tables that they do not know;
- `held up`: somebody reads a table in a long transaction as the first new one starts. It has to wait for him, and the
  old ones must not wait behind it.

While both versions are there each has to start runs (`mixed_starts_old`, `mixed_starts_new`). In the end the engines of
the lane are all new, and an old one that is started is turned away. A trial is a worker that was replaced.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal

import asyncpg
import msgspec

import noonbell
from noonbell.core.presence import lane_name
from noonbell.ledger.ledger_rows import lifecycle_of
from noonbell.ports import Ledger
from tests.faults.cluster import next_version
from tests.faults.cluster.clock import MINUTE, SECOND, real_us
from tests.faults.cluster.cluster import Cluster, Outcome, happens
from tests.faults.cluster.nursery import Nursery, WorkerProcess
from tests.faults.cluster.plan import Plan, mixed_load
from tests.faults.cluster.report import Grounds, at_quantiles, each, end, grounds, options, summary
from tests.patience import PATIENCE_SECONDS

BACKENDS: Final = ("postgres", "redis")
SPEED: Final = 6  # so that minutes come within a roll
LEAD_SECONDS: Final = 1.0
ROLL_SECONDS: Final = 12.0
MORE_SECONDS: Final = 1.5
HELD_SECONDS: Final = 2.0
WORKERS: Final = 3
# Numbers of workers from here on are those of the next version.
NEXT_FROM: Final = 1_000_000

Way = Literal["in order", "old dies", "new dies", "held up"]
WAYS: Final[tuple[Way, ...]] = ("in order", "old dies", "new dies", "held up")

_FOUND_BY: Final = re.compile(r"-(\d+)-[0-9a-f]+$")
_REFUSED: Final = "this Noonbell knows up to"


def is_next(worker: int) -> bool:
    return worker >= NEXT_FROM


class Follower:
    """The log of a cluster, read on as it grows."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._unread = b""
        self.starts: Counter[bool] = Counter()  # by whether it was one of the next version
        self.executing: Counter[int] = Counter()  # by worker

    def read(self) -> None:
        *lines, self._unread = (self._unread + self._file.read()).split(b"\n")
        for line in map(msgspec.json.decode, lines):
            if line["m"] == "start":
                self.starts[is_next(line["w"])] += 1
                self.executing[line["w"]] += 1
            elif line["m"] == "end":
                self.executing[line["w"]] -= 1

    def close(self) -> None:
        self._file.close()


class Roll:
    """A cluster on its way to the next version."""

    def __init__(self, cluster: Cluster, nursery: Nursery, store: Ledger, log: Follower) -> None:
        self._cluster = cluster
        self._nursery = nursery
        self._store = store
        self._log = log
        self._pids: dict[int, int] = {}  # to numbers of workers
        self._created = 0

    async def go(self, way: Way, seconds: float) -> None:
        """For so many seconds there is a load of every kind, and after that something to do for as long as it takes."""
        cluster, chosen = self._cluster, self._cluster.chosen
        first = cluster.ahead(LEAD_SECONDS)
        plan = mixed_load(chosen, first, seconds, cluster.setting.speed)
        if plan.last - first >= MINUTE:
            plan.cron("minutely", first, plan.last, payload={"s": 0.3})
        await cluster.create(plan)
        for worker in [await self._hire() for _ in range(cluster.setting.workers)]:
            await cluster.up(worker)
        await self._each_works()
        if way == "held up":
            async with self._held_up():
                await self._replace(chosen.choice(cluster.workers))
        while old := [worker for worker in cluster.workers if not is_next(worker.number)]:
            if way == "old dies" and len(old) == 1:
                await self._die(old[0], rescued_by_next=True)
                await self._hire_next()
                cluster.trials += 1
            else:
                await self._replace(chosen.choice(old))
            if way == "new dies" and len(old) == cluster.setting.workers:
                await self._die(cluster.workers[-1], rescued_by_next=False)
                await self._hire_next()
                await self._each_works()
                cluster.trials += 1
        await self._all_are_next()

    # --- what is done to workers --------------------------------------------------------------------------------------

    async def _hire(self, nursery: Nursery | None = None) -> WorkerProcess:
        worker = await self._cluster.hire(nursery=nursery)
        self._pids[worker.pid] = worker.number
        return worker

    async def _hire_next(self) -> WorkerProcess:
        worker = await self._hire(self._nursery)
        await self._cluster.up(worker)
        self._cluster.facts.setdefault("mixed_from", real_us())
        return worker

    async def _replace(self, old: WorkerProcess) -> None:
        """Its successor comes first, or as it goes; then both versions work for a while, if there are both."""
        cluster = self._cluster
        if cluster.chosen.random() < 0.5:
            await self._hire_next()
            await self._each_works()
            gone = await cluster.dismiss(old)
        else:
            gone, _ = await asyncio.gather(cluster.dismiss(old), self._hire_next())
        cluster.facts.setdefault("gone", []).append(gone)
        cluster.facts["mixed_upto"] = real_us()
        await self._each_works()
        cluster.trials += 1

    async def _die(self, worker: WorkerProcess, *, rescued_by_next: bool) -> None:
        """By SIGKILL, with something in hand; until one of the other version has found it."""
        cluster = self._cluster
        if not await self._under_load(lambda: self._log.executing[worker.number] > 0):
            cluster.wrong.append(f"worker {worker.number} was given nothing to do")
        await cluster.kill(worker)
        cluster.facts["mixed_upto"] = real_us()
        if not await happens(lambda: self._was_found(worker), PATIENCE_SECONDS):
            cluster.wrong.append(f"nobody has found that worker {worker.number} is dead")
            return
        finder = cluster.facts["finders"][worker.number]
        if is_next(finder) != rescued_by_next:
            cluster.wrong.append(f"worker {worker.number} was rescued by worker {finder}, of the other version")

    async def _was_found(self, worker: WorkerProcess) -> bool:
        for event in await lifecycle_of(self._store, lane_name("default")):
            of, by = _FOUND_BY.search(event.instance), _FOUND_BY.search(event.detail)
            if event.event == "crash" and of and by and int(of[1]) == worker.pid:
                self._cluster.facts.setdefault("finders", {})[worker.number] = self._pids[int(by[1])]
                return True
        return False

    @asynccontextmanager
    async def _held_up(self) -> AsyncIterator[None]:
        """Somebody reads all schedules, and stays in his transaction for a while: no step gets past him."""
        reader = await asyncpg.connect(self._cluster.setting.address)
        transaction = reader.transaction(isolation="repeatable_read", readonly=True)
        await transaction.start()
        await reader.fetch("SELECT schedule_id FROM schedules")

        async def leave() -> None:
            began = real_us()
            await asyncio.sleep(HELD_SECONDS)
            await transaction.rollback()
            await reader.close()
            self._cluster.facts["held"] = (began, real_us())

        leaving = asyncio.create_task(leave())
        try:
            yield
        finally:
            await leaving

    # --- load ---------------------------------------------------------------------------------------------------------

    async def _each_works(self) -> None:
        """Until each version that is there has started something, from now on."""
        wanted = {is_next(worker.number) for worker in self._cluster.workers}
        self._log.read()
        before = self._log.starts.copy()
        if not await self._under_load(lambda: all(self._log.starts[one] > before[one] for one in wanted)):
            self._cluster.wrong.append("a version that is there has started nothing")

    async def _under_load(self, found: Callable[[], bool]) -> bool:
        """Whether it comes true; there is always something more to do until then."""

        async def is_so() -> bool:
            self._log.read()
            return found()

        until = real_us() + PATIENCE_SECONDS * SECOND
        while real_us() < until:
            await self._cluster.create(self._more())
            if await happens(is_so, MORE_SECONDS):
                return True
        return False

    def _more(self) -> Plan:
        cluster, plan = self._cluster, Plan()
        first = cluster.ahead(0.2)
        last = first + round(MORE_SECONDS * cluster.setting.speed * SECOND)
        for _ in range(round(20 * MORE_SECONDS)):
            self._created += 1
            at = cluster.chosen.randint(first, last)
            plan.one_shot(f"more-{self._created}", at, payload={"s": cluster.chosen.choice((0.02, 0.8))})
        return plan

    # --- the end ------------------------------------------------------------------------------------------------------

    async def _all_are_next(self) -> None:
        cluster = self._cluster
        wanted = [next_version.VERSION] * cluster.setting.workers

        async def shown() -> bool:
            return [
                engine.version for engine in (await self._store.engines.members(cluster.clock.now())).alive
            ] == wanted

        if not await happens(shown, PATIENCE_SECONDS):
            cluster.wrong.append("the engines of the lane are not all of the next version")
        if _REFUSED not in await cluster.turned_away():
            cluster.wrong.append("one of the old version that was started in the end was not told why it may not")


def measured(outcome: Outcome) -> Outcome:
    """What each version has done while both were there; nothing at all is a failure of the run."""
    facts, begin, upto = outcome.facts, outcome.facts.get("mixed_from", 0), outcome.facts.get("mixed_upto", 0)
    starts = Counter(is_next(one.worker) for one in outcome.story.tries if begin <= one.at <= upto)
    facts["mixed_starts"] = starts
    outcome.findings.other.extend(
        f"the {'next' if version else 'old'} version has started nothing while both were there"
        for version in (False, True)
        if not starts[version]
    )
    facts["rescued"] = Counter(
        is_next(following.worker)
        for tries in outcome.story.by_run().values()
        for one, following in pairwise(tries)
        if one.worker in facts.get("finders", {}) and one.ok is not False
    )
    if "held" in facts:
        began, until = facts["held"]
        starting = sorted(one.at for one in outcome.story.tries if began <= one.at <= until)
        facts["held_starts"] = len(starting)
        facts["held_gap_s"] = max(b - a for a, b in pairwise([began, *starting, until])) / SECOND
    return outcome


async def rolled(
    place: Grounds, nursery: Nursery, backend: str, way: Way, seconds: float = ROLL_SECONDS, **more: Any
) -> Outcome:
    cluster = await place.cluster(backend, speed=SPEED, **more)
    async with cluster.kept_open() as store:
        with closing(Follower(cluster.setting.folder / "evidence")) as log:
            await Roll(cluster, nursery, store, log).go(way, seconds)
        await cluster.rest()
        return measured(await cluster.judged())


@asynccontextmanager
async def next_crew() -> AsyncIterator[Nursery]:
    """Where workers of the next version come from."""
    with tempfile.TemporaryDirectory(prefix="noonbell-next-") as folder:
        async with Nursery(next_version.write_to(Path(folder)), numbers_from=NEXT_FROM) as nursery:
            yield nursery


async def run(given: Any) -> list[Outcome]:
    async with grounds(given.keep) as place, next_crew() as nursery:
        made = []
        for number in range(given.rolls):
            # each way on each backend, before any comes again
            way, backend = WAYS[number % len(WAYS)], given.backends[number // len(WAYS) % len(given.backends)]
            made.append(partial(rolled, place, nursery, backend, way, seed=given.seed, workers=WORKERS))
        return await each(made, given.at_once)


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--rolls", type=int, default=12)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    given = parser.parse_args()
    began = time.monotonic()
    outcomes = asyncio.run(run(given))
    mixed: Counter[bool] = sum((outcome.facts["mixed_starts"] for outcome in outcomes), Counter())
    rescued: Counter[bool] = sum((outcome.facts["rescued"] for outcome in outcomes), Counter())
    gone, _ = at_quantiles([seconds for outcome in outcomes for seconds in outcome.facts.get("gone", [])])
    facts = {
        "backends": given.backends,
        "versions": [noonbell.__version__, next_version.VERSION],
        "mixed_starts_old": mixed[False],
        "mixed_starts_new": mixed[True],
        "rescued_by_old": rescued[False],
        "rescued_by_new": rescued[True],
        "held_gap_max_s": round(max((outcome.facts.get("held_gap_s", 0.0) for outcome in outcomes), default=0.0), 3),
        "gone_p50_s": gone,
    }
    return end(summary("upgrades", outcomes, given.rolls * WORKERS, began, **facts))


if __name__ == "__main__":
    sys.exit(main())

"""One trial: a new database, so many instances on it, and one load that comes due.

The schedules are created on a clock that stands an hour before they are due. The instances start on one that is five
minutes before, and when all are up it is set to `LEAD` before: so nothing is waited for, however long the rest took. A
trial is over when the end of each run is written, or after `patience` seconds with what there is by then.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.cluster_parts.instance import now_us
from benchmarks.engine_parts.shifted_clock import ShiftedClock
from noonbell.core.instants import moment
from noonbell.schedules import Schedules
from noonbell.store.postgres import PostgresStore

ROOT: Final = Path(__file__).resolve().parents[2]
SECOND: Final = 1_000_000
HOUR: Final = 3600 * SECOND
AHEAD: Final = 300 * SECOND
LEAD: Final = 2 * SECOND
CLOCK_ERROR: Final = SECOND // 50
# Any moment will do, as long as no day ends near it: a day that begins makes a partition.
BEGIN: Final = 1_768_478_400 * SECOND
READY_SECONDS: Final = 60.0

Result = dict[str, Any]


class Load(NamedTuple):
    """When what comes due: microseconds after the first instant, by number."""

    name: str
    offsets: Sequence[int]

    @classmethod
    def burst(cls, count: int) -> Load:
        return cls(f"burst of {count:,}", [0] * count)

    @classmethod
    def steady(cls, per_second: int, seconds: float) -> Load:
        count = round(per_second * seconds)
        return cls(f"{per_second} a second", [number * SECOND // per_second for number in range(count)])


class Setting(NamedTuple):
    """Where and by how many."""

    dsn: str
    timeline: str | None
    instances: int
    folder: Path
    patience: float


class Party:
    """A process with the protocol of `instance`."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.told: Result = {}
        self.ended = 0
        self.ended_at = 0
        self.changed = asyncio.Event()
        self.said = {word: asyncio.Event() for word in ("ready", "up", "set", "gone")}
        self._process = process
        self._log = log
        self._hearing = asyncio.get_running_loop().create_task(self._hear())

    @classmethod
    async def start(cls, module: str, log: Path, *arguments: str) -> Party:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", f"benchmarks.cluster_parts.{module}", *arguments, str(log),
            cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        return cls(process, log)

    async def _hear(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            heard = json.loads(line)
            if "said" in heard:
                self.said[heard.pop("said")].set()
                self.told |= heard
            else:
                self.ended += heard["ended"]
                self.ended_at = heard["at"]
                self.changed.set()

    async def wait(self, word: str) -> None:
        """Until it has said the word; a process that ends without it is an error."""
        said = asyncio.get_running_loop().create_task(self.said[word].wait())
        async with asyncio.timeout(READY_SECONDS):
            await asyncio.wait({said, self._hearing}, return_when=asyncio.FIRST_COMPLETED)
        said.cancel()
        if not self.said[word].is_set():
            raise RuntimeError(f"{self._log.name} ended with status {await self._process.wait()} before it was {word}")

    def give(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    async def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(READY_SECONDS):
            await self._process.wait()
        await self._hearing

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    def fires(self) -> Iterable[tuple[int, int, int]]:
        """The number of the schedule, when it was called, and when the look began that brought it."""
        numbers = array("q", self._log.read_bytes())
        return zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)


async def run(setting: Setting, load: Load, *, bare: bool) -> Result:
    first = BEGIN + HOUR
    created = await _create(setting, [first + offset for offset in load.offsets])
    parties = [
        await Party.start("instance", setting.folder / f"log-{number}", setting.dsn, setting.timeline or "-")
        for number in range(setting.instances)
    ]
    timer: list[Party] = []
    if bare:
        instants = setting.folder / "instants"
        instants.write_bytes(array("q", [first + offset for offset in load.offsets]).tobytes())
        timer.append(await Party.start("bare_timer", setting.folder / "log-bare", str(instants)))
    try:
        due = await _begin([*parties, *timer], first)
        whole = await _over(parties, len(load.offsets), setting.patience + load.offsets[-1] / SECOND)
        for party in (*parties, *timer):
            await party.end()
    finally:
        for party in (*parties, *timer):
            party.kill()
    told = _judged(parties, load, due) | {"created_per_second": created, "whole": whole}
    if timer:
        told["bare"] = spread_of([at - due - load.offsets[number] for number, at, _ in timer[0].fires()])
        told["above_bare_p50_ms"] = round(told["late"]["p50_ms"] - told["bare"]["p50_ms"], 2)
    return told


async def _create(setting: Setting, instants: Sequence[int]) -> int:
    store = PostgresStore(setting.dsn)
    async with Schedules(store, clock=ShiftedClock(BEGIN), timeline=setting.timeline) as schedules:
        began = time.perf_counter()
        await schedules.create_many(
            {
                "schedule_id": f"{number:08}",
                "type": "one_shot",
                "spec": moment(at).isoformat(),
                "action": {"kind": "callback", "name": "fire"},
            }
            for number, at in enumerate(instants)
        )
        spent = time.perf_counter() - began
    await store.close()
    return round(len(instants) / spent)


async def _begin(parties: Sequence[Party], first: int) -> int:
    """Start them all; returns when the first schedule is due, on the machine's clock."""
    for party in parties:
        await party.wait("ready")
    for party in parties:
        party.give(str(first - AHEAD - now_us()))
    for party in parties:
        await party.wait("up")
    due = now_us() + LEAD
    for party in parties:
        party.give(str(first - due))
    for party in parties:
        await party.wait("set")
    # a clock that lags would make everything look late, and leave the work to the instance whose clock lags least
    wrong = [party.told["ahead"] - (first - due) for party in parties]
    if max(map(abs, wrong)) > CLOCK_ERROR:
        raise RuntimeError(f"the clocks of the instances are wrong by {wrong} microseconds")
    if now_us() >= due:
        raise RuntimeError(f"the instances did not answer within {LEAD / SECOND:g} s: the machine is too busy")
    return due


async def _over(parties: Sequence[Party], wanted: int, patience: float) -> bool:
    try:
        async with asyncio.timeout(LEAD / SECOND + patience):
            while sum(party.ended for party in parties) < wanted:
                changes = [asyncio.create_task(party.changed.wait()) for party in parties]
                await asyncio.wait(changes, return_when=asyncio.FIRST_COMPLETED)
                for change, party in zip(changes, parties, strict=True):
                    change.cancel()
                    party.changed.clear()
    except TimeoutError:
        return False
    return True


def _judged(parties: Sequence[Party], load: Load, due: int) -> Result:
    fires = Counter[int]()
    late: list[int] = []
    waited: list[int] = []
    taken: list[int] = []
    for party in parties:
        for number, at, looked_at in party.fires():
            fires[number] += 1
            late.append(at - due - load.offsets[number])
            waited.append(looked_at - due - load.offsets[number])
            taken.append(at - looked_at)
    wanted = len(load.offsets)
    seconds = (max(party.ended_at for party in parties) - due) / SECOND
    return {
        "fires": len(late),
        "exactly_once": len(late) == len(fires) == wanted == sum(party.ended for party in parties),
        "rate": round(sum(party.ended for party in parties) / seconds, 1),
        "seconds": round(seconds, 3),
        "late": spread_of(late),
        "until_look": spread_of(waited),
        "from_look": spread_of(taken),
        "shares": [party.told["fires"] for party in parties],
        "queued_ms_a_fire": round(sum(party.told["queued_ms"] for party in parties) / max(len(late), 1), 2),
        "looks": [party.told["looks"] for party in parties],
        "claim_ms": [round(party.told["claim_ms"], 2) for party in parties if party.told["claim_ms"] is not None],
    }


def spread_of(late: Sequence[int]) -> Result:
    """Median, 99th percentile and the worst of some lateness, in milliseconds."""
    if not late:
        return {"p50_ms": None, "p99_ms": None, "max_ms": None}
    ordered = sorted(late)

    def at(share: float) -> float:
        return round(ordered[min(int(share * len(ordered)), len(ordered) - 1)] / 1000, 2)

    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1)}

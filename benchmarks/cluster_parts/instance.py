"""One instance of the cluster: an engine of the lane, whose callback keeps when it was called.

    python -m benchmarks.cluster_parts.instance DSN TIMELINE|- LOG

It says "ready" when it is connected. Then it is told on standard input by how many microseconds its clock is ahead of
the machine's, joins the lane and says "up"; then the same again, for the moment that counts, and says "set". Whenever
ends are written it tells how many. When its input ends it stops, writes its log (triples of 8-byte integers: the number
of the schedule, when its callback began, and when the look began that brought it, on the machine's clock) and tells the
rest in one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import uvloop

from benchmarks.engine_parts.shifted_clock import ShiftedClock
from noonbell.core.records import Settlement
from noonbell.ports import Decide, LaneClaim, Settled
from noonbell.schedules import Call, Schedules
from noonbell.store.postgres import PostgresStore
from noonbell.store.wrapping import with_verbs

EXACT_US: Final = 1_000


def now_us() -> int:
    return time.time_ns() // 1000


def set_clock(clock: ShiftedClock, ahead: bytes) -> None:
    # a function, so that the machine's clock is read when the order has come, and not before it is waited for
    for _ in range(20):
        clock.jump_to(now_us() + int(ahead))
        if abs(ahead_of(clock) - int(ahead)) < EXACT_US:  # else another process had the core between two readings
            return


def ahead_of(clock: ShiftedClock) -> int:
    """By how much a clock is ahead of the machine's; a pause between the two readings can only make it less."""
    return max(clock.now() - now_us() for _ in range(5))


def queued_us() -> int:
    """How long this thread has been ready to run and found no core free, since it began; 0 where nobody counts that."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) // 1000
    except (OSError, IndexError):
        return 0


def tell(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


class ToldStore(PostgresStore):
    """Tells of every end that is written, and keeps how long claims took that brought something."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.claims: list[int] = []  # how many microseconds they took
        self.looks = 0
        self.looked_at: dict[str, int] = {}  # by schedule
        self._plain = self.runs
        self.runs = with_verbs(self._plain, {"settle": self._settle, "claim": self._claim})

    async def _settle(self, settlements: Sequence[Settlement]) -> Settled:
        settled = await self._plain.settle(settlements)
        tell(ended=len(settlements) - len(settled.stale), at=now_us())
        return settled

    async def _claim(self, lane: str, owner: str, now: int, limit: int, decide: Decide, **narrowed: Any) -> LaneClaim:
        began = now_us()
        claim = await self._plain.claim(lane, owner, now, limit, decide, **narrowed)
        self.looks += 1
        if claim.claimed.starts:
            self.claims.append(now_us() - began)
            for start in claim.claimed.starts:
                self.looked_at[claim.stored[start.sid].schedule_id] = now
        return claim


async def live(dsn: str, timeline: str | None, log: Path) -> None:
    fires = array("q")

    async def fire(call: Call) -> None:
        began = now_us()
        # the engine read its own clock when the look began
        fires.extend((int(call.schedule_id), began, began - clock.now() + store.looked_at[call.schedule_id]))

    store = ToldStore(dsn)
    clock = ShiftedClock(now_us())
    schedules = Schedules(store, clock=clock, callbacks={"fire": fire}, timeline=timeline)
    await schedules.open()
    tell(said="ready")
    orders = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    set_clock(clock, await orders.readline())
    await schedules.start()
    tell(said="up")
    set_clock(clock, await orders.readline())
    tell(said="set", ahead=ahead_of(clock))
    queued = queued_us()
    await orders.read()
    queued = queued_us() - queued
    await schedules.close()
    await store.close()
    log.write_bytes(fires.tobytes())  # noqa: ASYNC240 - nothing else runs any more
    tell(
        said="gone",
        fires=len(fires) // 3,
        looks=store.looks,
        queued_ms=queued / 1000,
        claims=len(store.claims),
        claim_ms=median(store.claims) / 1000 if store.claims else None,
    )


if __name__ == "__main__":
    address, redis, where = sys.argv[1:]
    uvloop.run(live(address, None if redis == "-" else redis, Path(where)))

"""The process under test: `Schedules` on a database, running whatever is due in its lane until it is told to stop.

    python -m tests.faults.cluster.worker OPTIONS

OPTIONS is a JSON object, see `Options`; the runs start workers through the `nursery`. SIGTERM stops it in order. Its
callbacks do nothing but write evidence, and what the payload asks for: last for some seconds (`s`), fail so many times
(`fail`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from noonbell.errors import SchedulerInUseError, StoreUnavailableError
from noonbell.ports import Ledger
from noonbell.schedules import Call, Schedules
from noonbell.store.postgres import PostgresStore
from noonbell.store.sqlite import SqliteStore
from tests.faults.cluster.clock import ClockSetting, FileClock, real_us
from tests.faults.cluster.evidence import Evidence

_WATCH_SECONDS: Final = 0.1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Options(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker is told when it begins."""

    number: int
    address: str  # the path of an SQLite file, or the address of a PostgreSQL database
    evidence: str
    clock: ClockSetting
    log: str
    lane: str = "default"
    lease_seconds: float = 2.0
    statement_seconds: float = 3.0
    longest_wait_seconds: float = 1.0  # on the clock of the machine, however fast the other one goes
    stop_seconds: float = 20.0
    timeline: str | None = None


def open_store(options: Options) -> Ledger:
    if "://" in options.address:
        return PostgresStore(
            options.address, lease_ttl=options.lease_seconds, statement_timeout=options.statement_seconds, pool_size=3
        )
    return SqliteStore(options.address)


class Targets:
    """The callbacks."""

    def __init__(self, evidence: Evidence, number: int) -> None:
        self._evidence = evidence
        self._number = number

    def callbacks(self) -> dict[str, Callable[[Call], Any]]:
        return {"work": self.work, "plain": self.plain, "poison": self.poison}

    async def work(self, call: Call) -> None:
        self._begin(call)
        asked = call.payload or {}
        if asked.get("s"):
            await asyncio.sleep(asked["s"])
        self._end(call, ok=call.attempt > asked.get("fail", 0))

    def plain(self, call: Call) -> None:
        self._begin(call)
        asked = call.payload or {}
        time.sleep(asked.get("s", 0))
        self._end(call, ok=call.attempt > asked.get("fail", 0))

    async def poison(self, call: Call) -> NoReturn:
        self._begin(call)
        await asyncio.sleep((call.payload or {}).get("s", 0))
        self._evidence.write("killed", self._number)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("it outlived its own death")

    def _begin(self, call: Call) -> None:
        run_for = (call.scheduled_for - _EPOCH) // _MICROSECOND
        self._evidence.write("start", self._number, r=call.run_id, i=call.schedule_id, f=run_for, a=call.attempt)

    def _end(self, call: Call, *, ok: bool) -> None:
        self._evidence.write("end", self._number, r=call.run_id, a=call.attempt, ok=ok)
        if not ok:
            raise RuntimeError("it was asked to fail")


def watch(evidence: Evidence, options: Options, parent: int) -> None:
    """Tell of a machine that leaves this process no time, and end with whoever started it. In a thread of its own."""
    before = real_us()
    while True:
        time.sleep(_WATCH_SECONDS)
        now = real_us()
        if now - before > options.lease_seconds * 400_000:
            evidence.write("stall", options.number, t0=before)
        before = now
        if os.getppid() != parent:
            os._exit(3)


async def persistently(step: Callable[[], Any]) -> None:
    """Until the store is there, and lets us in."""
    while True:
        try:
            await step()
        except (StoreUnavailableError, SchedulerInUseError):
            await asyncio.sleep(0.05)
        else:
            return


async def live(options: Options, say: Callable[[str], None]) -> None:
    evidence = Evidence(Path(options.evidence))
    threading.Thread(target=watch, args=(evidence, options, os.getppid()), daemon=True).start()
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, told.set)
    store = open_store(options)
    more: dict[str, Any] = {} if options.timeline is None else {"timeline": options.timeline}
    schedules = Schedules(
        store,
        clock=FileClock(options.clock),
        callbacks=Targets(evidence, options.number).callbacks(),
        lane=options.lane,
        longest_wait=timedelta(seconds=options.longest_wait_seconds * options.clock.speed),
        **more,
    )
    await persistently(schedules.start)
    evidence.write("up", options.number, p=os.getpid())
    say("up")
    await told.wait()
    whole = await schedules.stop(timedelta(seconds=options.stop_seconds * options.clock.speed))
    await store.close()
    evidence.write("gone", options.number, whole=whole)


def run(options: Options, say: Callable[[str], None]) -> None:
    """Live to the end, in a process that has nothing else to do."""
    told = logging.FileHandler(options.log)
    told.setFormatter(logging.Formatter(f"worker {options.number} %(asctime)s %(name)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[told], force=True)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(live(options, say))


if __name__ == "__main__":
    run(msgspec.json.decode(sys.argv[1], type=Options), lambda word: print(word, flush=True))

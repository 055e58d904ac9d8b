"""The program that is killed: `Schedules` with every kind of schedule, messages and edits, on a clock that runs fast.

    python -m tests.crash.schedules_victim ADDRESS JOURNAL LIFE ORIGIN LEAP POINT NTH

ADDRESS is the path of an SQLite file or the address of a PostgreSQL database. The process dies by SIGKILL of its own
hand when it comes to POINT for the NTH time, or lives until it is told otherwise on standard input: `finish` ends the
edits and pauses every schedule, `stop` stops, `freeze` halts the process until a signal lets it go on. Every start and
end of an action, every message that arrives and every edit, before it is asked for and after it is acknowledged, is a
line in the journal, synced before anything goes on.

The points are put around the store from outside: the product knows nothing of them.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, TypeVar, get_args

import apsw

from noonbell.core.instants import moment
from noonbell.core.records import StoredSchedule, Turn
from noonbell.core.terms import CatchUp
from noonbell.engine import SystemClock
from noonbell.errors import ScheduleBusyError, ScheduleNotFoundError, SchedulerInUseError, StoreUnavailableError
from noonbell.ports import Ledger
from noonbell.schedules import Call, Schedules
from noonbell.store.postgres import PostgresStore
from noonbell.store.postgres import connection as postgres_connection
from noonbell.store.postgres import pruning as pruning_on_postgres
from noonbell.store.postgres.connection import Connection, Connections
from noonbell.store.sqlite import SqliteStore
from noonbell.store.sqlite import connection as sqlite_connection
from noonbell.store.sqlite import pruning as pruning_on_sqlite
from tests.crash.schedules_declared import EDITED, QUIET_HOURS, declared
from tests.store.overriding import find_verb

Point = Literal[
    "before-prune-commit", "after-prune-commit", "before-claim-commit", "after-claim-commit", "in-callback",
    "before-settle-commit", "after-settle-commit", "before-edit-commit", "after-edit-commit", "in-delivery",
    "before-delivery-commit", "after-delivery-commit",
]  # fmt: skip
POINTS: tuple[Point, ...] = get_args(Point)
SPEED: Final = 60  # a minute passes in a second
FIRST_INSTANT: Final = 1_772_323_200_000_000  # 2026-03-01, midnight
LEASE_SECONDS: Final = 2.0
STATEMENT_SECONDS: Final = 2.0
SLOW_SECONDS: Final = 80 / SPEED

# The verbs with a point before and after their commit.
_VERBS: Final = {
    "runs.claim": "claim",
    "runs.settle": "settle",
    "schedules.apply": "edit",
    "prune_day": "prune",
    "outbox.settle": "delivery",
}

T = TypeVar("T")


class FastClock:
    """Time since `origin` (on the system's clock that is never set), many times as fast, and put forward by `leap`."""

    def __init__(self, origin: float, leap_us: int) -> None:
        self._origin = origin
        self._leap_us = leap_us
        self._system = SystemClock()

    def now(self) -> int:
        passed = (self._system.elapsed() - self._origin) * SPEED * 1_000_000
        return FIRST_INSTANT + self._leap_us + int(passed)

    def elapsed(self) -> float:
        return self._system.elapsed() * SPEED

    async def wait(self, until: int, wakeup: asyncio.Event) -> None:
        system = self._system
        await system.wait(system.now() + (until - self.now()) // SPEED, wakeup)


class Journal:
    """Lines that are on disk when `write` returns, each with the life it belongs to and the time."""

    def __init__(self, path: Path, life: int, clock: FastClock) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._life = life
        self._clock = clock

    def write(self, what: str, **facts: Any) -> None:
        line = {"what": what, "life": self._life, "at": self._clock.now(), **facts}
        os.write(self._descriptor, json.dumps(line).encode() + b"\n")
        os.fsync(self._descriptor)


class Reaper:
    """Kills this process the nth time that it comes to the point."""

    def __init__(self, journal: Journal, point: str, nth: int) -> None:
        self._journal = journal
        self._point = point
        self._left = nth
        self._lock = threading.Lock()

    def at(self, point: str) -> None:
        if point != self._point:
            return
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._journal.write("death", point=point)
                _die()


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    while True:  # the signal is on its way
        time.sleep(1)


# --- points around the store ------------------------------------------------------------------------------------------


class Doing:
    """A verb under way. It counts as come to its point only if it has something to write."""

    def __init__(self, reaper: Reaper, name: str) -> None:
        self._reaper = reaper
        self._name = name
        self.busy = False

    def before_commit(self) -> None:
        if self.busy:
            self._reaper.at(f"before-{self._name}-commit")

    def after_commit(self) -> None:
        if self.busy:
            self._reaper.at(f"after-{self._name}-commit")


_doing: ContextVar[Doing | None] = ContextVar("_doing", default=None)


class MortalConnection(sqlite_connection.Connection):
    """Comes to the point before each commit."""

    async def run(
        self,
        work: Callable[[apsw.Connection], T],
        *,
        write: bool = True,
        peek: Callable[[apsw.Connection], T | None] | None = None,
    ) -> T:
        doing = _doing.get()

        def shown(db: apsw.Connection) -> T:
            token = _doing.set(doing)  # the thread of the connection has a context of its own
            try:
                result = work(db)
            finally:
                _doing.reset(token)
            if doing is not None:
                doing.before_commit()
            return result

        return await super().run(shown, write=write, peek=peek)


class MortalConnections(Connections):
    """The same on PostgreSQL. `under_way` counts transactions."""

    under_way = 0

    @asynccontextmanager
    async def _transaction(self, db: Connection, begin: str) -> AsyncIterator[str]:
        MortalConnections.under_way += 1
        try:
            async with super()._transaction(db, begin) as status:
                yield status
                doing = _doing.get()
                if doing is not None:
                    doing.before_commit()
        finally:
            MortalConnections.under_way -= 1


def _without_commit(statements: str) -> str:
    """Leave the COMMIT to be a message of its own, so that a point lies before it."""
    return statements


def open_store(address: str, reaper: Reaper) -> Ledger:
    """The store at the address, with the points around its verbs."""
    store: Any
    if "://" in address:
        store = PostgresStore(address, lease_ttl=LEASE_SECONDS, statement_timeout=STATEMENT_SECONDS)
        store._connections.__class__ = MortalConnections
        postgres_connection.committing = _without_commit
    else:
        store = SqliteStore(address)
        store._file.__class__ = MortalConnection
    for path, name in _VERBS.items():
        part, verb = find_verb(store, path)
        setattr(part, verb, _mortal(getattr(part, verb), path, name, reaper))
    opened: Ledger = store
    return opened


def _mortal(verb: Callable[..., Any], name: str, part: str, reaper: Reaper) -> Callable[..., Any]:
    @functools.wraps(verb)
    async def mortal(*args: Any, **more: Any) -> Any:
        doing = Doing(reaper, part)
        if name == "runs.claim":
            *rest, take_turn = args
            args = (*rest, _noting(take_turn, doing))
        else:
            # a pruning may find nothing to do: that is found out below, by the function that does it
            doing.busy = name != "prune_day" and bool(args[0])
        token = _doing.set(doing)
        try:
            result = await verb(*args, **more)
        finally:
            _doing.reset(token)
        doing.after_commit()
        return result

    return mortal


def _noting(take_turn: Callable[[StoredSchedule], Turn], doing: Doing) -> Callable[[StoredSchedule], Turn]:
    def noting(stored: StoredSchedule) -> Turn:
        turn = take_turn(stored)
        doing.busy = doing.busy or bool(turn.starts or turn.finished or turn.spans)
        return turn

    return noting


def _note_pruning() -> None:
    on_sqlite, on_postgres = pruning_on_sqlite.prune_day, pruning_on_postgres.prune_day

    def noted(pruned: Any) -> Any:
        doing = _doing.get()
        if doing is not None:
            doing.busy = pruned is not None
        return pruned

    async def prune_on_postgres(db: Any, before: int) -> Any:
        return noted(await on_postgres(db, before))

    pruning_on_sqlite.prune_day = lambda db, before: noted(on_sqlite(db, before))
    pruning_on_postgres.prune_day = prune_on_postgres


# --- what it does -----------------------------------------------------------------------------------------------------


class Actions:
    """Callbacks, and the receiver of messages."""

    def __init__(self, journal: Journal, reaper: Reaper) -> None:
        self._journal = journal
        self._reaper = reaper

    def callbacks(self) -> dict[str, Callable[[Call], Any]]:
        return {"quick": self.quick, "slow": self.slow, "plain": self.plain, "flaky": self.flaky}

    async def quick(self, call: Call) -> None:
        self._begin(call)
        self._end(call)

    async def slow(self, call: Call) -> None:
        self._begin(call)
        # what was cut off is started again one at a time: it must not hold up the others for long
        await asyncio.sleep(SLOW_SECONDS if call.attempt == 1 else SLOW_SECONDS / 20)
        self._end(call)

    def plain(self, call: Call) -> None:
        self._begin(call)
        time.sleep(0.01)
        self._end(call)

    async def flaky(self, call: Call) -> None:
        self._begin(call)
        await asyncio.sleep(0.01)
        if random.random() < 0.5:
            self._end(call, ok=False)
            raise RuntimeError("not this time")
        self._end(call)

    async def receive(self, event: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        if random.random() < 0.1:
            self._journal.write("refused", run=event["id"])
            raise RuntimeError("not this time")
        self._journal.write("received", run=event["id"])
        self._reaper.at("in-delivery")

    def _begin(self, call: Call) -> None:
        self._journal.write("start", id=call.schedule_id, run=call.run_id, attempt=call.attempt)
        self._reaper.at("in-callback")

    def _end(self, call: Call, *, ok: bool = True) -> None:
        self._journal.write("end", run=call.run_id, attempt=call.attempt, ok=ok)


class Editor:
    """Somebody who never stops changing things. A change is told before it is asked for and when it is acknowledged."""

    def __init__(self, schedules: Schedules, journal: Journal, clock: FastClock, life: int) -> None:
        self._schedules = schedules
        self._journal = journal
        self._clock = clock
        self._numbers = iter(range(life * 1_000_000, (life + 1) * 1_000_000))

    async def work(self) -> None:
        while True:
            await asyncio.sleep(random.uniform(0.02, 0.2))
            step = random.choice((self._edit, self._edit, self._ask, self._create))
            try:
                await step()
            except StoreUnavailableError:
                continue  # whether it has happened is for the ledger to say

    async def _edit(self) -> None:
        chosen = random.sample(EDITED, random.randint(1, 2))
        minutes = sorted(random.sample(range(60), 45))
        fields = {"spec": f"{','.join(map(str, minutes))} * * * *", "enabled": random.random() < 0.85}
        number = next(self._numbers)
        self._journal.write("edit", number=number, ids=chosen, **fields)
        await self._schedules.update_many(chosen, fields)  # type: ignore[arg-type]  # a plain dict of known fields
        self._journal.write("edited", number=number)

    async def _ask(self) -> None:
        try:
            run = await self._schedules.trigger("asked")
        except ScheduleBusyError:
            return
        self._journal.write("asked", run=run)

    async def _create(self) -> None:
        schedule_id = f"shot-{next(self._numbers)}"
        at = moment(self._clock.now() + random.randrange(5, 40) * 1_000_000)
        action = {"kind": "callback", "name": "quick"}
        catch_up: CatchUp = random.choice(("skip", "run_once"))
        await self._schedules.create(
            schedule_id=schedule_id, type="one_shot", spec=at.isoformat(), action=action, catch_up_policy=catch_up
        )
        self._journal.write("created", id=schedule_id, catch_up=catch_up)

    async def pause_all(self) -> None:
        page = await self._schedules.list(enabled=True, limit=1000)
        ids = [found.schedule_id for found in page.items]
        number = next(self._numbers)
        self._journal.write("edit", number=number, ids=[one for one in ids if one in EDITED], enabled=False)
        # Not in the middle of a look: it goes by an older reading of the clock, and on this clock the difference may be
        # more than the second that is granted to an engine and an editor.
        engine = self._schedules._lane.engine
        assert engine is not None
        async with engine.claim_lock:
            await self._schedules.update_many(ids, {"enabled": False})
        self._journal.write("edited", number=number)


async def persistently(step: Callable[[], Any]) -> None:
    """Until the store is there and the lane is free."""
    while True:
        try:
            await step()
        except (StoreUnavailableError, SchedulerInUseError):
            await asyncio.sleep(0.05)
        else:
            return


async def prepare(schedules: Schedules) -> None:
    """What is declared and not there yet."""
    await schedules.open()
    if not await schedules._store.schedules.quiet_hours("still"):
        await schedules.create_quiet_hours("still", QUIET_HOURS, policy_id="still")
    for fields in declared():
        try:
            await schedules.get(fields["schedule_id"])
        except ScheduleNotFoundError:
            await schedules.create(**fields)


class GapTeller(logging.Handler):
    """Writes gaps between polls into the journal: what came meanwhile may be missed."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("poll gap lane"):
            self._journal.write("gap")


async def freeze() -> None:
    """Stop the whole process where no transaction is open: the locks of one would keep others waiting with it."""
    while MortalConnections.under_way:  # noqa: ASYNC110 - it may be none for no longer than an instant
        await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGSTOP)


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def live(address: str, journal_path: Path, life: int, clock: FastClock, point: str, nth: int) -> None:
    journal = Journal(journal_path, life, clock)
    reaper = Reaper(journal, point, nth)
    actions = Actions(journal, reaper)
    logging.getLogger("noonbell.engine").addHandler(GapTeller(journal))
    _note_pruning()
    store = open_store(address, reaper)
    schedules = Schedules(
        store,
        clock=clock,
        callbacks=actions.callbacks(),
        targets={"inbox": actions.receive},
        retention=timedelta(days=1),
    )
    journal.write("life")
    say("alive")
    await persistently(lambda: prepare(schedules))
    await persistently(schedules.start)
    journal.write("up")
    say("up")
    editor = Editor(schedules, journal, clock, life)
    editing = asyncio.create_task(editor.work())
    while True:
        word = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        if word == "freeze\n":
            await freeze()
            continue
        editing.cancel()
        await asyncio.wait([editing])
        if word == "finish\n":
            await persistently(editor.pause_all)
            say("finished")
        else:
            break
    await schedules.stop()
    await store.close()
    journal.write("stopped")
    say("stopped")


def main() -> None:
    address, journal, life, origin, leap, point, nth = sys.argv[1:]
    told = logging.FileHandler(f"{journal}.log")
    told.setFormatter(logging.Formatter(f"life {life} %(asctime)s %(name)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[told])
    logging.getLogger("noonbell.store").setLevel(logging.DEBUG)  # every try that fails, not one a minute
    random.seed(int(life) * 7919 + int(origin.replace(".", "")[-6:]))
    asyncio.run(live(address, Path(journal), int(life), FastClock(float(origin), int(leap)), point, int(nth)))


if __name__ == "__main__":
    main()

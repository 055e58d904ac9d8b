"""Runs Noonbell's Scheduler under the conformance runner: a virtual event loop, a real store, no decision of its own.

The store is SQLite by default; `NOONBELL_CONFORMANCE_STORE=memory` runs the same cases on the memory store. Stored
records of a case are written into real rows, which `initialize` then reads. A case's instants are ISO texts and the
store's are integers, so a valid text becomes its microseconds, and a value of a wrong type becomes a text: that is the
wrong type there.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import apsw
import runner
import vloop

from noonbell.core.records import LiveRun
from noonbell.cron import parse, parse_field
from noonbell.declarative import Scheduler
from noonbell.declarative.events import (
    SchedulerEvent,
    TaskRetryPreempted,
    TaskRetryStarted,
    TaskRunFailed,
    TaskRunStarted,
)
from noonbell.declarative.task_state import read_task
from noonbell.engine import SystemClock
from noonbell.ports import LEDGER_TABLES, Ledger
from noonbell.store.memory import MemoryStore
from noonbell.store.memory.tables import MemoryData
from noonbell.store.sqlite import SqliteStore
from noonbell.store.sqlite.tables import lane_numbers
from noonbell.testing.faults import Faults, FaultyStore

MANAGED_BY = "scheduler:default"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIELD_NAMES = {
    "name": "name",
    "cron": "spec",
    "retry_delay_s": "retry_delay_us",
    "last_attempt": "last_attempt_at",
    "last_success": "last_success_at",
    "last_failure": "last_failure_at",
    "pending_retry_until": "wake_at",
    "running_by": "owner",
}
INSTANTS = ("last_attempt", "last_success", "last_failure", "pending_retry_until")
LIVE = ("run_for", "fence", "owner", "state", "attempt", "wake_at", "started_at", "attempt_at", "crashes", "cause")


class LoopClock(SystemClock):
    """The virtual loop's time as the wall clock. The loop changes when the world crashes."""

    def __init__(self, world: AsyncWorld) -> None:
        self._world = world

    def now(self) -> int:
        return round(float(self._world.loop.time()) * 1_000_000)

    def elapsed(self) -> float:
        return float(self._world.loop.time())

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class AsyncWorld(vloop.AsyncioWorld):  # type: ignore[misc]  # the runner's own files are not typed
    def __init__(self, tz: str, now: datetime, persisted: object, options: Mapping[str, Any]) -> None:
        super().__init__(tz, now)
        self._tz = tz
        self._options = options
        self._clock = LoopClock(self)
        self._causes: dict[str, str] = {}
        self._retries: dict[str, datetime | None] = {}  # when each task is tried again
        self._serves_retry: str | None = None  # the task whose next start stands for a retry that was due
        self._faults = Faults(latency=timedelta(seconds=options.get("storage_latency_s", 0)))
        self._place = tempfile.TemporaryDirectory(prefix="noonbell-conformance-", ignore_cleanup_errors=True)
        self._folder = Path(self._place.name)
        self._memory = MemoryStore() if os.environ.get("NOONBELL_CONFORMANCE_STORE") == "memory" else None
        self._handle: FaultyStore | None = None
        if persisted:
            self._put(persisted)

    def close(self) -> None:
        """A world that crashed leaves loops that never run again; their timers and tasks go with them."""
        if self._handle is not None:
            self._handle.kill()
        for loop in (*self.dead, self.loop):
            loop.close()
        self._place.cleanup()

    def make_scheduler(self) -> Scheduler:
        if self._handle is None:
            self._handle = FaultyStore(self._plain_store(), self._faults, self._clock)  # type: ignore[arg-type]  # any clock that sleeps will do
        poll = timedelta(seconds=self._options.get("poll_interval_s", 60))
        return Scheduler(
            self._handle, clock=self._clock, on_event=self._on_event, time_zone=self._tz, poll_interval=poll
        )

    def _plain_store(self) -> Ledger:
        if self._memory is not None:
            self._memory = MemoryStore(self._memory.data)
            return self._memory
        return SqliteStore(self._folder / "world.db", threaded=False)

    def _on_event(self, event: SchedulerEvent) -> None:
        if isinstance(event, TaskRunFailed):
            self._retries[event.task] = event.retry_at
        elif isinstance(event, TaskRetryPreempted):
            # where the retry was due as well, the facts call this start a retry: it serves both
            retry_at = self._retries.get(event.task)
            self._serves_retry = event.task if retry_at is not None and retry_at <= event.at else None
        elif isinstance(event, (TaskRunStarted, TaskRetryStarted)):
            self._causes[event.task] = "retry" if self._serves_retry == event.task else event.cause
            self._serves_retry = None

    def mode(self, task: str) -> str | None:
        return self._causes.get(task)

    def fail_storage(self, op: str, times: int) -> None:
        if op == "read":
            self._faults.reads += times
        else:
            self._faults.writes += times

    def crash(self) -> None:
        if self._handle is not None:
            self._handle.kill()
            self._handle = None
        super().crash()

    # --- rows -----------------------------------------------------------------------------------------------------

    def _put(self, persisted: object) -> None:
        records = persisted if isinstance(persisted, list) else [persisted]
        for sid, record in enumerate(records, start=1):
            schedule, live = rows_of(record, sid)
            if self._memory is not None:
                put_in_memory(self._memory.data, schedule, live)
            else:
                self._put_in_file(schedule, live)

    def _put_in_file(self, schedule: dict[str, Any], live: dict[str, Any] | None) -> None:
        store = SqliteStore(self._folder / "world.db", threaded=False)
        self.loop.run_until_complete(store.open())
        store.kill()
        db = apsw.Connection(str(self._folder / "world.db"))
        lane_no = lane_numbers(db, [MANAGED_BY])[MANAGED_BY]
        hot = {str(column[1]) for column in db.execute("PRAGMA table_info(schedule_state)")}
        definition = {name: value for name, value in schedule.items() if name == "sid" or name not in hot}
        state = {"lane_no": lane_no, **{name: value for name, value in schedule.items() if name in hot}}
        for table, row in (("schedule_definitions", definition), ("schedule_state", state), ("runs_live", live)):
            if row is not None:
                marks = ", ".join("?" * len(row))
                db.execute(
                    f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})",  # noqa: S608 - our own column names
                    tuple(row.values()),
                )
        db.close()

    def persisted(self) -> dict[str, dict[str, Any]]:
        store = self._plain_store() if self._handle is None else self._handle.inner
        opened = self._handle is None

        async def read() -> list[Mapping[str, Any]]:
            await store.open()
            return (await store.schedules.read_declared(MANAGED_BY)).rows

        task = self.loop.create_task(read())
        self.loop.drain()
        rows = task.result()
        if opened:
            store.kill()
        return {row["name"]: neutral(row) for row in rows}


def put_in_memory(data: MemoryData, schedule: dict[str, Any], live: dict[str, Any] | None) -> None:
    sid = schedule["sid"]
    data.schedules[sid] = dict.fromkeys(LEDGER_TABLES["schedules"].columns) | schedule
    if live is not None:
        data.live[sid][live["kind"], live["run_for"]] = LiveRun(**live)
    data.reindex()


def rows_of(record: Mapping[str, Any], sid: int) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """A neutral record as a row of `schedules` and, where it says so, one of `runs_live`."""
    stored = translated(record)
    live = None
    if record.get("running_by") is not None or record.get("pending_retry_until") is not None:
        live = {
            "sid": sid, "kind": "scheduled", "run_for": stored.get("last_attempt_at", 0), "fence": 1,
            "owner": stored.pop("owner", None), "attempt": 1,
            "state": "running" if record.get("running_by") is not None else "waiting",
            "wake_at": stored.pop("wake_at", None), "started_at": stored.get("last_attempt_at"),
            "attempt_at": stored.get("last_attempt_at"), "crashes": 0, "epoch": 1, "cause": "cron",
        }  # fmt: skip
    schedule = {
        "sid": sid, "schedule_id": f"stored-{sid}", "enabled": 1, "type": "cron", "timezone": None,
        "managed_by": MANAGED_BY, "epoch": 1, **{k: v for k, v in stored.items() if k not in ("owner", "wake_at")},
    }  # fmt: skip
    return schedule, live


def translated(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record under the store's own names and in its own units."""
    stored: dict[str, Any] = {}
    for key, value in record.items():
        if key in INSTANTS:
            stored[FIELD_NAMES[key]] = instant(value)
        elif key == "retry_delay_s":
            delay = value
            if isinstance(value, int | float) and not isinstance(value, bool):
                delay = round(value * 1_000_000)
            stored[FIELD_NAMES[key]] = delay
        else:
            stored[FIELD_NAMES.get(key, key)] = value
    return stored


def instant(value: object) -> object:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return (datetime.fromisoformat(value) - EPOCH) // timedelta(microseconds=1)
        except ValueError:
            return value
    return str(value)


def neutral(row: Mapping[str, Any]) -> dict[str, Any]:
    """A stored row under the runner's names."""

    def at(value: int | None) -> datetime | None:
        return None if value is None else EPOCH + timedelta(microseconds=value)

    waiting = row["state"] == "waiting"
    return {
        "name": row["name"],
        "cron": row["spec"],
        "retry_delay_s": row["retry_delay_us"] / 1_000_000,
        "last_attempt": at(row["last_attempt_at"]),
        "last_success": at(row["last_success_at"]),
        "last_failure": at(row["last_failure_at"]),
        "pending_retry_until": at(row["wake_at"]) if waiting else None,
        "running_by": row["owner"],
    }


class Adapter(runner.Adapter):  # type: ignore[misc]  # the runner's own files are not typed
    features = frozenset(
        {
            "slow_storage", "fail_storage", "poll_interval", "mode", "raw_persisted", "deserialize", "parse_field",
            "sets",
        }
    )  # fmt: skip
    field_names = FIELD_NAMES

    def parse_cron(self, expr: str) -> dict[str, frozenset[int]]:
        found = parse(expr)
        return {
            "minute": found.minutes,
            "hour": found.hours,
            "day": found.days,
            "month": found.months,
            "weekday": found.weekdays,
        }

    def cron_next(self, expr: str, tz: str, when: datetime) -> datetime:
        return parse(expr).next(when.astimezone(ZoneInfo(tz)))

    def cron_prev(self, expr: str, tz: str, when: datetime) -> datetime:
        return parse(expr).previous(when.astimezone(ZoneInfo(tz)))

    def deserialize(self, record: object, registrations: list[str]) -> None:
        read_task(translated(record) if isinstance(record, Mapping) else record, registrations)

    def parse_field(self, text: str, field: str) -> None:
        parse_field(text, field)

    def __init__(self) -> None:
        self._worlds: list[AsyncWorld] = []

    def new_world(self, tz: str, now: datetime, persisted: object, options: Mapping[str, Any]) -> AsyncWorld:
        world = AsyncWorld(tz, now, persisted, options)
        self._worlds.append(world)
        # the runner asks for one world after the other; a few stay, for whoever still looks at the last
        while len(self._worlds) > 3:
            self._worlds.pop(0).close()
        return world

    def close(self) -> None:
        while self._worlds:
            self._worlds.pop().close()

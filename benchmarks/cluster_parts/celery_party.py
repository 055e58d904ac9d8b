"""The same due load for Celery: one beat and one worker over a Redis server.

    python -m benchmarks.cluster_parts.celery_party beat|worker BROKER LOG OFFSETS

Every schedule is an entry of beat's, due at its instant and never again, kept in beat's own file; the worker runs one
task at a time in its own process ("solo"), which does nothing but tell when it began. So it is less than what Noonbell
does: there may be one beat only, a message that is lost with Redis or with a worker is gone, nothing checks that an
entry fires once, and there is no record of what ran.

Both say "up" when they are; beat is then told on standard input at which microsecond the offsets begin.
"""

from __future__ import annotations

import os
import sys
import time
from array import array
from datetime import UTC, datetime
from pathlib import Path
from struct import pack
from typing import Any, ClassVar, Final

import celery
from celery import beat, schedules, signals

NEVER: Final = 3600.0
PREFETCH: Final = 64


class Once(schedules.BaseSchedule):  # type: ignore[misc]  # Celery has no types
    """Due so many microseconds after the beginning, and then not any more."""

    begin: ClassVar[int] = 1 << 62

    def __init__(self, offset: int, **more: Any) -> None:
        super().__init__(**more)
        self.offset = offset

    def remaining_estimate(self, last_run_at: datetime) -> Any:
        raise NotImplementedError("beat asks is_due alone")

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        at = self.begin + self.offset
        if last_run_at.timestamp() * 1_000_000 >= at:
            return False, NEVER
        left = at / 1_000_000 - time.time()
        return left <= 0, max(left, 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Once) and other.offset == self.offset

    __hash__ = None  # type: ignore[assignment]  # as those of Celery: nothing is kept by them

    def __reduce__(self) -> tuple[Any, ...]:
        return Once, (self.offset,)


def application(broker: str, log: Path) -> Any:
    app = celery.Celery("bench", broker=broker)
    app.conf.update(
        task_ignore_result=True, worker_prefetch_multiplier=PREFETCH, broker_connection_retry_on_startup=True,
        worker_hijack_root_logger=False,
    )  # fmt: skip
    told = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    @app.task(name="fire")  # type: ignore[untyped-decorator]  # Celery has no types
    def fire(number: int) -> None:
        os.write(told, pack("qq", number, time.time_ns() // 1000))

    return app


def run_beat(app: Any, offsets: array[int], file: Path) -> None:
    began = datetime.now(UTC)
    app.conf.beat_schedule = {
        f"{number:08}": {"task": "fire", "schedule": Once(offset), "args": (number,)}
        for number, offset in enumerate(offsets)
    }
    service = beat.Service(app, schedule_filename=str(file))
    for entry in service.scheduler.schedule.values():
        entry.last_run_at = began
    print("up", flush=True)
    Once.begin = int(sys.stdin.readline())
    service.start()


if __name__ == "__main__":
    part, address, where, read = sys.argv[1:]
    bench = application(address, Path(where))
    if part == "beat":
        run_beat(bench, array("q", Path(read).read_bytes()), Path(where).with_name("beat"))
    else:
        # past `print`, which a worker of Celery takes for its log
        signals.worker_ready.connect(lambda **_: os.write(1, b"up\n"), weak=False)
        bench.worker_main(["worker", "--pool=solo", "--without-gossip", "--without-mingle", "--loglevel=ERROR"])

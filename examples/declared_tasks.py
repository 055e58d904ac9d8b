"""Tasks declared once, run durably: an every-minute report and a nightly clean-up.

Run it, end it with ctrl-C, run it again: what was missed meanwhile runs once, and
`noonbell why --db sqlite:///tasks.db report` tells what became of the last minute.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from datetime import timedelta

from noonbell import Scheduler
from noonbell.declarative.events import SchedulerEvent


async def report() -> None:
    print("report: all quiet")


def clean_up() -> None:
    """A plain function: it runs in a thread, so it may block."""
    print("clean-up: nothing to throw away")


def show(event: SchedulerEvent) -> None:
    print(f"  {event.at:%H:%M:%S} {event.name}")


async def main(store: str, seconds: float | None) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, over.set)
    if seconds is not None:
        loop.call_later(seconds, over.set)
    async with Scheduler(store, on_event=show) as scheduler:
        await scheduler.initialize(
            [
                ("report", "* * * * *", report, timedelta(seconds=10)),
                ("clean-up", "30 2 * * *", clean_up, timedelta(minutes=5)),
            ]
        )
        await over.wait()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--store", default="sqlite:///tasks.db")
    options.add_argument("--seconds", type=float, help="end by itself after so long")
    given = options.parse_args()
    asyncio.run(main(given.store, given.seconds))

"""A small program with periodic work: an hourly task, a daily external program, and one that comes and goes.

Run it with `python examples/periodic_tasks.py [STORE]`. It schedules the tasks, runs all of them at once to show what
they do, prints how they stand, and stops. With a store such as sqlite:///tasks.db their history is there the next time.
"""

import asyncio
import logging
import sys
import threading
from datetime import timedelta

from noonbell import periodic

notes: list[str] = []


async def sync_event_log() -> None:
    notes.append("hourly: the event log is in sync")


def clean_cache() -> None:
    notes.append(f"cache: cleaned in the thread {threading.current_thread().name}")


async def main(store: str) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stdout)
    async with periodic.make(periodic.Capabilities(store=store)) as cron:
        daily = periodic.daily_program(cron.capabilities, "my-daily-tasks")
        await periodic.schedule_all(cron.capabilities, hourly=sync_event_log, daily=daily)
        await cron.schedule("clean-cache", "30 3 * * 0", clean_cache, timedelta(minutes=1))

        results = await periodic.run_all_tasks(cron.capabilities)
        print(*sorted(notes), sep="\n")
        print(", ".join(f"{name} {result}" for name, result in results.items()))

        await cron.cancel("clean-cache")
        for task in await cron.get_tasks():
            print(
                f"{task.name:8} {task.cron:10} {task.mode_hint:5} last success: {task.last_success_at:%Y-%m-%d %H:%M}"
            )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))

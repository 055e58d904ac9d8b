"""The periodic work of a whole program: one hourly and one daily task, which the application fills in.

The functions find the scheduler on the capabilities: `make(...).capabilities` carries it.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final, Literal

from noonbell.declarative.registrations import Callback
from noonbell.periodic.capabilities import Capabilities
from noonbell.periodic.scheduler import PeriodicScheduler

HOURLY: Final = "hourly"
DAILY: Final = "daily"
HOURLY_CRON: Final = "0 * * * *"
DAILY_CRON: Final = "0 2 * * *"
RETRY_DELAY: Final = timedelta(minutes=5)


async def schedule_all(
    capabilities: Capabilities, *, hourly: Callback, daily: Callback, retry_delay: timedelta = RETRY_DELAY
) -> None:
    """Schedule `hourly` at the start of each hour and `daily` at 02:00: both, or neither where something is wrong."""
    await _scheduler_of(capabilities).schedule_many(
        [(HOURLY, HOURLY_CRON, hourly, retry_delay), (DAILY, DAILY_CRON, daily, retry_delay)]
    )


async def run_all_tasks(capabilities: Capabilities) -> dict[str, Literal["succeeded", "already running"]]:
    """Run every scheduled task now, side by side, and wait for all of them.

    A task whose run is under way is not started a second time: it is reported as "already running" and not waited for.
    One that fails does not stop the others; when all have ended, the errors are raised together as an ExceptionGroup,
    each with a note that names its task. These runs are not retried and move no schedule.
    """
    scheduler = _scheduler_of(capabilities)
    names = scheduler.task_names
    ended = await asyncio.gather(*(scheduler.run_now(name) for name in names), return_exceptions=True)
    failures: list[BaseException] = []
    results: dict[str, Literal["succeeded", "already running"]] = {}
    for name, outcome in zip(names, ended, strict=True):
        if isinstance(outcome, BaseException):
            outcome.add_note(f'raised by the task "{name}"')
            failures.append(outcome)
        else:
            results[name] = "succeeded" if outcome else "already running"
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} of {len(names)} tasks failed", failures)
    return results


def _scheduler_of(capabilities: Capabilities) -> PeriodicScheduler:
    if capabilities.scheduler is None:
        raise TypeError("these capabilities carry no scheduler; pass those of one: make(...).capabilities")
    return capabilities.scheduler

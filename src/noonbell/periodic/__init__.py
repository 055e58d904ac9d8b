"""The imperative face: named tasks that are scheduled and cancelled while the program runs.

    from datetime import timedelta
    from noonbell import periodic

    async with periodic.make() as cron:
        await cron.schedule("sync-logs", "0 * * * *", sync_logs, timedelta(minutes=5))
        ...

What lives here: `make` and the scheduler it returns, and a façade for programs with an hourly and a daily task
(`schedule_all`, `run_all_tasks`, `daily_program`). Everything from outside comes in as `Capabilities`.

What it promises is what the engine promises, with these policies: one run for all that was missed, runs of a task one
after the other, retries after a fixed delay without end. Retries take precedence until success: occurrences that come
during a chain of retries are coalesced into it, and any success, also of a run by hand, clears a pending retry. It has
no loop, no table and no retry rule of its own. By default nothing outlives the process; with a durable store the state
does.
"""

from noonbell.periodic.capabilities import Capabilities, ProgramOutput, run_program
from noonbell.periodic.daily import daily_program
from noonbell.periodic.facade import DAILY, HOURLY, run_all_tasks, schedule_all
from noonbell.periodic.scheduler import PeriodicScheduler, make, validate
from noonbell.periodic.task_snapshots import ModeHint, TaskSnapshot

__all__ = [
    "DAILY",
    "HOURLY",
    "Capabilities",
    "ModeHint",
    "PeriodicScheduler",
    "ProgramOutput",
    "TaskSnapshot",
    "daily_program",
    "make",
    "run_all_tasks",
    "run_program",
    "schedule_all",
    "validate",
]

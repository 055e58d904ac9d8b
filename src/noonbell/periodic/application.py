"""The tasks of an application in a process that is not its own: `noonbell serve --tasks package.module`.

The module says what `Scheduler.initialize` takes, as `registrations`: a list of (name, cron expression, callback, retry
delay), or a function that returns one. The tasks are those that the module has now: what an earlier version of it left
in the store is taken out. They can be run now by name, which is what `GET /api/periodic` does with `hourly` and
`daily`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from noonbell.declarative.registrations import validate
from noonbell.engine import clock_for
from noonbell.errors import NoonbellError, RegistrationError, describe_error
from noonbell.periodic.capabilities import Capabilities
from noonbell.periodic.scheduler import PeriodicScheduler, make
from noonbell.ports import Clock, Ledger

ATTRIBUTE: Final = "registrations"
NAME: Final = "application"
_POLL: Final = timedelta(minutes=1)


def load_registrations(module: str) -> Sequence[Any]:
    """Return the registrations that a module declares; every error names the module."""
    try:
        found = getattr(importlib.import_module(module), ATTRIBUTE)
    except AttributeError:
        right = f"it must have {ATTRIBUTE}, a list of (name, cron expression, callback, retry delay)"
        raise RegistrationError(f"The module {module} declares no tasks: {right}", module=module) from None
    except ImportError as error:
        message = f"The module {module} cannot be imported: {error}; is its folder on PYTHONPATH?"
        raise RegistrationError(message, module=module) from error
    except Exception as error:
        raise RegistrationError(
            f"The module {module} failed while it was imported: {describe_error(error)}", module=module
        ) from error
    registrations = found() if callable(found) else found
    try:
        validate(registrations, poll_interval=_POLL)
    except NoonbellError as error:
        error.add_note(f"declared by the module {module}")
        raise
    return list(registrations)


async def start_application_tasks(
    store: Ledger,
    registrations: Sequence[Any],
    *,
    clock: Clock | None = None,
    time_zone: str | None = None,
    threads: int | None = None,
) -> PeriodicScheduler:
    """Run the tasks on this store and take out those that are declared no more, until what is returned is closed."""
    given = Capabilities(store=store, clock=clock_for(store) if clock is None else clock)
    scheduler = make(given, poll_interval=_POLL, name=NAME, time_zone=time_zone, threads=threads)
    await scheduler.schedule_many(registrations)
    declared = {name for name, *_ in registrations}
    stored = await store.schedules.read_declared(f"periodic:{NAME}")
    for name in {str(row["name"]) for row in stored.rows} - declared:
        await scheduler.cancel(name)
    return scheduler

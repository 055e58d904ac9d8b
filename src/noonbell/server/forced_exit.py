"""The last step of `serve` and `worker` if a stop has cancelled runs: they are queued again, and may still run."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from noonbell.bootstrap import Service

# The time for cancelled tasks to handle the cancellation.
_LEAVE_SECONDS: Final = 1.0


async def leave(service: Service) -> NoReturn:
    """End the process: cancel all tasks, wait briefly so that commands get their signal, and exit.

    Results of runs that end after this are not recorded: for the store and the next start, they were cancelled.
    """
    service.store.kill()
    logging.shutdown()
    logging.disable(logging.CRITICAL)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=_LEAVE_SECONDS)  # long enough for a command to be sent its signal
    sys.stdout.flush()
    os._exit(0)

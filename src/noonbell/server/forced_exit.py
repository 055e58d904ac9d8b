"""The last step of `serve` and `worker` where a stop has cut off runs: they are handed back, and may still go on."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from noonbell.bootstrap import Service

# What was given up has this long to hear of it.
_LEAVE_SECONDS: Final = 1.0


async def leave(service: Service) -> NoReturn:
    """End the process: what still runs is told to end, and then nobody waits for it any more.

    Nothing that it still says or writes counts: to the store and the next start it was cut off.
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

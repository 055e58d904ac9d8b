"""The clock: the only way time enters."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Clock(Protocol):
    """The only way time enters."""

    def now(self) -> int:
        """Wall time, in microseconds since 1970."""
        ...

    def elapsed(self) -> float:
        """Seconds on a clock that is never set and runs through suspend."""
        ...

    async def wait(self, until: int, wakeup: asyncio.Event) -> None:
        """Return when the wall time has come or `wakeup` is set, whichever is first."""
        ...

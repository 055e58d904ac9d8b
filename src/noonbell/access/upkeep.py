"""The upkeep of access: writes when API keys were last used, and now and then forgets sessions that have ended."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from noonbell.access.access import Access
from noonbell.background import PeriodicService
from noonbell.errors import NoonbellError, describe_error
from noonbell.ports import Clock

logger = logging.getLogger("noonbell.service")

_PASSES_PER_SWEEP: Final = 40


class Upkeep(NamedTuple):
    """The result of a pass: whether the last uses are written, and how many sessions were removed."""

    written: bool
    swept: int = 0


class AccessUpkeep(PeriodicService[Upkeep]):
    """Keeps the records of access up to date. Where the store fails, the next pass does it."""

    def __init__(self, access: Access, clock: Clock, *, interval_us: int) -> None:
        super().__init__(clock, interval_us, at_once=False)
        self._access = access
        self._passes = 0

    async def run_once(self) -> Upkeep:
        self._passes += 1
        written = await self.write_uses()
        return Upkeep(written, 0 if self._passes % _PASSES_PER_SWEEP else await self._sweep())

    async def write_uses(self) -> bool:
        """Write the last uses of API keys; False where that failed."""
        try:
            await self._access.write_uses()
        except NoonbellError as error:
            logger.warning("last uses of API keys not written reason=%s", describe_error(error))
            return False
        return True

    async def _sweep(self) -> int:
        try:
            return await self._access.sweep()
        except NoonbellError as error:
            logger.warning("expired sessions not deleted reason=%s", describe_error(error))
            return 0

"""The refresh of secrets: keeps those of every team known, so that each of them is masked.

A callback may show a secret that no job of this process has asked for.
"""

from __future__ import annotations

from typing import Final

from noonbell.actions.secrets.secrets import Secrets
from noonbell.background import PeriodicService
from noonbell.ports import Clock

_INTERVAL: Final = 5_000_000


class SecretsRefresh(PeriodicService[None]):
    """Reads the secrets that have changed. A start reads them before it."""

    def __init__(self, secrets: Secrets, clock: Clock) -> None:
        super().__init__(clock, _INTERVAL, at_once=False)
        self._secrets = secrets

    async def run_once(self) -> None:
        await self._secrets.know_all()

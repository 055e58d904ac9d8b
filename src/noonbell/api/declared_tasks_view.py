"""Tasks that programs have declared (`Scheduler`, `periodic`), read-only.

They are in the same table as durable schedules and belong to the first team. Programs declare few of them, so all are
read at once and cached briefly: they add no cost to a page of schedules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, cast

from fastapi import Depends, Request

from noonbell.api.deps import Serving
from noonbell.core.records import DEFAULT_TEAM
from noonbell.ledger.ledger_rows import declared_tasks
from noonbell.ports import Clock, Ledger

_FRESH_SECONDS: Final = 2.0


class DeclaredTasks:
    """The declared tasks of a store."""

    def __init__(self, store: Ledger, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._kept: Sequence[Mapping[str, Any]] = ()
        self._kept_at: float | None = None

    async def of_team(self, team: str) -> Sequence[Mapping[str, Any]]:
        """Return rows by sid; teams other than the first have none."""
        return await self._all() if team == DEFAULT_TEAM else ()

    async def find(self, team: str, schedule_id: str) -> Mapping[str, Any] | None:
        return next((row for row in await self.of_team(team) if row["schedule_id"] == schedule_id), None)

    async def _all(self) -> Sequence[Mapping[str, Any]]:
        now = self._clock.elapsed()
        if self._kept_at is None or now - self._kept_at > _FRESH_SECONDS:
            self._kept = await declared_tasks(self._store)
            self._kept_at = now
        return self._kept


def _declared(request: Request, service: Serving) -> DeclaredTasks:
    state = request.app.state
    if not hasattr(state, "declared"):
        state.declared = DeclaredTasks(service.store, service.clock)
    return cast("DeclaredTasks", state.declared)


Declared = Annotated[DeclaredTasks, Depends(_declared)]

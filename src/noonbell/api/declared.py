"""Tasks that programs have declared (`Scheduler`, `periodic`), for looking at.

They live in the same table as durable schedules and belong to the first team. There are as many as programs have
written down, so all of them are read at once, and kept for a moment: a page of schedules costs no more for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, cast

from fastapi import Depends, Request

from noonbell.api.deps import Serving
from noonbell.core.records import DECLARED_OWNERS, DEFAULT_TEAM
from noonbell.ledger.reading import rows
from noonbell.ports import Clock, Store

_FRESH_SECONDS: Final = 2.0


class DeclaredTasks:
    """The declared tasks of a store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._kept: Sequence[Mapping[str, Any]] = ()
        self._kept_at: float | None = None

    async def of_team(self, team: str) -> Sequence[Mapping[str, Any]]:
        """Rows by sid; other teams than the first have none."""
        return await self._all() if team == DEFAULT_TEAM else ()

    async def find(self, team: str, schedule_id: str) -> Mapping[str, Any] | None:
        return next((row for row in await self.of_team(team) if row["schedule_id"] == schedule_id), None)

    async def _all(self) -> Sequence[Mapping[str, Any]]:
        now = self._clock.elapsed()
        if self._kept_at is None or now - self._kept_at > _FRESH_SECONDS:
            found = [row for owner in await self._owners() for row in await self._store.schedules(owner, removed=False)]
            self._kept = sorted(found, key=lambda row: int(row["sid"]))
            self._kept_at = now
        return self._kept

    async def _owners(self) -> list[str]:
        """Everybody who has ever declared tasks here: each has begun a life."""
        owners: dict[str, None] = {}
        async for page in rows(self._store, "lifecycle"):
            for _, managed_by, *_ in page:
                if isinstance(managed_by, str) and managed_by.startswith(DECLARED_OWNERS):
                    owners[managed_by] = None
        return list(owners)


def _declared(request: Request, service: Serving) -> DeclaredTasks:
    state = request.app.state
    if not hasattr(state, "declared"):
        state.declared = DeclaredTasks(service.store, service.clock)
    return cast("DeclaredTasks", state.declared)


Declared = Annotated[DeclaredTasks, Depends(_declared)]

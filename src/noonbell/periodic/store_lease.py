"""The time in which a scheduler has its store: from the first task to the last.

`begin` opens the store, takes the name and reads what an earlier life has left; `end` lets go. In between the name is
ours alone, so what was read stays true but for what we change ourselves.
"""

from __future__ import annotations

import logging
import os
import socket
from datetime import UTC
from typing import Final, Literal

from noonbell.core.instants import moment
from noonbell.core.records import Declaration, LifecycleEvent, RemovedSchedule
from noonbell.errors import StoreError, describe_error
from noonbell.ports import LEDGER_TABLES, Clock, Declared, Hold, Ledger

_CURSOR: Final = LEDGER_TABLES["schedules"].columns.index("cursor_at")


class StoreLease:
    """One owner's hold on a store."""

    def __init__(
        self, store: Ledger, clock: Clock, logger: logging.Logger, *, managed_by: str, instance: str, owns_store: bool
    ) -> None:
        self.store = store
        self._clock = clock
        self._logger = logger
        self._managed_by = managed_by
        self._instance = instance
        self._owns_store = owns_store
        self._hold: Hold | None = None

    @property
    def begun(self) -> bool:
        return self._hold is not None

    async def begin(self) -> Declared:
        """Open the store and take the name, or raise and leave nothing open."""
        try:
            await self.store.open()
            since = moment(self._clock.now(), UTC).isoformat(timespec="seconds")
            holder = f"process {os.getpid()} on {socket.gethostname()} since {since} (instance {self._instance})"
            self._hold = await self.store.hold(self._managed_by, holder)
            return await self.store.schedules.read_declared(self._managed_by)
        except BaseException:
            await self.end()
            raise

    def beginning(self, declared: Declared) -> list[LifecycleEvent]:
        """The events that belong to the first declaration: our start, and the crash before it if there was one."""
        now, last = self._clock.now(), declared.last_lifecycle
        events = [LifecycleEvent(self._managed_by, now, self._instance, "init-ok")]
        if last is not None and last.event in ("init-ok", "stop-start"):
            crash = LifecycleEvent(self._managed_by, now, last.instance, "crash", "inferred at the next start")
            events.insert(0, crash)
        return events

    async def record(self, event: Literal["stop-start", "stop-end"], detail: str = "") -> None:
        """Note a step of our life; a store that fails now must not keep us from stopping."""
        try:
            step = LifecycleEvent(self._managed_by, self._clock.now(), self._instance, event, detail)
            await self.store.schedules.declare(Declaration(self._managed_by, step.at, events=[step]))
        except Exception as error:
            expected = isinstance(error, StoreError)
            self._logger.error("%s could not be recorded: %s", event, describe_error(error), exc_info=not expected)  # noqa: TRY400 - a trace only where it adds something

    async def remove(self, sids: list[int]) -> None:
        """Close the account of these schedules at their cursor; what waits or is interrupted there ends."""
        now = self._clock.now()
        removed = [RemovedSchedule(sid, await self._cursor(sid, now)) for sid in sids]
        if removed:
            await self.store.schedules.declare(Declaration(self._managed_by, now, removed=removed))

    async def end(self) -> None:
        """Let go of the name, and of the store if it is ours."""
        # closed first: what is still on its way to the store belongs to our time under this name
        hold, self._hold = self._hold, None
        try:
            if self._owns_store:
                await self.store.close()
        finally:
            if hold is not None:
                hold.release()

    async def _cursor(self, sid: int, now: int) -> int:
        rows = await self.store.read("schedules", None, 1, above_sid=sid - 1, upto_sid=sid)
        cursor = rows[0][_CURSOR] if rows else None
        return cursor if type(cursor) is int else now  # an unchecked row may hold anything

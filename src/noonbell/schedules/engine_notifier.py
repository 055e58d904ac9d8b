"""The link between an edit and the engines: their polls and rules for the edit, and a wake-up for the engine here.

An edit is written whether an engine runs or not. Where one runs in this process it is woken at once; others notice by
themselves, or by a hint of the store.
"""

from __future__ import annotations

from collections.abc import Mapping

from noonbell.actions.registry import Actions
from noonbell.core.presence import Polls
from noonbell.notify.notifier import Notifier
from noonbell.ports import Clock
from noonbell.schedules.changes import EditBuilder
from noonbell.schedules.history import RunHistory
from noonbell.schedules.lane_runner import LaneRunner


class EngineNotifier(RunHistory):
    """The part of `Schedules` that stands between edits and the engine."""

    _lane: LaneRunner
    _actions: Actions
    _clock: Clock

    def _wake(self, at: int | None) -> None:
        if self._lane.engine is not None and at is not None:
            self._lane.engine.wake(at)

    def _wake_after(self, change: EditBuilder) -> None:
        self._wake(change.wake_at)
        if change.sent:
            self._actions.wake()

    async def _notifier(self) -> Notifier | None:
        """Return the notifier of an edit's decisions; an engine that runs here keeps its rules up to date."""
        desk = self._lane.desk
        if desk is None:
            return None
        if self._lane.engine is None:
            await desk.refresh()
        return desk.notifier

    async def _polls(self) -> Mapping[str, Polls]:
        """Return when each lane was polled, wherever its engines run."""
        found, lane = await self._store.engines.polls(), self._lane
        if lane.engine is not None and lane.engine.last_poll_at is not None:  # it may not be recorded yet
            polls = lane.engine.work.with_unrecorded(found.get(lane.name, Polls()))
            found[lane.name] = polls.polled(lane.engine.last_poll_at, lane.engine.work.grace_us, self._clock.now())
        return found

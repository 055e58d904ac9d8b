"""Reasons why runs of an accepted schedule may not start: no engine of its lane, a callback that is unknown here.

Neither is an error: an engine may be started later, and another program may register the function.
"""

from __future__ import annotations

import logging

from noonbell.actions.registry import Actions
from noonbell.core.presence import lanes_up
from noonbell.ports import ScheduleStore
from noonbell.schedules.lane import Lane
from noonbell.schedules.records import Schedule

logger = logging.getLogger("noonbell.schedules")


class RunWarnings:
    """The part of `Schedules` that knows whether something can run."""

    _store: ScheduleStore
    _lane: Lane
    _actions: Actions
    _is_view: bool

    @property
    def poll_age(self) -> float | None:
        """Seconds since the engine here completed a poll, or since it began; None where none runs."""
        return None if self._lane.engine is None else self._lane.engine.poll_age

    async def warnings(self, schedule: Schedule) -> list[str]:
        """Why runs of a schedule may not start, as sentences; empty where nothing is known against it."""
        found = []
        if schedule.lane not in lanes_up(await self._store.engines(0)):
            found.append(no_engine(schedule.lane))
        if unknown := self._unknown_callback(schedule):
            found.append(unknown)
        return found

    def _unknown_callback(self, schedule: Schedule) -> str | None:
        name = schedule.action.get("name")
        if schedule.action.get("kind") != "callback" or name in self._actions.callbacks:
            return None
        return unknown_callback(str(name))

    def _with_callback_logged(self, schedule: Schedule) -> Schedule:
        """Log a callback that is unknown to a program that registers some or runs an engine; another cannot know."""
        told = self._unknown_callback(schedule)
        if told is not None and not self._is_view and (self._actions.callbacks or self._lane.engine is not None):
            logger.warning("schedule=%s %s", schedule.schedule_id, told)
        return schedule

    async def _log_no_engine(self, schedule_id: str) -> None:
        if not self._is_view and self._lane.engine is None and not await self._store.engines(0):
            logger.warning("schedule=%s no engine is up: the run starts when one is started", schedule_id)


def no_engine(lane: str) -> str:
    return f'No engine of the lane "{lane}" is up: runs start when one is started (noonbell serve, or noonbell worker).'


def unknown_callback(name: str) -> str:
    return f'No callback "{name}" is registered here: runs start only in an engine whose program registers it.'

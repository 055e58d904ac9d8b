"""Reasons why runs of an accepted schedule may not start: no engine of its lane, a callback that is unknown here.

Neither is an error: an engine may be started later, and another program may register the function.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from noonbell.actions.registry import Actions
from noonbell.core.presence import lanes_up
from noonbell.core.records import DurableSchedule
from noonbell.core.turns import definition_of
from noonbell.ports import Clock, Ledger
from noonbell.schedules.lane_runner import LaneRunner
from noonbell.schedules.schedule_records import Schedule
from noonbell.schedules.warnings import Here, Subject, log, no_engine, of_many, unknown_callback

logger = logging.getLogger("noonbell.schedules")


class RunWarnings:
    """The part of `Schedules` that knows whether something can run."""

    _store: Ledger
    _clock: Clock
    _lane: LaneRunner
    _actions: Actions
    _is_view: bool

    @property
    def poll_age(self) -> float | None:
        """Seconds since the engine here completed a poll, or since it began; None where none runs."""
        return None if self._lane.engine is None else self._lane.engine.poll_age

    async def warnings(self, schedule: Schedule) -> list[str]:
        """Why runs of a schedule may not start, as sentences; empty where nothing is known against it."""
        found = []
        if schedule.lane not in lanes_up((await self._store.engines.members(0)).alive):
            found.append(no_engine(schedule.lane))
        if unknown := self._unknown_callback(schedule):
            found.append(unknown)
        return found

    async def warnings_of_many(self, many: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return all warnings about schedules that were created here, by their fields: each kind once, with a count."""
        subjects = [
            Subject(
                str(fields["schedule_id"]), str(fields.get("name", fields["schedule_id"])), self._lane.name,
                fields["action"], fields.get("type") == "one_shot" and bool(fields.get("quiet_hours_policy_id")),
            )
            for fields in many
        ]  # fmt: skip
        return list(await of_many(self._store, subjects, self.here, self._clock.now()))

    @property
    def here(self) -> Here:
        """Return what this program registers and delivers to; a command that it does not allow is an error, not a
        warning.
        """
        return Here(self._actions.callbacks, self._actions.targets, self._lane.engine is not None)

    def _unknown_callback(self, schedule: Schedule) -> str | None:
        name = schedule.action.get("name")
        if schedule.action.get("kind") != "callback" or name in self._actions.callbacks:
            return None
        return unknown_callback(str(name))

    def _with_callback_logged(self, schedule: Schedule) -> Schedule:
        """Log a callback that is unknown to a program that registers some or runs an engine; another cannot know."""
        warning = self._unknown_callback(schedule)
        if warning is not None and not self._is_view and (self._actions.callbacks or self._lane.engine is not None):
            logger.warning("schedule=%s %s", schedule.schedule_id, warning)
        return schedule

    def _log_unknown_callbacks(self, made: Sequence[DurableSchedule]) -> None:
        """The same for many: each callback once, a few of them by name."""
        if self._is_view or not (self._actions.callbacks or self._lane.engine is not None):
            return
        actions = [definition_of(text).action for text in {new.columns.definition for new in made}]
        named = {str(one.get("name")) for one in actions if one.get("kind") == "callback"}
        log([unknown_callback(name) for name in sorted(named - {*self._actions.callbacks})])

    async def _log_no_engine(self, schedule_id: str) -> None:
        if not self._is_view and self._lane.engine is None and not (await self._store.engines.members(0)).alive:
            logger.warning("schedule=%s no engine is up: the run starts when one is started", schedule_id)

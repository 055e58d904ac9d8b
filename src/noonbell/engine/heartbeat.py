"""The heartbeat: records the state of an engine, its load and its last poll, every few seconds.

The lease itself is renewed by the store. What is recorded here is for people, and for the others of the lane: the last
poll decides what was missed (`core.presence`). After each beat the engine reads which others are up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from noonbell.background import PeriodicService
from noonbell.engine.membership import Membership
from noonbell.ports import Clock

ReadLoad = Callable[[], tuple[int, dict[str, Any]]]


class Beat(NamedTuple):
    """The result of a heartbeat: other engines of the lane, and zone data of an engine that is new here."""

    others_up: bool
    new_zone_data: bool


class Heartbeat(PeriodicService[Beat]):
    """Beats for one engine. `read_load` returns since when the lane is up, and the load of the engine."""

    def __init__(
        self,
        member: Membership,
        clock: Clock,
        *,
        interval_us: int,
        read_load: ReadLoad,
        on_new_zone_data: Callable[[], None],
    ) -> None:
        super().__init__(clock, interval_us, at_once=False)  # the start of an engine is a beat
        self._member = member
        self._read_load = read_load
        self._on_new_zone_data = on_new_zone_data

    async def run_once(self) -> Beat:
        member = self._member
        member.up_since, load = self._read_load()
        await member.beat(member.state, load)
        news = await member.see_others()
        if news:
            self._on_new_zone_data()
        return Beat(member.others_up, news)

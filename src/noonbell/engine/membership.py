"""One life of an engine among those that share its lane: joining, signs of life, rescuing the dead, leaving.

- *Join*: a name of its own is held, which is never used again, and the engine is put beside the others.
- *Signs of life*: the name is kept by the store itself. Beside it the engine writes its state and its load, for people,
  and when it last polled, which decides what was missed (`core.presence`).
- *Rescue*: every engine looks for those that died without leaving, every second or two; what they had in hand is queued
  again at once, and whoever is free starts it. What another had locked at that moment is freed at the next look. Once
  a minute it looks without a reason, for what a failed stop may have left behind. An engine that is alive is never
  touched.
- *Leave*: the name is let go when nothing of the engine runs any more.

An engine that stood still for so long that another has rescued its runs finds its name gone (HoldLostError). It has to
end, and may join again as a new one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final

from noonbell.core.presence import GRACE_US, EngineRecord, EngineSign, EngineState, engine_name, lane_name
from noonbell.core.records import LifecycleEvent
from noonbell.errors import SchedulerInUseError
from noonbell.ports import Clock, Hold, Rescue, ScheduleStore, TellCut

_SECOND: Final = 1_000_000
LOOK: Final = 2 * _SECOND
BEAT: Final = 5 * _SECOND
RECORDED_WITHIN: Final = BEAT + LOOK  # so long after a poll it is in the store at the latest
_SWEEP: Final = 60 * _SECOND
_SHORTEST: Final = 200_000


class Membership:
    """An engine of a lane, from joining to leaving."""

    def __init__(
        self,
        store: ScheduleStore,
        clock: Clock,
        lane: str,
        *,
        version: str = "-",
        zone_data: Callable[[], str] = lambda: "-",
    ) -> None:
        self.host, self.pid = socket.gethostname(), os.getpid()
        self.instance = f"{self.host}-{self.pid}-{uuid.uuid4().hex[:8]}"
        self.up_since = 0
        self.state: EngineState = "starting"
        self.others_up = False  # whether other engines of the lane are, as last seen
        self.polled: Callable[[], tuple[int | None, int]] = lambda: (None, GRACE_US)  # the last poll, and the grace
        self._store = store
        self._clock = clock
        self._lane = lane
        self._version = version
        self._zone_data = zone_data
        self._known_data: set[str] = set()
        self._hold: Hold | None = None
        self._swept = 0.0
        self._left = 0  # what the last rescue has left to the next
        self._beaten = 0.0

    # --- coming and going -----------------------------------------------------------------------------------------

    async def join(self) -> None:
        """Hold the name and stand beside the others; SchedulerInUseError where an older Noonbell has the lane alone."""
        alone = await self._store.holder(lane_name(self._lane))
        if alone is not None:
            raise SchedulerInUseError(lane_name(self._lane), alone)
        told = f"process {self.pid} on {self.host} (instance {self.instance})"
        self._hold = await self._store.hold(engine_name(self.instance), told)
        now = self._clock.now()
        data = self._zone_data()
        record = EngineRecord(self.instance, self._lane, self.host, self.pid, self._version, data, now, now, self.state)
        self.up_since = await self._store.join(record)
        await self._look_around()

    async def record(self, event: Any, detail: str = "") -> None:
        """Write into the lifecycle of the lane."""
        told = LifecycleEvent(lane_name(self._lane), self._clock.now(), self.instance, event, detail)
        await self._store.record(told)

    async def leave(self) -> None:
        """Nothing of this engine runs any more; `release` lets go of its name."""
        await self._store.leave(self.instance)

    def release(self) -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.release()

    # --- being there ----------------------------------------------------------------------------------------------

    async def beat(self, state: EngineState, load: dict[str, Any] | None = None) -> None:
        """Tell of this engine."""
        self.state = state
        self._beaten = self._clock.elapsed()
        last_poll_at, grace_us = self.polled()
        sign = EngineSign(
            self.instance, self._clock.now(), self.up_since, state, self._zone_data(), load or {}, last_poll_at,
            grace_us,
        )  # fmt: skip
        await self._store.beat(sign, self._clock.now)

    async def rescue(self, tell: TellCut | None = None) -> Rescue:
        """Free what dead engines have left."""
        self._swept = self._clock.elapsed()
        rescued = await self._store.take_over(self._lane, self.instance, self._clock.now(), tell)
        self._left = rescued.left
        return rescued

    async def hand_over(self, tell: TellCut | None = None) -> Rescue:
        """Free what this engine itself has cut off."""
        return await self._store.take_over(self._lane, self.instance, self._clock.now(), tell, stopped=True)

    async def watch(
        self,
        stop: asyncio.Event,
        told: Callable[[], tuple[int, dict[str, Any]]],
        rescue: Callable[[], Awaitable[None]],
        compare_zones: Callable[[], Awaitable[None]],
    ) -> None:
        """The duty: look for the dead and `rescue`, and tell of this engine what `told` says, until `stop` is set.

        When another engine, of whatever lane, turns up with other zone data, `compare_zones` is called.
        """
        look, beat = self._paces()
        while not stop.is_set():
            now = self._clock.elapsed()
            due = self._left > 0 or now - self._swept >= _SWEEP / _SECOND
            if due or await self._store.dead_engines(self._lane):
                await rescue()
            if now - self._beaten >= beat / _SECOND:
                self.up_since, load = told()
                await self.beat(self.state, load)
                if await self._look_around():
                    await compare_zones()
            await self._clock.wait(self._clock.now() + look, stop)

    async def _look_around(self) -> bool:
        """See who else is up. True: somebody goes by zone data that nobody had before, and this host does not have."""
        engines = await self._store.engines(self._clock.now())
        self.others_up = any(
            one.lane == self._lane and one.state == "up" and one.instance != self.instance for one in engines
        )
        seen = {one.zone_data for one in engines} - {self._zone_data()}
        news = seen - self._known_data
        self._known_data = seen
        return bool(news)

    def _paces(self) -> tuple[int, int]:
        """How often to look and to tell: each at least three times in the life of a lease."""
        third = round(self._store.lease_seconds * _SECOND / 3)
        if not third:
            return LOOK, BEAT
        return max(min(LOOK, third), _SHORTEST), max(min(BEAT, third), _SHORTEST)

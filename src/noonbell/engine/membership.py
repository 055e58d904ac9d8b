"""One life of an engine among those that share its lane: it joins, is seen by the others, and leaves.

- *Join*: the engine takes a lease under a name of its own, which is never used again, and is listed beside the others.
- *Leave*: the lease is released when nothing of the engine runs any more.

In between, `heartbeat` records its state and its last poll, and `rescue` frees what dead engines have left. An engine
that stood still for so long that another has rescued its runs finds its lease lost (LeaseLostError). It has to end, and
may join again as a new one.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from noonbell.core.presence import GRACE_US, EngineRecord, EngineSign, EngineState, engine_name, lane_name, others_up
from noonbell.core.records import LifecycleEvent, LifecycleStep
from noonbell.errors import SchedulerInUseError
from noonbell.ports import Clock, Hold, Ledger

LOOK: Final = 2_000_000
BEAT: Final = 5_000_000
RECORDED_WITHIN: Final = BEAT + LOOK  # so long after a poll it is in the store at the latest
_SHORTEST: Final = 200_000


class Intervals(NamedTuple):
    """The intervals at which an engine looks for dead ones and records its own state."""

    look_us: int
    beat_us: int


def intervals(lease_seconds: float) -> Intervals:
    """Return the intervals, each at most a third of the lease. 0: without a lease, a death is known at once."""
    third = round(lease_seconds * 1_000_000 / 3)
    if not third:
        return Intervals(LOOK, BEAT)
    return Intervals(max(min(LOOK, third), _SHORTEST), max(min(BEAT, third), _SHORTEST))


class Membership:
    """An engine of a lane, from joining to leaving."""

    def __init__(
        self,
        store: Ledger,
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
        self.others_up = False  # other engines of the lane are, as last seen
        self.polled: Callable[[], tuple[int | None, int]] = lambda: (None, GRACE_US)  # the last poll, and the grace
        self._store = store
        self._clock = clock
        self._lane = lane
        self._version = version
        self._zone_data = zone_data
        self._known_data: set[str] = set()
        self._hold: Hold | None = None

    async def join(self) -> None:
        """Take the lease and join the other engines; SchedulerInUseError where an older Noonbell has the lane."""
        alone = await self._store.holder(lane_name(self._lane))
        if alone is not None:
            raise SchedulerInUseError(lane_name(self._lane), alone)
        holder = f"process {self.pid} on {self.host} (instance {self.instance})"
        self._hold = await self._store.hold(engine_name(self.instance), holder)
        now = self._clock.now()
        data = self._zone_data()
        record = EngineRecord(self.instance, self._lane, self.host, self.pid, self._version, data, now, now, self.state)
        self.up_since = await self._store.engines.join(record)
        await self.see_others()

    async def beat(
        self, state: EngineState, load: dict[str, Any] | None = None, *, event: LifecycleStep | None = None
    ) -> None:
        """Record the state of this engine, its load, its last poll, and a step of its life."""
        self.state = state
        last_poll_at, grace_us = self.polled()
        sign = EngineSign(
            self.instance, self._clock.now(), self.up_since, state, self._zone_data(), load or {}, last_poll_at,
            grace_us, self._step(event),
        )  # fmt: skip
        await self._store.engines.beat(sign, self._clock.now)

    async def see_others(self) -> bool:
        """Read which engines are up; returns whether one has zone data that is new here and not this host's."""
        engines = (await self._store.engines.members(self._clock.now())).alive
        self.others_up = others_up(engines, self._lane, self.instance)
        seen = {one.zone_data for one in engines} - {self._zone_data()}
        news = seen - self._known_data
        self._known_data = seen
        return bool(news)

    async def leave(self, *, event: LifecycleStep | None = None) -> None:
        """Record that nothing of this engine runs any more; `release` gives up the lease."""
        await self._store.engines.leave(self.instance, self._step(event))

    def _step(self, event: LifecycleStep | None) -> LifecycleEvent | None:
        """Return an event in the lifecycle of the lane."""
        if event is None:
            return None
        return LifecycleEvent(lane_name(self._lane), self._clock.now(), self.instance, event)

    def release(self) -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.release()

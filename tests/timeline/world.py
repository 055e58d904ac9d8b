"""Durable schedules on manual time with a real Redis server in front of their store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from noonbell.ports import Ledger
from noonbell.schedules import Schedules
from noonbell.timeline import RedisTimeline, TimelineStore, with_timeline
from tests.schedules.conftest import World
from tests.schedules.patience import PatientClock, PatientPostgres


class TimelineWorld(World):
    """As `World`; the clock stands still while Redis is asked, too."""

    store: TimelineStore

    def __init__(self, make_store: Callable[[], Ledger], url: str, namespace: str, *, shards: int = 1) -> None:
        self._place = (url, namespace, shards)
        super().__init__(make_store)

    def _new(self) -> Schedules:
        self.store = self.another()
        return self.on(self.store)

    def on(self, store: TimelineStore) -> Schedules:
        """A further `Schedules` in this world."""
        return Schedules(
            store,
            clock=self.clock,
            callbacks={"work": self.work},
            longest_wait=timedelta(seconds=50),
        )

    def another(self) -> TimelineStore:
        """Another handle on the same data, with its own connection to Redis."""
        store = self._make_store()
        if isinstance(store, PatientPostgres):
            store.attend(self.clock)
        url, namespace, shards = self._place
        timeline = RedisTimeline(url, namespace=namespace, shards=shards)
        attend(timeline, self.clock)
        return with_timeline(store, timeline, self.clock)


def attend(timeline: RedisTimeline, clock: PatientClock) -> None:
    """Let a clock wait for what is asked of Redis."""
    timeline.link.ask = clock.under_way.watch(timeline.link.ask)  # type: ignore[method-assign,assignment]  # watched

"""Services beside the loop of an engine: the set is filled and watched, and hints of others are heard.

`Keeper` looks once a second at what is known of the set. One that is not whole (at the start, after Redis was away,
emptied or damaged) is rebuilt from the database, by one engine at a time; until then claims go to the database. A
whole one is filled further every minute: only with what has come within the horizon since, page by page.

`HintListener` subscribes to hints: a process that writes something that wakes before all the rest publishes when, and
an engine that sleeps longer polls then. A hint that is lost costs at most the engine's longest wait.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from asyncio import FIRST_COMPLETED
from collections.abc import Callable
from typing import Final

from noonbell.background import PeriodicService
from noonbell.errors import TimelineAwayError, TimelineError, describe_error
from noonbell.ports import Clock, Ledger, WakeFilter
from noonbell.timeline.claiming import HORIZON_US, SLACK_US, may_be_whole
from noonbell.timeline.timeline_store import TimelineStore

logger = logging.getLogger("noonbell.timeline")

_LOOK_US: Final = 1_000_000
_FEED_US: Final = 60_000_000
_PAGE: Final = 20_000
_LISTEN_AGAIN_US: Final = 5_000_000
_DOUBT_SECONDS: Final = 10.0
_BEFORE_ALL: Final = (-1, -1)


class Keeper(PeriodicService[bool]):
    """Keeps the set of one lane whole."""

    def __init__(
        self, with_timeline: TimelineStore, store: Ledger, clock: Clock, lane: str, wake: Callable[[int], None]
    ) -> None:
        super().__init__(clock, _LOOK_US)
        self._front = with_timeline
        self._store = store
        self._lane = lane
        self._wake_engine = wake
        self._timeline = with_timeline.timeline
        self._name = uuid.uuid4().hex
        self._fills = 0

    async def run(self, stop: asyncio.Event) -> None:
        self._front.keepers += 1
        try:
            await super().run(stop)
        finally:
            self._front.keepers -= 1

    async def run_once(self) -> bool:
        """Make the set whole, for long enough, if it is not; returns whether it is whole."""
        await self._make_whole()
        return self._front.lane(self._lane).whole

    async def _make_whole(self) -> None:
        state, now = self._front.lane(self._lane), self._clock.now()
        if state.whole and may_be_whole(state.until, now) and state.until - now > HORIZON_US - _FEED_US:
            return
        if not self._front.worth_a_try():
            return
        try:
            await self._tend(now)
        except TimelineAwayError as error:
            logger.debug("The timeline is not whole yet: %s", error)

    async def _tend(self, now: int) -> None:
        with_timeline, timeline, state = self._front, self._timeline, self._front.lane(self._lane)
        await with_timeline.reach(None, timeline.link.check_policy)
        until, built = await with_timeline.reach(self._lane, lambda: timeline.whole_until(self._lane))
        fresh = state.whole or (built is not None and state.lost_at < built <= now + SLACK_US)
        if until is None or not may_be_whole(until, now) or not fresh:
            state.whole = False
            await self._fill(now, _BEFORE_ALL)
            return
        state.until, state.whole = until, True
        if until - now <= HORIZON_US - _FEED_US:
            await self._fill(now, (until, 1 << 62))

    async def _fill(self, now: int, after: tuple[int, int]) -> None:
        """Copy wake-ups from the database into the set: all of them, or those that come after."""
        with_timeline, timeline, lane, state = self._front, self._timeline, self._lane, self._front.lane(self._lane)
        self._fills += 1  # what an earlier fill of ours has left behind does not block this one
        token, until = f"{self._name}:{self._fills}", now + HORIZON_US
        whole = after == _BEFORE_ALL
        lost_at = state.lost_at
        if not await with_timeline.reach(lane, lambda: timeline.begin_feed(lane, token, now)):
            return  # another engine fills it
        for live in (False, True):
            if not await self._fill_with(token, after, until, live=live):
                return
        if not await with_timeline.reach(lane, lambda: timeline.end_feed(lane, token, until, now if whole else None)):
            return
        if whole:
            with_timeline.counters.built += 1
            logger.info('The timeline of the lane "%s" is built', lane)
        if state.lost_at == lost_at:  # else something was lost while we were at it
            state.whole, state.until = True, until
            self._wake_engine(self._clock.now())

    async def _fill_with(self, token: str, after: tuple[int, int], until: int, *, live: bool) -> bool:
        lane, timeline = self._lane, self._timeline
        place, wanted = after, WakeFilter(until, lane, live=live)
        while True:
            page = await self._store.schedules.wakes(wanted, place, _PAGE)
            times, now = [(sid, at) for at, sid in page], self._clock.now()
            if page and not await self._front.reach(lane, lambda: timeline.feed(lane, token, times, now)):  # noqa: B023 - it is awaited before the loop goes on
                return False
            if len(page) < _PAGE:
                return True
            place = page[-1]


class HintListener:
    """Hears the hints of other engines of a lane, over one connection that lasts."""

    def __init__(self, with_timeline: TimelineStore, clock: Clock, lane: str, wake: Callable[[int], None]) -> None:
        self._front = with_timeline
        self._clock = clock
        self._lane = lane
        self._timeline = with_timeline.timeline
        self._wake_engine = wake

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            if self._front.counters.up:
                try:
                    await self._listen(stop)
                except (TimelineError, OSError, RuntimeError) as error:
                    logger.debug("No hints from the timeline for now: %s", describe_error(error))
            await self._clock.wait(self._clock.now() + _LISTEN_AGAIN_US, stop)

    async def _listen(self, stop: asyncio.Event) -> None:
        errors = self._front.counters.errors
        stopped = asyncio.ensure_future(stop.wait())
        try:
            async with self._timeline.link.hints(self._timeline.channel(self._lane)) as heard:
                coming = asyncio.ensure_future(heard())
                try:
                    while not stop.is_set():
                        await asyncio.wait({coming, stopped}, timeout=_DOUBT_SECONDS, return_when=FIRST_COMPLETED)
                        if coming.done():
                            self._hear(coming.result())
                            coming = asyncio.ensure_future(heard())
                        elif self._front.counters.errors != errors:
                            return  # the server was unreachable, and this connection may be stale
                finally:
                    coming.cancel()
                    await asyncio.wait({coming})
        finally:
            stopped.cancel()

    def _hear(self, payload: bytes | None) -> None:
        if payload is not None and payload.isdigit() and len(payload) < 20:
            self._wake_engine(int(payload))

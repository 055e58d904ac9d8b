"""A store with a timeline in front of it: what is due is asked of Redis, and the database about nothing but that.

Every verb is the database's. Those that change when a schedule wakes go there first and to Redis second, so that Redis
never knows of what was not committed:

- apply, ask, settle, hand back: committed, then put into the set or dropped from it;
- claim: popped from the set, under a lease; the database decides about exactly those, by its own guards, as it always
  does; then they are acknowledged with the times at which they truly wake. A member that came too early, twice or for
  nothing costs that one question.

What Redis has lost, or never received, the database finds: every two seconds one engine of a lane claims what is
overdue by two seconds, whatever the set says (the repair). While Redis is healthy this is the only question for due
rows that the database is asked; while it is not, or the set is being filled, claims go to the database as if there were
no timeline. Errors of Redis never fail a verb: they are logged once, then once a minute, and when they are over.

The set is filled, watched and rebuilt by the services of `keeping`, which an engine runs beside its loop.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from noonbell.core.records import (
    AT_ONCE,
    DECLARED_OWNERS,
    DEFAULT_TEAM,
    DocumentWrite,
    DurableSchedule,
    Edit,
    Settlement,
    Start,
    StoredSchedule,
)
from noonbell.errors import DocumentConflictError, StoreError, TimelineAwayError, TimelineError
from noonbell.ports import (
    BackgroundService,
    Clock,
    Decide,
    DocumentFilter,
    LaneClaim,
    Ledger,
    MakeEdit,
    Rescue,
    ScheduleChange,
    ScheduleFilter,
    Settled,
    WakeFilter,
)
from noonbell.store.outage import Outage
from noonbell.store.waking import wake_times
from noonbell.store.wrapping import LedgerWrapper, with_verbs
from noonbell.timeline.claiming import HORIZON_US, SLACK_US, Claim, ClaimRequest, LaneState, may_be_whole
from noonbell.timeline.link import WrongTypeError
from noonbell.timeline.redis_timeline import REPAIR_US, Popped, RedisTimeline
from noonbell.timeline.throttled_log import Counters, ThrottledLog

logger = logging.getLogger("noonbell.timeline")

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 5.0
_MOST_FREED: Final = 20_000
_KIND: Final = "timeline"
_ID: Final = "namespace"

T = TypeVar("T")


class TimelineStore(LedgerWrapper):
    """Passes on what has nothing to do with waking; see the module's text for the rest. Made by `fronted`."""

    def __init__(self, store: Ledger, timeline: RedisTimeline, clock: Clock) -> None:
        self.timeline = timeline
        self.counters = Counters()
        super().__init__(store)
        self._clock = clock
        self._lanes: dict[str, LaneState] = {}
        self._lane_of: dict[str, str] = {}  # by owner: whose runs end here
        self._outage = Outage("The Redis timeline", "the database is polled for what is due until it is back", logger)
        self._retry_at = 0.0
        self._pause = _FIRST_PAUSE
        self._down = False
        self.keepers = 0  # who looks after the connection: others need not try whether it is back
        self._dead = False
        self._closing: set[asyncio.Task[None]] = set()
        self.schedules = with_verbs(store.schedules, {"apply": self._apply})
        self.runs = with_verbs(
            store.runs,
            {"ask": self._ask, "settle": self._settle, "hand_back": self._hand_back, "claim": self._claim},
        )
        self.engines = with_verbs(store.engines, {"rescue": self._rescue})
        self.history = store.history
        self.outbox = store.outbox
        self.documents = store.documents
        self.audit = store.audit
        self._strange = ThrottledLog(logging.WARNING, "%d members of the timeline are not ids and were removed: %s")
        self._gone = ThrottledLog(
            logging.INFO, "%d members of the timeline are not active schedules and were removed: %s"
        )

    def __repr__(self) -> str:
        return f"{self._store!r} behind {self.timeline!r}"

    # --- its life -------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the store; raises TimelineError where the Redis server may drop keys. An unreachable one is not an
        error.
        """
        await self._store.open()
        self._dead = False
        try:
            if self.timeline.namespace is None:
                self.timeline.namespace = await _namespace(self._store, self._clock)
            await self.timeline.link.check_policy()
            self._worked()
        except TimelineAwayError as error:
            self.failed(error)
        except BaseException:
            await self._store.close()
            raise

    async def close(self) -> None:
        try:
            await self._store.close()
        finally:
            await self.timeline.close()

    def kill(self) -> None:
        self._dead = True
        self._store.kill()
        # nothing more is sent; what is left is to let go of the sockets
        task = asyncio.get_running_loop().create_task(self.timeline.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    # --- reaching Redis -------------------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Return whether Redis is worth asking: it answered last, or it is time to try again and no other task does."""
        if self._dead:
            return False
        return not self._down or (not self.keepers and self._clock.elapsed() >= self._retry_at)

    def worth_a_try(self) -> bool:
        """Return the same as `usable`, for the service that watches the connection."""
        return not self._dead and (not self._down or self._clock.elapsed() >= self._retry_at)

    def services(self, lane: str, wake: Callable[[int], None]) -> Mapping[str, BackgroundService]:
        """Return the services of the timeline for an engine of the lane; `wake` gets the instants of hints."""
        from noonbell.timeline.keeping import HintListener, Keeper  # noqa: PLC0415 - they are made of this

        return {
            "timeline": Keeper(self, self._store, self._clock, lane, wake),
            "timeline-hints": HintListener(self, self._clock, lane, wake),
        }

    def lane(self, lane: str) -> LaneState:
        return self._lanes.setdefault(lane, LaneState(self._clock.now()))

    async def reach(self, lane: str | None, work: Callable[[], Awaitable[T]]) -> T:
        """Ask Redis. Errors are counted, logged and raised as TimelineAwayError."""
        try:
            answer = await work()
        except WrongTypeError as error:
            self.counters.errors += 1
            logger.warning("The keys of the timeline hold values of a wrong type and are rebuilt: %s", error)
            if lane is not None:
                self.lane(lane).mark_incomplete(self._clock.now())
                await self.reach(None, lambda: self.timeline.forget(lane))
            raise TimelineAwayError(str(error)) from None
        except TimelineError as error:  # also where it could be reached, and must not be used: no verb fails for that
            self.failed(error)
            raise TimelineAwayError(str(error)) from None
        self._worked()
        return answer

    def failed(self, error: TimelineError) -> None:
        """Redis cannot be used now: until it is back, everything is asked of the database."""
        self.counters.errors += 1
        self.counters.up = False
        now = self._clock.elapsed()
        self._pause = min(2 * self._pause, _LONGEST_PAUSE) if self._outage.lasts else _FIRST_PAUSE
        self._outage.failed("timeline", error, now)
        self._down = True
        self._retry_at = now + self._pause
        for state in self._lanes.values():
            state.mark_incomplete(self._clock.now())

    def _worked(self) -> None:
        self._down = False
        if not self.keepers or not self._outage.lasts:
            self._recovered()

    def _recovered(self) -> None:
        """An outage is over.

        Where there is an engine, one answer proves nothing: a server whose memory is full answers questions, and so do
        the nodes of a cluster that has lost another or is moving a slot. A pop from a set that is whole again is one.
        """
        self.counters.up = True
        self._outage.worked("timeline", self._clock.elapsed())

    # --- what changes when a schedule wakes -----------------------------------------------------------------------

    async def _apply(self, change: ScheduleChange) -> list[int]:
        edited = _Edited(change.edit)
        sids = await self._store.schedules.apply(change._replace(edit=edited))
        await self._created(change.created, sids)
        await self._follow_all(edited.lanes)
        return sids

    async def _created(self, created: Sequence[DurableSchedule], sids: Sequence[int]) -> None:
        times: dict[str, dict[int, int | None]] = {}
        for sid, new in zip(sids, created, strict=True):
            if new.enabled and new.next_run_at is not None:
                times.setdefault(new.lane, {})[sid] = new.next_run_at
        for lane, some in times.items():
            await self._write_wakes(lane, some)

    async def _ask(self, schedule_id: str, at: int, *more: Any, **named: Any) -> int | None:
        run_for = await self._store.runs.ask(schedule_id, at, *more, **named)
        if run_for is not None and self.usable:
            try:
                for stored in await self._store.schedules.find(ScheduleFilter(schedule_ids=[schedule_id])):
                    await self._write_wakes(stored.lane, {stored.sid: at})
            except StoreError as error:  # it is committed: the repair finds it
                logger.debug("a requested run is not in the timeline: %s", error)
        return run_for

    async def _settle(self, settlements: Sequence[Settlement]) -> Settled:
        settled = await self._store.runs.settle(settlements)
        changed = settled.woken.keys() | {settlement.start.sid for settlement in settled.stale}
        lanes: dict[str, set[int]] = {}
        for settlement in settlements if changed else ():  # of the others the set knows since their claim
            lane, sid = self._lane_of.get(settlement.owner), settlement.start.sid
            if lane is not None and sid in changed:  # without a lane it is a declared task's, which no timeline knows
                lanes.setdefault(lane, set()).add(sid)
        await self._follow_all(lanes)
        return settled

    async def _hand_back(self, starts: Sequence[Start], owner: str, now: int) -> None:
        await self._store.runs.hand_back(starts, owner, now)
        lane = self._lane_of.get(owner)
        if lane is not None:
            await self._write_wakes(lane, {start.sid: now for start in starts})

    async def _rescue(self, lane: str, *more: Any, **named: Any) -> Rescue:
        found = await self._store.engines.rescue(lane, *more, **named)
        self.lane(lane).owed = True  # ended runs may have left schedules due, and the store does not name them
        if found.queued and self.usable:
            try:
                freed = await self._store.schedules.wakes(WakeFilter(AT_ONCE, lane, live=True), (-1, -1), _MOST_FREED)
            except StoreError as error:  # it is committed: the repair finds them
                logger.debug("Freed runs are not in the timeline: %s", error)
            else:
                await self._write_wakes(lane, {sid: at for at, sid in freed})
        return found

    async def _follow_all(self, lanes: Mapping[str, Iterable[int]]) -> None:
        """Bring the set up to what was committed for these schedules."""
        for lane, sids in lanes.items():
            if not self.usable:
                self.lane(lane).mark_incomplete(self._clock.now())
                continue
            try:
                times = wake_times(await self._store.schedules.find(ScheduleFilter(sids=list(sids))))
            except StoreError as error:  # the verb itself has happened, so it must not fail now
                logger.debug("The timeline was not updated for %d schedules: %s", len(list(sids)), error)
                self.lane(lane).owed = True
                continue
            await self._write_wakes(lane, {sid: times.get(sid) for sid in sids})

    async def _write_wakes(self, lane: str, times: Mapping[int, int | None]) -> None:
        """Put what wakes soon, and drop what wakes for nothing; what wakes later is put when its time comes nearer."""
        if not self.usable:
            self.lane(lane).mark_incomplete(self._clock.now())
            return
        upto = self._clock.now() + HORIZON_US + SLACK_US
        soon = {sid: at for sid, at in times.items() if at is not None and at <= upto}
        never = [sid for sid, at in times.items() if at is None]
        try:
            if soon:
                await self.reach(lane, lambda: self.timeline.put(lane, soon))
            if never:
                await self.reach(lane, lambda: self.timeline.drop(lane, never))
        except TimelineAwayError:
            self.lane(lane).mark_incomplete(self._clock.now())

    # --- claiming -------------------------------------------------------------------------------------------------

    async def _claim(self, lane: str, owner: str, now: int, limit: int, decide: Decide, **narrowed: Any) -> LaneClaim:
        if lane.startswith(DECLARED_OWNERS):  # declared tasks are in no timeline
            return await self._store.runs.claim(lane, owner, now, limit, decide, **narrowed)
        self._lane_of[owner] = lane
        state = self.lane(lane)
        if narrowed or not state.whole:
            return await self._store.runs.claim(lane, owner, now, limit, decide, **narrowed)
        asks = now >= state.repair_at or now < state.repair_at - 2 * REPAIR_US
        first = limit - limit // 2 if asks or state.owed else limit  # a repair has to find room, too
        try:
            popped = await self.reach(lane, lambda: self.timeline.pop(lane, now, first, repair=asks))
        except TimelineAwayError:
            return await self._store.runs.claim(lane, owner, now, limit, decide)
        self._recovered()
        self._note(popped)
        if popped.until is None or not may_be_whole(popped.until, now):
            state.mark_incomplete(now)  # it was emptied, or no engine has filled it for long
            return await self._store.runs.claim(lane, owner, now, limit, decide)
        state.until = popped.until
        if popped.repaired_at is not None:
            state.repair_at = popped.repaired_at + REPAIR_US
        state.owed = state.owed or popped.repair
        request = ClaimRequest(lane, owner, now, limit, decide)
        return await Claim(self, self._store, request).make(popped, state, full_at=first)

    def _note(self, popped: Popped) -> None:
        self.counters.popped += len(popped.sids)
        self.counters.dropped += len(popped.strange)
        if popped.strange:
            self._strange.report(popped.strange, self._clock.elapsed())

    def note_inactive(self, sids: Sequence[int]) -> None:
        """Count and log popped sids of which no schedule ever wakes."""
        self.counters.dropped += len(sids)
        if sids:
            self._gone.report(sids, self._clock.elapsed())


class _Edited:
    """An edit that remembers what it was asked about; a store may ask again before it commits."""

    def __init__(self, edit: MakeEdit) -> None:
        self._edit = edit
        self.lanes: dict[str, set[int]] = {}

    def __call__(self, stored: StoredSchedule) -> Edit | None:
        made = self._edit(stored)
        if made is not None:
            self.lanes.setdefault(stored.lane, set()).add(stored.sid)
        return made


async def kept_namespace(store: Ledger) -> str | None:
    """The name of a database among those that share a Redis server, where it has been given one."""
    for found in await store.documents.find(DocumentFilter(_KIND, [_ID])):
        return str(msgspec.json.decode(found.body)["name"])
    return None


async def _namespace(store: Ledger, clock: Clock) -> str:
    """The same; it is made up once, and kept in the database itself."""
    name = await kept_namespace(store)
    if name is None:
        name = uuid.uuid4().hex[:16]
        body = msgspec.json.encode({"name": name}).decode()
        try:
            await store.documents.write([DocumentWrite(_KIND, _ID, DEFAULT_TEAM, body, expected=0)], clock.now())
        except DocumentConflictError:  # another was faster
            return await kept_namespace(store) or name
    return name


def with_timeline(store: Ledger, timeline: str | RedisTimeline, clock: Clock) -> TimelineStore:
    """The same store with a timeline in front of it; an address becomes one."""
    if isinstance(timeline, str):
        timeline = RedisTimeline(timeline)
    if not isinstance(timeline, RedisTimeline):
        raise TimelineError(f"timeline {timeline!r:.100} must be an address such as redis://HOST, or a RedisTimeline")
    return TimelineStore(store, timeline, clock)

"""`LiveChanges`: the changes in a store as a stream of small events, for pages and programs that follow them.

    async for event in live.follow(team="default", after=last_id):
        ...

An event says that something has changed and what: enough to look it up, not more. There are three kinds: `change`
(everything in the audit), `run` (a run that was queued, has begun, waits for its retry or has ended) and
`reset` (something may have been lost: look at everything again).

The store is asked once a second, as long as there is a reader, and at once after `nudge`. So it makes no
difference which process has made a change. It costs the store two short reads and what is new. Bursts are not reported
one by one: where more runs have come than one poll returns, a `reset` replaces them.

All readers share one ring of the latest events, each at its own pace: a slow reader costs the others nothing,
and one that falls behind by more than the ring holds gets a `reset`. An id is good for coming back to the same process;
one that is not known, or that is too old, gets a `reset` as well.

These are hints, not a record. The audit and the ledger are.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final, Literal, NamedTuple

import msgspec

from noonbell.core.ids import run_id
from noonbell.core.instants import SECOND, moment
from noonbell.core.records import AuditEvent, Run
from noonbell.errors import StoreError, describe_error
from noonbell.ports import LEDGER_TABLES, AuditFilter, Clock, Ledger, LedgerKey, RunFilter, ScheduleFilter

logger = logging.getLogger("noonbell.schedules")

KEPT: Final = 2_000
_MOST_RUNS: Final = 200
_MOST_CHANGES: Final = 500
_MOST_KNOWN: Final = 10_000
# Ids of a server's sequence may become visible out of order: so many before the last one are looked at again.
_LOOK_BACK: Final = 100
_LINGER_SECONDS: Final = 60.0
_LIVE: Final = LEDGER_TABLES["live"].columns

EventKind = Literal["change", "run", "reset"]


class LiveEvent(msgspec.Struct, frozen=True):
    """One thing that has happened. `team` is None where it concerns all."""

    id: str
    kind: EventKind
    team: str | None
    data: dict[str, Any]


class _Known(NamedTuple):
    schedule_id: str
    name: str
    team: str


class LiveChanges:
    """The changes of one store. `follow` is for any number of readers; the first one sets it going."""

    def __init__(self, store: Ledger, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._life = uuid.uuid4().hex[:8]  # ids of another process mean nothing here
        self._ring: deque[LiveEvent] = deque(maxlen=KEPT)
        self._count = 0  # how many events there have been
        self._published = asyncio.Event()
        self._wakeup = asyncio.Event()
        self._beginning = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None
        self._readers = 0
        self._left_at = 0.0
        self._closed = False
        self._troubled = False
        self._look = _Look(store)

    @property
    def readers(self) -> int:
        """Return the number of readers."""
        return self._readers

    def nudge(self) -> None:
        """Poll at once, because this process has changed something."""
        self._wakeup.set()

    async def stop(self) -> None:
        """Let all readers go; a later `follow` ends at once."""
        self._closed = True
        self._announce()
        self._wakeup.set()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def here(self) -> str:
        """An id to follow `after`: from now on nothing is missed, however long it takes until one does."""
        await self._begin()
        return f"{self._life}-{self._count}"

    async def follow(
        self, team: str | None, after: str | None = None, *, idle_seconds: float = 15.0
    ) -> AsyncIterator[LiveEvent | None]:
        """The events of a team, or of all, as they come; None where nothing came for a while.

        With `after`, those that came since the event of this id.
        """
        self._readers += 1
        try:
            await self._begin()
            place, lost = self._place(after)
            if lost:
                yield self._made("reset", None, {"reason": "the events since then are not known here"}, number=place)
            while not self._closed:
                published = self._published
                first = self._count - len(self._ring)
                if place < first:
                    place = self._count
                    yield self._made("reset", None, {"reason": "too much came at once"}, number=place)
                for event in list(self._ring)[place - first :] if place < self._count else ():
                    place += 1
                    if event.kind == "reset" or team in (None, event.team):
                        yield event
                if place == self._count:
                    try:
                        # not wait_for: in Python 3.11 it forgets a cancellation that meets the event
                        async with asyncio.timeout(idle_seconds):
                            await published.wait()
                    except TimeoutError:
                        yield None
        finally:
            self._readers -= 1
            self._left_at = self._clock.elapsed()

    def _place(self, after: str | None) -> tuple[int, bool]:
        """Return the number of events after which a reader goes on, and whether it may have lost some."""
        if after is None:
            return self._count, False
        life, _, number = after.rpartition("-")
        if life != self._life or not number.isascii() or not number.isdigit():
            return self._count, True
        place = int(number)
        return (place, False) if self._count - len(self._ring) <= place <= self._count else (self._count, True)

    # --- looking --------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Start polling. What exists when the first reader comes is not reported; after a pause, what came since is."""
        async with self._beginning:
            if self._closed or (self._looking is not None and not self._looking.done()):
                return
            if not self._look.begun:
                await self._look.begin()
            self._looking = asyncio.get_running_loop().create_task(self._keep_looking(), name="noonbell-live")

    async def _keep_looking(self) -> None:
        while not self._closed and (self._readers or self._clock.elapsed() - self._left_at < _LINGER_SECONDS):
            try:
                for kind, team, data in await self._look.new():
                    self._publish(kind, team, data)
                self._troubled = False
            except StoreError as error:
                if not self._troubled:  # said once, not every second
                    logger.warning("Live changes cannot be read: %s", describe_error(error))
                self._troubled = True
            self._announce()
            self._wakeup.clear()
            await self._clock.wait(self._clock.now() + SECOND, self._wakeup)

    def _publish(self, kind: EventKind, team: str | None, data: dict[str, Any]) -> None:
        self._count += 1
        self._ring.append(self._made(kind, team, data, number=self._count))

    def _made(self, kind: EventKind, team: str | None, data: dict[str, Any], *, number: int) -> LiveEvent:
        return LiveEvent(f"{self._life}-{number}", kind, team, data)

    def _announce(self) -> None:
        published, self._published = self._published, asyncio.Event()
        published.set()


_NewEvent = tuple[EventKind, str | None, dict[str, Any]]


class _Look:
    """Finds out what is new since the last look."""

    def __init__(self, store: Ledger) -> None:
        self._store = store
        self.begun = False
        self._last_audit = 0
        self._seen_audits: set[int] = set()
        self._seen_runs: dict[LedgerKey, None] = {}
        self._live: dict[LedgerKey, tuple[str, int]] = {}
        self._known: dict[int, _Known | None] = {}

    async def begin(self) -> None:
        self._last_audit = await self._newest_audit()
        self._seen_audits = set(range(self._last_audit - _LOOK_BACK, self._last_audit + 1))
        for past in await self._store.history.latest_runs(None, _MOST_RUNS):
            self._see(_key(past.run))
        self._live = await self._live_now() or {}
        self.begun = True

    async def new(self) -> list[_NewEvent]:
        return [*await self._changes(), *await self._runs()]

    # --- the audit ------------------------------------------------------------------------------------------------

    async def _newest_audit(self) -> int:
        """The greatest id, by halving: each step is one look-up."""
        low, high = 0, 1
        while await self._store.audit.page(AuditFilter(), high, 1):
            low, high = high, high * 2
        while low < high:
            middle = (low + high) // 2
            if await self._store.audit.page(AuditFilter(), middle, 1):
                low = middle + 1
            else:
                high = middle
        return low

    async def _changes(self) -> list[_NewEvent]:
        found = await self._store.audit.page(AuditFilter(), max(0, self._last_audit - _LOOK_BACK), _MOST_CHANGES)
        events: list[_NewEvent] = []
        for number, event in found:
            if number not in self._seen_audits:
                self._seen_audits.add(number)
                events.append(("change", event.team, _change(event)))
                if event.event.startswith("schedule."):
                    self._known.clear()  # its name may be another now
        if found:
            self._last_audit = max(self._last_audit, found[-1][0])
            self._seen_audits = {one for one in self._seen_audits if one > self._last_audit - _LOOK_BACK}
        if len(found) == _MOST_CHANGES:
            self._last_audit = await self._newest_audit()
            self._seen_audits = set(range(self._last_audit - _LOOK_BACK, self._last_audit + 1))
            events.append(("reset", None, {"reason": "too much was changed at once"}))
        return events

    # --- runs -----------------------------------------------------------------------------------------------------

    async def _runs(self) -> list[_NewEvent]:
        live = await self._live_now()
        ended = await self._store.history.latest_runs(None, _MOST_RUNS)
        fresh = [past for past in ended if _key(past.run) not in self._seen_runs]
        if live is None or len(fresh) == _MOST_RUNS:
            for past in ended:
                self._see(_key(past.run))
            self._live = live or {}
            return [("reset", None, {"reason": "more runs than can be reported one by one"})]
        events: list[_NewEvent] = []
        for key, (state, attempt) in live.items():
            if self._live.get(key) != (state, attempt):
                events += await self._live_events(key, state, attempt)
        for past in reversed(fresh):
            self._see(_key(past.run))
            known = await self._of(past.run.sid)
            if known is not None:
                events.append(("run", known.team, _ended(known, past.run)))
        for key in self._live.keys() - live.keys():
            events += await self._end_events(key)
        self._live = live
        return events

    async def _live_now(self) -> dict[LedgerKey, tuple[str, int]] | None:
        """The runs that are queued, running or waiting; None where they are more than are looked at."""
        found = await self._store.read("live", None, _MOST_RUNS + 1)
        if len(found) > _MOST_RUNS:
            return None
        rows = [dict(zip(_LIVE, row, strict=True)) for row in found]
        return {LedgerKey(row["run_for"], row["sid"], row["kind"]): (row["state"], row["attempt"]) for row in rows}

    async def _live_events(self, key: LedgerKey, state: str, attempt: int) -> list[_NewEvent]:
        known = await self._of(key.sid)
        if known is None:
            return []
        data = {**_named(known, key), "state": state, "attempts": attempt}
        return [("run", known.team, data)]

    async def _end_events(self, key: LedgerKey) -> list[_NewEvent]:
        """One that was alive at the last look, and for an instant further back than the latest runs go."""
        if key in self._seen_runs:
            return []
        known = await self._of(key.sid)
        runs = await self._store.history.runs(RunFilter(key.sid, key.run_for, key.run_for, key.kind))
        self._see(key)
        return [] if known is None else [("run", known.team, _ended(known, run)) for run in runs]

    async def _of(self, sid: int) -> _Known | None:
        if sid not in self._known:
            found = await self._store.schedules.find(ScheduleFilter(sids=[sid]))
            known = None
            if found:
                known = _Known(found[0].schedule_id, found[0].columns.name, found[0].team)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[sid] = known
        return self._known[sid]

    def _see(self, key: LedgerKey) -> None:
        self._seen_runs.pop(key, None)
        self._seen_runs[key] = None
        while len(self._seen_runs) > _MOST_KNOWN:
            self._seen_runs.pop(next(iter(self._seen_runs)))


def _key(run: Run) -> LedgerKey:
    return LedgerKey(run.run_for, run.sid, run.kind)


def _change(event: AuditEvent) -> dict[str, Any]:
    return {"event": event.event, "subject": event.subject, "actor": event.actor, "at": moment(event.at).isoformat()}


def _named(known: _Known, key: LedgerKey) -> dict[str, Any]:
    return {
        "run_id": run_id(known.schedule_id, key.kind, key.run_for),
        "schedule_id": known.schedule_id,
        "name": known.name,
        "kind": key.kind,
        "scheduled_for": moment(key.run_for).isoformat(),
    }


def _ended(known: _Known, run: Run) -> dict[str, Any]:
    return {
        **_named(known, _key(run)),
        "state": run.outcome,
        "attempts": run.attempts,
        "started_at": moment(run.started_at).isoformat(),
        "ended_at": moment(run.ended_at).isoformat(),
    }

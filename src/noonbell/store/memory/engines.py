"""Engines in plain dicts: the members of each lane, those that are alive, and the runs of dead ones.

An engine is alive for as long as its name is held. In memory that ends with `release` or `kill`, so a dead one is known
at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from noonbell.core.crashes import CUT_OFF, INTERRUPTED, abandoning, is_on_probation, quarantined
from noonbell.core.presence import EngineRecord, EngineSign, Gap, Polls, engine_name, lane_name, lanes_up
from noonbell.core.records import AT_ONCE, Attempt, LifecycleEvent, LiveRun, Outcome
from noonbell.core.turns import definition_of
from noonbell.ports import MakeNotices, Members, Rescue
from noonbell.store.memory import outbox
from noonbell.store.memory.handle import MemoryPart
from noonbell.store.memory.stored import stored
from noonbell.store.memory.tables import MemoryData, Transaction, in_order


class MemoryEngines(MemoryPart):
    """The engines of all lanes of a memory store."""

    async def join(self, engine: EngineRecord) -> int:
        with self._transaction() as tx:
            beside = [one for one in self._alive() if one.lane == engine.lane]
            up_since = lanes_up(beside).get(engine.lane, engine.up_since)
            tx.put(self.data.engines, engine.instance, replace(engine, up_since=up_since))
            tx.put(self.data.seen, engine.instance, engine.joined_at)
        return up_since

    async def beat(self, sign: EngineSign, now: Callable[[], int]) -> None:
        with self._transaction() as tx:
            before = self.data.engines.get(sign.instance)
            if before is not None:
                after = replace(
                    before, up_since=sign.up_since, state=sign.state, zone_data=sign.zone_data, load=sign.load,
                    last_poll_at=sign.last_poll_at,
                )  # fmt: skip
                tx.put(self.data.engines, sign.instance, after)
                tx.put(self.data.seen, sign.instance, sign.at)
                if sign.event is not None:
                    tx.record(sign.event)
                if sign.last_poll_at is not None:
                    polls = self.data.lanes.get(before.lane, Polls())
                    tx.put(self.data.lanes, before.lane, polls.polled(sign.last_poll_at, sign.grace_us, now()))

    async def leave(self, instance: str, event: LifecycleEvent | None = None) -> None:
        with self._transaction() as tx:
            if event is not None and instance in self.data.engines:
                tx.record(event)
            _forget(tx, self.data, [instance])

    async def members(self, now: int, lane: str | None = None) -> Members:
        seen = self._tables().seen
        joined = [one for one in self.data.engines.values() if lane in (None, one.lane)]
        alive = [
            replace(one, seen_ago_us=max(now - seen[one.instance], 0)) for one in joined if self._lives(one.instance)
        ]
        dead = sorted(one.instance for one in joined if not self._lives(one.instance))
        return Members(sorted(alive, key=lambda one: (one.lane, one.joined_at, one.instance)), dead)

    async def polls(self) -> dict[str, Polls]:
        return dict(self._tables().lanes)

    async def record_gaps(self, lane: str, instance: str, gaps: Sequence[Gap], now: Callable[[], int]) -> Polls:
        del instance
        with self._transaction() as tx:
            polls = self.data.lanes.get(lane, Polls()).ended(gaps, now())
            tx.put(self.data.lanes, lane, polls)
        return polls

    def _alive(self) -> list[EngineRecord]:
        return [one for one in self.data.engines.values() if self._lives(one.instance)]

    def _dead(self, lane: str) -> list[str]:
        joined = (one.instance for one in self.data.engines.values() if one.lane == lane)
        return sorted(instance for instance in joined if not self._lives(instance))

    def _lives(self, instance: str | None) -> bool:
        return instance is not None and engine_name(instance) in self.data.held

    # --- rescue ---------------------------------------------------------------------------------------------------

    async def rescue(
        self, lane: str, owner: str, at: int, make_notices: MakeNotices | None = None, *, stopped: bool = False
    ) -> Rescue:
        queued = 0
        with self._transaction() as tx:
            dead = [] if stopped else self._dead(lane)
            if not stopped:
                self._record_crashes(tx, lane, dead, owner, at)
                _forget(tx, self.data, dead)

            def left(by: str | None) -> bool:
                return by == owner if stopped else not self._lives(by)

            of_lane = [sid for sid, durable in self.data.durable.items() if durable["lane"] == lane]
            runs = {sid: [one for one in self._running(sid) if left(one.owner)] for sid in of_lane}
            executed = ((one.owner, one.crashes) for lives in runs.values() for one in lives)
            engines = frozenset() if stopped else abandoning(executed)
            for lives in runs.values():
                queued += self._free_runs(tx, lives, at, make_notices, engines, stopped=stopped)
            outbox.free(tx, self.data, lane, left)
        return Rescue(queued, dead)

    def _running(self, sid: int) -> list[LiveRun]:
        return [one for one in self.data.live.get(sid, {}).values() if one.state == "running"]

    def _free_runs(
        self,
        tx: Transaction,
        lives: list[LiveRun],
        at: int,
        make_notices: MakeNotices | None,
        engines: frozenset[str | None],
        *,
        stopped: bool,
    ) -> int:
        """Queue the runs of one schedule again, or end them; returns how many are queued."""
        final: list[tuple[LiveRun, Outcome]] = []
        given_up: list[tuple[LiveRun, Outcome]] = []
        queued = 0
        for live in lives:
            sid = live.sid
            attempt = Attempt(
                sid, live.run_for, live.kind, live.attempt, "unknown", live.cause, live.attempt_at or at, at,
                live.owner or "", CUT_OFF if stopped else INTERRUPTED,
            )  # fmt: skip
            tx.put(self.data.attempts[sid], (live.run_for, live.kind, live.attempt), attempt)
            if live.kind == "manual" or definition_of(self.data.durable[sid]["definition"]).at_most_once:
                final.append((live, "unknown"))
            elif live.owner in engines and is_on_probation(live.crashes):
                given_up.append((live, "abandoned"))
                row = self.data.schedules[sid]
                facts = (row["schedule_id"], live.run_for, live.attempt, live.crashes, at)
                tx.add_audits([quarantined(*facts, team=row["team"])])
            else:
                again = replace(live, state="queued", cause="orphan", owner=None, wake_at=AT_ONCE)
                tx.put_live(replace(again, fence=live.fence + 1, crashes=live.crashes + (not stopped)))
                queued += 1
        ended = (*final, *given_up)
        if not ended:
            return queued
        sid = ended[0][0].sid
        if make_notices is not None:
            seen = stored(self.data, sid)
            for live, outcome in ended:
                outbox.append(tx, self.data, make_notices(seen, live, outcome), at)
        tx.end_together(final, at)
        tx.end_together(given_up, at)
        tx.update(sid, next_run_at=self.data.schedules[sid]["cursor_at"], last_failure_at=at)
        return queued

    def _record_crashes(self, tx: Transaction, lane: str, dead: list[str], owner: str, at: int) -> None:
        """Record the crash of engines that left no end: dead members, and one from before engines were members."""
        events = [event for event in self.data.lifecycle.values() if event.managed_by == lane_name(lane)]
        last = {event.instance: event.event for event in events}
        if events and events[-1].instance not in dead and not self._lives(events[-1].instance):
            dead = sorted([*dead, events[-1].instance])
        for instance in dead:
            if last.get(instance) in ("init-ok", "stop-start"):
                tx.record(LifecycleEvent(lane_name(lane), at, instance, "crash", f"found by {owner}"))


def lifecycle_of(data: MemoryData, managed_by: str) -> list[LifecycleEvent]:
    """Return the lifecycle of an owner, oldest first."""
    return [event for event in in_order(data.lifecycle) if event.managed_by == managed_by]


def _forget(tx: Transaction, data: MemoryData, instances: list[str]) -> None:
    for instance in instances:
        if instance in data.engines:
            tx.delete(data.engines, instance)
            tx.delete(data.seen, instance)

"""Live runs in plain dicts: claimed, settled, handed back and asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from noonbell.core.attempts import FIRST_KEPT, upto_omitted
from noonbell.core.presence import lane_key
from noonbell.core.records import (
    AT_ONCE,
    Attempt,
    LiveRun,
    Settlement,
    Start,
    StoredSchedule,
    TriggerSource,
    Turn,
    asked_cause,
)
from noonbell.ports import Claimed, Decide, LaneClaim, Settled
from noonbell.store.memory import manual_runs, outbox
from noonbell.store.memory.handle import MemoryPart
from noonbell.store.memory.stored import stored as stored_schedule
from noonbell.store.memory.tables import Row, Transaction, in_order
from noonbell.store.memory.turns import write_turn

QUARANTINE_US: Final = 60_000_000


class MemoryRuns(MemoryPart):
    """The live runs of a memory store."""

    async def claim(
        self,
        lane: str,
        owner: str,
        now: int,
        limit: int,
        decide: Decide,
        *,
        among: Sequence[int] | None = None,
        due_by: int | None = None,
    ) -> LaneClaim:
        turns: list[Turn] = []
        stored: dict[int, StoredSchedule] = {}
        quarantined: list[tuple[int, Exception]] = []
        due, woken = self._tables().due[lane_key(lane)], self.data.woken[lane_key(lane)]
        with self._transaction() as tx:
            by = now if due_by is None else due_by
            tx.touch(coming := due.take(by, limit) if among is None else due.among(among, by)[:limit])
            tx.touch(waking := woken.take(by, limit) if among is None else woken.among(among, by)[:limit])
            looked = list(dict.fromkeys((*coming, *waking)))
            for sid in looked:
                seen = stored_schedule(self.data, sid)
                try:
                    turns.append(decide(seen))
                except Exception as error:  # noqa: BLE001 - one bad row must not stop its neighbours
                    quarantined.append((sid, error))
                    self._quarantine(tx, sid, now)
                    continue
                if turns[-1].starts:
                    stored[sid] = seen
            for turn in turns:
                write_turn(tx, self.data, turn, owner, now)
        upcoming = [turn.next_run_at for turn in turns]
        if among is None:
            upcoming += [due.following(by), woken.following(by)]
        claimed = Claimed(
            starts=[start for turn in turns for start in turn.starts],
            looked=len(looked),
            full=len(coming) >= limit or len(waking) >= limit,
            next_wake_at=min((at for at in upcoming if at is not None), default=None),
            quarantined=quarantined,
        )
        return LaneClaim(claimed, stored)

    def _quarantine(self, tx: Transaction, sid: int, now: int) -> None:
        tx.update(sid, next_run_at=now + QUARANTINE_US)
        for live in list(self.data.live[sid].values()):
            if live.state != "running" and (live.wake_at or AT_ONCE) <= now:
                tx.put_live(replace(live, wake_at=now + QUARANTINE_US))

    async def hand_back(self, starts: Sequence[Start], owner: str, now: int) -> None:
        with self._transaction() as tx:
            for start in starts:
                live = self._mine(start, owner)
                if live is None:
                    continue
                row, following = self.data.schedules[start.sid], now if start.following is None else start.following
                tx.update(start.sid, next_run_at=following if row["epoch"] == start.epoch else row["cursor_at"])
                if live.kind == "manual" and live.fence == 1:
                    # it never began nor was it queued, and the one who asked is still there to ask again
                    tx.delete_live(live)
                else:
                    tx.put_live(replace(live, state="queued", attempt=live.attempt - 1, wake_at=now, owner=None))

    async def trigger(self, sid: int, owner: str, now: int) -> Start | None:
        with self._transaction() as tx:
            if any(live.kind == "manual" or live.state != "waiting" for live in self.data.live[sid].values()):
                return None
            row = self.data.schedules.get(sid)
            if row is None:
                return None
            run_for = now
            while (run_for, "manual") in self.data.runs[sid]:
                run_for += 1  # asked for twice in one instant, or a clock that went back: the runs are kept apart
            start = Start(sid, "manual", run_for, 1, 1, "manual", row["epoch"], now, now, row["next_run_at"])
            tx.put_live(_first_attempt(start, owner))
            tx.update(sid, next_run_at=None, last_attempt_at=now)
        return start

    async def ask(
        self,
        schedule_id: str,
        at: int,
        actor: str,
        via: TriggerSource = "manual",
        *,
        queue: bool = False,
        retry: bool = True,
    ) -> int | None:
        cause = asked_cause(via, retry=retry)
        with self._transaction() as tx:
            return manual_runs.ask(self.data, tx, schedule_id, at=at, actor=actor, cause=cause, queue=queue)

    async def live(self, sid: int | None = None, *, owner: str | None = None) -> list[LiveRun]:
        live = self._tables().live
        found = (run for one in (sorted(live) if sid is None else [sid]) for run in in_order(live.get(one)))
        return [run for run in found if owner is None or (run.state == "running" and run.owner == owner)]

    # --- settling -------------------------------------------------------------------------------------------------

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        woken: dict[int, int] = {}
        with self._transaction() as tx:
            lives = [self._mine(settlement.start, settlement.owner) for settlement in settlements]
            for settlement, live in zip(settlements, lives, strict=True):
                if live is not None:
                    before = self.data.schedules.get(live.sid)
                    self._settle(tx, settlement, live)
                    if (at := self._woken(before, settlement.start)) is not None:
                        woken[live.sid] = at
        return Settled([s for s, live in zip(settlements, lives, strict=True) if live is None], woken)

    def _woken(self, before: Row | None, start: Start) -> int | None:
        """Return when a schedule wakes because a run of it has ended, judged by its row before that."""
        behind = [live.wake_at for live in self.data.live[start.sid].values() if live.state != "running"]
        changed = before is not None and (before["next_run_at"] is None or before["epoch"] != start.epoch)
        if not behind and not changed:
            return None
        row = self.data.schedules.get(start.sid)
        own = row["next_run_at"] if row is not None and row["enabled"] == 1 else None
        return min((at for at in (own, *behind) if isinstance(at, int)), default=None)

    def _settle(self, tx: Transaction, settlement: Settlement, live: LiveRun) -> None:
        start, outcome, ended_at, sid = settlement.start, settlement.outcome, settlement.ended_at, live.sid
        if (cleared := settlement.cleared) is not None:
            waiting = self.data.live[cleared.sid].get((cleared.kind, cleared.run_for))
            if waiting is not None and (waiting.state, waiting.fence) == ("waiting", cleared.fence):
                tx.end_live(waiting, "failed", ended_at)
        if outcome != "succeeded" or start.attempt > 1 or settlement.detail is not None:
            attempt = Attempt(
                sid, live.run_for, live.kind, start.attempt, outcome, start.cause, start.started_at, ended_at,
                settlement.owner, settlement.error, settlement.detail,
            )  # fmt: skip
            tx.put(self.data.attempts[sid], (live.run_for, live.kind, start.attempt), attempt)
            if (upto := upto_omitted(start.attempt)) > FIRST_KEPT:
                of_run = [key for key in self.data.attempts[sid] if key[:2] == (live.run_for, live.kind)]
                for key in of_run:
                    if FIRST_KEPT < key[2] <= upto:
                        tx.delete(self.data.attempts[sid], key)
        if settlement.wake_at is None:
            started_at = start.started_at if live.started_at is None else live.started_at
            waited_us = start.waited_us
            if start.attempt > 1:
                first = self.data.attempts[sid].get((live.run_for, live.kind, 1))
                waited_us = 0 if first is None else max((first.started_at or started_at) - started_at, 0)
            tx.end_live(
                replace(live, attempt=start.attempt, started_at=started_at), outcome, ended_at, waited_us=waited_us
            )
        else:
            tx.put_live(replace(live, state="waiting", wake_at=settlement.wake_at, owner=None))
        outbox.append(tx, self.data, settlement.messages, ended_at)
        row = self.data.schedules.get(sid)
        if row is not None:
            # a wake-up that has come during the run was taken away, and comes back with the end; an edit during the run
            # has opened another epoch: what follows then is for a look to say, and at once
            following = start.following if row["next_run_at"] is None else row["next_run_at"]
            following = following if row["epoch"] == start.epoch else row["cursor_at"]
            ended = {"last_success_at" if outcome == "succeeded" else "last_failure_at": ended_at}
            tx.update(sid, next_run_at=following, **ended)

    def _mine(self, start: Start, owner: str) -> LiveRun | None:
        """Return the live run of a start, unless another owner has it now: every later write of a start checks this
        first.
        """
        live = self.data.live[start.sid].get((start.kind, start.run_for))
        return live if live is not None and live.fence == start.fence and live.owner == owner else None


def _first_attempt(start: Start, owner: str) -> LiveRun:
    return LiveRun(
        start.sid, start.kind, start.run_for, start.fence, owner, "running", start.attempt, wake_at=None,
        started_at=start.started_at, attempt_at=start.started_at, crashes=0, epoch=start.epoch, cause=start.cause,
    )  # fmt: skip

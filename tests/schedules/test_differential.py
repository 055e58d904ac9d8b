"""Durable schedules: the memory store says what is right; SQLite has to agree after every step of random histories."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from noonbell.core.records import AuditEvent, QuietHoursPolicy, Settlement, Start, StoredSchedule, Turn
from noonbell.core.turns import look
from noonbell.errors import NoonbellError
from noonbell.ports import AuditFilter, LaneClaim, ScheduleFilter, ScheduleStore
from noonbell.schedules import changes
from noonbell.schedules.fields import read_fields
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from noonbell.testing.storage_cases.base import HOUR, MINUTE, SECOND, T0, ledger

Verb = Callable[[ScheduleStore], Awaitable[Any]]
SPECS = (
    ("cron", "* * * * *"), ("cron", "*/7 * * * *"), ("cron", "0 3 * * *"), ("interval", "45"), ("interval", "600"),
    ("one_shot", "2024-01-01T02:00"), ("one_shot", "2024-01-01T09:30"),
)  # fmt: skip
LANES = ("one", "two")
INSTANCES = ("i1", "i2")
QUIET = '{"windows":[{"weekdays":[0,1,2,3,4,5,6],"from":"%02d:00","to":"%02d:30","timezone":"UTC"}]}'


class History:
    """Draws the next step from what the memory store holds; both get the same."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = T0
        self.names = 0
        self.up_since = T0
        self.starts: list[tuple[Start, str]] = []
        self.seen: set[str] = set()

    async def step(self, stores: tuple[ScheduleStore, ScheduleStore]) -> None:
        self.now += self.random.choice((0, 1, SECOND, 20 * SECOND, MINUTE, MINUTE, 5 * MINUTE, 40 * MINUTE, HOUR))
        if self.random.random() < 0.1:
            self.up_since = self.now
        steps = (
            self.claim, self.claim, self.claim, self.settle, self.settle, self.create, self.edit, self.edit,
            self.delete, self.hand_back, self.trigger, self.take_over, self.quiet, self.drop_quiet, self.reopen,
        )  # fmt: skip
        step = self.random.choice(steps)
        verb = await step(stores[0])
        self.seen.add(step.__name__)
        results = [await _outcome(verb, store) for store in stores]
        assert results[0] == results[1], (step.__name__, self.now)
        if isinstance(results[0], str):
            self.seen.add(results[0].partition(":")[0])
        dumps = [await everything(store) for store in stores]
        for table, rows in dumps[0].items():
            assert rows == dumps[1][table], (step.__name__, table)
        if isinstance(results[0], LaneClaim):
            self._note(results[0])

    def _note(self, claim: LaneClaim) -> None:
        self.seen.update(f"cause {start.cause}" for start in claim.claimed.starts)
        self.seen.update("preempted" for start in claim.claimed.starts if start.preempted is not None)
        self.seen.update("quarantined" for _ in claim.claimed.quarantined)
        self.seen.update({"full"} if claim.claimed.full else ())

    async def claim(self, store: ScheduleStore) -> Verb:
        lane, owner, now, up_since = self.random.choice(LANES), self.random.choice(INSTANCES), self.now, self.up_since
        limit = self.random.choice((1, 2, 100))
        bad = {stored.sid for stored in await _all(store) if self.random.random() < 0.04}
        error = ValueError("bad")

        def take_turn(stored: StoredSchedule) -> Turn:
            if stored.sid in bad:
                raise error
            return look(stored, now, up_since)

        async def call(store: ScheduleStore) -> LaneClaim:
            found = await store.claim_by_policy(lane, owner, now, limit, take_turn)
            if isinstance(store, MemoryStore):
                self.starts.extend((start, owner) for start in found.claimed.starts)
            return found

        return call

    async def settle(self, store: ScheduleStore) -> Verb:
        held = {(i, live.sid, live.run_for, live.fence) for i in INSTANCES for live in await store.owned(i)}
        alive = [pair for pair in self.starts if (pair[1], pair[0].sid, pair[0].run_for, pair[0].fence) in held]
        batch: dict[int, Settlement] = {}
        for start, owner in (*alive, *self.random.sample(self.starts, min(len(self.starts), 2))):
            if self.random.random() < 0.7:
                failed = self.random.random() < 0.4
                wakes = failed and start.kind == "scheduled" and self.random.random() < 0.7
                wake_at = self.now + self.random.choice((SECOND, 10 * MINUTE)) if wakes else None
                outcome = "failed" if failed else "succeeded"
                error = "boom" if failed else None
                batch[start.sid] = Settlement(start, owner, outcome, self.now, wake_at, error)  # type: ignore[arg-type]  # two literals
        return lambda store: store.settle(list(batch.values()))

    async def hand_back(self, store: ScheduleStore) -> Verb:
        some = {start.sid: start for start, _ in self.random.sample(self.starts, min(len(self.starts), 3))}
        owner, now = self.random.choice(INSTANCES), self.now
        return lambda store: store.hand_back(list(some.values()), owner, now)

    async def trigger(self, store: ScheduleStore) -> Verb:
        sid, owner, now = self.random.randint(0, self.names + 1), self.random.choice(INSTANCES), self.now

        async def call(store: ScheduleStore) -> Start | None:
            start = await store.trigger(sid, owner, now)
            if start is not None and isinstance(store, MemoryStore):
                self.starts.append((start, owner))
            return start

        return call

    async def create(self, store: ScheduleStore) -> Verb:
        policies = [policy.policy_id for policy in await store.quiet_hours()]
        made = []
        now = self.now
        for _ in range(self.random.choice((1, 3))):
            self.names += 1
            name = f"n{self.names}" if self.random.random() < 0.95 else "n1"
            columns = read_fields(self._fields(policies) | {"name": name, "action": ACTION}, None).columns
            if columns.type == "one_shot" and now >= T0 + 2 * HOUR:
                columns = replace(columns, type="interval", spec="90")
            key = f"s{self.names}" if self.random.random() < 0.95 else "s1"
            enabled = self.random.random() < 0.9
            lane = self.random.choice(LANES)
            made.append(changes.created(key, columns, now, enabled=enabled, managed_by="api", lane=lane))
        return lambda store: store.create_schedules(made, now, "somebody")

    def _fields(self, policies: list[str]) -> dict[str, Any]:
        kind, spec = self.random.choice(SPECS)
        return {
            "type": kind,
            "spec": spec,
            "overlap": self.random.choice(("coalesce", "skip", "allow")),
            "catch_up_policy": self.random.choice(("skip", "run_once", "run_all_capped")),
            "catch_up_cap": 3,
            "retry_vs_new": self.random.choice(("finish", "preempt")),
            "at_most_once": self.random.random() < 0.2,
            "jitter_seconds": self.random.choice((0, 0, 30)),
            "tags": self.random.sample(("red", "green", "blue"), 1),
            "payload": self.random.choice((None, {"a": 'tricky "\n☃'})),
            "quiet_hours_policy_id": self.random.choice((None, None, *policies)),
        }

    async def edit(self, store: ScheduleStore) -> Verb:
        rows = await _all(store)
        ids = [row.schedule_id for row in self.random.sample(rows, min(len(rows), self.random.choice((1, 2))))]
        if self.random.random() < 0.05:
            ids.append("nobody")
        policies = [policy.policy_id for policy in await store.quiet_hours()]
        terms = self._fields(policies)
        del terms["type"], terms["spec"]
        fields: dict[str, Any] = self.random.choice(
            (
                {"enabled": False}, {"enabled": True}, terms, {"name": "n1"}, {"spec": "0,30 * * * *"}, {"spec": "50"},
                {"type": "cron"},
            )
        )  # fmt: skip
        now, up_since = self.now, self.random.choice((None, self.up_since))
        return lambda store: store.edit_schedules(ids, changes.Change(fields, now, up_since, "somebody"))

    async def delete(self, store: ScheduleStore) -> Verb:
        rows = await _all(store)
        ids = [row.schedule_id for row in self.random.sample(rows, min(len(rows), 1)) if self.random.random() < 0.3]
        now = self.now
        return lambda store: store.edit_schedules(ids, lambda stored: changes.deleted(stored, now, "somebody"))

    async def take_over(self, store: ScheduleStore) -> Verb:
        lane, now = self.random.choice(LANES), self.now
        return lambda store: store.take_over(lane, now)

    async def quiet(self, store: ScheduleStore) -> Verb:
        key, now, up_since = self.random.choice(("q1", "q2")), self.now, self.up_since
        hour = self.random.randint(0, 22)
        policy = QuietHoursPolicy(key, "calm", QUIET % (hour, hour + 1), now, now)
        audit = AuditEvent(now, "quiet_hours.updated", key, "somebody", "{}")
        return lambda store: store.put_quiet_hours(policy, audit, changes.Change({}, now, up_since, "x").reopen)

    async def drop_quiet(self, store: ScheduleStore) -> Verb:
        audit = AuditEvent(self.now, "quiet_hours.deleted", "q2", "somebody", "{}")
        return lambda store: store.drop_quiet_hours("q2", audit)

    async def reopen(self, store: ScheduleStore) -> Verb:
        async def call(store: ScheduleStore) -> None:
            store.kill()
            await store.open()

        return call


ACTION = {"kind": "callback", "name": "cb"}


async def _all(store: ScheduleStore) -> list[StoredSchedule]:
    return await store.list_schedules(ScheduleFilter(), 0, 1000)


async def everything(store: ScheduleStore) -> dict[str, Any]:
    found: dict[str, Any] = dict(await ledger(store))
    found["stored"] = await _all(store)
    found["some"] = [
        await store.list_schedules(wanted, 1, 2)
        for wanted in (
            ScheduleFilter(enabled=True), ScheduleFilter(type="cron", lane="one"), ScheduleFilter(tag="red"),
            ScheduleFilter(name_contains="1"), ScheduleFilter(quiet_hours_policy_id="q1"),
            ScheduleFilter(managed_by="else"),
        )
    ]  # fmt: skip
    found["quiet"] = await store.quiet_hours()
    found["audit"] = await store.audit(AuditFilter(), 0, 100_000)
    found["audits"] = await store.audit(AuditFilter(subject="s2", event="schedule.missed", from_at=T0 + HOUR), 5, 3)
    return found


async def _outcome(verb: Verb, store: ScheduleStore) -> object:
    try:
        return await verb(store)
    except NoonbellError as error:
        return f"{type(error).__name__}: {error}"


EVERYTHING = {
    "claim", "settle", "create", "edit", "delete", "hand_back", "trigger", "take_over", "quiet", "drop_quiet", "reopen",
    "full", "preempted", "quarantined", "cause cron", "cause retry", "cause orphan", "ScheduleExistsError",
    "ScheduleNotFoundError", "QuietHoursInUseError", "ScheduleInvalidError",
}  # fmt: skip


@pytest.mark.parametrize("block", range(4))
async def test_sqlite_agrees_with_the_specification(tmp_path: Path, block: int) -> None:
    seen: set[str] = set()
    for seed in range(block * 4, block * 4 + 4):
        memory, sqlite = MemoryStore(), SqliteStore(tmp_path / f"{seed}.db", threaded=False)
        history = History(seed)
        for store in (memory, sqlite):
            await store.open()
        for _ in range(140):
            await history.step((memory, sqlite))
        await sqlite.close()
        seen |= history.seen
    assert seen >= EVERYTHING, "a history that never gets there proves nothing"

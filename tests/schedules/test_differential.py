"""The memory store says what is right of durable schedules; the others agree after every step of random histories."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from noonbell.core.attempt_detail import pack
from noonbell.core.presence import Polls
from noonbell.core.records import (
    AuditEvent,
    Delivery,
    DurableSchedule,
    OutboxMessage,
    QuietHoursPolicy,
    Settlement,
    Start,
    StoredSchedule,
    Stream,
    Turn,
)
from noonbell.core.turns import finish, look, timing_of
from noonbell.errors import NoonbellError
from noonbell.ledger.ledger_rows import stored_zone_rules
from noonbell.ports import (
    AuditFilter,
    LaneClaim,
    Ledger,
    QuietChanges,
    QuietHoursDrop,
    QuietHoursPut,
    ScheduleChange,
    ScheduleFilter,
    StreamClaim,
)
from noonbell.schedules import changes
from noonbell.schedules.fields import read_fields
from noonbell.store.memory import MemoryStore
from noonbell.store.postgres import PostgresStore
from noonbell.store.sqlite import SqliteStore
from noonbell.testing.storage_cases.base import HOUR, MINUTE, SECOND, T0, ledger
from tests.store.postgres_server import PostgresServer
from tests.store.spilling import SpillingStore

Verb = Callable[[Ledger], Awaitable[Any]]
SPECS = (
    ("cron", "* * * * *"), ("cron", "*/7 * * * *"), ("cron", "0 3 * * *"), ("interval", "45"), ("interval", "600"),
    ("one_shot", "2024-01-01T02:00"), ("one_shot", "2024-01-01T09:30"),
)  # fmt: skip
LANES = ("one", "two")
INSTANCES = ("i1", "i2")
QUIET = '{"windows":[{"weekdays":[0,1,2,3,4,5,6],"from":"%02d:00","to":"%02d:30","timezone":"UTC"}]}'


class History:
    """Draws the next step from what the memory store holds; all get the same.

    The results of every step are compared, and all tables after each `compare_every` steps.
    """

    def __init__(self, seed: int, limits: tuple[int, ...] = (1, 2, 100), compare_every: int = 1) -> None:
        self.random = random.Random(seed)
        self.limits = limits
        self.compare_every = compare_every
        self.steps = 0
        self.now = T0
        self.names = 0
        self.up_since = T0
        self.starts: list[tuple[Start, str]] = []
        self.streams: list[tuple[Stream, str]] = []
        self.seen: set[str] = set()

    async def step(self, stores: Sequence[Ledger]) -> None:
        self.now += self.random.choice((0, 1, SECOND, 20 * SECOND, MINUTE, MINUTE, 5 * MINUTE, 40 * MINUTE, HOUR))
        if self.random.random() < 0.1:
            self.up_since = self.now
            self.now += self.random.choice((0, 0, 30 * HOUR))
        steps = (
            self.claim, self.claim, self.claim, self.claim, self.settle, self.settle, self.settle, self.create,
            self.edit, self.edit, self.delete, self.hand_back, self.trigger, self.take_over, self.quiet,
            self.drop_quiet, self.reopen, self.apply, self.claim_streams, self.claim_streams, self.settle_streams,
            self.settle_streams, self.revive, self.revive, self.ask, self.drop_letters, self.prune, self.zones,
        )  # fmt: skip
        step = self.random.choice(steps)
        verb = await step(stores[0])
        self.seen.add(step.__name__)
        results = [_heeded(await _outcome(verb, store)) for store in stores]
        for store, result in zip(stores[1:], results[1:], strict=True):
            assert results[0] == result, (step.__name__, self.now, store)
        self.steps += 1
        if self.steps % self.compare_every == 0:
            await self.compare(stores, step.__name__)
        if isinstance(results[0], str):
            self.seen.add(results[0].partition(":")[0])
        if isinstance(results[0], LaneClaim):
            self._note(results[0])
        if isinstance(results[0], StreamClaim):
            self.seen.update("streams" for _ in results[0].streams)
        if step in (self.prune, self.revive) and results[0]:
            self.seen.add(f"did {step.__name__}")

    async def compare(self, stores: Sequence[Ledger], last: str) -> None:
        """All tables of all stores hold the same; `last` names the step before."""
        right = await everything(stores[0])
        for store in stores[1:]:
            found = await everything(store)
            for table, rows in right.items():
                assert rows == found[table], (last, table, store)
        self.seen.update("dead letters" for _ in right["dead letters"])

    def _note(self, claim: LaneClaim) -> None:
        self.seen.update(f"cause {start.cause}" for start in claim.claimed.starts)
        self.seen.update("preempted" for start in claim.claimed.starts if start.preempted is not None)
        self.seen.update("quarantined" for _ in claim.claimed.quarantined)
        self.seen.update({"full"} if claim.claimed.full else ())

    async def claim(self, store: Ledger) -> Verb:
        lane, owner, now = self.random.choice(LANES), self.random.choice(INSTANCES), self.now
        limit, gaps = self.random.choice(self.limits), Polls(self.up_since).at(now)
        bad = {stored.sid for stored in await _all(store) if self.random.random() < 0.04}
        error = ValueError("bad")

        def take_turn(stored: StoredSchedule) -> Turn:
            if stored.sid in bad:
                raise error
            turn = look(stored, now, gaps)
            finish(turn, stored, now, owner, _message)
            return turn

        async def call(store: Ledger) -> LaneClaim:
            found = await store.runs.claim(lane, owner, now, limit, take_turn)
            if isinstance(store, MemoryStore):
                self.starts.extend((start, owner) for start in found.claimed.starts)
            return found

        return call

    async def settle(self, store: Ledger) -> Verb:
        held = {(i, live.sid, live.run_for, live.fence) for i in INSTANCES for live in await store.runs.live(owner=i)}
        alive = [pair for pair in self.starts if (pair[1], pair[0].sid, pair[0].run_for, pair[0].fence) in held]
        lanes = {stored.sid: stored.lane for stored in await _all(store)}
        batch: dict[int, Settlement] = {}
        for start, owner in (*alive, *self.random.sample(self.starts, min(len(self.starts), 2))):
            if self.random.random() < 0.7:
                failed = self.random.random() < 0.4
                wakes = failed and self.random.random() < 0.7
                wake_at = self.now + self.random.choice((SECOND, 10 * MINUTE)) if wakes else None
                outcome = "failed" if failed else "succeeded"
                error = "boom" if failed else None
                waited = self.random.choice((0, 0, 7 * SECOND))
                begun = replace(start, started_at=start.started_at + waited, waited_us=waited)
                end = Settlement(begun, owner, outcome, self.now, wake_at, error)  # type: ignore[arg-type]  # two literals
                if start.sid in lanes and self.random.random() < 0.3:
                    end.messages = [OutboxMessage(start.sid, lanes[start.sid], "m", "inbox", '{"a": "☃"}', self.now)]
                    end.detail = pack({"code": 0})
                batch[start.sid] = end
        return lambda store: store.runs.settle(list(batch.values()))

    async def hand_back(self, store: Ledger) -> Verb:
        some = {start.sid: start for start, _ in self.random.sample(self.starts, min(len(self.starts), 3))}
        owner, now = self.random.choice(INSTANCES), self.now
        return lambda store: store.runs.hand_back(list(some.values()), owner, now)

    async def trigger(self, store: Ledger) -> Verb:
        sid, owner, now = self.random.randint(0, self.names + 1), self.random.choice(INSTANCES), self.now

        async def call(store: Ledger) -> Start | None:
            start = await store.runs.trigger(sid, owner, now)
            if start is not None and isinstance(store, MemoryStore):
                self.starts.append((start, owner))
            return start

        return call

    async def create(self, store: Ledger) -> Verb:
        now, made = self.now, await self._new(store)
        return lambda store: store.schedules.apply(ScheduleChange(made, now, "somebody"))

    async def apply(self, store: Ledger) -> Verb:
        now, made = self.now, await self._new(store) if self.random.random() < 0.5 else []
        ids = [row.schedule_id for row in await _all(store) if self.random.random() < 0.1]
        gone = {key for key in ids if self.random.random() < 0.3}
        change = changes.EditBuilder(
            {"spec": "0,30 * * * *"}, now, dict.fromkeys(LANES, Polls(self.up_since)), "somebody"
        )

        def edit(stored: StoredSchedule) -> Any:
            if stored.schedule_id in gone:
                return changes.deleted(stored, now, "somebody")
            return change(stored) if stored.columns.type == "cron" else change.reopen(stored)

        policy = QuietHoursPolicy(self.random.choice(("q1", "q2")), "new", QUIET % (3, 4), now, now)
        put = QuietHoursPut(policy, AuditEvent(now, "quiet_hours.updated", policy.policy_id, "somebody", "{}"))
        key = self.random.choice(("q2", "q2", "q3"))
        dropped = QuietHoursDrop(key, AuditEvent(now, "quiet_hours.deleted", key, "somebody", "{}"))
        quiet = QuietChanges(
            [put] if self.random.random() < 0.4 else (), [dropped] if self.random.random() < 0.2 else ()
        )
        change_all = ScheduleChange(made, now, "somebody", ids, edit, quiet)
        return lambda store: store.schedules.apply(change_all)

    async def _new(self, store: Ledger) -> list[DurableSchedule]:
        policies = [policy.policy_id for policy in await store.schedules.quiet_hours()]
        made = []
        now = self.now
        for _ in range(self.random.choice((1, 3))):
            self.names += 1
            name = f"n{self.names}" if self.random.random() < 0.95 else "n1"
            zone = self.random.choice(("UTC", "UTC", "Asia/Kathmandu"))
            columns = read_fields(
                self._fields(policies) | {"name": name, "action": ACTION, "timezone": zone}, None
            ).columns
            if columns.type == "one_shot" and (now >= T0 + 2 * HOUR or timing_of(columns, None).following(now) is None):
                columns = replace(columns, type="interval", spec="90")
            key = f"s{self.names}" if self.random.random() < 0.95 else "s1"
            if self.random.random() < 0.4:
                columns = replace(columns, definition=columns.definition.replace('"callback"', '"message"'))
            enabled = self.random.random() < 0.9
            lane = self.random.choice(LANES)
            made.append(changes.created(key, columns, now, enabled=enabled, managed_by="api", lane=lane))
        return made

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

    async def edit(self, store: Ledger) -> Verb:
        rows = await _all(store)
        ids = [row.schedule_id for row in self.random.sample(rows, min(len(rows), self.random.choice((1, 2))))]
        if self.random.random() < 0.1:
            ids.append("nobody")
        policies = [policy.policy_id for policy in await store.schedules.quiet_hours()]
        terms = self._fields(policies)
        del terms["type"], terms["spec"]
        fields: dict[str, Any] = self.random.choice(
            (
                {"enabled": False}, {"enabled": True}, terms, {"name": "n1"}, {"spec": "0,30 * * * *"}, {"spec": "50"},
                {"type": "cron"},
            )
        )  # fmt: skip
        now, up = self.now, self.random.choice(({}, dict.fromkeys(LANES, Polls(self.up_since))))
        return lambda store: store.schedules.apply(
            ScheduleChange(edited=ids, edit=changes.EditBuilder(fields, now, up, "somebody"))
        )

    async def delete(self, store: Ledger) -> Verb:
        rows = await _all(store)
        ids = [row.schedule_id for row in self.random.sample(rows, min(len(rows), 1)) if self.random.random() < 0.3]
        now = self.now
        return lambda store: store.schedules.apply(
            ScheduleChange(edited=ids, edit=lambda stored: changes.deleted(stored, now, "somebody"))
        )

    async def take_over(self, store: Ledger) -> Verb:
        lane, now = self.random.choice(LANES), self.now
        return lambda store: store.engines.rescue(lane, "rescuer", now)

    async def quiet(self, store: Ledger) -> Verb:
        key, now, up = self.random.choice(("q1", "q2")), self.now, dict.fromkeys(LANES, Polls(self.up_since))
        hour = self.random.randint(0, 22)
        policy = QuietHoursPolicy(key, "calm", QUIET % (hour, hour + 1), now, now)
        audit = AuditEvent(now, "quiet_hours.updated", key, "somebody", "{}")
        return lambda store: store.schedules.apply(
            ScheduleChange(
                edit=changes.EditBuilder({}, now, up, "x").reopen, quiet=QuietChanges([QuietHoursPut(policy, audit)])
            )
        )

    async def drop_quiet(self, store: Ledger) -> Verb:
        audit = AuditEvent(self.now, "quiet_hours.deleted", "q2", "somebody", "{}")
        return lambda store: store.schedules.apply(
            ScheduleChange(quiet=QuietChanges(dropped=[QuietHoursDrop("q2", audit)]))
        )

    async def ask(self, store: Ledger) -> Verb:
        ids, now = [row.schedule_id for row in await _all(store)], self.now
        chosen = self.random.choice([*ids, "nobody"])
        queue, retry = self.random.random() < 0.5, self.random.random() < 0.5
        return lambda store: store.runs.ask(chosen, now, "somebody", "api", queue=queue, retry=retry)

    async def claim_streams(self, store: Ledger) -> Verb:
        lane, owner, now = self.random.choice(LANES), self.random.choice(INSTANCES), self.now
        limit = self.random.choice(self.limits)

        async def call(store: Ledger) -> StreamClaim:
            found = await store.outbox.claim(lane, owner, now, limit)
            if isinstance(store, MemoryStore):
                self.streams.extend((stream, owner) for stream in found.streams)
            return found

        return call

    async def settle_streams(self, store: Ledger) -> Verb:
        deliveries: dict[int, Delivery] = {}
        for stream, owner in self.random.sample(self.streams, min(len(self.streams), 4)):
            numbers = [number for number, _ in stream.messages]
            cut = self.random.randint(0, len(numbers))
            delivered = numbers[cut - 1] if cut else None
            dead = numbers[cut] if cut < len(numbers) and self.random.random() < 0.6 else None
            wake_at = self.now + MINUTE if cut < len(numbers) and dead is None else None
            error = self.random.choice((None, "boom ☃"))
            deliveries[stream.sid] = Delivery(stream.sid, owner, self.now, delivered, dead, wake_at, error)
        return lambda store: store.outbox.settle(list(deliveries.values()))

    async def revive(self, store: Ledger) -> Verb:
        numbers, now = await self._letters(store), self.now
        return lambda store: store.outbox.resolve(numbers, redeliver_at=now)

    async def drop_letters(self, store: Ledger) -> Verb:
        numbers = (await self._letters(store))[:1]
        return lambda store: store.outbox.resolve(numbers)

    async def _letters(self, store: Ledger) -> list[int]:
        found = [
            letter.number for letter in await store.outbox.dead_letters(None, 0, 100) if self.random.random() < 0.6
        ]
        return [*found, *found[:1], 1_000_000]

    async def prune(self, store: Ledger) -> Verb:
        before = self.now - self.random.choice((0, 24 * HOUR, 48 * HOUR))
        return lambda store: store.prune_day(before)

    async def zones(self, store: Ledger) -> Verb:
        rules = {zone: f"rules {self.now}" for zone in ("UTC", "Mars/Base") if self.random.random() < 0.5}
        return lambda store: store.schedules.apply(ScheduleChange(zone_rules=rules))

    async def reopen(self, store: Ledger) -> Verb:
        async def call(store: Ledger) -> None:
            store.kill()
            await store.open()

        return call


ACTION = {"kind": "callback", "name": "cb"}


def _message(stored: StoredSchedule, start: Start) -> OutboxMessage:
    run_id = f"{stored.schedule_id}:{start.kind}:{start.run_for}"
    return OutboxMessage(stored.sid, stored.lane, run_id, "inbox", '{"☃": "\\u0000"}', start.started_at)


async def _all(store: Ledger) -> list[StoredSchedule]:
    return await store.schedules.find(ScheduleFilter(), 0, 1000)


async def everything(store: Ledger) -> dict[str, Any]:
    found: dict[str, Any] = dict(await ledger(store))
    found["stored"] = await _all(store)
    found["some"] = [
        await store.schedules.find(wanted, 1, 2)
        for wanted in (
            ScheduleFilter(enabled=True), ScheduleFilter(type="cron", lane="one"), ScheduleFilter(tag="red"),
            ScheduleFilter(name_contains="1"), ScheduleFilter(quiet_hours_policy_id="q1"),
            ScheduleFilter(managed_by="else"),
        )
    ]  # fmt: skip
    found["quiet"] = await store.schedules.quiet_hours()
    found["owned streams"] = [await store.outbox.owned(owner) for owner in INSTANCES]
    found["zone rules"] = await stored_zone_rules(store)
    found["in zone"] = await store.schedules.find(ScheduleFilter(timezone="Asia/Kathmandu"), 1, 2)
    found["dead letters"] = await store.outbox.dead_letters(None, 0, 1000)
    found["some letters"] = await store.outbox.dead_letters(2, 1, 2)
    found["audit"] = await store.audit.page(AuditFilter(), 0, 100_000)
    found["audits"] = await store.audit.page(
        AuditFilter(subject="s2", event="schedule.missed", from_at=T0 + HOUR), 5, 3
    )
    return found


def _heeded(result: object) -> object:
    """A claim that was full is followed by the next at once, whatever it says of the time after it.

    Where something stays due, PostgreSQL alone cannot tell whether another had locked it.
    """
    if isinstance(result, LaneClaim):
        claimed = result.claimed._replace(locked=False)
        return result._replace(claimed=claimed._replace(next_wake_at=None) if claimed.full else claimed)
    return result


async def _outcome(verb: Verb, store: Ledger) -> object:
    try:
        return await verb(store)
    except NoonbellError as error:
        return f"{type(error).__name__}: {error}"


EVERYTHING = {
    "claim", "settle", "create", "edit", "delete", "hand_back", "trigger", "take_over", "quiet", "drop_quiet", "reopen",
    "apply", "zones", "ask", "did prune", "did revive", "drop_letters", "streams", "dead letters",
    "full", "preempted", "quarantined", "cause cron", "cause retry", "cause orphan", "cause api", "cause api_once",
    "ScheduleExistsError", "ScheduleNotFoundError", "QuietHoursInUseError", "ScheduleInvalidError",
}  # fmt: skip


# All tables are read after every fifth step: a row that differs stays, and differs then too.
COMPARE_EVERY = pytest.mark.parametrize("compare_every", [5, pytest.param(1, marks=pytest.mark.exhaustive)])


@COMPARE_EVERY
@pytest.mark.parametrize("block", range(2))
async def test_sqlite_agrees_with_the_specification(tmp_path: Path, block: int, compare_every: int) -> None:
    seen: set[str] = set()
    for seed in range(block * 4 + 4, block * 4 + 8):
        stores = (
            MemoryStore(),
            SqliteStore(tmp_path / f"{seed}.db", threaded=False),
            SpillingStore(tmp_path / f"{seed}-spilling.db", threaded=False),
        )
        history = History(seed, compare_every=compare_every)
        for store in stores:
            await store.open()
        for _ in range(220):
            await history.step(stores)
        for store in stores:
            await store.close()
        seen |= history.seen
    assert seen >= EVERYTHING, "a history that never gets there proves nothing"


@COMPARE_EVERY
async def test_all_stores_agree(postgres: PostgresServer, tmp_path: Path, compare_every: int) -> None:
    seen: set[str] = set()
    for seed in (3, 7, 11):
        stores = (
            MemoryStore(),
            SqliteStore(tmp_path / f"{seed}.db", threaded=False),
            PostgresStore(await postgres.new_ledger(), pool_size=1),
        )
        # no limit that cuts between schedules of one instant: which of those come first is the index's choice there
        history = History(seed, limits=(100,), compare_every=compare_every)
        for store in stores:
            await store.open()
        for _ in range(140):
            await history.step(stores)
        for store in stores:
            await store.close()
        seen |= history.seen
    assert seen >= EVERYTHING - {"full"}, "a history that never gets there proves nothing"

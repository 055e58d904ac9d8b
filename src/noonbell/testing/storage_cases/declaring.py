"""Declaring: what an override writes, and that it writes all of it or nothing."""

# ruff: noqa: S101 - asserting is what these cases are for
from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from noonbell.core.records import Attempt, Epoch, RemovedSchedule, Run, Settlement
from noonbell.errors import StoreError
from noonbell.ledger.ledger_rows import declared_tasks, lifecycle_of
from noonbell.ports import LEDGER_TABLES, RunFilter, ScheduleFilter
from noonbell.testing.storage_cases.base import (
    ME,
    MINUTE,
    OTHER,
    OWNER,
    SECOND,
    T0,
    StorageCases,
    changed,
    claim,
    declaration,
    event,
    fail,
    ledger,
    new,
    only_live,
    raises,
    record_step,
    row_of,
    start_one,
)

_LIVE = {"run_for", "fence", "owner", "state", "attempt", "wake_at", "started_at", "attempt_at", "crashes", "cause"}


class DeclaringCases(StorageCases):
    async def test_created_schedules_come_with_their_first_epoch(self) -> None:
        async with self.opened() as store:
            sids = await store.schedules.declare(declaration(created=[new("a"), new("b")]))
            assert len(set(sids)) == 2
            assert sids == sorted(sids)
            row = await row_of(store, sids[1])
            assert tuple(row) == LEDGER_TABLES["schedules"].columns
            assert row == {
                **dict.fromkeys(LEDGER_TABLES["schedules"].columns),
                "sid": sids[1], "schedule_id": "id-b", "name": "b", "enabled": 1, "type": "cron", "spec": "* * * * *",
                "next_run_at": T0 + MINUTE, "timezone": "UTC", "catch_up_policy": "run_once", "created_at": T0,
                "updated_at": T0, "managed_by": OWNER, "team": "default", "epoch": 1, "cursor_at": T0,
                "retry_delay_us": 5 * MINUTE, "last_ended_manual": 0, "ended_runs": 0, "succeeded_runs": 0,
            }  # fmt: skip
            first = Epoch(sids[1], 1, T0, None, "* * * * *", "UTC", "z1", "{}", enabled=True)
            assert await store.history.epochs(sids[1]) == [first]

    async def test_an_empty_declaration_changes_nothing(self) -> None:
        async with self.opened("a") as store:
            before = await ledger(store)
            assert await store.schedules.declare(declaration()) == []
            assert await ledger(store) == before

    async def test_a_sid_is_never_given_twice(self) -> None:
        async with self.opened("a", "b") as store:
            await store.schedules.declare(declaration(removed=[RemovedSchedule(2, T0)]))
            assert await store.schedules.declare(declaration(created=[new("b", key="again")])) == [3]

    async def test_events_are_kept_in_their_order(self) -> None:
        async with self.opened() as store:
            events = [event("crash", T0 + 5), event("init-ok", T0 + 5)]
            await store.schedules.declare(declaration(events=events))
            await record_step(store, event("stop-start", T0 + 4))
            assert await lifecycle_of(store, OWNER) == [*events, event("stop-start", T0 + 4)]
            assert (await store.schedules.read_declared(OWNER)).last_lifecycle == event("stop-start", T0 + 4)
            assert (await store.schedules.read_declared(OTHER)).last_lifecycle is None

    async def test_read_declared_returns_own_tasks_that_are_not_removed(self) -> None:
        async with self.opened("a", "b") as store:
            await store.schedules.declare(declaration(OTHER, created=[new("a", key="of another")]))
            await store.schedules.declare(declaration(removed=[RemovedSchedule(1, T0)]))
            (row,) = (await store.schedules.read_declared(OWNER)).rows
            assert (row["sid"], row["name"], row["zone_hash"], row["policies"]) == (2, "b", "z1", "{}")
            added = {"live_kind", "live_epoch", "zone_hash", "policies"}
            assert set(row) == {*LEDGER_TABLES["schedules"].columns, *_LIVE, *added}
            assert {row[name] for name in (*_LIVE, "live_kind", "live_epoch")} == {None}

    async def test_read_declared_joins_each_live_run(self) -> None:
        async with self.opened("a") as store:
            start = await start_one(store, T0 + MINUTE)
            await fail(store, start, T0 + MINUTE + 1, retry_at=T0 + 9 * MINUTE)
            assert await store.runs.trigger(1, ME, T0 + MINUTE + 2) is not None
            rows = (await store.schedules.read_declared(OWNER)).rows
            found = {
                (row["live_kind"], row["state"], row["run_for"], row["wake_at"], row["live_epoch"]) for row in rows
            }
            assert found == {
                ("scheduled", "waiting", T0 + MINUTE, T0 + 9 * MINUTE, 1),
                ("manual", "running", T0 + MINUTE + 2, None, 1),
            }
            assert [row["name"] for row in rows] == ["a", "a"]

    async def test_a_change_without_a_new_epoch_keeps_the_epoch(self) -> None:
        async with self.opened("a") as store:
            before = await store.history.epochs(1)
            edit = changed(1, cursor_at=T0 + 7, next_run_at=T0 + 8, epoch=1, new_epoch=False)
            await store.schedules.declare(declaration(at=T0 + 9, changed=[edit]))
            row = await row_of(store, 1)
            assert (row["spec"], row["retry_delay_us"], row["updated_at"]) == ("0 * * * *", MINUTE, T0)
            assert (row["cursor_at"], row["next_run_at"], row["epoch"]) == (T0 + 7, T0 + 8, 1)
            assert await store.history.epochs(1) == before

    async def test_a_new_epoch_begins_where_the_last_one_ends(self) -> None:
        async with self.opened("a", "b") as store:
            edit = changed(1, cursor_at=T0 + 7, next_run_at=None, epoch=2, new_epoch=True)
            await store.schedules.declare(declaration(at=T0 + 9, changed=[edit]))
            old, now = await store.history.epochs(1)
            assert (old.to_at, now.from_at, now.to_at) == (T0 + 7, T0 + 7, None)
            assert (now.epoch, now.spec, now.zone_hash, now.enabled) == (2, "0 * * * *", "z2", True)
            row = await row_of(store, 1)
            assert (row["epoch"], row["next_run_at"], row["updated_at"], row["created_at"]) == (2, None, T0 + 9, T0)
            assert [epoch.to_at for epoch in await store.history.epochs(2)] == [None]

    async def test_a_removed_schedule_stays_as_a_closed_row(self) -> None:
        async with self.opened("a", "b") as store:
            await store.schedules.declare(declaration(at=T0 + 9, removed=[RemovedSchedule(1, T0 + 7)]))
            row = await row_of(store, 1)
            assert (row["enabled"], row["next_run_at"], row["removed_at"], row["cursor_at"]) == (
                0,
                None,
                T0 + 9,
                T0 + 7,
            )
            assert [epoch.to_at for epoch in await store.history.epochs(1)] == [T0 + 7]
            assert [row["sid"] for row in await declared_tasks(store)] == [2]
            assert (await claim(store, T0 + MINUTE)).looked == 1

    async def test_deleted_schedules_are_found_by_their_sids(self) -> None:
        async with self.opened("a", "b", "c") as store:
            removed = [RemovedSchedule(1, T0 + 7), RemovedSchedule(3, T0 + 7)]
            await store.schedules.declare(declaration(at=T0 + 9, removed=removed))

            async def found(sids: list[int] | None, **more: Any) -> list[int]:
                given: dict[str, Any] = {"declared": None, "deleted": True}
                wanted = ScheduleFilter(sids=sids, **given | more)
                return [one.sid for one in await store.schedules.find(wanted)]

            assert await found([1, 2, 99]) == [1]
            assert await found([3, 1, 3]) == [1, 3]
            assert await found([]) == []
            assert await found([1, 2], deleted=None) == [1, 2]
            assert await found([1, 2], deleted=False) == [2]
            assert await found(None, declared=True, deleted=None, lane=OWNER) == [1, 2, 3]
            assert await found(None, declared=True, enabled=False) == [1, 3]
            assert await found(None, declared=False, deleted=None) == []
            assert await found([1, 3], schedule_ids=["id-c", "id-b"]) == [3]
            (kept,) = await store.schedules.find(ScheduleFilter(schedule_ids=["id-b"], declared=True))
            assert (kept.columns.name, kept.lane, kept.managed_by, kept.enabled) == ("b", OWNER, OWNER, True)

    async def test_removal_ends_live_runs(self) -> None:
        async with self.opened("a", "b", "c") as store:
            a, b, c = (await claim(store, T0 + MINUTE)).starts
            await fail(store, a, T0 + MINUTE + 1, retry_at=T0 + 9 * MINUTE)
            await store.runs.hand_back([c], ME, T0 + MINUTE + 1)
            at = T0 + 2 * MINUTE
            await store.schedules.declare(
                declaration(at=at, removed=[RemovedSchedule(sid, T0 + MINUTE) for sid in (1, 2, 3)])
            )
            ended = [(await store.history.runs(RunFilter(sid, T0, at)))[0] for sid in (1, 2, 3)]
            assert [(run.outcome, run.attempts, run.ended_at) for run in ended] == [
                ("failed", 1, at), ("abandoned", 1, at), ("abandoned", 0, at)
            ]  # fmt: skip
            assert [await store.runs.live(sid) for sid in (1, 2, 3)] == [[], [], []]
            late = Settlement(b, ME, "succeeded", at + 1)
            assert (await store.runs.settle([late])).stale == [late]

    async def test_a_parked_schedule_stays_and_does_not_wake_until_it_is_declared_again(self) -> None:
        async with self.opened("a", "b") as store:
            await store.schedules.declare(declaration(at=T0 + 9, parked=[1]))
            row = await row_of(store, 1)
            assert (row["enabled"], row["next_run_at"], row["removed_at"], row["cursor_at"]) == (0, None, None, T0)
            assert [epoch.to_at for epoch in await store.history.epochs(1)] == [None]
            assert [start.sid for start in (await claim(store, T0 + MINUTE)).starts] == [2]
            back = changed(1, cursor_at=T0, next_run_at=T0 + MINUTE, epoch=1, new_epoch=False)
            await store.schedules.declare(declaration(at=T0 + MINUTE, changed=[back]))
            assert [start.sid for start in (await claim(store, T0 + MINUTE)).starts] == [1]

    async def test_a_name_can_leave_and_come_back_in_one_declaration(self) -> None:
        async with self.opened("a") as store:
            back = declaration(removed=[RemovedSchedule(1, T0)], created=[new("a", key="again")])
            assert await store.schedules.declare(back) == [2]
            assert [row["schedule_id"] for row in await declared_tasks(store)] == ["again"]

    async def test_two_owners_may_use_one_name(self) -> None:
        async with self.opened("a") as store:
            assert await store.schedules.declare(declaration(OTHER, created=[new("a", key="of another")])) == [2]

    async def test_an_orphan_is_revived_under_its_key(self) -> None:
        async with self.opened("a", "b") as store:
            a, b = (await claim(store, T0 + MINUTE)).starts
            await store.runs.hand_back([b], ME, T0 + MINUTE)
            at = T0 + 3 * MINUTE
            revived = [
                replace(
                    await only_live(store, sid),
                    state="queued",
                    owner=None,
                    fence=2,
                    wake_at=at,
                    crashes=1,
                    cause="orphan",
                )
                for sid in (1, 2)
            ]
            await store.schedules.declare(declaration(at=at, revived=revived))
            assert [await only_live(store, sid) for sid in (1, 2)] == revived
            interrupted = "interrupted: the instance ended before the attempt did"
            assert await store.history.attempts(1, T0, at) == [
                Attempt(1, a.run_for, "scheduled", 1, "unknown", "cron", T0 + MINUTE, at, ME, interrupted)
            ]
            assert await store.history.attempts(2, T0, at) == [], "it was not running, so no attempt was interrupted"

    async def test_an_interrupted_manual_run_ends_as_unknown(self) -> None:
        async with self.opened("a") as store:
            start = await store.runs.trigger(1, ME, T0 + SECOND)
            assert start is not None
            await store.schedules.declare(declaration(at=T0 + MINUTE, interrupted=[await only_live(store, 1)]))
            assert await store.runs.live(1) == []
            expected = Run(1, T0 + SECOND, "manual", "unknown", 1, T0 + SECOND, T0 + MINUTE, ME, 1)
            assert await store.history.runs(RunFilter(1, T0, T0 + MINUTE)) == [expected]

    async def test_a_declaration_that_fails_changes_nothing(self) -> None:
        async with self.opened("a", "b", "c") as store:
            await claim(store, T0 + MINUTE, limit=1)
            before = await ledger(store)
            orphan = replace(await only_live(store, 1), state="queued", owner=None, fence=2)
            for twin in (new("c", key="another id"), new("d", key="id-c")):
                whole = declaration(
                    at=T0 + 9,
                    created=[new("e"), twin],
                    changed=[changed(3, cursor_at=T0 + 1, next_run_at=None, epoch=2, new_epoch=True)],
                    removed=[RemovedSchedule(2, T0 + 1)],
                    revived=[orphan],
                    events=[event("init-ok")],
                )
                with raises(StoreError):
                    await store.schedules.declare(whole)
                assert await ledger(store) == before
            assert [start.sid for start in (await claim(store, T0 + MINUTE)).starts] == [2, 3], "still due as before"

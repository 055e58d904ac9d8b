"""Reading the ledger: by schedule, and whole tables in pages."""

# ruff: noqa: S101 - asserting is what these cases are for
from __future__ import annotations

from typing import Any

from noonbell.core.records import DurableSchedule, RemovedSchedule, ScheduleColumns, Settlement
from noonbell.ledger.ledger_rows import declared_tasks, lifecycle_of, schedule_rows
from noonbell.ports import LEDGER_TABLES, Ledger, RunFilter, ScheduleChange
from noonbell.testing.storage_cases.base import (
    HOUR,
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
    start_one,
)


async def _history(store: Ledger) -> None:
    """Something in every table: runs of both kinds, spans, a retry, an edit, an event."""
    await store.schedules.declare(declaration(created=[new("a"), new("b")], events=[event("init-ok")]))
    await store.schedules.declare(
        declaration(OTHER, created=[new("c", key="c")], events=[event("init-ok", managed_by=OTHER)])
    )
    for minute in (2, 4):
        for start in (await claim(store, T0 + minute * MINUTE)).starts:
            await fail(store, start, T0 + minute * MINUTE + 1, retry_at=None)
    manual = await store.runs.trigger(1, ME, T0 + 4 * MINUTE + 2)
    assert manual is not None
    await store.runs.settle([Settlement(manual, ME, "succeeded", T0 + 4 * MINUTE + 3)])
    for start in (await claim(store, T0 + 5 * MINUTE)).starts:
        await fail(store, start, T0 + 5 * MINUTE + 1, retry_at=T0 + HOUR)
    edit = changed(2, cursor_at=T0 + 5 * MINUTE, next_run_at=T0 + HOUR, epoch=2, new_epoch=True)
    await store.schedules.declare(declaration(at=T0 + 5 * MINUTE + 2, changed=[edit]))


class ReadingCases(StorageCases):
    async def test_spans_that_touch_the_stretch_are_found(self) -> None:
        async with self.opened("a", "b") as store:
            first = await claim(store, T0 + 5 * MINUTE, limit=1)
            await store.runs.settle([Settlement(first.starts[0], ME, "succeeded", T0 + 5 * MINUTE)])
            await claim(store, T0 + 9 * MINUTE)
            m = [T0 + minute * MINUTE for minute in range(10)]
            assert [(s.from_at, s.to_at, s.n) for s in await store.history.spans(1, T0, m[9])] == [
                (m[1], m[4], 4),
                (m[6], m[8], 3),
            ]
            assert [span.from_at for span in await store.history.spans(1, m[4], m[5])] == [m[1]]
            assert [span.from_at for span in await store.history.spans(1, m[4], m[6])] == [m[1], m[6]]
            assert await store.history.spans(1, m[4] + 1, m[6] - 1) == []
            assert [span.to_at for span in await store.history.spans(2, T0, m[9])] == [m[8]]

    async def test_runs_are_found_by_time_and_kind(self) -> None:
        async with self.opened() as store:
            await _history(store)
            m = [T0 + minute * MINUTE for minute in range(10)]
            assert [run.run_for for run in await store.history.runs(RunFilter(1, T0, m[9]))] == [m[2], m[4], m[4] + 2]
            assert [run.run_for for run in await store.history.runs(RunFilter(1, m[4], m[4]))] == [m[4]]
            assert [run.run_for for run in await store.history.runs(RunFilter(1, T0, m[9], "manual"))] == [m[4] + 2]
            assert [run.run_for for run in await store.history.runs(RunFilter(2, T0, m[9], "scheduled"))] == [
                m[2],
                m[4],
            ]
            assert await store.history.runs(RunFilter(1, m[2] + 1, m[4] - 1)) == []
            assert await store.history.runs(RunFilter(3, T0, m[9])) == []

    async def test_attempts_are_found_by_the_time_of_their_run(self) -> None:
        async with self.opened("a") as store:
            for minute in (1, 3):
                start = await start_one(store, T0 + minute * MINUTE)
                at = T0 + minute * MINUTE + SECOND
                await fail(store, start, at, retry_at=at + 1)
                await fail(store, await start_one(store, at + 1), at + 2, retry_at=None)
            found = [(a.run_for, a.attempt) for a in await store.history.attempts(1, T0, T0 + HOUR)]
            one, three = T0 + MINUTE, T0 + 3 * MINUTE
            assert found == [(one, 1), (one, 2), (three, 1), (three, 2)]
            assert [a.attempt for a in await store.history.attempts(1, three, three)] == [1, 2]
            assert await store.history.attempts(1, one + 1, three - 1) == []
            assert await store.history.attempts(2, T0, T0 + HOUR) == []

    async def test_what_does_not_exist_reads_as_nothing(self) -> None:
        async with self.opened("a") as store:
            found = [
                await store.history.epochs(9),
                await store.runs.live(9),
                await store.history.spans(9, T0, T0 + HOUR),
            ]
            found += [
                await store.history.runs(RunFilter(9, T0, T0 + HOUR)),
                await store.history.attempts(9, T0, T0 + HOUR),
            ]
            found += [await lifecycle_of(store, "unknown"), await schedule_rows(store, "unknown")]
            assert found == [[]] * 7
            assert await store.schedules.read_declared("unknown") == ([], None)

    async def test_schedules_are_listed_by_owner_oldest_first(self) -> None:
        async with self.opened() as store:
            await _history(store)
            assert [row["sid"] for row in await schedule_rows(store)] == [1, 2, 3]
            assert [row["sid"] for row in await schedule_rows(store, OTHER)] == [3]
            assert [row["sid"] for row in await schedule_rows(store, OWNER)] == [1, 2]

    async def test_declared_tasks_are_those_of_all_declared_owners_that_are_not_removed(self) -> None:
        async with self.opened() as store:
            await _history(store)
            durable = store
            columns = ScheduleColumns("d", "cron", "* * * * *", "UTC", None, "skip", None, "{}")
            made = DurableSchedule(
                "d", columns, enabled=True, managed_by="api", lane="default", cursor_at=T0, next_run_at=T0 + HOUR,
                anchor_at=None, zone_hash="z1", policies="{}",
            )  # fmt: skip
            await durable.schedules.apply(ScheduleChange([made], T0, "suite"))
            await store.schedules.declare(declaration("suite", created=[new("e", key="e")]))  # an owner of another sort
            await store.schedules.declare(declaration("periodic:p", created=[new("p", key="p")]))
            await store.schedules.declare(
                declaration(at=T0 + HOUR, removed=[RemovedSchedule(1, T0 + HOUR)], parked=[2])
            )
            every = {row["sid"]: row for row in await schedule_rows(store)}
            assert await declared_tasks(store) == [every[2], every[3], every[6]]

    async def test_what_was_read_can_be_changed_without_harm(self) -> None:
        async with self.opened() as store:
            await _history(store)
            before = await ledger(store)
            for read in (
                await store.runs.live(1),
                await store.history.runs(RunFilter(1, T0, T0 + HOUR)),
                await store.history.epochs(1),
            ):
                for record in read:
                    record.sid = 77
            for row in await schedule_rows(store):
                dict(row)["name"] = "changed"
            assert await ledger(store) == before

    async def test_every_table_is_read_whole_in_pages(self) -> None:
        async with self.opened() as store:
            await _history(store)
            whole = await ledger(store)
            assert {table: len(rows) for table, rows in whole.items()} == {
                "schedules": 3, "epochs": 4, "live": 2, "runs": 5, "spans": 4, "attempts": 6, "pruned": 0,
                "lifecycle": 2, "zone_rules": 0,
            }  # fmt: skip
            for table, shape in LEDGER_TABLES.items():
                places = [shape.columns.index(name) for name in shape.key]
                paged: list[tuple[Any, ...]] = []
                after: tuple[Any, ...] | None = None
                while page := await store.read(table, after, 2):
                    assert len(page) <= 2
                    paged += page
                    after = tuple(page[-1][place] for place in places)
                assert paged == whole[table]
                keys = [tuple(row[place] for place in places) for row in paged]
                assert keys == sorted(set(keys))

    async def test_a_page_can_be_narrowed_to_some_schedules(self) -> None:
        async with self.opened() as store:
            await _history(store)
            whole = await ledger(store)
            for table, shape in LEDGER_TABLES.items():
                found = await store.read(table, None, 100, above_sid=1, upto_sid=2)
                if "sid" in shape.columns:
                    place = shape.columns.index("sid")
                    assert found == [row for row in whole[table] if row[place] == 2]
                else:
                    assert found == whole[table]
                mine = await store.read(table, None, 100, managed_by=OWNER)
                if "managed_by" in shape.columns:
                    place = shape.columns.index("managed_by")
                    assert mine == [row for row in whole[table] if row[place] == OWNER]
                else:
                    assert mine == whole[table]

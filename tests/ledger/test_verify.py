"""verify_store: clean on ledgers that the store's own verbs have made, and never on ones that were tampered with."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from noonbell.core.records import LifecycleEvent
from noonbell.ledger import Report, verify_store
from noonbell.ports import Ledger
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from noonbell.store.words import SCHEDULED
from noonbell.testing.storage_cases.base import record_step
from tests.ledger.history import OWNER, SECOND, History, eventful, us
from tests.ledger.tampering import NAMES, TAMPERINGS, Tampering

MINUTE = 60 * SECOND


def execute(store: SqliteStore, sql: str, names: Mapping[str, int] = NAMES) -> None:
    """Tamper with the file behind the store's back; something has to change."""
    db = apsw.Connection(str(store.path))
    db.execute(sql, names)
    assert db.changes() > 0
    db.close()


def texts(report: Report) -> list[str]:
    return [problem.text for problem in report.problems]


# --- whole ------------------------------------------------------------------------------------------------------------


async def test_an_eventful_ledger_is_whole(store: Ledger) -> None:
    await eventful(store)
    report = await verify_store(store)
    assert texts(report) == []
    assert report.remarks == []
    assert report.clean
    # sync from 00:00 to 01:21; hourly at 00:00, then at 00:30 and 01:00 in its new rhythm; gone at 00:00 and 00:30
    assert (report.schedules, report.occurrences) == (3, 82 + 3 + 2)
    assert report.runs == 33 + 2 + 2
    assert report.spans == 4


async def test_an_empty_store_is_whole(store: Ledger) -> None:
    report = await verify_store(store)
    assert report.clean
    assert (report.schedules, report.occurrences, report.runs, report.spans) == (0, 0, 0, 0)


@pytest.mark.parametrize("zone", ["America/New_York", "Australia/Lord_Howe"])
async def test_clock_changes_break_no_account(store: Ledger, zone: str) -> None:
    history = History(store, zone)
    await history.start("2026-03-07T12:00:00", {"night": "30 1,2 * * *", "often": "0,20,40 * * * *"})
    await history.run_each("2026-03-07T12:00:00", "2026-03-09T12:00:00", timedelta(minutes=10))
    await history.run_each("2026-03-09T12:10:00", "2026-11-05T12:00:00", timedelta(hours=31))
    report = await verify_store(store)
    assert texts(report) == []
    assert report.occurrences > 17_000


async def test_a_running_run_and_a_manual_one_are_whole(store: Ledger) -> None:
    history = History(store)
    await history.start("2026-11-15T00:00:00", {"sync": "* * * * *"})
    await history.run("2026-11-15T00:00:00")
    start = await store.runs.trigger(1, "one", us("2026-11-15T00:00:30"))
    assert start is not None
    assert (await verify_store(store)).clean
    await history.settle([start], "2026-11-15T00:00:40")
    await history.claim("2026-11-15T00:01:00")
    report = await verify_store(store)
    assert texts(report) == []
    assert (report.occurrences, report.runs) == (2, 2)


async def test_one_owner_can_be_verified_alone(night: SqliteStore) -> None:
    other = History(night, owner="scheduler:other")
    await other.start("2026-11-15T00:00:00", {"sync": "* * * * *"})
    await other.run("2026-11-15T00:00:00")
    execute(night, "DELETE FROM runs WHERE sid = 4")
    assert (await verify_store(night, managed_by=OWNER)).clean
    report = await verify_store(night, managed_by="scheduler:other")
    assert [problem.managed_by for problem in report.problems] == ["scheduler:other"]


# --- tampered with ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tampering", TAMPERINGS, ids=lambda tampering: tampering.how)
async def test_whatever_is_tampered_with_is_named(night: SqliteStore, tampering: Tampering) -> None:
    execute(night, tampering.sql)
    report = await verify_store(night)
    named = "" if tampering.task is None else f"{tampering.task} ({OWNER}): "
    assert f"{named}{tampering.said}" in texts(report)
    assert len(report.problems) <= 3
    assert not report.clean


DAMAGED = [
    "UPDATE schedule_definitions SET name = sid",
    "UPDATE schedule_definitions SET spec = NULL, timezone = 5",
    "UPDATE schedule_state SET cursor_at = 'soon'; UPDATE schedule_definitions SET created_at = x'00ff'",
    "UPDATE schedule_state SET cursor_at = 9223372036854775807",
    "UPDATE schedule_state SET epoch = 'one'",
    "UPDATE schedule_state SET next_run_at = 'x'",
    "UPDATE schedule_definitions SET managed_by = 5",
    "UPDATE epochs SET from_at = 'x'",
    "UPDATE epochs SET to_at = 1.5",
    "UPDATE epochs SET epoch = 'x' || epoch",
    "UPDATE epochs SET spec = '* * *'",
    "UPDATE epochs SET spec = 7",
    "UPDATE epochs SET timezone = 'Mars/Olympus'",
    "UPDATE epochs SET timezone = x'00'",
    "UPDATE epochs SET sid = sid + 50",
    "UPDATE runs SET run_for = 'x' || run_for",
    "UPDATE runs SET run_for = 9223372036854775807 - sid WHERE run_for = 1794702600000000",
    "UPDATE runs SET sid = 'x' || sid",
    "UPDATE runs SET kind = 'other'",
    "UPDATE runs SET started_at = 'x'",
    "UPDATE runs SET ended_at = x'ff'",
    "UPDATE runs SET attempts = 'many'",
    "UPDATE runs SET epoch = 'x'",
    "UPDATE spans SET to_at = 'x'",
    "UPDATE spans SET from_at = 'x' || from_at",
    "UPDATE spans SET n = 'x'",
    "UPDATE spans SET epoch = 'x'",
    "UPDATE runs_live SET state = 5",
    "UPDATE runs_live SET run_for = 'x'",
    "UPDATE runs_live SET attempt = 'x', fence = -1",
    "UPDATE runs_live SET started_at = 'x'",
    "UPDATE runs_live SET sid = 99",
    "UPDATE attempts SET run_for = 'x' || run_for",
    "UPDATE attempts SET kind = 'x'",
    "UPDATE attempts SET sid = 1000 + attempt",
    "UPDATE lifecycle SET at = 'x'",
    "UPDATE lifecycle SET event = 5",
    "DELETE FROM schedule_definitions",
    "DELETE FROM schedule_state",
]


@pytest.mark.parametrize("sql", DAMAGED)
async def test_damage_is_told_and_never_raises(night: SqliteStore, sql: str) -> None:
    execute(night, sql)
    report = await verify_store(night)
    assert report.problems
    assert all(text.endswith(".") for text in texts(report))


# --- remarks ---------------------------------------------------------------------------------------------------------


async def test_a_clock_that_was_set_back_is_remarked_and_no_problem(store: Ledger) -> None:
    history = History(store)
    await history.start("2026-11-15T00:00:00", {"sync": "* * * * *"})
    await history.settle(await history.claim("2026-11-15T00:00:05"), "2026-11-15T00:00:01")
    report = await verify_store(store)
    assert report.clean
    (remark,) = report.remarks
    assert "ended at 2026-11-15T00:00:01Z, before it started at 2026-11-15T00:00:05Z: the clock was set back" in remark


async def test_an_epoch_of_other_zone_rules_is_not_judged_by_todays(night: SqliteStore) -> None:
    execute(night, "UPDATE epochs SET zone_hash = 'older' WHERE sid = 1")
    execute(night, "DELETE FROM runs WHERE sid = 1 AND run_for = :at")
    report = await verify_store(night)
    assert report.clean
    assert len(report.remarks) == 1
    assert "which are not those it was decided by" in report.remarks[0]


async def test_a_stop_whose_beginning_was_not_recorded_is_a_remark(store: Ledger) -> None:
    history = History(store)
    await history.start("2026-11-15T00:00:00", {})
    await record_step(store, LifecycleEvent(OWNER, us("2026-11-15T00:01:00"), "one", "stop-end"))
    report = await verify_store(store)
    assert report.clean
    assert len(report.remarks) == 1


async def test_a_run_that_a_stop_could_not_put_back_is_a_remark(store: Ledger) -> None:
    history = History(store)
    await history.start("2026-11-15T00:00:00", {"sync": "* * * * *"})
    await history.claim("2026-11-15T00:00:00")
    assert (await verify_store(store)).remarks == []
    await history.stop("2026-11-15T00:01:00")
    report = await verify_store(store)
    assert report.clean
    (remark,) = report.remarks
    assert "for 2026-11-15T00:00:00Z counts as running, though its scheduler has stopped" in remark


# --- parts of it, and a lot of it -------------------------------------------------------------------------------------


async def test_a_part_of_the_time_can_be_verified(night: SqliteStore) -> None:
    execute(night, "DELETE FROM runs WHERE sid = 1 AND run_for = :at")
    before = await verify_store(night, to_at=NAMES["at"] - 1)
    after = await verify_store(night, from_at=NAMES["at"] + 1)
    inside = await verify_store(night, from_at=NAMES["at"], to_at=NAMES["at"])
    assert before.clean
    assert after.clean
    assert [problem.at for problem in inside.problems] == [NAMES["at"]]
    # bounds inside a span: what lies in the window is counted, and nothing else
    cut = await verify_store(night, from_at=us("2026-11-15T00:40:00"), to_at=us("2026-11-15T00:49:59"))
    assert cut.clean
    assert cut.occurrences == 10


async def test_what_is_written_meanwhile_is_no_problem(file_store: SqliteStore) -> None:
    """A run that ends between two pages is seen alive and ended; at the second look it is not."""
    history = await eventful(file_store)
    starts = await history.claim("2026-11-15T01:22:00")
    genuine = file_store.read
    asked = 0

    async def read_ledger(table: Any, after: Any, limit: int, **bounds: Any) -> list[tuple[Any, ...]]:
        nonlocal asked
        if table == "runs" and not asked:
            asked = 1
            await history.settle(starts, "2026-11-15T01:22:01")
        return await genuine(table, after, limit, **bounds)

    file_store.read = read_ledger  # type: ignore[method-assign]  # the moment between two reads
    report = await verify_store(file_store)
    assert asked
    assert texts(report) == []


async def test_a_million_missed_occurrences_are_counted_not_enumerated(
    store: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(store)
    await history.start("2024-01-01T00:00:00", {"sync": "* * * * *"})
    await history.run("2024-01-01T00:00:00")
    await history.run("2026-01-01T00:00:00")

    def enumerated(*_: object, **__: object) -> None:
        raise AssertionError("occurrences were enumerated")

    monkeypatch.setattr("noonbell.cron.CronExpression.epochs_between", enumerated)
    monkeypatch.setattr("noonbell.cron.CronExpression.between", enumerated)
    report = await verify_store(store)
    assert texts(report) == []
    assert report.occurrences == (366 + 365) * 1440 + 1
    assert report.spans == 1


async def test_memory_does_not_grow_with_the_runs(file_store: SqliteStore, tmp_path: Path) -> None:
    history = History(file_store)
    await history.start("2026-01-01T00:00:00", {"sync": "* * * * *"})
    await history.run("2026-01-01T00:00:00")
    n = 60_000
    execute(
        file_store,
        "WITH RECURSIVE i(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM i WHERE k < :n), at(t) AS "
        "(SELECT :first + k * 60000000 FROM i) "
        "INSERT INTO runs SELECT t, 1, :kind, 0, 1, t, t, 'one', 1, t - 60000000, 0, 0 FROM at",
        {"first": us("2026-01-01T00:00:00"), "n": n, "kind": SCHEDULED},
    )
    last = us("2026-01-01T00:00:00") + n * MINUTE
    execute(
        file_store,
        "UPDATE schedule_state SET cursor_at = :last, next_run_at = :last + 60000000, last_run_at = :last, "
        "last_ended_for = :last, "
        "ended_runs = ended_runs + :n, succeeded_runs = succeeded_runs + :n",
        {"last": last, "n": n},
    )
    assert (await verify_store(file_store, to_at=us("2026-01-02T00:00:00"))).clean  # caches are filled
    tracemalloc.start()
    report = await verify_store(file_store)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert texts(report) == []
    assert report.runs == n + 1
    assert peak < 8_000_000  # a page of rows; all of them would be five times as much


# --- tasks and schedules are checked alike ----------------------------------------------------------------------------


async def executing() -> MemoryStore:
    """A task whose run executes."""
    store = MemoryStore()
    await store.open()
    history = History(store)
    await history.start("2026-11-15T00:00:00", {"sync": "0 * * * *"})
    await history.claim("2026-11-15T00:00:00")
    return store


@pytest.mark.parametrize("next_run_at", [None, us("2026-11-15T01:00:00")])
async def test_a_task_whose_run_executes_wakes_at_its_next_occurrence_or_not_at_all(next_run_at: int | None) -> None:
    store = await executing()
    store.data.schedules[1]["next_run_at"] = next_run_at
    assert texts(await verify_store(store)) == []


async def test_a_task_whose_run_executes_wakes_at_no_other_time() -> None:
    store = await executing()
    store.data.schedules[1]["next_run_at"] = us("2026-11-15T02:00:00")
    assert texts(await verify_store(store)) == [
        (
            f"sync ({OWNER}): a run of it is running, and it wakes at 2026-11-15T02:00:00Z, but what follows starts at "
            "2026-11-15T01:00:00Z."
        )
    ]


async def test_a_manual_run_of_a_task_may_be_queued() -> None:
    store = await executing()
    (scheduled,) = store.data.live[1].values()
    asked_at = us("2026-11-15T00:00:30")
    queued = replace(
        scheduled, kind="manual", run_for=asked_at, state="queued", owner=None, wake_at=asked_at, attempt=0,
        started_at=None, attempt_at=None,
    )  # fmt: skip
    store.data.live[1]["manual", asked_at] = queued
    assert texts(await verify_store(store)) == []


async def test_a_dormant_task_does_not_wake() -> None:
    store = MemoryStore()
    await store.open()
    history = History(store)
    await history.start("2026-11-15T00:00:00", {"sync": "0 * * * *"})
    await history.park("2026-11-15T00:00:30", "sync")
    assert texts(await verify_store(store)) == []
    store.data.schedules[1]["next_run_at"] = us("2026-11-15T01:00:00")
    assert texts(await verify_store(store)) == [
        f"sync ({OWNER}): it is not in use, and yet it wakes at 2026-11-15T01:00:00Z."
    ]


async def test_a_manual_run_of_a_task_does_not_put_off_its_wake_up() -> None:
    store = MemoryStore()
    await store.open()
    history = History(store)
    await history.start("2026-11-15T00:00:00", {"sync": "0 * * * *"})
    await history.run("2026-11-15T00:00:00")
    assert await store.runs.trigger(1, "one", us("2026-11-15T00:00:30")) is not None
    for next_run_at in (None, us("2026-11-15T01:00:00")):
        store.data.schedules[1]["next_run_at"] = next_run_at
        assert texts(await verify_store(store)) == []
    store.data.schedules[1]["next_run_at"] = us("2026-11-15T02:00:00")
    assert texts(await verify_store(store)) == [
        (
            f"sync ({OWNER}): it wakes at 2026-11-15T02:00:00Z, but after its cursor (2026-11-15T00:00:00Z) the next "
            "occurrence is 2026-11-15T01:00:00Z."
        )
    ]


async def test_a_run_of_a_task_that_ended_during_another_is_a_problem(store: Ledger) -> None:
    history = History(store)
    await history.start("2026-11-15T00:00:00", {"sync": "* * * * *"})
    first = await history.claim("2026-11-15T00:00:00")
    await history.settle(await history.claim_beside("2026-11-15T00:01:00"), "2026-11-15T00:01:10")
    assert texts(await verify_store(store)) == [
        f"sync ({OWNER}): the run for 2026-11-15T00:01:00Z has ended, and the one for 2026-11-15T00:00:00Z is running."
    ]
    await history.settle(first, "2026-11-15T00:00:30")  # by a clock that was set back at that, which hides nothing
    report = await verify_store(store)
    assert texts(report) == [
        (
            f"sync ({OWNER}): the run for 2026-11-15T00:01:00Z ended before the one for 2026-11-15T00:00:00Z, though "
            "none may overlap."
        )
    ]
    assert [problem.kind for problem in report.problems] == ["overlap"]


@pytest.mark.parametrize("beside", [False, True])
async def test_runs_of_a_task_that_overlap_by_the_clock_are_a_remark(store: Ledger, *, beside: bool) -> None:
    """Where they ended in their order, the same rows come of a clock that was set back between them."""
    history = History(store)
    await history.start("2026-11-15T00:00:00", {"sync": "* * * * *"})
    first = await history.claim("2026-11-15T00:00:00")
    if beside:
        second = await history.claim_beside("2026-11-15T00:01:00")
        await history.settle(first, "2026-11-15T00:01:30")
    else:
        await history.settle(first, "2026-11-15T00:01:30")
        second = await history.claim("2026-11-15T00:01:00")
    await history.settle(second, "2026-11-15T00:01:40")
    report = await verify_store(store)
    assert report.clean
    assert report.remarks == [
        (
            f"sync ({OWNER}): the run for 2026-11-15T00:01:00Z began at 2026-11-15T00:01:00Z, while one before it "
            "lasted to 2026-11-15T00:01:30Z: the clock was set back."
        )
    ]

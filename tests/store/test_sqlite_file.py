"""SQLite's own troubles: files that cannot be used, files of another version, and what its statements cost."""
# ruff: noqa: ASYNC240 - small local files, and nothing else runs on the loop

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from noonbell.core.records import Settlement
from noonbell.errors import StoreCorruptError, StoreError, StoreUnavailableError
from noonbell.ledger.ledger_rows import schedule_rows
from noonbell.ports import RunFilter
from noonbell.store.sqlite import SqliteStore, connection
from noonbell.store.sqlite.schema import MIGRATIONS
from noonbell.store.words import SCHEDULED
from noonbell.testing.storage_cases.base import ME, MINUTE, OWNER, T0, claim, declaration, ledger, new


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


async def opened(path: Path, *tasks: str) -> SqliteStore:
    store = SqliteStore(path, threaded=False, busy_timeout_ms=20)
    await store.open()
    if tasks:
        await store.schedules.declare(declaration(created=[new(name) for name in tasks]))
    return store


def inside(store: SqliteStore) -> apsw.Connection:
    db = store._connection._db
    assert db is not None
    return db


# --- files that cannot be used ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("threaded", [True, False])
async def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, threaded: bool) -> None:
    text = b"These are the minutes of the last meeting.\n" * 100
    path.write_bytes(text)
    store = SqliteStore(path, threaded=threaded)
    with pytest.raises(StoreCorruptError, match=r"app\.db is damaged or not an SQLite file"):
        await store.open()
    assert path.read_bytes() == text
    path.unlink()
    await store.open()
    assert await schedule_rows(store) == []
    await store.close()


@pytest.mark.parametrize("threaded", [True, False])
async def test_a_missing_directory_is_named_and_can_be_made(tmp_path: Path, threaded: bool) -> None:
    store = SqliteStore(tmp_path / "no" / "app.db", threaded=threaded)
    with pytest.raises(StoreUnavailableError, match=r"no/app\.db cannot be used now: .*unable to open"):
        await store.open()
    with pytest.raises(StoreUnavailableError, match=r"no/app\.db.*\.lock cannot be opened: No such file"):
        await store.hold("default", "me")
    (tmp_path / "no").mkdir()
    await store.open()
    (await store.hold("default", "me")).release()
    await store.close()


async def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="cannot be used now"):
        await SqliteStore(tmp_path).open()


async def test_a_damaged_page_is_told(path: Path) -> None:
    store = await opened(path, *(f"task {i}" for i in range(500)))
    await store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))

    async def use() -> None:
        await store.open()
        await schedule_rows(store)

    with pytest.raises(StoreCorruptError, match=r"app\.db is damaged"):
        await use()
    await store.close()
    path.write_bytes(whole)
    await store.open()
    assert len(await schedule_rows(store)) == 500
    await store.close()


async def test_while_the_file_is_read_only_it_can_be_read(path: Path) -> None:
    store = await opened(path, "a")
    before = await ledger(store)
    inside(store).execute("PRAGMA query_only = ON")
    with pytest.raises(StoreUnavailableError, match=r"cannot be used now: .*readonly"):
        await claim(store, T0 + MINUTE)
    assert await ledger(store) == before
    inside(store).execute("PRAGMA query_only = OFF")
    assert len((await claim(store, T0 + MINUTE)).starts) == 1
    await store.close()


async def test_when_the_disk_is_full_nothing_is_half_done(path: Path) -> None:
    store = await opened(path, "a")
    before = await ledger(store)
    pages = inside(store).execute("PRAGMA page_count").get
    inside(store).execute(f"PRAGMA max_page_count = {pages + 2}")
    many = declaration(created=[new(f"task {i}") for i in range(2000)])
    with pytest.raises(StoreUnavailableError, match=r"cannot be used now: .*full"):
        await store.schedules.declare(many)
    assert await ledger(store) == before
    assert len((await claim(store, T0 + MINUTE)).starts) == 1, "what fits still works"
    inside(store).execute("PRAGMA max_page_count = 1000000")
    assert len(await store.schedules.declare(many)) == 2000
    await store.close()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


async def test_a_locked_file_can_be_read_and_is_written_when_it_is_free(path: Path) -> None:
    store = await opened(path, "a")
    before = await ledger(store)
    with locked(path):
        with pytest.raises(StoreUnavailableError, match=r"cannot be used now: .*locked"):
            await claim(store, T0 + MINUTE)
        assert await ledger(store) == before
    (start,) = (await claim(store, T0 + MINUTE)).starts
    with locked(path), pytest.raises(StoreUnavailableError):
        await store.runs.settle([Settlement(start, ME, "succeeded", T0 + MINUTE)])
    assert (await store.runs.settle([Settlement(start, ME, "succeeded", T0 + MINUTE)])).stale == []
    await store.close()


@pytest.mark.parametrize("threaded", [True, False])
async def test_a_file_that_is_locked_at_the_start_can_be_opened_later(path: Path, threaded: bool) -> None:
    await (await opened(path, "a")).close()
    store = SqliteStore(path, threaded=threaded, busy_timeout_ms=20)
    with locked(path), pytest.raises(StoreUnavailableError, match="locked"):
        await store.open()
    await store.open()
    assert len(await schedule_rows(store)) == 1
    await store.close()


async def test_commits_reach_the_disk(path: Path) -> None:
    store = await opened(path)
    assert inside(store).execute("PRAGMA journal_mode").get == "wal"
    assert inside(store).execute("PRAGMA synchronous").get == 2, "FULL: a commit survives a loss of power"
    await store.close()


# --- versions ---------------------------------------------------------------------------------------------------------


def schema_of(path: Path) -> list[Any]:
    db = apsw.Connection(str(path))
    rows = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name").fetchall()
    version = db.execute("PRAGMA user_version").get
    db.close()
    return [*rows, version]


async def test_a_newer_file_is_refused_and_left_alone(path: Path) -> None:
    await (await opened(path, "a")).close()
    newer = len(MIGRATIONS) + 7
    db = apsw.Connection(str(path))
    db.execute(f"PRAGMA user_version = {newer}")
    db.close()
    before = schema_of(path)
    with pytest.raises(StoreError, match=rf"version {newer}; this Noonbell knows up to {len(MIGRATIONS)}"):
        await opened(path)
    assert schema_of(path) == before


@pytest.mark.parametrize("version", [1, 8])
@pytest.mark.parametrize("read_only", [False, True])
async def test_a_file_of_a_development_version_is_refused_and_left_alone(
    path: Path, version: int, *, read_only: bool
) -> None:
    db = apsw.Connection(str(path))
    for table in ("schedules (sid INTEGER PRIMARY KEY)", "runs (a)", "spans (a)", "epochs (a)", "lifecycle (a)"):
        db.execute(f"CREATE TABLE {table}")
    db.execute(f"PRAGMA user_version = {version}")
    db.close()
    before = schema_of(path)
    said = rf"{path} was made by a development version of Noonbell \(its schema has the number {version}\)"
    with pytest.raises(StoreError, match=f"{said}.*Start with a new file"):
        await SqliteStore(path, threaded=False, read_only=read_only).open()
    assert schema_of(path) == before


@pytest.mark.parametrize("version", range(len(MIGRATIONS) + 1))
async def test_every_older_file_becomes_the_same_as_a_new_one(tmp_path: Path, version: int) -> None:
    old, fresh = tmp_path / "old.db", tmp_path / "new.db"
    db = apsw.Connection(str(old))
    for script in MIGRATIONS[:version]:
        db.execute(script)
    db.execute(f"PRAGMA user_version = {version}")
    db.close()
    for path in (old, fresh):
        await (await opened(path, "a")).close()
    assert schema_of(old) == schema_of(fresh)
    assert schema_of(fresh)[-1] == len(MIGRATIONS)


async def test_a_migration_that_fails_leaves_the_old_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await (await opened(path, "a")).close()
    before = schema_of(path)
    coming = ("CREATE TABLE coming (x)", "CREATE TABLE coming (x)")
    monkeypatch.setattr(connection, "MIGRATIONS", (*MIGRATIONS, *coming))
    with pytest.raises(StoreError, match="coming already exists"):
        await opened(path)
    assert schema_of(path) == before
    monkeypatch.setattr(connection, "MIGRATIONS", (*MIGRATIONS, *coming[:1]))
    store = await opened(path)
    assert [row["name"] for row in await schedule_rows(store)] == ["a"]
    assert inside(store).execute("PRAGMA user_version").get == len(MIGRATIONS) + 1
    await store.close()


# --- what statements cost ---------------------------------------------------------------------------------------------

Statement = tuple[str, Any]


async def traced(store: SqliteStore, work: Callable[[], Awaitable[Any]]) -> tuple[Any, list[Statement]]:
    statements: list[Statement] = []

    def note(_: object, sql: str, bindings: Any) -> bool:
        statements.append((sql, bindings))
        return True

    inside(store).exec_trace = note
    try:
        return await work(), statements
    finally:
        inside(store).exec_trace = None


async def statements_of(path: Path, tasks: int) -> dict[str, list[Statement]]:
    """What a store runs for batches of this size: fresh starts, failures, retries, preempted ones, handed back ones."""
    store = await opened(path, *(f"task {i}" for i in range(tasks)))
    found: dict[str, list[Statement]] = {}

    async def note(verb: str, work: Callable[[], Awaitable[Any]]) -> Any:
        result, found[verb] = await traced(store, work)
        return result

    at = T0 + 3 * MINUTE
    first = await note("claim", lambda: claim(store, at, limit=10_000))
    failures = [Settlement(start, ME, "failed", at + 1, at + 2, "no") for start in first.starts]
    assert (await note("settle failures", lambda: store.runs.settle(failures))).stale == []
    retries = await note("claim retries", lambda: claim(store, at + 2, limit=10_000))
    again = [Settlement(start, ME, "failed", at + 3, at + MINUTE, "no") for start in retries.starts]
    assert (await note("settle repeats", lambda: store.runs.settle(again))).stale == []
    preempting = await note("claim preempting", lambda: claim(store, at + MINUTE, limit=10_000))
    await note("hand back", lambda: store.runs.hand_back(preempting.starts, ME, at + MINUTE))
    resumed = await note("claim handed back", lambda: claim(store, at + MINUTE, limit=10_000))
    ends = [Settlement(start, ME, "succeeded", at + MINUTE + 1) for start in resumed.starts]
    assert (await note("settle", lambda: store.runs.settle(ends))).stale == []
    sizes = [len(claimed.starts) for claimed in (first, retries, preempting, resumed)]
    assert sizes == [tasks] * 4
    found["plans"] = [
        (detail, verb)
        for verb, statements in list(found.items())
        for sql, bindings in statements
        if sql.lstrip().startswith(("SELECT", "INSERT", "UPDATE", "DELETE"))
        for _, _, _, detail in inside(store).execute("EXPLAIN QUERY PLAN " + sql, bindings)
    ]
    await store.close()
    return found


async def test_a_batch_of_a_thousand_takes_as_many_statements_as_one_of_ten(tmp_path: Path) -> None:
    small = await statements_of(tmp_path / "small.db", 10)
    large = await statements_of(tmp_path / "large.db", 1000)
    assert {verb: len(run) for verb, run in small.items() if verb != "plans"} == {
        verb: len(run) for verb, run in large.items() if verb != "plans"
    }
    assert max(len(run) for verb, run in large.items() if verb != "plans") <= 18


async def test_no_statement_reads_a_whole_table(tmp_path: Path) -> None:
    plans = (await statements_of(tmp_path / "plans.db", 300))["plans"]
    # what was handed in, and the few wake-ups that a look considers
    batches = ("SCAN b", "SCAN json_each", "SCAN temp.settling", "SCAN (subquery", "SCAN CONSTANT ROW")
    scans = [(detail, verb) for detail, verb in plans if detail.startswith("SCAN") and not detail.startswith(batches)]
    assert {detail for detail, _ in plans if detail.endswith(" l")} == {"CO-ROUTINE l", "SCAN l"}, (
        "a subquery of 64 rows"
    )
    scans = [(detail, verb) for detail, verb in scans if detail != "SCAN l"]
    assert scans == []
    due = [detail for detail, verb in plans if verb == "claim" and "idx_schedules_next_run" in detail]
    assert len(due) == 3, "whether any is due, the due schedules, and the earliest that is not due yet"
    assert any("idx_runs_live_wake" in detail for detail, verb in plans if verb == "claim retries")
    # what wakes through a live run is put in the order of its wake-ups; nothing else is sorted
    assert {verb for detail, verb in plans if "TEMP B-TREE FOR ORDER BY" in detail} == {
        "claim retries", "claim preempting", "claim handed back",
    }  # fmt: skip


async def test_a_claim_of_one_does_not_read_the_schedules_that_are_not_due(path: Path) -> None:
    store = await opened(path, "due")
    later = [new(f"later {i}", next_run_at=T0 + 9 * MINUTE + i) for i in range(5000)]
    await store.schedules.declare(declaration(created=later))
    steps = itertools.count()

    def count() -> bool:
        next(steps)
        return False

    inside(store).set_progress_handler(count, 100)
    claimed, _ = await store.runs.claim(OWNER, ME, T0 + MINUTE - 1, 100, lambda due: pytest.fail(f"{due} is not due"))
    assert (claimed.looked, claimed.next_wake_at) == (0, T0 + MINUTE)
    assert next(steps) <= 20, "two thousand instructions of SQLite's machine, not hundreds of thousands"
    await store.close()


async def test_a_look_does_not_pass_over_all_that_others_have_planned(path: Path) -> None:
    store = await opened(path, "mine")
    others = [new(f"theirs {i}", next_run_at=T0 + 1 + i) for i in range(5000)]
    await store.schedules.declare(declaration(managed_by="scheduler:other", created=others))
    steps = itertools.count()

    def count() -> bool:
        next(steps)
        return False

    inside(store).set_progress_handler(count, 100)
    claimed, _ = await store.runs.claim(OWNER, ME, T0, 100, lambda due: pytest.fail(f"{due} is not due"))
    assert next(steps) <= 50, "thousands of instructions of SQLite's machine, not hundreds of thousands"
    assert claimed.next_wake_at is not None
    assert T0 < claimed.next_wake_at <= T0 + MINUTE, "early is harmless, late is not"
    await store.close()


# --- a ledger that contradicts itself ---------------------------------------------------------------------------------


async def test_a_row_that_the_ledger_contradicts_is_put_off_alone(path: Path) -> None:
    store = await opened(path, "a", "b")
    # the cursor of one schedule was set back by hand: what it owes has its span already
    inside(store).execute(
        "INSERT INTO spans VALUES (1, ?, ?, 1, 'coalesced', 'by hand', 1)", (T0 + MINUTE, T0 + MINUTE)
    )
    later = T0 + 3 * MINUTE
    claimed = await claim(store, later)
    assert [start.sid for start in claimed.starts] == [2]
    assert [sid for sid, _ in claimed.quarantined] == [1]
    assert await store.runs.live(1) == []
    rows = {row["sid"]: row["next_run_at"] for row in await schedule_rows(store)}
    assert rows == {1: later + MINUTE, 2: T0 + 4 * MINUTE}
    await store.close()


async def test_an_end_that_is_on_record_already_does_not_hold_up_the_others(path: Path) -> None:
    store = await opened(path, "a", "b")
    claimed = await claim(store, T0 + MINUTE)
    run = claimed.starts[0].run_for
    sql = "INSERT INTO runs VALUES (?1, 1, ?2, 0, 1, ?1, ?1, 'x', 1, NULL, 0, 0)"
    inside(store).execute(sql, (run, SCHEDULED))
    ends = [Settlement(start, ME, "succeeded", T0 + MINUTE + 5) for start in claimed.starts]
    assert [stale.start.sid for stale in (await store.runs.settle(ends)).stale] == [1]
    assert await store.runs.live(1) == []
    assert [ended.outcome for ended in await store.history.runs(RunFilter(2, 0, T0 + 9 * MINUTE))] == ["succeeded"]
    await store.close()


async def test_the_files_are_for_their_owner_alone(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.hold(OWNER, "test")
    await store.schedules.declare(declaration(created=[new("a")]))
    made = sorted(path.parent.iterdir())
    assert {one.stat().st_mode & 0o777 for one in made} == {0o600}
    assert len(made) >= 3
    await store.close()

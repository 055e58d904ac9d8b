"""Words as numbers in a file: each word has one, whatever was kept is read back, and a run takes few bytes."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import apsw
import pytest

from noonbell.core.records import Cause, Kind, Outcome, Settlement
from noonbell.ports import RunFilter
from noonbell.store.sqlite import SqliteStore
from noonbell.store.sqlite.numbers import owner_numbers
from noonbell.store.words import CAUSES, KINDS, OUTCOMES
from noonbell.testing.storage_cases.base import ME, MINUTE, SECOND, T0, claim, declaration, fail, new, start_one


def inside(store: SqliteStore) -> apsw.Connection:
    db = store._connection._db
    assert db is not None
    return db


@pytest.mark.parametrize(("words", "numbered"), [(Kind, KINDS), (Outcome, OUTCOMES), (Cause, CAUSES)])
def test_every_word_has_a_number(words: object, numbered: tuple[str, ...]) -> None:
    assert sorted(get_args(words)) == sorted(numbered)
    assert len(set(numbered)) == len(numbered)


async def test_runs_and_attempts_are_numbers_and_are_read_as_words(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "app.db", threaded=False)
    await store.open()
    await store.schedules.declare(declaration(created=[new("a")]))
    await fail(store, await start_one(store, T0 + MINUTE), T0 + 61 * SECOND, None)
    row = inside(store).execute("SELECT kind, outcome, owner FROM runs").fetchone()
    assert row == (KINDS.index("scheduled"), OUTCOMES.index("failed"), 1)
    row = inside(store).execute("SELECT kind, outcome, cause, owner FROM attempts").fetchone()
    assert row == (KINDS.index("scheduled"), OUTCOMES.index("failed"), CAUSES.index("cron"), 1)
    (run,) = await store.history.runs(RunFilter(1, 0, T0 + MINUTE))
    assert (run.kind, run.outcome, run.owner) == ("scheduled", "failed", ME)
    (attempt,) = await store.history.attempts(1, 0, T0 + MINUTE)
    assert (attempt.kind, attempt.outcome, attempt.cause, attempt.owner) == ("scheduled", "failed", "cron", ME)
    assert owner_numbers(inside(store), ["7", ME]) == {"7": 2, ME: 1}
    await store.close()


async def test_an_owner_without_a_number_and_damage_are_read_as_they_stand(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "app.db", threaded=False)
    await store.open()
    await store.schedules.declare(declaration(created=[new("a")]))
    await fail(store, await start_one(store, T0 + MINUTE), T0 + 61 * SECOND, None)
    for owner in ("1", "other", 99):
        inside(store).execute("UPDATE runs SET owner = ?, outcome = 'fine', kind = 'x'", (owner,))
        (run,) = await store.read("runs", None, 10)
        assert (run[2], run[3], run[7]) == ("x", "fine", owner)
    await store.close()


async def test_a_run_takes_sixty_bytes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "app.db", threaded=False)
    await store.open()
    count, rounds = 2000, 5
    await store.schedules.declare(declaration(created=[new(f"task {i}") for i in range(count)]))
    for minute in range(1, rounds + 1):
        at = T0 + minute * MINUTE
        starts = (await claim(store, at, limit=count)).starts
        assert len(starts) == count
        await store.runs.settle([Settlement(start, ME, "succeeded", at + 7_919 + start.sid) for start in starts])
    size = inside(store).execute("SELECT sum(pgsize) FROM dbstat WHERE name IN ('runs', 'idx_runs_unsuccessful')").get
    assert size / (count * rounds) <= 60
    await store.close()

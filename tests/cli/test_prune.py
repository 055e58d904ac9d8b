"""`noonbell prune` on a file: what it tells, what it leaves, and that verify still finds the ledger whole."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from noonbell.cli import program
from noonbell.store.sqlite import SqliteStore
from tests.ledger.history import eventful

LATER = datetime(2027, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def db(tmp_path: Path) -> str:
    async def build() -> None:
        store = SqliteStore(tmp_path / "app.db", threaded=False)
        await store.open()
        await eventful(store)
        await store.close()

    asyncio.run(build())
    return f"sqlite:///{tmp_path}/app.db"


def run(*arguments: str, now: datetime = LATER) -> Result:
    return CliRunner().invoke(program, list(arguments), obj=now)


def test_a_dry_run_tells_what_a_pruning_then_does(db: str) -> None:
    told = run("prune", "--db", db, "--keep", "90d", "--dry-run", "--json")
    again = run("prune", "--db", db, "--keep", "90d", "--dry-run", "--json")
    done = run("prune", "--db", db, "--keep", "90d", "--json")
    assert told.stdout == again.stdout
    expected = json.loads(told.stdout)
    assert json.loads(done.stdout) == {**expected, "dry_run": False}
    assert expected["days"] == 1
    assert expected["runs"] > 30
    assert expected["attempts"] > 0


def test_the_ledger_stays_whole_and_why_says_what_is_gone(db: str) -> None:
    before = json.loads(run("verify", "--db", db, "--json").stdout)
    done = run("prune", "--db", db, "--keep", "12w")
    assert done.exit_code == 0
    assert done.stdout.startswith("gone  1 day that ended by 2026-12-07 12:00 UTC: ")
    after = json.loads(run("verify", "--db", db, "--json").stdout)
    assert after["whole"]
    assert after["occurrences"] == before["occurrences"]
    assert after["runs"] < before["runs"]
    assert after["pruned_days"] > 0
    told = json.loads(run("why", "--db", db, "sync", "2026-11-15T02:10", "--json").stdout)
    assert told["verdict"] == "pruned"
    assert "only the counts of that day are kept" in told["text"]


def test_what_is_young_stays(db: str) -> None:
    result = run("prune", "--db", db, "--keep", "1y")
    assert result.exit_code == 0
    assert result.stdout == "nothing to prune: no day ended by 2026-03-01 12:00 UTC\n"


@pytest.mark.parametrize("keep", ["90", "90x", "-1d", "", "999999y"])
def test_a_length_that_is_none_is_refused(db: str, keep: str) -> None:
    result = run("prune", "--db", db, "--keep", keep)
    assert result.exit_code == 2
    assert f'--keep "{keep}" is not a length of time' in result.stderr
    assert "such as 90d, 12w or 2y" in result.stderr


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    result = run("prune", "--db", f"sqlite:///{tmp_path}/none.db", "--keep", "90d")
    assert result.exit_code == 2
    assert not (tmp_path / "none.db").exists()

"""`noonbell verify` and `noonbell why` on files: what they print, their exit status, and that they create nothing."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import apsw
import pytest
from click.testing import CliRunner, Result

from noonbell import Schedules
from noonbell.cli import program
from noonbell.store.sqlite import SqliteStore
from tests.ledger.history import History, eventful, us
from tests.patience import PATIENCE_SECONDS

NOW = datetime(2026, 11, 15, 1, 22, 30, tzinfo=UTC)  # 03:22:30 in Kyiv


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "app.db"

    async def build() -> None:
        store = SqliteStore(path, threaded=False)
        await store.open()
        await eventful(store)
        other = History(store, "America/New_York", owner="scheduler:other")
        await other.start("2026-11-15T00:00:00", {"sync": "0 * * * *"})
        await store.close()

    asyncio.run(build())
    return path


@pytest.fixture
def db(made: Path, tmp_path: Path) -> str:
    return f"sqlite:///{shutil.copy(made, tmp_path / 'app.db')}"


def run(*arguments: str, now: datetime = NOW) -> Result:
    return CliRunner().invoke(program, list(arguments), obj=now)


def tamper(db: str) -> None:
    connection = apsw.Connection(db.removeprefix("sqlite:///"))
    connection.execute("DELETE FROM runs WHERE sid = 1 AND run_for = ?", (us("2026-11-15T00:10:00"),))
    assert connection.changes() == 1
    connection.close()


# --- verify -----------------------------------------------------------------------------------------------------------


def test_a_whole_ledger(db: str) -> None:
    result = run("verify", "--db", db)
    assert (result.exit_code, result.stdout) == (0, "whole  4 schedules, 87 occurrences, 37 runs, 4 spans\n")


def test_a_ledger_with_a_problem(db: str) -> None:
    tamper(db)
    result = run("verify", "--db", db)
    assert result.exit_code == 1
    head, problem = result.stdout.splitlines()
    assert head == "1 problem  4 schedules, 86 occurrences, 36 runs, 4 spans"
    assert problem == (
        "  ✗ sync (scheduler:default): the occurrence 2026-11-15T00:10:00Z has no verdict: no run and no span answers "
        "for it."
    )


def test_problems_as_data(db: str) -> None:
    tamper(db)
    result = run("verify", "--db", db, "--json")
    assert result.exit_code == 1
    found: dict[str, Any] = json.loads(result.stdout)
    problem = found["problems"][0]
    assert (found["whole"], found["runs"], found["more_problems"]) == (False, 36, 0)
    assert {key: problem[key] for key in ("kind", "task", "managed_by", "at")} == {
        "kind": "missing",
        "task": "sync",
        "managed_by": "scheduler:default",
        "at": "2026-11-15T00:10:00+00:00",
    }


def test_a_part_of_it(db: str) -> None:
    tamper(db)
    assert run("verify", "--db", db, "--to", "2026-11-15T00:09").exit_code == 0
    assert run("verify", "--db", db, "--from", "2026-11-15T02:11+02:00").exit_code == 0
    assert run("verify", "--db", db, "--from", "2026-11-15T02:10+02:00").exit_code == 1
    assert run("verify", "--db", db, "--scheduler", "other").exit_code == 0
    assert run("verify", "--db", db, "--scheduler", "default").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", "some day"], '--from "some day" is not a time'),
        (["--to", "2026-13-01"], '--to "2026-13-01" is not a time'),
        (["--from", "2026-11-02", "--to", "2026-11-01"], "--to 2026-11-01 lies before --from 2026-11-02"),
    ],
)
def test_times_that_are_none(db: str, arguments: list[str], said: str) -> None:
    result = run("verify", "--db", db, *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    as_json = run("verify", "--db", db, *arguments, "--json")
    assert as_json.exit_code == 2
    assert said in json.loads(as_json.stdout)["error"]["message"]


# --- why --------------------------------------------------------------------------------------------------------------


def test_why_by_the_clock_time_of_today(db: str) -> None:
    result = run("why", "--db", db, "sync", "03:12", "--scheduler", "default")
    assert result.exit_code == 0
    assert result.stdout == (
        "sync did not run by itself for 2026-11-15 03:12 +02:00 (01:12 UTC): it is one of 2 occurrences (03:11 to "
        "03:12) folded into the run for 03:13, which started at 03:13:11, because a run was in progress (the one for "
        "03:10, from 03:10:21 to 03:13:11).\n"
    )


@pytest.mark.parametrize("time", [["2026-11-15T02:30"], ["2026-11-15", "02:30"], ["2026-11-15T00:30Z"], ["2:30"]])
def test_ways_to_say_a_time(db: str, time: list[str]) -> None:
    result = run("why", "--db", db, "gone", *time)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("gone ran for 2026-11-15 02:30 +02:00 (00:30 UTC): it started at 02:30:30")


def test_today_is_the_day_of_the_task_and_not_of_the_host(db: str) -> None:
    # 01:22 UTC on the 15th is still the evening of the 14th in New York
    result = run("why", "--db", db, "sync", "20:00", "--scheduler", "other", "--json")
    assert json.loads(result.stdout)["asked"] == "2026-11-15T01:00:00+00:00"


def test_without_a_time_the_latest_and_the_next(db: str) -> None:
    result = run("why", "--db", db, "hourly")
    assert result.stdout.startswith("hourly ran for 2026-11-15 03:00 +02:00 (01:00 UTC)")
    assert result.stdout.endswith("The next occurrence is 2026-11-15 03:30 +02:00 (01:30 UTC), in 7 min 30 s.\n")


def test_the_answer_as_data(db: str) -> None:
    found = json.loads(run("why", "--db", db, "gone", "02:30", "--json").stdout)
    assert found["text"].startswith("gone ran for")
    assert (found["verdict"], found["outcome"], found["instance"], found["late_seconds"]) == (
        "fired",
        "succeeded",
        "one",
        30.0,
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["hourli"], 'No task named "hourli"; known: hourly'),
        (["hourly", "two past half"], '"two past half" is not a time'),
        (["hourly", "25:00"], '"25:00" is not a time'),
        (["sync"], 'Tasks named "sync" belong to scheduler:default and scheduler:other'),
    ],
)
def test_questions_that_cannot_be_answered(db: str, arguments: list[str], said: str) -> None:
    result = run("why", "--db", db, *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    as_json = run("why", "--db", db, *arguments, "--json")
    assert (as_json.exit_code, as_json.stderr) == (2, "")
    assert said in json.loads(as_json.stdout)["error"]["message"]


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["verify"], ["why", "sync"]])
def test_a_file_that_is_not_there_is_not_created(tmp_path: Path, command: list[str]) -> None:
    result = run(*command, "--db", f"sqlite:///{tmp_path}/none.db")
    assert result.exit_code == 2
    assert f"File not found: {tmp_path}/none.db; nothing was created" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["verify"], ["why", "sync"]])
def test_other_files_are_left_alone(tmp_path: Path, command: list[str]) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no database, but long enough to look like a page of one\n" * 20, encoding="utf-8")
    foreign = tmp_path / "foreign.db"
    connection = apsw.Connection(str(foreign))
    connection.execute("CREATE TABLE schedules (a)")
    connection.close()
    before = text.read_bytes(), foreign.read_bytes()
    assert "not an SQLite file" in run(*command, "--db", f"sqlite:///{text}").stderr
    assert "holds no Noonbell ledger" in run(*command, "--db", f"sqlite:///{foreign}").stderr
    assert "is not a file" in run(*command, "--db", f"sqlite:///{tmp_path}").stderr
    assert (text.read_bytes(), foreign.read_bytes()) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["foreign.db", "notes.txt"]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("app.db", '"app.db" is a path, not an address; did you mean sqlite:///app.db?'),
        ("mysql://host/db", '"mysql://host/db" is not the address of a store'),
        ("memory://", "memory:// is a store inside one process"),
    ],
)
def test_addresses_that_cannot_be_looked_at(url: str, said: str) -> None:
    result = run("verify", "--db", url)
    assert result.exit_code == 2
    assert said in result.stderr


def test_the_address_is_asked_for() -> None:
    result = run("verify")
    assert result.exit_code == 2
    assert "Missing option '--db'" in result.stderr


@pytest.mark.parametrize("command", ["verify", "why"])
def test_the_help_shows_examples_line_by_line(command: str) -> None:
    shown = [line.strip() for line in run(command, "--help").stdout.splitlines() if "--db sqlite" in line]
    assert len(shown) == {"verify": 2, "why": 3}[command]
    assert all(line.startswith(f"noonbell {command} --db sqlite:///app.db") for line in shown)


def test_in_a_process_of_its_own(db: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "noonbell", "why", "--db", db, "gone", "2026-11-15T02:30", "--json"],
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    assert json.loads(answer.stdout)["verdict"] == "fired"


def test_a_password_in_an_address_is_never_shown() -> None:
    for more in ([], ["--json"]):
        url = "postgresql://me:s3cret@127.0.0.1:1/db"
        result = run("verify", "--db", url, *more)
        assert result.exit_code == 2
        assert "s3cret" not in result.output


@pytest.mark.parametrize(("kind", "spec"), [("cron", "0 9 * * *"), ("interval", "60")])
def test_why_explains_durable_schedules_by_name_and_id(
    tmp_path: Path, kind: Literal["cron", "interval"], spec: str
) -> None:
    async def life() -> str:
        async with Schedules(f"sqlite:///{tmp_path}/c.db") as schedules:
            action = {"kind": "callback", "name": "r"}
            made = await schedules.create(name="daily", type=kind, spec=spec, action=action)
            await schedules.pause(made.schedule_id)
            return made.schedule_id

    key = asyncio.run(life())
    for asked in ("daily", key):
        result = run("why", "--db", f"sqlite:///{tmp_path}/c.db", asked)
        assert result.exit_code == 0
        assert "daily has not been due since it was created at " in result.stdout
        assert result.stdout.rstrip().endswith("Nothing comes next: it is paused.")
    later = run("why", "--db", f"sqlite:///{tmp_path}/c.db", key, "2999-01-01T09:00", "--json")
    told = json.loads(later.stdout)
    assert told["verdict"] == "paused"
    assert "because it was paused: since " in told["text"]
    assert told["text"].endswith(" by api, and it still is.")


@pytest.fixture
def durable(tmp_path: Path) -> str:
    """Two schedules of the same name, one of `api` and one of a file."""
    url = f"sqlite:///{tmp_path}/d.db"

    async def life() -> None:
        for owner in ("api", "file:crontab"):
            async with Schedules(url, managed_by=owner) as schedules:
                action = {"kind": "callback", "name": "r"}
                await schedules.create(
                    schedule_id=owner.partition(":")[0], name="daily", type="cron", spec="0 9 * * *", action=action
                )

    asyncio.run(life())
    return url


def test_the_store_by_either_option_or_the_environment(durable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = (["why", "api"], ["verify"], ["prune", "--keep", "90d", "--dry-run"])
    for command in commands:
        assert run(*command, "--store", durable).exit_code == 0
        assert run(*command, "--db", durable).exit_code == 0
        assert run(*command).exit_code == 2
    monkeypatch.setenv("NOONBELL_STORE", durable)
    for command in commands:
        assert run(*command).exit_code == 0


def test_durable_owners_can_be_named(durable: str) -> None:
    unsure = run("why", "--db", durable, "daily")
    assert unsure.exit_code == 2
    assert 'Tasks or schedules named "daily" belong to api and file:crontab' in unsure.stderr
    assert "Name one with --owner" in unsure.stderr
    for owner in ("api", "file:crontab"):
        told = json.loads(run("why", "--db", durable, "daily", "--owner", owner, "--json").stdout)
        assert told["managed_by"] == owner
        assert json.loads(run("verify", "--db", durable, "--owner", owner, "--json").stdout)["schedules"] == 1
    assert 'No task or schedule named "daly"' in run("why", "--db", durable, "daly").stderr
    both = run("verify", "--db", durable, "--owner", "api", "--scheduler", "x")
    assert (both.exit_code, "exclude each other" in both.stderr) == (2, True)
    nobody = json.loads(run("verify", "--db", durable, "--owner", "nobody", "--json").stdout)
    assert (nobody["error"]["option"], nobody["error"]["value"]) == ("--owner", "nobody")


def test_a_time_may_have_seconds(db: str) -> None:
    told = json.loads(run("why", "--db", db, "gone", "02:30:00", "--json").stdout)
    assert told == json.loads(run("why", "--db", db, "gone", "02:30", "--json").stdout)
    assert run("why", "--db", db, "gone", "02:30:61").exit_code == 2


def test_long_lines_are_wrapped_on_a_terminal_alone(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("why", "--db", db, "sync", "03:12", "--scheduler", "default")
    whole = run(*asked).stdout
    assert len(whole.splitlines()) == 1
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    lines = run(*asked).stdout.splitlines()
    assert len(lines) > 2
    assert max(map(len, lines)) <= 60
    assert " ".join(line.strip() for line in lines) == whole.strip()

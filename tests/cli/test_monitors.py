"""`noonbell monitors` on a file: make, look, change, ping, remove."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from noonbell.actions.secrets.keys import create_key_file
from noonbell.cli.program import program
from noonbell.store.sqlite import SqliteStore

NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


@pytest.fixture
def url(tmp_path: Path) -> str:
    async def make() -> None:
        store = SqliteStore(tmp_path / "app.db")
        await store.open()
        await store.close()

    asyncio.run(make())
    return f"sqlite:///{tmp_path}/app.db"


def monitors(url: str, *arguments: str, at: datetime = NOON, stdin: str | None = None) -> Result:
    return CliRunner(env={"NOONBELL_STORE": url}).invoke(program, ["monitors", *arguments], obj=at, input=stdin)


def data(url: str, *arguments: str, at: datetime = NOON) -> Any:
    told = monitors(url, *arguments, "--json", at=at)
    assert told.exit_code == 0, told.output
    return json.loads(told.output)


def test_the_life_of_a_monitor(url: str) -> None:
    assert monitors(url, "list").output == "No monitors.\n"
    added = monitors(url, "add", "Backup", "--id", "backup", "--cron", "@hourly", "--grace", "600", "--tag", "db")
    assert added.exit_code == 0, added.output
    assert "0 * * * * (UTC), grace 600 s" in added.output
    shown = data(url, "show", "backup")
    assert f"…/ping/{shown['token']}" in added.output
    assert (shown["status"], shown["tags"], shown["due_at"]) == ("new", ["db"], None)

    assert data(url, "ping", "backup", "--kind", "start")["running"] == [{"run": "", "since": NOON.isoformat()}]
    later = NOON + timedelta(minutes=5)
    told = monitors(url, "ping", "backup", "--exit-code", "4", "--stdin", at=later, stdin="disk full\x1b[31m\nmore")
    assert "down since 2026-03-04 12:05:00: exit code 4" in told.output
    assert monitors(url, "pings", "backup").output.splitlines() == [
        "2026-03-04 12:05:00  fail (4)  ran for 300 s  disk full\\x1b[31m",
        "2026-03-04 12:00:00  start",
    ]
    assert monitors(url, "flips", "backup").output.splitlines() == [
        "2026-03-04 12:05:00  down  exit code 4; was up for 5 min",
        "2026-03-04 12:00:00  up  started; was new for less than a minute",
    ]
    assert [flip["lasted"] for flip in data(url, "flips", "backup")] == [300, 0]
    assert "down" in monitors(url, "list").output

    assert data(url, "pause", "backup", at=later)["status"] == "paused"
    assert data(url, "resume", "backup", at=later)["status"] == "up"
    edited = data(url, "edit", "backup", "--every", "90", "--name", "Backups", at=later)
    assert (edited["type"], edited["spec"], edited["name"]) == ("interval", "90", "Backups")
    assert edited["due_at"] == (later + timedelta(seconds=90)).isoformat()
    assert data(url, "new-url", "backup")["token"] != shown["token"]
    assert data(url, "rm", "backup") == {"deleted": "backup"}
    assert data(url, "list") == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "nobody"), 'Monitor not found: "nobody"'),
        (("add", "x"), "Pass --cron or --every"),
        (("add", "x", "--cron", "* * * * *", "--every", "60"), "exclude each other"),
        (("add", "x", "--every", "5m"), "spec '5m' is no interval spec"),
        (("add", "x", "--cron", "* * * * *", "--tz", "Kyiv"), "IANA zone"),
    ],
)
def test_what_is_wrong_is_told(url: str, arguments: tuple[str, ...], said: str) -> None:
    told = monitors(url, *arguments)
    assert told.exit_code == 2
    assert said in told.output
    as_json = monitors(url, *arguments, "--json")
    assert said in json.loads(as_json.stdout or as_json.output)["error"]["message"]


def test_no_store_is_made_by_asking(tmp_path: Path) -> None:
    told = monitors(f"sqlite:///{tmp_path}/none.db", "list")
    assert told.exit_code == 2
    assert "nothing was created" in told.output
    assert not (tmp_path / "none.db").exists()


def test_secrets_in_what_a_ping_says_are_masked(url: str, tmp_path: Path) -> None:
    create_key_file(tmp_path / "master.keys")
    env = {"NOONBELL_STORE": url, "NOONBELL_MASTER_KEYS_FILE": str(tmp_path / "master.keys")}
    canary = "canary-0123456789-abcdef"

    def run(*arguments: str, stdin: str | None = None) -> str:
        result = CliRunner(env=env).invoke(program, list(arguments), input=stdin)
        assert result.exit_code == 0, result.output
        return result.output

    run("secrets", "set", "TOKEN", stdin=f"{canary}\n")
    run("monitors", "add", "Backup", "--id", "backup", "--every", "3600")
    run(
        "monitors",
        "ping",
        "backup",
        "--kind",
        "fail",
        "--stdin",
        "--run",
        f"run {canary}",
        stdin=f"used {canary} twice",
    )
    told = run("monitors", "pings", "backup") + run("monitors", "pings", "backup", "--json")
    assert "used" in told
    assert "twice" in told
    assert canary not in told
    assert canary.encode() not in (tmp_path / "app.db").read_bytes()

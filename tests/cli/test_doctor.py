"""`noonbell doctor`: what it finds well, what it finds amiss, and what it says to do."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from noonbell import Schedules
from noonbell.actions.secrets.keys import create_key_file
from noonbell.cli.backend.backend_protocol import EngineUp
from noonbell.cli.connection_target import ConnectionTarget
from noonbell.cli.doctor import Lanes, lane_findings
from tests.cli.conftest import At, StreamInFlight


def findings(at: At, *arguments: str, healthy: bool = True) -> dict[str, dict[str, Any]]:
    result = at.run("doctor", "--json", *arguments)
    assert result.exit_code == (0 if healthy else 1), result.output
    told = json.loads(result.stdout)
    assert told["healthy"] is healthy
    return {one["what"]: one for one in told["findings"]}


def test_a_sound_installation(local: At) -> None:
    found = findings(local)
    for what in ("python", "sqlite", "time zones", "clock", "database", "disk", "master keys", "egress"):
        assert found[what]["level"] == "ok", found[what]
    assert "mode 0600" in found["master keys"]["told"]
    assert found["lanes"]["level"] == "warning"
    assert "noonbell worker" in found["lanes"]["do"]
    words = local.said("doctor")
    assert "! lanes" in words
    assert words.endswith("0 wrong, 1 to look at.\n")


def test_without_a_database_there_is_nothing_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = findings(At())
    assert found["database"]["level"] == "note"
    assert "--create creates one" in found["database"]["do"]
    assert list(tmp_path.iterdir()) == []


def test_a_key_file_that_others_may_read(local: At, tmp_path: Path) -> None:
    keys = tmp_path / "open.keys"
    create_key_file(keys)
    keys.chmod(0o644)
    found = findings(local, "--key-file", str(keys), healthy=False)
    assert found["master keys"]["level"] == "wrong"
    assert "mode 0644" in found["master keys"]["told"]
    assert "chmod 600" in found["master keys"]["do"]
    gone = findings(local, "--key-file", str(tmp_path / "none.keys"), healthy=False)
    assert "noonbell keys new" in gone["master keys"]["do"]


def test_a_file_that_is_no_ledger_and_one_of_another_version(local: At, tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database at all, and long enough to be sure\n" * 30, encoding="utf-8")
    found = findings(local, "--store", f"sqlite:///{text}", healthy=False)
    assert "not an SQLite file" in found["database"]["told"]
    path = str(local.environment["NOONBELL_STORE"]).removeprefix("sqlite:///")
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 9999")
    db.close()
    assert findings(local, healthy=False)["database"]["level"] == "wrong"


def test_settings_and_egress_that_cannot_be(local: At) -> None:
    local.environment["NOONBELL_EGRESS_ALLOW"] = "10.0.0.0/8"
    assert findings(local)["egress"]["level"] == "warning"
    local.environment["NOONBELL_EGRESS_ALLOW"] = "not a place"
    assert findings(local, healthy=False)["egress"]["level"] == "wrong"
    local.environment["NOONBELL_PORT"] = "many"
    assert findings(local, healthy=False)["settings"]["level"] == "wrong"


@pytest.mark.parametrize("place", ["server", "store"])
def test_a_lane_that_no_engine_serves(served: StreamInFlight, tmp_path: Path, place: str) -> None:
    store = f"sqlite:///{tmp_path / 'service' / 'service.db'}"

    async def make() -> None:
        async with Schedules(store, lane="end of month") as schedules:
            for enabled in (True, True, False):
                await schedules.create(
                    type="cron", spec="0 9 1 * *", action={"kind": "callback", "name": "report"}, enabled=enabled
                )

    asyncio.run(make())
    result = (served if place == "server" else At(NOONBELL_STORE=store)).run("doctor", "--json")
    assert result.exit_code == 1
    lanes = [one for one in json.loads(result.stdout)["findings"] if one["what"] == "lanes"]
    assert lanes[0]["told"].startswith("default has been up for ")
    told = "no engine of end of month is up: its schedules do not run; schedules: 2"
    do = "noonbell worker --lane 'end of month' runs what is due"
    assert lanes[1:] == [{"what": "lanes", "level": "wrong", "told": told, "do": do}]


def test_a_database_with_schedules_and_no_engine(local: At) -> None:
    local.said("schedules", "add", "every hour", "--name", "report", "--http", "https://example.com/")
    lanes = findings(local, healthy=False)["lanes"]
    assert lanes["level"] == "wrong"
    assert lanes["told"] == "no engine is up: nothing that is due runs"


@pytest.mark.parametrize(
    ("seconds", "load", "level"),
    [(59.0, {}, "ok"), (61.0, {}, "wrong"), (61.0, {"grace_seconds": 127.0}, "ok")],
    ids=["within the grace", "beyond it", "within that of an engine that waits longer"],
)
def test_an_engine_that_is_alive_and_completes_no_poll(seconds: float, load: dict[str, float], level: str) -> None:
    now = datetime(2026, 3, 4, tzinfo=UTC)
    engines = [
        EngineUp("default", "up", now, now, 0.0, "1", "2026a", load, "one", "host", 7, seconds_ago)
        for seconds_ago in (seconds, seconds + 100)
    ]
    place = ConnectionTarget("memory://", None, as_json=False, now=now)
    (found, *_) = lane_findings(Lanes(engines, {"default": 1}, more=False), place)
    assert found.level == level
    assert ("no engine of default has completed a poll for 61 s" in found.told) is (level == "wrong")


def test_a_service(served: StreamInFlight) -> None:
    found = findings(served)
    assert "answers and accepts the key" in found["server"]["told"]
    assert found["lanes"]["told"].startswith("default has been up for ")
    wrong = At(NOONBELL_URL=served.url, NOONBELL_API_KEY="nbk_wrong")
    assert "does not accept the key" in findings(wrong, healthy=False)["server"]["told"]
    assert "is not set" in findings(At(NOONBELL_URL=served.url), healthy=False)["server"]["told"]

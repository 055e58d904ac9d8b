"""`noonbell secrets` and `noonbell signing`: values go in by stdin, and never come out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from noonbell.actions.secrets import read_keys
from noonbell.actions.secrets.keys import add_key, create_key_file
from noonbell.actions.secrets.secret_records import SealedSecret
from noonbell.actions.secrets.stored_secrets import SecretDocuments
from noonbell.actions.secrets.vault import Vault
from noonbell.cli.program import program
from noonbell.schedules import Schedules
from noonbell.store.sqlite import SqliteStore

VALUE = "zebra-crossing-77"
Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    create_key_file(tmp_path / "master.keys")
    asyncio.run(_create_store(tmp_path))
    environment = {
        "NOONBELL_STORE": f"sqlite:///{tmp_path}/app.db",
        "NOONBELL_MASTER_KEYS_FILE": str(tmp_path / "master.keys"),
        "NOONBELL_MASTER_KEYS": None,
    }

    def runs(*arguments: str, stdin: str | bytes | None = None, **env: str | None) -> Result:
        return CliRunner().invoke(program, arguments, input=stdin, env={**environment, **env})

    return runs


async def _create_store(folder: Path) -> None:
    async with Schedules(f"sqlite:///{folder}/app.db") as schedules:
        await schedules.create(
            schedule_id="abc", name="a", type="cron", spec="* * * * *", action={"kind": "callback", "name": "x"}
        )
        await schedules.acting("somebody", "red").create(
            schedule_id="red", name="r", type="cron", spec="* * * * *", action={"kind": "callback", "name": "x"}
        )


def stored(folder: Path, team: str = "default") -> list[SealedSecret]:
    async def read() -> list[SealedSecret]:
        store = SqliteStore(folder / "app.db")
        await store.open()
        try:
            return await SecretDocuments(store, lambda: 0, "").list_secrets(team)
        finally:
            await store.close()

    return asyncio.run(read())


def test_set_list_rm(run: Run, tmp_path: Path) -> None:
    first = run("secrets", "set", "TOKEN", stdin=f"{VALUE}\n")
    second = run("secrets", "set", "TOKEN", "--json", stdin=f"{VALUE}2\r\n")
    assert (first.exit_code, first.output) == (0, "TOKEN of team default is stored, version 1.\n")
    assert json.loads(second.output)["version"] == 2
    (sealed,) = stored(tmp_path)
    assert Vault(read_keys(tmp_path / "master.keys")).open(sealed) == f"{VALUE}2"
    run("secrets", "set", "TOKEN", "--team", "ops", stdin=VALUE)
    listed = run("secrets", "list", NOONBELL_MASTER_KEYS_FILE=None)
    assert "TOKEN" in listed.output
    (facts,) = json.loads(run("secrets", "list", "--json", "--team", "ops").output)
    assert (facts["team"], facts["name"], facts["version"], facts["key_version"]) == ("ops", "TOKEN", 1, 1)
    removed = run("secrets", "rm", "TOKEN")
    assert (removed.exit_code, removed.output) == (0, "TOKEN is removed.\n")
    again = run("secrets", "rm", "TOKEN")
    assert again.exit_code == 2
    assert 'Team "default" has no secret "TOKEN"' in again.output
    assert "has no secrets" in run("secrets", "list").output
    assert VALUE not in "".join(one.output for one in (first, second, listed, removed, again))


def test_what_cannot_be_stored(run: Run) -> None:
    for arguments, stdin, reason in (
        (("TOKEN",), "short", "at least 6 characters"),
        (("NO-NAME",), VALUE, "must be 1 to 64 letters"),
        (("TOKEN",), VALUE.encode() + b"\xff", "stdin is not text in UTF-8"),
        (("TOKEN",), "ab" + "c" * 16_383, "at most 16384 bytes"),
        (("TOKEN", VALUE), "", "unexpected extra argument"),
    ):
        refused = run("secrets", "set", *arguments, stdin=stdin)
        assert refused.exit_code == 2
        assert reason in refused.output.replace("\n", " ")
    bare = run("secrets", "set", "TOKEN", stdin=VALUE, NOONBELL_MASTER_KEYS_FILE=None)
    assert bare.exit_code == 2
    assert "noonbell keys new FILE" in bare.output
    assert VALUE not in bare.output
    both = run("secrets", "set", "TOKEN", stdin=VALUE, NOONBELL_MASTER_KEYS="1:x")
    assert "both are set" in both.output
    assert run("secrets", "list").output == "Team default has no secrets.\n"


def test_rotate(run: Run, tmp_path: Path) -> None:
    for number in range(3):
        run("secrets", "set", f"S{number}", stdin=f"{VALUE}{number}")
    key = run("signing", "show", "abc").output
    add_key(tmp_path / "master.keys")
    done = run("secrets", "rotate")
    assert done.exit_code == 0
    assert "4 records rewrapped" in done.output
    assert json.loads(run("secrets", "rotate", "--json").output) == {"rewrapped": 0, "unreadable": []}
    assert {sealed.key_version for sealed in stored(tmp_path)} == {2}
    assert run("signing", "show", "abc").output == key


def test_rotate_without_the_old_key_names_what_does_not_open(run: Run, tmp_path: Path) -> None:
    run("secrets", "set", "TOKEN", stdin=VALUE)
    create_key_file(tmp_path / "other.keys")
    add_key(tmp_path / "other.keys")
    lines = (tmp_path / "other.keys").read_text().splitlines()
    done = run("secrets", "rotate", "--json", NOONBELL_MASTER_KEYS_FILE=None, NOONBELL_MASTER_KEYS=lines[2])
    assert done.exit_code == 1
    assert json.loads(done.output) == {"rewrapped": 0, "unreadable": [{"team": "default", "name": "TOKEN"}]}
    assert [sealed.key_version for sealed in stored(tmp_path)] == [1]


def test_signing_keys(run: Run) -> None:
    shown = run("signing", "show", "abc")
    assert shown.output.startswith("whsec_")
    assert run("signing", "show", "abc").output == shown.output
    new, old = json.loads(run("signing", "rotate", "abc", "--json").output)
    assert old["key"] == shown.output.strip()
    assert new["until"] is None
    assert old["until"] is not None
    (only,) = json.loads(run("signing", "rotate", "abc", "--overlap", "0", "--json").output)
    assert only["key"] not in {new["key"], old["key"]}
    unknown = run("signing", "show", "abd")
    assert unknown.exit_code == 2
    assert "abd" in unknown.output


def test_signing_keys_are_those_of_the_schedules_team(run: Run) -> None:
    shown = run("signing", "show", "red")
    assert shown.exit_code == 0
    assert run("signing", "show", "red", "--team", "red").output == shown.output
    for verb in ("show", "rotate"):
        refused = run("signing", verb, "red", "--team", "default")
        assert refused.exit_code == 2
        assert "whsec_" not in refused.output
    assert len(json.loads(run("signing", "rotate", "red", "--json").output)) == 2

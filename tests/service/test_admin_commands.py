"""`noonbell admin` and `noonbell api-keys`: people, teams and keys, at the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result

from noonbell.access import Access, Caller
from noonbell.cli.program import program
from noonbell.engine import SystemClock
from noonbell.store.sqlite import SqliteStore

T = TypeVar("T")


class Shell:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "service.db"

    def run(self, *arguments: str, given: str | None = None) -> Result:
        environ = {"NOONBELL_STORE": f"sqlite:///{self.path}"}
        return CliRunner(env=environ).invoke(program, arguments, input=given)

    def told(self, *arguments: str, given: str | None = None) -> Any:
        result = self.run(*arguments, "--json", given=given)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def ask(self, question: Callable[[Access], Awaitable[T]]) -> T:
        async def session() -> T:
            store = SqliteStore(self.path)
            await store.open()
            try:
                return await question(Access(store, SystemClock()))
            finally:
                await store.close()

        return asyncio.run(session())


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_an_admin_from_the_first_to_the_last(shell: Shell) -> None:
    made = shell.run("admin", "create", "ann", given="correct horse\n")
    assert made.exit_code == 0, made.output
    assert "correct horse" not in made.output
    assert shell.ask(lambda access: access.verify_password("ann", "correct horse", "here")).name == "ann"
    assert [one["name"] for one in shell.told("admin", "list")] == ["ann"]
    assert "ann  admin" in shell.run("admin", "list").output
    assert shell.run("admin", "password", "ann", given="another horse\n").exit_code == 0
    assert shell.ask(lambda access: access.verify_password("ann", "another horse", "here")).name == "ann"
    assert shell.run("admin", "delete", "ann").exit_code == 0
    assert shell.told("admin", "list") == []


@pytest.mark.parametrize(
    ("arguments", "given", "told"),
    [
        (("admin", "create", "ann"), "short\n", "10 to 1000 characters"),
        (("admin", "create", "Ann Boleyn"), "correct horse\n", "lowercase letters"),
        (("admin", "delete", "nobody"), None, 'User not found: "nobody"'),
        (("admin", "password", "nobody"), "correct horse\n", 'User not found: "nobody"'),
        (("admin", "add-team", "A B"), None, "lowercase letters"),
        (("api-keys", "create", "x", "--team", "nobody"), None, 'Team not found: "nobody"'),
        (("api-keys", "revoke", "nothing"), None, 'API key not found: "nothing"'),
        (("api-keys", "create", "x", "--scope", "fly"), None, "fly"),
    ],
)
def test_what_is_refused(shell: Shell, arguments: tuple[str, ...], given: str | None, told: str) -> None:
    shell.ask(lambda access: access.ensure_default_team())
    result = shell.run(*arguments, given=given)
    assert result.exit_code == 2
    assert told in result.output
    assert given is None or given.strip() not in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("admin", "list"),
        ("admin", "teams"),
        ("admin", "link", "ann"),
        ("admin", "password", "ann"),
        ("admin", "delete", "ann"),
        ("api-keys", "list"),
        ("api-keys", "revoke", "k3v9x2m7q1az"),
    ],
)
def test_what_is_there_is_not_looked_for_in_a_database_that_is_not(shell: Shell, arguments: tuple[str, ...]) -> None:
    result = shell.run(*arguments, given="correct horse\n")
    assert result.exit_code == 2
    assert f"File not found: {shell.path}; nothing was created" in result.output
    assert "creates a ledger there" in result.output
    assert not shell.path.exists()


def test_teams(shell: Shell) -> None:
    shell.ask(lambda access: access.ensure_default_team())
    assert shell.told("admin", "teams") == [{"name": "default", "title": "default"}]
    assert "--team billing" in shell.run("admin", "add-team", "billing", "--title", "Billing").output
    assert [one["name"] for one in shell.told("admin", "teams")] == ["billing", "default"]
    assert shell.run("admin", "add-team", "billing").exit_code == 2


def test_keys(shell: Shell) -> None:
    made = shell.run("api-keys", "create", "ci", "--scope", "write")
    assert made.exit_code == 0
    key = made.stdout.strip()
    assert key.startswith("nbk_"), "the key alone is on stdout, so that it can be put into a variable"

    async def use(access: Access) -> Caller | None:
        caller = await access.authenticate(key)
        await access.write_uses()
        return caller

    caller = shell.ask(use)
    assert caller is not None
    assert sorted(caller.scopes) == ["read", "write"]
    (listed,) = shell.told("api-keys", "list")
    assert (listed["name"], listed["scopes"]) == ("ci", ["write"])
    assert listed["last_used_at"] is not None
    shown = shell.run("api-keys", "list").output
    assert listed["key_id"] in shown
    assert key.split("_", 2)[2] not in shown
    assert shell.run("api-keys", "revoke", listed["key_id"]).exit_code == 0
    assert shell.ask(lambda access: access.authenticate(key)) is None
    assert "has no keys" in shell.run("api-keys", "list").output


def test_a_key_for_some_days(shell: Shell) -> None:
    made = shell.told("api-keys", "create", "short", "--days", "2")
    assert made["expires_at"] is not None
    assert made["scopes"] == ["read"]
    assert "expires" in shell.run("api-keys", "list").output


def test_people_of_a_team_and_a_link_for_a_password(shell: Shell) -> None:
    shell.run("admin", "add-team", "billing")
    made = shell.run("admin", "create", "bob", "--team", "billing", "--scope", "read", given="correct horse\n")
    assert "to the team billing, with the right to read" in made.output
    (listed,) = shell.told("admin", "list")
    assert (listed["name"], listed["team"], listed["scope"]) == ("bob", "billing", "read")
    assert "/welcome/bob/" in shell.run("admin", "link", "bob").output
    assert shell.run("admin", "link", "nobody").exit_code == 2
    assert shell.run("admin", "create", "eve", "--team", "nowhere", given="correct horse\n").exit_code == 2

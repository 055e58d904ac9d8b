"""Secrets in commands: given by environment or stdin, never as arguments, and masked in what is kept of the output."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from noonbell.actions.command import Commands, check_command, prepare_command
from noonbell.actions.process import Output
from noonbell.actions.results import Finished
from noonbell.actions.secrets import DEFAULT_TEAM, Masker, Secrets
from noonbell.actions.secrets.keys import new_ring
from noonbell.core.attempt_detail import unpack
from noonbell.engine import SystemClock
from noonbell.errors import MasterKeyMissingError, ScheduleInvalidError, SecretUnknownError
from noonbell.store.memory import MemoryStore
from tests.actions.conftest import start_at, stored_with

VALUE = "zebra-crossing-77"
ECHO = "import os, sys; print(len(os.environ['T']), os.environ['T'], sys.stdin.read(), os.environ['PLAIN'])"
ACTION = {
    "kind": "command",
    "argv": [sys.executable, "-c", ECHO],
    "env": {"T": "a ${secrets.TOKEN} $${b}", "PLAIN": "${HOME}"},
    "stdin": "${secrets.TOKEN}",
}


async def ran(action: dict[str, Any], secrets: Secrets | None) -> Finished:
    checked = check_command(action)
    result = await prepare_command(Commands(allowed=True), checked, stored_with(checked), start_at(), secrets).call()
    assert isinstance(result, Finished)
    return result


async def with_token() -> Secrets:
    store = MemoryStore()
    await store.open()
    secrets = Secrets(store, new_ring(), SystemClock())
    await secrets.put(DEFAULT_TEAM, "TOKEN", VALUE)
    return secrets


async def test_environment_and_stdin_hold_the_value_and_the_output_does_not() -> None:
    detail = str(unpack((await ran(ACTION, await with_token())).detail or b""))
    assert f"{len(f'a {VALUE} ${{b}}')} a *** ${{b}} *** ${{HOME}}" in detail
    assert "zebra" not in detail


async def test_without_the_secret_or_a_key_nothing_is_started() -> None:
    secrets = await with_token()
    await secrets.delete(DEFAULT_TEAM, "TOKEN")
    with pytest.raises(SecretUnknownError, match=r"action.env.T"):
        await ran(ACTION, secrets)
    with pytest.raises(MasterKeyMissingError):
        await ran(ACTION, None)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"argv": ["x", "${secrets.TOKEN}"]}, "action.argv"),
        ({"cwd": "/${secrets.TOKEN}"}, "action.cwd"),
        ({"stdin": "${secrets.TOKEN} ${HOME}"}, "action.stdin"),
        ({"env": {"A": "${secrets.TOKEN} ${HOME}"}}, "action.env.A"),
    ],
)
def test_references_that_are_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ScheduleInvalidError) as refused:
        check_command({**ACTION, **change})
    assert refused.value.field == field


@pytest.mark.parametrize("limit", [0, 1, 10, 33, 64, 100])
@pytest.mark.parametrize("before", range(0, 120, 7))
def test_a_secret_at_the_cut_leaves_nothing_of_it(limit: int, before: int) -> None:
    masker = Masker([VALUE])
    for between in (0, 40, 5_000):
        whole = b"." * before + VALUE.encode() + b"-" * between + VALUE.encode() + b"." * (119 - before)
        output = Output(limit, masker)
        for at in range(0, len(whole), 13):
            output.add(whole[at : at + 13])
        shown, cut = output.shown()
        kept = shown.replace(f"\n[... {cut} bytes cut ...]\n", "")
        assert set(kept) <= set(".-*"), shown
        assert len(kept) <= limit

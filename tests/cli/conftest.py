"""The program on a database and on a service, as the tests of both call it.

The service runs in a thread with an event loop of its own: commands are called from outside, as by a user.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from noonbell.cli.program import program
from noonbell.store.sqlite import SqliteStore
from tests.api.conftest import Client, serving, settings_for
from tests.patience import PATIENCE_SECONDS


class At:
    """The program at one place."""

    def __init__(self, **environment: str | None) -> None:
        self.environment = {"NOONBELL_STORE": None, "NOONBELL_URL": None, "NOONBELL_API_KEY": None, **environment}

    def run(self, *arguments: str, stdin: str | None = None, **environment: str | None) -> Result:
        runner = CliRunner(env={**self.environment, **environment})
        return runner.invoke(program, list(arguments), input=stdin)

    def said(self, *arguments: str, stdin: str | None = None) -> str:
        result = self.run(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def data(self, *arguments: str, stdin: str | None = None) -> Any:
        return json.loads(self.said(*arguments, "--json", stdin=stdin))

    def refused(self, *arguments: str, status: int = 2) -> str:
        """The message of an error, which is the same in words and as JSON."""
        told = json.loads(self.run(*arguments, "--json").stdout)["error"]["message"]
        result = self.run(*arguments)
        assert result.exit_code == status, result.output
        assert f"Error: {told}" in result.stderr
        return str(told)


@pytest.fixture
def local(tmp_path: Path) -> At:
    """The program on an empty database."""

    async def make() -> None:
        store = SqliteStore(tmp_path / "local.db")
        await store.open()
        await store.close()

    asyncio.run(make())
    keys = settings_for(tmp_path).master_keys_file
    return At(NOONBELL_STORE=f"sqlite:///{tmp_path / 'local.db'}", NOONBELL_MASTER_KEYS_FILE=keys)


class StreamInFlight(At):
    """The program on a service that runs in a thread of its own."""

    def __init__(self, client: Client, key: str) -> None:
        super().__init__(NOONBELL_URL=client.base_url, NOONBELL_API_KEY=key)
        self.url = client.base_url
        self.keys = client.keys


@pytest.fixture
def served(tmp_path: Path) -> Iterator[StreamInFlight]:
    ready, over = threading.Event(), threading.Event()
    made: list[StreamInFlight] = []
    failed: list[BaseException] = []

    async def life() -> None:
        folder = tmp_path / "service"
        folder.mkdir()
        async with serving(settings_for(folder)) as client:
            made.append(StreamInFlight(client, client.keys["default/admin"]))
            ready.set()
            await asyncio.to_thread(over.wait)

    def run() -> None:
        try:
            asyncio.run(life())
        except BaseException as error:  # noqa: BLE001 - it is raised where the test sees it
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="service")
    thread.start()
    ready.wait(PATIENCE_SECONDS)
    if failed:
        raise failed[0]
    try:
        yield made[0]
    finally:
        over.set()
        thread.join(PATIENCE_SECONDS)
    if failed:
        raise failed[0]

"""A timeline as a setting: of the service, of its numbers, of `noonbell doctor` and of commands that write."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from noonbell.api.measures import Measures
from noonbell.bootstrap import Service, build
from noonbell.cli.program import program
from noonbell.config import Settings, load
from noonbell.errors import SettingsInvalidError, TimelineError
from noonbell.store.sqlite import SqliteStore
from noonbell.timeline import RedisTimeline
from noonbell.timeline.timeline_store import kept_namespace
from tests.redis_server import PASSWORD, RedisServer

ACTION = {"kind": "message", "to": "inbox"}


@pytest.fixture
async def service(tmp_path: Path, redis_server: RedisServer) -> AsyncIterator[Service]:
    made = build(
        Settings(store=f"sqlite:///{tmp_path}/x.db", port=0, timeline=f"{redis_server.url}?shards=2"), environ={}
    )
    await made.start()
    yield made
    await made.stop(0)


async def numbers(service: Service) -> dict[str, float]:
    text = (await Measures(service).text()).decode()
    return {sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples}


async def test_a_service_with_a_timeline_tells_its_numbers(service: Service) -> None:
    await service.schedules.create(name="x", type="cron", spec="* * * * *", action=ACTION, payload={})
    found = await numbers(service)
    assert found["noonbell_timeline_up"] == 1
    assert {name for name in found if name.startswith("noonbell_timeline_")} == {
        "noonbell_timeline_up", "noonbell_timeline_popped_total", "noonbell_timeline_repaired_total",
        "noonbell_timeline_dropped_total", "noonbell_timeline_built_total", "noonbell_timeline_errors_total",
    }  # fmt: skip
    timeline = getattr(service.store, "timeline", None)
    assert isinstance(timeline, RedisTimeline)
    assert timeline.shards == 2
    assert (await timeline.counts("default"))[0] == 1


async def test_a_service_without_one_tells_of_none(tmp_path: Path) -> None:
    made = build(Settings(store=f"sqlite:///{tmp_path}/x.db", port=0), environ={})
    await made.start()
    assert not any(name.startswith("noonbell_timeline") for name in await numbers(made))
    assert made.schedules.timeline is None
    await made.stop(0)


async def test_a_service_does_not_start_with_a_server_that_drops_keys(
    tmp_path: Path, redis_server: RedisServer, client: Any
) -> None:
    await client.config_set("maxmemory-policy", "allkeys-random")
    made = build(Settings(store=f"sqlite:///{tmp_path}/x.db", port=0, timeline=redis_server.url), environ={})
    try:
        with pytest.raises(TimelineError, match="allkeys-random"):
            await made.start()
    finally:
        await client.config_set("maxmemory-policy", "noeviction")
        await made.store.close()


@pytest.mark.parametrize("wrong", ["", "localhost:6379", "http://host", 6379])
def test_a_setting_that_is_no_address_is_refused_and_not_shown(tmp_path: Path, wrong: object) -> None:
    with pytest.raises(SettingsInvalidError, match="redis://HOST:6379/0") as refused:
        load({"timeline": wrong})
    assert refused.value.value is None


# --- commands ---------------------------------------------------------------------------------------------------------


class Shell:
    def __init__(self, folder: Path, timeline: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(folder)
        self.folder = folder
        self._environment = {"NOONBELL_STORE": f"sqlite:///{folder}/x.db", "NOONBELL_TIMELINE": timeline}

    def run(self, *words: str) -> Any:
        result = CliRunner(env=self._environment).invoke(program, list(words))
        assert PASSWORD not in result.output
        return result

    def timeline_finding(self) -> dict[str, str]:
        told = json.loads(self.run("doctor", "--json").stdout)
        (found,) = [one for one in told["findings"] if one["what"] == "timeline"]
        return dict(found)


@pytest.fixture
def shell(tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(tmp_path, redis_server.url, monkeypatch)


def add(shell: Shell, name: str) -> None:
    words = ("schedules", "add", "* * * * *", "--name", name, "--http", "https://example.org/", "--create")
    result = shell.run(*words)
    assert result.exit_code == 0, result.output


async def test_what_a_command_writes_is_in_the_set_at_once(shell: Shell, redis_server: RedisServer) -> None:
    await asyncio.to_thread(add, shell, "one")
    store = SqliteStore(shell.folder / "x.db")
    await store.open()
    timeline = RedisTimeline(redis_server.url, namespace=await kept_namespace(store))
    assert await timeline.counts("default") == (1, 0)
    await timeline.close()
    await store.close()


def test_the_doctor_looks_at_the_timeline(shell: Shell, redis_server: RedisServer) -> None:
    first = shell.timeline_finding()
    assert (first["level"], "no engine has used it yet" in first["told"]) == ("ok", True)
    add(shell, "one")
    found = shell.timeline_finding()
    assert found["level"] == "ok"
    assert '1 schedules of the lane "default" wait in it' in found["told"]
    assert "its policy is noeviction" in found["told"]
    with redis.Redis.from_url(redis_server.url) as client:
        client.config_set("maxmemory-policy", "volatile-lru")
        try:
            found = shell.timeline_finding()
        finally:
            client.config_set("maxmemory-policy", "noeviction")
    assert found["level"] == "wrong"
    assert "set maxmemory-policy noeviction" in found["told"]


def test_the_doctor_finds_that_it_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    away = Shell(tmp_path, f"redis://:{PASSWORD}@127.0.0.1:1/0", monkeypatch)
    found = away.timeline_finding()
    assert found["level"] == "warning"
    assert "until then the database is polled" in found["do"]
    assert away.run("config", "show", "--json").output.count("redis://***@127.0.0.1:1/0") == 1

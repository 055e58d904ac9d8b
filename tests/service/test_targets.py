"""Targets of messages that an operator declares: read, shown, checked by the doctor, and reached by the service."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from click.testing import CliRunner

from noonbell.actions.targets import CeleryTasks, HttpEndpoint, PostgresOutbox, RedisStream
from noonbell.actions.targets.postgres_outbox import outbox_table
from noonbell.bootstrap import build
from noonbell.cli.program import program
from noonbell.config import load, shown
from noonbell.errors import SettingsInvalidError
from tests.redis_server import PASSWORD, RedisServer

ALL = """
[targets.bus]
kind = "redis"
url = "redis://:s3cret@cache:6379/0"
key = "events"
group = "workers"
maxlen = 1000

[targets.table]
kind = "postgres"
url = "postgresql://me:s3cret@db/app"
table = "app.messages"

[targets.jobs]
kind = "celery"
url = "redis://:s3cret@cache:6379/1"
task = { "noonbell.message" = "app.tasks.note" }
queue = "bells"

[targets.hook]
kind = "http"
url = "https://example.com/hook?token=s3cret"
headers = { Authorization = "Bearer s3cret" }
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "noonbell.toml"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    made = RedisServer()
    yield made
    made.stop()


def test_each_kind_is_read_and_built(file: Path) -> None:
    file.write_text(ALL)
    settings = load(environ={})
    built = [(target.name, type(target.build())) for target in settings.targets]
    assert built == [
        ("bus", RedisStream), ("table", PostgresOutbox), ("jobs", CeleryTasks), ("hook", HttpEndpoint),
    ]  # fmt: skip
    assert settings.sources["targets"] == "noonbell.toml, line 2"


def test_the_examples_of_the_document_are_right(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "targets.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "noonbell.toml").write_text(example)
    assert len(load(environ={}, file=tmp_path / "noonbell.toml").targets) == 4
    (statements,) = re.findall(r"^```sql\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)
    assert statements == outbox_table()


def test_nobody_need_be_notified(file: Path) -> None:
    file.write_text('[targets.db]\nkind = "postgres"\nurl = "postgresql://x"\nnotify = false\n')
    (target,) = load(environ={}).targets
    built = target.build()
    assert isinstance(built, PostgresOutbox)
    assert built._notify is None


def test_the_environment_has_them_as_json(file: Path) -> None:
    given = json.dumps({"bus": {"kind": "redis", "url": "redis://cache", "key": "events"}})
    (target,) = load(environ={"NOONBELL_TARGETS": given}).targets
    assert (target.name, target.kind) == ("bus", "redis")


def test_they_are_shown_without_secrets(file: Path) -> None:
    file.write_text(ALL)
    told = {name: value for name, value, _ in shown(load(environ={}))}["targets"]
    assert told[0] == "bus: redis redis://***@cache:6379/0 key=events group=workers maxlen=1000"
    assert told[1] == "table: postgres postgresql://***@db/app table=app.messages"
    assert told[3] == "hook: http https://example.com/hook?***"
    for arguments in (["config", "show"], ["config", "show", "--json"]):
        said = CliRunner().invoke(program, arguments, env={"COLUMNS": "300"})
        assert said.exit_code == 0
        assert "redis://***@cache:6379/0" in said.output
        assert "s3cret" not in said.output


@pytest.mark.parametrize(
    ("text", "field", "told"),
    [
        ('[targets.bus]\nkind = "rabbit"', "targets.bus.kind", "must be one of redis, postgres, celery, http"),
        ('[targets.bus]\nurl = "redis://x:s3cret@y"', "targets.bus.kind", "must be one of"),
        ('[targets.bus]\nkind = "redis"\nkey = "k"', "targets.bus.url", "is needed"),
        ('[targets.bus]\nkind = "redis"\nurl = "redis://x"', "targets.bus.key", "is needed"),
        ('[targets.bus]\nkind = "redis"\nurl = "redis://x"\nkye = "k"', "targets.bus.kye", 'did you mean "key"?'),
        ('[targets.bus]\nkind = "redis"\nurl = "http://x:s3cret@y"\nkey = "k"', "targets.bus.url", "redis://cache"),
        ('[targets.bus]\nkind = "redis"\nurl = "redis://x"\nkey = "k"\nmaxlen = 0', "targets.bus.maxlen", "above 0"),
        ('[targets.db]\nkind = "postgres"\nurl = "postgresql://x"\ntable = "A"', "targets.db.table", "lowercase"),
        ('[targets.q]\nkind = "celery"\nurl = "redis://x"\ntask = 5', "targets.q.task", "must be a name"),
        ('[targets.h]\nkind = "http"\nurl = "https://x"\nheaders = 5', "targets.h.headers", "table of texts"),
        ('[targets.h]\nkind = "http"\nurl = "https://x"\nheaders = { a = 5 }', "targets.h.headers", "table of texts"),
        ('[targets."a b"]\nkind = "http"\nurl = "https://x"', "targets", "letters, digits"),
        ("[targets]\nbus = 5", "targets.bus", "must be a table"),
        ("targets = 5", "targets", "[targets.NAME]"),
        ('targets = "{"', "targets", "must be JSON"),
    ],
)
def test_what_is_wrong_is_told_with_its_field(file: Path, text: str, field: str, told: str) -> None:
    file.write_text(text)
    with pytest.raises(SettingsInvalidError) as refused:
        load(environ={})
    assert refused.value.field == field
    assert refused.value.source == "noonbell.toml, line 1"
    assert told in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_library_that_is_missing_is_told_at_the_start(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(ALL + '\n[targets.more]\nkind = "redis"\nurl = "redis://x"\nkey = "k"\n')
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "celery" else real(name))
    settings = load({"store": "memory://"}, environ={})
    with pytest.raises(SettingsInvalidError, match=r'needs celery: pip install "noonbell\[celery\]"') as refused:
        build(settings, environ={})
    assert refused.value.field == "targets.jobs.kind"


async def test_the_service_reaches_them(file: Path, server: RedisServer) -> None:
    given = json.dumps({"bus": {"kind": "redis", "url": server.url, "key": "events", "group": "workers"}})
    service = build(load({"store": "memory://"}, environ={"NOONBELL_TARGETS": given}), environ={})
    await service.start()
    client: Any = redis.asyncio.Redis.from_url(server.url, decode_responses=True)
    try:
        made = await service.schedules.create(
            type="cron", spec="0 0 1 1 *", payload={"text": "hello"}, action={"kind": "message", "to": "bus"}
        )
        run_id = await service.schedules.trigger(made.schedule_id)
        ((_, entries),) = await client.xread({"events": "0"}, block=20_000)
    finally:
        await client.aclose()
        await service.stop(10)
    assert [fields["id"] for _, fields in entries] == [run_id]


def test_the_doctor_asks_each_of_them(file: Path, server: RedisServer) -> None:
    file.write_text(
        f'[targets.well]\nkind = "redis"\nurl = "{server.url}"\nkey = "k"\n'
        f'[targets.ill]\nkind = "redis"\nurl = "{server.url.replace(PASSWORD, "s3cret")}"\nkey = "k"\n'
        '[targets.hook]\nkind = "http"\nurl = "https://example.com/"\n'
    )
    said = CliRunner().invoke(program, ["doctor", "--json"])
    assert said.exit_code == 1
    found = {one["what"]: one for one in json.loads(said.stdout)["findings"]}
    assert found["target well"]["level"] == "ok"
    assert found["target ill"]["level"] == "wrong"
    assert "see that it is running" in found["target ill"]["do"]
    assert found["target hook"]["level"] == "ok"
    assert "s3cret" not in said.output
    assert PASSWORD not in said.output

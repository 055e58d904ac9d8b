"""No secret, in any encoding, reaches a log, a record, an error, an export or what a command prints.

Fresh canaries go out in HTTP jobs to a server that repeats them in every way it can, in commands that print them, in
callbacks that raise them, in targets that complain with them and in what jobs elsewhere say to their monitors. Then
everything that was written down or sent to somebody else is searched: logs, the database, what the interfaces show,
notices. The same life without masking shows that the search would find them in each of these places.
"""

from __future__ import annotations

import asyncio
import logging
import secrets as random
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import msgspec
import pytest
from click.testing import CliRunner

from noonbell import Schedules
from noonbell.actions.egress import Egress, EgressPolicy
from noonbell.actions.secrets import DEFAULT_TEAM, KeyRing, Secrets
from noonbell.actions.secrets.keys import create_key_file, new_ring
from noonbell.actions.secrets.masking import Masker
from noonbell.cli.program import program
from noonbell.engine import SystemClock
from noonbell.errors import NoonbellError
from noonbell.monitors import Monitors
from noonbell.monitors.monitors import LONGEST_BODY
from noonbell.notify.channels import Channels
from noonbell.schedules import Call
from noonbell.store.sqlite import SqliteStore
from noonbell.testing import ManualClock
from tests.actions.secrets.canaries import Ear, Parrot, Search, canaries, encoded, listening
from tests.patience import PATIENCE_SECONDS
from tests.store.postgres_server import PostgresServer

MODES = ("echo", "fail", "redirect", "away", "nowhere", "garbage", "bad_header", "short", "long", "packed")
ODD_ANSWERS = ("edges", "garbage", "away", "nowhere")
NEVER: dict[str, Any] = {"type": "cron", "spec": "0 0 29 2 *"}
PRINT = "import os, sys; print(os.environ['KEY'], sys.stdin.read()); sys.exit('failed with ' + os.environ['KEY'])"


def http_jobs(port: int) -> dict[str, dict[str, Any]]:
    jobs: dict[str, dict[str, Any]] = {
        mode: {
            "kind": "http",
            "method": "POST",
            "url": f"http://127.0.0.1:{port}/{mode}/${{secrets.TOKEN}}?q=${{secrets.AWKWARD}}",
            "query": {"lines": "${secrets.LINES}"},
            "headers": {"X-Key": "${secrets.TOKEN}", "X-Other": "a ${secrets.AWKWARD} b"},
            "auth": {"basic": {"user": "ann", "password": "${secrets.AWKWARD}"}},
            "body": {"json": {"${secrets.TOKEN}": ["${secrets.LINES}"], "b": {"c": "x ${secrets.AWKWARD}"}}},
            "follow_redirects": 3,
        }
        for mode in MODES
    }
    bare = {"kind": "http", "method": "POST"}
    here = f"http://127.0.0.1:{port}"
    jobs["text"] = {**bare, "url": f"{here}/echo", "body": {"text": "a ${secrets.LINES} b"}}
    jobs["form"] = {**bare, "url": f"{here}/echo", "body": {"form": {"a": "${secrets.AWKWARD}"}}}
    jobs["bearer"] = {**bare, "url": f"{here}/fail", "auth": {"bearer": "${secrets.TOKEN}"}}
    jobs["hook"] = {**bare, "url": "${secrets.HOOK}"}
    jobs["assert"] = {**bare, "url": "${secrets.HOOK}", "assert": {"contains": "nothing of the kind"}}
    jobs["user"] = {**bare, "url": f"http://ann:${{secrets.TOKEN}}@127.0.0.1:{port}/echo"}
    # these are never sent
    jobs["unknown"] = {**bare, "url": f"{here}/echo/${{secrets.TOKEN}}?x=${{secrets.NONE}}"}
    jobs["broken header"] = {**bare, "url": f"{here}/echo", "headers": {"X-Key": "${secrets.LINES}"}}
    jobs["not a url"] = {**bare, "url": "${secrets.TOKEN}"}
    jobs["refused"] = {**bare, "url": "http://10.9.8.7/${secrets.TOKEN}"}
    return jobs


NEVER_SENT = {"unknown", "broken header", "not a url", "refused"}


class Life:
    """Everything that holds canaries, run once."""

    def __init__(self, url: str, ring: KeyRing) -> None:
        self.url = url
        self.ring = ring
        self.values = canaries()
        self.parrot = Parrot([form for value in self.values.values() for form in encoded(value) if "\n" not in form])
        self.ids: dict[str, str] = {}
        self.inbox = Parrot(["fine"])  # where notices go
        self.ear: Ear | None = None
        self.shown: list[str] = []
        self.history: list[str] = []
        self.pings: list[str] = []
        self.monitor_id = ""
        self.still_masked = False

    async def run(self) -> None:
        with listening() as self.ear:
            async with self.parrot.serving() as parrot, self.inbox.serving():
                self.values["HOOK"] = f"http://127.0.0.1:{parrot.port}/fail/{random.token_urlsafe(24)}"
                await self._run(parrot.port)

    async def _run(self, port: int) -> None:
        egress = Egress(EgressPolicy(allow=(f"127.0.0.1:{port}", f"127.0.0.1:{self.inbox.port}")))
        async with Schedules(self.url, secrets=self.ring, egress=egress, commands=True) as schedules:
            for name, value in self.values.items():
                await schedules.secrets.put(DEFAULT_TEAM, name, value)
            self._register(schedules)
            await self._subscribe(schedules)
            actions = http_jobs(port)
            env = {"KEY": "${secrets.AWKWARD}"}
            argv = [sys.executable, "-c", PRINT]
            actions["command"] = {"kind": "command", "argv": argv, "env": env, "stdin": "${secrets.LINES}"}
            for name in ("raises", "raises in a thread"):
                actions[name] = {"kind": "callback", "name": name}
            for name, action in actions.items():
                made = await schedules.create(name=name, action=action, **NEVER)
                self.ids[name] = made.schedule_id
            await schedules.start()
            # a value that is known here but not any more the secret's: it was sent, so it may still come back
            old = self.values["TOKEN"]
            runs = [await schedules.trigger(schedule_id) for schedule_id in self.ids.values()]
            await until(lambda: self._ended(schedules))
            self.values["NEWER"] = random.token_urlsafe(30)
            await schedules.secrets.put(DEFAULT_TEAM, "TOKEN", self.values["NEWER"])
            self.still_masked = old not in schedules.secrets.mask(f"still {old}")
            for name in ("echo", "fail"):
                await schedules.trigger(self.ids[name])
            await until(lambda: self._ended(schedules, 2))
            await self._ping(schedules)
            await until(lambda: self._told(len(self.ids) + 2))  # a notice for every run
            await schedules.stop()
            await self._look(schedules, runs)

    async def _subscribe(self, schedules: Schedules) -> None:
        config = {"url": f"http://127.0.0.1:{self.inbox.port}/echo"}
        await schedules.channels.create(
            name="inbox", kind="webhook", config=config, channel_id="inbox", most_per_minute=None
        )
        on = ["failed", "succeeded", "recovered"]
        await schedules.rules.create(name="all", on=on, channels=["inbox"], window_seconds=0)

    async def _ping(self, schedules: Schedules) -> None:
        """A job elsewhere says everything that it knows."""
        monitors = Monitors(schedules._store, SystemClock(), secrets=schedules.secrets)
        made = await monitors.create(name="elsewhere", type="interval", spec="3600")
        self.monitor_id = made.monitor_id
        await monitors.ping(made.token, "fail", body="\n".join(self.parrot.songs), run=self.values["AWKWARD"])
        await monitors.ping(made.token, "log", body="x" * (LONGEST_BODY - 20) + self.values["AWKWARD"])
        self.pings += [repr(await monitors.pings(made.monitor_id)), repr(await monitors.flips(made.monitor_id))]
        self.pings.append(repr(await monitors.get(made.monitor_id)))

    async def _told(self, count: int) -> bool:
        return len(self.inbox.heard) >= count

    def _register(self, schedules: Schedules) -> None:
        async def raises(call: Call) -> None:
            del call
            value = (await schedules.secrets.resolve(DEFAULT_TEAM, ["AWKWARD"]))["AWKWARD"]
            logging.getLogger("noonbell.http").debug("sending %s", value, extra={"headers": {"key": value}})
            raise ConnectionError("\n".join(encoded(value))) from ValueError(value)

        def raises_in_thread(call: Call) -> None:
            del call
            raise RuntimeError("x" * 1_990 + self.values["TOKEN"])

        schedules.register("raises", raises)
        schedules.register("raises in a thread", raises_in_thread)

    async def _ended(self, schedules: Schedules, more: int = 0) -> bool:
        metrics = schedules.metrics or {}
        return int(metrics["succeeded"]) + int(metrics["failed"]) >= len(self.ids) + more

    async def _look(self, schedules: Schedules, runs: list[str]) -> None:
        """What the interface shows."""
        for run_id in runs:
            run = await schedules.run(run_id)
            assert run.tried
            self.history.append(repr(run))
        for schedule_id in self.ids.values():
            self.history.append(repr((await schedules.runs(schedule_id)).items))
            self.history.append(repr(await schedules.statistics(schedule_id)))
        shown: list[Any] = [(await schedules.audit(limit=1000)).items, await schedules.secrets.list(DEFAULT_TEAM)]
        start = datetime(2000, 1, 1, tzinfo=UTC)
        for schedule_id in self.ids.values():
            shown.append(await schedules.get(schedule_id))
            shown.append((await schedules.occurrences(schedule_id, start=start)).items)
        self.shown += [repr(one) for one in shown]

    # --- what must hold -------------------------------------------------------------------------------------------

    def found(self, search: Search) -> dict[str, list[str]]:
        """What is found, by where it was said."""
        assert self.ear is not None
        places: dict[str, Sequence[str | bytes]] = {
            "log": self.ear.lines,
            "interface": self.shown,
            "history": self.history,
            "monitor": self.pings,
            "notice": self.inbox.heard,
        }
        return {
            place: [hit for one in dict.fromkeys(said) for hit in search.hits(place, one)]
            for place, said in places.items()
        }

    def search(self) -> Search:
        # of a URL only the path is secret
        return Search([value.rsplit("/", 1)[1] if name == "HOOK" else value for name, value in self.values.items()])

    def check_that_it_can_fail(self, search: Search) -> None:
        """The canaries were sent, and the search finds them where they were."""
        assert self.still_masked, "a value that was replaced is masked on"
        heard = b"\n".join(self.parrot.heard)
        assert len({hit.split(": ")[1].split("…")[0] for hit in search.hits("heard", heard)}) == len(self.values)
        for mode in MODES:
            assert any(f"POST /{mode}/".encode() in one for one in self.parrot.heard), mode
        # a redirect makes two of one; the last two were sent again with the newer token
        sent = len(http_jobs(0).keys() - NEVER_SENT) + 1 + 2
        assert len(self.parrot.heard) == sent, "what misses a secret is not sent"
        assert search.hits("", f"...{self.values['NEWER'][3:14]}..."), "a part is found"
        for form in encoded(self.values["AWKWARD"]):
            assert search.hits("", form), form


async def until(done: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what the interface tells nobody of."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await done():  # noqa: ASYNC110 - the end of a run is not announced
            await asyncio.sleep(0.02)


def cli_output(url: str, key_file: Path, ids: dict[str, str]) -> list[str]:
    env = {"NOONBELL_STORE": url, "NOONBELL_MASTER_KEYS_FILE": str(key_file), "NOONBELL_MASTER_KEYS": None}
    calls = [
        ["secrets", "list"],
        ["secrets", "list", "--json"],
        ["secrets", "rotate"],
        ["verify", "--db", url],
        ["verify", "--db", url, "--json"],
        *(["why", name, "2026-11-16T00:00", "--db", url] for name in ids),
    ]
    results = [CliRunner().invoke(program, call, env=env) for call in calls]
    assert [one.exit_code for one in results[:5]] == [0] * 5, [one.output for one in results[:5]]
    return [one.output + repr(one.exception) for one in results]


def whole(folder: Path) -> bytes:
    """The raw bytes of the database and of its log."""
    return b"\n".join(file.read_bytes() for file in sorted(folder.glob("app.db*")))


def ring_in(folder: Path) -> KeyRing:
    return create_key_file(folder / "master.keys")


def test_on_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    life = Life(f"sqlite:///{path}", ring_in(tmp_path))
    asyncio.run(life.run())
    search = life.search()
    life.check_that_it_can_fail(search)
    found = [hit for hits in life.found(search).values() for hit in hits]
    found += search.hits("file", whole(tmp_path))
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    rows = {table: list(db.execute(f'SELECT * FROM "{table}"')) for table in tables}  # noqa: S608 - its own names
    db.close()
    assert len(rows["documents"]) >= len(life.values) - 1
    definitions = [repr(row) for row in rows["schedule_definitions"]]
    assert sum("HTTP" in row or "http" in row for row in definitions) >= len(MODES)
    for table, found_rows in rows.items():
        found += search.hits_in_rows(table, found_rows)
    found += [
        hit
        for one in cli_output(life.url, tmp_path / "master.keys", life.ids)
        for hit in search.hits("command line", one)
    ]
    assert found == []


def test_without_masking_every_place_would_show_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Masker, "spans", lambda *_: [])
    for name in ("text", "data", "value"):
        monkeypatch.setattr(Masker, name, lambda _, value, **__: value)
    life = Life(f"sqlite:///{tmp_path / 'app.db'}", ring_in(tmp_path))
    asyncio.run(life.run())
    assert not life.still_masked
    found = life.found(life.search())
    # schedules, the audit and the list of secrets hold none to begin with
    assert {place for place, hits in found.items() if hits} >= {"log", "history", "monitor", "notice"}
    assert life.search().hits("file", whole(tmp_path))


@pytest.mark.exhaustive
def test_on_postgres(tmp_path: Path, postgres: PostgresServer) -> None:
    url = asyncio.run(postgres.new_schema())
    life = Life(url, ring_in(tmp_path))
    asyncio.run(life.run())
    search = life.search()
    life.check_that_it_can_fail(search)
    found = [hit for hits in life.found(search).values() for hit in hits]
    rows = asyncio.run(dump(url))
    assert len(rows["documents"]) >= len(life.values) - 1
    for table, found_rows in rows.items():
        found += search.hits_in_rows(table, found_rows)
    found += [
        hit
        for one in cli_output(life.url, tmp_path / "master.keys", life.ids)
        for hit in search.hits("command line", one)
    ]
    assert found == []


async def dump(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables of the schema."""
    db = await asyncpg.connect(url)
    try:
        tables = await db.fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        names = [row["tablename"] for row in tables]
        return {name: [tuple(row) for row in await db.fetch(f'SELECT * FROM "{name}"')] for name in names}  # noqa: S608 - as above
    finally:
        await db.close()


@pytest.mark.parametrize(
    "mode", ["echo", "fail", *(pytest.param(mode, marks=pytest.mark.exhaustive) for mode in ODD_ANSWERS)]
)
async def test_notifications(mode: str, tmp_path: Path) -> None:
    """Channels whose other side repeats what is secret in them."""
    values = canaries()
    search = Search([values["TOKEN"], values["AWKWARD"]])
    store = SqliteStore(tmp_path / "app.db")
    told: list[str] = []
    parrot = Parrot([values["TOKEN"], *encoded(values["AWKWARD"])])
    with listening() as ear:
        await store.open()
        async with parrot.serving():
            secrets = Secrets(store, new_ring(), SystemClock())
            await secrets.put(DEFAULT_TEAM, "KEY", values["AWKWARD"])
            egress = Egress(EgressPolicy(allow=(f"127.0.0.1:{parrot.port}",)))
            channels = Channels(store, SystemClock(), secrets=secrets, egress=egress)
            hook = f"http://127.0.0.1:{parrot.port}/{mode}/{values['TOKEN']}"
            headers = {"X-Key": "${secrets.KEY}", "X-Token": values["TOKEN"]}
            for kind, config in (
                ("slack", {"url": hook}),
                ("webhook", {"url": f"http://127.0.0.1:{parrot.port}/{mode}/x", "headers": headers}),
            ):
                made = await channels.create(name=kind, kind=kind, config=config)
                told.append(repr(made))
                try:
                    told.append(await channels.test(made.channel_id))
                except NoonbellError as error:
                    told.append("".join(traceback.format_exception(error)))
            told.append(repr(await channels.list()))
        await store.close()
    assert len(parrot.heard) == 2
    assert search.hits("heard", b"".join(parrot.heard))
    found = [hit for one in told for hit in search.hits("told", one)]
    found += [hit for line in ear.lines for hit in search.hits("log", line)]
    found += search.hits("file", await asyncio.to_thread(whole, tmp_path))
    assert found == []


async def test_dead_letters(tmp_path: Path) -> None:
    """A target that complains with a secret, until the message is given up."""
    value = canaries()["AWKWARD"]
    search = Search([value])
    clock = ManualClock(datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC))
    store = SqliteStore(tmp_path / "app.db", threaded=False)
    complaints = 0

    async def complain(event: dict[str, Any]) -> None:
        nonlocal complaints
        del event
        complaints += 1
        raise ConnectionError("\n".join(encoded(value)))

    with listening() as ear:
        await store.open()
        schedules = Schedules(
            store, clock=clock, targets={"inbox": complain}, secrets=new_ring(), longest_wait=timedelta(minutes=1)
        )
        await schedules.secrets.put(DEFAULT_TEAM, "KEY", value)
        await schedules.secrets.resolve(DEFAULT_TEAM, [])
        action = {"kind": "message", "to": "inbox"}
        await schedules.create(name="a", type="one_shot", spec="2026-03-04T12:01:00Z", payload={"x": 1}, action=action)
        await schedules.start()
        while not (letters := (await schedules.dead_letters()).items):
            assert clock.at < datetime(2026, 3, 4, 15, tzinfo=UTC)
            await clock.advance(timedelta(minutes=1))
        audits = (await schedules.audit()).items
        stopping = asyncio.ensure_future(schedules.stop())
        while not stopping.done():
            await clock.advance(timedelta(minutes=1))
        await stopping
        await store.close()
    assert complaints == 10
    assert [letter.error is not None for letter in letters] == [True]
    assert "message.dead" in {one.event for one in audits}
    found = search.hits("letters", repr(letters)) + search.hits("audit", repr(audits))
    found += [hit for line in ear.lines for hit in search.hits("log", line)]
    found += search.hits("file", await asyncio.to_thread(whole, tmp_path))
    assert found == []
    assert "***" in msgspec.json.encode([letter.error for letter in letters]).decode()

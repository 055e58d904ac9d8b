"""No secret comes out of the service: not over the API, on a page, in the live stream, among the numbers or in a log.

Fresh canaries are put in over the API and used wherever a secret can be: in requests to a server that sings them back
in every encoding, in a command that prints them, in a channel; a job elsewhere pings with all of them. Then every GET
of every route and page is asked for, and everything that was answered or logged is searched for any part of them.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute, iter_route_contexts

from noonbell.actions.secrets.masking import Masker
from noonbell.api.app import PREFIX, create_app
from tests.actions.secrets.canaries import Ear, Parrot, Search, canaries, encoded, listening
from tests.api.conftest import Client, serving, settings_for
from tests.api.test_access import is_page
from tests.api.test_login import logged_in, quick_hash
from tests.patience import PATIENCE_SECONDS

__all__ = ["quick_hash"]  # the fixture

PRINT = "import os, sys; print(os.environ['KEY']); print(sys.stdin.read(), file=sys.stderr); sys.exit(3)"
NEVER = {"type": "cron", "spec": "0 0 1 1 *"}
# what is told once, to whoever may write: the keys that others verify our signatures with
TOLD_ON_PURPOSE = re.compile(r"/signing-keys$")
NOT_ASKED = {"/ping/{rest:path}": "a ping, not a look", "/static/{digest}/{name:path}": "files of the package"}


class Life:
    """A service in which every secret was used, and all that it has said."""

    def __init__(self, client: Client, ear: Ear, parrot: Parrot, values: dict[str, str]) -> None:
        self.client = client
        self.ear = ear
        self.parrot = parrot
        self.values = values
        self.said: dict[str, list[str]] = {}
        self.things: dict[str, list[str]] = {}

    async def run(self, *only: str) -> None:
        for name, value in self.values.items():
            answer = await self.client.write.put(f"{PREFIX}/secrets/{name}", json={"value": value})
            assert answer.status_code in (200, 201)
            self._keep("api", answer.text)
        stream = asyncio.create_task(self._follow())
        try:
            await self._use()
            await self._ask_everything(only)
        finally:
            stream.cancel()
            await asyncio.gather(stream, return_exceptions=True)
        assert self.said["stream"]
        # what the client of this test says is its own affair
        ours = ("'name': 'noonbell", "'name': 'uvicorn")
        self.said["log"] = [line for line in self.ear.lines if any(name in line for name in ours)]

    async def _use(self) -> None:
        here = f"http://127.0.0.1:{self.parrot.port}"
        sending = {
            "kind": "http", "method": "POST", "headers": {"X-Key": "${secrets.TOKEN}"},
            "body": {"json": {"a": "${secrets.AWKWARD}", "b": "${secrets.LINES}"}},
        }  # fmt: skip
        program = {"kind": "command", "argv": [sys.executable, "-c", PRINT]}
        actions: dict[str, dict[str, Any]] = {
            **{mode: {**sending, "url": f"{here}/{mode}/${{secrets.TOKEN}}"} for mode in ("echo", "fail", "garbage")},
            "missing": {**sending, "url": f"{here}/echo/${{secrets.NONE}}?${{secrets.TOKEN}}"},
            "refused": {**sending, "url": "http://10.9.8.7/${secrets.TOKEN}"},
            "command": {**program, "env": {"KEY": "${secrets.AWKWARD}"}, "stdin": "${secrets.LINES}"},
        }  # fmt: skip
        channel = {"name": "ops", "kind": "webhook", "config": {"url": f"{here}/fail/${{secrets.TOKEN}}"}}
        made = await self._post("/channels", channel)
        self.things["channel_id"] = [made["channel_id"]]
        rule = {"name": "all", "on": ["failed", "succeeded"], "channels": self.things["channel_id"]}
        self.things["rule_id"] = [(await self._post("/rules", {**rule, "window_seconds": 0}))["rule_id"]]
        window = {"from": "22:00", "to": "06:00", "timezone": "UTC", "weekdays": [1]}
        quiet = await self._post("/quiet-hours", {"name": "night", "windows": [window]})
        self.things["policy_id"] = [quiet["policy_id"]]
        monitor = await self._post("/monitors", {"name": "elsewhere", "type": "interval", "spec": "3600"})
        self.things["monitor_id"] = [monitor["monitor_id"]]
        sung = "\n".join(self.parrot.songs).encode()
        ping = await self.client.anonymous.post(f"{monitor['ping_path']}/fail", content=sung)
        assert ping.status_code == 200, ping.text
        self.things["schedule_id"], self.things["run_id"] = [], []
        for name, action in actions.items():
            one = await self._post("/schedules", {"name": name, "schedule_id": name, "action": action, **NEVER})
            self.things["schedule_id"].append(one["schedule_id"])
            self.things["run_id"].append((await self._post(f"/schedules/{name}/trigger", None))["run_id"])
        await self._post(f"/channels/{made['channel_id']}/test", None, expect=None)
        keys = (await self.client.admin.get(f"{PREFIX}/keys")).json()["items"]
        self.things["key_id"] = [key["key_id"] for key in keys]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await self._ended()) < len(actions):  # noqa: ASYNC110 - another task ends them
                await asyncio.sleep(0.05)

    async def _ended(self) -> int:
        return len((await self.client.read.get(f"{PREFIX}/runs")).json()["items"])

    async def _post(self, path: str, body: object, expect: int | None = 400) -> Any:
        answer = await self.client.admin.post(f"{PREFIX}{path}", json=body)
        assert expect is None or answer.status_code < expect, answer.text
        self._keep("api", answer.text)
        return answer.json()

    async def _follow(self) -> None:
        async with self.client.read.stream("GET", f"{PREFIX}/events") as answer:
            async for piece in answer.aiter_text():
                self._keep("stream", piece)

    async def _ask_everything(self, only: Sequence[str]) -> None:
        browser = await logged_in(self.client)
        app = create_app(self.client.service)
        for context in iter_route_contexts(app.routes):
            path = context.path or ""
            if "GET" not in (context.methods or {"GET"}) or path in NOT_ASKED or TOLD_ON_PURPOSE.search(path):
                continue
            if only and path not in only:
                continue
            page = isinstance(context.original_route, APIRoute) and is_page(context.dependant)
            for asked in self._filled(path):
                if path.endswith("/events"):
                    continue  # it is being followed
                answer = await (browser if page else self.client.admin).get(asked)
                assert answer.status_code < 500, (asked, answer.text)
                assert not page or answer.status_code == 200, (asked, answer.status_code)
                place = "page" if page else "metrics" if path == "/metrics" else "api"
                self._keep(place, answer.text)
                self._keep(place, repr(answer.headers))

    def _filled(self, path: str) -> list[str]:
        """The path with each of the things that it names."""
        things = {**self.things, "token": ["nothing"], "name": ["nobody"], "number": map(str, range(1, 10))}
        found = [path]
        for name in re.findall(r"\{(\w+)\}", path):
            known = list(things[name])
            found = [one.replace(f"{{{name}}}", thing) for one in found for thing in known]
        return found

    def _keep(self, place: str, text: str) -> None:
        self.said.setdefault(place, []).append(text)

    def found(self) -> dict[str, list[str]]:
        search = Search(self.values.values())
        return {
            place: [hit for one in dict.fromkeys(said) for hit in search.hits(place, one)]
            for place, said in self.said.items()
        }


@pytest.fixture
async def life(tmp_path: Path) -> AsyncIterator[Life]:
    values = canaries()
    parrot = Parrot([form for value in values.values() for form in encoded(value) if "\n" not in form])
    async with parrot.serving():
        settings = settings_for(
            tmp_path, egress_allow=(f"127.0.0.1:{parrot.port}",), commands=(f"{sys.executable}:KEY",), log_level="debug"
        )
        with listening() as ear:
            async with serving(settings) as client:
                yield Life(client, ear, parrot, values)


async def test_no_part_of_a_secret_is_said_anywhere(life: Life) -> None:
    await life.run()
    search = Search(life.values.values())
    heard = b"\n".join(life.parrot.heard)
    assert search.hits("heard", heard), "they were sent, and would be found"
    assert set(life.said) == {"api", "stream", "page", "metrics", "log"}
    assert {place: hits for place, hits in life.found().items() if hits} == {}


async def test_without_masking_it_would_be_seen(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Masker, "spans", lambda *_: [])
    for name in ("text", "data", "value"):
        monkeypatch.setattr(Masker, name, lambda _, value, **__: value)
    await life.run(f"{PREFIX}/runs/{{run_id}}", "/runs/{run_id}")
    found = life.found()
    assert found["api"]
    assert found["page"]
    assert found["log"]

"""How often a request uses the store: pages and lists of one schedule cost a few calls, and reading writes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import argon2
import httpx2
import pytest

from noonbell.access.passwords import Passwords
from noonbell.api.app import create_app
from noonbell.bootstrap import Service
from noonbell.store.timed import StoreTimes, time_verbs
from tests.api.conftest import settings_for
from tests.patience import PATIENCE_SECONDS
from tests.schedules.conftest import World, store_maker
from tests.schedules.test_occurrences import eventful
from tests.web.conftest import PASSWORD, Browser

READS = {
    "documents.find", "snapshot", "schedules.find", "history.latest_runs", "engines.members",
    "schedules.quiet_hours", "read",
}  # fmt: skip


class Site(NamedTuple):
    """A service without an engine on a ledger with history: whatever is counted, a request has called."""

    browser: Browser
    api: httpx2.AsyncClient
    schedule_ids: list[str]
    times: StoreTimes

    def counted(self) -> Counter[str]:
        return Counter({verb: sum(found.buckets) for verb, found in self.times.verbs.items()})

    async def calls(self, client: httpx2.AsyncClient, path: str) -> Counter[str]:
        """The verbs that a request calls."""
        before = self.counted()
        answer = await client.get(path)
        assert answer.status_code == 200, answer.text
        found = self.counted() - before
        assert found.keys() <= READS, "reading changes nothing"
        return found


@pytest.fixture(params=["memory", "sqlite"])
async def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    quick = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(Passwords, "_hasher", lambda self: quick)
    world = World(store_maker(request.param, tmp_path))
    await world.schedules.open()
    keys = await eventful(world)
    await world.schedules.trigger(keys[0])  # a live run: nothing starts it
    times = time_verbs(world.store)
    service = Service(settings_for(tmp_path), world.clock, world.store, times, keys=None, registrations=None)
    await service.open()
    transport = httpx2.ASGITransport(app=create_app(service))
    given: dict[str, Any] = {"base_url": "http://service", "transport": transport, "timeout": PATIENCE_SECONDS}
    _, key = await service.access.create_key("default", ["read"], name="reader")
    await service.access.create_admin("ann", PASSWORD)
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(**given) as client, httpx2.AsyncClient(**given, headers=headers) as api:
        browser = Browser(service, client)
        await browser.log_in("ann")
        yield Site(browser, api, keys, times)
    await world.store.close()


async def test_the_page_of_a_schedule(site: Site) -> None:
    for key in site.schedule_ids:
        for query in ("", "?day=2026-03-04", "?before=2026-03-04T12:30:00Z"):
            found = await site.calls(site.browser.client, f"/schedules/{key}{query}")
            assert found.total() <= 5, found


async def test_the_runs_of_a_schedule_and_of_all(site: Site) -> None:
    for path in (f"/api/v1/schedules/{site.schedule_ids[0]}/runs", "/api/v1/runs"):
        page = (await site.api.get(f"{path}?limit=3")).json()
        assert len(page["items"]) == 3
        site.browser.service.access._shared.known.clear()  # as the first request of a key
        for query in ("?limit=3", f"?limit=3&cursor={page['next_cursor']}", "?limit=1000"):
            found = await site.calls(site.api, f"{path}{query}")
            assert found.total() <= 2, found


async def test_other_reads(site: Site) -> None:
    one = f"/api/v1/schedules/{site.schedule_ids[0]}"
    run = (await site.api.get(f"{one}/runs?limit=1")).json()["items"][0]["run_id"]
    for path in (one, f"{one}/occurrences?limit=1000", f"{one}/statistics", f"{one}/preview", f"/api/v1/runs/{run}"):
        site.browser.service.access._shared.known.clear()
        found = await site.calls(site.api, path)
        assert found.total() <= 2, found
    for path, most in ((f"/runs/{run}", 3), ("/runs", 3), ("/", 8)):
        found = await site.calls(site.browser.client, path)
        assert found.total() <= most, found


@pytest.mark.parametrize("site", ["sqlite"], indirect=True)
async def test_a_page_is_few_statements_as_well(site: Site) -> None:
    """What is read from one snapshot is not merely the same reads under another name."""
    statements: list[str] = []

    def trace(_cursor: object, sql: str, _bindings: object) -> bool:
        statements.append(sql)
        return True

    store: Any = site.browser.service.store
    store._connection._db.exec_trace = trace
    for key in site.schedule_ids:
        statements.clear()
        await site.browser.read(f"/schedules/{key}")
        read = [sql for sql in statements if not sql.startswith(("BEGIN", "COMMIT"))]
        assert 5 < len(read) <= 17, read

"""What the keeping of answers rests on: crashes in between, the end of its time, and the sweep."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, cast

import httpx2
import pytest

from noonbell.api.app import create_app
from noonbell.api.idempotency import KIND
from noonbell.bootstrap import build
from noonbell.core.records import Document
from noonbell.ports import DocumentStore
from noonbell.testing import ManualClock
from tests.api.conftest import Client, settings_for

URL = "/api/v1/schedules"
BODY = {"type": "cron", "spec": "0 9 * * *", "action": {"kind": "callback", "name": "report"}}
KEY = {"Idempotency-Key": "k"}


class Timed(NamedTuple):
    client: Client
    clock: ManualClock
    store: DocumentStore


async def kept(timed: Timed) -> list[Document]:
    return await timed.store.list_documents(KIND, None, "", 100)


async def listed(timed: Timed, path: str = URL) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await timed.client.read.get(path)).json()["items"]
    return found


@pytest.fixture
async def timed(tmp_path: Path) -> AsyncIterator[Timed]:
    """A service whose clock moves on demand. Its engine does not run: what is made here needs none."""
    clock = ManualClock(datetime(2026, 3, 2, 12, tzinfo=UTC))
    service = build(settings_for(tmp_path), clock=clock)
    await service.store.open()
    await service.access.ensure_default_team()
    client = Client(service, "http://service", httpx2.ASGITransport(app=create_app(service)))
    await client.open()
    yield Timed(client, clock, cast("DocumentStore", service.store))
    await client.close()
    await service.events.stop()
    await service.store.close()


MADE: list[tuple[str, dict[str, Any]]] = [
    (URL, BODY),
    ("/api/v1/bulk/schedules", {"schedules": [BODY, BODY]}),
    ("/api/v1/monitors", {"name": "b", "type": "interval", "spec": 60}),
    ("/api/v1/channels", {"name": "c", "kind": "webhook", "config": {"url": "https://example.com/"}}),
    ("/api/v1/quiet-hours", {"name": "q", "windows": [
        {"weekdays": [1], "from": "22:00", "to": "23:00", "timezone": "UTC"}]}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body"), MADE)
async def test_a_crash_before_the_answer_was_kept(
    timed: Timed, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    """It was created, and the process died before that was written down: the repeat finds it."""
    put = timed.store.put_documents

    async def dying(writes: Any, at: int, audits: Any = ()) -> list[Document]:
        if any(write.kind == KIND and '"answer":{' in write.body for write in writes):
            raise SystemError("the power is gone")
        return await put(writes, at, audits)

    monkeypatch.setattr(timed.store, "put_documents", dying, raising=False)
    assert (await timed.client.write.post(path, json=body, headers=KEY)).status_code == 500
    monkeypatch.undo()
    listing = URL if "bulk" in path else path
    before = await listed(timed, listing)
    assert len(before) == (2 if "bulk" in path else 1)
    soon = await timed.client.write.post(path, json=body, headers=KEY)
    assert (soon.status_code, soon.headers["retry-after"]) == (409, "1")
    await timed.clock.advance(timedelta(seconds=61))
    again = await timed.client.write.post(path, json=body, headers=KEY)
    assert again.status_code == 201, again.text
    assert await listed(timed, listing) == before
    replayed = await timed.client.write.post(path, json=body, headers=KEY)
    assert replayed.headers["idempotency-replayed"] == "true"
    assert replayed.json() == again.json()


async def test_a_key_is_good_for_a_day(timed: Timed) -> None:
    first = await timed.client.write.post(URL, json=BODY, headers=KEY)
    await timed.clock.advance(timedelta(hours=23, minutes=59))
    assert (await timed.client.write.post(URL, json=BODY, headers=KEY)).json() == first.json()
    await timed.clock.advance(timedelta(minutes=2))
    later = await timed.client.write.post(URL, json=BODY, headers=KEY)
    assert later.status_code == 201
    assert later.json()["schedule_id"] != first.json()["schedule_id"]


async def test_what_is_over_is_swept(timed: Timed) -> None:
    for number in range(3):
        await timed.client.write.post(URL, json=BODY, headers={"Idempotency-Key": f"k{number}"})
    assert len(await kept(timed)) == 3
    await timed.clock.advance(timedelta(hours=25))
    await timed.client.write.post(URL, json=BODY, headers={"Idempotency-Key": "new"})
    assert len(await kept(timed)) == 1


async def test_a_key_that_no_header_should_hold_is_refused(timed: Timed) -> None:
    answer = await timed.client.write.post(URL, json=BODY, headers={"Idempotency-Key": "x" * 201})
    assert (answer.status_code, answer.json()["field"]) == (422, "Idempotency-Key")
    assert await listed(timed) == []

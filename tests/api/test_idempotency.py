"""What the keeping of answers rests on: crashes in between, the end of its time, and the sweep."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from noonbell.api.app import create_app
from noonbell.api.idempotency import KIND
from noonbell.api.models.schedules import MOST_AT_ONCE
from noonbell.bootstrap import build
from noonbell.core.records import Document
from noonbell.errors import StoreUnavailableError
from noonbell.ports import DocumentFilter, Ledger
from noonbell.testing import ManualClock
from tests.api.conftest import Client, settings_for
from tests.store.overriding import find_verb

URL = "/api/v1/schedules"
BULK = "/api/v1/bulk/schedules"
QUIET = "/api/v1/quiet-hours"
RULES = "/api/v1/rules"
BODY = {"type": "cron", "spec": "0 9 * * *", "action": {"kind": "callback", "name": "report"}}
KEY = {"Idempotency-Key": "k"}
CHANNEL = {"name": "c", "kind": "webhook", "config": {"url": "https://example.com/"}}
WINDOWS = [{"weekdays": [1], "from": "22:00", "to": "23:00", "timezone": "UTC"}]


class Timed(NamedTuple):
    client: Client
    clock: ManualClock
    store: Ledger


async def kept(timed: Timed) -> list[Document]:
    return await timed.store.documents.find(DocumentFilter(KIND), "", 100)


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
    yield Timed(client, clock, service.store)
    await client.close()
    await service.events.stop()
    await service.store.close()


MADE: list[tuple[str, dict[str, Any]]] = [
    (URL, BODY),
    (BULK, {"schedules": [BODY, BODY]}),
    ("/api/v1/monitors", {"name": "b", "type": "interval", "spec": 60}),
    ("/api/v1/channels", CHANNEL),
    (QUIET, {"name": "q", "windows": WINDOWS}),
    (RULES, {"name": "r", "on": ["failed"], "channels": ["told"]}),
]
# the same, with an id that the caller chooses
CHOSEN: list[tuple[str, dict[str, Any]]] = [
    (URL, BODY | {"schedule_id": "mine"}),
    (BULK, {"schedules": [BODY | {"schedule_id": "mine"}]}),
    ("/api/v1/monitors", {"monitor_id": "mine", "name": "b", "type": "interval", "spec": 60}),
    ("/api/v1/channels", CHANNEL | {"channel_id": "mine"}),
    (QUIET, {"policy_id": "mine", "name": "q", "windows": WINDOWS}),
    (RULES, {"rule_id": "mine", "name": "r", "on": ["failed"], "channels": ["told"]}),
]
# which verb of the store makes it; documents are put
VERBS = dict.fromkeys((URL, BULK, QUIET), "schedules.apply")


async def prepare(timed: Timed, path: str) -> None:
    if path == RULES:
        channel = CHANNEL | {"channel_id": "told"}
        assert (await timed.client.write.post("/api/v1/channels", json=channel)).status_code == 201


def dying(timed: Timed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies when it is about to keep the answer."""
    write = timed.store.documents.write

    async def die(writes: Any = (), *more: Any, **named: Any) -> list[Document]:
        if any(write.kind == KIND and '"answer":{' in write.body for write in writes):
            raise SystemError("the power is gone")
        return await write(writes, *more, **named)

    monkeypatch.setattr(timed.store.documents, "write", die)


def failing(timed: Timed, monkeypatch: pytest.MonkeyPatch, verb: str, *, committed: bool) -> None:
    """A verb of the store fails, and what it was to write is there or not."""
    part, name = find_verb(timed.store, verb)
    work = getattr(part, name)

    async def fail(*given: Any, **named: Any) -> Any:
        other = verb == "documents.write" and not (given and given[0][0].kind in ("monitor", "channel", "rule"))
        done = await work(*given, **named) if other or committed else None
        if other:
            return done
        raise StoreUnavailableError("The connection was lost")

    monkeypatch.setattr(part, name, fail)


@pytest.mark.parametrize(("path", "body"), MADE)
async def test_a_crash_before_the_answer_was_kept(
    timed: Timed, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    """It was created, and the process died before that was written down: the repeat finds it."""
    await prepare(timed, path)
    dying(timed, monkeypatch)
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


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize(("path", "body"), MADE)
async def test_a_database_that_has_not_said_whether_it_committed(
    timed: Timed, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any], *, committed: bool
) -> None:
    """What was made is found by the repeat, and what was not is made by it."""
    await prepare(timed, path)
    failing(timed, monkeypatch, VERBS.get(path, "documents.write"), committed=committed)
    assert (await timed.client.write.post(path, json=body, headers=KEY)).status_code == 503
    monkeypatch.undo()
    listing, many = (URL, 2) if path == BULK else (path, 1)
    before = await listed(timed, listing)
    assert len(before) == (many if committed else 0)
    assert (await timed.client.write.post(path, json=body, headers=KEY)).status_code == 409
    await timed.clock.advance(timedelta(seconds=61))
    again = await timed.client.write.post(path, json=body, headers=KEY)
    assert again.status_code == 201, again.text
    after = await listed(timed, listing)
    assert after == before if committed else len(after) == many


@pytest.mark.parametrize("overlap", ["allow", "coalesce"])
@pytest.mark.parametrize("trouble", ["died", "committed", "not committed"])
async def test_a_run_is_asked_for_once(
    timed: Timed, monkeypatch: pytest.MonkeyPatch, overlap: str, trouble: str
) -> None:
    """However the first attempt ends, the repeat answers with its run, or asks for one where there is none."""
    made = (await timed.client.write.post(URL, json=BODY | {"overlap": overlap})).json()["schedule_id"]
    path = f"{URL}/{made}/trigger"
    if trouble == "died":
        dying(timed, monkeypatch)
    else:
        failing(timed, monkeypatch, "runs.ask", committed=trouble == "committed")
    assert (await timed.client.write.post(path, headers=KEY)).status_code in (500, 503)
    monkeypatch.undo()
    assert (await timed.client.write.post(path, headers=KEY)).status_code == 409
    await timed.clock.advance(timedelta(seconds=61))
    again = await timed.client.write.post(path, headers=KEY)
    assert again.status_code == 202, again.text
    (live,) = await timed.store.read("live", None, 10)
    assert int(again.json()["run_id"].rpartition(":")[2]) in live
    replayed = await timed.client.write.post(path, headers=KEY)
    assert replayed.headers["idempotency-replayed"] == "true"
    assert replayed.json() == again.json()


@pytest.mark.parametrize(("path", "body"), CHOSEN)
async def test_what_was_there_before_is_not_taken_for_the_request_s_own(
    timed: Timed, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    await prepare(timed, path)
    assert (await timed.client.write.post(path, json=body)).status_code == 201
    await timed.clock.advance(timedelta(seconds=1))
    write = timed.store.documents.write

    async def die(writes: Any = (), *more: Any, **named: Any) -> list[Document]:
        done = await write(writes, *more, **named)
        if any(write.kind == KIND for write in writes):
            raise SystemError("the power is gone")  # it was begun, and no more
        return done

    monkeypatch.setattr(timed.store.documents, "write", die)
    assert (await timed.client.write.post(path, json=body, headers=KEY)).status_code == 500
    monkeypatch.undo()
    await timed.clock.advance(timedelta(seconds=61))
    again = await timed.client.write.post(path, json=body, headers=KEY)
    assert again.status_code in (409, 422)
    assert "is taken" in again.json()["detail"]


async def test_a_one_shot_that_is_over_when_the_request_comes_again(
    timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = BODY | {"type": "one_shot", "spec": "2026-03-02T12:00:30Z"}
    dying(timed, monkeypatch)
    assert (await timed.client.write.post(URL, json=body, headers=KEY)).status_code == 500
    monkeypatch.undo()
    (made,) = await listed(timed)
    await timed.clock.advance(timedelta(seconds=61))
    again = await timed.client.write.post(URL, json=body, headers=KEY)
    assert again.status_code == 201, again.text
    assert again.json()["schedule_id"] == made["schedule_id"]


async def test_as_many_as_go_together_are_created_or_none(timed: Timed) -> None:
    assert (await timed.client.write.post(URL, json=BODY | {"name": "taken"})).status_code == 201
    many = [BODY] * (MOST_AT_ONCE - 1) + [BODY | {"name": "taken"}]
    refused = await timed.client.write.post(BULK, json={"schedules": many}, headers=KEY)
    assert (refused.status_code, refused.json()["field"]) == (409, "name")
    assert [one["name"] for one in await listed(timed)] == ["taken"]


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

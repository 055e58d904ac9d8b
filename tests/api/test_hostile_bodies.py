"""Bodies that JSON allows, or a careless client sends, and no schedule can hold: refused, never a fault of ours."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import msgspec
import pytest
from fastapi.routing import APIRoute, iter_route_contexts
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.api import bodies
from noonbell.api.app import create_app
from noonbell.api.bodies import FEW_VALUES, MOST_VALUES
from noonbell.api.middleware import RequestMiddleware
from noonbell.api.models.schedules import ScheduleCreate
from tests.api.conftest import Client
from tests.effort import examples
from tests.patience import PATIENCE_SECONDS

START = '{"type": "cron", "spec": "0 9 * * *", "action": {"kind": "callback", "name": "report"}'
HTTP = '{"type": "cron", "spec": "0 9 * * *", "action": {"kind": "http", "url": "https://example.com/"'

BODIES: dict[str, str | bytes] = {
    "not a number": f'{START}, "payload": NaN}}',
    "endless": f'{START}, "payload": {{"a": [Infinity]}}}}',
    "beyond 64 bits in a field": f'{START}, "catch_up_cap": {10**30}}}',
    "half a character in a name": f'{START}, "name": "\\ud800"}}',
    "half a character in a tag": f'{START}, "tags": ["\\udfff"]}}',
    "half a character in a payload": f'{START}, "payload": {{"\\ud800": "\\ud800"}}}}',
    "half a character in an action": f'{HTTP}, "headers": {{"X": "\\ud800"}}}}}}',
    "half a character as a field": f'{START}, "\\ud800": 1}}',
    "a NUL in a name": f'{START}, "name": "a\\u0000b"}}',
    "a NUL in a time": f'{START}, "start_at": "2026-11-01T09:00\\u0000"}}',
    "a NUL in a zone": f'{START}, "timezone": "Europe/\\u0000Kyiv"}}',
    "a zone that is a path": f'{START}, "timezone": "../../etc/passwd"}}',
    "nested too deep": f'{START}, "payload": {"[" * 50_000}{"]" * 50_000}}}',
    "nested deep": f'{START}, "payload": {"[" * 900}{"]" * 900}}}',
    "a huge payload": f'{START}, "payload": "{"x" * 400_000}"}}',
    "a year that is none": f'{START}, "end_at": "9999-12-31T23:59:59-14:00"}}',
    "no object": '["x"]',
    "nothing": "",
    "cut off": START,
    "not UTF-8": b'{"type": "\xff"}',
    "an English text of one letter many times": '{"text": "' + "a" * 1_000 + '", "action": {"kind": "callback"}}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_it_is_refused(inside: Client, body: str | bytes) -> None:
    answer = await inside.write.post(
        "/api/v1/schedules", content=body, headers={"Content-Type": "application/json", "Idempotency-Key": "k"}
    )
    assert answer.status_code in (400, 413, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]
    assert (await inside.read.get("/api/v1/schedules")).json()["items"] == []


@pytest.mark.parametrize(
    "path", ["/api/v1/schedules/%00", "/api/v1/runs/%ff", "/api/v1/runs/a:manual:99999999999999999999"]
)
async def test_paths_that_name_nothing(inside: Client, path: str) -> None:
    assert (await inside.read.get(path)).status_code in (404, 422)


# --- before the body --------------------------------------------------------------------------------------------------


async def asked(app: Any, headers: dict[str, str], receive: Any) -> list[Any]:
    """The messages of an answer to a POST whose body comes from `receive`."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http", "method": "POST", "path": "/api/v1/preview", "raw_path": b"/api/v1/preview",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()], "query_string": b"",
        "client": ("10.0.0.1", 1), "server": ("service", 80), "scheme": "http", "root_path": "",
    }  # fmt: skip
    await app(scope, receive, send)
    return sent


@pytest.mark.parametrize("name", ["nested too deep", "not UTF-8", "cut off", "no object"])
async def test_without_a_key_nothing_is_told_about_it(inside: Client, name: str) -> None:
    answer = await inside.anonymous.post(
        "/api/v1/schedules", content=BODIES[name], headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 401, answer.text
    assert not {"value", "errors", "field"} & answer.json().keys()


@pytest.mark.parametrize("key", [{}, {"Authorization": "Bearer nbk_nobody"}], ids=["no key", "a wrong key"])
async def test_without_a_key_it_is_not_even_read(inside: Client, key: dict[str, str]) -> None:
    reads: list[None] = []

    async def receive() -> dict[str, Any]:
        reads.append(None)
        return {"type": "http.request", "body": b"[" * 50_000, "more_body": False}

    sent = await asked(create_app(inside.service), {"Content-Type": "application/json", **key}, receive)
    assert sent[0]["status"] == 401
    assert reads == []


async def test_a_body_that_does_not_come_ends_the_request(inside: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cast("dict[str, Any]", RequestMiddleware.__init__.__kwdefaults__), "body_seconds", 0.05)
    pieces = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> dict[str, Any]:
        if pieces:
            return pieces.pop()
        await asyncio.Event().wait()
        raise AssertionError

    key = {"Authorization": f"Bearer {inside.keys['default/read']}", "Content-Type": "application/json"}
    async with asyncio.timeout(PATIENCE_SECONDS):
        sent = await asked(create_app(inside.service), key, receive)
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]
    assert b"within 0.05 s" in sent[1]["body"]


# --- bodies that cost much --------------------------------------------------------------------------------------------

MANY: dict[str, Any] = {
    "keys": {f"k{number}": 1 for number in range(MOST_VALUES)},
    "numbers": {"text": [1] * (MOST_VALUES + 1)},
    "lists": {"text": [[]] * MOST_VALUES},
    "objects": {"text": [{}] * MOST_VALUES},
    "texts": {"text": [""] * (MOST_VALUES + 1)},
    "a payload": {"payload": [1] * (MOST_VALUES + 1)},
}


@pytest.mark.parametrize("body", MANY.values(), ids=MANY.keys())
async def test_too_many_values_are_refused_before_they_are_decoded(
    inside: Client, body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = json.dumps(body)
    decoded: list[str] = []
    monkeypatch.setattr(json, "loads", decoded.append)
    json_ = {"Content-Type": "application/json"}
    for path, most in (("/preview", FEW_VALUES), ("/schedules", MOST_VALUES)):
        answer = await inside.write.post(f"/api/v1{path}", content=written, headers=json_)
        assert answer.status_code == 413, answer.text
        assert f"{most} keys and values" in msgspec.json.decode(answer.content)["detail"]
    assert decoded == []


async def test_a_key_that_may_not_do_it_has_nothing_decoded(inside: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"schedules": []})
    decoded: list[str] = []
    monkeypatch.setattr(json, "loads", decoded.append)
    answer = await inside.read.post(
        "/api/v1/bulk/schedules", content=body, headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, decoded) == (403, [])
    assert b"scope-missing" in answer.content


@settings(max_examples=examples(200))
@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.text(alphabet='\\",:[]{}')),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='\\",:[]{}ab'), inner),
    )
)
def test_values_are_counted_as_they_are(value: Any) -> None:
    def keys_and_values(one: Any) -> int:
        if isinstance(one, dict):
            return 1 + sum(1 + keys_and_values(inner) for inner in one.values())
        return 1 + sum(map(keys_and_values, one)) if isinstance(one, list) else 1

    for ascii_only in (True, False):
        written = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
        # an empty list or object has a bracket, and no value inside
        assert keys_and_values(value) <= bodies.count_values(written) <= 2 * keys_and_values(value)


async def test_large_bodies_are_decoded_one_at_a_time(inside: Client) -> None:
    """And each in its turn, also after one that is refused."""
    large = {"text": "daily", "timezone": "x" * 40_000}
    wrong = '{"text": "' + "x" * 40_000
    json_ = {"Content-Type": "application/json"}
    answers = await asyncio.gather(
        *(inside.read.post("/api/v1/preview", json=large) for _ in range(5)),
        *(inside.read.post("/api/v1/preview", content=wrong, headers=json_) for _ in range(5)),
    )
    assert [answer.json()["field"] for answer in answers] == ["timezone"] * 5 + ["body"] * 5


async def test_the_first_unknown_field_is_enough(inside: Client) -> None:
    body = {"text": "daily", "count": 0, **{f"k{number}": 1 for number in range(1_000)}}
    told = (await inside.read.post("/api/v1/preview", json=body)).json()
    assert {one["field"] for one in told["errors"]} == {"count", "k0"}
    asked = await inside.read.get("/api/v1/schedules?" + "&".join(f"k{number}=" for number in range(500)))
    assert [one["field"] for one in asked.json()["errors"]] == ["k0"]


async def test_the_first_wrong_element_of_a_list_is_enough(inside: Client) -> None:
    action = {"kind": "callback", "name": "report"}
    right = {"type": "cron", "spec": "0 9 * * *", "action": action}
    wrong: dict[str, Any] = {"type": "sometimes", "action": action}
    answer = await inside.write.post("/api/v1/bulk/schedules", json={"schedules": [right, *[wrong] * 500]})
    assert [one["field"] for one in answer.json()["errors"]] == ["schedules.1.type"]
    rule = await inside.write.post("/api/v1/rules", json={"name": "r", "on": ["x"] * 500, "channels": ["ops"]})
    assert [one["field"] for one in rule.json()["errors"]] == ["on.0"]


async def test_twenty_errors_are_listed_and_the_others_counted(inside: Client) -> None:
    wrong = {**dict.fromkeys(ScheduleCreate.model_fields, -1.5), "payload": 1}
    told = (await inside.write.post("/api/v1/schedules", json=wrong)).json()
    assert len(told["errors"]) == 20
    assert told["more_errors"] >= 1


async def test_json_in_another_encoding_is_refused(inside: Client) -> None:
    answer = await inside.read.post(
        "/api/v1/preview", content='{"text": "daily"}'.encode("utf-16"), headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, answer.json()["detail"]) == (400, "body is not JSON: not UTF-8")


async def test_every_route_of_the_api_counts_its_body(inside: Client) -> None:
    routes = [one.original_route for one in iter_route_contexts(create_app(inside.service).routes)]
    found = [one for one in routes if isinstance(one, APIRoute) and one.body_field is not None]
    assert len(found) > 15
    assert [one.path for one in found if not isinstance(one, bodies.ApiRoute)] == []

"""Bodies that JSON allows, or a careless client sends, and no schedule can hold: refused, never a fault of ours."""

from __future__ import annotations

import pytest

from tests.api.conftest import Client

START = '{"type": "cron", "spec": "0 9 * * *", "action": {"kind": "callback", "name": "report"}'
HTTP = '{"type": "cron", "spec": "0 9 * * *", "action": {"kind": "http", "url": "https://example.com/"'

BODIES = {
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

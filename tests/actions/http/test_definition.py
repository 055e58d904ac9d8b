"""What may be written of an http action, and how what may not is refused."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell import Schedules
from noonbell.actions.http.definition import check_http
from noonbell.actions.http.json_path import NOTHING, look_up, parse_path, value_at
from noonbell.errors import ScheduleInvalidError
from noonbell.store.memory import MemoryStore
from tests.effort import examples

URL = "https://example.com/hook"


def test_what_has_its_default_is_left_out() -> None:
    checked = check_http(
        {
            "kind": "http", "url": URL, "headers": {}, "query": {}, "timeout": {"connect": 10, "total": 30},
            "expect_status": "200-299", "follow_redirects": False, "verify_tls": True, "body": None, "auth": None,
        }
    )  # fmt: skip
    assert checked == {"kind": "http", "method": "GET", "url": URL}


def test_what_is_stored_is_its_own_form() -> None:
    checked = check_http(
        {
            "kind": "http", "url": f" {URL} ", "method": "patch", "body": "x",
            "expect_status": (200, "301 - 302", "404"),
            "follow_redirects": True, "verify_tls": False, "timeout": {"total": 5}, "sign": False,
            "assert": {"json_path": "$.a", "exists": True}, "query": {"a": ["b", 1]},
        }
    )  # fmt: skip
    assert checked == {
        "kind": "http", "method": "PATCH", "url": URL, "body": {"text": "x"}, "expect_status": [200, "301-302", 404],
        "follow_redirects": 5, "verify_tls": False, "timeout": {"total": 5}, "sign": False,
        "assert": {"json_path": "$.a"}, "query": {"a": ["b", 1]},
    }  # fmt: skip
    assert check_http(checked) == checked


@pytest.mark.parametrize(
    ("written", "field"),
    [
        ({"url": None}, "action.url"),
        ({"url": "ftp://example.com"}, "action.url"),
        ({"url": "http://127.1/"}, "action.url"),
        ({"url": "https://${secrets.HOST}/"}, "action.url"),
        ({"url": "https://example.com/${oops}"}, "action.url"),
        ({"url": "https://example.com/\nx"}, "action.url"),
        ({"method": "CONNECT"}, "action.method"),
        ({"method": "HEAD", "body": "x"}, "action.body"),
        ({"headers": {"X-A": "a\r\nX-B: b"}}, "action.headers.X-A"),
        ({"headers": {"X A": "a"}}, "action.headers.X A"),
        ({"headers": {"X-A": 1}}, "action.headers.X-A"),
        ({"headers": {"host": "x"}}, "action.headers.host"),
        ({"headers": {"Webhook-Id": "x"}}, "action.headers.Webhook-Id"),
        ({"headers": {"noonbell-attempt": "x"}}, "action.headers.noonbell-attempt"),
        ({"headers": {"X-A": "a", "x-a": "b"}}, "action.headers.x-a"),
        ({"headers": {"X-A": "${secrets.1}"}}, "action.headers.X-A"),
        ({"headers": ["X-A"]}, "action.headers"),
        ({"query": {"a": None}}, "action.query.a"),
        ({"query": {"a": "${"}}, "action.query.a"),
        ({"body": {"xml": "x"}}, "action.body"),
        ({"body": {"text": "x", "json": 1}}, "action.body"),
        ({"body": {"text": 1}}, "action.body.text"),
        ({"body": {"json": {"a": object()}}}, "action.body.json"),
        ({"body": {"json": {"a": ["${x}"]}}}, "action.body.json.a[0]"),
        ({"body": {"json": "x" * 1_000_001}}, "action.body.json"),
        ({"body": {"form": {"a": {}}}}, "action.body.form.a"),
        ({"timeout": 5}, "action.timeout"),
        ({"timeout": {"total": 0}}, "action.timeout.total"),
        ({"timeout": {"read": 1}}, "action.timeout.read"),
        ({"expect_status": 99}, "action.expect_status"),
        ({"expect_status": "299-200"}, "action.expect_status"),
        ({"expect_status": []}, "action.expect_status"),
        ({"expect_status": True}, "action.expect_status"),
        ({"assert": {}}, "action.assert"),
        ({"assert": {"contains": ""}}, "action.assert.contains"),
        ({"assert": {"contains": "a", "equals": 1}}, "action.assert.equals"),
        ({"assert": {"json_path": "a.b"}}, "action.assert.json_path"),
        ({"assert": {"json_path": "$..b"}}, "action.assert.json_path"),
        ({"assert": {"json_path": "$[?(@.x)]"}}, "action.assert.json_path"),
        ({"assert": {"json_path": "$.a", "exists": False, "equals": 1}}, "action.assert.equals"),
        ({"assert": {"json_path": "$.a", "matches": "x"}}, "action.assert.matches"),
        ({"follow_redirects": 6}, "action.follow_redirects"),
        ({"verify_tls": "no"}, "action.verify_tls"),
        ({"sign": 1}, "action.sign"),
        ({"auth": {"basic": {"user": "me"}}}, "action.auth.basic"),
        ({"auth": {"basic": {"user": "m:e", "password": "x"}}}, "action.auth.basic.user"),
        ({"auth": {"bearer": "a\nb"}}, "action.auth.bearer"),
        ({"auth": {"digest": {}}}, "action.auth"),
        ({"auth": {"bearer": "x"}, "headers": {"authorization": "y"}}, "action.auth"),
        ({"auth": {"bearer": "x"}, "url": "https://me:pw@example.com/"}, "action.auth"),
        ({"retries": 3}, "action.retries"),
    ],
)
def test_what_is_wrong_is_named(written: dict[str, Any], field: str) -> None:
    with pytest.raises(ScheduleInvalidError) as refused:
        check_http({"kind": "http", "url": URL, **written})
    assert refused.value.field == field


def test_credentials_are_not_repeated() -> None:
    for auth in ({"bearer": "hunter22\n"}, {"basic": {"user": "a:b", "password": "hunter22"}}, {"bare": "hunter22"}):
        with pytest.raises(ScheduleInvalidError) as refused:
            check_http({"kind": "http", "url": URL, "auth": auth})
        assert "hunter22" not in str(refused.value)


async def test_a_schedule_refuses_what_an_http_action_cannot_use() -> None:
    async with Schedules(MemoryStore()) as schedules:
        action = {"kind": "http", "url": URL}
        with pytest.raises(ScheduleInvalidError) as refused:
            await schedules.create(type="cron", spec="* * * * *", action=action, payload={"a": 1})
        assert refused.value.field == "payload"
        with pytest.raises(ScheduleInvalidError) as refused:
            await schedules.create(type="cron", spec="* * * * *", action=action, retry={"attempts": None})
        assert refused.value.field == "retry.attempts"
        made = await schedules.create(type="cron", spec="* * * * *", action=action, retry={"attempts": 20})
        assert made.action == {"kind": "http", "method": "GET", "url": URL}
        with pytest.raises(ScheduleInvalidError):
            await schedules.update(made.schedule_id, retry={"attempts": 21})


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$", {"a": {"b": [1, None]}, "c d": 2}),
        ("$.a.b[0]", 1),
        ("$.a.b[-1]", None),
        ('$["c d"]', 2),
        ('$["a"].b', [1, None]),
        ("$.a.b[2]", NOTHING),
        ("$.a.b[-3]", NOTHING),
        ("$.a.b.c", NOTHING),
        ("$.x", NOTHING),
        ("$.a[0]", NOTHING),
    ],
)
def test_paths_lead_to_one_value_or_none(path: str, found: Any) -> None:
    whole = {"a": {"b": [1, None]}, "c d": 2}
    assert look_up(whole, parse_path(path)) == found
    assert value_at(msgspec.json.encode(whole), parse_path(path)) == found


KEYS = ["a", "b", "", "a key", "ä", "wanted", "passed_0"]
STEPS = st.sampled_from(KEYS) | st.integers(-3, 4) | st.just(120)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(150), deadline=None)
@given(VALUES, st.lists(STEPS, max_size=4))
def test_a_text_is_read_only_where_the_path_leads_and_with_the_same_end(value: Any, steps: list[str | int]) -> None:
    text = msgspec.json.encode(value)
    assert value_at(text, tuple(steps)) == look_up(value, tuple(steps))


@pytest.mark.parametrize("text", [b"", b"{", b'{"a": 1} x', b'{"a": 1, "b": tru}', b"[" * 100_000, b'{"a": 1}]'])
def test_what_is_no_json_is_told_wherever_the_fault_lies(text: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        value_at(text, ("a",))


def test_what_the_path_does_not_lead_to_takes_no_memory() -> None:
    text = b'{"junk": [' + b"[]," * 300_000 + b'[]], "state": {"name": "ready"}}'
    tracemalloc.start()
    try:
        assert value_at(text, ("state", "name")) == "ready"
        assert value_at(text, ("junk", 3)) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(text)


@pytest.mark.parametrize("path", ["", "a", "$.", "$a", "$[x]", '$["a]', "$.a b", "$[1", "$.*", "$" + ".a" * 300])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"must|cannot"):
        parse_path(path)


@pytest.mark.parametrize("url", ["not-a-url", "example.com/hook", "/hook"])
def test_what_is_no_url_is_named_and_called_none(url: str) -> None:
    with pytest.raises(ScheduleInvalidError) as caught:
        check_http({"kind": "http", "url": url})
    assert (caught.value.field, caught.value.value) == ("action.url", url)
    assert "must be a URL such as https://example.com/hook" in str(caught.value)
    assert "egress" not in str(caught.value)

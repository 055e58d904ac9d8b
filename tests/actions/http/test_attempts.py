"""Attempts against real servers: what goes out, what comes back, what is kept of it."""

from __future__ import annotations

import asyncio
import base64
import gzip
import socket
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from noonbell.actions.egress import Egress, EgressPolicy
from noonbell.actions.http.http_jobs import HttpJobs
from noonbell.engine import SystemClock
from tests.actions.conftest import MIDNIGHT
from tests.actions.egress import servers
from tests.actions.http.site import Handler, Site, answering, attempt, egress_to, in_turn, jobs_to, serving


async def one(handle: Handler, **action: Any) -> tuple[dict[str, Any], Site]:
    """One attempt at a site that behaves so."""
    async with serving(handle) as site:
        jobs = jobs_to(site)
        path = action.pop("path", "/")
        told = await attempt(jobs, {"kind": "http", "url": site.url(path), **action})
        await jobs.close()
        return told, site


# --- what goes out ----------------------------------------------------------------------------------------------------


async def test_an_attempt_is_recorded_whole() -> None:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(text="done", headers={"X-Came": "back"})

    told, site = await one(
        handle,
        path="/a?b=1",
        query={"c": [2, "drei und mehr"], "d": True},
        headers={"X-One": "1"},
        body={"json": {"full": True, "name": "ä"}},
    )
    (asked,) = site.asked
    assert (asked.method, asked.path) == ("POST", "/a?b=1&c=2&c=drei+und+mehr&d=true")
    assert asked.body == '{"full":true,"name":"ä"}'.encode()
    sent = {name.lower(): value for name, value in asked.headers.items()}
    assert sent["content-type"] == "application/json"
    assert sent["user-agent"] == "Noonbell"
    assert sent["idempotency-key"] == sent["webhook-id"] == f"abc:scheduled:{MIDNIGHT}"
    assert sent["noonbell-scheduled-for"] == "2024-01-01T00:00:00Z"
    assert sent["noonbell-attempt"] == "1"
    assert "webhook-signature" not in sent
    request = told["request"]
    assert (request["method"], request["url"]) == ("POST", site.url("/a?b=1&c=2&c=drei+und+mehr&d=true"))
    assert request["body"] == '{"full":true,"name":"ä"}'
    assert ["X-One", "1"] in request["headers"]
    assert ["Noonbell-Attempt", "1"] in request["headers"]
    response = told["response"]
    assert (response["status"], response["body"], response["cut"], response["bytes"]) == (200, "done", False, 4)
    assert ["X-Came", "back"] in response["headers"]
    assert (told["kind"], told["error"], told["attempt"], told["triggered_by"]) == ("http", None, 1, "schedule")
    assert told["duration_ms"] > 0
    assert told["raised"] is None


@pytest.mark.parametrize(
    "action",
    [
        {"method": "GET"},
        {"method": "POST"},
        {"method": "POST", "body": {"json": {"a": 1}}},
        {"method": "PUT", "body": "x", "headers": {"accept": "text/plain", "Accept-Encoding": "identity"}},
        {"method": "DELETE"},
    ],
    ids=["get", "post without a body", "post", "put with headers of its own", "delete"],
)
async def test_the_headers_that_are_kept_are_those_that_were_sent(action: dict[str, Any]) -> None:
    told, site = await one(answering(), **action)
    (asked,) = site.asked
    kept = [(name.lower(), value) for name, value in told["request"]["headers"]]
    assert kept == [(name.lower(), value) for name, value in asked.headers.items()]
    assert {"host", "accept", "accept-encoding"} <= {name for name, _ in kept}


async def test_durations_have_fractions_of_a_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    """On uvloop's loop, too: its time is whole milliseconds."""
    loop = asyncio.get_running_loop()
    exact = loop.time
    monkeypatch.setattr(loop, "time", lambda: round(exact(), 3), raising=False)
    found = [(await one(answering()))[0]["duration_ms"] for _ in range(5)]
    assert any(duration != int(duration) for duration in found), found


async def test_bodies_have_their_types() -> None:
    form, site = await one(answering(), body={"form": {"a b": "c&d", "e": [1, 2]}})
    assert site.asked[0].body == b"a+b=c%26d&e=1&e=2"
    assert ["Content-Type", "application/x-www-form-urlencoded"] in form["request"]["headers"]
    text, site = await one(answering(), body="plain", headers={"content-type": "text/x-own"}, method="put")
    assert (site.asked[0].method, site.asked[0].body) == ("PUT", b"plain")
    assert [value for name, value in text["request"]["headers"] if name.lower() == "content-type"] == ["text/x-own"]


@pytest.mark.parametrize(
    ("auth", "sent", "kept"),
    [
        ({"basic": {"user": "me", "password": "p:w"}}, "Basic " + base64.b64encode(b"me:p:w").decode(), "Basic ***"),
        ({"bearer": "open"}, "Bearer open", "Bearer ***"),
    ],
)
async def test_what_one_is_known_by_is_not_kept(auth: dict[str, Any], sent: str, kept: str) -> None:
    told, site = await one(answering(), auth=auth)
    assert site.asked[0].headers["Authorization"] == sent
    assert ["Authorization", kept] in told["request"]["headers"]
    assert sent not in str(told)


async def test_the_user_of_a_url_is_not_kept() -> None:
    async with serving(answering()) as site:
        jobs = jobs_to(site)
        told = await attempt(jobs, {"kind": "http", "url": f"http://me:pass-word@127.0.0.1:{site.port}/x"})
        await jobs.close()
    assert site.asked[0].headers["Authorization"].startswith("Basic ")
    assert told["request"]["url"] == site.url("/x")
    assert "pass-word" not in str(told)


async def test_no_credential_of_an_exchange_is_kept() -> None:
    """Neither those of the request nor those of the answers on the way, whatever header or parameter they are in."""
    names = ("X-Api-Key", "Cookie", "X-Auth-Token", "Private-Token")

    async def elsewhere(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/there?page=1&token=pass-word"})

    async def handle(_: web.Request) -> web.Response:
        return web.Response(text="there", headers={"Set-Cookie": "a=pass-word", "WWW-Authenticate": "Bearer realm=x"})

    wanted: dict[str, Any] = {
        "path": "/x?page=2&api_key=pass-word", "query": {"sig": "pass-word"},
        "headers": {"Idempotent": "yes", **dict.fromkeys(names, "pass-word")},
    }  # fmt: skip
    told, site = await one(in_turn(elsewhere, handle), follow_redirects=True, **wanted)
    assert [asked.headers["X-Api-Key"] for asked in site.asked] == ["pass-word", "pass-word"]
    assert "api_key=pass-word&sig=pass-word" in site.asked[0].path
    assert "pass-word" not in str(told)
    assert told["request"]["url"] == site.url("/x?page=2&api_key=***&sig=***")
    assert all([name, "***"] in told["request"]["headers"] for name in names)
    assert ["Idempotent", "yes"] in told["request"]["headers"]
    assert told["response"]["url"] == site.url("/there?page=1&token=***")
    assert ["Set-Cookie", "***"] in told["response"]["headers"]
    assert ["WWW-Authenticate", "Bearer realm=x"] in told["response"]["headers"]
    told, _ = await one(elsewhere, **wanted)
    assert ["Location", "/there?page=1&token=***"] in told["response"]["headers"]


async def test_the_url_of_a_request_that_was_not_sent_is_kept_without_credentials() -> None:
    jobs = HttpJobs(SystemClock())
    url = "https://me:pass-word@example.org/?key=pass-word&token=${secrets.T}&a=1"
    told = await attempt(jobs, {"kind": "http", "url": url})
    assert told["error"]["kind"] == "secret"
    assert told["request"]["url"] == "https://me:***@example.org/?key=***&token=${secrets.T}&a=1"
    assert "pass-word" not in str(told)


async def test_who_asked_is_told() -> None:
    async with serving(answering()) as site:
        jobs = jobs_to(site)
        action = {"kind": "http", "url": site.url()}
        assert (await attempt(jobs, action, kind="manual"))["triggered_by"] == "manual"
        again = await attempt(jobs, action, attempt=3)
        assert (again["triggered_by"], again["attempt"]) == ("schedule", 3)
        assert [asked.headers["Noonbell-Attempt"] for asked in site.asked] == ["1", "3"]
        await jobs.close()


# --- what comes back --------------------------------------------------------------------------------------------------


async def test_a_status_that_is_not_expected_is_a_failure() -> None:
    told, _ = await one(answering("no", 500))
    assert told["error"] == {"kind": "status", "message": "it answered 500, and 200-299 was expected"}
    assert (told["response"]["status"], told["response"]["body"]) == (500, "no")
    assert (told["raised"].kind, told["raised"].retry_after_us) == ("status", None)
    assert str(told["raised"]) == "status: it answered 500, and 200-299 was expected"


async def test_other_statuses_may_be_expected() -> None:
    assert (await one(answering("gone", 410), expect_status=[404, "410-411"]))[0]["error"] is None
    told, _ = await one(answering("fine", 200), expect_status=204)
    assert told["error"]["message"] == "it answered 200, and 204 was expected"


@pytest.mark.parametrize(
    ("assertion", "reason"),
    [
        ({"contains": "ready"}, None),
        ({"contains": "steady"}, "its body does not contain 'steady'"),
        ({"json_path": "$.state", "equals": "ready"}, None),
        ({"json_path": "$.items[-1].n"}, None),
        ({"json_path": "$.items[0].n", "equals": 1}, None),
        ({"json_path": "$.items[0].n", "equals": True}, "its body has 1 at $.items[0].n, and true was expected"),
        ({"json_path": "$.items[2]"}, "its body has nothing at $.items[2]"),
        ({"json_path": "$.error", "exists": False}, None),
        ({"json_path": "$.state", "exists": False}, "its body has something at $.state, and nothing was expected"),
        ({"contains": "ready", "json_path": "$.state", "equals": "x"}, 'its body has "ready" at $.state'),
    ],
)
async def test_assertions(assertion: dict[str, Any], reason: str | None) -> None:
    told, _ = await one(answering('{"state": "ready", "items": [{"n": 1}, {"n": 2}]}'), **{"assert": assertion})
    if reason is None:
        assert told["error"] is None
    else:
        assert told["error"]["kind"] == "assertion"
        assert told["error"]["message"].startswith(reason)


async def test_a_body_that_is_no_json_fails_its_assertion() -> None:
    told, _ = await one(answering("<p>hello"), **{"assert": {"json_path": "$.a"}})
    assert told["error"] == {"kind": "assertion", "message": "its body is not JSON"}


async def test_a_long_body_is_cut_and_marked() -> None:
    text = "ä" * 700_000  # two bytes each, so that the limit falls in the middle of no sign but near the end of one
    told, _ = await one(answering("x" + text), **{"assert": {"contains": "never there"}})
    response = told["response"]
    assert (response["cut"], response["bytes"]) == (True, 1_048_576)
    assert response["body"] == "x" + "ä" * ((1_048_576 - 1) // 2)
    assert told["error"]["message"].endswith("as far as it was read")


async def test_bytes_that_are_no_text_are_kept_in_base64() -> None:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=b"\xff\x00\xfe")

    told, _ = await one(handle)
    assert told["response"]["body"] == {"base64": base64.b64encode(b"\xff\x00\xfe").decode()}


async def test_a_packed_body_is_unpacked() -> None:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=gzip.compress(b"small"), headers={"Content-Encoding": "gzip"})

    assert (await one(handle))[0]["response"]["body"] == "small"


async def test_redirects_are_followed_only_where_asked_for() -> None:
    async def elsewhere(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/there"})

    told, site = await one(in_turn(elsewhere, answering("there")))
    assert (told["error"]["kind"], told["response"]["status"], len(site.asked)) == ("status", 302, 1)
    told, site = await one(in_turn(elsewhere, answering("there")), follow_redirects=True)
    assert told["error"] is None
    assert (told["response"]["url"], told["response"]["redirects"]) == (site.url("/there"), 1)
    told, site = await one(elsewhere, follow_redirects=2)
    assert (told["error"]["kind"], len(site.asked)) == ("redirect", 3)


# --- what goes wrong --------------------------------------------------------------------------------------------------


async def test_an_answer_that_never_comes_is_given_up() -> None:
    never = asyncio.Event()

    async def handle(_: web.Request) -> web.Response:
        await never.wait()
        return web.Response()

    told, _ = await one(handle, timeout={"total": 0.2})
    assert told["error"]["kind"] == "timeout"
    assert told["response"] is None


async def test_a_body_without_end_is_cut() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"more and more " * 1000)

    told, _ = await one(handle)
    assert (told["error"], told["response"]["cut"]) == (None, True)


async def test_a_broken_answer_is_told_as_such() -> None:
    async with servers.serving(servers.answering(b"this is no HTTP\r\n\r\n")) as server:
        jobs = HttpJobs(SystemClock(), egress=Egress(EgressPolicy(allow=(f"127.0.0.1:{server.port}",))))
        told = await attempt(jobs, {"kind": "http", "url": server.url()})
        await jobs.close()
    assert told["error"]["kind"] == "protocol"


async def test_nobody_there_is_told_as_such() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    jobs = jobs_to(Site(port))
    told = await attempt(jobs, {"kind": "http", "url": f"http://127.0.0.1:{port}/"})
    await jobs.close()
    assert (told["error"]["kind"], told["response"]) == ("refused", None)
    assert told["request"]["url"] == f"http://127.0.0.1:{port}/"


async def test_a_wrong_certificate_is_refused_unless_it_is_not_looked_at(tmp_path: Path) -> None:
    shown = servers.certificate_for("localhost", tmp_path)
    async with servers.serving(servers.answering(servers.GOOD), tls=shown.server) as server:
        jobs = HttpJobs(SystemClock(), egress=Egress(EgressPolicy(allow=(f"127.0.0.1:{server.port}",))))
        url = f"https://127.0.0.1:{server.port}/"
        told = await attempt(jobs, {"kind": "http", "url": url})
        assert told["error"]["kind"] == "tls"
        assert server.asked == []
        told = await attempt(jobs, {"kind": "http", "url": url, "verify_tls": False})
        assert told["response"]["body"] == "good"
        await jobs.close()


async def test_what_is_not_allowed_is_not_reached() -> None:
    async with serving(answering()) as site:
        jobs = HttpJobs(SystemClock())
        told = await attempt(jobs, {"kind": "http", "url": site.url()})
        assert (told["error"]["kind"], site.asked) == ("refused-by-egress", [])
        await jobs.close()
        jobs = HttpJobs(SystemClock(), egress=egress_to(site, allow_http=False))
        assert (await attempt(jobs, {"kind": "http", "url": site.url()}))["error"]["kind"] == "refused-by-egress"
        assert site.asked == []
        await jobs.close()


@pytest.mark.parametrize(
    ("status", "value", "least", "most"),
    [
        (429, "7", 7_000_000, 7_000_000),
        (503, "Wed, 01 Jan 2999 00:00:00 GMT", 10**15, 10**18),
        (503, "Wed, 01 Jan 1999 00:00:00 GMT", None, None),
        (503, "soon", None, None),
        (500, "7", None, None),
    ],
)
async def test_when_to_come_back_is_taken_from_the_answer(
    status: int, value: str, least: int | None, most: int | None
) -> None:
    told, _ = await one(answering("later", status, {"Retry-After": value}))
    asked = told["raised"].retry_after_us
    assert asked is None if least is None or most is None else least <= asked <= most

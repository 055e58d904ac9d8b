"""Targets: functions and threads, an HTTP server on loopback, and what all targets share."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web

from noonbell.actions.egress import Egress, EgressPolicy
from noonbell.actions.message import message_of
from noonbell.actions.targets import Function, HttpEndpoint, RedisStream, as_target, masked
from noonbell.actions.targets.target import cleaned
from noonbell.errors import DeliveryError, ScheduleInvalidError
from tests.actions.conftest import start_at, stored_with

BODY = message_of(stored_with({"kind": "message", "to": "x"}, {"text": "Grüße"}), start_at(), 5).body
EVENT = msgspec.json.decode(BODY)


# --- functions --------------------------------------------------------------------------------------------------------


async def test_an_async_function_is_given_the_event_on_the_loop() -> None:
    got: list[tuple[Any, threading.Thread]] = []

    async def handle(event: dict[str, Any]) -> None:
        got.append((event, threading.current_thread()))

    await as_target("t", handle).deliver(BODY)
    assert got == [(EVENT, threading.current_thread())]


async def test_a_plain_function_is_given_the_event_in_a_thread() -> None:
    got: list[Any] = []

    def handle(event: dict[str, Any]) -> None:
        assert threading.current_thread() is not threading.main_thread()
        assert threading.current_thread().daemon
        got.append(event)

    await as_target("t", handle).deliver(BODY)
    assert got == [EVENT]


async def test_an_object_with_an_async_call_is_a_function() -> None:
    class Handler:
        async def __call__(self, event: dict[str, Any]) -> None:
            raise ValueError(event["id"])

    with pytest.raises(ValueError, match="abc:scheduled"):
        await as_target("t", Handler()).deliver(BODY)


@pytest.mark.parametrize("error", [ValueError("no"), StopIteration("no"), SystemExit("no"), KeyboardInterrupt("no")])
async def test_whatever_a_plain_function_raises_is_a_failure(error: BaseException) -> None:
    def handle(event: dict[str, Any]) -> None:
        raise error

    with pytest.raises((ValueError, DeliveryError), match="no"):
        await as_target("t", handle).deliver(BODY)


@pytest.mark.parametrize("error", [SystemExit("no"), KeyboardInterrupt("no"), BaseExceptionGroup("no", [SystemExit()])])
async def test_whatever_a_coroutine_function_raises_is_a_failure(error: BaseException) -> None:
    async def handle(event: dict[str, Any]) -> None:
        raise error

    with pytest.raises(DeliveryError, match="no"):
        await as_target("t", handle).deliver(BODY)


async def test_a_coroutine_that_nobody_would_await_is_a_failure() -> None:
    async def handle(event: dict[str, Any]) -> None:
        raise AssertionError("it was called")

    with pytest.raises(TypeError, match="register an async def"):
        await as_target("t", lambda event: handle({**event})).deliver(BODY)


def test_what_is_no_target_is_refused() -> None:
    with pytest.raises(ScheduleInvalidError) as refused:
        as_target("orders", "redis://here")
    assert refused.value.field == "targets.orders"


def test_a_target_stays_what_it_is() -> None:
    stream = RedisStream("redis://here", "k")
    assert as_target("t", stream) is stream
    assert repr(as_target("t", test_what_is_no_target_is_refused)) == "Function(test_what_is_no_target_is_refused)"
    assert isinstance(as_target("t", print), Function)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://me:secret@host:6379/0?password=secret", "redis://***@host:6379/0?***"),
        ("https://host/path#secret", "https://host/path"),
        ("http://[::1", "(an address that cannot be read)"),
        ("https://a:se@cret@host/x", "https://***@host/x"),
        ("redis://:sec/ret@host/0", "redis://…"),
    ],
)
def test_addresses_are_shown_without_their_secrets(url: str, shown: str) -> None:
    assert masked(url) == shown


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("no redis://me:s%2Fcret@host/0 here", "no redis://***@host/0 here"),
        ("the password s%2Fcret, that is s/cret", "the password ***, that is ***"),
        ("nothing of it", "nothing of it"),
    ],
)
def test_what_a_client_says_is_told_without_the_password(said: str, left: str) -> None:
    assert cleaned(said, "redis://me:s%2Fcret@host/0") == left


# --- HTTP -------------------------------------------------------------------------------------------------------------


class Endpoint:
    """An HTTP server that keeps what it gets and answers as it is told."""

    def __init__(self) -> None:
        self.status = 204
        self.said = ""
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.waits: asyncio.Event | None = None
        self.url = ""
        self.egress = Egress()

    async def handle(self, request: web.Request) -> web.Response:
        self.got.append((request.path_qs, dict(request.headers), await request.read()))
        if self.waits is not None:
            await self.waits.wait()
        return web.Response(status=self.status, text=self.said, headers={"Location": "/elsewhere"})


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    made = Endpoint()
    app = web.Application()
    app.router.add_post("/{tail:.*}", made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    made.url = f"http://{host}:{port}/hook?token=s3cret"
    made.egress = Egress(EgressPolicy(allow=(f"{host}:{port}",)))
    yield made
    if made.waits is not None:
        made.waits.set()
    await runner.cleanup()


async def test_an_event_is_posted_in_structured_mode(endpoint: Endpoint) -> None:
    target = HttpEndpoint(endpoint.url, headers={"X-Key": "k"}, egress=endpoint.egress)
    await target.deliver(BODY)
    await target.close()
    await target.deliver(BODY)  # opened again
    await target.close()
    (path, headers, body), _ = endpoint.got
    assert path == "/hook?token=s3cret"
    assert headers["Content-Type"] == "application/cloudevents+json; charset=utf-8"
    assert headers["X-Key"] == "k"
    assert body.decode() == BODY


@pytest.mark.parametrize("status", [302, 400, 404, 500, 503])
async def test_any_answer_but_2xx_is_a_failure_without_secrets(endpoint: Endpoint, status: int) -> None:
    endpoint.status, endpoint.said = status, "sorry " + "x" * 10_000
    target = HttpEndpoint(endpoint.url, headers={"Authorization": "Bearer t0ken"}, egress=endpoint.egress)
    with pytest.raises(DeliveryError, match=f"it answered {status}: sorry x+$") as failed:
        await target.deliver(BODY)
    await target.close()
    assert len(endpoint.got) == 1  # no redirect was followed
    assert len(str(failed.value)) < 400
    assert "s3cret" not in str(failed.value) + repr(target)
    assert "t0ken" not in str(failed.value) + repr(target)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("no such key: t0ken-of-ours, sorry", "no such key: ***, sorry"),
        ("Authorization: Bearer t0ken-of-ours", "Authorization: ***"),
        ('{"cookies": {"session": "c00kie-of-ours"}}', '{"cookies": {"***": "***"}}'),
        ("POST /hook?token=s3cret is forbidden", "POST /hook?*** is forbidden"),
        ("the token s3cret is forbidden", "the token *** is forbidden"),
        ("ann:pa55word may not", "*** may not"),
        (f"who is {base64.b64encode(b'xx:pa55word').decode()}?", "who is eHg6***?"),
        ("x" * 190 + "t0ken-of-ours", "x" * 190 + "***"),
        ("the key k is short", "the key k is short"),
    ],
)
async def test_what_an_answer_repeats_of_the_request_is_masked(endpoint: Endpoint, said: str, told: str) -> None:
    endpoint.status, endpoint.said = 400, said
    basic = base64.b64encode(b"ann:pa55word").decode()
    headers = {
        "Authorization": "Bearer t0ken-of-ours",
        "Cookie": "session=c00kie-of-ours; theme=dark",
        "X-Inner": f"Basic {basic}",
        "X-Key": "k",
    }
    target = HttpEndpoint(endpoint.url, headers=headers, egress=endpoint.egress)
    with pytest.raises(DeliveryError) as failed:
        await target.deliver(BODY)
    await target.close()
    assert failed.value.reason == f"it answered 400: {told}"


async def test_a_password_in_the_address_is_masked_too(endpoint: Endpoint) -> None:
    endpoint.status, endpoint.said = 401, "ann cannot log in with pa55/word"
    target = HttpEndpoint(endpoint.url.replace("://", "://ann:pa55%2Fword@"), egress=endpoint.egress)
    with pytest.raises(DeliveryError) as failed:
        await target.deliver(BODY)
    await target.close()
    assert failed.value.reason == "it answered 401: ann cannot log in with ***"


async def test_an_answer_that_does_not_come_is_a_failure(endpoint: Endpoint) -> None:
    endpoint.waits = asyncio.Event()
    target = HttpEndpoint(endpoint.url, timeout=0.2, egress=endpoint.egress)
    with pytest.raises(DeliveryError) as failed:
        await target.deliver(BODY)
    await target.close()
    assert "s3cret" not in str(failed.value)


async def test_a_private_address_is_refused_unless_it_is_allowed(endpoint: Endpoint) -> None:
    target = HttpEndpoint(endpoint.url)
    with pytest.raises(DeliveryError) as failed:
        await target.deliver(BODY)
    await target.close()
    assert endpoint.got == []
    assert "s3cret" not in str(failed.value)


async def test_nobody_there_is_a_failure(endpoint: Endpoint) -> None:
    nobody = HttpEndpoint("http://127.0.0.1:1/x?y=s3cret", egress=Egress(EgressPolicy(allow=("127.0.0.1:1",))))
    with pytest.raises(DeliveryError) as failed:
        await nobody.deliver(BODY)
    await nobody.close()
    assert "s3cret" not in str(failed.value)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), True, "5"])
def test_a_timeout_must_be_one(timeout: Any) -> None:
    with pytest.raises(ScheduleInvalidError) as refused:
        HttpEndpoint("https://example.com", timeout=timeout)
    assert refused.value.field == "timeout"


@pytest.mark.parametrize("headers", [{"X-Key": 5}, {5: "x"}, {"Schlüssel": "x"}])
def test_headers_must_be_texts(headers: Any) -> None:
    with pytest.raises(ScheduleInvalidError) as refused:
        HttpEndpoint("https://example.com", headers=headers)
    assert refused.value.field == "headers"

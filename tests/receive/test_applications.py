"""The guard for ASGI and the dependency for FastAPI, spoken to over HTTP.

Annotations are evaluated here: FastAPI could not find a receiver that is local to a fixture by its name.
"""

import json
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, HTTPException
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from noonbell.receive import Received, Receiver
from noonbell.receive.asgi import Message, Receive, Scope, Send
from noonbell.receive.fastapi import received
from tests.receive.messages import KEY, NOW, signed
from tests.test_public_names import modules_loaded_by, third_party

BODY = '{"n": 1}'


class Plain:
    """A plain ASGI application that counts what reaches it and answers as it is told to."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes]] = []
        self.status = 200
        self.error: Exception | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            assert (await receive())["type"] == "lifespan.startup"
            await send({"type": "lifespan.startup.complete"})
            assert (await receive())["type"] == "lifespan.shutdown"
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = (await receive())["body"]
        message: Received = scope["noonbell.received"]
        assert message.body == body
        self.seen.append((message.message_id, body))
        if self.error is not None:
            raise self.error
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})


@pytest.fixture
def plain() -> Plain:
    return Plain()


@pytest.fixture
def client(plain: Plain) -> Iterator[TestClient]:
    guarded = Receiver(KEY, clock=lambda: NOW, longest_body=1000).guard(plain)
    with TestClient(guarded, raise_server_exceptions=False) as client:
        yield client


def test_each_message_reaches_the_application_once(plain: Plain, client: TestClient) -> None:
    first = client.post("/", content=BODY, headers=signed())
    assert (first.status_code, first.text) == (200, "done")
    again = client.post("/", content=BODY, headers=signed())
    assert (again.status_code, again.headers["noonbell-repeated"]) == (200, "true")
    assert again.json() == {"detail": "this message has been handled"}
    other = client.post("/", content=BODY, headers=signed(message_id="other"))
    assert other.text == "done"
    assert plain.seen == [("job:scheduled:1", BODY.encode()), ("other", BODY.encode())]


def test_a_failure_is_no_handling(plain: Plain, client: TestClient) -> None:
    plain.status = 500
    assert client.post("/", content=BODY, headers=signed()).status_code == 500
    plain.error = RuntimeError("boom")
    assert client.post("/", content=BODY, headers=signed()).status_code == 500
    plain.status, plain.error = 204, None
    assert client.post("/", content=BODY, headers=signed()).status_code == 204
    assert client.post("/", content=BODY, headers=signed()).headers["noonbell-repeated"] == "true"
    assert len(plain.seen) == 3


def test_what_is_not_let_through(plain: Plain, client: TestClient) -> None:
    cases: list[tuple[dict[str, str], str, int, str]] = [
        ({}, BODY, 400, "webhook-id is missing"),
        (signed(), BODY + " ", 401, "no signature matches"),
        (signed(at=NOW - 1000), BODY, 401, "1000 s ago"),
        (signed("x" * 1001), "x" * 1001, 413, "more than 1000 bytes"),
    ]
    for headers, body, status, reason in cases:
        answer = client.post("/", content=body, headers=headers)
        assert answer.status_code == status
        assert reason in answer.json()["detail"]
    assert client.get("/").status_code == 400
    assert plain.seen == []


def test_a_long_body_without_a_length_is_cut_off(plain: Plain, client: TestClient) -> None:
    sent = []

    def pieces() -> Iterator[bytes]:
        for _ in range(100):
            sent.append(100)
            yield b"x" * 100

    assert client.post("/", content=pieces(), headers=signed()).status_code == 413
    assert plain.seen == []


def test_websockets_are_closed(client: TestClient) -> None:
    with pytest.raises(WebSocketDisconnect) as caught, client.websocket_connect("/"):
        pytest.fail("it was accepted")
    assert caught.value.code == 1008


def scope_with(headers: dict[str, str]) -> dict[str, Any]:
    return {"type": "http", "headers": [(name.encode(), value.encode()) for name, value in headers.items()]}


async def test_a_message_that_is_being_handled_is_put_off(plain: Plain) -> None:
    receiver = Receiver(KEY, clock=lambda: NOW)
    answers: list[Message] = []

    async def body() -> Message:
        return {"type": "http.request", "body": BODY.encode()}

    async def note(event: Message) -> None:
        answers.append(event)

    async with receiver.once(receiver.verify(signed(), BODY.encode())):
        await receiver.guard(plain)(scope_with(signed()), body, note)
    assert answers[0]["status"] == 409
    assert (b"retry-after", b"5") in answers[0]["headers"]
    assert json.loads(answers[1]["body"]) == {"detail": "this message is being handled; ask again later"}
    assert plain.seen == []


async def test_a_sender_that_goes_away_leaves_nothing_behind(plain: Plain) -> None:
    events: list[Message] = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    answers: list[Message] = []

    async def coming() -> Message:
        return events.pop(0)

    async def note(event: Message) -> None:
        answers.append(event)

    await Receiver(KEY, clock=lambda: NOW).guard(plain)(scope_with(signed()), coming, note)
    assert answers == []
    assert plain.seen == []


@pytest.fixture
def handled() -> list[Any]:
    return []


@pytest.fixture
def api(handled: list[Any]) -> Iterator[TestClient]:
    receiver = Receiver(KEY, clock=lambda: NOW, longest_body=1000)
    app = FastAPI()
    failing = ["once"]

    @app.post("/hook")
    async def hook(message: Annotated[Received, Depends(received(receiver))]) -> dict[str, str]:
        handled.append(message.json())
        if message.json().get("fail") and failing:
            failing.pop()
            raise HTTPException(503, "not now")
        return {"run": message.run_id}

    with TestClient(app) as client:
        yield client


def test_fastapi_gets_each_message_once(api: TestClient, handled: list[Any]) -> None:
    first = api.post("/hook", content=BODY, headers=signed(message_id="a%2Eb:scheduled:1"))
    assert (first.status_code, first.json()) == (200, {"run": "a.b:scheduled:1"})
    again = api.post("/hook", content=BODY, headers=signed(message_id="a%2Eb:scheduled:1"))
    assert (again.status_code, again.headers["noonbell-repeated"]) == (200, "true")
    assert handled == [{"n": 1}]


def test_fastapi_handles_again_what_failed(api: TestClient, handled: list[Any]) -> None:
    body = '{"fail": true}'
    assert api.post("/hook", content=body, headers=signed(body)).status_code == 503
    assert api.post("/hook", content=body, headers=signed(body)).status_code == 200
    assert len(handled) == 2


def test_fastapi_refuses(api: TestClient, handled: list[Any]) -> None:
    assert api.post("/hook", content=BODY).status_code == 400
    assert api.post("/hook", content="{}", headers=signed()).status_code == 401
    assert api.post("/hook", content="x" * 1001, headers=signed("x" * 1001)).status_code == 413
    assert handled == []


def test_the_receiver_is_light() -> None:
    loaded = modules_loaded_by("import noonbell.receive")
    assert not third_party(loaded)
    own = {name for name in loaded if name.startswith("noonbell") and not name.startswith("noonbell.receive")}
    assert {name for name in own if not name.startswith("noonbell.errors.")} == {"noonbell", "noonbell.errors"}

"""A server that is away, that is another's, or that does not accept the key: a plain sentence, and an exit status."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import Result

from noonbell.cli.backend.http import Client
from noonbell.cli.cli_errors import CliError
from tests.actions.egress.servers import answer, answering, certificate_for, redirecting, serving
from tests.cli.conftest import At, StreamInFlight
from tests.ports import free_port

LIST = ("schedules", "list")
BAD_GATEWAY = b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"


def problem(status: int, detail: str, *headers: str) -> bytes:
    body = json.dumps({"type": "about:blank", "status": status, "detail": detail, "instance": "urn:x:abc123"}).encode()
    lines = [
        f"HTTP/1.1 {status} No",
        "Content-Type: application/problem+json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + body


async def run(url: str, *arguments: str, key: str | None = "nbk_key", **environment: str) -> Result:
    at = At(NOONBELL_URL=url, NOONBELL_API_KEY=key, **environment)
    return await asyncio.to_thread(at.run, *(arguments or LIST))


def test_nobody_answers() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    at = At(NOONBELL_URL=url, NOONBELL_API_KEY="nbk_key")
    assert at.refused(*LIST, status=3) == f"Connection to {url} refused: is the service running?"


def test_a_host_that_does_not_exist() -> None:
    at = At(NOONBELL_URL="https://nowhere.invalid", NOONBELL_API_KEY="nbk_key")
    assert at.refused(*LIST, status=3) == "Host not found: nowhere.invalid"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("bell.example.org", '"bell.example.org" is not the address of a service; right is one such as https://'),
        ("ftp://bell.example.org", "is not the address of a service"),
        ("http://127.0.0.1:notaport", "is not the address of a service"),
        ("https://me:hush@bell.example.org", "must not contain a user or a password"),
    ],
)
def test_addresses_that_are_none(url: str, said: str) -> None:
    told = At(NOONBELL_API_KEY="nbk_key").refused(*LIST, "--server", url)
    assert said in told
    assert "hush" not in told


def test_no_key_and_no_possible_key() -> None:
    at = At(NOONBELL_URL="http://127.0.0.1:1")
    assert "NOONBELL_API_KEY is not set" in at.refused(*LIST, status=4)
    odd = At(NOONBELL_URL="http://127.0.0.1:1", NOONBELL_API_KEY="two words")
    assert "does not hold a valid key" in odd.refused(*LIST, status=4)


def test_a_wrong_key_and_a_scope_that_does_not_suffice(served: StreamInFlight) -> None:
    wrong = At(NOONBELL_URL=served.url, NOONBELL_API_KEY="nbk_aaaaaaaaaaaa_wrong")
    told = wrong.refused(*LIST, status=4)
    assert told.startswith(f"{served.url} does not accept the key in NOONBELL_API_KEY")
    reading = At(NOONBELL_URL=served.url, NOONBELL_API_KEY=served.keys["default/read"])
    assert reading.run(*LIST).exit_code == 0
    add = ("schedules", "add", "every hour", "--name", "x", "--http", "https://example.com/")
    assert reading.refused(*add, status=4).startswith("The key may not do this: ")


def test_a_team_that_is_not_the_keys(served: StreamInFlight) -> None:
    assert 'The key is for the team "default" only' in served.refused(*LIST, "--team", "billing")


async def test_a_certificate_for_another_host_one_that_is_old_and_one_that_is_not_known(tmp_path: Path) -> None:
    async with serving(answering(b""), tls=certificate_for("127.0.0.2", tmp_path).server) as other:
        trusting = {"SSL_CERT_FILE": str(tmp_path / "127.0.0.2-new.pem")}
        told = await run(f"https://127.0.0.1:{other.port}", **trusting)
        assert told.exit_code == 3
        assert "The certificate of 127.0.0.1 is for another address; nothing was sent" in told.stderr
        unknown = await run(f"https://127.0.0.1:{other.port}")
        assert "The certificate of 127.0.0.1 is signed by itself; nothing was sent" in unknown.stderr
        assert "SSL_CERT_FILE" in unknown.stderr
    async with serving(answering(b""), tls=certificate_for("127.0.0.1", tmp_path, expired=True).server) as old:
        told = await run(f"https://127.0.0.1:{old.port}", SSL_CERT_FILE=str(tmp_path / "127.0.0.1-old.pem"))
        assert "The certificate of 127.0.0.1 has expired" in told.stderr
    assert other.asked == []
    assert old.asked == []


def test_tls_where_there_is_none(served: StreamInFlight) -> None:
    at = At(NOONBELL_URL=served.url.replace("http:", "https:"), NOONBELL_API_KEY="nbk_key")
    assert "TLS error at" in at.refused(*LIST, status=3)
    assert f"Did you mean {served.url}" in at.run(*LIST).stderr


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (answer(b"<html>hello</html>", "Content-Type: text/html"), "not as a Noonbell server (HTTP 200)"),
        (BAD_GATEWAY, "not as a Noonbell server (HTTP 502)"),
        (redirecting(302, "https://elsewhere.example/"), "redirects to https://elsewhere.example/"),
        (problem(503, "The database is away", "Retry-After: 5"), "cannot answer now: The database is away"),
        (problem(500, "Something went wrong here"), "Its log names this request: abc123"),
        (problem(429, "Too many requests", "Retry-After: 7"), "asks to retry in 7 s: Too many requests"),
        (b"", "closed the connection without an answer"),
    ],
)
async def test_servers_that_cannot_answer(said: bytes, told: str) -> None:
    async with serving(answering(said)) as server:
        found = await run(f"http://127.0.0.1:{server.port}")
    assert found.exit_code == 3
    assert told in found.stderr
    assert server.asked[0].headers["authorization"] == "Bearer nbk_key"


async def test_a_lost_answer_is_asked_for_again_under_the_same_key() -> None:
    made = answer(b'{"run_id": "r1:manual:5"}', "Content-Type: application/json")
    async with serving(answering(b"", made)) as server:
        client = Client(f"http://127.0.0.1:{server.port}", "nbk_key", as_json=False)
        assert await client.call("POST", "/schedules/r1/trigger", once=True) == {"run_id": "r1:manual:5"}
    assert [one.method for one in server.asked] == ["POST", "POST"]
    assert len({one.headers["idempotency-key"] for one in server.asked}) == 1


async def test_what_must_not_be_done_twice_is_not_sent_twice() -> None:
    async with serving(answering(b"")) as server:
        client = Client(f"http://127.0.0.1:{server.port}", "nbk_key", as_json=False)
        with pytest.raises(CliError, match="closed the connection without an answer"):
            await client.call("PATCH", "/schedules/r1", {"name": "x"})
    assert len(server.asked) == 1


def test_both_places_at_once(tmp_path: Path) -> None:
    both = At(NOONBELL_STORE=f"sqlite:///{tmp_path}/x.db", NOONBELL_URL="http://127.0.0.1:1")
    assert "Both NOONBELL_STORE and NOONBELL_URL are set" in both.refused(*LIST)
    refused = both.refused(*LIST, "--store", "sqlite:///a", "--server", "http://a")
    assert "--store and --server exclude each other" in refused
    assert "File not found" in both.refused(*LIST, "--store", f"sqlite:///{tmp_path}/x.db")


def test_what_only_a_database_can_do(served: StreamInFlight) -> None:
    assert "prune does not work through a server" in served.refused("prune", "--keep", "90d")
    assert "--owner and --scheduler require --store" in served.refused("verify", "--owner", "api")

"""HTTP through the gate, against real servers on the loopback interface, most of them ill-behaved."""

import asyncio
import contextlib
import gzip
import pickle
import socket
from collections.abc import AsyncIterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from noonbell.actions.egress import Egress, EgressPolicy, HttpClient, Incoming, Outgoing
from noonbell.actions.egress.client import make_session
from noonbell.actions.egress.gate import current_passage
from noonbell.errors import EgressError, EgressFailedError, EgressRefusedError
from tests.actions.egress.servers import (
    GOOD,
    Asked,
    Server,
    answer,
    answering,
    certificate_for,
    redirecting,
    serving,
)

SECRET = "hunter2"  # noqa: S105 - it opens nothing


def egress_to(*servers: Server, **options: Any) -> Egress:
    return Egress(EgressPolicy(allow=tuple(f"127.0.0.1:{server.port}" for server in servers), **options))


async def fetch(egress: Egress, url: str, method: str = "GET", **options: Any) -> Incoming:
    async with egress.client() as client:
        return await client.fetch(Outgoing(method, url, **options))


async def failure(egress: Egress, url: str, method: str = "GET", **options: Any) -> EgressError:
    with pytest.raises(EgressError) as caught:
        await fetch(egress, url, method, **options)
    assert SECRET not in str(caught.value) + repr(caught.value) + repr(caught.value.details)
    assert caught.value.__cause__ is None
    return caught.value


@pytest.fixture
async def good() -> AsyncIterator[Server]:
    async with serving(answering(GOOD)) as server:
        yield server


# --- requests ---------------------------------------------------------------------------------------------------------


async def test_a_request_goes_out_as_it_was_asked_for(good: Server) -> None:
    incoming = await fetch(
        egress_to(good),
        good.url("/a%2Fb/~x?q=%7e&r=1+2"),
        "post",
        headers=(("X-One", "1"), ("X-Two", "zwei ä")),
        body=b"\x00body",
    )
    (asked,) = good.asked
    assert (asked.method, asked.path, asked.body) == ("POST", "/a%2Fb/~x?q=%7e&r=1+2", b"\x00body")
    assert asked.headers["x-one"] == "1"
    assert asked.headers["host"] == f"127.0.0.1:{good.port}"
    assert asked.headers["accept-encoding"] == "gzip, deflate"
    assert "content-type" not in asked.headers
    assert (incoming.status, incoming.body, incoming.cut, incoming.packed) == (200, b"good", False, "")
    assert incoming.header("CONTENT-length") == "4"
    assert incoming.redirects == 0
    assert incoming.seconds > 0


async def test_what_is_not_ascii_in_a_url_is_quoted(good: Server) -> None:
    await fetch(egress_to(good), good.url("/ä b?c=ö"))
    assert good.asked[0].path == "/%C3%A4%20b?c=%C3%B6"


async def test_user_and_password_of_a_url_become_a_header(good: Server) -> None:
    incoming = await fetch(egress_to(good), f"http://me:p%40ss@127.0.0.1:{good.port}/")
    assert good.asked[0].headers["authorization"] == "Basic bWU6cEBzcw=="
    assert "p%40ss" not in incoming.url
    doubled = await failure(
        egress_to(good), f"http://me:{SECRET}@127.0.0.1:{good.port}/", headers=(("Authorization", SECRET),)
    )
    assert isinstance(doubled, EgressRefusedError)


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", (("Host", SECRET),)),
        ("GET", (("transfer-encoding", SECRET),)),
        ("GET", (("Content-Length", "3"),)),
        ("GET", (("X-A", f"{SECRET}\r\nX-B: c"),)),
        ("GET", (("X-A", f"{SECRET}\x00"),)),
        ("GET", ((f"X {SECRET}", "a"),)),
        ("GET", (("X-A", SECRET * 2000),)),
        ("CONNECT", ()),
        ("GET / HTTP/1.1\r\nX: y\r\n\r\nGET", ()),
        ("", ()),
    ],
)
async def test_requests_that_could_pass_for_others_are_refused(
    good: Server, method: str, headers: tuple[tuple[str, str], ...]
) -> None:
    assert isinstance(await failure(egress_to(good), good.url(), method, headers=headers), EgressRefusedError)
    assert good.connections == 0


@pytest.mark.parametrize("options", [{"redirects": 6}, {"redirects": -1}, {"total_seconds": 0}, {"body_limit": -1}])
async def test_limits_are_checked(good: Server, options: dict[str, Any]) -> None:
    assert (await failure(egress_to(good), good.url(), **options)).kind == "refused-by-egress"


async def test_plain_http_and_unverified_tls_can_be_forbidden(good: Server) -> None:
    assert "use https" in (await failure(egress_to(good, allow_http=False), good.url())).reason
    refused = await failure(egress_to(good, allow_unverified=False), good.url(), verify=False)
    assert "certificate" in refused.reason
    assert good.connections == 0


async def test_proxies_and_passwords_of_the_surroundings_are_left_alone(
    good: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login me password {SECRET}\n", encoding="utf-8")
    monkeypatch.setenv("NETRC", str(netrc))
    await fetch(egress_to(good), good.url())
    assert "authorization" not in good.asked[0].headers


async def test_cookies_are_not_kept() -> None:
    async def inside(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async with serving(answering(answer(b"", "Set-Cookie: a=b"))) as server:
        egress = Egress(EgressPolicy(allow=(f"127.0.0.1:{server.port}",)), look_up=inside)
        async with egress.client() as client:
            for _ in range(2):
                # a name: a jar of cookies would take none from an address
                await client.fetch(Outgoing("GET", f"http://bakery.example:{server.port}/"))
        assert len(server.asked) == 2
        assert "cookie" not in server.asked[1].headers


def test_the_records_do_not_show_what_they_hold() -> None:
    outgoing = Outgoing("GET", f"http://x/?{SECRET}", (("A", SECRET),), SECRET.encode())
    incoming = Incoming(
        200, (("A", SECRET),), SECRET.encode(), cut=False, packed="", url=SECRET, redirects=0, seconds=1
    )
    assert SECRET not in repr(outgoing) + repr(incoming)


async def test_the_client_is_one_of_its_protocol(good: Server) -> None:
    async with egress_to(good).client() as made:
        client: HttpClient = made
        assert (await client.fetch(Outgoing("GET", good.url()))).status == 200


async def test_a_kept_connection_is_used_again_without_a_look_up() -> None:
    questions = []

    async def inside(host: str, port: int) -> Sequence[str]:
        questions.append(host)
        return ["127.0.0.1"]

    connections = 0

    async def keeping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while head := await reader.readuntil(b"\r\n\r\n"):
            assert head.startswith(b"GET ")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            await keeping(reader, writer)
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    egress = Egress(EgressPolicy(allow=(f"127.0.0.1:{port}",)), look_up=inside)
    async with egress.client() as client:
        for _ in range(3):
            assert (await client.fetch(Outgoing("GET", f"http://hooks.example:{port}/"))).body == b"ok"
    listener.close()
    await listener.wait_closed()
    assert (connections, questions) == (1, ["hooks.example"])


# --- where it may go --------------------------------------------------------------------------------------------------


async def test_a_changing_answer_of_dns_reaches_nothing_bad() -> None:
    answers = [["127.0.0.1"], ["127.0.0.2"]]
    questions = []

    async def rebinding(host: str, port: int) -> Sequence[str]:
        questions.append(host)
        return answers[min(len(questions), len(answers)) - 1]

    async with serving(answering(GOOD)) as good, serving(answering(GOOD), hosts=["127.0.0.2"], port=good.port) as bad:
        egress = Egress(EgressPolicy(allow=(f"127.0.0.1:{good.port}",)), look_up=rebinding)
        async with egress.client() as client:
            url = f"http://rebind.example:{good.port}/"
            assert (await client.fetch(Outgoing("GET", url))).body == b"good"
            assert questions == ["rebind.example"]
            with pytest.raises(EgressRefusedError):
                await client.fetch(Outgoing("GET", url))
        assert good.asked[0].headers["host"] == f"rebind.example:{good.port}"
        assert (good.connections, bad.connections) == (1, 0)


async def test_a_name_that_is_allowed_does_not_open_its_address() -> None:
    async def inside(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async with serving(answering(GOOD)) as server:
        egress = Egress(EgressPolicy(allow=(f"hooks.internal:{server.port}",)), look_up=inside)
        async with egress.client() as client:
            assert (await client.fetch(Outgoing("GET", f"http://hooks.internal:{server.port}/"))).body == b"good"
            with pytest.raises(EgressRefusedError):
                await client.fetch(Outgoing("GET", server.url()))
        assert current_passage.get() is None
        assert server.connections == 1


async def test_a_session_used_alone_is_judged_too(good: Server) -> None:
    async def inside(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async with Egress(look_up=inside).session() as session:
        for url in (good.url(), f"http://any.example:{good.port}/", f"http://[::ffff:127.0.0.1]:{good.port}/"):
            with pytest.raises(EgressRefusedError):
                await session.get(url)
    assert good.connections == 0
    async with egress_to(good).session() as session, session.get(good.url()) as response:
        assert await response.read() == b"good"


@pytest.mark.parametrize("option", ["connector", "trust_env", "cookie_jar", "proxy"])
async def test_what_makes_a_session_safe_cannot_be_chosen(option: str) -> None:
    with pytest.raises(TypeError, match=option):
        make_session(Egress(), limit=1, limit_per_host=0, **{option: None})


# --- redirects --------------------------------------------------------------------------------------------------------


async def test_redirects_are_not_followed_unless_asked_for(good: Server) -> None:
    async with serving(answering(redirecting(302, good.url()))) as server:
        incoming = await fetch(egress_to(server, good), server.url())
    assert (incoming.status, incoming.header("location")) == (302, good.url())
    assert good.connections == 0


async def test_redirects_are_followed_and_counted(good: Server) -> None:
    async with serving(answering(redirecting(302, "/b"), redirecting(307, good.url("/c")))) as server:
        incoming = await fetch(
            egress_to(server, good),
            f"http://me:{SECRET}@127.0.0.1:{server.port}/a",
            redirects=5,
            headers=(("X-Key", SECRET), ("Accept", "text/plain")),
        )
        assert [asked.path for asked in server.asked] == ["/a", "/b"]
        assert server.asked[1].headers["x-key"] == SECRET
    assert (incoming.body, incoming.redirects, incoming.url) == (b"good", 2, good.url("/c"))
    assert good.asked[0].headers["accept"] == "text/plain"
    assert SECRET not in str(good.asked)
    assert "authorization" not in good.asked[0].headers


async def test_too_many_redirects_are_an_error() -> None:
    async with serving(answering(redirecting(302, "/again"))) as server:
        failed = await failure(egress_to(server), server.url(f"/?{SECRET}"), redirects=5)
        assert (failed.kind, len(server.asked)) == ("redirect", 6)


async def test_leave_for_a_name_is_not_leave_for_where_it_redirects_to() -> None:
    async def inside(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async def leading_home(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(redirecting(302, server.url()))

    async with serving(leading_home) as server:
        egress = Egress(EgressPolicy(allow=(f"hooks.internal:{server.port}",)), look_up=inside)
        failed = await failure(egress, f"http://hooks.internal:{server.port}/", redirects=2)
        assert (failed.kind, server.connections) == ("refused-by-egress", 1)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_a_forbidden_port_is_refused(good: Server, status: int) -> None:
    async with serving(answering(redirecting(status, good.url()))) as server:
        assert (await failure(egress_to(server), server.url(), redirects=3)).kind == "refused-by-egress"
    assert good.connections == 0


# --- answers ----------------------------------------------------------------------------------------------------------


async def endless(_: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


async def test_an_endless_body_is_cut_at_the_limit() -> None:
    async with serving(endless) as server:
        incoming = await fetch(egress_to(server), server.url(), body_limit=300_000)
    assert (incoming.body, incoming.cut) == (b"x" * 300_000, True)


async def test_a_large_body_is_cut_at_a_megabyte_and_the_rest_not_read() -> None:
    written = 0

    async def large(_: Asked, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while written < 1_000_000_000:
            writer.write(b"x" * 65_536)
            await writer.drain()
            written += 65_536

    async with serving(large) as server:
        incoming = await fetch(egress_to(server), server.url())
    assert (len(incoming.body), incoming.cut) == (1_048_576, True)
    assert written < 50_000_000


async def test_a_body_of_exactly_the_limit_is_not_cut() -> None:
    async with serving(answering(answer(b"x" * 1000))) as server:
        incoming = await fetch(egress_to(server), server.url(), body_limit=1000)
    assert (incoming.body, incoming.cut) == (b"x" * 1000, False)


async def test_a_large_body_can_be_an_error() -> None:
    async with serving(answering(answer(SECRET.encode() * 1000))) as server:
        assert (await failure(egress_to(server), server.url(), body_limit=999, refuse_large=True)).kind == "too-large"


@cache
def packed_bomb() -> bytes:
    """More than the limit of the test also as it is packed."""
    return gzip.compress(bytes(20_000_000), 1)


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "gzip, gzip"])
async def test_a_packed_bomb_stays_small(coding: str) -> None:
    async with serving(answering(answer(packed_bomb(), f"Content-Encoding: {coding}"))) as server:
        incoming = await fetch(egress_to(server), server.url(), body_limit=50_000)
    assert incoming.cut
    assert len(incoming.body) == 50_000
    assert incoming.packed == ("" if coding == "gzip" else coding)
    assert (incoming.body == bytes(50_000)) == (coding == "gzip")


async def test_a_packed_body_is_unpacked() -> None:
    async with serving(answering(answer(gzip.compress(b"noon"), "Content-Encoding: gzip"))) as server:
        assert (await fetch(egress_to(server), server.url())).body == b"noon"


async def test_header_bytes_that_are_no_text_are_kept_readable() -> None:
    raw = b"HTTP/1.1 200 OK\r\nX-Odd: \xff\xe4\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    async with serving(answering(raw)) as server:
        incoming = await fetch(egress_to(server), server.url())
    assert incoming.header("x-odd") == "\\xff\\xe4"


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", "too-large"),
        (b"HTTP/1.1 200 OK\r\n" + b"".join(b"X%d: y\r\n" % n for n in range(1000)) + b"\r\n", "too-large"),
        (
            b"HTTP/1.1 200 OK\r\n" + b"".join(b"X%d: %s\r\n" % (n, b"y" * 1000) for n in range(100)) + b"\r\n",
            "too-large",
        ),
        (b"SSH-2.0-OpenSSH hunter2\r\n\r\n", "protocol"),
        (b"HTTP/1.1 abc\r\n\r\n", "protocol"),
        (b"", "protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", "protocol"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhunter2", "protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Encoding: gzip\r\n\r\nrubb", "protocol"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n", "protocol"),
    ],
)
async def test_answers_that_are_too_much_or_no_http(raw: bytes, kind: str) -> None:
    async with serving(answering(raw)) as server:
        assert (await failure(egress_to(server), server.url(f"/?{SECRET}"))).kind == kind


async def test_a_few_answers_before_the_answer_are_passed_over() -> None:
    prelude = b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"
    async with serving(answering(prelude * 3 + GOOD)) as server:
        assert (await fetch(egress_to(server), server.url())).body == b"good"


async def test_endless_answers_before_the_answer_are_too_much() -> None:
    async def preludes(_: Asked, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000)
            await writer.drain()

    async with serving(preludes) as server:
        assert (await failure(egress_to(server), server.url())).kind == "too-large"


@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
async def test_a_request_that_was_cut_off_is_not_sent_again(method: str) -> None:
    async with serving(answering(b"")) as server:
        assert (await failure(egress_to(server), server.url(), method)).kind == "protocol"
        assert len(server.asked) == 1


# --- time -------------------------------------------------------------------------------------------------------------


async def silent(_: Asked, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def stalling(_: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    await asyncio.Event().wait()


@pytest.mark.parametrize("behave", [silent, stalling])
async def test_the_total_deadline_ends_everything(behave: Any) -> None:
    async with serving(behave) as server:
        failed = await failure(egress_to(server), server.url(f"/?{SECRET}"), total_seconds=0.2)
    assert (failed.kind, failed.where) == ("timeout", f"127.0.0.1:{server.port}")


async def test_a_name_that_nobody_resolves_is_a_timeout() -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    failed = await failure(Egress(look_up=never), f"http://x.example/{SECRET}", connect_seconds=0.05)
    assert (failed.kind, "not resolved" in failed.reason) == ("timeout", True)


async def test_a_connection_that_nobody_takes_is_a_timeout() -> None:
    # a full queue of a listener that never accepts: the next handshake gets no answer
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        waiting = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(address)
            waiting.append(filler)
        egress = Egress(EgressPolicy(allow=("127.0.0.1",)))
        failed = await failure(egress, f"http://127.0.0.1:{address[1]}/{SECRET}", connect_seconds=0.2)
        for filler in waiting:
            filler.close()
    assert (failed.kind, failed.reason) == ("timeout", "no connection within 0.2 s")


async def test_cancelling_a_fetch_is_not_a_failure() -> None:
    arrived = asyncio.Event()

    async def arriving(_: Asked, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await asyncio.Event().wait()

    async with serving(arriving) as server:
        task = asyncio.create_task(fetch(egress_to(server), server.url()))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


# --- connections and TLS ----------------------------------------------------------------------------------------------


async def test_a_closed_port_is_told_as_refused(good: Server) -> None:
    async with serving(answering(GOOD)) as gone:
        pass
    assert (await failure(egress_to(gone), gone.url(f"/?{SECRET}"))).kind == "refused"


async def test_a_name_that_does_not_exist_is_told_as_dns() -> None:
    async def unknown(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, SECRET)

    assert (await failure(Egress(look_up=unknown), f"https://x.example/{SECRET}")).kind == "dns"


async def test_tls_is_verified_unless_it_is_turned_off(tmp_path: Path) -> None:
    certificate = certificate_for("127.0.0.1", tmp_path)
    async with serving(answering(GOOD), tls=certificate.server) as server:
        policy = EgressPolicy(allow=(f"127.0.0.1:{server.port}",))
        url = f"https://127.0.0.1:{server.port}/"
        failed = await failure(Egress(policy), url + SECRET)
        assert failed.kind == "tls"
        assert "self-signed" in failed.reason
        assert server.asked == []
        assert (await fetch(Egress(policy), url, verify=False)).body == b"good"
        assert (await fetch(Egress(policy), url, tls=certificate.trusting)).body == b"good"
        assert (await fetch(Egress(policy, tls=certificate.trusting), url)).body == b"good"


async def test_a_certificate_has_to_be_for_the_host_and_of_today(tmp_path: Path) -> None:
    for name, expired in (("other.example", False), ("127.0.0.1", True)):
        certificate = certificate_for(name, tmp_path, expired=expired)
        async with serving(answering(GOOD), tls=certificate.server) as server:
            failed = await failure(
                egress_to(server), f"https://127.0.0.1:{server.port}/{SECRET}", tls=certificate.trusting
            )
        assert (failed.kind, server.asked) == ("tls", [])


async def test_what_speaks_no_tls_is_told_as_tls() -> None:
    async def plain(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(plain, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    try:
        failed = await failure(Egress(EgressPolicy(allow=("127.0.0.1",))), f"https://127.0.0.1:{port}/{SECRET}")
    finally:
        listener.close()
        await listener.wait_closed()
    assert failed.kind == "tls"


async def test_a_redirect_to_tls_is_verified_too(tmp_path: Path) -> None:
    certificate = certificate_for("127.0.0.1", tmp_path)
    async with serving(answering(GOOD), tls=certificate.server) as secure:
        place = f"https://127.0.0.1:{secure.port}/"
        async with serving(answering(redirecting(302, place))) as server:
            egress = egress_to(server, secure)
            assert (await failure(egress, server.url(), redirects=1)).kind == "tls"
            assert (await fetch(egress, server.url(), redirects=1, tls=certificate.trusting)).body == b"good"


# --- a proxy that the operator named ----------------------------------------------------------------------------------


async def test_a_named_proxy_is_used_with_its_password_and_literal_addresses_are_still_judged() -> None:
    async def nothing(host: str, port: int) -> Sequence[str]:
        raise AssertionError(host)

    async with serving(answering(GOOD)) as proxy:
        policy = EgressPolicy(proxy=f"http://me:{SECRET}@127.0.0.1:{proxy.port}")
        egress = Egress(policy, look_up=nothing)
        assert (await fetch(egress, "http://far.example/x")).body == b"good"
        (asked,) = proxy.asked
        assert asked.path == "http://far.example/x"
        assert asked.headers["host"] == "far.example"
        assert asked.headers["proxy-authorization"] == "Basic bWU6aHVudGVyMg=="
        for url in ("http://10.0.0.1/", "http://169.254.169.254/", "http://127.1/", "http://metadata.google.internal/"):
            assert (await failure(egress, url)).kind == "refused-by-egress"
        assert proxy.connections == 1


async def test_redirects_are_followed_through_the_proxy_and_judged() -> None:
    answers = (redirecting(302, "http://near.example/y"), GOOD, redirecting(302, "http://10.0.0.1/"))
    async with serving(answering(*answers)) as proxy:
        egress = Egress(EgressPolicy(proxy=f"http://127.0.0.1:{proxy.port}"))
        incoming = await fetch(egress, "http://far.example/x", redirects=1)
        assert (incoming.body, incoming.redirects, incoming.url) == (b"good", 1, "http://near.example/y")
        assert [asked.path for asked in proxy.asked] == ["http://far.example/x", "http://near.example/y"]
        assert (await failure(egress, "http://far.example/z", redirects=1)).kind == "refused-by-egress"
        assert proxy.connections == 3


async def test_a_proxy_that_will_not_is_told_as_such() -> None:
    refusing = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    async with serving(answering(refusing)) as proxy:
        egress = Egress(EgressPolicy(proxy=f"http://me:{SECRET}@127.0.0.1:{proxy.port}"))
        failed = await failure(egress, f"https://far.example/{SECRET}")
        assert (failed.kind, proxy.asked[0].method) == ("connect", "CONNECT")
    failed = await failure(egress, "http://far.example/")
    assert (failed.kind, "proxy" in failed.reason) == ("refused", True)


def test_kinds_of_failure_survive_pickling() -> None:
    error = EgressFailedError("tls", "x:1", "why")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - its own bytes
    assert (again.kind, again.where, str(again)) == ("tls", "x:1", "tls: x:1: why")

"""The gate: one look-up, every address judged, and sockets for judged addresses only."""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest

from noonbell.actions.egress import Egress, EgressPolicy
from noonbell.actions.egress.gate import current_passage
from noonbell.errors import EgressFailedError, EgressRefusedError
from tests.actions.egress.servers import GOOD, answering, certificate_for, serving


class Names:
    """A resolver that gives its answers in turn, the last of them for ever, and counts the questions."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


async def failing(host: str, port: int) -> Sequence[str]:
    raise socket.gaierror(socket.EAI_NONAME, "hunter2 is not known")


async def never(host: str, port: int) -> Sequence[str]:
    await asyncio.Event().wait()
    return []


async def test_a_name_passes_with_all_its_addresses() -> None:
    names = Names(["8.8.8.8", "2606:4700::1111", "8.8.8.8"])
    passage = await Egress(look_up=names).admit("Example.COM.", 443)
    assert [str(address) for address in passage.addresses] == ["8.8.8.8", "2606:4700::1111"]
    assert names.asked == [("example.com", 443)]


@pytest.mark.parametrize(
    "answer",
    [
        ["127.0.0.1"],
        ["8.8.8.8", "10.0.0.1"],
        ["10.0.0.1", "8.8.8.8"],
        ["8.8.8.8", "::1"],
        ["::ffff:8.8.8.8"],
        ["169.254.169.254"],
        ["fe80::1%eth0"],
        ["127.1"],
        ["0x7f000001"],
        ["rubbish"],
    ],
)
async def test_one_bad_address_refuses_the_name(answer: list[str]) -> None:
    with pytest.raises(EgressRefusedError):
        await Egress(look_up=Names(answer)).admit("example.com", 443)


async def test_literal_addresses_are_not_looked_up() -> None:
    names = Names(["8.8.8.8"])
    egress = Egress(look_up=names)
    assert str((await egress.admit("[2606:4700::1111]", 443)).addresses[0]) == "2606:4700::1111"
    with pytest.raises(EgressRefusedError):
        await egress.admit("127.0.0.1", 443)
    with pytest.raises(EgressRefusedError):
        await egress.admit("127.1", 443)
    with pytest.raises(EgressRefusedError):
        await egress.admit("metadata.google.internal", 80)
    assert names.asked == []


@pytest.mark.parametrize("look_up", [failing, Names([]), Names(["8.8.8.8"] * 65)])
async def test_a_name_without_a_usable_answer_is_a_matter_of_dns(look_up: Names) -> None:
    with pytest.raises(EgressFailedError) as caught:
        await Egress(look_up=look_up).admit("example.com", 443)
    assert caught.value.kind == "dns"
    assert "hunter2" not in str(caught.value)


async def test_the_system_resolver_is_asked_by_default() -> None:
    with pytest.raises(EgressRefusedError, match="loopback"):
        await Egress().admit("localhost", 80)


@pytest.mark.parametrize(
    "sockaddr", [("127.0.0.1", 80), ("10.0.0.1", 80), ("::1", 80, 0, 0), ("8.8.8.8", 0), ("fe80::1%1", 80, 0, 1)]
)
def test_no_socket_is_made_for_an_address_that_was_not_judged_good(sockaddr: tuple[object, ...]) -> None:
    family = socket.AF_INET if len(sockaddr) == 2 else socket.AF_INET6
    with pytest.raises(EgressRefusedError):
        Egress().open_socket((family, socket.SOCK_STREAM, 0, "", sockaddr))


def test_no_socket_is_made_of_another_family() -> None:
    with pytest.raises(EgressRefusedError, match="only IPv4 and IPv6"):
        Egress().open_socket((socket.AF_UNIX, socket.SOCK_STREAM, 0, "", ("/run/docker.sock", 1)))


async def test_a_passage_covers_its_addresses_on_its_port_only() -> None:
    egress = Egress(EgressPolicy(allow=("hooks.internal:8080",)), look_up=Names(["10.0.0.1"]))
    token = current_passage.set(await egress.admit("hooks.internal", 8080))
    try:
        egress.open_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("10.0.0.1", 8080))).close()
        for other in (("10.0.0.1", 8081), ("10.0.0.2", 8080)):
            with pytest.raises(EgressRefusedError):
                egress.open_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", other))
    finally:
        current_passage.reset(token)


# --- streams ----------------------------------------------------------------------------------------------------------


async def ask(egress: Egress, host: str, port: int, *, ssl: bool | ssl.SSLContext = False) -> bytes:
    reader, writer = await egress.open_connection(host, port, ssl=ssl)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_streams_reach_what_is_allowed() -> None:
    async with serving(answering(GOOD)) as server:
        egress = Egress(EgressPolicy(allow=(f"127.0.0.1:{server.port}",)), look_up=Names(["127.0.0.1"]))
        assert await ask(egress, "127.0.0.1", server.port) == GOOD
        assert await ask(egress, "mail.example", server.port) == GOOD
        assert current_passage.get() is None


async def test_streams_reach_nothing_else() -> None:
    async with serving(answering(GOOD)) as server:
        for host in ("127.0.0.1", "mail.example", "127.1", "::ffff:127.0.0.1"):
            with pytest.raises(EgressRefusedError):
                await Egress(look_up=Names(["127.0.0.1"])).open_connection(host, server.port)
    assert server.connections == 0


async def test_the_next_address_is_tried_where_one_does_not_answer() -> None:
    async with serving(answering(GOOD), hosts=["127.0.0.2"]) as server:
        egress = Egress(EgressPolicy(allow=("127.0.0.0/8",)), look_up=Names(["127.0.0.1", "127.0.0.2"]))
        assert await ask(egress, "mail.example", server.port) == GOOD


async def test_a_closed_port_is_told_as_refused() -> None:
    async with serving(answering(GOOD)) as server:
        port = server.port
    with pytest.raises(EgressFailedError) as caught:
        await Egress(EgressPolicy(allow=("127.0.0.1",))).open_connection("127.0.0.1", port)
    assert caught.value.kind == "refused"


async def test_a_look_up_without_an_end_is_a_timeout() -> None:
    with pytest.raises(EgressFailedError) as caught:
        await Egress(look_up=never).open_connection("mail.example", 25, seconds=0.01)
    assert (caught.value.kind, caught.value.where) == ("timeout", "mail.example:25")


async def test_streams_speak_tls_and_look_at_the_certificate(tmp_path: Path) -> None:
    certificate = certificate_for("mail.example", tmp_path)
    async with serving(answering(GOOD), tls=certificate.server) as server:
        policy = EgressPolicy(allow=(f"127.0.0.1:{server.port}",))
        names = Names(["127.0.0.1"])
        assert await ask(Egress(policy, look_up=names, tls=certificate.trusting), "mail.example", server.port, ssl=True)
        assert await ask(Egress(policy, look_up=names), "mail.example", server.port, ssl=certificate.trusting) == GOOD
        for egress, host in (
            (Egress(policy, look_up=names), "mail.example"),
            (Egress(policy, look_up=names, tls=certificate.trusting), "other.example"),
        ):
            with pytest.raises(EgressFailedError) as caught:
                await egress.open_connection(host, server.port, ssl=True)
            assert caught.value.kind == "tls"

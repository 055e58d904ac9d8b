"""Some hundred spellings of places that jobs must not reach, in each of three ways, counted at the listeners.

Ways: as the URL of the job, as the place of a redirect, and as the second answer of a name whose first was good.
"""

import ipaddress
import socket
from collections.abc import Sequence
from typing import Any

import pytest

from noonbell.actions.egress import Egress, EgressPolicy, Outgoing
from noonbell.errors import EgressError, EgressRefusedError
from tests.actions.egress.servers import GOOD, Asked, answering, redirecting, serving

ADDRESSES = """
127.0.0.1 127.0.0.2 127.1.2.3 127.255.255.254 0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.254
100.100.100.200 168.63.129.16 169.254.0.1 169.254.169.254 169.254.170.2 172.16.0.1 172.31.255.254 192.0.0.1 192.0.0.192
192.0.2.1 192.88.99.1 192.168.0.1 192.168.255.254 198.18.0.1 198.19.255.254 198.51.100.1 203.0.113.1 224.0.0.1
239.255.255.250 240.0.0.1 255.255.255.255
""".split()
V6 = """
::1 :: ::2 fe80::1 fe80::a9fe:a9fe fec0::1 fc00::1 fd00::1 fd00:ec2::254 fd20:ce::254 ff02::1 ff0e::1 100::1 2001:db8::1
2001::1 2001:2::1 2001:10::1 2001:20::1 2002::1 3fff::1 5f00::1 4000::1 8000::1 64:ff9b:1::1 1::1
""".split()


def spellings(text: str) -> list[str]:
    """Ways in which programs have been known to read an IPv4 address, or a name that hides it."""
    address = ipaddress.IPv4Address(text)
    number, parts = int(address), list(address.packed)
    a, b, c, d = parts
    high, low = number >> 16, number & 0xFFFF
    wide = text.translate({ord("0") + digit: 0xFF10 + digit for digit in range(10)})
    return [
        text,
        str(number),
        hex(number),
        hex(number).upper(),
        f"0{number:o}",
        f"0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}",
        f"0{a:o}.0{b:o}.0{c:o}.0{d:o}",
        f"{a}.{b}.{low}",
        f"{a}.{number & 0xFFFFFF}",
        f"0{a:o}.{b}.{c}.0x{d:x}",
        text + ".",
        wide,
        wide.replace(".", "。"),
        text.replace(".", "%2e"),
        "".join(f"%{ord(character):02x}" for character in text),
        f"[::ffff:{text}]",
        f"[::ffff:{high:x}:{low:x}]",
        f"[::{high or 0x1234:x}:{low:x}]",
        f"[64:ff9b::{text}]",
        f"[64:ff9b:1::{text}]",
        f"[2002:{high:x}:{low:x}::1]",
        f"[2001:0:{high:x}:{low:x}:0:ffff:f7f7:f7f7]",
        f"[2600:1::5efe:{text}]",
        f"good.example@{text}",
        f"good.example:80@{text}",
    ]


HOSTS = [
    *(spelling for address in ADDRESSES for spelling in spellings(address)),
    *(f"[{address}]" for address in V6),
    *(f"[{ipaddress.IPv6Address(address).exploded}]" for address in V6),
    "[fe80::1%25lo]", "[::1%lo]", "[::ffff:7f00:1%25]", "[::]", "[0:0:0:0:0:0:0:0]", "metadata",
    "metadata.google.internal", "METADATA.GOOGLE.INTERNAL.", "localhost", "localhost.", "LOCALHOST",
    "loopback.example", "good.example\\@127.0.0.1",
    "127.0.0.1\\@good.example", "127.0.0.1%23@good.example", "127.0.0.1%00.good.example", "①②⑦.⓪.⓪.①", "ⓛocalhost",
]  # fmt: skip


EVERYWHERE = ["0.0.0.0"]  # noqa: S104 - whoever comes by any address of this machine is counted


class CountingEgress(Egress):
    """Counts the sockets that it lets anybody have."""

    sockets = 0

    def open_socket(self, address_info: tuple[Any, ...]) -> socket.socket:
        made = super().open_socket(address_info)
        self.sockets += 1
        return made


async def inward(host: str, port: int) -> Sequence[str]:
    """Whatever name is asked for, it is this machine."""
    return ["127.0.0.1", "::1"] if host != "good.example" else ["127.0.0.1"]


def test_there_are_enough_of_them() -> None:
    assert len(set(HOSTS)) >= 300


async def test_no_spelling_gets_through_as_a_url() -> None:
    let_through = []
    async with serving(answering(GOOD), hosts=EVERYWHERE) as listener:
        egress = CountingEgress(look_up=inward)
        async with egress.client() as client:
            for host in HOSTS:
                for scheme in ("http", "https"):
                    try:
                        await client.fetch(Outgoing("GET", f"{scheme}://{host}:{listener.port}/", total_seconds=5))
                        let_through.append(host)
                    except EgressRefusedError:
                        pass
    assert let_through == []
    assert (listener.connections, egress.sockets) == (0, 0)


async def test_no_spelling_gets_through_as_a_redirect() -> None:
    let_through = []
    place = ""

    async def leading_on(_: Asked, writer: Any) -> None:
        writer.write(redirecting(302, place))

    async with serving(answering(GOOD), hosts=EVERYWHERE) as listener, serving(leading_on) as server:
        egress = CountingEgress(EgressPolicy(allow=(f"127.0.0.1:{server.port}",)), look_up=inward)
        async with egress.client() as client:
            for host in HOSTS:
                place = f"http://{host}:{listener.port}/"
                try:
                    await client.fetch(Outgoing("GET", server.url(), redirects=5, total_seconds=5))
                    let_through.append(host)
                except EgressRefusedError:
                    pass
        assert let_through == []
        assert (listener.connections, server.connections, egress.sockets) == (0, len(HOSTS), len(HOSTS))


def readable() -> list[str]:
    """Every address of the corpus in a form that a resolver could answer with."""
    inner = [spelling[1:-1] for spelling in HOSTS if spelling.startswith("[") and "%" not in spelling]
    # the server itself is the good place here, also inside of an address that is public for the rest
    return sorted({*ADDRESSES, *V6, *inner} - {"127.0.0.1", "2600:1::5efe:127.0.0.1"})


async def test_no_address_gets_through_when_a_name_changes_its_answer() -> None:
    answers: list[list[str]] = []

    async def turncoat(host: str, port: int) -> Sequence[str]:
        return answers.pop(0)

    reached = 0
    async with (
        serving(answering(GOOD)) as good,
        serving(answering(GOOD), hosts=["127.0.0.2", "127.1.2.3", "127.255.255.254"], port=good.port) as listener,
    ):
        egress = CountingEgress(EgressPolicy(allow=(f"127.0.0.1:{good.port}",)), look_up=turncoat)
        async with egress.client() as client:
            for address in readable():
                answers[:] = [["127.0.0.1"], [address], ["127.0.0.1", address], [address, "127.0.0.1"]]
                request = Outgoing("GET", f"http://turncoat.example:{good.port}/", total_seconds=5)
                assert (await client.fetch(request)).body == b"good"
                reached += 1
                for _ in range(3):
                    with pytest.raises(EgressError) as caught:
                        await client.fetch(request)
                    assert caught.value.kind == "refused-by-egress", address
                assert answers == []
        assert (good.connections, listener.connections, egress.sockets) == (reached, 0, reached)
    assert reached >= 200


@pytest.mark.parametrize("host", ["127.0.0.1", "good.example", "GOOD.example.", "me:pw@127.0.0.1", "x@good.example"])
async def test_the_controls_all_pass(host: str) -> None:
    async with serving(answering(GOOD)) as server:
        egress = CountingEgress(EgressPolicy(allow=(f"127.0.0.1:{server.port}",)), look_up=inward)
        async with egress.client() as client:
            assert (await client.fetch(Outgoing("GET", f"http://{host}:{server.port}/"))).body == b"good"
        assert (server.connections, egress.sockets) == (1, 1)

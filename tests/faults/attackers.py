"""What `tests/faults/attacks.py` sends to a service, as a process of its own that has few rights and little priority.

    python -m tests.faults.attackers NAME '{"port": 8765, "seconds": 6, "read": "nbk_…", …}'

Each attack sends for some seconds and then prints one JSON object: how many requests were sent, and how many were
answered with which status; `closed` are those that got no answer, `held` the connections that were open at the end, and
`most_open` the largest number of connections at once. Bodies and counts are bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import resource
import socket
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

API = "/api/v1"
PATIENCE_SECONDS = 60.0
OPEN_FILES = 8_192
_MEGABYTE = 1_000_000
_BLOCK = 64 * 1024
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")


class Plan(NamedTuple):
    """Where to, for how long, and with which keys."""

    port: int
    seconds: float
    read: str
    write: str
    ping: str
    least: int = 1  # so many requests are sent, however long it takes
    is_first: bool = False  # only so much that everything is loaded: few connections


class Sender:
    """Sends requests from one address and counts what comes back."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.until = time.monotonic() + plan.seconds
        self.counts: Counter[str] = Counter()
        self._open = 0

    def goes_on(self) -> bool:
        return self.counts["sent"] < self.plan.least or time.monotonic() < self.until

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.plan.port)

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """An open connection, for `most_open`."""
        self._open += 1
        self.counts["most_open"] = max(self.counts["most_open"], self._open)
        try:
            yield
        finally:
            self._open -= 1

    async def each(self, requests: Iterator[bytes]) -> None:
        """One after the other over one connection, which is opened again where the service closes it."""
        while self.goes_on():
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await self.open()
                with contextlib.closing(writer):
                    while self.goes_on():
                        self.counts["sent"] += 1
                        writer.write(next(requests))
                        self.counts[await answer(reader)] += 1
                continue
            self.counts["closed"] += 1

    async def side_by_side(self, requests: Iterator[bytes], connections: int) -> None:
        await asyncio.gather(*(self.each(requests) for _ in range(connections)))

    async def pour(self, begin: bytes, piece: bytes, most: int) -> None:
        """Send a head that does not end, until the service has enough."""
        reader, writer = await self.open()
        self.counts["sent"] += 1
        sent = 0
        with contextlib.closing(writer):
            try:
                writer.write(begin)
                while sent < most:
                    writer.write(piece)
                    sent += len(piece)
                    await writer.drain()
            except OSError:
                pass
            self.counts["bytes"] += sent
            try:
                self.counts[await answer(reader)] += 1
            except (OSError, asyncio.IncompleteReadError):
                self.counts["closed"] += 1


async def answer(reader: asyncio.StreamReader) -> str:
    """The status of an answer, which is read to its end."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        _, _, length = head.partition(b"content-length: ")
        await reader.readexactly(int(length.split(b"\r\n", 1)[0] or 0))
    return head.split(b" ", 2)[1].decode()


def request(path: str, body: bytes = b"", *, key: str = "", method: str = "POST", form: str = "json") -> bytes:
    head = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", f"Content-Type: application/{form}"]
    head += [f"Authorization: Bearer {key}"] if key else []
    return "\r\n".join([*head, "", ""]).encode() + body


def posted(path: str, value: Any, key: str, method: str = "POST") -> bytes:
    return request(API + path, json.dumps(value, separators=(",", ":")).encode(), key=key, method=method)


# --- attacks ----------------------------------------------------------------------------------------------------------


async def heads(sender: Sender) -> None:
    """Headers and targets without an end, without a key."""
    begin = b"GET / HTTP/1.1\r\nHost: x\r\n"
    while sender.goes_on():
        await asyncio.gather(
            sender.pour(begin, b"X-A: " + b"a" * 60_000 + b"\r\n", 800 * _MEGABYTE),
            sender.pour(begin, b"a:\r\n" * 16_000, 50 * _MEGABYTE),
            sender.pour(begin + b"X-B: ", b"b" * 64_000, 200 * _MEGABYTE),
            sender.pour(b"GET /", b"c" * 64_000, 120 * _MEGABYTE),
        )


async def keys(sender: Sender) -> None:
    """Bodies that hold very much: half of them with a key that may only read, half with one that may write."""
    many = {f"k{number}": 1 for number in range(150_000)}
    some = {f"k{number}": 1 for number in range(20_000)}
    action = {"kind": "callback", "name": "x"}
    hostile = [
        ("/schedules", {"action": action, **some}),
        ("/schedules", {"action": action, "type": "cron", "spec": "* * * * *", "payload": [[]] * 300_000}),
        ("/bulk/schedules", {"schedules": [some] * 2}),
        ("/bulk/schedules", {"schedules": [{"type": 1}] * 10_000}),
        ("/rules", {"name": "r", "on": ["x"] * 40_000, "channels": ["ops"]}),
        ("/monitors", {"name": "m", "type": "cron", **some}),
        ("/quiet-hours", {"name": "q", "windows": [{"dates": ["x"] * 20_000}]}),
        ("/channels", {"name": "c", "kind": "webhook", "config": some}),
    ]
    previews = [("/preview", {"text": "daily", **many}), ("/preview", {"text": "daily", **some})]
    previews.append(("/preview", {"text": "a " * 499}))
    reading = itertools.cycle([posted(path, body, sender.plan.read) for path, body in (*previews, *hostile)])
    writing = itertools.cycle([posted(path, body, sender.plan.write) for path, body in hostile])
    both = itertools.chain.from_iterable(zip(reading, writing, strict=False))
    await sender.side_by_side(both, 4)


async def plans(sender: Sender) -> None:
    """Files of schedules with very many problems, with a key that may only read."""
    table = "[schedules.s{}]\n"
    good = table + "cron = '* * * * *'\naction = {{ kind = 'callback', name = 'x' }}\n"
    texts = {
        "wrong": "".join(map(table.format, range(4_000))),
        "wrong 20,000": "".join(f"[a{number}]\n" for number in range(20_000)),
        "good": "".join(map(good.format, range(2_500))),
        "long key": "a" + ".a" * 100_000 + " = 1\n",
        "zones": "".join(table.format(number) + f"timezone = 'X/{number}'\n" for number in range(4_000)),
    }
    bodies = [posted("/plan", {"text": f"name = 'a'\n{text}"}, sender.plan.read) for text in texts.values()]
    in_yaml = "name: a\nschedules:\n" + "".join(f" s{number}: 1\n" for number in range(10_000))
    bodies.append(posted("/plan", {"text": in_yaml, "format": "yaml"}, sender.plan.read))
    await sender.side_by_side(itertools.cycle(bodies), 2)


async def right_plans(sender: Sender) -> None:
    """No attack: the largest files that somebody may send, once each, which the service has to have memory for."""
    toml = "name = 'a'\n" + "".join(
        f"[schedules.s{number}]\ncron = '* * * * *'\naction = {{ kind = 'callback', name = 'x' }}\n"
        for number in range(3_000)
    )
    yaml = "name: a\nschedules:\n" + "".join(
        f"  s{number}:\n    cron: '* * * * *'\n    action: {{kind: callback, name: x}}\n" for number in range(3_000)
    )
    for form, text in (("toml", toml), ("yaml", yaml)):
        reader, writer = await sender.open()
        with contextlib.closing(writer):
            writer.write(posted("/plan", {"text": text, "format": form}, sender.plan.read))
            sender.counts[await answer(reader)] += 1


async def wrong_keys(sender: Sender) -> None:
    """Keys that are guessed."""
    keys_ = (f"nbk_{number:012}_{'a' * 43}" for number in itertools.count())
    guesses = (request(f"{API}/caller", key=key, method="GET") for key in keys_)
    await sender.side_by_side(guesses, 8)


async def pings(sender: Sender) -> None:
    """Pings of addresses that are guessed, and of one that is known, with bodies."""
    body = b"x" * 10_000

    def both() -> Iterator[bytes]:
        for number in itertools.count():
            yield request(f"/ping/{number:022}", body, form="octet-stream")
            yield request(sender.plan.ping, body, form="octet-stream")

    await sender.side_by_side(both(), 8)


async def slow(sender: Sender) -> None:
    """A thousand connections: some send a head byte by byte, some a body, some nothing."""

    async def drip(number: int) -> None:
        key = f"Authorization: Bearer {sender.plan.read}\r\n"
        body = f"POST {API}/preview HTTP/1.1\r\nHost: x\r\n{key}Content-Length: 100000\r\n\r\n"
        begin = (b"", b"GET / HTTP/1.1\r\nX-A: ", body.encode())[number % 3]
        with contextlib.suppress(OSError):
            reader, writer = await sender.open()
            sender.counts["sent"] += 1
            with contextlib.closing(writer), sender.counted():
                writer.write(begin)
                while time.monotonic() < sender.until and not reader.at_eof():
                    if begin:
                        writer.write(b" ")
                        await writer.drain()
                    await asyncio.sleep(0.5)
                sender.counts["held"] += not reader.at_eof()
                return
        sender.counts["closed"] += 1

    await asyncio.gather(*(drip(number) for number in range(1_000)))


async def pipelined(sender: Sender) -> None:
    """Blocks of pipelined requests without a key: half of the time no answer is read, then answers are read slowly."""
    paths = ("/healthz", "/login", "/healthz", f"{API}/schedules")

    async def one(path: str) -> None:
        request_ = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        requests = _BLOCK // len(request_)
        for _ in range(1 if sender.plan.is_first else 100):
            with contextlib.suppress(OSError), socket.socket() as raw:
                if await _pour_pipelined(sender, raw, request_ * requests, requests):
                    sender.counts["held"] += 1
                    return
            sender.counts["closed"] += 1
            if not sender.goes_on():
                return
            await asyncio.sleep(0.05)

    await asyncio.gather(*(one(path) for path in paths * (1 if sender.plan.is_first else 4)))


async def _pour_pipelined(sender: Sender, raw: socket.socket, block: bytes, requests: int) -> bool:
    """Send blocks without reading, then read slowly until the time is up. False: the service has closed it."""
    loop = asyncio.get_running_loop()
    raw.setblocking(False)
    await loop.sock_connect(raw, ("127.0.0.1", sender.plan.port))
    with sender.counted():
        try:
            async with asyncio.timeout(max((sender.until - time.monotonic()) / 2, 0.2)):
                for _ in range(1 if sender.plan.is_first else 500):
                    await loop.sock_sendall(raw, block)
                    sender.counts["sent"] += requests
                    sender.counts["bytes"] += len(block)
                    await asyncio.sleep(0)
        except TimeoutError:
            pass  # the service reads no more: its answers are not read either
        unfinished = b""
        while True:
            try:
                async with asyncio.timeout(max(sender.until - time.monotonic(), 0.2)):
                    received = await loop.sock_recv(raw, 4_096)
            except TimeoutError:
                return True
            sender.counts.update(status.decode() for status in _STATUS.findall(unfinished + received))
            unfinished = (unfinished + received)[-11:]  # one byte less than what is counted
            if not received:
                return False
            if time.monotonic() >= sender.until:
                return True
            await asyncio.sleep(0.02)


async def bodies(sender: Sender) -> None:
    """Bodies of up to 2 MB over 200 connections, without a key: large pieces, and the last byte never comes."""
    form, json_ = "x-www-form-urlencoded", "json"
    places = (
        ("/login", form),
        ("/logout", form),
        ("/login", form),
        (f"{API}/schedules", json_),
        (f"{API}/plan", json_),
    )
    sizes = (64_000, 250_000, 1_000_000, 2_000_000)

    async def one(number: int) -> None:
        path, type_ = places[number % len(places)]
        size = sizes[number // len(places) % len(sizes)]
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/{type_}\r\nContent-Length: {size}\r\n\r\n"
        begin = b'{"text":"' if type_ == json_ else b"name="
        for _ in range(100):
            with contextlib.suppress(OSError):
                reader, writer = await sender.open()
                with contextlib.closing(writer), sender.counted():
                    sender.counts[
                        await _unfinished(sender, reader, writer, head.encode() + begin, size - len(begin))
                    ] += 1
            if time.monotonic() >= sender.until:
                return
            await asyncio.sleep(0.5)

    await asyncio.gather(*(one(number) for number in range(8 if sender.plan.is_first else 200)))


async def _unfinished(
    sender: Sender, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, begin: bytes, size: int
) -> str:
    """Send a body but for its last byte, and wait for an answer until the time is up: its status, held or closed."""
    sender.counts["sent"] += 1
    try:
        async with asyncio.timeout(max(sender.until - time.monotonic(), 0.5)):
            writer.write(begin)
            left = size - 1
            while left:
                piece = b"a" * min(left, _BLOCK)
                writer.write(piece)
                left -= len(piece)
                sender.counts["bytes"] += len(piece)
                await writer.drain()
            return await answer(reader)
    except TimeoutError:
        return "held"
    except (OSError, asyncio.IncompleteReadError):
        return "closed"


ATTACKS: dict[str, Callable[[Sender], Awaitable[None]]] = {
    one.__name__: one for one in (heads, keys, plans, wrong_keys, pings, slow, pipelined, bodies)
}
USES = {right_plans.__name__: right_plans}


def raise_file_limit() -> None:
    """Allow this process and those that it starts to hold a thousand connections and more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if soft != resource.RLIM_INFINITY and soft < 4_096:
        raise SystemExit(f"The attacks need 4,096 open files, and the hard limit is {hard}: raise it (ulimit -Hn)")


def main() -> None:
    raise_file_limit()
    os.nice(10)  # in truth it would be another machine's processor
    sender = Sender(Plan(**json.loads(sys.argv[2])))
    asyncio.run(_attack((ATTACKS | USES)[sys.argv[1]], sender))
    print(json.dumps(dict(sorted(sender.counts.items()))))


async def _attack(attack: Callable[[Sender], Awaitable[None]], sender: Sender) -> None:
    await attack(sender)


if __name__ == "__main__":
    main()

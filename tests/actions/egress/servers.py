"""Servers on the loopback interface that behave as badly as a test wants, and certificates for them."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ngood"


@dataclass
class Asked:
    """A request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Behaviour: TypeAlias = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    port: int
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"


def answering(*answers: bytes) -> Behaviour:
    """Give these answers in turn, the last of them for ever."""
    left = list(answers)

    async def behave(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0) if len(left) > 1 else left[0])

    return behave


def redirecting(status: int, place: str) -> bytes:
    return (
        f"HTTP/1.1 {status} Elsewhere\r\nLocation: {place}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    ).encode()


def answer(body: bytes, *headers: str) -> bytes:
    lines = "".join(f"{header}\r\n" for header in (*headers, f"Content-Length: {len(body)}", "Connection: close"))
    return f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode() + body


@contextlib.asynccontextmanager
async def serving(
    behave: Behaviour, *, hosts: Sequence[str] = ("127.0.0.1",), port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    """A server that reads one request of each connection and hands the rest to `behave`."""
    server = Server(port)
    busy: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        busy.add(task)
        server.connections += 1
        try:
            asked = await _read_request(reader)
            server.asked.append(asked)
            await behave(asked, writer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client went away, which is what some tests are about
        finally:
            busy.discard(task)
            writer.close()

    listener = await asyncio.start_server(handle, list(hosts), port, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        left = list(busy)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await listener.wait_closed()


async def _read_request(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ", 2)
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    headers = {name.lower(): value for name, value in headers.items()}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, path, headers, body)


@dataclass
class Certificate:
    """A self-signed certificate: what a server shows, and what a client has to trust for it."""

    server: ssl.SSLContext
    trusting: ssl.SSLContext


def certificate_for(name: str, folder: Path, *, expired: bool = False) -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "noonbell test")])
    now = dt.datetime.now(dt.UTC)
    start, end = (now - dt.timedelta(days=9), now + dt.timedelta(days=-8 if expired else 1))
    try:
        alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        alternative = x509.DNSName(name)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    file = folder / f"{name}-{'old' if expired else 'new'}.pem"
    file.write_bytes(
        pem
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return Certificate(server, ssl.create_default_context(cadata=pem.decode()))

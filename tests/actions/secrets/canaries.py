"""Canary secrets, a server that sings them back in every encoding, and a search that finds any part of them.

Nothing here uses the code that masks: what is looked for is made by the encoders of the standard library.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import html
import json
import logging
import secrets
import traceback
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, quote_plus

_WINDOW = 10
# Every window holds a seed that begins at a multiple of the stride: the search looks closer only where one is found.
_SEED = 5
_STRIDE = _WINDOW - _SEED + 1
MIB = 1 << 20


def canaries() -> dict[str, str]:
    """Fresh secrets: a token, one full of signs that encoders change, and one of several lines."""
    awkward = "+/=%&\"'\\<>é ?#"
    return {
        "TOKEN": secrets.token_urlsafe(30),
        "AWKWARD": secrets.token_hex(6) + awkward + secrets.token_urlsafe(12),
        "LINES": f"-----BEGIN KEY-----\n{secrets.token_urlsafe(30)}\n{secrets.token_urlsafe(30)}\n-----END KEY-----",
    }


def encoded(value: str) -> list[str]:
    """A value as encoders write it, on its own."""
    data = value.encode()
    return [
        value,
        value.lower(),
        quote(value, safe=""),
        quote_plus(value),
        quote(quote(value, safe=""), safe=""),
        json.dumps(value),
        json.dumps(value, ensure_ascii=False),
        json.dumps(json.dumps(value)),
        repr(value),
        html.escape(value),
        "".join(f"%{byte:02x}" for byte in data),
        "".join(f"\\u{ord(char):04x}" for char in value),
        data.hex(),
        data.hex().upper(),
        data.hex(":"),
        base64.b64encode(data).decode(),
        base64.urlsafe_b64encode(data).decode(),
        base64.b64encode(b"ann:" + data).decode(),
        base64.b64encode(b"xx" + data + b"yy").decode(),
        base64.b64encode(json.dumps({"key": value}).encode()).decode(),
        base64.encodebytes(data).decode(),
    ]


class Search:
    """Looks for any ten signs in a row of what is secret, in any encoding, also inside of what is compressed."""

    def __init__(self, values: Iterable[str]) -> None:
        self._windows: dict[bytes, str] = {}
        for value in values:
            for number, form in enumerate(self._forms(value)):
                data = form.encode()
                for at in range(len(data) - _WINDOW + 1):
                    self._windows.setdefault(data[at : at + _WINDOW], f"{value[:4]}… as form {number}")
        self._seeds = {window[at : at + _SEED] for window in self._windows for at in range(_STRIDE)}

    @staticmethod
    def _forms(value: str) -> list[str]:
        # only what is random: "-----BEGIN KEY-----" may be anywhere
        random = [line for line in value.split("\n") if "KEY" not in line]
        forms = [form for line in random for form in encoded(line)]
        data = random[0].encode()
        # from the middle of a base64 text on: its ends depend on what stands around
        forms += [base64.b64encode(b"." * lead + data).decode()[4:-4] for lead in range(3)]
        return [form for form in forms if not form.startswith(base64.b64encode(b'{"key'[:3]).decode())]

    def hits(self, source: str, data: bytes | str | None) -> list[str]:
        """What is found, and where."""
        if data is None:
            return []
        raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        found: list[str] = []
        for layer, unpacked in enumerate(_layers(raw)):
            found += [f"{source} (layer {layer}): {one}" for one in sorted(self._found(unpacked))]
        return found

    def _found(self, data: bytes) -> set[str]:
        seeds = [at for at in range(0, len(data) - _SEED + 1, _STRIDE) if data[at : at + _SEED] in self._seeds]
        windows = {data[at : at + _WINDOW] for seed in seeds for at in range(max(0, seed - _STRIDE + 1), seed + 1)}
        return {self._windows[window] for window in windows & self._windows.keys()}

    def hits_in_rows(self, source: str, rows: Iterable[Iterable[Any]]) -> list[str]:
        found: list[str] = []
        for row in rows:
            for value in row:
                found += self.hits(source, value if isinstance(value, bytes | str) else repr(value))
        return found


def _layers(data: bytes) -> Iterator[bytes]:
    yield data
    for prefix in (0, 1):
        with contextlib.suppress(zlib.error):
            yield zlib.decompress(data[prefix:])


class Ear(logging.Handler):
    """Hears every log line of every level, with its traceback and everything else that it carries."""

    def __init__(self) -> None:
        super().__init__(level=1)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        parts = [record.getMessage(), str(record.exc_text), repr(record.__dict__)]
        if record.exc_info and record.exc_info[1] is not None:
            parts += traceback.format_exception(record.exc_info[1])
        self.lines.append("\n".join(parts))


@contextlib.contextmanager
def listening() -> Iterator[Ear]:
    ear, root = Ear(), logging.getLogger()
    before = root.level
    root.addHandler(ear)
    root.setLevel(1)
    try:
        yield ear
    finally:
        root.setLevel(before)
        root.removeHandler(ear)


@dataclass
class Parrot:
    """A server on the loopback interface that answers with what it was sent, as the first part of the path says."""

    songs: list[str]
    port: int = 0
    heard: list[bytes] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Parrot]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, limit=4 * MIB)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
            )
            asked = head + await reader.readexactly(length)
            self.heard.append(asked)
            target = head.split(b" ", 2)[1]
            writer.write(self._song(target.split(b"/")[1].partition(b"?")[0].decode(), target, asked))
            await writer.drain()
        writer.close()

    def _song(self, mode: str, target: bytes, asked: bytes) -> bytes:
        sung = "\n".join(self.songs).encode() + b"\n" + asked + b"\n" + base64.b64encode(asked)
        plain = self.songs[0].encode()
        if mode == "fail":
            return _response("500 " + quote(plain), sung, b"X-Song: " + plain)
        if mode == "redirect":
            return _response("307 Over There", sung, b"Location: /echo" + target[9:])
        if mode == "away":
            return _response("307 Far Away", sung, b"Location: http://10.9.8.7/" + target[5:])
        if mode == "nowhere":
            return _response("307 Nowhere", sung, b"Location: http://" + plain + b".invalid:" + plain + b"/")
        if mode == "garbage":
            return asked
        if mode == "bad_header":
            return b"HTTP/1.1 200 OK\r\nX-Song\x01 " + plain + b": " + plain + b"\r\n" + asked
        if mode == "short":
            return _response("200 OK", sung, b"", length=len(sung) + 100)
        if mode == "long":
            return _response("200 OK", b"." * (MIB - len(plain) // 2) + plain + b"." * 100, b"")
        if mode == "edges":
            # an excerpt ends somewhere in this
            return _response("500 No", (b"." * 7 + plain) * 100, b"")
        if mode == "packed":
            return _response("200 OK", zlib.compress(sung), b"Content-Encoding: deflate")
        return _response("200 OK", sung, b"X-Song: " + plain + b"\r\nSet-Cookie: a=" + quote(plain).encode())


def _response(status: str, body: bytes, headers: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    extra = headers + b"\r\n" if headers else b""
    return f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n".encode() + extra + b"Connection: close\r\n\r\n" + body

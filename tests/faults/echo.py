"""What the service of `tests/faults/attacks.py` talks to: a target that repeats its request, and a hostile proxy."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self
from urllib.parse import quote, urlsplit

# How a target may write down what it was sent.
FORMS: Final[dict[str, Callable[[str], str]]] = {
    "plain": lambda said: said,
    "json": lambda said: json.dumps({"said": said}),
    "json-in-json": lambda said: json.dumps({"body": json.dumps({"said": said})}),
    "json-in-json-in-json": lambda said: json.dumps(json.dumps({"body": json.dumps({"said": said})})),
    "decimal": lambda said: "".join(f"&#{ord(char)};" for char in said),
    "hexadecimal": lambda said: "".join(f"&#x{ord(char):06X}" for char in said),
    "decimal-with-zeros": lambda said: "".join(f"&#{ord(char):020};" for char in said),
    "decimal-in-json": lambda said: "".join(f"\\u0026#{ord(char)};" for char in said),
    "decimal-in-html": lambda said: "".join(f"&amp;#{ord(char)};" for char in said),
    "decimal-in-a-query": lambda said: quote("".join(f"&#{ord(char)};" for char in said), safe=""),
    "octal": lambda said: "".join(f"\\{byte:03o}" for byte in said.encode()),
    "eight-digits": lambda said: "".join(f"\\U{ord(char):08X}" for char in said),
    "braces": lambda said: "".join(f"\\u{{{ord(char):x}}}" for char in said),
}


class _Listening:
    """A server on loopback, in a thread, while the block lasts."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._server = _Server(("127.0.0.1", 0), handler)
        self.place = f"127.0.0.1:{self._server.server_address[1]}"
        self.address = f"http://{self.place}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class Echo(_Listening):
    """A target on loopback: /plain answers shortly, and each form of FORMS repeats the body in that form."""

    def __init__(self) -> None:
        class Handler(_Quiet):
            def do_GET(self) -> None:
                self.answer(b"ok")

            def do_POST(self) -> None:
                said = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
                self.answer(FORMS[self.path.strip("/")](said).encode())

        super().__init__(Handler)


class HostileProxy(_Listening):
    """A proxy that answers as the host of the URL says, and notes for which hosts it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        proxy = self

        class Handler(_Quiet):
            def do_GET(self) -> None:
                host = urlsplit(self.path).hostname or self.path
                proxy.asked.append(host)
                if host.startswith("endless"):
                    self._pour(b"HTTP/1.1 200 OK\r\n", b"X-A: " + b"a" * 60_000 + b"\r\n")
                elif host.startswith("huge"):
                    self._pour(b"HTTP/1.1 200 OK\r\n\r\n", b"b" * 64_000)
                elif host.startswith("inside"):
                    self.send_response(302)
                    self.send_header("Location", "http://169.254.169.254/latest/meta-data/")
                    self.end_headers()
                else:
                    self.wfile.write(b"\x00\xff no HTTP at all\r\n\r\n")

            def do_CONNECT(self) -> None:
                proxy.asked.append(self.path)
                self.answer(b"no")

            def _pour(self, begin: bytes, piece: bytes) -> None:
                try:
                    self.wfile.write(begin)
                    for _ in range(5_000):
                        self.wfile.write(piece)
                except OSError:
                    self.close_connection = True

        super().__init__(Handler)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that the service cuts are what is wanted."""


class _Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        """Nobody reads it."""

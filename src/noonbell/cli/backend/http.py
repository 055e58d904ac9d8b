"""A small HTTP client for the operator's own service: requests in a thread, one connection each.

A failure of the connection becomes a `CliError`: a server that does not answer, a certificate for another host, a key
that is not accepted, a server that is not Noonbell. An error of the service itself is raised again as the same error of
the library, so that it reads like a local one.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import re
import ssl
import sys
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar, cast
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from noonbell import __version__, errors
from noonbell.cli.cli_errors import NOT_PERMITTED, UNREACHABLE, CliError
from noonbell.errors import NoonbellError

T = TypeVar("T")

_PREFIX: Final = "/api/v1"
_CONNECT_SECONDS: Final = 10.0
_SECONDS: Final = 60.0
_PAGE: Final = 500
_RIGHT: Final = "such as https://bell.example.org or http://127.0.0.1:8765"
_LOOPBACK: Final = re.compile(r"localhost|127(\.\d+){3}|::1")
# What OpenSSL says of a certificate, in plain words.
_CERTIFICATE: Final = {
    10: "has expired",
    9: "is not valid yet",
    18: "is signed by itself",
    19: "is signed by an authority that is not known here",
    20: "is signed by an authority that is not known here",
    62: "is for another host",
    64: "is for another address",
}


class Answered(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """A client of one service with one key."""

    def __init__(self, url: str, key: str | None, *, as_json: bool) -> None:
        self._as_json = as_json
        self.url = url.rstrip("/")
        try:
            parts = urlsplit(self.url)
            self._port = parts.port
        except ValueError:
            raise self._bad_address(url) from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise self._bad_address(url)
        if parts.username is not None or parts.password is not None:
            message = "The address of a server must not contain a user or a password; set the key in NOONBELL_API_KEY"
            raise self._cli_error(message, {"option": "--server"})
        self._tls = parts.scheme == "https"
        self._host = parts.hostname
        self._path = parts.path.removesuffix(_PREFIX)
        if key is None or not key.strip():
            raise self._cli_error(
                "The server asks for a key, and NOONBELL_API_KEY is not set",
                {"variable": "NOONBELL_API_KEY"},
                ("Create one at the database: noonbell api-keys create NAME --scope write --store ADDRESS",),
                exit_code=NOT_PERMITTED,
            )
        if not re.fullmatch(r"[\x21-\x7e]+", key.strip()):
            message = "NOONBELL_API_KEY does not hold a valid key; keys begin with nbk_"
            raise self._cli_error(message, {"variable": "NOONBELL_API_KEY"}, exit_code=NOT_PERMITTED)
        self._key = key.strip()
        if not self._tls and not _LOOPBACK.fullmatch(self._host):
            print(f"Warning: the key goes to {self._host} unencrypted; https:// is right", file=sys.stderr)  # noqa: T201 - stdout may be JSON

    def _cli_error(
        self, message: str, facts: dict[str, Any], hints: tuple[str, ...] = (), exit_code: int | None = None
    ) -> CliError:
        return CliError(message, facts, hints, as_json=self._as_json, exit_code=exit_code)

    def _bad_address(self, url: str) -> CliError:
        facts = {"option": "--server", "value": url, "right": _RIGHT}
        return self._cli_error(f'"{url}" is not the address of a service; right is one {_RIGHT}', facts)

    # --- requests -------------------------------------------------------------------------------------------------

    async def get(self, path: str, **query: Any) -> Any:
        return await self.call("GET", path, query=query)

    async def every(self, path: str) -> list[Any]:
        """Return a whole list, read page by page."""
        found: list[Any] = []
        cursor = None
        while True:
            page = await self.get(path, cursor=cursor, limit=_PAGE)
            found += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return found

    async def call(
        self, method: str, path: str, body: Any = None, *, query: Mapping[str, Any] | None = None, once: bool = False
    ) -> Any:
        """Return the answer as plain values. With `once`, an Idempotency-Key makes a repeated request harmless."""
        headers = {"Accept": "application/json"}
        data: bytes | None = None
        if body is not None:
            data, headers["Content-Type"] = msgspec.json.encode(body), "application/json"
        if once:
            headers["Idempotency-Key"] = uuid.uuid4().hex
        target = self.address(path) + _query(query or {})
        answered = await _in_thread(self._sent, method, target, data, headers, again=once or method == "GET")
        return self.read(answered)

    async def ping(self, path: str, body: bytes) -> None:
        """Send a ping, which needs no key."""
        answered = await _in_thread(self._sent, "POST", self._path + path, body, {}, again=False)
        if answered.status != 200:
            raise NoonbellError(answered.body.decode("utf-8", "replace").strip() or f"HTTP {answered.status}")

    def _sent(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str], *, again: bool
    ) -> Answered:
        try:
            return self._exchange(method, target, body, headers)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
            if not again:
                raise self.away(error) from error
        except (OSError, http.client.HTTPException) as error:
            raise self.away(error) from error
        try:
            return self._exchange(method, target, body, headers)
        except (OSError, http.client.HTTPException) as error:
            raise self.away(error) from error

    def _exchange(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> Answered:
        connection = self.connection()
        try:
            connect(connection, _SECONDS)
            connection.request(method, target, body, {**self.usual_headers, **headers})
            response = connection.getresponse()
            return Answered(
                response.status, {key.lower(): value for key, value in response.getheaders()}, response.read()
            )
        finally:
            connection.close()

    @property
    def usual_headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}", "User-Agent": f"noonbell/{__version__}"}

    def connection(self) -> http.client.HTTPConnection:
        if self._tls:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=_CONNECT_SECONDS, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=_CONNECT_SECONDS)

    # --- responses ------------------------------------------------------------------------------------------------

    def read(self, answered: Answered) -> Any:
        status, body = answered.status, answered.body
        if status == 204:
            return None
        kind = answered.headers.get("content-type", "").partition(";")[0].strip()
        if 300 <= status < 400:
            to = answered.headers.get("location", "another address")
            message = f"{self.url} redirects to {to}; pass that address with --server"
            raise self._cli_error(message, {"server": self.url, "location": to}, exit_code=UNREACHABLE)
        try:
            if kind not in ("application/json", "application/problem+json"):
                raise ValueError
            data = msgspec.json.decode(body)
        except (ValueError, msgspec.DecodeError):
            message = f"{self.url} answers, but not as a Noonbell server (HTTP {status}); check the address"
            raise self._cli_error(message, {"server": self.url, "status": status}, exit_code=UNREACHABLE) from None
        if 200 <= status < 300:
            return data
        raise self._refused(status, data, answered.headers)

    def _refused(self, status: int, problem: Any, headers: Mapping[str, str]) -> Exception:
        detail = str(problem.get("detail", f"HTTP {status}")) if isinstance(problem, dict) else f"HTTP {status}"
        facts = {"server": self.url, "status": status}
        if status == 401:
            message = f"{self.url} does not accept the key in NOONBELL_API_KEY: it is wrong, revoked or expired"
            hint = "noonbell api-keys list --store ADDRESS lists the keys; create makes another"
            return self._cli_error(message, facts, (hint,), NOT_PERMITTED)
        if status == 403:
            return self._cli_error(f"The key may not do this: {detail}", facts, (), NOT_PERMITTED)
        if status == 429:
            wait = headers.get("retry-after", "a few")
            return self._cli_error(f"{self.url} asks to retry in {wait} s: {detail}", facts, (), UNREACHABLE)
        if status >= 500 and status != 502:
            found = problem.get("instance") if isinstance(problem, dict) else None
            hints = (f"Its log names this request: {str(found).rpartition(':')[2]}",) if found else ()
            return self._cli_error(f"{self.url} cannot answer now: {detail}", facts, hints, UNREACHABLE)
        return rebuilt(detail, problem if isinstance(problem, dict) else {})

    def away(self, error: Exception) -> CliError:
        facts = {"server": self.url, "error": type(error).__name__}
        hints: tuple[str, ...] = ()
        if isinstance(error, ssl.SSLCertVerificationError):
            said = _CERTIFICATE.get(error.verify_code, f"is not accepted ({error.verify_message})")
            message = f"The certificate of {self._host} {said}; nothing was sent"
            hints = ("If it is your own authority's, name its certificate in SSL_CERT_FILE",)
            if error.verify_code in (62, 64):
                hints = (f"It does not name {self._host}: check the address, or who answers there",)
        elif isinstance(error, ssl.SSLError):
            message = f"TLS error at {self.url}: {error.reason}"
            hints = (f"Did you mean http://{self._netloc}",)
        elif isinstance(error, ConnectionRefusedError):
            message = f"Connection to {self.url} refused: is the service running?"
        elif isinstance(error, TimeoutError):
            message = f"{self.url} did not answer in time"
        elif type(error).__name__ == "gaierror":
            message = f"Host not found: {self._host}"
            hints = ("Check the address in --server or NOONBELL_URL",)
        elif isinstance(error, http.client.RemoteDisconnected | ConnectionResetError | http.client.BadStatusLine):
            message = f"{self.url} closed the connection without an answer"
            hints = () if self._tls else (f"Perhaps it speaks TLS there: https://{self._netloc}",)
        else:
            message = f"{self.url} cannot be reached: {getattr(error, 'strerror', None) or error}"
        return self._cli_error(message, facts, hints, UNREACHABLE)

    def address(self, path: str) -> str:
        """Return the address of a path of the API at the server."""
        return f"{self._path}{_PREFIX}{path}"

    @property
    def _netloc(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return host if self._port is None else f"{host}:{self._port}"


async def _in_thread(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call it in a daemon thread, so that a server that hangs does not block Ctrl-C."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast("T", result))

    def work() -> None:
        result, failed = None, None
        try:
            result = function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - it is raised where it is awaited
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: the result is not needed any more
            loop.call_soon_threadsafe(deliver, result, failed)

    threading.Thread(target=work, name="noonbell-request", daemon=True).start()
    return await done


def connect(connection: http.client.HTTPConnection, seconds: float) -> None:
    """Connect with a short timeout, and then set the timeout of the answer."""
    connection.connect()
    if connection.sock is not None:
        connection.sock.settimeout(seconds)


def escaped(part: str) -> str:
    """Return a text escaped as one segment of a path."""
    return quote(part, safe="")


def _query(query: Mapping[str, Any]) -> str:
    given = {key: _text(value) for key, value in query.items() if value is not None}
    return "?" + urlencode(given) if given else ""


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def rebuilt(detail: str, problem: Mapping[str, Any]) -> NoonbellError:
    """Return the service's error with the class, message, field and value of the problem document."""
    name = str(problem.get("type", "")).rpartition(":")[2]
    wanted = "".join(part.capitalize() for part in name.split("-")) + "Error"
    kind = getattr(errors, wanted, NoonbellError)
    error: NoonbellError = kind.__new__(kind)
    facts = {key: problem[key] for key in ("field", "value") if problem.get(key) is not None}
    NoonbellError.__init__(error, detail, **facts)
    several = problem.get("errors") or ()
    for one in several if len(several) > 1 else ():
        error.add_note(f"{one.get('field', '')}: {one.get('reason', '')}")
    return error

"""The middleware of every request: an id, security headers, limits on its body, a log line, no traceback in answers.

Plain ASGI, so that streams pass through piece by piece.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final
from urllib.parse import unquote

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from noonbell.access.address_keys import counted_as
from noonbell.api.paging import ESCAPED
from noonbell.api.problems import ProblemError, answer, of_error
from noonbell.api.tracing import record_outcome, request_span
from noonbell.errors import NoonbellError, describe_error

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

logger = logging.getLogger("noonbell.api")

BODY_SECONDS: Final = 30.0
# How many bodies of the largest size may be held at once.
_BODIES_OF_ONE: Final = 4
_BODIES_OF_ALL: Final = 16
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
# Also as a proxy or a slip of the pen may write them: a token is as good there as in the right address.
_SLASHES: Final = f"[/{ESCAPED}]+"
_SECRET_PATHS: Final = re.compile(
    rf"^({_SLASHES}(?:ping|setup|welcome{_SLASHES}[^/{ESCAPED}]+){_SLASHES})[^/]+", re.IGNORECASE
)
# No foreign sources, no inline scripts or styles, and no embedding in frames.
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
# Where people reach the service by https: browsers are to remember it, for a year.
HTTPS_HEADERS: Final = {"Strict-Transport-Security": "max-age=31536000"}
# Polled constantly by programs: logged at debug level.
_QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics", "/demo/bell", "/demo/moody"})


class RequestMiddleware:
    """The middleware of all requests.

    `observe` receives method, route, status and seconds of each request; `admit` raises to refuse one by its headers.
    A request that the server cancels because the service stops (`stopping`) is answered with 503.
    """

    def __init__(
        self,
        app: App,
        *,
        largest_body: int,
        prefix: str,
        observe: Callable[[str, str, int, float], None] | None = None,
        admit: Callable[[Request], Awaitable[None]] | None = None,
        body_seconds: float = BODY_SECONDS,
        https: bool = False,
        stopping: asyncio.Event | None = None,
    ) -> None:
        self._app = app
        self._prefix = prefix
        self._largest_body = largest_body
        self._observe = observe
        self._admit = admit
        self._body_seconds = body_seconds
        self._stopping = stopping
        self._bodies = _Bodies(largest_body)
        self._always = SECURITY_HEADERS | HTTPS_HEADERS if https else SECURITY_HEADERS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if b"%2f" in scope.get("raw_path", b"").lower():
            # an escaped slash belongs to an id and does not separate two parts of the path; ESCAPED keeps them apart
            scope["path"] = unquote(re.sub("%2[fF]", ESCAPED, scope["raw_path"].decode("latin-1").partition("?")[0]))
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        scope["noonbell.request_id"] = request_id
        with request_span(scope["method"], headers) as span:
            answering = _Answering(send, request_id, self._always)
            await self._answered(scope, receive, answering, headers)
            record_outcome(span, scope["method"], self._route(scope), answering.status)

    async def _answered(self, scope: Scope, receive: Receive, answering: _Answering, headers: Headers) -> None:
        request_id = scope["noonbell.request_id"]
        began = time.perf_counter()
        try:
            if await self._admitted(scope, receive, answering):
                await self._pass_on(scope, receive, answering, headers)
        except asyncio.CancelledError:
            if self._stopping is None or not self._stopping.is_set() or answering.begun:
                raise
            detail = "The service is stopping, and the request had not ended; what it began may go on"
            problem = ProblemError(503, detail, kind="stopping", headers={"Connection": "close"})
            await answer(Request(scope), problem)(scope, receive, answering)
        except ClientDisconnect:
            answering.status = 400  # for the log: the client left before its request was complete
        except Exception as error:
            if not answering.begun:
                logger.exception("request failed", extra=_facts(request_id=request_id, path=_path(scope)))
                detail = "Internal error; the log of the service has the details under this id"
                problem = ProblemError(500, detail, kind="internal")
                await answer(Request(scope), problem)(scope, receive, answering)
            else:
                facts = _facts(request_id=request_id, path=_path(scope))
                logger.error("response interrupted: %s", describe_error(error), extra=facts)  # noqa: TRY400 - the client has disconnected, mostly
        finally:
            seconds = time.perf_counter() - began
            self._log_request(scope, answering.status, seconds, request_id)

    async def _admitted(self, scope: Scope, receive: Receive, answering: _Answering) -> bool:
        if self._admit is None:
            return True
        request = Request(scope)
        try:
            await self._admit(request)
        except ProblemError as refused:
            problem = refused
        except NoonbellError as error:
            problem = of_error(error)
            if problem.status == 500:
                raise
        else:
            return True
        await answer(request, problem)(scope, receive, answering)
        return False

    async def _pass_on(self, scope: Scope, receive: Receive, answering: _Answering, headers: Headers) -> None:
        limit = self._largest_body
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > limit and not scope["path"].startswith("/ping/"):
            problem = ProblemError(413, _too_large(limit), kind="too-large", headers={"Connection": "close"})
            await answer(Request(scope), problem)(scope, receive, answering)
            return
        if scope["path"].startswith("/ping/"):  # the ping endpoint has its own limits of size and time
            await self._app(scope, receive, answering)
            return
        in_time = _InTime(receive, self._body_seconds)
        read, sender = 0, _sender(scope)

        async def receive_bounded() -> Message:
            nonlocal read
            message = await in_time()
            size = len(message.get("body", b""))
            read += size
            if read > limit:
                raise HTTPException(413, _too_large(limit))
            self._bodies.add(sender, size)
            return message

        try:
            await self._app(scope, receive_bounded, answering)
        finally:
            self._bodies.remove(sender, read)

    def _route(self, scope: Scope) -> str:
        """Return the path as a template, of which there are few."""
        template = getattr(scope.get("route"), "path", None) or "(none)"
        if scope["path"].startswith(f"{self._prefix}/") and template.startswith("/"):
            return f"{self._prefix}{template}"  # a route does not know the prefix that it was included with
        return template

    def _log_request(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        if self._observe is not None:
            self._observe(scope["method"], self._route(scope), status, seconds)
        caller = scope.get("noonbell.caller")
        level = logging.DEBUG if scope["path"] in _QUIET else logging.INFO
        if logger.isEnabledFor(level):
            facts = _facts(
                method=scope["method"], path=_path(scope), status=status, ms=round(seconds * 1000, 2),
                actor=None if caller is None else caller.actor, team=None if caller is None else caller.team,
                request_id=request_id,
            )  # fmt: skip
            logger.log(level, "%s %s %d", scope["method"], _path(scope), status, extra=facts)


class _Bodies:
    """The bytes of request bodies in memory: of each sender, and in total."""

    def __init__(self, largest_body: int) -> None:
        self._most_of_one = _BODIES_OF_ONE * largest_body
        self._most = _BODIES_OF_ALL * largest_body
        self._held: Counter[str] = Counter()
        self._total = 0

    def add(self, sender: str, size: int) -> None:
        """Count bytes that were read; raise 429 at the limit of a sender, 503 at the total limit."""
        self._held[sender] += size
        self._total += size
        if self._held[sender] > self._most_of_one:
            raise HTTPException(429, "Too many large requests at once; wait for their answers", {"Retry-After": "1"})
        if self._total > self._most:
            raise HTTPException(503, "Too many large requests at once; try again", {"Retry-After": "1"})

    def remove(self, sender: str, size: int) -> None:
        """Stop counting the body of a request that has ended."""
        self._total -= size
        self._held[sender] -= size
        if not self._held[sender]:
            del self._held[sender]


class _InTime:
    """Receives a request with a timeout for its whole body; after the body, it only waits for the disconnect."""

    def __init__(self, receive: Receive, seconds: float) -> None:
        self._receive = receive
        self._seconds = seconds
        self._until: float | None = None
        self._complete = False

    async def __call__(self) -> Message:
        if self._complete:
            return await self._receive()
        if self._until is None:
            self._until = asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            reason = f"The body of a request has to be there within {self._seconds:g} s"
            raise HTTPException(408, reason, {"Connection": "close"}) from None
        self._complete = not message.get("more_body", False)
        return message


class _Answering:
    """Sends the answer with the headers of the service."""

    def __init__(self, send: Send, request_id: str, always: Mapping[str, str]) -> None:
        self._always = always
        self._send = send
        self._request_id = request_id
        self.begun = False
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self._request_id
            for name, value in self._always.items():
                headers.setdefault(name, value)
            # what a key has opened is not for the memory of a proxy
            headers.setdefault("Cache-Control", "no-store")
        await self._send(message)


def _sender(scope: Scope) -> str:
    """Return the key of a request, or the address that it comes from."""
    caller = scope.get("noonbell.caller")
    if caller is not None:
        return str(caller.key_id or caller.actor)
    client = scope.get("client")
    return "unknown" if client is None else counted_as(client[0])


def _too_large(limit: int) -> str:
    return f"The body of a request may have {limit} bytes at most"


def _path(scope: Scope) -> str:
    """Return the path for the log, without tokens and without the query."""
    path = re.sub(_SECRET_PATHS, r"\1***", scope["path"])
    return path if path.isprintable() else repr(path)


def _facts(**facts: Any) -> dict[str, Any]:
    """Return the facts of a log line for programs."""
    return {"noonbell": facts}

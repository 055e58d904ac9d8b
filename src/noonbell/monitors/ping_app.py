"""The ping endpoint, as a plain ASGI application that a service mounts.

    GET, POST or HEAD   /ping/<token>             the job has ended well
                        /ping/<token>/start       it begins
                        /ping/<token>/fail        it has failed
                        /ping/<token>/log         something to note, which changes nothing
                        /ping/<token>/<0-255>     it has ended with this exit code
                        …?run=<name>              of the run of this name

The body of a POST is kept, up to a length; what is beyond it is read and dropped, so that a job with much output does
not see its ping fail. Beyond LONGEST_READ the ping counts all the same, and the connection is closed. More pings than
`rates` takes are turned away before their body is read, and so are those on a URL that no monitor has. Answers are
plain text: 200, or 400, 404, 405, 408, 429, 503 with a sentence that says what is wrong. Nothing but the token is
needed, and nothing but "OK" is given away.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs

from noonbell.errors import DocumentConflictError, MonitorInvalidError, PingUnknownError, StoreError, describe_error
from noonbell.monitors.monitor_state import PingKind
from noonbell.monitors.monitors import LONGEST_BODY, Monitors
from noonbell.monitors.rates import PingLimits, PingRates

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

logger = logging.getLogger("noonbell.monitors")

LONGEST_READ: Final = 10_000_000
READ_SECONDS: Final = 30.0
# Read beyond what is kept, so that a secret that lies across the cut can be found and hidden.
_MARGIN: Final = 16_384
_METHODS: Final = ("GET", "HEAD", "POST")
_PATH: Final = re.compile(r"/ping/([A-Za-z0-9_-]{1,200})(?:/(start|fail|log|[0-9]{1,3}))?/?")
_RETRY_AFTER: Final = (b"retry-after", b"5")
_CLOSE: Final = ((b"connection", b"close"),)


class _Answer(NamedTuple):
    status: int
    text: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class _Body(NamedTuple):
    kept: bytes
    whole: bool  # it was read to its end


class PingApp:
    """Takes pings for some monitors. Lifespan events are answered and WebSockets are closed."""

    def __init__(
        self, monitors: Monitors, *, limits: PingLimits | None = None, read_seconds: float = READ_SECONDS
    ) -> None:
        self._monitors = monitors
        self._rates = PingRates(PingLimits() if limits is None else limits, monitors.elapsed)
        self._read_seconds = read_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "lifespan":
            await _lifespan(receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        asked = _PATH.fullmatch(path)
        if asked is None:
            await _answer(scope, send, _Answer(404, "A ping URL ends in /ping/<token>, and start, fail, log or a code"))
            return
        if scope["method"] not in _METHODS:
            allowed = (b"allow", ", ".join(_METHODS).encode())
            await _answer(scope, send, _Answer(405, "A ping is a GET, POST or HEAD", (allowed,)))
            return
        answer = await self._judged(asked[1], asked[2], scope, receive)
        if answer is not None:
            await _answer(scope, send, answer)

    async def _judged(self, token: str, said: str | None, scope: Scope, receive: Receive) -> _Answer | None:
        """The answer to a ping; None where the job hung up before its ping was whole."""
        wait = self._rates.wait(token)
        if wait:
            later = (b"retry-after", str(math.ceil(wait)).encode())
            return _Answer(429, "There are too many pings; this one was not counted", (later, *_CLOSE))
        if not self._rates.knows(token):
            try:
                await self._monitors.check_token(token)
            except PingUnknownError as error:
                return _Answer(404, str(error), _CLOSE)
            except StoreError as error:
                return _not_stored(error, *_CLOSE)
            self._rates.note(token)
        if not self._rates.enter():
            return _Answer(503, "Too many pings are being read now; send it again", (_RETRY_AFTER, *_CLOSE))
        try:
            async with asyncio.timeout(self._read_seconds):
                body = await _read(receive)
        except TimeoutError:
            return _Answer(408, "The body did not come in time; the ping was not counted", _CLOSE)
        finally:
            self._rates.leave()
        if body is None:
            return None
        answer = await self._take(token, said, scope, body.kept)
        return answer if body.whole else answer._replace(headers=(*answer.headers, *_CLOSE))

    async def _take(self, token: str, said: str | None, scope: Scope, body: bytes) -> _Answer:
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        exit_code = int(said) if said is not None and said.isdigit() else None
        kinds: dict[str, PingKind] = {"start": "start", "fail": "fail", "log": "log"}
        try:
            await self._monitors.ping(
                token, kinds.get(said or ""), body=body, exit_code=exit_code, run=query.get("run", [""])[-1]
            )
        except PingUnknownError as error:
            self._rates.forget(token)
            return _Answer(404, str(error))
        except MonitorInvalidError as error:
            return _Answer(400, str(error))
        except (StoreError, DocumentConflictError) as error:
            return _not_stored(error)
        self._rates.note(token)
        return _Answer(200, "OK")


def _not_stored(error: Exception, *headers: tuple[bytes, bytes]) -> _Answer:
    logger.error("ping not stored reason=%s", describe_error(error))
    return _Answer(503, "The ping could not be stored now; send it again", (_RETRY_AFTER, *headers))


async def _read(receive: Receive) -> _Body | None:
    """The body, as far as it is wanted; None where the sender has gone."""
    kept, read = bytearray(), 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            return None
        chunk = event.get("body", b"")
        read += len(chunk)
        kept += chunk[: max(0, LONGEST_BODY + _MARGIN - len(kept))]
        if not event.get("more_body", False):
            return _Body(bytes(kept), whole=True)
        if read > LONGEST_READ:
            return _Body(bytes(kept), whole=False)


async def _answer(scope: Scope, send: Send, answer: _Answer) -> None:
    body = (answer.text + "\n").encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),  # a GET that a cache answers never arrives here
        *answer.headers,
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        event = await receive()
        await send({"type": f"{event['type']}.complete"})
        if event["type"] == "lifespan.shutdown":
            return

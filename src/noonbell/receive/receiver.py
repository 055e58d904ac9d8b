"""Verifies signed messages and hands each on once.

What is checked, in this order: size, headers, timestamp, signature, and then whether the message was handled. Nothing
is remembered of a message whose signature does not fit.

| what is wrong | error | status |
| --- | --- | --- |
| the body is longer than `longest_body` | WebhookTooLargeError | 413 |
| a header is missing, doubled or malformed | WebhookMalformedError | 400 |
| the timestamp is further away than `tolerance`, or no signature matches | WebhookRefusedError | 401 |
| the same message is being handled | WebhookInProgressError | 409, ask again later |
| the same message has been handled | WebhookRepeatedError | 200: the sender has nothing more to do |
| messages cannot be remembered | WebhookUnavailableError | 503, ask again later |

A message that fails in its handler is forgotten, so that the next attempt is handled. A process that dies between the
work and the note of it, or a handler that takes longer than the memory's `busy_for`, leads to a second handling: at
least once, and as a rule once.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from noonbell.errors import (
    SigningKeyError,
    WebhookInProgressError,
    WebhookMalformedError,
    WebhookRefusedError,
    WebhookRepeatedError,
    WebhookTooLargeError,
    WebhookUnavailableError,
)
from noonbell.receive import standard
from noonbell.receive.seen import Claim, MemorySeen, Seen

if TYPE_CHECKING:
    from noonbell.receive.asgi import ASGIApp, GuardedApp

_log: Final = logging.getLogger("noonbell.receive")
_LONGEST_ID: Final = 512
_LATEST: Final = 253_402_300_799  # the end of the year 9999
_WANTED: Final = (
    standard.ID_HEADER,
    standard.TIMESTAMP_HEADER,
    standard.SIGNATURE_HEADER,
    standard.SCHEDULED_HEADER,
    standard.ATTEMPT_HEADER,
)

Headers = Mapping[str, str] | Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Received:
    """A message whose signature fits. `scheduled_for` and `attempt` are hints: their headers are not signed."""

    message_id: str
    sent_at: datetime
    body: bytes = field(repr=False)
    scheduled_for: datetime | None = None
    attempt: int | None = None

    @property
    def run_id(self) -> str:
        """The id of the run at the sender: the same for all its attempts."""
        return unquote(self.message_id)

    def json(self) -> Any:
        return json.loads(self.body)


class Receiver:
    """Takes messages that are signed with any of `keys`, sent within `tolerance` of now, each once.

    `store` remembers what was handled; without one it is this process's memory. `clock` gives seconds since 1970.
    """

    def __init__(
        self,
        keys: str | Sequence[str],
        tolerance: timedelta = timedelta(minutes=5),
        *,
        store: Seen | None = None,
        longest_body: int = 1_048_576,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keys = [standard.parse_key(key) for key in ([keys] if isinstance(keys, str) else keys)]
        if not self._keys:
            raise SigningKeyError("none is given; a receiver needs at least one")
        if tolerance <= timedelta(0):
            raise ValueError(f"tolerance {tolerance} must be above zero")
        self._seen: Seen = MemorySeen() if store is None else store
        if self._seen.ttl < 2 * tolerance:
            # the clocks may differ by the tolerance, either way
            raise ValueError(
                f"the store remembers for {self._seen.ttl}, but a message can be sent again for {2 * tolerance}; "
                "choose a longer ttl or a shorter tolerance"
            )
        self._tolerance = tolerance.total_seconds()
        self._clock = clock
        self.longest_body = longest_body

    def __repr__(self) -> str:
        return f"Receiver({len(self._keys)} keys)"

    def verify(self, headers: Headers, body: bytes) -> Received:
        """The message, if it is genuine and recent. Says nothing about whether it was handled."""
        if len(body) > self.longest_body:
            raise WebhookTooLargeError(f"the body has more than {self.longest_body} bytes")
        found = _wanted_headers(headers)
        message_id = _message_id(found)
        timestamp = _timestamp(found)
        signatures = _required(found, standard.SIGNATURE_HEADER)
        age = self._clock() - timestamp
        if abs(age) > self._tolerance:
            when = f"{age:.0f} s ago" if age > 0 else f"{-age:.0f} s from now"
            raise WebhookRefusedError(f"the message was sent {when}; {self._tolerance:.0f} s are allowed")
        if not standard.is_signed(self._keys, message_id, timestamp, body, signatures):
            raise WebhookRefusedError("no signature matches")
        return Received(
            message_id=message_id,
            sent_at=datetime.fromtimestamp(timestamp, UTC),
            body=body,
            scheduled_for=_moment(found.get(standard.SCHEDULED_HEADER)),
            attempt=_attempt(found.get(standard.ATTEMPT_HEADER)),
        )

    async def begin(self, message: Received) -> Claim:
        """Claim a message. Raises if it is being handled or has been."""
        claim = await self._seen.begin(message.message_id, self._clock())
        if claim.state == "busy":
            raise WebhookInProgressError("this message is being handled; ask again later")
        if claim.state == "done":
            raise WebhookRepeatedError("this message has been handled")
        return claim

    async def finish(self, message: Received) -> None:
        """Note that a message was handled. Where that fails, the claim still keeps repeats away for a while."""
        try:
            await self._seen.finish(message.message_id, self._clock())
        except WebhookUnavailableError as error:
            # An error here would make the sender repeat what has been done.
            _log.warning("message %s was handled, but %s", message.message_id, error)

    async def forget(self, message: Received, claim: Claim) -> None:
        await self._seen.forget(message.message_id, claim.token)

    @asynccontextmanager
    async def once(self, message: Received) -> AsyncIterator[None]:
        """Handle a message inside: it counts as handled if that ends without an error."""
        claim = await self.begin(message)
        try:
            yield
        except BaseException:
            await self.forget(message, claim)
            raise
        await self.finish(message)

    def guard(self, app: ASGIApp) -> GuardedApp:
        """An ASGI application that lets only messages through, each once."""
        from noonbell.receive.asgi import GuardedApp  # noqa: PLC0415 - the two know each other

        return GuardedApp(app, self)


def _wanted_headers(headers: Headers) -> dict[str, str]:
    pairs: Iterable[tuple[str | bytes, str | bytes]] = headers.items() if isinstance(headers, Mapping) else headers
    found: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name = (raw_name.decode("latin-1") if isinstance(raw_name, bytes) else raw_name).lower()
        if name not in _WANTED:
            continue
        if name in found:
            raise WebhookMalformedError(f"the header {name} is given twice")
        found[name] = raw_value.decode("latin-1") if isinstance(raw_value, bytes) else raw_value
    return found


def _required(found: Mapping[str, str], name: str) -> str:
    value = found.get(name, "").strip()
    if not value:
        raise WebhookMalformedError(f"the header {name} is missing")
    return value


def _message_id(found: Mapping[str, str]) -> str:
    message_id = _required(found, standard.ID_HEADER)
    if len(message_id) > _LONGEST_ID:
        raise WebhookMalformedError(f"the header {standard.ID_HEADER} is longer than {_LONGEST_ID} characters")
    if "." in message_id or not (message_id.isascii() and message_id.isprintable()):
        raise WebhookMalformedError(f"the header {standard.ID_HEADER} holds a full stop or a sign outside of ASCII")
    return message_id


def _timestamp(found: Mapping[str, str]) -> int:
    text = _required(found, standard.TIMESTAMP_HEADER)
    # one way to write a number: the text itself is signed
    if not (text.isascii() and text.isdigit() and len(text) <= 12 and str(int(text)) == text and int(text) <= _LATEST):
        raise WebhookMalformedError(f"the header {standard.TIMESTAMP_HEADER} is not a number of seconds since 1970")
    return int(text)


def _moment(text: str | None) -> datetime | None:
    try:
        moment = None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None


def _attempt(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None

"""Which messages were handled, and which are being handled: what a receiver has to remember.

A message is claimed before it is handled. It is finished when that went well, and forgotten when it did not, so that
the sender's next attempt is handled again. A claim lasts for `busy_for`: a process that dies does not hold it for
ever.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from datetime import timedelta
from typing import Literal, NamedTuple, Protocol

from noonbell.errors import WebhookUnavailableError


class Claim(NamedTuple):
    """The answer to a claim. `new`: handle it. `busy`: it is being handled. `done`: it has been handled."""

    state: Literal["new", "busy", "done"]
    token: str = ""  # names this claim, so that an old one cannot undo a newer


class Seen(Protocol):
    """A memory of messages. `now` is in seconds since 1970."""

    ttl: timedelta  # for how long a finished message is remembered

    async def begin(self, message_id: str, now: float) -> Claim: ...

    async def finish(self, message_id: str, now: float) -> None:
        """The message was handled, under whatever claim."""

    async def forget(self, message_id: str, token: str) -> None:
        """The message was not handled. Nothing happens if the claim is not this one any more."""


class MemorySeen:
    """Remembers in this process: up to `limit` finished messages, the oldest of which go first, each for `ttl`.

    It knows nothing of other processes and nothing after a restart; use a file there.
    """

    def __init__(
        self,
        *,
        ttl: timedelta = timedelta(days=1),
        limit: int = 100_000,
        busy_for: timedelta = timedelta(minutes=5),
    ) -> None:
        check_times(ttl, busy_for)
        if limit < 1:
            raise ValueError(f"limit {limit} must be at least 1")
        self.ttl = ttl
        self._limit = limit
        self._busy_for = busy_for
        # Both in the order in which they end, as long as the clock is not set back; then some stay a little longer.
        self._done: OrderedDict[str, float] = OrderedDict()
        self._busy: OrderedDict[str, tuple[float, str]] = OrderedDict()

    async def begin(self, message_id: str, now: float) -> Claim:
        self._drop_old(now)
        if self._done.get(message_id, now) > now:
            return Claim("done")
        if message_id in self._busy and self._busy[message_id][0] > now:
            return Claim("busy")
        if len(self._busy) >= self._limit:
            raise WebhookUnavailableError(f"{self._limit} messages are being handled; ask again later")
        token = secrets.token_hex(8)
        self._busy[message_id] = (now + self._busy_for.total_seconds(), token)
        self._busy.move_to_end(message_id)
        return Claim("new", token)

    async def finish(self, message_id: str, now: float) -> None:
        self._busy.pop(message_id, None)
        self._done[message_id] = now + self.ttl.total_seconds()
        self._done.move_to_end(message_id)
        while len(self._done) > self._limit:
            self._done.popitem(last=False)

    async def forget(self, message_id: str, token: str) -> None:
        if message_id in self._busy and self._busy[message_id][1] == token:
            del self._busy[message_id]

    def __len__(self) -> int:
        return len(self._done) + len(self._busy)

    def _drop_old(self, now: float) -> None:
        while self._done and next(iter(self._done.values())) <= now:
            self._done.popitem(last=False)
        while self._busy and next(iter(self._busy.values()))[0] <= now:
            self._busy.popitem(last=False)


def check_times(ttl: timedelta, busy_for: timedelta) -> None:
    if ttl <= timedelta(0):
        raise ValueError(f"ttl {ttl} must be above zero")
    if busy_for <= timedelta(0):
        raise ValueError(f"busy_for {busy_for} must be above zero")

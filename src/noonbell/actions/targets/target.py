"""The protocols of targets, and what all of them share: checks of their options, and addresses without secrets.

A target is anything with `deliver` and `close`. A delivery has arrived when `deliver` returns, and anything it raises
means that it is tried again. A message may come more than once: the `id` of its CloudEvent is the same each time, and
is how a receiver recognises repeats.

A target that takes many messages in one round trip has `deliver_many` as well. It is all or nothing: when it raises,
none is taken to have arrived, but for those that a TargetAwayError counts. That error says that the target as a whole
is away; any other, that one of the messages was refused.

Connections are opened with the first message and again after `close`. Secrets in addresses and headers stay out of
errors and of `repr`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable
from urllib.parse import unquote, urlsplit

from noonbell.core.records import OutboxMessage
from noonbell.errors import ScheduleInvalidError


@runtime_checkable
class Target(Protocol):
    """A receiver of messages."""

    async def deliver(self, body: str) -> None:
        """Pass on a CloudEvent, JSON; return when it has arrived."""
        ...

    async def close(self) -> None:
        """Close what is open; the next delivery opens it again."""
        ...


@runtime_checkable
class BatchTarget(Target, Protocol):
    """A receiver of many messages at once."""

    most_together: int

    async def deliver_many(self, bodies: Sequence[str]) -> None:
        """Pass on CloudEvents in this order; return when all have arrived."""
        ...


@runtime_checkable
class ProbedTarget(Target, Protocol):
    """A receiver that can be probed."""

    async def probe(self) -> str:
        """Return its state in words; raise DeliveryError if it cannot take messages. Sends no message."""
        ...


class ChannelTarget(Target, Protocol):
    """A target that counts what it is given."""

    async def turn_over(self) -> None:
        """Write down what must not be lost; called when a stream ends its turn, before its messages are dropped."""
        ...


class ChannelDispatcher(Protocol):
    """The targets of channels, which come and go while the program runs (see `noonbell.notify`)."""

    def target(self, name: str) -> ChannelTarget | None: ...

    async def undelivered(self, message: OutboxMessage, attempts: int, error: str, at: int) -> None:
        """Notify by the rules that a message is a dead letter."""
        ...

    async def close(self) -> None: ...


TargetLike: TypeAlias = Target | Callable[[dict[str, Any]], Any]


def masked(url: str) -> str:
    """An address without what may be secret in it: user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        place = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "(an address that cannot be read)"
    if "@" not in parts.netloc and "@" in url:
        return f"{parts.scheme}://…"  # a password with a slash in it, unescaped: better to say nothing
    user = "***@" if "@" in parts.netloc else ""
    return f"{parts.scheme}://{user}{place}{parts.path}{'?***' if parts.query else ''}"


def cleaned(said: str, url: str) -> str:
    """Return a client's text of a failure without the address that it may repeat, password included."""
    said = said.replace(url, masked(url))
    try:
        password = urlsplit(url).password
    except ValueError:
        return said
    for secret in (password, unquote(password or "")):
        said = said.replace(secret, "***") if secret else said
    return said


# --- options ----------------------------------------------------------------------------------------------------------


def require_address(url: object, schemes: Sequence[str], example: str) -> None:
    """Refuse a value that is not an address of these schemes; of the value only the scheme is repeated."""
    scheme = url.partition("://")[0] if isinstance(url, str) and "://" in url else None
    if scheme not in schemes:
        shown = None if scheme is None else f"{scheme}://…"
        raise ScheduleInvalidError("url", shown, f"must be an address such as {example}")


def require_text(field: str, value: object) -> None:
    """Refuse a value that is not a text, or is blank."""
    if not isinstance(value, str) or not value.strip():
        raise ScheduleInvalidError(field, value, "must be a text that is not blank")


def require_seconds(field: str, value: object, *, least: float | None = None) -> None:
    """Refuse a value that is not a number of seconds above 0, or from `least`."""
    right = "must be a number of seconds above 0" if least is None else f"must be a number of seconds from {least:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ScheduleInvalidError(field, value, right)
    # written so that NaN is refused as well
    if not (value > 0 if least is None else value >= least) or value > 1e9:
        raise ScheduleInvalidError(field, value, right)


def require_switch(field: str, value: object) -> None:
    """Refuse what is neither true nor false."""
    if not isinstance(value, bool):
        raise ScheduleInvalidError(field, value, "must be true or false")

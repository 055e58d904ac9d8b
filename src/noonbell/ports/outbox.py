"""The outbox: messages on their way, stream by stream, and dead letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from noonbell.core.records import AuditEvent, DeadLetter, Delivery, OutboxMessage, Sending, Stream


class AwayTarget(NamedTuple):
    """A target that is known to be away: `error` says how, `until` until when what is for it is put off.

    Without `until` so many streams are brought to try it; the others stay as they are.
    """

    error: str
    until: int | None = None
    tries: int = 1


class StreamBounds(NamedTuple):
    """The limits of a claim of streams: bytes of messages, and which targets need nothing now, by name."""

    most_bytes: int = 16 * 1024 * 1024
    away: Mapping[str, AwayTarget] = MappingProxyType({})


BOUNDS: Final = StreamBounds()


class StreamClaim(NamedTuple):
    """Streams that are to be delivered now, and when the next one is."""

    streams: list[Stream]
    full: bool
    next_wake_at: int | None


MakeAudit = Callable[[list[int]], AuditEvent]


class LedgerOutbox(Protocol):
    """Messages by stream. A stream is what one schedule has in the outbox."""

    async def post(self, messages: Sequence[OutboxMessage], at: int) -> None:
        """Put messages that belong to no claim and no settle at the ends of their streams."""
        ...

    async def claim(self, lane: str, owner: str, now: int, limit: int, bounds: StreamBounds = BOUNDS) -> StreamClaim:
        """Claim up to `limit` streams of the lane that are due, each with its oldest messages, for the owner.

        The claim is full where others are due and had no room. `noonbell.store.stream_selection` applies the bounds.
        A stream belongs to one owner until its `Delivery` is written; a rescue frees those of a dead one.
        """
        ...

    async def settle(self, deliveries: Sequence[Delivery]) -> None:
        """Drop what was delivered, bury what is dead, and free the streams; one that is not the owner's is left.

        The `audit` of a delivery is written with what it buries.
        """
        ...

    async def sending(self, sid: int, message_id: str) -> Sending | None:
        """Return the message of this id in the stream of a schedule, as long as it is in the outbox."""
        ...

    async def owned(self, owner: str) -> list[int]:
        """Return the sids of the streams that `owner` has claimed: to account for them after a failed claim."""
        ...

    async def dead_letters(self, sid: int | None, after: int, limit: int, team: str | None = None) -> list[DeadLetter]:
        """Return a page by number, past `after`; of one schedule, of one team, or of all."""
        ...

    async def resolve(
        self, numbers: Sequence[int], audit: MakeAudit | None = None, *, redeliver_at: int | None = None
    ) -> int:
        """Take dead letters out of the list; returns how many there were.

        With `redeliver_at` they are put back at the ends of their streams, to be delivered from then on; without it
        they are forgotten. If there was one, the audit event that `audit` makes of their numbers is written.
        """
        ...

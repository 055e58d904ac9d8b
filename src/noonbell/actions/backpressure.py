"""The bounds of a claim: streams and bytes in flight, and what could not be delivered now.

Claims begin small, and double while they are full of streams, bring few messages, and all of it is recorded soon. When
that takes long, be it a target or a store that is busy, they are small again: other engines of the lane can take what
this one would keep waiting. While a burst of schedules is being claimed they are small as well: what is due goes first.

A target that is away is tried by one message, once its pause is over; what else is for it stays in the outbox, unread,
until it answers, and then comes in ever larger claims. See `batches` for the pauses.

A target that this engine does not know may be known to another engine of the lane, one with other settings or another
version: streams that have come to such a message are left to the others, as they are, for the first minute of the
message. After that it fails like any other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from noonbell.actions.batches import Batches
from noonbell.actions.stream_in_flight import StreamInFlight
from noonbell.actions.targets import Target
from noonbell.core.instants import SECOND
from noonbell.core.records import OutboxMessage
from noonbell.ports import BOUNDS, AwayTarget, Clock, StreamBounds

logger = logging.getLogger("noonbell.delivery")

MOST_BYTES_IN_FLIGHT: Final = BOUNDS.most_bytes
# Below this a claim waits until something has ended: many small claims cost more than one.
LEAST_ROOM: Final = MOST_BYTES_IN_FLIGHT // 4
# Streams that are claimed ahead for each that is being delivered: transactions are fewer than messages then.
_AHEAD: Final = 4
_MOST_STREAMS: Final = 2_048
# A claim that brings so many messages is large enough: long streams make it one, however few they are.
_ENOUGH_MESSAGES: Final = 2_048
# From the claim of a stream until its end is recorded: claims grow below the first, and are small above the second.
_SOON: Final = SECOND // 4
_LONG: Final = SECOND
_HOLD: Final = SECOND
_LEFT_TO_OTHERS: Final = 60 * SECOND
# For so long none of a target that is not known here is claimed again.
_ABSTAINS: Final = 10 * SECOND


class ClaimSize:
    """The number of streams that may be in flight: at least four for each worker."""

    def __init__(self, streams: int) -> None:
        self.most = self._least = streams * _AHEAD
        self._grows = False
        self._held_at: int | None = None

    def room(self, in_flight: int, now: int) -> int:
        """Return how many streams to claim now; 0 where it is better to wait until more have ended."""
        held = self._held_at is not None and now - self._held_at < _HOLD
        most = self._least if held else self.most
        return most - in_flight if most - in_flight >= most // _AHEAD else 0

    def hold(self, at: int | None) -> None:
        """Keep claims small for a moment from `at` on; with None, no longer."""
        self._held_at = at

    def claimed(self, messages: int, *, full: bool) -> None:
        """Note what a claim has brought, and whether more was there."""
        self._grows = full and messages < _ENOUGH_MESSAGES
        if messages > 4 * _ENOUGH_MESSAGES:
            self.most = max(self._least, self.most // 2)

    def settled(self, waited_us: int) -> bool:
        """Adapt to how long the oldest of some streams took, from its claim until its end was recorded.

        Returns whether that was too long to keep streams waiting here.
        """
        if waited_us > _LONG:
            self.most = self._least
        elif waited_us < _SOON and self._grows:
            self.most = max(self._least, min(2 * self.most, _MOST_STREAMS))
            self._grows = False
        return waited_us > _LONG


class BackPressure:
    """The bounds of the next claim."""

    def __init__(self, clock: Clock, batches: Mapping[str, Batches], target_of: Callable[[str], Target | None]) -> None:
        self._clock = clock
        self._batches = batches
        self._target_of = target_of
        self._unknown: dict[str, int] = {}
        self._logged: set[str] = set()

    def bounds(self, in_flight: Iterable[StreamInFlight]) -> StreamBounds:
        now, room = self._clock.now(), MOST_BYTES_IN_FLIGHT
        under_way: set[str] = set()
        for served in in_flight:
            room -= served.size
            if self._batches:
                under_way.update(message.target for _, message in served.stream.messages[:1])
        away: dict[str, AwayTarget] = {}
        for name, batches in self._batches.items():
            held = batches.held_back(tried=name in under_way)
            if held is not None and batches.target is self._target_of(name):
                away[name] = held
        self._unknown = {name: until for name, until in self._unknown.items() if until > now}
        for name in self._unknown:
            if self._target_of(name) is None:
                away[name] = AwayTarget("it is not known here", tries=0)
        return StreamBounds(room, away)

    def leaves_to_others(self, message: OutboxMessage) -> bool:
        """Return whether its target is not known here, and another engine may still take it."""
        name, now = message.target, self._clock.now()
        if self._target_of(name) is not None or not 0 <= now - message.created_at < _LEFT_TO_OTHERS:
            return False
        self._unknown[name] = now + _ABSTAINS
        if name not in self._logged:
            self._logged.add(name)
            logger.warning(
                "target not registered target=%s: for %d s its messages are left to other engines",
                name,
                _LEFT_TO_OTHERS // SECOND,
            )
        return True

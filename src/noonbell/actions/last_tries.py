"""The last try of a message that was under way, or claimed, at so many deaths of a process that it may be their cause.

Nothing records which of the claimed messages was being delivered when a process died, so each death counts as an
attempt for the first message of every stream that was claimed. After `max_attempts` it is tried once more, while no
other stream is in flight: if the process dies of it, only its own stream counts another death, and the message is a
dead letter without a further try. The messages that were claimed beside it are delivered.

Streams that have come so far are put back while others are in flight. Where that goes on for a while, none is claimed
until the others have ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from noonbell.actions.stream_in_flight import StreamInFlight
from noonbell.core.instants import SECOND

_PUT_BACK: Final = SECOND
_PATIENCE: Final = 10 * SECOND
# A stream that was put back and does not come again is another engine's by now, or was deleted.
_FORGOTTEN: Final = 80 * SECOND


class Chosen(NamedTuple):
    """The choice among claimed streams: some start now, the others are put back until `free_at`."""

    start: Sequence[StreamInFlight]
    put_back: Sequence[StreamInFlight] = ()
    free_at: int = 0


class LastTries:
    """Decides which claimed streams may start."""

    def __init__(self, max_attempts: int) -> None:
        self._max_attempts = max_attempts
        self._put_back_since: int | None = None
        self._alone: StreamInFlight | None = None  # the stream that has its last try, until that is recorded
        self._waiting: StreamInFlight | None = None  # the same, while others are in flight

    def may_claim(self, in_flight: Mapping[int, StreamInFlight], now: int) -> bool:
        """Return whether to claim further streams beside those in flight."""
        if self._alone is not None:
            if in_flight.get(self._alone.stream.sid) is self._alone:
                return False
            self._alone = None
        if self._put_back_since is not None and now - self._put_back_since >= _FORGOTTEN:
            self._put_back_since = None
        return not in_flight or self._put_back_since is None or now - self._put_back_since < _PATIENCE

    def choose(self, claimed: Sequence[StreamInFlight], in_flight: Mapping[int, StreamInFlight], now: int) -> Chosen:
        """Choose among the streams of one claim; `in_flight` are those of earlier ones."""
        last = [served for served in claimed if served.stream.attempt == self._max_attempts]
        if not last:
            if not in_flight:
                self._put_back_since = None
            return Chosen(claimed)
        if in_flight:
            if self._put_back_since is None:
                self._put_back_since = now
            return Chosen([served for served in claimed if served not in last], last, now + _PUT_BACK)
        self._put_back_since, self._waiting, self._alone = None, last[0], last[0]
        return Chosen([], [served for served in claimed if served is not last[0]], now)

    def take(self, in_flight: Mapping[int, StreamInFlight]) -> StreamInFlight | None:
        """Return the stream that waits to be alone, once it is."""
        return self.withdraw() if len(in_flight) == 1 else None

    def withdraw(self) -> StreamInFlight | None:
        """Return the stream that waits, whether it is alone or not; it waits no more."""
        waiting, self._waiting = self._waiting, None
        return waiting

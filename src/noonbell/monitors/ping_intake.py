"""The reception of pings: since when they arrive without a gap, as far as this process knows (rule 5 of `state`).

Everything that works on one store shares one `PingReception` (`reception_of`). There is a gap where a watch has just
begun, where the store failed, and where a watch that polls every few seconds has not polled for LONGEST_GAP: the
machine slept, the process was suspended, or the clock was set ahead. Where no watch has ever polled, only the store
counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakKeyDictionary

from noonbell.errors import StoreCorruptError, StoreError
from noonbell.timing.timing_protocol import SECOND

LONGEST_GAP: Final = 60 * SECOND


class PingReception:
    """The time since which pings have been received without a gap."""

    def __init__(self, now: int) -> None:
        self._since = now
        self._polled_at: int | None = None
        self._interrupted = False

    def since(self, now: int) -> int:
        """Return the moment since which pings arrive without a gap; `now` itself during a gap."""
        silent = self._polled_at is not None and now - self._polled_at > LONGEST_GAP
        return now if self._interrupted or silent else min(self._since, now)  # the clock may have been set back

    def interrupt(self) -> None:
        """Record that pings may have been lost up to this moment."""
        self._interrupted = True

    def received(self, now: int) -> None:
        """Record that a ping was stored."""
        self._since, self._interrupted = self.since(now), False

    def polled(self, now: int) -> None:
        """Record that a watch has read from the store what is due."""
        self.received(now)
        self._polled_at = now

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read from the store within this context; a failure of it is a gap."""
        try:
            yield
        except StoreCorruptError:  # of one monitor; the others are received
            raise
        except StoreError:
            self.interrupt()
            raise


_receptions: WeakKeyDictionary[object, PingReception] = WeakKeyDictionary()


def reception_of(store: object, now: int) -> PingReception:
    """Return the reception of a store, the same for all that work on it; a new one begins now."""
    return _receptions.setdefault(store, PingReception(now))

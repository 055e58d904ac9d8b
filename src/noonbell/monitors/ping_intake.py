"""Since when pings are heard without a gap, as far as this process knows: rule 5 of `state` goes by it.

Everything that works on one store shares one `Hearing` (`hearing_of`). There is a gap where a watch has only begun,
where the store failed, and where a watch that looks every few seconds has not looked for LONGEST_GAP: the machine
slept, the process was suspended, or the clock was set ahead. Where no watch has ever looked, only the store counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakKeyDictionary

from noonbell.errors import StoreCorruptError, StoreError
from noonbell.timing.protocol import SECOND

LONGEST_GAP: Final = 60 * SECOND


class Hearing:
    """The time since which pings have been received without a gap."""

    def __init__(self, now: int) -> None:
        self._since = now
        self._looked_at: int | None = None
        self._interrupted = False

    def since(self, now: int) -> int:
        """`now` itself where a gap has not ended before it."""
        silent = self._looked_at is not None and now - self._looked_at > LONGEST_GAP
        return now if self._interrupted or silent else min(self._since, now)  # the clock may have been set back

    def interrupt(self) -> None:
        """Pings may have gone unheard up to this moment."""
        self._interrupted = True

    def heard(self, now: int) -> None:
        """A ping was stored."""
        self._since, self._interrupted = self.since(now), False

    def looked(self, now: int) -> None:
        """Record that a watch has read from the store what is due."""
        self.heard(now)
        self._looked_at = now

    @contextmanager
    def asking(self) -> Iterator[None]:
        """The store is asked for something; a failure of it is a gap."""
        try:
            yield
        except StoreCorruptError:  # of one monitor; the others are heard
            raise
        except StoreError:
            self.interrupt()
            raise


_hearings: WeakKeyDictionary[object, Hearing] = WeakKeyDictionary()


def hearing_of(store: object, now: int) -> Hearing:
    """Return the hearing of a store, the same for all that work on it; a new one begins now."""
    return _hearings.setdefault(store, Hearing(now))
